/* SPDX-License-Identifier: Apache-2.0 */
/* How long iterations take through the backend's door, weights drawn on the
   device (`ahead`: decodes are begun while those before them run): 128
   sequences are prefilled with 1,024 tokens by 2,048 an
   iteration, then decode alone by 1, 32 and 128; prefills of 2,048 tokens
   after 45 ms of rest, and without.  Each line: what, the median of its
   iterations, and the bytes or FLOPs that the shape asks for over what the
   device reached just before (a pass over 8 GB of random words; products of
   8,192 cubed, random, for half a second). */
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "appliance/abi/dummy.h"
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
#define CHUNK   2048u
#define SAMPLES 4096u

typedef struct speed {
    tdm_backend_t *b;
    tdm_plan_t *plan;      /* the one being made, of plans */
    tdm_result_t *result;  /* the one got last, of results */
    tdm_plan_t *plans;     /* [depth] */
    tdm_result_t *results; /* [depth] */
    uint64_t started, finished;
    uint32_t pos[SEQS + 2];
    uint32_t is_open[2];
    double us[SAMPLES];
    uint32_t cnt;
    double idle_us[SAMPLES]; /* of the device, before each iteration but the first */
    uint64_t end_ns;         /* the device's clock at the end of the last one */
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

static double median(speed_t *s) {
    qsort(s->us, s->cnt, sizeof *s->us, by_size);
    return s->cnt ? s->us[s->cnt / 2] : 0.0;
}

/* finish waits for the oldest iteration under way and notes its times. */
static void finish(speed_t *s) {
    tdm_error_t err = {0};
    s->result = &s->results[s->finished++ % tdm_backend_info(s->b)->depth];
    if (tdm_backend_finish(s->b, &err) != TDM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
    uint64_t start_ns, end_ns;
    tdm_cuda_times(s->b, &start_ns, &end_ns);
    if (s->cnt < SAMPLES) {
        s->idle_us[s->cnt] = (double)(start_ns - s->end_ns) * 1e-3;
        s->us[s->cnt++] = (double)(s->result->end_ns - s->result->start_ns) * 1e-3;
    }
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
    if (tdm_backend_start(s->b, s->plan, &s->results[at], &err) != TDM_OK) {
        printf("%s\n", err.text);
        exit(2);
    }
    if (s->started - s->finished == depth) finish(s);
    s->plan = &s->plans[s->started % depth];
    memset(s->plan, 0, offsetof(tdm_plan_t, close));
}

static void open_slot(speed_t *s, uint32_t slot, uint32_t prompt_cnt) {
    tdm_plan_t *p = s->plan;
    uint32_t pages = ROOM / TDM_KV_PAGE_TOKENS;
    p->open[p->open_cnt++] =
        (tdm_plan_open_t){.slot = slot,
                          .prompt_cnt = prompt_cnt,
                          .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f}};
    p->grant[p->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = p->page_cnt, .page_cnt = pages};
    for (uint32_t i = 0; i < pages; i++) p->page[p->page_cnt++] = i * (SEQS + 2) + slot;
}

/* reopen begins a slot's prompt anew, one that does not end. */
static void reopen(speed_t *s, uint32_t slot) {
    if (s->is_open[slot - SEQS]) s->plan->close[s->plan->close_cnt++] = slot;
    s->is_open[slot - SEQS] = 1;
    open_slot(s, slot, CHUNK / 2 + 1);
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
    for (uint32_t i = 0; i < SEQS; i += CHUNK / CONTEXT) {
        s->plan->route = TDM_ROUTE_PREFILL_ONLY;
        for (uint32_t k = i; k < i + CHUNK / CONTEXT; k++) {
            open_slot(s, k, CONTEXT);
            add_slice(s, k, CONTEXT, 1, rng);
        }
        run(s);
        drain(s);
    }
}

static void decode(speed_t *s, uint32_t batch, uint32_t iterations) {
    const tdm_backend_info_t *info = tdm_backend_info(s->b);
    double attention_us = 0.0, kv_bytes = 0.0;
    s->cnt = 0;
    int64_t start_ns = tdm_clock_now_ns();
    for (uint32_t n = 0; n < iterations; n++) {
        s->plan->route = TDM_ROUTE_DECODE_ONLY;
        add_decodes(s, batch);
        run(s);
        if (n + 1 == iterations) drain(s);
        attention_us += (double)s->result->attention_ns * 1e-3 / iterations;
        kv_bytes += (double)s->result->kv_read_bytes / iterations;
    }
    double wall_us = (double)(tdm_clock_now_ns() - start_ns) * 1e-3 / iterations;
    double bytes = (double)info->weight_bytes + kv_bytes;
    double us = median(s);
    qsort(s->idle_us, s->cnt, sizeof *s->idle_us, by_size);
    printf(
        "  decode %u up to %u: %.1f us (wall %.1f, attention %.1f, device idle before p50 %.1f p99 "
        "%.1f); %.3f GB, %.0f GB/s; over bytes / read rate: %.3f\n",
        batch, s->pos[0], us, wall_us, attention_us, s->idle_us[s->cnt / 2],
        s->idle_us[s->cnt * 99 / 100], bytes * 1e-9, bytes / us * 1e-3,
        us * 1e-6 / (bytes / read_rate));
}

static void prefill(speed_t *s, uint32_t rounds, unsigned rest_us, tdm_rng_t *rng) {
    const tdm_backend_info_t *info = tdm_backend_info(s->b);
    s->cnt = 0;
    for (uint32_t n = 0; n < rounds; n++) {
        (void)usleep(rest_us);
        for (uint32_t k = 0; k < 2; k++) {
            s->pos[SEQS + k] = 0;
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

/* Half of the prefill's tokens beside all decodes. */
static void hybrid(speed_t *s, uint32_t rounds, tdm_rng_t *rng) {
    uint64_t fused = 0;
    s->cnt = 0;
    for (uint32_t n = 0; n < rounds; n++) {
        s->pos[SEQS] = 0;
        reopen(s, SEQS);
        add_slice(s, SEQS, CHUNK / 2, 0, rng);
        add_decodes(s, SEQS);
        s->plan->route = TDM_ROUTE_FUSED;
        run(s);
        drain(s);
        fused += s->result->route == TDM_ROUTE_FUSED;
    }
    printf("  %u tokens beside %u decodes: %.1f us; %llu of %u fused\n", CHUNK / 2, SEQS, median(s),
           (unsigned long long)fused, rounds);
}

static int start(speed_t *s, const char *name, const char *how) {
    static tdm_weights_t w;
    tdm_error_t err = {0};
    tdm_backend_config_t config = {.kv_page_cnt = (SEQS + 2) * (ROOM / TDM_KV_PAGE_TOKENS),
                                   .kv_dtype = TDM_KV_BF16,
                                   .seq_max = SEQS + 2,
                                   .token_max = CHUNK,
                                   .context_max = ROOM,
                                   .dummy_seed = TDM_DUMMY_SEED,
                                   .is_deterministic = strcmp(how, "fixed") == 0,
                                   .is_ahead = strcmp(how, "ahead") == 0};
    if (tdm_dummy_shape(name, &w.shape, &err) != TDM_OK ||
        tdm_backend_cuda_create(&w, &config, NULL, NULL, NULL, &s->b, &err) != TDM_OK) {
        printf("%s\n", err.text);
        return 0;
    }
    s->plan = s->plans = bench_alloc(TDM_BACKEND_DEPTH_MAX * sizeof *s->plans);
    s->result = s->results = bench_alloc(TDM_BACKEND_DEPTH_MAX * sizeof *s->results);
    return 1;
}

int part_speed(const char *name, const char *how) {
    static speed_t s;
    tdm_rng_t rng = {7};
    measure_ceilings();
    if (!start(&s, name, how)) return 2;
    prefill_all(&s, &rng);
    printf("  %s: 2 x 1,024 tokens with heads, steady: %.1f us\n", name, median(&s));
    decode(&s, 1, 100);
    decode(&s, 32, 100);
    decode(&s, SEQS, 100);
    prefill(&s, 9, 45000, &rng);
    prefill(&s, 20, 0, &rng);
    hybrid(&s, 20, &rng);
    decode(&s, 1, 30);
    tdm_backend_destroy(s.b);
    return 0;
}

/* For a profiler that is told to begin when asked (ncu --profile-from-start
   off): one decode iteration of a batch at 1,024 tokens. */
int part_profile(const char *name, uint32_t batch) {
    static speed_t s;
    tdm_rng_t rng = {7};
    if (!start(&s, name, "") || batch == 0 || batch > SEQS) return 2;
    prefill_all(&s, &rng);
    decode(&s, batch, 3);
    bench_cuda((int)cudaProfilerStart(), "the profiler");
    decode(&s, batch, 1);
    bench_cuda((int)cudaProfilerStop(), "the profiler");
    tdm_backend_destroy(s.b);
    return 0;
}
