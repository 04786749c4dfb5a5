/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every exchange is answered exactly once and every slot comes back,
   whoever leaves, refuses, stalls or talks about the past.
   Method: scripted doors and scheduler; rig_poll itself asserts that
   nothing follows an END and that no word names a stale exchange. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"

static const tdm_request_t *submitted(rig_t *r) {
    const tdm_request_t *q = rig_submit(r);
    assert_non_null(q);
    return q;
}

static const char *code_of(const rig_exchange_t *e) {
    static char code[64];
    json_t *v = json_loads(e->text, 0, NULL);
    assert_non_null(v);
    (void)snprintf(code, sizeof code, "%s",
                   json_string_value(json_object_get(json_object_get(v, "error"), "code")));
    json_decref(v);
    return code;
}

static uint64_t outcomes(const rig_t *r, uint32_t api, uint32_t outcome) {
    return rig_count(r, TDM_METRIC_requests_total,
                     tdm_series3(TDM_METRIC_requests_total, api, 0, outcome));
}

/* --- routes ----------------------------------------------------------- */

static void get_routes_answer(void **state) {
    (void)state;
    static const struct {
        const char *path;
        uint16_t status;
        const char *text;
    } c[] = {
        {"/health", 200, "{\"status\":\"ok\"}"},
        {"/ready", 200, "{\"status\":\"ready\"}"},
        {"/version", 200, "{\"version\":\"0.1.0\"}"},
        {"/v1/models/tiny", 200,
         "{\"id\":\"tiny\",\"object\":\"model\",\"created\":1700000005,\"owned_by\":\"tandem\","
         "\"max_model_len\":512}"},
        {"/v1/models/org/tiny-alias", 200,
         "{\"id\":\"org/tiny-alias\",\"object\":\"model\",\"created\":1700000005,"
         "\"owned_by\":\"tandem\",\"max_model_len\":512}"},
        {"/v1/models/org%2Ftiny-alias", 200,
         "{\"id\":\"org/tiny-alias\",\"object\":\"model\",\"created\":1700000005,"
         "\"owned_by\":\"tandem\",\"max_model_len\":512}"},
        {"/v1/models", 200,
         "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":"
         "1700000005,\"owned_by\":\"tandem\",\"max_model_len\":512},{\"id\":\"org/tiny-alias\","
         "\"object\":\"model\",\"created\":1700000005,\"owned_by\":\"tandem\","
         "\"max_model_len\":512}]}"},
    };
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_exchange_t *e = rig_get(&r, c[i].path);
        assert_int_equal(e->x.head.status, c[i].status);
        assert_string_equal(e->text, c[i].text);
        assert_int_equal(e->x.head.content_sz, e->text_sz);
        assert_string_equal(e->x.head.request_id, "rq");
        assert_int_equal(e->end_cnt, 1);
        /* HEAD: the same head and no byte */
        int64_t content_sz = e->x.head.content_sz;
        e = rig_exchange_fresh(&r, 0);
        e->x.method = TDM_METHOD_HEAD;
        strcpy(e->x.path, c[i].path);
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, c[i].status);
        assert_int_equal(e->x.head.content_sz, content_sz);
        assert_int_equal(e->text_sz, 0);
        assert_int_equal(e->end_cnt, 1);
    }
    rig_stop(&r);
}

