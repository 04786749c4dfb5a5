/* SPDX-License-Identifier: Apache-2.0 */
/* Who leaves WAITING, and what it finds in the cache. */
#include "appliance/base/clock.h"
#include "scheduler/draft_private.h"

uint32_t tdm_draft_ward(const tdm_sched_t *s, const tdm_draft_t *d) {
    uint32_t ward = TDM_SEQ_NONE;
    int64_t least_ns = 0;
    if (s->waiting_cnt == 0) return ward;
    for (uint32_t i = 0; (i = tdm_queue_next(&s->queues, i)) < TDM_QUEUE_CNT; i++) {
        uint32_t idx = tdm_order_first_waiting(&s->queues, s->seq, i);
        if (idx == TDM_SEQ_NONE) continue;
        int64_t due_ns = tdm_order_due(&s->seq[idx], d->token_ns, s->live.patience);
        if (s->now_ns - due_ns <= s->live.bypass_ns) continue;
        /* for one that may not start yet nobody is held up */
        if (s->rebuilt_cnt > 0 && !s->seq[idx].is_returned) continue;
        if (tdm_draft_lacks_row(s, &s->seq[idx])) continue;
        if (ward != TDM_SEQ_NONE && due_ns >= least_ns) continue;
        ward = idx;
        least_ns = due_ns;
    }
    return ward;
}

/* held_pages gives the pages that come filled; whoever starts again has
   lost them. */
static uint32_t held_pages(const tdm_seq_t *q) {
    return q->is_returned ? 0u : q->held_cnt / TDM_KV_PAGE_TOKENS;
}

tdm_reason_t tdm_draft_bar(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t idx) {
    const tdm_seq_t *q = &s->seq[idx];
    if (s->rebuilt_cnt > 0 && !q->is_returned) return TDM_CAP_recovering;
    if (s->kv.slot_free_cnt == 0) return TDM_CAP_slots;
    if (tdm_draft_lacks_row(s, q)) return TDM_CAP_slots;
    if (s->heir != TDM_SEQ_NONE ? s->heir != idx : d->ward != TDM_SEQ_NONE && d->ward != idx)
        return TDM_CAP_kv_pages;
    if (!tdm_kv_can_open(&s->kv, tdm_sched_need(q->prompt_cnt, q->output_max)))
        return TDM_CAP_kv_pages;
    if (held_pages(q) > d->match_left) return TDM_CAP_slice_max;
    return TDM_REASON_NONE;
}

/* hold gives the sequence its filled pages, and how many tokens they are. */
static uint32_t hold(tdm_sched_t *s, tdm_draft_t *d, const tdm_seq_t *q) {
    uint32_t cnt = held_pages(q);
    tdm_kv_hold(&s->kv, q->slot, cnt);
    d->match_left -= cnt;
    s->stats.held_tokens += (uint64_t)cnt * TDM_KV_PAGE_TOKENS;
    return cnt * TDM_KV_PAGE_TOKENS;
}

/* match takes what the cache has of the sequence's tokens, and gives how
   many.  The last known token is computed in any case: the next one is
   drawn from what it yields. */
static uint32_t match(tdm_sched_t *s, tdm_draft_t *d, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    uint32_t most = TDM_MIN((q->fill_cnt - 1u) / TDM_KV_PAGE_TOKENS, d->match_left), cnt = 0;
    int32_t buf[TDM_KV_PAGE_TOKENS];
    if (!s->sizes.has_cache || most == 0) return 0;
    while (cnt < most &&
           tdm_kv_match(&s->kv, q->slot, q->tenant, tdm_sched_page_tokens(s, q, cnt, buf)))
        cnt++;
    d->match_left -= cnt;
    s->stats.cache_lookup_cnt++;
    s->stats.cache_hit_cnt += cnt > 0;
    s->stats.cache_saved_tokens += (uint64_t)cnt * TDM_KV_PAGE_TOKENS;
    return cnt * TDM_KV_PAGE_TOKENS;
}

/* note_start tells the record who started and how long it waited. */
static void note_start(tdm_sched_t *s, tdm_draft_t *d, tdm_seq_t *q) {
    int64_t wait_ns = s->now_ns - q->accepted_ns;
    TDM_CHECK(d->start_cnt < TDM_DRAFT_START_MAX);
    d->start_class[d->start_cnt] = q->slo_class;
    d->start_wait_ns[d->start_cnt++] = wait_ns;
    q->wait_us = (uint32_t)TDM_MIN(wait_ns / TDM_NS_PER_US, (int64_t)UINT32_MAX);
}

uint32_t tdm_draft_start(tdm_sched_t *s, tdm_draft_t *d, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    q->slot = tdm_kv_open(&s->kv, tdm_sched_need(q->prompt_cnt, q->output_max));
    if (q->row == TDM_TAPE_NONE) q->row = tdm_tape_take(&s->tape);
    s->slot_seq[q->slot] = idx;
    tdm_seq_move(q, TDM_SEQ_PREFILL);
    tdm_order_settle(&s->queues, s->seq, idx);
    s->waiting_cnt--;
    s->waiting_tokens -= q->prompt_cnt;
    s->waiting_pages -= tdm_sched_need(q->prompt_cnt, q->output_max);
    s->running_cnt++;
    s->stats.waiting_of[q->slo_class]--;
    s->stats.running_of[q->slo_class]++;
    uint32_t held = held_pages(q) > 0 ? hold(s, d, q) : 0u;
    uint32_t matched = held > 0 ? 0u : match(s, d, idx);
    tdm_order_advance(&s->queues, s->seq, idx, held + matched);
    if (!q->is_returned) {
        note_start(s, d, q);
        q->cached_cnt = matched;
    }
    if (s->heir == idx) s->heir = TDM_SEQ_NONE;
    if (d->ward == idx) d->ward = tdm_draft_ward(s, d);
    return held + matched;
}
