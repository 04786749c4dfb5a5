/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the tile's edges hold between real threads: submits and cancels
   from api threads, plans and results with an executor thread that dies
   and comes back, live changes from a third.  Method: short streams by the
   thousand; each request must be answered once and end once, and its
   tokens come in order.  ThreadSanitizer (preset tsan) watches the rest. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "scheduler/tile/sched_tile.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define API_CNT      2u
#define REQUESTS     8u
#define PER_API      400u /* streams each api thread wants to see whole */
#define LIFE_ITER    40u  /* iterations of one executor life */
#define OUTPUT_MAX   6u
#define PROMPT_TOKEN 5

static tdm_sched_tile_t *tile;
static tdm_ring_t requests, controls, events[API_CNT];
static tdm_lane_t *plans, *results;
static tdm_life_t life;
static tdm_plan_t *plan[2];
static tdm_result_t *result[2];
static uint32_t is_done;       /* atomic: api threads that finished */
static uint32_t is_supervised; /* atomic: 0 once the executor thread finished */

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

/* --- api ------------------------------------------------------------------ */

typedef struct client {
    tdm_request_t request;
    uint32_t is_open, is_accepted, got, is_cancelled;
    uint32_t cancel_at; /* tokens after which the client leaves; OUTPUT_MAX: never */
} client_t;

typedef struct api {
    uint32_t idx;
    uint32_t asked, ended, whole, accepted, refused, tokens;
    client_t client[REQUESTS];
} api_t;

static void see(api_t *a, const tdm_event_t *e) {
    client_t *c = &a->client[e->handle.slot];
    TDM_CHECK(c->is_open && e->handle.generation == c->request.handle.generation);
    switch (e->kind) {
    case TDM_EVENT_ACCEPTED:
        TDM_CHECK(!c->is_accepted);
        c->is_accepted = 1;
        a->accepted++;
        break;
    case TDM_EVENT_TOKEN:
        TDM_CHECK(c->is_accepted && e->index == c->got);
        TDM_CHECK(e->token == (int32_t)(1u + c->got));
        c->got++;
        a->tokens++;
        break;
    default:
        TDM_CHECK(e->kind == TDM_EVENT_REFUSED ? !c->is_accepted : (int)c->is_accepted);
        TDM_CHECK(e->finish != TDM_FINISH_LENGTH || c->got == OUTPUT_MAX);
        TDM_CHECK(e->finish != TDM_FINISH_CANCELLED || c->is_cancelled);
        a->whole += e->finish == TDM_FINISH_LENGTH;
        a->refused += e->kind == TDM_EVENT_REFUSED;
        c->is_open = 0;
        a->ended++;
        break;
    }
}

static void ask(api_t *a, uint32_t slot, const int32_t *prompt, uint32_t cancel_at) {
    client_t *c = &a->client[slot];
    uint32_t generation = c->request.handle.generation + 1u;
    c->request = (tdm_request_t){.handle = {.slot = slot, .generation = generation},
                                 .api = (uint16_t)a->idx,
                                 .deadline_ns = TDM_TIME_NEVER,
                                 .prompt_cnt = 3,
                                 .output_max = OUTPUT_MAX,
                                 .prompt = prompt};
    c->is_accepted = c->got = c->is_cancelled = 0;
    c->cancel_at = cancel_at;
    tdm_submit_t word = {.request = &c->request, .generation = generation};
    c->is_open = (uint32_t)tdm_ring_push(&requests, a->idx, &word);
    a->asked += c->is_open;
}

static void cancel(api_t *a, uint32_t slot) {
    client_t *c = &a->client[slot];
    if (!c->is_open || c->is_cancelled || c->got < c->cancel_at) return;
    tdm_control_t word = {.handle = c->request.handle, .api = (uint16_t)a->idx};
    c->is_cancelled = 1;
    TDM_CHECK(tdm_ring_push(&controls, a->idx, &word));
}

static void *api_main(void *arg) {
    static const int32_t prompt[3] = {PROMPT_TOKEN, PROMPT_TOKEN, PROMPT_TOKEN};
    api_t *a = arg;
    tdm_rng_t r = {.state = a->idx + 1u};
    while (a->whole < PER_API || a->ended < a->asked) {
        for (uint32_t slot = 0; slot < REQUESTS; slot++) {
            uint32_t cancel_at = tdm_rng_below(&r, 2) ? OUTPUT_MAX : tdm_rng_below(&r, OUTPUT_MAX);
            if (!a->client[slot].is_open && a->whole < PER_API) ask(a, slot, prompt, cancel_at);
            if (a->client[slot].cancel_at < OUTPUT_MAX) cancel(a, slot);
        }
        tdm_event_t e;
        uint32_t seen = 0;
        while (tdm_ring_pop(&events[a->idx], &e)) {
            see(a, &e);
            seen++;
        }
        if (seen == 0) sched_yield();
    }
    tdm_add_acq_rel(&is_done, 1u);
    return NULL;
}

/* --- executor and supervisor in one ---------------------------------------- */

