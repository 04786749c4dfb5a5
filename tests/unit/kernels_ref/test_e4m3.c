/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the reference reads an fp8 cache as the format's specification says.
   Method: the named values of the OCP 8-bit formats' table 1; every code
   there and back; the conversions that backends use against the obvious
   ones, of every code and every bf16 value; attention over an fp8 pool against the same over its
   values in float32, every head with scales of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/abi/fp8.h"
#include "appliance/base/rng.h"
#include "kernels/ref/attention_ref.h"
#include "kernels/ref/e4m3.h"

static void named_values_are_those_of_the_format(void **state) {
    (void)state;
    assert_true(tdm_e4m3_to_float(0x7e) == 448.0f);
    assert_true(tdm_e4m3_to_float(0x08) == 0.015625f);
    assert_true(tdm_e4m3_to_float(0x07) == 0.875f * 0.015625f);
    assert_true(tdm_e4m3_to_float(0x01) == 0.001953125f);
    assert_true(tdm_e4m3_to_float(0x38) == 1.0f);
    assert_true(tdm_e4m3_to_float(0xb8) == -1.0f);
    assert_true(isnan(tdm_e4m3_to_float(0x7f)) && isnan(tdm_e4m3_to_float(0xff)));
}

static void every_code_comes_back_and_halves_go_to_even(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        if ((c & 0x7f) == 0x7f) continue;
        assert_int_equal(tdm_e4m3_from_float(tdm_e4m3_to_float((uint8_t)c)), c);
        if ((c & 0x7f) == 0x7e) continue;
        float x = tdm_e4m3_to_float((uint8_t)c);
        float y = tdm_e4m3_to_float((uint8_t)(c + 1));
        assert_int_equal(tdm_e4m3_from_float((x + y) / 2), c & 1 ? c + 1 : c);
        assert_int_equal(tdm_e4m3_from_float(x + (y - x) * 0.49f), c);
        assert_int_equal(tdm_e4m3_from_float(x + (y - x) * 0.51f), c + 1);
    }
    assert_int_equal(tdm_e4m3_from_float(1e9f), 0x7e);
    assert_int_equal(tdm_e4m3_from_float(-1e9f), 0xfe);
    assert_int_equal(tdm_e4m3_from_float(NAN), 0x7f);
}

static void check_code(float v) {
    uint8_t want = tdm_e4m3_from_float(v), got = tdm_fp8_from_f32(v);
    if (got != want)
        fail_msg("%.9g (%a): code %02x, reference %02x", (double)v, (double)v, got, want);
}

static void the_fast_conversion_is_the_obvious_one(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        float want = tdm_e4m3_to_float((uint8_t)c), got = tdm_f32_from_fp8((uint8_t)c);
        if ((c & 0x7f) == 0x7f)
            assert_true(isnan(got));
        else
            assert_memory_equal(&got, &want, sizeof got); /* signs of zero too */
    }
    for (uint32_t high = 0; high < 65536; high++) {
        uint32_t bits = high << 16;
        float v;
        memcpy(&v, &bits, sizeof v);
        check_code(v);
    }
    for (int c = 0; c < 0x7e; c++) {
        float half = (tdm_e4m3_to_float((uint8_t)c) + tdm_e4m3_to_float((uint8_t)(c + 1))) / 2;
        for (int sign = -1; sign <= 1; sign += 2) {
            check_code((float)sign * half);
            check_code((float)sign * nextafterf(half, 0.0f));
            check_code((float)sign * nextafterf(half, 1000.0f));
        }
    }
    check_code(INFINITY);
    check_code(-INFINITY);
    check_code(464.0f); /* the half between 448 and what would be next */
    check_code(-NAN);
}

/* Sequences that no other kernel takes: 71 heads over one, dimension 96. */
static void attention_over_codes_is_attention_over_their_values(void **state) {
    (void)state;
    static const struct {
        uint32_t nhead_q, nhead_kv, dim;
    } c[] = {{71, 1, 64}, {6, 2, 96}, {4, 2, 256}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        enum { PAGE = 3, KV = 130, CNT = 3 };
        tdm_rng_t rng = {i + 1};
        tdm_kv_layout_t code = {PAGE, c[i].nhead_kv, c[i].dim, TDM_KV_E4M3};
        tdm_kv_layout_t real = code;
        real.dtype = TDM_KV_F32;
        uint64_t n = (uint64_t)PAGE * c[i].nhead_kv * TDM_KV_PAGE_TOKENS * c[i].dim;
        uint64_t rows = (uint64_t)CNT * c[i].nhead_q;
        uint8_t *pool = malloc(2 * n);
        float *value = malloc(2 * n * sizeof *value);
        float *q = malloc(rows * c[i].dim * sizeof *q);
        double *out = malloc(2 * rows * c[i].dim * sizeof *out);
        double *lse = malloc(2 * rows * sizeof *lse);
        assert_true(pool && value && q && out && lse);
        static const float scale[2][2] = {{0.125f, 0.25f}, {0.5f, 0.0625f}};
        uint64_t head_sz = (uint64_t)TDM_KV_PAGE_TOKENS * c[i].dim;
        for (uint64_t e = 0; e < 2 * n; e++) {
            uint8_t v = (uint8_t)tdm_rng_below(&rng, 256);
            pool[e] = (v & 0x7f) >= 0x60 ? (uint8_t)(v & 0x9f) : v; /* below 16 */
            uint32_t head = (uint32_t)(e % n / head_sz % c[i].nhead_kv);
            value[e] = tdm_e4m3_to_float(pool[e]) * scale[e / n][head];
        }
        for (uint64_t e = 0; e < rows * c[i].dim; e++) {
            q[e] = (float)tdm_rng_below(&rng, 2001) / 1000.0f - 1.0f;
        }
        const uint32_t page[] = {2, 0, 1};
        const tdm_attn_seq_t seq = {0, KV, CNT, 0};
        tdm_attn_plan_t plan = {.seq = &seq, .seq_cnt = 1};
        tdm_attn_launch_t l = {.plan = &plan,
                               .q = q,
                               .k_pool = pool,
                               .v_pool = pool + n,
                               .page_table = page,
                               .table_stride = 3,
                               .scale = 0.1f,
                               .k_scale = scale[0],
                               .v_scale = scale[1]};
        double score[KV];
        tdm_attn_ref(&l, &code, c[i].nhead_q, score, out, lse);
        l.k_pool = value;
        l.v_pool = value + n;
        l.k_scale = l.v_scale = NULL;
        tdm_attn_ref(&l, &real, c[i].nhead_q, score, out + rows * c[i].dim, lse + rows);
        for (uint64_t e = 0; e < rows * c[i].dim; e++) {
            assert_true(fabs(out[e] - out[rows * c[i].dim + e]) < 1e-12);
        }
        for (uint64_t e = 0; e < rows; e++) assert_true(fabs(lse[e] - lse[rows + e]) < 1e-12);
        free(pool);
        free(value);
        free(q);
        free(out);
        free(lse);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_values_are_those_of_the_format),
        cmocka_unit_test(every_code_comes_back_and_halves_go_to_even),
        cmocka_unit_test(the_fast_conversion_is_the_obvious_one),
        cmocka_unit_test(attention_over_codes_is_attention_over_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
