/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the measurement of the real CPU backend with the tiny model comes
   to an end, with every kind of point and a table that can be used.
   Counts only: how long anything took is this machine's affair. */

#include "appliance/base/clock.h"
#include "appliance/measure/measure.h"
#include "appliance/model/model.h"
#include "appliance/profile/profile.h"
#include "kernels/include/backend.h"
#include "scheduler/table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tdm_plan_t plan;
static tdm_result_t result;
static tdm_profile_table_t table;

static int64_t on_now(void *ctx) {
    (void)ctx;
    return tdm_clock_now_ns();
}

static tdm_status_t on_run(void *ctx, tdm_plan_t *p, tdm_result_t *r, tdm_error_t *err) {
    return tdm_backend_run(ctx, p, r, err);
}

static void the_tiny_model_is_measured(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_model_t *model = NULL;
    tdm_backend_t *backend = NULL;
    tdm_profile_t guess;
    tdm_profile_set_t set = {0};
    assert_int_equal(tdm_model_open("dummy:tiny", NULL, &model, &err), TDM_OK);
    const tdm_shape_t *shape = tdm_model_shape(model);
    tdm_backend_config_t c = {
        .kv_page_cnt = 400, .seq_max = 9, .token_max = 128, .context_max = 2048, .sm_cnt = 2};
    assert_int_equal(tdm_backend_cpu_create(tdm_model_weights(model), &c, NULL, &backend, &err),
                     TDM_OK);
    tdm_profile_rates_t rates = tdm_profile_cpu_rates(2);
    tdm_profile_guess(shape, &rates, &guess);
    tdm_measure_ask_t ask = {.limits = {.seq_max = c.seq_max,
                                        .token_max = c.token_max,
                                        .context_max = c.context_max,
                                        .kv_page_cnt = c.kv_page_cnt,
                                        .vocab = shape->vocab},
                             .guess = &guess,
                             .budget_ns = 2 * TDM_NS_PER_S,
                             .run = on_run,
                             .now = on_now,
                             .plan = &plan,
                             .result = &result,
                             .ctx = backend};
    assert_int_equal(tdm_measure_run(&ask, &set, &err), TDM_OK);
    /* What the first stage has, which is done whatever the budget: on a slow
       machine by the grid of few shapes, with one hybrid of each variant. */
    uint32_t alone[TDM_PROFILE_KIND_CNT] = {0}, hybrid[TDM_PROFILE_KIND_CNT] = {0};
    for (uint32_t i = 0; i < set.point_cnt; i++) {
        const tdm_profile_point_t *p = &set.point[i];
        (*(p->chunk && p->batch ? &hybrid[p->kind] : &alone[p->kind]))++;
    }
    assert_true(alone[TDM_PROFILE_LIN] >= 6);
    assert_true(alone[TDM_PROFILE_FUSED] >= 7);
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++)
        assert_true(hybrid[TDM_PROFILE_FUSED + v] >= 1);
    assert_int_equal(tdm_profile_build(&set, &guess, &table, &err), TDM_OK);
    assert_true(tdm_profile_is_monotone(&table));
    tdm_load_t small = {.decode_cnt = 1, .kv_cnt = 8, .kv_max = 8};
    tdm_load_t large = {
        .prefill_cnt = 128, .pair_cnt = 128 * 129 / 2, .decode_cnt = 8, .kv_cnt = 64};
    assert_true(tdm_table_ns(&table, 0, &small) > 0.0);
    assert_true(tdm_table_ns(&table, 0, &large) >= tdm_table_ns(&table, 0, &small));
    tdm_profile_set_free(&set);
    tdm_backend_destroy(backend);
    tdm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_tiny_model_is_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
