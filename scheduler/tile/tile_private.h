/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_TILE_PRIVATE_H
#define TDM_SCHEDULER_TILE_PRIVATE_H

#include "scheduler/tile/sched_tile.h"

#define TDM_SCHED_TILE_CONTROLS 64u /* control words of one poll */

struct tdm_sched_tile {
    tdm_sched_t *core;
    tdm_sched_sizes_t sizes;
    tdm_sched_tile_wires_t w;
    uint32_t epoch;         /* acknowledged; 0: no executor */
    uint32_t slot_busy;     /* bit per plan slot that is at the executor */
    uint32_t event_left;    /* events that found their lane full */
    uint32_t clock_max_khz; /* of the executor's SMs; 0: not measured */
    uint64_t backwards_cnt; /* clock_backwards of the core that the block has */
    int64_t now_ns;
    int64_t publish_ns; /* due */
    int64_t check_ns;   /* due */
    tdm_sched_cursor_t looked;
    tdm_control_t control[TDM_SCHED_TILE_CONTROLS];
    tdm_flight_iteration_t noted[TDM_SCHED_TILE_SLOT_MAX]; /* of the last result of each slot */

    /* between threads */
    uint32_t drain TDM_ALIGNED(TDM_CACHE_LINE); /* written by the other thread */
    uint32_t live_seq;                          /* L4: counts configurations handed over */
    tdm_sched_live_t live;
    uint32_t live_ack TDM_ALIGNED(TDM_CACHE_LINE); /* L5: the last one taken */
    uint32_t pending;
    int64_t progress_ns;
};

/* publish.c: what one finished iteration adds to the block. */
void tdm_sched_tile_count_result(tdm_sched_tile_t *t, const tdm_result_t *r);
void tdm_sched_tile_count_record(tdm_sched_tile_t *t, const tdm_sched_record_t *record);

/* flight.c: note keeps what only the result of a slot knows, until fly
   writes the iteration's record. */
void tdm_sched_tile_note(tdm_sched_tile_t *t, uint32_t slot);
void tdm_sched_tile_fly(tdm_sched_tile_t *t, const tdm_sched_record_t *record);

#endif /* TDM_SCHEDULER_TILE_PRIVATE_H */
