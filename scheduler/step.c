/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/step_private.h"

#include "appliance/base/carve.h"
#include "appliance/base/clock.h"

#include <string.h>

/* --- memory ------------------------------------------------------------ */

static uint32_t outbox_depth(const tdm_sched_sizes_t *sizes) {
    uint32_t need = 2u * sizes->request_max + TDM_OUTBOX_TOKENS(sizes->seq_max);
    uint32_t depth = 1;
    while (depth < need) depth *= 2u;
    return depth;
}

static void lay_out_cache(tdm_carve_t *c, tdm_prefix_t *x, const tdm_sched_sizes_t *sizes) {
    x->page_cnt = sizes->page_cnt;
    x->bucket_cnt = 0;
    if (!sizes->has_cache) return;
    x->bucket_cnt = tdm_prefix_buckets(sizes->page_cnt);
    x->bucket = tdm_carve_take(c, x->bucket_cnt, sizeof *x->bucket);
    x->page = tdm_carve_take(c, sizes->page_cnt, sizeof *x->page);
    x->token = tdm_carve_take(c, (uint64_t)sizes->page_cnt * TDM_KV_PAGE_TOKENS, sizeof *x->token);
}

/* lay_out places the arrays; with c->base NULL it only counts. */
static void lay_out(tdm_carve_t *c, tdm_sched_t *s, const tdm_sched_sizes_t *sizes) {
    uint32_t table_max = tdm_kv_pages(sizes->context_max);
    s->seq_cnt = sizes->waiting_max + sizes->seq_max;
    s->kv.page_cnt = sizes->page_cnt;
    s->kv.slot_cnt = sizes->seq_max;
    s->kv.table_max = TDM_MIN(table_max, sizes->page_cnt);
    tdm_carve_take(c, 1, sizeof *s);
    s->seq = tdm_carve_take(c, s->seq_cnt, sizeof *s->seq);
    s->slot_seq = tdm_carve_take(c, sizes->seq_max, sizeof *s->slot_seq);
    s->by_request =
        tdm_carve_take(c, (uint64_t)sizes->api_cnt * sizes->request_max, sizeof *s->by_request);
    s->kv.free = tdm_carve_take(c, sizes->page_cnt, sizeof *s->kv.free);
    s->kv.owner = tdm_carve_take(c, sizes->page_cnt, sizeof *s->kv.owner);
    s->kv.table =
        tdm_carve_take(c, (uint64_t)sizes->seq_max * s->kv.table_max, sizeof *s->kv.table);
    s->kv.slot_free = tdm_carve_take(c, sizes->seq_max, sizeof *s->kv.slot_free);
    s->kv.slot = tdm_carve_take(c, sizes->seq_max, sizeof *s->kv.slot);
    s->kv.chain = tdm_carve_take(c, sizes->seq_max, sizeof *s->kv.chain);
    s->tape.row_cnt = tdm_tape_rows(sizes->seq_max);
    s->tape.row_sz = sizes->context_max;
    s->tape.free = tdm_carve_take(c, s->tape.row_cnt, sizeof *s->tape.free);
    s->tape.token =
        tdm_carve_take(c, (uint64_t)s->tape.row_cnt * s->tape.row_sz, sizeof *s->tape.token);
    lay_out_cache(c, &s->kv.prefix, sizes);
    for (uint32_t i = 0; i < sizes->api_cnt; i++) {
        s->outbox[i].mask = outbox_depth(sizes) - 1u;
        s->outbox[i].event = tdm_carve_take(c, outbox_depth(sizes), sizeof *s->outbox[i].event);
    }
}

size_t tdm_sched_footprint(const tdm_sched_sizes_t *sizes) {
    if (tdm_sched_sizes_check(sizes, NULL) != TDM_OK) return 0;
    tdm_sched_t shadow;
    tdm_carve_t c = {0};
    lay_out(&c, &shadow, sizes);
    return (size_t)tdm_carve_sz(&c);
}

/* prime gives the pace a first value from the profile: a full iteration. */
static void prime(tdm_sched_t *s) {
    tdm_load_t full = {.prefill_cnt = s->live.token_max,
                       .pair_cnt = tdm_predict_pairs(0, s->live.token_max)};
    s->fill_tok = full.prefill_cnt;
    s->fill_ns =
        (double)tdm_predict_profile_ns(&s->live.profile, (tdm_route_t)s->live.route, &full);
}

/* live_take copies a configuration, and what is read off its table once. */
static void live_take(tdm_sched_t *s, const tdm_sched_live_t *live) {
    s->live = *live;
    s->row_ns = live->profile.table ? tdm_table_row_ns(live->profile.table) : 0.0;
}

