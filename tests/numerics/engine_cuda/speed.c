/* SPDX-License-Identifier: Apache-2.0 */
/* How long iterations take through the backend's door, weights drawn on the
   device: 128 sequences are prefilled with 1,024 tokens by 2,048 an
   iteration, then decode alone by 1, 32, 64 and 128; 17 behind 16,384 tokens,
   whose keys are whatever lies there; prefills of 2,048 tokens after 45 ms of
   rest, and without; prefill beside decodes.  All is done in
   each way that is asked for, one after the other on one device; a way is
   "shipped", or settings with commas between: ahead=off, deterministic=1,
   graphs=all, resident=1, kv=fp8, weights=fp8.

   Decodes and hybrids go in runs of RUN iterations from 1,024 tokens of
   context; between two runs the slots are opened anew on the pages that hold
   those.  The first iteration of a run has nothing under way in front of it
   and is left out.  Each line: what, the median of its iterations, and the
   bytes or FLOPs that the shape asks for over what the device reached just
   before (a pass over 8 GB of random words; products of 8,192 cubed, random,
   for half a second).  Then how long the device was idle in front of an
   iteration, by its own clock: from the end of the last kernel of the one
   before to the first that computes; and the host's time in start and
   finish. */
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "appliance/abi/dummy.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/model/dummy.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/peek.h"
#include "kernels/cuda/rows.h"
#include "kernels/include/backend.h"
#include "tests/numerics/engine_cuda/bench.h"
#include "tests/numerics/engine_cuda/ceiling.h"

#define SEQS    128u
#define CONTEXT 1024u
#define ROOM    1408u /* positions of a sequence */
#define DEEP    16384u
#define CHUNK   2048u
#define RUN     100u
#define SAMPLES 4096u
#define LONG_US 50.0 /* an idle time that is told apart */

/* One iteration that counts. */
typedef struct sample {
    double us;
    double idle_us;   /* of the device, before it */
    double start_us;  /* of the host */
    double finish_us; /* likewise, from where it was done */
    uint32_t graph;   /* tdm_graph_use_t */
} sample_t;

typedef struct speed {
    tdm_backend_t *b;
    tdm_plan_t *plan;      /* the one being made, of plans */
    tdm_result_t *result;  /* the one got last, of results */
    tdm_plan_t *plans;     /* [depth] */
    tdm_result_t *results; /* [depth] */
    uint64_t started, finished;
    double start_us[TDM_BACKEND_DEPTH_MAX]; /* of those under way */
    uint32_t pos[SEQS + 2];
    uint32_t is_open[2];
    uint32_t has_graphs;           /* of iterations with prefill */
    uint32_t is_counted;           /* iterations are of a run */
    uint32_t run_at;               /* those of this run that are finished */
    uint64_t end_ns;               /* the device's clock at the end of the last one */
    double attention_us, kv_bytes; /* sums over the samples */
    uint32_t cnt;
    sample_t sample[SAMPLES];
    double sorted[SAMPLES];
} speed_t;

static double read_rate = 4.3e12; /* bytes a second */
static double gemm_rate = 700e12; /* FLOPs a second, steady */

#define READ_SZ (UINT64_C(8) << 30)
#define CUBE    8192u

static float elapsed_ms(cudaEvent_t begin, cudaEvent_t end) {
    float ms = 0.0f;
    bench_cuda((int)cudaEventRecord(end, NULL), "an event");
    bench_cuda((int)cudaEventSynchronize(end), "an event");
    bench_cuda((int)cudaEventElapsedTime(&ms, begin, end), "an event");
    return ms;
}

