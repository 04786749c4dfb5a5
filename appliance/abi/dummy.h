/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_DUMMY_H
#define TDM_ABI_DUMMY_H

/* What a dummy model's weights are (appliance/model/dummy.h has its
   shapes), so that a device can draw them itself and get the same bits.

   Tensors are numbered: 0 the embedding; 1 + 9 l + k tensor k of layer l, in
   the order attention norm, q, k, v, output, FFN norm, gate, up, down; then
   the output norm, then the head (dummies are untied).  Norm weights are 1.
   Element 4 j + i of the matrix with number n, row-major, is 16 bits of
   step j of a SplitMix64 generator that begins at tdm_rng_at(seed, n),
   times a scale that gives standard deviation 1 / sqrt(columns), as bf16.
   Rows of the head whose id does not print are zero. */

#include <math.h>

#include "appliance/base/rng.h"

TDM_BEGIN_DECLS

#define TDM_DUMMY_SEED     UINT64_C(0x7a4de3)
#define TDM_DUMMY_SYLLABLE 260 /* first id that is a syllable */

enum { /* k */
       TDM_DUMMY_ATTN_NORM,
       TDM_DUMMY_Q,
       TDM_DUMMY_K,
       TDM_DUMMY_V,
       TDM_DUMMY_O,
       TDM_DUMMY_FFN_NORM,
       TDM_DUMMY_GATE,
       TDM_DUMMY_UP,
       TDM_DUMMY_DOWN,
       TDM_DUMMY_LAYER_CNT /* tensors of a layer */
};

/* tdm_dummy_scale: of a matrix with so many columns. */
static inline float tdm_dummy_scale(uint64_t cols) {
    return sqrtf(3.0f / (float)cols) / 32768.0f;
}

/* tdm_dummy_bits: step j, counted from 0, of the generator that begins at
   `begin` (tdm_rng_next of appliance/base/rng.h in its counter form). */
TDM_INLINE_BOTH uint64_t tdm_dummy_bits(uint64_t begin, uint64_t j) {
    return tdm_rng_mix(begin + (j + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* tdm_dummy_value: the i-th of the four values of one step, in float32. */
TDM_INLINE_BOTH float tdm_dummy_value(uint64_t bits, uint32_t i, float scale) {
    return (float)(int16_t)(bits >> (16 * i) & 0xffff) * scale;
}

/* tdm_dummy_prints: has the id a row in the head? */
TDM_INLINE_BOTH int tdm_dummy_prints(uint64_t id) {
    return (id >= 0x20 && id < 0x7f) || id >= TDM_DUMMY_SYLLABLE;
}

TDM_END_DECLS

#endif /* TDM_ABI_DUMMY_H */
