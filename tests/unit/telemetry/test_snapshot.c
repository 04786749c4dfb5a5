/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: snapshots merge blocks rightly and their histograms stay
   consistent while a writer runs; quantiles are where they must be.
   Method: two blocks, a writer thread, hand-made distributions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "telemetry/read/history.h"
#include "telemetry/read/journey.h"
#include "telemetry/read/process.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static tdm_block_t a, b;
static const tdm_block_t *const both[] = {&a, &b};
static tdm_snapshot_t snap, later;

static int setup(void **state) {
    (void)state;
    (void)tdm_block_init(&a, "a");
    (void)tdm_block_init(&b, "b");
    return 0;
}

static void counters_add_and_max_gauges_do_not(void **state) {
    (void)state;
    tdm_count(&a, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output, 3);
    tdm_count(&b, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output, 4);
    tdm_gauge_set(&a, TDM_METRIC_ring_entries, TDM_LABEL_RING_request, 5);
    tdm_gauge_set(&b, TDM_METRIC_ring_entries, TDM_LABEL_RING_request, 6);
    tdm_gauge_set(&a, TDM_METRIC_ring_high_watermark_entries, TDM_LABEL_RING_request, 9);
    tdm_gauge_set(&b, TDM_METRIC_ring_high_watermark_entries, TDM_LABEL_RING_request, 8);
    tdm_snapshot_take(&snap, both, 2, 1);
    assert_int_equal(tdm_snapshot_value(&snap, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output), 7);
    assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_tokens_total), 7);
    assert_int_equal(tdm_snapshot_value(&snap, TDM_METRIC_ring_entries, TDM_LABEL_RING_request),
                     11);
    assert_int_equal(
        tdm_snapshot_value(&snap, TDM_METRIC_ring_high_watermark_entries, TDM_LABEL_RING_request),
        9);
}

static void a_mirrored_counter_is_its_source(void **state) {
    (void)state;
    tdm_count_to(&a, TDM_METRIC_ring_enqueue_failures_total, TDM_LABEL_RING_egress, 12);
    tdm_count_to(&a, TDM_METRIC_ring_enqueue_failures_total, TDM_LABEL_RING_egress, 15);
    tdm_snapshot_take(&snap, both, 2, 1);
    assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_ring_enqueue_failures_total), 15);
}

typedef struct writer {
    pthread_t thread;
    uint32_t stop;
    uint64_t cnt;
} writer_t;

static void *write_until_stopped(void *arg) {
    writer_t *w = arg;
    tdm_rng_t rng = {42};
    while (!tdm_load_relaxed(&w->stop)) {
        tdm_observe(&a, TDM_METRIC_itl_seconds, 0, tdm_rng_below(&rng, 3000000));
        w->cnt++;
    }
    return NULL;
}

/* Three words that tell one thing: the middle one is written last.  Like a
   tile it has turns in bursts and rests between them: a writer that never
   rests leaves no gap for a whole copy where copies are slow. */
static void *write_groups(void *arg) {
    writer_t *w = arg;
    struct timespec rest = {.tv_nsec = 3000000};
    while (!tdm_load_relaxed(&w->stop)) {
        tdm_block_begin(&a);
        tdm_count(&a, TDM_METRIC_vcta_planned_total, TDM_LABEL_OP_decode, 3);
        tdm_count(&a, TDM_METRIC_net_drops_total, 0, 3);
        tdm_count(&a, TDM_METRIC_vcta_total, TDM_LABEL_OP_decode, 3);
        tdm_block_end(&a);
        w->cnt += 3;
        if (w->cnt % 9000 == 0) (void)nanosleep(&rest, NULL);
    }
    return NULL;
}

static void a_group_is_seen_whole_or_not_at_all(void **state) {
    (void)state;
    writer_t w = {0};
    assert_int_equal(pthread_create(&w.thread, NULL, write_groups, &w), 0);
    uint64_t seen = 0;
    uint32_t torn_cnt = 0;
    for (int i = 0; i < 300; i++) {
        uint32_t torn = tdm_snapshot_take(&snap, both, 2, 1);
        torn_cnt += torn;
        uint64_t n = tdm_snapshot_total(&snap, TDM_METRIC_vcta_total);
        assert_true(n >= seen);
        seen = n;
        if (torn) continue;
        assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_vcta_planned_total), n);
        assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_net_drops_total), n);
    }
    tdm_store_relaxed(&w.stop, 1u);
    (void)pthread_join(w.thread, NULL);
    assert_int_equal(tdm_snapshot_take(&snap, both, 2, 1), 0);
    assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_vcta_total), w.cnt);
    print_message("%u of 600 blocks torn\n", torn_cnt);
    assert_true(torn_cnt < 60);
}

