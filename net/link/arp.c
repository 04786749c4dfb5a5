/* SPDX-License-Identifier: Apache-2.0 */
/* ARP (RFC 826) for IPv4 over Ethernet, probes of RFC 5227 included. */

#include "net/link/link_private.h"

#define OP_REQUEST 1u
#define OP_REPLY   2u

static void arp_put(const tdm_link_t *l, uint8_t *arp, uint32_t op, const uint8_t *target_mac,
                    const uint8_t *target) {
    static const uint8_t kind[6] = {0, 1, 0x08, 0x00, 6, 4}; /* Ethernet, IPv4 */
    memcpy(arp, kind, 6);
    put16(arp + 6, op);
    memcpy(arp + 8, l->c.mac, 6);
    memcpy(arp + 14, l->c.ipv4, 4);
    memcpy(arp + 18, target_mac, 6);
    memcpy(arp + 24, target, 4);
}

uint32_t arp_request_put(const tdm_link_t *l, const uint8_t *target, uint8_t *out) {
    static const uint8_t all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, none[6];
    eth_put(l, out, all, TYPE_ARP);
    arp_put(l, out + eth_sz(l), OP_REQUEST, none, target);
    return frame_pad(out, eth_sz(l) + ARP_SZ);
}

/* request_rx answers; a sender with an address is learned first, so that
   a rate limit on answers never costs us the way back. */
static tdm_link_verdict_t request_rx(tdm_link_t *l, const frame_t *f) {
    const uint8_t *sender_mac = f->l3 + 8, *sender = f->l3 + 14;
    int is_probe = bytes_are_zero(sender, 4);
    if (!is_probe) neighbour_learn(l, sender, 4, sender_mac, 0, f->now_ns);
    uint32_t sz = eth_sz(l) + ARP_SZ;
    if (f->reply_cap < TDM_LINK_SOLICIT_MAX || !bucket_take(&l->reply_bucket, f->now_ns))
        return verdict_drop(TDM_DROP_reply_rate);
    eth_put(l, f->reply, sender_mac, TYPE_ARP);
    arp_put(l, f->reply + eth_sz(l), OP_REPLY, sender_mac, sender);
    return verdict_reply(frame_pad(f->reply, sz));
}

tdm_link_verdict_t arp_rx(tdm_link_t *l, const frame_t *f) {
    const uint8_t *arp = f->l3;
    if (f->l3_sz < ARP_SZ) return verdict_drop(TDM_DROP_frame_short);
    uint32_t op = get16(arp + 6);
    if (get16(arp) != 1 || get16(arp + 2) != TYPE_IPV4 || arp[4] != 6 || arp[5] != 4)
        return verdict_drop(TDM_DROP_arp_malformed);
    if (op != OP_REQUEST && op != OP_REPLY) return verdict_drop(TDM_DROP_arp_malformed);

    const uint8_t *sender_mac = arp + 8, *sender = arp + 14, *target = arp + 24;
    if (!mac_is_station(l, sender_mac)) return verdict_drop(TDM_DROP_arp_malformed);
    int is_probe = op == OP_REQUEST && bytes_are_zero(sender, 4);
    if (!is_probe && (!addr_is_host(l, sender, 4) || !addr_is_onlink(l, sender, 4)))
        return verdict_drop(TDM_DROP_arp_malformed);
    if (!l->c.has_ipv4 || memcmp(target, l->c.ipv4, 4) != 0)
        return verdict_drop(TDM_DROP_ip_not_ours);
    if (op == OP_REQUEST) return request_rx(l, f);

    /* An answer nobody asked for is gossip, and gossip is how a gateway
       gets stolen. */
    if (f->is_group || !neighbour_take_answer(l, sender, 4, f->now_ns))
        return verdict_drop(TDM_DROP_arp_malformed);
    neighbour_learn(l, sender, 4, sender_mac, 1, f->now_ns);
    return verdict_consumed();
}
