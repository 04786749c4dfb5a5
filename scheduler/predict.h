/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PREDICT_H
#define TDM_SCHEDULER_PREDICT_H

/* tdm_predict says how long an iteration would take: the profile's table
   or row times a tracked correction.  The profile is what was measured
   once, the correction is what the machine does today (a power cap, a
   neighbour).  Each route has its own, as a guessed profile errs
   differently where bandwidth and where arithmetic bounds; a route not
   seen yet uses what all routes together suggest.  A measured profile errs
   alike for all variants of a hybrid, so these share one: a variant that
   was not run lately is not thought fast because it was last seen on a
   better day.  Where in the table a hybrid falls matters too: cells an
   octave of pairs by an octave of KV wide have a factor of their own in
   [0.8, 1.25], trusted as far as it was seen.

   The first WARM iterations of a route find the scale of a guessed profile:
   their median, for the first of a machine that wakes is late by ten times
   and a mean would believe it for a hundred iterations.

   The prediction is a mean; what a promise about a quantile makes of it is
   scheduler/cap.h.

   Outside what was measured a table is extrapolated, and OUTSIDE more is
   predicted.

   Bounds: a correction stays in [1/1024, 1024]; a prediction stays in
   [0, 2^61] ns. */

#include "scheduler/table.h"

TDM_BEGIN_DECLS

#define TDM_PREDICT_OUTSIDE 1.3 /* factor on what the table does not cover */

#define TDM_PREDICT_CELLS 16u

#define TDM_PREDICT_WARM 8u

/* Actual over profile time, exponentially tracked. */
typedef struct tdm_track {
    double correction;
    uint64_t seen_cnt;
    float first[TDM_PREDICT_WARM]; /* the first ones, ascending */
} tdm_track_t;

typedef struct tdm_predict {
    tdm_track_t all; /* routes together */
    tdm_track_t route[TDM_ROUTE_CNT];
    float cell[TDM_PREDICT_CELLS][TDM_PREDICT_CELLS]; /* hybrids: factor on top, by pairs and KV */
    uint32_t cell_cnt[TDM_PREDICT_CELLS][TDM_PREDICT_CELLS];
} tdm_predict_t;

/* tdm_predict_pairs gives the pairs of a slice: cnt queries after pos
   keys, causal. */
static inline uint64_t tdm_predict_pairs(uint32_t pos, uint32_t cnt) {
    uint64_t c = cnt;
    return c * pos + c * (c + 1) / 2;
}

/* tdm_predict_init believes the profile as it is: corrections of 1. */
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

/* tdm_predict_choose gives the fastest route for hybrids of this load;
   fused unless another saves 3 %. */
tdm_route_t tdm_predict_choose(const tdm_profile_t *profile, const tdm_load_t *load);

/* tdm_predict_is_outside: the profile has a table and load lies outside
   what was measured for the route. */
int tdm_predict_is_outside(const tdm_profile_t *profile, tdm_route_t route, const tdm_load_t *load);

/* tdm_predict_learn compares a finished iteration that ran as route with
   its profile time; either being <= 0 is ignored. */
void tdm_predict_learn(tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t route,
                       const tdm_load_t *load, int64_t profile_ns, int64_t actual_ns);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_PREDICT_H */
