/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how fast CPU attention is, for the shape of SmolLM2-135M (9 query
   heads, 3 KV heads, head_dim 64, 30 layers):

     perf_attention_cpu [SMS [ISA [MS]]]     2, auto, 200 per row by default

   decode   8 sequences, one token each
   prefill  one slice of 256 tokens at the end of the context
   hybrid   both, fused and serial

   Each layer has its own KV pool and the layers are cycled, as a model
   does, so what the caches keep is what they would keep there.  tokens/s
   counts one layer's work times 30; GB/s are the KV bytes that a kernel
   must read once, GF/s its 4 * head_dim flops per visible key, both over
   wall time.  cpu_us is processor time of all threads per layer: on a
   shared machine it is the number to compare. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "appliance/abi/fp8.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/worklist/worklist.h"

#define NHEAD_Q   9
#define NHEAD_KV  3
#define HEAD_DIM  64
#define LAYER_CNT 30
#define DECODES   8
#define SLICE     256

typedef struct bench {
    tdm_worklist_config_t wc;
    tdm_worklist_t *list;
    tdm_cpu_attn_t *attn;
    tdm_sm_pool_t *pool;
    uint64_t pool_floats; /* of one layer's K */
    void *k;
    void *v;
    float *q;
    float *out;
    uint32_t *table;
    uint32_t table_stride;
    int64_t run_ns;
} bench_t;

static const char *const dtypes[TDM_KV_DTYPE_CNT] = {"f32", "bf16", "fp8"};

static void *take(uint64_t sz) {
    void *p = aligned_alloc(4096, tdm_size_align(sz, 4096));
    TDM_CHECK(p);
    memset(p, 0, sz);
    return p;
}

/* Random bits that are normal numbers of about 1, in any type; no scales, so
   those of fp8 are 1. */
static void fill(void *pool, uint64_t cnt, uint32_t dtype) {
    tdm_rng_t rng = {1};
    for (uint64_t i = 0; i < cnt; i++) {
        float x = (float)(tdm_rng_unit(tdm_rng_next(&rng)) * 2 - 1);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == TDM_KV_F32)
            ((float *)pool)[i] = x;
        else if (dtype == TDM_KV_E4M3)
            ((uint8_t *)pool)[i] = tdm_fp8_from_f32(x);
        else
            ((uint16_t *)pool)[i] = (uint16_t)(bits >> 16);
    }
}

static void bench_open(bench_t *b, tdm_sm_pool_t *pool, uint32_t isa, uint32_t kv_cnt,
                       uint32_t dtype) {
    tdm_error_t err = {0};
    uint32_t pages = (kv_cnt + TDM_KV_PAGE_TOKENS - 1) / TDM_KV_PAGE_TOKENS;
    b->pool = pool;
    b->table_stride = pages;
    b->wc = (tdm_worklist_config_t){.nhead_q = NHEAD_Q,
                                    .kv = {.page_cnt = (DECODES + 1) * pages,
                                           .nhead_kv = NHEAD_KV,
                                           .head_dim = HEAD_DIM,
                                           .dtype = dtype},
                                    .sm_cnt = tdm_sm_pool_cnt(pool),
                                    .seq_max = DECODES,
                                    .token_max = SLICE,
                                    .context_max = kv_cnt};
    TDM_CHECK(tdm_worklist_config_check(&b->wc, &err) == TDM_OK);
    b->list = tdm_worklist_init(take(tdm_worklist_footprint(&b->wc)), &b->wc);
    tdm_cpu_attn_config_t ac = {.nhead_q = NHEAD_Q,
                                .kv = b->wc.kv,
                                .isa = isa,
                                .merge_max = b->wc.merge_max,
                                .part_float_max = b->wc.part_float_max,
                                .sm_cnt = b->wc.sm_cnt,
                                .pool = pool};
    uint64_t sz;
    TDM_CHECK(tdm_cpu_attn_footprint(&ac, &sz, &err) == TDM_OK);
    TDM_CHECK(tdm_cpu_attn_init(take(sz), &ac, &b->attn, &err) == TDM_OK);
    TDM_CHECK(tdm_kv_pool_sz(&b->wc.kv, &sz));
    b->pool_floats = sz;
    b->k = take(sz * LAYER_CNT);
    b->v = take(sz * LAYER_CNT);
    fill(b->k, sz * LAYER_CNT / tdm_kv_elem_sz(&b->wc.kv), dtype);
    fill(b->v, sz * LAYER_CNT / tdm_kv_elem_sz(&b->wc.kv), dtype);
    uint64_t rows = SLICE + DECODES;
    b->q = take(rows * NHEAD_Q * HEAD_DIM * sizeof(float));
    b->out = take(rows * NHEAD_Q * HEAD_DIM * sizeof(float));
    fill(b->q, rows * NHEAD_Q * HEAD_DIM, TDM_KV_F32);
    b->table = take((DECODES + 1) * pages * sizeof(uint32_t));
    for (uint32_t i = 0; i < (DECODES + 1) * pages; i++) {
        b->table[i] = (uint32_t)((uint64_t)i * 7919 % ((DECODES + 1) * pages));
    }
}

