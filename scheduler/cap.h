/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_CAP_H
#define TDM_SCHEDULER_CAP_H

/* tdm_cap turns the promise "at most epsilon of all token gaps are over
   L" into a time budget for one prediction.

     L - g  >=  q * predicted          g  p99 of the host time between two
     |                                    iterations, tracked
     the promise                       q  (1 - alpha) quantile of actual
                                          over predicted, tracked

   Inner loop.  With r = actual / predicted of an iteration that carried
   prefill, ln q moves up by ETA (1 - a) where r > q and down by ETA a
   where not, a = alpha, both weighted by the decodes that felt it: at rest
   r exceeds q in a share alpha of cases, whatever the distribution.  An
   excess that follows another moves it twice as far, so a lone spike is
   cheap and a slow-down is felt within a few iterations.

   Outer loop (adaptive conformal inference, Gibbs and Candes, 2021).
   Promises are counted in tokens, and iterations without prefill count
   too: alpha rises while fewer than AIM * epsilon of the tokens are over,
   and falls while more are, so the share over the limit goes to AIM *
   epsilon without an assumption about the noise.  AIM < 1 keeps a finite
   run inside.

   Hysteresis.  Less is taken at once.  After a broken gap iterations may
   have the tokens of the one that broke it and one grid step, at least 16,
   more each time, for CLIMB iterations.

   Drift.  A one-sided CUSUM each way on ln(actual / profile): a machine
   that stays above 1.5 or below 0.8 of its measured profile raises the
   alarm.  One iteration moves the sum by at most 1 of the 8 that raise it,
   however late it was: a host that lost its core for a moment is no drift.
   Nor is a power cap: times are first scaled by the clock that the device
   reports.

   Pure state, no time of its own. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_CAP_AIM       0.7  /* share of epsilon that the outer loop aims at */
#define TDM_CAP_DRIFT_TOK 512u /* tokens of an iteration while the alarm holds */

typedef struct tdm_cap {
    double quantile;   /* q, in [1, 4] */
    double alpha;      /* in [0.002, 0.1] */
    double host_ns;    /* g */
    double decode_avg; /* decodes of an iteration that has any */
    double drift_up;   /* CUSUM, in [0, 16] */
    double drift_down;
    uint32_t is_drifting;
    uint32_t climb_cnt; /* iterations for which growth is bounded */
    uint32_t climb_tok; /* and the bound */
    uint32_t streak;    /* excesses in a row, at most 3 */
} tdm_cap_t;

/* What one finished iteration showed. */
typedef struct tdm_cap_sample {
    double predicted_ns; /* tracked prediction of its plan */
    double profile_ns;   /* the profile's alone, by the device's clock; 0: not measured */
    double actual_ns;
    double host_ns; /* from the end of the one before to its start, < 0: not known */
    double epsilon; /* the least of the classes that decoded */
    uint32_t decode_cnt;
    uint32_t over_cnt;    /* decodes whose gap was over their class's */
    uint32_t prefill_cnt; /* tokens */
} tdm_cap_sample_t;

/* tdm_cap_init forgets all that was learnt. */
void tdm_cap_init(tdm_cap_t *cap);

/* tdm_cap_learn takes one iteration; predicted_ns or actual_ns <= 0 are
   ignored.  grid_tok: a grid step. */
void tdm_cap_learn(tdm_cap_t *cap, const tdm_cap_sample_t *sample, uint32_t grid_tok);

/* tdm_cap_budget_ns gives the prediction that a limit allows. */
int64_t tdm_cap_budget_ns(const tdm_cap_t *cap, int64_t limit_ns);

/* tdm_cap_token_max gives the tokens, decodes included, that the next
   iteration with decodes may have; UINT32_MAX: no bound. */
uint32_t tdm_cap_token_max(const tdm_cap_t *cap);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_CAP_H */
