/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange arrives, or its client leaves. */
#include "appliance/api/media.h"
#include "appliance/api/tile_private.h"
#include "appliance/base/clock.h"

#include <stdio.h>

/* Bytes of bodies after which a poll takes no further arrival: reading
   and tokenising take about 30 ns a byte, and streams wait meanwhile. */
#define POLL_BODY_MAX (32u * 1024u)

/* --- refusals ---------------------------------------------------------- */

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

static void answer_models(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_writer_t w;
    tdm_writer_init(&w, t->scratch, sizeof t->scratch);
    tdm_frame_models(&w, t->config.model_name, t->config.model_name_cnt, t->config.loaded_s,
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
        tdm_frame_model(&w, t->config.model_name[i], t->config.loaded_s, t->config.context_max);
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

/* refuse_coded: RFC 9110 section 15.5.16. */
static void refuse_coded(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_refusal_t r;
    tdm_refuse_text(&r, TDM_REFUSE_unsupported_media_type, "", TDM_MEDIA_CODED);
    tdm_call_refuse(t, c, &r);
    c->exchange->head.is_coded = 1;
}

static void route(tdm_api_tile_t *t, tdm_call_t *c) {
    tdm_exchange_t *x = c->exchange;
    tdm_route_match_t m = tdm_route_find(x->path);
    c->endpoint = (uint16_t)m.endpoint;
    int is_post = (m.allow & TDM_ALLOW(TDM_METHOD_POST)) != 0;
    if (is_post && x->method == TDM_METHOD_POST) tdm_call_received(t, c);
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
    if (!tdm_media_is_json(x->content_type))
        refuse(t, c, TDM_REFUSE_unsupported_media_type);
    else if (!tdm_media_is_plain(x->content_coding))
        refuse_coded(t, c);
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
