/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the edges that broke attention kernels elsewhere: empty rows, one
   key, very negative scores, odd groups, NaN beside, later slices.
   Method: small batches with NaN in everything unwritten, on every
   instruction set this machine has, against the double reference or
   against what is known exactly. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/isa.h"
#include "kernels/ref/attention_ref.h"
#include "tests/numerics/attention/batch.h"

static tdm_sm_pool_t *pool;
static batch_t b;

static int open_pool(void **state) {
    (void)state;
    pool = batch_pool(2);
    return 0;
}

static int close_pool(void **state) {
    (void)state;
    batch_pool_free(pool);
    return 0;
}

/* Calls fn(isa) for each instruction set of this machine. */
static void for_each_isa(void (*fn)(uint32_t isa)) {
    for (uint32_t wanted = TDM_CPU_ISA_SCALAR; wanted < TDM_CPU_ISA_CNT; wanted++) {
        uint32_t isa;
        if (tdm_cpu_isa_resolve(wanted, &isa, NULL) == TDM_OK) fn(isa);
    }
}

static void run(uint32_t isa, uint32_t route) {
    batch_how_t how = {.pool = pool, .isa = isa, .route = route, .plan_sm_cnt = 4};
    batch_run(&b, &how, NULL, NULL);
}

/* Compares out and lse with the reference. */
static void check_ref(double tolerance) {
    uint64_t rows = (uint64_t)b.row_cnt * b.shape.nhead_q;
    double *score = malloc(TDM_CONTEXT_MAX * sizeof *score);
    double *out = malloc(rows * b.shape.head_dim * sizeof *out);
    double *lse = malloc(rows * sizeof *lse);
    tdm_attn_plan_t plan = {.seq = b.seq, .seq_cnt = b.prefill_cnt + b.decode_cnt};
    tdm_attn_launch_t launch = batch_launch(&b);
    launch.plan = &plan;
    tdm_attn_ref(&launch, &b.kv, b.shape.nhead_q, score, out, lse);
    for (uint64_t r = 0; r < rows; r++) {
        if (isinf(lse[r]))
            assert_true(b.lse[r] == -INFINITY);
        else
            assert_true(fabs((double)b.lse[r] - lse[r]) <= tolerance * (1 + fabs(lse[r])));
    }
    for (uint64_t i = 0; i < rows * b.shape.head_dim; i++) {
        assert_true(fabs((double)b.out[i] - out[i]) <= tolerance);
    }
    free(score);
    free(out);
    free(lse);
}

static const batch_shape_t small = {
    .nhead_q = 9, .nhead_kv = 3, .head_dim = 64, .dtype = TDM_KV_F32, .q_scale = 1};

static void empty_row_in(uint32_t isa) {
    const batch_seq_t seq[] = {{1, 17, 1}, {2, 0, 1}, {3, 33, 1}, {4, 1, 1}};
    batch_open(&b, &small, seq, 0, 4, 1);
    run(isa, TDM_ROUTE_DECODE_ONLY);
    check_ref(1e-5);
    for (uint32_t i = 0; i < 9 * 64; i++) assert_true(batch_row(&b, 1, 0)[i] == 0.0f);
    for (uint32_t h = 0; h < 9; h++) assert_true(b.lse[9 + h] == -INFINITY);
    batch_close(&b);
}

static void a_row_with_nothing_in_cache_gives_zero_and_minus_infinity(void **state) {
    (void)state;
    for_each_isa(empty_row_in);
}

static void before_start_in(uint32_t isa) {
    const batch_seq_t seq[] = {{1, 5, 20}, {2, 0, 70}, {3, 64, 65}};
    batch_open(&b, &small, seq, 3, 0, 1);
    run(isa, TDM_ROUTE_PREFILL_ONLY);
    check_ref(1e-5);
    batch_close(&b);
}

static void tokens_before_position_zero_are_empty_rows(void **state) {
    (void)state;
    for_each_isa(before_start_in);
}

static void very_negative_in(uint32_t isa) {
    static const uint32_t kv[] = {1, 15, 16, 17, 512, 513, 1100};
    batch_seq_t seq[TDM_COUNT_OF(kv)];
    for (uint32_t s = 0; s < TDM_COUNT_OF(kv); s++) seq[s] = (batch_seq_t){s, kv[s], 1};
    batch_open(&b, &small, seq, 0, TDM_COUNT_OF(kv), 1);
    /* q.k * scale = -78125 for every key, exactly representable */
    uint64_t pool_sz = 0;
    assert_true(tdm_kv_pool_sz(&b.kv, &pool_sz));
    float *k = b.k;
    for (uint64_t i = 0; i < pool_sz / sizeof(float); i++) {
        if (!isnan(k[i])) k[i] = -312.5f;
    }
    for (uint64_t i = 0; i < (uint64_t)b.row_cnt * 9 * 64; i++) b.q[i] = 31.25f;
    run(isa, TDM_ROUTE_DECODE_ONLY);
    check_ref(1e-5); /* the mean of V */
    for (uint32_t r = 0; r < b.row_cnt * 9; r++) {
        assert_true(b.lse[r] > -1e5f && b.lse[r] < -6e4f);
    }
    batch_close(&b);
}

