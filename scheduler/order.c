/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/order.h"

void tdm_order_init(tdm_order_t *o) {
    *o = (tdm_order_t){0};
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++)
        o->queue[i] = (tdm_queue_t){.head = TDM_SEQ_NONE, .tail = TDM_SEQ_NONE};
}

/* link_before puts idx in front of `at`, TDM_SEQ_NONE = at the tail. */
static void link_before(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue, uint32_t at) {
    tdm_queue_t *l = &o->queue[queue];
    tdm_seq_t *q = &seq[idx];
    TDM_CHECK(q->queue == TDM_QUEUE_NONE && queue < TDM_QUEUE_CNT);
    q->next = at;
    q->prev = at == TDM_SEQ_NONE ? l->tail : seq[at].prev;
    if (q->prev == TDM_SEQ_NONE)
        l->head = idx;
    else
        seq[q->prev].next = idx;
    if (at == TDM_SEQ_NONE)
        l->tail = idx;
    else
        seq[at].prev = idx;
    q->queue = (uint16_t)queue;
    l->cnt++;
    l->tokens += tdm_seq_fill_left(q);
    o->tokens_of[tdm_queue_class(queue)] += tdm_seq_fill_left(q);
    o->filled[tdm_queue_group(queue)] |= (uint16_t)(1u << queue % TDM_TENANT_MAX);
}

void tdm_order_append(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue) {
    TDM_CHECK(seq[idx].state == TDM_SEQ_WAITING);
    link_before(o, seq, idx, queue, TDM_SEQ_NONE);
}

void tdm_order_return(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t queue) {
    TDM_CHECK(seq[idx].state == TDM_SEQ_WAITING);
    uint32_t at = tdm_order_first_waiting(o, seq, queue);
    while (at != TDM_SEQ_NONE && seq[at].is_returned && seq[at].order < seq[idx].order)
        at = seq[at].next;
    link_before(o, seq, idx, queue, at);
}

void tdm_order_settle(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx) {
    uint32_t queue = seq[idx].queue, prev = seq[idx].prev;
    TDM_CHECK(seq[idx].slot != TDM_SEQ_NONE);
    if (prev == TDM_SEQ_NONE || seq[prev].order < seq[idx].order) return;
    tdm_order_remove(o, seq, idx);
    uint32_t at = o->queue[queue].head;
    while (seq[at].order < seq[idx].order) at = seq[at].next;
    link_before(o, seq, idx, queue, at);
}

void tdm_order_remove(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx) {
    tdm_seq_t *q = &seq[idx];
    TDM_CHECK(q->queue < TDM_QUEUE_CNT);
    tdm_queue_t *l = &o->queue[q->queue];
    TDM_CHECK(l->cnt > 0 && l->tokens >= tdm_seq_fill_left(q));
    if (q->prev == TDM_SEQ_NONE)
        l->head = q->next;
    else
        seq[q->prev].next = q->next;
    if (q->next == TDM_SEQ_NONE)
        l->tail = q->prev;
    else
        seq[q->next].prev = q->prev;
    l->cnt--;
    l->tokens -= tdm_seq_fill_left(q);
    o->tokens_of[tdm_queue_class(q->queue)] -= tdm_seq_fill_left(q);
    if (l->cnt == 0)
        o->filled[tdm_queue_group(q->queue)] &= (uint16_t) ~(1u << q->queue % TDM_TENANT_MAX);
    q->queue = TDM_QUEUE_NONE;
    q->prev = q->next = TDM_SEQ_NONE;
}

void tdm_order_advance(tdm_order_t *o, tdm_seq_t *seq, uint32_t idx, uint32_t cnt) {
    tdm_seq_t *q = &seq[idx];
    TDM_CHECK(q->queue < TDM_QUEUE_CNT && cnt <= tdm_seq_fill_left(q));
    o->queue[q->queue].tokens -= cnt;
    o->tokens_of[tdm_queue_class(q->queue)] -= cnt;
    q->pos += cnt;
}

uint64_t tdm_order_backlog(const tdm_order_t *o, uint32_t slo_class) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= slo_class; i++) sum += o->tokens_of[i];
    return sum;
}

uint32_t tdm_order_first_waiting(const tdm_order_t *o, const tdm_seq_t *seq, uint32_t queue) {
    uint32_t at = o->queue[queue].head;
    while (at != TDM_SEQ_NONE && seq[at].slot != TDM_SEQ_NONE) at = seq[at].next;
    return at;
}

int64_t tdm_order_due(const tdm_seq_t *q, double token_ns, double patience) {
    double work = q->is_returned ? 0.0 : token_ns * (double)tdm_seq_fill_left(q) * patience;
    return q->accepted_ns + (int64_t)(work < 0x1p61 ? work : 0x1p61);
}

int64_t tdm_order_slack(const tdm_seq_t *q, int64_t now_ns, double token_ns) {
    double work = token_ns * (double)tdm_seq_fill_left(q);
    return q->deadline_ns - now_ns - (int64_t)(work < 0x1p61 ? work : 0x1p61);
}

uint32_t tdm_queue_next(const tdm_order_t *o, uint32_t from) {
    for (uint32_t g = tdm_queue_group(from); g < TDM_GROUP_QUEUES; g++) {
        uint32_t skip = g == tdm_queue_group(from) ? from % TDM_TENANT_MAX : 0u;
        uint32_t bits = (uint32_t)o->filled[g] >> skip << skip;
        if (bits) return g * TDM_TENANT_MAX + (uint32_t)__builtin_ctz(bits);
    }
    return TDM_QUEUE_CNT;
}

void tdm_order_enter(tdm_order_t *o, uint32_t tenant) {
    if (o->present_cnt[tenant]++ > 0) return;
    double least = 0.0;
    int is_any = 0;
    for (uint32_t i = 0; i < TDM_TENANT_MAX; i++) {
        if (i == tenant || o->present_cnt[i] == 0 || (is_any && o->served[i] >= least)) continue;
        least = o->served[i];
        is_any = 1;
    }
    if (is_any && o->served[tenant] < least) o->served[tenant] = least;
}

void tdm_order_exit(tdm_order_t *o, uint32_t tenant) {
    TDM_CHECK(o->present_cnt[tenant] > 0);
    o->present_cnt[tenant]--;
}

void tdm_order_charge(tdm_order_t *o, uint32_t tenant, double tokens, double weight) {
    o->served[tenant] += tokens / weight;
}
