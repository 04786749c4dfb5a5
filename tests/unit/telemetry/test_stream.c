/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each stream is judged once by each promise, buckets agree with
   the verdicts because every promise is a bucket bound, and what no stream
   did is not counted.
   Method: hand-made streams on a clock of their own; then seeded ones,
   counted here a second time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "telemetry/block/stream.h"

#define MS INT64_C(1000000)

static tdm_block_t block;
static tdm_exchange_t x;
static tdm_stream_t stream;

static int setup(void **state) {
    (void)state;
    (void)tdm_block_init(&block, "door");
    stream = (tdm_stream_t){0};
    x = (tdm_exchange_t){.slo_class = 1, .arrival_ns = 1000 * MS, .head = {.is_stream = 1}};
    x.promise_ttft_ns = 333 * MS;
    x.promise_gap_ns = 37 * MS;
    return 0;
}

static uint64_t judged(uint32_t objective, uint32_t result) {
    uint32_t idx = tdm_series3(TDM_METRIC_slo_requests_total, x.slo_class, objective, result);
    return *tdm_block_word(&block, TDM_METRIC_slo_requests_total, idx);
}

static uint64_t gaps(uint32_t result) {
    uint32_t idx = tdm_series2(TDM_METRIC_slo_gaps_total, x.slo_class, result);
    return *tdm_block_word(&block, TDM_METRIC_slo_gaps_total, idx);
}

static uint64_t goodput(void) {
    return *tdm_block_word(&block, TDM_METRIC_goodput_tokens_total, x.slo_class);
}

/* below adds the buckets of a histogram up to the bound ns. */
static uint64_t below(tdm_metric_t metric, int64_t ns) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    const uint64_t *w = tdm_block_word(&block, metric, x.slo_class);
    uint64_t n = 0;
    for (uint32_t b = 0; b <= row->bound_cnt; b++) {
        n += w[b];
        if (b < row->bound_cnt && row->bound[b] == (uint64_t)ns) return n;
    }
    if (ns != INT64_MAX) fail_msg("%lld ns is no bound", (long long)ns);
    return n;
}

static void a_stream_in_time_is_met_and_its_tokens_are_good(void **state) {
    (void)state;
    tdm_stream_sent(&stream, &block, &x, 0, 1010 * MS);
    tdm_stream_sent(&stream, &block, &x, 1, 1333 * MS);
    tdm_stream_sent(&stream, &block, &x, 2, 1370 * MS);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_met), 1);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_met), 1);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_all, TDM_LABEL_RESULT_met), 1);
    assert_int_equal(gaps(TDM_LABEL_RESULT_met), 1);
    assert_int_equal(goodput(), 3);
    assert_int_equal(below(TDM_METRIC_tpot_seconds, INT64_MAX), 1);
    assert_int_equal(below(TDM_METRIC_e2e_seconds, INT64_MAX), 1);
}

static void one_late_gap_is_counted_and_the_mean_decides(void **state) {
    (void)state;
    int64_t at[] = {1100, 1200, 1201, 1202, 1203};
    for (uint32_t i = 0; i < TDM_COUNT_OF(at); i++)
        tdm_stream_sent(&stream, &block, &x, 1, at[i] * MS);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    assert_int_equal(gaps(TDM_LABEL_RESULT_missed), 1);
    assert_int_equal(gaps(TDM_LABEL_RESULT_met), 3);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_met), 1);
}

static void a_late_first_token_spoils_all_and_nothing_else(void **state) {
    (void)state;
    tdm_stream_sent(&stream, &block, &x, 1, 1333 * MS + 1);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_missed), 1);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_met), 1);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_all, TDM_LABEL_RESULT_missed), 1);
    assert_int_equal(goodput(), 0);
}

static void what_we_broke_is_missed_what_the_client_left_is_not_judged(void **state) {
    (void)state;
    tdm_stream_sent(&stream, &block, &x, 1, 1001 * MS);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_LEFT);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_all, TDM_LABEL_RESULT_missed), 0);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_BROKEN);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_tpot, TDM_LABEL_RESULT_missed), 1);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_all, TDM_LABEL_RESULT_missed), 1);
    assert_int_equal(below(TDM_METRIC_e2e_seconds, INT64_MAX), 0);
}

static void a_reply_without_tokens_or_without_a_stream_has_no_first_token(void **state) {
    (void)state;
    tdm_stream_sent(&stream, &block, &x, 0, 1001 * MS);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    assert_int_equal(below(TDM_METRIC_e2e_seconds, INT64_MAX), 0);
    x.head.is_stream = 0;
    tdm_stream_sent(&stream, &block, &x, 5, 1001 * MS);
    tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    assert_int_equal(below(TDM_METRIC_e2e_seconds, INT64_MAX), 1);
    assert_int_equal(below(TDM_METRIC_ttft_seconds, INT64_MAX), 0);
    assert_int_equal(judged(TDM_LABEL_OBJECTIVE_all, TDM_LABEL_RESULT_met), 0);
}

