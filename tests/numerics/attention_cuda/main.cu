// SPDX-License-Identifier: Apache-2.0
// Goal: the portable GPU attention is right on every shape, and its bits
// depend on the plan alone.
// Method: numerics_attention_cuda MODE [COUNT] [SEED]
//   shapes   COUNT random batches (small and middle), each against the fp64
//            oracle; every way, three grids and a second launch must give
//            the hash of the first; counters must equal the plan
//   large    the same with up to 1 GB of KV
//   oracle   COUNT small batches: the oracle itself against the C reference
//   repeat   one batch, 200 launches over grids and ways beside a noisy
//            kernel: one hash
//   graph    COUNT replays of one captured launch while the plan changes
//   twice    two contexts on two streams at once
//   sanitize COUNT tiny batches, every way and tile (for compute-sanitizer)
//   all      everything, at the sizes of the issue of record
// Exit 77 without a device.  A failure prints its seed.

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/base/rng.h"
#include "kernels/plan/plan.h"
#include "tests/numerics/attention_cuda/world.h"

static const char *const way_name[] = {"serial", "streams_pd", "streams_dp", "fused",
                                       "hfuse",  "prefill",    "decode"};
static const uint32_t both_way[] = {TDM_POD_WAY_FUSED, TDM_POD_WAY_SERIAL, TDM_POD_WAY_STREAMS_PD,
                                    TDM_POD_WAY_STREAMS_DP, TDM_POD_WAY_HFUSE};

static uint64_t fail_cnt;

static void fail(uint64_t seed, const char *what, const char *detail) {
    fail_cnt++;
    if (fail_cnt <= 20) printf("FAIL seed %llu: %s %s\n", (unsigned long long)seed, what, detail);
}

static tdm_rng_t rng_of(uint64_t seed) {
    tdm_rng_t r = {seed};
    return r;
}

// --- shapes -------------------------------------------------------------

static const uint32_t edge[] = {1,   15,  16,  17,  31,  32,  33,  63,  64,   65,   127,
                                128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025};

static uint32_t draw_kv(tdm_rng_t *rng, uint32_t lg_max) {
    if (tdm_rng_below(rng, 3) == 0) {
        uint32_t kv = edge[tdm_rng_below(rng, TDM_COUNT_OF(edge))];
        return kv < 1u << lg_max ? kv : 1;
    }
    uint32_t lg = 1 + tdm_rng_below(rng, lg_max);
    return 1 + tdm_rng_below(rng, 1u << lg);
}

static void add(world_t *w, uint32_t kv, uint32_t cnt) {
    uint32_t s = w->prefill_cnt + w->decode_cnt;
    tdm_attn_seq_t q = {s, kv, cnt, w->row_cnt};
    w->seq[s] = q;
    w->row_cnt += cnt;
}

