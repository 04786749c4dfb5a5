/* SPDX-License-Identifier: Apache-2.0 */
/* ICMP echo (RFC 792, RFC 4443) and the two messages of neighbour
   discovery that a host without autoconfiguration needs (RFC 4861
   section 7).  Redirects, router advertisements and errors change nothing
   here. */

#include "net/link/link_private.h"

#define ECHO_REQUEST_4 8u
#define ECHO_REQUEST_6 128u
#define ECHO_REPLY_6   129u
#define SOLICITATION   135u
#define ADVERTISEMENT  136u

#define OPTION_SOURCE 1u /* link-layer address of the sender */
#define OPTION_TARGET 2u /* link-layer address of the target */

#define FLAG_SOLICITED 0x40u
#define FLAG_OVERRIDE  0x20u

/* --- echo ----------------------------------------------------------- */

/* echo_is_allowed: an answer never exceeds its question nor the caller's
   buffer, and takes one from the bucket. */
static tdm_reason_t echo_check(tdm_link_t *l, const frame_t *f, uint32_t header_sz, uint32_t sz) {
    uint32_t need = TDM_MAX(header_sz + sz, TDM_LINK_FRAME_MIN);
    if (need > f->reply_cap || header_sz - eth_sz(l) + sz > l->c.mtu) return TDM_DROP_icmp_ignored;
    return bucket_take(&l->reply_bucket, f->now_ns) ? TDM_REASON_NONE : TDM_DROP_reply_rate;
}

tdm_link_verdict_t icmp4_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp, uint32_t sz) {
    if (sz < ICMP_ECHO_SZ || sum_fold(sum_add(0, icmp, sz)) != 0xffff)
        return verdict_drop(TDM_DROP_icmp_malformed);
    if (icmp[0] != ECHO_REQUEST_4 || icmp[1] != 0) return verdict_drop(TDM_DROP_icmp_ignored);
    uint32_t header_sz = eth_sz(l) + IPV4_SZ;
    tdm_reason_t reason = echo_check(l, f, header_sz, sz);
    if (reason != TDM_REASON_NONE) return verdict_drop(reason);

    uint8_t *out = f->reply, *body = out + header_sz;
    eth_put(l, out, f->src_mac, TYPE_IPV4);
    ipv4_put(l, out + eth_sz(l), f->l3 + 12, PROTO_ICMP, 0, sz);
    memcpy(body, icmp, sz);
    body[0] = 0; /* echo reply */
    memset(body + 2, 0, 2);
    sum_store(body + 2, sum_add(0, body, sz));
    return verdict_reply(frame_pad(out, header_sz + sz));
}

/* icmp6_finish writes the checksum of a message of sz bytes behind its
   IPv6 header. */
static void icmp6_finish(uint8_t *ip, uint32_t sz) {
    uint8_t *icmp = ip + IPV6_SZ;
    memset(icmp + 2, 0, 2);
    uint64_t sum = pseudo_sum(ip + 8, ip + 24, 16, PROTO_ICMPV6, sz);
    sum_store(icmp + 2, sum_add(sum, icmp, sz));
}

static tdm_link_verdict_t echo6_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp,
                                   uint32_t sz) {
    const uint8_t *src = f->l3 + 8, *dst = f->l3 + 24;
    if (sz < ICMP_ECHO_SZ) return verdict_drop(TDM_DROP_icmp_malformed);
    if (icmp[1] != 0 || bytes_are_zero(src, 16) || memcmp(dst, l->c.ipv6, 16) != 0)
        return verdict_drop(TDM_DROP_icmp_ignored);
    uint32_t header_sz = eth_sz(l) + IPV6_SZ;
    tdm_reason_t reason = echo_check(l, f, header_sz, sz);
    if (reason != TDM_REASON_NONE) return verdict_drop(reason);

    uint8_t *ip = f->reply + eth_sz(l);
    eth_put(l, f->reply, f->src_mac, TYPE_IPV6);
    ipv6_put(l, ip, src, PROTO_ICMPV6, REPLY_TTL, 0, sz);
    memcpy(ip + IPV6_SZ, icmp, sz);
    ip[IPV6_SZ] = ECHO_REPLY_6;
    icmp6_finish(ip, sz);
    return verdict_reply(frame_pad(f->reply, header_sz + sz));
}

/* --- neighbour discovery -------------------------------------------- */

/* nd_option finds the link-layer address option of one type; *out is NULL
   where it is absent.  Returns 0 where an option has no size or leaves
   the message. */
static int nd_option(const uint8_t *icmp, uint32_t sz, uint32_t type, const uint8_t **out) {
    *out = NULL;
    for (uint32_t at = ND_SZ; at < sz;) {
        if (sz - at < ND_OPTION_SZ) return 0;
        uint32_t option_sz = icmp[at + 1] * 8u;
        if (option_sz == 0 || option_sz > sz - at) return 0;
        if (icmp[at] == type) {
            if (option_sz != ND_OPTION_SZ) return 0;
            *out = icmp + at + 2;
        }
        at += option_sz;
    }
    return 1;
}

static void option_put(uint8_t *out, uint32_t type, const uint8_t *mac) {
    out[0] = (uint8_t)type;
    out[1] = 1; /* times eight bytes */
    memcpy(out + 2, mac, 6);
}

