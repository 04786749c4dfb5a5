/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_LINK_LINK_PRIVATE_H
#define TDM_NET_LINK_LINK_PRIVATE_H

/* What the files of net/link share: wire offsets, the link itself, and
   the verbs between parser, neighbour table and writer. */

#include "net/link/checksum_private.h"
#include "net/link/link.h"

#include "appliance/base/clock.h"

/* --- bytes of the wire ---------------------------------------------- */

#define ETH_SZ       14u
#define VLAN_SZ      4u
#define ARP_SZ       28u
#define IPV4_SZ      20u
#define IPV6_SZ      40u
#define UDP_SZ       8u
#define ICMP_ECHO_SZ 8u
#define ND_SZ        24u /* neighbour solicitation or advertisement without options */
#define ND_OPTION_SZ 8u  /* one link-layer address option */

#define TYPE_IPV4   0x0800u
#define TYPE_ARP    0x0806u
#define TYPE_VLAN   0x8100u
#define TYPE_IPV6   0x86ddu
#define TYPE_QINQ   0x88a8u
#define TYPE_QINQ_1 0x9100u /* before 802.1ad, still seen */

#define PROTO_ICMP   1u
#define PROTO_UDP    17u
#define PROTO_ICMPV6 58u

#define REPLY_TTL 64u

static inline uint32_t get16(const uint8_t *p) {
    return (uint32_t)p[0] << 8 | p[1];
}

static inline void put16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline int bytes_are_zero(const uint8_t *p, uint32_t sz) {
    uint32_t acc = 0;
    for (uint32_t i = 0; i < sz; i++) acc |= p[i];
    return acc == 0;
}

/* --- rate limits ---------------------------------------------------- */

/* bucket holds time, not tokens: one take costs cost_ns of the credit
   that passing time gives, up to one second's worth. */
typedef struct bucket {
    int64_t cost_ns; /* 0: nothing is ever allowed */
    int64_t credit_ns;
    int64_t last_ns;
} bucket_t;

static inline void bucket_init(bucket_t *b, uint32_t per_s, int64_t now_ns) {
    b->cost_ns = per_s > 0 ? TDM_MAX(TDM_NS_PER_S / per_s, INT64_C(1)) : 0;
    b->credit_ns = TDM_NS_PER_S;
    b->last_ns = now_ns;
}

static inline int bucket_take(bucket_t *b, int64_t now_ns) {
    if (b->cost_ns == 0) return 0;
    if (now_ns > b->last_ns) { /* a clock that went back gives nothing */
        int64_t passed = TDM_MIN(now_ns - b->last_ns, TDM_NS_PER_S);
        b->credit_ns = TDM_MIN(b->credit_ns + passed, TDM_NS_PER_S);
        b->last_ns = now_ns;
    }
    if (b->credit_ns < b->cost_ns) return 0;
    b->credit_ns -= b->cost_ns;
    return 1;
}

/* --- the link ------------------------------------------------------- */

#define NEIGHBOUR_WAYS 4u

/* Ages of an entry since its last confirmation.  A peer's own cache turns
   stale within 15 to 45 s (RFC 4861 section 6.3.2), so a question each
   minute keeps live entries fresh; five unanswered minutes end one. */
#define NEIGHBOUR_STALE_NS (60 * TDM_NS_PER_S)
#define NEIGHBOUR_DEAD_NS  (300 * TDM_NS_PER_S)
/* Pause between questions for one next hop, and how long an answer to
   one counts as asked for. */
#define SOLICIT_PAUSE_NS  TDM_NS_PER_S
#define SOLICIT_WINDOW_NS (3 * TDM_NS_PER_S)

typedef struct neighbour {
    uint8_t addr[16];
    uint8_t mac[6];
    uint8_t version; /* 4, 6, or 0: free */
    uint8_t is_used; /* a datagram went this way */
    int64_t confirmed_ns;
} neighbour_t;

typedef struct pending {
    uint8_t addr[16];
    uint8_t version;  /* 0: free */
    uint8_t is_due;   /* not asked yet, or to be asked again */
    int64_t asked_ns; /* of the last question; of the wish before the first */
} pending_t;

/* held is one datagram that waits for its next hop. */
typedef struct held {
    uint8_t hop[16];
    uint8_t version; /* 0: free */
    uint8_t ecn;
    uint16_t local_port;
    uint32_t payload_sz;
    int64_t since_ns;
    uint64_t order; /* of arrival, among all held */
    tdm_endpoint_t remote;
    uint8_t payload[TDM_LINK_HELD_PAYLOAD_MAX];
} held_t;

struct tdm_link {
    tdm_link_config_t c;
    tdm_link_counters_t n;
    bucket_t reply_bucket;
    bucket_t solicit_bucket;
    uint8_t group6[16];    /* our solicited-node multicast address */
    uint8_t group6_mac[6]; /* and its Ethernet group */
    uint8_t has_gateway4;
    uint8_t has_gateway6;
    uint8_t has_gateway_mac;
    uint32_t set_mask; /* sets of the neighbour table, minus one */
    pending_t pending[TDM_LINK_PENDING_MAX];
    uint64_t held_order;
    held_t held[TDM_LINK_HELD_MAX];
    neighbour_t neighbour[]; /* [neighbour_max], NEIGHBOUR_WAYS to a set */
};

