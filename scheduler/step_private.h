/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_STEP_PRIVATE_H
#define TDM_SCHEDULER_STEP_PRIVATE_H

/* The scheduler from inside: what step, admit, order, plan, result and
   check share.  All arrays lie behind the struct in the caller's memory. */

#include "scheduler/cap.h"
#include "scheduler/kv.h"
#include "scheduler/order.h"
#include "scheduler/predict.h"
#include "scheduler/seq.h"
#include "scheduler/step.h"
#include "scheduler/tape.h"

#define TDM_SCHED_DEPTH_MAX  2u
#define TDM_SCHED_RECORD_MAX 16u /* power of two */

/* One slot of a plan in flight; slices first, then decodes. */
typedef struct tdm_flight_entry {
    uint32_t seq;   /* TDM_SEQ_NONE: it gave its slot up meanwhile */
    uint32_t order; /* of the sequence, its low half: it may have ended meanwhile */
    uint32_t pos;   /* of the token it samples */
    uint16_t slot;
    uint8_t is_sampled;
    uint8_t finish; /* tdm_finish_t, once its sequence ended */
} tdm_flight_entry_t;

/* TDM_ENTRY_IS_OF: the entry belongs to this life of its sequence. */
#define TDM_ENTRY_IS_OF(e, q) ((e)->order == (uint32_t)(q)->order)

/* Pages that starting sequences may take from the cache for one plan, and
   that one plan may grant of them: what is left of TDM_PLAN_PAGE_MAX covers
   every slice and decode. */
#define TDM_SCHED_MATCH_MAX (TDM_PLAN_PAGE_MAX / 2)

/* How many sequences ahead a walk over slots asks for the line of the
   next: enough to hide a memory access behind the work on so many. */
#define TDM_SCHED_AHEAD 12u

/* A decode that is back after turns it was left out of. */
typedef struct tdm_flight_late {
    int64_t since_ns; /* end of the iteration of its token before */
    uint32_t slo_class;
    uint32_t reserved;
} tdm_flight_late_t;

typedef struct tdm_flight {
    tdm_sched_record_t record;
    int64_t profile_ns; /* the prediction without its correction */
    uint32_t decode_of[TDM_SLO_CLASS_MAX];
    uint32_t entry_cnt;
    uint32_t sample_cnt;
    tdm_flight_entry_t entry[TDM_SEQ_MAX];
    uint32_t late_cnt; /* decodes that were left out of turns before */
    tdm_flight_late_t late[TDM_SEQ_MAX];
} tdm_flight_t;

/* Events on their way to one api tile.  Room: two words per request slot
   (its answer and its end) and TDM_OUTBOX_TOKENS(seq_max) tokens; plan
   stops before the tokens could exceed theirs, so a push always fits. */
typedef struct tdm_outbox {
    tdm_event_t *event; /* [mask + 1] */
    uint32_t head;
    uint32_t tail;
    uint32_t mask;
    uint32_t token_cnt; /* TOKEN events inside */
} tdm_outbox_t;

/* What a tenant may still ask for. */
typedef struct tdm_bucket {
    double level; /* tokens; below 0 after one request over the burst */
    int64_t at_ns;
} tdm_bucket_t;

#define TDM_OUTBOX_TOKENS(seq_max) (4u * (seq_max))

struct tdm_sched {
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    int64_t now_ns;
    uint32_t epoch;
    uint32_t is_up;
    uint32_t was_up;
    uint32_t is_draining;
    uint32_t verdict;   /* the reason of this life's kill, not yet told */
    uint32_t is_doomed; /* watch has asked for the end of this life */
    int64_t down_ns;    /* since when no executor is there */
    uint64_t iteration;
    uint64_t order;

    tdm_seq_t *seq; /* [waiting_max + seq_max] */
    uint32_t seq_cnt;
    uint32_t seq_free;    /* list through next */
    uint32_t *slot_seq;   /* [seq_max] sequence of a slot, TDM_SEQ_NONE */
    uint32_t *by_request; /* [api_cnt, request_max] sequence of a request slot */
    tdm_order_t queues;
    uint32_t waiting_cnt;
    uint32_t running_cnt;
    uint32_t rebuilt_cnt; /* sequences with is_rebuilt */
    uint32_t heir;        /* WAITING, places were given up for it; TDM_SEQ_NONE */
    uint32_t skip_slot;   /* where the next search for a decode to leave out begins */
    uint64_t waiting_tokens;
    uint64_t waiting_pages; /* that sequences in WAITING will need */

