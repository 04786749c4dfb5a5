/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_RECORD_H
#define TDM_SCHEDULER_RECORD_H

/* What the scheduler tells about itself.  Plain data, written by the
   core, copied by the tile into telemetry: the core knows no metric.

   Identities that hold between any two calls (scheduler/check.h):
     received = accepted + sum(refused)
     accepted = waiting + running + sum(ended)
     page_cnt = page_free + page_held + page_fenced + page_cached */

#include "appliance/abi/event.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/reasons.h"

/* tdm_sched_record_t is one iteration: what was planned and why so much,
   and how it came out. */
typedef struct tdm_sched_record {
    uint64_t iteration;
    uint32_t epoch;
    uint32_t live_revision;
    uint16_t route;       /* tdm_route_t planned */
    uint16_t ran;         /* tdm_route_t that ran */
    uint16_t cap;         /* TDM_CAP_*: what ended the prefill of this plan */
    uint16_t fallback;    /* TDM_FALLBACK_* or 0 */
    int64_t planned_ns;   /* when the plan was made */
    int64_t limit_ns;     /* its time limit */
    int64_t predicted_ns; /* what the profile and its correction said */
    int64_t profile_ns;   /* what the profile alone said */
    int64_t actual_ns;    /* end - start of the result; 0 where it died */
    int64_t end_ns;       /* of the result, 0 where it died */
    uint32_t decode_cnt;
    uint32_t slice_cnt;
    uint32_t prefill_cnt; /* tokens */
    uint32_t open_cnt;
    uint64_t pair_cnt; /* (query, key) pairs of the slices */
    uint64_t kv_cnt;   /* KV tokens the decodes read */
    uint32_t waiting_cnt;
    uint32_t running_cnt;
    uint32_t page_free_cnt;
    int64_t idle_ns;      /* of the device before it, which had this plan by then; -1: it had not,
                             or nothing ran before */
    uint32_t discard_cnt; /* samples whose sequence had ended meanwhile */
    uint32_t is_forced;   /* 1: prefill went over the limit to make progress */
    uint32_t is_thrifty;  /* 1: what fitted was not worth its time, cap says time_limit */
    uint32_t is_lost;     /* 1: the executor ended first */
    uint32_t over_cnt;    /* decodes whose gap was over their class's */
    uint32_t is_outside;  /* 1: the profile's table was extrapolated */
    double quantile;      /* actual over predicted that the plan allowed for */
    uint32_t start_cnt;   /* sequences that left WAITING for this plan */
    uint32_t limit_class; /* whose gap set limit_ns; TDM_SLO_CLASS_MAX: nothing decodes */
    uint16_t start_class[TDM_PLAN_SLICE_MAX];  /* of each, its class of service */
    int64_t start_wait_ns[TDM_PLAN_SLICE_MAX]; /* and its time in WAITING */
} tdm_sched_record_t;

/* tdm_sched_stats_t counts since init; the gauges are of this moment. */
typedef struct tdm_sched_stats {
    uint64_t received;
    uint64_t accepted;
    uint64_t ended[TDM_FINISH_CNT];
    uint64_t reason[TDM_REASON_CNT];   /* refusals, error endings, caps, fallbacks, faults, stale */
    uint64_t refused;                  /* the part of reason[] that answered REFUSED */
    uint64_t iteration_cnt;            /* results taken */
    uint64_t route_cnt[TDM_ROUTE_CNT]; /* of them, by tdm_route_t that ran */
    uint64_t lost_cnt;                 /* plans whose executor ended first */
    uint64_t prefill_tokens;           /* planned, rebuilt ones included */
    uint64_t rebuilt_tokens;           /* of them, prefilled again after a restart */
    uint64_t output_tokens;            /* sent as TOKEN */
    uint64_t discard_tokens;           /* sampled past an end, never sent */
    uint64_t discard_of[TDM_FINISH_CNT]; /* the same by how the sequence had ended */
    uint64_t forced_cnt;                 /* iterations over their limit to make progress */
    uint64_t thrift_cnt;                 /* iterations that left prefill which was not worth its
                                            time, though it fitted */
    uint64_t outbox_stall_cnt;           /* plans not made: an api tile does not read its events */
    uint64_t restart_cnt;                /* executor lives that ended */
    uint64_t gap_cnt;                    /* gaps between tokens */
    uint64_t gap_over_cnt;               /* of them, over their class's */
    uint64_t outside_cnt;                /* iterations outside the measured table */
    uint64_t drift_cnt;                  /* alarms raised */
    uint64_t evict_cnt;                  /* places given up to a more urgent class */
    uint64_t skip_cnt;                   /* decodes left out of an iteration, by a longer promise */
    uint64_t cache_lookup_cnt;           /* prompts that looked for cached pages */
    uint64_t cache_hit_cnt;              /* of them, with at least one found */
    uint64_t cache_saved_tokens;         /* prompt tokens that were not computed again */
    uint64_t held_tokens;                /* prompt tokens whose KV came with their request */
    uint64_t cache_evict_cnt;            /* idle pages given to something else */
    uint64_t cache_flush_cnt;            /* cached pages forgotten: contents lost or doubtful */

    uint32_t waiting_cnt;
    uint32_t running_cnt; /* sequences with a slot */
    uint32_t decode_cnt;  /* of them, past their prompt */
    uint32_t flight_cnt;  /* plans at the executor */
    uint64_t waiting_tokens;
    uint64_t backlog_tokens; /* prompt tokens not yet planned, waiting and running */
    uint32_t page_cnt;
    uint32_t page_free;
    uint32_t page_held;     /* one live sequence's own */
    uint32_t page_fenced;   /* of ended sequences, still readable by an iteration */
    uint32_t page_cached;   /* kept for whoever continues the same text */
    uint32_t page_idle;     /* of page_cached, in no table: as good as free */
    uint32_t page_promised; /* of page_free and page_idle, set aside for running sequences */
    uint32_t epoch;
    uint32_t is_up;       /* an executor is there */
    uint32_t is_draining; /* nothing more is accepted */
    uint32_t waiting_of[TDM_SLO_CLASS_MAX];
    uint32_t running_of[TDM_SLO_CLASS_MAX];
    double correction;     /* actual over profile time, all routes, tracked */
    double cap_quantile;   /* actual over predicted time that the cap allows for */
    double cap_alpha;      /* share of iterations that it lets exceed that */
    uint32_t is_drifting;  /* the machine left its profile */
    int64_t last_token_ns; /* when the last TOKEN was sent; 0: never */
} tdm_sched_stats_t;

#endif /* TDM_SCHEDULER_RECORD_H */
