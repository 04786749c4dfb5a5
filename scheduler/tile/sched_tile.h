/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_TILE_SCHED_TILE_H
#define TDM_SCHEDULER_TILE_SCHED_TILE_H

/* tdm_sched_tile feeds the pure scheduler from lanes and carries its
   answers away.  It decides nothing.

     api k  --requests, controls-->  +------+  --plans-->    executor
            <------events----------  | poll |  <--results--
     supervisor  <----- life ----->  +------+  --counts-->   telemetry block

   One poll: the executor's life, requests, controls, results, plans, the
   watchdog, events, counts.  Requests are drained in every poll, also
   while an iteration runs, so each is answered within one poll.  A control
   word is popped before the requests are drained and applied after, so it
   can never overtake the submit it belongs to.

   Plan slots.  Slot k holds plan[k] and result[k]; its number goes out on
   the plan lane and comes back on the result lane, which frees both.

   Life (appliance/abi/life.h).  When the epoch word changes, the old life
   ends here before ack says so; from ack = 0 on, lanes and slots are not
   touched until a new epoch stands there.

   Full event lane: the event stays in the scheduler's outbox, the next
   poll tries again, and the lane counts it.

   Ownership: the caller's memory; wires outlive the tile.
   Threads: poll and next_ns from the tile's thread; drain_set, live_set
   and the readings from any one other thread. */

#include "appliance/abi/board.h"
#include "appliance/abi/life.h"
#include "appliance/ring/ring.h"
#include "scheduler/check.h"
#include "scheduler/step.h"
#include "telemetry/block/block.h"
#include "telemetry/flight/flight.h"

TDM_BEGIN_DECLS

typedef struct tdm_sched_tile tdm_sched_tile_t;

#define TDM_SCHED_TILE_SLOT_MAX 2u /* plan slots; the scheduler's depth at most */

typedef struct tdm_sched_tile_wires {
    tdm_ring_t *requests;                 /* of tdm_submit_t, one lane per api tile */
    tdm_ring_t *controls;                 /* of tdm_control_t, one lane per api tile */
    tdm_ring_t *events[TDM_API_TILE_MAX]; /* of tdm_event_t, one lane: producer 0 is ours */
    tdm_life_t *life;
    tdm_lane_t *plans;         /* of uint32_t slot numbers, to the executor */
    tdm_lane_t *results;       /* of uint32_t slot numbers, from the executor */
    tdm_doorbell_t *exec_bell; /* rung after a plan; NULL: the executor never sleeps */
    tdm_plan_t *plan[TDM_SCHED_TILE_SLOT_MAX];           /* [depth] in shared memory */
    const tdm_result_t *result[TDM_SCHED_TILE_SLOT_MAX]; /* [depth] in shared memory */
    tdm_block_t *block;                                  /* this tile's own; NULL: no telemetry */
    tdm_flight_ring_t *flight; /* of iterations, this tile's own; NULL: none */
    const tdm_board_t *board;  /* what the GPU's driver tells; NULL: no GPU */
} tdm_sched_tile_wires_t;

/* tdm_sched_tile_footprint gives the bytes create needs, the scheduler
   included; 0 where a size is outside its range.  Alignment:
   TDM_CACHE_LINE. */
size_t tdm_sched_tile_footprint(const tdm_sched_sizes_t *sizes);

/* tdm_sched_tile_create formats mem as a tile with no executor.  wires is
   copied; sizes and live as for tdm_sched_init. */
TDM_MUST_USE tdm_status_t tdm_sched_tile_create(void *mem, const tdm_sched_sizes_t *sizes,
                                                const tdm_sched_live_t *live,
                                                const tdm_sched_tile_wires_t *wires,
                                                tdm_sched_tile_t **out, tdm_error_t *err);

/* tdm_sched_tile_poll does one turn and says how much it did; 0: nothing.
   It never blocks.  Once a second it checks every invariant of the
   scheduler; a broken one stops the process (TDM_CHECK). */
uint32_t tdm_sched_tile_poll(tdm_sched_tile_t *t, int64_t now_ns);

/* tdm_sched_tile_next_ns: when it wants to be polled without input. */
int64_t tdm_sched_tile_next_ns(const tdm_sched_tile_t *t);

/* tdm_sched_tile_drain_set refuses (1) or accepts (0) further requests
   from the next poll on. */
void tdm_sched_tile_drain_set(tdm_sched_tile_t *t, int is_draining);

/* tdm_sched_tile_live_set hands over a new live configuration, checked
   here.  TDM_ERR_FULL: the one before was not taken yet, try again. */
TDM_MUST_USE tdm_status_t tdm_sched_tile_live_set(tdm_sched_tile_t *t, const tdm_sched_live_t *live,
                                                  tdm_error_t *err);

/* tdm_sched_tile_pending counts sequences waiting and running and events
   not yet on their lane, as of the last poll: 0 while draining means
   drained. */
uint32_t tdm_sched_tile_pending(const tdm_sched_tile_t *t);

/* tdm_sched_tile_progress_ns: the poll that took the newest result, 0
   before the first.  A long prompt moves for many iterations before
   anyone sees a token of it. */
int64_t tdm_sched_tile_progress_ns(const tdm_sched_tile_t *t);

/* tdm_sched_tile_publish copies gauges and totals to the block now; poll
   does it 20 times a second.  Tile's thread. */
void tdm_sched_tile_publish(tdm_sched_tile_t *t);

/* tdm_sched_tile_core gives the scheduler inside, for tests. */
tdm_sched_t *tdm_sched_tile_core(tdm_sched_tile_t *t);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_TILE_SCHED_TILE_H */
