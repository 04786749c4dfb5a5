/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_CHECK_H
#define TDM_SCHEDULER_CHECK_H

/* The invariants of the scheduler: pages are conserved and have one owner,
   each sequence is in one queue and one state, the counters of record.h add
   up.  Tests walk them in full after every step; a serving tile, whose
   tokens would wait for that, some at a time, and in full where an executor
   life ends or begins. */

#include "scheduler/kv.h"
#include "scheduler/step.h"

TDM_BEGIN_DECLS

/* tdm_sched_check returns NULL, or a sentence naming the first invariant
   that does not hold.  O(pages + sequences + waiting); changes nothing. */
const char *tdm_sched_check(const tdm_sched_t *s);

/* Where the next look goes on. */
typedef struct tdm_sched_cursor {
    tdm_kv_cursor_t kv;
    uint32_t seq;
} tdm_sched_cursor_t;

/* tdm_sched_check_some is the same of all that is counted, and of cnt pages,
   table entries and sequences from at on, which it moves.  What it holds of
   each needs only its neighbours, so a round of calls finds what is wrong
   while everything else changes.  O(cnt + slots). */
const char *tdm_sched_check_some(const tdm_sched_t *s, tdm_sched_cursor_t *at, uint32_t cnt);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_CHECK_H */
