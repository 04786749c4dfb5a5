/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_LINK_LINK_H
#define TDM_NET_LINK_LINK_H

/* tdm_link is the network below QUIC: Ethernet, one VLAN, ARP, IPv4,
   IPv6, ICMP echo, neighbour discovery and UDP for one station.  It does
   no I/O: bytes and a time go in, a verdict or bytes come out.

     frame --> tdm_link_rx --> DATAGRAM  a view into the frame, for QUIC
                           --> REPLY     bytes to send (ARP, echo, NA)
                           --> CONSUMED  a neighbour answered us
                           --> DROP      one reason, one counter

     payload --> tdm_link_udp_wrap --> headers written before the payload
     timer   --> tdm_link_solicit  --> an ARP or NS question, if one waits
     timer   --> tdm_link_release  --> a datagram that waited for the answer

   Conservation, at every moment, for one link:
     rx_frames == datagrams + replies + consumed + passed + sum of rx drops
     tx_offered == tx_datagrams + held + sum of tx drops

   Neighbours.  The table has a fixed size.  An entry is born from a
   question addressed to us or from an answer that we asked for, never
   from gossip.  A gateway's entry changes only by an answer we asked for,
   or not at all where its link address is configured.  Under pressure the
   entries that never carried a datagram go first, oldest first.

   Held datagrams.  While a next hop is asked for, the newest
   TDM_LINK_HELD_HOP_MAX datagrams to it are kept, in copy, and sent once
   it is known (RFC 1122 section 2.3.2.2, RFC 4861 section 7.2.2: as many
   as a QUIC server may send to an address that is not proved, so that a
   first handshake loses nothing).  One that waited longer than
   TDM_LINK_HELD_NS, was pushed out by a newer one or found no room counts
   as neighbour_unknown.

   Ownership: the caller gives the memory (footprint, init) and every
   buffer; nothing is kept of a received frame after a call returns.
   Limits: one caller at a time; bounded work per call; no allocation, no
   clock, no log.  Fragments, IP options and IPv6 extension headers are
   dropped by policy. */

#include "appliance/abi/reasons.h"
#include "appliance/base/status.h"
#include "net/link/endpoint.h"

/* Most header bytes before a UDP payload: Ethernet 14, VLAN 4, IPv6 40,
   UDP 8. */
#define TDM_LINK_HEADER_MAX 66u
/* Room that a reply or a question needs, whatever the MTU. */
#define TDM_LINK_SOLICIT_MAX   96u
#define TDM_LINK_PENDING_MAX   8u  /* next hops being asked for at once */
#define TDM_LINK_FRAME_MIN     60u /* Ethernet's shortest frame without FCS */
#define TDM_LINK_NEIGHBOUR_MAX 4096u
/* Held datagrams in all and per next hop, their longest payload (that of
   QUIC over Ethernet; a longer one is not held), and how long they wait:
   as long as an answer to the question counts. */
#define TDM_LINK_HELD_MAX         24u
#define TDM_LINK_HELD_HOP_MAX     3u
#define TDM_LINK_HELD_PAYLOAD_MAX 1472u
#define TDM_LINK_HELD_NS          INT64_C(3000000000)

typedef struct tdm_link_config {
    uint8_t mac[6];
    uint16_t mtu;      /* bytes of an IP packet, 1280..9000 */
    uint16_t vlan;     /* 1..4094; 0: untagged (and priority tags) only */
    uint16_t udp_port; /* the one port that is ours, host order */
    uint8_t has_ipv4;
    uint8_t has_ipv6;
    uint8_t ipv4_prefix; /* bits, 0..32 */
    uint8_t ipv6_prefix; /* bits, 0..128 */
    uint8_t ipv4[4];
    uint8_t ipv6[16];
    uint8_t gateway4[4];    /* zeros: none; must be on our subnet */
    uint8_t gateway6[16];   /* zeros: none */
    uint8_t gateway_mac[6]; /* zeros: learned by asking */
    uint16_t reserved;
    uint32_t neighbour_max; /* entries, a power of two, 16..4096 */
    uint32_t reply_per_s;   /* ARP, NA and echo answers; bucket depth is the same */
    uint32_t solicit_per_s; /* questions of our own, all next hops together */
    uint64_t seed;          /* for the neighbour table's hash */
} tdm_link_config_t;

/* One UDP datagram addressed to us; payload points into the frame. */
typedef struct tdm_datagram {
    tdm_endpoint_t remote;
    tdm_endpoint_t local;
    const uint8_t *payload; /* [payload_sz] */
    uint32_t payload_sz;
    uint32_t ecn; /* two bits of the IP header, RFC 3168 */
} tdm_datagram_t;

typedef enum tdm_link_verdict_kind {
    TDM_LINK_DROP,
    TDM_LINK_REPLY,
    TDM_LINK_CONSUMED,
    TDM_LINK_DATAGRAM,
} tdm_link_verdict_kind_t;

typedef struct tdm_link_verdict {
    tdm_link_verdict_kind_t kind;
    tdm_reason_t reason;     /* DROP: a TDM_DROP_* reason, else none */
    uint32_t reply_sz;       /* REPLY: bytes written to the reply buffer */
    tdm_datagram_t datagram; /* DATAGRAM */
} tdm_link_verdict_t;