static void a_writer_that_never_ends_its_group_is_told(void **state) {
    (void)state;
    tdm_block_begin(&a);
    tdm_count(&a, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output, 3);
    assert_int_equal(tdm_snapshot_take(&snap, both, 2, 1), 1);
    assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_tokens_total), 3);
    tdm_block_end(&a);
    assert_int_equal(tdm_snapshot_take(&snap, both, 2, 1), 0);
}

static void observations_never_fall_while_written(void **state) {
    (void)state;
    writer_t w = {0};
    assert_int_equal(pthread_create(&w.thread, NULL, write_until_stopped, &w), 0);
    uint64_t seen = 0;
    for (int i = 0; i < 200; i++) {
        tdm_snapshot_take(&snap, both, 2, 1);
        uint64_t n = tdm_snapshot_total(&snap, TDM_METRIC_itl_seconds);
        assert_true(n >= seen);
        seen = n;
    }
    tdm_store_relaxed(&w.stop, 1u);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    tdm_snapshot_take(&snap, both, 2, 1);
    assert_int_equal(tdm_snapshot_total(&snap, TDM_METRIC_itl_seconds), w.cnt);
}

static uint64_t quantile(uint32_t permille) {
    tdm_histogram_t h;
    tdm_snapshot_take(&snap, both, 2, 1);
    tdm_histogram_between(&h, NULL, &snap, TDM_METRIC_itl_seconds);
    return tdm_histogram_quantile(&h, permille);
}

static void quantiles_lie_in_the_right_bucket(void **state) {
    (void)state;
    assert_int_equal(quantile(990), 0);
    for (int i = 0; i < 98; i++) tdm_observe(&a, TDM_METRIC_itl_seconds, 0, 1500000);
    for (int i = 0; i < 2; i++) tdm_observe(&b, TDM_METRIC_itl_seconds, 3, 45000000);
    assert_in_range(quantile(500), 1000001, 2000000);
    assert_in_range(quantile(0), 1000001, 2000000);
    assert_in_range(quantile(980), 2000000, 2000000);
    assert_in_range(quantile(990), 40000001, 50000000);
    assert_int_equal(quantile(1000), 50000000);
}

static void a_quantile_above_all_bounds_is_the_highest(void **state) {
    (void)state;
    tdm_observe(&a, TDM_METRIC_itl_seconds, 0, UINT64_C(99000000000));
    assert_int_equal(quantile(500), 2500000000u);
}

static void a_journey_is_the_growth_between_two_snapshots(void **state) {
    (void)state;
    tdm_count(&a, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_rx, 100);
    tdm_count(&a, TDM_METRIC_admission_total,
              tdm_series2(TDM_METRIC_admission_total, TDM_LABEL_DECISION_accepted, 0), 1);
    tdm_observe(&a, TDM_METRIC_ttft_seconds, 1, TDM_MS(70000));
    tdm_snapshot_take(&snap, both, 2, 5);
    tdm_count(&a, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_rx, 11);
    tdm_count(&a, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_tx, 12);
    tdm_count(&a, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_mac_not_ours), 5);
    tdm_count(&b, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_udp_port), 2);
    tdm_count(&b, TDM_METRIC_admission_total,
              tdm_series2(TDM_METRIC_admission_total, TDM_LABEL_DECISION_accepted,
                          tdm_label_verdict(TDM_REASON_NONE)),
              1);
    tdm_count(&b, TDM_METRIC_admission_total,
              tdm_series2(TDM_METRIC_admission_total, TDM_LABEL_DECISION_refused,
                          tdm_label_verdict(TDM_REFUSE_kv_full)),
              3);
    tdm_count(&b, TDM_METRIC_iterations_total, TDM_ROUTE_FUSED, 4);
    tdm_count(&b, TDM_METRIC_vcta_total, TDM_KIND_PREFILL, 300);
    tdm_count(&b, TDM_METRIC_vcta_total, TDM_KIND_DECODE, 200);
    tdm_observe(&b, TDM_METRIC_ttft_seconds, 0, TDM_MS(9));
    tdm_snapshot_take(&later, both, 2, 25);
    tdm_journey_t j;
    tdm_journey_between(&j, &snap, &later);
    assert_int_equal(j.span_ns, 20);
    assert_int_equal(j.packets_rx, 11);
    assert_int_equal(j.packets_tx, 12);
    assert_int_equal(j.drops, 7);
    assert_int_equal(j.drop[tdm_label_reason(TDM_DROP_udp_port)], 2);
    assert_int_equal(j.accepted, 1);
    assert_int_equal(j.refused, 3);
    assert_int_equal(j.path[TDM_ROUTE_FUSED], 4);
    assert_in_range(j.ttft_p99_ns, TDM_MS(5), TDM_MS(10));
    char text[1024];
    assert_true(tdm_journey_text(&j, text, sizeof text) < sizeof text);
    /* why each packet went no further stands there: none of them was a request */
    assert_non_null(strstr(text, "11 in, 12 out, 7 dropped:\n"
                                 "            5 mac_not_ours: addressed to another station\n"
                                 "            2 udp_port: a port nobody listens on\n"));
    assert_non_null(strstr(text, "fused 4"));
    assert_non_null(strstr(text, "prefill per decode 1.5"));
}

