/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an executor's life is seen by all sides in order, whatever ends
   it, and a plan comes back as a result through the channel.
   Method: this program is its own tandem-exec (as a process) with a fake
   backend that obeys the plan's variant; a fake scheduler tile
   acknowledges lives.  Real time bounds only the waits. */
#include "appliance/abi/reasons.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/exec/supervisor.h"
#include "appliance/exec/worker.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DO_ECHO, DO_EXIT, DO_CRASH, DO_HANG, DO_REFUSE, DO_FAIL };

static tdm_status_t fake_start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                               tdm_error_t *err) {
    (void)b;
    result->iteration = plan->iteration;
    result->epoch = plan->epoch;
    result->fault = 0;
    switch (plan->variant) {
    case DO_EXIT: _exit(9);
    case DO_CRASH: (void)raise(SIGKILL); break;
    case DO_HANG:
        for (;;) (void)pause();
    case DO_REFUSE:
        result->fault = TDM_FAULT_executor_protocol;
        return tdm_error_set(err, TDM_ERR_CORRUPT, "refused for the test");
    case DO_FAIL: return tdm_error_set(err, TDM_ERR_INTERNAL, "the device failed, for the test");
    default: break;
    }
    return TDM_OK;
}

static tdm_status_t fake_finish(tdm_backend_t *b, tdm_error_t *err) {
    (void)b;
    (void)err;
    return TDM_OK;
}

static void fake_destroy(tdm_backend_t *b) {
    (void)b;
}

#define IDLE_PIECES 5u /* of work that the fake has after each plan */
static uint32_t idle_cnt;

static int fake_idle(tdm_backend_t *b) {
    uint32_t cnt = tdm_load_relaxed(&idle_cnt) + 1;
    (void)b;
    tdm_store_relaxed(&idle_cnt, cnt);
    return cnt % IDLE_PIECES != 0;
}

static const tdm_backend_ops_t fake_ops = {
    .start = fake_start, .finish = fake_finish, .idle = fake_idle, .destroy = fake_destroy};

static void fake_main(tdm_channel_t *c, const uint32_t *stop) {
    tdm_error_t err = {0};
    tdm_backend_t backend = {.ops = &fake_ops, .info = {.name = "fake", .isa = "none", .depth = 1}};
    while (strcmp(c->head->spec.model, "silent") == 0) (void)pause();
    if (strcmp(c->head->spec.model, "bad") == 0) {
        (void)tdm_error_set(&err, TDM_ERR_CORRUPT, "no such weights");
        tdm_worker_fail(c, &err);
        return;
    }
    (void)!tdm_worker_run(c, &backend, TDM_POLL_ADAPTIVE, stop, &err);
}

static int executor_process(char **argv) {
    tdm_channel_t c;
    tdm_error_t err = {0};
    if (tdm_channel_attach(&c, atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), &err) != TDM_OK)
        return 2;
    fake_main(&c, NULL);
    tdm_channel_close(&c);
    return 3;
}

#define WINDOW_NS (600 * TDM_NS_PER_S)
#define STALL_NS  (700 * TDM_NS_PER_S) /* over the window: stalls in a row must still add up */

typedef struct rig {
    tdm_channel_t channel;
    tdm_life_t life;
    tdm_supervisor_t sup;
} rig_t;

static void rig_open(rig_t *r, const char *model, int is_process, uint32_t restart_max) {
    tdm_error_t err = {0};
    tdm_exec_spec_t spec = {.poll_mode = TDM_POLL_ADAPTIVE};
    memset(r, 0, sizeof *r);
    (void)snprintf(spec.model, sizeof spec.model, "%s", model);
    assert_int_equal(tdm_channel_open(&r->channel, TDM_ARENA_SHARED, &spec, &err), TDM_OK);
    const tdm_supervisor_config_t config = {
        .program = is_process ? "/proc/self/exe" : NULL,
        .thread_main = fake_main,
        .restart_max = restart_max,
        .restart_window_ns = WINDOW_NS,
        .pause_ns = TDM_NS_PER_MS,
        .load_stall_ns = STALL_NS,
    };
    tdm_supervisor_init(&r->sup, &config, &r->channel, &r->life);
}

static void rig_close(rig_t *r) {
    tdm_supervisor_stop(&r->sup);
    tdm_channel_close(&r->channel);
}

