/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the tile's block tells what happened, no more and no less, at every
   moment that it is published.
   Method: known runs on the rig. */
#include "tests/unit/scheduler_tile/rig.h"

static void the_block_counts_what_is_cached(void **state) {
    (void)state;
    rig.sizes.has_cache = 1;
    rig_create();
    rig_begin_life(1);
    rig_submit(0, 120);
    rig_run(140);
    rig_submit(1, 120);
    rig_run(140);
    tdm_sched_tile_publish(rig.tile);
    assert_int_equal(rig_metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_used), 0);
    assert_int_equal(rig_metric(TDM_METRIC_kv_cached_pages, 0), 4);
    assert_int_equal(rig_metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_free), 60);
    tdm_store_release(&rig.life.epoch, 0u);
    rig_poll();
    rig_begin_life(2);
    tdm_sched_tile_publish(rig.tile);
    assert_int_equal(rig_metric(TDM_METRIC_kv_cached_pages, 0), 0);
    assert_int_equal(rig_metric(TDM_METRIC_prefix_lost_pages_total, TDM_LABEL_LOSS_flushed), 4);
}

static void the_block_tells_what_happened(void **state) {
    (void)state;
    rig_begin_life(1);
    rig_submit(0, 30);
    rig_run(10);
    rig_submit(1, 5);
    rig_run(60);
    tdm_sched_tile_publish(rig.tile);
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(rig.tile));
    assert_int_equal(rig_metric(TDM_METRIC_admission_total, 0), 2);
    assert_int_equal(rig_metric(TDM_METRIC_vcta_total, TDM_LABEL_OP_prefill),
                     10 * s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_attention_overlap_seconds_total, 0),
                     11 * s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_attention_tail_seconds_total, 0), 12 * s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_attention_role_switches_total, 0),
                     13 * s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_attention_ring_stalls_total, 0), 14 * s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_executor_sm_clock_hertz, 0), UINT64_C(1755000000));
    assert_int_equal(rig_metric(TDM_METRIC_executor_sm_clock_max_hertz, 0), UINT64_C(1755000000));
    assert_int_equal(rig_metric(TDM_METRIC_stage_iterations_total, 0), 1);
    for (uint32_t i = 0; i < TDM_STAGE_CNT; i++)
        assert_int_equal(rig_metric(TDM_METRIC_stage_seconds_total, i), 100 + i);
    assert_int_equal(rig_metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_missed), 1);
    assert_int_equal(rig_metric(TDM_METRIC_graph_queue_seconds_total, TDM_LABEL_GRAPH_missed),
                     2500);
    assert_int_equal(rig_metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_replayed),
                     s->iteration_cnt - 3);
    assert_int_equal(rig_metric(TDM_METRIC_graph_iterations_total, TDM_LABEL_GRAPH_none), 0);
    assert_int_equal(rig_metric(TDM_METRIC_graphs, 0), 9);
    assert_int_equal(rig_metric(TDM_METRIC_device_upload_bytes_total, 0),
                     600 * (s->iteration_cnt - 1));
    assert_int_equal(rig_metric(TDM_METRIC_graph_bytes, 0), 1000);
    /* Half a wave each: the second bucket has them all. */
    assert_int_equal(rig_metric(TDM_METRIC_vcta_waves, 0), 0);
    const tdm_metric_row_t *waves = &tdm_metric_row[TDM_METRIC_vcta_waves];
    assert_int_equal(rig.block->word[waves->word_off + 1], s->iteration_cnt);
    uint64_t iterations = 0;
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        iterations += rig_metric(TDM_METRIC_iterations_total, r);
    assert_int_equal(iterations, s->iteration_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fused), 1);
    assert_int_equal(rig_metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_total), 64);
    assert_int_equal(rig_metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_free), 64);
    assert_int_equal(rig_metric(TDM_METRIC_kv_pages, TDM_LABEL_KV_used), 0);
    assert_int_equal(s->gap_cnt, 29 + 4);
    assert_int_equal(rig_metric(TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_kept) +
                         rig_metric(TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_over),
                     s->gap_cnt);
    assert_true(rig_metric(TDM_METRIC_sched_cap_quantile_ratio, 0) >= 1000000);
    assert_true(rig_metric(TDM_METRIC_sched_cap_alpha_ratio, 0) > 0);
    assert_int_equal(rig_metric(TDM_METRIC_sched_outside_profile_total, 0), s->outside_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_sched_thrifty_iterations_total, 0), s->thrift_cnt);
    assert_int_equal(rig_metric(TDM_METRIC_sched_drifting, 0), 0);
    assert_int_equal(rig_metric(TDM_METRIC_executor_epoch, 0), 1);
    rig.live.route = TDM_ROUTE_SERIAL;
    assert_int_equal(tdm_sched_tile_live_set(rig.tile, &rig.live, NULL), TDM_OK);
    rig_submit(0, 30);
    rig_run(5);
    rig_submit(1, 5);
    rig_run(60);
    assert_int_equal(rig_metric(TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fallback), 1);
    assert_int_equal(
        rig_metric(TDM_METRIC_fallbacks_total, tdm_label_reason(TDM_FALLBACK_operator)), 1);
}

