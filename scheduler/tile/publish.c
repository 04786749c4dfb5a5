/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's numbers in telemetry's words.  Totals that the core
   keeps are copied; what only a result or a record knows is added as it
   passes. */

#include "scheduler/tile/tile_private.h"

#include "appliance/base/probe.h"
#define PPM 1000000.0

/* ratio_ppm gives a over b in millionths, 0 where b is 0. */
static uint64_t ratio_ppm(double a, double b) {
    if (!(a > 0.0) || !(b > 0.0)) return 0;
    double ppm = a / b * PPM;
    return ppm < 1e18 ? (uint64_t)ppm : (uint64_t)1e18;
}

static uint64_t positive(int64_t ns) {
    return ns > 0 ? (uint64_t)ns : 0;
}

/* shape_of gives the label of a CTA tile, rows rounded up to 64. */
static uint32_t shape_of(uint32_t row, uint32_t key) {
    static const struct {
        uint32_t row, key, label;
    } known[] = {{64, 32, TDM_LABEL_SHAPE_64x32},
                 {64, 64, TDM_LABEL_SHAPE_64x64},
                 {128, 64, TDM_LABEL_SHAPE_128x64},
                 {192, 80, TDM_LABEL_SHAPE_192x80}};
    uint32_t row_up = (row + 63u) / 64u * 64u;
    for (uint32_t i = 0; i < TDM_COUNT_OF(known); i++)
        if (row_up == known[i].row && key == known[i].key) return known[i].label;
    return TDM_LABEL_SHAPE_other;
}

/* count_stages adds an iteration whose stages were timed. */
static void count_stages(tdm_block_t *b, const tdm_result_t *r) {
    uint64_t all_ns = 0;
    for (uint32_t i = 0; i < TDM_STAGE_CNT; i++) {
        tdm_count(b, TDM_METRIC_stage_seconds_total, i, r->stage_ns[i]);
        all_ns += r->stage_ns[i];
    }
    if (all_ns > 0) tdm_count(b, TDM_METRIC_stage_iterations_total, 0, 1);
}

/* count_graph adds what a GPU says of its captured iterations. */
static void count_graph(tdm_block_t *b, const tdm_result_t *r) {
    uint32_t use = tdm_load_relaxed(&r->graph); /* another process wrote it */
    if (r->graph_cnt == 0 || use >= TDM_GRAPH_USE_CNT) return;
    tdm_count(b, TDM_METRIC_graph_iterations_total, use, 1);
    tdm_count(b, TDM_METRIC_graph_queue_seconds_total, use, positive(r->queue_ns));
    tdm_gauge_set(b, TDM_METRIC_graphs, 0, r->graph_cnt);
    tdm_gauge_set(b, TDM_METRIC_graph_bytes, 0, r->graph_bytes);
}

