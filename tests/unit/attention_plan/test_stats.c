/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a device counted arrives in the words of every backend, and a
   count that is not the plan's is seen.
   Method: counters by hand for a plan by hand, for one layer and for many;
   each count off by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/attention/hopper/config.h"
#include "kernels/plan/hopper.h"
#include "kernels/plan/stats.h"

/* Three prefill tiles in two pieces each, four whole decodes, 10 layers. */
static const tdm_pod_plan_t plan = {
    .item_cnt = {6, 4}, .merge_cnt = 3, .split_cnt = 3, .flops = 1000, .kind_bytes = {50, 70}};

static tdm_pod_counters_t counters(uint64_t layers) {
    return (tdm_pod_counters_t){.vcta_executed = {6 * layers, 4 * layers},
                                .merge_cnt = 3 * layers,
                                .sm_ns = {100, 40},
                                .colocated_ns = 30,
                                .overlap_ns = 20,
                                .wall_ns = 200,
                                .tail = 0.25f,
                                .sm_used = 8,
                                .clock_ghz = 1.755f,
                                .switch_cnt = 7,
                                .ring_stall_cnt = 5 * layers};
}

static void one_launch_is_told_whole(void **state) {
    (void)state;
    tdm_pod_counters_t c = counters(1);
    tdm_attn_stats_t s = {0};
    assert_true(tdm_pod_stats_add(&plan, &c, 1, &s));
    assert_int_equal(s.vcta_planned[TDM_KIND_PREFILL], 6);
    assert_int_equal(s.vcta_executed[TDM_KIND_DECODE], 4);
    assert_int_equal(s.vcta_ns[TDM_KIND_PREFILL], 100);
    assert_int_equal(s.vcta_ns[TDM_KIND_DECODE], 40);
    assert_int_equal(s.split_cnt, 3);
    assert_int_equal(s.merge_cnt, 6); /* partials: two for each of three tiles */
    assert_int_equal(s.kv_read_bytes, 120);
    assert_int_equal(s.flops, 1000);
    assert_int_equal(s.colocated_ns, 30);
    assert_int_equal(s.overlap_ns, 20);
    assert_int_equal(s.wall_ns, 200);
    assert_int_equal(s.tail_ns, 400); /* a quarter of 200 on each of 8 SMs */
    assert_int_equal(s.role_switch_cnt, 7);
    assert_int_equal(s.ring_stall_cnt, 5);
    assert_int_equal(s.sm_clock_khz, 1755000);
}

static void the_tile_is_that_of_the_kernel_that_ran(void **state) {
    (void)state;
    static const struct {
        uint32_t variant, tile, row, key;
    } want[] = {{TDM_POD_VARIANT_PLAIN, TDM_POD_TILE_CNT, 64, 32},
                {TDM_POD_VARIANT_PORTABLE, TDM_POD_TILE_WIDE1, 128, 64},
                {TDM_POD_VARIANT_PORTABLE, TDM_POD_TILE_SLIM, 64, 32},
                {TDM_POD_VARIANT_HOPPER, TDM_POD_TILE_CNT, HOP_ROW, HOP_KEY}};
    assert_int_equal(TDM_HOPPER_ROW, HOP_ROW);
    assert_int_equal(TDM_HOPPER_KEY, HOP_KEY);
    for (size_t i = 0; i < TDM_COUNT_OF(want); i++) {
        tdm_pod_plan_t p = plan;
        tdm_pod_counters_t c = counters(1);
        tdm_attn_stats_t s = {0};
        p.variant = want[i].variant;
        p.tile = want[i].tile;
        p.tile_row = want[i].row;
        assert_true(tdm_pod_stats_add(&p, &c, 1, &s));
        assert_int_equal(s.tile_row, want[i].row);
        assert_int_equal(s.tile_key, want[i].key);
        p.item_cnt[TDM_KIND_PREFILL] = 0;
        s = (tdm_attn_stats_t){0};
        assert_false(tdm_pod_stats_add(&p, &c, 1, &s)); /* counters of another plan */
        assert_int_equal(s.tile_row, 0);
    }
}

static void layers_multiply_and_iterations_add(void **state) {
    (void)state;
    tdm_pod_counters_t c = counters(10);
    tdm_attn_stats_t s = {0};
    assert_true(tdm_pod_stats_add(&plan, &c, 10, &s));
    assert_true(tdm_pod_stats_add(&plan, &c, 10, &s));
    assert_int_equal(s.vcta_planned[TDM_KIND_PREFILL], 120);
    assert_int_equal(s.vcta_executed[TDM_KIND_PREFILL], 120);
    assert_int_equal(s.merge_cnt, 120);
    assert_int_equal(s.wall_ns, 4000);
    assert_int_equal(s.tail_ns, 8000);
    assert_int_equal(s.role_switch_cnt, 20 * 7); /* of the last launch's log */
    assert_int_equal(s.ring_stall_cnt, 20 * 5);  /* counted in all */
    assert_int_equal(s.sm_clock_khz, 1755000);
}

static void a_count_that_is_not_the_plan_s_is_seen(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        tdm_pod_counters_t c = counters(10);
        tdm_attn_stats_t s = {0};
        uint64_t *to = i / 2 < 2 ? &c.vcta_executed[i / 2] : &c.merge_cnt;
        *to += i % 2 ? 1 : (uint64_t)-1;
        assert_false(tdm_pod_stats_add(&plan, &c, 10, &s));
    }
}

static void an_empty_launch_tells_nothing(void **state) {
    (void)state;
    tdm_pod_plan_t none = {0};
    tdm_pod_counters_t c = {0};
    tdm_attn_stats_t s = {0};
    tdm_attn_stats_t zero = {0};
    assert_true(tdm_pod_stats_add(&none, &c, 32, &s));
    assert_memory_equal(&s, &zero, sizeof s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_launch_is_told_whole),
        cmocka_unit_test(the_tile_is_that_of_the_kernel_that_ran),
        cmocka_unit_test(layers_multiply_and_iterations_add),
        cmocka_unit_test(a_count_that_is_not_the_plan_s_is_seen),
        cmocka_unit_test(an_empty_launch_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