/* answer samples "1 + output index" for everyone who is due a token. */
static void answer(const tdm_plan_t *p, tdm_result_t *r) {
    memset(r, 0, sizeof *r);
    r->iteration = p->iteration;
    r->epoch = p->epoch;
    r->route = p->route;
    r->start_ns = 1;
    r->end_ns = 1000;
    for (uint32_t i = 0; i < p->slice_cnt; i++)
        if (p->slice[i].is_last)
            r->sample[r->sample_cnt++] = (tdm_result_sample_t){
                .slot = p->slice[i].slot, .pos = p->slice[i].pos + p->slice[i].cnt};
    for (uint32_t i = 0; i < p->decode_cnt; i++)
        r->sample[r->sample_cnt++] =
            (tdm_result_sample_t){.slot = p->decode[i].slot, .pos = p->decode[i].pos + 1u};
    for (uint32_t i = 0; i < r->sample_cnt; i++)
        r->sample[i].token = (int32_t)(1u + r->sample[i].pos - 3u);
}

static int is_over(void) {
    return tdm_load_acquire(&is_done) == API_CNT;
}

static void set_epoch(uint32_t epoch) {
    tdm_store_release(&life.epoch, epoch);
    while (tdm_load_acquire(&life.ack) != epoch) sched_yield();
}

static void one_life(uint32_t epoch) {
    uint32_t slot = 0, iterations = 0;
    set_epoch(epoch);
    while (!is_over() && iterations < LIFE_ITER) {
        if (!tdm_lane_pop(plans, &slot)) {
            sched_yield();
            continue;
        }
        answer(plan[slot], result[slot]);
        TDM_CHECK(tdm_lane_push(results, &slot));
        iterations++;
    }
    set_epoch(0);
    while (tdm_lane_pop(plans, &slot)) {
    }
}

static void *executor_main(void *arg) {
    (void)arg;
    tdm_sched_live_t live;
    tdm_sched_live_default(&live);
    for (uint32_t epoch = 1; !is_over(); epoch++) {
        one_life(epoch);
        uint32_t slot;
        while (tdm_lane_pop(results, &slot)) {
        }
        live.death_max = 1000000;
        live.token_max = 32u + epoch % 7u;
        live.revision = epoch;
        tdm_status_t status = tdm_sched_tile_live_set(tile, &live, NULL);
        TDM_CHECK(status == TDM_OK || status == TDM_ERR_FULL);
    }
    tdm_store_release(&is_supervised, 0u);
    return NULL;
}

static void *tile_main(void *arg) {
    (void)arg;
    while (tdm_load_acquire(&is_supervised))
        if (tdm_sched_tile_poll(tile, tdm_clock_now_ns()) == 0) sched_yield();
    return NULL;
}

static void threads_agree_on_every_request(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = {.seq_max = 4,
                               .waiting_max = 12,
                               .page_cnt = 6,
                               .context_max = 128,
                               .vocab = 1000,
                               .api_cnt = API_CNT,
                               .request_max = REQUESTS,
                               .depth = 2};
    tdm_sched_tile_wires_t wires = {.requests = &requests, .controls = &controls, .life = &life};
    tdm_lane_t *submit[API_CNT], *control[API_CNT];
    for (uint32_t i = 0; i < API_CNT; i++) {
        submit[i] = lane(4, sizeof(tdm_submit_t));
        control[i] = lane(4 * REQUESTS, sizeof(tdm_control_t));
        tdm_lane_t *event = lane(4, sizeof(tdm_event_t));
        tdm_ring_init(&events[i], &event, 1, NULL);
        wires.events[i] = &events[i];
        wires.plan[i] = plan[i] = own(sizeof(tdm_plan_t));
        wires.result[i] = result[i] = own(sizeof(tdm_result_t));
    }
    tdm_ring_init(&requests, submit, API_CNT, NULL);
    tdm_ring_init(&controls, control, API_CNT, NULL);
    wires.plans = plans = lane(2, sizeof(uint32_t));
    wires.results = results = lane(2, sizeof(uint32_t));
    tdm_sched_live_t live;
    tdm_sched_live_default(&live);
    live.death_max = 1000000;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_create(own(tdm_sched_tile_footprint(&sizes)), &sizes, &live,
                                           &wires, &tile, &err),
                     TDM_OK);
    static api_t api[API_CNT];
    is_supervised = 1;
    pthread_t thread[API_CNT + 2];
    assert_int_equal(pthread_create(&thread[0], NULL, tile_main, NULL), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, executor_main, NULL), 0);
    for (uint32_t i = 0; i < API_CNT; i++) {
        api[i].idx = i;
        assert_int_equal(pthread_create(&thread[2 + i], NULL, api_main, &api[i]), 0);
    }
    for (uint32_t i = 0; i < API_CNT + 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(tile));
    assert_int_equal(s->received, api[0].asked + api[1].asked);
    assert_int_equal(s->accepted, api[0].accepted + api[1].accepted);
    assert_int_equal(s->refused, api[0].refused + api[1].refused);
    assert_true(s->output_tokens >= api[0].tokens + api[1].tokens);
    assert_null(tdm_sched_check(tdm_sched_tile_core(tile)));
    assert_true(s->ended[TDM_FINISH_LENGTH] >= API_CNT * PER_API);
    printf("%llu requests, %llu tokens, %llu cancelled, %llu executor lives\n",
           (unsigned long long)s->received, (unsigned long long)s->output_tokens,
           (unsigned long long)s->ended[TDM_FINISH_CANCELLED], (unsigned long long)s->restart_cnt);
    assert_true(s->restart_cnt > 0 && s->ended[TDM_FINISH_CANCELLED] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_agree_on_every_request)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
