/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a device that plans for itself and answers later is heard at each
   turn of an iteration.  Method: one that writes down what it is asked
   (queue.h); the engine has no work list for it. */
#include "tests/unit/kernels_engine/queue.h"

#include "appliance/abi/reasons.h"

static int setup(void **state) {
    (void)state;
    tdm_engine_config_t config = rig_config(queue_ops());
    config.worklist = (tdm_worklist_config_t){.sm_cnt = 132};
    config.layer_cnt = 1;
    rig_open(&config);
    return 0;
}

static void a_device_may_plan_for_itself(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_IDLE;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_run();
    assert_string_equal(rig.diary, "apply "); /* idle plans are heard too */
    assert_int_equal(queue.applied_cnt, 2);
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    rig_run();
    assert_string_equal(rig.diary,
                        "apply begin embed qkv0 rope0 att out0 ffn0 logits sample post finish ");
    /* Such a device is waited for in `sample`: its wait is no time of sampling. */
    assert_int_equal(rig.result->sample_ns, 0);
    assert_int_equal(rig.result->route, TDM_ROUTE_SERIAL);
    assert_int_equal(rig.result->reason, TDM_FALLBACK_kernel_error);
    assert_int_equal(rig.result->kv_read_bytes, 44);
    assert_int_equal(queue.iteration, 1);
    assert_int_equal(rig.result->sm_cnt, 132);
}

static void a_replay_leaves_the_walk_out(void **state) {
    (void)state;
    queue.is_replay = 1;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    rig_run();
    assert_string_equal(rig.diary, "apply begin logits sample post finish ");
    assert_int_equal(rig.result->sample_cnt, 1);
}

static void a_failed_device_has_no_result(void **state) {
    (void)state;
    tdm_error_t err = {0};
    queue.is_failing = 1;
    rig.plan->iteration = 5;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    assert_int_equal(rig_run_one(&err), TDM_ERR_INTERNAL);
    assert_int_equal(rig.result->sample_cnt, 0);
    assert_int_equal(rig.result->iteration, 5);
    assert_string_equal(err.text, "broken for the test");
}

int main(void) {
#define FACT(f) cmocka_unit_test_setup_teardown(f, setup, rig_close)
    const struct CMUnitTest tests[] = {
        FACT(a_device_may_plan_for_itself),
        FACT(a_replay_leaves_the_walk_out),
        FACT(a_failed_device_has_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