static void very_negative_equal_scores_give_the_mean_of_v(void **state) {
    (void)state;
    for_each_isa(very_negative_in);
}

/* The bits of V at one position of a sequence. */
static const float *value_row(uint32_t s, uint32_t pos, uint32_t head_kv) {
    uint32_t page = b.table[s * b.table_stride + pos / TDM_KV_PAGE_TOKENS];
    return (const float *)b.v + tdm_kv_offset(&b.kv, page, head_kv, pos % TDM_KV_PAGE_TOKENS);
}

static void one_key_in(uint32_t isa) {
    batch_seq_t seq[9];
    for (uint32_t s = 0; s < 9; s++) seq[s] = (batch_seq_t){s, s < 8 ? 1 : 4096, 1};
    batch_open(&b, &small, seq, 0, 9, 1);
    run(isa, TDM_ROUTE_DECODE_ONLY);
    check_ref(1e-5);
    for (uint32_t s = 0; s < 8; s++) {
        for (uint32_t h = 0; h < 9; h++) {
            assert_memory_equal(batch_row(&b, s, 0) + h * 64, value_row(s, 0, h / 3),
                                64 * sizeof(float));
        }
    }
    batch_close(&b);
    for (uint32_t kv = 1; kv <= 40; kv++) {
        for (uint32_t n = 1; n <= 9; n += 4) {
            for (uint32_t s = 0; s < n; s++) seq[s] = (batch_seq_t){s, s % 2 ? 1 : kv, 1};
            batch_open(&b, &small, seq, 0, n, kv);
            run(isa, TDM_ROUTE_DECODE_ONLY);
            check_ref(1e-5);
            batch_close(&b);
        }
    }
}

static void one_key_gives_v_exactly(void **state) {
    (void)state;
    for_each_isa(one_key_in);
}

static void odd_groups_in(uint32_t isa) {
    static const uint32_t head[][2] = {{28, 4}, {24, 4}, {20, 4}, {64, 4}, {71, 1},
                                       {24, 1}, {7, 7},  {96, 1}, {128, 1}};
    const batch_seq_t seq[] = {{1, 70, 9}, {2, 30, 30}, {3, 600, 1}, {4, 64, 1}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(head); i++) {
        batch_shape_t shape = small;
        shape.nhead_q = head[i][0];
        shape.nhead_kv = head[i][1];
        batch_open(&b, &shape, seq, 2, 2, i);
        run(isa, TDM_ROUTE_FUSED);
        check_ref(1e-5);
        batch_close(&b);
    }
}

static void groups_that_are_no_power_of_two_are_right(void **state) {
    (void)state;
    for_each_isa(odd_groups_in);
}

static void odd_dims_in(uint32_t isa) {
    static const uint32_t dim[] = {2, 6, 16, 18, 48, 80, 96, 112, 160, 192, 250, 256};
    const batch_seq_t seq[] = {{1, 70, 9}, {2, 30, 30}, {3, 1100, 1}, {4, 64, 1}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(dim); i++) {
        for (uint32_t dtype = 0; dtype < TDM_KV_DTYPE_CNT; dtype++) {
            batch_shape_t shape = small;
            shape.head_dim = dim[i];
            shape.dtype = dtype;
            batch_open(&b, &shape, seq, 2, 2, i);
            run(isa, TDM_ROUTE_FUSED);
            check_ref(1e-5);
            batch_close(&b);
        }
    }
}

static void any_even_head_dimension_is_right(void **state) {
    (void)state;
    for_each_isa(odd_dims_in);
}

static void wide_scores_in(uint32_t isa) {
    batch_shape_t shape = small;
    shape.q_scale = 60; /* scores of +-200: weights down to and below 2^-126 */
    const batch_seq_t seq[] = {{1, 700, 3}, {2, 1500, 1}};
    batch_open(&b, &shape, seq, 1, 1, 1);
    run(isa, TDM_ROUTE_FUSED);
    check_ref(2e-4); /* score errors of 200 * 1e-7 move the weights */
    batch_close(&b);
}

static void wide_scores_underflow_quietly(void **state) {
    (void)state;
    for_each_isa(wide_scores_in);
}

