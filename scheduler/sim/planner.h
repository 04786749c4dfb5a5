/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_PLANNER_H
#define TDM_SCHEDULER_SIM_PLANNER_H

/* tdm_planner answers an operator's question before he buys: how much of
   this workload does so much of this machine carry with these promises
   kept?  It runs the simulator, so its answer is as good as the profile:
   no kernel's best case is multiplied by anything.

   For each route (fused where the profile says so, streams, serial) and
   for 1..N appliances it finds the highest rate that keeps the promise,
   then looks at loads around it; or, asked for rates, at those alone.
   Several appliances stand behind a
   balancer that gives each request to the one with the least predicted
   work left.  n of N appliances get the first n/N of the rows, so that
   every run is as long: a short one hides behind its first-token target
   what it could not carry for an hour.

   Host code: allocates. */

#include "scheduler/sim/sim.h"

TDM_BEGIN_DECLS

#define TDM_PLANNER_APPLIANCE_MAX 64u
#define TDM_PLANNER_LOADS         7u
#define TDM_PLANNER_ROUTES        3u /* FUSED + i */

typedef struct tdm_planner_ask {
    const tdm_workload_t *workload; /* lengths, and the pattern of arrivals */
    const tdm_profile_table_t *table;
    const char *profile_name;
    uint32_t is_model; /* the profile is a model, and the report says so */
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    double noise;   /* sigma of an iteration's time */
    double cv;      /* of gaps between arrivals that are drawn; 0: 1, Poisson */
    double epsilon; /* share of gaps that may be over */
    int64_t gap_ns;
    int64_t ttft_ns; /* at p99 */
    uint32_t appliance_max;
    uint32_t rate_cnt; /* > 0: look at these rates alone, and find no best one */
    double rate[TDM_PLANNER_LOADS];
    uint64_t seed;
} tdm_planner_ask_t;

/* One load of one curve. */
typedef struct tdm_planner_point {
    double rate;       /* requests a second, all appliances together */
    double attainment; /* share of requests with TTFT met and gaps inside */
    double over_share;
    double gap_ns[3];  /* p50, p99, p99.9 */
    double ttft_ns[3]; /* p50, p99, p99.9 */
    double e2e_ns[3];
    double fused_share;
    double attention_share;
    uint64_t fallback[TDM_REASON_CNT];
} tdm_planner_point_t;

typedef struct tdm_planner_curve {
    uint32_t route; /* tdm_route_t */
    uint32_t appliances;
    double best; /* the highest rate that keeps the promise; 0: none does, or nobody asked */
    uint32_t point_cnt;
    tdm_planner_point_t point[TDM_PLANNER_LOADS];
} tdm_planner_curve_t;

/* tdm_planner_run fills appliance_max * TDM_PLANNER_ROUTES curves, by
   appliances, then route. */
TDM_MUST_USE tdm_status_t tdm_planner_run(const tdm_planner_ask_t *ask, tdm_planner_curve_t *curve,
                                          tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_PLANNER_H */
