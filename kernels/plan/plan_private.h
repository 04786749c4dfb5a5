/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_PLAN_PRIVATE_H
#define TDM_KERNELS_PLAN_PLAN_PRIVATE_H

/* What a build carries through its steps: gate and tile (plan.c), cuts
   (cut.c), then counting and placing (plan.c). */

#include "kernels/plan/plan.h"

#define KEY_BLOCK 64u /* splits lie on its multiples; a cost is counted in it */
#define COST_MAX  (TDM_CONTEXT_MAX / KEY_BLOCK)

/* All that a build carries along. */
typedef struct work {
    const tdm_pod_config_t *config;
    const tdm_attn_seq_t *seq;
    tdm_pod_plan_t *plan;
    uint32_t begin[TDM_KIND_CNT];
    uint32_t end[TDM_KIND_CNT];
    uint32_t group;
    uint32_t tile_row;
    uint32_t span[TDM_KIND_CNT]; /* blocks of a full item */
    uint32_t cost_max[TDM_KIND_CNT];
    uint32_t bucket[TDM_KIND_CNT][COST_MAX + 1]; /* counting sort: next index of a cost */
    tdm_pod_item_t *item[TDM_KIND_CNT];
    tdm_pod_merge_t *merge;
    uint32_t merge_cnt;
    uint64_t part_float_cnt;
} work_t;

/* One tile of packed rows of a sequence. */
typedef struct tile {
    uint32_t row;
    uint32_t row_cnt;
    uint32_t kv_cnt; /* keys its last row sees */
    uint32_t block_cnt;
} tile_t;

/* tdm_pod_tile_next stores the tile of a sequence behind *t, which starts as
   zeros; 0 at its end. */
int tdm_pod_tile_next(const work_t *w, const tdm_attn_seq_t *s, tile_t *t);

/* tdm_pod_decode_span: blocks of a full decode item. */
uint32_t tdm_pod_decode_span(const work_t *w, int is_fused);

/* tdm_pod_prefill_span: blocks of a full prefill item; is_fused: beside
   decode. */
uint32_t tdm_pod_prefill_span(const work_t *w, int is_fused);

#endif /* TDM_KERNELS_PLAN_PLAN_PRIVATE_H */