tdm_status_t tdm_sched_init(void *mem, const tdm_sched_sizes_t *sizes, const tdm_sched_live_t *live,
                            tdm_sched_t **out, tdm_error_t *err) {
    tdm_status_t status = tdm_sched_sizes_check(sizes, err);
    if (status == TDM_OK) status = tdm_sched_live_check(live, err);
    if (status != TDM_OK) return status;
    if (!mem || (uintptr_t)mem % TDM_CACHE_LINE)
        return tdm_error_set(err, TDM_ERR_INVAL, "scheduler: memory is not aligned");
    tdm_sched_t *s = mem;
    memset(s, 0, sizeof *s);
    tdm_carve_t c = {.base = mem};
    lay_out(&c, s, sizes);
    s->sizes = *sizes;
    live_take(s, live);
    s->now_ns = 0;
    memset(s->seq, 0, s->seq_cnt * sizeof *s->seq);
    for (uint32_t i = 0; i < s->seq_cnt; i++)
        s->seq[i].next = i + 1u < s->seq_cnt ? i + 1u : TDM_SEQ_NONE;
    for (uint32_t i = 0; i < sizes->seq_max; i++) s->slot_seq[i] = TDM_SEQ_NONE;
    for (uint32_t i = 0; i < sizes->api_cnt * sizes->request_max; i++)
        s->by_request[i] = TDM_SEQ_NONE;
    tdm_order_init(&s->queues);
    tdm_kv_init(&s->kv, sizes->cache_key);
    tdm_tape_init(&s->tape);
    tdm_predict_init(&s->predict);
    tdm_cap_init(&s->cap);
    for (uint32_t i = 0; i < TDM_TENANT_MAX; i++) s->bucket[i].level = live->tenant[i].token_burst;
    s->clock_ratio = 1.0;
    s->heir = TDM_SEQ_NONE;
    prime(s);
    *out = s;
    return TDM_OK;
}

/* --- small things shared inside the room ------------------------------- */

int64_t tdm_sched_clock(tdm_sched_t *s, int64_t now_ns) {
    if (now_ns > s->now_ns) s->now_ns = now_ns;
    return s->now_ns;
}

void tdm_sched_count(tdm_sched_t *s, tdm_reason_t reason) {
    s->stats.reason[reason]++;
}

uint32_t tdm_sched_need(uint32_t prompt_cnt, uint32_t output_max) {
    return tdm_kv_pages(prompt_cnt + output_max - 1u);
}

void tdm_sched_push(tdm_sched_t *s, uint32_t api, const tdm_event_t *event) {
    tdm_outbox_t *box = &s->outbox[api];
    TDM_CHECK(box->head - box->tail <= box->mask);
    box->event[box->head++ & box->mask] = *event;
    if (event->kind == TDM_EVENT_TOKEN) box->token_cnt++;
}

static uint32_t *request_entry(const tdm_sched_t *s, uint32_t api, uint32_t slot) {
    return &s->by_request[(size_t)api * s->sizes.request_max + slot];
}

/* mark_flights notes in the plans in flight how the sequence ended, for
   the account of what they compute in vain. */
static void mark_flights(tdm_sched_t *s, uint32_t idx, tdm_finish_t finish) {
    for (uint32_t i = 0; i < s->flight_cnt; i++)
        for (uint32_t k = 0; k < s->flight[i].entry_cnt; k++) {
            tdm_flight_entry_t *e = &s->flight[i].entry[k];
            if (e->seq == idx && TDM_ENTRY_IS_OF(e, &s->seq[idx])) e->finish = (uint8_t)finish;
        }
}

const int32_t *tdm_sched_page_tokens(const tdm_sched_t *s, const tdm_seq_t *q, uint32_t idx,
                                     int32_t buf[TDM_KV_PAGE_TOKENS]) {
    uint32_t pos = idx * TDM_KV_PAGE_TOKENS, end = pos + TDM_KV_PAGE_TOKENS;
    if (end <= q->prompt_cnt) return q->request->prompt + pos;
    TDM_CHECK(end <= q->prompt_cnt + q->out_cnt);
    if (pos >= q->prompt_cnt) return tdm_tape_at(&s->tape, q->row, pos - q->prompt_cnt);
    uint32_t head = q->prompt_cnt - pos;
    memcpy(buf, q->request->prompt + pos, head * sizeof *buf);
    memcpy(buf + head, tdm_tape_at(&s->tape, q->row, 0), (TDM_KV_PAGE_TOKENS - head) * sizeof *buf);
    return buf;
}