// A shape within limits of KV bytes and of (row, key) pairs.
static void draw_world(world_t *w, tdm_rng_t *rng, uint32_t lg_max, uint64_t byte_max,
                       uint64_t cost_max) {
    static const uint32_t group[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
    static const uint32_t page[] = {64, 64, 16, 32, 128};
    for (;;) {
        memset(w, 0, sizeof *w);
        uint32_t dtype = tdm_rng_below(rng, 3) ? TDM_POD_BF16 : TDM_POD_F16;
        uint32_t nhead_kv = 1u << tdm_rng_below(rng, 4);
        tdm_pod_shape_t shape = {nhead_kv * group[tdm_rng_below(rng, TDM_COUNT_OF(group))],
                                 nhead_kv,
                                 tdm_rng_below(rng, 2) ? 64u : 128u,
                                 dtype,
                                 dtype,
                                 page[tdm_rng_below(rng, TDM_COUNT_OF(page))],
                                 0};
        w->shape = shape;
        uint32_t which = tdm_rng_below(rng, 6); // 0: no prefill, 1: no decode
        uint32_t np = which == 0 ? 0 : 1 + tdm_rng_below(rng, 4);
        uint32_t nd = which == 1 ? 0 : 1 + tdm_rng_below(rng, 1u << tdm_rng_below(rng, 9));
        if (nd > TDM_SEQ_MAX) nd = TDM_SEQ_MAX;
        for (uint32_t i = 0; i < np; i++) {
            uint32_t kv = draw_kv(rng, lg_max);
            uint32_t cnt = 1 + tdm_rng_below(rng, kv < 600 ? kv : 600);
            if (tdm_rng_below(rng, 16) == 0) kv = tdm_rng_below(rng, cnt); // rows before position 0
            add(w, kv, cnt);
            w->prefill_cnt++;
        }
        for (uint32_t i = 0; i < nd; i++) {
            add(w, tdm_rng_below(rng, 40) ? draw_kv(rng, lg_max) : 0, 1);
            w->decode_cnt++;
        }
        if (world_bytes(w) <= byte_max && world_cost(w) <= cost_max) return;
    }
}

// --- one launch ---------------------------------------------------------

typedef struct rig {
    tdm_pod_config_t config;
    tdm_pod_t *pod;
    tdm_pod_plan_t plan;
} rig_t;

static void rig_open(rig_t *r, const world_t *w, uint32_t tile, uint32_t policy, uint32_t split) {
    static tdm_gpu_t gpu;
    const char *why;
    memset(r, 0, sizeof *r);
    r->config.gpu = gpu;
    r->config.shape = w->shape;
    r->config.tile = tile;
    r->config.policy = policy;
    r->config.decode_split_tok = split;
    r->config.item_max = 32768;
    r->config.part_float_max = 16u << 20;
    int e = tdm_pod_create(&r->config, &r->pod, &why);
    if (e) {
        fprintf(stderr, "create: %s\n", why);
        exit(1);
    }
    gpu = r->config.gpu;
}

static void rig_plan(rig_t *r, const world_t *w) {
    tdm_pod_plan_build(&r->config, w->seq, w->prefill_cnt, w->decode_cnt, TDM_ROUTE_FUSED,
                       tdm_pod_blob(r->pod), &r->plan);
    WORLD_OK(tdm_pod_upload(r->pod, &r->plan, nullptr));
    WORLD_OK(cudaDeviceSynchronize());
}

static void rig_close(rig_t *r) {
    tdm_pod_destroy(r->pod);
}

// Launches and checks what every launch must keep; returns the hash.
static uint64_t run(rig_t *r, world_t *w, uint32_t way, uint32_t grid) {
    char where[96];
    snprintf(where, sizeof where, "(%s, grid %u, tile %u, hd %u, group %u, page %u)", way_name[way],
             grid, r->plan.tile, w->shape.head_dim, w->shape.nhead_q / w->shape.nhead_kv,
             w->shape.page_tok);
    tdm_pod_layer_t layer = world_layer(w);
    tdm_pod_counters_t c;
    world_spoil(w);
    WORLD_OK(tdm_pod_launch(r->pod, &r->plan, &layer, way, grid, nullptr));
    WORLD_OK(tdm_pod_read(r->pod, &r->plan, &c));
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (c.vcta_executed[kind] != r->plan.item_cnt[kind]) {
            fail(w->seed, "executed virtual CTAs are not the plan's", where);
        }
    }
    if (c.merge_cnt != r->plan.merge_cnt) fail(w->seed, "merges are not the plan's", where);
    if (!world_guards_ok(w)) fail(w->seed, "a guard band was touched", where);
    return world_hash(w, nullptr);
}

typedef struct table_row {
    uint64_t cnt;
    double worst, rel, lse;
} table_row_t;
static table_row_t table[TDM_POD_DTYPE_CNT][2];

static void check_error(const world_t *w) {
    world_error_t e = world_compare(w);
    table_row_t *t = &table[w->shape.dtype][w->shape.head_dim == 128];
    t->cnt++;
    t->worst = fmax(t->worst, e.worst);
    t->lse = fmax(t->lse, e.lse);
    if (w->row_cnt * w->shape.nhead_q >= 64) t->rel = fmax(t->rel, e.rel_l2);
    double rel_max = w->shape.dtype == TDM_POD_BF16 ? 4e-3 : 6e-4;
    char what[160];
    snprintf(what, sizeof what, "worst %.3f rel %.2e lse %.2e bad %llu", e.worst, e.rel_l2, e.lse,
             (unsigned long long)e.bad);
    if (e.bad || e.worst > 1.0 || e.lse > 1e-3 || (e.rel_l2 > rel_max && w->row_cnt > 8)) {
        fail(w->seed, "against the oracle:", what);
    }
}