void tdm_sched_tile_count_result(tdm_sched_tile_t *t, const tdm_result_t *r) {
    tdm_block_t *b = t->w.block;
    uint32_t route = tdm_load_relaxed(&r->route);
    if (!b || r->epoch != t->epoch || r->fault != 0 || route >= TDM_ROUTE_CNT) return;
    tdm_block_begin(b);
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        tdm_count(b, TDM_METRIC_vcta_total, k, r->vcta_executed[k]);
        tdm_count(b, TDM_METRIC_vcta_planned_total, k, r->vcta_planned[k]);
        tdm_count(b, TDM_METRIC_vcta_seconds_total, k, r->vcta_ns[k]);
    }
    tdm_count(b, TDM_METRIC_vcta_splits_total, 0, r->split_cnt);
    tdm_count(b, TDM_METRIC_vcta_merges_total, 0, r->merge_cnt);
    tdm_count(b, TDM_METRIC_colocated_seconds_total, 0, r->colocated_ns);
    tdm_count(b, TDM_METRIC_attention_seconds_total, route, positive(r->attention_ns));
    tdm_count(b, TDM_METRIC_sampling_seconds_total, 0, positive(r->sample_ns));
    tdm_count(b, TDM_METRIC_attention_read_bytes_total, 0, r->kv_read_bytes);
    tdm_count(b, TDM_METRIC_attention_flops_total, 0, r->attention_flops);
    tdm_count(b, TDM_METRIC_attention_overlap_seconds_total, 0, r->overlap_ns);
    tdm_count(b, TDM_METRIC_attention_tail_seconds_total, 0, r->tail_ns);
    tdm_count(b, TDM_METRIC_attention_role_switches_total, 0, r->role_switch_cnt);
    tdm_count(b, TDM_METRIC_attention_ring_stalls_total, 0, r->ring_stall_cnt);
    if (r->sm_clock_khz) {
        t->clock_max_khz = TDM_MAX(t->clock_max_khz, r->sm_clock_khz);
        tdm_gauge_set(b, TDM_METRIC_executor_sm_clock_hertz, 0, UINT64_C(1000) * r->sm_clock_khz);
        tdm_gauge_set(b, TDM_METRIC_executor_sm_clock_max_hertz, 0,
                      UINT64_C(1000) * t->clock_max_khz);
    }
    tdm_gauge_set(b, TDM_METRIC_executor_sms, 0, r->sm_cnt);
    count_stages(b, r);
    count_graph(b, r);
    tdm_count(b, TDM_METRIC_device_upload_bytes_total, 0, r->upload_bytes);
    uint64_t vcta = r->vcta_executed[TDM_KIND_PREFILL] + r->vcta_executed[TDM_KIND_DECODE];
    if (vcta > 0 && r->launch_cnt > 0 && r->slot_cnt > 0)
        tdm_observe(b, TDM_METRIC_vcta_waves, 0,
                    ratio_ppm((double)vcta, (double)r->launch_cnt * (double)r->slot_cnt));
    if (r->tile_row)
        tdm_count(b, TDM_METRIC_tile_iterations_total,
                  tdm_series2(TDM_METRIC_tile_iterations_total, shape_of(r->tile_row, r->tile_key),
                              r->split_cnt ? TDM_LABEL_SPLIT_split : TDM_LABEL_SPLIT_whole),
                  1);
    if (route == TDM_ROUTE_FUSED) {
        double decode = (double)r->vcta_executed[TDM_KIND_DECODE];
        double all = decode + (double)r->vcta_executed[TDM_KIND_PREFILL];
        tdm_observe(b, TDM_METRIC_vcta_decode_share, 0, ratio_ppm(decode, all));
    }
    tdm_block_end(b);
}

/* count_starts: a lost plan's starts waited as long as any other's. */
static void count_starts(tdm_block_t *b, const tdm_sched_record_t *record) {
    for (uint32_t i = 0; i < record->start_cnt; i++)
        tdm_observe_ns(b, TDM_METRIC_queue_seconds, record->start_class[i],
                       record->start_wait_ns[i]);
}

/* count_ran: an iteration that came back. */
static void count_ran(tdm_block_t *b, const tdm_sched_record_t *record) {
    TDM_PROBE3(iter_end, record->iteration, record->ran, record->actual_ns);
    tdm_count(b, TDM_METRIC_iterations_total, record->ran, 1);
    tdm_observe_ns(b, TDM_METRIC_iteration_seconds, record->ran, record->actual_ns);
    if (record->idle_ns >= 0) tdm_observe_ns(b, TDM_METRIC_device_idle_seconds, 0, record->idle_ns);
    tdm_observe(b, TDM_METRIC_prediction_ratio, 0,
                ratio_ppm((double)record->actual_ns, (double)record->predicted_ns));
    if (record->prefill_cnt + record->decode_cnt > 0)
        tdm_observe(b, TDM_METRIC_iteration_tokens, 0, record->prefill_cnt + record->decode_cnt);
    if (record->prefill_cnt > 0)
        tdm_observe(b, TDM_METRIC_sched_chunk_tokens, 0, record->prefill_cnt);
    if (record->decode_cnt > 0)
        tdm_observe(b, TDM_METRIC_sched_decode_batch, 0, record->decode_cnt);
    if (record->prefill_cnt == 0 || record->decode_cnt == 0) return;
    int is_fused = record->ran == TDM_ROUTE_FUSED;
    tdm_count(b, TDM_METRIC_hybrid_iterations_total,
              is_fused ? TDM_LABEL_HYBRID_fused : TDM_LABEL_HYBRID_fallback, 1);
    if (is_fused) return;
    TDM_PROBE3(fallback, record->iteration, record->fallback, record->actual_ns);
    tdm_count(b, TDM_METRIC_fallbacks_total, tdm_label_reason(record->fallback), 1);
}

