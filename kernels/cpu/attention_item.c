/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "appliance/base/atomic.h"
#include "kernels/cpu/attention_private.h"

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453

/* Index of the tile's row r in lse; times head_dim, in q and out. */
static uint64_t cell_of(const tdm_cpu_attn_t *a, const tdm_attn_item_t *item, uint32_t r) {
    uint64_t row = (uint64_t)a->launch->plan->seq[item->seq].row + item->tok + r / a->group;
    return row * a->config.nhead_q + item->head_kv * a->group + r % a->group;
}

static void tile_load(const tdm_cpu_attn_t *a, tdm_attn_tile_t *t, const tdm_attn_item_t *item) {
    const tdm_attn_launch_t *l = a->launch;
    const tdm_attn_seq_t *seq = &l->plan->seq[item->seq];
    int64_t kv_first = (int64_t)seq->kv_cnt - seq->cnt + item->tok + 1;
    t->tok_cnt = item->tok_cnt;
    t->row_cnt = item->tok_cnt * a->group;
    t->kv_first = kv_first > 0 ? (uint32_t)kv_first : 0;
    t->kv_cnt = kv_first > 0 ? t->kv_first + item->tok_cnt - 1 : 0;
    t->head_kv = item->head_kv;
    t->k_scale = l->k_scale ? l->k_scale[item->head_kv] : 1.0f;
    t->v_scale = l->v_scale ? l->v_scale[item->head_kv] : 1.0f;
    t->k_pool = l->k_pool;
    t->v_pool = l->v_pool;
    t->page = l->page_table + (uint64_t)seq->slot * l->table_stride;
    const uint32_t dim = a->config.kv.head_dim;
    const float scale = (float)(l->scale * LOG2_E);
    for (uint32_t r = 0; r < t->row_cnt; r++) {
        const float *from = (const float *)l->q + cell_of(a, item, r) * dim;
        float *to = t->q + r * t->stride;
        for (uint32_t d = 0; d < dim; d++) to[d] = from[d] * scale;
        for (uint32_t d = dim; d < t->stride; d++) to[d] = 0.0f;
    }
}

/* rows_empty makes what a tile without keys has. */
static void rows_empty(tdm_attn_rows_t rows, const tdm_attn_tile_t *t) {
    memset(rows.o, 0, (uint64_t)t->row_cnt * t->stride * sizeof(float));
    for (uint32_t r = 0; r < t->row_cnt; r++) {
        rows.m[r] = -INFINITY;
        rows.l[r] = 0.0f;
    }
}

/* rows_store divides by l and writes the output rows. */
static void rows_store(const tdm_cpu_attn_t *a, const tdm_attn_item_t *item, tdm_attn_rows_t rows,
                       uint32_t row_cnt) {
    const uint32_t dim = a->config.kv.head_dim;
    for (uint32_t r = 0; r < row_cnt; r++) {
        uint64_t cell = cell_of(a, item, r);
        const float *from = rows.o + r * a->stride;
        float *to = (float *)a->launch->out + cell * dim;
        int is_empty = rows.m[r] == -INFINITY && rows.l[r] == 0.0f;
        float l = is_empty ? 1.0f : rows.l[r];
        for (uint32_t d = 0; d < dim; d++) to[d] = from[d] / l;
        if (!a->launch->lse) continue;
        double lse = ((double)rows.m[r] + log2((double)l)) * LN_2;
        a->launch->lse[cell] = is_empty ? -INFINITY : (float)lse;
    }
}

/* The partial of one range in the workspace. */
static tdm_attn_rows_t part_of(const tdm_cpu_attn_t *a, const tdm_attn_merge_t *merge,
                               uint32_t range, uint32_t row_cnt) {
    float *o = a->part + merge->part_off;
    float *m = o + (uint64_t)merge->range_cnt * row_cnt * a->stride;
    float *l = m + (uint64_t)merge->range_cnt * row_cnt;
    return (tdm_attn_rows_t){.o = o + (uint64_t)range * row_cnt * a->stride,
                             .m = m + (uint64_t)range * row_cnt,
                             .l = l + (uint64_t)range * row_cnt};
}

static void rows_copy(tdm_attn_rows_t to, tdm_attn_rows_t from, const tdm_attn_tile_t *t) {
    memcpy(to.o, from.o, (uint64_t)t->row_cnt * t->stride * sizeof(float));
    memcpy(to.m, from.m, t->row_cnt * sizeof(float));
    memcpy(to.l, from.l, t->row_cnt * sizeof(float));
}

/* A whole tile: ranges folded as they come. */
static void run_whole(tdm_cpu_attn_t *a, tdm_attn_sm_t *sm, const tdm_attn_item_t *item) {
    tdm_attn_tile_t *t = &sm->tile;
    if (item->range_cnt == 0) rows_empty(sm->acc, t);
    for (uint32_t range = 0; range < item->range_cnt; range++) {
        if (range == 0) {
            a->ops->range(t, range, sm->acc);
            continue;
        }
        a->ops->range(t, range, sm->part);
        a->ops->fold(sm->acc, sm->part, t->row_cnt, t->stride);
    }
    rows_store(a, item, sm->acc, t->row_cnt);
}

/* A span of a split tile: its partials go to the workspace, and whoever
   arrives last folds them all, in index order whatever the arrivals'. */
static void run_split(tdm_cpu_attn_t *a, tdm_attn_sm_t *sm, const tdm_attn_item_t *item) {
    tdm_attn_tile_t *t = &sm->tile;
    const tdm_attn_merge_t *merge = &a->launch->plan->merge[item->merge];
    for (uint32_t i = 0; i < item->range_cnt; i++) {
        uint32_t range = item->range + i;
        a->ops->range(t, range, part_of(a, merge, range, t->row_cnt));
    }
    /* M1: each arrival releases its partials; the last acquires them all. */
    if (tdm_add_acq_rel(&a->arrived[item->merge], 1u) + 1 != merge->item_cnt) return;
    tdm_store_relaxed(&a->arrived[item->merge], 0u); /* for the next launch */
    rows_copy(sm->acc, part_of(a, merge, 0, t->row_cnt), t);
    for (uint32_t range = 1; range < merge->range_cnt; range++) {
        a->ops->fold(sm->acc, part_of(a, merge, range, t->row_cnt), t->row_cnt, t->stride);
    }
    rows_store(a, item, sm->acc, t->row_cnt);
    sm->merge_cnt += merge->range_cnt;
}

void tdm_attn_item_run(tdm_cpu_attn_t *a, tdm_attn_sm_t *sm, const tdm_attn_item_t *item) {
    tile_load(a, &sm->tile, item);
    if (item->merge == TDM_ATTN_NO_MERGE)
        run_whole(a, sm, item);
    else
        run_split(a, sm, item);
}
