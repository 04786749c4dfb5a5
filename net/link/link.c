/* SPDX-License-Identifier: Apache-2.0 */
#include "net/link/link_private.h"

#include "appliance/base/check.h"

size_t tdm_link_footprint(uint32_t neighbour_max) {
    if (neighbour_max < 16 || neighbour_max > TDM_LINK_NEIGHBOUR_MAX) return 0;
    if ((neighbour_max & (neighbour_max - 1)) != 0) return 0;
    size_t sz = sizeof(tdm_link_t) + neighbour_max * sizeof(neighbour_t);
    return (sz + TDM_CACHE_LINE - 1) & ~(size_t)(TDM_CACHE_LINE - 1);
}

/* --- addresses ------------------------------------------------------ */

static int prefix_is_equal(const uint8_t *a, const uint8_t *b, uint32_t bits) {
    uint32_t whole = bits / 8;
    if (memcmp(a, b, whole) != 0) return 0;
    if (bits % 8 == 0) return 1;
    uint8_t mask = (uint8_t)(0xff00u >> bits % 8);
    return ((a[whole] ^ b[whole]) & mask) == 0;
}

static int ipv6_is_link_local(const uint8_t *addr) {
    return addr[0] == 0xfe && (addr[1] & 0xc0) == 0x80;
}

int addr_is_onlink(const tdm_link_t *l, const uint8_t *addr, uint32_t version) {
    if (version == 4) return l->c.has_ipv4 && prefix_is_equal(addr, l->c.ipv4, l->c.ipv4_prefix);
    if (!l->c.has_ipv6) return 0;
    return ipv6_is_link_local(addr) || prefix_is_equal(addr, l->c.ipv6, l->c.ipv6_prefix);
}

/* ipv4_is_edge: the network address of our subnet or its broadcast, which
   exist where a subnet has host bits to spare (RFC 3021 frees /31). */
static int ipv4_is_edge(const tdm_link_t *l, const uint8_t *addr) {
    if (l->c.ipv4_prefix >= 31) return 0;
    if (!prefix_is_equal(addr, l->c.ipv4, l->c.ipv4_prefix)) return 0;
    uint32_t a = get16(addr) << 16 | get16(addr + 2);
    uint32_t host_mask = UINT32_MAX >> l->c.ipv4_prefix;
    return (a & host_mask) == 0 || (a & host_mask) == host_mask;
}

static int ipv4_is_host(const tdm_link_t *l, const uint8_t *addr) {
    if (addr[0] == 0 || addr[0] == 127 || addr[0] >= 224) return 0;
    if (l->c.has_ipv4 && memcmp(addr, l->c.ipv4, 4) == 0) return 0;
    return !(l->c.has_ipv4 && ipv4_is_edge(l, addr));
}

/* ::/80 holds the unspecified address, loopback, and the IPv4-compatible
   and IPv4-mapped forms; none of them is ever seen on a wire (RFC 4291
   sections 2.5.2, 2.5.3 and 2.5.5). */
static int ipv6_is_host(const tdm_link_t *l, const uint8_t *addr) {
    if (addr[0] == 0xff || bytes_are_zero(addr, 10)) return 0;
    return !(l->c.has_ipv6 && memcmp(addr, l->c.ipv6, 16) == 0);
}

int addr_is_host(const tdm_link_t *l, const uint8_t *addr, uint32_t version) {
    return version == 4 ? ipv4_is_host(l, addr) : ipv6_is_host(l, addr);
}

int mac_is_station(const tdm_link_t *l, const uint8_t *mac) {
    if ((mac[0] & 1) != 0 || bytes_are_zero(mac, 6)) return 0;
    return memcmp(mac, l->c.mac, 6) != 0;
}

int tdm_link_is_onlink(const tdm_link_t *l, const tdm_endpoint_t *remote) {
    return addr_is_onlink(l, remote->addr, remote->version);
}

/* --- life ----------------------------------------------------------- */

static tdm_status_t config_check(const tdm_link_config_t *c, tdm_error_t *err) {
    if ((c->mac[0] & 1) != 0 || bytes_are_zero(c->mac, 6))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: mac is zero or a group address");
    if (c->mtu < 1280 || c->mtu > 9000)
        return tdm_error_set(err, TDM_ERR_INVAL, "link: mtu %u is outside 1280..9000", c->mtu);
    if (c->vlan > 4094)
        return tdm_error_set(err, TDM_ERR_INVAL, "link: vlan %u is outside 0..4094", c->vlan);
    if (c->udp_port == 0) return tdm_error_set(err, TDM_ERR_INVAL, "link: udp_port is 0");
    if (!c->has_ipv4 && !c->has_ipv6)
        return tdm_error_set(err, TDM_ERR_INVAL, "link: neither an IPv4 nor an IPv6 address");
    if (c->ipv4_prefix > 32 || c->ipv6_prefix > 128)
        return tdm_error_set(err, TDM_ERR_INVAL, "link: a prefix is longer than its address");
    if (tdm_link_footprint(c->neighbour_max) == 0)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "link: neighbour_max %u is no power of two in 16..%u",
                             c->neighbour_max, TDM_LINK_NEIGHBOUR_MAX);
    if ((c->gateway_mac[0] & 1) != 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "link: gateway_mac is a group address");
    return TDM_OK;
}