static void wrong_paths_and_methods_are_told_so(void **state) {
    (void)state;
    static const struct {
        const char *path;
        tdm_method_t method;
        tdm_reason_t reason;
        uint16_t allow;
        const char *hint;
    } c[] = {
        {"/", TDM_METHOD_GET, TDM_REFUSE_not_found, 0, NULL},
        {"/nowhere", TDM_METHOD_POST, TDM_REFUSE_not_found, 0, NULL},
        {"/v1", TDM_METHOD_GET, TDM_REFUSE_not_found, 0, NULL},
        {"/v1/models/", TDM_METHOD_GET, TDM_REFUSE_not_found, 0, NULL},
        {"/v1/models/gpt-4", TDM_METHOD_GET, TDM_REFUSE_model_not_found, 0, NULL},
        {"/v1/models/%zz", TDM_METHOD_GET, TDM_REFUSE_model_not_found, 0, NULL},
        {"/v1/models/tiny%00", TDM_METHOD_GET, TDM_REFUSE_model_not_found, 0, NULL},
        {"/v1/../health", TDM_METHOD_GET, TDM_REFUSE_not_found, 0, NULL},
        {"/chat/completions", TDM_METHOD_POST, TDM_REFUSE_not_found, 0, CHAT},
        {"/completions", TDM_METHOD_POST, TDM_REFUSE_not_found, 0, COMP},
        {"/models", TDM_METHOD_GET, TDM_REFUSE_not_found, 0, "/v1/models"},
        {CHAT, TDM_METHOD_GET, TDM_REFUSE_method_not_allowed, 4 | 8, NULL},
        {CHAT, TDM_METHOD_OTHER, TDM_REFUSE_method_not_allowed, 4 | 8, NULL},
        {COMP, TDM_METHOD_HEAD, TDM_REFUSE_method_not_allowed, 4 | 8, NULL},
        {"/v1/models", TDM_METHOD_POST, TDM_REFUSE_method_not_allowed, 1 | 2 | 8, NULL},
        {"/health", TDM_METHOD_POST, TDM_REFUSE_method_not_allowed, 1 | 2 | 8, NULL},
        {"/tokenize", TDM_METHOD_GET, TDM_REFUSE_method_not_allowed, 4 | 8, NULL},
    };
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        e->x.method = (uint16_t)c[i].method;
        strcpy(e->x.path, c[i].path);
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, tdm_reason_http(c[i].reason));
        assert_int_equal(e->x.head.allow, c[i].allow);
        assert_int_equal(e->end_cnt, 1);
        if (c[i].method == TDM_METHOD_HEAD) continue;
        assert_string_equal(code_of(e), tdm_reason_name(c[i].reason));
        assert_true(!c[i].hint || strstr(e->text, c[i].hint));
    }
    rig_stop(&r);
}

static void media_types_other_than_json_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *type;
        uint16_t status;
    } c[] = {{"", 0},
             {"application/json", 0},
             {"application/json; charset=utf-8", 0},
             {"Application/JSON;charset=x", 0},
             {"application/jsonp", 415},
             {"text/plain", 415},
             {"application/x-www-form-urlencoded", 415},
             {"multipart/form-data; boundary=application/json", 415}};
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        strcpy(e->x.path, COMP);
        strcpy(e->x.content_type, c[i].type);
        rig_body(e, "{\"prompt\":\"a\"}", 14);
        rig_push(&r, e);
        rig_settle(&r);
        const tdm_request_t *q = rig_submit(&r);
        assert_true((q != NULL) == (c[i].status == 0));
        if (q) rig_serve(&r, q, "x", TDM_FINISH_STOP);
        assert_int_equal(e->x.head.status, q ? 200 : 415);
    }
    rig_stop(&r);
}

static void what_the_door_refused_is_said_as_it_is(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const tdm_reason_t reason[] = {TDM_REFUSE_body_too_large, TDM_REFUSE_bad_request,
                                          TDM_REFUSE_request_timeout, TDM_REFUSE_exchange_limit};
    for (uint32_t i = 0; i < TDM_COUNT_OF(reason); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 1);
        strcpy(e->x.path, COMP);
        e->x.refuse = (uint16_t)reason[i];
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, tdm_reason_http(reason[i]));
        assert_string_equal(code_of(e), tdm_reason_name(reason[i]));
    }
    rig_exchange_t *e = rig_exchange_fresh(&r, 1);
    strcpy(e->x.path, COMP);
    e->x.is_truncated = 1;
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 431);
    rig_stop(&r);
}

