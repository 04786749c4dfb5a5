/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_STEP_H
#define TDM_SCHEDULER_STEP_H

/* tdm_sched is the scheduler: it admits requests, owns KV pages and
   sequences, and writes the plan of each iteration.  It is pure: no I/O,
   no clock, no randomness, no allocation after init.  The same calls in
   the same order give the same events and plans, in the appliance as in
   the simulator.

       api tiles                                          executor
     submit, control --->  +-----------------------+
                           |  WAITING              |
     event_pop      <---   |     v  slot + pages   |  ---> plan
       ACCEPTED/REFUSED    |  PREFILL <--+ restart |
       TOKEN... END        |     v       |         |  <--- result
                           |  DECODE ----+         |  <--- executor_up/down
                           +-----------------------+
                              watch: kill_executor

   One caller, the sched tile: it feeds what came in, asks for a plan
   whenever the executor can take one, pops events and records, and calls
   watch once per poll.  now_ns never goes back between calls (where it
   does, the former value is used).

   Promises
     - every submit is answered ACCEPTED or REFUSED by that very call;
     - after ACCEPTED: TOKENs in order from index 0, then exactly one END;
     - every running decode is in every plan, but where decodes alone would
       pass the tightest gap promised: then those with a longer promise sit
       turns out in rotation, inside it;
     - a page is never in two page tables, and is not given again before
       the last iteration that may read it is over;
     - pages for prompt and output_max are promised when a sequence gets
       its slot (scheduler/kv.h), so a running sequence never stalls for
       memory.  It gives its place up only to a more urgent class that would
       be late otherwise, at most evict_max times, and goes on where it was;
     - an executor may die at any moment: streams go on from what was
       sent, with the same tokens.

   Depth 2: plan k+1 is made while k runs.  A decode whose last token is
   not known yet goes on, since the executor holds it; where that token
   then ends the sequence, the one computed past it is discarded and
   counted.

   Ownership: the caller's memory, until the caller forgets it.  A request
   and its prompt ids are read in place from submit until REFUSED or END
   is popped.  Plans and results are the caller's; neither is kept. */

#include "appliance/abi/event.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/reasons.h"
#include "appliance/abi/request.h"
#include "appliance/abi/result.h"
#include "scheduler/config.h"
#include "scheduler/record.h"

TDM_BEGIN_DECLS

typedef struct tdm_sched tdm_sched_t;

/* tdm_sched_footprint gives the bytes init needs, 0 where a size is
   outside its range.  Alignment: TDM_CACHE_LINE. */
size_t tdm_sched_footprint(const tdm_sched_sizes_t *sizes);

/* tdm_sched_init formats mem as a scheduler with nothing accepted and no
   executor.  Both configs are copied. */
TDM_MUST_USE tdm_status_t tdm_sched_init(void *mem, const tdm_sched_sizes_t *sizes,
                                         const tdm_sched_live_t *live, tdm_sched_t **out,
                                         tdm_error_t *err);

/* --- inputs ---------------------------------------------------------- */

/* tdm_sched_submit takes one element of the request ring and answers it
   through the event outbox of its api tile.  Allowed at any time, also
   while an iteration runs.  A generation that does not match, or a slot
   that is already ours, is counted as stale_handle and not answered. */
void tdm_sched_submit(tdm_sched_t *s, int64_t now_ns, const tdm_submit_t *submit);

/* tdm_sched_control ends a sequence: CANCEL as cancelled, STOP_HIT as
   stop.  Whoever has already ended is stale and counted. */
void tdm_sched_control(tdm_sched_t *s, int64_t now_ns, const tdm_control_t *control);

/* tdm_sched_result takes what one plan did.  A result of another epoch is
   counted (executor_stale) and dropped.  One that contradicts its plan
   changes nothing, is counted (executor_protocol), and makes watch ask
   for the executor's end. */
void tdm_sched_result(tdm_sched_t *s, int64_t now_ns, const tdm_result_t *result);

/* tdm_sched_executor_up starts an executor life with empty slot tables.
   epoch differs from every earlier one. */
void tdm_sched_executor_up(tdm_sched_t *s, int64_t now_ns, uint32_t epoch);

/* tdm_sched_executor_down ends it: plans in flight are lost, fences of
   the epoch fall, live sequences go back to PREFILL, those that saw
   death_max deaths end executor_failed.  Repeating it does nothing. */
void tdm_sched_executor_down(tdm_sched_t *s, int64_t now_ns);

/* tdm_sched_executor_fault tells of a fault that the caller found (a slot
   number that is none): counted, and watch asks for the executor's end. */
void tdm_sched_executor_fault(tdm_sched_t *s, int64_t now_ns, tdm_reason_t reason);

/* tdm_sched_clock_ratio tells the device's clock over the clock at which
   its profile was measured, in [0.1, 10]: a power cap is expected, a slow
   kernel is not.  1 until it is called; each result whose kernels counted a
   clock calls it, where the profile knows its own. */
void tdm_sched_clock_ratio(tdm_sched_t *s, double ratio);

/* tdm_sched_throttled tells whether the device holds its clock down for
   power or heat: prefill that the time limit ends meanwhile is ended by
   TDM_CAP_power.  0 until it is called. */
void tdm_sched_throttled(tdm_sched_t *s, int is_throttled);

/* tdm_sched_live_set replaces the live configuration (already checked by
   tdm_sched_live_check) from the next call on. */
void tdm_sched_live_set(tdm_sched_t *s, const tdm_sched_live_t *live);

/* tdm_sched_drain_set refuses (1) or accepts (0) further submits. */
void tdm_sched_drain_set(tdm_sched_t *s, int is_draining);

/* --- outputs --------------------------------------------------------- */

/* tdm_sched_plan writes the next iteration into plan and returns 1, or
   returns 0 and leaves plan undefined: no executor, depth plans already
   in flight, nothing to do, or an api tile that does not read. */
int tdm_sched_plan(tdm_sched_t *s, int64_t now_ns, tdm_plan_t *plan);

/* tdm_sched_watch is called once per poll.  It returns
   a TDM_FAULT_* (executor_hang, executor_protocol, ...) once in the
   executor's life when it must be killed, else TDM_REASON_NONE; and ends
   every sequence once the executor was away for down_max_ns. */
tdm_reason_t tdm_sched_watch(tdm_sched_t *s, int64_t now_ns);

/* tdm_sched_watch_ns: the time at which watch may next have a verdict,
   TDM_TIME_NEVER where only an input can change anything. */
int64_t tdm_sched_watch_ns(const tdm_sched_t *s);

/* tdm_sched_event_peek shows the oldest event for api tile `api`, NULL
   where there is none; tdm_sched_event_drop removes it.  An event stays
   until its lane takes it. */
const tdm_event_t *tdm_sched_event_peek(const tdm_sched_t *s, uint32_t api);
void tdm_sched_event_drop(tdm_sched_t *s, uint32_t api);

/* tdm_sched_record_pop copies the oldest unread record and returns 1, or
   0.  The last 16 are kept; older ones are overwritten. */
int tdm_sched_record_pop(tdm_sched_t *s, tdm_sched_record_t *record);

/* tdm_sched_oldest tells for each class when the request that waits longest
   was accepted, TDM_TIME_NEVER where none waits. */
void tdm_sched_oldest(const tdm_sched_t *s, int64_t accepted_ns[TDM_SLO_CLASS_MAX]);

/* tdm_sched_stats brings the gauges up to date and shows all counters;
   the pointer is valid until the next call. */
const tdm_sched_stats_t *tdm_sched_stats(tdm_sched_t *s);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_STEP_H */
