/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the cap keeps its promise for any noise, answers a slow-down at
   once and forgets it, raises the alarm for a machine that left its
   profile and not for a lowered clock; and the plan follows table, policy
   and class.  Method: the cap alone on drawn times; then a world whose
   profile is a table. */

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/profile/table.h"
#include "scheduler/cap.h"
#include "tests/unit/scheduler/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_cap_t cap;

/* --- the cap alone -------------------------------------------------------- */

static double noise(tdm_rng_t *r, double sigma) {
    double u = tdm_rng_unit(tdm_rng_next(r)), v = tdm_rng_unit(tdm_rng_next(r));
    return exp(sigma * sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307 * v));
}

/* run shows n iterations whose prediction uses the whole budget of a
   100 ns limit and gives the share of tokens over it. */
static double run(tdm_rng_t *r, uint32_t n, double sigma, double slow) {
    uint32_t over = 0;
    for (uint32_t i = 0; i < n; i++) {
        double predicted = (double)tdm_cap_budget_ns(&cap, 100000000);
        double actual = predicted * slow * noise(r, sigma);
        uint32_t is_over = actual > 1e8;
        over += is_over;
        tdm_cap_sample_t x = {.predicted_ns = predicted,
                              .actual_ns = actual,
                              .host_ns = -1.0,
                              .epsilon = 0.01,
                              .decode_cnt = 10,
                              .over_cnt = is_over ? 10 : 0,
                              .prefill_cnt = 100};
        tdm_cap_learn(&cap, &x, 128);
    }
    return (double)over / n;
}

static void the_share_over_the_limit_goes_where_it_is_aimed(void **state) {
    (void)state;
    static const double sigma[] = {0.005, 0.02, 0.1, 0.3};
    for (uint32_t i = 0; i < TDM_COUNT_OF(sigma); i++) {
        tdm_rng_t r = {.state = 7 + i};
        tdm_cap_init(&cap);
        run(&r, 4000, sigma[i], 1.0);
        double share = run(&r, 60000, sigma[i], 1.0);
        if (share < 0.004 || share > 0.009) fail_msg("sigma %g: share %g", sigma[i], share);
    }
}

static void a_slow_down_is_felt_within_twenty_iterations(void **state) {
    (void)state;
    tdm_rng_t r = {.state = 1};
    tdm_cap_init(&cap);
    run(&r, 5000, 0.02, 1.0);
    assert_true(cap.quantile < 1.1);
    run(&r, 20, 0.02, 1.35);
    assert_true(cap.quantile > 1.35);
    run(&r, 5000, 0.02, 1.0);
    assert_true(cap.quantile < 1.15);
}

static void growth_is_bounded_after_a_broken_gap(void **state) {
    (void)state;
    tdm_cap_init(&cap);
    assert_int_equal(tdm_cap_token_max(&cap), UINT32_MAX);
    tdm_cap_sample_t x = {.predicted_ns = 90.0,
                          .actual_ns = 120.0,
                          .host_ns = 0.0,
                          .epsilon = 0.01,
                          .decode_cnt = 4,
                          .over_cnt = 4,
                          .prefill_cnt = 500};
    tdm_cap_learn(&cap, &x, 128);
    assert_int_equal(tdm_cap_token_max(&cap), 504);
    x.over_cnt = 0;
    x.actual_ns = 90.0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(tdm_cap_token_max(&cap), 504 + 128 * i);
        tdm_cap_learn(&cap, &x, 128);
    }
    assert_int_equal(tdm_cap_token_max(&cap), UINT32_MAX);
}

static void host_time_is_tracked_at_its_tail(void **state) {
    (void)state;
    tdm_rng_t r = {.state = 3};
    tdm_cap_init(&cap);
    tdm_cap_sample_t x = {
        .predicted_ns = 90.0, .actual_ns = 90.0, .epsilon = 0.01, .decode_cnt = 4};
    for (int i = 0; i < 20000; i++) {
        x.host_ns = tdm_rng_below(&r, 100) < 3 ? 400000.0 : 50000.0;
        tdm_cap_learn(&cap, &x, 128);
    }
    assert_true(cap.host_ns > 350000.0 && cap.host_ns < 450000.0);
}

