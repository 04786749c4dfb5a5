/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_LIFE_H
#define TDM_ABI_LIFE_H

/* The executor's life, agreed between the supervisor (boot's management
   thread) and the scheduler tile, in three words.

     supervisor                              scheduler tile, every poll
     epoch := e, executor serves   L1 -->    epoch differs from ack:
     epoch := 0, executor is dead              the old life ends, the new
                                               one (if any) begins
     waits until ack equals epoch  <-- L2    ack := epoch
     then formats the lanes anew
     kills the process             <-- L3    kill := e, the life to end

   L1, L2  after ack = 0 the tile touches neither lane nor slot, so the
           supervisor may format them; after epoch = e they are whole.
   L3      a request to kill a life that has ended is ignored.
   Epochs count from 1; 0 is no executor. */

#include "appliance/base/attr.h"

typedef struct tdm_life {
    uint32_t epoch TDM_ALIGNED(TDM_CACHE_LINE); /* supervisor writes */
    uint32_t ack TDM_ALIGNED(TDM_CACHE_LINE);   /* scheduler tile writes, as the next two */
    uint32_t kill;                              /* epoch to be killed, 0: none yet */
    uint32_t kill_reason;                       /* TDM_FAULT_* of that request */
} tdm_life_t;

#endif /* TDM_ABI_LIFE_H */
