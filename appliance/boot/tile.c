/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/tile.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

/* FLUSH_NS: a scrape sees busy and idle time so late at most. */
#define FLUSH_NS (10 * TDM_NS_PER_MS)

static void flush(tdm_tile_t *t, int64_t now_ns) {
    t->account.flush_ns = now_ns;
    tdm_block_begin(t->block);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_TURN; i++)
        tdm_count_to(t->block, TDM_METRIC_tile_seconds_total,
                     tdm_series2(TDM_METRIC_tile_seconds_total, t->label, i), t->account.ns[i]);
    if (now_ns - t->account.second_ns >= TDM_NS_PER_S) {
        t->account.second_ns = now_ns;
        tdm_gauge_set(t->block, TDM_METRIC_tile_turn_max_seconds, t->label,
                      (uint64_t)t->account.longest_ns);
        t->account.longest_ns = 0;
    }
    tdm_block_end(t->block);
}

void tdm_tile_account(tdm_tile_t *t, int64_t now_ns) {
    int64_t ns = now_ns - t->account.begin_ns;
    if (t->account.begin_ns != 0) {
        uint32_t state = t->account.was_busy ? TDM_LABEL_TURN_busy : TDM_LABEL_TURN_idle;
        t->account.ns[state] += (uint64_t)TDM_MAX(ns, 0);
        if (!t->account.has_slept) t->account.longest_ns = TDM_MAX(t->account.longest_ns, ns);
    }
    tdm_store_relaxed(&t->account.begin_ns, now_ns); /* the heartbeat reads it */
    t->account.has_slept = 0;
    if (t->block && now_ns - t->account.flush_ns >= FLUSH_NS) flush(t, now_ns);
}

static void run(tdm_tile_t *t) {
    while (!tdm_load_relaxed(&t->stop)) {
        int64_t now_ns = tdm_clock_now_ns();
        tdm_tile_account(t, now_ns);
        t->account.was_busy = t->poll(t->ctx, now_ns);
        if (!tdm_poller_may_sleep(&t->poller, t->account.was_busy, now_ns)) continue;
        t->account.was_busy = t->poll(t->ctx, now_ns);
        if (t->account.was_busy || tdm_load_relaxed(&t->stop)) {
            tdm_poller_stay(&t->poller);
            continue;
        }
        tdm_poller_sleep(&t->poller, t->next_ns(t->ctx, now_ns), now_ns);
        t->account.has_slept = 1;
    }
}

static void *body(void *arg) {
    run(arg);
    return NULL;
}

tdm_status_t tdm_tile_start(tdm_tile_t *t, tdm_error_t *err) {
    sigset_t all, old;
    pthread_attr_t attr;
    cpu_set_t set;
    int rc = pthread_attr_init(&attr);
    if (rc) return tdm_error_set(err, TDM_ERR_IO, "tile %s: %s", t->name, strerror(rc));
    CPU_ZERO(&set);
    if (t->pin) CPU_SET(t->pin - 1, &set);
    if (t->pin) rc = pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!rc) rc = pthread_create(&t->thread, &attr, body, t);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attr);
    if (rc == EINVAL && t->pin)
        return tdm_error_set(err, TDM_ERR_INVAL, "tile.cpus: this process has no processor %u",
                             t->pin - 1);
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
