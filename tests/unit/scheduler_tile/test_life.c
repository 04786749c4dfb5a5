/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an executor's life begins and ends for the tile as for the
   supervisor: no lane is touched between two, and what does not go on is
   to be killed.
   Method: the rig's executor; the test is the supervisor. */
#include "tests/unit/scheduler_tile/rig.h"

#include <string.h>

static void between_two_lives_no_lane_is_touched(void **state) {
    (void)state;
    rig_begin_life(1);
    rig_submit(0, 40);
    rig_run(10);
    uint32_t before = rig.got_cnt[0];
    assert_true(before > 0 && before < 40);
    rig_poll();
    tdm_store_release(&rig.life.epoch, 0u);
    rig_poll();
    while (rig_read_event()) {
    }
    assert_int_equal(rig.life.ack, 0);
    uint32_t slot;
    while (tdm_lane_pop(rig.wires.plans, &slot)) {
    }
    slot = 0;
    assert_int_equal(tdm_lane_push(rig.wires.results, &slot), 1);
    memset(rig.plan[0], 0x5a, sizeof *rig.plan[0]);
    memset(rig.plan[1], 0x5a, sizeof *rig.plan[1]);
    for (int i = 0; i < 5; i++) rig_poll();
    assert_int_equal(tdm_lane_cnt(rig.wires.plans), 0);
    assert_int_equal(tdm_lane_cnt(rig.wires.results), 1);
    assert_int_equal(*(uint8_t *)rig.plan[0], 0x5a);
    rig_submit(1, 3);
    rig_poll();
    assert_true(rig_read_event());
    assert_int_equal(rig.last[1].reason, TDM_REFUSE_executor_down);
    assert_int_equal(tdm_lane_pop(rig.wires.results, &slot), 1);
    rig_begin_life(2);
    rig_run(100);
    assert_int_equal(rig.got_cnt[0], 40);
    tdm_sched_tile_publish(rig.tile);
    assert_int_equal(rig_metric(TDM_METRIC_executor_epoch, 0), 2);
}

static void before_the_first_life_requests_are_refused_as_starting(void **state) {
    (void)state;
    rig_submit(0, 3);
    rig_poll();
    assert_true(rig_read_event());
    assert_int_equal(rig.last[0].reason, TDM_REFUSE_starting);
    assert_true(rig.last[0].retry_after_ms > 0);
}

static void a_hang_asks_for_the_kill_of_this_life(void **state) {
    (void)state;
    rig_begin_life(7);
    rig_submit(0, 30);
    rig_run(3);
    rig_poll();
    int64_t due = tdm_sched_tile_next_ns(rig.tile);
    assert_true(due != TDM_TIME_NEVER && due > rig.now_ns);
    rig.now_ns = due;
    rig_poll();
    assert_int_equal(rig.life.kill, 7);
    assert_int_equal(rig.life.kill_reason, TDM_FAULT_executor_hang);
    tdm_sched_tile_publish(rig.tile);
    assert_int_equal(rig_metric(TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_executor_hang)),
                     1);
}

static void a_slot_number_that_is_none_ends_the_executor(void **state) {
    (void)state;
    static const uint32_t bad[] = {2, UINT32_MAX, 1};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        rig_begin_life(10 + i);
        assert_int_equal(tdm_lane_push(rig.wires.results, &bad[i]), 1);
        rig_poll();
        assert_int_equal(rig.life.kill, 10 + i);
        assert_int_equal(rig.life.kill_reason, TDM_FAULT_executor_protocol);
        tdm_store_release(&rig.life.epoch, 0u);
        rig_poll();
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(between_two_lives_no_lane_is_touched),
        CASE(before_the_first_life_requests_are_refused_as_starting),
        CASE(a_hang_asks_for_the_kill_of_this_life),
        CASE(a_slot_number_that_is_none_ends_the_executor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
