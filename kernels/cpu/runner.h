/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_RUNNER_H
#define TDM_KERNELS_CPU_RUNNER_H

/* tdm_runner is the thread that computes iterations one after the other,
   as a GPU's queue does, while its owner prepares the next.

     owner                                    runner
     prepare job n
     post: go := n+1       -- R1 -> A1 --     see go; fn(ctx); bell
     is_done, await        <- A2 -- R2 --     done := n+1

   R1/A1  what the owner wrote for the job is visible to fn.
   R2/A2  what fn wrote is visible to whoever saw the job done.

   Ownership: memory is the caller's; one owner thread calls all of it.
   Limits: nothing is queued here: the caller bounds its posts.  A bell is
   rung from the runner's thread. */

#include "appliance/base/status.h"

typedef struct tdm_runner tdm_runner_t;

typedef void tdm_runner_fn_t(void *ctx);

/* tdm_runner_footprint: bytes. */
uint64_t tdm_runner_footprint(void);

/* tdm_runner_open formats mem (footprint bytes, TDM_CACHE_LINE aligned) and
   starts the thread, which spins for spin_us before it sleeps. */
TDM_MUST_USE tdm_status_t tdm_runner_open(void *mem, tdm_runner_fn_t *fn, void *ctx,
                                          uint32_t spin_us, tdm_runner_t **out, tdm_error_t *err);

/* tdm_runner_listen lets bell(ctx) be called after every job; before the
   first post. */
void tdm_runner_listen(tdm_runner_t *r, tdm_runner_fn_t *bell, void *ctx);

/* tdm_runner_post gives one job more. */
void tdm_runner_post(tdm_runner_t *r);

/* tdm_runner_is_done: is the oldest job that was not awaited done? */
int tdm_runner_is_done(const tdm_runner_t *r);

/* tdm_runner_await returns when it is; one must have been posted. */
void tdm_runner_await(tdm_runner_t *r);

/* tdm_runner_close lets the job in hand end, forgets those behind it, and
   joins the thread; NULL is allowed. */
void tdm_runner_close(tdm_runner_t *r);

#endif /* TDM_KERNELS_CPU_RUNNER_H */
