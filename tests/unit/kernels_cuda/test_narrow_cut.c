/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every weight row and column of a narrow product is some CTA's, and
   the cut keeps its bounds, whatever the shape and the number of SMs.
   Method: many drawn shapes; Llama-3-8B's four products by name. */
#include "kernels/cuda/narrow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"

static void check(const tdm_gemm_shape_t *s, uint32_t sm_cnt, int is_fixed) {
    tdm_narrow_cut_t c = is_fixed ? tdm_narrow_cut_fixed(s, sm_cnt) : tdm_narrow_cut(s, sm_cnt);
    uint32_t is_pair = s->y_type == TDM_GEMM_BF16;
    uint32_t out = is_pair ? s->out / 2 : s->out;
    uint32_t width = is_pair ? c.block_row : c.block_row * c.block_cnt;
    uint32_t steps = (s->in + TDM_NARROW_K - 1) / TDM_NARROW_K;
    assert_true(c.block_cnt == 1 || c.block_cnt == 2);
    assert_true(c.block_row % 8 == 0 && c.block_row >= 64 && c.block_row <= 128);
    assert_true(!is_pair || (c.block_cnt == 2 && c.split_cnt == 1));
    assert_true(c.row_cnt <= TDM_NARROW_ROWS_MAX);
    assert_true((uint64_t)c.row_cnt * c.row_tile_cnt >= s->rows);
    assert_true((uint64_t)c.row_cnt * (c.row_tile_cnt - 1) < s->rows);
    assert_true((c.row_cnt & (c.row_cnt - 1)) == 0 && c.row_cnt >= 8);
    /* All rows, and no tile of nothing. */
    assert_true((uint64_t)c.tile_cnt * width >= out);
    assert_true((uint64_t)(c.tile_cnt - 1) * width < out);
    /* No range of nothing, and no more parts than there is room for. */
    assert_true(c.split_cnt >= 1 && c.split_cnt <= TDM_NARROW_SPLIT_MAX && c.split_cnt <= steps);
    assert_true(s->is_split || c.split_cnt == 1);
    /* Where it is cut all are resident at once. */
    assert_true(c.grid >= 1 && c.grid <= sm_cnt);
    uint64_t units = (uint64_t)c.tile_cnt * c.split_cnt * c.row_tile_cnt;
    assert_true(c.split_cnt == 1 || is_fixed || units == c.grid);
    assert_true(c.grid == units || c.grid >= sm_cnt - sm_cnt / 4);
}

static void all_of_a_product_is_dealt(void **state) {
    (void)state;
    tdm_rng_t rng = {11};
    for (uint32_t i = 0; i < 20000; i++) {
        tdm_gemm_shape_t s = {.rows = 1 + tdm_rng_below(&rng, TDM_NARROW_ROWS_MAX),
                              .out = 2 + 2 * tdm_rng_below(&rng, i % 2 ? 400 : 70000),
                              .in = 8 + 8 * tdm_rng_below(&rng, i % 3 ? 40 : 2000),
                              .y_type = i % 5 ? TDM_GEMM_F32 : TDM_GEMM_BF16,
                              .is_add = i % 5 ? i % 2 : 0,
                              .is_split = i % 2};
        assert_true(tdm_narrow_takes(&s));
        check(&s, 1 + tdm_rng_below(&rng, 200), 0);
        s.rows = 1 + tdm_rng_below(&rng, 9000);
        check(&s, 1 + tdm_rng_below(&rng, 200), 1);
    }
}

static void what_it_does_not_take(void **state) {
    (void)state;
    const tdm_gemm_shape_t no[] = {{0, 64, 64, TDM_GEMM_F32, 0, 0},
                                   {8, 64, 60, TDM_GEMM_F32, 0, 0},
                                   {8, 64, 64, TDM_GEMM_F32, 1, 0}, /* nobody adds it up */
                                   {8, 63, 64, TDM_GEMM_BF16, 0, 0}};
    for (size_t i = 0; i < TDM_COUNT_OF(no); i++) assert_false(tdm_narrow_takes(&no[i]));
}

/* Blocks and ranges decide a row's bits: the same of 1 row and of 8,192. */
static void a_fixed_cut_knows_no_rows(void **state) {
    (void)state;
    tdm_rng_t rng = {12};
    for (uint32_t i = 0; i < 2000; i++) {
        tdm_gemm_shape_t s = {.rows = 1,
                              .out = 2 + 2 * tdm_rng_below(&rng, 8000),
                              .in = 8 + 8 * tdm_rng_below(&rng, 2000),
                              .y_type = TDM_GEMM_F32,
                              .is_split = i % 2};
        tdm_narrow_cut_t one = tdm_narrow_cut_fixed(&s, 132);
        s.rows = 2 + tdm_rng_below(&rng, 8191);
        tdm_narrow_cut_t many = tdm_narrow_cut_fixed(&s, 132);
        assert_int_equal(one.block_cnt, many.block_cnt);
        assert_int_equal(one.block_row, many.block_row);
        assert_int_equal(one.split_cnt, many.split_cnt);
        assert_int_equal(one.tile_cnt, many.tile_cnt);
    }
}

/* The widths that the figures are of: of few rows 19 in 20 SMs have a part, and
   in front of attention a quarter has none. */
static void a_llama_fills_an_h200(void **state) {
    (void)state;
    const tdm_gemm_shape_t llama[] = {{0, 6144, 4096, TDM_GEMM_F32, 0, 1},
                                      {0, 4096, 4096, TDM_GEMM_F32, 1, 1},
                                      {0, 28672, 4096, TDM_GEMM_BF16, 0, 0},
                                      {0, 4096, 14336, TDM_GEMM_F32, 1, 1}};
    for (size_t i = 0; i < TDM_COUNT_OF(llama); i++)
        for (uint32_t rows = 1; rows <= 128; rows *= 2) {
            tdm_gemm_shape_t s = llama[i];
            s.rows = rows;
            tdm_narrow_cut_t c = tdm_narrow_cut(&s, 132);
            int is_before_attention = !s.is_add && s.is_split && rows <= 32;
            assert_true(c.grid >= (is_before_attention ? 94 : rows <= 32 ? 126 : 112));
            if (is_before_attention) assert_true(c.grid <= 99);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_product_is_dealt), cmocka_unit_test(what_it_does_not_take),
        cmocka_unit_test(a_fixed_cut_knows_no_rows), cmocka_unit_test(a_llama_fills_an_h200)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
