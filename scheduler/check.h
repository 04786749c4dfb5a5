/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_CHECK_H
#define TDM_SCHEDULER_CHECK_H

/* The invariants of the scheduler, walked in full: pages are conserved
   and have one owner, each sequence is in one queue and one state, the
   counters of record.h add up.  Tests call it after every step, the sched
   tile once a second. */

#include "scheduler/step.h"

TDM_BEGIN_DECLS

/* tdm_sched_check returns NULL, or a sentence naming the first invariant
   that does not hold.  O(pages + sequences + waiting); changes nothing. */
const char *tdm_sched_check(const tdm_sched_t *s);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_CHECK_H */