/* orphan lets the plans in flight compute for nobody. */
static void orphan(tdm_sched_t *s, uint32_t idx) {
    for (uint32_t i = 0; i < s->flight_cnt; i++)
        for (uint32_t k = 0; k < s->flight[i].entry_cnt; k++) {
            tdm_flight_entry_t *e = &s->flight[i].entry[k];
            if (e->seq == idx && TDM_ENTRY_IS_OF(e, &s->seq[idx])) e->seq = TDM_SEQ_NONE;
        }
}

void tdm_sched_give_back(tdm_sched_t *s, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    orphan(s, idx);
    if (q->queue != TDM_QUEUE_NONE) tdm_order_remove(&s->queues, s->seq, idx);
    tdm_kv_retire(&s->kv, q->slot);
    s->slot_seq[q->slot] = TDM_SEQ_NONE;
    q->slot = TDM_SEQ_NONE;
    if (q->out_cnt == 0) {
        tdm_tape_give(&s->tape, q->row);
        q->row = TDM_TAPE_NONE;
    }
    q->fed_cnt = TDM_MAX(q->fed_cnt, q->pos);
    q->fill_cnt = q->prompt_cnt + q->out_cnt;
    q->pos = 0;
    q->skip_ns = 0;
    q->is_skipped = 0;
    q->is_returned = 1;
    tdm_seq_move(q, TDM_SEQ_WAITING);
    s->running_cnt--;
    s->stats.running_of[q->slo_class]--;
    s->waiting_cnt++;
    s->stats.waiting_of[q->slo_class]++;
    s->waiting_tokens += q->prompt_cnt;
    s->waiting_pages += tdm_sched_need(q->prompt_cnt, q->output_max);
    uint32_t size = tdm_order_size(q->prompt_cnt, s->live.short_max); /* as when it was accepted */
    tdm_order_return(&s->queues, s->seq, idx, tdm_queue_of(q->slo_class, size, q->tenant));
}

/* leave takes a sequence off whatever holds it in its state. */
static void leave(tdm_sched_t *s, uint32_t idx) {
    tdm_seq_t *q = &s->seq[idx];
    if (q->queue != TDM_QUEUE_NONE) tdm_order_remove(&s->queues, s->seq, idx);
    if (q->row != TDM_TAPE_NONE) tdm_tape_give(&s->tape, q->row);
    if (s->heir == idx) s->heir = TDM_SEQ_NONE;
    s->rebuilt_cnt -= q->is_rebuilt;
    if (q->state == TDM_SEQ_WAITING) {
        s->waiting_cnt--;
        s->waiting_tokens -= q->prompt_cnt;
        s->waiting_pages -= tdm_sched_need(q->prompt_cnt, q->output_max);
        s->stats.waiting_of[q->slo_class]--;
        return;
    }
    tdm_kv_retire(&s->kv, q->slot);
    s->slot_seq[q->slot] = TDM_SEQ_NONE;
    s->running_cnt--;
    s->drain_slots += 1.0;
    s->stats.running_of[q->slo_class]--;
}

void tdm_sched_end(tdm_sched_t *s, uint32_t idx, tdm_seq_state_t state, tdm_finish_t finish,
                   tdm_reason_t reason) {
    tdm_seq_t *q = &s->seq[idx];
    mark_flights(s, idx, finish);
    leave(s, idx);
    tdm_order_exit(&s->queues, q->tenant);
    tdm_admit_refund(s, q->tenant, q->output_max - q->out_cnt);
    tdm_seq_move(q, state);
    tdm_event_t event = {.handle = q->handle,
                         .kind = TDM_EVENT_END,
                         .finish = (uint16_t)finish,
                         .reason = (uint16_t)reason,
                         .index = q->out_cnt};
    tdm_sched_push(s, q->api, &event);
    s->stats.ended[finish]++;
    if (reason != TDM_REASON_NONE) tdm_sched_count(s, reason);
    *request_entry(s, q->api, q->handle.slot) = TDM_SEQ_NONE;
    tdm_seq_move(q, TDM_SEQ_FREE);
    q->request = NULL;
    q->next = s->seq_free;
    s->seq_free = idx;
}

/* --- submit and control ------------------------------------------------- */

/* held_whole gives the tokens of the whole pages that come filled: never the
   last token, as the next one is drawn from what it yields. */
