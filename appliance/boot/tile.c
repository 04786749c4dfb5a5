/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/tile.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <signal.h>
#include <string.h>

void tdm_tile_run(tdm_tile_t *t) {
    while (!tdm_load_relaxed(&t->stop)) {
        int64_t now_ns = tdm_clock_now_ns();
        if (!tdm_poller_may_sleep(&t->poller, t->poll(t->ctx, now_ns), now_ns)) continue;
        if (t->poll(t->ctx, now_ns) || tdm_load_relaxed(&t->stop))
            tdm_poller_stay(&t->poller);
        else
            tdm_poller_sleep(&t->poller, t->next_ns(t->ctx, now_ns), now_ns);
    }
}

static void *body(void *arg) {
    tdm_tile_run(arg);
    return NULL;
}

tdm_status_t tdm_tile_start(tdm_tile_t *t, tdm_error_t *err) {
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&t->thread, NULL, body, t);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) return tdm_error_set(err, TDM_ERR_IO, "tile %s: %s", t->name, strerror(rc));
    t->has_thread = 1;
    (void)pthread_setname_np(t->thread, t->name);
    return TDM_OK;
}

void tdm_tile_stop(tdm_tile_t *t) {
    if (!t->has_thread) return;
    tdm_store_relaxed(&t->stop, 1u);
    tdm_doorbell_ring(t->poller.bell);
    (void)pthread_join(t->thread, NULL);
    t->has_thread = 0;
}
