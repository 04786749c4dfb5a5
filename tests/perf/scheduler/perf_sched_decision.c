/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: print what a decision costs with 256 sequences decoding, 4,096
   waiting and a table of three variants, warm and with cold caches: thread
   CPU time of tdm_sched_plan and of the result that follows, p50, p99 and
   p99.9, the best of ROUNDS by p99.9; and what reading the clock twice
   costs alone, which is inside the others.  A sample during which the kernel
   took the core away is counted and left out.  Prints, never judges: a
   machine shared with others has no right answer.  What it checks is that
   the load is the one claimed.  --huge: memory in 2 MiB pages. */

#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/profile/table.h"
#include "scheduler/check.h"
#include "scheduler/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define RUNNING 256u
#define WAITING 4096u
#define ROUNDS  5u
#define SAMPLES 1500u
#define WARMUP  300u
#define FLUSH   (32u << 20) /* bytes walked to push the scheduler out of the caches */

static tdm_sched_t *sched;
static tdm_plan_t plan;
static tdm_result_t result;
static tdm_request_t request[RUNNING + WAITING];
static int32_t prompt[400];
static uint8_t *flush;

static int64_t cpu_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * TDM_NS_PER_S + ts.tv_nsec;
}

static int64_t virtual_ns = TDM_NS_PER_S;

static void submit(uint32_t slot) {
    tdm_request_t *r = &request[slot];
    uint32_t generation = r->handle.generation + 1u;
    *r = (tdm_request_t){.handle = {.slot = slot, .generation = generation},
                         .slo_class = (uint16_t)(slot % TDM_SLO_CLASS_MAX),
                         .arrival_ns = virtual_ns,
                         .deadline_ns = TDM_TIME_NEVER,
                         .prompt_cnt = 20u + slot % 380u,
                         .output_max = 1500u + slot % 500u,
                         .prompt = prompt};
    tdm_submit_t word = {.request = r, .generation = generation};
    tdm_sched_submit(sched, virtual_ns, &word);
}

static void answer(void) {
    memset(&result, 0, offsetof(tdm_result_t, sample));
    result.iteration = plan.iteration;
    result.epoch = plan.epoch;
    result.route = plan.route;
    result.start_ns = virtual_ns;
    virtual_ns += plan.predicted_ns;
    result.end_ns = virtual_ns;
    for (uint32_t i = 0; i < plan.slice_cnt; i++)
        if (plan.slice[i].is_last)
            result.sample[result.sample_cnt++] = (tdm_result_sample_t){
                .slot = plan.slice[i].slot, .pos = plan.slice[i].pos + plan.slice[i].cnt};
    for (uint32_t i = 0; i < plan.decode_cnt; i++)
        result.sample[result.sample_cnt++] =
            (tdm_result_sample_t){.slot = plan.decode[i].slot, .pos = plan.decode[i].pos + 1u};
}

