/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_POLL_H
#define TDM_RING_POLL_H

/* tdm_poller decides what a tile does when a turn of its loop found
   nothing: spin on (busy) or, with fewer cores than tiles, spin a little
   and then sleep on the doorbell (adaptive).

     for (;;) {
         now  = clock;
         work = tdm_x_tile_poll(tile, now);
         if (tdm_poller_may_sleep(&p, work, now)) {
             if (tdm_x_tile_poll(tile, now) == 0)           (armed: look again)
                 tdm_poller_sleep(&p, tdm_x_tile_next_ns(tile), now);
             else
                 tdm_poller_stay(&p);
         }
     }

   Tunables, and what they cost:
   spin_ns   longer keeps a core from its neighbours, shorter pays a
             wake-up (about 5 us and one system call) for each message of
             a chatty exchange.  50 us covers a request's way through the
             api and scheduler tiles.
   sleep_ns  bounds how late an input without a bell is seen.  200 us
             while something is under way; after idle_ns without work
             every input that matters rings (lanes) or wakes (extra_fd),
             and the bound grows to quiet_ns, so that an idle appliance
             leaves the core alone.  */

#include "appliance/ring/doorbell.h"

TDM_BEGIN_DECLS

typedef enum tdm_poll_mode {
    TDM_POLL_BUSY,     /* never sleeps; a core per tile */
    TDM_POLL_ADAPTIVE, /* shares cores */
} tdm_poll_mode_t;

typedef struct tdm_poller {
    tdm_poll_mode_t mode;
    tdm_doorbell_t *bell;
    int extra_fd; /* wakes too, -1: none (the port's receive interrupt) */
    int64_t spin_ns;
    int64_t sleep_ns;
    int64_t idle_ns;
    int64_t quiet_ns;
    int64_t last_work_ns;
    uint64_t busy_cnt;  /* turns with work */
    uint64_t idle_cnt;  /* turns without */
    uint64_t sleep_cnt; /* times slept */
} tdm_poller_t;

/* tdm_poller_init sets the defaults above: 50 us, 200 us, 100 ms, 20 ms. */
void tdm_poller_init(tdm_poller_t *p, tdm_poll_mode_t mode, tdm_doorbell_t *bell, int extra_fd,
                     int64_t now_ns);

/* tdm_poller_may_sleep records a turn's work and says whether the tile
   should look once more and then sleep; the bell is then armed. */
int tdm_poller_may_sleep(tdm_poller_t *p, uint32_t work, int64_t now_ns);

/* tdm_poller_stay takes the arming back. */
void tdm_poller_stay(tdm_poller_t *p);

/* tdm_poller_sleep sleeps until a ring, the extra descriptor, next_ns
   (TDM_TIME_NEVER: none) or the bound. */
void tdm_poller_sleep(tdm_poller_t *p, int64_t next_ns, int64_t now_ns);

TDM_END_DECLS

#endif /* TDM_RING_POLL_H */