static void drift_is_a_slow_kernel_and_not_a_slow_clock(void **state) {
    (void)state;
    tdm_cap_init(&cap);
    tdm_cap_sample_t x = {.predicted_ns = 1.0, .profile_ns = 100.0, .actual_ns = 135.0};
    for (int i = 0; i < 5000; i++) tdm_cap_learn(&cap, &x, 128);
    assert_int_equal(cap.is_drifting, 0);
    x.actual_ns = 170.0;
    int i = 0;
    for (; i < 256 && !cap.is_drifting; i++) tdm_cap_learn(&cap, &x, 128);
    assert_true(cap.is_drifting && i > 10);
    assert_int_equal(tdm_cap_token_max(&cap), TDM_CAP_DRIFT_TOK);
    x.actual_ns = 100.0;
    for (i = 0; i < 64 && cap.is_drifting; i++) tdm_cap_learn(&cap, &x, 128);
    assert_int_equal(cap.is_drifting, 0);
    x.actual_ns = 60.0; /* too good to be that kernel */
    for (i = 0; i < 256 && !cap.is_drifting; i++) tdm_cap_learn(&cap, &x, 128);
    assert_int_equal(cap.is_drifting, 1);
}

/* A core that was taken away for a moment makes one iteration a hundred times
   late, or two in a row; a dozen of them are a slow machine. */
static void a_moment_is_no_drift(void **state) {
    (void)state;
    tdm_cap_init(&cap);
    tdm_cap_sample_t usual = {.predicted_ns = 100.0, .profile_ns = 100.0, .actual_ns = 105.0};
    tdm_cap_sample_t late = {.predicted_ns = 100.0, .profile_ns = 100.0, .actual_ns = 10000.0};
    for (int i = 0; i < 5000; i++) {
        tdm_cap_learn(&cap, i % 20 < 2 ? &late : &usual, 128);
        assert_int_equal(cap.is_drifting, 0);
    }
    int i = 0;
    for (; i < 12 && !cap.is_drifting; i++) tdm_cap_learn(&cap, &late, 128);
    assert_int_equal(cap.is_drifting, 1);
}

/* --- plans over a table ------------------------------------------------------ */

static tdm_profile_table_t table;

static void open_table_world(double serial_pair_ns, double fused_pair_ns) {
    tdm_sched_sizes_t sizes = world_sizes();
    sizes.depth = 1;
    tdm_sched_live_t live = world_live();
    live.profile.row[TDM_ROUTE_FUSED].pair_ns = fused_pair_ns;
    live.profile.row[TDM_ROUTE_STREAMS].pair_ns = fused_pair_ns;
    live.profile.row[TDM_ROUTE_SERIAL].pair_ns = serial_pair_ns;
    tdm_profile_from_rows(&live.profile, &table);
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++)
        table.box[v] = (tdm_profile_box_t){4096, 131072, 256, 4 << 20};
    live.profile.table = &table;
    live.profile.is_measured = 1;
    world_open(&w, 1, &sizes, &live);
}

/* hybrid makes one iteration with a decode and a prompt. */
static void hybrid(void) {
    if (world_stats(&w)->decode_cnt == 0) {
        rig_ask(10, 900, 0);
        for (int i = 0; i < 4; i++) world_turn(&w);
    }
    rig_ask(200, 1, 0);
    world_turn(&w);
    assert_true(w.plan->slice_cnt > 0 && w.plan->decode_cnt > 0);
}

static void fused_runs_where_it_is_as_fast(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    hybrid();
    assert_int_equal(w.plan->route, TDM_ROUTE_FUSED);
    assert_int_equal(w.record.is_outside, 0);
}

static void another_route_runs_where_fusion_does_not_pay(void **state) {
    (void)state;
    open_table_world(2.0, 2000.0);
    hybrid();
    assert_int_equal(w.plan->route, TDM_ROUTE_SERIAL);
    assert_int_equal(w.plan->reason, TDM_FALLBACK_not_profitable);
    assert_int_equal(world_stats(&w)->reason[TDM_FALLBACK_not_profitable], 1);
}

static void a_shape_that_was_not_measured_is_named_and_costs_more(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    table.box[0] = (tdm_profile_box_t){0, 0, 0, 0};
    hybrid();
    assert_true(w.plan->route > TDM_ROUTE_FUSED);
    assert_int_equal(w.plan->reason, TDM_FALLBACK_bin_unverified);
    assert_int_equal(world_stats(&w)->reason[TDM_FALLBACK_bin_unverified], 1);
    uint64_t before = world_stats(&w)->outside_cnt;
    for (uint32_t v = 1; v < TDM_PROFILE_VARIANT_CNT; v++) table.box[v] = table.box[0];
    hybrid();
    assert_int_equal(w.record.is_outside, 1);
    assert_int_equal(world_stats(&w)->outside_cnt, before + 1);
}

