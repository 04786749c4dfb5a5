/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the status document is JSON, whatever the facts say, and its
   numbers are the snapshot's.  Method: read back with jansson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "telemetry/read/journey.h"
#include "telemetry/read/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static tdm_block_t block;
static const tdm_block_t *const blocks[] = {&block};
static tdm_snapshot_t snap;
static const tdm_status_span_t whole = {.now = &snap};
static char text[65536];

static json_t *status_of(const tdm_fact_t *fact, uint32_t fact_cnt) {
    size_t sz = 0;
    tdm_snapshot_take(&snap, blocks, 1, INT64_C(15250000000));
    assert_int_equal(
        tdm_status_json(&whole, INT64_C(5000000000), fact, fact_cnt, text, sizeof text, &sz),
        TDM_OK);
    json_error_t err;
    json_t *doc = json_loadb(text, sz, JSON_REJECT_DUPLICATES, &err);
    if (!doc) fail_msg("%s at %d: %.80s", err.text, err.position, text + err.position);
    return doc;
}

/* at walks "a.b.c" and gives the integer there. */
static int64_t at(const json_t *doc, const char *path) {
    char key[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        assert_true(n < sizeof key);
        memcpy(key, path, n);
        key[n] = '\0';
        doc = json_object_get(doc, key);
        if (!doc) fail_msg("no member %s", key);
        path += n + (path[n] == '.');
    }
    assert_true(json_is_integer(doc));
    return json_integer_value(doc);
}

static void an_empty_appliance_has_a_status(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    json_t *doc = status_of(NULL, 0);
    assert_string_equal(json_string_value(json_object_get(doc, "state")), "unknown");
    assert_true(json_real_value(json_object_get(doc, "uptime_s")) == 10.25);
    assert_int_equal(at(doc, "iterations.fused"), 0);
    assert_int_equal(json_object_size(json_object_get(doc, "refusals")), 0);
    assert_int_equal(json_array_size(json_object_get(doc, "rings")), TDM_LABEL_CNT_RING);
    json_decref(doc);
}

static void numbers_are_the_snapshots(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    tdm_gauge_set(&block, TDM_METRIC_state, TDM_LABEL_STATE_ready, 1);
    for (uint32_t c = 0; c < 3; c++) {
        tdm_count(&block, TDM_METRIC_requests_total,
                  tdm_series3(TDM_METRIC_requests_total, c, c, TDM_LABEL_OUTCOME_length), 2);
        tdm_gauge_set(&block, TDM_METRIC_queue_requests,
                      tdm_series2(TDM_METRIC_queue_requests, c, TDM_LABEL_QUEUE_running), 4);
    }
    tdm_count(&block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_bad_json), 9);
    tdm_count(&block, TDM_METRIC_fallbacks_total, tdm_label_reason(TDM_FALLBACK_head_dim), 8);
    tdm_count(&block, TDM_METRIC_vcta_total, TDM_LABEL_OP_decode, 77);
    tdm_count(&block, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_ip_ttl), 5);
    tdm_observe(&block, TDM_METRIC_ttft_seconds, 0, TDM_MS(4));
    tdm_count(&block, TDM_METRIC_tile_iterations_total,
              tdm_series2(TDM_METRIC_tile_iterations_total, TDM_LABEL_SHAPE_128x64,
                          TDM_LABEL_SPLIT_split),
              6);
    json_t *doc = status_of(NULL, 0);
    assert_string_equal(json_string_value(json_object_get(doc, "state")), "ready");
    assert_int_equal(at(doc, "requests.length"), 6);
    assert_int_equal(at(doc, "requests.running"), 12);
    assert_int_equal(at(doc, "refusals.bad_json"), 9);
    assert_int_equal(at(doc, "fallbacks.head_dim"), 8);
    assert_int_equal(at(doc, "vcta.executed.decode"), 77);
    assert_int_equal(at(doc, "net.drops.ip_ttl"), 5);
    assert_int_equal(at(doc, "cta_tiles.128x64.split"), 6);
    assert_int_equal(json_object_size(json_object_get(doc, "cta_tiles")), 1);
    assert_int_equal(at(doc, "latency.ttft_ms.count"), 1);
    assert_int_equal(at(doc, "latency.ttft_ms.mean"), 4);
    assert_int_equal(at(doc, "journey.vcta_executed_decode"), 77);
    json_decref(doc);
}

