/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/health.h"

static int is_pause(uint32_t reason) {
    return reason == TDM_FALLBACK_kernel_error || reason == TDM_FALLBACK_watchdog;
}

static uint32_t reason_of(uint32_t event) {
    static const uint32_t reason[TDM_POD_EVENT_CNT] = {
        TDM_REASON_NONE, TDM_FALLBACK_self_test_failed, TDM_FALLBACK_quarantined,
        TDM_FALLBACK_kernel_error, TDM_FALLBACK_watchdog};
    return event < TDM_POD_EVENT_CNT ? reason[event] : (uint32_t)TDM_REASON_NONE;
}

static void pause(tdm_pod_state_t *s, uint32_t variant, uint64_t it) {
    uint64_t length = TDM_POD_PAUSE_IT;
    for (uint32_t i = 0; i < s->strike[variant] && length < TDM_POD_PAUSE_MAX_IT; i++) length *= 2;
    s->until_it[variant] = it + length;
    if (s->strike[variant] < UINT32_MAX) s->strike[variant]++;
}

void tdm_pod_health_tell(tdm_pod_state_t *s, uint32_t variant, uint32_t event, uint64_t it) {
    if (variant >= TDM_POD_VARIANT_CNT) return;
    uint32_t now = s->unfit[variant];
    uint32_t reason = reason_of(event);
    if (event == TDM_POD_EVENT_SELF_TEST_OK) {
        if (now == TDM_FALLBACK_self_test_failed) s->unfit[variant] = TDM_REASON_NONE;
        return;
    }
    if (reason == TDM_REASON_NONE) return;
    if (is_pause(reason)) pause(s, variant, it);
    if (now == TDM_REASON_NONE || reason < now) s->unfit[variant] = reason;
}

uint32_t tdm_pod_health_judge(tdm_pod_state_t *s, const tdm_pod_plan_t *plan, int error,
                              int is_exact, uint64_t ns, uint64_t limit_ns, uint64_t it) {
    uint32_t event = TDM_POD_EVENT_CNT;
    int is_slow = plan->route == TDM_ROUTE_FUSED && limit_ns && ns > limit_ns;
    if (error) {
        event = TDM_POD_EVENT_KERNEL_ERROR;
    } else if (!is_exact) {
        event = TDM_POD_EVENT_WRONG_RESULT;
    } else if (is_slow) {
        event = TDM_POD_EVENT_TOO_SLOW;
    }
    if (event != TDM_POD_EVENT_CNT) tdm_pod_health_tell(s, plan->variant, event, it);
    return event;
}

void tdm_pod_health_tick(tdm_pod_state_t *s, uint64_t it) {
    for (uint32_t v = 0; v < TDM_POD_VARIANT_CNT; v++) {
        if (is_pause(s->unfit[v]) && it >= s->until_it[v]) s->unfit[v] = TDM_REASON_NONE;
    }
}

uint32_t tdm_pod_health_bar(const tdm_pod_state_t *s, uint32_t variant) {
    uint32_t reason = s->unfit[variant];
    return reason == TDM_FALLBACK_watchdog ? (uint32_t)TDM_REASON_NONE : reason;
}

uint32_t tdm_pod_health_slow(const tdm_pod_state_t *s, uint32_t variant) {
    uint32_t reason = s->unfit[variant];
    return reason == TDM_FALLBACK_watchdog ? reason : (uint32_t)TDM_REASON_NONE;
}
