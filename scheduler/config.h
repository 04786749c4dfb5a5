/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_CONFIG_H
#define TDM_SCHEDULER_CONFIG_H

/* What the scheduler is told: tdm_sched_sizes_t once, at init, since it
   fixes the memory; tdm_sched_live_t at init and again whenever the
   operator changes a live key.  A live change is an input of the step
   like any other, and its revision is stamped in every record, so that a
   run replays exactly. */

#include "appliance/abi/limits.h"
#include "appliance/abi/profile.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef struct tdm_sched_sizes {
    uint32_t seq_max;     /* sequences that hold a slot at once, [1, TDM_SEQ_MAX] */
    uint32_t waiting_max; /* accepted sequences without a slot, [1, 65536] */
    uint32_t page_cnt;    /* KV pages of the executor's pool, [1, 2^26] */
    uint32_t context_max; /* tokens of one sequence, [2, TDM_CONTEXT_MAX] */
    uint32_t vocab;       /* token ids are in [0, vocab), [1, TDM_VOCAB_MAX] */
    uint32_t api_cnt;     /* api tiles, [1, TDM_API_TILE_MAX] */
    uint32_t request_max; /* request slots of one api tile, [1, 65536] */
    uint32_t depth;       /* plans in flight, 1 or 2 */
    uint32_t has_cache;   /* 1: full pages serve later prompts of the same tenant */
    uint32_t reserved;
    uint64_t cache_key[2]; /* secret and random: keys the index of such pages */
} tdm_sched_sizes_t;

/* tdm_sched_class_t holds the promises of one class of service. */
typedef struct tdm_sched_class {
    int64_t ttft_ns;  /* first token due after arrival; > 0 */
    int64_t gap_ns;   /* between two tokens; the iteration limit while one decodes; > 0 */
    double epsilon;   /* share of its gaps that may be longer, (0, 1] */
    int64_t burst_ns; /* > 0: token n is due n * gap_ns after the first, for clients with a
                         buffer, and burst_ns bounds each single gap; gap_ns is 4 hours at
                         most then; 0: every gap counts */
    double weight;    /* a token of it counts 1 / weight against its tenant's share; > 0 */
} tdm_sched_class_t;

/* tdm_sched_tenant_t is what one tenant may have. */
typedef struct tdm_sched_tenant {
    double weight;      /* its share against others in the same class, > 0 */
    double token_per_s; /* prompt and output asked for, 0: no bound */
    double token_burst; /* and at once, >= 1 where there is a bound */
} tdm_sched_tenant_t;

/* How much prefill an iteration with decodes takes. */
typedef enum tdm_sched_policy {
    TDM_POLICY_QUANTILE = 1, /* within the time limit, by the tracked quantile (cap.h), what is
                                worth its time by a measured table (thrift.c) */
    TDM_POLICY_MARGIN,       /* up to the time limit, by margin times the profile, untracked */
    TDM_POLICY_STATIC,       /* token_max tokens, decodes included, whatever the time */
    TDM_POLICY_CNT
} tdm_sched_policy_t;

typedef struct tdm_sched_live {
    uint32_t revision; /* of the operator's configuration; stamped in records */
    uint32_t route;    /* FUSED, STREAMS or SERIAL: for iterations with both kinds; where a
                          measured table is there, FUSED leaves the choice to it */
    uint32_t policy;   /* tdm_sched_policy_t */
    double margin;     /* of TDM_POLICY_MARGIN, [0.1, 10] */

    uint32_t token_max; /* prefill tokens of one iteration, [1, TDM_PLAN_TOKEN_MAX] */
    uint32_t slice_max; /* prefill slices of one iteration, [1, TDM_PLAN_SLICE_MAX] */
    uint32_t floor_cnt; /* tokens of a slice that progress forces, [1, token_max] */
    uint32_t short_max; /* tokens; a prompt up to this is short */
    double patience;    /* times its own work that a prompt may be overtaken for (order.h), [0,
                           1000]; 0: prompts of a tenant and class go in order of arrival, and
                           short ones have no part of an iteration for themselves */
    uint32_t grid_tok;  /* an iteration cut by time has a multiple of it, decodes included;
                           1: the slice ends on a multiple of 16 instead; [1, 1024] */

    uint64_t waiting_tokens_max; /* prompt tokens of all waiting sequences */

    int64_t prefill_limit_ns; /* iteration limit while nothing decodes; > 0 */
    int64_t host_gap_ns;      /* taken off gap_ns: host time between two iterations */
    int64_t starve_ns;        /* prefill gets its floor after so long without a token */
    int64_t bypass_ns;        /* a head that is due (order.h) and waited so long for pages is no
                                 longer overtaken */

    int64_t watchdog_min_ns; /* an iteration may always take this long */
    double watchdog_factor;  /* and this multiple of its prediction */
    uint32_t death_max;      /* executor lives one sequence may end in, >= 1 */
    uint32_t decode_guard;   /* 1: refuse what would push decode alone over a gap_ns */
    uint32_t ttft_guard;     /* 1: refuse what would miss its class's first-token target too,
                                0: only what would miss its own deadline */
    uint32_t evict_max;      /* times one sequence may give its place up to a more urgent class,
                                0: never */
    int64_t death_window_ns; /* deaths further apart than this are forgiven */
    int64_t down_max_ns;     /* executor away so long: every sequence ends executor_failed */

    uint32_t retry_min_ms; /* bounds of the Retry-After hint */
    uint32_t retry_max_ms;

    tdm_sched_class_t class_of[TDM_SLO_CLASS_MAX];
    tdm_sched_tenant_t tenant[TDM_TENANT_MAX];
    tdm_profile_t profile;
} tdm_sched_live_t;

/* tdm_sched_live_default fills live with values that suit a CPU backend
   and a guessed profile: 4 classes with a 2 s, 5 s, 10 s and 60 s first
   token and 250 ms, 500 ms, 1 s and 2 s gaps. */
void tdm_sched_live_default(tdm_sched_live_t *live);

/* tdm_sched_sizes_check and tdm_sched_live_check say TDM_ERR_INVAL with
   the offending member where a value is outside the range above. */
TDM_MUST_USE tdm_status_t tdm_sched_sizes_check(const tdm_sched_sizes_t *sizes, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_sched_live_check(const tdm_sched_live_t *live, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_CONFIG_H */
