/* SPDX-License-Identifier: Apache-2.0 */
/* Room for a request of a more urgent class: where slots or pages have run
   out, half of its time to the first token is gone and the rest is not
   lost, less urgent sequences give their places up.  Each at most
   evict_max times, never for one of its own class, and only where that is
   enough; so whoever loads all classes alike never sees it. */
#include "scheduler/draft_private.h"

/* What it takes to start the heir. */
typedef struct lack {
    uint32_t slots;
    uint32_t pages;
} lack_t;

static int is_urgent(const tdm_sched_t *s, const tdm_seq_t *q) {
    int64_t half_ns = (q->deadline_ns - q->accepted_ns) / 2;
    return !q->is_returned && s->now_ns < q->deadline_ns && s->now_ns - q->accepted_ns >= half_ns;
}

/* find_heir gives the urgent head of a class with the least time left. */
static uint32_t find_heir(const tdm_sched_t *s, uint32_t slo_class) {
    uint32_t heir = TDM_SEQ_NONE, from = tdm_queue_of(slo_class, 0, 0);
    for (uint32_t i = from; (i = tdm_queue_next(&s->queues, i)) < TDM_QUEUE_CNT; i++) {
        if (tdm_queue_class(i) != slo_class) break;
        uint32_t idx = tdm_order_first_waiting(&s->queues, s->seq, i);
        if (idx == TDM_SEQ_NONE || !is_urgent(s, &s->seq[idx])) continue;
        if (heir == TDM_SEQ_NONE || s->seq[idx].deadline_ns < s->seq[heir].deadline_ns) heir = idx;
    }
    return heir;
}

/* lack_of counts what comes back by itself, once fences fall, as there. */
static lack_t lack_of(const tdm_sched_t *s, const tdm_seq_t *q) {
    uint32_t need = tdm_sched_need(q->prompt_cnt, q->output_max);
    uint32_t come = tdm_kv_spare(&s->kv) + s->kv.fenced_cnt;
    return (lack_t){.slots = s->running_cnt == s->sizes.seq_max,
                    .pages = need > come ? need - come : 0u};
}

static int may_yield(const tdm_sched_t *s, const tdm_seq_t *q, uint32_t slo_class) {
    return q->slo_class > slo_class && q->evict_cnt < s->live.evict_max;
}

/* pages_of gives what a sequence would give back at least. */
static uint32_t pages_of(const tdm_sched_t *s, const tdm_seq_t *q) {
    const tdm_kv_slot_t *t = &s->kv.slot[q->slot];
    return t->owned_cnt - t->shared_cnt + t->promised_cnt;
}

/* is_better: a rather than b gives up; the less urgent, then the one with
   less to compute again, then the younger. */
static int is_better(const tdm_seq_t *a, const tdm_seq_t *b) {
    if (a->slo_class != b->slo_class) return a->slo_class > b->slo_class;
    if (a->pos != b->pos) return a->pos < b->pos;
    return a->order > b->order;
}

static uint32_t find_victim(const tdm_sched_t *s, uint32_t slo_class) {
    uint32_t best = TDM_SEQ_NONE;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        uint32_t idx = s->slot_seq[i];
        if (idx == TDM_SEQ_NONE || !may_yield(s, &s->seq[idx], slo_class)) continue;
        if (best == TDM_SEQ_NONE || is_better(&s->seq[idx], &s->seq[best])) best = idx;
    }
    return best;
}

static int is_enough(const tdm_sched_t *s, const lack_t *lack, uint32_t slo_class) {
    uint32_t slots = 0;
    uint64_t pages = 0;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++) {
        uint32_t idx = s->slot_seq[i];
        if (idx == TDM_SEQ_NONE || !may_yield(s, &s->seq[idx], slo_class)) continue;
        slots++;
        pages += pages_of(s, &s->seq[idx]);
    }
    return slots >= lack->slots && pages >= lack->pages;
}

/* yield lets less urgent ones give up what the heir lacks. */
static void yield(tdm_sched_t *s, uint32_t heir, lack_t lack) {
    uint32_t slo_class = s->seq[heir].slo_class;
    s->heir = heir;
    while (lack.slots > 0 || lack.pages > 0) {
        uint32_t idx = find_victim(s, slo_class);
        TDM_CHECK(idx != TDM_SEQ_NONE);
        uint32_t pages = pages_of(s, &s->seq[idx]);
        s->seq[idx].evict_cnt++;
        s->stats.evict_cnt++;
        tdm_sched_give_back(s, idx);
        lack.slots = 0;
        lack.pages -= TDM_MIN(pages, lack.pages);
    }
}

void tdm_draft_make_room(tdm_sched_t *s) {
    if (s->live.evict_max == 0 || s->heir != TDM_SEQ_NONE || s->rebuilt_cnt > 0) return;
    if (s->tape.free_cnt == 0) return;
    uint32_t below = 0;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) below += s->stats.running_of[k];
    for (uint32_t k = 0; k + 1u < TDM_SLO_CLASS_MAX; k++) {
        below -= s->stats.running_of[k];
        if (s->stats.waiting_of[k] == 0 || below == 0) continue;
        uint32_t heir = find_heir(s, k);
        if (heir == TDM_SEQ_NONE) continue;
        lack_t lack = lack_of(s, &s->seq[heir]);
        if ((lack.slots > 0 || lack.pages > 0) && is_enough(s, &lack, k)) {
            yield(s, heir, lack);
            return;
        }
    }
}
