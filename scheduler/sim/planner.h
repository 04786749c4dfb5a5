/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_PLANNER_H
#define TDM_SCHEDULER_SIM_PLANNER_H

/* tdm_planner answers an operator's question before he buys: how much of
   this workload does so much of this machine carry with these promises
   kept?  It runs the simulator, so its answer is as good as the profile:
   no kernel's best case is multiplied by anything.

   For 1..N appliances, and each policy and route (fused where the profile
   says so, streams, serial), it finds the highest rate that keeps the
   promise, then looks at loads around it; or, asked for rates, at those
   alone.  Several appliances stand behind a balancer that gives each
   request to the one with the least predicted work left.  n of N
   appliances get the first n/N of the rows, so that every run is as long:
   a short one hides behind its first-token target what it could not carry
   for an hour.

   Given links, it also splits n > 1 appliances, for each link into those that do prefill
   alone and those that do decode alone, and shows the best way to do so: the keys and values of a
   prompt travel when it is done, one prompt after the other on each prefill appliance's link, and
   the client hears its first token when they are there.  What no whole page of 64 tokens holds is
   computed again where they arrive.

   The most that fused attention can gain over serial is not what the
   kernel gains: with a share a of serial iteration time in attention, and
   attention s times as fast as it ran, it is 1 / (1 - a + a / s).  Each
   point says both.

   Host code: allocates. */

#include "scheduler/sim/sim.h"
#include "scheduler/sim/trust.h"

TDM_BEGIN_DECLS

#define TDM_PLANNER_APPLIANCE_MAX 64u
#define TDM_PLANNER_LOADS         7u  /* around the highest rate that is kept */
#define TDM_PLANNER_RATE_MAX      16u /* that may be asked for */
#define TDM_PLANNER_ROUTES        3u  /* FUSED + i */
#define TDM_PLANNER_POLICY_MAX    8u
#define TDM_PLANNER_LINK_MAX      8u
#define TDM_PLANNER_GAP_CNT       19u /* p5, p10, .. p95 */

/* A way to choose how much prefill an iteration takes. */
typedef struct tdm_planner_policy {
    char name[24];
    uint32_t policy;    /* tdm_policy_t of scheduler/config.h */
    double margin;      /* of TDM_POLICY_MARGIN */
    uint32_t token_max; /* of an iteration; 0: as live says */
    uint32_t is_fifo;   /* 1: prompts in order of arrival (live.patience 0) */
} tdm_planner_policy_t;

/* How keys and values travel: over each of so many links in turn. */
typedef struct tdm_planner_link {
    double token_bytes;                       /* keys and values of one token, all layers */
    double bytes_per_s[TDM_PLANNER_LINK_MAX]; /* of one prefill appliance, rising */
    uint32_t cnt;                             /* 0: there is no link, and there are no pools */
    int64_t latency_ns;
} tdm_planner_link_t;

typedef struct tdm_planner_ask {
    const tdm_workload_t *workload; /* lengths, and the pattern of arrivals */
    const tdm_profile_table_t *table;
    const char *profile_name;
    const char *trace_name;
    uint32_t is_model;        /* the profile is a model, and the report says so */
    const tdm_trust_t *trust; /* for the report; NULL: nobody told how far to trust it */
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    double noise;   /* sigma of an iteration's time */
    double stretch; /* the profile's SM clock over the one it runs at (cost.h); 0: the same */
    double cv;      /* of gaps between arrivals that are drawn; 0: 1, Poisson */
    double epsilon; /* share of gaps that may be over */
    int64_t gap_ns;
    int64_t ttft_ns;
    double ttft_share; /* of first tokens that come within it; 0: 0.99 */
    uint32_t appliance_max;
    uint32_t rate_cnt; /* > 0: look at these rates alone, and find no best one */
    double rate[TDM_PLANNER_RATE_MAX];
    uint32_t warm[TDM_PLANNER_RATE_MAX]; /* of a window: decodes that run when it begins */
    int64_t window_ns;   /* > 0: each rate is a window of a replay (tandemctl replay --cut), of one
                            appliance: its arrivals alone, from a warm start, cut at the end */
    uint32_t policy_cnt; /* 0: live's own alone */
    tdm_planner_policy_t policy[TDM_PLANNER_POLICY_MAX];
    tdm_planner_link_t link;
    uint64_t seed;
} tdm_planner_ask_t;

/* One load of one curve. */
typedef struct tdm_planner_point {
    double rate;       /* requests a second, all appliances together */
    uint32_t requests; /* that arrive */
    uint32_t is_kept;  /* the promise held; of a window: and its queue did not grow */
    double decodes;    /* that run at a time, on average: rate x a request's gaps */
    double waiting[2]; /* of a window: without a token, in its first and its last quarter */
    double attainment; /* share of requests with TTFT met and gaps inside */
    double over_share;
    double gap_ns[3]; /* p50, p99, p99.9 */
    double gap_at_ns[TDM_PLANNER_GAP_CNT];
    double ttft_ns[3]; /* p50, p99, p99.9 */
    double ttft_p90_ns;
    double e2e_ns[3];
    uint64_t iterations, hybrid;  /* and those of them with both kinds */
    double busy_ns, attention_ns; /* that they took, without noise, and attention of it */
    double fused_share;           /* of iterations with both kinds */
    double attention_share;       /* of the time that iterations took */
    double serial_share;          /* and of what they would take in series: a */
    double attention_speedup;     /* of attention as it ran over series: s */
    uint64_t fallback[TDM_REASON_CNT];
    double lost_share[TDM_REASON_CNT];  /* of busy time, that fusing would have saved there */
    double saved_share[TDM_REASON_CNT]; /* the same of the time of these iterations alone */
} tdm_planner_point_t;

typedef struct tdm_planner_curve {
    uint32_t route;       /* tdm_route_t */
    uint32_t policy;      /* index into ask.policy; 0 where policy_cnt is 0 */
    uint32_t appliances;  /* all together */
    uint32_t prefill_cnt; /* of them, for prefill alone; 0: every one does both */
    uint32_t link;        /* of pools: index into ask.link.bytes_per_s */
    double wire;          /* of pools: requests a second that their links can carry at most */
    double best;      /* the highest rate that keeps the promise; 0: none does, or nobody asked */
    uint32_t is_open; /* no rate that was tried missed it: so few requests say nothing */
    double hidden;    /* by what share best may be too high: its arrivals are over within a few
                         first-token targets, behind which a queue hides */
    uint32_t point_cnt;
    tdm_planner_point_t point[TDM_PLANNER_RATE_MAX];
} tdm_planner_curve_t;

/* tdm_planner_curve_cnt gives the curves of an ask. */
uint32_t tdm_planner_curve_cnt(const tdm_planner_ask_t *ask);

/* tdm_planner_run fills them, by appliances, then policy, then route, the
   pools last. */
TDM_MUST_USE tdm_status_t tdm_planner_run(const tdm_planner_ask_t *ask, tdm_planner_curve_t *curve,
                                          tdm_error_t *err);

/* tdm_planner_bound gives 1 / (1 - a + a / s) of a point. */
double tdm_planner_bound(const tdm_planner_point_t *point);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_PLANNER_H */
