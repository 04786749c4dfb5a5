/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_WIRES_H
#define TDM_BOOT_WIRES_H

/* tdm_wires is everything that runs between tiles: lanes, the rings made
   of them, doorbells, and one telemetry block per writer.

     doors  --arrivals, hangups-->  api k   --requests, controls-->  sched
     doors  <------egress---------  api k   <--------events--------  sched

   All memory is one arena, sealed before the first tile runs.  Depths: a
   lane that must not fill is as deep as what can be outstanding on it
   (hang-ups: one per exchange; controls: two per request; events and
   egress words: a full one makes the sender keep and retry). */

#include "appliance/abi/limits.h"
#include "appliance/base/arena.h"
#include "appliance/ring/ring.h"
#include "telemetry/block/block.h"

typedef struct tdm_wires_config {
    uint32_t door_cnt;      /* 1..TDM_DOOR_MAX */
    uint32_t api_cnt;       /* 1..TDM_API_TILE_MAX */
    uint32_t exchange_max;  /* slots of each door */
    uint32_t request_max;   /* slots of each api tile */
    uint32_t request_depth; /* of each lane of the request ring; a power of two */
    tdm_arena_kind_t kind;
    tdm_doorbell_t *sched_bell; /* lives in the channel to the executor */
} tdm_wires_config_t;

/* One block per writer, in this order. */
enum {
    TDM_BLOCK_NET,   /* net tile */
    TDM_BLOCK_HTTP1, /* library thread of the HTTP/1.1 door */
    TDM_BLOCK_MGMT,  /* management thread */
    TDM_BLOCK_SCHED, /* scheduler tile */
    TDM_BLOCK_PAGE,  /* whoever renders pages: the library thread, between scrapes */
    TDM_BLOCK_API,   /* api tile 0; the others follow */
    TDM_BLOCK_MAX = TDM_BLOCK_API + TDM_API_TILE_MAX
};

typedef struct tdm_wires {
    tdm_arena_t arena;
    uint32_t door_cnt;
    uint32_t api_cnt;
    uint32_t block_cnt;
    tdm_doorbell_t door_bell[TDM_DOOR_MAX];
    tdm_doorbell_t api_bell[TDM_API_TILE_MAX];
    tdm_ring_t arrivals[TDM_API_TILE_MAX]; /* tdm_arrival_t, lane per door */
    tdm_ring_t hangups[TDM_API_TILE_MAX];  /* tdm_hangup_t, lane per door */
    tdm_ring_t events[TDM_API_TILE_MAX];   /* tdm_event_t, one lane */
    tdm_ring_t requests;                   /* tdm_submit_t, lane per api tile */
    tdm_ring_t controls;                   /* tdm_control_t, lane per api tile */
    tdm_ring_t egress[TDM_DOOR_MAX];       /* tdm_egress_t, lane per api tile */
    tdm_block_t *block[TDM_BLOCK_MAX];
} tdm_wires_t;

/* tdm_wires_open takes the arena and lays everything in it. */
TDM_MUST_USE tdm_status_t tdm_wires_open(tdm_wires_t *w, const tdm_wires_config_t *config,
                                         tdm_error_t *err);

/* tdm_wires_close gives all of it back, after the last tile stopped. */
void tdm_wires_close(tdm_wires_t *w);

/* tdm_wires_publish copies depth, high water and refusals of every ring,
   and of the two lanes of the channel to the executor, into the management
   block.  The channel's lanes count anew in every life.  By the thread that
   formats them. */
void tdm_wires_publish(const tdm_wires_t *w, const tdm_lane_t *plans, const tdm_lane_t *results);

#endif /* TDM_BOOT_WIRES_H */
