/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the walk.  Method: a device that writes down what it is asked
   (rig.h). */
#include "tests/unit/kernels_engine/rig.h"

#include "appliance/abi/reasons.h"

#include <string.h>

static int setup(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_engine_config_t config = rig_config(&rig_ops);
    if (tdm_worklist_config_check(&config.worklist, &err) != TDM_OK) fail_msg("%s", err.text);
    rig_open(&config);
    return 0;
}

static void layers_are_walked_in_order(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    rig_run();
    assert_string_equal(rig.diary, "embed qkv0 rope0 att out0 ffn0 qkv1 rope1 att out1 ffn1 "
                                   "qkv2 rope2 att out2 ffn2 logits sample ");
}

static void only_last_rows_sample(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 3, 4);
    rig_add_slice(rig.plan, 0, 0, 2, 0);
    rig_run();
    assert_null(strstr(rig.diary, "logits"));
    assert_int_equal(rig.result->sample_cnt, 0);
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_slice(rig.plan, 0, 2, 2, 1);
    rig_run();
    assert_int_equal(rig.logits_cnt, 1);
    assert_int_equal(rig.logits_row[0], 1);
    assert_int_equal(rig.result->sample_cnt, 1);
    assert_int_equal(rig.result->sample[0].pos, 4);
}

static void rows_are_slices_then_decodes(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    for (uint32_t s = 0; s < 3; s++) {
        rig_add_open(rig.plan, s, s, 1);
        rig_add_slice(rig.plan, s, 0, 1, 1);
    }
    rig_run(); /* samples 10, 11, 12, in two groups */
    assert_int_equal(rig.result->sample_cnt, 3);
    rig.plan->route = TDM_ROUTE_FUSED;
    rig.plan->reason = 0;
    rig_add_open(rig.plan, 4, 7, 3);
    rig_add_slice(rig.plan, 4, 0, 3, 1);
    rig_add_decode(rig.plan, 2, 1);
    rig_add_decode(rig.plan, 0, 1);
    rig_run();
    const tdm_engine_row_t want[] = {{40, 4, 0}, {41, 4, 1}, {42, 4, 2}, {12, 2, 1}, {10, 0, 1}};
    assert_int_equal(rig.row_cnt, 5);
    assert_memory_equal(rig.row, want, sizeof want);
    /* Plan order: the slice's sample, then the decodes'. */
    const uint32_t slot[] = {4, 2, 0}, pos[] = {3, 2, 2};
    assert_int_equal(rig.result->sample_cnt, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(rig.result->sample[i].slot, slot[i]);
        assert_int_equal(rig.result->sample[i].pos, pos[i]);
        assert_int_equal(rig.result->sample[i].token, 13 + (int32_t)i);
        assert_true(rig.result->sample[i].logprob == -0.5f);
        assert_int_equal(rig.result->sample[i].flags, 0);
    }
}

static void the_result_carries_all_counters(void **state) {
    (void)state;
    rig.plan->iteration = 77;
    rig.plan->epoch = 5;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    rig_run();
    assert_int_equal(rig.result->iteration, 77);
    assert_int_equal(rig.result->epoch, 5);
    assert_int_equal(rig.result->route, TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(rig.result->reason, 0);
    assert_int_equal(rig.result->fault, 0);
    assert_true(rig.result->start_ns > 0 && rig.result->end_ns >= rig.result->start_ns);
    assert_int_equal(rig.result->attention_ns, 6 * RIG_LAYERS);
    assert_true(rig.result->sample_ns >= 0);
    assert_int_equal(rig.result->vcta_planned[TDM_KIND_PREFILL], 2 * RIG_LAYERS); /* KV heads */
    assert_int_equal(rig.result->vcta_executed[TDM_KIND_PREFILL], 2 * RIG_LAYERS);
    assert_int_equal(rig.result->vcta_planned[TDM_KIND_DECODE], 0);
    assert_int_equal(rig.result->vcta_ns[0], 10 * RIG_LAYERS);
    assert_int_equal(rig.result->colocated_ns, RIG_LAYERS);
    assert_int_equal(rig.result->tile_row, 96);
    assert_int_equal(rig.result->tile_key, 64);
    assert_int_equal(rig.result->split_cnt, 2 * RIG_LAYERS);
    assert_int_equal(rig.result->merge_cnt, 3 * RIG_LAYERS);
    assert_int_equal(rig.result->kv_read_bytes, 4 * RIG_LAYERS);
    assert_int_equal(rig.result->attention_flops, 5 * RIG_LAYERS);
    assert_int_equal(rig.result->overlap_ns, 7 * RIG_LAYERS);
    assert_int_equal(rig.result->tail_ns, 8 * RIG_LAYERS);
    assert_int_equal(rig.result->role_switch_cnt, 10 * RIG_LAYERS);
    assert_int_equal(rig.result->ring_stall_cnt, 11 * RIG_LAYERS);
    assert_int_equal(rig.result->sm_clock_khz, 9);
    assert_int_equal(rig.result->queue_ns, 12);
    assert_int_equal(rig.result->graph_bytes, 13);
    assert_int_equal(rig.result->upload_bytes, 15);
    assert_int_equal(rig.result->graph_cnt, 14);
    assert_int_equal(rig.result->graph, TDM_GRAPH_MISSED);
    assert_int_equal(rig.result->sm_cnt, 2);
}

static void the_plans_reason_is_kept_on_a_slower_route(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 0, 1);
    rig_add_slice(rig.plan, 0, 0, 1, 1);
    rig_run();
    rig.plan->route = TDM_ROUTE_SERIAL;
    rig.plan->reason = TDM_FALLBACK_not_profitable;
    rig_add_open(rig.plan, 1, 1, 1);
    rig_add_slice(rig.plan, 1, 0, 1, 1);
    rig_add_decode(rig.plan, 0, 1);
    rig_run();
    assert_int_equal(rig.result->route, TDM_ROUTE_SERIAL);
    assert_int_equal(rig.result->reason, TDM_FALLBACK_not_profitable);
    rig.plan->route = TDM_ROUTE_DECODE_ONLY; /* no hybrid iteration: no reason */
    rig.plan->reason = TDM_FALLBACK_not_profitable;
    rig_add_decode(rig.plan, 0, 2);
    rig_run();
    assert_int_equal(rig.result->reason, 0);
}