static uint64_t total(tdm_metric_t m) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < tdm_metric_row[m].series_cnt; i++) n += rig_metric(m, i);
    return n;
}

static void accepted_are_queued_or_ended_at_every_publish(void **state) {
    (void)state;
    rig_begin_life(1);
    uint64_t ended = 0;
    for (uint32_t i = 0; i < 4; i++) {
        rig_submit(i % 2, 3 + i);
        for (uint32_t turn = 0; turn < 3; turn++) {
            rig_run(1);
            tdm_sched_tile_publish(rig.tile);
            ended = total(TDM_METRIC_sequences_ended_total);
            assert_int_equal(rig_metric(TDM_METRIC_admission_total, 0),
                             total(TDM_METRIC_queue_requests) + ended);
        }
    }
    rig_run(60);
    tdm_sched_tile_publish(rig.tile);
    assert_int_equal(rig_metric(TDM_METRIC_sequences_ended_total, TDM_LABEL_FINISH_length), 4);
    assert_true(ended < 4);
    assert_int_equal(total(TDM_METRIC_queue_requests), 0);
    assert_int_equal(rig.block->turn % 2, 0);
}

/* Two count a clock that went backwards: the core, of results, and whoever
   observes an interval.  The sum is told, and never falls. */
static void clocks_that_went_backwards_add_up(void **state) {
    (void)state;
    uint32_t label = tdm_label_reason(TDM_FAULT_clock_backwards);
    uint64_t want = 0;
    rig_begin_life(1);
    rig_submit(0, 60);
    for (uint32_t i = 0; i < 20; i++) {
        rig_poll();
        if (i % 3 == 0) {
            tdm_observe_ns(rig.block, TDM_METRIC_queue_seconds, 0, -1);
            want++;
        }
        if (rig_execute()) rig.result[0]->start_ns = rig.result[1]->start_ns = INT64_MAX;
        rig_poll();
        while (rig_read_event()) {
        }
        tdm_sched_tile_publish(rig.tile);
        const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(rig.tile));
        assert_int_equal(rig_metric(TDM_METRIC_faults_total, label),
                         want + s->reason[TDM_FAULT_clock_backwards]);
    }
    const tdm_sched_stats_t *s = tdm_sched_stats(tdm_sched_tile_core(rig.tile));
    assert_true(s->reason[TDM_FAULT_clock_backwards] > 5 && want == 7);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_block_counts_what_is_cached),
        CASE(the_block_tells_what_happened),
        CASE(accepted_are_queued_or_ended_at_every_publish),
        CASE(clocks_that_went_backwards_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