static void documents_come_through_their_door_only(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.documents = 200 * 1024; /* more than a pipe holds */
    rig_start(&r);
    rig_exchange_t *e = rig_exchange_fresh(&r, 1);
    e->x.method = TDM_METHOD_GET;
    strcpy(e->x.path, "/metrics");
    strcpy(e->x.accept, "application/openmetrics-text;version=1.0.0");
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_OPENMETRICS);
    assert_int_equal(e->text_sz, 200 * 1024);
    assert_int_equal(e->x.head.content_sz, 200 * 1024);
    assert_int_equal(e->end_cnt, 1);
    assert_int_equal(rig_get(&r, "/other")->x.head.status, 404);
    /* the HTTP/3 door serves none by default */
    e = rig_exchange_fresh(&r, 0);
    e->x.method = TDM_METHOD_GET;
    strcpy(e->x.path, "/metrics");
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 404);
    /* two at once, a third waits for neither; a hang-up frees its place */
    rig_exchange_t *stuck[3];
    for (uint32_t i = 0; i < 3; i++) {
        stuck[i] = rig_exchange_fresh(&r, 1);
        stuck[i]->x.method = TDM_METHOD_GET;
        stuck[i]->is_stuck = 1;
        strcpy(stuck[i]->x.path, "/metrics");
        rig_push(&r, stuck[i]);
    }
    rig_settle(&r);
    assert_int_equal(stuck[1]->end_cnt, 0);
    assert_int_equal(stuck[2]->x.head.status, 503);
    assert_true(tdm_api_tile_next_ns(r.tile, r.now_ns) < TDM_TIME_NEVER);
    rig_hang_up(&r, stuck[0]);
    rig_settle(&r);
    assert_true(stuck[0]->flags & TDM_EGRESS_ABORT);
    stuck[1]->is_stuck = 0;
    rig_settle(&r);
    assert_int_equal(stuck[1]->text_sz, 200 * 1024);
    assert_int_equal(rig_get(&r, "/metrics")->x.head.status, 200);
    rig_stop(&r);
}

static void keys_open_what_needs_them(void **state) {
    (void)state;
    static const struct {
        const char *path;
        const char *authorization;
        int is_trusted;
        uint16_t status;
    } c[] = {
        {"/v1/models", "Bearer k", 0, 200},
        {"/v1/models", "bearer   k", 0, 200},
        {"/v1/models", "Bearer K", 0, 401},
        {"/v1/models", "Bearer k ", 0, 401},
        {"/v1/models", "Basic k", 0, 401},
        {"/v1/models", "k", 0, 401},
        {"/v1/models", "", 1, 401},
        {"/v1/models", "Bearer ", 0, 401},
        {"/health", "", 0, 200},
        {"/ready", "", 0, 200},
        {"/version", "", 0, 200},
    };
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_exchange_fresh(&r, 0);
    e->x.method = TDM_METHOD_GET;
    e->x.is_trusted_peer = 0;
    strcpy(e->x.path, "/v1/models");
    strcpy(e->x.authorization, "Bearer anything");
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 401); /* no key configured: trusted peers only */
    assert_string_equal(code_of(e), "auth");
    tdm_error_t err = {0};
    static const char keys[] =
        "t 8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a\n";
    assert_int_equal(tdm_auth_parse(&r.auth, keys, sizeof keys - 1, &err), TDM_OK);
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        e = rig_exchange_fresh(&r, 0);
        e->x.method = TDM_METHOD_GET;
        e->x.is_trusted_peer = (uint16_t)c[i].is_trusted;
        strcpy(e->x.path, c[i].path);
        strcpy(e->x.authorization, c[i].authorization);
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, c[i].status);
    }
    rig_stop(&r);
}

/* --- admission -------------------------------------------------------- */

static void the_status_waits_for_the_verdict(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const struct {
        tdm_reason_t reason;
        uint32_t hint_ms;
        uint32_t retry_ms;
    } c[] = {{TDM_REFUSE_waiting_full, 250, 250},
             {TDM_REFUSE_kv_full, 0, 1000},
             {TDM_REFUSE_kv_never, 0, 0},
             {TDM_REFUSE_deadline_unreachable, 40, 40},
             {TDM_REFUSE_decode_over_budget, 0, 1000},
             {TDM_REFUSE_tenant_rate, 0, 1000},
             {TDM_REFUSE_executor_down, 0, 1000}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            rig_exchange_t *e = rig_post(
                &r, COMP, is_stream ? "{\"prompt\":\"a\",\"stream\":true}" : "{\"prompt\":\"a\"}");
            rig_settle(&r);
            assert_int_equal(e->flags & TDM_EGRESS_HEAD, 0);
            assert_true(e->flags & TDM_EGRESS_BODY_DONE);
            rig_refuse(&r, submitted(&r), c[i].reason, c[i].hint_ms);
            rig_settle(&r);
            assert_int_equal(e->x.head.status, tdm_reason_http(c[i].reason));
            assert_int_equal(e->x.head.retry_after_ms, c[i].retry_ms);
            assert_string_equal(code_of(e), tdm_reason_name(c[i].reason));
            assert_int_equal(e->end_cnt, 1);
        }
    }
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

