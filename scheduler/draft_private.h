/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_DRAFT_PRIVATE_H
#define TDM_SCHEDULER_DRAFT_PRIVATE_H

/* tdm_draft is a plan before it is written: which slots, how many tokens.

   0. room for a more urgent class, where it would be late (room.c)
   1. every decode, or those whose promise is the tightest (skip.c)
   2. a quarter of what is left to short prompts, where both lengths wait
   3. all of what is left by slack, long prompts included, as far as it is
      worth its time (thrift.c)
   4. nothing came of it, and progress is due: one slice of floor_cnt

   A prompt that starts takes a slot and its promise of pages on the way. */

#include "scheduler/step_private.h"

/* Each start has a slice, but for one a pass: past what the cache had, it
   may not fit the time. */
#define TDM_DRAFT_PASS_MAX  3u
#define TDM_DRAFT_START_MAX (TDM_PLAN_SLICE_MAX + TDM_DRAFT_PASS_MAX)

/* A slice that the limit cuts ends on a multiple of so many tokens, the
   smallest row tile of a tensor-core instruction; fewer are not begun. */
#define TDM_DRAFT_ALIGN 16u

/* How many tokens a sequence gets. */
typedef struct tdm_pick {
    uint32_t seq;
    uint32_t cnt;
} tdm_pick_t;

typedef struct tdm_draft {
    tdm_load_t load;
    uint32_t decode_of[TDM_SLO_CLASS_MAX];
    int64_t limit_ns;     /* of the iteration's time */
    uint32_t limit_class; /* whose gap that is; TDM_SLO_CLASS_MAX: nobody's */
    int64_t budget_ns;    /* of its predicted time */
    uint32_t token_max;   /* of its prefill tokens */
    tdm_route_t both;     /* of hybrids */
    double token_ns;      /* for slack */
    uint32_t pick_cnt;
    tdm_reason_t cap;
    tdm_reason_t blocked[TDM_QUEUE_CNT]; /* why its next WAITING cannot start */
    uint32_t match_left;                 /* pages that starts may still take from the cache */
    uint32_t grant_left;                 /* and that slices may still bring the executor of such */
    uint32_t ward; /* only it may start: it was overtaken too long; TDM_SEQ_NONE */
    uint64_t skip[(TDM_SEQ_MAX + 63) / 64]; /* bit per slot whose decode is left out */
    int is_forced;
    int is_thrifty; /* it could have more prefill, which is not worth its time */
    uint32_t start_cnt;
    uint16_t start_class[TDM_DRAFT_START_MAX];
    int64_t start_wait_ns[TDM_DRAFT_START_MAX];
    tdm_pick_t pick[TDM_PLAN_SLICE_MAX];
} tdm_draft_t;

/* tdm_draft_make decides the next iteration at s->now_ns. */
void tdm_draft_make(tdm_sched_t *s, tdm_draft_t *d);

/* start.c: tdm_draft_ward gives the head that waited longest past bypass_ns
   since it was due;
   tdm_draft_bar says why a WAITING sequence cannot get a slot now;
   tdm_draft_start gives it one, and says how many tokens it was spared. */
uint32_t tdm_draft_ward(const tdm_sched_t *s, const tdm_draft_t *d);
tdm_reason_t tdm_draft_bar(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t idx);
uint32_t tdm_draft_start(tdm_sched_t *s, tdm_draft_t *d, uint32_t idx);

/* room.c: less urgent sequences give their places up where a more urgent
   one would be late, before anything is counted. */
void tdm_draft_make_room(tdm_sched_t *s);

/* skip.c: leaves decodes out of an iteration that would begin at start_ns
   until the rest fits the budget, or no other may. */
void tdm_draft_skip(tdm_sched_t *s, tdm_draft_t *d, int64_t start_ns);

/* thrift.c: of cnt tokens after pos, which fit an iteration beside what the
   draft has, how many are worth their time; more than none.  All of them
   under another policy than the quantile's, where no table was measured, and
   where nothing decodes: then nobody waits for them. */
uint32_t tdm_draft_thrift(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t pos, uint32_t cnt);

static inline int tdm_draft_is_skipped(const tdm_draft_t *d, uint32_t slot) {
    return (int)(d->skip[slot / 64u] >> slot % 64u & 1u);
}

/* tdm_draft_lacks_row: it waits, and every row for output tokens is held by
   others, of which some wait too. */
static inline int tdm_draft_lacks_row(const tdm_sched_t *s, const tdm_seq_t *q) {
    return s->tape.free_cnt == 0 && q->state == TDM_SEQ_WAITING && q->row == TDM_TAPE_NONE;
}

/* tdm_draft_predict is the time that the policy expects of a load. */
int64_t tdm_draft_predict(const tdm_sched_t *s, tdm_route_t both, const tdm_load_t *load);

/* tdm_draft_is_decodable: all known tokens are planned, and more may be
   sampled. */
static inline int tdm_draft_is_decodable(const tdm_seq_t *q) {
    return q->pos >= q->fill_cnt && q->pos < tdm_seq_last(q);
}

#endif /* TDM_SCHEDULER_DRAFT_PRIVATE_H */
