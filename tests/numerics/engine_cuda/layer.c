/* SPDX-License-Identifier: Apache-2.0 */
/* How long one layer of Llama-3-8B takes in a hybrid iteration: its four
   products and its attention, one after the other for a second, six
   layers' weights in turn; and the products alone.  A chunk at the end of its
   context beside decodes of as long a context; pages in random order.
   tests/perf/engine/layer.py compares it with PyTorch's products. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "appliance/abi/limits.h"
#include "appliance/base/clock.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/rows.h"
#include "kernels/include/pod.h"
#include "kernels/plan/plan.h"
#include "tests/numerics/engine_cuda/bench.h"

#define LAYERS  6u
#define HIDDEN  4096u
#define FFN     14336u
#define HEAD_Q  32u
#define HEAD_KV 8u
#define DIM     128u
#define QKV     ((HEAD_Q + 2 * HEAD_KV) * DIM)
#define STEADY  INT64_C(1000000000)
#define RINGS   50u /* passes over the layers between two looks at the clock */

typedef struct layer {
    tdm_gemm_t *gemm;
    tdm_pod_t *pod;
    tdm_pod_plan_t plan;
    tdm_pod_layer_t tensors;
    uint8_t *w[LAYERS][4];
    void *x, *qkv, *both;
    uint32_t rows;
} layer_t;

static void *random_halves(uint64_t cnt, uint64_t seed) {
    void *p = NULL;
    bench_cuda((int)cudaMalloc(&p, cnt * 2), "cudaMalloc");
    bench_cuda(tdm_rows_draw(seed, 1e-5f, cnt, 0, p, NULL), "draw");
    return p;
}

static void product(layer_t *l, uint32_t layer, uint32_t k) {
    const tdm_gemm_shape_t shape[4] = {{l->rows, QKV, HIDDEN, TDM_GEMM_F32, 0, 0},
                                       {l->rows, HIDDEN, HIDDEN, TDM_GEMM_F32, 1, 0},
                                       {l->rows, 2 * FFN, HIDDEN, TDM_GEMM_BF16, 0, 0},
                                       {l->rows, HIDDEN, FFN, TDM_GEMM_F32, 1, 0}};
    void *y[4] = {l->qkv, l->qkv, l->both, l->qkv};
    bench_cuda(tdm_gemm_run(l->gemm, &shape[k], l->x, l->w[layer][k], y[k], NULL), "a product");
}

static double us_a_layer(layer_t *l, int has_attention) {
    int64_t start_ns = tdm_clock_now_ns(), mark_ns = 0, now_ns;
    uint64_t cnt = 0;
    do {
        for (uint32_t i = 0; i < RINGS * LAYERS; i++) {
            product(l, i % LAYERS, 0);
            if (has_attention)
                bench_cuda(tdm_pod_launch(l->pod, &l->plan, &l->tensors, l->plan.way, 0, NULL),
                           "attention");
            for (uint32_t k = 1; k < 4; k++) product(l, i % LAYERS, k);
        }
        bench_cuda((int)cudaDeviceSynchronize(), "a ring");
        now_ns = tdm_clock_now_ns();
        if (mark_ns) cnt += RINGS * LAYERS;
        /* The first quarter warms up. */
        if (!mark_ns && now_ns - start_ns > STEADY / 4) mark_ns = now_ns;
    } while (now_ns - start_ns < STEADY);
    return (double)(now_ns - mark_ns) * 1e-3 / (double)cnt;
}

