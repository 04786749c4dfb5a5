/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_ORDER_H
#define TDM_SCHEDULER_ORDER_H

/* tdm_order keeps every sequence that still has known tokens to feed, one
   first-in first-out queue per (class, size of the prompt, tenant):

     head                                          tail
     [has a slot, by order]  [had one, by order]  [WAITING, by order ....]

   Sizes are short, and octaves above it.  Among the heads of one tenant and
   class the one goes first that is due first: at its acceptance and
   patience (config.h) times what its remaining tokens take.  So the least
   work goes first, which gives most first tokens early, and the place of a
   long prompt is bounded: only what is accepted within that time of it may
   overtake it, be it begun or not; with no patience none may.  Whoever had a
   place and lost it is due at its acceptance.

   Among the tenants of a class the one goes first that was served least
   (virtual token counters, Sheng et al., OSDI 2024): each planned token is
   charged to its tenant, an output token twice, over the tenant's weight.
   A tenant that comes back from idleness starts at the least counter of
   those at work: it has no claim to what it did not ask for.  Two heads
   come before that rule: one that has a slot already or had one before, as
   it keeps its place, and one whose deadline is lost, so a neighbour's
   small counter delays nobody for ever.

   Between classes the head with the least slack goes first: time to its
   deadline minus the time its remaining tokens take.  A deadline does not
   move, so whoever waits becomes urgent in time and none starves.

   Ownership: links lie in the sequences.  One caller. */

#include "scheduler/seq.h"

TDM_BEGIN_DECLS

#define TDM_SIZE_CNT     8u /* of prompts: short, six octaves, and longer ones */
#define TDM_GROUP_QUEUES (TDM_SIZE_CNT * TDM_SLO_CLASS_MAX)
#define TDM_QUEUE_CNT    (TDM_GROUP_QUEUES * TDM_TENANT_MAX)
#define TDM_QUEUE_NONE   UINT16_MAX
#define TDM_OUTPUT_COST  2u /* tokens charged for one of output */

typedef struct tdm_queue {
    uint32_t head;
    uint32_t tail;
    uint32_t cnt;
    uint32_t reserved;
    uint64_t tokens; /* known and not planned, of all in it */
} tdm_queue_t;

typedef struct tdm_order {
    uint16_t filled[TDM_GROUP_QUEUES];     /* bit per tenant whose queue is not empty */
    uint64_t tokens_of[TDM_SLO_CLASS_MAX]; /* known and not planned, by class */
    double served[TDM_TENANT_MAX];         /* tokens charged over weight */
    uint32_t present_cnt[TDM_TENANT_MAX];  /* live sequences of the tenant */
    tdm_queue_t queue[TDM_QUEUE_CNT];
} tdm_order_t;

/* tdm_order_size gives the size of a prompt, 0 for one of up to short_max
   tokens. */
static inline uint32_t tdm_order_size(uint32_t tokens, uint32_t short_max) {
    if (tokens <= short_max) return 0;
    uint32_t times = (tokens - 1u) / TDM_MAX(short_max, 1u);
    return TDM_MIN(32u - (uint32_t)__builtin_clz(times | 1u), TDM_SIZE_CNT - 1u);
}

/* tdm_queue_of gives the queue of a class, a size and a tenant. */
static inline uint32_t tdm_queue_of(uint32_t slo_class, uint32_t size, uint32_t tenant) {
    return (TDM_SIZE_CNT * slo_class + size) * TDM_TENANT_MAX + tenant;
}
static inline uint32_t tdm_queue_group(uint32_t queue) {
    return queue / TDM_TENANT_MAX;
}
static inline uint32_t tdm_queue_class(uint32_t queue) {
    return queue / (TDM_SIZE_CNT * TDM_TENANT_MAX);
}
static inline int tdm_queue_is_short(uint32_t queue) {
    return tdm_queue_group(queue) % TDM_SIZE_CNT == 0;
}

/* tdm_queue_next gives the first queue from `from` on that is not empty,
   TDM_QUEUE_CNT where there is none. */
uint32_t tdm_queue_next(const tdm_order_t *o, uint32_t from);

/* tdm_order_enter and tdm_order_exit count a tenant's live sequences. */
void tdm_order_enter(tdm_order_t *o, uint32_t tenant);
void tdm_order_exit(tdm_order_t *o, uint32_t tenant);

/* tdm_order_charge adds tokens served to a tenant of a weight > 0. */
void tdm_order_charge(tdm_order_t *o, uint32_t tenant, double tokens, double weight);

/* tdm_order_init empties all queues; no tenant has been served. */
void tdm_order_init(tdm_order_t *o);

/* tdm_order_append queues a WAITING sequence at the tail. */
void tdm_order_append(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue);

/* tdm_order_return queues a sequence that is WAITING again, by order
   among its like. */
void tdm_order_return(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue);

/* tdm_order_settle moves a sequence that has just got a slot to its place,
   by order, among those with one. */
void tdm_order_settle(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx);

/* tdm_order_remove takes a sequence out of its queue. */
void tdm_order_remove(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx);

/* tdm_order_advance moves a queued sequence's pos on by cnt tokens. */
void tdm_order_advance(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t cnt);

/* tdm_order_backlog sums the tokens of classes 0..slo_class. */
uint64_t tdm_order_backlog(const tdm_order_t *o, uint32_t slo_class);

/* tdm_order_first_waiting gives the first of a queue without a slot. */
uint32_t tdm_order_first_waiting(const tdm_order_t *o, const tdm_seq_t *seq, uint32_t queue);

/* tdm_order_slack: ns to spare at now_ns when a known token takes
   token_ns; negative where the deadline is lost. */
int64_t tdm_order_slack(const tdm_seq_t *q, int64_t now_ns, double token_ns);

/* tdm_order_due tells when it is due among its tenant's of one class, when a
   known token takes token_ns. */
int64_t tdm_order_due(const tdm_seq_t *q, double token_ns, double patience);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_ORDER_H */