uint32_t nd_solicit_put(const tdm_link_t *l, const uint8_t *target, uint8_t *out) {
    uint8_t group[16], group_mac[6] = {0x33, 0x33};
    memcpy(group, l->group6, 13);
    memcpy(group + 13, target + 13, 3);
    memcpy(group_mac + 2, group + 12, 4);

    uint8_t *ip = out + eth_sz(l), *icmp = ip + IPV6_SZ;
    uint32_t sz = ND_SZ + ND_OPTION_SZ;
    eth_put(l, out, group_mac, TYPE_IPV6);
    ipv6_put(l, ip, group, PROTO_ICMPV6, 255, 0, sz);
    memset(icmp, 0, 8);
    icmp[0] = SOLICITATION;
    memcpy(icmp + 8, target, 16);
    option_put(icmp + ND_SZ, OPTION_SOURCE, l->c.mac);
    icmp6_finish(ip, sz);
    return eth_sz(l) + IPV6_SZ + sz;
}

static tdm_link_verdict_t solicitation_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp,
                                          uint32_t sz) {
    const uint8_t *src = f->l3 + 8, *dst = f->l3 + 24, *target = icmp + 8, *mac;
    int is_unspecified = bytes_are_zero(src, 16);
    int is_group = memcmp(dst, l->group6, 16) == 0;
    if (!nd_option(icmp, sz, OPTION_SOURCE, &mac)) return verdict_drop(TDM_DROP_nd_malformed);
    /* RFC 4861 section 7.1.1 */
    if (target[0] == 0xff || (is_unspecified && (!is_group || mac != NULL)))
        return verdict_drop(TDM_DROP_nd_malformed);
    if (mac != NULL && !mac_is_station(l, mac)) return verdict_drop(TDM_DROP_nd_malformed);
    if (!is_unspecified && !addr_is_onlink(l, src, 6)) return verdict_drop(TDM_DROP_nd_malformed);
    if (memcmp(target, l->c.ipv6, 16) != 0) return verdict_drop(TDM_DROP_ip_not_ours);

    if (mac != NULL) neighbour_learn(l, src, 6, mac, 0, f->now_ns);
    if (f->reply_cap < TDM_LINK_SOLICIT_MAX || !bucket_take(&l->reply_bucket, f->now_ns))
        return verdict_drop(TDM_DROP_reply_rate);

    static const uint8_t all_nodes[16] = {0xff, 2, [15] = 1};
    static const uint8_t all_nodes_mac[6] = {0x33, 0x33, 0, 0, 0, 1};
    const uint8_t *reply_mac = mac != NULL ? mac : f->src_mac;
    uint8_t *ip = f->reply + eth_sz(l), *out = ip + IPV6_SZ;
    uint32_t out_sz = ND_SZ + ND_OPTION_SZ;
    eth_put(l, f->reply, is_unspecified ? all_nodes_mac : reply_mac, TYPE_IPV6);
    ipv6_put(l, ip, is_unspecified ? all_nodes : src, PROTO_ICMPV6, 255, 0, out_sz);
    memset(out, 0, 8);
    out[0] = ADVERTISEMENT;
    out[4] = is_unspecified ? FLAG_OVERRIDE : FLAG_SOLICITED | FLAG_OVERRIDE;
    memcpy(out + 8, target, 16);
    option_put(out + ND_SZ, OPTION_TARGET, l->c.mac);
    icmp6_finish(ip, out_sz);
    return verdict_reply(eth_sz(l) + IPV6_SZ + out_sz);
}

static tdm_link_verdict_t advertisement_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp,
                                           uint32_t sz) {
    const uint8_t *target = icmp + 8, *mac;
    if (!nd_option(icmp, sz, OPTION_TARGET, &mac)) return verdict_drop(TDM_DROP_nd_malformed);
    /* RFC 4861 section 7.1.2, and our questions always go to a group, so
       that their answers carry the address (section 4.4). */
    if (target[0] == 0xff || bytes_are_zero(f->l3 + 8, 16))
        return verdict_drop(TDM_DROP_nd_malformed);
    if (mac != NULL && !mac_is_station(l, mac)) return verdict_drop(TDM_DROP_nd_malformed);
    if ((icmp[4] & FLAG_SOLICITED) == 0 || mac == NULL) return verdict_drop(TDM_DROP_icmp_ignored);
    if (!neighbour_take_answer(l, target, 6, f->now_ns)) return verdict_drop(TDM_DROP_icmp_ignored);
    neighbour_learn(l, target, 6, mac, 1, f->now_ns);
    return verdict_consumed();
}

tdm_link_verdict_t icmp6_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp, uint32_t sz) {
    const uint8_t *src = f->l3 + 8, *dst = f->l3 + 24;
    if (sz < 4) return verdict_drop(TDM_DROP_icmp_malformed);
    uint64_t sum = pseudo_sum(src, dst, 16, PROTO_ICMPV6, sz);
    if (sum_fold(sum_add(sum, icmp, sz)) != 0xffff) return verdict_drop(TDM_DROP_icmp_malformed);
    uint32_t type = icmp[0];
    if (type == ECHO_REQUEST_6) return echo6_rx(l, f, icmp, sz);
    if (type != SOLICITATION && type != ADVERTISEMENT) return verdict_drop(TDM_DROP_icmp_ignored);

    /* Hop limit 255 proves that no router forwarded it. */
    if (f->l3[7] != 255 || icmp[1] != 0 || sz < ND_SZ) return verdict_drop(TDM_DROP_nd_malformed);
    if (type == SOLICITATION) return solicitation_rx(l, f, icmp, sz);
    if (memcmp(dst, l->c.ipv6, 16) != 0) return verdict_drop(TDM_DROP_nd_malformed);
    return advertisement_rx(l, f, icmp, sz);
}
