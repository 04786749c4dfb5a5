/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX2 and FMA: 8 floats. */
#include <immintrin.h>

#include "kernels/cpu/attention_exp2_private.h"
#include "kernels/cpu/attention_ops.h"

#define W       8
#define PV_ROWS 2
#define OPS     tdm_attn_ops_avx2

typedef __m256 vec_t;

#define INLINE static inline __attribute__((always_inline))

INLINE vec_t vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void vec_store(float *p, vec_t v) {
    _mm256_storeu_ps(p, v);
}
INLINE vec_t vec_set1(float x) {
    return _mm256_set1_ps(x);
}
INLINE vec_t vec_add(vec_t a, vec_t b) {
    return _mm256_add_ps(a, b);
}
INLINE vec_t vec_mul(vec_t a, vec_t b) {
    return _mm256_mul_ps(a, b);
}
INLINE vec_t vec_max(vec_t a, vec_t b) {
    return _mm256_max_ps(a, b);
}
INLINE vec_t vec_fma(vec_t a, vec_t b, vec_t c) {
    return _mm256_fmadd_ps(a, b, c);
}

INLINE float vec_sum(vec_t a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

INLINE float vec_top(vec_t a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

INLINE vec_t vec_exp2(vec_t x) {
    vec_t n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec_t f = _mm256_sub_ps(x, n);
    vec_t y = vec_fma(f, vec_set1(EXP2_C6), vec_set1(EXP2_C5));
    y = vec_fma(f, y, vec_set1(EXP2_C4));
    y = vec_fma(f, y, vec_set1(EXP2_C3));
    y = vec_fma(f, y, vec_set1(EXP2_C2));
    y = vec_fma(f, y, vec_set1(EXP2_C1));
    y = vec_fma(f, y, vec_set1(1.0f));
    /* 2^n by adding n to the exponent; NaN converts to a shift of 0. */
    __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), e));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, vec_set1(EXP2_LOW), _CMP_LT_OQ), y);
}

INLINE vec_t vec_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* The exponent's bias is moved by an addition; a subnormal first gets the
   smallest normal exponent, whose value is then taken off again. */
INLINE vec_t vec_fp8(const uint8_t *p) {
    __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    __m256i bits = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), 20);
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
    __m256 normal = _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(120 << 23)));
    __m256 small = _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(121 << 23)));
    small = _mm256_sub_ps(small, vec_set1(0x1p-6f));
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(1 << 23), bits);
    __m256i is_nan = _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x7f << 20));
    __m256 y = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(is_small));
    return _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(y), sign), is_nan));
}

INLINE vec_t vec_tree(const vec_t *a) {
    vec_t x = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    vec_t y = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
    return vec_add(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
}

#include "kernels/cpu/attention_simd_private.h"