static void stages_have_shares_once_they_were_timed(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    json_t *doc = status_of(NULL, 0);
    assert_true(json_is_null(json_object_get(json_object_get(doc, "time"), "device_linear_share")));
    json_decref(doc);
    tdm_count(&block, TDM_METRIC_stage_seconds_total, TDM_LABEL_STAGE_linear, 3000000);
    tdm_count(&block, TDM_METRIC_stage_seconds_total, TDM_LABEL_STAGE_attention, 1000000);
    doc = status_of(NULL, 0);
    const json_t *time = json_object_get(doc, "time");
    assert_true(json_number_value(json_object_get(time, "device_linear_share")) == 0.75);
    assert_true(json_number_value(json_object_get(time, "device_attention_share")) == 0.25);
    assert_true(json_is_number(json_object_get(time, "device_copy_share")));
    json_decref(doc);
}

static void what_the_board_does_not_tell_is_null(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    json_t *doc = status_of(NULL, 0);
    const char *const page[] = {"board", "power"};
    for (size_t i = 0; i < TDM_COUNT_OF(page); i++) {
        const char *key;
        json_t *v, *members = json_object_get(doc, page[i]);
        assert_true(json_object_size(members) > 8);
        json_object_foreach(members, key, v) assert_true(json_is_null(v));
    }
    json_decref(doc);
    tdm_tell(&block, TDM_METRIC_gpu_power_limit_watts, 0, 1 + 700000);
    tdm_tell(&block, TDM_METRIC_gpu_clock_hertz, TDM_LABEL_CLOCK_sm, 1 + 1980000000);
    tdm_tell(&block, TDM_METRIC_gpu_ecc_errors_total, TDM_LABEL_ECC_uncorrected, 1 + 0);
    tdm_tell(&block, TDM_METRIC_gpu_sm_occupancy_ratio, 0, 1 + 250000);
    doc = status_of(NULL, 0);
    assert_int_equal(at(doc, "power.limit_w"), 700);
    assert_int_equal(at(doc, "power.board_sm_clock_mhz"), 1980);
    assert_int_equal(at(doc, "board.ecc_uncorrected"), 0);
    assert_true(json_number_value(json_object_get(json_object_get(doc, "board"), "occupancy")) ==
                0.25);
    json_decref(doc);
}

static void a_finding_of_the_window_is_told(void **state) {
    (void)state;
    static tdm_snapshot_t before;
    const tdm_status_span_t span = {.now = &snap, .window = &before};
    size_t sz = 0;
    (void)tdm_block_init(&block, "test");
    tdm_gauge_set(&block, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_iteration, 64);
    tdm_count(&block, TDM_METRIC_ring_enqueue_failures_total, TDM_LABEL_RING_request, 3);
    tdm_snapshot_take(&before, blocks, 1, INT64_C(10000000000));
    tdm_snapshot_take(&snap, blocks, 1, INT64_C(20000000000));
    assert_int_equal(tdm_status_json(&span, 0, NULL, 0, text, sizeof text, &sz), TDM_OK);
    json_t *doc = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(doc, "findings")), 0);
    assert_true(json_real_value(json_object_get(doc, "window_s")) == 10.0 ||
                json_integer_value(json_object_get(doc, "window_s")) == 10);
    json_decref(doc);
    tdm_count(&block, TDM_METRIC_ring_enqueue_failures_total, TDM_LABEL_RING_request, 4);
    tdm_snapshot_take(&snap, blocks, 1, INT64_C(20000000000));
    assert_int_equal(tdm_status_json(&span, 0, NULL, 0, text, sizeof text, &sz), TDM_OK);
    doc = json_loads(text, 0, NULL);
    const json_t *one = json_array_get(json_object_get(doc, "findings"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "cause")), "ring");
    assert_non_null(strstr(json_string_value(json_object_get(one, "text")), "full 4 times"));
    assert_int_equal(json_array_size(json_object_get(doc, "tiles")), TDM_LABEL_CNT_TILE);
    assert_int_equal(json_array_size(json_object_get(doc, "slo")),
                     TDM_LABEL_CNT_SLO_CLASS * TDM_LABEL_CNT_OBJECTIVE);
    json_decref(doc);
}

