// SPDX-License-Identifier: Apache-2.0
// Goal: the GPU's attention is right on every shape, in every variant, and
// its bits depend on the plan alone.
// Method: numerics_attention_cuda MODE [COUNT] [SEED] [FAMILY]
//   shapes   COUNT random batches (up to 64 MB of KV), each against the fp64
//            oracle in every variant and tile that takes it; every way and
//            random grids must give one hash; counters must equal the plan
//   large    the same with up to 1 GB of KV
//   drafts   the same with decodes of 1 to 8 tokens
//   edges    the named cases (edges.cu), each with all four fills
//   oracle   COUNT small batches: the oracle itself against the C reference
//   repeat   one batch, COUNT launches on each of the grids 16, 66, 114 and
//            full, over all ways, beside a noisy kernel: one hash
//   graph    COUNT replays of one captured launch while plan and q change
//   twice    two contexts on two streams at once
//   start    the self-test that an executor runs at its start
//   sanitize COUNT tiny batches, every variant (for compute-sanitizer)
//   all      everything but sanitize, at the sizes of the issue of record
// FAMILY (rig.cu) leaves the others out.  Exit 77 without a device.  A failure prints its seed.

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"
#include "tests/numerics/attention_cuda/rig.h"

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

// One in five is a shape that only the plain kernels take.
static tdm_pod_shape_t draw_shape(tdm_rng_t *rng) {
    static const uint32_t group[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
    static const uint32_t wide[] = {17, 24, 32, 71, 128};
    static const uint32_t page[] = {64, 64, 16, 32, 128};
    static const uint32_t dim[] = {64, 96, 128, 256};
    int is_odd = tdm_rng_below(rng, 5) == 0;
    uint32_t nhead_kv = 1u << tdm_rng_below(rng, 4);
    uint32_t g = group[tdm_rng_below(rng, TDM_COUNT_OF(group))];
    if (is_odd && tdm_rng_below(rng, 3) == 0) {
        g = wide[tdm_rng_below(rng, TDM_COUNT_OF(wide))];
        nhead_kv = 1 + tdm_rng_below(rng, g > 64 ? 1 : 2);
    }
    tdm_pod_shape_t s = tdm_pod_shape_t();
    s.nhead_kv = nhead_kv;
    s.nhead_q = nhead_kv * g;
    s.head_dim = is_odd ? dim[tdm_rng_below(rng, 4)] : tdm_rng_below(rng, 2) ? 64u : 128u;
    s.dtype = tdm_rng_below(rng, 3) ? TDM_POD_BF16 : TDM_POD_F16;
    s.kv_dtype = s.dtype;
    if (is_odd && tdm_rng_below(rng, 2)) s.kv_dtype = TDM_POD_E4M3;
    s.page_tok = page[tdm_rng_below(rng, TDM_COUNT_OF(page))];
    return s;
}

// A batch within limits of KV bytes and of (row, key) pairs.
// draft: most query tokens of a decode.
static void draw_world(world_t *w, tdm_rng_t *rng, uint32_t lg_max, uint64_t byte_max,
                       uint64_t cost_max, uint32_t draft) {
    for (;;) {
        memset(w, 0, sizeof *w);
        w->shape = draw_shape(rng);
        w->is_shared = tdm_rng_below(rng, 4) == 0;
        w->hot = tdm_rng_below(rng, 8) == 0 ? 1 + tdm_rng_below(rng, 2) : 0;
        uint32_t which = tdm_rng_below(rng, 6); // 0: no prefill, 1: no decode
        uint32_t np = which == 0 ? 0 : 1 + tdm_rng_below(rng, 4);
        uint32_t nd = which == 1 ? 0 : 1 + tdm_rng_below(rng, 1u << tdm_rng_below(rng, 9));
        if (nd > TDM_SEQ_MAX) nd = TDM_SEQ_MAX;
        for (uint32_t i = 0; i < np; i++) {
            uint32_t kv = draw_kv(rng, lg_max);
            uint32_t cnt = 1 + tdm_rng_below(rng, kv < 600 ? kv : 600);
            if (tdm_rng_below(rng, 16) == 0) kv = tdm_rng_below(rng, cnt); // rows before position 0
            world_add(w, kv, cnt);
            w->prefill_cnt++;
        }
        for (uint32_t i = 0; i < nd; i++) {
            uint32_t kv = tdm_rng_below(rng, 40) ? draw_kv(rng, lg_max) : 0;
            world_add(w, kv, draft > 1 ? 1 + tdm_rng_below(rng, draft) : 1);
            w->decode_cnt++;
        }
        if (world_bytes(w) <= byte_max && world_cost(w) <= cost_max) return;
    }
}

static void shapes(const char *name, uint32_t cnt, uint64_t seed, uint32_t lg_max,
                   uint64_t byte_max, uint64_t cost_max, uint32_t draft) {
    static const uint32_t splits[] = {0, 0, 64, 128, 256, 1024, 4096};
    static world_t w;
    for (uint32_t i = 0; i < cnt; i++) {
        uint64_t s = seed * 1000003 + i;
        tdm_rng_t rng = rng_of(s);
        draw_world(&w, &rng, lg_max, byte_max, cost_max, draft);
        world_open(&w, s, i);
        knobs_t k = {tdm_rng_below(&rng, 3), splits[tdm_rng_below(&rng, TDM_COUNT_OF(splits))], 0};
        if (tdm_rng_below(&rng, 3) == 0) k.prefill_split = 1 + tdm_rng_below(&rng, 4);
        rig_check(&w, &k, &rng);
        world_close(&w);
    }
    printf("%s: %u shapes (kv up to %u, %.0f MB), seed %llu\n", name, cnt, 1u << lg_max,
           (double)byte_max / 1e6, (unsigned long long)seed);
    rig_table();
}

static void oracle(uint32_t cnt, uint64_t seed) {
    static world_t w;
    double worst = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = rng_of(seed * 7777 + i);
        draw_world(&w, &rng, 9, 4u << 20, 1u << 18, 1);
        w.hot = WORLD_COOL;
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
    world_add(w, 2048 + 131 * i, 256 + 17 * i);
    w->prefill_cnt = 1;
    for (uint32_t s = 0; s < 24 + i; s++) {
        world_add(w, 700 + 97 * s + 13 * i, 1);
        w->decode_cnt++;
    }
}

// Nobody draws tickets, times or SMs twice in the same order: the ways and
// grids take turns beside a kernel that holds a random number of SMs for a
// random time.
static void repeat(uint32_t cnt, uint64_t seed) {
    static world_t w;
    static const uint32_t grids[] = {16, 66, 114, 0};
    tdm_rng_t rng = rng_of(seed);
    cudaStream_t side;
    WORLD_OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    mixed_world(&w, 3);
    world_open(&w, seed, 0);
    for (uint32_t f = 0; f < FAMILY_MAX; f++) {
        rig_t r;
        const knobs_t k = {0, 256, 0};
        uint64_t first = 0;
        uint32_t done = 0;
        if (!rig_has(f)) continue;
        rig_open(&r, &w);
        if (rig_plan(&r, &w, &family_list[f], &k)) {
            for (uint32_t i = 0; i < cnt * TDM_COUNT_OF(grids); i++) {
                world_noise(1 + tdm_rng_below(&rng, 300), 1 + tdm_rng_below(&rng, 200), side);
                uint32_t way = both_way[tdm_rng_below(&rng, BOTH_WAY_CNT)];
                int is_taken;
                uint64_t h = rig_run(&r, &w, way, grids[i % TDM_COUNT_OF(grids)], &is_taken);
                WORLD_OK(cudaStreamSynchronize(side));
                if (!is_taken) continue;
                if (done++ == 0) first = h;
                if (h != first) fail(seed, "bits differ beside noise:", way_name[way]);
            }
            printf("repeat: %s, %u launches beside noise on grids 16, 66, 114 and full, hash "
                   "%016llx\n",
                   family_list[f].name, done, (unsigned long long)first);
        }
        rig_close(&r);
    }
    world_close(&w);
}

#define GRAPH_PLAN 8

static void graph(uint32_t cnt, uint64_t seed, uint32_t variant, uint32_t way) {
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
    rig_open(&r, &w[0]);
    r.config.variant = variant;
    r.config.decode_split_tok = 256;
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
        world_requery(&w[0], seed + i, stream);
        WORLD_OK(cudaStreamSynchronize(stream));
        world_spoil(&w[0]);
        WORLD_OK(cudaDeviceSynchronize()); // it is of another stream
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
    WORLD_OK(tdm_pod_launch(r.pod, &widest, &layer, way, 0, stream));
    WORLD_OK(cudaStreamEndCapture(stream, &g));
    WORLD_OK(cudaGraphInstantiate(&exec, g, 0));
    tdm_rng_t rng = rng_of(seed);
    char why[64];
    uint64_t vcta[TDM_KIND_CNT] = {0, 0};
    for (uint32_t i = 0; i < cnt; i++) {
        uint32_t p = tdm_rng_below(&rng, GRAPH_PLAN);
        memcpy(tdm_pod_blob(r.pod), blob[p], plan[p].blob_sz);
        world_requery(&w[0], seed + p, stream);
        WORLD_OK(cudaGraphLaunch(exec, stream));
        if (world_hash(&w[0], stream) != hash[p]) {
            snprintf(why, sizeof why, "plan %u, replay %u", p, i);
            fail(seed, "a graph replay differs:", why);
        }
        vcta[0] += plan[p].item_cnt[0];
        vcta[1] += plan[p].item_cnt[1];
    }
    WORLD_OK(tdm_pod_read(r.pod, &plan[0], &c));
    if (c.vcta_executed[0] != vcta[0] || c.vcta_executed[1] != vcta[1]) {
        fail(seed, "replays executed other virtual CTAs than planned", "");
    }
    printf("graph: %s, %u replays of one capture over %u plans, %llu + %llu virtual CTAs\n",
           way_name[way], cnt, GRAPH_PLAN, (unsigned long long)vcta[0],
           (unsigned long long)vcta[1]);
    // What the replays are compared with must be itself what it was.
    for (uint32_t i = 0; i < GRAPH_PLAN; i++) {
        memcpy(tdm_pod_blob(r.pod), blob[i], plan[i].blob_sz);
        WORLD_OK(tdm_pod_upload(r.pod, &plan[i], stream));
        world_requery(&w[0], seed + i, stream);
        for (uint32_t ways = 0; ways < 2; ways++) {
            WORLD_OK(cudaStreamSynchronize(stream));
            world_spoil(&w[0]);
            WORLD_OK(cudaDeviceSynchronize());
            WORLD_OK(tdm_pod_launch(r.pod, &plan[i], &layer, ways ? way : TDM_POD_WAY_SERIAL, 0,
                                    stream));
            if (world_hash(&w[0], stream) == hash[i]) continue;
            snprintf(why, sizeof why, "plan %u, %s", i, way_name[ways ? way : TDM_POD_WAY_SERIAL]);
            fail(seed, "a plan's bits are not what they were:", why);
        }
        free(blob[i]);
    }
    WORLD_OK(cudaGraphExecDestroy(exec));
    WORLD_OK(cudaGraphDestroy(g));
    rig_close(&r);
    world_close(&w[0]);
}

// Two contexts, each of the first or of the last family that is to be run.
static void twice(uint32_t cnt, uint64_t seed) {
    uint32_t list[2] = {FAMILY_MAX, 0};
    for (uint32_t f = 0; f < FAMILY_MAX; f++) {
        if (!rig_has(f)) continue;
        list[0] = TDM_MIN(list[0], f);
        list[1] = f;
    }
    static world_t w[2];
    rig_t r[2];
    cudaStream_t stream[2];
    uint64_t want[2];
    for (uint32_t i = 0; i < 2; i++) {
        mixed_world(&w[i], i);
        world_open(&w[i], seed + i, i);
        const knobs_t k = {i, 512, 0};
        int is_taken;
        rig_open(&r[i], &w[i]);
        if (!rig_plan(&r[i], &w[i], &family_list[list[i]], &k)) fail(seed, "no plan", "");
        want[i] = rig_run(&r[i], &w[i], TDM_POD_WAY_FUSED, 0, &is_taken);
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

// Every way of every variant runs on each shape that it takes.
static void sanitize(uint32_t cnt, uint64_t seed) {
    static world_t w;
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_rng_t rng = rng_of(seed * 31 + i);
        draw_world(&w, &rng, 8, 1u << 20, 1u << 16, i % 4 == 3 ? 8 : 1);
        world_open(&w, seed * 31 + i, i);
        knobs_t k = {i % 3, 64, 0};
        rig_check(&w, &k, &rng);
        world_close(&w);
    }
    printf("sanitize: %u tiny shapes, all ways\n", cnt);
    rig_table();
}

static int has_variant(uint32_t variant) {
    int has = 0;
    for (uint32_t f = 0; f < FAMILY_MAX; f++)
        has |= rig_has(f) && family_list[f].variant == variant;
    return has;
}

static void start(uint64_t seed) {
    static world_t w;
    rig_t r;
    for (uint32_t i = 0; i < 6; i++) {
        memset(&w, 0, sizeof w);
        const tdm_pod_shape_t shape[] = {{32, 32, 128, TDM_POD_BF16, TDM_POD_BF16, 16, 0},
                                         {9, 3, 64, TDM_POD_BF16, TDM_POD_BF16, 64, 0},
                                         {32, 8, 128, TDM_POD_BF16, TDM_POD_BF16, 64, 0},
                                         {8, 2, 64, TDM_POD_F16, TDM_POD_F16, 16, 0},
                                         {8, 2, 96, TDM_POD_BF16, TDM_POD_E4M3, 64, 0},
                                         {71, 1, 256, TDM_POD_F16, TDM_POD_F16, 128, 0}};
        w.shape = shape[i];
        rig_open(&r, &w);
        for (uint32_t v = TDM_POD_VARIANT_PLAIN; v < TDM_POD_VARIANT_CNT; v++) {
            float worst = -1.0f;
            if (tdm_pod_variant_gate(&r.config, v) || !has_variant(v)) continue;
            int e = tdm_pod_self_test(r.pod, v, &r.config.state, 0, &worst);
            WORLD_OK(e);
            if (r.config.state.unfit[v]) fail(seed, "the self-test failed", "");
            printf("start: shape %u, variant %u, worst %.3f of the tolerance\n", i, v,
                   static_cast<double>(worst));
        }
        uint32_t grid = tdm_pod_fresh_max(r.pod);
        if (grid) {
            int is_right = 0;
            float worst = -1.0f;
            WORLD_OK(tdm_pod_self_test_fresh(r.pod, grid, &is_right, &worst));
            if (!is_right) fail(seed, "the self-test of few rows failed", "");
            printf("start: shape %u, few rows, worst %.3f of the tolerance\n", i,
                   static_cast<double>(worst));
        }
        rig_close(&r);
    }
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
    if (argc > 4 && !rig_only(argv[4])) return 2;
    int is_all = strcmp(mode, "all") == 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (is_all || !strcmp(mode, "oracle")) oracle(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "start")) start(seed);
    if (is_all || !strcmp(mode, "edges")) edges(seed);
    if (is_all || !strcmp(mode, "shapes"))
        shapes("shapes", cnt ? cnt : 1900, seed, 15, 64u << 20, 30000000, 1);
    if (is_all || !strcmp(mode, "drafts"))
        shapes("drafts", cnt ? cnt : 200, seed + 2, 15, 64u << 20, 30000000, 8);
    if (is_all || !strcmp(mode, "large"))
        shapes("large", cnt ? cnt : 100, seed + 1, 15, 1u << 30, 300000000, 1);
    if (is_all || !strcmp(mode, "repeat")) repeat(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "twice")) twice(cnt ? cnt : 200, seed);
    if (is_all || !strcmp(mode, "graph")) {
        uint32_t n = cnt ? cnt : 10000;
        if (has_variant(TDM_POD_VARIANT_PORTABLE))
            graph(n, seed, TDM_POD_VARIANT_PORTABLE, TDM_POD_WAY_FUSED);
        if (has_variant(TDM_POD_VARIANT_HOPPER))
            graph(n, seed, TDM_POD_VARIANT_HOPPER, TDM_POD_WAY_FUSED);
        if (has_variant(TDM_POD_VARIANT_PLAIN))
            graph(n / 10, seed, TDM_POD_VARIANT_PLAIN, TDM_POD_WAY_SERIAL);
    }
    if (!strcmp(mode, "sanitize")) sanitize(cnt ? cnt : 12, seed);
    printf("%s: %llu failures\n", mode, (unsigned long long)fail_cnt);
    return fail_cnt ? 1 : 0;
}
