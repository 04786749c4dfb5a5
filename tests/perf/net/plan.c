/* SPDX-License-Identifier: Apache-2.0 */
/* From the request ring to a plan that holds the request: the production
   scheduler tile with an executor that answers at once and computes
   nothing.  One thread plays api, tile and executor, so a sample is thread
   CPU time from the push to the pop of the plan with its first slice,
   whatever iterations lie between.  Prints p50, p99 and p99.9 of the best
   of five interleaved rounds, idle and with 32 sequences decoding. */
#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "scheduler/tile/sched_tile.h"
#include "tests/perf/net/measure.h"

#include <string.h>

#define SLOTS     64u
#define SAMPLES   10000u
#define PROMPT_SZ 64u

typedef struct bench {
    tdm_sched_tile_t *tile;
    tdm_ring_t requests, controls, events;
    tdm_lane_t *plans, *results;
    tdm_life_t life;
    tdm_plan_t *plan[2];
    tdm_result_t *result[2];
    tdm_request_t request[SLOTS];
    int32_t prompt[PROMPT_SZ];
    uint32_t background; /* slots that decode all the time */
    int is_slice_seen;
    uint64_t iterations;
} bench_t;

static void *own(size_t sz) {
    size_t line = TDM_CACHE_LINE;
    void *mem = aligned_alloc(line, (sz + line - 1) / line * line);
    TDM_CHECK(mem != NULL);
    memset(mem, 0, sz);
    return mem;
}

static tdm_lane_t *lane(uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = NULL;
    TDM_CHECK(tdm_lane_init(own(tdm_lane_footprint(depth, elem_sz)), depth, elem_sz, &l) == TDM_OK);
    return l;
}

static void ring(tdm_ring_t *r, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = lane(depth, elem_sz);
    tdm_ring_init(r, &l, 1, NULL);
}

static void submit(bench_t *b, uint32_t slot, uint32_t output_max) {
    tdm_request_t *r = &b->request[slot];
    uint32_t generation = r->handle.generation + 1u;
    *r = (tdm_request_t){.handle = {.slot = slot, .generation = generation},
                         .arrival_ns = tdm_clock_now_ns(),
                         .deadline_ns = TDM_TIME_NEVER,
                         .prompt_cnt = PROMPT_SZ,
                         .output_max = output_max,
                         .prompt = b->prompt};
    tdm_submit_t word = {.request = r, .generation = generation};
    TDM_CHECK(tdm_ring_push(&b->requests, 0, &word));
}

/* answer is the null backend: a token for everyone who is due one. */
static void answer(const tdm_plan_t *p, tdm_result_t *r) {
    memset(r, 0, offsetof(tdm_result_t, sample));
    r->iteration = p->iteration;
    r->epoch = p->epoch;
    r->route = p->route;
    r->start_ns = tdm_clock_now_ns();
    r->end_ns = r->start_ns + 1;
    for (uint32_t i = 0; i < p->slice_cnt; i++)
        if (p->slice[i].is_last)
            r->sample[r->sample_cnt++] = (tdm_result_sample_t){
                .slot = p->slice[i].slot, .pos = p->slice[i].pos + p->slice[i].cnt, .token = 1};
    for (uint32_t i = 0; i < p->decode_cnt; i++)
        r->sample[r->sample_cnt++] = (tdm_result_sample_t){
            .slot = p->decode[i].slot, .pos = p->decode[i].pos + 1u, .token = 1};
}

static void execute(bench_t *b) {
    uint32_t slot;
    if (!tdm_lane_pop(b->plans, &slot)) return;
    b->is_slice_seen |= b->plan[slot]->slice_cnt > 0;
    b->iterations++;
    answer(b->plan[slot], b->result[slot]);
    TDM_CHECK(tdm_lane_push(b->results, &slot));
}

/* read_events takes what came and keeps the background decoding; says
   whether the request of slot ended. */
static int read_events(bench_t *b, uint32_t slot) {
    tdm_event_t e;
    int is_over = 0;
    while (tdm_ring_pop(&b->events, &e)) {
        TDM_CHECK(e.kind != TDM_EVENT_REFUSED);
        if (e.kind != TDM_EVENT_END) continue;
        is_over |= e.handle.slot == slot;
        if (e.handle.slot < b->background) submit(b, e.handle.slot, 900);
    }
    return is_over;
}

