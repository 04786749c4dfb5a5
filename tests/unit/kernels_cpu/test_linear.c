/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the sums of kernels/cpu/linear.h are right, and their bits depend
   on position alone.  Method: random widths (many no multiple of 64)
   against double, of bf16 and fp8 weights, and every row count, row position, output cut and
   instruction set against the plain form, bit for bit. */
#include "kernels/cpu/linear.h"

#include "appliance/abi/fp8.h"
#include "appliance/base/rng.h"
#include "kernels/cpu/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 13
#define OUTS 31

typedef struct data {
    uint32_t in;
    uint64_t stride;
    float *x;      /* [ROWS][in] */
    float *xp;     /* [ROWS][stride] */
    tdm_bf16_t *w; /* [OUTS][in] */
    uint8_t *code; /* [OUTS][in] of fp8; NULL: bf16 */
    float scale[OUTS];
    float *panel;
} data_t;

static void *aligned(uint64_t sz) {
    void *p = aligned_alloc(64, (sz + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static float draw(tdm_rng_t *rng) {
    return (float)(tdm_rng_unit(tdm_rng_next(rng)) * 2.0 - 1.0);
}

static data_t data_make(uint32_t in, tdm_rng_t *rng) {
    data_t d = {.in = in, .stride = tdm_linear_padded(in)};
    d.x = aligned((uint64_t)ROWS * in * 4);
    d.xp = aligned(ROWS * d.stride * 4);
    /* Exactly as long as the matrix: a read past it is a sanitizer error. */
    d.w = malloc((size_t)OUTS * in * sizeof *d.w);
    assert_non_null(d.w);
    d.panel = aligned(tdm_linear_panel_cnt(in) * 4);
    for (uint64_t i = 0; i < (uint64_t)ROWS * in; i++) d.x[i] = draw(rng);
    for (uint64_t i = 0; i < (uint64_t)OUTS * in; i++) d.w[i] = tdm_bf16_from_f32(draw(rng));
    memset(d.xp, 0x7f, ROWS * d.stride * 4); /* pack must write the padding */
    for (uint64_t r = 0; r < ROWS; r++) tdm_linear_pack(d.x + r * in, in, d.xp + r * d.stride);
    return d;
}

/* data_code makes the weights fp8: codes of every kind but NaN, and scales of
   their own. */
static void data_code(data_t *d, tdm_rng_t *rng) {
    d->code = malloc((size_t)OUTS * d->in);
    assert_non_null(d->code);
    for (uint64_t i = 0; i < (uint64_t)OUTS * d->in; i++) {
        uint8_t code = (uint8_t)tdm_rng_below(rng, 256);
        d->code[i] = (code & 0x7f) == 0x7f ? 0 : code;
    }
    for (uint32_t o = 0; o < OUTS; o++) d->scale[o] = 0.001f + 0.01f * draw(rng) * draw(rng);
}

static double weight(const data_t *d, uint32_t o, uint32_t k) {
    uint64_t at = (uint64_t)o * d->in + k;
    if (!d->code) return (double)tdm_bf16_to_f32(d->w[at]);
    return (double)tdm_f32_from_fp8(d->code[at]) * (double)d->scale[o];
}

static void data_free(data_t *d) {
    free(d->code);
    free(d->x);
    free(d->xp);
    free(d->w);
    free(d->panel);
}

static void run(tdm_linear_fn_t fn, const data_t *d, uint32_t row, uint32_t row_cnt, uint32_t out,
                uint32_t out_cnt, float *y) {
    tdm_linear_tile_t t = {
        .xp = d->xp + row * d->stride,
        .xp_stride = d->stride,
        .w = d->code ? NULL : d->w + (uint64_t)out * d->in,
        .fp8 = {d->code ? d->code + (uint64_t)out * d->in : NULL, d->scale + out},
        .in = d->in,
        .row_cnt = row_cnt,
        .out_cnt = out_cnt,
        .y = y + row * OUTS + out,
        .y_stride = OUTS,
        .panel = d->panel};
    fn(&t);
}

static const uint32_t widths[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 192, 200, 576, 1000};

static void sums_are_right_of(int is_fp8) {
    tdm_rng_t rng = {1};
    for (size_t i = 0; i < TDM_COUNT_OF(widths); i++) {
        data_t d = data_make(widths[i], &rng);
        if (is_fp8) data_code(&d, &rng);
        float y[ROWS * OUTS];
        run(tdm_linear_scalar, &d, 0, ROWS, 0, OUTS, y);
        for (uint32_t r = 0; r < ROWS; r++) {
            for (uint32_t o = 0; o < OUTS; o++) {
                double want = 0.0, size = 0.0;
                for (uint32_t k = 0; k < d.in; k++) {
                    double p = (double)d.x[r * d.in + k] * weight(&d, o, k);
                    want += p;
                    size += fabs(p);
                }
                /* 64 sums of in / 64 terms, a tree of depth 6 and a scale, half
                   a unit of 2^-24 each. */
                double bound = size * (d.in / 64 + 7 + (unsigned)is_fp8) * 0x1.0p-24;
                assert_true(fabs((double)y[r * OUTS + o] - want) <= bound);
            }
        }
        data_free(&d);
    }
}

static void sums_are_right(void **state) {
    (void)state;
    sums_are_right_of(0);
    sums_are_right_of(1);
}

/* cuts runs all rows and outputs in random rectangles. */
static void cuts(tdm_linear_fn_t fn, const data_t *d, const float *want, tdm_rng_t *rng) {
    for (int round = 0; round < 6; round++) {
        float y[ROWS * OUTS];
        memset(y, 0x55, sizeof y);
        for (uint32_t row = 0; row < ROWS;) {
            uint32_t row_cnt = 1 + tdm_rng_below(rng, ROWS - row);
            for (uint32_t out = 0; out < OUTS;) {
                uint32_t out_cnt = 1 + tdm_rng_below(rng, OUTS - out);
                run(fn, d, row, row_cnt, out, out_cnt, y);
                out += out_cnt;
            }
            row += row_cnt;
        }
        assert_memory_equal(y, want, sizeof y);
    }
}

static void bits_depend_on_position_alone(void **state) {
    (void)state;
    tdm_rng_t rng = {2};
    for (uint32_t isa = TDM_CPU_ISA_SCALAR; isa < TDM_CPU_ISA_CNT; isa++) {
        uint32_t resolved;
        if (tdm_cpu_isa_resolve(isa, &resolved, NULL) != TDM_OK) {
            printf("  no %s here\n", tdm_cpu_isa_name(isa));
            continue;
        }
        for (size_t i = 0; i < 2 * TDM_COUNT_OF(widths); i++) {
            data_t d = data_make(widths[i / 2], &rng);
            if (i % 2) data_code(&d, &rng);
            float want[ROWS * OUTS];
            run(tdm_linear_scalar, &d, 0, ROWS, 0, OUTS, want);
            cuts(tdm_linear_for(resolved), &d, want, &rng);
            data_free(&d);
        }
    }
}

static void a_neighbours_nan_stays_there(void **state) {
    (void)state;
    tdm_rng_t rng = {3};
    data_t d = data_make(130, &rng);
    float want[ROWS * OUTS], y[ROWS * OUTS];
    uint32_t isa;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &isa, NULL), TDM_OK);
    run(tdm_linear_for(isa), &d, 0, ROWS, 0, OUTS, want);
    d.xp[5 * d.stride + 7] = NAN;
    run(tdm_linear_for(isa), &d, 0, ROWS, 0, OUTS, y);
    for (uint32_t r = 0; r < ROWS; r++) {
        if (r == 5) {
            for (uint32_t o = 0; o < OUTS; o++) assert_true(isnan(y[r * OUTS + o]));
        } else {
            assert_memory_equal(y + r * OUTS, want + r * OUTS, OUTS * sizeof *y);
        }
    }
    data_free(&d);
}

static void packing_is_a_permutation(void **state) {
    (void)state;
    uint8_t seen[192] = {0};
    float x[150], xp[192];
    for (uint32_t k = 0; k < 192; k++) {
        uint64_t place = tdm_linear_place(k);
        assert_in_range(place, k / 64 * 64, k / 64 * 64 + 63);
        assert_int_equal(seen[place]++, 0);
    }
    for (uint32_t k = 0; k < 150; k++) x[k] = (float)(k + 1);
    memset(xp, 0x7f, sizeof xp);
    tdm_linear_pack(x, 150, xp);
    for (uint32_t k = 0; k < 192; k++)
        assert_true(xp[tdm_linear_place(k)] == (k < 150 ? (float)(k + 1) : 0.0f));
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 0x10000; v++) {
        float f = tdm_bf16_to_f32((tdm_bf16_t)v);
        if (isnan(f)) {
            assert_true(isnan(tdm_bf16_to_f32(tdm_bf16_from_f32(f))));
        } else {
            assert_int_equal(tdm_bf16_from_f32(f), v);
        }
    }
    assert_int_equal(tdm_bf16_from_f32(0x1.01p0f), 0x3f80);     /* tie, down to even */
    assert_int_equal(tdm_bf16_from_f32(0x1.03p0f), 0x3f82);     /* tie, up to even */
    assert_int_equal(tdm_bf16_from_f32(0x1.010002p0f), 0x3f81); /* over the tie */
    assert_int_equal(tdm_bf16_from_f32(0x1.fffffep127f), 0x7f80);
    assert_int_equal(tdm_bf16_from_f32(-0x1.03p0f), 0xbf82);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right),
        cmocka_unit_test(bits_depend_on_position_alone),
        cmocka_unit_test(a_neighbours_nan_stays_there),
        cmocka_unit_test(packing_is_a_permutation),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