static void mixed_in(uint32_t isa) {
    /* the row with most history is not the one with the longest slice */
    const batch_seq_t seq[] = {{1, 96, 96}, {2, 160, 64}};
    const batch_seq_t swapped[] = {{2, 160, 64}, {1, 96, 96}};
    static float first[160 * 9 * 64];
    batch_open(&b, &small, seq, 2, 0, 1);
    run(isa, TDM_ROUTE_PREFILL_ONLY);
    check_ref(1e-5);
    memcpy(first, b.out, sizeof first);
    batch_close(&b);
    batch_open(&b, &small, swapped, 2, 0, 2);
    run(isa, TDM_ROUTE_PREFILL_ONLY);
    assert_memory_equal(batch_row(&b, 1, 0), first, 96 * 9 * 64 * sizeof(float));
    assert_memory_equal(batch_row(&b, 0, 0), first + 96 * 9 * 64, 64 * 9 * 64 * sizeof(float));
    batch_close(&b);
}

static void longest_slice_and_longest_history_may_differ(void **state) {
    (void)state;
    for_each_isa(mixed_in);
}

static void nan_in(uint32_t isa) {
    const batch_seq_t seq[] = {{1, 40, 40}, {2, 90, 1}, {3, 700, 1}};
    static float clean[42 * 9 * 64];
    batch_open(&b, &small, seq, 1, 2, 1);
    run(isa, TDM_ROUTE_FUSED);
    memcpy(clean, b.out, sizeof clean);
    /* NaN in K, and inf in V, of token 20 of the slice, KV head 1 */
    uint64_t off = tdm_kv_offset(&b.kv, b.table[0], 1, 20);
    ((float *)b.k)[off] = NAN;
    ((float *)b.v)[off + 3] = INFINITY;
    run(isa, TDM_ROUTE_FUSED);
    for (uint32_t tok = 0; tok < 42; tok++) {
        for (uint32_t h = 0; h < 9; h++) {
            const float *got = b.out + (tok * 9 + h) * 64;
            int is_hit = tok >= 20 && tok < 40 && h / 3 == 1;
            if (is_hit)
                assert_true(isnan(got[0]) && isnan(got[63]));
            else
                assert_memory_equal(got, clean + (tok * 9 + h) * 64, 64 * sizeof(float));
        }
    }
    batch_close(&b);
}

static void a_nan_token_spoils_only_the_rows_that_see_it(void **state) {
    (void)state;
    for_each_isa(nan_in);
}

static void a_shape_no_kernel_takes_is_refused(void **state) {
    (void)state;
    uint64_t sz;
    tdm_error_t err = {0};
    tdm_cpu_attn_config_t c = {.nhead_q = 9,
                               .kv = {.page_cnt = 1, .nhead_kv = 3, .head_dim = 64},
                               .sm_cnt = 2,
                               .isa = TDM_CPU_ISA_AUTO,
                               .pool = pool};
    assert_int_equal(tdm_cpu_attn_footprint(&c, &sz, &err), TDM_OK);
    c.kv.head_dim = 258;
    assert_int_equal(tdm_cpu_attn_footprint(&c, &sz, &err), TDM_ERR_UNSUPPORTED);
    c.kv.head_dim = 63;
    assert_int_equal(tdm_cpu_attn_footprint(&c, &sz, &err), TDM_ERR_UNSUPPORTED);
    c.kv.head_dim = 64;
    c.nhead_q = 10;
    assert_int_equal(tdm_cpu_attn_footprint(&c, &sz, &err), TDM_ERR_INVAL);
    c.nhead_q = 3 * (TDM_ATTN_GROUP_MAX + 1);
    assert_int_equal(tdm_cpu_attn_footprint(&c, &sz, &err), TDM_ERR_UNSUPPORTED);
    c.nhead_q = 9;
    c.sm_cnt = 3; /* not the pool's */
    tdm_cpu_attn_t *attn;
    assert_int_equal(tdm_cpu_attn_init(NULL, &c, &attn, &err), TDM_ERR_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_with_nothing_in_cache_gives_zero_and_minus_infinity),
        cmocka_unit_test(tokens_before_position_zero_are_empty_rows),
        cmocka_unit_test(very_negative_equal_scores_give_the_mean_of_v),
        cmocka_unit_test(one_key_gives_v_exactly),
        cmocka_unit_test(groups_that_are_no_power_of_two_are_right),
        cmocka_unit_test(any_even_head_dimension_is_right),
        cmocka_unit_test(wide_scores_underflow_quietly),
        cmocka_unit_test(longest_slice_and_longest_history_may_differ),
        cmocka_unit_test(a_nan_token_spoils_only_the_rows_that_see_it),
        cmocka_unit_test(a_shape_no_kernel_takes_is_refused),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
