/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler says about a request. */
#include "appliance/api/tile_private.h"

static void discard(tdm_api_tile_t *t, uint32_t cause) {
    tdm_count(t->wires.block, TDM_METRIC_tokens_discarded_total, cause, 1);
}

/* set_pending says when something moved before it says that something
   waits: /ready must not see a new request beside an old time. */
static void set_pending(tdm_api_tile_t *t, tdm_slot_t *s, int is_pending) {
    if (s->is_pending == is_pending) return;
    s->is_pending = (uint16_t)is_pending;
    if (is_pending) tdm_store_relaxed(&t->wires.vitals->progress_ns, t->now_ns);
    /* V1: pairs with the acquire in readiness */
    (void)tdm_add_acq_rel(&t->wires.vitals->pending_cnt, is_pending ? 1u : UINT32_MAX);
}

static void on_accepted(tdm_api_tile_t *t, tdm_slot_t *s, const tdm_event_t *e) {
    s->state = TDM_SLOT_RUNNING;
    tdm_slot_hop(t, s, TDM_HOP_ACCEPTED, t->now_ns, e);
    s->cached_cnt = e->cached_cnt;
    set_pending(t, s, 1);
    tdm_store_relaxed(&t->stats.accept_cnt, t->stats.accept_cnt + 1);
    tdm_count(t->wires.block, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_prompt,
              s->request.prompt_cnt);
    tdm_observe(t->wires.block, TDM_METRIC_request_prompt_tokens, s->request.slo_class,
                s->request.prompt_cnt);
    if (s->control_due && !tdm_slot_push_controls(t, s)) tdm_slot_ready(t, s);
    if (s->call == TDM_NONE || !s->is_stream) return;
    tdm_call_head(t, &t->call[s->call], 200, TDM_CONTENT_EVENT_STREAM, -1);
}

static void on_refused(tdm_api_tile_t *t, tdm_slot_t *s, const tdm_event_t *e) {
    uint32_t call = s->call;
    tdm_slot_hop(t, s, TDM_HOP_REFUSED, t->now_ns, e);
    tdm_slot_free(t, s);
    if (call == TDM_NONE) return;
    int is_refusal = e->reason < TDM_REASON_CNT && tdm_reason_http((tdm_reason_t)e->reason) > 0;
    tdm_refusal_t r;
    tdm_refuse(&r, is_refusal ? (tdm_reason_t)e->reason : TDM_REFUSE_internal, "");
    r.retry_after_ms = e->retry_after_ms;
    t->call[call].slot = TDM_NONE;
    tdm_call_refuse(t, &t->call[call], &r);
}

/* scan looks for a stop string in a reply that is printed only once it is
   whole, so that the scheduler hears of a hit at once. */
static void scan(tdm_api_tile_t *t, tdm_slot_t *s) {
    int is_hit = 0;
    const int32_t *out = s->ids + s->request.prompt_cnt;
    (void)tdm_text_push(&s->text, out[s->scan_cnt++], t->piece, &is_hit);
    if (!is_hit) return;
    s->cut_cnt = s->scan_cnt;
    tdm_slot_control(t, s, TDM_CONTROL_STOP_HIT);
}

static void on_token(tdm_api_tile_t *t, tdm_slot_t *s, const tdm_event_t *e) {
    if (s->state != TDM_SLOT_RUNNING || e->index != s->seen_cnt ||
        s->out_cnt == s->request.output_max || s->has_stop_id || e->token < 0 ||
        (uint32_t)e->token >= t->prompt.vocab) {
        discard(t, TDM_LABEL_DISCARD_stale);
        return;
    }
    if (s->seen_cnt++ == 0) {
        s->cached_cnt = TDM_MIN(e->cached_cnt, s->request.prompt_cnt);
        tdm_count(t->wires.block, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_cached, s->cached_cnt);
        s->start_ns = e->start_ns;
        s->first_ns = e->iteration_ns;
        tdm_observe_ns(t->wires.block, TDM_METRIC_prefill_seconds, s->request.slo_class,
                       e->iteration_ns - e->start_ns);
        tdm_slot_hop(t, s, TDM_HOP_STARTED, e->start_ns, NULL);
        tdm_slot_hop(t, s, TDM_HOP_FIRST, e->iteration_ns, NULL);
    }
    s->last_ns = e->iteration_ns;
    if (s->call == TDM_NONE) {
        discard(t, TDM_LABEL_DISCARD_cancelled);
        return;
    }
    if (s->cut_cnt != TDM_NONE) {
        discard(t, TDM_LABEL_DISCARD_stop);
        return;
    }
    s->ids[s->request.prompt_cnt + s->out_cnt++] = e->token;
    s->has_stop_id = (e->flags & TDM_EVENT_FLAG_STOP_ID) != 0;
    if (s->is_stream)
        tdm_slot_ready(t, s);
    else if (s->text.stop.cnt > 0 && !s->has_stop_id)
        scan(t, s);
}

static void on_end(tdm_api_tile_t *t, tdm_slot_t *s, const tdm_event_t *e) {
    set_pending(t, s, 0);
    s->state = TDM_SLOT_ENDED;
    s->finish = e->finish;
    s->reason = e->reason;
    if (s->last_ns != 0) tdm_slot_hop(t, s, TDM_HOP_LAST, s->last_ns, NULL);
    tdm_slot_hop(t, s, TDM_HOP_ENDED, t->now_ns, e);
    if (s->call == TDM_NONE) {
        tdm_slot_free(t, s);
        return;
    }
    if (!s->is_stream) tdm_text_restart(&s->text);
    tdm_slot_ready(t, s);
}

static void handle(tdm_api_tile_t *t, const tdm_event_t *e) {
    tdm_slot_t *s = e->handle.slot < t->config.request_max ? &t->slot[e->handle.slot] : NULL;
    int is_known = s && s->request.handle.generation == e->handle.generation &&
                   (s->state == TDM_SLOT_SUBMITTED || s->state == TDM_SLOT_RUNNING);
    int is_verdict = e->kind == TDM_EVENT_ACCEPTED || e->kind == TDM_EVENT_REFUSED;
    if (!is_known || is_verdict != (s->state == TDM_SLOT_SUBMITTED)) {
        tdm_store_relaxed(&t->stats.stale_cnt, t->stats.stale_cnt + 1);
        if (e->kind == TDM_EVENT_TOKEN) discard(t, TDM_LABEL_DISCARD_stale);
        return;
    }
    t->has_progress = 1;
    switch (e->kind) {
    case TDM_EVENT_ACCEPTED: on_accepted(t, s, e); break;
    case TDM_EVENT_REFUSED: on_refused(t, s, e); break;
    case TDM_EVENT_TOKEN: on_token(t, s, e); break;
    default: on_end(t, s, e); break;
    }
}

uint32_t tdm_poll_events(tdm_api_tile_t *t) {
    uint32_t work = 0;
    tdm_event_t e;
    while (work < t->config.event_batch && tdm_ring_pop(t->wires.events, &e)) {
        handle(t, &e);
        work++;
    }
    return work;
}
