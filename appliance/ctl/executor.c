/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/executor.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/sum.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOAD_MAX_NS (600 * TDM_NS_PER_S)
#define RUN_MAX_NS  (60 * TDM_NS_PER_S)

static tdm_status_t wait_serving(tdm_executor_t *x, void (*progress)(uint32_t permille),
                                 tdm_error_t *err) {
    int64_t give_up_ns = tdm_clock_now_ns() + LOAD_MAX_NS;
    for (int64_t now_ns; (now_ns = tdm_clock_now_ns()) < give_up_ns; (void)usleep(5000)) {
        tdm_supervisor_state_t state = tdm_supervisor_poll(&x->supervisor, now_ns);
        if (progress) progress(tdm_load_relaxed(&x->channel.head->progress_permille));
        if (state == TDM_SUPERVISOR_SERVING) return TDM_OK;
        if (state != TDM_SUPERVISOR_LOADING)
            return tdm_error_set(err, TDM_ERR_CLOSED, "%s", x->supervisor.last.text);
    }
    return tdm_error_set(err, TDM_ERR_TIMEOUT, "the executor still loads after ten minutes");
}

tdm_status_t tdm_executor_open(tdm_executor_t *x, const tdm_config_t *config,
                               const tdm_sizing_t *sizing, void (*progress)(uint32_t permille),
                               tdm_error_t *err) {
    tdm_exec_spec_t spec;
    memset(x, 0, sizeof *x);
    x->channel.exec_bell.fd = x->channel.sched_bell.fd = -1;
    tdm_sizing_spec(config, sizing, &spec);
    tdm_status_t st = tdm_supervisor_program(x->program, sizeof x->program, err);
    tdm_arena_kind_t kind = config->exec_huge_plans ? TDM_ARENA_SHARED_HUGE : TDM_ARENA_SHARED;
    if (st == TDM_OK) st = tdm_channel_open(&x->channel, kind, &spec, err);
    if (st != TDM_OK) return st;
    tdm_supervisor_config_t sup = {
        .program = x->program,
        .restart_window_ns = 600 * TDM_NS_PER_S,
        .pause_ns = TDM_NS_PER_S,
        .load_stall_ns = (int64_t)config->exec_load_stall_ms * TDM_NS_PER_MS,
    };
    tdm_supervisor_init(&x->supervisor, &sup, &x->channel, &x->life);
    st = wait_serving(x, progress, err);
    if (st != TDM_OK)
        tdm_executor_close(x);
    else
        tdm_store_release(&x->life.ack, x->supervisor.epoch); /* L2, as the scheduler tile would */
    return st;
}

tdm_status_t tdm_executor_run(tdm_executor_t *x, tdm_error_t *err) {
    tdm_channel_t *c = &x->channel;
    uint32_t k = 0;
    int64_t give_up_ns = tdm_clock_now_ns() + RUN_MAX_NS;
    c->plan[0]->epoch = x->supervisor.epoch;
    if (!tdm_lane_push(c->plans, &k))
        return tdm_error_set(err, TDM_ERR_FULL, "the executor has a plan already");
    tdm_doorbell_ring(&c->exec_bell);
    while (!tdm_lane_pop(c->results, &k)) {
        int64_t now_ns = tdm_clock_now_ns();
        if (tdm_supervisor_poll(&x->supervisor, now_ns) != TDM_SUPERVISOR_SERVING)
            return tdm_error_set(err, TDM_ERR_CLOSED, "%s", x->supervisor.last.text);
        if (now_ns > give_up_ns)
            return tdm_error_set(err, TDM_ERR_TIMEOUT, "one iteration takes over a minute");
        tdm_doorbell_arm(&c->sched_bell);
        if (tdm_lane_cnt(c->results))
            tdm_doorbell_disarm(&c->sched_bell);
        else
            (void)tdm_doorbell_sleep(&c->sched_bell, -1, 100 * TDM_NS_PER_MS);
    }
    if (c->result[0]->fault == 0) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "the executor refused a plan");
}

void tdm_executor_build(const tdm_executor_t *x, const char *version, char *out, size_t out_sz) {
    uint64_t sum = tdm_sum_file(TDM_SUM_FIRST, x->program);
    (void)snprintf(out, out_sz, "%s %.15s %016llx", version, x->channel.head->isa,
                   (unsigned long long)sum);
}

void tdm_executor_close(tdm_executor_t *x) {
    if (x->supervisor.channel) tdm_supervisor_stop(&x->supervisor);
    tdm_channel_close(&x->channel);
}
