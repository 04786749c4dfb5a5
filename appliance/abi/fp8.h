/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_FP8_H
#define TDM_ABI_FP8_H

/* fp8 e4m3 as codes are made and read here: KV pages and weights.  The
   format is that of the OCP 8-bit floating point specification, revision
   1.0, 5.2: sign, four exponent bits of bias 7, three of mantissa; normal
   down to 2^-6, subnormal in steps of 2^-9; no infinity, 0x7f and 0xff are
   NaN, the largest is 448.

   A value is its code times a float32 scale that many codes share.  The
   conversion saturates: what is past 448, infinities too, becomes 448 of
   its sign.  A NaN becomes 0x7f, whatever its sign, and stays one.  CUDA's
   __nv_cvt_float_to_fp8 with __NV_SATFINITE does the same (CUDA Math API,
   FP8 conversions).

   kernels/ref/e4m3.h is the same format the slow and obvious way. */

#include <stdint.h>
#include <string.h>

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_FP8_MAX 448.0f

/* tdm_fp8_from_f32: the nearest code, ties to the even one. */
static inline uint8_t tdm_fp8_from_f32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t sign = bits >> 24 & 0x80u;
    bits &= UINT32_C(0x7fffffff);
    if (bits > UINT32_C(0x7f800000)) return 0x7f;
    if (bits < UINT32_C(121) << 23) { /* below 2^-6: a unit of 2^14 is a step of 2^-9 */
        float magic = 16384.0f, x;
        uint32_t sum, base;
        memcpy(&x, &bits, sizeof x);
        x += magic;
        memcpy(&sum, &x, sizeof sum);
        memcpy(&base, &magic, sizeof base);
        return (uint8_t)(sign | (sum - base));
    }
    if (bits >= UINT32_C(0x43e00000)) return (uint8_t)(sign | 0x7eu); /* 448 */
    bits += UINT32_C(0x7ffff) + (bits >> 20 & 1u);
    return (uint8_t)(sign | ((bits >> 20) - (120u << 3)));
}

/* tdm_f32_from_fp8 is exact; NaN is a quiet NaN. */
static inline float tdm_f32_from_fp8(uint8_t code) {
    uint32_t magnitude = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24, bits;
    float v;
    if (magnitude == 0x7f) {
        bits = UINT32_C(0x7fc00000);
    } else if (magnitude >= 8) {
        bits = (magnitude << 20) + (UINT32_C(120) << 23);
    } else {
        v = (float)magnitude * 0x1p-9f;
        memcpy(&bits, &v, sizeof bits);
    }
    bits |= sign;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* tdm_fp8_row makes codes of cnt finite weights of one row and gives their
   scale: the largest becomes 448.  A row of zeros has the scale 1. */
static inline float tdm_fp8_row(const float *w, uint64_t cnt, uint8_t *code) {
    float most = 0.0f;
    for (uint64_t i = 0; i < cnt; i++) {
        float size = w[i] < 0.0f ? -w[i] : w[i];
        most = size > most ? size : most;
    }
    float scale = most / TDM_FP8_MAX;
    if (most == 0.0f) scale = 1.0f;
    if (scale < 0x1p-126f) scale = 0x1p-126f;
    for (uint64_t i = 0; i < cnt; i++) code[i] = tdm_fp8_from_f32(w[i] / scale);
    return scale;
}

TDM_END_DECLS

#endif /* TDM_ABI_FP8_H */