/* until polls the supervisor, playing the scheduler tile, until state. */
static void until(rig_t *r, tdm_supervisor_state_t state) {
    int64_t give_up = tdm_clock_now_ns() + 20 * TDM_NS_PER_S;
    for (;;) {
        int64_t now_ns = tdm_clock_now_ns();
        if (tdm_supervisor_poll(&r->sup, now_ns) == state) return;
        tdm_store_release(&r->life.ack, tdm_load_acquire(&r->life.epoch));
        if (now_ns > give_up) fail_msg("state %d instead of %d", r->sup.state, state);
        (void)usleep(500);
    }
}

static void send_plan(rig_t *r, uint32_t variant, uint64_t iteration) {
    uint32_t k = (uint32_t)(iteration % TDM_CHANNEL_DEPTH);
    memset(r->channel.plan[k], 0, sizeof(tdm_plan_t));
    r->channel.plan[k]->iteration = iteration;
    r->channel.plan[k]->epoch = r->life.epoch;
    r->channel.plan[k]->variant = variant;
    assert_true(tdm_lane_push(r->channel.plans, &k));
    tdm_doorbell_ring(&r->channel.exec_bell);
}

static const tdm_result_t *next_result(rig_t *r) {
    int64_t give_up = tdm_clock_now_ns() + 10 * TDM_NS_PER_S;
    uint32_t k;
    while (!tdm_lane_pop(r->channel.results, &k)) {
        tdm_doorbell_arm(&r->channel.sched_bell);
        if (tdm_lane_cnt(r->channel.results)) {
            tdm_doorbell_disarm(&r->channel.sched_bell);
            continue;
        }
        assert_true(tdm_doorbell_sleep(&r->channel.sched_bell, -1, 10 * TDM_NS_PER_S));
        assert_true(tdm_clock_now_ns() < give_up);
    }
    return r->channel.result[k];
}

static void plans_come_back_in_order(int is_process) {
    rig_t r;
    rig_open(&r, "good", is_process, 0);
    until(&r, TDM_SUPERVISOR_SERVING);
    until(&r, TDM_SUPERVISOR_SERVING);
    send_plan(&r, DO_ECHO, 1);
    for (uint64_t i = 1; i <= 200; i++) {
        send_plan(&r, DO_ECHO, i + 1);
        assert_int_equal(next_result(&r)->iteration, i);
    }
    rig_close(&r);
}

static void plans_come_back_in_order_from_a_thread(void **state) {
    (void)state;
    plans_come_back_in_order(0);
}

static void plans_come_back_in_order_from_a_process(void **state) {
    (void)state;
    plans_come_back_in_order(1);
}

static void wait_idle(uint32_t cnt) {
    int64_t give_up = tdm_clock_now_ns() + 20 * TDM_NS_PER_S;
    while (tdm_load_relaxed(&idle_cnt) < cnt) {
        assert_true(tdm_clock_now_ns() < give_up);
        (void)usleep(500);
    }
}

/* After a plan, piece by piece, until the backend has no more; and never before
   the first. */
static void idle_time_is_offered_after_work(void **state) {
    (void)state;
    rig_t r;
    tdm_store_relaxed(&idle_cnt, 0u); /* of other tests' threads, which have ended */
    rig_open(&r, "good", 0, 0);
    until(&r, TDM_SUPERVISOR_SERVING);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)usleep(10000);
        assert_int_equal(tdm_load_relaxed(&idle_cnt), (i - 1) * IDLE_PIECES);
        send_plan(&r, DO_ECHO, i);
        assert_int_equal(next_result(&r)->iteration, i);
        wait_idle(i * IDLE_PIECES);
    }
    rig_close(&r);
}

static void a_dead_executor_is_replaced_after_the_tile_let_go(void **state) {
    (void)state;
    static const uint32_t how[] = {DO_EXIT, DO_CRASH, DO_REFUSE};
    rig_t r;
    rig_open(&r, "good", 1, 3);
    for (uint32_t i = 0; i < 3; i++) {
        until(&r, TDM_SUPERVISOR_SERVING);
        assert_int_equal(r.life.epoch, i + 1);
        tdm_store_release(&r.life.ack, r.life.epoch);
        send_plan(&r, how[i], 1);
        while (tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()) == TDM_SUPERVISOR_SERVING)
            (void)usleep(500);
        assert_int_equal(r.life.epoch, 0);
        for (int k = 0; k < 5; k++) /* not acknowledged: nothing moves */
            assert_int_equal(tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()),
                             TDM_SUPERVISOR_ENDING);
    }
    until(&r, TDM_SUPERVISOR_SERVING);
    assert_int_equal(r.sup.exit_cnt, 3);
    assert_int_equal(tdm_lane_cnt(r.channel.plans), 0);
    rig_close(&r);
}

