/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a planted cause is named, alone and in plain words, and a quiet
   house has no finding.
   Method: one snapshot before, one cause put into a block, one after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "telemetry/read/diagnose.h"

#include <string.h>

static tdm_block_t block;
static const tdm_block_t *const blocks[] = {&block};
static tdm_snapshot_t before, after;
static tdm_finding_t found[TDM_FINDING_MAX];

#define S  UINT64_C(1000000000)
#define MS UINT64_C(1000000)

static uint32_t turn(uint32_t tile, uint32_t state) {
    return tdm_series2(TDM_METRIC_tile_seconds_total, tile, state);
}

/* A house that has served for a while, all well. */
static int setup(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    tdm_gauge_set(&block, TDM_METRIC_state, TDM_LABEL_STATE_ready, 1);
    tdm_gauge_set(&block, TDM_METRIC_ring_capacity_entries, TDM_LABEL_RING_request, 16);
    tdm_gauge_set(&block, TDM_METRIC_kv_usage_ratio, 0, 400000);
    tdm_gauge_set(&block, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_iteration, 16384);
    tdm_count(&block, TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fused, 1000);
    tdm_count(&block, TDM_METRIC_faults_total, 0, 3); /* long ago */
    tdm_snapshot_take(&before, blocks, 1, 0);
    for (uint32_t t = 0; t < TDM_LABEL_CNT_TILE; t++) {
        tdm_count(&block, TDM_METRIC_tile_seconds_total, turn(t, TDM_LABEL_TURN_busy), 2 * S);
        tdm_count(&block, TDM_METRIC_tile_seconds_total, turn(t, TDM_LABEL_TURN_idle), 8 * S);
        tdm_gauge_set(&block, TDM_METRIC_tile_turn_max_seconds, t, 3 * MS);
    }
    tdm_count(&block, TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fused, 100);
    tdm_count(&block, TDM_METRIC_requests_total, 0, 100);
    return 0;
}

static uint32_t diagnose(void) {
    tdm_snapshot_take(&after, blocks, 1, 10 * (int64_t)S);
    return tdm_diagnose(&before, &after, found);
}

/* again begins the next window with what stands now. */
static void again(void) {
    tdm_snapshot_take(&before, blocks, 1, 0);
    for (uint32_t t = 0; t < TDM_LABEL_CNT_TILE; t++)
        tdm_count(&block, TDM_METRIC_tile_seconds_total, turn(t, TDM_LABEL_TURN_idle), 10 * S);
}

static void only(const char *cause, tdm_gravity_t gravity, const char *text) {
    uint32_t n = diagnose();
    if (n != 1) fail_msg("%u findings, the first: %s", n, n ? found[0].text : "-");
    assert_string_equal(found[0].cause, cause);
    assert_int_equal(found[0].gravity, gravity);
    if (!strstr(found[0].text, text)) fail_msg("%s: %s", cause, found[0].text);
}

static void a_quiet_house_has_no_finding(void **state) {
    (void)state;
    assert_int_equal(diagnose(), 0);
}

static void a_slow_tile_is_named(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_tile_turn_max_seconds, TDM_LABEL_TILE_sched, 120 * MS);
    only("tile", TDM_GRAVITY_WARNING, "tile sched is slow: one turn took 120 ms");
}

static void a_tile_without_rest_is_named(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_tile_seconds_total, turn(TDM_LABEL_TILE_api, TDM_LABEL_TURN_busy),
              190 * S);
    only("tile", TDM_GRAVITY_WARNING, "tile api has no rest: busy 96 % of the time");
}

static void a_power_cap_is_named(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_executor_sm_clock_max_hertz, 0, 1980 * MS);
    tdm_gauge_set(&block, TDM_METRIC_executor_sm_clock_hertz, 0, 1755 * MS);
    assert_int_equal(diagnose(), 0); /* boost of another load */
    tdm_gauge_set(&block, TDM_METRIC_executor_sm_clock_hertz, 0, 1200 * MS);
    only("power", TDM_GRAVITY_WARNING, "run at 1200 MHz, 1980 MHz before: a power or thermal cap");
}

static void errors_of_the_gpu_are_named(void **state) {
    (void)state;
    tdm_metric_t ecc = TDM_METRIC_gpu_ecc_errors_total;
    tdm_tell(&block, TDM_METRIC_gpu_xid_errors_total, 0, 1 + 3);
    tdm_tell(&block, ecc, TDM_LABEL_ECC_uncorrected, 1 + 1);
    assert_int_equal(diagnose(), 0); /* first told in this window: how old they are is not known */
    again();
    assert_int_equal(diagnose(), 0); /* and none since */
    tdm_tell(&block, TDM_METRIC_gpu_xid_errors_total, 0, 1 + 5);
    tdm_tell(&block, TDM_METRIC_gpu_xid_last, 0, 1 + 43);
    only("xid", TDM_GRAVITY_WARNING, "2 errors of the GPU, the last one Xid 43");
    again();
    tdm_tell(&block, ecc, TDM_LABEL_ECC_uncorrected, 1 + 2);
    only("ecc", TDM_GRAVITY_CRITICAL, "1 uncorrected memory errors of the GPU");
    again();
    tdm_tell(&block, TDM_METRIC_gpu_lost, 0, 1 + 1);
    only("gpu", TDM_GRAVITY_CRITICAL, "gone or wants a reset");
}

