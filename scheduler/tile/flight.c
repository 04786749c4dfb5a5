/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's part of the flight recorder: what a record of the core
   and the result of its plan say together. */

#include "scheduler/tile/tile_private.h"

/* device fills what the board tells: the iteration's energy is the power
   of the last look, at most 50 ms ago, for the time that it took. */
static void device(const tdm_sched_tile_t *t, tdm_flight_iteration_t *f) {
    uint64_t mhz = 0, mw = 0;
    if (!t->w.board) return;
    if (!f->clock_mhz && tdm_board_get(t->w.board, TDM_BOARD_SM_CLOCK_MHZ, t->now_ns, &mhz))
        f->clock_mhz = (uint32_t)mhz;
    if (f->end_ns > f->start_ns && tdm_board_get(t->w.board, TDM_BOARD_POWER_MW, t->now_ns, &mw))
        f->energy_uj = mw * (uint64_t)(f->end_ns - f->start_ns) / 1000000u;
}

/* missed_us: what the host needed to queue an iteration without its graph. */
static uint16_t missed_us(const tdm_result_t *r) {
    if (r->graph != TDM_GRAPH_MISSED || r->queue_ns <= 0) return 0;
    return (uint16_t)TDM_MIN(r->queue_ns / 1000 + 1, UINT16_MAX);
}

void tdm_sched_tile_note(tdm_sched_tile_t *t, uint32_t slot) {
    const tdm_result_t *r = t->w.result[slot];
    tdm_flight_iteration_t *f = &t->noted[slot];
    if (!t->w.flight) return;
    *f = (tdm_flight_iteration_t){.iteration = r->iteration,
                                  .epoch = r->epoch,
                                  .attention_ns = r->attention_ns,
                                  .sample_ns = r->sample_ns,
                                  .colocated_ns = r->colocated_ns,
                                  .variant = t->w.plan[slot]->variant,
                                  .split_cnt = (uint32_t)TDM_MIN(r->split_cnt, UINT32_MAX),
                                  .merge_cnt = (uint32_t)TDM_MIN(r->merge_cnt, UINT32_MAX),
                                  .sm_cnt = r->sm_cnt,
                                  .tile_row = r->tile_row,
                                  .tile_key = r->tile_key,
                                  .miss_us = missed_us(r),
                                  .clock_mhz = r->sm_clock_khz / 1000};
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        f->vcta_planned[k] = r->vcta_planned[k];
        f->vcta_executed[k] = r->vcta_executed[k];
        f->vcta_ns[k] = r->vcta_ns[k];
    }
}

/* found gives what was noted of an iteration; zeros where it was lost. */
static tdm_flight_iteration_t found(const tdm_sched_tile_t *t, const tdm_sched_record_t *r) {
    for (uint32_t i = 0; i < t->sizes.depth && !r->is_lost; i++)
        if (t->noted[i].iteration == r->iteration && t->noted[i].epoch == r->epoch)
            return t->noted[i];
    return (tdm_flight_iteration_t){.iteration = r->iteration, .epoch = r->epoch};
}

static uint32_t quantile_ppm(double quantile) {
    return quantile > 0.0 && quantile < 4000.0 ? (uint32_t)(quantile * 1e6) : 0u;
}

void tdm_sched_tile_fly(tdm_sched_tile_t *t, const tdm_sched_record_t *r) {
    if (!t->w.flight) return;
    tdm_flight_iteration_t f = found(t, r);
    if (!r->is_lost) {
        f.start_ns = r->end_ns - r->actual_ns;
        f.end_ns = r->end_ns;
        device(t, &f);
    }
    f.planned_ns = r->planned_ns;
    f.limit_ns = r->limit_ns;
    f.predicted_ns = r->predicted_ns;
    f.profile_ns = r->profile_ns;
    f.kv_cnt = r->kv_cnt;
    f.pair_cnt = r->pair_cnt;
    f.quantile_ppm = quantile_ppm(r->quantile);
    f.revision = r->live_revision;
    f.prefill_cnt = r->prefill_cnt;
    f.decode_cnt = r->decode_cnt;
    f.slice_cnt = r->slice_cnt;
    f.waiting_cnt = r->waiting_cnt;
    f.running_cnt = r->running_cnt;
    f.page_free_cnt = r->page_free_cnt;
    f.over_cnt = r->over_cnt;
    f.flags = (r->is_forced ? TDM_FLIGHT_FORCED : 0u) | (r->is_lost ? TDM_FLIGHT_LOST : 0u) |
              (r->is_outside ? TDM_FLIGHT_OUTSIDE : 0u);
    f.route = r->route;
    f.ran = r->ran;
    f.cap = r->cap;
    f.fallback = r->fallback;
    f.limit_class = (uint16_t)r->limit_class;
    tdm_flight_put(t->w.flight, &f);
    if (t->w.block)
        tdm_count_to(t->w.block, TDM_METRIC_flight_records_total, TDM_LABEL_FLIGHT_iteration,
                     t->w.flight->next);
}