/* What a device computed when it failed is nobody's result: read as one it
   would end streams that a new executor can go on with. */
static void a_failed_device_gives_no_result(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 3);
    until(&r, TDM_SUPERVISOR_SERVING);
    tdm_store_release(&r.life.ack, r.life.epoch);
    send_plan(&r, DO_FAIL, 1);
    while (tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()) == TDM_SUPERVISOR_SERVING)
        (void)usleep(500);
    assert_int_equal(tdm_lane_cnt(r.channel.results), 0);
    assert_non_null(strstr(r.sup.last.text, "exited with 3"));
    rig_close(&r);
}

static void a_life_that_nobody_took_up_is_not_ended(void **state) {
    (void)state;
    rig_t r;
    int64_t begin_ns = tdm_clock_now_ns();
    rig_open(&r, "good", 1, 3);
    until(&r, TDM_SUPERVISOR_SERVING); /* returns before the tile acknowledged */
    assert_int_equal(r.life.ack, 0);
    (void)kill(r.sup.pid, SIGKILL);
    while (tdm_clock_now_ns() - begin_ns < 50 * TDM_NS_PER_MS) {
        assert_int_equal(tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()), TDM_SUPERVISOR_SERVING);
        assert_int_equal(r.life.epoch, 1);
        (void)usleep(500);
    }
    until(&r, TDM_SUPERVISOR_ENDING);
    until(&r, TDM_SUPERVISOR_SERVING);
    assert_int_equal(r.life.epoch, 2);
    rig_close(&r);
}

static void a_hung_executor_is_killed_when_asked(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 1);
    until(&r, TDM_SUPERVISOR_SERVING);
    send_plan(&r, DO_HANG, 1);
    r.life.kill_reason = TDM_FAULT_executor_hang;
    assert_true(tdm_supervisor_is_serving(&r.sup));
    tdm_store_release(&r.life.ack, r.life.epoch);
    tdm_store_release(&r.life.kill, 1u);
    (void)tdm_supervisor_poll(&r.sup, tdm_clock_now_ns());
    assert_int_equal(r.sup.kill_cnt, 1);
    assert_false(tdm_supervisor_is_serving(&r.sup)); /* from the kill on, not from its end */
    until(&r, TDM_SUPERVISOR_WAITING);
    assert_int_equal(r.sup.kill_cnt, 1);
    assert_non_null(strstr(r.sup.last.text, "watchdog"));
    until(&r, TDM_SUPERVISOR_SERVING); /* the old request does not hit the new life */
    assert_true(tdm_supervisor_is_serving(&r.sup));
    for (int i = 0; i < 5; i++)
        assert_int_equal(tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()), TDM_SUPERVISOR_SERVING);
    rig_close(&r);
}

/* die lets the serving life end at at_ns and gives the pause before the next. */
static int64_t die(rig_t *r, int64_t at_ns) {
    tdm_store_release(&r->life.ack, r->life.epoch);
    send_plan(r, DO_EXIT, 1);
    while (tdm_supervisor_poll(&r->sup, at_ns) == TDM_SUPERVISOR_SERVING) (void)usleep(500);
    return r->sup.resume_ns - at_ns;
}

static void only_short_lives_in_a_row_lengthen_the_pause(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 100);
    static const struct {
        int64_t served_ns, pause_ns;
    } life[] = {{0, TDM_NS_PER_MS},
                {0, 2 * TDM_NS_PER_MS},
                {0, 4 * TDM_NS_PER_MS},
                {TDM_SUPERVISOR_SHORT_NS, TDM_NS_PER_MS},
                {TDM_SUPERVISOR_SHORT_NS, TDM_NS_PER_MS},
                {TDM_SUPERVISOR_SHORT_NS / 2, 2 * TDM_NS_PER_MS}};
    for (size_t i = 0; i < TDM_COUNT_OF(life); i++) {
        until(&r, TDM_SUPERVISOR_SERVING);
        assert_int_equal(die(&r, r.sup.serve_ns + life[i].served_ns), life[i].pause_ns);
    }
    rig_close(&r);
}

