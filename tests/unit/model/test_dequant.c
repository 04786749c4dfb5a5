/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every block decodes to the weights its definition gives, and
   rounding to bf16 is to nearest, ties to even.  Method: decoders written
   a second time, weight by weight and in double, over random blocks; all
   65536 halves; all bf16 neighbours. */
#include "appliance/base/rng.h"
#include "appliance/model/dequant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static double half_value(uint16_t v) {
    int sign = v >> 15, e = (v >> 10) & 31, m = v & 1023;
    double x = e == 0 ? ldexp(m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexp(1024 + m, e - 25);
    return sign ? -x : x;
}

static double half_at(const uint8_t *p) {
    return half_value((uint16_t)(p[0] | p[1] << 8));
}

/* slow gives weight i of a block. */
static double slow(uint32_t dtype, const uint8_t *b, uint32_t i) {
    switch (dtype) {
    case TDM_DTYPE_Q4_0: {
        int q = i < 16 ? b[2 + i] % 16 : b[2 + i - 16] / 16;
        return half_at(b) * (q - 8);
    }
    case TDM_DTYPE_Q4_1: {
        int q = i < 16 ? b[4 + i] % 16 : b[4 + i - 16] / 16;
        return half_at(b) * q + half_at(b + 2);
    }
    case TDM_DTYPE_Q8_0: return half_at(b) * (b[2 + i] < 128 ? b[2 + i] : b[2 + i] - 256);
    case TDM_DTYPE_Q6_K: {
        /* weight i = 128 n + 32 g + l: group g takes nibble g/2 of byte
           64 n + 32 (g%2) + l and bits 2g, 2g+1 of high byte 32 n + l */
        uint32_t n = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[64 * n + 32 * (g % 2) + l];
        int nibble = g < 2 ? low % 16 : low / 16;
        int high = (b[128 + 32 * n + l] >> (2 * g)) % 4;
        int scale = b[192 + i / 16] < 128 ? b[192 + i / 16] : b[192 + i / 16] - 256;
        return half_at(b + 208) * scale * (nibble + 16 * high - 32);
    }
    default: return NAN;
    }
}

static void blocks_decode_as_their_definition_says(void **state) {
    (void)state;
    const uint32_t dtype[] = {TDM_DTYPE_Q4_0, TDM_DTYPE_Q4_1, TDM_DTYPE_Q8_0, TDM_DTYPE_Q6_K};
    const uint64_t seed = 1;
    tdm_rng_t rng = {seed};
    for (uint32_t k = 0; k < TDM_COUNT_OF(dtype); k++) {
        uint32_t elem_cnt, block_sz;
        assert_true(tdm_dtype_block(dtype[k], &elem_cnt, &block_sz));
        for (int round = 0; round < 500; round++) {
            uint8_t b[3 * 210];
            float got[3 * TDM_DTYPE_ELEM_MAX];
            for (uint32_t i = 0; i < sizeof b; i++) b[i] = (uint8_t)tdm_rng_next(&rng);
            for (uint32_t j = 0; j < 3; j++) { /* finite, moderate scales */
                uint32_t at = j * block_sz + (dtype[k] == TDM_DTYPE_Q6_K ? 208 : 0);
                b[at + 1] = (uint8_t)((b[at + 1] & 0x83) | 0x20);
                if (dtype[k] == TDM_DTYPE_Q4_1) b[at + 3] = (uint8_t)((b[at + 3] & 0x83) | 0x20);
            }
            tdm_dequant_f32(dtype[k], b, 3ull * elem_cnt, got);
            for (uint32_t i = 0; i < 3 * elem_cnt; i++) {
                double want = slow(dtype[k], b + i / elem_cnt * block_sz, i % elem_cnt);
                if (fabs((double)got[i] - want) > 1e-6 * fabs(want) + 1e-9)
                    fail_msg("seed %llu type %u weight %u: %g, expected %g",
                             (unsigned long long)seed, dtype[k], i, (double)got[i], want);
            }
        }
    }
}

static void plain_types_keep_their_values(void **state) {
    (void)state;
    const float in[4] = {1.5f, -0.0f, 3e38f, 1e-40f};
    const uint16_t half[4] = {0x3c00, 0xc000, 0x7bff, 0x0001};
    const uint16_t brain[4] = {0x3f80, 0xc000, 0x7f7f, 0x0001};
    float out[4];
    tdm_dequant_f32(TDM_DTYPE_F32, (const uint8_t *)in, 4, out);
    assert_memory_equal(in, out, sizeof in);
    tdm_dequant_f32(TDM_DTYPE_F16, (const uint8_t *)half, 4, out);
    for (int i = 0; i < 4; i++) assert_true((double)out[i] == half_value(half[i]));
    tdm_dequant_f32(TDM_DTYPE_BF16, (const uint8_t *)brain, 4, out);
    for (int i = 0; i < 4; i++) assert_int_equal(tdm_bf16_from_f32(out[i]), brain[i]);
}

static void every_half_becomes_its_float(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        float got = tdm_f32_from_f16((uint16_t)v);
        double want = half_value((uint16_t)v);
        assert_true(isnan(want) ? isnan(got) : (double)got == want);
        assert_int_equal(signbit(got) != 0, v >> 15);
    }
}

static void rounding_is_to_nearest_ties_to_even(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 0x7f80; v++) { /* all finite magnitudes */
        float low = tdm_f32_from_bf16((tdm_bf16_t)v);
        uint32_t bits = v << 16;
        const struct {
            uint32_t add;
            uint32_t want;
        } row[] = {
            {0, v}, {1, v}, {0x7fff, v}, {0x8000, v + (v & 1)}, {0x8001, v + 1}, {0xffff, v + 1},
        };
        for (uint32_t k = 0; k < TDM_COUNT_OF(row); k++) {
            uint32_t x = bits + row[k].add;
            float f;
            memcpy(&f, &x, sizeof f);
            assert_int_equal(tdm_bf16_from_f32(f), row[k].want);
            assert_int_equal(tdm_bf16_from_f32(-f), row[k].want | 0x8000);
        }
        assert_int_equal(tdm_bf16_from_f32(low), v);
    }
    assert_int_equal(tdm_bf16_from_f32(INFINITY), 0x7f80);
    assert_true(isnan(tdm_f32_from_bf16(tdm_bf16_from_f32(NAN))));
    uint32_t small_nan = 0x7f800001;
    float f;
    memcpy(&f, &small_nan, sizeof f);
    assert_true(isnan(tdm_f32_from_bf16(tdm_bf16_from_f32(f))));
}

static void only_the_listed_types_are_read(void **state) {
    (void)state;
    uint32_t read = 0, e, s;
    for (uint32_t d = 0; d < 64; d++) {
        if (!tdm_dtype_block(d, &e, &s)) continue;
        assert_non_null(tdm_dtype_name(d));
        assert_true(e <= TDM_DTYPE_ELEM_MAX && s > 0);
        read++;
    }
    assert_int_equal(read, 7);
    assert_string_equal(tdm_dtype_name(12), "Q4_K");
    assert_null(tdm_dtype_name(4));
    assert_null(tdm_dtype_name(4000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_decode_as_their_definition_says),
        cmocka_unit_test(plain_types_keep_their_values),
        cmocka_unit_test(every_half_becomes_its_float),
        cmocka_unit_test(rounding_is_to_nearest_ties_to_even),
        cmocka_unit_test(only_the_listed_types_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