static void one_shape(world_t *w, uint64_t seed, tdm_rng_t *rng) {
    static const uint32_t splits[] = {0, 0, 64, 128, 256, 1024};
    static const uint32_t grids[] = {1, 16, 66, 114, 131, 264, 300};
    world_open(w, seed, static_cast<uint32_t>(seed));
    rig_t r;
    uint32_t tile = tdm_rng_below(rng, TDM_POD_TILE_CNT + 1);
    rig_open(&r, w, tile, tdm_rng_below(rng, 3), splits[tdm_rng_below(rng, TDM_COUNT_OF(splits))]);
    rig_plan(&r, w);
    if (r.plan.route == TDM_ROUTE_IDLE) fail(seed, "no plan", "");
    world_oracle(w);
    uint64_t first = run(&r, w, TDM_POD_WAY_FUSED, 0);
    check_error(w);
    for (uint32_t i = 0; i < TDM_COUNT_OF(both_way); i++) {
        uint32_t grid = grids[tdm_rng_below(rng, TDM_COUNT_OF(grids))];
        if (run(&r, w, both_way[i], grid) != first)
            fail(seed, "bits differ:", way_name[both_way[i]]);
    }
    rig_close(&r);
    world_close(w);
}

static void shapes(uint32_t cnt, uint64_t seed, uint32_t lg_max, uint64_t byte_max,
                   uint64_t cost_max) {
    static world_t w;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = rng_of(seed * 1000003 + i);
        draw_world(&w, &rng, lg_max, byte_max, cost_max);
        one_shape(&w, seed * 1000003 + i, &rng);
    }
    printf("shapes: %u (kv up to %u, %.0f MB)\n", cnt, 1u << lg_max, (double)byte_max / 1e6);
    for (uint32_t t = 0; t < TDM_POD_DTYPE_CNT; t++) {
        for (uint32_t d = 0; d < 2; d++) {
            printf(
                "  %s head_dim %3u: %5llu shapes, worst %.3f of tolerance, rel L2 %.2e, lse %.2e\n",
                t ? "f16 " : "bf16", 64u << d, (unsigned long long)table[t][d].cnt,
                table[t][d].worst, table[t][d].rel, table[t][d].lse);
        }
    }
}

static void oracle(uint32_t cnt, uint64_t seed) {
    static world_t w;
    double worst = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = rng_of(seed * 7777 + i);
        draw_world(&w, &rng, 9, 4u << 20, 1u << 18);
        w.shape.dtype = w.shape.kv_dtype = TDM_POD_BF16;
        w.shape.page_tok = 64;
        world_open(&w, seed * 7777 + i, i);
        world_oracle(&w);
        double e = world_check_reference(&w);
        if (!(e < 1e-12)) fail(w.seed, "the oracle differs from the C reference", "");
        worst = fmax(worst, e);
        world_close(&w);
    }
    printf("oracle: %u shapes against the C reference, largest difference %.1e\n", cnt, worst);
}

// The batch of the repeat, graph and twice modes; i varies it.
static void mixed_world(world_t *w, uint32_t i) {
    memset(w, 0, sizeof *w);
    tdm_pod_shape_t shape = {32, 8, 128, TDM_POD_BF16, TDM_POD_BF16, 64, 0};
    w->shape = shape;
    add(w, 2048 + 131 * i, 256 + 17 * i);
    w->prefill_cnt = 1;
    for (uint32_t s = 0; s < 24 + i; s++) {
        add(w, 700 + 97 * s + 13 * i, 1);
        w->decode_cnt++;
    }
}

static void repeat(uint32_t cnt, uint64_t seed) {
    static world_t w;
    static const uint32_t grids[] = {0, 16, 66, 114, 132, 264};
    tdm_rng_t rng = rng_of(seed);
    cudaStream_t side;
    WORLD_OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    mixed_world(&w, 3);
    world_open(&w, seed, 0);
    rig_t r;
    rig_open(&r, &w, TDM_POD_TILE_AUTO, 0, 256);
    rig_plan(&r, &w);
    uint64_t first = run(&r, &w, TDM_POD_WAY_FUSED, 0);
    for (uint32_t i = 0; i < cnt; i++) {
        world_noise(1 + tdm_rng_below(&rng, 300), 1 + tdm_rng_below(&rng, 200), side);
        uint32_t way = both_way[tdm_rng_below(&rng, TDM_COUNT_OF(both_way))];
        if (run(&r, &w, way, grids[i % TDM_COUNT_OF(grids)]) != first) {
            fail(seed, "bits differ beside noise:", way_name[way]);
        }
        WORLD_OK(cudaStreamSynchronize(side));
    }
    printf("repeat: %u launches beside noise, hash %016llx\n", cnt, (unsigned long long)first);
    rig_close(&r);
    world_close(&w);
}

