/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_SIM_H
#define TDM_SCHEDULER_SIM_SIM_H

/* tdm_sim runs the production scheduler through a workload on a machine
   that tdm_cost describes, in virtual time: open loop, two plans in
   flight, every token's gap kept.  The same arguments give the same
   answer.

   An oracle run knows what the next iteration's noise, spike and slow-down
   will be and that the hidden bias is its mean; a limit that it cannot
   keep, nobody can.

   Host code: allocates. */

#include "appliance/workload/workload.h"
#include "scheduler/sim/cost.h"
#include "scheduler/step.h"

TDM_BEGIN_DECLS

#define TDM_SIM_BIN_CNT 40000u   /* of gaps */
#define TDM_SIM_BIN_NS  100000.0 /* each */

/* How one request went; times since the workload began. */
typedef struct tdm_sim_request {
    uint32_t row;
    tdm_reason_t refused; /* TDM_REASON_NONE: it was served */
    uint32_t is_cut;      /* 1: the run ended before it did; token_cnt tokens had come */
    uint32_t token_cnt;
    int64_t arrival_ns;
    int64_t first_ns; /* first and last token, where token_cnt > 0 */
    int64_t last_ns;
    uint32_t gap_cnt;
    uint32_t over_cnt; /* gaps over the target */
} tdm_sim_request_t;

typedef struct tdm_sim_ask {
    const tdm_workload_t *workload;
    const tdm_cost_t *cost;
    const tdm_profile_table_t *table; /* NULL: the rows of live */
    tdm_sched_sizes_t sizes;          /* request_max and api_cnt are set by the run */
    tdm_sched_live_t live;
    uint64_t seed;
    int is_oracle;
    int64_t cut_ns, cut_for_ns; /* the network is lost for so long: who asks meanwhile arrives, all
                                   at once, when it is back */
    int64_t from_ns;            /* gaps that end before do not count */
    int64_t until_ns;           /* the run is cut then; 0: it ends with its last token */
    int64_t gap_ns;             /* the target that is judged */
    int64_t ttft_ns;            /* and this one */
    void (*seen)(void *ctx, const tdm_sim_request_t *request); /* at its end; NULL: nobody asks */
    void *ctx;
} tdm_sim_ask_t;

typedef struct tdm_sim_result {
    uint64_t gap_cnt;
    double over_share; /* of gaps over the target */
    double stall200_share;
    double stall500_share;
    double gap_p50_ns, gap_p99_ns, gap_p999_ns;
    double ttft_p50_ns, ttft_p99_ns;
    double e2e_p50_ns, e2e_p99_ns;
    double goodput;      /* requests a second with TTFT met and 99 % of gaps inside */
    double chunk_bound;  /* mean prefill tokens where the time limit cut */
    double chunk_mean;   /* of all iterations with both kinds */
    double fused_share;  /* of iterations with both kinds */
    double busy_ns;      /* of a quiet machine, by the cost model */
    double attention_ns; /* of it; and what it would be with both kinds one after the other */
    double serial_attention_ns;
    double span_s; /* first arrival to last token */
    double gap_sum_ns;
    double waiting[2]; /* arrived and without a token: mean of the first and the last quarter
                          between from_ns and until_ns */
    uint64_t finished, refused, bound_cnt, iteration_cnt;
    uint64_t both_cnt, fused_cnt; /* iterations with both kinds, and those of them that fused */
    uint64_t fallback[TDM_REASON_CNT];
    double ran_ns[TDM_REASON_CNT];  /* of busy_ns: iterations that did not fuse, by why */
    double lost_ns[TDM_REASON_CNT]; /* of ran_ns: what fused would have saved */
    double quantile, alpha;         /* at the end */
    uint64_t bin[TDM_SIM_BIN_CNT + 1u];
} tdm_sim_result_t;

/* tdm_sim_run fills result.  A broken invariant of the scheduler ends the
   process; TDM_ERR_INTERNAL where nothing moves any more. */
TDM_MUST_USE tdm_status_t tdm_sim_run(const tdm_sim_ask_t *ask, tdm_sim_result_t *result,
                                      tdm_error_t *err);

/* tdm_sim_gap_ns gives the gap that a share of all gaps do not exceed. */
double tdm_sim_gap_ns(const tdm_sim_result_t *result, double share);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_SIM_H */
