/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BOOT_RELOAD_H
#define TDM_BOOT_RELOAD_H

/* tdm_reload changes the live keys (appliance/boot/live.h) of a running
   appliance.

     SIGHUP, POST /reload          management thread
     asked := asked + 1     --->   reads the whole configuration anew, as at
                                   start: defaults, file, --set
                                   refuses it whole where it is bad, or where
                                   a key differs that needs a restart
                                   hands targets, weights and caps to the
                                   scheduler, which takes them between two
                                   iterations; promises to the api tiles
     GET /reload            <---   said: what came of it, with the revision

   Revisions count from 0, the configuration at start; metrics and the
   scheduler's records carry them.

   Ownership: a member of the house.  Threads: ask from anywhere, also from
   a signal handler; text from the door's library thread; the rest from the
   management thread. */

#include "appliance/base/status.h"
#include "appliance/config/config.h"

#include <pthread.h>

/* tdm_reload_read_fn reads the configuration as at start. */
typedef tdm_status_t tdm_reload_read_fn(void *ctx, tdm_config_t *config, tdm_error_t *err);

typedef struct tdm_reload {
    tdm_reload_read_fn *read; /* NULL: nothing to read from, every ask is refused */
    void *ctx;
    uint32_t asked; /* atomic */
    uint32_t done;  /* the last ask that was answered; management thread */
    uint32_t revision;
    tdm_config_t config[2]; /* the one in force, and the next */
    uint32_t which;
    pthread_mutex_t lock; /* of said and its numbers */
    uint32_t said_done;
    uint32_t is_refused;
    char said[320];
} tdm_reload_t;

void tdm_reload_init(tdm_reload_t *r, tdm_reload_read_fn *read, void *ctx);
void tdm_reload_ask(tdm_reload_t *r);

/* tdm_reload_is_due: somebody asked and was not answered. */
int tdm_reload_is_due(const tdm_reload_t *r);

/* tdm_reload_next reads the configuration into a buffer beside the one in
   force and checks that only live keys differ from now. */
TDM_MUST_USE tdm_status_t tdm_reload_next(tdm_reload_t *r, const tdm_config_t *now,
                                          const tdm_config_t **next, tdm_error_t *err);

/* tdm_reload_answer ends all asks so far: what tdm_reload_next gave is in
   force now (status OK), or err says why not. */
void tdm_reload_answer(tdm_reload_t *r, tdm_status_t status, const tdm_error_t *err);

/* tdm_reload_text writes the state as JSON, as snprintf does. */
size_t tdm_reload_text(tdm_reload_t *r, char *buf, size_t buf_sz);

#endif /* TDM_BOOT_RELOAD_H */
