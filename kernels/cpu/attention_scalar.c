/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on any machine: 4 floats in the compiler's own vector type,
   which it lowers to whatever the baseline has (SSE2, NEON). */
#include <string.h>

#include "appliance/abi/fp8.h"
#include "kernels/cpu/attention_exp2_private.h"
#include "kernels/cpu/attention_ops.h"

#define W       4
#define PV_ROWS 2
#define OPS     tdm_attn_ops_scalar

typedef float vec_t __attribute__((vector_size(16)));
typedef int32_t veci_t __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec_t vec_load(const float *p) {
    vec_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vec_store(float *p, vec_t v) {
    memcpy(p, &v, sizeof v);
}
INLINE vec_t vec_set1(float x) {
    return (vec_t){x, x, x, x};
}
INLINE vec_t vec_add(vec_t a, vec_t b) {
    return a + b;
}
INLINE vec_t vec_mul(vec_t a, vec_t b) {
    return a * b;
}
INLINE vec_t vec_fma(vec_t a, vec_t b, vec_t c) {
    return a * b + c;
}
INLINE vec_t vec_select(veci_t mask, vec_t a, vec_t b) {
    return (vec_t)(((veci_t)a & mask) | ((veci_t)b & ~mask));
}
INLINE vec_t vec_max(vec_t a, vec_t b) {
    return vec_select(a > b, a, b);
}
INLINE float vec_sum(vec_t a) {
    return (a[0] + a[2]) + (a[1] + a[3]);
}
INLINE float vec_top(vec_t a) {
    float x = a[0] > a[2] ? a[0] : a[2];
    float y = a[1] > a[3] ? a[1] : a[3];
    return x > y ? x : y;
}

INLINE vec_t vec_exp2(vec_t x) {
    veci_t is_low = x < vec_set1(EXP2_LOW);
    x = vec_select(is_low, vec_set1(0.0f), x);
    /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits. */
    const vec_t magic = vec_set1(12582912.0f);
    vec_t shifted = x + magic;
    vec_t f = x - (shifted - magic);
    vec_t y = vec_fma(f, vec_set1(EXP2_C6), vec_set1(EXP2_C5));
    y = vec_fma(f, y, vec_set1(EXP2_C4));
    y = vec_fma(f, y, vec_set1(EXP2_C3));
    y = vec_fma(f, y, vec_set1(EXP2_C2));
    y = vec_fma(f, y, vec_set1(EXP2_C1));
    y = vec_fma(f, y, vec_set1(1.0f));
    veci_t scaled = (veci_t)y + ((veci_t)shifted << 23);
    /* A NaN's bits must not become an exponent. */
    y = vec_select(x == x, (vec_t)scaled, x);
    return vec_select(is_low, vec_set1(0.0f), y);
}

INLINE vec_t vec_bf16(const uint16_t *p) {
    return (vec_t)((veci_t){p[0], p[1], p[2], p[3]} << 16);
}

INLINE vec_t vec_fp8(const uint8_t *p) {
    return (vec_t){tdm_f32_from_fp8(p[0]), tdm_f32_from_fp8(p[1]), tdm_f32_from_fp8(p[2]),
                   tdm_f32_from_fp8(p[3])};
}

INLINE vec_t pair(vec_t a, vec_t b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
INLINE vec_t vec_tree(const vec_t *a) {
    return pair(pair(a[0], a[1]), pair(a[2], a[3]));
}

#include "kernels/cpu/attention_simd_private.h"
