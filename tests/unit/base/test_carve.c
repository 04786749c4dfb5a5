/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is counted is what is handed out, on cache lines and apart; what
   64 bits do not hold has no size.
   Method: the same walk with memory and without, of sizes drawn by a seed. */
#include "appliance/base/carve.h"
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTS 12u

typedef struct want {
    uint64_t cnt, elem_sz;
} want_t;

static void walk(tdm_carve_t *c, const want_t *want, uint8_t **at) {
    for (uint32_t i = 0; i < PARTS; i++) at[i] = tdm_carve_take(c, want[i].cnt, want[i].elem_sz);
}

static void what_is_counted_is_handed_out(void **state) {
    (void)state;
    tdm_rng_t rng = {.state = 7};
    for (uint32_t round = 0; round < 1000; round++) {
        want_t want[PARTS];
        uint8_t *at[PARTS];
        uint64_t sum_sz = 0;
        for (uint32_t i = 0; i < PARTS; i++) { /* none of an array is a size, too */
            want[i] = (want_t){tdm_rng_next(&rng) % 200, tdm_rng_next(&rng) % 33};
            sum_sz += want[i].cnt * want[i].elem_sz;
        }
        tdm_carve_t count = {0};
        walk(&count, want, at);
        for (uint32_t i = 0; i < PARTS; i++) assert_null(at[i]);
        uint64_t sz = tdm_carve_sz(&count);
        assert_in_range(sz, sum_sz, sum_sz + PARTS * (TDM_CACHE_LINE - 1));
        assert_int_equal(sz % TDM_CACHE_LINE, 0);
        uint8_t *mem = aligned_alloc(TDM_CACHE_LINE, sz + TDM_CACHE_LINE);
        assert_non_null(mem);
        tdm_carve_t lay = {.base = mem};
        walk(&lay, want, at);
        assert_int_equal(tdm_carve_sz(&lay), sz);
        uint8_t *end = mem;
        for (uint32_t i = 0; i < PARTS; i++) {
            assert_int_equal((uintptr_t)at[i] % TDM_CACHE_LINE, 0);
            assert_true(at[i] >= end);
            end = at[i] + want[i].cnt * want[i].elem_sz;
        }
        assert_true(end <= mem + sz);
        free(mem);
    }
}

static void what_64_bits_do_not_hold_has_no_size(void **state) {
    (void)state;
    static const want_t over[][2] = {
        {{UINT64_C(1) << 32, UINT64_C(1) << 32}, {1, 1}}, /* a product */
        {{UINT64_C(1) << 63, 1}, {UINT64_C(1) << 63, 1}}, /* a sum */
        {{1, UINT64_MAX - 10}, {1, 1}},                   /* its line */
        {{1, 1}, {UINT64_MAX, UINT64_MAX}},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(over); i++) {
        tdm_carve_t c = {0};
        for (uint32_t k = 0; k < 2; k++)
            (void)tdm_carve_take(&c, over[i][k].cnt, over[i][k].elem_sz);
        assert_int_equal(tdm_carve_sz(&c), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_counted_is_handed_out),
        cmocka_unit_test(what_64_bits_do_not_hold_has_no_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