void tdm_sched_tile_count_record(tdm_sched_tile_t *t, const tdm_sched_record_t *record) {
    tdm_block_t *b = t->w.block;
    if (!b) return;
    tdm_block_begin(b);
    count_starts(b, record);
    if (!record->is_lost) count_ran(b, record);
    tdm_block_end(b);
}

/* publish_reasons: verdicts, caps and faults are totals of the core; this
   block itself counts clocks that went backwards, beside the core. */
static void publish_reasons(tdm_sched_tile_t *t, tdm_block_t *b, const tdm_sched_stats_t *s) {
    uint64_t backwards = s->reason[TDM_FAULT_clock_backwards];
    tdm_count_to(b, TDM_METRIC_admission_total,
                 tdm_series2(TDM_METRIC_admission_total, TDM_LABEL_DECISION_accepted, 0),
                 s->accepted);
    for (uint32_t r = TDM_LABEL_FIRST_REFUSE; r < TDM_REFUSE_client_gone; r++)
        tdm_count_to(b, TDM_METRIC_admission_total,
                     tdm_series2(TDM_METRIC_admission_total, TDM_LABEL_DECISION_refused,
                                 tdm_label_verdict(r)),
                     s->reason[r]);
    for (uint32_t r = TDM_LABEL_FIRST_CAP; r < TDM_LABEL_FIRST_FALLBACK; r++)
        tdm_count_to(b, TDM_METRIC_sched_chunk_limited_total, tdm_label_reason(r), s->reason[r]);
    for (uint32_t r = TDM_LABEL_FIRST_FAULT; r < TDM_REASON_CNT; r++)
        if (r != TDM_FAULT_clock_backwards)
            tdm_count_to(b, TDM_METRIC_faults_total, tdm_label_reason(r), s->reason[r]);
    tdm_count(b, TDM_METRIC_faults_total, tdm_label_reason(TDM_FAULT_clock_backwards),
              backwards - t->backwards_cnt);
    t->backwards_cnt = backwards;
    tdm_count_to(b, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_stale_handle),
                 s->reason[TDM_DROP_stale_handle]);
}

static void publish_discards(tdm_block_t *b, const tdm_sched_stats_t *s) {
    uint64_t stop = s->discard_of[TDM_FINISH_STOP];
    uint64_t cancelled = s->discard_of[TDM_FINISH_CANCELLED];
    tdm_count_to(b, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop, stop);
    tdm_count_to(b, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_cancelled, cancelled);
    tdm_count_to(b, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stale,
                 s->discard_tokens - stop - cancelled);
}

/* publish_cap: how prefill is limited. */
static void publish_cap(tdm_block_t *b, const tdm_sched_stats_t *s) {
    tdm_gauge_set(b, TDM_METRIC_sched_cap_quantile_ratio, 0, ratio_ppm(s->cap_quantile, 1.0));
    tdm_gauge_set(b, TDM_METRIC_sched_cap_alpha_ratio, 0, ratio_ppm(s->cap_alpha, 1.0));
    tdm_count_to(b, TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_kept, s->gap_cnt - s->gap_over_cnt);
    tdm_count_to(b, TDM_METRIC_sched_gaps_total, TDM_LABEL_GAP_over, s->gap_over_cnt);
    tdm_count_to(b, TDM_METRIC_sched_places_yielded_total, 0, s->evict_cnt);
    tdm_count_to(b, TDM_METRIC_sched_turns_sat_out_total, 0, s->skip_cnt);
    tdm_count_to(b, TDM_METRIC_sched_thrifty_iterations_total, 0, s->thrift_cnt);
    tdm_gauge_set(b, TDM_METRIC_sched_drifting, 0, s->is_drifting);
    tdm_count_to(b, TDM_METRIC_sched_drift_alarms_total, 0, s->drift_cnt);
    tdm_count_to(b, TDM_METRIC_sched_outside_profile_total, 0, s->outside_cnt);
}