/* One frame on its way through the parser; l3 ends where the frame does
   until the IP header has told its own length. */
typedef struct frame {
    const uint8_t *src_mac; /* [6] */
    int is_group;           /* sent to broadcast or to our multicast group */
    const uint8_t *l3;
    uint32_t l3_sz;
    uint8_t *reply;
    uint32_t reply_cap;
    int64_t now_ns;
} frame_t;

static inline tdm_link_verdict_t verdict_drop(tdm_reason_t reason) {
    return (tdm_link_verdict_t){.kind = TDM_LINK_DROP, .reason = reason};
}
static inline tdm_link_verdict_t verdict_reply(uint32_t sz) {
    return (tdm_link_verdict_t){.kind = TDM_LINK_REPLY, .reply_sz = sz};
}
static inline tdm_link_verdict_t verdict_consumed(void) {
    return (tdm_link_verdict_t){.kind = TDM_LINK_CONSUMED};
}

/* --- addresses (link.c) --------------------------------------------- */

/* addr_is_onlink: addr of this version lies in our subnet; IPv6 link-local
   addresses always do. */
int addr_is_onlink(const tdm_link_t *l, const uint8_t *addr, uint32_t version);

/* addr_is_host: a reply may be sent there: not zero, loopback, multicast,
   broadcast (of our subnet either), IPv4-mapped nor our own. */
int addr_is_host(const tdm_link_t *l, const uint8_t *addr, uint32_t version);

/* mac_is_station: neither zero, a group, nor our own. */
int mac_is_station(const tdm_link_t *l, const uint8_t *mac);

/* --- answers (arp.c, icmp.c) ---------------------------------------- */

/* Each judges one frame to its end: dropped by a reason, consumed, or
   answered, the answer being in f->reply.  icmp, sz bytes, is what stands
   behind the IP header. */
tdm_link_verdict_t arp_rx(tdm_link_t *l, const frame_t *f);
tdm_link_verdict_t icmp4_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp, uint32_t sz);
tdm_link_verdict_t icmp6_rx(tdm_link_t *l, const frame_t *f, const uint8_t *icmp, uint32_t sz);

/* arp_request_put and nd_solicit_put write a whole question; they return
   its size. */
uint32_t arp_request_put(const tdm_link_t *l, const uint8_t *target, uint8_t *out);
uint32_t nd_solicit_put(const tdm_link_t *l, const uint8_t *target, uint8_t *out);

/* --- neighbours (neighbour.c) --------------------------------------- */

/* neighbour_learn enters or renews addr.  is_asked: this is an answer to
   our own question, the only thing that moves a gateway's entry. */
void neighbour_learn(tdm_link_t *l, const uint8_t *addr, uint32_t version, const uint8_t *mac,
                     int is_asked, int64_t now_ns);

/* neighbour_take_answer: was addr asked for lately?  Ends the question. */
int neighbour_take_answer(tdm_link_t *l, const uint8_t *addr, uint32_t version, int64_t now_ns);

/* neighbour_resolve gives the link address of the next hop to remote, or
   NULL after noting the question to ask.  hop is the next hop in the
   table's form; *has_hop 0: there is none, and nothing to wait for. */
const uint8_t *neighbour_resolve(tdm_link_t *l, const tdm_endpoint_t *remote, int64_t now_ns,
                                 uint8_t hop[16], int *has_hop);

/* neighbour_known gives the link address of a next hop, NULL where it is
   not known; asks nothing. */
const uint8_t *neighbour_known(tdm_link_t *l, const uint8_t hop[16], uint32_t version,
                               int64_t now_ns);

/* --- datagrams that wait (held.c) ------------------------------------ */

/* held_put keeps a copy until hop is known; 0: no room, or too long. */
int held_put(tdm_link_t *l, const uint8_t hop[16], const tdm_endpoint_t *remote,
             uint16_t local_port, uint32_t ecn, const uint8_t *payload, uint32_t payload_sz,
             int64_t now_ns);

/* --- writers (tx.c) ------------------------------------------------- */

/* eth_sz is the bytes eth_put writes: with our VLAN tag or without. */
uint32_t eth_sz(const tdm_link_t *l);
void eth_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst_mac, uint32_t type);

/* udp_frame writes the three headers before payload and returns their
   bytes; the caller checked size and way. */
uint32_t udp_frame(const tdm_link_t *l, const uint8_t *mac, const tdm_endpoint_t *remote,
                   uint16_t local_port, uint32_t ecn, uint8_t *payload, uint32_t payload_sz);
void ipv4_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst, uint32_t protocol,
              uint32_t ecn, uint32_t payload_sz);
void ipv6_put(const tdm_link_t *l, uint8_t *out, const uint8_t *dst, uint32_t next_header,
              uint32_t hop_limit, uint32_t ecn, uint32_t payload_sz);

/* pseudo_sum begins a checksum with the pseudo header: of IPv4 (RFC 768)
   or IPv6 (RFC 8200 section 8.1), for both share the fields that count. */
uint64_t pseudo_sum(const uint8_t *src, const uint8_t *dst, uint32_t addr_sz, uint32_t protocol,
                    uint32_t sz);

/* frame_pad appends zeros up to Ethernet's shortest frame. */
uint32_t frame_pad(uint8_t *out, uint32_t sz);

#endif /* TDM_NET_LINK_LINK_PRIVATE_H */
