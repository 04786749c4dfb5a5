/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: lanes and rings keep order, count what they refuse and never
   starve a producer.  Method: exhaustive small depths, index wrap. */
#include "appliance/ring/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_lane_t *lane_new(uint32_t depth, uint32_t elem_sz, void **mem) {
    size_t sz = tdm_lane_footprint(depth, elem_sz);
    *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    tdm_lane_t *l;
    assert_int_equal(tdm_lane_init(*mem, depth, elem_sz, &l), TDM_OK);
    return l;
}

static void a_lane_holds_exactly_its_depth(void **state) {
    (void)state;
    for (uint32_t depth = 1; depth <= 64; depth *= 2) {
        void *mem;
        tdm_lane_t *l = lane_new(depth, 16, &mem);
        uint32_t e[4] = {0};
        for (uint32_t i = 0; i < depth; i++) {
            e[0] = i;
            assert_true(tdm_lane_push(l, e));
        }
        assert_false(tdm_lane_push(l, e));
        assert_int_equal(tdm_lane_full_cnt(l), 1);
        assert_int_equal(tdm_lane_cnt(l), depth);
        assert_int_equal(tdm_lane_high_water(l), depth);
        for (uint32_t i = 0; i < depth; i++) {
            assert_true(tdm_lane_pop(l, e));
            assert_int_equal(e[0], i);
        }
        assert_false(tdm_lane_pop(l, e));
        free(mem);
    }
}

static void order_survives_many_turns_of_the_index(void **state) {
    (void)state;
    void *mem;
    tdm_lane_t *l = lane_new(4, 8, &mem);
    uint64_t in = 0, out = 0, v;
    for (int turn = 0; turn < 10000; turn++) {
        int burst = 1 + turn % 4;
        for (int i = 0; i < burst; i++)
            if (tdm_lane_push(l, &in)) in++;
        while (tdm_lane_pop(l, &v)) assert_int_equal(v, out++);
    }
    assert_int_equal(in, out);
    free(mem);
}

static void bad_shapes_and_foreign_memory_are_refused(void **state) {
    (void)state;
    assert_int_equal(tdm_lane_footprint(0, 8), 0);
    assert_int_equal(tdm_lane_footprint(3, 8), 0);
    assert_int_equal(tdm_lane_footprint(4, 0), 0);
    assert_int_equal(tdm_lane_footprint(4, 6), 0);
    assert_int_equal(tdm_lane_footprint(4, 260), 0);
    assert_int_equal(tdm_lane_footprint(TDM_LANE_DEPTH_MAX * 2, 8), 0);
    void *mem;
    tdm_lane_t *l = lane_new(4, 8, &mem), *other;
    assert_int_equal(tdm_lane_attach(mem, 16, &other), TDM_ERR_CORRUPT);
    assert_int_equal(tdm_lane_attach(mem, 8, &other), TDM_OK);
    assert_ptr_equal(l, other);
    memset(mem, 0, 64);
    assert_int_equal(tdm_lane_attach(mem, 8, &other), TDM_ERR_CORRUPT);
    free(mem);
}

static void a_busy_producer_cannot_starve_another(void **state) {
    (void)state;
    void *mem[3];
    tdm_lane_t *lane[3];
    for (int i = 0; i < 3; i++) lane[i] = lane_new(8, 8, &mem[i]);
    tdm_ring_t r;
    tdm_ring_init(&r, lane, 3, NULL);
    for (uint64_t i = 0; i < 8; i++) {
        uint64_t v = 100 + i;
        assert_true(tdm_ring_push(&r, 0, &v));
    }
    uint64_t one = 200, two = 300, v;
    assert_true(tdm_ring_push(&r, 1, &one));
    assert_true(tdm_ring_push(&r, 2, &two));
    assert_int_equal(tdm_ring_cnt(&r), 10);
    assert_int_equal(tdm_ring_capacity(&r), 24);
    assert_int_equal(tdm_ring_high_water(&r), 8);
    const uint64_t want[] = {100, 200, 300, 101, 102};
    for (int i = 0; i < 5; i++) {
        assert_true(tdm_ring_pop(&r, &v));
        assert_int_equal(v, want[i]);
    }
    for (int i = 0; i < 3; i++) free(mem[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_holds_exactly_its_depth),
        cmocka_unit_test(order_survives_many_turns_of_the_index),
        cmocka_unit_test(bad_shapes_and_foreign_memory_are_refused),
        cmocka_unit_test(a_busy_producer_cannot_starve_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
