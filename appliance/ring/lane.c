/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ring/lane.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"

#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <string.h>

#define LANE_MAGIC UINT64_C(0x74646d2d6c616e65)

struct tdm_lane {
    uint64_t magic; /* written last by init */
    uint32_t depth;
    uint32_t elem_sz;
    /* written by the producer, read by anyone */
    uint64_t full_cnt TDM_ALIGNED(TDM_CACHE_LINE);
    uint32_t high_water;
    struct rte_ring ring TDM_ALIGNED(TDM_CACHE_LINE); /* its elements follow */
};

static int is_valid(uint32_t depth, uint32_t elem_sz) {
    return depth != 0 && depth <= TDM_LANE_DEPTH_MAX && (depth & (depth - 1)) == 0 &&
           elem_sz != 0 && elem_sz % 4 == 0 && elem_sz <= TDM_LANE_ELEM_MAX;
}

/* An rte_ring of n slots holds n - 1 elements: 2 * depth is the next power
   of two that holds depth, and what RING_F_EXACT_SZ chooses. */
static uint32_t slot_cnt(uint32_t depth) {
    return 2u * depth;
}

size_t tdm_lane_footprint(uint32_t depth, uint32_t elem_sz) {
    if (!is_valid(depth, elem_sz)) return 0;
    ssize_t sz = rte_ring_get_memsize_elem(elem_sz, slot_cnt(depth));
    if (sz < 0) return 0;
    size_t all = offsetof(struct tdm_lane, ring) + (size_t)sz;
    return (all + TDM_CACHE_LINE - 1) & ~(size_t)(TDM_CACHE_LINE - 1);
}

tdm_status_t tdm_lane_init(void *mem, uint32_t depth, uint32_t elem_sz, tdm_lane_t **out) {
    size_t sz = tdm_lane_footprint(depth, elem_sz);
    if (sz == 0 || !mem || (uintptr_t)mem % TDM_CACHE_LINE) return TDM_ERR_INVAL;
    memset(mem, 0, sz);
    tdm_lane_t *l = mem;
    if (rte_ring_init(&l->ring, "tdm_lane", depth,
                      RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ) != 0)
        return TDM_ERR_INTERNAL;
    l->depth = depth;
    l->elem_sz = elem_sz;
    l->magic = LANE_MAGIC;
    *out = l;
    return TDM_OK;
}

tdm_status_t tdm_lane_attach(void *mem, uint32_t elem_sz, tdm_lane_t **out) {
    if (!mem || (uintptr_t)mem % TDM_CACHE_LINE) return TDM_ERR_INVAL;
    tdm_lane_t *l = mem;
    if (l->magic != LANE_MAGIC || l->elem_sz != elem_sz) return TDM_ERR_CORRUPT;
    *out = l;
    return TDM_OK;
}

int tdm_lane_push(tdm_lane_t *l, const void *elem) {
    unsigned free_cnt = 0;
    if (TDM_UNLIKELY(rte_ring_sp_enqueue_bulk_elem(&l->ring, elem, l->elem_sz, 1, &free_cnt) ==
                     0)) {
        tdm_store_relaxed(&l->full_cnt, l->full_cnt + 1);
        return 0;
    }
    uint32_t used = l->depth - free_cnt;
    if (used > l->high_water) tdm_store_relaxed(&l->high_water, used);
    return 1;
}

int tdm_lane_pop(tdm_lane_t *l, void *elem) {
    return rte_ring_sc_dequeue_bulk_elem(&l->ring, elem, l->elem_sz, 1, NULL) != 0;
}

uint32_t tdm_lane_depth(const tdm_lane_t *l) {
    return l->depth;
}

uint32_t tdm_lane_cnt(const tdm_lane_t *l) {
    /* The consumer's end first: it never passes a producer's end read later. */
    uint32_t tail = tdm_load_acquire(&l->ring.cons.tail);
    uint32_t head = tdm_load_relaxed(&l->ring.prod.tail);
    uint32_t cnt = head - tail;
    return cnt > l->depth ? l->depth : cnt; /* what was pushed between the two reads */
}

uint32_t tdm_lane_high_water(const tdm_lane_t *l) {
    return tdm_load_relaxed(&l->high_water);
}

uint64_t tdm_lane_full_cnt(const tdm_lane_t *l) {
    return tdm_load_relaxed(&l->full_cnt);
}
