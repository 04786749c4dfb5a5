/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a system learns about its kernels moves the fallback reasons,
   and what can still run runs.
   Method: events into the state, plans out of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/plan/device.h"
#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"

#define PORTABLE TDM_POD_VARIANT_PORTABLE
#define PLAIN    TDM_POD_VARIANT_PLAIN

typedef struct rig {
    tdm_pod_config_t config;
    tdm_pod_plan_t plan;
    uint8_t *blob;
} rig_t;

static void rig_open(rig_t *r) {
    memset(r, 0, sizeof *r);
    r->config.gpu = *tdm_gpu_known("a100");
    r->config.shape = (tdm_pod_shape_t){32, 8, 128, TDM_POD_BF16, TDM_POD_BF16, 64, 0};
    r->config.tile = TDM_POD_TILE_AUTO;
    tdm_pod_config_fill(&r->config);
    r->blob = malloc(tdm_pod_blob_max(&r->config));
    assert_non_null(r->blob);
}

static void expect(rig_t *r, uint32_t reason, uint32_t variant, uint32_t route) {
    const tdm_attn_seq_t seq[] = {{0, 4096, 512, 0}, {1, 4096, 1, 512}};
    tdm_pod_plan_build(&r->config, seq, 1, 1, TDM_ROUTE_FUSED, r->blob, &r->plan);
    assert_int_equal(r->plan.reason, reason);
    assert_int_equal(r->plan.variant, variant);
    assert_int_equal(r->plan.route, route);
}

static void tell(rig_t *r, uint32_t variant, uint32_t event, uint64_t it) {
    tdm_pod_health_tell(&r->config.state, variant, event, it);
}

static void each_event_moves_its_reason(void **state) {
    (void)state;
    static const struct {
        uint32_t event, reason, variant;
    } c[] = {{TDM_POD_EVENT_SELF_TEST_FAILED, TDM_FALLBACK_self_test_failed, PLAIN},
             {TDM_POD_EVENT_WRONG_RESULT, TDM_FALLBACK_quarantined, PLAIN},
             {TDM_POD_EVENT_KERNEL_ERROR, TDM_FALLBACK_kernel_error, PLAIN},
             {TDM_POD_EVENT_TOO_SLOW, TDM_FALLBACK_watchdog, PORTABLE}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_t r;
        rig_open(&r);
        expect(&r, TDM_REASON_NONE, PORTABLE, TDM_ROUTE_FUSED);
        tell(&r, PORTABLE, c[i].event, 7);
        expect(&r, c[i].reason, c[i].variant, TDM_ROUTE_SERIAL);
        /* What a plain kernel does is nothing to the portable one. */
        memset(&r.config.state, 0, sizeof r.config.state);
        tell(&r, PLAIN, c[i].event, 7);
        expect(&r, TDM_REASON_NONE, PORTABLE, TDM_ROUTE_FUSED);
        free(r.blob);
    }
}

static void where_no_kernel_is_fit_nothing_runs(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    tell(&r, PORTABLE, TDM_POD_EVENT_SELF_TEST_FAILED, 0);
    tell(&r, PLAIN, TDM_POD_EVENT_SELF_TEST_FAILED, 0);
    expect(&r, TDM_FALLBACK_self_test_failed, TDM_POD_VARIANT_NONE, TDM_ROUTE_IDLE);
    tell(&r, PORTABLE, TDM_POD_EVENT_SELF_TEST_OK, 0);
    expect(&r, TDM_REASON_NONE, PORTABLE, TDM_ROUTE_FUSED);
    free(r.blob);
}

static void a_passed_test_lifts_nothing_but_a_failed_one(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    tell(&r, PORTABLE, TDM_POD_EVENT_WRONG_RESULT, 0);
    tell(&r, PORTABLE, TDM_POD_EVENT_SELF_TEST_OK, 0);
    tdm_pod_health_tick(&r.config.state, UINT64_MAX);
    expect(&r, TDM_FALLBACK_quarantined, PLAIN, TDM_ROUTE_SERIAL);
    free(r.blob);
}