#define GRAPH_PLAN 8

static void graph(uint32_t cnt, uint64_t seed) {
    static world_t w[GRAPH_PLAN];
    static uint8_t *blob[GRAPH_PLAN];
    static tdm_pod_plan_t plan[GRAPH_PLAN];
    uint64_t hash[GRAPH_PLAN];
    rig_t r;
    uint64_t blob_max = 0;
    // One world holds the memory; the others are batches over its pools
    // with fewer rows, so one captured layer serves all.
    mixed_world(&w[0], GRAPH_PLAN);
    world_open(&w[0], seed, 0);
    rig_open(&r, &w[0], TDM_POD_TILE_AUTO, 0, 256);
    tdm_pod_layer_t layer = world_layer(&w[0]);
    cudaStream_t stream;
    WORLD_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (uint32_t i = 0; i < GRAPH_PLAN; i++) {
        // Fewer keys and sequences, and one without prefill or decode.
        tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
        memcpy(seq, w[0].seq, sizeof seq);
        uint32_t np = i == 3 ? 0 : 1;
        uint32_t nd = i == 5 ? 0 : 4 * i + 1;
        for (uint32_t s = 0; s < 1 + nd; s++) {
            seq[s].kv_cnt -= seq[s].kv_cnt > 40 * i + seq[s].cnt ? 40 * i : 0;
        }
        tdm_pod_plan_build(&r.config, np ? seq : seq + 1, np, nd, TDM_ROUTE_FUSED,
                           tdm_pod_blob(r.pod), &plan[i]);
        blob_max = plan[i].blob_sz > blob_max ? plan[i].blob_sz : blob_max;
        blob[i] = static_cast<uint8_t *>(malloc(tdm_pod_blob_max(&r.config)));
        memcpy(blob[i], tdm_pod_blob(r.pod), plan[i].blob_sz);
        WORLD_OK(tdm_pod_upload(r.pod, &plan[i], stream));
        WORLD_OK(cudaStreamSynchronize(stream));
        world_spoil(&w[0]);
        WORLD_OK(tdm_pod_launch(r.pod, &plan[i], &layer, TDM_POD_WAY_SERIAL, 0, stream));
        hash[i] = world_hash(&w[0], stream);
    }
    tdm_pod_counters_t c;
    WORLD_OK(tdm_pod_read(r.pod, &plan[0], &c));
    tdm_pod_plan_t widest = plan[0];
    widest.blob_sz = blob_max;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    WORLD_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    WORLD_OK(cudaMemsetAsync(w[0].out, 0xff, static_cast<uint64_t>(w[0].row_cnt) * 32 * 128 * 2,
                             stream));
    WORLD_OK(cudaMemsetAsync(w[0].lse, 0xff, static_cast<uint64_t>(w[0].row_cnt) * 32 * 4, stream));
    WORLD_OK(tdm_pod_upload(r.pod, &widest, stream));
    WORLD_OK(tdm_pod_launch(r.pod, &widest, &layer, TDM_POD_WAY_FUSED, 0, stream));
    WORLD_OK(cudaStreamEndCapture(stream, &g));
    WORLD_OK(cudaGraphInstantiate(&exec, g, 0));
    tdm_rng_t rng = rng_of(seed);
    uint64_t vcta[TDM_KIND_CNT] = {0, 0};
    for (uint32_t i = 0; i < cnt; i++) {
        uint32_t p = tdm_rng_below(&rng, GRAPH_PLAN);
        memcpy(tdm_pod_blob(r.pod), blob[p], plan[p].blob_sz);
        WORLD_OK(cudaGraphLaunch(exec, stream));
        if (world_hash(&w[0], stream) != hash[p]) fail(seed, "a graph replay differs", "");
        vcta[0] += plan[p].item_cnt[0];
        vcta[1] += plan[p].item_cnt[1];
    }
    WORLD_OK(tdm_pod_read(r.pod, &plan[0], &c));
    if (c.vcta_executed[0] != vcta[0] || c.vcta_executed[1] != vcta[1]) {
        fail(seed, "replays executed other virtual CTAs than planned", "");
    }
    printf("graph: %u replays of one capture over %u plans, %llu + %llu virtual CTAs\n", cnt,
           GRAPH_PLAN, (unsigned long long)vcta[0], (unsigned long long)vcta[1]);
    for (uint32_t i = 0; i < GRAPH_PLAN; i++) free(blob[i]);
    WORLD_OK(cudaGraphExecDestroy(exec));
    WORLD_OK(cudaGraphDestroy(g));
    rig_close(&r);
    world_close(&w[0]);
}