static void publish_cache(tdm_block_t *b, const tdm_sched_stats_t *s) {
    tdm_count_to(b, TDM_METRIC_prefix_lookups_total, TDM_LABEL_LOOKUP_hit, s->cache_hit_cnt);
    tdm_count_to(b, TDM_METRIC_prefix_lookups_total, TDM_LABEL_LOOKUP_miss,
                 s->cache_lookup_cnt - s->cache_hit_cnt);
    tdm_count_to(b, TDM_METRIC_prefix_saved_tokens_total, 0, s->cache_saved_tokens);
    tdm_count_to(b, TDM_METRIC_kv_held_tokens_total, 0, s->held_tokens);
    tdm_count_to(b, TDM_METRIC_prefix_lost_pages_total, TDM_LABEL_LOSS_evicted, s->cache_evict_cnt);
    tdm_count_to(b, TDM_METRIC_prefix_lost_pages_total, TDM_LABEL_LOSS_flushed, s->cache_flush_cnt);
}

static void publish_queue(const tdm_sched_tile_t *t, tdm_block_t *b, const tdm_sched_stats_t *s) {
    int64_t oldest_ns[TDM_SLO_CLASS_MAX];
    tdm_sched_oldest(t->core, oldest_ns);
    tdm_gauge_set(b, TDM_METRIC_queue_tokens, 0, s->waiting_tokens);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        tdm_gauge_set(b, TDM_METRIC_queue_requests,
                      tdm_series2(TDM_METRIC_queue_requests, k, TDM_LABEL_QUEUE_waiting),
                      s->waiting_of[k]);
        tdm_gauge_set(b, TDM_METRIC_queue_requests,
                      tdm_series2(TDM_METRIC_queue_requests, k, TDM_LABEL_QUEUE_running),
                      s->running_of[k]);
    }
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        tdm_gauge_set(b, TDM_METRIC_queue_oldest_seconds, k,
                      (uint64_t)TDM_MAX(t->now_ns - oldest_ns[k], 0));
}

void tdm_sched_tile_publish(tdm_sched_tile_t *t) {
    tdm_block_t *b = t->w.block;
    if (!b) return;
    const tdm_sched_stats_t *s = tdm_sched_stats(t->core);
    tdm_block_begin(b);
    publish_reasons(t, b, s);
    publish_discards(b, s);
    for (uint32_t f = TDM_FINISH_STOP; f < TDM_FINISH_CNT; f++)
        tdm_count_to(b, TDM_METRIC_sequences_ended_total, f - TDM_FINISH_STOP, s->ended[f]);
    publish_queue(t, b, s);
    publish_cap(b, s);
    publish_cache(b, s);
    uint32_t used = s->page_held + s->page_fenced + s->page_cached - s->page_idle;
    tdm_gauge_set(b, TDM_METRIC_kv_pages, TDM_LABEL_KV_total, s->page_cnt);
    tdm_gauge_set(b, TDM_METRIC_kv_pages, TDM_LABEL_KV_used, used);
    tdm_gauge_set(b, TDM_METRIC_kv_pages, TDM_LABEL_KV_free, s->page_free);
    tdm_gauge_set(b, TDM_METRIC_kv_cached_pages, 0, s->page_idle);
    tdm_gauge_set(b, TDM_METRIC_kv_usage_ratio, 0, ratio_ppm(used, s->page_cnt));
    tdm_gauge_set(b, TDM_METRIC_executor_epoch, 0, t->epoch);
    tdm_block_end(b);
}
