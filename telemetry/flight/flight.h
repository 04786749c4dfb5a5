/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_FLIGHT_H
#define TDM_TELEMETRY_FLIGHT_H

/* tdm_flight is the flight recorder: what every iteration did and why, and
   every hop of every request, in memory that outlives the process that
   wrote it (telemetry/flight/file.h).  The newest records are there, older
   ones are overwritten.

     tile                                     reader, any process
     turn := 2n + 1
     words of record n       -- F1 / G1 -->   read turn, words, turn again:
     turn := 2n + 2          -- F2 / G2 -->   2n + 2 both times, or it is gone
     head := n + 1           -- F3 / G3 -->   newest is head - 1

   F0/G0  at the magic the header is whole.
   F1/G1  a word of record n cannot be seen without the odd turn before it.
   F2/G2  at turn 2n + 2 all words of record n are there.
   F3/G3  record head - 1 is whole.
   A writer that died in between leaves an odd turn: that record is gone,
   and no other.

   Memory: one header, then rings; a ring is one cache line of head and
   slot_cnt slots.  Records are plain data, offsets from the header: a
   reader of the same build maps the file and looks.
   Ownership: one writer per ring; readers never write.
   Limits: fixed size; a record is some 30 stores, no lock, no wait, no
   system call.  No prompt, no token and no name of a client is recorded. */

#include "appliance/abi/handle.h"
#include "appliance/abi/limits.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"
#include "appliance/base/atomic.h"
#include "appliance/base/status.h"

#include <string.h>

TDM_BEGIN_DECLS

#define TDM_FLIGHT_MAGIC     UINT64_C(0x32746867696c6674) /* "tflight2", little-endian */
#define TDM_FLIGHT_RING_MAX  (1 + TDM_API_TILE_MAX)
#define TDM_FLIGHT_SLOT_MAX  (UINT32_C(1) << 24)
#define TDM_FLIGHT_WORDS_MAX 32u /* 64-bit words of the largest record */

typedef enum tdm_flight_kind { TDM_FLIGHT_ITERATIONS = 1, TDM_FLIGHT_HOPS } tdm_flight_kind_t;

#define TDM_FLIGHT_FORCED  1u /* prefill went over the limit to make progress */
#define TDM_FLIGHT_LOST    2u /* the executor ended first */
#define TDM_FLIGHT_OUTSIDE 4u /* the profile's table was extrapolated */

/* One iteration; times are CLOCK_MONOTONIC. */
typedef struct tdm_flight_iteration {
    uint64_t iteration; /* counts from 1 within one life of tandemd */
    int64_t planned_ns; /* when the plan was made */
    int64_t start_ns;   /* on the executor; 0 where it was lost */
    int64_t end_ns;
    int64_t limit_ns;     /* time limit of the plan */
    int64_t predicted_ns; /* by the profile and its correction */
    int64_t profile_ns;   /* by the profile alone */
    int64_t attention_ns; /* of end - start */
    int64_t sample_ns;
    uint64_t vcta_planned[TDM_KIND_CNT]; /* virtual CTAs over all layers */
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t vcta_ns[TDM_KIND_CNT]; /* SM time inside them */
    uint64_t colocated_ns;          /* SM time while both kinds ran */
    uint64_t kv_cnt;                /* KV tokens that decodes read */
    uint64_t pair_cnt;              /* (query, key) pairs of the prefill */
    uint64_t energy_uj;             /* board power at its end, times its time; 0: not told */
    uint32_t clock_mhz;             /* of the SMs, measured inside attention or told; 0: neither */
    uint32_t quantile_ppm;          /* actual over predicted time that the cap allowed for */
    uint32_t epoch;                 /* executor life */
    uint32_t revision;              /* of the live configuration */
    uint32_t variant;               /* kernel variant of the plan, 0: the backend's choice */
    uint32_t split_cnt;             /* virtual CTAs beyond one per tile and KV head */
    uint32_t merge_cnt;             /* partial results merged */
    uint32_t sm_cnt;
    uint32_t prefill_cnt; /* tokens */
    uint32_t decode_cnt;  /* sequences */
    uint32_t slice_cnt;
    uint32_t waiting_cnt;
    uint32_t running_cnt;
    uint32_t page_free_cnt;
    uint32_t over_cnt;    /* decodes whose gap was over their class's */
    uint32_t flags;       /* TDM_FLIGHT_* */
    uint16_t route;       /* tdm_route_t planned */
    uint16_t ran;         /* tdm_route_t that ran */
    uint16_t cap;         /* TDM_CAP_*: what ended its prefill */
    uint16_t fallback;    /* TDM_FALLBACK_* or 0 */
    uint16_t limit_class; /* whose gap set limit_ns; TDM_SLO_CLASS_MAX: nothing decoded */
    uint16_t tile_row;    /* of a full prefill tile, tokens x group; 0: no prefill */
    uint16_t tile_key;    /* keys of one step of it */
    uint16_t miss_us;     /* that the host needed to queue it, where its graph was missed; else 0 */
} tdm_flight_iteration_t;