static void turn(bench_t *b) {
    (void)tdm_sched_tile_poll(b->tile, tdm_clock_now_ns());
    execute(b);
}

static void bench_open(bench_t *b, uint32_t background) {
    tdm_sched_sizes_t sizes = {.seq_max = SLOTS,
                               .waiting_max = SLOTS,
                               .page_cnt = 8192,
                               .context_max = 1024,
                               .vocab = 1000,
                               .api_cnt = 1,
                               .request_max = SLOTS,
                               .depth = 2};
    tdm_sched_live_t live;
    tdm_error_t err = {0};
    tdm_sched_live_default(&live);
    ring(&b->requests, 64, sizeof(tdm_submit_t));
    ring(&b->controls, 64, sizeof(tdm_control_t));
    ring(&b->events, 1024, sizeof(tdm_event_t));
    b->plans = lane(2, sizeof(uint32_t));
    b->results = lane(2, sizeof(uint32_t));
    tdm_sched_tile_wires_t w = {.requests = &b->requests,
                                .controls = &b->controls,
                                .events = {&b->events},
                                .life = &b->life,
                                .plans = b->plans,
                                .results = b->results,
                                .block = tdm_block_init(own(tdm_block_footprint()), "sched")};
    for (uint32_t i = 0; i < 2; i++) {
        w.plan[i] = b->plan[i] = own(sizeof(tdm_plan_t));
        w.result[i] = b->result[i] = own(sizeof(tdm_result_t));
    }
    if (tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live, &w, &b->tile,
                              &err) != TDM_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    tdm_store_release(&b->life.epoch, 1u);
    turn(b);
    TDM_CHECK(b->life.ack == 1);
    b->background = background;
    for (uint32_t i = 0; i < background; i++) submit(b, i, 100 + 20 * i);
    for (uint32_t i = 0; i < 200; i++) {
        turn(b);
        (void)read_events(b, SLOTS);
    }
}

typedef struct figure {
    double p50_us, p99_us, p999_us;
    uint64_t left_out;
} figure_t;

/* one_sample: the background's own prefills are waited out first, so that
   the slice seen is the request's. */
static int one_sample(bench_t *b, int64_t *ns, figure_t *f) {
    const uint32_t slot = SLOTS - 1;
    do {
        b->is_slice_seen = 0;
        turn(b);
        turn(b);
        (void)read_events(b, slot);
    } while (b->is_slice_seen || tdm_ring_cnt(&b->requests));
    int64_t switches = measure_switches(), from_ns = measure_cpu_ns();
    submit(b, slot, 2);
    while (!b->is_slice_seen) turn(b);
    *ns = measure_cpu_ns() - from_ns;
    int is_good = measure_switches() == switches;
    f->left_out += !is_good;
    while (!read_events(b, slot)) turn(b);
    return is_good;
}

static void round_of(bench_t *b, figure_t *f) {
    static int64_t sample[SAMPLES];
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) cnt += (uint32_t)one_sample(b, &sample[cnt], f);
    double p99_us = (double)measure_p(sample, cnt, 99) / 1e3;
    if (f->p99_us != 0 && p99_us >= f->p99_us) return;
    f->p99_us = p99_us;
    f->p50_us = (double)measure_p(sample, cnt, 50) / 1e3;
    f->p999_us = (double)measure_p(sample, cnt, 99.9) / 1e3;
}

int main(void) {
    static bench_t idle, busy;
    figure_t f[2] = {0};
    bench_open(&idle, 0);
    bench_open(&busy, 32);
    for (uint32_t r = 0; r < MEASURE_ROUNDS; r++) {
        round_of(&idle, &f[0]);
        round_of(&busy, &f[1]);
    }
    static const char *const name[] = {"idle", "32 decoding"};
    for (uint32_t i = 0; i < 2; i++)
        printf("enqueue_to_plan %-12s p50 %5.2f us  p99 %5.2f us  p99.9 %5.2f us, "
               "left out %llu of %u samples\n",
               name[i], f[i].p50_us, f[i].p99_us, f[i].p999_us, (unsigned long long)f[i].left_out,
               SAMPLES * MEASURE_ROUNDS);
    return 0;
}