static void full_tables_and_rings_are_answers(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.request_max = 4;
    r.config.id_slab_sz = 3 * 4096; /* three requests */
    r.request_depth = 2;            /* lanes hold what they say */
    rig_start(&r);
    rig_exchange_t *e[4];
    const tdm_request_t *q[4] = {0};
    for (uint32_t i = 0; i < 2; i++) e[i] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(code_of(e[2]), "queue_full");
    assert_int_equal(e[2]->x.head.status, 429);
    for (uint32_t i = 0; i < 2; i++) q[i] = submitted(&r);
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q[2] = submitted(&r);
    e[3] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(code_of(e[3]), "prompt_memory");
    for (uint32_t i = 0; i < 3; i++) rig_serve(&r, q[i], "x", TDM_FINISH_LENGTH);
    assert_int_equal(tdm_api_tile_stats(r.tile)->id_slab_used, 0);
    rig_stop(&r);

    rig_default(&r);
    r.config.request_max = 2;
    rig_start(&r);
    for (uint32_t i = 0; i < 3; i++) e[i] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(code_of(e[2]), "request_slots");
    for (uint32_t i = 0; i < 2; i++) rig_serve(&r, submitted(&r), "x", TDM_FINISH_LENGTH);
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, submitted(&r), "x", TDM_FINISH_LENGTH);
    assert_int_equal(e[2]->x.head.status, 200);
    rig_stop(&r);
}

static void starting_and_draining_refuse_generation(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const tdm_reason_t reason[] = {TDM_REFUSE_starting, TDM_REFUSE_draining};
    for (uint32_t i = 0; i < 2; i++) {
        r.vitals.refusal = reason[i];
        rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
        assert_int_equal(e->x.head.status, 503);
        assert_string_equal(code_of(e), tdm_reason_name(reason[i]));
        assert_int_equal(e->x.head.retry_after_ms, 1000);
        assert_int_equal(rig_get(&r, "/ready")->x.head.status, 503);
        assert_int_equal(rig_get(&r, "/health")->x.head.status, 200);
    }
    /* an executor restart: not ready, but requests wait for it */
    r.vitals.refusal = TDM_REFUSE_executor_down;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 503);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_non_null(rig_submit(&r));
    rig_stop(&r);
}

static void readiness_is_a_token_lately_or_nothing_pending(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    r.now_ns += 100 * TDM_NS_PER_S;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    rig_poll(&r);
    assert_int_equal(r.vitals.pending_cnt, 1);
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    r.now_ns += 11 * TDM_NS_PER_S;
    rig_exchange_t *e = rig_get(&r, "/ready");
    assert_int_equal(e->x.head.status, 503);
    assert_string_equal(e->text, "{\"status\":\"stalled\"}");
    rig_token(&r, q, 'x', 0);
    rig_poll(&r);
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    rig_end(&r, q, TDM_FINISH_STOP, 1);
    rig_poll(&r);
    assert_int_equal(r.vitals.pending_cnt, 0);
    r.now_ns += 11 * TDM_NS_PER_S;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    rig_stop(&r);
}

/* --- those who leave -------------------------------------------------- */

typedef enum moment {
    BEFORE_ARRIVAL, /* the hang-up is in its lane before the arrival is taken */
    QUEUED,         /* submitted, no verdict */
    ACCEPTED,
    IN_DECODE,
    FULL_PIPE,
    STOP_HIT,
    ENDED_UNREAD, /* END came, the pipe is full */
    ALL_DONE,
    MOMENT_CNT
} moment_t;

/* bring takes a fresh request to a moment; its request, NULL where none. */
static const tdm_request_t *bring(rig_t *r, rig_exchange_t **e, moment_t moment, int is_stream) {
    char body[128];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stream\":%s,\"stop\":\"##\"}",
                   is_stream ? "true" : "false");
    *e = rig_exchange_fresh(r, 0);
    strcpy((*e)->x.path, COMP);
    rig_body(*e, body, strlen(body));
    rig_push(r, *e);
    if (moment == BEFORE_ARRIVAL) return NULL;
    (*e)->is_stuck = moment == FULL_PIPE || moment == ENDED_UNREAD;
    rig_poll(r);
    const tdm_request_t *q = submitted(r);
    if (moment == QUEUED) return q;
    rig_accept(r, q);
    rig_settle(r);
    if (moment == ACCEPTED) return q;
    uint32_t cnt = moment == FULL_PIPE || moment == ENDED_UNREAD ? 400 : 3;
    for (uint32_t i = 0; i < cnt; i++) rig_token(r, q, 'a' + (int32_t)(i % 26), i);
    rig_settle(r);
    if (moment == STOP_HIT) {
        rig_token(r, q, '#', 3);
        rig_token(r, q, '#', 4);
        rig_settle(r);
    }
    if (moment == ENDED_UNREAD || moment == ALL_DONE) {
        rig_end(r, q, TDM_FINISH_STOP, cnt);
        rig_settle(r);
    }
    return q;
}

