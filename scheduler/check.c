/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/check.h"

#include "scheduler/step_private.h"

/* Counted on the walk over all sequences. */
typedef struct tally {
    uint32_t waiting;
    uint32_t running;
    uint32_t free;
    uint32_t queued;
    uint32_t rebuilt;
    uint32_t rows;
    uint64_t waiting_tokens;
    uint64_t waiting_pages;
    uint32_t present[TDM_TENANT_MAX];
} tally_t;

static const char *seq_check(const tdm_sched_t *s, uint32_t idx, tally_t *t) {
    const tdm_seq_t *q = &s->seq[idx];
    if (q->state == TDM_SEQ_FREE) {
        t->free++;
        return NULL;
    }
    if (q->state > TDM_SEQ_DECODE) return "a sequence rests in an end state";
    if (s->by_request[(size_t)q->api * s->sizes.request_max + q->handle.slot] != idx)
        return "a request slot does not lead to its sequence";
    if (q->out_cnt >= q->output_max) return "a sequence outlived its last token";
    if (q->pos > tdm_seq_last(q)) return "a sequence is planned past its last token";
    if (q->is_skipped != (q->skip_ns != 0))
        return "a sequence sits out and does not know since when";
    t->present[q->tenant]++;
    t->queued += q->queue != TDM_QUEUE_NONE;
    t->rebuilt += q->is_rebuilt;
    t->rows += q->row != TDM_TAPE_NONE;
    if (q->out_cnt > 0 && q->row == TDM_TAPE_NONE) return "tokens were sent and not kept";
    if ((tdm_seq_fill_left(q) > 0) != (q->queue != TDM_QUEUE_NONE))
        return "a sequence with tokens to feed is in no queue, or the other way round";
    if (q->state == TDM_SEQ_WAITING) {
        t->waiting++;
        t->waiting_tokens += q->prompt_cnt;
        t->waiting_pages += tdm_sched_need(q->prompt_cnt, q->output_max);
        if ((q->row != TDM_TAPE_NONE) != (q->out_cnt > 0)) return "a row is kept for nothing";
        return q->slot == TDM_SEQ_NONE && q->pos == 0 ? NULL : "a waiting sequence has a slot";
    }
    t->running++;
    if (q->row == TDM_TAPE_NONE) return "a running sequence has no row for its tokens";
    if (q->slot >= s->sizes.seq_max || s->slot_seq[q->slot] != idx)
        return "a slot does not lead to its sequence";
    const tdm_kv_slot_t *slot = &s->kv.slot[q->slot];
    if (slot->state != TDM_KV_SLOT_HELD) return "a running sequence holds no pages";
    if (slot->owned_cnt + slot->promised_cnt != tdm_sched_need(q->prompt_cnt, q->output_max))
        return "pages and promise do not add up to the need";
    if (q->state == TDM_SEQ_DECODE && q->out_cnt == 0) return "a decode without a token";
    return NULL;
}

/* queue_check walks one list both ways at once. */
static const char *queue_check(const tdm_sched_t *s, uint32_t queue, uint32_t *queued) {
    const tdm_queue_t *l = &s->queues.queue[queue];
    uint32_t prev = TDM_SEQ_NONE, cnt = 0;
    uint64_t tokens = 0;
    uint32_t part = 0, before = 0; /* 0: has a slot, 1: had one, 2: never ran */
    for (uint32_t at = l->head; at != TDM_SEQ_NONE; at = s->seq[at].next) {
        const tdm_seq_t *q = &s->seq[at];
        if (q->queue != queue || q->prev != prev || cnt++ >= s->seq_cnt)
            return "a queue is not a list";
        if (q->slo_class != tdm_queue_class(queue) || q->tenant != queue % TDM_TENANT_MAX)
            return "a sequence is in another's queue";
        before = part;
        part = q->slot != TDM_SEQ_NONE ? 0u : q->is_returned ? 1u : 2u;
        if (part < before) return "a waiting sequence stands before one with a slot";
        if (prev != TDM_SEQ_NONE && part == before && s->seq[prev].order > q->order)
            return "a queue is out of order";
        tokens += tdm_seq_fill_left(q);
        prev = at;
    }
    uint32_t bit =
        (uint32_t)s->queues.filled[tdm_queue_group(queue)] >> queue % TDM_TENANT_MAX & 1u;
    if (bit != (cnt > 0)) return "a queue is marked wrongly as filled or empty";
    if (l->tail != prev || l->cnt != cnt) return "a queue has a wrong tail or count";
    if (l->tokens != tokens) return "a queue's tokens are wrong";
    *queued += cnt;
    return NULL;
}

/* link_check holds a queued sequence against its neighbours. */
static const char *link_check(const tdm_sched_t *s, uint32_t idx) {
    const tdm_seq_t *q = &s->seq[idx];
    if (q->state == TDM_SEQ_FREE || q->queue == TDM_QUEUE_NONE) return NULL;
    if (q->queue >= TDM_QUEUE_CNT) return "a queue is not a list";
    const tdm_queue_t *l = &s->queues.queue[q->queue];
    if ((q->prev != TDM_SEQ_NONE && q->prev >= s->seq_cnt) ||
        (q->next != TDM_SEQ_NONE && q->next >= s->seq_cnt))
        return "a queue is not a list";
    uint32_t from = q->prev == TDM_SEQ_NONE ? l->head : s->seq[q->prev].next;
    uint32_t to = q->next == TDM_SEQ_NONE ? l->tail : s->seq[q->next].prev;
    if (from != idx || to != idx) return "a queue is not a list";
    if (q->slo_class != tdm_queue_class(q->queue) || q->tenant != q->queue % TDM_TENANT_MAX)
        return "a sequence is in another's queue";
    return NULL;
}

