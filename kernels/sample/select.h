/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_SAMPLE_SELECT_H
#define TDM_KERNELS_SAMPLE_SELECT_H

/* Candidates as one sortable number: the upper half falls as the logit
   rises, the lower half is the token id.  Ascending order is "highest
   logit first, lowest id first on a tie", and no two are equal. */

#include "appliance/base/attr.h"

static inline uint64_t tdm_candidate_make(float logit, uint32_t id) {
    union {
        float f;
        uint32_t u;
    } bits = {.f = logit + 0.0f}; /* -0 becomes +0: they tie */
    uint32_t rising = bits.u & UINT32_C(0x80000000) ? ~bits.u : bits.u | UINT32_C(0x80000000);
    return ((uint64_t)~rising << 32) | id;
}

static inline uint32_t tdm_candidate_id(uint64_t c) {
    return (uint32_t)c;
}

static inline float tdm_candidate_logit(uint64_t c) {
    uint32_t rising = ~(uint32_t)(c >> 32);
    union {
        uint32_t u;
        float f;
    } bits = {.u = rising & UINT32_C(0x80000000) ? rising & UINT32_C(0x7fffffff) : ~rising};
    return bits.f;
}

/* tdm_candidate_front moves the k smallest of c[cnt] to the front, in any
   order.  Expected linear time; never worse than cnt log cnt. */
void tdm_candidate_front(uint64_t *c, uint32_t cnt, uint32_t k);

/* tdm_candidate_sort sorts ascending, in place. */
void tdm_candidate_sort(uint64_t *c, uint32_t cnt);

#endif /* TDM_KERNELS_SAMPLE_SELECT_H */
