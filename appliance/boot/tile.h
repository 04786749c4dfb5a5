/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_TILE_H
#define TDM_BOOT_TILE_H

/* tdm_tile is a thread with one job: it polls, and where a turn found
   nothing it spins or sleeps as its poller says (appliance/ring/poll.h).
   The tile reads the clock once per turn; what it polls takes the time as
   an argument.

   Its block learns how the time went: in turns that found work and in all
   else (spinning and sleeping), and the longest turn of the last second.
   A turn is measured where the next one follows at once. */

#include "appliance/base/status.h"
#include "appliance/ring/poll.h"
#include "telemetry/block/block.h"

#include <pthread.h>

typedef struct tdm_tile {
    const char *name; /* at most 15 bytes: the thread's name */
    void *ctx;
    uint32_t (*poll)(void *ctx, int64_t now_ns);   /* one bounded turn; 0: nothing */
    int64_t (*next_ns)(void *ctx, int64_t now_ns); /* wanted without input; NEVER */
    tdm_poller_t poller;
    uint32_t pin;       /* one more than the processor it keeps to; 0: any */
    tdm_block_t *block; /* written by this thread alone; NULL: not counted */
    uint32_t label;     /* TDM_LABEL_TILE_* */
    struct {
        int64_t begin_ns;   /* of the turn, atomic; 0: the first is to come */
        int64_t flush_ns;   /* when the block was written */
        int64_t second_ns;  /* when the window of longest began */
        uint64_t ns[2];     /* by TDM_LABEL_TURN_* */
        int64_t longest_ns; /* turn of this window */
        uint32_t was_busy;  /* that turn found work */
        uint32_t has_slept; /* and a sleep followed */
    } account;
    uint32_t stop; /* atomic */
    uint32_t has_thread;
    pthread_t thread;
} tdm_tile_t;

/* tdm_tile_start runs the loop on a thread of its own with all signals
   blocked.  The struct outlives the thread.  INVAL where the processor
   named is none that this process may use. */
TDM_MUST_USE tdm_status_t tdm_tile_start(tdm_tile_t *t, tdm_error_t *err);

/* tdm_tile_stop ends the loop after its current turn and joins. */
void tdm_tile_stop(tdm_tile_t *t);

/* tdm_tile_account closes the turn that began before, at the begin of the
   next: for a loop of its own, which then says in account.was_busy whether
   the turn found work and in account.has_slept whether a sleep followed. */
void tdm_tile_account(tdm_tile_t *t, int64_t now_ns);

#endif /* TDM_BOOT_TILE_H */