static void the_first_reason_in_order_stays(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    tell(&r, PORTABLE, TDM_POD_EVENT_TOO_SLOW, 0);
    tell(&r, PORTABLE, TDM_POD_EVENT_KERNEL_ERROR, 0);
    expect(&r, TDM_FALLBACK_kernel_error, PLAIN, TDM_ROUTE_SERIAL);
    tell(&r, PORTABLE, TDM_POD_EVENT_WRONG_RESULT, 0);
    tell(&r, PORTABLE, TDM_POD_EVENT_TOO_SLOW, 0);
    expect(&r, TDM_FALLBACK_quarantined, PLAIN, TDM_ROUTE_SERIAL);
    r.config.state.is_graph_missing = 1; /* stands before it */
    expect(&r, TDM_FALLBACK_graph_miss, PLAIN, TDM_ROUTE_SERIAL);
    free(r.blob);
}

static void pauses_end_and_double(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    uint64_t it = 100;
    uint64_t length = TDM_POD_PAUSE_IT;
    for (uint32_t i = 0; i < 40; i++) {
        tell(&r, PORTABLE, TDM_POD_EVENT_KERNEL_ERROR, it);
        tdm_pod_health_tick(&r.config.state, it + length - 1);
        expect(&r, TDM_FALLBACK_kernel_error, PLAIN, TDM_ROUTE_SERIAL);
        tdm_pod_health_tick(&r.config.state, it + length);
        expect(&r, TDM_REASON_NONE, PORTABLE, TDM_ROUTE_FUSED);
        it += length + 5;
        length = TDM_MIN(2 * length, TDM_POD_PAUSE_MAX_IT);
    }
    free(r.blob);
}

/* Error, count, time: the first that is bad is the event; a slow launch that
   was not fused is none. */
static void an_iteration_is_judged_by_what_it_did(void **state) {
    (void)state;
    static const struct {
        int error, is_exact;
        uint64_t ns, limit_ns;
        uint32_t event, reason;
    } c[] = {{0, 1, 100, 100, TDM_POD_EVENT_CNT, TDM_REASON_NONE},
             {0, 1, 100, 0, TDM_POD_EVENT_CNT, TDM_REASON_NONE},
             {0, 1, 101, 100, TDM_POD_EVENT_TOO_SLOW, TDM_FALLBACK_watchdog},
             {0, 0, 101, 100, TDM_POD_EVENT_WRONG_RESULT, TDM_FALLBACK_quarantined},
             {9, 0, 101, 100, TDM_POD_EVENT_KERNEL_ERROR, TDM_FALLBACK_kernel_error}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_t r;
        rig_open(&r);
        expect(&r, TDM_REASON_NONE, PORTABLE, TDM_ROUTE_FUSED);
        uint32_t event = tdm_pod_health_judge(&r.config.state, &r.plan, c[i].error, c[i].is_exact,
                                              c[i].ns, c[i].limit_ns, 5);
        assert_int_equal(event, c[i].event);
        assert_int_equal(r.config.state.unfit[PORTABLE], c[i].reason);
        memset(&r.config.state, 0, sizeof r.config.state);
        r.plan.route = TDM_ROUTE_SERIAL;
        event = tdm_pod_health_judge(&r.config.state, &r.plan, 0, 1, 101, 100, 5);
        assert_int_equal(event, TDM_POD_EVENT_CNT);
        free(r.blob);
    }
}

static void unknown_variants_and_events_are_ignored(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    tdm_pod_state_t clean = r.config.state;
    tell(&r, TDM_POD_VARIANT_CNT, TDM_POD_EVENT_WRONG_RESULT, 0);
    tell(&r, PORTABLE, TDM_POD_EVENT_CNT, 0);
    assert_memory_equal(&r.config.state, &clean, sizeof clean);
    free(r.blob);
}

static void an_operator_may_forbid_a_variant(void **state) {
    (void)state;
    rig_t r;
    rig_open(&r);
    r.config.variant = PLAIN;
    expect(&r, TDM_FALLBACK_operator, PLAIN, TDM_ROUTE_SERIAL);
    free(r.blob);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_moves_its_reason),
        cmocka_unit_test(where_no_kernel_is_fit_nothing_runs),
        cmocka_unit_test(a_passed_test_lifts_nothing_but_a_failed_one),
        cmocka_unit_test(the_first_reason_in_order_stays),
        cmocka_unit_test(pauses_end_and_double),
        cmocka_unit_test(an_iteration_is_judged_by_what_it_did),
        cmocka_unit_test(unknown_variants_and_events_are_ignored),
        cmocka_unit_test(an_operator_may_forbid_a_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
