/* SPDX-License-Identifier: Apache-2.0 */
/* The parser: one frame, each field in the order it lies on the wire, and
   the first thing wrong names the reason.  Guards only look at bytes that
   an earlier guard has shown to exist. */

#include "net/link/link_private.h"

static const uint8_t broadcast_mac[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* udp_rx judges a UDP datagram of sz bytes inside its IP payload. */
static tdm_link_verdict_t udp_rx(const tdm_link_t *l, const uint8_t *src, const uint8_t *dst,
                                 uint32_t version, uint32_t ecn, const uint8_t *udp, uint32_t sz) {
    if (sz < UDP_SZ) return verdict_drop(TDM_DROP_udp_length);
    uint32_t udp_sz = get16(udp + 4);
    if (udp_sz < UDP_SZ || udp_sz > sz) return verdict_drop(TDM_DROP_udp_length);

    uint32_t addr_sz = version == 4 ? 4 : 16;
    uint32_t checksum = get16(udp + 6);
    if (checksum == 0) {
        /* RFC 768: the sender made none.  RFC 8200 section 8.1 forbids
           that over IPv6. */
        if (version == 6) return verdict_drop(TDM_DROP_udp_checksum);
    } else {
        uint64_t sum = pseudo_sum(src, dst, addr_sz, PROTO_UDP, udp_sz);
        if (sum_fold(sum_add(sum, udp, udp_sz)) != 0xffff)
            return verdict_drop(TDM_DROP_udp_checksum);
    }
    uint32_t src_port = get16(udp);
    if (src_port == 0 || get16(udp + 2) != l->c.udp_port) return verdict_drop(TDM_DROP_udp_port);

    tdm_link_verdict_t v = {.kind = TDM_LINK_DATAGRAM};
    v.datagram.remote = (tdm_endpoint_t){.port = (uint16_t)src_port, .version = (uint16_t)version};
    v.datagram.local = (tdm_endpoint_t){.port = l->c.udp_port, .version = (uint16_t)version};
    memcpy(v.datagram.remote.addr, src, addr_sz);
    memcpy(v.datagram.local.addr, dst, addr_sz);
    v.datagram.payload = udp + UDP_SZ;
    v.datagram.payload_sz = udp_sz - UDP_SZ;
    v.datagram.ecn = ecn;
    return v;
}

static tdm_link_verdict_t ipv4_rx(tdm_link_t *l, const frame_t *f) {
    const uint8_t *ip = f->l3;
    if (f->l3_sz < IPV4_SZ) return verdict_drop(TDM_DROP_frame_short);
    if (ip[0] >> 4 != 4) return verdict_drop(TDM_DROP_ip_version);
    uint32_t header_sz = (ip[0] & 15u) * 4;
    if (header_sz < IPV4_SZ || header_sz > f->l3_sz) return verdict_drop(TDM_DROP_ip_header_length);
    uint32_t total_sz = get16(ip + 2);
    if (total_sz < header_sz || total_sz > f->l3_sz) return verdict_drop(TDM_DROP_ip_total_length);
    if (sum_fold(sum_add(0, ip, header_sz)) != 0xffff) return verdict_drop(TDM_DROP_ip_checksum);
    if (header_sz > IPV4_SZ) return verdict_drop(TDM_DROP_ip_options);
    /* Everything but "don't fragment" must be zero, the reserved flag
       included (RFC 791 section 3.1). */
    if ((get16(ip + 6) & ~0x4000u) != 0) return verdict_drop(TDM_DROP_ip_fragment);
    if (ip[8] == 0) return verdict_drop(TDM_DROP_ip_ttl);
    if (!addr_is_host(l, ip + 12, 4)) return verdict_drop(TDM_DROP_ip_source);
    if (!l->c.has_ipv4 || memcmp(ip + 16, l->c.ipv4, 4) != 0)
        return verdict_drop(TDM_DROP_ip_not_ours);

    const uint8_t *body = ip + header_sz;
    uint32_t body_sz = total_sz - header_sz;
    if (ip[9] == PROTO_UDP) return udp_rx(l, ip + 12, ip + 16, 4, ip[1] & 3u, body, body_sz);
    if (ip[9] == PROTO_ICMP) return icmp4_rx(l, f, body, body_sz);
    return verdict_drop(TDM_DROP_ip_protocol);
}

/* next_header_reason sorts what is neither UDP nor ICMPv6: the extension
   headers of the IANA registry, the fragment header among them, or a
   protocol that we do not have. */
static tdm_reason_t next_header_reason(uint32_t next_header) {
    switch (next_header) {
    case 44: return TDM_DROP_ip_fragment;
    case 0:   /* hop-by-hop */
    case 43:  /* routing */
    case 50:  /* ESP */
    case 51:  /* authentication */
    case 60:  /* destination options */
    case 135: /* mobility */
    case 139: /* HIP */
    case 140: /* shim6 */ return TDM_DROP_ip_options;
    default: return TDM_DROP_ip_protocol;
    }
}

static tdm_link_verdict_t ipv6_rx(tdm_link_t *l, const frame_t *f) {
    const uint8_t *ip = f->l3;
    if (f->l3_sz < IPV6_SZ) return verdict_drop(TDM_DROP_frame_short);
    if (ip[0] >> 4 != 6) return verdict_drop(TDM_DROP_ip_version);
    uint32_t body_sz = get16(ip + 4);
    if (body_sz > f->l3_sz - IPV6_SZ) return verdict_drop(TDM_DROP_ip_total_length);
    if (ip[7] == 0) return verdict_drop(TDM_DROP_ip_ttl);
    uint32_t next_header = ip[6];
    const uint8_t *src = ip + 8, *dst = ip + 24, *body = ip + IPV6_SZ;

    /* Duplicate address detection asks from the unspecified address
       (RFC 4862 section 5.4.2): icmp.c decides. */
    int is_unspecified = next_header == PROTO_ICMPV6 && bytes_are_zero(src, 16);
    if (!is_unspecified && !addr_is_host(l, src, 6)) return verdict_drop(TDM_DROP_ip_source);
    int is_unicast = l->c.has_ipv6 && memcmp(dst, l->c.ipv6, 16) == 0;
    int is_group = l->c.has_ipv6 && memcmp(dst, l->group6, 16) == 0;
    /* Both layers must agree on unicast or group (RFC 1122 section
       3.3.6 for IPv4, and the same sense here). */
    if (f->is_group ? !is_group : !is_unicast && !is_group)
        return verdict_drop(TDM_DROP_ip_not_ours);

    if (next_header == PROTO_ICMPV6) return icmp6_rx(l, f, body, body_sz);
    if (next_header != PROTO_UDP) return verdict_drop(next_header_reason(next_header));
    if (is_group) return verdict_drop(TDM_DROP_ip_not_ours);
    return udp_rx(l, src, dst, 6, (uint32_t)(ip[1] >> 4) & 3u, body, body_sz);
}

/* vlan_rx takes the tag off, where there may be one, and leaves type and
   position behind it. */
static tdm_reason_t vlan_rx(const tdm_link_t *l, const uint8_t *frame, uint32_t sz, uint32_t *type,
                            uint32_t *at) {
    uint32_t vlan = 0;
    *type = get16(frame + 12);
    *at = ETH_SZ;
    if (*type == TYPE_VLAN) {
        if (sz < ETH_SZ + VLAN_SZ) return TDM_DROP_frame_short;
        vlan = get16(frame + 14) & 0xfffu; /* 0: a priority tag, as good as none */
        *type = get16(frame + 16);
        *at = ETH_SZ + VLAN_SZ;
    }
    if (*type == TYPE_VLAN || *type == TYPE_QINQ || *type == TYPE_QINQ_1 || vlan != l->c.vlan)
        return TDM_DROP_vlan_unknown;
    return TDM_REASON_NONE;
}

static tdm_link_verdict_t ethernet_rx(tdm_link_t *l, const uint8_t *frame, uint32_t sz,
                                      frame_t *f) {
    if (sz < ETH_SZ) return verdict_drop(TDM_DROP_frame_short);
    int is_ours = memcmp(frame, l->c.mac, 6) == 0;
    int is_broadcast = memcmp(frame, broadcast_mac, 6) == 0;
    int is_group6 = l->c.has_ipv6 && memcmp(frame, l->group6_mac, 6) == 0;
    if (!is_ours && !is_broadcast && !is_group6) return verdict_drop(TDM_DROP_mac_not_ours);
    f->src_mac = frame + 6;
    f->is_group = !is_ours;
    if (!mac_is_station(l, f->src_mac)) return verdict_drop(TDM_DROP_ip_source);

    uint32_t type, at;
    tdm_reason_t reason = vlan_rx(l, frame, sz, &type, &at);
    if (reason != TDM_REASON_NONE) return verdict_drop(reason);
    f->l3 = frame + at;
    f->l3_sz = sz - at;
    switch (type) {
    case TYPE_ARP: return is_group6 ? verdict_drop(TDM_DROP_mac_not_ours) : arp_rx(l, f);
    case TYPE_IPV4: return is_ours ? ipv4_rx(l, f) : verdict_drop(TDM_DROP_mac_not_ours);
    case TYPE_IPV6: return is_broadcast ? verdict_drop(TDM_DROP_mac_not_ours) : ipv6_rx(l, f);
    default: return verdict_drop(TDM_DROP_ethertype_unknown);
    }
}

tdm_link_verdict_t tdm_link_rx(tdm_link_t *l, const uint8_t *frame, uint32_t sz, uint8_t *reply,
                               uint32_t reply_cap, int64_t now_ns) {
    frame_t f = {.reply = reply, .reply_cap = reply_cap, .now_ns = now_ns};
    tdm_link_verdict_t v = ethernet_rx(l, frame, sz, &f);
    l->n.rx_frames++;
    l->n.rx_bytes += sz;
    switch (v.kind) {
    case TDM_LINK_DATAGRAM: l->n.datagrams++; break;
    case TDM_LINK_REPLY: l->n.replies++; break;
    case TDM_LINK_CONSUMED: l->n.consumed++; break;
    case TDM_LINK_DROP: l->n.rx_drop[v.reason]++; break;
    }
    return v;
}
