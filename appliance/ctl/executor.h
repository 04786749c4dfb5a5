/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_EXECUTOR_H
#define TDM_CTL_EXECUTOR_H

/* tdm_executor is an executor process of this command's own, started and
   spoken to as tandemd does it (appliance/exec), one plan at a time.  It
   dies with this process. */

#include "appliance/config/config.h"
#include "appliance/exec/supervisor.h"
#include "appliance/sizing/sizing.h"

typedef struct tdm_executor {
    tdm_channel_t channel;
    tdm_life_t life;
    tdm_supervisor_t supervisor;
    char program[512];
} tdm_executor_t;

/* tdm_executor_open starts it and waits until it serves; progress (NULL:
   none) hears how much of the weights is read, in permille.  On an error
   nothing is left. */
TDM_MUST_USE tdm_status_t tdm_executor_open(tdm_executor_t *x, const tdm_config_t *config,
                                            const tdm_sizing_t *sizing,
                                            void (*progress)(uint32_t permille), tdm_error_t *err);

/* tdm_executor_run runs channel.plan[0] into channel.result[0]; the plan's
   epoch is filled in.  CLOSED where the executor ended, TIMEOUT after a
   minute without a result. */
TDM_MUST_USE tdm_status_t tdm_executor_run(tdm_executor_t *x, tdm_error_t *err);

/* tdm_executor_build names the kernels that run: version, instruction set
   and a checksum of the program. */
void tdm_executor_build(const tdm_executor_t *x, const char *version, char *out, size_t out_sz);

/* tdm_executor_close ends the process, waits for it and frees the channel. */
void tdm_executor_close(tdm_executor_t *x);

#endif /* TDM_CTL_EXECUTOR_H */