static void an_idle_plan_touches_no_layer(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_IDLE;
    rig_add_open(rig.plan, 0, 3, 2);
    rig_run();
    assert_string_equal(rig.diary, "");
    assert_int_equal(rig.result->route, TDM_ROUTE_IDLE);
    assert_int_equal(rig.result->sample_cnt, 0);
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY; /* the slot was opened */
    rig_add_slice(rig.plan, 0, 0, 2, 1);
    rig_run();
}

static void a_contradiction_is_a_protocol_fault(void **state) {
    (void)state;
    tdm_error_t err = {0};
    rig.plan->iteration = 9;
    rig.plan->route = TDM_ROUTE_DECODE_ONLY;
    rig_add_decode(rig.plan, 0, 0);
    assert_int_equal(rig_run_one(&err), TDM_ERR_CORRUPT);
    assert_string_equal(rig.diary, "");
    assert_int_equal(rig.result->fault, TDM_FAULT_executor_protocol);
    assert_int_equal(rig.result->iteration, 9);
    assert_int_equal(rig.result->sample_cnt, 0);
    assert_true(rig.result->end_ns >= rig.result->start_ns && rig.result->start_ns > 0);
    assert_true(strlen(err.text) > 0);
}

static void a_nan_poisons_its_own_slot_only(void **state) {
    (void)state;
    rig.plan->route = TDM_ROUTE_PREFILL_ONLY;
    rig_add_open(rig.plan, 0, 0, 1);
    rig_add_slice(rig.plan, 0, 0, 1, 1);
    rig.is_nan = 1;
    rig_run();
    assert_int_equal(rig.result->sample[0].token, -1);
    assert_int_equal(rig.result->sample[0].flags, TDM_SAMPLE_NAN);
    rig.is_nan = 0;
    rig.plan->route = TDM_ROUTE_FUSED; /* built before the NaN was known */
    rig_add_open(rig.plan, 1, 1, 1);
    rig_add_slice(rig.plan, 1, 0, 1, 1);
    rig_add_decode(rig.plan, 0, 1);
    rig_run();
    assert_int_equal(rig.result->sample_cnt, 2);
    assert_int_equal(rig.result->sample[0].flags, 0);
    assert_in_range(rig.result->sample[0].token, 10, 12);
    assert_int_equal(rig.result->sample[1].token, -1);
    assert_int_equal(rig.result->sample[1].flags, TDM_SAMPLE_NAN);
    assert_true(rig.result->sample[1].logprob == 0.0f);
}

int main(void) {
#define FACT(f) cmocka_unit_test_setup_teardown(f, setup, rig_close)
    const struct CMUnitTest tests[] = {
        FACT(layers_are_walked_in_order),
        FACT(only_last_rows_sample),
        FACT(rows_are_slices_then_decodes),
        FACT(the_result_carries_all_counters),
        FACT(the_plans_reason_is_kept_on_a_slower_route),
        FACT(an_idle_plan_touches_no_layer),
        FACT(a_contradiction_is_a_protocol_fault),
        FACT(a_nan_poisons_its_own_slot_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
