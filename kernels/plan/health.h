/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_HEALTH_H
#define TDM_KERNELS_PLAN_HEALTH_H

/* What a running system has learnt about its kernels, and what follows.

     event                  reason             the variant is then
     self-test failed       self_test_failed   not run at all, for ever
     wrong or non-finite    quarantined        not run at all, for ever
     launch refused         kernel_error       not run at all, for a pause
     slower than its limit  watchdog           run, but not fused, for a pause

   "For ever" is the life of this state: a new executor begins with a new
   self-test.  A pause is TDM_POD_PAUSE_IT iterations, twice as many each
   time, at most TDM_POD_PAUSE_MAX_IT; then the variant gets one more try.
   A fault that kills the device context is no event: the executor dies of
   it.

   The state is plain data in the planner's config; who launches tells it
   (tdm_pod_self_test, an engine), from the one thread that also builds
   plans.  No clock: iterations are the time. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

#define TDM_POD_PAUSE_IT     1024u
#define TDM_POD_PAUSE_MAX_IT (1u << 20)

typedef enum tdm_pod_event {
    TDM_POD_EVENT_SELF_TEST_OK, /* lifts self_test_failed */
    TDM_POD_EVENT_SELF_TEST_FAILED,
    TDM_POD_EVENT_WRONG_RESULT,
    TDM_POD_EVENT_KERNEL_ERROR,
    TDM_POD_EVENT_TOO_SLOW,
    TDM_POD_EVENT_CNT
} tdm_pod_event_t;

/* tdm_pod_health_tell notes an event of a variant in iteration it.  Of
   several reasons the first in the order of reasons.def stays. */
void tdm_pod_health_tell(tdm_pod_state_t *state, uint32_t variant, uint32_t event, uint64_t it);

/* tdm_pod_health_judge tells what one iteration's launches of a plan say of
   its variant, and returns the event, TDM_POD_EVENT_CNT where all is well:
   error, of a launch (0: none, then the rest counts); is_exact, what
   tdm_pod_stats_add returned; ns, the time of a launch, over limit_ns (0: no
   limit) only of fused ones, for nothing else can take their place. */
uint32_t tdm_pod_health_judge(tdm_pod_state_t *state, const tdm_pod_plan_t *plan, int error,
                              int is_exact, uint64_t ns, uint64_t limit_ns, uint64_t it);

/* tdm_pod_health_tick ends the pauses that are over at iteration it; once
   for each iteration, before its build. */
void tdm_pod_health_tick(tdm_pod_state_t *state, uint64_t it);

/* tdm_pod_health_bar: why the variant may not run at all, or
   TDM_REASON_NONE. */
uint32_t tdm_pod_health_bar(const tdm_pod_state_t *state, uint32_t variant);

/* tdm_pod_health_slow: TDM_FALLBACK_watchdog where the variant may run but
   not fused, or TDM_REASON_NONE. */
uint32_t tdm_pod_health_slow(const tdm_pod_state_t *state, uint32_t variant);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_HEALTH_H */