static void measure_ceilings(void) {
    uint8_t *p = NULL;
    tdm_gemm_t *g = NULL;
    tdm_error_t err = {0};
    cudaEvent_t begin, end;
    const uint64_t cube_sz = (uint64_t)CUBE * CUBE * 2;
    const tdm_gemm_shape_t shape = {CUBE, CUBE, CUBE, TDM_GEMM_BF16, 0, 0};
    bench_cuda((int)cudaMalloc((void **)&p, READ_SZ + TDM_GEMM_WORKSPACE), "cudaMalloc");
    bench_cuda(tdm_rows_draw(1, 1e-5f, READ_SZ / 2, 0, p, NULL), "draw");
    bench_cuda((int)cudaEventCreate(&begin), "an event");
    bench_cuda((int)cudaEventCreate(&end), "an event");
    float best = INFINITY;
    for (uint32_t i = 0; i < 5; i++) {
        bench_cuda((int)cudaEventRecord(begin, NULL), "an event");
        bench_cuda(ceiling_read(p, READ_SZ, (uint32_t *)(void *)(p + READ_SZ), NULL), "read");
        best = fminf(best, elapsed_ms(begin, end));
    }
    read_rate = (double)READ_SZ / (double)best * 1e3;
    if (tdm_gemm_open(p + READ_SZ, NULL, &g, &err) != TDM_OK) exit(2);
    for (uint32_t n = 0; n < 2; n++) { /* the first warms up */
        bench_cuda((int)cudaEventRecord(begin, NULL), "an event");
        for (uint32_t i = 0; i < 350; i++)
            if (tdm_gemm_run(g, &shape, p, p + cube_sz, p + 2 * cube_sz, NULL) != 0) exit(2);
        gemm_rate = 350 * 2.0 * CUBE * CUBE * CUBE / (double)elapsed_ms(begin, end) * 1e3;
    }
    printf("  reads %.0f GB/s; products %.0f TFLOP/s, steady\n", read_rate * 1e-9,
           gemm_rate * 1e-12);
    tdm_gemm_close(g);
    bench_cuda((int)cudaFree(p), "cudaFree");
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* sort puts one member of all samples, which lies `at` bytes into them, in order. */
static const double *sort(speed_t *s, size_t at) {
    for (uint32_t i = 0; i < s->cnt; i++)
        s->sorted[i] = *(const double *)(const void *)((const uint8_t *)&s->sample[i] + at);
    qsort(s->sorted, s->cnt, sizeof *s->sorted, by_size);
    return s->sorted;
}

/* rank: the smallest sample that a share of all do not exceed. */
static double rank(const speed_t *s, const double *sorted, double share) {
    if (s->cnt == 0) return 0.0;
    double at = ceil(share * s->cnt) - 1.0;
    return sorted[at > 0.0 ? (uint32_t)at : 0];
}

static double median(speed_t *s) {
    return rank(s, sort(s, offsetof(sample_t, us)), 0.5);
}

static double us_since(int64_t ns) {
    return (double)(tdm_clock_now_ns() - ns) * 1e-3;
}

/* forget begins a new set of samples; count: what is finished from now on is a run's. */
static void forget(speed_t *s) {
    s->cnt = 0;
    s->attention_us = s->kv_bytes = 0.0;
}

static void count(speed_t *s, uint32_t is_counted) {
    s->is_counted = is_counted;
    s->run_at = 0;
}

static void note(speed_t *s, double start_us, double finish_us, double idle_us) {
    const tdm_result_t *r = s->result;
    if (!s->is_counted || s->run_at++ == 0 || s->cnt == SAMPLES) return;
    s->sample[s->cnt++] = (sample_t){.us = (double)(r->end_ns - r->start_ns) * 1e-3,
                                     .idle_us = idle_us,
                                     .start_us = start_us,
                                     .finish_us = finish_us,
                                     .graph = r->graph};
    s->attention_us += (double)r->attention_ns * 1e-3;
    s->kv_bytes += (double)r->kv_read_bytes;
}

/* finish waits for the oldest iteration under way and notes its times. */
static void finish(speed_t *s) {
    tdm_error_t err = {0};
    uint32_t at = (uint32_t)(s->finished++ % tdm_backend_info(s->b)->depth);
    s->result = &s->results[at];
    while (!tdm_backend_is_done(s->b)) tdm_cpu_relax();
    int64_t done_ns = tdm_clock_now_ns();
    if (tdm_backend_finish(s->b, &err) != TDM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
    double finish_us = us_since(done_ns);
    uint64_t start_ns, end_ns;
    tdm_cuda_times(s->b, &start_ns, &end_ns);
    note(s, s->start_us[at], finish_us, (double)(start_ns - s->end_ns) * 1e-3);
    s->end_ns = end_ns;
}

static void drain(speed_t *s) {
    while (s->finished < s->started) finish(s);
}

/* run starts the plan, and finishes one where as many are under way as may
   be: without `ahead` this one. */
static void run(speed_t *s) {
    tdm_error_t err = {0};
    uint32_t depth = tdm_backend_info(s->b)->depth;
    uint64_t at = s->started++ % depth;
    s->plan->iteration = s->started;
    int64_t start_ns = tdm_clock_now_ns();
    if (tdm_backend_start(s->b, s->plan, &s->results[at], &err) != TDM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
    s->start_us[at] = us_since(start_ns);
    if (s->started - s->finished == depth) finish(s);
    s->plan = &s->plans[s->started % depth];
    memset(s->plan, 0, offsetof(tdm_plan_t, close));
}

#define OWN_PAGES (ROOM / TDM_KV_PAGE_TOKENS)
#define PAGES     ((SEQS + 2) * OWN_PAGES)

/* open_slot: what is filled beyond a slot's own pages lies in everybody's. */
static void open_slot(speed_t *s, uint32_t slot, uint32_t prompt_cnt, uint32_t filled_cnt) {
    tdm_plan_t *p = s->plan;
    uint32_t others = filled_cnt > ROOM ? filled_cnt / TDM_KV_PAGE_TOKENS : 0;
    uint32_t pages = others + OWN_PAGES;
    s->pos[slot] = filled_cnt;
    p->open[p->open_cnt++] =
        (tdm_plan_open_t){.slot = slot,
                          .prompt_cnt = prompt_cnt,
                          .filled_cnt = filled_cnt,
                          .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f}};
    p->grant[p->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = p->page_cnt, .page_cnt = pages};
    for (uint32_t i = 0; i < others; i++) p->page[p->page_cnt++] = (slot * DEEP + i) % PAGES;
    for (uint32_t i = 0; i < OWN_PAGES; i++) p->page[p->page_cnt++] = i * (SEQS + 2) + slot;
}

/* reopen begins a slot's prompt anew, one that does not end. */
static void reopen(speed_t *s, uint32_t slot) {
    if (s->is_open[slot - SEQS]) s->plan->close[s->plan->close_cnt++] = slot;
    s->is_open[slot - SEQS] = 1;
    open_slot(s, slot, CHUNK / 2 + 1, 0);
}

static void add_slice(speed_t *s, uint32_t slot, uint32_t cnt, int is_last, tdm_rng_t *rng) {
    tdm_plan_t *p = s->plan;
    p->slice[p->slice_cnt++] = (tdm_plan_slice_t){.slot = slot,
                                                  .pos = s->pos[slot],
                                                  .cnt = cnt,
                                                  .token_off = p->token_cnt,
                                                  .is_last = (uint32_t)is_last};
    for (uint32_t i = 0; i < cnt; i++) p->token[p->token_cnt++] = (int32_t)tdm_rng_below(rng, 8192);
    s->pos[slot] += cnt;
}

static void add_decodes(speed_t *s, uint32_t cnt) {
    tdm_plan_t *p = s->plan;
    for (uint32_t i = 0; i < cnt; i++)
        p->decode[p->decode_cnt++] = (tdm_plan_decode_t){.slot = i, .pos = s->pos[i]++};
}

static void prefill_all(speed_t *s, tdm_rng_t *rng) {
    forget(s);
    count(s, 1);
    for (uint32_t i = 0; i < SEQS; i += CHUNK / CONTEXT) {
        s->plan->route = TDM_ROUTE_PREFILL_ONLY;
        for (uint32_t k = i; k < i + CHUNK / CONTEXT; k++) {
            open_slot(s, k, CONTEXT, 0);
            add_slice(s, k, CONTEXT, 1, rng);
        }
        run(s);
        drain(s);
    }
}

/* rewind_all lets the first slots begin anew behind `depth` tokens, of 1,024
   the pages that they had; what follows is a run. */
static void rewind_all(speed_t *s, uint32_t batch, uint32_t depth, tdm_rng_t *rng) {
    drain(s);
    count(s, 0);
    for (uint32_t i = 0; i < batch; i += TDM_PLAN_SLICE_MAX) {
        s->plan->route = TDM_ROUTE_PREFILL_ONLY;
        for (uint32_t k = i; k < i + TDM_PLAN_SLICE_MAX && k < batch; k++) {
            s->plan->close[s->plan->close_cnt++] = k;
            open_slot(s, k, depth + 1, depth);
            add_slice(s, k, 1, 1, rng);
        }
        run(s);
        drain(s);
    }
    count(s, 1);
}

/* tell_idle: the device's time between iterations, and the host's in them. */
static void tell_idle(speed_t *s) {
    static const char *const how[TDM_GRAPH_USE_CNT] = {"timed by stages, without its graph",
                                                       "replayed", "that missed its graph"};
    uint32_t use[TDM_GRAPH_USE_CNT] = {0}, late[TDM_GRAPH_USE_CNT] = {0}, late_cnt = 0;
    for (uint32_t i = 0; i < s->cnt; i++) {
        int is_late = s->sample[i].idle_us > LONG_US;
        use[s->sample[i].graph]++;
        late[s->sample[i].graph] += (uint32_t)is_late;
        late_cnt += (uint32_t)is_late;
    }
    const double *v = sort(s, offsetof(sample_t, idle_us));
    printf("    device idle before: p50 %.1f p99 %.1f most %.1f us of %u; %u over %.0f us",
           rank(s, v, 0.5), rank(s, v, 0.99), rank(s, v, 1.0), s->cnt, late_cnt, LONG_US);
    for (uint32_t k = 0; k < TDM_GRAPH_USE_CNT; k++)
        if (use[k]) printf("; %u of %u %s", late[k], use[k], how[k]);
    v = sort(s, offsetof(sample_t, start_us));
    printf("\n    host: start p50 %.1f p99 %.1f us", rank(s, v, 0.5), rank(s, v, 0.99));
    v = sort(s, offsetof(sample_t, finish_us));
    printf(", finish p50 %.1f p99 %.1f us\n", rank(s, v, 0.5), rank(s, v, 0.99));
}

static void decode(speed_t *s, uint32_t batch, uint32_t depth, uint32_t iterations,
                   tdm_rng_t *rng) {
    const tdm_backend_info_t *info = tdm_backend_info(s->b);
    double wall_us = 0.0;
    forget(s);
    for (uint32_t n = 0; n < iterations; n += RUN) {
        rewind_all(s, batch, depth, rng);
        int64_t start_ns = tdm_clock_now_ns();
        for (uint32_t i = 0; i < RUN; i++) {
            s->plan->route = TDM_ROUTE_DECODE_ONLY;
            add_decodes(s, batch);
            run(s);
        }
        drain(s);
        wall_us += us_since(start_ns);
    }
    double bytes = (double)info->weight_bytes + s->kv_bytes / s->cnt;
    double us = median(s);
    printf("  decode %u up to %u: %.1f us (wall %.1f, attention %.1f); %.3f GB, %.0f GB/s; over "
           "bytes / read rate: %.3f\n",
           batch, s->pos[0], us, wall_us / iterations, s->attention_us / s->cnt, bytes * 1e-9,
           bytes / us * 1e-3, us * 1e-6 / (bytes / read_rate));
    tell_idle(s);
}

static void prefill(speed_t *s, uint32_t rounds, unsigned rest_us, tdm_rng_t *rng) {
    const tdm_backend_info_t *info = tdm_backend_info(s->b);
    forget(s);
    count(s, 1);
    for (uint32_t n = 0; n <= rounds; n++) { /* the first is left out */
        (void)usleep(rest_us);
        for (uint32_t k = 0; k < 2; k++) {
            reopen(s, SEQS + k); /* nothing samples */
            add_slice(s, SEQS + k, CHUNK / 2, 0, rng);
        }
        s->plan->route = TDM_ROUTE_PREFILL_ONLY;
        run(s);
        drain(s);
    }
    double flops = (double)info->row_flops * CHUNK + (double)s->result->attention_flops;
    double us = median(s);
    printf(
        "  prefill %u tokens after %u ms: %.1f us; %.1f TFLOP/s; over FLOPs / 790e12: %.3f, / steady rate: %.3f\n",
        CHUNK, rest_us / 1000, us, flops / us * 1e-6, us * 1e-6 / (flops / 790e12),
        us * 1e-6 / (flops / gemm_rate));
}

/* hybrids is one run: chunk tokens of two prompts in turn beside decodes. */
static void hybrids(speed_t *s, uint32_t chunk, uint32_t batch, tdm_rng_t *rng) {
    rewind_all(s, batch, CONTEXT, rng);
    for (uint32_t n = 0; n < RUN / 2; n++) {
        uint32_t slot = SEQS + n % 2; /* the other one's may be under way */
        reopen(s, slot);
        add_slice(s, slot, chunk, 0, rng);
        add_decodes(s, batch);
        s->plan->route = TDM_ROUTE_FUSED;
        run(s);
    }
    drain(s);
}

static void hybrid(speed_t *s, uint32_t chunk, uint32_t batch, uint32_t rounds, tdm_rng_t *rng) {
    /* What misses twice is captured at rest. */
    for (uint32_t n = 0; n < (s->has_graphs ? 2 : 0); n++) {
        hybrids(s, chunk, batch, rng);
        while (tdm_backend_idle(s->b)) {
        }
    }
    forget(s);
    for (uint32_t n = 0; n < rounds; n++) hybrids(s, chunk, batch, rng);
    printf("  %u tokens beside %u decodes: %.1f us, the last of route %u\n", chunk, batch,
           median(s), s->result->route);
    tell_idle(s);
}

/* read_way fills in what a way changes; 0: no such way. */
static int read_way(const char *way, tdm_backend_config_t *config, tdm_weights_t *w) {
    static const char *const word[] = {"shipped",    "ahead=off", "deterministic=1", "graphs=all",
                                       "resident=1", "kv=fp8",    "weights=fp8"};
    while (*way) {
        size_t sz = strcspn(way, ","), i = 0;
        while (i < TDM_COUNT_OF(word) && (strlen(word[i]) != sz || strncmp(word[i], way, sz) != 0))
            i++;
        switch (i) {
        case 0: break;
        case 1: config->is_ahead = 0; break;
        case 2: config->is_deterministic = 1; break;
        case 3: /* as exec.graph_max and exec.graph_mib have it */
            config->graph_max = 128;
            config->graph_sz = UINT64_C(256) << 20;
            break;
        case 4: config->is_resident = 1; break;
        case 5: config->kv_dtype = TDM_KV_E4M3; break;
        case 6: w->dtype = TDM_WEIGHT_FP8; break;
        default: return 0;
        }
        way += sz;
        if (*way) way++;
    }
    return 1;
}

static int start(speed_t *s, const char *name, const char *way) {
    static tdm_weights_t w;
    tdm_error_t err = {0};
    tdm_backend_config_t config = {.kv_page_cnt = PAGES,
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = SEQS + 2,
                                   .token_max = CHUNK,
                                   .context_max = DEEP + ROOM,
                                   .dummy_seed = TDM_DUMMY_SEED,
                                   .is_ahead = 1};
    memset(s, 0, sizeof *s);
    memset(&w, 0, sizeof w);
    if (!read_way(way, &config, &w)) {
        printf("no such way: %s\n", way);
        return 0;
    }
    if (tdm_dummy_shape(name, &w.shape, &err) != TDM_OK ||
        tdm_backend_cuda_create(&w, &config, NULL, NULL, NULL, &s->b, &err) != TDM_OK) {
        printf("%s\n", err.text);
        return 0;
    }
    s->has_graphs = config.graph_max > 0;
    s->plan = s->plans = bench_alloc(TDM_BACKEND_DEPTH_MAX * sizeof *s->plans);
    s->result = s->results = bench_alloc(TDM_BACKEND_DEPTH_MAX * sizeof *s->results);
    return 1;
}

static void end(speed_t *s) {
    tdm_backend_destroy(s->b);
    free(s->plans);
    free(s->results);
}

static int measure(const char *name, const char *way) {
    static speed_t s;
    tdm_rng_t rng = {7};
    if (!start(&s, name, way)) return 2;
    printf("%s, %s\n", name, way);
    prefill_all(&s, &rng);
    printf("  2 x 1,024 tokens with heads, steady: %.1f us\n", median(&s));
    decode(&s, 1, CONTEXT, 10 * RUN, &rng);
    decode(&s, 32, CONTEXT, 10 * RUN, &rng);
    decode(&s, SEQS / 2, CONTEXT, 3 * RUN, &rng);
    decode(&s, SEQS, CONTEXT, 5 * RUN, &rng);
    decode(&s, 17, DEEP, RUN, &rng);
    prefill(&s, 9, 45000, &rng);
    prefill(&s, 20, 0, &rng);
    hybrid(&s, CHUNK / 8, 32, 2, &rng);
    hybrid(&s, CHUNK / 2, SEQS, 2, &rng);
    decode(&s, 1, CONTEXT, RUN, &rng);
    end(&s);
    return 0;
}

int part_speed(const char *shape, int way_cnt, char *const *way) {
    int rc = 0;
    measure_ceilings();
    if (way_cnt <= 0) return measure(shape, "shipped");
    for (int i = 0; i < way_cnt && rc == 0; i++) rc = measure(shape, way[i]);
    return rc;
}

/* For a profiler that is told to begin when asked (ncu --profile-from-start
   off): one decode iteration of a batch at 1,024 tokens. */
int part_profile(const char *name, uint32_t batch) {
    static speed_t s;
    tdm_rng_t rng = {7};
    if (!start(&s, name, "ahead=off") || batch == 0 || batch > SEQS) return 2;
    prefill_all(&s, &rng);
    rewind_all(&s, batch, CONTEXT, &rng);
    for (uint32_t n = 0; n < 4; n++) {
        if (n == 3) bench_cuda((int)cudaProfilerStart(), "the profiler");
        s.plan->route = TDM_ROUTE_DECODE_ONLY;
        add_decodes(&s, batch);
        run(&s);
    }
    bench_cuda((int)cudaProfilerStop(), "the profiler");
    end(&s);
    return 0;
}
