/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_UNIT_ATTENTION_PLAN_PLAN_RIG_H
#define TDM_TESTS_UNIT_ATTENTION_PLAN_PLAN_RIG_H

/* A batch, its device and its plan, and the check that items cover every
   row and key once. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/plan/device.h"
#include "kernels/plan/hopper.h"
#include "kernels/plan/plan.h"

typedef struct rig {
    tdm_pod_config_t config;
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    uint32_t prefill_cnt;
    uint32_t decode_cnt;
    tdm_pod_plan_t plan;
    uint8_t *blob;
} rig_t;

static inline void rig_open(rig_t *r, const char *gpu, uint32_t nhead_q, uint32_t nhead_kv) {
    memset(r, 0, sizeof *r);
    assert_non_null(tdm_gpu_known(gpu));
    r->config.gpu = *tdm_gpu_known(gpu);
    r->config.shape = (tdm_pod_shape_t){.nhead_q = nhead_q,
                                        .nhead_kv = nhead_kv,
                                        .head_dim = 128,
                                        .dtype = TDM_POD_BF16,
                                        .kv_dtype = TDM_POD_BF16,
                                        .page_tok = 64};
    r->config.tile = TDM_POD_TILE_AUTO;
    tdm_pod_config_fill(&r->config);
    r->blob = malloc(tdm_pod_blob_max(&r->config));
    assert_non_null(r->blob);
}

static inline void rig_close(rig_t *r) {
    free(r->blob);
}

/* A slice of cnt tokens that ends at kv. */
static inline void add(rig_t *r, uint32_t kv, uint32_t cnt) {
    uint32_t s = r->prefill_cnt + r->decode_cnt;
    uint32_t row = s ? r->seq[s - 1].row + r->seq[s - 1].cnt : 0;
    r->seq[s] = (tdm_attn_seq_t){.slot = s, .kv_cnt = kv, .cnt = cnt, .row = row};
}

static inline void add_prefill(rig_t *r, uint32_t kv, uint32_t cnt) {
    add(r, kv, cnt);
    r->prefill_cnt++;
}

static inline void add_decode(rig_t *r, uint32_t kv) {
    add(r, kv, 1);
    r->decode_cnt++;
}

/* Gives the last decode so many query tokens, a draft to verify. */
static inline void draft(rig_t *r, uint32_t cnt) {
    r->seq[r->prefill_cnt + r->decode_cnt - 1].cnt = cnt;
}

static inline const tdm_pod_plan_t *build(rig_t *r, uint32_t route) {
    memset(r->blob, 0xa5, tdm_pod_blob_max(&r->config));
    tdm_pod_plan_build(&r->config, r->seq, r->prefill_cnt, r->decode_cnt, route, r->blob, &r->plan);
    return &r->plan;
}

static inline const tdm_pod_head_t *head_of(const rig_t *r) {
    return (const tdm_pod_head_t *)(const void *)r->blob;
}

static inline const tdm_pod_item_t *items(const rig_t *r, uint32_t kind) {
    return (const tdm_pod_item_t *)(const void *)(r->blob + head_of(r)->item_off[kind]);
}

/* Every (sequence, KV head, packed row, key) in exactly one item; merges
   complete; longest first, but for prefill of a Hopper plan, whose whole tiles
   stand by sequence and head. */
static inline void check_cover(const rig_t *r) {
    const tdm_pod_head_t *head = head_of(r);
    const tdm_pod_merge_t *merge = (const void *)(r->blob + head->merge_off);
    uint32_t group = r->config.shape.nhead_q / r->config.shape.nhead_kv;
    uint64_t cell = 0; /* rows x keys, to be equal on both sides */
    uint64_t want = 0;
    uint32_t *arrive = calloc(head->merge_cnt + 1, sizeof *arrive);
    assert_non_null(arrive);
    assert_true(r->plan.blob_sz <= tdm_pod_blob_max(&r->config));
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        uint32_t before = UINT32_MAX;
        for (uint32_t i = 0; i < head->item_cnt[kind]; i++) {
            const tdm_pod_item_t *it = &items(r, kind)[i];
            const tdm_attn_seq_t *s = &r->seq[it->seq];
            assert_int_equal(it->seq >= r->prefill_cnt, kind == TDM_KIND_DECODE);
            assert_true(it->head_kv < r->config.shape.nhead_kv);
            assert_true(it->row + it->row_cnt <= s->cnt * group);
            assert_true(it->row_cnt >= 1 && it->row_cnt <= r->plan.tile_row);
            assert_int_equal(it->kv_begin % 64, 0);
            assert_true(it->kv_begin <= it->kv_end && it->kv_end <= s->kv_cnt);
            uint32_t cost = (it->kv_end - it->kv_begin + 63) / 64;
            int is_by_head = r->plan.variant == TDM_POD_VARIANT_HOPPER && kind == TDM_KIND_PREFILL;
            assert_true(cost <= before || is_by_head);
            before = cost;
            cell += (uint64_t)it->row_cnt * (it->kv_end - it->kv_begin);
            if (it->merge == TDM_POD_NO_MERGE) continue;
            assert_true(it->merge < head->merge_cnt);
            assert_int_equal(merge[it->merge].row_cnt, it->row_cnt);
            assert_true(it->split < merge[it->merge].split_cnt);
            arrive[it->merge] += 1u + (it->split << 16); /* count, and sum of numbers */
        }
    }
    uint64_t end = 0;
    for (uint32_t i = 0; i < head->merge_cnt; i++) {
        uint32_t n = merge[i].split_cnt;
        assert_int_equal(arrive[i], n + ((n * (n - 1) / 2) << 16));
        assert_true(merge[i].part_off >= end);
        end = merge[i].part_off + (uint64_t)n * merge[i].row_cnt * (r->config.shape.head_dim + 2);
    }
    assert_true(end <= r->plan.part_float_cnt);
    for (uint32_t s = 0; s < r->prefill_cnt + r->decode_cnt; s++) {
        uint32_t rows = r->seq[s].cnt * group;
        int is_short = r->plan.variant == TDM_POD_VARIANT_HOPPER && s >= r->prefill_cnt;
        uint32_t step = is_short ? TDM_HOPPER_DECODE_ROW : r->plan.tile_row;
        for (uint32_t row = 0; row < rows; row += step) {
            uint32_t n = TDM_MIN(step, rows - row);
            int64_t kv = (int64_t)r->seq[s].kv_cnt - r->seq[s].cnt + (row + n - 1) / group + 1;
            if (kv > 0) want += (uint64_t)n * (uint64_t)kv * r->config.shape.nhead_kv;
        }
    }
    assert_int_equal(cell, want);
    free(arrive);
}

static inline uint32_t draw_kv(tdm_rng_t *rng) {
    uint32_t n = 1 + tdm_rng_below(rng, 1u << (1 + tdm_rng_below(rng, 14)));
    return n;
}

#endif /* TDM_TESTS_UNIT_ATTENTION_PLAN_PLAN_RIG_H */
