/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_RING_H
#define TDM_RING_RING_H

/* tdm_ring has many producers and one consumer: one lane per producer,
   drained in turn, and the consumer's doorbell.  No producer can delay
   another, none can starve (the turn moves on after every element), and
   the whole is as free of data races as a lane is.

     producer 0 -> lane 0 \
     producer 1 -> lane 1  >-> consumer, round robin
     producer 2 -> lane 2 /

   Ownership: the lanes are the caller's; the struct is private to this
   process and each side fills its own.  Bound: the sum of lane depths. */

#include "appliance/ring/doorbell.h"
#include "appliance/ring/lane.h"

TDM_BEGIN_DECLS

#define TDM_RING_LANE_MAX 16u

typedef struct tdm_ring {
    tdm_lane_t *lane[TDM_RING_LANE_MAX];
    uint32_t lane_cnt;
    uint32_t turn;        /* consumer: lane looked at first by the next pop */
    tdm_doorbell_t *bell; /* the consumer's; NULL where it never sleeps */
} tdm_ring_t;

/* tdm_ring_init ties lane_cnt (1..TDM_RING_LANE_MAX) lanes and a bell. */
void tdm_ring_init(tdm_ring_t *r, tdm_lane_t *const *lane, uint32_t lane_cnt, tdm_doorbell_t *bell);

/* tdm_ring_push stores elem on the producer's own lane and rings: 1, or 0
   where that lane is full (counted there). */
TDM_MUST_USE int tdm_ring_push(tdm_ring_t *r, uint32_t producer, const void *elem);

/* tdm_ring_pop takes the next element, lanes in turn: 1, or 0 where all
   are empty.  Consumer only. */
TDM_MUST_USE int tdm_ring_pop(tdm_ring_t *r, void *elem);

/* Sums over the lanes, for metrics; any thread. */
uint32_t tdm_ring_cnt(const tdm_ring_t *r);
uint32_t tdm_ring_capacity(const tdm_ring_t *r);
uint32_t tdm_ring_high_water(const tdm_ring_t *r); /* no sum: of the lane that held most */
uint64_t tdm_ring_full_cnt(const tdm_ring_t *r);

TDM_END_DECLS

#endif /* TDM_RING_RING_H */
