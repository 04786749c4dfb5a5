/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_LINEAR_H
#define TDM_KERNELS_CPU_LINEAR_H

/* y[rows, out] = x[rows, in] * W[out, in]^T: float32 inputs, bf16
   weights, float32 accumulation.  Of fp8 weights the codes are summed up
   as if they were weights, and the sum is multiplied by the row's scale.

   The order of every sum is fixed by position alone.  One output element
   has 64 running sums; input k belongs to sum k % 64 and is added by a
   fused multiply-add in ascending k.  Missing inputs of the last 64 count
   as 0 * 0.  The 64 sums are then added in one fixed tree:

     sum of k % 64        0 2 4 .. 30   1 3 .. 31   32 34 .. 62   33 .. 63
                              A             B            C            D
     s[j], j < 16         (A[j] + B[j]) + (C[j] + D[j])
     then                 s[j] += s[j+8];  s[j] += s[j+4];  +2;  +1

   So an element has the same bits alone or among 64 rows, in any thread
   and on any instruction set.  (vdpbf16ps would round x to bf16 and is
   not used; a BLAS promises no order and is not used either.)

   A, B, C, D are how bf16 pairs fall out of a 32-bit lane: the even
   element by a shift, the odd one by a mask.  x is stored in the same
   order once per row ("packed"), so the inner loop only loads.

   Pure functions over caller memory. */

#include "appliance/abi/model.h"
#include "appliance/base/attr.h"

#define TDM_LINEAR_LANES 64
#define TDM_LINEAR_OUTS  6 /* outputs of one float32 weight panel */

/* One call: out_cnt outputs of row_cnt rows by one thread. */
typedef struct tdm_linear_tile {
    const float *xp;      /* [row_cnt, xp_stride] packed, 64-byte aligned rows */
    uint64_t xp_stride;   /* floats, a multiple of TDM_LINEAR_LANES, >= in */
    const tdm_bf16_t *w;  /* [out_cnt, in]; NULL: fp8 */
    tdm_fp8_matrix_t fp8; /* [out_cnt, in] and [out_cnt] where w is NULL */
    uint32_t in;
    uint32_t row_cnt;
    uint32_t out_cnt;
    float *y;          /* [row_cnt, y_stride]; out_cnt of each row are written */
    uint64_t y_stride; /* floats */
    float *panel;      /* scratch of tdm_linear_panel_cnt(in) floats, 64-byte aligned */
} tdm_linear_tile_t;

typedef void (*tdm_linear_fn_t)(const tdm_linear_tile_t *t);

void tdm_linear_scalar(const tdm_linear_tile_t *t);
#if defined(__x86_64__)
void tdm_linear_avx2(const tdm_linear_tile_t *t);
void tdm_linear_avx512(const tdm_linear_tile_t *t);
#endif

/* tdm_linear_for gives the function of a tdm_cpu_isa_t that
   tdm_cpu_isa_resolve answered. */
tdm_linear_fn_t tdm_linear_for(uint32_t isa);

/* tdm_linear_padded rounds a width up to whole groups of 64. */
static inline uint64_t tdm_linear_padded(uint64_t in) {
    return (in + TDM_LINEAR_LANES - 1) / TDM_LINEAR_LANES * TDM_LINEAR_LANES;
}

static inline uint64_t tdm_linear_panel_cnt(uint64_t in) {
    return tdm_linear_padded(in) * TDM_LINEAR_OUTS;
}

/* tdm_linear_place gives where element k of a row lies when packed. */
static inline uint64_t tdm_linear_place(uint64_t k) {
    uint64_t in_group = k % 64;
    return k - in_group + (in_group / 32) * 32 + (k & 1) * 16 + (in_group % 32) / 2;
}

/* tdm_linear_pack stores x[in] packed, zeros up to the padded width. */
void tdm_linear_pack(const float *x, uint32_t in, float *xp);

static inline float tdm_bf16_to_f32(tdm_bf16_t v) {
    union {
        uint32_t u;
        float f;
    } bits = {.u = (uint32_t)v << 16};
    return bits.f;
}

/* tdm_bf16_from_f32 rounds to nearest even; a NaN stays a quiet NaN. */
static inline tdm_bf16_t tdm_bf16_from_f32(float v) {
    union {
        float f;
        uint32_t u;
    } bits = {.f = v};
    if ((bits.u & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
        return (tdm_bf16_t)((bits.u >> 16) | 0x40u);
    return (tdm_bf16_t)((bits.u + UINT32_C(0x7fff) + ((bits.u >> 16) & 1u)) >> 16);
}

#endif /* TDM_KERNELS_CPU_LINEAR_H */
