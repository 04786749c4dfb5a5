// SPDX-License-Identifier: Apache-2.0
// perf_attention [--points A:B] [--rounds N] [--set key=value]... [--csv FILE] [--ablate]
//                [--steady SECONDS] [--pool GB]
//
// Runs the grid of points.h and prints, per point, the time of every way:
// the halves alone, one after the other, on two streams, fused.
//
// Burst protocol: every sample is at most 10 ms of work after 40 ms of
// idling, so the card runs at its full clock; the ways of a point take
// turns in an order drawn anew each round; launches are queued behind a
// spinning kernel and timed by events; medians.  K, V and q are random.
// Page tables rotate over sets of pages that do not overlap, so no launch
// finds its keys in the L2 cache.
//
// --steady also runs serial and fused for so many seconds each and prints
// time, joule (NVML's energy counter) and watt.

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>

#include "appliance/base/rng.h"
#include "kernels/plan/plan.h"
#include "tests/perf/attention/points.h"

#define PAGE       64u
#define DIM        128u
#define SET_MAX    4u
#define SAMPLE_MAX 64u
#define BURST_US   10000.0f
#define IDLE_US    40000u

#define OK(call) ok((call), #call, __LINE__)
static void ok(int error, const char *call, int line) {
    if (error == 0) return;
    fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

// --- ways ---------------------------------------------------------------

typedef struct way {
    const char *name;
    uint32_t way;       // tdm_pod_way_t
    uint32_t route;     // the plan is made for
    uint32_t tile;      // tdm_pod_tile_t
    uint32_t policy;    // tdm_pod_policy_t
    uint32_t split_max; // of prefill tiles; 0: the planner's
} way_t;

enum { PREFILL, DECODE, SERIAL, STREAMS_PD, STREAMS_DP, FUSED, WAY_MAIN };

static const way_t way_list[] = {
    {"prefill", TDM_POD_WAY_PREFILL, TDM_ROUTE_SERIAL, TDM_POD_TILE_AUTO, 0, 0},
    {"decode", TDM_POD_WAY_DECODE, TDM_ROUTE_SERIAL, TDM_POD_TILE_AUTO, 0, 0},
    {"serial", TDM_POD_WAY_SERIAL, TDM_ROUTE_SERIAL, TDM_POD_TILE_AUTO, 0, 0},
    {"streams_pd", TDM_POD_WAY_STREAMS_PD, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 0, 0},
    {"streams_dp", TDM_POD_WAY_STREAMS_DP, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 0, 0},
    {"fused", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 0, 0},
    // --ablate adds these.
    {"fused_prop", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 1, 0},
    {"fused_even", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 2, 0},
    {"fused_4cta", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_SLIM, 0, 0},
    {"fused_1stage", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_WIDE1, 0, 0},
    {"fused_nosplit", TDM_POD_WAY_FUSED, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 0, 1},
    {"hfuse", TDM_POD_WAY_HFUSE, TDM_ROUTE_FUSED, TDM_POD_TILE_AUTO, 0, 0},
    {"serial_4cta", TDM_POD_WAY_SERIAL, TDM_ROUTE_SERIAL, TDM_POD_TILE_SLIM, 0, 0},
    {"serial_1stage", TDM_POD_WAY_SERIAL, TDM_ROUTE_SERIAL, TDM_POD_TILE_WIDE1, 0, 0},
};
#define WAY_MAX (sizeof way_list / sizeof way_list[0])

// --- data ---------------------------------------------------------------

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

static __global__ void spin_kernel(uint32_t ns) {
    for (uint32_t i = 0; i < ns; i += 1000) __nanosleep(1000);
}

static __global__ void read_kernel(const uint4 *from, uint64_t cnt, uint32_t *sink) {
    uint32_t x = 0;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < cnt; i += 4 * step) {
        uint4 v[4];
        for (int u = 0; u < 4; u++)
            v[u] = i + u * step < cnt ? __ldcs(from + i + u * step) : uint4();
        for (int u = 0; u < 4; u++) x ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    if (x == 0x12345678u) *sink = x;
}

typedef struct bench {
    __nv_bfloat16 *k, *v, *q, *out;
    uint64_t pool_sz; // bytes of k, and of v
    uint32_t *table;  // device, [SET_MAX][rows][stride]
    float *lse;
    tdm_pod_t *pod[WAY_MAX];
    tdm_pod_config_t config[WAY_MAX];
    tdm_pod_plan_t plan[WAY_MAX];
    cudaStream_t stream;
    tdm_gpu_t gpu;
    tdm_pod_config_t knob;
    uint32_t way_cnt;
    uint32_t rounds;
} bench_t;

typedef struct batch {
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    uint32_t seq_cnt;
    uint32_t stride;
    uint32_t set_cnt;
    float *time[WAY_MAX]; // samples
    uint32_t time_cnt[WAY_MAX];
} batch_t;

static void sleep_us(uint32_t us) {
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&t, nullptr);
}

