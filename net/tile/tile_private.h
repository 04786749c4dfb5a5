/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_TILE_TILE_PRIVATE_H
#define TDM_NET_TILE_TILE_PRIVATE_H

/* The tile's inside, shared by its turn (tile.c), its slots (exchange.c)
   its frames for the kernel (exception.c) and its accounts (publish.c). */

#include "appliance/base/clock.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/slots.h"
#include "net/tile/tile.h"
#include "telemetry/block/stream.h"

#include <rte_mbuf.h>

#define PUBLISH_NS (50 * TDM_NS_PER_MS)

/* Egress words taken and datagrams sent in one turn, at most.  A turn of
   64 datagrams of 1200 bytes is about 0.1 ms of encryption on one core,
   the grain of everybody's latency; larger only helps bulk.  Estimates,
   not measured. */
#define EGRESS_PER_TURN 128u
#define OUTPUT_PER_TURN 64u

/* MADE_MAX: token records whose way to the wire one burst measures; a burst
   of 32 datagrams holds some 200 of the shortest.  More are sent unmeasured. */
#define MADE_MAX 512u

/* After so long without another refusal it is not known whether the port
   still refuses. */
#define STUCK_KNOWN_NS (10 * TDM_NS_PER_S)

/* From one slot's pipe to the next: a cache line more than a power of two,
   or the first records of all pipes would fall into one set of each cache
   and push each other out. */
#define PIPE_STRIDE(config) ((uint64_t)(config)->pipe_sz + TDM_CACHE_LINE)

/* PAGE_SZ is the smallest page.  BODY_TOUCHED bytes of each body's room are
   there from the start: a prompt of some 3,000 ids, or 16 KiB of text. */
#define PAGE_SZ      4096u
#define BODY_TOUCHED (UINT64_C(16) << 10)

/* A slot's two owners; free when neither bit is set. */
#define OWNER_H3  1u /* exchange_open .. exchange_closed */
#define OWNER_API 2u /* arrival pushed .. END word */

typedef struct slot {
    uint32_t owners;
    uint16_t api; /* which api tile has it */
    uint16_t is_hangup_due;
    uint32_t end_flags;  /* of the END word */
    tdm_stream_t stream; /* of this exchange */
    tdm_pipe_t pipe;
} slot_t;

/* An answer of the api tile that is given again: see kept.c. */
#define KEPT_BODY_MAX 128u

typedef struct kept {
    int64_t asked_ns;  /* when the request came that it answered */
    int64_t asking_ns; /* when the last one was sent to ask anew */
    uint32_t sz;       /* of the body; 0: nothing is kept */
    uint16_t content_type;
    uint8_t body[KEPT_BODY_MAX];
} kept_t;

/* Accounts that neither link, quic nor h3 keep. */
typedef struct tile_counters {
    uint64_t quic_taken;
    uint64_t quic_dropped;
    uint64_t exception_out;  /* frames the kernel took */
    uint64_t exception_full; /* and those it did not */
    uint64_t exception_in;   /* frames of the kernel that the port took */
    uint64_t stale;          /* egress words of a slot's earlier life */
    uint64_t exchanges;      /* arrivals pushed */
    uint64_t reserved;       /* slots taken of those that are kept */
    uint64_t disconnects;    /* clients that left early */
    uint64_t responses[5];   /* heads by hundred, 1xx first */
} tile_counters_t;

struct tdm_net_tile {
    tdm_net_tile_config_t c;
    tdm_link_t *link;
    tdm_quic_t *quic;
    tdm_h3_t *h3;

    tdm_exchange_t *exchange; /* [exchange_max] */
    slot_t *slot;             /* [exchange_max] */
    uint8_t *body;            /* [exchange_max, body_max] */
    tdm_slots_t slots;
    uint32_t api_turn; /* round robin over api tiles */
    uint32_t hangup_due_cnt;

    struct rte_mbuf *spare; /* for the next reply; NULL: to be allocated */
    uint32_t is_drain_wanted;
    uint32_t is_draining;
    int64_t publish_ns;
    int64_t refused_from_ns; /* since then the port took no frame; NEVER: it did last */
    int64_t refused_last_ns;
    uint32_t is_stuck;         /* written by the tile, read by anyone */
    int64_t made_ns[MADE_MAX]; /* of tokens handed to QUIC for the next burst */
    uint32_t made_cnt;
    kept_t kept;
    tile_counters_t n;
};

/* --- exchange.c ----------------------------------------------------- */

/* exchange_init makes all slots free.  places: [exchange_max].  pipes: [exchange_max, pipe_sz]. */
tdm_status_t exchange_init(tdm_net_tile_t *t, tdm_slot_place_t *places, uint8_t *pipes,
                           tdm_error_t *err);

/* exchange_calls is the table h3 calls. */
tdm_h3_tile_t exchange_calls(tdm_net_tile_t *t);

/* egress_drain takes words of the api tiles to h3. */
uint32_t egress_drain(tdm_net_tile_t *t, int64_t now_ns);

/* hangup_retry pushes what a full lane refused before. */
uint32_t hangup_retry(tdm_net_tile_t *t);

/* --- kept.c --------------------------------------------------------- */

/* kept_answers: the exchange is answered whole, head and pipe, from what
   was kept; 0: it goes to an api tile. */
int kept_answers(tdm_net_tile_t *t, tdm_exchange_t *x, int64_t now_ns);

/* kept_note sees each word of an api tile, before h3 does. */
void kept_note(tdm_net_tile_t *t, const tdm_exchange_t *x, uint32_t flags);

/* --- exception.c ---------------------------------------------------- */

/* exception_takes: the frame goes to the kernel, in *pass; the count of its
   drop is taken back. */
int exception_takes(tdm_net_tile_t *t, tdm_reason_t reason);

/* exception_out gives a burst to the kernel; exception_in brings one from
   it to the port. */
void exception_out(tdm_net_tile_t *t, struct rte_mbuf **m, uint32_t cnt);
uint32_t exception_in(tdm_net_tile_t *t, int64_t now_ns);

/* --- tile.c ---------------------------------------------------------- */

/* frames_send gives a burst to the data port, remembers whether it took
   any, and answers how many. */
uint32_t frames_send(tdm_net_tile_t *t, struct rte_mbuf **m, uint32_t cnt, int64_t now_ns);

#endif /* TDM_NET_TILE_TILE_PRIVATE_H */
