/* SPDX-License-Identifier: Apache-2.0 */
/* What stands between two iterations: the device's idle time and the whole
   period, with exec.ahead and without.

     perf_exec_ahead MODEL [--batch N] [--sms N] [--iterations N] [--rounds N]

   MODEL is dummy:<name> or a GGUF file, on the CPU backend.  The executor's
   own loop runs on a thread over a real channel; this program stands where
   the scheduler does and keeps two plans there, decodes of N sequences.
   Both ways run in turn, N rounds of each, so that both meet the same
   machine.  One line of JSON: idle before an iteration at p50 and p99, the
   period at p50, and the ratios ahead / not ahead. */
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/exec/worker.h"
#include "appliance/model/model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT     16u
#define SAMPLE_MAX (1u << 20)

enum { BATCH, SMS, ITERATIONS, ROUNDS, OPTION_CNT };

static uint32_t option[OPTION_CNT] = {16, 1, 400, 5};
static const tdm_weights_t *weights;

/* Of one way, over all rounds; microseconds. */
typedef struct way {
    double *idle, *period;
    uint32_t cnt;
} way_t;

typedef struct life {
    tdm_channel_t channel;
    tdm_backend_t *backend;
    pthread_t thread;
    uint32_t stop;
    uint64_t iteration;
} life_t;

static void must(tdm_status_t st, const tdm_error_t *err) {
    if (st == TDM_OK) return;
    (void)fprintf(stderr, "perf_exec_ahead: %s: %s\n", tdm_status_name(st), err->text);
    exit(1);
}

static void *work(void *arg) {
    life_t *l = (life_t *)arg;
    tdm_error_t err = {0};
    must(tdm_worker_run(&l->channel, l->backend, TDM_POLL_ADAPTIVE, &l->stop, &err), &err);
    return NULL;
}

static void begin(life_t *l, uint32_t is_ahead) {
    tdm_error_t err = {0};
    tdm_exec_spec_t spec = {0};
    uint32_t context = PROMPT + option[ITERATIONS] + 1;
    uint32_t pages = context / TDM_KV_PAGE_TOKENS + 1;
    tdm_backend_config_t config = {.kv_page_cnt = pages * option[BATCH],
                                   .kv_dtype = TDM_KV_F32,
                                   .seq_max = option[BATCH],
                                   .token_max = PROMPT * option[BATCH],
                                   .context_max = context,
                                   .sm_cnt = option[SMS],
                                   .is_ahead = is_ahead};
    memset(l, 0, sizeof *l);
    must(tdm_backend_cpu_create(weights, &config, NULL, &l->backend, &err), &err);
    must(tdm_channel_open(&l->channel, TDM_ARENA_SHARED, &spec, &err), &err);
    tdm_channel_format(&l->channel, 1);
    if (pthread_create(&l->thread, NULL, work, l) != 0) exit(1);
}

static void end(life_t *l) {
    tdm_store_relaxed(&l->stop, 1u);
    tdm_doorbell_ring(&l->channel.exec_bell);
    (void)pthread_join(l->thread, NULL);
    tdm_channel_close(&l->channel);
    tdm_backend_destroy(l->backend);
}

static void push(life_t *l, uint32_t slot) {
    tdm_plan_t *p = l->channel.plan[slot];
    uint32_t pages = l->backend->info.kv_page_cnt / option[BATCH];
    memset(p, 0, offsetof(tdm_plan_t, close));
    p->iteration = ++l->iteration;
    p->epoch = 1;
    p->route = l->iteration == 1 ? TDM_ROUTE_PREFILL_ONLY : TDM_ROUTE_DECODE_ONLY;
    for (uint32_t i = 0; i < option[BATCH] && l->iteration > 1; i++)
        p->decode[p->decode_cnt++] =
            (tdm_plan_decode_t){.slot = i, .pos = PROMPT + (uint32_t)l->iteration - 2};
    for (uint32_t i = 0; i < option[BATCH] && l->iteration == 1; i++) {
        p->open[p->open_cnt++] =
            (tdm_plan_open_t){.slot = i,
                              .prompt_cnt = PROMPT,
                              .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f}};
        p->grant[p->grant_cnt++] =
            (tdm_plan_grant_t){.slot = i, .page_off = p->page_cnt, .page_cnt = pages};
        for (uint32_t k = 0; k < pages; k++) p->page[p->page_cnt++] = i * pages + k;
        p->slice[p->slice_cnt++] =
            (tdm_plan_slice_t){.slot = i, .cnt = PROMPT, .token_off = p->token_cnt, .is_last = 1};
        for (uint32_t k = 0; k < PROMPT; k++) p->token[p->token_cnt++] = (int32_t)(i + k);
    }
    if (!tdm_lane_push(l->channel.plans, &slot)) exit(1);
    tdm_doorbell_ring(&l->channel.exec_bell);
}

