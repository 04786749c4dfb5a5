// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/sweep.h"

// A plan with this cut, measured; 0 where the planner makes none, or counters
// say that it was not kept.
static float measure(bench_t *b, const point_t *p, uint32_t decode_sm, uint32_t piece) {
    tdm_pod_config_t *c = &b->config[FUSED];
    c->share[TDM_KIND_DECODE] = decode_sm;
    c->share[TDM_KIND_PREFILL] = c->gpu.sm_cnt - decode_sm;
    c->prefill_split = piece;
    if (!bench_way(b, p, FUSED) || b->plan[FUSED].variant != TDM_POD_VARIANT_HOPPER) return 0.0f;
    float us = burst_way(b, FUSED);
    tdm_pod_counters_t counters;
    return bench_counters(b, FUSED, &counters) ? us : 0.0f;
}

void sweep_run(bench_t *b, const point_t *p, uint32_t piece_max, sweep_t *out) {
    const tdm_pod_config_t before = b->config[FUSED];
    out->cnt = 0;
    if (b->plan[FUSED].variant == TDM_POD_VARIANT_HOPPER) {
        uint32_t step = before.gpu.sm_cnt / 33; // 4 of 132
        for (uint32_t sm = 5 * step; sm <= 13 * step; sm += step) {
            for (uint32_t piece = 1; piece <= piece_max && out->cnt < SWEEP_MAX; piece++) {
                float us = measure(b, p, sm, piece);
                if (us > 0.0f) out->cut[out->cnt++] = {sm, piece, us};
            }
        }
    }
    tdm_pod_counters_t counters;
    b->config[FUSED] = before;
    (void)bench_way(b, p, FUSED);
    (void)bench_counters(b, FUSED, &counters);
}