static const char *counters_check(const tdm_sched_t *s) {
    const tdm_sched_stats_t *t = &s->stats;
    uint64_t ended = 0;
    uint32_t waiting = 0, running = 0;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        waiting += t->waiting_of[k];
        running += t->running_of[k];
    }
    if (waiting != s->waiting_cnt || running != s->running_cnt)
        return "the counts by class do not add up";
    for (uint32_t i = 0; i < TDM_FINISH_CNT; i++) ended += t->ended[i];
    if (t->received != t->accepted + t->refused) return "received is not accepted plus refused";
    if (t->accepted != s->waiting_cnt + s->running_cnt + ended)
        return "accepted is not waiting plus running plus ended";
    return NULL;
}

static const char *flight_check(const tdm_sched_t *s) {
    if (s->flight_cnt > s->sizes.depth) return "more plans in flight than allowed";
    if (!s->is_up && s->flight_cnt) return "a plan in flight without an executor";
    for (uint32_t i = 0; i < s->flight_cnt; i++)
        if (s->flight[i].record.iteration != s->iteration - s->flight_cnt + i + 1u)
            return "plans in flight are out of order";
    return NULL;
}

static const char *outbox_check(const tdm_sched_t *s) {
    for (uint32_t i = 0; i < s->sizes.api_cnt; i++) {
        const tdm_outbox_t *box = &s->outbox[i];
        if (box->head - box->tail > box->mask + 1u) return "an outbox is over its bound";
        if (box->token_cnt > TDM_OUTBOX_TOKENS(s->sizes.seq_max))
            return "an outbox has too many tokens";
    }
    return NULL;
}

/* slots_check: each slot is held by the sequence that says so. */
static const char *slots_check(const tdm_sched_t *s) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        slots += s->slot_seq[i] != TDM_SEQ_NONE;
        if ((s->kv.slot[i].state == TDM_KV_SLOT_HELD) != (s->slot_seq[i] != TDM_SEQ_NONE))
            return "a held slot has no sequence";
    }
    return slots == s->running_cnt ? NULL : "the counts of waiting and running are wrong";
}

static const char *sums_check(const tdm_sched_t *s) {
    tally_t t = {0};
    uint32_t queued = 0;
    const char *wrong = slots_check(s);
    if (wrong) return wrong;
    for (uint32_t i = 0; i < s->seq_cnt; i++)
        if ((wrong = seq_check(s, i, &t))) return wrong;
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++)
        if ((wrong = queue_check(s, i, &queued))) return wrong;
    if (t.waiting != s->waiting_cnt || t.running != s->running_cnt)
        return "the counts of waiting and running are wrong";
    if (t.waiting_tokens != s->waiting_tokens) return "the waiting tokens are wrong";
    if (t.waiting_pages != s->waiting_pages) return "the waiting pages are wrong";
    for (uint32_t i = 0; i < TDM_TENANT_MAX; i++)
        if (t.present[i] != s->queues.present_cnt[i]) return "the count of a tenant is wrong";
    uint64_t by_class = 0, by_queue = 0;
    for (uint32_t i = 0; i < TDM_QUEUE_CNT; i++) by_queue += s->queues.queue[i].tokens;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) by_class += s->queues.tokens_of[k];
    if (by_class != by_queue) return "the tokens of the classes are wrong";
    if (t.queued != queued) return "a sequence is in two queues";
    if (t.rows + s->tape.free_cnt != s->tape.row_cnt) return "rows of tokens are not conserved";
    if (t.rebuilt != s->rebuilt_cnt) return "the count of rebuilt sequences is wrong";
    return NULL;
}

/* counts_check: what is right or wrong whatever is in the tables. */
static const char *counts_check(const tdm_sched_t *s) {
    const char *wrong = counters_check(s);
    if (!wrong) wrong = flight_check(s);
    return wrong ? wrong : outbox_check(s);
}

const char *tdm_sched_check_some(const tdm_sched_t *s, tdm_sched_cursor_t *at, uint32_t cnt) {
    tally_t unused = {0};
    const char *wrong = tdm_kv_check_some(&s->kv, &at->kv, cnt);
    if (!wrong) wrong = slots_check(s);
    if (!wrong) wrong = counts_check(s);
    for (uint32_t i = 0; !wrong && i < cnt; i++) {
        wrong = seq_check(s, at->seq, &unused);
        if (!wrong) wrong = link_check(s, at->seq);
        at->seq = at->seq + 1u < s->seq_cnt ? at->seq + 1u : 0u;
    }
    return wrong;
}

const char *tdm_sched_check(const tdm_sched_t *s) {
    const char *wrong = tdm_kv_check(&s->kv);
    if (!wrong) wrong = sums_check(s);
    return wrong ? wrong : counts_check(s);
}
