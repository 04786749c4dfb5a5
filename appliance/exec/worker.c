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

/* run_one serves the plan in slot k; anything but OK ends the loop. */
static tdm_status_t run_one(tdm_channel_t *c, tdm_backend_t *backend, uint32_t k,
                            tdm_error_t *err) {
    if (k >= TDM_CHANNEL_DEPTH || c->plan[k]->epoch != c->head->epoch)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "plan slot %u is not of this life", k);
    tdm_status_t st = tdm_backend_run(backend, c->plan[k], c->result[k], err);
    if (st == TDM_ERR_INTERNAL) return st; /* nothing was computed: there is no result */
    if (!tdm_lane_push(c->results, &k))
        return tdm_error_set(err, TDM_ERR_CORRUPT, "the result lane is full");
    tdm_doorbell_ring(&c->sched_bell);
    return st;
}

tdm_status_t tdm_worker_run(tdm_channel_t *c, tdm_backend_t *backend, tdm_poll_mode_t mode,
                            const uint32_t *stop, tdm_error_t *err) {
    tdm_poller_t poller;
    tdm_poller_init(&poller, mode, &c->exec_bell, -1, tdm_clock_now_ns());
    announce(c, backend);
    while (!stop || !tdm_load_relaxed(stop)) {
        uint32_t k;
        if (tdm_lane_pop(c->plans, &k)) {
            tdm_status_t st = run_one(c, backend, k, err);
            if (st != TDM_OK) return st;
            (void)tdm_poller_may_sleep(&poller, 1, tdm_clock_now_ns());
            continue;
        }
        int64_t now_ns = tdm_clock_now_ns();
        if (!tdm_poller_may_sleep(&poller, 0, now_ns)) continue;
        if (tdm_lane_cnt(c->plans))
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
