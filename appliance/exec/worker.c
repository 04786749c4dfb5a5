/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/exec/worker.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <stdio.h>

static void announce(tdm_channel_t *c, const tdm_backend_t *backend) {
    const tdm_backend_info_t *info = tdm_backend_info(backend);
    c->head->memory_bytes = info->memory_bytes;
    c->head->sm_cnt = info->sm_cnt;
    (void)snprintf(c->head->isa, sizeof c->head->isa, "%s", info->isa);
    /* E1: pairs with the acquire of state in supervisor.c */
    tdm_store_release(&c->head->state, (uint32_t)TDM_EXEC_READY);
}

/* What is under way at the backend, oldest first. */
typedef struct under_way {
    uint32_t slot[TDM_CHANNEL_DEPTH];
    uint32_t cnt;
} under_way_t;

static tdm_status_t answer(tdm_channel_t *c, uint32_t k, tdm_error_t *err) {
    if (!tdm_lane_push(c->results, &k))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "the result lane is full");
    tdm_doorbell_ring(&c->sched_bell);
    return TDM_OK;
}

/* finish_one answers the oldest plan.  Where the device failed nothing was
   computed: there is no result. */
static tdm_status_t finish_one(tdm_channel_t *c, tdm_backend_t *backend, under_way_t *w,
                               tdm_error_t *err) {
    uint32_t k = w->slot[0];
    w->slot[0] = w->slot[1];
    w->cnt--;
    tdm_status_t st = tdm_backend_finish(backend, err);
    return st == TDM_OK ? answer(c, k, err) : st;
}

/* start_one gives the plan in slot k to the backend; anything but OK ends
   the loop.  A plan that is refused is answered too, after those before
   it. */
static tdm_status_t start_one(tdm_channel_t *c, tdm_backend_t *backend, under_way_t *w, uint32_t k,
                              tdm_error_t *err) {
    if (k >= TDM_CHANNEL_DEPTH || c->plan[k]->epoch != c->head->epoch ||
        (w->cnt > 0 && w->slot[0] == k))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "plan slot %u is not of this life", k);
    tdm_status_t st = tdm_backend_start(backend, c->plan[k], c->result[k], err);
    if (st == TDM_OK) {
        w->slot[w->cnt++] = k;
        return TDM_OK;
    }
    if (st == TDM_ERR_INTERNAL) return st;
    tdm_error_t later = {0};
    while (w->cnt > 0)
        if (finish_one(c, backend, w, &later) != TDM_OK) return st;
    (void)answer(c, k, &later);
    return st;
}

/* How long no plan must have come before idle time is made use of: a scheduler
   that has work sends the next within a fraction of it. */
#define IDLE_NS (2 * TDM_NS_PER_MS)

static void ring_self(void *ctx) {
    tdm_doorbell_ring((tdm_doorbell_t *)ctx);
}

/* has_input: a turn of the loop would find something to do. */
static int has_input(const tdm_channel_t *c, tdm_backend_t *backend, const under_way_t *w) {
    if (w->cnt > 0 && tdm_backend_is_done(backend)) return 1;
    return w->cnt < tdm_backend_info(backend)->depth && tdm_lane_cnt(c->plans);
}

tdm_status_t tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                            const uint32_t *stop, tdm_error_t *err) {
    const tdm_backend_info_t *info = tdm_backend_info(backend);
    under_way_t w = {.cnt = 0};
    int64_t busy_ns = 0;   /* when it last had something to do */
    int has_idle_work = 0; /* until the backend says otherwise, after each plan */
    tdm_poller_t poller;
    tdm_poller_init(&poller, mode, &c->exec_bell, -1, tdm_clock_now_ns());
    if (info->depth > 1) poller.sleep_ns = poller.quiet_ns; /* all that it waits for rings */
    tdm_backend_listen(backend, ring_self, &c->exec_bell);
    announce(c, backend);
    while (!stop || !tdm_load_relaxed(stop)) {
        uint32_t k, work = 1;
        tdm_status_t st = TDM_OK;
        if (w.cnt < info->depth && tdm_lane_pop(c->plans, &k))
            st = start_one(c, backend, &w, k, err);
        else if (w.cnt > 0 && tdm_backend_is_done(backend))
            st = finish_one(c, backend, &w, err);
        else
            work = 0;
        if (st != TDM_OK) return st;
        int is_deaf = w.cnt > 0 && !info->has_bell; /* nobody would wake it */
        if (!work && is_deaf) {
            tdm_cpu_relax();
            continue;
        }
        int64_t now_ns = tdm_clock_now_ns();
        if (work) busy_ns = now_ns;
        has_idle_work |= (int)work;
        if (w.cnt == 0 && has_idle_work && now_ns - busy_ns >= IDLE_NS)
            has_idle_work = tdm_backend_idle(backend);
        if (!tdm_poller_may_sleep(&poller, work, now_ns)) continue;
        if (has_input(c, backend, &w))
            tdm_poller_stay(&poller);
        else
            tdm_poller_sleep(&poller, TDM_TIME_NEVER, now_ns);
    }
    return TDM_OK;
}

void tdm_worker_fail(tdm_channel_t *c, const tdm_error_t *err) {
    (void)snprintf(c->head->error, sizeof c->head->error, "%s", err->text);
    tdm_store_release(&c->head->state, (uint32_t)TDM_EXEC_FAILED); /* E1 */
}