static void open_bench(bench_t *b, uint64_t pool_sz) {
    b->pool_sz = pool_sz;
    OK(cudaMalloc(&b->k, pool_sz));
    OK(cudaMalloc(&b->v, pool_sz));
    OK(cudaMalloc(&b->q, 20000ull * 32 * DIM * 2));
    OK(cudaMalloc(&b->out, 20000ull * 32 * DIM * 2));
    OK(cudaMalloc(&b->lse, 20000ull * 32 * 4));
    OK(cudaMalloc(&b->table, 64u << 20));
    random_kernel<<<1056, 256>>>((__nv_bfloat162 *)b->k, pool_sz / 4, 1);
    random_kernel<<<1056, 256>>>((__nv_bfloat162 *)b->v, pool_sz / 4, 2);
    random_kernel<<<1056, 256>>>((__nv_bfloat162 *)b->q, 20000ull * 32 * DIM / 2, 3);
    OK(cudaGetLastError());
    OK(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    OK(cudaDeviceSynchronize());
}

// The sequences of a point, and its page tables: one shuffled deck, dealt
// to as many sets as the pool holds.
static void open_batch(bench_t *b, const point_t *p, batch_t *t) {
    memset(t, 0, sizeof *t);
    t->seq_cnt = 1 + p->batch;
    t->stride = (p->ctx + PAGE - 1) / PAGE;
    uint64_t page_cnt = b->pool_sz / (PAGE * DIM * 2ull * p->nhead_kv);
    uint64_t need = (uint64_t)t->seq_cnt * t->stride;
    t->set_cnt = (uint32_t)std::min<uint64_t>(SET_MAX, page_cnt / need);
    if (t->set_cnt == 0) {
        fprintf(stderr, "the pool is too small for %s %u x %u\n", p->model, p->batch, p->ctx);
        exit(1);
    }
    uint32_t *deck = (uint32_t *)malloc(page_cnt * 4);
    for (uint64_t i = 0; i < page_cnt; i++) deck[i] = (uint32_t)i;
    tdm_rng_t rng = {p->ctx + p->batch};
    for (uint64_t i = page_cnt; i > 1; i--)
        std::swap(deck[i - 1], deck[tdm_rng_below(&rng, (uint32_t)i)]);
    OK(cudaMemcpy(b->table, deck, need * t->set_cnt * 4, cudaMemcpyHostToDevice));
    free(deck);
    for (uint32_t s = 0; s < t->seq_cnt; s++) {
        uint32_t cnt = s ? 1 : p->chunk;
        tdm_attn_seq_t q = {s, s && p->decode_ctx ? p->decode_ctx : p->ctx, cnt,
                            s ? p->chunk + s - 1 : 0};
        t->seq[s] = q;
    }
}

static void open_way(bench_t *b, const point_t *p, batch_t *t, uint32_t i) {
    const char *why;
    tdm_pod_config_t c = b->knob;
    c.gpu = b->gpu;
    tdm_pod_shape_t shape = {p->nhead_q, p->nhead_kv, DIM, TDM_POD_BF16, TDM_POD_BF16, PAGE, 0};
    c.shape = shape;
    c.tile = way_list[i].tile == TDM_POD_TILE_AUTO ? b->knob.tile : way_list[i].tile;
    c.policy = way_list[i].policy;
    if (way_list[i].split_max) c.prefill_split_max = way_list[i].split_max;
    b->config[i] = c;
    int e = tdm_pod_create(&b->config[i], &b->pod[i], &why);
    if (e) {
        fprintf(stderr, "create: %s\n", why);
        exit(1);
    }
    b->gpu = b->config[i].gpu;
    tdm_pod_plan_build(&b->config[i], t->seq, 1, t->seq_cnt - 1, way_list[i].route,
                       tdm_pod_blob(b->pod[i]), &b->plan[i]);
    OK(tdm_pod_upload(b->pod[i], &b->plan[i], b->stream));
    OK(cudaStreamSynchronize(b->stream));
    t->time[i] = (float *)malloc(SAMPLE_MAX * 16 * sizeof(float));
}

static void launch(bench_t *b, const batch_t *t, uint32_t i, uint32_t set) {
    tdm_pod_layer_t layer = {b->q,      b->out,
                             b->lse,    b->k,
                             b->v,      b->table + (uint64_t)set * t->seq_cnt * t->stride,
                             t->stride, 0.08838834764f};
    OK(tdm_pod_launch(b->pod[i], &b->plan[i], &layer, way_list[i].way, 0, b->stream));
}

// One burst of a way: n launches behind a spinning kernel.
static void burst(bench_t *b, batch_t *t, uint32_t i, uint32_t n, uint32_t *set) {
    cudaEvent_t ev[18];
    for (uint32_t k = 0; k <= n; k++) OK(cudaEventCreate(&ev[k]));
    sleep_us(IDLE_US);
    spin_kernel<<<1, 32, 0, b->stream>>>(300000);
    OK(cudaEventRecord(ev[0], b->stream));
    for (uint32_t k = 0; k < n; k++) {
        launch(b, t, i, *set % t->set_cnt);
        *set += 1;
        OK(cudaEventRecord(ev[k + 1], b->stream));
    }
    OK(cudaStreamSynchronize(b->stream));
    for (uint32_t k = 0; k < n; k++) {
        float ms;
        OK(cudaEventElapsedTime(&ms, ev[k], ev[k + 1]));
        t->time[i][t->time_cnt[i]++] = ms * 1e3f;
    }
    for (uint32_t k = 0; k <= n; k++) OK(cudaEventDestroy(ev[k]));
}

static float median(float *v, uint32_t n) {
    std::sort(v, v + n);
    return n % 2 ? v[n / 2] : 0.5f * (v[n / 2 - 1] + v[n / 2]);
}

static void measure(bench_t *b, batch_t *t, const tdm_rng_t *seed) {
    tdm_rng_t rng = *seed;
    uint32_t n[WAY_MAX];
    uint32_t set = 0;
    for (uint32_t i = 0; i < b->way_cnt; i++) { // warm, and how long it takes
        burst(b, t, i, 2, &set);
        float us = std::max(t->time[i][1], 1.0f);
        n[i] = std::min(5u, std::max(1u, (uint32_t)(BURST_US / us)));
        t->time_cnt[i] = 0;
    }
    for (uint32_t r = 0; r < b->rounds; r++) {
        uint32_t order[WAY_MAX];
        for (uint32_t i = 0; i < b->way_cnt; i++) order[i] = i;
        for (uint32_t i = b->way_cnt; i > 1; i--)
            std::swap(order[i - 1], order[tdm_rng_below(&rng, i)]);
        for (uint32_t i = 0; i < b->way_cnt; i++) burst(b, t, order[i], n[order[i]], &set);
    }
}

// --- report -------------------------------------------------------------

typedef struct geo {
    double log_sum;
    uint32_t cnt;
} geo_t;
static void geo_add(geo_t *g, double v) {
    g->log_sum += log(v);
    g->cnt++;
}
static double geo_of(const geo_t *g) {
    return g->cnt ? exp(g->log_sum / g->cnt) : 0;
}

typedef struct report {
    geo_t fused, fused_all, streams, fi_serial, fi_pod, way[WAY_MAX];
    double worst_choice;
    FILE *csv;
} report_t;

static void report(bench_t *b, const point_t *p, batch_t *t, report_t *out) {
    float us[WAY_MAX];
    for (uint32_t i = 0; i < b->way_cnt; i++) us[i] = median(t->time[i], t->time_cnt[i]);
    const tdm_pod_plan_t *plan = &b->plan[FUSED];
    tdm_pod_counters_t c;
    for (uint32_t i = 0; i < b->way_cnt; i++) OK(tdm_pod_read(b->pod[i], &b->plan[i], &c));
    launch(b, t, FUSED, 0);
    OK(tdm_pod_read(b->pod[FUSED], plan, &c));
    if (c.vcta_executed[0] != plan->item_cnt[0] || c.vcta_executed[1] != plan->item_cnt[1]) {
        printf("COUNTERS DIFFER FROM THE PLAN\n");
    }
    float streams = std::min(us[STREAMS_PD], us[STREAMS_DP]);
    float floor_us =
        std::max((float)plan->kind_flops[0] / 790e6f, (float)plan->kind_bytes[1] / 4.3e6f);
    int is_balanced = us[PREFILL] >= 0.2f * us[SERIAL] && us[DECODE] >= 0.2f * us[SERIAL];
    printf(
        "%-9s %5u %5u %3u | %7.0f %4.0fTF | %7.0f %4.2fTB | ser %7.0f str %7.0f (%.2f) fus %7.0f "
        "(%.2f)%c max %.2f | it %u+%u mg %u co %.2f ov %.2f tail %.2f %.2fGHz | fi %.2f %.2f\n",
        p->model, p->ctx, p->chunk, p->batch, us[PREFILL],
        (double)plan->kind_flops[0] / us[PREFILL] * 1e-6, us[DECODE],
        (double)plan->kind_bytes[1] / us[DECODE] * 1e-6, us[SERIAL], streams, us[SERIAL] / streams,
        us[FUSED], us[SERIAL] / us[FUSED], is_balanced ? '*' : ' ', us[FUSED] / floor_us,
        plan->item_cnt[0], plan->item_cnt[1], plan->merge_cnt,
        (double)c.colocated_ns / ((double)c.wall_ns * c.sm_used + 1),
        (double)c.overlap_ns / ((double)c.wall_ns + 1), c.tail, c.clock_ghz,
        p->fi_serial_us / us[SERIAL], p->fi_pod_us / us[FUSED]);
    if (b->way_cnt > WAY_MAIN) {
        printf("          ");
        for (uint32_t i = WAY_MAIN; i < b->way_cnt; i++) {
            printf(" %s %.0f (%.2f)", way_list[i].name, us[i], us[SERIAL] / us[i]);
        }
        printf("\n");
    }
    if (out->csv) {
        fprintf(out->csv, "%s,%u,%u,%u", p->model, p->ctx, p->chunk, p->batch);
        for (uint32_t i = 0; i < b->way_cnt; i++) fprintf(out->csv, ",%.1f", us[i]);
        fprintf(out->csv, ",%u,%u,%u,%.3f,%.3f,%.3f,%.3f,%.2f,%.2f\n", plan->item_cnt[0],
                plan->item_cnt[1], plan->merge_cnt,
                (double)c.colocated_ns / ((double)c.wall_ns * c.sm_used + 1),
                (double)c.overlap_ns / ((double)c.wall_ns + 1), c.tail, c.clock_ghz, plan->wave[0],
                plan->wave[1]);
        fflush(out->csv);
    }
    for (uint32_t i = 0; i < b->way_cnt; i++) {
        if (is_balanced) geo_add(&out->way[i], us[SERIAL] / us[i]);
    }
    geo_add(&out->fused_all, us[SERIAL] / us[FUSED]);
    if (is_balanced) {
        geo_add(&out->fused, us[SERIAL] / us[FUSED]);
        geo_add(&out->streams, us[SERIAL] / streams);
    }
    if (p->fi_serial_us > 0) {
        geo_add(&out->fi_serial, p->fi_serial_us / us[SERIAL]);
        geo_add(&out->fi_pod, p->fi_pod_us / us[FUSED]);
    }
    float choice = plan->route == TDM_ROUTE_FUSED ? us[FUSED] : us[SERIAL];
    out->worst_choice = std::max(out->worst_choice, (double)(choice / us[SERIAL]));
}

static void summary(const bench_t *b, const report_t *r) {
    printf("fused against own serial, balanced points (%u): %.4f; all (%u): %.4f\n", r->fused.cnt,
           geo_of(&r->fused), r->fused_all.cnt, geo_of(&r->fused_all));
    printf("streams against own serial, balanced points: %.4f\n", geo_of(&r->streams));
    printf("own serial against FlashInfer FA2 serial (reference, %u): %.4f\n", r->fi_serial.cnt,
           geo_of(&r->fi_serial));
    printf("own fused against FlashInfer POD (reference): %.4f\n", geo_of(&r->fi_pod));
    printf("worst choice against own serial: %.4f\n", r->worst_choice);
    for (uint32_t i = WAY_MAIN; i < b->way_cnt; i++) {
        printf("  %-14s %.4f\n", way_list[i].name, geo_of(&r->way[i]));
    }
}

static void ceilings(bench_t *b) {
    cudaEvent_t e0, e1;
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    float best = 1e9f;
    uint64_t cnt = std::min<uint64_t>(b->pool_sz, 8ull << 30) / 16;
    for (int i = 0; i < 5; i++) {
        sleep_us(IDLE_US);
        OK(cudaEventRecord(e0, b->stream));
        read_kernel<<<132 * 2, 1024, 0, b->stream>>>((const uint4 *)b->k, cnt, b->table);
        OK(cudaEventRecord(e1, b->stream));
        OK(cudaStreamSynchronize(b->stream));
        float ms;
        OK(cudaEventElapsedTime(&ms, e0, e1));
        best = std::min(best, ms);
    }
    printf("read ceiling: %.0f GB/s\n", (double)cnt * 16 / best * 1e-6);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

// Planner: median of 200 builds of 256 sequences, on this host.
static void planner_time(bench_t *b) {
    static float us[200];
    static tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    tdm_pod_config_t c = b->knob;
    c.gpu = b->gpu;
    tdm_pod_shape_t shape = {32, 8, DIM, TDM_POD_BF16, TDM_POD_BF16, PAGE, 0};
    c.shape = shape;
    tdm_pod_config_fill(&c);
    void *blob = malloc(tdm_pod_blob_max(&c));
    tdm_pod_plan_t plan;
    for (uint32_t s = 0; s < 256; s++) {
        tdm_attn_seq_t q = {s, s ? 2000 + 37 * s : 8192, s ? 1u : 1024u, s ? 1023 + s : 0};
        seq[s] = q;
    }
    for (uint32_t i = 0; i < 200; i++) {
        double begin = now_us();
        tdm_pod_plan_build(&c, seq, 1, 255, TDM_ROUTE_FUSED, blob, &plan);
        us[i] = (float)(now_us() - begin);
    }
    printf("planner: 256 sequences, %u + %u items, p50 %.1f us\n", plan.item_cnt[0],
           plan.item_cnt[1], median(us, 200));
    free(blob);
}

// NVML, found at run time: what a machine without a driver lacks.
typedef struct nvml {
    int (*energy)(void *device, unsigned long long *mj);
    int (*power)(void *device, unsigned *mw);
    void *device;
} nvml_t;

static int open_nvml(nvml_t *n) {
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) return 0;
    auto init = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    auto get = (int (*)(unsigned, void **))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    n->energy =
        (int (*)(void *, unsigned long long *))dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    n->power = (int (*)(void *, unsigned *))dlsym(lib, "nvmlDeviceGetPowerUsage");
    return init && get && n->energy && n->power && init() == 0 && get(0, &n->device) == 0;
}

static void steady(bench_t *b, const batch_t *t, const point_t *p, uint32_t i, double seconds) {
    static nvml_t n;
    if (!n.device && !open_nvml(&n)) return;
    unsigned long long mj0 = 0, mj1 = 0;
    unsigned mw, most = 0;
    uint32_t cnt = 0, set = 0;
    tdm_pod_counters_t c;
    double begin = 0, warm = now_us();
    for (double now = warm; begin == 0 || now < begin + seconds * 1e6; now = now_us()) {
        if (begin == 0 && now > warm + 0.5e6) {
            begin = now;
            cnt = 0;
            (void)n.energy(n.device, &mj0);
        }
        for (int k = 0; k < 16; k++, cnt++) launch(b, t, i, set++ % t->set_cnt);
        OK(cudaStreamSynchronize(b->stream));
        if (n.power(n.device, &mw) == 0 && mw > most) most = mw;
    }
    (void)n.energy(n.device, &mj1);
    double us = now_us() - begin;
    OK(tdm_pod_read(b->pod[i], &b->plan[i], &c));
    printf("  steady %-9s %5u %5u %3u %-6s %7.1f us, %.3f J, %.0f W mean, %.0f W most, %.2f GHz\n",
           p->model, p->ctx, p->chunk, p->batch, way_list[i].name, us / cnt,
           (double)(mj1 - mj0) * 1e-3 / cnt, (double)(mj1 - mj0) * 1e3 / us, most * 1e-3,
           c.clock_ghz);
}

static void set_knob(tdm_pod_config_t *c, const char *kv) {
    const char *eq = strchr(kv, '=');
    uint32_t v = eq ? (uint32_t)strtoul(eq + 1, nullptr, 10) : 0;
    if (!strncmp(kv, "tile=", 5))
        c->tile = v;
    else if (!strncmp(kv, "decode_split=", 13))
        c->decode_split_tok = v;
    else if (!strncmp(kv, "prefill_split=", 14))
        c->prefill_split_max = v;
    else {
        fprintf(stderr, "unknown knob %s\n", kv);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static bench_t b;
    static batch_t t;
    static report_t r;
    double steady_s = 0;
    unsigned first = 0, last = sizeof point_list / sizeof point_list[0], pool_gb = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    b.rounds = 4;
    b.way_cnt = WAY_MAIN;
    b.knob.tile = TDM_POD_TILE_AUTO;
    b.knob.part_float_max = 96u << 20;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--points") && i + 1 < argc)
            sscanf(argv[++i], "%u:%u", &first, &last);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            b.rounds = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "--pool") && i + 1 < argc)
            pool_gb = (unsigned)atoi(argv[++i]);
        else if (!strcmp(argv[i], "--set") && i + 1 < argc)
            set_knob(&b.knob, argv[++i]);
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc)
            r.csv = fopen(argv[++i], "w");
        else if (!strcmp(argv[i], "--steady") && i + 1 < argc)
            steady_s = atof(argv[++i]);
        else if (!strcmp(argv[i], "--ablate"))
            b.way_cnt = WAY_MAX;
        else
            return fprintf(stderr, "usage: see the head of the source\n"), 2;
    }
    int device_cnt = 0;
    if (cudaGetDeviceCount(&device_cnt) != cudaSuccess || device_cnt == 0) {
        printf("no CUDA device\n");
        return 77;
    }
    open_bench(&b, (uint64_t)(pool_gb ? pool_gb : 20) << 30);
    ceilings(&b);
    for (unsigned i = first; i < last && i < sizeof point_list / sizeof point_list[0]; i++) {
        const point_t *p = &point_list[i];
        open_batch(&b, p, &t);
        for (uint32_t k = 0; k < b.way_cnt; k++) open_way(&b, p, &t, k);
        if (i == first) {
            for (uint32_t k = 0; k < b.way_cnt; k++) {
                uint32_t reg, cta, local;
                OK(tdm_pod_occupancy(b.pod[k], &b.plan[k], &reg, &cta, &local));
                printf(
                    "%-14s tile %u: %u registers, %u bytes local, %u bytes shared, %u CTAs per SM\n",
                    way_list[k].name, b.plan[k].tile, reg, local, b.plan[k].smem_sz, cta);
            }
            planner_time(&b);
        }
        tdm_rng_t rng = {i};
        measure(&b, &t, &rng);
        report(&b, p, &t, &r);
        if (steady_s > 0) {
            steady(&b, &t, p, SERIAL, steady_s);
            steady(&b, &t, p, FUSED, steady_s);
        }
        for (uint32_t k = 0; k < b.way_cnt; k++) {
            tdm_pod_destroy(b.pod[k]);
            free(t.time[k]);
        }
    }
    summary(&b, &r);
    return 0;
}
