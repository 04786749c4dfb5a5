/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the executor's loop keeps the backend busy and the results in
   order.  Method: a backend of depth 2 that computes when the test says
   so, and the test in the scheduler's place. */
#include "appliance/abi/reasons.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/exec/worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WAIT_NS (5 * TDM_NS_PER_S)

enum { DO_RUN, DO_REFUSE, DO_FAIL_START, DO_FAIL_FINISH };

static tdm_channel_t channel;
static pthread_t thread;
static tdm_status_t ended;
static tdm_error_t why;

/* Counts of the fake device; computed is the test's to move. */
static uint32_t stop, started, computed, finished;
static uint32_t variant[TDM_CHANNEL_DEPTH];
static tdm_backend_bell_t *bell;
static void *bell_ctx;

static tdm_status_t fake_start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                               tdm_error_t *err) {
    (void)b;
    result->iteration = plan->iteration;
    result->epoch = plan->epoch;
    result->fault = 0;
    if (plan->variant == DO_REFUSE) {
        result->fault = TDM_FAULT_executor_protocol;
        return tdm_error_set(err, TDM_ERR_CORRUPT, "refused for the test");
    }
    if (plan->variant == DO_FAIL_START)
        return tdm_error_set(err, TDM_ERR_INTERNAL, "failed for the test");
    uint32_t n = tdm_load_relaxed(&started);
    assert_true(n - finished < TDM_CHANNEL_DEPTH);
    variant[n % TDM_CHANNEL_DEPTH] = plan->variant;
    tdm_store_release(&started, n + 1u);
    return TDM_OK;
}

static int fake_is_done(tdm_backend_t *b) {
    (void)b;
    return tdm_load_acquire(&computed) > finished;
}

static void fake_listen(tdm_backend_t *b, tdm_backend_bell_t *fn, void *ctx) {
    (void)b;
    bell = fn;
    bell_ctx = ctx;
}

static tdm_status_t fake_finish(tdm_backend_t *b, tdm_error_t *err) {
    while (!fake_is_done(b)) tdm_cpu_relax();
    if (variant[finished++ % TDM_CHANNEL_DEPTH] == DO_FAIL_FINISH)
        return tdm_error_set(err, TDM_ERR_INTERNAL, "failed for the test");
    return TDM_OK;
}

static void fake_destroy(tdm_backend_t *b) {
    (void)b;
}

static const tdm_backend_ops_t ops = {.start = fake_start,
                                      .is_done = fake_is_done,
                                      .listen = fake_listen,
                                      .finish = fake_finish,
                                      .destroy = fake_destroy};

static void *work(void *arg) {
    tdm_backend_t backend = {.ops = &ops,
                             .info = {.name = "fake", .isa = "none", .depth = 2, .has_bell = 1}};
    (void)arg;
    ended = tdm_worker_run(&channel, &backend, TDM_POLL_ADAPTIVE, &stop, &why);
    return NULL;
}

static void nap(void) {
    struct timespec ts = {.tv_nsec = TDM_NS_PER_MS};
    (void)nanosleep(&ts, NULL);
}

static int setup(void **state) {
    (void)state;
    tdm_exec_spec_t spec = {0};
    stop = started = computed = finished = 0;
    why = (tdm_error_t){0};
    if (tdm_channel_open(&channel, TDM_ARENA_SHARED, &spec, &why) != TDM_OK) return -1;
    tdm_channel_format(&channel, 1);
    if (pthread_create(&thread, NULL, work, NULL) != 0) return -1;
    while (tdm_load_acquire(&channel.head->state) != TDM_EXEC_READY) nap();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tdm_channel_close(&channel);
    return 0;
}

static void push(uint32_t slot, uint64_t iteration, uint32_t what) {
    tdm_plan_t *p = channel.plan[slot];
    memset(p, 0, offsetof(tdm_plan_t, close));
    p->iteration = iteration;
    p->epoch = 1;
    p->variant = what;
    assert_true(tdm_lane_push(channel.plans, &slot));
    tdm_doorbell_ring(&channel.exec_bell);
}

