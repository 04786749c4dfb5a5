/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RING_DOORBELL_H
#define TDM_RING_DOORBELL_H

/* tdm_doorbell wakes a tile that sleeps.  A tile with a core to itself
   never sleeps and its bell costs the ringer one exchange.

     ringer                                  owner
     push into a lane                        arm: X2 exchange asleep := 1
     X1 exchange asleep := 0                 look at the lanes once more
     it was 1: write the eventfd             nothing: sleep on the eventfd

   X1/X2 are read-modify-writes of one word, so one of them comes first:
   X1 first, then X2 acquires what X1 released and the second look finds
   the element; X2 first, then X1 sees 1 and rings.

   The state word lies in memory that both sides map, the eventfd is
   inherited or passed; so a bell works between processes too.
   Ownership: the creator closes.  Any number of ringers, one owner. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef struct tdm_doorbell {
    uint32_t *asleep; /* shared word: 1 while the owner sleeps or is about to */
    int fd;           /* eventfd, non-blocking, close-on-exec */
} tdm_doorbell_t;

/* tdm_doorbell_open makes the eventfd over the caller's word. */
TDM_MUST_USE tdm_status_t tdm_doorbell_open(tdm_doorbell_t *b, uint32_t *asleep, tdm_error_t *err);

/* tdm_doorbell_attach uses a descriptor and a word received from the
   creator; the descriptor becomes this bell's. */
void tdm_doorbell_attach(tdm_doorbell_t *b, uint32_t *asleep, int fd);

/* tdm_doorbell_close closes the descriptor; a bell with fd -1 is allowed. */
void tdm_doorbell_close(tdm_doorbell_t *b);

/* tdm_doorbell_ring wakes the owner if it sleeps.  Any thread; at most one
   write(2) per sleep. */
void tdm_doorbell_ring(tdm_doorbell_t *b);

/* tdm_doorbell_arm announces the sleep; the owner then looks at its
   inputs once more before tdm_doorbell_sleep, or calls
   tdm_doorbell_disarm. */
void tdm_doorbell_arm(tdm_doorbell_t *b);
void tdm_doorbell_disarm(tdm_doorbell_t *b);

/* tdm_doorbell_sleep waits for a ring, for extra_fd (-1: none) to become
   readable, or for timeout_ns to pass, and disarms.  Says whether
   something other than the timeout ended it. */
int tdm_doorbell_sleep(tdm_doorbell_t *b, int extra_fd, int64_t timeout_ns);

TDM_END_DECLS

#endif /* TDM_RING_DOORBELL_H */
