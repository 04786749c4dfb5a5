/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_GPU_SAMPLER_H
#define TDM_TELEMETRY_GPU_SAMPLER_H

/* tdm_sampler asks the driver about the GPU's board and keeps tdm_board up
   to date, on a thread of its own beside the executor's loop: an iteration
   neither waits for NVML nor makes a call of it.

     every LOOK_NS    power at this moment
     every CLOCK_NS   clocks, throttle reasons, the enforced limit, energy
     every SLOW_NS    GPM activity, mean power, memory, heat, ECC, Xid

   A call that is missing or fails leaves its words untold.  GPM is asked
   where the device supports it (Hopper and later); its streaming switch is
   a setting and stays as it is.

   Ownership: the caller's memory; board outlives the sampler.  look by one
   thread at a time: the sampler's own between start and stop. */

#include "appliance/abi/board.h"
#include "telemetry/gpu/nvml.h"

#include <pthread.h>

/* LOOK: a power limit is enforced over some tens of milliseconds; less
   often misses peaks, more often costs the driver's lock.  CLOCK: throttled
   time is counted in such steps.  SLOW: the shortest span that the driver
   refreshes memory and ECC counts in. */
#define TDM_SAMPLER_LOOK_NS  (50 * TDM_NS_PER_MS)
#define TDM_SAMPLER_CLOCK_NS (100 * TDM_NS_PER_MS)
#define TDM_SAMPLER_SLOW_NS  TDM_NS_PER_S

typedef struct tdm_sampler {
    tdm_nvml_t nvml;
    tdm_board_t *board;
    tdm_nvml_gpm_t *gpm[2];    /* samples that take turns; NULL: no GPM here */
    tdm_nvml_events_t *events; /* Xid errors; NULL: not told */
    uint32_t gpm_turn;         /* samples taken so far */
    uint32_t is_lost;
    int64_t clock_ns; /* last look at the clocks; 0: none */
    int64_t slow_ns;
    int64_t peak_from_ns; /* the second that peak_mw is of */
    uint64_t peak_mw;

    pthread_t thread;
    pthread_mutex_t lock; /* of is_stopping */
    pthread_cond_t wake;
    uint32_t is_stopping;
    uint32_t is_running;
    tdm_nvml_gpm_question_t question;
} tdm_sampler_t;

/* tdm_sampler_open finds the device and takes the first look.  TDM_ERR_
   UNSUPPORTED where NVML or the device is not there: the caller goes on
   without, and the sampler may be given to every call below.  library NULL:
   the driver's own; bus as in tdm_nvml_open. */
TDM_MUST_USE tdm_status_t tdm_sampler_open(tdm_sampler_t *s, tdm_board_t *board,
                                           const char *library, const char *bus, int64_t now_ns,
                                           tdm_error_t *err);

/* tdm_sampler_look asks for whatever is due at now_ns. */
void tdm_sampler_look(tdm_sampler_t *s, int64_t now_ns);

/* tdm_sampler_is_lost: the driver said that the device is gone or wants a
   reset: a new executor would fail on it as well. */
int tdm_sampler_is_lost(const tdm_sampler_t *s);

/* tdm_sampler_start begins the thread; stop ends it, after a last look at
   all words. */
TDM_MUST_USE tdm_status_t tdm_sampler_start(tdm_sampler_t *s, tdm_error_t *err);
void tdm_sampler_stop(tdm_sampler_t *s);

/* tdm_sampler_close undoes open. */
void tdm_sampler_close(tdm_sampler_t *s);

#endif /* TDM_TELEMETRY_GPU_SAMPLER_H */
