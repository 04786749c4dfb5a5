/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: headers of everything that this station sends. */

#include "net/link/link_private.h"

uint32_t eth_sz(const tdm_link_t *l) {
    return l->c.vlan != 0 ? ETH_SZ + VLAN_SZ : ETH_SZ;
}

void eth_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst_mac, uint32_t type) {
    memcpy(out, dst_mac, 6);
    memcpy(out + 6, l->c.mac, 6);
    if (l->c.vlan != 0) {
        put16(out + 12, TYPE_VLAN);
        put16(out + 14, l->c.vlan);
        out += VLAN_SZ;
    }
    put16(out + 12, type);
}

void ipv4_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst, uint32_t protocol,
              uint32_t ecn, uint32_t payload_sz) {
    out[0] = 0x45;
    out[1] = (uint8_t)ecn;
    put16(out + 2, IPV4_SZ + payload_sz);
    put16(out + 4, 0);      /* an atomic datagram needs no id (RFC 6864 section 4.1) */
    put16(out + 6, 0x4000); /* don't fragment: QUIC needs it (RFC 9000 section 14) */
    out[8] = REPLY_TTL;
    out[9] = (uint8_t)protocol;
    put16(out + 10, 0);
    memcpy(out + 12, l->c.ipv4, 4);
    memcpy(out + 16, dst, 4);
    sum_store(out + 10, sum_add(0, out, IPV4_SZ));
}

void ipv6_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst, uint32_t next_header,
              uint32_t hop_limit, uint32_t ecn, uint32_t payload_sz) {
    out[0] = 0x60;
    out[1] = (uint8_t)(ecn << 4);
    put16(out + 2, 0); /* flow label */
    put16(out + 4, payload_sz);
    out[6] = (uint8_t)next_header;
    out[7] = (uint8_t)hop_limit;
    memcpy(out + 8, l->c.ipv6, 16);
    memcpy(out + 24, dst, 16);
}

uint64_t pseudo_sum(const uint8_t *src, const uint8_t *dst, uint32_t addr_sz, uint32_t protocol,
                    uint32_t sz) {
    uint8_t tail[4];
    put16(tail, protocol);
    put16(tail + 2, sz); /* below 65536: IPv6 jumbograms are not taken */
    return sum_add(sum_add(sum_add(0, src, addr_sz), dst, addr_sz), tail, sizeof tail);
}

uint32_t frame_pad(uint8_t *out, uint32_t sz) {
    if (sz >= TDM_LINK_FRAME_MIN) return sz;
    memset(out + sz, 0, TDM_LINK_FRAME_MIN - sz);
    return TDM_LINK_FRAME_MIN;
}

static void udp_put(uint8_t *udp, const uint8_t *ip_addrs, uint32_t addr_sz, uint16_t src_port,
                    uint16_t dst_port, uint32_t udp_sz) {
    put16(udp, src_port);
    put16(udp + 2, dst_port);
    put16(udp + 4, udp_sz);
    put16(udp + 6, 0);
    uint64_t sum = pseudo_sum(ip_addrs, ip_addrs + addr_sz, addr_sz, PROTO_UDP, udp_sz);
    sum_store(udp + 6, sum_add(sum, udp, udp_sz));
    if (get16(udp + 6) == 0) put16(udp + 6, 0xffff); /* RFC 768: zero means none */
}

uint32_t udp_frame(const tdm_link_t *l, const uint8_t *mac, const tdm_endpoint_t *remote,
                   uint16_t local_port, uint32_t ecn, uint8_t *payload, uint32_t payload_sz) {
    int is_v4 = remote->version == 4;
    uint32_t ip_sz = is_v4 ? IPV4_SZ : IPV6_SZ, udp_sz = UDP_SZ + payload_sz;
    uint8_t *udp = payload - UDP_SZ, *ip = udp - ip_sz, *eth = ip - eth_sz(l);
    eth_put(l, eth, mac, is_v4 ? TYPE_IPV4 : TYPE_IPV6);
    if (is_v4)
        ipv4_put(l, ip, remote->addr, PROTO_UDP, ecn & 3u, udp_sz);
    else
        ipv6_put(l, ip, remote->addr, PROTO_UDP, REPLY_TTL, ecn & 3u, udp_sz);
    udp_put(udp, is_v4 ? ip + 12 : ip + 8, is_v4 ? 4 : 16, local_port, remote->port, udp_sz);
    return (uint32_t)(payload - eth);
}

tdm_reason_t tdm_link_udp_wrap(tdm_link_t *l, const tdm_endpoint_t *remote, uint16_t local_port,
                               uint32_t ecn, uint8_t *payload, uint32_t payload_sz, int64_t now_ns,
                               uint32_t *header_sz) {
    l->n.tx_offered++;
    if (payload_sz > tdm_link_payload_max(l, remote->version)) {
        l->n.tx_drop[TDM_DROP_datagram_too_long]++;
        return TDM_DROP_datagram_too_long;
    }
    uint8_t hop[16];
    int has_hop;
    const uint8_t *mac = neighbour_resolve(l, remote, now_ns, hop, &has_hop);
    if (mac == NULL && has_hop &&
        held_put(l, hop, remote, local_port, ecn, payload, payload_sz, now_ns)) {
        *header_sz = 0;
        return TDM_REASON_NONE;
    }
    if (mac == NULL) {
        l->n.tx_drop[TDM_DROP_neighbour_unknown]++;
        return TDM_DROP_neighbour_unknown;
    }
    l->n.tx_datagrams++;
    *header_sz = udp_frame(l, mac, remote, local_port, ecn, payload, payload_sz);
    return TDM_REASON_NONE;
}
