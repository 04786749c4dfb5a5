/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MEASURE_RIG_H
#define TDM_MEASURE_RIG_H

/* tdm_rig keeps the executor's slots where a shape needs them.  Slots
   [0, seq_max - 1) are decodes, the last is the prefill slot.  A slot's
   pages are taken once, when it is opened, as many as the deepest place
   it will see needs. */

#include "appliance/measure/grid.h"

TDM_BEGIN_DECLS

typedef struct tdm_rig_slot {
    uint32_t is_open;
    uint32_t pos;      /* the next input's position */
    uint32_t is_known; /* the token there was sampled: it can decode */
    uint32_t page_off;
    uint32_t page_cnt;
} tdm_rig_slot_t;

typedef struct tdm_rig {
    const tdm_measure_ask_t *ask;
    uint64_t iteration;
    int64_t began_ns; /* by ask->now */
    uint32_t page_used;
    tdm_rig_slot_t slot[TDM_SEQ_MAX];
} tdm_rig_t;

/* What one iteration showed. */
typedef struct tdm_rig_sample {
    double total_ns;
    double attention_ns;
    uint32_t clock_khz; /* of SMs in attention; 0: not told */
    uint32_t depth;     /* of the slice, in fact */
    uint64_t kv;        /* of all decodes, in fact */
} tdm_rig_sample_t;

/* tdm_rig_init begins to count the budget; ask outlives the rig. */
void tdm_rig_init(tdm_rig_t *rig, const tdm_measure_ask_t *ask);

/* tdm_rig_close closes every slot and takes all pages back. */
TDM_MUST_USE tdm_status_t tdm_rig_close(tdm_rig_t *rig, tdm_error_t *err);

/* tdm_rig_populate brings slots [0, cnt) to depth, ready to decode; slots
   that are there already only grow.  page_tok: the deepest place each may
   reach later.  LIMIT where the pool does not hold it. */
TDM_MUST_USE tdm_status_t tdm_rig_populate(tdm_rig_t *rig, uint32_t cnt, uint32_t depth,
                                           uint32_t page_tok, tdm_error_t *err);

/* tdm_rig_reset takes slots [0, cnt) back to a prompt of one token. */
TDM_MUST_USE tdm_status_t tdm_rig_reset(tdm_rig_t *rig, uint32_t cnt, uint32_t page_tok,
                                        tdm_error_t *err);

/* tdm_rig_spent gives the time since tdm_rig_init. */
int64_t tdm_rig_spent(const tdm_rig_t *rig);

/* tdm_rig_time runs chunk prefill tokens at about depth (anywhere in
   [depth / 2, depth * 3 / 2], where slots open at any depth in [depth, depth * 33 / 32], depth
   being a multiple of TDM_KV_PAGE_TOKENS) and batch decodes by route. */
TDM_MUST_USE tdm_status_t tdm_rig_time(tdm_rig_t *rig, const tdm_grid_shape_t *shape,
                                       tdm_rig_sample_t *sample, tdm_error_t *err);

/* tdm_rig_idle times an iteration that computes nothing. */
TDM_MUST_USE tdm_status_t tdm_rig_idle(tdm_rig_t *rig, double *ns, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_MEASURE_RIG_H */