static void clocks_that_are_held_down_are_named_with_the_cause(void **state) {
    (void)state;
    tdm_metric_t held = TDM_METRIC_gpu_throttle_seconds_total;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_THROTTLE; i++) tdm_tell(&block, held, i, 1);
    tdm_tell(&block, TDM_METRIC_gpu_power_limit_watts, 0, 1 + 350000);
    again();
    tdm_tell(&block, held, TDM_LABEL_THROTTLE_power, 1 + 4 * S);
    assert_int_equal(diagnose(), 0);
    tdm_tell(&block, held, TDM_LABEL_THROTTLE_power, 1 + 8 * S);
    only("power", TDM_GRAVITY_WARNING,
         "held down for 80 % of the time, cause power; its power limit is 350 W");
}

static void an_unconfirmed_configuration_is_named(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_config_revision, 0, 7);
    tdm_gauge_set(&block, TDM_METRIC_config_confirm_seconds, 0, 9 * S);
    only("config", TDM_GRAVITY_NOTICE, "revision 7 awaits its confirmation and goes back in 9 s");
}

static void a_small_ring_is_named(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_ring_enqueue_failures_total, TDM_LABEL_RING_request, 7);
    only("ring", TDM_GRAVITY_WARNING, "ring request was full 7 times (it holds 16)");
}

static void a_fallback_storm_is_named_with_its_reason(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fallback, 300);
    tdm_count(&block, TDM_METRIC_fallbacks_total, tdm_label_reason(TDM_FALLBACK_operator), 2);
    tdm_count(&block, TDM_METRIC_fallbacks_total, tdm_label_reason(TDM_FALLBACK_bin_unverified),
              298);
    only("fallback", TDM_GRAVITY_WARNING,
         "300 of 400 hybrid iterations were not fused, most for bin_unverified: the shape lies");
}

static void pages_that_ran_out_are_named_where_somebody_waits(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_kv_usage_ratio, 0, 990000);
    assert_int_equal(diagnose(), 0);
    tdm_gauge_set(&block, TDM_METRIC_queue_requests,
                  tdm_series2(TDM_METRIC_queue_requests, 1, TDM_LABEL_QUEUE_waiting), 4);
    only("kv", TDM_GRAVITY_WARNING, "KV pages are used up (99 %) and 4 requests wait");
}

/* Who runs is promised pages that he does not use yet: most of them are free
   where requests already wait for some. */
static void what_holds_those_who_wait_is_named(void **state) {
    (void)state;
    tdm_metric_t limited = TDM_METRIC_sched_chunk_limited_total;
    tdm_gauge_set(&block, TDM_METRIC_queue_requests,
                  tdm_series2(TDM_METRIC_queue_requests, 1, TDM_LABEL_QUEUE_waiting), 28);
    tdm_count(&block, limited, tdm_label_reason(TDM_CAP_time_limit), 600);
    assert_int_equal(diagnose(), 0); /* time is short: what is late tells so */
    tdm_count(&block, limited, tdm_label_reason(TDM_CAP_kv_pages), 700);
    only("kv", TDM_GRAVITY_WARNING,
         "KV pages are promised to what runs (40 % in use) and 28 requests wait for some");
    again();
    tdm_count(&block, limited, tdm_label_reason(TDM_CAP_slots), 700);
    only("slots", TDM_GRAVITY_WARNING,
         "all sequence slots are in use (sched.sequences) and 28 requests wait for one");
    again();
    tdm_gauge_set(&block, TDM_METRIC_queue_requests,
                  tdm_series2(TDM_METRIC_queue_requests, 1, TDM_LABEL_QUEUE_waiting), 0);
    tdm_count(&block, limited, tdm_label_reason(TDM_CAP_kv_pages), 700);
    assert_int_equal(diagnose(), 0); /* nobody waits any more */
}

static void a_standstill_is_named_before_its_watchdog_ends_it(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_stalled_seconds, 0, 1 * S);
    assert_int_equal(diagnose(), 0); /* a long iteration */
    tdm_gauge_set(&block, TDM_METRIC_stalled_seconds, 0, 12 * S);
    only("stalled", TDM_GRAVITY_CRITICAL, "nothing has moved for 12 s, and requests are pending");
}

