/* SPDX-License-Identifier: Apache-2.0 */
/* The two vector forms of linear.h, written once.  Included by one .c
   file per instruction set, which defines the register type and

     vec_t            REG floats
     VEC_CNT          64 / REG: registers that hold the 64 sums
     BLOCK_ROWS       rows of the register block of the panel form
     vec_zero() vec_load(p) vec_store(p, v) vec_add(a, b) vec_fma(a, b, c)
     vec_even(p) vec_odd(p)   the even or odd ones of 2 * REG bf16 at p
     vec_tree(s)      s[VEC_CNT] added up by the fixed tree

   Register i of VEC_CNT holds packed floats [i * REG, (i+1) * REG). */

#include "appliance/abi/fp8.h"
#include "kernels/cpu/linear.h"

#include <string.h>

#define REG          (64 / VEC_CNT)
#define ALWAYS       static inline __attribute__((always_inline))
#define SUMS_PER_REG (VEC_CNT / 4) /* registers of one of A, B, C, D */

/* fold adds 64 weights times 64 packed inputs onto the sums. */
ALWAYS void fold(vec_t *sum, const vec_t *x, const tdm_bf16_t *w) {
#pragma GCC unroll 8
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 8
        for (int i = 0; i < SUMS_PER_REG; i++) {
            const tdm_bf16_t *p = w + 32 * half + 2 * REG * i;
            int even = 2 * half * SUMS_PER_REG + i;
            int odd = even + SUMS_PER_REG;
            sum[even] = vec_fma(x[even], vec_even(p), sum[even]);
            sum[odd] = vec_fma(x[odd], vec_odd(p), sum[odd]);
        }
    }
}

/* stream computes one output of one row: the weights pass through the
   core once, as fast as memory gives them.  One row at a time is one
   ascending stream, which the hardware prefetcher follows; four rows side
   by side ran at 40 % of its rate, and prefetch instructions at 60 %
   (Zen 4, weights in memory). */
ALWAYS float stream(const float *xp, const tdm_bf16_t *w, uint32_t in) {
    vec_t sum[VEC_CNT], x[VEC_CNT];
    uint32_t whole = in / 64 * 64;
    for (int i = 0; i < VEC_CNT; i++) sum[i] = vec_zero();
    for (uint32_t k = 0; k < whole; k += 64) {
#pragma GCC unroll 8
        for (int i = 0; i < VEC_CNT; i++) x[i] = vec_load(xp + k + REG * i);
        fold(sum, x, w + k);
    }
    if (whole != in) {
        tdm_bf16_t tail[64] = {0};
        memcpy(tail, w + whole, (in - whole) * sizeof *tail);
        for (int i = 0; i < VEC_CNT; i++) x[i] = vec_load(xp + whole + REG * i);
        fold(sum, x, tail);
    }
    return vec_tree(sum);
}

/* halves makes bf16 of 64 codes, exactly: e4m3's range and digits lie
   within bf16's.  A plain loop that the compiler makes vectors of. */
ALWAYS void halves(const uint8_t *code, tdm_bf16_t *out) {
    for (int i = 0; i < 64; i++) {
        uint32_t magnitude = code[i] & 0x7fu, sign = (uint32_t)(code[i] & 0x80u) << 8;
        float small = (float)(int)magnitude * 0x1p-9f; /* the value of a subnormal */
        uint32_t bits;
        memcpy(&bits, &small, sizeof bits);
        bits = magnitude >= 8 ? (magnitude << 4) + (120u << 7) : bits >> 16;
        out[i] = (tdm_bf16_t)(magnitude == 0x7f ? 0x7fc0u : bits | sign);
    }
}

/* stream_fp8 is stream of a row of codes. */
ALWAYS float stream_fp8(const float *xp, const uint8_t *code, uint32_t in) {
    vec_t sum[VEC_CNT], x[VEC_CNT];
    for (int i = 0; i < VEC_CNT; i++) sum[i] = vec_zero();
    for (uint32_t k = 0; k < in; k += 64) {
        tdm_bf16_t w[64] TDM_ALIGNED(64);
        uint8_t tail[64] = {0};
        const uint8_t *from = code + k;
        if (in - k < 64) from = memcpy(tail, from, in - k);
        halves(from, w);
#pragma GCC unroll 8
        for (int i = 0; i < VEC_CNT; i++) x[i] = vec_load(xp + k + REG * i);
        fold(sum, x, w);
    }
    return vec_tree(sum);
}

/* widen stores 64 weights as packed floats. */
ALWAYS void widen(const tdm_bf16_t *w, float *panel) {
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < SUMS_PER_REG; i++) {
            const tdm_bf16_t *p = w + 32 * half + 2 * REG * i;
            vec_store(panel + 32 * half + REG * i, vec_even(p));
            vec_store(panel + 32 * half + 16 + REG * i, vec_odd(p));
        }
    }
}

static void panel_fill(const tdm_bf16_t *w, uint32_t in, uint32_t outs, float *panel) {
    uint64_t padded = tdm_linear_padded(in);
    uint32_t whole = in / 64 * 64;
    for (uint32_t o = 0; o < outs; o++) {
        const tdm_bf16_t *row = w + (uint64_t)o * in;
        for (uint32_t k = 0; k < whole; k += 64) widen(row + k, panel + o * padded + k);
        if (whole == in) continue;
        tdm_bf16_t tail[64] = {0};
        memcpy(tail, row + whole, (in - whole) * sizeof *tail);
        widen(tail, panel + o * padded + whole);
    }
}

