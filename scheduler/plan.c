/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a plan from its draft: closes, opens, grants, slices, decodes,
   and the same again as a flight that the result is checked against. */

#include "scheduler/draft_private.h"

#include <string.h>

static void write_closes(tdm_sched_t *s, tdm_plan_t *plan) {
    for (uint32_t i = 0; s->kv.close_cnt > 0; i++) {
        if (!s->kv.slot[i].must_close) continue;
        s->kv.slot[i].must_close = 0;
        s->kv.close_cnt--;
        plan->close[plan->close_cnt++] = i;
    }
}

/* write_slot opens the slot where the executor does not have it, and
   grants the pages that cover tok tokens. */
static void write_slot(tdm_sched_t *s, tdm_plan_t *plan, const tdm_seq_t *q, uint32_t tok) {
    tdm_kv_slot_t *t = &s->kv.slot[q->slot];
    if (!t->is_open) {
        tdm_plan_open_t *open = &plan->open[plan->open_cnt++];
        *open = (tdm_plan_open_t){.slot = q->slot,
                                  .prompt_cnt = q->prompt_cnt,
                                  .filled_cnt = t->filled_cnt * TDM_KV_PAGE_TOKENS,
                                  .sampling = q->request->sampling};
        t->is_open = 1;
    }
    t->last_iteration = plan->iteration;
    tdm_kv_cover(&s->kv, q->slot, tok);
    uint32_t want = tdm_kv_pages(tok);
    if (t->granted_cnt >= want) return;
    tdm_plan_grant_t *grant = &plan->grant[plan->grant_cnt++];
    *grant = (tdm_plan_grant_t){
        .slot = q->slot, .page_off = plan->page_cnt, .page_cnt = want - t->granted_cnt};
    TDM_CHECK(plan->page_cnt + grant->page_cnt <= TDM_PLAN_PAGE_MAX);
    while (t->granted_cnt < want)
        plan->page[plan->page_cnt++] = tdm_kv_page(&s->kv, q->slot, t->granted_cnt++);
}

static void write_entry(tdm_flight_t *f, const tdm_sched_t *s, uint32_t idx, uint32_t pos,
                        int is_sampled) {
    const tdm_seq_t *q = &s->seq[idx];
    f->entry[f->entry_cnt++] = (tdm_flight_entry_t){.order = (uint32_t)q->order,
                                                    .seq = idx,
                                                    .slot = (uint16_t)q->slot,
                                                    .pos = pos,
                                                    .is_sampled = is_sampled ? 1 : 0};
    f->sample_cnt += is_sampled ? 1u : 0u;
}

/* weight_of gives what a token's charge is divided by. */
static double weight_of(const tdm_sched_t *s, const tdm_seq_t *q) {
    return s->live.tenant[q->tenant].weight * s->live.class_of[q->slo_class].weight;
}

static void write_slice(tdm_sched_t *s, tdm_plan_t *plan, tdm_flight_t *f, const tdm_pick_t *p) {
    tdm_seq_t *q = &s->seq[p->seq];
    uint32_t end = q->pos + p->cnt;
    int is_last = end == q->fill_cnt;
    write_slot(s, plan, q, end);
    plan->slice[plan->slice_cnt++] = (tdm_plan_slice_t){.slot = q->slot,
                                                        .pos = q->pos,
                                                        .cnt = p->cnt,
                                                        .token_off = plan->token_cnt,
                                                        .is_last = is_last ? 1u : 0u};
    for (uint32_t pos = q->pos; pos < end; pos++)
        plan->token[plan->token_cnt++] = pos < q->prompt_cnt
                                             ? q->request->prompt[pos]
                                             : *tdm_tape_at(&s->tape, q->row, pos - q->prompt_cnt);
    if (q->pos < q->fed_cnt) s->stats.rebuilt_tokens += TDM_MIN(end, q->fed_cnt) - q->pos;
    q->served_ns = s->now_ns;
    tdm_order_advance(&s->queues, s->seq, p->seq, p->cnt);
    tdm_order_charge(&s->queues, q->tenant, p->cnt, weight_of(s, q));
    write_entry(f, s, p->seq, end, is_last);
    if (!is_last) return;
    tdm_order_remove(&s->queues, s->seq, p->seq);
    s->rebuilt_cnt -= q->is_rebuilt;
    q->is_rebuilt = 0;
}

static void write_decode(tdm_sched_t *s, tdm_plan_t *plan, tdm_flight_t *f, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    write_slot(s, plan, q, q->pos + 1u);
    plan->decode[plan->decode_cnt++] = (tdm_plan_decode_t){.slot = q->slot, .pos = q->pos};
    q->pos++;
    tdm_order_charge(&s->queues, q->tenant, TDM_OUTPUT_COST, weight_of(s, q));
    write_entry(f, s, idx, q->pos, 1);
    if (!q->is_skipped) return;
    f->late[f->late_cnt++] = (tdm_flight_late_t){.since_ns = q->skip_ns, .slo_class = q->slo_class};
    q->skip_ns = 0;
    q->is_skipped = 0;
}

/* write_plan: decodes are marked before the slices move anyone's pos, as
   a prompt that ends in this plan decodes in the next one. */
static void write_plan(tdm_sched_t *s, const tdm_draft_t *d, tdm_plan_t *plan, tdm_flight_t *f) {
    uint32_t decode[TDM_SEQ_MAX];
    uint32_t decode_cnt = 0;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++)
        if (s->slot_seq[i] != TDM_SEQ_NONE && tdm_draft_is_decodable(&s->seq[s->slot_seq[i]]) &&
            !tdm_draft_is_skipped(d, i))
            decode[decode_cnt++] = s->slot_seq[i];
    TDM_CHECK(decode_cnt == d->load.decode_cnt);
    write_closes(s, plan);
    for (uint32_t i = 0; i < d->pick_cnt; i++) write_slice(s, plan, f, &d->pick[i]);
    for (uint32_t i = 0; i < decode_cnt; i++) write_decode(s, plan, f, decode[i]);
    TDM_CHECK(plan->token_cnt == d->load.prefill_cnt);
}

