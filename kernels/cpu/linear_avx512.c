/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

typedef __m512 vec_t;

#define VEC_CNT    4
#define BLOCK_ROWS 4

#define vec_zero()       _mm512_setzero_ps()
#define vec_load(p)      _mm512_loadu_ps(p)
#define vec_store(p, v)  _mm512_storeu_ps((p), (v))
#define vec_add(a, b)    _mm512_add_ps((a), (b))
#define vec_fma(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define vec_even(p)      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))
#define vec_odd(p)                                                                                 \
    _mm512_castsi512_ps(                                                                           \
        _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000u)))

static inline float vec_tree(const vec_t *s) {
    __m512 a = _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]));
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    c = _mm_add_ss(c, _mm_movehdup_ps(c));
    return _mm_cvtss_f32(c);
}

#include "kernels/cpu/linear_simd_private.h"

void tdm_linear_avx512(const tdm_linear_tile_t *t) {
    if (t->row_cnt == 1) {
        tile_stream(t);
    } else {
        tile_panel(t);
    }
}
