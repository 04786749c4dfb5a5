/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m256 vec_t;

#define VEC_CNT    8
#define BLOCK_ROWS 2 /* with six outputs: 12 of 16 registers */

#define vec_zero()       _mm256_setzero_ps()
#define vec_load(p)      _mm256_loadu_ps(p)
#define vec_store(p, v)  _mm256_storeu_ps((p), (v))
#define vec_add(a, b)    _mm256_add_ps((a), (b))
#define vec_fma(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define vec_bits(p)      _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vec_even(p)      _mm256_castsi256_ps(_mm256_slli_epi32(vec_bits(p), 16))
#define vec_odd(p)                                                                                 \
    _mm256_castsi256_ps(_mm256_and_si256(vec_bits(p), _mm256_set1_epi32((int)0xffff0000u)))

/* s[2i] and s[2i+1] are the lower and upper eight of A, B, C, D. */
static inline float vec_tree(const vec_t *s) {
    __m256 lo = _mm256_add_ps(_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[4], s[6]));
    __m256 hi = _mm256_add_ps(_mm256_add_ps(s[1], s[3]), _mm256_add_ps(s[5], s[7]));
    __m256 b = _mm256_add_ps(lo, hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    c = _mm_add_ss(c, _mm_movehdup_ps(c));
    return _mm_cvtss_f32(c);
}

#include "kernels/cpu/linear_simd_private.h"

void tdm_linear_avx2(const tdm_linear_tile_t *t) {
    if (t->row_cnt == 1) {
        tile_stream(t);
    } else {
        tile_panel(t);
    }
}
