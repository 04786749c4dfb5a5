/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: norm, SwiGLU and rotary positions against their formulas in
   double, the Llama 3 rule at its borders, and rotations as rotations. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"

#include "appliance/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WIDTH_MAX 640

static float draw(tdm_rng_t *rng) {
    return (float)(tdm_rng_unit(tdm_rng_next(rng)) * 8.0 - 4.0);
}

static void norm_follows_its_formula(void **state) {
    (void)state;
    tdm_rng_t rng = {1};
    const uint32_t widths[] = {1, 7, 64, 100, 576, 640};
    for (size_t i = 0; i < TDM_COUNT_OF(widths); i++) {
        float x[WIDTH_MAX], w[WIDTH_MAX], packed[WIDTH_MAX];
        double sum = 0.0;
        for (uint32_t k = 0; k < widths[i]; k++) {
            x[k] = draw(&rng);
            w[k] = draw(&rng);
            sum += (double)x[k] * (double)x[k];
        }
        memset(packed, 0x7f, sizeof packed);
        tdm_cpu_norm(x, w, widths[i], 1e-5f, packed);
        double scale = 1.0 / sqrt(sum / widths[i] + (double)1e-5f);
        for (uint32_t k = 0; k < widths[i]; k++) {
            double want = (double)x[k] * scale * (double)w[k];
            assert_true(fabs((double)packed[tdm_linear_place(k)] - want) <= 3e-7 * fabs(want));
        }
        for (uint64_t k = widths[i]; k < tdm_linear_padded(widths[i]); k++)
            assert_true(packed[tdm_linear_place(k)] == 0.0f);
    }
}

static void norm_of_zeros_is_zero(void **state) {
    (void)state;
    float x[64] = {0}, w[64], packed[64];
    for (int i = 0; i < 64; i++) w[i] = 1.0f;
    tdm_cpu_norm(x, w, 64, 1e-5f, packed);
    for (int i = 0; i < 64; i++) assert_true(packed[i] == 0.0f);
}

static void swiglu_follows_its_formula(void **state) {
    (void)state;
    float gate[90], up[90], packed[128];
    for (int i = 0; i < 90; i++) {
        gate[i] = (float)(i - 45) * 4.0f; /* far past the float range of exp */
        up[i] = (float)(i % 7) - 3.0f;
    }
    memset(packed, 0, sizeof packed);
    tdm_cpu_swiglu(gate, up, 0, 24, packed);
    tdm_cpu_swiglu(gate + 24, up + 24, 24, 66, packed); /* a cut changes nothing */
    for (uint32_t i = 0; i < 90; i++) {
        double g = (double)gate[i], want = g / (1.0 + exp(-g)) * (double)up[i];
        double got = (double)packed[tdm_linear_place(i)];
        assert_true(fabs(got - want) <= 1e-6 * fabs(want) + 1e-35);
    }
    float bad = NAN, one = 1.0f;
    tdm_cpu_swiglu(&bad, &one, 0, 1, packed);
    assert_true(isnan(packed[0]));
}

static const tdm_shape_t llama31 = {.head_dim = 128,
                                    .rope_theta = 500000.0f,
                                    .rope_kind = TDM_ROPE_LLAMA3,
                                    .rope_factor = 8.0f,
                                    .rope_low_freq_factor = 1.0f,
                                    .rope_high_freq_factor = 4.0f,
                                    .rope_original_context = 8192};

static void frequencies_follow_their_kind(void **state) {
    (void)state;
    tdm_shape_t s = {.head_dim = 64, .rope_theta = 10000.0f, .rope_kind = TDM_ROPE_PLAIN};
    assert_true(tdm_rope_frequency(&s, 0) == 1.0);
    assert_true(fabs(tdm_rope_frequency(&s, 16) - 0.01) < 1e-12);
    s.rope_kind = TDM_ROPE_LINEAR;
    s.rope_factor = 4.0f;
    assert_true(fabs(tdm_rope_frequency(&s, 16) - 0.0025) < 1e-12);
}

static void llama3_keeps_blends_and_stretches(void **state) {
    (void)state;
    tdm_shape_t plain = llama31;
    plain.rope_kind = TDM_ROPE_PLAIN;
    int kept = 0, blended = 0, stretched = 0;
    for (uint32_t i = 0; i < 64; i++) {
        double f = tdm_rope_frequency(&plain, i), g = tdm_rope_frequency(&llama31, i);
        double wavelength = 2.0 * 3.14159265358979323846 / f;
        if (wavelength < 8192.0 / 4.0) {
            assert_true(g == f);
            kept++;
        } else if (wavelength > 8192.0) {
            assert_true(fabs(g - f / 8.0) <= 1e-15 * f);
            stretched++;
        } else {
            assert_true(g < f && g > f / 8.0);
            blended++;
        }
        if (i > 0) assert_true(g < tdm_rope_frequency(&llama31, i - 1)); /* no jump back */
    }
    assert_true(kept > 20 && blended > 3 && stretched > 20);
}

static void a_turn_is_a_rotation_by_the_position(void **state) {
    (void)state;
    tdm_rng_t rng = {9};
    enum { DIM = 128, POSITIONS = 5000 };
    float *table = malloc((size_t)POSITIONS * DIM * sizeof *table);
    assert_non_null(table);
    tdm_rope_table(&llama31, POSITIONS, table);
    const uint32_t positions[] = {0, 1, 63, 4999};
    for (size_t n = 0; n < TDM_COUNT_OF(positions); n++) {
        uint32_t p = positions[n];
        float x[2 * DIM], y[2 * DIM];
        for (int i = 0; i < 2 * DIM; i++) x[i] = y[i] = draw(&rng);
        tdm_rope_turn(y, 2, DIM, table + (size_t)p * DIM);
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t i = 0; i < DIM / 2; i++) {
                const float *a = x + h * DIM + i, *b = y + h * DIM + i;
                double angle = (double)p * tdm_rope_frequency(&llama31, i);
                double want0 = (double)a[0] * cos(angle) - (double)a[DIM / 2] * sin(angle);
                double want1 = (double)a[0] * sin(angle) + (double)a[DIM / 2] * cos(angle);
                assert_true(fabs((double)b[0] - want0) < 2e-6);
                assert_true(fabs((double)b[DIM / 2] - want1) < 2e-6);
            }
        }
        if (p == 0) assert_memory_equal(x, y, sizeof x);
    }
    free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_follows_its_formula),
        cmocka_unit_test(norm_of_zeros_is_zero),
        cmocka_unit_test(swiglu_follows_its_formula),
        cmocka_unit_test(frequencies_follow_their_kind),
        cmocka_unit_test(llama3_keeps_blends_and_stretches),
        cmocka_unit_test(a_turn_is_a_rotation_by_the_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