static uint32_t held_whole(const tdm_request_t *request) {
    uint32_t most = TDM_MIN(request->held_cnt, request->prompt_cnt - 1u);
    return most - most % TDM_KV_PAGE_TOKENS;
}

static void accept(tdm_sched_t *s, const tdm_request_t *request) {
    uint32_t idx = s->seq_free;
    TDM_CHECK(idx != TDM_SEQ_NONE);
    tdm_seq_t *q = &s->seq[idx];
    s->seq_free = q->next;
    TDM_CHECK(q->state == TDM_SEQ_FREE);
    *q = (tdm_seq_t){.request = request,
                     .handle = request->handle,
                     .order = ++s->order,
                     .accepted_ns = s->now_ns,
                     .deadline_ns = tdm_admit_deadline_ns(s, request),
                     .served_ns = s->now_ns,
                     .prompt_cnt = request->prompt_cnt,
                     .output_max = request->output_max,
                     .fill_cnt = request->prompt_cnt,
                     .held_cnt = held_whole(request),
                     .slot = TDM_SEQ_NONE,
                     .row = TDM_TAPE_NONE,
                     .prev = TDM_SEQ_NONE,
                     .next = TDM_SEQ_NONE,
                     .api = request->api,
                     .slo_class = request->slo_class,
                     .tenant = request->tenant,
                     .queue = TDM_QUEUE_NONE};
    tdm_seq_move(q, TDM_SEQ_WAITING);
    *request_entry(s, q->api, q->handle.slot) = idx;
    uint32_t size = tdm_order_size(q->prompt_cnt, s->live.short_max);
    tdm_order_append(&s->queues, s->seq, idx, tdm_queue_of(q->slo_class, size, q->tenant));
    tdm_order_enter(&s->queues, q->tenant);
    tdm_admit_take(s, request);
    s->waiting_cnt++;
    s->waiting_pages += tdm_sched_need(q->prompt_cnt, q->output_max);
    s->waiting_tokens += q->prompt_cnt;
    s->stats.waiting_of[q->slo_class]++;
    s->stats.accepted++;
    tdm_event_t event = {.handle = request->handle, .kind = TDM_EVENT_ACCEPTED};
    tdm_sched_push(s, request->api, &event);
}

static void refuse(tdm_sched_t *s, const tdm_request_t *request, tdm_reason_t reason) {
    int is_busy = tdm_reason_http(reason) == 429 || tdm_reason_http(reason) == 503;
    tdm_event_t event = {.handle = request->handle,
                         .kind = TDM_EVENT_REFUSED,
                         .reason = (uint16_t)reason,
                         .retry_after_ms = is_busy ? tdm_admit_retry_ms(s, request, reason) : 0u};
    tdm_sched_push(s, request->api, &event);
    tdm_sched_count(s, reason);
    s->stats.refused++;
}

void tdm_sched_submit(tdm_sched_t *s, int64_t now_ns, const tdm_submit_t *submit) {
    tdm_sched_clock(s, now_ns);
    const tdm_request_t *request = submit->request;
    if (!request || request->handle.generation != submit->generation ||
        request->api >= s->sizes.api_cnt || request->handle.slot >= s->sizes.request_max ||
        *request_entry(s, request->api, request->handle.slot) != TDM_SEQ_NONE) {
        tdm_sched_count(s, TDM_DROP_stale_handle);
        return;
    }
    s->stats.received++;
    tdm_reason_t reason = tdm_admit_judge(s, request);
    if (reason == TDM_REASON_NONE)
        accept(s, request);
    else
        refuse(s, request, reason);
}

void tdm_sched_control(tdm_sched_t *s, int64_t now_ns, const tdm_control_t *control) {
    tdm_sched_clock(s, now_ns);
    uint32_t idx = TDM_SEQ_NONE;
    if (control->api < s->sizes.api_cnt && control->handle.slot < s->sizes.request_max)
        idx = *request_entry(s, control->api, control->handle.slot);
    if (idx == TDM_SEQ_NONE || s->seq[idx].handle.generation != control->handle.generation ||
        control->kind > TDM_CONTROL_STOP_HIT) {
        tdm_sched_count(s, TDM_DROP_stale_handle);
        return;
    }
    if (control->kind == TDM_CONTROL_STOP_HIT)
        tdm_sched_end(s, idx, TDM_SEQ_DONE, TDM_FINISH_STOP, TDM_REASON_NONE);
    else
        tdm_sched_end(s, idx, TDM_SEQ_CANCELLED, TDM_FINISH_CANCELLED, TDM_REASON_NONE);
}

