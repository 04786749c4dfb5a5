/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_RNG_H
#define TDM_BASE_RNG_H

/* Randomness is an argument.  tdm_rng_t is SplitMix64 (Steele, Lea and
   Flood, OOPSLA 2014): tests and the simulator replay from one seed.
   tdm_rng_at is its counter form: the draw for (seed, index) whatever was
   drawn before, so a sampled token depends on its request's seed and
   position alone.  Not for secrets. */

#include "appliance/base/attr.h"

typedef struct tdm_rng {
    uint64_t state;
} tdm_rng_t;

TDM_INLINE_BOTH uint64_t tdm_rng_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

TDM_INLINE_BOTH uint64_t tdm_rng_next(tdm_rng_t *r) {
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return tdm_rng_mix(r->state);
}

TDM_INLINE_BOTH uint64_t tdm_rng_at(uint64_t seed, uint64_t index) {
    return tdm_rng_mix(tdm_rng_mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^
                       (index * UINT64_C(0xd1342543de82ef95) + UINT64_C(0x2545f4914f6cdd1d)));
}

/* tdm_rng_below draws from [0, n), n > 0 (bias below 2^-32 for 32-bit n). */
TDM_INLINE_BOTH uint32_t tdm_rng_below(tdm_rng_t *r, uint32_t n) {
    return (uint32_t)(((tdm_rng_next(r) >> 32) * (uint64_t)n) >> 32);
}

/* tdm_rng_unit maps 64 random bits to a double in [0, 1). */
TDM_INLINE_BOTH double tdm_rng_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1.0p-53;
}

#endif /* TDM_BASE_RNG_H */