static void a_data_port_that_carries_nothing_is_named(void **state) {
    (void)state;
    assert_int_equal(diagnose(), 0); /* there is none */
    tdm_gauge_set(&block, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_total, 2048);
    only("port", TDM_GRAVITY_CRITICAL, "the data port has no carrier");
    tdm_gauge_set(&block, TDM_METRIC_net_link_up, 0, 1);
    assert_int_equal(diagnose(), 0);
    tdm_gauge_set(&block, TDM_METRIC_net_tx_stuck, 0, 1);
    only("port", TDM_GRAVITY_CRITICAL, "the data port takes no frame");
}

/* Late tokens are told with where the time went. */
static void a_broken_promise_is_told_with_its_cause(void **state) {
    (void)state;
    tdm_metric_t m = TDM_METRIC_slo_requests_total, target = TDM_METRIC_slo_target_seconds,
                 g = TDM_METRIC_slo_gaps_total;
    tdm_gauge_set(&block, target, tdm_series2(target, 1, TDM_LABEL_TARGET_ttft), 300 * MS);
    tdm_gauge_set(&block, target, tdm_series2(target, 1, TDM_LABEL_TARGET_tpot), 20 * MS);
    for (int i = 0; i < 100; i++) {
        tdm_observe(&block, TDM_METRIC_queue_seconds, 0, 1240 * MS);
        tdm_observe(&block, TDM_METRIC_prefill_seconds, 0, 180 * MS);
        tdm_observe(&block, TDM_METRIC_iteration_seconds, 0, (i < 90 ? 10 : 45) * MS);
    }
    tdm_count(&block, TDM_METRIC_sched_chunk_limited_total, tdm_label_reason(TDM_CAP_time_limit),
              90);
    tdm_count(&block, m, tdm_series3(m, 1, TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_missed), 20);
    only("slo", TDM_GRAVITY_CRITICAL,
         "20 of 20 streams of class standard missed the promised ttft of 300 ms: 1240 ms of queue "
         "and 180 ms of prefill on average, most held by time_limit");
    again();
    /* each stream's mean keeps the promise; a gap in twenty does not */
    tdm_count(&block, m, tdm_series3(m, 1, TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_met), 20);
    tdm_count(&block, g, tdm_series2(g, 1, TDM_LABEL_RESULT_met), 1900);
    tdm_count(&block, g, tdm_series2(g, 1, TDM_LABEL_RESULT_missed), 4);
    assert_int_equal(diagnose(), 0);
    tdm_count(&block, g, tdm_series2(g, 1, TDM_LABEL_RESULT_missed), 96);
    for (int i = 0; i < 100; i++)
        tdm_observe(&block, TDM_METRIC_iteration_seconds, 0, (i < 90 ? 10 : 45) * MS);
    only("slo", TDM_GRAVITY_CRITICAL,
         "100 of 2000 gaps between tokens of class standard were over the promised 20 ms: one "
         "iteration in a hundred takes");
    again();
    /* where the mean is over it, that says it all */
    tdm_count(&block, m, tdm_series3(m, 1, TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_missed), 20);
    tdm_count(&block, g, tdm_series2(g, 1, TDM_LABEL_RESULT_missed), 900);
    tdm_observe(&block, TDM_METRIC_iteration_seconds, 0, 45 * MS);
    only("slo", TDM_GRAVITY_CRITICAL,
         "20 of 20 streams of class standard missed the promised tpot of 20 ms: an iteration takes "
         "45.0 ms on average");
}

static void lost_packets_are_named_and_nonsense_from_outside_is_not(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_udp_port), 500);
    assert_int_equal(diagnose(), 0);
    tdm_count(&block, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_no_mbuf), 5);
    only("drop", TDM_GRAVITY_WARNING, "5 packets lost, no_mbuf: the packet pool was empty");
}

static void refusals_and_broken_promises_come_first(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_tile_turn_max_seconds, TDM_LABEL_TILE_net, 60 * MS);
    tdm_count(&block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, 0, 0, TDM_LABEL_OUTCOME_rejected), 50);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_waiting_full), 50);
    tdm_metric_t m = TDM_METRIC_slo_requests_total;
    tdm_count(&block, m, tdm_series3(m, 2, TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_met), 80);
    tdm_count(&block, m, tdm_series3(m, 2, TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_missed), 20);
    assert_int_equal(diagnose(), 3);
    assert_string_equal(found[0].cause, "refusal");
    assert_non_null(
        strstr(found[0].text, "50 of 150 requests were refused, most for waiting_full"));
    assert_string_equal(found[1].cause, "slo");
    assert_non_null(
        strstr(found[1].text, "20 of 100 streams of class batch missed the promised ttft"));
    assert_string_equal(found[2].cause, "tile");
}