static void a_machine_that_left_its_profile_runs_serial_and_small(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    w.slow = 1.9;
    for (int i = 0; i < 100 && !world_stats(&w)->is_drifting; i++) hybrid();
    assert_int_equal(world_stats(&w)->is_drifting, 1);
    assert_int_equal(world_stats(&w)->drift_cnt, 1);
    hybrid();
    assert_int_equal(w.plan->route, TDM_ROUTE_SERIAL);
    assert_int_equal(w.plan->reason, TDM_FALLBACK_bin_unverified);
    assert_true(w.plan->token_cnt + w.plan->decode_cnt <= TDM_CAP_DRIFT_TOK);
    assert_true(world_stats(&w)->reason[TDM_FALLBACK_bin_unverified] > 0);
    w.slow = 1.0;
    for (int i = 0; i < 100 && world_stats(&w)->is_drifting; i++) hybrid();
    hybrid();
    assert_int_equal(w.plan->route, TDM_ROUTE_FUSED);
}

static void a_lowered_clock_explains_a_slow_machine(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    tdm_sched_clock_ratio(w.sched, 1.0 / 1.9);
    w.slow = 1.9;
    for (int i = 0; i < 100; i++) hybrid();
    assert_int_equal(world_stats(&w)->is_drifting, 0);
    assert_true(world_stats(&w)->correction > 1.8);
}

/* The kernels count a clock of half the profile's: that is why all takes twice
   as long, and nobody is alarmed. */
static void the_clock_that_results_tell_explains_a_slow_machine(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    table.clock_khz = 1.6e6;
    w.x.sm_clock_khz = 850000;
    w.slow = 1.9;
    for (int i = 0; i < 600; i++) hybrid();
    assert_int_equal(world_stats(&w)->drift_cnt, 0);
    assert_true(world_stats(&w)->correction > 1.8);
}

/* A clock that lies, either way, hides no slow machine, alarms over no good one,
   and leaves the promise alone: the correction follows the times. */
static void a_clock_that_lies_changes_no_promise(void **state) {
    (void)state;
    static const uint32_t lie_khz[] = {1, UINT32_MAX, 0};
    for (uint32_t i = 0; i < 3; i++) {
        open_table_world(2.0, 2.0);
        table.clock_khz = 1.6e6;
        w.x.sm_clock_khz = lie_khz[i];
        for (int k = 0; k < 600; k++) hybrid();
        assert_int_equal(world_stats(&w)->drift_cnt, 0);
        double before = world_stats(&w)->correction;
        assert_true(before > 0.5 && before < 1.5);
        w.slow = 4.0;
        for (int k = 0; k < 600; k++) hybrid();
        assert_true(world_stats(&w)->drift_cnt > 0);
        assert_true(world_stats(&w)->correction > 3.0);
        world_close(&w);
    }
    open_table_world(2.0, 2.0); /* rig_teardown closes one */
}

static void a_static_policy_takes_its_tokens_whatever_the_time(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    w.live.policy = TDM_POLICY_STATIC;
    w.live.token_max = 96;
    w.live.class_of[0].gap_ns = TDM_NS_PER_US;
    tdm_sched_live_set(w.sched, &w.live);
    hybrid();
    assert_int_equal(w.plan->token_cnt + w.plan->decode_cnt, 96);
    assert_int_equal(w.record.cap, TDM_CAP_token_max);
    assert_true(w.record.over_cnt > 0);
    assert_true(world_stats(&w)->gap_over_cnt > 0);
}

static void a_margin_is_taken_off_the_limit(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    uint32_t cnt[2];
    for (uint32_t i = 0; i < 2; i++) {
        w.live.policy = TDM_POLICY_MARGIN;
        w.live.margin = i == 0 ? 1.0 : 1.5;
        w.live.class_of[0].gap_ns = 10 * TDM_NS_PER_MS;
        tdm_sched_live_set(w.sched, &w.live);
        hybrid();
        cnt[i] = w.plan->token_cnt;
        assert_int_equal(world_run(&w, 2000), 1);
    }
    assert_true(cnt[0] > cnt[1] && cnt[1] > 0);
}

static void a_cut_iteration_has_whole_grid_steps(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    w.live.grid_tok = 32;
    w.live.class_of[0].gap_ns = 9 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    hybrid();
    assert_int_equal(w.record.cap, TDM_CAP_time_limit);
    assert_int_equal((w.plan->token_cnt + w.plan->decode_cnt) % 32, 0);
}