static void a_journey_text_is_cut_at_its_bound(void **state) {
    (void)state;
    tdm_journey_t j = {0};
    char text[32];
    memset(text, 'x', sizeof text);
    assert_true(tdm_journey_text(&j, text, 16) > 16);
    assert_int_equal(text[15], '\0');
    assert_int_equal(text[16], 'x');
    assert_true(tdm_journey_json(&j, text, 16) > 16);
    assert_int_equal(text[15], '\0');
    assert_int_equal(text[16], 'x');
}

/* One snapshot every 30 s of two hours: the last hour can be asked for. */
static void the_last_hour_is_kept(void **state) {
    (void)state;
    static tdm_history_t h;
    const int64_t s = 1000000000;
    assert_null(tdm_history_find(&h, 5 * s));
    for (int64_t t = 10; t <= 7210; t += 5) {
        if (!tdm_history_due(&h, t * s)) continue;
        snap.at_ns = t * s;
        tdm_history_keep(&h, &snap);
        if (t != 400) continue;
        assert_null(tdm_history_find(&h, 9 * s)); /* the start is nearer */
        assert_int_equal(tdm_history_find(&h, 69 * s)->at_ns, 40 * s);
        assert_int_equal(tdm_history_find(&h, 70 * s)->at_ns, 70 * s);
        assert_int_equal(tdm_history_find(&h, 9999 * s)->at_ns, 400 * s);
    }
    assert_int_equal(h.cnt, 241);
    assert_int_equal(tdm_history_find(&h, 7210 * s - 3600 * s)->at_ns, 3610 * s);
    assert_int_equal(tdm_history_find(&h, 0)->at_ns, 3610 * s); /* the oldest */
}

static void the_process_knows_itself(void **state) {
    (void)state;
    tdm_process_sample(&a);
    tdm_snapshot_take(&snap, both, 2, 1);
    assert_true(tdm_snapshot_value(&snap, TDM_METRIC_process_open_fds, 0) >= 3);
    assert_int_equal(tdm_snapshot_value(&snap, TDM_METRIC_process_threads, 0) > 0, 1);
    assert_true(tdm_snapshot_value(&snap, TDM_METRIC_process_resident_memory_bytes, 0) > 100000);
    assert_true(tdm_snapshot_value(&snap, TDM_METRIC_process_start_time_seconds, 0) > 1600000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(counters_add_and_max_gauges_do_not, setup),
        cmocka_unit_test_setup(a_mirrored_counter_is_its_source, setup),
        cmocka_unit_test_setup(observations_never_fall_while_written, setup),
        cmocka_unit_test_setup(a_group_is_seen_whole_or_not_at_all, setup),
        cmocka_unit_test_setup(a_writer_that_never_ends_its_group_is_told, setup),
        cmocka_unit_test_setup(quantiles_lie_in_the_right_bucket, setup),
        cmocka_unit_test_setup(a_quantile_above_all_bounds_is_the_highest, setup),
        cmocka_unit_test_setup(a_journey_is_the_growth_between_two_snapshots, setup),
        cmocka_unit_test_setup(a_journey_text_is_cut_at_its_bound, setup),
        cmocka_unit_test_setup(the_last_hour_is_kept, setup),
        cmocka_unit_test_setup(the_process_knows_itself, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