/* expect_controls reads the control lane: exactly these words. */
static void expect_controls(rig_t *r, const tdm_request_t *q, int stops, int cancels) {
    tdm_control_t c;
    while (rig_control(r, &c)) {
        assert_int_equal(c.handle.slot, q->handle.slot);
        assert_int_equal(c.handle.generation, q->handle.generation);
        if (c.kind == TDM_CONTROL_STOP_HIT) stops--;
        if (c.kind == TDM_CONTROL_CANCEL) cancels--;
    }
    assert_int_equal(stops, 0);
    assert_int_equal(cancels, 0);
}

/* Tokens that the scheduler has sent by then. */
static const uint32_t sent_by[MOMENT_CNT] = {
    [IN_DECODE] = 3, [FULL_PIPE] = 400, [STOP_HIT] = 5, [ENDED_UNREAD] = 400, [ALL_DONE] = 3};

static void leave_at(moment_t moment, int is_stream) {
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = NULL;
    const tdm_request_t *q = bring(&r, &e, moment, is_stream);
    tdm_handle_t handle = q ? q->handle : (tdm_handle_t){0};
    int was_over = e->end_cnt > 0;
    rig_hang_up(&r, e);
    rig_hang_up(&r, e); /* twice is once */
    rig_settle(&r);
    assert_int_equal(e->end_cnt, 1);
    assert_true(was_over || (e->flags & TDM_EGRESS_ABORT));
    assert_true(e->flags & TDM_EGRESS_BODY_DONE);
    int is_live = moment > BEFORE_ARRIVAL && moment < ENDED_UNREAD;
    if (moment == QUEUED) { /* CANCEL must not overtake the submit */
        expect_controls(&r, q, 0, 0);
        rig_accept(&r, q);
        rig_settle(&r);
    }
    if (is_live) {
        assert_int_equal(tdm_api_tile_open_cnt(r.tile), 1); /* the slot waits for END */
        expect_controls(&r, q, moment == STOP_HIT, 1);
        rig_token(&r, q, 'z', sent_by[moment]);
        rig_end(&r, q, TDM_FINISH_CANCELLED, 9);
        rig_settle(&r);
    }
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    assert_int_equal(r.vitals.pending_cnt, 0);
    assert_int_equal(tdm_api_tile_stats(r.tile)->id_slab_used, 0);
    assert_true(!is_live ||
                rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_cancelled) == 1);
    if (moment != BEFORE_ARRIVAL)
        assert_int_equal(
            outcomes(&r, TDM_LABEL_API_openai_completions, TDM_LABEL_OUTCOME_cancelled) +
                outcomes(&r, TDM_LABEL_API_openai_completions, TDM_LABEL_OUTCOME_stop),
            1);
    /* words about the past change nothing */
    uint64_t stale = tdm_api_tile_stats(r.tile)->stale_cnt;
    if (q) {
        tdm_request_t old = {.handle = handle};
        rig_token(&r, &old, 'z', 0);
        rig_end(&r, &old, TDM_FINISH_STOP, 0);
        rig_settle(&r);
        assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, stale + 2);
    }
    e = rig_post(&r, COMP, "{\"prompt\":\"ok\"}");
    rig_serve(&r, submitted(&r), "k", TDM_FINISH_STOP);
    assert_int_equal(e->x.head.status, 200);
    rig_stop(&r);
}

static void leaving_at_any_moment_frees_everything(void **state) {
    (void)state;
    for (int m = 0; m < MOMENT_CNT; m++) {
        leave_at((moment_t)m, 0);
        leave_at((moment_t)m, 1);
    }
}