typedef enum tdm_flight_hop_kind {
    TDM_HOP_ARRIVED,   /* first byte at the door; api took it */
    TDM_HOP_SUBMITTED, /* on the request ring; prompt_cnt */
    TDM_HOP_ACCEPTED,
    TDM_HOP_REFUSED, /* reason */
    TDM_HOP_STARTED, /* first plan that worked on it */
    TDM_HOP_FIRST,   /* end of the iteration of its first token */
    TDM_HOP_LAST,    /* and of its last; output_cnt */
    TDM_HOP_ENDED,   /* the scheduler's last word; finish, reason */
    TDM_HOP_CNT
} tdm_flight_hop_kind_t;

/* One hop of one request.  {api, handle} names the request. */
typedef struct tdm_flight_hop {
    int64_t at_ns;
    tdm_handle_t handle; /* in the api tile's table */
    uint16_t api;
    uint16_t kind; /* tdm_flight_hop_kind_t */
    uint16_t slo_class;
    uint16_t tenant;
    uint16_t door;   /* tdm_door_kind_t */
    uint16_t finish; /* tdm_finish_t */
    uint16_t reason; /* tdm_reason_t */
    uint16_t reserved;
    uint32_t prompt_cnt;
    uint32_t output_cnt;
    uint64_t reserved2;
} tdm_flight_hop_t;

/* A ring as the header lists it. */
typedef struct tdm_flight_row {
    uint32_t kind; /* tdm_flight_kind_t */
    uint32_t record_sz;
    uint32_t slot_cnt; /* a power of two */
    uint32_t reserved;
    uint64_t off; /* of its head, from the header; a multiple of TDM_CACHE_LINE */
} tdm_flight_row_t;

typedef struct tdm_flight_head {
    uint64_t magic; /* written last */
    uint64_t sz;    /* bytes from the header to the end of the last ring */
    uint32_t ring_cnt;
    uint32_t pid;           /* of the writer */
    int64_t wall_offset_ns; /* civil time (UTC) minus CLOCK_MONOTONIC */
    int64_t start_ns;
    char version[32]; /* readers of another one refuse */
    char model[96];   /* served name */
    tdm_flight_row_t ring[TDM_FLIGHT_RING_MAX];
} tdm_flight_head_t;

/* tdm_flight_ring is a writer's end. */
typedef struct tdm_flight_ring {
    uint64_t *head;
    uint64_t *slot; /* [slot_cnt, 1 + record_words]: turn, record */
    uint64_t next;
    uint32_t mask;
    uint32_t record_words;
} tdm_flight_ring_t;

typedef struct tdm_flight_sizes {
    uint32_t iteration_cnt; /* records kept, a power of two; 0: no such ring */
    uint32_t hop_cnt;       /* of each api tile, the same */
    uint32_t api_cnt;
} tdm_flight_sizes_t;

/* tdm_flight_footprint: bytes of all rings and the header. */
uint64_t tdm_flight_footprint(const tdm_flight_sizes_t *sizes);

/* tdm_flight_init formats zeroed mem, aligned to TDM_CACHE_LINE.  The
   iteration ring is ring 0, that of api tile k is 1 + k.  version and
   model are cut to their bounds. */
void tdm_flight_init(void *mem, const tdm_flight_sizes_t *sizes, const char *version,
                     const char *model, int64_t start_ns, int64_t wall_offset_ns);

/* tdm_flight_writer gives the writer's end of ring idx. */
tdm_flight_ring_t tdm_flight_writer(void *mem, uint32_t idx);

/* tdm_flight_put writes one record of the ring's size.  The ring's writer
   only; NULL is ignored. */
static inline void tdm_flight_put(tdm_flight_ring_t *r, const void *record) {
    if (!r) return;
    uint64_t word[TDM_FLIGHT_WORDS_MAX];
    memcpy(word, record, r->record_words * sizeof word[0]);
    uint64_t *slot = &r->slot[(r->next & r->mask) * (1u + r->record_words)];
    tdm_store_relaxed(&slot[0], 2u * r->next + 1u); /* ordered by every F1 that follows */
    for (uint32_t i = 0; i < r->record_words; i++)
        tdm_store_release(&slot[1u + i], word[i]);  /* F1: pairs with G1 in flight.c */
    tdm_store_release(&slot[0], 2u * r->next + 2u); /* F2: pairs with G2 */
    tdm_store_release(r->head, ++r->next);          /* F3: pairs with G3 */
}

/* --- reading ---------------------------------------------------------- */

/* tdm_flight_check refuses memory that is no flight recorder of this
   build, sz bytes long: every number is checked before it is used. */
TDM_MUST_USE tdm_status_t tdm_flight_check(const void *mem, uint64_t sz, const char *version,
                                           tdm_error_t *err);

/* tdm_flight_newest counts the records ever written to ring idx. */
uint64_t tdm_flight_newest(const void *mem, uint32_t idx);

/* tdm_flight_oldest: the lowest number that may still be read. */
uint64_t tdm_flight_oldest(const void *mem, uint32_t idx);

/* tdm_flight_get copies record n of ring idx; 0 where it is overwritten,
   being written, or not written yet. */
int tdm_flight_get(const void *mem, uint32_t idx, uint64_t n, void *record);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_FLIGHT_H */
