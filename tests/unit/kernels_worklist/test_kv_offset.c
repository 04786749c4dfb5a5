/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: page offsets do not wrap at 2^31 or 2^32 elements or bytes.
   Method: compare with 128-bit arithmetic on both sides of each border,
   for shapes of real models; pool sizes that 64 bits do not hold are
   refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/include/attention.h"

typedef unsigned __int128 wide_t;

static wide_t wide_offset(const tdm_kv_layout_t *l, uint32_t page, uint32_t head, uint32_t token) {
    return (((wide_t)page * l->nhead_kv + head) * TDM_KV_PAGE_TOKENS + token) * l->head_dim;
}

static void check(const tdm_kv_layout_t *l, uint32_t page, uint32_t head, uint32_t token) {
    wide_t want = wide_offset(l, page, head, token);
    assert_true(want == (wide_t)tdm_kv_offset(l, page, head, token));
}

static void offsets_equal_a_128_bit_reference_at_every_border(void **state) {
    (void)state;
    static const uint32_t heads[] = {1, 3, 4, 8, 32, 71};
    static const uint32_t dims[] = {2, 64, 80, 96, 128, 256};
    for (uint32_t h = 0; h < TDM_COUNT_OF(heads); h++) {
        for (uint32_t d = 0; d < TDM_COUNT_OF(dims); d++) {
            tdm_kv_layout_t l = {.page_cnt = UINT32_MAX, .nhead_kv = heads[h], .head_dim = dims[d]};
            for (uint32_t lg = 29; lg <= 34; lg++) { /* elements, and bytes of 2 and 4 */
                uint64_t page_elems = (uint64_t)heads[h] * TDM_KV_PAGE_TOKENS * dims[d];
                uint64_t at = (UINT64_C(1) << lg) / page_elems;
                for (uint64_t page = at - (at > 0); page <= at + 1; page++) {
                    if (page > UINT32_MAX) continue;
                    check(&l, (uint32_t)page, 0, 0);
                    check(&l, (uint32_t)page, heads[h] - 1, TDM_KV_PAGE_TOKENS - 1);
                }
            }
        }
    }
}

static void random_offsets_equal_a_128_bit_reference(void **state) {
    (void)state;
    tdm_rng_t rng = {8};
    for (int i = 0; i < 100000; i++) {
        tdm_kv_layout_t l = {.page_cnt = UINT32_MAX,
                             .nhead_kv = 1 + tdm_rng_below(&rng, 128),
                             .head_dim = 2 * (1 + tdm_rng_below(&rng, TDM_HEAD_DIM_MAX / 2))};
        check(&l, (uint32_t)tdm_rng_next(&rng), tdm_rng_below(&rng, l.nhead_kv),
              tdm_rng_below(&rng, TDM_KV_PAGE_TOKENS));
    }
}

static void rows_follow_each_other_without_gap_or_overlap(void **state) {
    (void)state;
    tdm_kv_layout_t l = {.page_cnt = 5, .nhead_kv = 3, .head_dim = 6, .dtype = TDM_KV_BF16};
    uint64_t next = 0;
    for (uint32_t page = 0; page < 5; page++) {
        for (uint32_t h = 0; h < 3; h++) {
            for (uint32_t t = 0; t < TDM_KV_PAGE_TOKENS; t++, next += 6) {
                assert_int_equal(tdm_kv_offset(&l, page, h, t), next);
            }
        }
    }
    uint64_t sz;
    assert_true(tdm_kv_pool_sz(&l, &sz));
    assert_int_equal(sz, next * 2);
}

static void a_pool_that_64_bits_do_not_hold_is_refused(void **state) {
    (void)state;
    uint64_t sz;
    tdm_kv_layout_t l = {.page_cnt = UINT32_MAX, .nhead_kv = UINT32_MAX, .head_dim = 2};
    assert_false(tdm_kv_pool_sz(&l, &sz));
    l = (tdm_kv_layout_t){.page_cnt = UINT32_MAX, .nhead_kv = 256, .head_dim = 256};
    assert_true(tdm_kv_pool_sz(&l, &sz));
    assert_true((wide_t)sz == (wide_t)UINT32_MAX * 256 * 64 * 256 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_equal_a_128_bit_reference_at_every_border),
        cmocka_unit_test(random_offsets_equal_a_128_bit_reference),
        cmocka_unit_test(rows_follow_each_other_without_gap_or_overlap),
        cmocka_unit_test(a_pool_that_64_bits_do_not_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
