/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MEASURE_MEASURE_H
#define TDM_MEASURE_MEASURE_H

/* tdm_measure times an executor and fills a profile (appliance/profile).

     grid.h    which shapes: (c, h, b, S) on the table's axes, by stages
     rig.h     slots at the depths that a stage wants, plans that use them
     measure   rounds over the shapes of a stage, samples to points

   What a point says.  T is the median of whole iterations, as the executor
   clocks them.
     fixed      T of an iteration with nothing to compute
     lin[N]     T - fixed - attention, of N prefill tokens at depth 0
     att[...]   T - fixed - lin[c + b]: attention, and what a decode costs
                beyond a row of prefill (its logits); at least a tenth of
                what the executor itself timed as attention
   so the sum is right at every shape that was measured, whatever is
   counted where; where attention is next to nothing the remainder is
   noise and may be below zero, which the tenth bounds.  Depths grow while
   they are timed; a shape is timed around its entry and carried onto it by
   the guess's slope.
   Where slots open at any depth, prefill stays within 1/32 of its own.

   Rounds are interleaved: a disturbance hits one sample of many shapes,
   not all samples of one.  Stages come in the order of their worth, and
   each may take an equal part of the time that is left (but has at least
   two rounds); what was never
   reached stays outside the table's box, so that the scheduler knows that
   it extrapolates.

   A stage begins with few prefill sizes; where a straight line between two
   misses the one in the middle by more than a few per cent, the sizes on
   both sides of it are timed too.

   The check.  Shapes that no point is of are drawn at random, by the
   logarithm of each coordinate, over all that was measured: prefill tokens,
   depth, decodes, how deep these are, with every variant, and either kind
   alone.  Where a depth has to be computed they lie at the stages' depths.

   Host code: allocates; no clock of its own. */

#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"
#include "appliance/profile/table.h"

TDM_BEGIN_DECLS

#define TDM_MEASURE_ROUND_MAX 9u   /* samples of one shape */
#define TDM_MEASURE_POINT_MAX 800u /* of a set, those added between others too */

/* What the executor can hold; each as in kernels/include/backend.h. */
typedef struct tdm_measure_limits {
    uint32_t seq_max;
    uint32_t token_max;
    uint32_t context_max;
    uint32_t kv_page_cnt;
    uint32_t vocab;
    uint32_t is_filled; /* 1: KV that nobody computed reads like KV that somebody did, so a slot
                           opens at any depth; 0: the pool is memory of which pages were never
                           touched, and a depth has to be computed */
} tdm_measure_limits_t;

typedef struct tdm_measure_ask {
    tdm_measure_limits_t limits;
    const tdm_profile_t *guess; /* rows; the slope between neighbours */
    int64_t budget_ns;          /* of now's time; the first stage is done in any case */
    uint32_t stair_from;        /* as in tdm_profile_set_t */
    /* run does one iteration: plan and result are these, for every call. */
    tdm_status_t (*run)(void *ctx, tdm_plan_t *plan, tdm_result_t *result, tdm_error_t *err);
    tdm_plan_t *plan;
    tdm_result_t *result;
    int64_t (*now)(void *ctx); /* the clock that the budget is kept by, ns */
    /* progress, NULL: nobody looks.  share in [0, 1] of the budget. */
    void (*progress)(void *ctx, double share, const char *stage, uint32_t points);
    void *ctx;
} tdm_measure_ask_t;

/* tdm_measure_run measures into set, whose names the caller fills; its
   points are from malloc (tdm_profile_set_free).  set->check and set->way are of
   shapes that were timed beside the points.  The executor's slots are
   closed before and after.  Errors are run's own, or NOMEM. */
TDM_MUST_USE tdm_status_t tdm_measure_run(const tdm_measure_ask_t *ask, tdm_profile_set_t *set,
                                          tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_MEASURE_MEASURE_H */
