// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/bench.h"

#include <cuda_bf16.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "appliance/base/rng.h"

#define ROW_MAX  20000ull // of q and out: C2's slice and its decodes
#define HEAD_MAX 32ull

void bench_ok(int error, const char *call, const char *file, int line) {
    if (error == 0) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

static __device__ uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

// Sums of four bytes: close enough to normal, of variance 1.
static __global__ void random_kernel(__nv_bfloat162 *to, uint64_t cnt, uint32_t seed) {
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < cnt; i += step) {
        float v[2];
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t r = mix((uint32_t)(2 * i + h) ^ mix(seed + (uint32_t)(i >> 31)));
            v[h] = ((float)(r & 255) + (float)(r >> 8 & 255) + (float)(r >> 16 & 255) +
                    (float)(r >> 24) - 510.0f) *
                   (1.0f / 148.0f);
        }
        to[i] = __floats2bfloat162_rn(v[0], v[1]);
    }
}

void *bench_random(uint64_t sz, uint32_t seed) {
    void *p;
    OK(cudaMalloc(&p, sz));
    random_kernel<<<1056, 256>>>((__nv_bfloat162 *)p, sz / 4, seed);
    OK(cudaGetLastError());
    return p;
}

void bench_open(bench_t *b, uint64_t pool_sz, const tdm_pod_config_t *knob) {
    b->pool_sz = pool_sz;
    b->knob = *knob;
    b->k = bench_random(pool_sz, 1);
    b->v = bench_random(pool_sz, 2);
    b->q = bench_random(ROW_MAX * HEAD_MAX * DIM * 2, 3);
    OK(cudaMalloc(&b->out, ROW_MAX * HEAD_MAX * DIM * 2));
    OK(cudaMalloc((void **)&b->lse, ROW_MAX * HEAD_MAX * 4));
    OK(cudaMalloc((void **)&b->table, 64u << 20));
    OK(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    OK(cudaDeviceSynchronize());
}

static void close_pods(bench_t *b) {
    for (uint32_t i = 0; i < WAY_CNT; i++) {
        tdm_pod_destroy(b->pod[i]);
        b->pod[i] = nullptr;
    }
}

void bench_point(bench_t *b, const point_t *p) {
    if (b->model && strcmp(b->model, p->model)) close_pods(b);
    b->model = p->model;
    b->seq_cnt = 1 + p->batch;
    b->stride = (std::max(p->ctx, p->decode_ctx) + PAGE - 1) / PAGE;
    uint64_t page_cnt = b->pool_sz / (PAGE * DIM * 2ull * p->nhead_kv);
    uint64_t need = (uint64_t)b->seq_cnt * b->stride;
    b->set_cnt = (uint32_t)std::min<uint64_t>(SET_MAX, page_cnt / need);
    if (b->set_cnt == 0) {
        fprintf(stderr, "the pool is too small for %s %u x %u\n", p->model, p->batch, p->ctx);
        exit(1);
    }
    // Only as much of the deck as is dealt needs to be shuffled.
    uint64_t dealt = need * b->set_cnt;
    uint32_t *deck = (uint32_t *)malloc(page_cnt * 4);
    for (uint64_t i = 0; i < page_cnt; i++) deck[i] = (uint32_t)i;
    tdm_rng_t rng = {p->ctx + p->batch};
    for (uint64_t i = 0; i < dealt; i++)
        std::swap(deck[i], deck[i + tdm_rng_below(&rng, (uint32_t)(page_cnt - i))]);
    OK(cudaMemcpy(b->table, deck, dealt * 4, cudaMemcpyHostToDevice));
    free(deck);
    for (uint32_t s = 0; s < b->seq_cnt; s++) {
        uint32_t kv = s && p->decode_ctx ? p->decode_ctx : p->ctx;
        tdm_attn_seq_t q = {s, kv, s ? 1 : p->chunk, s ? p->chunk + s - 1 : 0};
        b->seq[s] = q;
    }
}

static void open_pod(bench_t *b, const point_t *p, uint32_t i) {
    const way_t *w = &way_list[i];
    const char *why;
    tdm_pod_config_t c = b->knob;
    tdm_pod_shape_t shape = {p->nhead_q, p->nhead_kv, DIM, TDM_POD_BF16, TDM_POD_BF16, PAGE, 0};
    c.gpu = b->gpu;
    c.shape = shape;
    if (w->tile != TDM_POD_TILE_AUTO) c.tile = w->tile;
    c.policy = w->policy;
    c.decode_warp = w->decode_warp;
    c.share[TDM_KIND_PREFILL] = w->share_p;
    c.share[TDM_KIND_DECODE] = w->share_d;
    if (w->split_max) c.prefill_split_max = w->split_max;
    if (tdm_pod_create(&c, &b->pod[i], &why)) {
        fprintf(stderr, "create %s: %s\n", w->name, why);
        exit(1);
    }
    b->config[i] = c;
    b->gpu = c.gpu;
}

static int launch(bench_t *b, uint32_t i) {
    uint32_t set = b->set++ % b->set_cnt;
    tdm_pod_layer_t layer = tdm_pod_layer_t();
    layer.q = b->q;
    layer.out = b->out;
    layer.lse = b->lse;
    layer.k_pool = b->k;
    layer.v_pool = b->v;
    layer.page_table = b->table + (uint64_t)set * b->seq_cnt * b->stride;
    layer.table_stride = b->stride;
    layer.scale = 0.08838834764f;
    b->launch_cnt[i]++;
    return tdm_pod_launch(b->pod[i], &b->plan[i], &layer, way_list[i].way, 0, b->stream);
}

int bench_way(bench_t *b, const point_t *p, uint32_t i) {
    const way_t *w = &way_list[i];
    if (!b->pod[i]) open_pod(b, p, i);
    const tdm_attn_seq_t *seq = b->seq;
    uint32_t prefill = 1;
    uint32_t decode = b->seq_cnt - 1;
    if (w->seqs == SEQS_DECODE_AS_PREFILL) seq++;
    if (w->seqs != SEQS_HYBRID) {
        prefill = (uint32_t)(b->seq + b->seq_cnt - seq);
        decode = 0;
    }
    tdm_pod_plan_build(&b->config[i], seq, prefill, decode, w->route, tdm_pod_blob(b->pod[i]),
                       &b->plan[i]);
    OK(tdm_pod_upload(b->pod[i], &b->plan[i], b->stream));
    OK(cudaStreamSynchronize(b->stream));
    b->launch_cnt[i] = 0;
    int error = launch(b, i);
    if (error == cudaErrorNotSupported) return 0;
    OK(error);
    return 1;
}

void bench_choose(bench_t *b, tdm_pod_plan_t *plan) {
    static void *blob;
    if (!blob) blob = malloc(tdm_pod_blob_max(&b->config[FUSED]));
    tdm_pod_plan_build(&b->config[FUSED], b->seq, 1, b->seq_cnt - 1, TDM_POD_ROUTE_AUTO, blob,
                       plan);
}

void bench_launch(bench_t *b, uint32_t i) {
    OK(launch(b, i));
}

int bench_counters(bench_t *b, uint32_t i, tdm_pod_counters_t *out) {
    uint32_t way = way_list[i].way;
    OK(tdm_pod_read(b->pod[i], &b->plan[i], out));
    uint64_t n = b->launch_cnt[i];
    uint64_t p = way == TDM_POD_WAY_DECODE ? 0 : n * b->plan[i].item_cnt[TDM_KIND_PREFILL];
    uint64_t d = way == TDM_POD_WAY_PREFILL ? 0 : n * b->plan[i].item_cnt[TDM_KIND_DECODE];
    b->launch_cnt[i] = 0;
    return out->vcta_executed[TDM_KIND_PREFILL] == p && out->vcta_executed[TDM_KIND_DECODE] == d;
}