/* stair makes rows past 128 cost factor as much in the linear part. */
static void stair(float factor) {
    for (uint32_t i = 0; i < TDM_PROFILE_LIN_CNT; i++)
        if (table.lin_at[i] > 128.0f) table.lin_ns[i] *= factor;
    tdm_sched_live_set(w.sched, &w.live);
}

static void what_is_not_worth_its_time_waits(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    hybrid();
    assert_int_equal(w.plan->token_cnt, 200);
    assert_int_equal(w.record.is_thrifty, 0);
    stair(2.0f);
    hybrid();
    assert_int_equal(w.plan->token_cnt + w.plan->decode_cnt, 128);
    assert_int_equal(w.record.cap, TDM_CAP_time_limit);
    assert_int_equal(w.record.is_thrifty, 1);
    assert_int_equal(world_stats(&w)->thrift_cnt, 1);
    world_turn(&w);
    assert_int_equal(w.plan->token_cnt, 200 - 127); /* and comes with the next */
}

static void nobody_waits_for_what_nothing_decodes_beside(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    stair(2.0f);
    rig_ask(200, 1, 0);
    world_turn(&w);
    assert_int_equal(w.plan->token_cnt, 200);
    for (uint32_t policy = TDM_POLICY_MARGIN; policy < TDM_POLICY_CNT; policy++) {
        w.live.policy = policy;
        tdm_sched_live_set(w.sched, &w.live);
        hybrid();
        assert_int_equal(w.plan->token_cnt, 200);
    }
    assert_int_equal(world_stats(&w)->thrift_cnt, 0);
}

static void a_buffered_client_lends_its_slack(void **state) {
    (void)state;
    open_table_world(2.0, 2.0);
    w.live.class_of[1].gap_ns = 40 * TDM_NS_PER_MS;
    w.live.class_of[1].burst_ns = 200 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(10, 100, 1);
    int64_t widest = 0;
    for (int i = 0; i < 60; i++) {
        world_turn(&w);
        if (w.plan->decode_cnt == 0) continue;
        assert_true(w.plan->limit_ns <= 200 * TDM_NS_PER_MS);
        widest = TDM_MAX(widest, w.plan->limit_ns);
    }
    assert_true(widest > 150 * TDM_NS_PER_MS); /* 5 ms iterations: slack adds up */
    rig_ask(10, 100, 0);
    for (int i = 0; i < 3; i++) world_turn(&w);
    assert_true(w.plan->limit_ns <= 200 * TDM_NS_PER_MS);
    assert_true(w.plan->limit_ns <= w.live.class_of[0].gap_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_share_over_the_limit_goes_where_it_is_aimed),
        cmocka_unit_test(a_slow_down_is_felt_within_twenty_iterations),
        cmocka_unit_test(growth_is_bounded_after_a_broken_gap),
        cmocka_unit_test(host_time_is_tracked_at_its_tail),
        cmocka_unit_test(drift_is_a_slow_kernel_and_not_a_slow_clock),
        cmocka_unit_test(a_moment_is_no_drift),
        cmocka_unit_test_teardown(fused_runs_where_it_is_as_fast, rig_teardown),
        cmocka_unit_test_teardown(another_route_runs_where_fusion_does_not_pay, rig_teardown),
        cmocka_unit_test_teardown(a_shape_that_was_not_measured_is_named_and_costs_more,
                                  rig_teardown),
        cmocka_unit_test_teardown(a_machine_that_left_its_profile_runs_serial_and_small,
                                  rig_teardown),
        cmocka_unit_test_teardown(a_lowered_clock_explains_a_slow_machine, rig_teardown),
        cmocka_unit_test_teardown(the_clock_that_results_tell_explains_a_slow_machine,
                                  rig_teardown),
        cmocka_unit_test_teardown(a_clock_that_lies_changes_no_promise, rig_teardown),
        cmocka_unit_test_teardown(a_static_policy_takes_its_tokens_whatever_the_time, rig_teardown),
        cmocka_unit_test_teardown(a_margin_is_taken_off_the_limit, rig_teardown),
        cmocka_unit_test_teardown(a_cut_iteration_has_whole_grid_steps, rig_teardown),
        cmocka_unit_test_teardown(what_is_not_worth_its_time_waits, rig_teardown),
        cmocka_unit_test_teardown(nobody_waits_for_what_nothing_decodes_beside, rig_teardown),
        cmocka_unit_test_teardown(a_buffered_client_lends_its_slack, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
