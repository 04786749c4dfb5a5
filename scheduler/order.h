/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_ORDER_H
#define TDM_SCHEDULER_ORDER_H

/* tdm_order keeps every sequence that still has known tokens to feed, one
   first-in first-out queue per (class, short or long):

     head                                          tail
     [has a slot, by order]  [WAITING, by order .......]

   Inside a queue all first-token budgets are equal, so FIFO is earliest
   deadline first.  Between queues the head with the least slack goes
   first: time to its deadline minus the time its remaining tokens take.
   A deadline does not move, so whoever waits becomes urgent in time and
   none starves.

   Ownership: links lie in the sequences.  One caller. */

#include "scheduler/seq.h"

TDM_BEGIN_DECLS

#define TDM_QUEUE_CNT  (2u * TDM_SLO_CLASS_MAX)
#define TDM_QUEUE_NONE UINT16_MAX

typedef struct tdm_queue {
    uint32_t head;
    uint32_t tail;
    uint32_t cnt;
    uint32_t reserved;
    uint64_t tokens; /* known and not planned, of all in it */
} tdm_queue_t;

typedef struct tdm_order {
    tdm_queue_t queue[TDM_QUEUE_CNT];
} tdm_order_t;

/* tdm_queue_of gives the queue of a class and a length. */
static inline uint32_t tdm_queue_of(uint32_t slo_class, int is_short) {
    return 2u * slo_class + (is_short ? 1u : 0u);
}
static inline int tdm_queue_is_short(uint32_t queue) {
    return (int)(queue & 1u);
}

void tdm_order_init(tdm_order_t *o);

/* tdm_order_append queues a WAITING sequence at the tail. */
void tdm_order_append(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue);

/* tdm_order_return queues a sequence that has a slot among its like, by
   order. */
void tdm_order_return(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue);

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

TDM_END_DECLS

#endif /* TDM_SCHEDULER_ORDER_H */
