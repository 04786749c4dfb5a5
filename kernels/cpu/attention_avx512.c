/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX-512 F, BW, DQ, VL: 16 floats. */
#include <immintrin.h>

#include "kernels/cpu/attention_exp2_private.h"
#include "kernels/cpu/attention_ops.h"

#define W       16
#define PV_ROWS 4
#define OPS     tdm_attn_ops_avx512

typedef __m512 vec_t;

#define INLINE static inline __attribute__((always_inline))

INLINE vec_t vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void vec_store(float *p, vec_t v) {
    _mm512_storeu_ps(p, v);
}
INLINE vec_t vec_set1(float x) {
    return _mm512_set1_ps(x);
}
INLINE vec_t vec_add(vec_t a, vec_t b) {
    return _mm512_add_ps(a, b);
}
INLINE vec_t vec_mul(vec_t a, vec_t b) {
    return _mm512_mul_ps(a, b);
}
INLINE vec_t vec_max(vec_t a, vec_t b) {
    return _mm512_max_ps(a, b);
}
INLINE vec_t vec_fma(vec_t a, vec_t b, vec_t c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE float vec_sum(vec_t a) {
    return _mm512_reduce_add_ps(a);
}
INLINE float vec_top(vec_t a) {
    return _mm512_reduce_max_ps(a);
}

INLINE vec_t vec_exp2(vec_t x) {
    vec_t n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec_t f = _mm512_sub_ps(x, n);
    vec_t y = vec_fma(f, vec_set1(EXP2_C6), vec_set1(EXP2_C5));
    y = vec_fma(f, y, vec_set1(EXP2_C4));
    y = vec_fma(f, y, vec_set1(EXP2_C3));
    y = vec_fma(f, y, vec_set1(EXP2_C2));
    y = vec_fma(f, y, vec_set1(EXP2_C1));
    y = vec_fma(f, y, vec_set1(1.0f));
    /* 2^n by adding n to the exponent; NaN converts to a shift of 0. */
    __m512i e = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), e));
    __mmask16 is_low = _mm512_cmp_ps_mask(x, vec_set1(EXP2_LOW), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(y, is_low, _mm512_setzero_ps());
}

INLINE vec_t vec_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* The exponent's bias is moved by an addition; a subnormal first gets the
   smallest normal exponent, whose value is then taken off again. */
INLINE vec_t vec_fp8(const uint8_t *p) {
    __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i bits = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7f)), 20);
    __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 24);
    __mmask16 is_small = _mm512_cmplt_epi32_mask(bits, _mm512_set1_epi32(1 << 23));
    __mmask16 is_nan = _mm512_cmpeq_epi32_mask(bits, _mm512_set1_epi32(0x7f << 20));
    __m512i y = _mm512_add_epi32(bits, _mm512_set1_epi32(120 << 23));
    __m512 small = _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(121 << 23)));
    small = _mm512_sub_ps(small, vec_set1(0x1p-6f));
    y = _mm512_mask_mov_epi32(y, is_small, _mm512_castps_si512(small));
    y = _mm512_mask_mov_epi32(y, is_nan, _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(_mm512_or_si512(y, sign));
}

/* Adds neighbours: of lanes within 128 bits, then of 128-bit quarters. */
INLINE vec_t pair_lanes(vec_t a, vec_t b) {
    return vec_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
INLINE vec_t pair_quarters(vec_t a, vec_t b) {
    return vec_add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

INLINE vec_t vec_tree(const vec_t *a) {
    vec_t q[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        q[i] =
            pair_lanes(pair_lanes(a[4 * i], a[4 * i + 1]), pair_lanes(a[4 * i + 2], a[4 * i + 3]));
    }
    return pair_quarters(pair_quarters(q[0], q[1]), pair_quarters(q[2], q[3]));
}

#include "kernels/cpu/attention_simd_private.h"