/* addresses_check needs the link's own helpers, so it runs on a link that
   has its config but none of its own addresses yet. */
static tdm_status_t addresses_check(const tdm_link_config_t *c, tdm_error_t *err) {
    tdm_link_t bare;
    memset(&bare, 0, sizeof bare);
    if (c->has_ipv4 && !addr_is_host(&bare, c->ipv4, 4))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: ipv4 is not a host's address");
    if (c->has_ipv6 && !addr_is_host(&bare, c->ipv6, 6))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: ipv6 is not a host's address");
    bare.c = *c;
    if (c->has_ipv4 && ipv4_is_edge(&bare, c->ipv4))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: ipv4 names the subnet, not a host in it");
    if (!bytes_are_zero(c->gateway4, 4) &&
        (!addr_is_onlink(&bare, c->gateway4, 4) || !addr_is_host(&bare, c->gateway4, 4)))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: gateway4 is no other host of our subnet");
    if (!bytes_are_zero(c->gateway6, 16) &&
        (!addr_is_onlink(&bare, c->gateway6, 6) || !addr_is_host(&bare, c->gateway6, 6)))
        return tdm_error_set(err, TDM_ERR_INVAL, "link: gateway6 is no other host of our subnet");
    return TDM_OK;
}

tdm_status_t tdm_link_init(void *mem, const tdm_link_config_t *config, int64_t now_ns,
                           tdm_link_t **out, tdm_error_t *err) {
    tdm_status_t st = config_check(config, err);
    if (st == TDM_OK) st = addresses_check(config, err);
    if (st != TDM_OK) return st;

    tdm_link_t *l = mem;
    memset(l, 0, tdm_link_footprint(config->neighbour_max));
    l->c = *config;
    l->set_mask = config->neighbour_max / NEIGHBOUR_WAYS - 1;
    l->has_gateway4 = !bytes_are_zero(config->gateway4, 4);
    l->has_gateway6 = !bytes_are_zero(config->gateway6, 16);
    l->has_gateway_mac = !bytes_are_zero(config->gateway_mac, 6);
    bucket_init(&l->reply_bucket, config->reply_per_s, now_ns);
    bucket_init(&l->solicit_bucket, config->solicit_per_s, now_ns);

    /* ff02::1:ff00:0/104 and the address's last 24 bits (RFC 4291 section
       2.7.1); Ethernet carries it as 33:33 and the last 32 (RFC 2464
       section 7). */
    static const uint8_t group[13] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};
    memcpy(l->group6, group, 13);
    memcpy(l->group6 + 13, config->ipv6 + 13, 3);
    l->group6_mac[0] = l->group6_mac[1] = 0x33;
    memcpy(l->group6_mac + 2, l->group6 + 12, 4);
    *out = l;
    return TDM_OK;
}

/* --- accounts ------------------------------------------------------- */

void tdm_link_rx_drop(tdm_link_t *l, tdm_reason_t reason, uint32_t sz) {
    l->n.rx_frames++;
    l->n.rx_bytes += sz;
    l->n.rx_drop[reason]++;
}

int tdm_link_is_foreign(tdm_reason_t reason) {
    switch (reason) {
    case TDM_DROP_frame_short:
    case TDM_DROP_arp_malformed:
    case TDM_DROP_icmp_malformed:
    case TDM_DROP_icmp_ignored:
    case TDM_DROP_nd_malformed:
    case TDM_DROP_udp_length:
    case TDM_DROP_udp_checksum:
    case TDM_DROP_reply_rate: return 0;
    default: return 1;
    }
}

void tdm_link_rx_pass(tdm_link_t *l, tdm_reason_t reason) {
    TDM_CHECK(l->n.rx_drop[reason] > 0);
    l->n.rx_drop[reason]--;
    l->n.passed++;
}

uint32_t tdm_link_payload_max(const tdm_link_t *l, uint16_t version) {
    return l->c.mtu - UDP_SZ - (version == 4 ? IPV4_SZ : IPV6_SZ);
}

const tdm_link_counters_t *tdm_link_counters(const tdm_link_t *l) {
    return &l->n;
}

int tdm_link_is_conserved(const tdm_link_t *l) {
    uint64_t rx = l->n.datagrams + l->n.replies + l->n.consumed + l->n.passed;
    uint64_t tx = l->n.tx_datagrams + l->n.held;
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) {
        rx += l->n.rx_drop[i];
        tx += l->n.tx_drop[i];
    }
    return rx == l->n.rx_frames && tx == l->n.tx_offered;
}
