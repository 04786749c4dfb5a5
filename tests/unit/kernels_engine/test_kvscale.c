/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the scales of an fp8 KV cache are bounds, and tight ones.  Method:
   random weights; the worst input there is for a row, which points along it,
   stays within 448, at the worst rotation too, and passes 224; the
   checkpoint's scales are taken as they are; a dummy's drawn on the fly are
   those of its filled weights. */
#include "kernels/engine/kvscale.h"

#include "appliance/abi/dummy.h"
#include "appliance/base/arena.h"
#include "appliance/base/rng.h"
#include "appliance/model/dummy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HIDDEN 96
#define DIM    8
#define HEADS  3
#define ROWS   (HEADS * DIM)

static tdm_bf16_t wk[ROWS * HIDDEN], wv[ROWS * HIDDEN];
static float gain[HIDDEN];
static tdm_weights_t weights;

static float value(tdm_bf16_t v) {
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static int fill(void **state) {
    (void)state;
    tdm_rng_t rng = {7};
    memset(&weights, 0, sizeof weights);
    weights.shape = (tdm_shape_t){
        .layer_cnt = 1, .hidden = HIDDEN, .nhead_q = HEADS, .nhead_kv = HEADS, .head_dim = DIM};
    for (uint32_t i = 0; i < ROWS * HIDDEN; i++) {
        uint32_t head = i / HIDDEN / DIM; /* heads of very different sizes */
        wk[i] = (tdm_bf16_t)((0x3c00u + 0x300u * head + tdm_rng_below(&rng, 0x80)) |
                             (tdm_rng_below(&rng, 2) << 15));
        wv[i] = (tdm_bf16_t)((0x3d00u - 0x280u * head + tdm_rng_below(&rng, 0x80)) |
                             (tdm_rng_below(&rng, 2) << 15));
    }
    for (uint32_t i = 0; i < HIDDEN; i++) gain[i] = 0.25f + (float)tdm_rng_below(&rng, 16) / 8.0f;
    weights.layer[0] = (tdm_layer_weights_t){.wk = wk, .wv = wv, .attn_norm = gain};
    return 0;
}

/* most gives the largest |row . (gain * x)| over all x with the length that
   RMSNorm gives, by the x that makes it. */
static double most(const tdm_bf16_t *w, uint32_t row) {
    double length = 0.0, dot = 0.0, x[HIDDEN];
    for (uint32_t i = 0; i < HIDDEN; i++) {
        x[i] = (double)(value(w[row * HIDDEN + i]) * gain[i]);
        length += x[i] * x[i];
    }
    for (uint32_t i = 0; i < HIDDEN; i++)
        dot += (double)(value(w[row * HIDDEN + i]) * gain[i]) * x[i] * sqrt(HIDDEN / length);
    return dot;
}

static void the_worst_value_uses_the_upper_half_of_the_codes(void **state) {
    (void)state;
    float k[HEADS], v[HEADS];
    tdm_kv_scale(&weights, 0, 0, k, v);
    for (uint32_t h = 0; h < HEADS; h++) {
        double top_k = 0.0, top_v = 0.0;
        for (uint32_t d = 0; d < DIM; d++) top_v = fmax(top_v, most(wv, h * DIM + d));
        /* A pair's worst needs both at once, which one x does not give here:
           the bound is over each. */
        for (uint32_t d = 0; d < DIM / 2; d++)
            top_k = fmax(top_k, hypot(most(wk, h * DIM + d), most(wk, h * DIM + DIM / 2 + d)));
        assert_true(top_v <= 448.0 * (double)v[h] && top_v > 224.0 * (double)v[h]);
        assert_true(top_k <= 448.0 * (double)k[h] && top_k > 224.0 * (double)k[h]);
        int exponent;
        assert_true(frexp((double)k[h], &exponent) == 0.5 && frexp((double)v[h], &exponent) == 0.5);
    }
    assert_true(k[0] < k[2] && v[0] > v[2]);
}

static void a_head_of_zeros_has_a_scale_too(void **state) {
    (void)state;
    static tdm_bf16_t zeros[ROWS * HIDDEN];
    tdm_weights_t w = weights;
    float k[HEADS], v[HEADS];
    w.layer[0].wk = w.layer[0].wv = zeros;
    tdm_kv_scale(&w, 0, 0, k, v);
    for (uint32_t h = 0; h < HEADS; h++) assert_true(k[h] == 1.0f && v[h] == 1.0f);
}

static void the_checkpoints_scales_are_taken(void **state) {
    (void)state;
    static const float given[HEADS] = {0.1f, 0.2f, 0.3f};
    tdm_weights_t w = weights;
    float k[HEADS], v[HEADS], bound[HEADS];
    tdm_kv_scale(&w, 0, 0, k, bound);
    w.layer[0].k_scale = given;
    tdm_kv_scale(&w, 0, 0, k, v);
    assert_memory_equal(k, given, sizeof k);
    assert_memory_equal(v, bound, sizeof v);
}

static void a_drawn_dummy_has_the_scales_of_its_weights(void **state) {
    (void)state;
    tdm_arena_t arena = {.fd = -1};
    tdm_error_t err = {0};
    static tdm_weights_t full, shape_only;
    tdm_shape_t shape;
    assert_int_equal(tdm_dummy_shape("tiny", &shape, &err), TDM_OK);
    assert_int_equal(tdm_arena_open(&arena, TDM_ARENA_PLAIN,
                                    tdm_weights_sz(&shape, TDM_WEIGHT_BF16) + 4096, &err),
                     TDM_OK);
    assert_int_equal(
        tdm_dummy_fill(&shape, TDM_DUMMY_SEED, TDM_WEIGHT_BF16, &arena, NULL, NULL, &full, &err),
        TDM_OK);
    shape_only.shape = shape;
    for (uint32_t l = 0; l < shape.layer_cnt; l++) {
        float want[2][TDM_HEAD_DIM_MAX], got[2][TDM_HEAD_DIM_MAX];
        tdm_kv_scale(&full, 0, l, want[0], want[1]);
        tdm_kv_scale(&shape_only, TDM_DUMMY_SEED, l, got[0], got[1]);
        for (uint32_t i = 0; i < 2; i++)
            assert_memory_equal(got[i], want[i], shape.nhead_kv * sizeof(float));
    }
    tdm_arena_close(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_value_uses_the_upper_half_of_the_codes),
        cmocka_unit_test(a_head_of_zeros_has_a_scale_too),
        cmocka_unit_test(the_checkpoints_scales_are_taken),
        cmocka_unit_test(a_drawn_dummy_has_the_scales_of_its_weights),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
