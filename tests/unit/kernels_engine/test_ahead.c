/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the second of two iterations under way runs on tokens that the first
   has not drawn yet.  Method: a prompt and the decode of what it yields, begun
   before anything is computed, on both kinds of device (rig.h, queue.h). */
#include "tests/unit/kernels_engine/queue.h"

#include <string.h>

static tdm_plan_t plans[2];
static tdm_result_t results[2];

static int setup(const tdm_engine_ops_t *ops) {
    tdm_error_t err = {0};
    tdm_engine_config_t config = rig_config(ops);
    config.layer_cnt = 1;
    config.depth = 2;
    if (tdm_worklist_config_check(&config.worklist, &err) != TDM_OK) fail_msg("%s", err.text);
    rig_open(&config);
    memset(plans, 0, sizeof plans);
    return 0;
}

static int setup_host(void **state) {
    (void)state;
    return setup(&rig_ops);
}

static int setup_queue(void **state) {
    (void)state;
    return setup(queue_ops());
}

/* start_two begins a prompt in slot 0 and a decode of the token that it
   will yield. */
static void start_two(void) {
    tdm_error_t err = {0};
    plans[0].iteration = 1;
    plans[0].route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(&plans[0], 0, 3, 2);
    rig_add_slice(&plans[0], 0, 0, 2, 1);
    assert_int_equal(tdm_engine_start(rig.engine, &plans[0], &results[0], &err), TDM_OK);
    plans[1].iteration = 2;
    plans[1].route = TDM_ROUTE_DECODE_ONLY;
    rig_add_decode(&plans[1], 0, 2);
    assert_int_equal(tdm_engine_start(rig.engine, &plans[1], &results[1], &err), TDM_OK);
}

static void a_decode_runs_on_a_token_that_was_not_drawn_when_it_began(void **state) {
    (void)state;
    tdm_error_t err = {0};
    start_two();
    tdm_engine_compute(rig.engine); /* draws 10 */
    tdm_engine_compute(rig.engine);
    assert_int_equal(rig.row_cnt, 1);
    assert_int_equal(rig.row[0].token, 10);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(tdm_engine_finish(rig.engine, &err), TDM_OK);
        assert_int_equal(results[i].iteration, i + 1);
        assert_int_equal(results[i].sample_cnt, 1);
        assert_int_equal(results[i].sample[0].pos, 2 + i);
        assert_int_equal(results[i].sample[0].token, 10 + (int32_t)i);
    }
    assert_true(results[1].start_ns >= results[0].end_ns);
    assert_true(results[0].idle_ns == 0 && results[1].idle_ns > 0);
}

static void a_nan_is_one_for_what_runs_on_it(void **state) {
    (void)state;
    tdm_error_t err = {0};
    start_two();
    rig.is_nan = 1;
    tdm_engine_compute(rig.engine);
    rig.is_nan = 0;
    tdm_engine_compute(rig.engine);
    assert_int_equal(rig.row_cnt, 1);
    assert_int_equal(rig.row[0].token, 0); /* any token that there is */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(tdm_engine_finish(rig.engine, &err), TDM_OK);
        assert_int_equal(results[i].sample[0].token, -1);
        assert_int_equal(results[i].sample[0].flags, TDM_SAMPLE_NAN);
    }
}

/* A device with a queue puts the token in itself, while it is not known. */
static void a_queue_is_told_which_rows_have_no_token(void **state) {
    (void)state;
    tdm_error_t err = {0};
    start_two();
    assert_int_equal(queue.iteration, 2);
    assert_int_equal(rig.row[0].token, TDM_ROW_DRAWN);
    assert_int_equal(rig.row[0].pos, 2);
    tdm_engine_compute(rig.engine);
    rig.queued[0].token = 17;
    assert_int_equal(tdm_engine_finish(rig.engine, &err), TDM_OK);
    assert_int_equal(results[0].sample[0].token, 17);
    rig.queued[0].token = 18;
    assert_int_equal(tdm_engine_finish(rig.engine, &err), TDM_OK);
    memset(&plans[0], 0, sizeof plans[0]);
    plans[0].route = TDM_ROUTE_DECODE_ONLY;
    rig_add_decode(&plans[0], 0, 3);
    assert_int_equal(tdm_engine_start(rig.engine, &plans[0], &results[0], &err), TDM_OK);
    assert_int_equal(rig.row[0].token, 18);
}

int main(void) {
#define FACT(f, how) cmocka_unit_test_setup_teardown(f, how, rig_close)
    const struct CMUnitTest tests[] = {
        FACT(a_decode_runs_on_a_token_that_was_not_drawn_when_it_began, setup_host),
        FACT(a_nan_is_one_for_what_runs_on_it, setup_host),
        FACT(a_queue_is_told_which_rows_have_no_token, setup_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
