/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_CARVE_H
#define TDM_BASE_CARVE_H

/* tdm_carve hands out the arrays of an object that lives in one piece of its
   caller's memory, one behind the other.  Without memory it only counts, so
   that a footprint and the init after it are one walk:

     footprint            init
     tdm_carve_t c = {0}  tdm_carve_t c = {.base = mem}
     lay_out(&c, ...)     lay_out(&c, ...)
     tdm_carve_sz(&c)     the pointers are good

   Ownership: the memory stays the caller's; mem is on a cache line and at
   least as large as the footprint.  Boot time only. */

#include "appliance/base/attr.h"
#include "appliance/base/size.h"

typedef struct tdm_carve {
    uint8_t *base; /* NULL: only counting */
    uint64_t used; /* bytes, a multiple of a cache line */
    int is_over;   /* 64 bits did not hold it */
} tdm_carve_t;

/* tdm_carve_take gives room for cnt elements on a cache line of its own; NULL
   while only counting. */
static inline void *tdm_carve_take(tdm_carve_t *c, uint64_t cnt, uint64_t elem_sz) {
    uint64_t sz = 0, end = 0;
    void *at = c->base ? c->base + c->used : NULL;
    if (!tdm_size_mul(cnt, elem_sz, &sz) || !tdm_size_add(c->used, sz, &end) ||
        end > UINT64_MAX - TDM_CACHE_LINE)
        c->is_over = 1;
    else
        c->used = tdm_size_align(end, TDM_CACHE_LINE);
    return at;
}

/* tdm_carve_sz gives the bytes of all that was taken; 0 where 64 bits do not
   hold them. */
static inline uint64_t tdm_carve_sz(const tdm_carve_t *c) {
    return c->is_over ? 0 : c->used;
}

#endif /* TDM_BASE_CARVE_H */
