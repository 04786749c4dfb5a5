/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_SM_H
#define TDM_KERNELS_CPU_SM_H

/* tdm_sm_pool is a set of threads that play the SMs of a GPU: a launch
   wakes them all, each runs the same function with its own SM number, and
   the launch returns when all have come back.

     caller = SM 0                      SM 1 .. sm_cnt-1
     job := fn, ctx                     spin on epoch (bounded), then sleep
     epoch++            -- R1 -> A1 --  see epoch; run job
     run job as SM 0                    ...
     see owed == 0      -- A2 <- R2 --  owed--

   R1/A1  the job and everything the caller wrote are visible before the
          new epoch is.
   R2/A2  everything an SM wrote is visible before its arrival is.

   Ownership: memory is the caller's; one owner thread opens, launches
   and closes; functions never launch.
   Limits: sm_cnt in [1, TDM_SM_MAX].  A launch cannot fail. */

#include "appliance/base/status.h"
#include "kernels/include/backend.h"

typedef struct tdm_sm_pool tdm_sm_pool_t;

/* tdm_sm_fn_t is run once per SM and launch; sm in [0, sm_cnt). */
typedef void tdm_sm_fn_t(void *ctx, uint32_t sm);

/* tdm_sm_range_fn_t does [begin, end) of a parallel_for. */
typedef void tdm_sm_range_fn_t(void *ctx, uint64_t begin, uint64_t end, uint32_t sm);

typedef struct tdm_sm_config {
    uint32_t sm_cnt;
    /* How long an idle SM spins before it sleeps, and the caller before
       it sleeps on the last SM.  Layers of a small model follow each
       other within 10-50 us: too low costs a futex wake (about 5-50 us)
       per launch, too high burns a shared core.  0 never spins. */
    uint32_t spin_us;
    const int *cpu; /* [sm_cnt] cores to pin to, -1: leave alone; NULL: pin none */
} tdm_sm_config_t;

/* tdm_sm_pool_footprint: bytes, for sm_cnt in [1, TDM_SM_MAX]; else 0. */
uint64_t tdm_sm_pool_footprint(uint32_t sm_cnt);

/* tdm_sm_pool_open formats mem (footprint bytes, TDM_CACHE_LINE aligned)
   and starts sm_cnt - 1 threads; the caller is SM 0. */
TDM_MUST_USE tdm_status_t tdm_sm_pool_open(void *mem, const tdm_sm_config_t *config,
                                           tdm_sm_pool_t **pool_out, tdm_error_t *err);

/* tdm_sm_pool_close stops and joins the threads; NULL is allowed. */
void tdm_sm_pool_close(tdm_sm_pool_t *pool);

/* tdm_sm_pool_cnt: SMs, the caller included. */
uint32_t tdm_sm_pool_cnt(const tdm_sm_pool_t *pool);

/* tdm_sm_run runs fn(ctx, sm) on every SM and returns when all are back. */
void tdm_sm_run(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx);

/* tdm_sm_draw runs fn on the caller and on every SM that comes while the
   caller is at it, and returns when those have come back.  For work that
   is drawn by ticket, which any one SM would finish alone: an SM whose
   core is taken by somebody else is not waited for.  (Decode on two cores
   that other processes kept busy ran 2.2 times as fast.)  Returns how many
   ran fn, the caller included. */
uint32_t tdm_sm_draw(tdm_sm_pool_t *pool, tdm_sm_fn_t *fn, void *ctx);

/* tdm_sm_parallel_for cuts [0, cnt) into at most sm_cnt contiguous parts
   whose borders are multiples of grain (>= 1), the same on every call,
   and runs fn on each non-empty one.  A count of one grain or less runs
   in the caller with no wake-up. */
void tdm_sm_parallel_for(tdm_sm_pool_t *pool, uint64_t cnt, uint64_t grain, tdm_sm_range_fn_t *fn,
                         void *ctx);

#endif /* TDM_KERNELS_CPU_SM_H */