static void panel_fill_fp8(const uint8_t *code, uint32_t in, uint32_t outs, float *panel) {
    uint64_t padded = tdm_linear_padded(in);
    for (uint32_t o = 0; o < outs; o++) {
        const uint8_t *row = code + (uint64_t)o * in;
        for (uint32_t k = 0; k < in; k += 64) {
            tdm_bf16_t w[64] TDM_ALIGNED(64);
            uint8_t tail[64] = {0};
            const uint8_t *from = row + k;
            if (in - k < 64) from = memcpy(tail, from, in - k);
            halves(from, w);
            widen(w, panel + o * padded + k);
        }
    }
}

/* block computes rows x outs outputs from a widened panel.  It makes
   VEC_CNT passes over the inputs, each with one register of every
   output's sums, so that rows * outs registers suffice. */
ALWAYS void block(const float *xp, uint64_t xp_stride, const float *panel, uint64_t padded,
                  int rows, int outs, float *y, uint64_t y_stride) {
    vec_t part[VEC_CNT][BLOCK_ROWS * TDM_LINEAR_OUTS];
    for (int i = 0; i < VEC_CNT; i++) {
        vec_t sum[BLOCK_ROWS * TDM_LINEAR_OUTS];
#pragma GCC unroll 32
        for (int s = 0; s < rows * outs; s++) sum[s] = vec_zero();
        for (uint64_t k = (uint64_t)(REG * i); k < padded; k += 64) {
            vec_t w[TDM_LINEAR_OUTS];
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) w[o] = vec_load(panel + (uint64_t)o * padded + k);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vec_t x = vec_load(xp + (uint64_t)r * xp_stride + k);
#pragma GCC unroll 8
                for (int o = 0; o < outs; o++)
                    sum[r * outs + o] = vec_fma(x, w[o], sum[r * outs + o]);
            }
        }
#pragma GCC unroll 32
        for (int s = 0; s < rows * outs; s++) part[i][s] = sum[s];
    }
    for (int r = 0; r < rows; r++) {
        for (int o = 0; o < outs; o++) {
            vec_t s[VEC_CNT];
            for (int i = 0; i < VEC_CNT; i++) s[i] = part[i][r * outs + o];
            y[(uint64_t)r * y_stride + (uint64_t)o] = vec_tree(s);
        }
    }
}

static void rows_of_six(const tdm_linear_tile_t *t, float *y) {
    uint64_t padded = tdm_linear_padded(t->in);
    uint32_t r = 0;
    for (; r + BLOCK_ROWS <= t->row_cnt; r += BLOCK_ROWS)
        block(t->xp + r * t->xp_stride, t->xp_stride, t->panel, padded, BLOCK_ROWS, TDM_LINEAR_OUTS,
              y + r * t->y_stride, t->y_stride);
    for (; r + 2 <= t->row_cnt; r += 2)
        block(t->xp + r * t->xp_stride, t->xp_stride, t->panel, padded, 2, TDM_LINEAR_OUTS,
              y + r * t->y_stride, t->y_stride);
    if (r < t->row_cnt)
        block(t->xp + r * t->xp_stride, t->xp_stride, t->panel, padded, 1, TDM_LINEAR_OUTS,
              y + r * t->y_stride, t->y_stride);
}

static void rows_of_one(const tdm_linear_tile_t *t, const float *panel, float *y) {
    uint64_t padded = tdm_linear_padded(t->in);
    for (uint32_t r = 0; r < t->row_cnt; r++)
        block(t->xp + r * t->xp_stride, t->xp_stride, panel, padded, 1, 1, y + r * t->y_stride,
              t->y_stride);
}

static void tile_stream(const tdm_linear_tile_t *t) {
    for (uint32_t o = 0; o < t->out_cnt; o++) {
        uint64_t at = (uint64_t)o * t->in;
        t->y[o] = t->w ? stream(t->xp, t->w + at, t->in)
                       : stream_fp8(t->xp, t->fp8.code + at, t->in) * t->fp8.scale[o];
    }
}

static void tile_panel(const tdm_linear_tile_t *t) {
    uint64_t padded = tdm_linear_padded(t->in);
    for (uint32_t o = 0; o < t->out_cnt; o += TDM_LINEAR_OUTS) {
        uint32_t outs = TDM_MIN(t->out_cnt - o, (uint32_t)TDM_LINEAR_OUTS);
        uint64_t at = (uint64_t)o * t->in;
        if (t->w)
            panel_fill(t->w + at, t->in, outs, t->panel);
        else
            panel_fill_fp8(t->fp8.code + at, t->in, outs, t->panel);
        if (outs == TDM_LINEAR_OUTS) {
            rows_of_six(t, t->y + o);
            continue;
        }
        for (uint32_t i = 0; i < outs; i++) rows_of_one(t, t->panel + i * padded, t->y + o + i);
    }
    for (uint32_t r = 0; r < t->row_cnt && !t->w; r++)
        for (uint32_t o = 0; o < t->out_cnt; o++) t->y[r * t->y_stride + o] *= t->fp8.scale[o];
}
