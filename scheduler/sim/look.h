/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_LOOK_H
#define TDM_SCHEDULER_SIM_LOOK_H

/* tdm_look is one arrangement of appliances, looked at rate by rate: each
   appliance runs its share of the workload in a simulator of its own,
   behind a balancer that gives a request to the one with the least
   predicted work left.

   mixed   every appliance does prefill and decode
   pools   prefill_cnt of them do prefill alone (pools.c)

   Host code: allocates.  One caller. */

#include "scheduler/sim/planner.h"

TDM_BEGIN_DECLS

/* A request between the pools; times since the workload began. */
typedef struct tdm_look_hand_over {
    uint32_t row;     /* of the workload */
    uint32_t from;    /* prefill appliance */
    int64_t asked_ns; /* the request's arrival */
    int64_t first_ns; /* its first token, by the prefill pool */
    int64_t there_ns; /* its keys and values are at the decode pool */
} tdm_look_hand_over_t;

/* What the balancer knows: when each appliance will be free, in ns. */
typedef struct tdm_look_dealer {
    double free_at[TDM_PLANNER_APPLIANCE_MAX];
    uint32_t cnt;
} tdm_look_dealer_t;

typedef struct tdm_look {
    const tdm_planner_ask_t *ask;
    tdm_cost_t cost;
    uint32_t route;
    uint32_t policy;
    uint32_t appliances;
    uint32_t prefill_cnt;                    /* 0: mixed */
    uint32_t link;                           /* of pools: index into the ask's */
    uint32_t pools_at[TDM_PLANNER_LINK_MAX]; /* prefill_cnt of the best pools so far */
    tdm_workload_t all;                      /* at the rate */
    tdm_workload_t share;                    /* of one appliance */
    uint32_t *owner; /* [row_max] row i of share is this row of the list it was dealt from */
    tdm_look_hand_over_t *handed; /* [row_max] of the pools */
    uint32_t handed_cnt;
    double *ttft, *e2e; /* [row_max] of those served */
    uint32_t warm_cnt;  /* of a window: the first rows of all, decodes that run when it begins */
    uint32_t heard_cnt; /* requests that were not refused */
    uint32_t served, ended, good; /* in ttft; in e2e */
    uint64_t over_cnt;
    tdm_sim_result_t one, sum; /* sum: gaps, times and iterations of all */
    tdm_planner_point_t *out;
} tdm_look_t;

/* tdm_look_open makes room for the ask's workload.  TDM_ERR_NOMEM. */
TDM_MUST_USE tdm_status_t tdm_look_open(const tdm_planner_ask_t *ask, tdm_look_t **out,
                                        tdm_error_t *err);
void tdm_look_close(tdm_look_t *l);

/* tdm_look_at fills out with what a rate shows; is_kept says whether the
   promise held. */
TDM_MUST_USE tdm_status_t tdm_look_at(tdm_look_t *l, double rate, tdm_planner_point_t *out,
                                      int *is_kept, tdm_error_t *err);

/* --- between look.c and pools.c ------------------------------------------- */

/* tdm_look_deal gives work that arrives at at_ns and takes work_ns to an
   appliance. */
uint32_t tdm_look_deal(tdm_look_dealer_t *d, double at_ns, double work_ns);

/* tdm_look_fill_ns and tdm_look_step_ns predict what a request's prompt and
   output cost an appliance that is full: the prompt in slices of 1,024, the
   output in a batch of 64. */
double tdm_look_fill_ns(const tdm_look_t *l, const tdm_workload_row_t *row);
double tdm_look_step_ns(const tdm_look_t *l, const tdm_workload_row_t *row);

/* tdm_look_run simulates appliance k with its share, and adds it up. */
TDM_MUST_USE tdm_status_t tdm_look_run(tdm_look_t *l, uint32_t k,
                                       void (*seen)(void *ctx, const tdm_sim_request_t *r),
                                       tdm_error_t *err);

/* tdm_look_served notes a request whose first token came; e2e_ns < 0: the
   window ended before it did. */
void tdm_look_served(tdm_look_t *l, double ttft_ns, double e2e_ns, uint32_t gap_cnt,
                     uint32_t over_cnt);

/* tdm_look_pools runs the workload at its rate through both pools. */
TDM_MUST_USE tdm_status_t tdm_look_pools(tdm_look_t *l, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_LOOK_H */