void tdm_sched_clock_ratio(tdm_sched_t *s, double ratio) {
    s->clock_ratio = ratio > 0.1 ? TDM_MIN(ratio, 10.0) : 0.1;
}

void tdm_sched_throttled(tdm_sched_t *s, int is_throttled) {
    s->is_throttled = is_throttled != 0;
}

void tdm_sched_live_set(tdm_sched_t *s, const tdm_sched_live_t *live) {
    for (uint32_t i = 0; i < TDM_TENANT_MAX; i++)
        if (!(s->live.tenant[i].token_per_s > 0.0)) /* a new bucket is full */
            s->bucket[i] = (tdm_bucket_t){.level = live->tenant[i].token_burst, .at_ns = s->now_ns};
    live_take(s, live);
}

void tdm_sched_drain_set(tdm_sched_t *s, int is_draining) {
    s->is_draining = is_draining ? 1u : 0u;
}

/* --- outputs ------------------------------------------------------------- */

const tdm_event_t *tdm_sched_event_peek(const tdm_sched_t *s, uint32_t api) {
    const tdm_outbox_t *box = &s->outbox[api];
    TDM_CHECK(api < s->sizes.api_cnt);
    return box->head == box->tail ? NULL : &box->event[box->tail & box->mask];
}

void tdm_sched_event_drop(tdm_sched_t *s, uint32_t api) {
    tdm_outbox_t *box = &s->outbox[api];
    TDM_CHECK(api < s->sizes.api_cnt && box->head != box->tail);
    if (box->event[box->tail & box->mask].kind == TDM_EVENT_TOKEN) box->token_cnt--;
    box->tail++;
}

void tdm_sched_record_push(tdm_sched_t *s, const tdm_sched_record_t *record) {
    s->record[s->record_head++ % TDM_SCHED_RECORD_MAX] = *record;
    if (s->record_head - s->record_tail > TDM_SCHED_RECORD_MAX) s->record_tail++;
}

int tdm_sched_record_pop(tdm_sched_t *s, tdm_sched_record_t *record) {
    if (s->record_head == s->record_tail) return 0;
    *record = s->record[s->record_tail++ % TDM_SCHED_RECORD_MAX];
    return 1;
}

void tdm_sched_oldest(const tdm_sched_t *s, int64_t accepted_ns[TDM_SLO_CLASS_MAX]) {
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) accepted_ns[k] = TDM_TIME_NEVER;
    if (s->waiting_cnt == 0) return;
    for (uint32_t i = 0; (i = tdm_queue_next(&s->queues, i)) < TDM_QUEUE_CNT; i++) {
        uint32_t idx = tdm_order_first_waiting(&s->queues, s->seq, i), k = tdm_queue_class(i);
        if (idx != TDM_SEQ_NONE) accepted_ns[k] = TDM_MIN(accepted_ns[k], s->seq[idx].accepted_ns);
    }
}

const tdm_sched_stats_t *tdm_sched_stats(tdm_sched_t *s) {
    tdm_sched_stats_t *t = &s->stats;
    t->waiting_cnt = s->waiting_cnt;
    t->running_cnt = s->running_cnt;
    t->decode_cnt = 0;
    for (uint32_t i = 0; i < s->sizes.seq_max; i++)
        if (s->slot_seq[i] != TDM_SEQ_NONE)
            t->decode_cnt += s->seq[s->slot_seq[i]].state == TDM_SEQ_DECODE;
    t->flight_cnt = s->flight_cnt;
    t->waiting_tokens = s->waiting_tokens;
    t->backlog_tokens = tdm_order_backlog(&s->queues, TDM_SLO_CLASS_MAX - 1);
    t->page_cnt = s->kv.page_cnt;
    t->page_free = s->kv.free_cnt;
    t->page_fenced = s->kv.fenced_cnt;
    t->page_cached = s->kv.cached_cnt;
    t->page_idle = s->kv.prefix.idle_cnt;
    t->page_held = s->kv.page_cnt - s->kv.free_cnt - s->kv.fenced_cnt - s->kv.cached_cnt;
    t->cache_evict_cnt = s->kv.prefix.evicted_cnt;
    t->cache_flush_cnt = s->kv.prefix.flushed_cnt;
    t->page_promised = s->kv.promised_cnt;
    t->epoch = s->epoch;
    t->is_up = s->is_up;
    t->is_draining = s->is_draining;
    t->correction = s->predict.all.correction;
    t->cap_quantile = s->cap.quantile;
    t->cap_alpha = s->cap.alpha;
    t->is_drifting = s->cap.is_drifting;
    return t;
}