static void plan_reset(tdm_plan_t *plan) {
    plan->variant = 0;
    plan->reason = 0;
    plan->close_cnt = plan->open_cnt = plan->grant_cnt = plan->page_cnt = 0;
    plan->slice_cnt = plan->token_cnt = plan->decode_cnt = plan->reserved = 0;
}

static void write_record(tdm_sched_t *s, const tdm_draft_t *d, const tdm_plan_t *plan,
                         tdm_flight_t *f) {
    f->record = (tdm_sched_record_t){.iteration = plan->iteration,
                                     .epoch = plan->epoch,
                                     .live_revision = s->live.revision,
                                     .route = (uint16_t)plan->route,
                                     .cap = (uint16_t)d->cap,
                                     .fallback = (uint16_t)plan->reason,
                                     .planned_ns = s->now_ns,
                                     .limit_ns = plan->limit_ns,
                                     .limit_class = d->limit_class,
                                     .predicted_ns = plan->predicted_ns,
                                     .decode_cnt = plan->decode_cnt,
                                     .slice_cnt = plan->slice_cnt,
                                     .prefill_cnt = plan->token_cnt,
                                     .open_cnt = plan->open_cnt,
                                     .pair_cnt = d->load.pair_cnt,
                                     .kv_cnt = d->load.kv_cnt,
                                     .waiting_cnt = s->waiting_cnt,
                                     .running_cnt = s->running_cnt,
                                     .page_free_cnt = s->kv.free_cnt,
                                     .is_forced = d->is_forced ? 1u : 0u,
                                     .is_thrifty = d->is_thrifty ? 1u : 0u};
    f->record.quantile = s->cap.quantile;
    f->record.is_outside =
        tdm_predict_is_outside(&s->live.profile, plan->route, &d->load) ? 1u : 0u;
    memcpy(f->decode_of, d->decode_of, sizeof d->decode_of);
    f->record.start_cnt = TDM_MIN(d->start_cnt, (uint32_t)TDM_PLAN_SLICE_MAX);
    memcpy(f->record.start_class, d->start_class, sizeof f->record.start_class);
    memcpy(f->record.start_wait_ns, d->start_wait_ns, sizeof f->record.start_wait_ns);
    f->profile_ns = tdm_predict_profile_ns(&s->live.profile, (tdm_route_t)plan->route, &d->load);
    f->record.profile_ns = f->profile_ns;
    s->stats.outside_cnt += f->record.is_outside;
    tdm_sched_count(s, d->cap);
    s->stats.prefill_tokens += plan->token_cnt;
    s->stats.forced_cnt += d->is_forced ? 1u : 0u;
    s->stats.thrift_cnt += f->record.is_thrifty;
}

/* has_room: each api tile could take a token from every sequence, those
   in flight included. */
static int has_room(const tdm_sched_t *s) {
    uint32_t flying = s->sizes.seq_max;
    for (uint32_t i = 0; i < s->flight_cnt; i++) flying += s->flight[i].sample_cnt;
    for (uint32_t i = 0; i < s->sizes.api_cnt; i++)
        if (s->outbox[i].token_cnt + flying > TDM_OUTBOX_TOKENS(s->sizes.seq_max)) return 0;
    return 1;
}

/* route_of settles the route, and why it is not the fused one. */
static tdm_route_t route_of(const tdm_sched_t *s, const tdm_draft_t *d, uint32_t *reason) {
    const tdm_profile_t *profile = &s->live.profile;
    tdm_route_t route = tdm_predict_route(&d->load, d->both);
    *reason = TDM_REASON_NONE;
    if (route < TDM_ROUTE_STREAMS) return route;
    if (s->live.route != TDM_ROUTE_FUSED)
        *reason = TDM_FALLBACK_operator;
    else if (s->cap.is_drifting || tdm_predict_is_outside(profile, TDM_ROUTE_FUSED, &d->load))
        *reason = TDM_FALLBACK_bin_unverified;
    else
        *reason = TDM_FALLBACK_not_profitable;
    return route;
}

int tdm_sched_plan(tdm_sched_t *s, int64_t now_ns, tdm_plan_t *plan) {
    tdm_sched_clock(s, now_ns);
    if (!s->is_up || s->is_doomed || s->flight_cnt >= s->sizes.depth) return 0;
    if (s->waiting_cnt + s->running_cnt == 0) return 0;
    if (!has_room(s)) {
        s->stats.outbox_stall_cnt++;
        return 0;
    }
    tdm_draft_t d;
    tdm_draft_make(s, &d);
    if (d.load.decode_cnt == 0 && d.load.prefill_cnt == 0) return 0;

    tdm_flight_t *f = &s->flight[s->flight_cnt];
    f->entry_cnt = f->sample_cnt = f->late_cnt = 0;
    plan_reset(plan);
    plan->iteration = ++s->iteration;
    plan->epoch = s->epoch;
    plan->route = route_of(s, &d, &plan->reason);
    plan->limit_ns = d.limit_ns;
    plan->predicted_ns = tdm_draft_predict(s, (tdm_route_t)plan->route, &d.load);
    write_plan(s, &d, plan, f);
    write_record(s, &d, plan, f);
    if (s->flight_cnt++ == 0) s->flight_ns = s->now_ns;
    return 1;
}
