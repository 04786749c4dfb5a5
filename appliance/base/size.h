/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_SIZE_H
#define TDM_BASE_SIZE_H

/* Sizes are 64-bit and checked: every product or sum of numbers that a
   file, a peer or an operator chose goes through these. */

#include "appliance/base/attr.h"

/* tdm_size_mul and tdm_size_add store the result in *out and return 1;
   where 64 bits do not hold it they return 0 and *out is undefined. */
TDM_MUST_USE static inline int tdm_size_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
TDM_MUST_USE static inline int tdm_size_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* tdm_size_align rounds sz up to a multiple of align, a power of two; the
   caller has shown that sz + align does not overflow. */
static inline uint64_t tdm_size_align(uint64_t sz, uint64_t align) {
    return (sz + align - 1) & ~(align - 1);
}

/* tdm_ceil_div gives the least q with q*b >= a; b > 0. */
static inline uint64_t tdm_ceil_div(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

#endif /* TDM_BASE_SIZE_H */