/* What a life chose goes on to the next, unless it may have died of it. */
static void choices_outlive_a_life_that_served(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 100);
    tdm_choices_t *choices = &r.channel.head->choices;
    static const int64_t served_ns[] = {TDM_SUPERVISOR_SHORT_NS, TDM_SUPERVISOR_SHORT_NS / 2,
                                        10 * TDM_SUPERVISOR_SHORT_NS, 0};
    for (size_t i = 0; i < TDM_COUNT_OF(served_ns); i++) {
        until(&r, TDM_SUPERVISOR_SERVING);
        choices->magic = choices->sum = 40 + i;
        choices->cnt = 3;
        (void)die(&r, r.sup.serve_ns + served_ns[i]);
        r.sup.resume_ns = 0; /* of that clock, which is ahead */
        int is_kept = served_ns[i] >= TDM_SUPERVISOR_SHORT_NS;
        assert_int_equal(choices->magic, is_kept ? 40 + i : 0);
        assert_int_equal(choices->cnt, is_kept ? 3 : 0);
        until(&r, TDM_SUPERVISOR_SERVING);
        assert_int_equal(choices->magic, is_kept ? 40 + i : 0); /* nor does a start touch them */
    }
    /* One that ends before it serves. */
    until(&r, TDM_SUPERVISOR_SERVING);
    (void)die(&r, r.sup.serve_ns + TDM_SUPERVISOR_SHORT_NS);
    r.sup.resume_ns = 0;
    choices->magic = 50;
    r.sup.config.program = "/nonexistent/tandem-exec";
    until(&r, TDM_SUPERVISOR_LOADING);
    assert_int_equal(choices->magic, 50);
    until(&r, TDM_SUPERVISOR_ENDING);
    assert_int_equal(choices->magic, 0);
    rig_close(&r);
}

/* wait_end polls at that one moment until the killed load is reaped. */
static void wait_end(rig_t *r, int64_t at_ns) {
    int64_t give_up = tdm_clock_now_ns() + 20 * TDM_NS_PER_S;
    while (tdm_supervisor_poll(&r->sup, at_ns) == TDM_SUPERVISOR_LOADING) {
        assert_true(tdm_clock_now_ns() < give_up);
        (void)usleep(500);
    }
}

static void a_load_that_tells_nothing_is_killed(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "silent", 1, 3);
    r.channel.head->choices.magic = 7;
    until(&r, TDM_SUPERVISOR_LOADING);
    int64_t begin_ns = r.sup.told_ns;
    (void)tdm_supervisor_poll(&r.sup, begin_ns + STALL_NS - 1);
    assert_false(r.sup.is_killed);
    assert_int_equal(tdm_supervisor_poll(&r.sup, begin_ns + STALL_NS), TDM_SUPERVISOR_LOADING);
    assert_true(r.sup.is_killed);
    wait_end(&r, begin_ns + STALL_NS);
    assert_int_equal(r.sup.state, TDM_SUPERVISOR_ENDING);
    assert_int_equal(r.sup.load_stall_cnt, 1);
    assert_int_equal(r.sup.kill_cnt, 0); /* nobody asked */
    assert_int_equal(r.sup.exit_cnt, 0);
    assert_non_null(strstr(r.sup.last.text, "no progress for 700 s"));
    assert_int_equal(r.channel.head->choices.magic, 0); /* it may have hung of them */
    (void)tdm_supervisor_poll(&r.sup, begin_ns + STALL_NS);
    assert_int_equal(tdm_supervisor_poll(&r.sup, r.sup.resume_ns), TDM_SUPERVISOR_LOADING);
    assert_int_equal(r.sup.epoch, 2);
    assert_int_equal(r.sup.told_ns, r.sup.resume_ns); /* a whole bound for the next */
    assert_false(r.sup.is_killed);
    rig_close(&r);
}

static void a_load_that_tells_progress_is_left_alone(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "silent", 1, 3);
    until(&r, TDM_SUPERVISOR_LOADING);
    int64_t now_ns = r.sup.told_ns;
    for (uint32_t permille = 1; permille <= 1000; permille += 333) {
        tdm_store_relaxed(&r.channel.head->progress_permille, permille); /* in its place */
        now_ns += STALL_NS - 1;
        assert_int_equal(tdm_supervisor_poll(&r.sup, now_ns), TDM_SUPERVISOR_LOADING);
        assert_false(r.sup.is_killed);
    }
    (void)tdm_supervisor_poll(&r.sup, now_ns + STALL_NS); /* from the last word on */
    assert_true(r.sup.is_killed);
    rig_close(&r);
}

/* One that was ready just before its end came is not taken up. */
static void a_load_that_was_killed_does_not_serve(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "silent", 1, 3);
    until(&r, TDM_SUPERVISOR_LOADING);
    int64_t end_ns = r.sup.told_ns + STALL_NS;
    (void)tdm_supervisor_poll(&r.sup, end_ns);
    tdm_store_release(&r.channel.head->state, (uint32_t)TDM_EXEC_READY);
    wait_end(&r, end_ns);
    assert_int_equal(r.sup.state, TDM_SUPERVISOR_ENDING);
    assert_int_equal(r.life.epoch, 0);
    rig_close(&r);
}

