/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: print what a decision costs with 256 sequences decoding, 4,096
   waiting and a table of three variants, warm and with cold caches: thread
   CPU time of tdm_sched_plan and of the result that follows, p50, p99 and
   p99.9, the best of ROUNDS by p99.9; and what reading the clock twice
   costs alone, which is inside the others.  A sample during which the kernel
   took the core away is counted and left out.  An interrupt is paid for by
   the thread it falls on (a timer's handler with cold caches: some 50 us),
   so the same is printed a second time without the samples that had one.
   Prints, never judges: a machine shared with others has no right answer.  What it checks is that
   the load is the one claimed.  --huge: memory in 2 MiB pages. */

#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "appliance/profile/table.h"
#include "scheduler/check.h"
#include "scheduler/step.h"

#include <sched.h>
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

static int core; /* the one this process stays on */

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

/* interrupts counts what this process's one core has served. */
static uint64_t interrupts(void) {
    static char text[65536];
    FILE *f = fopen("/proc/interrupts", "r");
    TDM_CHECK(f != NULL);
    size_t sz = fread(text, 1, sizeof text - 1u, f);
    (void)fclose(f);
    text[sz] = 0;
    uint64_t sum = 0;
    for (char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        char *at = strchr(line, ':');
        for (int i = 0; at && i <= core; i++) {
            uint64_t n = strtoull(at + 1, &at, 10);
            if (i == core) sum += n;
            at--;
        }
    }
    return sum;
}

/* What may have happened to a sample meanwhile. */
typedef struct mark {
    long switches;
    uint64_t interrupts;
} mark_t;

static mark_t mark(void) {
    return (mark_t){.interrupts = interrupts(), .switches = switches()};
}

/* One kind of call: samples of a round, and the best round so far. */
typedef struct series {
    int64_t ns[SAMPLES];
    uint32_t cnt, left_out;
    int64_t best[3]; /* p50, p99, p99.9 */
} series_t;

/* Twice: all that kept the core, and of them those without an interrupt. */
typedef struct call {
    const char *name;
    series_t kept, clean;
} call_t;

static void add(series_t *x, int64_t ns, int is_whole) {
    if (is_whole)
        x->ns[x->cnt++] = ns;
    else
        x->left_out++;
}

static void note(call_t *c, int64_t ns, mark_t before, mark_t after) {
    int is_whole = before.switches == after.switches;
    add(&c->kept, ns, is_whole);
    add(&c->clean, ns, is_whole && before.interrupts == after.interrupts);
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

static void print(const char *what, const char *name, const char *which, const series_t *x) {
    printf("%s, %-12s p50 %6.1f us  p99 %6.1f us  p99.9 %6.1f us  (%u samples left out%s)\n", name,
           what, (double)x->best[0] / 1e3, (double)x->best[1] / 1e3, (double)x->best[2] / 1e3,
           x->left_out, which);
}

static void cool(int is_cold) {
    if (is_cold)
        for (uint32_t k = 0; k < FLUSH; k += 64) flush[k]++;
}

static void measure(const char *what, int is_cold) {
    static call_t call[3];
    static const char *const names[3] = {"clock", "plan", "result"};
    memset(call, 0, sizeof call);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        for (uint32_t i = 0; i < SAMPLES; i++) {
            cool(is_cold);
            mark_t before = mark();
            int64_t begin = cpu_ns();
            int64_t end = cpu_ns();
            note(&call[0], end - begin, before, mark());

            cool(is_cold);
            before = mark();
            begin = cpu_ns();
            TDM_CHECK(tdm_sched_plan(sched, virtual_ns, &plan) == 1);
            end = cpu_ns();
            note(&call[1], end - begin, before, mark());
            answer();

            cool(is_cold);
            before = mark();
            begin = cpu_ns();
            tdm_sched_result(sched, virtual_ns, &result);
            end = cpu_ns();
            note(&call[2], end - begin, before, mark());
            read_events();
        }
        for (uint32_t k = 0; k < 3; k++) {
            end_round(&call[k].kept);
            end_round(&call[k].clean);
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        print(what, names[k], "", &call[k].kept);
        print(what, names[k], ", interrupts too", &call[k].clean);
    }
}

/* stay keeps the process on the core it runs on. */
static void stay(void) {
    cpu_set_t set;
    core = sched_getcpu();
    TDM_CHECK(core >= 0);
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    TDM_CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

int main(int argc, char **argv) {
    int is_huge = argc > 1 && !strcmp(argv[1], "--huge");
    stay();
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
    live.short_max = 16; /* prompts wait in six sizes */
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