static void buckets_tell_exactly_who_was_in_time(void **state) {
    (void)state;
    tdm_rng_t rng = {20261129};
    uint64_t stream_cnt = 500, gap_cnt = 0;
    for (uint64_t i = 0; i < stream_cnt; i++) {
        stream = (tdm_stream_t){0};
        int64_t now_ns = x.arrival_ns + (int64_t)tdm_rng_below(&rng, 600) * MS;
        uint32_t token_cnt = 1 + tdm_rng_below(&rng, 9);
        for (uint32_t k = 0; k < token_cnt; k++) {
            tdm_stream_sent(&stream, &block, &x, 1, now_ns);
            now_ns += (int64_t)tdm_rng_below(&rng, 74) * MS;
        }
        gap_cnt += token_cnt - 1;
        tdm_stream_ended(&stream, &block, &x, TDM_STREAM_WHOLE);
    }
    for (uint32_t o = 0; o < TDM_LABEL_CNT_OBJECTIVE; o++) {
        assert_int_equal(judged(o, TDM_LABEL_RESULT_met) + judged(o, TDM_LABEL_RESULT_missed),
                         stream_cnt);
        assert_true(judged(o, TDM_LABEL_RESULT_met) > 0);
        assert_true(judged(o, TDM_LABEL_RESULT_missed) > 0);
    }
    assert_int_equal(below(TDM_METRIC_ttft_seconds, x.promise_ttft_ns),
                     judged(TDM_LABEL_OBJECTIVE_ttft, TDM_LABEL_RESULT_met));
    assert_int_equal(below(TDM_METRIC_itl_seconds, x.promise_gap_ns), gaps(TDM_LABEL_RESULT_met));
    assert_int_equal(gaps(TDM_LABEL_RESULT_met) + gaps(TDM_LABEL_RESULT_missed), gap_cnt);
}

/* The bounds that the other tests count by; before them. */
static void a_promise_takes_the_nearest_bound_and_stays(void **state) {
    (void)state;
    const tdm_metric_row_t *row = &tdm_metric_row[TDM_METRIC_ttft_seconds];
    uint64_t before[32];
    for (uint32_t b = 0; b < row->bound_cnt; b++) before[b] = row->bound[b];
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 500 * MS), TDM_OK);
    for (uint32_t b = 0; b < row->bound_cnt; b++) assert_int_equal(row->bound[b], before[b]);
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 333 * MS), TDM_OK);
    uint32_t moved = 0;
    for (uint32_t b = 0; b < row->bound_cnt; b++) {
        if (row->bound[b] == before[b]) continue;
        moved++;
        assert_int_equal(before[b], 300 * MS);
        assert_int_equal(row->bound[b], 333 * MS);
    }
    assert_int_equal(moved, 1);
    /* A second promise beside it moves another bound, never the first. */
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 330 * MS), TDM_OK);
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 600000 * MS), TDM_OK);
    int has_both = 0;
    for (uint32_t b = 0; b < row->bound_cnt; b++) {
        has_both += row->bound[b] == 333 * MS || row->bound[b] == 330 * MS;
        assert_true(b == 0 || row->bound[b - 1] < row->bound[b]);
    }
    assert_int_equal(has_both, 2);
    assert_int_equal(row->bound[row->bound_cnt - 1], 600000 * MS);
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 0), TDM_ERR_INVAL);
    /* Nothing is left between two promises that are neighbours. */
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_ttft_seconds, 331 * MS), TDM_ERR_INVAL);
    assert_int_equal(tdm_bounds_fit(TDM_METRIC_itl_seconds, 37 * MS), TDM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_promise_takes_the_nearest_bound_and_stays, setup),
        cmocka_unit_test_setup(a_stream_in_time_is_met_and_its_tokens_are_good, setup),
        cmocka_unit_test_setup(one_late_gap_is_counted_and_the_mean_decides, setup),
        cmocka_unit_test_setup(a_late_first_token_spoils_all_and_nothing_else, setup),
        cmocka_unit_test_setup(what_we_broke_is_missed_what_the_client_left_is_not_judged, setup),
        cmocka_unit_test_setup(a_reply_without_tokens_or_without_a_stream_has_no_first_token,
                               setup),
        cmocka_unit_test_setup(buckets_tell_exactly_who_was_in_time, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
