/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/config.h"

#define WAITING_MAX 65536u
#define REQUEST_MAX 65536u
#define PAGE_MAX    (1u << 26)
#define FACTOR_MAX  1e6

#define RANGE(value, low, high)                                                                    \
    do {                                                                                           \
        if (!((value) >= (low) && (value) <= (high)))                                              \
            return tdm_error_set(err, TDM_ERR_INVAL, "scheduler: %s is outside its range",         \
                                 #value);                                                          \
    } while (0)

tdm_status_t tdm_sched_sizes_check(const tdm_sched_sizes_t *sizes, tdm_error_t *err) {
    RANGE(sizes->seq_max, 1u, (uint32_t)TDM_SEQ_MAX);
    RANGE(sizes->waiting_max, 1u, WAITING_MAX);
    RANGE(sizes->page_cnt, 1u, PAGE_MAX);
    RANGE(sizes->context_max, 2u, (uint32_t)TDM_CONTEXT_MAX);
    RANGE(sizes->vocab, 1u, (uint32_t)TDM_VOCAB_MAX);
    RANGE(sizes->api_cnt, 1u, (uint32_t)TDM_API_TILE_MAX);
    RANGE(sizes->request_max, 1u, REQUEST_MAX);
    RANGE(sizes->depth, 1u, 2u);
    if (sizes->has_cache > 1u)
        return tdm_error_set(err, TDM_ERR_INVAL, "scheduler: has_cache is outside its range");
    return TDM_OK;
}

static tdm_status_t classes_check(const tdm_sched_live_t *live, tdm_error_t *err) {
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        RANGE(live->class_of[k].ttft_ns, 1, INT64_MAX / 4);
        RANGE(live->class_of[k].gap_ns, 1, INT64_MAX / 4);
        /* its last token is due context times this after the first */
        if (live->class_of[k].burst_ns > 0)
            RANGE(live->class_of[k].gap_ns, 1, INT64_MAX / 4 / TDM_CONTEXT_MAX);
        RANGE(live->class_of[k].epsilon, 1e-6, 1.0);
        RANGE(live->class_of[k].burst_ns, 0, INT64_MAX / 4);
        RANGE(live->class_of[k].weight, 1e-3, 1e3);
    }
    return TDM_OK;
}

static tdm_status_t tenants_check(const tdm_sched_live_t *live, tdm_error_t *err) {
    for (uint32_t k = 0; k < TDM_TENANT_MAX; k++) {
        RANGE(live->tenant[k].weight, 1e-3, 1e6);
        RANGE(live->tenant[k].token_per_s, 0.0, 1e15);
        RANGE(live->tenant[k].token_burst, live->tenant[k].token_per_s > 0.0 ? 1.0 : 0.0, 1e15);
    }
    return TDM_OK;
}

static tdm_status_t profile_check(const tdm_profile_t *profile, tdm_error_t *err) {
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++) {
        const tdm_profile_row_t *row = &profile->row[r];
        RANGE(row->fixed_ns, 0.0, 1e18);
        RANGE(row->token_ns, 0.0, 1e18);
        RANGE(row->pair_ns, 0.0, 1e18);
        RANGE(row->kv_ns, 0.0, 1e18);
    }
    return TDM_OK;
}

tdm_status_t tdm_sched_live_check(const tdm_sched_live_t *live, tdm_error_t *err) {
    RANGE(live->route, (uint32_t)TDM_ROUTE_FUSED, (uint32_t)TDM_ROUTE_SERIAL);
    RANGE(live->policy, (uint32_t)TDM_POLICY_QUANTILE, (uint32_t)TDM_POLICY_STATIC);
    RANGE(live->margin, 0.1, 10.0);
    RANGE(live->grid_tok, 1u, 1024u);
    RANGE(live->token_max, 1u, (uint32_t)TDM_PLAN_TOKEN_MAX);
    RANGE(live->slice_max, 1u, (uint32_t)TDM_PLAN_SLICE_MAX);
    RANGE(live->floor_cnt, 1u, live->token_max);
    RANGE(live->patience, 0.0, 1000.0);
    RANGE(live->prefill_limit_ns, 1, INT64_MAX / 4);
    RANGE(live->host_gap_ns, 0, INT64_MAX / 4);
    RANGE(live->starve_ns, 0, INT64_MAX / 4);
    RANGE(live->bypass_ns, 0, INT64_MAX / 4);
    RANGE(live->watchdog_min_ns, 1, INT64_MAX / 4);
    RANGE(live->watchdog_factor, 1.0, FACTOR_MAX);
    RANGE(live->death_max, 1u, UINT32_MAX);
    RANGE(live->death_window_ns, 0, INT64_MAX / 4);
    RANGE(live->down_max_ns, 1, INT64_MAX / 4);
    RANGE(live->retry_max_ms, live->retry_min_ms, UINT32_MAX);
    tdm_status_t status = classes_check(live, err);
    if (status == TDM_OK) status = tenants_check(live, err);
    return status == TDM_OK ? profile_check(&live->profile, err) : status;
}

/* profile_default is a guess for a small model on a few cores: 1 ms to
   start, 1 ms per token, 100 ns per pair or KV token.  The correction
   finds the right scale within some iterations. */
static void profile_default(tdm_profile_t *profile) {
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        profile->row[r] =
            (tdm_profile_row_t){.fixed_ns = 1e6, .token_ns = 1e6, .pair_ns = 100.0, .kv_ns = 100.0};
    profile->is_measured = 0;
}

void tdm_sched_live_default(tdm_sched_live_t *live) {
    *live = (tdm_sched_live_t){
        .route = TDM_ROUTE_FUSED,
        .policy = TDM_POLICY_QUANTILE,
        .margin = 1.2,
        .grid_tok = 1,
        .token_max = 2048,
        .slice_max = 16,
        .floor_cnt = 32,
        .short_max = 512,
        .patience = 20.0,
        .waiting_tokens_max = 4u << 20,
        .prefill_limit_ns = 500000000,
        .host_gap_ns = 1000000,
        .starve_ns = 2000000000,
        .bypass_ns = 5000000000,
        .watchdog_min_ns = 30000000000,
        .watchdog_factor = 20.0,
        .death_max = 3,
        .evict_max = 1,
        .death_window_ns = 600000000000,
        .down_max_ns = 120000000000,
        .retry_min_ms = 100,
        .retry_max_ms = 60000,
        .class_of = {{.ttft_ns = 2000000000, .gap_ns = 250000000, .epsilon = 0.01},
                     {.ttft_ns = 5000000000, .gap_ns = 500000000, .epsilon = 0.01},
                     {.ttft_ns = 10000000000, .gap_ns = 1000000000, .epsilon = 0.01},
                     {.ttft_ns = 60000000000, .gap_ns = 2000000000, .epsilon = 0.01}},
    };
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) live->class_of[k].weight = 1.0;
    for (uint32_t k = 0; k < TDM_TENANT_MAX; k++) live->tenant[k].weight = 1.0;
    profile_default(&live->profile);
}