static void a_hang_up_of_another_generation_is_stale(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    tdm_hangup_t old = {.exchange = &e->x, .generation = e->x.handle.generation - 1};
    assert_true(tdm_ring_push(&r.hangups, 0, &old));
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 1);
    assert_int_equal(tdm_api_tile_stats(r.tile)->hangup_cnt, 0);
    rig_serve(&r, submitted(&r), "x", TDM_FINISH_STOP);
    assert_int_equal(e->x.head.status, 200);
    /* an arrival that does not match its exchange */
    tdm_arrival_t a = {.exchange = &e->x, .generation = e->x.handle.generation + 1};
    assert_true(tdm_ring_push(&r.arrivals, 0, &a));
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 2);
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

/* The scheduler contradicts itself: counted, nothing breaks. */
static void events_out_of_turn_are_stale(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\",\"max_tokens\":2}");
    const tdm_request_t *q = submitted(&r);
    rig_token(&r, q, 'x', 0); /* before the verdict */
    rig_end(&r, q, TDM_FINISH_STOP, 0);
    rig_accept(&r, q);
    rig_accept(&r, q); /* twice */
    rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
    tdm_request_t nowhere = {.handle = {.slot = 999, .generation = 1}};
    rig_token(&r, &nowhere, 'x', 0);
    rig_token(&r, q, 'y', 1); /* a gap */
    rig_token(&r, q, 512, 0); /* no such id */
    rig_token(&r, q, -1, 0);
    rig_tokens(&r, q, "ab", 0);
    rig_token(&r, q, 'c', 2); /* over output_max */
    rig_end(&r, q, TDM_FINISH_LENGTH, 2);
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 5);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stale), 6);
    assert_non_null(strstr(e->text, "\"text\":\"ab\""));
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

/* --- those who are slow ----------------------------------------------- */

static void a_full_pipe_holds_one_stream_and_no_other(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *slow = rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    const tdm_request_t *qs = submitted(&r);
    slow->is_stuck = 1;
    rig_accept(&r, qs);
    for (uint32_t i = 0; i < 500; i++) rig_token(&r, qs, 'a' + (int32_t)(i % 26), i);
    rig_end(&r, qs, TDM_FINISH_LENGTH, 500);
    rig_settle(&r);
    assert_true(tdm_api_tile_stats(r.tile)->pipe_full_cnt > 0);
    assert_int_equal(slow->end_cnt, 0);
    assert_true(tdm_pipe_used(&slow->pipe) < r.pipe_sz);
    assert_true(tdm_api_tile_next_ns(r.tile, r.now_ns) - r.now_ns <= 2 * TDM_NS_PER_MS);
    rig_exchange_t *quick = rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    rig_serve(&r, submitted(&r), "quick", TDM_FINISH_STOP);
    assert_int_equal(quick->end_cnt, 1);
    slow->is_stuck = 0;
    rig_settle(&r);
    assert_int_equal(slow->end_cnt, 1);
    assert_int_equal(slow->token_cnt, 500);
    const char *at = slow->text;
    for (uint32_t i = 0; i < 500; i++) { /* nothing lost, nothing twice */
        char want[16];
        (void)snprintf(want, sizeof want, "\"text\":\"%c\"", 'a' + (int)(i % 26));
        at = strstr(at, "\"text\":");
        assert_non_null(at);
        assert_memory_equal(at, want, strlen(want));
        at++;
    }
    assert_null(strstr(at, "\"text\":"));
    assert_int_equal(tdm_api_tile_next_ns(r.tile, r.now_ns), TDM_TIME_NEVER);
    rig_stop(&r);
}

static void a_whole_reply_larger_than_its_pipe_arrives(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.context_max = 16384;
    r.config.id_slab_sz = 1 << 20;
    r.event_depth = 16384;
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT,
                                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                                 "\"return_token_ids\":true}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    for (uint32_t i = 0; i < 12000; i++) rig_token(&r, q, 1, i); /* six bytes each, escaped */
    rig_end(&r, q, TDM_FINISH_LENGTH, 12000);
    rig_settle(&r);
    assert_int_equal(e->end_cnt, 1);
    assert_true(e->text_sz > 12000 * 8);
    assert_int_equal(e->token_cnt, 12000);
    json_t *v = json_loads(e->text, 0, NULL);
    assert_non_null(v);
    const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    assert_int_equal(
        json_string_length(json_object_get(json_object_get(choice, "message"), "content")), 12000);
    assert_int_equal(json_array_size(json_object_get(choice, "token_ids")), 12000);
    json_decref(v);
    rig_stop(&r);
}

