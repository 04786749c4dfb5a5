/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_REF_E4M3_H
#define TDM_KERNELS_REF_E4M3_H

/* fp8 e4m3 (the OCP 8-bit floating point specification, revision 1.0, 5.2):
   sign, four exponent bits of bias 7, three of mantissa; no infinity, 0x7f
   and 0xff are NaN, the largest is 448. */

#include <math.h>
#include <stdint.h>

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

/* tdm_e4m3_to_float: the value of a code, exactly. */
static inline float tdm_e4m3_to_float(uint8_t code) {
    int exponent = code >> 3 & 15;
    int mantissa = code & 7;
    float v = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    if ((code & 0x7f) == 0x7f) v = NAN;
    return code & 0x80 ? -v : v;
}

/* tdm_e4m3_from_float: the nearest code, ties to the even one; past 448 the
   largest (saturating); NaN stays NaN.  By search: for tests. */
static inline uint8_t tdm_e4m3_from_float(float v) {
    uint8_t sign = signbit(v) ? 0x80 : 0;
    float x = fabsf(v);
    if (isnan(v)) return 0x7f;
    int best = 0;
    for (int c = 1; c < 0x7f; c++) {
        float now = fabsf(tdm_e4m3_to_float((uint8_t)c) - x);
        float was = fabsf(tdm_e4m3_to_float((uint8_t)best) - x);
        if (now < was || (now <= was && !(c & 1))) best = c;
    }
    return (uint8_t)(sign | best);
}

TDM_END_DECLS

#endif /* TDM_KERNELS_REF_E4M3_H */
