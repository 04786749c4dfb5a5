/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an executor may hang, die and come back, and streams go on with
   the same tokens or end with a reason.  Method: worlds whose clients know
   every token; death at every moment of a stream's life. */

#include "appliance/base/clock.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    live.death_max = 1000;
    world_open(&w, 3, &sizes, &live);
    return 0;
}

static void a_death_at_any_turn_changes_no_token(void **state) {
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++)
        for (uint32_t turn = 0; turn < 24; turn++) {
            tdm_sched_sizes_t sizes = world_sizes();
            tdm_sched_live_t live = world_live();
            sizes.depth = depth;
            live.token_max = 64;
            rig_teardown(NULL);
            world_open(&w, 3, &sizes, &live);
            uint32_t a = rig_ask(130, 70, 0), b = rig_ask(10, 12, 0);
            for (uint32_t i = 0; i < turn; i++) world_turn(&w);
            world_plan(&w);
            world_kill(&w);
            world_up(&w);
            assert_true(world_run(&w, 300));
            assert_int_equal(w.end[a].out_cnt, 70);
            assert_int_equal(w.end[b].out_cnt, 12);
            world_settled(&w);
        }
}

static void deaths_in_a_row_change_no_token_either(void **state) {
    (void)state;
    uint32_t a = rig_ask(200, 60, 0);
    for (uint32_t i = 0; i < 55; i++) {
        for (uint32_t k = 0; k < 2; k++) world_turn(&w);
        world_plan(&w);
        world_kill(&w);
        world_up(&w);
    }
    assert_true(world_run(&w, 300));
    assert_int_equal(w.end[a].out_cnt, 60);
    assert_true(world_stats(&w)->rebuilt_tokens > 0);
    assert_int_equal(world_stats(&w)->restart_cnt, 55);
}

static void rebuilding_goes_before_starting_and_is_named(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.depth = 1;
    live.token_max = 80;
    world_close(&w);
    world_open(&w, 3, &sizes, &live);
    uint32_t a = rig_ask(200, 30, 0);
    for (uint32_t i = 0; i < 10; i++) world_turn(&w);
    uint32_t b = rig_ask(10, 5, 0);
    world_kill(&w);
    world_up(&w);
    for (uint32_t i = 0; i < 3; i++) {
        world_turn(&w);
        assert_int_equal(w.plan->slice_cnt, 1);
        assert_int_equal(w.record.cap, i < 2 ? TDM_CAP_token_max : TDM_CAP_recovering);
    }
    world_turn(&w);
    assert_int_equal(w.plan->slice_cnt, 1);
    assert_int_equal(w.plan->decode_cnt, 1);
    assert_true(world_run(&w, 300));
    assert_int_equal(w.end[a].out_cnt, 30);
    assert_int_equal(w.end[b].out_cnt, 5);
}

static void a_late_result_of_a_dead_life_is_stale(void **state) {
    (void)state;
    uint32_t a = rig_ask(10, 20, 0);
    world_turn(&w);
    world_plan(&w);
    static tdm_result_t late;
    late = *fake_finish(&w.x, w.now_ns, w.now_ns + 1);
    world_kill(&w);
    tdm_sched_result(w.sched, w.now_ns, &late);
    world_up(&w);
    tdm_sched_result(w.sched, w.now_ns, &late);
    assert_int_equal(world_stats(&w)->reason[TDM_FAULT_executor_stale], 2);
    assert_true(world_run(&w, 50));
    assert_int_equal(w.end[a].out_cnt, 20);
    world_settled(&w);
}

static void a_hang_is_noticed_and_survived(void **state) {
    (void)state;
    uint32_t a = rig_ask(10, 20, 0);
    world_turn(&w);
    world_plan(&w);
    int64_t due = tdm_sched_watch_ns(w.sched);
    assert_true(due > w.now_ns && due < w.now_ns + TDM_NS_PER_S);
    assert_int_equal(world_watch(&w, due - 1), TDM_REASON_NONE);
    assert_int_equal(world_watch(&w, due), TDM_FAULT_executor_hang);
    assert_int_equal(world_stats(&w)->reason[TDM_FAULT_executor_hang], 1);
    assert_true(world_run(&w, 50));
    assert_int_equal(w.end[a].out_cnt, 20);
    assert_true(tdm_sched_watch_ns(w.sched) == TDM_TIME_NEVER);
}