static void a_full_egress_lane_loses_no_word(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.egress_depth = 1;
    rig_start(&r);
    rig_exchange_t *e[24];
    for (uint32_t i = 0; i < 24; i++) {
        e[i] = rig_exchange_fresh(&r, 1);
        e[i]->x.method = TDM_METHOD_GET;
        strcpy(e[i]->x.path, "/health");
        rig_push(&r, e[i]);
    }
    rig_settle(&r);
    for (uint32_t i = 0; i < 24; i++) {
        assert_int_equal(e[i]->end_cnt, 1);
        assert_string_equal(e[i]->text, "{\"status\":\"ok\"}");
    }
    assert_true(tdm_api_tile_stats(r.tile)->egress_full_cnt > 0);
    rig_stop(&r);
}

/* --- stop strings ----------------------------------------------------- */

static void a_stop_string_is_a_control_word_at_once(void **state) {
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        rig_t r;
        rig_default(&r);
        rig_start(&r);
        rig_exchange_t *e = rig_post(&r, COMP,
                                     is_stream ? "{\"prompt\":\"a\",\"stop\":[\"\\nUser:\"],"
                                                 "\"stream\":true}"
                                               : "{\"prompt\":\"a\",\"stop\":[\"\\nUser:\"]}");
        const tdm_request_t *q = submitted(&r);
        rig_accept(&r, q);
        rig_tokens(&r, q, "Hi\nUser", 0);
        rig_settle(&r);
        expect_controls(&r, q, 0, 0);
        assert_null(strstr(e->text, "User"));
        rig_token(&r, q, ':', 7);
        rig_settle(&r);
        expect_controls(&r, q, 1, 0);
        rig_tokens(&r, q, " more", 8);
        rig_end(&r, q, TDM_FINISH_LENGTH, 13); /* the length came first; the text ended before */
        rig_settle(&r);
        assert_null(strstr(e->text, "User"));
        assert_null(strstr(e->text, "more"));
        assert_non_null(strstr(e->text, "\"finish_reason\":\"stop\""));
        assert_int_equal(
            rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop_string), 5);
        assert_int_equal(e->token_cnt, 8);
        rig_stop(&r);
    }
}

static void held_text_comes_out_at_the_end(void **state) {
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        rig_t r;
        rig_default(&r);
        rig_start(&r);
        rig_exchange_t *e = rig_post(
            &r, COMP,
            is_stream ? "{\"prompt\":\"a\",\"stop\":\"END!\",\"stream\":true,\"max_tokens\":5}"
                      : "{\"prompt\":\"a\",\"stop\":\"END!\",\"max_tokens\":5}");
        rig_serve(&r, submitted(&r), "x END", TDM_FINISH_LENGTH);
        assert_non_null(strstr(e->text, is_stream ? "\"text\":\"END\",\"logprobs\":null,"
                                                    "\"finish_reason\":\"length\""
                                                  : "\"text\":\"x END\""));
        rig_stop(&r);
    }
}

/* B31: the length runs out inside a character. */
static void a_cut_character_is_still_valid_json(void **state) {
    (void)state;
    for (uint32_t cut = 1; cut <= 2; cut++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            rig_t r;
            rig_default(&r);
            rig_start(&r);
            rig_exchange_t *e = rig_post(
                &r, COMP, is_stream ? "{\"prompt\":\"a\",\"stream\":true}" : "{\"prompt\":\"a\"}");
            const tdm_request_t *q = submitted(&r);
            rig_accept(&r, q);
            static const uint8_t euro[] = {0xe2, 0x82, 0xac};
            for (uint32_t i = 0; i < cut; i++) rig_token(&r, q, euro[i], i);
            rig_end(&r, q, TDM_FINISH_LENGTH, cut);
            rig_settle(&r);
            assert_non_null(strstr(e->text, "\"text\":\"\xef\xbf\xbd\""));
            assert_non_null(strstr(e->text, "\"finish_reason\":\"length\""));
            assert_int_equal(e->token_cnt, cut);
            rig_stop(&r);
        }
    }
}

static void the_stop_string_stays_where_it_was_asked_for(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP,
                                 "{\"prompt\":\"a\",\"stop\":[\"END\",\"ENDING\"],"
                                 "\"include_stop_str_in_output\":true}");
    rig_serve(&r, submitted(&r), "the ENDING", TDM_FINISH_STOP);
    assert_non_null(strstr(e->text, "\"text\":\"the END\""));
    rig_stop(&r);
}

/* --- accounts --------------------------------------------------------- */

