/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/live.h"

#include "appliance/base/clock.h"

/* One class's keys. */
typedef struct keys {
    uint64_t ttft_ms, gap_ms, over_ppm, burst_ms, weight;
} keys_t;

static void class_make(const tdm_config_t *c, const keys_t *k, tdm_sched_class_t *out) {
    uint64_t ttft_ms = k->ttft_ms ? k->ttft_ms : c->sched_ttft_ms;
    uint64_t gap_ms = k->gap_ms ? k->gap_ms : c->sched_gap_ms;
    *out = (tdm_sched_class_t){.ttft_ns = (int64_t)ttft_ms * TDM_NS_PER_MS,
                               .gap_ns = (int64_t)gap_ms * TDM_NS_PER_MS,
                               .epsilon = (double)k->over_ppm / 1e6,
                               .burst_ns = (int64_t)k->burst_ms * TDM_NS_PER_MS,
                               .weight = (double)k->weight / 100.0};
}

void tdm_live_make(const tdm_config_t *c, tdm_sched_live_t *live) {
    static const uint32_t route[] = {TDM_ROUTE_FUSED, TDM_ROUTE_STREAMS, TDM_ROUTE_SERIAL};
    tdm_profile_t profile = live->profile;
    tdm_sched_live_default(live);
    live->profile = profile;
    live->route = route[c->sched_route];
    live->policy = TDM_POLICY_QUANTILE + (uint32_t)c->sched_policy;
    live->ttft_guard = (uint32_t)c->sched_ttft_guard;
    for (uint32_t k = 0; k < TDM_TENANT_MAX; k++) {
        live->tenant[k].token_per_s = (double)c->sched_tenant_tokens_per_s;
        live->tenant[k].token_burst = 10.0 * live->tenant[k].token_per_s;
    }
    live->token_max = (uint32_t)c->sched_prefill_tokens;
    live->floor_cnt = TDM_MIN(live->floor_cnt, live->token_max);
    live->waiting_tokens_max = c->sched_waiting_tokens;
    live->patience = (double)c->sched_patience;
    live->evict_max = (uint32_t)c->sched_evictions;
    live->watchdog_min_ns = (int64_t)c->sched_watchdog_ms * TDM_NS_PER_MS;
#define KEYS(s)                                                                                    \
    { c->s##_ttft_ms, c->s##_gap_ms, c->s##_over_ppm, c->s##_burst_ms, c->s##_weight }
    const keys_t keys[TDM_SLO_CLASS_MAX] = {KEYS(class0), KEYS(class1), KEYS(class2), KEYS(class3)};
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) class_make(c, &keys[k], &live->class_of[k]);
}

void tdm_live_promises(const tdm_sched_live_t *live, tdm_api_class_t promise[TDM_SLO_CLASS_MAX]) {
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++)
        promise[k] = (tdm_api_class_t){.ttft_ns = live->class_of[k].ttft_ns,
                                       .tpot_ns = live->class_of[k].gap_ns};
}