static void the_poison_request_fails_and_its_followers_live(void **state) {
    (void)state;
    w.live.death_max = 3;
    tdm_sched_live_set(w.sched, &w.live);
    uint32_t poison = rig_ask(10, 500, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(w.end[poison].kind, 0);
        world_plan(&w);
        world_kill(&w);
        world_up(&w);
    }
    assert_int_equal(w.end[poison].finish, TDM_FINISH_ERROR);
    assert_int_equal(w.end[poison].reason, TDM_REFUSE_executor_failed);
    uint32_t next = rig_ask(10, 5, 0);
    assert_true(world_run(&w, 20));
    assert_int_equal(w.end[next].finish, TDM_FINISH_LENGTH);
    world_settled(&w);
}

static void old_deaths_and_idle_deaths_are_forgiven(void **state) {
    (void)state;
    w.live.death_max = 2;
    w.live.death_window_ns = TDM_NS_PER_S;
    tdm_sched_live_set(w.sched, &w.live);
    uint32_t a = rig_ask(10, 50, 0);
    for (uint32_t i = 0; i < 5; i++) {
        world_plan(&w);
        world_kill(&w);
        world_up(&w);
        world_kill(&w);
        world_up(&w);
        w.now_ns += 2 * TDM_NS_PER_S;
    }
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[a].out_cnt, 50);
}

static void waiting_requests_survive_a_death(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 20; i++) rig_ask(100, 10, 0);
    world_turn(&w);
    world_kill(&w);
    assert_true(world_stats(&w)->waiting_cnt > 0);
    world_up(&w);
    assert_true(world_run(&w, 300));
    for (uint32_t i = 0; i < 20; i++) assert_int_equal(w.end[i].out_cnt, 10);
}

static void an_executor_that_stays_away_ends_everyone(void **state) {
    (void)state;
    w.live.down_max_ns = TDM_NS_PER_S;
    tdm_sched_live_set(w.sched, &w.live);
    for (uint32_t i = 0; i < 20; i++) rig_ask(100, 10, 0);
    world_turn(&w);
    world_kill(&w);
    world_watch(&w, w.now_ns + TDM_NS_PER_S);
    assert_int_equal(w.live_cnt, 20);
    assert_true(tdm_sched_watch_ns(w.sched) == w.now_ns + 1);
    world_watch(&w, w.now_ns + 1);
    assert_int_equal(w.live_cnt, 0);
    for (uint32_t i = 0; i < 20; i++) assert_int_equal(w.end[i].reason, TDM_REFUSE_executor_failed);
    world_settled(&w);
}

static void cancelled_while_down_stays_cancelled(void **state) {
    (void)state;
    uint32_t a = rig_ask(100, 10, 0), b = rig_ask(100, 10, 0);
    world_turn(&w);
    world_kill(&w);
    world_control(&w, a, TDM_CONTROL_CANCEL);
    world_up(&w);
    assert_true(world_run(&w, 50));
    assert_int_equal(w.end[a].finish, TDM_FINISH_CANCELLED);
    assert_int_equal(w.end[b].out_cnt, 10);
    world_settled(&w);
}

static void time_that_goes_back_does_no_harm(void **state) {
    (void)state;
    uint32_t a = rig_ask(10, 10, 0);
    world_turn(&w);
    w.now_ns -= 500 * TDM_NS_PER_MS;
    world_check(&w);
    assert_true(world_run(&w, 30));
    assert_int_equal(w.end[a].out_cnt, 10);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_death_at_any_turn_changes_no_token),
        CASE(deaths_in_a_row_change_no_token_either),
        CASE(rebuilding_goes_before_starting_and_is_named),
        CASE(a_late_result_of_a_dead_life_is_stale),
        CASE(a_hang_is_noticed_and_survived),
        CASE(the_poison_request_fails_and_its_followers_live),
        CASE(old_deaths_and_idle_deaths_are_forgiven),
        CASE(waiting_requests_survive_a_death),
        CASE(an_executor_that_stays_away_ends_everyone),
        CASE(cancelled_while_down_stays_cancelled),
        CASE(time_that_goes_back_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