/* B46: every request ends in one outcome; received = ended + open. */
static void outcomes_add_up(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    const uint32_t api = TDM_LABEL_API_openai_completions;
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, submitted(&r), "x", TDM_FINISH_STOP);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, submitted(&r), "xy", TDM_FINISH_LENGTH);
    (void)rig_post(&r, COMP, "{\"prompt\":\"\"}");
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_refuse(&r, submitted(&r), TDM_REFUSE_kv_full, 0);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    const tdm_request_t *q = submitted(&r);
    rig_hang_up(&r, e);
    rig_poll(&r);
    rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q = submitted(&r);
    rig_accept(&r, q);
    rig_event(&r, q,
              (tdm_event_t){.kind = TDM_EVENT_END,
                            .finish = TDM_FINISH_ERROR,
                            .reason = TDM_REFUSE_nan_logits});
    rig_settle(&r);
    assert_int_equal(outcomes(&r, api, TDM_LABEL_OUTCOME_stop), 1);
    assert_int_equal(outcomes(&r, api, TDM_LABEL_OUTCOME_length), 1);
    assert_int_equal(outcomes(&r, api, TDM_LABEL_OUTCOME_rejected), 2);
    assert_int_equal(outcomes(&r, api, TDM_LABEL_OUTCOME_cancelled), 1);
    assert_int_equal(outcomes(&r, api, TDM_LABEL_OUTCOME_error), 1);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output), 3);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_prompt), 6);
    const tdm_api_stats_t *s = tdm_api_tile_stats(r.tile);
    assert_int_equal(s->exchange_cnt, 6);
    assert_int_equal(s->exchange_end_cnt, 6);
    rig_stop(&r);
}

static void a_request_id_is_echoed_or_made(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const char *const bad[] = {"", "a b", "a\r\nx: y", "\x80"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        e->x.method = TDM_METHOD_GET;
        strcpy(e->x.path, "/health");
        strcpy(e->x.request_id, bad[i]);
        rig_push(&r, e);
        rig_settle(&r);
        assert_memory_equal(e->x.head.request_id, "req-", 4);
        assert_int_equal(strlen(e->x.head.request_id), 20);
    }
    rig_stop(&r);
}

static void a_poll_takes_no_more_than_its_batch(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.arrival_batch = 2;
    r.config.event_batch = 8;
    rig_start(&r);
    for (uint32_t i = 0; i < 5; i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 1);
        e->x.method = TDM_METHOD_GET;
        strcpy(e->x.path, "/health");
        rig_push(&r, e);
    }
    rig_poll(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->exchange_cnt, 2);
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->exchange_cnt, 5);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    rig_tokens(&r, q, "0123456789", 0);
    rig_poll(&r);
    assert_int_equal(tdm_ring_cnt(&r.events), 3);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_routes_answer),
        cmocka_unit_test(wrong_paths_and_methods_are_told_so),
        cmocka_unit_test(media_types_other_than_json_are_refused),
        cmocka_unit_test(what_the_door_refused_is_said_as_it_is),
        cmocka_unit_test(documents_come_through_their_door_only),
        cmocka_unit_test(keys_open_what_needs_them),
        cmocka_unit_test(the_status_waits_for_the_verdict),
        cmocka_unit_test(full_tables_and_rings_are_answers),
        cmocka_unit_test(starting_and_draining_refuse_generation),
        cmocka_unit_test(readiness_is_a_token_lately_or_nothing_pending),
        cmocka_unit_test(leaving_at_any_moment_frees_everything),
        cmocka_unit_test(a_hang_up_of_another_generation_is_stale),
        cmocka_unit_test(events_out_of_turn_are_stale),
        cmocka_unit_test(a_full_pipe_holds_one_stream_and_no_other),
        cmocka_unit_test(a_whole_reply_larger_than_its_pipe_arrives),
        cmocka_unit_test(a_full_egress_lane_loses_no_word),
        cmocka_unit_test(a_stop_string_is_a_control_word_at_once),
        cmocka_unit_test(held_text_comes_out_at_the_end),
        cmocka_unit_test(a_cut_character_is_still_valid_json),
        cmocka_unit_test(the_stop_string_stays_where_it_was_asked_for),
        cmocka_unit_test(outcomes_add_up),
        cmocka_unit_test(a_request_id_is_echoed_or_made),
        cmocka_unit_test(a_poll_takes_no_more_than_its_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