/* compute lets the device be done with one iteration more. */
static void compute(void) {
    tdm_store_release(&computed, tdm_load_relaxed(&computed) + 1u);
    bell(bell_ctx);
}

static void await_started(uint32_t cnt) {
    int64_t end_ns = tdm_clock_now_ns() + WAIT_NS;
    while (tdm_load_acquire(&started) < cnt) {
        assert_true(tdm_clock_now_ns() < end_ns);
        nap();
    }
}

/* pop waits for a result and says of which iteration it is. */
static uint64_t pop(void) {
    uint32_t slot;
    int64_t end_ns = tdm_clock_now_ns() + WAIT_NS;
    while (!tdm_lane_pop(channel.results, &slot)) {
        assert_true(tdm_clock_now_ns() < end_ns);
        nap();
    }
    return channel.result[slot]->iteration;
}

/* await_end: the loop ends by itself. */
static void await_end(void) {
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void end(void) {
    tdm_store_relaxed(&stop, 1u);
    tdm_doorbell_ring(&channel.exec_bell);
    await_end();
}

static void the_second_plan_is_started_while_the_first_runs(void **state) {
    (void)state;
    push(0, 1, DO_RUN);
    push(1, 2, DO_RUN);
    await_started(2);
    for (uint64_t i = 1; i < 200; i++) {
        compute();
        assert_int_equal(pop(), i);
        push((i - 1) % 2, i + 2, DO_RUN);
        await_started((uint32_t)i + 2);
    }
    end();
    assert_int_equal(ended, TDM_OK);
}

static void a_plan_that_comes_late_is_started_at_once(void **state) {
    (void)state;
    push(0, 1, DO_RUN);
    await_started(1);
    for (int i = 0; i < 50; i++) nap(); /* asleep by now */
    push(1, 2, DO_RUN);
    await_started(2);
    compute();
    assert_int_equal(pop(), 1);
    compute();
    assert_int_equal(pop(), 2);
    end();
    assert_int_equal(ended, TDM_OK);
}

static void a_refused_plan_is_answered_after_the_one_before(void **state) {
    (void)state;
    push(0, 1, DO_RUN);
    push(1, 2, DO_REFUSE);
    await_started(1);
    compute();
    assert_int_equal(pop(), 1);
    assert_int_equal(channel.result[0]->fault, 0);
    assert_int_equal(pop(), 2);
    assert_int_equal(channel.result[1]->fault, TDM_FAULT_executor_protocol);
    await_end();
    assert_int_equal(ended, TDM_ERR_CORRUPT);
    assert_string_equal(why.text, "refused for the test");
}

static void a_device_that_fails_answers_nothing_more(void **state) {
    (void)state;
    push(0, 1, *(const uint32_t *)*state);
    push(1, 2, DO_RUN);
    compute();
    await_end();
    uint32_t slot;
    assert_int_equal(ended, TDM_ERR_INTERNAL);
    assert_int_equal(tdm_lane_pop(channel.results, &slot), 0);
}

static void a_slot_under_way_is_not_run_twice(void **state) {
    (void)state;
    push(0, 1, DO_RUN);
    await_started(1);
    push(0, 2, DO_RUN);
    await_end();
    assert_int_equal(ended, TDM_ERR_CORRUPT);
    assert_int_equal(started, 1);
}

int main(void) {
    static uint32_t at_start = DO_FAIL_START, at_finish = DO_FAIL_FINISH;
#define FACT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define FACT_OF(f, p)                                                                              \
    {                                                                                              \
        .name = #f " " #p, .test_func = f, .setup_func = setup, .teardown_func = teardown,         \
        .initial_state = &(p)                                                                      \
    }
    const struct CMUnitTest tests[] = {
        FACT(the_second_plan_is_started_while_the_first_runs),
        FACT(a_plan_that_comes_late_is_started_at_once),
        FACT(a_refused_plan_is_answered_after_the_one_before),
        FACT_OF(a_device_that_fails_answers_nothing_more, at_start),
        FACT_OF(a_device_that_fails_answers_nothing_more, at_finish),
        FACT(a_slot_under_way_is_not_run_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