/* Counters and latencies are of the span that was asked for, gauges of now. */
static void counts_begin_where_asked(void **state) {
    (void)state;
    static tdm_snapshot_t before;
    const tdm_status_span_t span = {.now = &snap, .since = &before};
    size_t sz = 0;
    uint32_t head_dim = tdm_label_reason(TDM_FALLBACK_head_dim);
    (void)tdm_block_init(&block, "test");
    tdm_count(&block, TDM_METRIC_fallbacks_total, head_dim, 8);
    tdm_count(&block, TDM_METRIC_attention_seconds_total, TDM_LABEL_PATH_fused, TDM_MS(9000));
    tdm_observe(&block, TDM_METRIC_ttft_seconds, 0, TDM_MS(4));
    tdm_gauge_set(&block, TDM_METRIC_kv_pages, TDM_LABEL_KV_total, 70);
    tdm_gauge_set(&block, TDM_METRIC_kv_pages, TDM_LABEL_KV_used, 20);
    tdm_gauge_set(&block, TDM_METRIC_kv_pages, TDM_LABEL_KV_free, 39);
    tdm_gauge_set(&block, TDM_METRIC_kv_cached_pages, 0, 11);
    tdm_count(&block, TDM_METRIC_stage_seconds_total, TDM_LABEL_STAGE_attention, TDM_MS(50));
    tdm_snapshot_take(&before, blocks, 1, INT64_C(10000000000));
    tdm_count(&block, TDM_METRIC_fallbacks_total, head_dim, 3);
    tdm_count(&block, TDM_METRIC_attention_seconds_total, TDM_LABEL_PATH_fused, TDM_MS(2000));
    tdm_count(&block, TDM_METRIC_vcta_total, TDM_LABEL_OP_decode, 5);
    tdm_count(&block, TDM_METRIC_stage_seconds_total, TDM_LABEL_STAGE_linear, TDM_MS(3));
    tdm_count(&block, TDM_METRIC_stage_seconds_total, TDM_LABEL_STAGE_attention, TDM_MS(1));
    tdm_snapshot_take(&snap, blocks, 1, INT64_C(20000000000));
    assert_int_equal(tdm_status_json(&span, 0, NULL, 0, text, sizeof text, &sz), TDM_OK);
    json_t *doc = json_loads(text, 0, NULL);
    assert_true(json_number_value(json_object_get(doc, "since_s")) == 10.0);
    assert_true(json_number_value(json_object_get(doc, "uptime_s")) == 20.0);
    assert_int_equal(at(doc, "fallbacks.head_dim"), 3);
    assert_int_equal(at(doc, "latency.ttft_ms.count"), 0);
    assert_int_equal(at(doc, "kv.total"), 70);
    assert_int_equal(at(doc, "kv.used") + at(doc, "kv.free") + at(doc, "kv.cached"), 70);
    assert_true(json_number_value(json_object_get(json_object_get(doc, "time"), "attention_s")) ==
                2.0);
    assert_true(json_number_value(
                    json_object_get(json_object_get(doc, "time"), "device_linear_share")) == 0.75);
    assert_int_equal(at(doc, "journey.vcta_executed_decode"), 5);
    json_decref(doc);
}

static void hostile_facts_stay_strings(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "test");
    const tdm_fact_t fact[] = {{"model", "\"},{\\\n\x01\x7f</script>"}, {"version", "1"}};
    json_t *doc = status_of(fact, 2);
    const json_t *facts = json_object_get(doc, "tandem");
    assert_string_equal(json_string_value(json_object_get(facts, "model")), fact[0].value);
    json_decref(doc);
}

static void a_small_buffer_is_refused(void **state) {
    (void)state;
    size_t sz = 0, need = 0;
    (void)tdm_block_init(&block, "test");
    tdm_snapshot_take(&snap, blocks, 1, 1);
    assert_int_equal(tdm_status_json(&whole, 0, NULL, 0, text, sizeof text, &sz), TDM_OK);
    char *own = malloc(sz);
    assert_non_null(own);
    assert_int_equal(tdm_status_json(&whole, 0, NULL, 0, own, sz, &need), TDM_ERR_LIMIT);
    assert_int_equal(need, sz);
    free(own);
}

static void the_journey_fits_where_status_puts_it(void **state) {
    (void)state;
    tdm_journey_t j;
    memset(&j, 0xff, sizeof j);
    j.span_ns = INT64_MAX;
    assert_true(tdm_journey_json(&j, text, sizeof text) < 2048);
    json_t *doc = json_loads(text, 0, NULL);
    json_decref(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_appliance_has_a_status),
        cmocka_unit_test(numbers_are_the_snapshots),
        cmocka_unit_test(what_the_board_does_not_tell_is_null),
        cmocka_unit_test(stages_have_shares_once_they_were_timed),
        cmocka_unit_test(a_finding_of_the_window_is_told),
        cmocka_unit_test(counts_begin_where_asked),
        cmocka_unit_test(hostile_facts_stay_strings),
        cmocka_unit_test(a_small_buffer_is_refused),
        cmocka_unit_test(the_journey_fits_where_status_puts_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