    tdm_kv_t kv;
    tdm_tape_t tape;
    tdm_predict_t predict;
    tdm_cap_t cap;
    double row_ns;         /* the least that a row costs, by the profile's table; 0: it has none */
    double clock_ratio;    /* the device's clock over the profile's */
    uint32_t is_throttled; /* the device's clock is held down for power or heat */
    int64_t end_ns;        /* when the last iteration of this life ended, 0: none yet */
    double fill_tok;       /* recent prefill tokens and the time they took */
    double fill_ns;
    double drain_ns; /* recent busy time, and what became free in it */
    double drain_pages;
    double drain_slots;
    uint64_t drain_seen_pages; /* kv.released_cnt already in it */
    tdm_bucket_t bucket[TDM_TENANT_MAX];

    tdm_flight_t flight[TDM_SCHED_DEPTH_MAX]; /* oldest first */
    uint32_t flight_cnt;
    int64_t flight_ns;           /* when the oldest began to run, as far as known */
    int32_t sample[TDM_SEQ_MAX]; /* a result's tokens, copied before use */
    uint32_t sample_flags[TDM_SEQ_MAX];

    tdm_outbox_t outbox[TDM_API_TILE_MAX];
    tdm_sched_record_t record[TDM_SCHED_RECORD_MAX];
    uint32_t record_head;
    uint32_t record_tail;
    tdm_sched_stats_t stats;
};

/* ahead asks for what a plan will touch of the slot TDM_SCHED_AHEAD
   further on. */
static inline void tdm_sched_ahead(const tdm_sched_t *s, uint32_t slot) {
    uint32_t next = slot + TDM_SCHED_AHEAD;
    if (next >= s->sizes.seq_max || s->slot_seq[next] == TDM_SEQ_NONE) return;
    __builtin_prefetch(&s->seq[s->slot_seq[next]], 1);
    __builtin_prefetch(&s->kv.slot[next], 1);
    __builtin_prefetch(&s->flight[s->flight_cnt % TDM_SCHED_DEPTH_MAX].entry[next], 1);
}

/* clock: the later of now_ns and what was seen before. */
int64_t tdm_sched_clock(tdm_sched_t *s, int64_t now_ns);

/* count adds one to a reason's counter. */
void tdm_sched_count(tdm_sched_t *s, tdm_reason_t reason);

/* push appends an event for the request's api tile. */
void tdm_sched_push(tdm_sched_t *s, uint32_t api, const tdm_event_t *event);

/* end moves a live sequence to DONE, CANCELLED or FAILED, sends its END,
   and frees it; its slot is fenced. */
void tdm_sched_end(tdm_sched_t *s, uint32_t seq, tdm_seq_state_t state, tdm_finish_t finish,
                   tdm_reason_t reason);

/* give_back sends a sequence that has a slot back to WAITING, in its place,
   with all tokens it has sent; samples of it in flight are discarded and
   will be drawn again, the same. */
void tdm_sched_give_back(tdm_sched_t *s, uint32_t seq);

/* page_tokens gives the tokens of page idx of a sequence, all of them
   known; buf is used where they are not together. */
const int32_t *tdm_sched_page_tokens(const tdm_sched_t *s, const tdm_seq_t *q, uint32_t idx,
                                     int32_t buf[TDM_KV_PAGE_TOKENS]);

/* need gives the KV pages that prompt and output can touch: the last
   token is never an input. */
uint32_t tdm_sched_need(uint32_t prompt_cnt, uint32_t output_max);

/* admit.c: the verdict on a request that is whole, REASON_NONE = accept;
   and the Retry-After hint for a refusal of this moment. */
tdm_reason_t tdm_admit_judge(const tdm_sched_t *s, const tdm_request_t *request);
uint32_t tdm_admit_retry_ms(const tdm_sched_t *s, const tdm_request_t *request,
                            tdm_reason_t reason);

/* admit_take and admit_refund: tokens asked for leave the tenant's bucket,
   those that were not used come back. */
void tdm_admit_take(tdm_sched_t *s, const tdm_request_t *request);
void tdm_admit_refund(tdm_sched_t *s, uint32_t tenant, uint32_t tokens);

/* admit_deadline_ns: of the first token, the earlier of the client's own
   and its class's. */
int64_t tdm_admit_deadline_ns(const tdm_sched_t *s, const tdm_request_t *request);

/* record_push keeps a finished record for record_pop. */
void tdm_sched_record_push(tdm_sched_t *s, const tdm_sched_record_t *record);

#endif /* TDM_SCHEDULER_STEP_PRIVATE_H */
