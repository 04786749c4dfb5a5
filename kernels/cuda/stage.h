/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_STAGE_H
#define TDM_KERNELS_CUDA_STAGE_H

/* cuda_stages tells where an iteration's device time goes, by events between
   its kernels.

     begin   event 0
     mark    event i + 1: what was queued since event i belongs to a stage
     read    after the last marked kernel has ended: the times, by stage

   Events keep kernels apart that would otherwise overlap and cost a
   microsecond or so each, and a graph has none: one iteration of
   CUDA_STAGE_EVERY is timed and walked without its graph, a few per cent
   slower than its neighbours.  Shares mean something, sums are a little
   high.  An event that fails ends the timing for good and no iteration: what
   broke the device is found by the iteration itself.

   Ownership: a member of the backend.  The executor's thread. */

#include <cuda_runtime_api.h>

#include "appliance/abi/result.h"
#include "appliance/base/status.h"

/* One in so many: 2 % of time on one of 1,024 is far below what can be
   measured on the whole; at 100 iterations/s a new look every ten seconds. */
#define CUDA_STAGE_EVERY 1024u

typedef struct cuda_stages {
    cudaEvent_t *event; /* [event_max] */
    uint8_t *stage;     /* [event_max] tdm_stage_t of the time before event i; of 0 unused */
    uint32_t event_max;
    uint32_t cnt;   /* events recorded */
    uint32_t is_on; /* this iteration is timed */
    uint32_t is_broken;
} cuda_stages_t;

/* tdm_stages_open makes the events of layer_cnt layers; where it cannot,
   nothing is timed. */
void tdm_stages_open(cuda_stages_t *s, uint32_t layer_cnt);
void tdm_stages_close(cuda_stages_t *s);

/* tdm_stages_begin decides whether this iteration is timed, before anything
   of it is queued. */
void tdm_stages_begin(cuda_stages_t *s, uint64_t iteration, cudaStream_t stream);

/* tdm_stages_mark does nothing in an iteration that is not timed. */
void tdm_stages_mark(cuda_stages_t *s, tdm_stage_t stage, cudaStream_t stream);

/* tdm_stages_read adds the nanoseconds of each stage to ns[TDM_STAGE_CNT] of an
   iteration that has ended, if it was timed. */
void tdm_stages_read(cuda_stages_t *s, uint64_t *ns);

#endif /* TDM_KERNELS_CUDA_STAGE_H */
