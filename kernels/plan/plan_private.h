/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_PLAN_PRIVATE_H
#define TDM_KERNELS_PLAN_PLAN_PRIVATE_H

/* What a build carries through its steps: gate and tile (plan.c), the
   route (choice.c), cuts (cut.c, hopper.c), then counting and placing (plan.c). */

#include "kernels/plan/hopper.h"
#include "kernels/plan/plan.h"

#define KEY_BLOCK 64u /* splits lie on its multiples; a cost is counted in it */
#define COST_MAX  (TDM_CONTEXT_MAX / KEY_BLOCK)

/* What the tiles of all prefill sequences add up to. */
typedef struct tile_sum {
    uint64_t tile_cnt;  /* times KV heads */
    uint64_t block_cnt; /* times KV heads */
    uint32_t block_max;
} tile_sum_t;

/* One length of decode items that is worth a look, and how many it makes. */
#define DECODE_TRY_MAX 16u
typedef struct decode_try {
    uint32_t len; /* keys, a multiple of KEY_BLOCK */
    uint32_t item_cnt;
} decode_try_t;

/* All that a build carries along. */
typedef struct work {
    const tdm_pod_config_t *config;
    const tdm_attn_seq_t *seq;
    tdm_pod_plan_t *plan;
    uint32_t begin[TDM_KIND_CNT];
    uint32_t end[TDM_KIND_CNT];
    uint32_t group;
    uint32_t tile_row[TDM_KIND_CNT]; /* packed rows of a full tile */
    uint32_t span[TDM_KIND_CNT];     /* blocks of a full item */
    uint32_t whole_seq;              /* prefill tiles before this sequence stay whole */
    uint32_t whole_row;              /* and so do its own before this row */
    uint32_t cost_max[TDM_KIND_CNT];
    uint32_t bucket[TDM_KIND_CNT][COST_MAX + 1]; /* counting sort: next index of a cost */
    tdm_pod_item_t *item[TDM_KIND_CNT];
    tdm_pod_merge_t *merge;
    uint32_t merge_cnt;
    uint64_t part_float_cnt;
    tile_sum_t sum; /* by tdm_pod_survey, like the rest */
    decode_try_t decode_try[DECODE_TRY_MAX];
    uint32_t try_cnt;
    tdm_hopper_cut_t hopper;       /* of a Hopper plan, by tdm_pod_hopper_survey */
    tdm_hopper_cut_t hopper_alone; /* the same, of prefill without decode beside it */
} work_t;

/* One tile of packed rows of a sequence. */
typedef struct tile {
    uint32_t row;
    uint32_t row_cnt;
    uint32_t kv_cnt; /* keys its last row sees */
    uint32_t block_cnt;
} tile_t;

/* tdm_pod_tile_next stores the tile of a sequence of a kind behind *t, which
   starts as zeros; 0 at its end. */
static inline int tdm_pod_tile_next(const work_t *w, uint32_t kind, const tdm_attn_seq_t *s,
                                    tile_t *t) {
    uint32_t row_all = s->cnt * w->group;
    t->row += t->row_cnt;
    if (t->row >= row_all) return 0;
    t->row_cnt = TDM_MIN(w->tile_row[kind], row_all - t->row);
    uint32_t end = t->row + t->row_cnt;
    uint32_t last = end == row_all ? s->cnt - 1 : (end - 1) / w->group;
    int64_t kv = (int64_t)s->kv_cnt - s->cnt + last + 1;
    t->kv_cnt = kv > 0 ? (uint32_t)kv : 0;
    t->block_cnt = (t->kv_cnt + KEY_BLOCK - 1) / KEY_BLOCK;
    return 1;
}

/* tdm_pod_survey counts what the cuts and the choice of a route go by. */
void tdm_pod_survey(work_t *w);

/* tdm_pod_decode_cut: keys of a full decode item on a route, and in
 *us_out, unless NULL, the time of all on the whole device. */
uint32_t tdm_pod_decode_cut(const work_t *w, uint32_t route, float *us_out);

/* tdm_pod_prefill_cut: blocks of a full prefill item on a route.  *us_out,
   unless NULL, is the time of all: alone on a serial route, else until both
   halves are done beside decode that takes decode_us alone. */
uint32_t tdm_pod_prefill_cut(const work_t *w, uint32_t route, float decode_us, float *us_out);

/* tdm_pod_hopper_is_slow: the portable kernels are there and do this batch of
   a Hopper plan faster. */
int tdm_pod_hopper_is_slow(const work_t *w);

/* tdm_pod_hopper_row: packed rows of a prefill tile. */
uint32_t tdm_pod_hopper_row(const work_t *w);

/* tdm_pod_hopper_survey finds the cuts of a Hopper plan, and the predicted
   times of a hybrid batch. */
void tdm_pod_hopper_survey(work_t *w);

/* tdm_pod_hopper_cut sets its spans, whole tiles and shares for a route. */
void tdm_pod_hopper_cut(work_t *w, uint32_t route);

/* tdm_pod_choose: the route of a hybrid batch that may be fused, by
   predicted time. */
uint32_t tdm_pod_choose(const work_t *w);

#endif /* TDM_KERNELS_PLAN_PLAN_PRIVATE_H */