static void make_attention(layer_t *l, uint32_t context, uint32_t chunk, uint32_t batch) {
    const char *why = "";
    tdm_rng_t rng = {3};
    tdm_pod_config_t config = {.shape = {.nhead_q = HEAD_Q,
                                         .nhead_kv = HEAD_KV,
                                         .head_dim = DIM,
                                         .page_tok = TDM_KV_PAGE_TOKENS},
                               .seq_max = batch + 1};
    if (tdm_pod_create(&config, &l->pod, &why) != 0) {
        printf("%s\n", why);
        exit(2);
    }
    uint32_t stride = context / TDM_KV_PAGE_TOKENS, pages = (batch + 1) * stride;
    uint32_t *table = bench_alloc(pages * sizeof *table);
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t at = tdm_rng_below(&rng, i + 1);
        table[i] = table[at];
        table[at] = i;
    }
    tdm_attn_seq_t *seq = bench_alloc((batch + 1) * sizeof *seq);
    seq[0] = (tdm_attn_seq_t){.slot = 0, .kv_cnt = context, .cnt = chunk, .row = 0};
    for (uint32_t i = 1; i <= batch; i++)
        seq[i] = (tdm_attn_seq_t){.slot = i, .kv_cnt = context, .cnt = 1, .row = chunk + i - 1};
    tdm_pod_plan_build(&config, seq, 1, batch, TDM_POD_ROUTE_AUTO, tdm_pod_blob(l->pod), &l->plan);
    bench_cuda(tdm_pod_upload(l->pod, &l->plan, NULL), "the plan");
    uint64_t pool = (uint64_t)pages * HEAD_KV * TDM_KV_PAGE_TOKENS * DIM;
    l->tensors = (tdm_pod_layer_t){.q = random_halves((uint64_t)l->rows * HIDDEN, 5),
                                   .out = random_halves((uint64_t)l->rows * HIDDEN, 6),
                                   .k_pool = random_halves(pool, 7),
                                   .v_pool = random_halves(pool, 8),
                                   .page_table = bench_put(table, pages * sizeof *table),
                                   .table_stride = stride,
                                   .scale = 1.0f / sqrtf((float)DIM)};
    bench_cuda((int)cudaDeviceSynchronize(), "making it");
    free(table);
    free(seq);
}

int part_layer(uint32_t context, uint32_t chunk, uint32_t batch) {
    static layer_t l;
    tdm_error_t err = {0};
    void *workspace = NULL;
    if (context % TDM_KV_PAGE_TOKENS || chunk == 0 || chunk > context || batch == 0) return 2;
    l.rows = chunk + batch;
    bench_cuda((int)cudaMalloc(&workspace, TDM_GEMM_WORKSPACE), "cudaMalloc");
    if (tdm_gemm_open(workspace, NULL, &l.gemm, &err) != TDM_OK) {
        printf("%s\n", err.text);
        return 2;
    }
    const uint64_t sz[4] = {(uint64_t)QKV * HIDDEN, (uint64_t)HIDDEN * HIDDEN, 2ull * FFN * HIDDEN,
                            (uint64_t)FFN * HIDDEN};
    for (uint32_t i = 0; i < LAYERS; i++)
        for (uint32_t k = 0; k < 4; k++) l.w[i][k] = random_halves(sz[k], 10 + 4 * i + k);
    l.x = random_halves((uint64_t)l.rows * FFN, 1);
    bench_cuda((int)cudaMalloc(&l.qkv, (uint64_t)l.rows * QKV * 4), "cudaMalloc");
    bench_cuda((int)cudaMalloc(&l.both, (uint64_t)l.rows * 2 * FFN * 2), "cudaMalloc");
    bench_cuda((int)cudaMemset(l.qkv, 0, (uint64_t)l.rows * QKV * 4), "clearing");
    make_attention(&l, context, chunk, batch);
    double products = us_a_layer(&l, 0), all = us_a_layer(&l, 1);
    static const char *const variant[] = {"none", "plain", "portable", "hopper"};
    printf("{\"context\": %u, \"chunk\": %u, \"batch\": %u, \"products_us\": %.1f, "
           "\"layer_us\": %.1f, \"variant\": \"%s\", \"route\": %u}\n",
           context, chunk, batch, products, all, variant[l.plan.variant], l.plan.route);
    return 0;
}
