/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_SAMPLE_EXP_H
#define TDM_KERNELS_SAMPLE_EXP_H

/* tdm_exp_f32 is e^x in float32 with plain multiplies and adds, so that a
   compiler can put it in vector lanes and every processor gives the same
   bits.  x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor
   polynomial of degree 7 (remainder below 3e-8 relative), 2^n by the
   exponent field.  Below -87 the result is 0, above 88 it is 2^127 or so:
   callers subtract a maximum first.  NaN gives an unspecified number. */

#include "appliance/base/attr.h"

static inline float tdm_exp_f32(float x) {
    x = x < -87.0f ? -87.0f : x;
    float top = x > 88.0f ? 88.0f : x;
    /* 1.5 * 2^23 moves the integer part into the low mantissa bits. */
    float shifted = top * 1.44269504f + 12582912.0f;
    union {
        float f;
        uint32_t u;
    } n = {.f = shifted}, scale;
    float whole = shifted - 12582912.0f;
    /* ln 2 in two parts: the upper one has 10 zero bits at its end. */
    float r = (top - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    scale.u = (n.u - UINT32_C(0x4b400000) + 127u) << 23;
    float y = p * scale.f;
    return x <= -87.0f ? 0.0f : y;
}

#endif /* TDM_KERNELS_SAMPLE_EXP_H */
