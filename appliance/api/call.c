/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about an exchange: its head, records, an error, its outcome,
   and the words of them all to the door. */
#include "appliance/api/tile_private.h"

#include "appliance/base/clock.h"

#include <stdio.h>
#include <string.h>

/* Records of a body that is whole from the start. */
#define BODY_RECORD_MAX 4096u

/* --- words to the door ------------------------------------------------- */

void tdm_call_send(tdm_api_tile_t *t, tdm_call_t *c, uint32_t flags) {
    c->flags |= flags;
    if (c->is_queued) return;
    c->is_queued = 1;
    tdm_queue_push(&t->egress, (uint32_t)(c - t->call));
}

uint32_t tdm_poll_egress(tdm_api_tile_t *t) {
    uint32_t work = 0;
    for (uint32_t left = t->egress.cnt; left > 0; left--) {
        uint32_t idx = 0;
        (void)tdm_queue_pop(&t->egress, &idx);
        tdm_call_t *c = &t->call[idx];
        tdm_egress_t word = {.handle = c->exchange->handle, .flags = c->flags};
        if (!tdm_ring_push(t->wires.door[c->door].egress, t->config.api_idx, &word)) {
            tdm_store_relaxed(&t->stats.egress_full_cnt, t->stats.egress_full_cnt + 1);
            tdm_queue_push(&t->egress, idx);
            continue;
        }
        work++;
        c->is_queued = 0;
        c->flags = 0;
        if (!(word.flags & TDM_EGRESS_END)) continue;
        c->exchange = NULL;
        t->open_call_cnt--;
        tdm_store_relaxed(&t->stats.exchange_end_cnt, t->stats.exchange_end_cnt + 1);
    }
    return work;
}

/* --- answers ----------------------------------------------------------- */

static int is_printable(const char *s) {
    if (!*s) return 0;
    for (; *s; s++)
        if (*s <= 0x20 || *s >= 0x7f) return 0;
    return 1;
}

void tdm_call_head(tdm_api_tile_t *t, tdm_call_t *c, uint16_t status, uint16_t content_type,
                   int64_t content_sz) {
    tdm_exchange_t *x = c->exchange;
    int64_t spent_ns = t->now_ns - x->arrival_ns;
    x->slo_class = c->slo_class;
    x->head = (tdm_reply_head_t){
        .status = status,
        .content_type = content_type,
        .content_sz = content_sz,
        .is_stream = content_type == TDM_CONTENT_EVENT_STREAM,
        .processing_ms = spent_ns > 0 ? (uint32_t)(spent_ns / TDM_NS_PER_MS) : 0,
    };
    if (is_printable(x->request_id))
        memcpy(x->head.request_id, x->request_id, sizeof x->head.request_id);
    else
        (void)snprintf(x->head.request_id, sizeof x->head.request_id, "req-%016llx",
                       (unsigned long long)tdm_rng_next(&t->rng));
    c->has_head = 1;
    tdm_call_send(t, c, TDM_EGRESS_HEAD | TDM_EGRESS_BODY_DONE);
}

void tdm_call_write(tdm_api_tile_t *t, tdm_call_t *c, const tdm_writer_t *w, uint32_t token_cnt) {
    TDM_CHECK(!w->is_cut);
    int is_written = tdm_pipe_write(c->exchange->reply, w->buf, w->sz, token_cnt);
    TDM_CHECK(is_written);
    tdm_call_send(t, c, TDM_EGRESS_RECORD);
}

int tdm_call_has_room(const tdm_call_t *c) {
    const tdm_pipe_t *p = c->exchange->reply;
    return p->capacity - tdm_pipe_used(p) >= TDM_PIPE_ROOM;
}

/* end_with sends a small body as records and ends the call.  The pipe is
   empty: nothing was written before a body that is whole. */
static void end_with(tdm_api_tile_t *t, tdm_call_t *c, const tdm_writer_t *w) {
    TDM_CHECK(!w->is_cut);
    if (c->exchange->method != TDM_METHOD_HEAD) {
        for (uint32_t at = 0; at < w->sz;) {
            uint32_t sz = TDM_MIN(w->sz - at, BODY_RECORD_MAX);
            tdm_writer_t part = {.buf = w->buf + at, .sz = sz, .max = sz};
            tdm_call_write(t, c, &part, 0);
            at += sz;
        }
    }
    tdm_call_send(t, c, TDM_EGRESS_END);
}

void tdm_call_body(tdm_api_tile_t *t, tdm_call_t *c, uint16_t status, const tdm_writer_t *w) {
    tdm_call_head(t, c, status, TDM_CONTENT_JSON, w->sz);
    end_with(t, c, w);
}

void tdm_refusal_count(tdm_api_tile_t *t, tdm_reason_t reason) {
    tdm_count(t->wires.block, TDM_METRIC_refusals_total, tdm_label_reason(reason), 1);
}

uint32_t tdm_label_of_api(tdm_endpoint_t endpoint) {
    if (endpoint == TDM_ENDPOINT_CHAT) return TDM_LABEL_API_openai_chat;
    if (endpoint == TDM_ENDPOINT_COMPLETIONS) return TDM_LABEL_API_openai_completions;
    return TDM_LABEL_API_other;
}

void tdm_call_outcome(tdm_api_tile_t *t, tdm_call_t *c, uint32_t outcome) {
    if (!c->is_counted) return;
    c->is_counted = 0;
    tdm_block_begin(t->wires.block);
    tdm_count(t->wires.block, TDM_METRIC_requests_total,
              tdm_series3(TDM_METRIC_requests_total, tdm_label_of_api((tdm_endpoint_t)c->endpoint),
                          c->slo_class, outcome),
              1);
    tdm_gauge_set(t->wires.block, TDM_METRIC_requests_open, 0, --t->request_open_cnt);
    tdm_block_end(t->wires.block);
}

void tdm_call_received(tdm_api_tile_t *t, tdm_call_t *c) {
    c->is_counted = 1;
    tdm_block_begin(t->wires.block);
    tdm_count(t->wires.block, TDM_METRIC_requests_received_total,
              tdm_label_of_api((tdm_endpoint_t)c->endpoint), 1);
    tdm_gauge_set(t->wires.block, TDM_METRIC_requests_open, 0, ++t->request_open_cnt);
    tdm_block_end(t->wires.block);
}

/* A client that may try again is told when; 408 is the client's own. */
static uint32_t retry_after(const tdm_api_tile_t *t, const tdm_refusal_t *r, int http) {
    if (http != 429 && http != 503) return 0;
    return r->retry_after_ms ? r->retry_after_ms : t->config.retry_after_ms;
}

void tdm_call_refuse(tdm_api_tile_t *t, tdm_call_t *c, tdm_refusal_t *r) {
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_error(&w, r);
    int http = tdm_reason_http(r->reason);
    tdm_refusal_count(t, r->reason);
    tdm_call_outcome(
        t, c, http >= 500 && http != 503 ? TDM_LABEL_OUTCOME_error : TDM_LABEL_OUTCOME_rejected);
    tdm_call_head(t, c, (uint16_t)http, TDM_CONTENT_JSON, w.sz);
    c->exchange->head.retry_after_ms = retry_after(t, r, http);
    end_with(t, c, &w);
}
