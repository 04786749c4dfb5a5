/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/numerics/attention/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/abi/fp8.h"
#include "appliance/base/check.h"
#include "appliance/base/rng.h"

#define GUARD_SZ   4096
#define GUARD_BYTE 0xA5
#define PAGE_NONE  0x7fffffffu

enum { WHAT_Q, WHAT_K, WHAT_V };

/* About normal: the sum of four 16-bit uniforms of one draw. */
static float normal(uint64_t key, uint64_t index) {
    uint64_t bits = tdm_rng_at(key, index);
    int32_t sum = 0;
    for (int i = 0; i < 4; i++) sum += (int32_t)((bits >> (16 * i)) & 0xffff) - 32768;
    return (float)sum * (1.0f / 37837.0f); /* sqrt(4/12) * 65536 */
}

static void values(float *to, uint32_t dim, uint64_t stream, uint32_t what, uint32_t pos,
                   uint32_t head) {
    uint64_t key = tdm_rng_mix(stream * 3 + what) ^ ((uint64_t)pos << 16) ^ head;
    for (uint32_t d = 0; d < dim; d++) to[d] = normal(key, d);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static void *guarded(batch_t *b, int which, uint64_t sz, int fill) {
    b->block_sz[which] = sz;
    b->block[which] = malloc(sz + 2 * GUARD_SZ);
    TDM_CHECK(b->block[which]);
    memset(b->block[which], GUARD_BYTE, sz + 2 * GUARD_SZ);
    memset(b->block[which] + GUARD_SZ, fill, sz);
    return b->block[which] + GUARD_SZ;
}

static void check_guards(const batch_t *b) {
    for (int i = 0; i < 4; i++) {
        for (uint64_t at = 0; at < GUARD_SZ; at++) {
            TDM_CHECK(b->block[i][at] == GUARD_BYTE);
            TDM_CHECK(b->block[i][GUARD_SZ + b->block_sz[i] + at] == GUARD_BYTE);
        }
    }
}

static void store(const batch_t *b, void *pool, float scale, uint64_t off, const float *x) {
    for (uint32_t d = 0; d < b->shape.head_dim; d++) {
        if (b->kv.dtype == TDM_KV_F32)
            ((float *)pool)[off + d] = x[d];
        else if (b->kv.dtype == TDM_KV_E4M3)
            ((uint8_t *)pool)[off + d] = tdm_fp8_from_f32(x[d] / scale);
        else
            ((uint16_t *)pool)[off + d] = to_bf16(x[d]);
    }
}

static void fill_seq(batch_t *b, uint32_t s) {
    const batch_seq_t *from = &b->from[s];
    const uint32_t dim = b->shape.head_dim;
    float x[TDM_HEAD_DIM_MAX];
    for (uint32_t pos = 0; pos < from->kv_cnt; pos++) {
        uint32_t page = b->table[s * b->table_stride + pos / TDM_KV_PAGE_TOKENS];
        for (uint32_t h = 0; h < b->shape.nhead_kv; h++) {
            uint64_t off = tdm_kv_offset(&b->kv, page, h, pos % TDM_KV_PAGE_TOKENS);
            values(x, dim, from->stream, WHAT_K, pos, h);
            for (uint32_t d = 0; d < dim; d++) x[d] += b->shape.k_bias;
            store(b, b->k, b->scale[0][h], off, x);
            values(x, dim, from->stream, WHAT_V, pos, h);
            store(b, b->v, b->scale[1][h], off, x);
        }
    }
    for (uint32_t i = 0; i < from->cnt; i++) {
        uint32_t pos = from->kv_cnt - from->cnt + i;
        for (uint32_t h = 0; h < b->shape.nhead_q; h++) {
            float *q = b->q + ((uint64_t)(b->seq[s].row + i) * b->shape.nhead_q + h) * dim;
            values(q, dim, from->stream, WHAT_Q, pos, h);
            for (uint32_t d = 0; d < dim; d++) q[d] *= b->shape.q_scale;
        }
    }
}

/* Deals shuffled pages; three stay unused. */
static void deal_pages(batch_t *b, uint64_t page_seed) {
    uint32_t seq_cnt = b->prefill_cnt + b->decode_cnt;
    uint32_t page_cnt = 3;
    b->table_stride = 2;
    for (uint32_t s = 0; s < seq_cnt; s++) {
        uint32_t n = (b->from[s].kv_cnt + TDM_KV_PAGE_TOKENS - 1) / TDM_KV_PAGE_TOKENS;
        page_cnt += n;
        b->table_stride = TDM_MAX(b->table_stride, n + 2);
    }
    b->kv.page_cnt = page_cnt;
    uint32_t *deck = malloc(page_cnt * sizeof *deck);
    b->table = malloc((uint64_t)(seq_cnt + 1) * b->table_stride * sizeof *b->table);
    TDM_CHECK(deck && b->table);
    tdm_rng_t rng = {page_seed};
    for (uint32_t i = 0; i < page_cnt; i++) {
        uint32_t j = tdm_rng_below(&rng, i + 1);
        deck[i] = deck[j];
        deck[j] = i;
    }
    uint32_t next = 0;
    for (uint32_t s = 0; s < seq_cnt; s++) {
        uint32_t n = (b->from[s].kv_cnt + TDM_KV_PAGE_TOKENS - 1) / TDM_KV_PAGE_TOKENS;
        for (uint32_t i = 0; i < b->table_stride; i++) {
            b->table[s * b->table_stride + i] = i < n ? deck[next++] : PAGE_NONE;
        }
    }
    free(deck);
}

void batch_open(batch_t *b, const batch_shape_t *shape, const batch_seq_t *seq,
                uint32_t prefill_cnt, uint32_t decode_cnt, uint64_t page_seed) {
    memset(b, 0, sizeof *b);
    uint32_t seq_cnt = prefill_cnt + decode_cnt;
    TDM_CHECK(seq_cnt <= TDM_ATTN_SEQ_MAX);
    b->shape = *shape;
    b->kv = (tdm_kv_layout_t){
        .nhead_kv = shape->nhead_kv, .head_dim = shape->head_dim, .dtype = shape->dtype};
    b->prefill_cnt = prefill_cnt;
    b->decode_cnt = decode_cnt;
    memcpy(b->from, seq, seq_cnt * sizeof *seq);
    for (uint32_t s = 0; s < seq_cnt; s++) {
        b->seq[s] = (tdm_attn_seq_t){
            .slot = s, .kv_cnt = seq[s].kv_cnt, .cnt = seq[s].cnt, .row = b->row_cnt};
        b->row_cnt += seq[s].cnt;
    }
    for (uint32_t h = 0; h < shape->nhead_kv; h++) { /* no powers of two */
        b->scale[0][h] = 0.011f * (float)(1 + h % 5);
        b->scale[1][h] = 0.013f * (float)(1 + h % 3);
    }
    deal_pages(b, page_seed);
    uint64_t pool_sz;
    TDM_CHECK(tdm_kv_pool_sz(&b->kv, &pool_sz));
    uint64_t cells = (uint64_t)b->row_cnt * shape->nhead_q;
    b->k = guarded(b, 0, pool_sz, 0xff); /* all ones is a NaN in every type */
    b->v = guarded(b, 1, pool_sz, 0xff);
    b->out = guarded(b, 2, cells * shape->head_dim * sizeof(float), 0xff);
    b->lse = guarded(b, 3, cells * sizeof(float), 0xff);
    b->q = malloc(cells * shape->head_dim * sizeof(float) + 1);
    TDM_CHECK(b->q);
    for (uint32_t s = 0; s < seq_cnt; s++) fill_seq(b, s);
}

void batch_close(batch_t *b) {
    for (int i = 0; i < 4; i++) free(b->block[i]);
    free(b->table);
    free(b->q);
    memset(b, 0, sizeof *b);
}

tdm_attn_launch_t batch_launch(const batch_t *b) {
    int is_fp8 = b->kv.dtype == TDM_KV_E4M3;
    return (tdm_attn_launch_t){.q = b->q,
                               .out = b->out,
                               .lse = b->lse,
                               .k_pool = b->k,
                               .v_pool = b->v,
                               .page_table = b->table,
                               .table_stride = b->table_stride,
                               .scale = 1.0f / sqrtf((float)b->shape.head_dim),
                               .k_scale = is_fp8 ? b->scale[0] : NULL,
                               .v_scale = is_fp8 ? b->scale[1] : NULL};
}

static void *take(uint64_t sz) {
    void *p = aligned_alloc(TDM_CACHE_LINE, tdm_size_align(sz, TDM_CACHE_LINE));
    TDM_CHECK(p);
    memset(p, 0, sz);
    return p;
}

void batch_run(batch_t *b, const batch_how_t *how, tdm_attn_stats_t *stats,
               tdm_attn_plan_t *plan_out) {
    tdm_worklist_config_t wc = {
        .nhead_q = b->shape.nhead_q,
        .kv = b->kv,
        .sm_cnt = how->plan_sm_cnt ? how->plan_sm_cnt : tdm_sm_pool_cnt(how->pool),
        .seq_max = TDM_SEQ_MAX,
        .token_max = TDM_PLAN_TOKEN_MAX,
        .context_max = TDM_CONTEXT_MAX / 16,
        .part_float_max = how->part_float_max,
    };
    tdm_error_t err = {0};
    TDM_CHECK(tdm_worklist_config_check(&wc, &err) == TDM_OK);
    void *list_mem = take(tdm_worklist_footprint(&wc));
    tdm_worklist_t *list = tdm_worklist_init(list_mem, &wc);
    memcpy(tdm_worklist_seq(list), b->seq, (b->prefill_cnt + b->decode_cnt) * sizeof b->seq[0]);
    const tdm_attn_plan_t *plan =
        tdm_worklist_build(list, b->prefill_cnt, b->decode_cnt, how->route);

    tdm_cpu_attn_config_t ac = {.nhead_q = b->shape.nhead_q,
                                .kv = b->kv,
                                .isa = how->isa,
                                .merge_max = plan->merge_cnt,
                                .part_float_max = plan->part_float_cnt,
                                .sm_cnt = tdm_sm_pool_cnt(how->pool),
                                .pool = how->pool};
    uint64_t sz;
    TDM_CHECK(tdm_cpu_attn_footprint(&ac, &sz, &err) == TDM_OK);
    void *attn_mem = take(sz);
    tdm_cpu_attn_t *attn;
    TDM_CHECK(tdm_cpu_attn_init(attn_mem, &ac, &attn, &err) == TDM_OK);

    tdm_attn_launch_t launch = batch_launch(b);
    launch.plan = plan;
    tdm_attn_stats_t mine = {0};
    for (uint32_t i = 0; i <= how->again_cnt; i++) {
        memset(b->out, 0xff, b->block_sz[2]);
        memset(b->lse, 0xff, b->block_sz[3]);
        tdm_cpu_attn_run(attn, &launch, stats ? stats : &mine);
        check_guards(b);
    }
    if (plan_out) *plan_out = *plan;
    free(attn_mem);
    free(list_mem);
}

tdm_sm_pool_t *batch_pool(uint32_t sm_cnt) {
    tdm_error_t err = {0};
    tdm_sm_pool_t *pool;
    tdm_sm_config_t config = {.sm_cnt = sm_cnt, .spin_us = 20};
    TDM_CHECK(tdm_sm_pool_open(take(tdm_sm_pool_footprint(sm_cnt)), &config, &pool, &err) ==
              TDM_OK);
    return pool;
}

void batch_pool_free(tdm_sm_pool_t *pool) {
    tdm_sm_pool_close(pool);
    free(pool);
}