static void silence_after_the_load_is_no_stall(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 3);
    until(&r, TDM_SUPERVISOR_SERVING);
    tdm_store_release(&r.life.ack, r.life.epoch);
    assert_int_equal(tdm_supervisor_poll(&r.sup, r.sup.serve_ns + 10 * STALL_NS),
                     TDM_SUPERVISOR_SERVING);
    assert_int_equal(r.sup.load_stall_cnt, 0);
    rig_close(&r);
}

static void loads_that_stall_again_and_again_are_a_failure(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "silent", 1, 2);
    until(&r, TDM_SUPERVISOR_LOADING);
    int64_t now_ns = r.sup.told_ns;
    for (uint32_t life = 1; life <= 3; life++) {
        assert_int_equal(r.sup.epoch, life);
        now_ns += STALL_NS;
        wait_end(&r, now_ns);
        now_ns = r.sup.resume_ns;
        (void)tdm_supervisor_poll(&r.sup, now_ns); /* the tile acknowledged: it saw no life */
        (void)tdm_supervisor_poll(&r.sup, now_ns);
    }
    assert_int_equal(r.sup.state, TDM_SUPERVISOR_FAILED);
    assert_int_equal(r.sup.load_stall_cnt, 3);
    rig_close(&r);
}

static void restarts_are_bounded(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 2);
    for (uint32_t life = 1; life <= 3; life++) {
        until(&r, TDM_SUPERVISOR_SERVING);
        tdm_store_release(&r.life.ack, r.life.epoch);
        send_plan(&r, DO_EXIT, 1);
        while (tdm_supervisor_poll(&r.sup, tdm_clock_now_ns()) == TDM_SUPERVISOR_SERVING)
            (void)usleep(500);
    }
    until(&r, TDM_SUPERVISOR_FAILED);
    assert_int_equal(r.sup.epoch, 3);
    rig_close(&r);
}

static void what_a_restart_cannot_mend_is_final(void **state) {
    (void)state;
    for (int is_process = 0; is_process < 2; is_process++) {
        rig_t r;
        rig_open(&r, "bad", is_process, 100);
        until(&r, TDM_SUPERVISOR_FAILED);
        assert_string_equal(r.sup.last.text, "no such weights");
        rig_close(&r);
    }
}

static void a_missing_program_is_a_bounded_failure(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r, "good", 1, 1);
    r.sup.config.program = "/nonexistent/tandem-exec";
    until(&r, TDM_SUPERVISOR_FAILED);
    assert_non_null(strstr(r.sup.last.text, "127"));
    rig_close(&r);
}

static void memory_of_another_build_is_refused(void **state) {
    (void)state;
    rig_t r;
    tdm_channel_t c;
    tdm_error_t err = {0};
    rig_open(&r, "good", 0, 0);
    r.channel.head->plan_sz++;
    assert_int_equal(tdm_channel_attach(&c, dup(r.channel.arena.fd), dup(r.channel.exec_bell.fd),
                                        dup(r.channel.sched_bell.fd), &err),
                     TDM_ERR_CORRUPT);
    tdm_channel_close(&r.channel);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--channel") == 0) return executor_process(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_come_back_in_order_from_a_thread),
        cmocka_unit_test(plans_come_back_in_order_from_a_process),
        cmocka_unit_test(idle_time_is_offered_after_work),
        cmocka_unit_test(a_dead_executor_is_replaced_after_the_tile_let_go),
        cmocka_unit_test(a_failed_device_gives_no_result),
        cmocka_unit_test(a_life_that_nobody_took_up_is_not_ended),
        cmocka_unit_test(a_hung_executor_is_killed_when_asked),
        cmocka_unit_test(a_load_that_tells_nothing_is_killed),
        cmocka_unit_test(a_load_that_tells_progress_is_left_alone),
        cmocka_unit_test(a_load_that_was_killed_does_not_serve),
        cmocka_unit_test(silence_after_the_load_is_no_stall),
        cmocka_unit_test(loads_that_stall_again_and_again_are_a_failure),
        cmocka_unit_test(restarts_are_bounded),
        cmocka_unit_test(only_short_lives_in_a_row_lengthen_the_pause),
        cmocka_unit_test(choices_outlive_a_life_that_served),
        cmocka_unit_test(what_a_restart_cannot_mend_is_final),
        cmocka_unit_test(a_missing_program_is_a_bounded_failure),
        cmocka_unit_test(memory_of_another_build_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