static void bench_close(bench_t *b) {
    free(b->list);
    free(b->attn);
    free(b->k);
    free(b->v);
    free(b->q);
    free(b->out);
    free(b->table);
}

static double cpu_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void bench_row(bench_t *b, const char *name, uint32_t kv_cnt, uint32_t prefill,
                      uint32_t decode, uint32_t route) {
    tdm_attn_seq_t *seq = tdm_worklist_seq(b->list);
    uint32_t row = 0;
    for (uint32_t s = 0; s < prefill + decode; s++) {
        uint32_t cnt = s < prefill ? SLICE : 1;
        seq[s] = (tdm_attn_seq_t){.slot = s, .kv_cnt = kv_cnt, .cnt = cnt, .row = row};
        row += cnt;
    }
    const tdm_attn_plan_t *plan = tdm_worklist_build(b->list, prefill, decode, route);
    tdm_attn_launch_t l = {.plan = plan,
                           .q = b->q,
                           .out = b->out,
                           .page_table = b->table,
                           .table_stride = b->table_stride,
                           .scale = 1.0f / sqrtf(HEAD_DIM)};
    tdm_attn_stats_t stats = {0};
    uint64_t layers = 0;
    double cpu_before = cpu_s();
    for (int64_t end_ns = tdm_clock_now_ns() + b->run_ns; tdm_clock_now_ns() < end_ns; layers++) {
        uint64_t off = layers % LAYER_CNT * b->pool_floats;
        l.k_pool = (const uint8_t *)b->k + off;
        l.v_pool = (const uint8_t *)b->v + off;
        tdm_cpu_attn_run(b->attn, &l, &stats);
    }
    double s = (double)stats.wall_ns * 1e-9;
    double cpu_us = (cpu_s() - cpu_before) / (double)layers * 1e6;
    printf("%-4s %-14s %6u %5u %9.1f %9.1f %10.0f %8.2f %8.1f %7.2f\n", dtypes[b->wc.kv.dtype],
           name, kv_cnt, row, s / (double)layers * 1e6, cpu_us,
           row * (double)layers / LAYER_CNT / s, (double)stats.kv_read_bytes / s * 1e-9,
           (double)stats.flops / s * 1e-9,
           (double)stats.colocated_ns / (double)(stats.vcta_ns[0] + stats.vcta_ns[1]));
}

int main(int argc, char **argv) {
    uint32_t sm_cnt = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    uint32_t wanted = TDM_CPU_ISA_AUTO;
    for (uint32_t i = 0; argc > 2 && i < TDM_CPU_ISA_CNT; i++) {
        if (strcmp(argv[2], tdm_cpu_isa_name(i)) == 0) wanted = i;
    }
    uint32_t isa;
    tdm_error_t err = {0};
    TDM_CHECK(tdm_cpu_isa_resolve(wanted, &isa, &err) == TDM_OK);
    tdm_sm_config_t config = {.sm_cnt = sm_cnt, .spin_us = 50};
    tdm_sm_pool_t *pool;
    void *mem = take(tdm_sm_pool_footprint(sm_cnt) + 1);
    TDM_CHECK(tdm_sm_pool_open(mem, &config, &pool, &err) == TDM_OK);
    printf("%u SMs, %s\n%-4s %-14s %6s %5s %9s %9s %10s %8s %8s %7s\n", sm_cnt,
           tdm_cpu_isa_name(isa), "kv", "what", "tokens", "rows", "us/layer", "cpu_us", "tokens/s",
           "GB/s", "GF/s", "coloc");
    static const uint32_t kv_list[] = {512, 2048};
    for (uint32_t dtype = 0; dtype < TDM_KV_DTYPE_CNT; dtype++) {
        for (uint32_t i = 0; i < TDM_COUNT_OF(kv_list); i++) {
            bench_t b = {.run_ns = (argc > 3 ? atoi(argv[3]) : 200) * TDM_NS_PER_MS};
            uint32_t kv = kv_list[i];
            bench_open(&b, pool, isa, kv, dtype);
            bench_row(&b, "decode", kv, 0, DECODES, TDM_ROUTE_DECODE_ONLY);
            bench_row(&b, "decode 1", kv, 0, 1, TDM_ROUTE_DECODE_ONLY);
            bench_row(&b, "prefill", kv, 1, 0, TDM_ROUTE_PREFILL_ONLY);
            bench_row(&b, "hybrid fused", kv, 1, DECODES, TDM_ROUTE_FUSED);
            bench_row(&b, "hybrid serial", kv, 1, DECODES, TDM_ROUTE_SERIAL);
            bench_close(&b);
        }
    }
    tdm_sm_pool_close(pool);
    free(mem);
    return 0;
}