/* Plain counts; the owner publishes them. */
typedef struct tdm_link_counters {
    uint64_t rx_frames;
    uint64_t rx_bytes;
    uint64_t datagrams;
    uint64_t replies;
    uint64_t consumed;
    uint64_t passed;                  /* not ours, given to somebody else */
    uint64_t rx_drop[TDM_REASON_CNT]; /* by reason */
    uint64_t tx_offered;              /* datagrams given to udp_wrap */
    uint64_t tx_datagrams;
    uint64_t tx_drop[TDM_REASON_CNT]; /* neighbour_unknown, datagram_too_long */
    uint64_t held;                    /* datagrams that wait for a neighbour, a gauge */
    uint64_t released;                /* sent after they had waited; of tx_datagrams */
    uint64_t solicits;                /* questions written */
    uint64_t neighbours;              /* entries in use, a gauge */
    uint64_t neighbour_evicted;       /* entries given up for another */
} tdm_link_counters_t;

typedef struct tdm_link tdm_link_t;

/* tdm_link_footprint gives the bytes that init needs for neighbour_max
   entries; 0 where the number is out of range. */
size_t tdm_link_footprint(uint32_t neighbour_max);

/* tdm_link_init formats mem, aligned to TDM_CACHE_LINE.  INVAL, with the
   field named in err, for a config that could not work. */
TDM_MUST_USE tdm_status_t tdm_link_init(void *mem, const tdm_link_config_t *config, int64_t now_ns,
                                        tdm_link_t **out, tdm_error_t *err);

/* tdm_link_rx judges one frame of sz bytes, without FCS.  A reply is
   written to reply[reply_cap]; a cap below the frame's own size may turn
   an echo into icmp_ignored, so give at least mtu + 18.  The verdict's
   datagram stays valid as long as the frame does. */
tdm_link_verdict_t tdm_link_rx(tdm_link_t *l, const uint8_t *frame, uint32_t sz, uint8_t *reply,
                               uint32_t reply_cap, int64_t now_ns);

/* tdm_link_is_foreign: a frame dropped for this reason may be the kernel's,
   where the two share a cable: another protocol, port, address or group.
   What was ours and wrong is not, nor what a rate limit cost. */
int tdm_link_is_foreign(tdm_reason_t reason);

/* tdm_link_rx_pass takes the last frame's drop back: its owner gives it to
   somebody else. */
void tdm_link_rx_pass(tdm_link_t *l, tdm_reason_t reason);

/* tdm_link_rx_drop counts a frame that its owner could not even offer,
   frame_segmented for example, as received and dropped. */
void tdm_link_rx_drop(tdm_link_t *l, tdm_reason_t reason, uint32_t sz);

/* tdm_link_udp_wrap writes Ethernet, IP and UDP headers so that they end
   where payload begins: the TDM_LINK_HEADER_MAX bytes before payload
   belong to the caller and may be overwritten.  The source is our address
   and local_port.  Returns TDM_REASON_NONE and *header_sz, the frame being
   payload - *header_sz and header_sz + payload_sz bytes long; NONE and a
   *header_sz of 0 where the datagram is held until its next hop has
   answered, and there is nothing to send now; or neighbour_unknown (there
   is no next hop, or no room to hold; QUIC will send again) or
   datagram_too_long.  ecn is two bits. */
tdm_reason_t tdm_link_udp_wrap(tdm_link_t *l, const tdm_endpoint_t *remote, uint16_t local_port,
                               uint32_t ecn, uint8_t *payload, uint32_t payload_sz, int64_t now_ns,
                               uint32_t *header_sz);

/* tdm_link_solicit writes the next waiting question to frame, cap at
   least TDM_LINK_SOLICIT_MAX, and returns its size; 0 when none is due.
   Call until 0, each poll. */
uint32_t tdm_link_solicit(tdm_link_t *l, uint8_t *frame, uint32_t cap, int64_t now_ns);

/* tdm_link_release writes the next held datagram whose next hop is known by
   now as a whole frame, cap at least TDM_LINK_HEADER_MAX +
   TDM_LINK_HELD_PAYLOAD_MAX, and returns its size; 0 when there is none.
   Call until 0, each poll. */
uint32_t tdm_link_release(tdm_link_t *l, uint8_t *frame, uint32_t cap, int64_t now_ns);

/* tdm_link_payload_max: bytes of UDP payload that fit the MTU for an IP
   version. */
uint32_t tdm_link_payload_max(const tdm_link_t *l, uint16_t version);

/* tdm_link_is_onlink: the address lies in our own subnet of its version. */
int tdm_link_is_onlink(const tdm_link_t *l, const tdm_endpoint_t *remote);

/* tdm_link_counters: good while l lives.  Net tile only. */
const tdm_link_counters_t *tdm_link_counters(const tdm_link_t *l);

/* tdm_link_is_conserved checks the two identities above. */
int tdm_link_is_conserved(const tdm_link_t *l);

#endif /* TDM_NET_LINK_LINK_H */
