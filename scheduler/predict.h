/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PREDICT_H
#define TDM_SCHEDULER_PREDICT_H

/* tdm_predict says how long an iteration would take: the profile's row
   times a tracked correction.  The profile is what was measured once, the
   correction is what the machine does today (a power cap, a neighbour).
   Each route has its own, as a guessed profile errs differently where
   bandwidth and where arithmetic bounds; a route not seen yet uses what
   all routes together suggest.  A table and a quantile may replace both
   behind these calls.

   Bounds: a correction stays in [1/1024, 1024]; a prediction stays in
   [0, 2^61] ns. */

#include "appliance/abi/profile.h"

TDM_BEGIN_DECLS

/* tdm_load_t is what an iteration would do. */
typedef struct tdm_load {
    uint32_t prefill_cnt; /* tokens of all slices */
    uint32_t decode_cnt;
    uint64_t pair_cnt; /* (query, key) pairs of the slices */
    uint64_t kv_cnt;   /* KV tokens read by the decodes */
} tdm_load_t;

typedef struct tdm_predict {
    double correction; /* actual over profile time, all routes, exponentially tracked */
    double route_correction[TDM_ROUTE_CNT];
    uint64_t seen_cnt;
    uint64_t route_seen_cnt[TDM_ROUTE_CNT];
} tdm_predict_t;

/* tdm_predict_pairs gives the pairs of a slice: cnt queries after pos
   keys, causal. */
static inline uint64_t tdm_predict_pairs(uint32_t pos, uint32_t cnt) {
    uint64_t c = cnt;
    return c * pos + c * (c + 1) / 2;
}

void tdm_predict_init(tdm_predict_t *p);

/* tdm_predict_route names the route of a load: idle, prefill_only,
   decode_only, or `both`. */
tdm_route_t tdm_predict_route(const tdm_load_t *load, tdm_route_t both);

/* tdm_predict_profile_ns is the profile alone; tdm_predict_ns includes
   the correction. */
int64_t tdm_predict_profile_ns(const tdm_profile_t *profile, tdm_route_t both,
                               const tdm_load_t *load);
int64_t tdm_predict_ns(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                       const tdm_load_t *load);

/* tdm_predict_fit gives the most tokens, at most cnt_max, that a slice
   starting at pos may add to load within limit_ns; 0 where none. */
uint32_t tdm_predict_fit(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                         const tdm_load_t *load, uint32_t pos, uint32_t cnt_max, int64_t limit_ns);

/* tdm_predict_learn compares a finished iteration, planned for route, with
   its profile time; either being <= 0 is ignored. */
void tdm_predict_learn(tdm_predict_t *p, tdm_route_t route, int64_t profile_ns, int64_t actual_ns);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_PREDICT_H */
