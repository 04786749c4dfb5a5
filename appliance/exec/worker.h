/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_WORKER_H
#define TDM_EXEC_WORKER_H

/* tdm_worker is the executor's loop: take a plan, run it on the backend,
   give the result back.  The same loop runs in the tandem-exec process
   and, in thread mode, on a thread of tandemd.

   A plan that contradicts itself, or a device that failed, ends the loop
   with a last result that names the fault: whoever owns the loop then
   ends the process, and the supervisor starts a fresh life. */

#include "appliance/exec/channel.h"
#include "appliance/ring/poll.h"

/* tdm_worker_run serves the channel until *stop is non-zero (TDM_OK), or
   until a plan or the backend failed.  It sets the head to READY first.
   In a process of its own stop may be NULL. */
TDM_MUST_USE tdm_status_t tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend,
                                         tdm_poll_mode_t mode, const uint32_t *stop,
                                         tdm_error_t *err);

/* tdm_worker_fail publishes a failure that a restart will not mend: a
   model that cannot be read, memory that is not there. */
void tdm_worker_fail(tdm_channel_t *c, const tdm_error_t *err);

#endif /* TDM_EXEC_WORKER_H */
