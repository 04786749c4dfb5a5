/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_LANE_H
#define TDM_RING_LANE_H

/* tdm_lane is a bounded queue of fixed-size elements with one producer
   and one consumer, which may be threads or processes.  It is an rte_ring
   in single-producer single-consumer mode (DPDK Programmer's Guide, Ring
   Library) in memory of the caller's choosing, so it needs no EAL; this
   room is the only one that includes rte_ring.h.

     producer                                consumer
     copy element into the ring
     tail_p := tail_p + 1   -- R1 --> A1 --  see tail_p; copy element out
     see tail_c             -- A2 <-- R2 --  tail_c := tail_c + 1

   R1/A1  an element is whole before it can be seen.
   R2/A2  an element was read before its place is used again.
   (both pairs are rte_ring's own, in its C11 form)

   Ownership: the caller owns the memory and outlives both sides.  There
   is no pointer in it: each process finds the lane with tdm_lane_attach.
   Limits:    depth is a power of two in [1, 2^20]; elements are multiples
              of 4 bytes, at most 256.  Never blocks, allocates or logs.
   Full is an ordinary event: push answers 0 and the lane counts it. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_LANE_DEPTH_MAX (1u << 20)
#define TDM_LANE_ELEM_MAX  256u

typedef struct tdm_lane tdm_lane_t;

/* tdm_lane_footprint gives the bytes tdm_lane_init needs, a multiple of
   TDM_CACHE_LINE; 0 where depth or elem_sz are outside the limits. */
size_t tdm_lane_footprint(uint32_t depth, uint32_t elem_sz);

/* tdm_lane_init formats mem, TDM_CACHE_LINE aligned and footprint bytes
   long, as an empty lane.  Before either side runs. */
TDM_MUST_USE tdm_status_t tdm_lane_init(void *mem, uint32_t depth, uint32_t elem_sz,
                                        tdm_lane_t **out);

/* tdm_lane_attach finds the lane that tdm_lane_init formatted in mem, and
   refuses memory that holds none or one of another element size. */
TDM_MUST_USE tdm_status_t tdm_lane_attach(void *mem, uint32_t elem_sz, tdm_lane_t **out);

/* tdm_lane_push copies one element in: 1 stored, 0 full (counted).
   Producer only. */
TDM_MUST_USE int tdm_lane_push(tdm_lane_t *l, const void *elem);

/* tdm_lane_pop copies the oldest element out: 1 got it, 0 empty.
   Consumer only. */
TDM_MUST_USE int tdm_lane_pop(tdm_lane_t *l, void *elem);

/* Readings for metrics, from any thread; each is a moment's truth. */
uint32_t tdm_lane_depth(const tdm_lane_t *l);
uint32_t tdm_lane_cnt(const tdm_lane_t *l);
uint32_t tdm_lane_high_water(const tdm_lane_t *l); /* greatest count a push has seen */
uint64_t tdm_lane_full_cnt(const tdm_lane_t *l);   /* pushes refused */

TDM_END_DECLS

#endif /* TDM_RING_LANE_H */
