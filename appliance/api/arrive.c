/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange arrives, or its client leaves. */
#include "appliance/api/tile_private.h"

#include "appliance/base/clock.h"

#include <stdio.h>
#include <strings.h>

/* Records of a body that is whole from the start. */
#define BODY_RECORD_MAX 4096u

/* Bytes of bodies after which a poll takes no further arrival: reading
   and tokenising take about 30 ns a byte, and streams wait meanwhile. */
#define POLL_BODY_MAX (32u * 1024u)

/* --- answers ---------------------------------------------------------- */

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

/* count_received begins what tdm_call_outcome ends. */
static void count_received(tdm_api_tile_t *t, tdm_call_t *c) {
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

static void refuse(tdm_api_tile_t *t, tdm_call_t *c, tdm_reason_t reason) {
    tdm_refusal_t r;
    tdm_refuse(&r, reason, "");
    tdm_call_refuse(t, c, &r);
}

/* refuse_stranger: a page of another's in a browser of this machine is one. */
static void refuse_stranger(tdm_api_tile_t *t, tdm_call_t *c, const tdm_auth_t *auth) {
    tdm_refusal_t r;
    if (c->exchange->is_misnamed && auth->key_cnt == 0)
        tdm_refuse_text(&r, TDM_REFUSE_auth, "",
                        "Host or Origin name another machine than this one: ask by address, by "
                        "localhost or by a name of http.hosts");
    else
        tdm_refuse(&r, TDM_REFUSE_auth, "");
    tdm_call_refuse(t, c, &r);
}

static void refuse_method(tdm_api_tile_t *t, tdm_call_t *c, uint16_t allow) {
    refuse(t, c, TDM_REFUSE_method_not_allowed);
    c->exchange->head.allow = allow;
}

/* --- small documents -------------------------------------------------- */

static int64_t wall_s(const tdm_api_tile_t *t) {
    return (t->now_ns + t->config.wall_offset_ns) / TDM_NS_PER_S;
}

static void answer_models(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_models(&w, t->config.model_name, t->config.model_name_cnt, wall_s(t),
                     t->config.context_max);
    tdm_call_body(t, c, 200, &w);
}

static void answer_model(tdm_api_tile_t *t, tdm_call_t *c, const char *tail) {
    char name[TDM_API_MODEL_NAME_SZ];
    int32_t sz = tdm_percent_decode(tail, name, sizeof name);
    for (uint32_t i = 0; sz > 0 && i < t->config.model_name_cnt; i++) {
        if (strcmp(t->config.model_name[i], name) != 0) continue;
        tdm_writer_t w;
        tdm_writer_init(&w, t->scratch, sizeof t->scratch);
        tdm_frame_model(&w, t->config.model_name[i], wall_s(t), t->config.context_max);
        tdm_call_body(t, c, 200, &w);
        return;
    }
    refuse(t, c, TDM_REFUSE_model_not_found);
}

/* readiness gives the name of the state and its HTTP status. */
static const char *readiness(const tdm_api_tile_t *t, uint16_t *status) {
    const tdm_vitals_t *v = t->wires.vitals;
    uint32_t refusal = tdm_load_relaxed(&v->refusal);
    uint32_t pending_cnt = tdm_load_acquire(&v->pending_cnt); /* V1: pairs with set_pending */
    int64_t since_ns = t->now_ns - tdm_load_relaxed(&v->progress_ns);
    *status = 503;
    if (refusal) return tdm_reason_name((tdm_reason_t)refusal);
    if (pending_cnt > 0 && since_ns > t->config.stall_max_ns) return "stalled";
    if (tdm_load_relaxed(&v->is_port_stuck)) return "port_stuck";
    *status = 200;
    return "ready";
}

static void answer_state(tdm_api_tile_t *t, tdm_call_t *c, int is_ready) {
    uint16_t status = 200;
    const char *state = is_ready ? readiness(t, &status) : "ok";
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_write_lit(&w, "{\"status\":");
    tdm_write_string(&w, state);
    tdm_write_lit(&w, "}");
    tdm_call_body(t, c, status, &w);
    if (status == 503) c->exchange->head.retry_after_ms = t->config.retry_after_ms;
}

static void answer_version(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_write_lit(&w, "{\"version\":");
    tdm_write_string(&w, t->config.version);
    tdm_write_lit(&w, "}");
    tdm_call_body(t, c, 200, &w);
}

/* --- routing ---------------------------------------------------------- */

static void answer_preflight(tdm_api_tile_t *t, tdm_call_t *c, uint16_t allow) {
    tdm_call_head(t, c, 204, TDM_CONTENT_NONE, 0);
    c->exchange->head.allow =
        allow ? allow : (uint16_t)(TDM_ALLOW_GET | TDM_ALLOW(TDM_METHOD_POST));
    tdm_call_send(t, c, TDM_EGRESS_END);
}

static void answer_not_found(tdm_api_tile_t *t, tdm_call_t *c, const char *hint) {
    tdm_refusal_t r;
    tdm_refuse(&r, TDM_REFUSE_not_found, "");
    if (hint) (void)snprintf(r.text, sizeof r.text, "no such path; did you mean %s", hint);
    tdm_call_refuse(t, c, &r);
}

static void answer_get(tdm_api_tile_t *t, tdm_call_t *c, const tdm_route_match_t *m) {
    switch (m->endpoint) {
    case TDM_ENDPOINT_MODELS: answer_models(t, c); break;
    case TDM_ENDPOINT_MODEL: answer_model(t, c, m->tail); break;
    case TDM_ENDPOINT_HEALTH: answer_state(t, c, 0); break;
    case TDM_ENDPOINT_READY: answer_state(t, c, 1); break;
    default: answer_version(t, c); break;
    }
}

/* is_json says whether a Content-Type names JSON; none counts as JSON. */
static int is_json(const char *type) {
    static const char json[] = "application/json";
    while (*type == ' ') type++;
    if (!*type) return 1;
    if (strncasecmp(type, json, sizeof json - 1) != 0) return 0;
    char next = type[sizeof json - 1];
    return next == 0 || next == ';' || next == ' ';
}

static void route(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_exchange_t *x = c->exchange;
    tdm_route_match_t m = tdm_route_find(x->path);
    c->endpoint = (uint16_t)m.endpoint;
    int is_post = (m.allow & TDM_ALLOW(TDM_METHOD_POST)) != 0;
    if (is_post && x->method == TDM_METHOD_POST) count_received(t, c);
    if (x->refuse) {
        refuse(t, c, (tdm_reason_t)x->refuse);
        return;
    }
    if (x->is_truncated) {
        refuse(t, c, TDM_REFUSE_header_too_large);
        return;
    }
    if (x->method == TDM_METHOD_OPTIONS) {
        answer_preflight(t, c, m.allow);
        return;
    }
    if (m.endpoint == TDM_ENDPOINT_NONE) {
        answer_not_found(t, c, m.hint);
        return;
    }
    if (!(m.allow & TDM_ALLOW(x->method))) {
        refuse_method(t, c, m.allow);
        return;
    }
    static const tdm_auth_t open_auth;
    const tdm_auth_t *auth = t->wires.auth ? t->wires.auth : &open_auth;
    int tenant = m.needs_key ? tdm_auth_check(auth, x->authorization, x->is_trusted_peer) : 0;
    if (tenant < 0) {
        refuse_stranger(t, c, auth);
        return;
    }
    if (!is_post) {
        answer_get(t, c, &m);
        return;
    }
    if (!is_json(x->content_type))
        refuse(t, c, TDM_REFUSE_unsupported_media_type);
    else if (x->body_sz > t->config.body_max)
        refuse(t, c, TDM_REFUSE_body_too_large);
    else
        tdm_request_start(t, c, tenant);
}

/* --- arrivals and hang-ups -------------------------------------------- */

static void count_stale(tdm_api_tile_t *t) {
    tdm_store_relaxed(&t->stats.stale_cnt, t->stats.stale_cnt + 1);
}

static tdm_call_t *call_of(tdm_api_tile_t *t, uint32_t door, uint32_t slot) {
    if (door >= t->wires.door_cnt || slot >= t->wires.door[door].slot_cnt) return NULL;
    return &t->call[t->call_base[door] + slot];
}

static void arrive(tdm_api_tile_t *t, const tdm_arrival_t *a) {
    tdm_exchange_t *x = a->exchange;
    tdm_call_t *c = call_of(t, x->door, x->handle.slot);
    if (!c || c->exchange || x->handle.generation != a->generation) {
        count_stale(t);
        return;
    }
    TDM_CHECK(x->reply && x->reply->capacity >= TDM_API_PIPE_MIN);
    uint32_t hangup = c->hangup;
    *c = (tdm_call_t){.exchange = x,
                      .generation = a->generation,
                      .slot = TDM_NONE,
                      .door = x->door,
                      .slo_class = t->config.class_default};
    t->open_call_cnt++;
    tdm_store_relaxed(&t->stats.exchange_cnt, t->stats.exchange_cnt + 1);
    if (hangup == a->generation) { /* the hang-up overtook its arrival */
        tdm_store_relaxed(&t->stats.hangup_cnt, t->stats.hangup_cnt + 1);
        tdm_refusal_count(t, TDM_REFUSE_client_gone);
        tdm_call_send(t, c, TDM_EGRESS_BODY_DONE | TDM_EGRESS_END | TDM_EGRESS_ABORT);
        return;
    }
    route(t, c);
}

uint32_t tdm_poll_arrivals(tdm_api_tile_t *t) {
    uint32_t work = 0;
    uint64_t body_sz = 0;
    tdm_arrival_t a;
    while (work < t->config.arrival_batch && body_sz < POLL_BODY_MAX &&
           tdm_ring_pop(t->wires.arrivals, &a)) {
        body_sz += a.exchange->body_sz;
        arrive(t, &a);
        work++;
    }
    return work;
}

/* drop_slot lets a call's slot go: at once where the scheduler has no part
   in it, else with a CANCEL and the wait for its last word. */
static void drop_slot(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_slot_t *s = &t->slot[c->slot];
    c->slot = TDM_NONE;
    s->call = TDM_NONE;
    if (s->state == TDM_SLOT_SUBMITTED || s->state == TDM_SLOT_RUNNING)
        tdm_slot_control(t, s, TDM_CONTROL_CANCEL);
    else
        tdm_slot_free(t, s);
}

static void hang_up(tdm_api_tile_t *t, uint32_t door, const tdm_hangup_t *h) {
    tdm_call_t *c = call_of(t, door, h->slot);
    if (!c) {
        count_stale(t);
        return;
    }
    if (h->generation != c->generation) {
        if ((int32_t)(h->generation - c->generation) > 0)
            c->hangup = h->generation;
        else
            count_stale(t);
        return;
    }
    if (!c->exchange || (c->flags & TDM_EGRESS_END)) return; /* the END crossed it */
    tdm_store_relaxed(&t->stats.hangup_cnt, t->stats.hangup_cnt + 1);
    if (c->slot != TDM_NONE) drop_slot(t, c);
    tdm_call_outcome(t, c, TDM_LABEL_OUTCOME_cancelled);
    tdm_refusal_count(t, TDM_REFUSE_client_gone);
    tdm_call_send(t, c, TDM_EGRESS_BODY_DONE | TDM_EGRESS_END | TDM_EGRESS_ABORT);
}

uint32_t tdm_poll_hangups(tdm_api_tile_t *t) {
    uint32_t work = 0;
    tdm_hangup_t h;
    for (uint32_t door = 0; door < t->wires.door_cnt; door++) {
        tdm_lane_t *lane = t->wires.hangups->lane[door];
        for (uint32_t i = 0; i < t->config.event_batch && tdm_lane_pop(lane, &h); i++) {
            hang_up(t, door, &h);
            work++;
        }
    }
    return work;
}