/* One client that asks wrongly makes no appliance ill. */
static void what_clients_ask_wrongly_is_theirs(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, 0, 0, TDM_LABEL_OUTCOME_rejected), 50);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_bad_value), 30);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_auth), 20);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_client_gone), 900);
    only("refusal", TDM_GRAVITY_NOTICE,
         "50 of 150 requests were refused for what they asked, most for bad_value");
    /* nor does one that asks more often than its key may */
    tdm_count(&block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, 0, 0, TDM_LABEL_OUTCOME_rejected), 400);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_tenant_rate), 400);
    only("refusal", TDM_GRAVITY_NOTICE,
         "450 of 550 requests were refused for what they asked, most for tenant_rate");
}

/* Who drains an appliance under load is not woken for it; who else is refused
   meanwhile is told as ever. */
static void a_drain_under_load_is_no_emergency(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, 0, 0, TDM_LABEL_OUTCOME_rejected), 900);
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_draining), 900);
    only("refusal", TDM_GRAVITY_NOTICE, "900 of 1000 requests were refused, most for draining");
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_waiting_full), 100);
    assert_int_equal(diagnose(), 2);
    assert_int_equal(found[0].gravity, TDM_GRAVITY_CRITICAL);
    assert_non_null(strstr(found[0].text, "100 of 1000 requests were refused, most for waiting"));
}

static void a_house_without_a_recorder_says_so(void **state) {
    (void)state;
    tdm_gauge_set(&block, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_iteration, 0);
    only("flight", TDM_GRAVITY_NOTICE, "no flight recorder");
}

static void clients_that_are_turned_away_at_a_door_are_named(void **state) {
    (void)state;
    tdm_count(&block, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1, 40);
    only("connections", TDM_GRAVITY_WARNING, "40 HTTP/1.1 connections were turned away");
    tdm_count(&block, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_quic_connection_limit),
              7);
    assert_int_equal(diagnose(), 2);
    assert_non_null(strstr(found[0].text, "7 times an HTTP/3 connection was turned away"));
    /* A door's own refusals are among no api tile's requests. */
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_exchange_limit), 400);
    assert_int_equal(diagnose(), 3);
    assert_int_equal(found[0].gravity, TDM_GRAVITY_CRITICAL);
    assert_non_null(strstr(found[0].text, "were refused, most for exchange_limit"));
}

static void a_stale_profile_faults_and_states_are_named(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) tdm_observe(&block, TDM_METRIC_prediction_ratio, 0, 1900000);
    only("profile", TDM_GRAVITY_NOTICE, "times their prediction: measure the profile anew");
    tdm_gauge_set(&block, TDM_METRIC_state, TDM_LABEL_STATE_ready, 0);
    tdm_gauge_set(&block, TDM_METRIC_state, TDM_LABEL_STATE_failed, 1);
    tdm_count(&block, TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_executor_hang), 2);
    assert_int_equal(diagnose(), 3);
    assert_string_equal(found[0].cause, "executor");
    assert_non_null(strstr(found[1].text, "2 times executor_hang"));
}

static void there_are_never_more_than_fit(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_FAULT; i++)
        tdm_count(&block, TDM_METRIC_faults_total, i, 1);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_RING; i++)
        tdm_count(&block, TDM_METRIC_ring_enqueue_failures_total, i, 1);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_TILE; i++)
        tdm_gauge_set(&block, TDM_METRIC_tile_turn_max_seconds, i, S);
    assert_int_equal(diagnose(), TDM_FINDING_MAX);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        CASE(a_quiet_house_has_no_finding),
        CASE(a_slow_tile_is_named),
        CASE(a_tile_without_rest_is_named),
        CASE(a_power_cap_is_named),
        CASE(errors_of_the_gpu_are_named),
        CASE(clocks_that_are_held_down_are_named_with_the_cause),
        CASE(an_unconfirmed_configuration_is_named),
        CASE(a_small_ring_is_named),
        CASE(a_fallback_storm_is_named_with_its_reason),
        CASE(pages_that_ran_out_are_named_where_somebody_waits),
        CASE(what_holds_those_who_wait_is_named),
        CASE(a_standstill_is_named_before_its_watchdog_ends_it),
        CASE(a_data_port_that_carries_nothing_is_named),
        CASE(a_broken_promise_is_told_with_its_cause),
        CASE(lost_packets_are_named_and_nonsense_from_outside_is_not),
        CASE(refusals_and_broken_promises_come_first),
        CASE(what_clients_ask_wrongly_is_theirs),
        CASE(a_drain_under_load_is_no_emergency),
        CASE(a_house_without_a_recorder_says_so),
        CASE(clients_that_are_turned_away_at_a_door_are_named),
        CASE(a_stale_profile_faults_and_states_are_named),
        CASE(there_are_never_more_than_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