/* read_events empties the outbox and asks again for each that ended. */
static void read_events(void) {
    const tdm_event_t *e;
    while ((e = tdm_sched_event_peek(sched, 0)) != NULL) {
        uint32_t slot = e->handle.slot, is_end = e->kind >= TDM_EVENT_END;
        tdm_sched_event_drop(sched, 0);
        if (is_end) submit(slot);
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static long switches(void) {
    struct rusage u;
    TDM_CHECK(getrusage(RUSAGE_THREAD, &u) == 0);
    return u.ru_nivcsw;
}

/* One kind of call: samples of a round, and the best round so far. */
typedef struct series {
    const char *name;
    int64_t ns[SAMPLES];
    uint32_t cnt, left_out;
    int64_t best[3]; /* p50, p99, p99.9 */
} series_t;

static void add(series_t *x, int64_t ns, int is_whole) {
    if (is_whole)
        x->ns[x->cnt++] = ns;
    else
        x->left_out++;
}

static void end_round(series_t *x) {
    if (x->cnt > 0) {
        qsort(x->ns, x->cnt, sizeof *x->ns, ascending);
        int64_t now[3] = {x->ns[x->cnt / 2], x->ns[x->cnt * 99u / 100u],
                          x->ns[x->cnt * 999u / 1000u]};
        if (x->best[2] == 0 || now[2] < x->best[2]) memcpy(x->best, now, sizeof now);
    }
    x->cnt = 0;
}

static void print(const char *what, const series_t *x) {
    printf("%s, %-12s p50 %6.1f us  p99 %6.1f us  p99.9 %6.1f us  (%u samples left out)\n", x->name,
           what, (double)x->best[0] / 1e3, (double)x->best[1] / 1e3, (double)x->best[2] / 1e3,
           x->left_out);
}

static void measure(const char *what, int is_cold) {
    static series_t nothing, planned, resulted;
    nothing = (series_t){.name = "clock"};
    planned = (series_t){.name = "plan"};
    resulted = (series_t){.name = "result"};
    for (uint32_t r = 0; r < ROUNDS; r++) {
        for (uint32_t i = 0; i < SAMPLES; i++) {
            if (is_cold)
                for (uint32_t k = 0; k < FLUSH; k += 64) flush[k]++;
            long before = switches();
            int64_t y = cpu_ns();
            int64_t z = cpu_ns();
            add(&nothing, z - y, switches() == before);
            if (is_cold)
                for (uint32_t k = 0; k < FLUSH; k += 64) flush[k]++;
            before = switches();
            int64_t a = cpu_ns();
            TDM_CHECK(tdm_sched_plan(sched, virtual_ns, &plan) == 1);
            int64_t b = cpu_ns();
            int is_whole = switches() == before;
            answer();
            if (is_cold)
                for (uint32_t k = 0; k < FLUSH; k += 64) flush[k]++;
            before = switches();
            int64_t c = cpu_ns();
            tdm_sched_result(sched, virtual_ns, &result);
            int64_t d = cpu_ns();
            add(&planned, b - a, is_whole);
            add(&resulted, d - c, switches() == before);
            read_events();
        }
        end_round(&nothing);
        end_round(&planned);
        end_round(&resulted);
    }
    print(what, &nothing);
    print(what, &planned);
    print(what, &resulted);
}

int main(int argc, char **argv) {
    int is_huge = argc > 1 && !strcmp(argv[1], "--huge");
    tdm_sched_sizes_t sizes = {.seq_max = RUNNING,
                               .waiting_max = WAITING,
                               .page_cnt = 16384,
                               .context_max = 4096,
                               .vocab = 1000,
                               .api_cnt = 1,
                               .request_max = RUNNING + WAITING,
                               .depth = 1};
    tdm_sched_live_t live;
    tdm_sched_live_default(&live);
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        live.profile.row[r] =
            (tdm_profile_row_t){.fixed_ns = 5e6, .token_ns = 4e4, .pair_ns = 2.0, .kv_ns = 20.0};
    tdm_profile_table_t *table = malloc(sizeof *table);
    TDM_CHECK(table != NULL);
    tdm_profile_from_rows(&live.profile, table);
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++)
        table->box[v] = (tdm_profile_box_t){4096, 131072, 256, 4 << 20};
    live.profile.table = table;
    live.profile.is_measured = 1;
    size_t huge = 2u << 20, sz = (tdm_sched_footprint(&sizes) + huge - 1u) / huge * huge;
    void *mem = aligned_alloc(huge, sz);
    if (is_huge) (void)madvise(mem, sz, MADV_HUGEPAGE);
    flush = calloc(1, FLUSH);
    TDM_CHECK(tdm_sched_init(mem, &sizes, &live, &sched, NULL) == TDM_OK);
    tdm_sched_executor_up(sched, virtual_ns, 1);
    for (uint32_t i = 0; i < RUNNING + WAITING; i++) submit(i);
    for (uint32_t i = 0; i < WARMUP; i++) {
        TDM_CHECK(tdm_sched_plan(sched, virtual_ns, &plan) == 1);
        answer();
        tdm_sched_result(sched, virtual_ns, &result);
        read_events();
        for (uint32_t k = 0; k < RUNNING + WAITING; k++)
            if (tdm_sched_stats(sched)->waiting_cnt < WAITING) submit(k);
    }
    const tdm_sched_stats_t *s = tdm_sched_stats(sched);
    TDM_CHECK(s->running_cnt > RUNNING - 16u && s->waiting_cnt > WAITING - 300u);
    printf("%u running, %u waiting\n", s->running_cnt, s->waiting_cnt);
    measure("warm", 0);
    measure("cold caches", 1);
    TDM_CHECK(tdm_sched_check(sched) == NULL);
    free(mem);
    free(flush);
    free(table);
    return 0;
}