/* pop sleeps where the scheduler's tile would, until there is a result. */
static uint32_t pop(life_t *l) {
    uint32_t slot;
    tdm_poller_t poller;
    tdm_poller_init(&poller, TDM_POLL_ADAPTIVE, &l->channel.sched_bell, -1, tdm_clock_now_ns());
    while (!tdm_lane_pop(l->channel.results, &slot)) {
        int64_t now_ns = tdm_clock_now_ns();
        if (!tdm_poller_may_sleep(&poller, 0, now_ns)) continue;
        if (tdm_lane_cnt(l->channel.results))
            tdm_poller_stay(&poller);
        else
            tdm_poller_sleep(&poller, TDM_TIME_NEVER, now_ns);
    }
    return slot;
}

/* run drives one life and adds its decodes but the first few. */
static void run(way_t *w, uint32_t is_ahead) {
    life_t l;
    int64_t before_ns = 0;
    begin(&l, is_ahead);
    push(&l, 0);
    push(&l, 1);
    for (uint32_t n = 0; n < option[ITERATIONS]; n++) {
        uint32_t slot = pop(&l);
        const tdm_result_t *r = l.channel.result[slot];
        if (n > 10 && w->cnt < SAMPLE_MAX) {
            w->idle[w->cnt] = (double)r->idle_ns * 1e-3;
            w->period[w->cnt++] = (double)(r->end_ns - before_ns) * 1e-3;
        }
        before_ns = r->end_ns;
        if (l.iteration < option[ITERATIONS]) push(&l, slot);
    }
    end(&l);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *v, uint32_t cnt, double q) {
    qsort(v, cnt, sizeof *v, by_size);
    return v[(uint32_t)(q * (double)(cnt - 1))];
}

static int parse(int argc, char **argv) {
    static const char *const name[OPTION_CNT] = {"--batch", "--sms", "--iterations", "--rounds"};
    static const uint32_t most[OPTION_CNT] = {TDM_PLAN_SLICE_MAX, TDM_SM_MAX, 4096, 100};
    for (int i = 2; i + 1 < argc; i += 2)
        for (uint32_t k = 0; k < OPTION_CNT; k++)
            if (strcmp(argv[i], name[k]) == 0) option[k] = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    for (uint32_t k = 0; k < OPTION_CNT; k++)
        if (option[k] == 0 || option[k] > most[k]) return 0;
    return argc >= 2 && argc % 2 == 0 && option[ITERATIONS] > 20;
}

int main(int argc, char **argv) {
    tdm_error_t err = {0};
    tdm_model_t *model;
    way_t way[2];
    if (!parse(argc, argv)) {
        (void)fprintf(stderr, "usage: perf_exec_ahead MODEL [--batch N] [--sms N] [--iterations N] "
                              "[--rounds N]\n");
        return 2;
    }
    must(tdm_model_open(argv[1], NULL, &model, &err), &err);
    weights = tdm_model_weights(model);
    for (uint32_t i = 0; i < 2; i++) {
        way[i] = (way_t){.idle = calloc(SAMPLE_MAX, sizeof(double)),
                         .period = calloc(SAMPLE_MAX, sizeof(double))};
        if (!way[i].idle || !way[i].period) return 1;
    }
    for (uint32_t round = 0; round < option[ROUNDS]; round++)
        for (uint32_t i = 0; i < 2; i++) run(&way[i], i);
    double idle[2], tail[2], period[2];
    for (uint32_t i = 0; i < 2; i++) {
        idle[i] = quantile(way[i].idle, way[i].cnt, 0.5);
        tail[i] = quantile(way[i].idle, way[i].cnt, 0.99);
        period[i] = quantile(way[i].period, way[i].cnt, 0.5);
    }
    printf("{\"model\": \"%s\", \"batch\": %u, \"sms\": %u, \"iterations\": %u, "
           "\"idle_us\": {\"p50\": [%.2f, %.2f], \"p99\": [%.2f, %.2f]}, "
           "\"period_us\": {\"p50\": [%.1f, %.1f]}, \"ratio\": {\"idle_p50\": %.3f, "
           "\"idle_p99\": %.3f, \"period_p50\": %.4f}}\n",
           argv[1], option[BATCH], option[SMS], way[0].cnt, idle[0], idle[1], tail[0], tail[1],
           period[0], period[1], idle[1] / idle[0], tail[1] / tail[0], period[1] / period[0]);
    tdm_model_close(model);
    return 0;
}
