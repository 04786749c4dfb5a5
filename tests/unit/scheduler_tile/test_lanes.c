/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the tile loses nothing between lanes and scheduler: every request
   answered in one poll, no cancel before its submit, no event lost to a
   full lane.
   Method: the rig's lanes, one of them small. */
#include "tests/unit/scheduler_tile/rig.h"

#include <string.h>

static void a_request_is_answered_within_one_poll_while_an_iteration_runs(void **state) {
    (void)state;
    rig_begin_life(1);
    rig_submit(0, 50);
    rig_poll();
    assert_int_equal(tdm_lane_cnt(rig.wires.plans), 2);
    rig_read_event();
    for (uint32_t i = 1; i < 5; i++) {
        rig_submit(i, 5);
        rig_poll();
        assert_true(rig_read_event());
        assert_int_equal(rig.last[i].kind, TDM_EVENT_ACCEPTED);
    }
    rig_run(100);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(rig.last[i].finish, TDM_FINISH_LENGTH);
    assert_int_equal(rig.got_cnt[0], 50);
    assert_int_equal(tdm_sched_tile_pending(rig.tile), 0);
}

static void a_cancel_never_overtakes_its_submit(void **state) {
    (void)state;
    rig_begin_life(1);
    for (uint32_t i = 0; i < 4; i++) {
        rig_submit(i, 5);
        rig_control(i, TDM_CONTROL_CANCEL);
    }
    rig_run(10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rig.last[i].kind, TDM_EVENT_END);
        assert_int_equal(rig.last[i].finish, TDM_FINISH_CANCELLED);
    }
    assert_int_equal(
        rig_metric(TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_stale_handle)), 0);
}

static void a_full_event_lane_loses_nothing(void **state) {
    (void)state;
    rig_begin_life(1);
    for (uint32_t i = 0; i < 8; i++) rig_submit(i, 30);
    for (uint32_t turn = 0; turn < 2000; turn++) {
        rig_poll();
        rig_execute();
        if (turn % 3 == 0) rig_read_event();
        assert_true(tdm_lane_cnt(rig.events.lane[0]) <= RIG_EVENTS);
    }
    assert_true(tdm_ring_full_cnt(&rig.events) > 0);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(rig.got_cnt[i], 30);
        assert_int_equal(rig.last[i].kind, TDM_EVENT_END);
    }
}

static void a_waiting_event_is_retried_soon(void **state) {
    (void)state;
    rig_begin_life(1);
    for (uint32_t i = 0; i < 8; i++) rig_submit(i, 5);
    rig_poll();
    int64_t next = tdm_sched_tile_next_ns(rig.tile);
    assert_true(next > rig.now_ns && next <= rig.now_ns + TDM_NS_PER_MS);
    rig_run(100);
    assert_true(tdm_sched_tile_next_ns(rig.tile) == TDM_TIME_NEVER);
}

static void drain_refuses_and_pending_reaches_zero(void **state) {
    (void)state;
    rig_begin_life(1);
    rig_submit(0, 10);
    rig_poll();
    rig_read_event();
    assert_int_equal(tdm_sched_tile_pending(rig.tile), 1);
    tdm_sched_tile_drain_set(rig.tile, 1);
    rig_submit(1, 10);
    rig_run(30);
    assert_int_equal(rig.last[1].reason, TDM_REFUSE_draining);
    assert_int_equal(rig.got_cnt[0], 10);
    assert_int_equal(tdm_sched_tile_pending(rig.tile), 0);
}

static void a_live_change_is_taken_once_and_a_second_waits(void **state) {
    (void)state;
    rig_begin_life(1);
    rig.live.token_max = 8;
    rig.live.floor_cnt = 8;
    rig.live.revision = 2;
    assert_int_equal(tdm_sched_tile_live_set(rig.tile, &rig.live, NULL), TDM_OK);
    assert_int_equal(tdm_sched_tile_live_set(rig.tile, &rig.live, NULL), TDM_ERR_FULL);
    rig_submit(0, 2);
    rig_poll();
    assert_int_equal(rig.plan[0]->token_cnt, 8);
    assert_int_equal(tdm_sched_tile_live_set(rig.tile, &rig.live, NULL), TDM_OK);
    rig.live.token_max = 0;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_live_set(rig.tile, &rig.live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "token_max"));
}

static void a_result_taken_is_progress(void **state) {
    (void)state;
    rig_begin_life(1);
    rig_submit(0, 2);
    rig_poll();
    assert_int_equal(tdm_sched_tile_progress_ns(rig.tile), 0);
    assert_true(rig_execute());
    rig.now_ns += TDM_NS_PER_S;
    rig_poll();
    assert_int_equal(tdm_sched_tile_progress_ns(rig.tile), rig.now_ns);
}

static void a_missing_wire_is_named_at_start(void **state) {
    (void)state;
    tdm_sched_tile_wires_t broken = rig.wires;
    broken.events[0] = NULL;
    tdm_sched_tile_t *out = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_tile_create(rig_own(tdm_sched_tile_footprint(&rig.sizes)),
                                           &rig.sizes, &rig.live, &broken, &out, &err),
                     TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "wire"));
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_request_is_answered_within_one_poll_while_an_iteration_runs),
        CASE(a_cancel_never_overtakes_its_submit),
        CASE(a_full_event_lane_loses_nothing),
        CASE(a_waiting_event_is_retried_soon),
        CASE(drain_refuses_and_pending_reaches_zero),
        CASE(a_live_change_is_taken_once_and_a_second_waits),
        CASE(a_result_taken_is_progress),
        CASE(a_missing_wire_is_named_at_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
