/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every path, method, media type and key has its answer. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

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
         "{\"id\":\"tiny\",\"object\":\"model\",\"created\":1600000000,\"owned_by\":\"tandem\","
         "\"max_model_len\":512}"},
        {"/v1/models/org/tiny-alias", 200,
         "{\"id\":\"org/tiny-alias\",\"object\":\"model\",\"created\":1600000000,"
         "\"owned_by\":\"tandem\",\"max_model_len\":512}"},
        {"/v1/models/org%2Ftiny-alias", 200,
         "{\"id\":\"org/tiny-alias\",\"object\":\"model\",\"created\":1600000000,"
         "\"owned_by\":\"tandem\",\"max_model_len\":512}"},
        {"/v1/models", 200,
         "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":"
         "1600000000,\"owned_by\":\"tandem\",\"max_model_len\":512},{\"id\":\"org/tiny-alias\","
         "\"object\":\"model\",\"created\":1600000000,\"owned_by\":\"tandem\","
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
        /* the same an hour later */
        r.now_ns += 3600 * TDM_NS_PER_S;
        assert_string_equal(rig_get(&r, c[i].path)->text, c[i].text);
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
        assert_string_equal(rig_error_code(e), tdm_reason_name(c[i].reason));
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
        assert_true(q || strcmp(rig_error_code(e),
                                tdm_reason_name(TDM_REFUSE_unsupported_media_type)) == 0);
    }
    rig_stop(&r);
}

/* A coded body would only be said to be no JSON, about bytes that its sender
   never wrote.  Which of the two was at fault is told by accept-encoding. */
static void coded_bodies_are_refused_as_such(void **state) {
    (void)state;
    static const struct {
        const char *coding, *type;
        uint16_t status, is_coded;
    } c[] = {{"", "application/json", 200, 0},
             {"identity", "application/json", 200, 0},
             {"Identity , identity", "application/json", 200, 0},
             {" , ,", "application/json", 200, 0},
             {"gzip", "application/json", 415, 1},
             {"GZIP", "", 415, 1},
             {"identity,br", "application/json", 415, 1},
             {"deflate, gzip", "application/json", 415, 1},
             {"aes128gcm", "application/json", 415, 1},
             {"identit", "application/json", 415, 1},
             {"identity2", "application/json", 415, 1},
             {"gzip", "text/plain", 415, 0}};
    static const char *const path[] = {COMP, CHAT, "/tokenize", "/detokenize"};
    static const char *const body[] = {"{\"prompt\":\"a\"}",
                                       "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                                       "{\"prompt\":\"a\"}", "{\"tokens\":[97]}"};
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(c) * TDM_COUNT_OF(path); i++) {
        uint32_t at = i / TDM_COUNT_OF(path), which = i % TDM_COUNT_OF(path);
        rig_exchange_t *e = rig_exchange_fresh(&r, i % RIG_DOOR_CNT);
        strcpy(e->x.path, path[which]);
        strcpy(e->x.content_type, c[at].type);
        strcpy(e->x.content_coding, c[at].coding);
        rig_body(e, body[which], strlen(body[which]));
        rig_push(&r, e);
        rig_settle(&r);
        const tdm_request_t *q = rig_submit(&r);
        if (q) rig_serve(&r, q, "x", TDM_FINISH_STOP);
        assert_int_equal(e->x.head.status, c[at].status);
        assert_int_equal(e->x.head.is_coded, c[at].is_coded);
        if (c[at].status == 200) continue;
        assert_string_equal(rig_error_code(e), tdm_reason_name(TDM_REFUSE_unsupported_media_type));
        assert_int_equal(strstr(e->text, "Content-Encoding") != NULL, c[at].is_coded);
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
        assert_string_equal(rig_error_code(e), tdm_reason_name(reason[i]));
    }
    rig_exchange_t *e = rig_exchange_fresh(&r, 1);
    strcpy(e->x.path, COMP);
    e->x.is_truncated = 1;
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 431);
    assert_string_equal(rig_error_code(e), tdm_reason_name(TDM_REFUSE_header_too_large));
    rig_stop(&r);
}

/* /metrics and /status are pages of the HTTP/1.1 door itself. */
static void pages_of_the_door_are_none_of_ours(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t door = 0; door < 2; door++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, door);
        e->x.method = TDM_METHOD_GET;
        strcpy(e->x.path, door ? "/status" : "/metrics");
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, 404);
        assert_int_equal(e->end_cnt, 1);
    }
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
    assert_string_equal(rig_error_code(e), "auth");
    assert_null(strstr(e->text, "http.hosts"));
    e = rig_exchange_fresh(&r, 0);
    e->x.method = TDM_METHOD_GET;
    e->x.is_trusted_peer = 0;
    e->x.is_misnamed = 1;
    strcpy(e->x.path, "/v1/models");
    rig_push(&r, e);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 401); /* and what to do */
    assert_non_null(strstr(e->text, "http.hosts"));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_routes_answer),
        cmocka_unit_test(wrong_paths_and_methods_are_told_so),
        cmocka_unit_test(media_types_other_than_json_are_refused),
        cmocka_unit_test(coded_bodies_are_refused_as_such),
        cmocka_unit_test(what_the_door_refused_is_said_as_it_is),
        cmocka_unit_test(pages_of_the_door_are_none_of_ours),
        cmocka_unit_test(keys_open_what_needs_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