static void twice(uint32_t cnt, uint64_t seed) {
    static world_t w[2];
    rig_t r[2];
    cudaStream_t stream[2];
    uint64_t want[2];
    for (uint32_t i = 0; i < 2; i++) {
        mixed_world(&w[i], i);
        world_open(&w[i], seed + i, i);
        rig_open(&r[i], &w[i], TDM_POD_TILE_AUTO, i, 512);
        rig_plan(&r[i], &w[i]);
        want[i] = run(&r[i], &w[i], TDM_POD_WAY_FUSED, 0);
        WORLD_OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    }
    for (uint32_t n = 0; n < cnt; n++) {
        for (uint32_t i = 0; i < 2; i++) world_spoil(&w[i]);
        WORLD_OK(cudaDeviceSynchronize());
        for (uint32_t i = 0; i < 2; i++) {
            tdm_pod_layer_t layer = world_layer(&w[i]);
            WORLD_OK(
                tdm_pod_launch(r[i].pod, &r[i].plan, &layer, TDM_POD_WAY_FUSED, 132, stream[i]));
        }
        for (uint32_t i = 0; i < 2; i++) {
            if (world_hash(&w[i], stream[i]) != want[i])
                fail(seed, "bits differ on two streams", "");
        }
    }
    printf("twice: %u pairs of launches at once\n", cnt);
    for (uint32_t i = 0; i < 2; i++) {
        rig_close(&r[i]);
        world_close(&w[i]);
    }
}

static void sanitize(uint32_t cnt, uint64_t seed) {
    static world_t w;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = rng_of(seed * 31 + i);
        draw_world(&w, &rng, 8, 1u << 20, 1u << 17);
        world_open(&w, seed * 31 + i, i);
        rig_t r;
        rig_open(&r, &w, i % TDM_POD_TILE_CNT, i % 3, 64);
        rig_plan(&r, &w);
        uint64_t first = 0;
        for (uint32_t k = 0; k < TDM_COUNT_OF(both_way); k++) {
            uint64_t h = run(&r, &w, both_way[k], 8);
            if (k == 0) first = h;
            if (h != first) fail(w.seed, "bits differ:", way_name[both_way[k]]);
        }
        rig_close(&r);
        world_close(&w);
    }
    printf("sanitize: %u tiny shapes, all ways\n", cnt);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "all";
    uint32_t cnt = argc > 2 ? static_cast<uint32_t>(strtoul(argv[2], nullptr, 10)) : 0;
    uint64_t seed = argc > 3 ? strtoull(argv[3], nullptr, 10) : 1;
    int device_cnt = 0;
    if (cudaGetDeviceCount(&device_cnt) != cudaSuccess || device_cnt == 0) {
        printf("no CUDA device\n");
        return 77;
    }
    int is_all = strcmp(mode, "all") == 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (is_all || !strcmp(mode, "oracle")) oracle(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "shapes")) shapes(cnt ? cnt : 1900, seed, 15, 64u << 20, 30000000);
    if (is_all || !strcmp(mode, "large"))
        shapes(cnt ? cnt : 100, seed + 1, 15, 1u << 30, 300000000);
    if (is_all || !strcmp(mode, "repeat")) repeat(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "twice")) twice(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "graph")) graph(cnt ? cnt : 10000, seed);
    if (!strcmp(mode, "sanitize")) sanitize(cnt ? cnt : 12, seed);
    printf("%s: %llu failures\n", mode, (unsigned long long)fail_cnt);
    return fail_cnt ? 1 : 0;
}
