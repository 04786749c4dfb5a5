/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/3 from client to tile and back, in memory: what a request becomes
   and what a reply becomes. */
#include "tests/unit/net_h3/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void get_is_answered(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "GET", "/v1/models?limit=3", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "{\"path\":\"/v1/models\",\"body\":0}");
    assert_string_equal(r.last.path, "/v1/models");
    assert_string_equal(r.last.query, "limit=3");
    assert_string_equal(r.last.authorization, "Bearer secret");
    assert_string_equal(r.last.content_type, "application/json");
    assert_string_equal(r.last.request_id, "rig-1");
    assert_int_equal(r.last.method, TDM_METHOD_GET);
    assert_non_null(strstr(reply.head, "content-type: application/json\n"));
    assert_non_null(strstr(reply.head, "content-length: 30\n"));
    assert_non_null(strstr(reply.head, "server: tandem\n"));
    assert_non_null(strstr(reply.head, "x-request-id: rig-1\n"));
    assert_non_null(strstr(reply.head, "access-control-allow-origin: *\n"));
    rig_close(&r);
}

static void post_body_arrives_whole(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    const uint64_t sz = 200u << 10;
    uint8_t *body = malloc(sz);
    assert_non_null(body);
    rig_begin(&r);
    for (uint64_t i = 0; i < sz; i++) body[i] = (uint8_t)tdm_rng_next(&r.rng);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 2000));
    assert_int_equal(reply.status, 200);
    assert_int_equal(r.last.body_sz, sz);
    assert_true(r.last_body_hash == tdm_sum_bytes(0, body, sz));
    free(body);
    rig_close(&r);
}

/* one_request runs a request to its end on a fresh rig. */
static void one_request(rig_t *r, const char *method, const char *path, rig_reply_t *reply) {
    rig_begin(r);
    rig_send(r, 0, method, path, NULL, 0, reply);
    assert_true(rig_run(r, &reply->is_ended, 1000));
}

static void head_has_no_body(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    one_request(&r, "HEAD", "/health", &reply);
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body_sz, 0);
    assert_int_equal(r.last.method, TDM_METHOD_HEAD);
    assert_non_null(strstr(reply.head, "content-length: 27\n"));
    rig_close(&r);
}

static void options_names_the_methods(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    one_request(&r, "OPTIONS", "/v1/models", &reply);
    assert_int_equal(reply.status, 204);
    assert_non_null(strstr(reply.head, "allow: GET, OPTIONS\n"));
    assert_non_null(strstr(reply.head, "access-control-allow-methods: GET, OPTIONS\n"));
    assert_non_null(strstr(reply.head, "access-control-allow-headers: " TDM_CORS_SENT "\n"));
    assert_non_null(strstr(reply.head, "access-control-max-age: " TDM_CORS_AGE_S "\n"));
    rig_close(&r);
}

static void busy_says_when_to_retry(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    one_request(&r, "GET", "/busy", &reply);
    assert_int_equal(reply.status, 429);
    assert_non_null(strstr(reply.head, "access-control-expose-headers: " TDM_CORS_READ "\n"));
    assert_non_null(strstr(reply.head, "retry-after: 2\n"));
    assert_non_null(strstr(reply.head, "retry-after-ms: 1500\n"));
    assert_non_null(strstr(reply.head, "x-should-retry: true\n"));
    rig_close(&r);
}

static void unknown_method_is_told(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    one_request(&r, "PATCH", "/v1/models", &reply);
    assert_int_equal(r.last.method, TDM_METHOD_OTHER);
    rig_close(&r);
}

/* --- streaming -------------------------------------------------------- */

static uint64_t hash_of_records(uint32_t cnt) {
    uint64_t h = 0;
    char text[64];
    for (uint32_t i = 0; i < cnt; i++) {
        int n = snprintf(text, sizeof text, "data: {\"token\":%u}\n\n", i);
        h = tdm_sum_bytes(h, text, (uint64_t)n);
    }
    return h;
}

static void ten_thousand_records_arrive_in_order(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/stream?10000", "{}", 2, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_true(reply.body_hash == hash_of_records(10000));
    assert_int_equal(r.token_cnt, 10000);
    assert_non_null(strstr(reply.head, "content-type: text/event-stream; charset=utf-8\n"));
    assert_non_null(strstr(reply.head, "cache-control: no-cache\n"));
    assert_non_null(strstr(reply.head, "x-accel-buffering: no\n"));
    assert_null(strstr(reply.head, "content-length"));
    rig_close(&r);
}

static void records_survive_loss(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    cfg.datagram_max = TDM_QUIC_DATAGRAM_MAX;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    r.loss = 50;
    rig_send(&r, 0, "POST", "/stream?3000", "{}", 2, &reply);
    if (!rig_run(&r, &reply.is_ended, 60000)) fail_msg("seed %llu", (unsigned long long)r.seed);
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_true(reply.body_hash == hash_of_records(3000));
    rig_close(&r);
}

static void streams_of_one_connection_take_turns(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[30];
    rig_begin(&r);
    for (uint32_t i = 0; i < 30; i++) {
        rig_send(&r, 0, "POST", "/stream?400", "{}", 2, &reply[i]);
    }
    uint32_t begun = 0;
    while (!reply[0].is_ended && r.now_ns < 20000 * RIG_MS) {
        rig_turn(&r, RIG_MS);
        begun = 0;
        for (uint32_t i = 0; i < 30; i++) begun += reply[i].body_sz > 0;
    }
    assert_int_equal(begun, 30); /* none waits until another has finished */
    for (uint32_t i = 0; i < 30; i++) {
        assert_true(rig_run(&r, &reply[i].is_ended, 5000));
        assert_true(reply[i].body_hash == hash_of_records(400));
    }
    rig_close(&r);
}

static void many_connections_are_served(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[16];
    rig_open(&r, NULL);
    for (uint32_t i = 0; i < 16; i++) rig_dial(&r, i, 2 + i);
    for (int n = 0; n < 200 && tdm_h3_counters(r.h3)->connection_cnt < 16; n++) {
        rig_turn(&r, RIG_MS);
    }
    rig_idle(&r, 20);
    for (uint32_t i = 0; i < 16; i++) {
        rig_send(&r, i, "POST", "/stream?300", "{}", 2, &reply[i]);
    }
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(rig_run(&r, &reply[i].is_ended, 5000));
        assert_true(reply[i].body_hash == hash_of_records(300));
    }
    rig_close(&r);
}

static void reader_that_stops_costs_one_pipe(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply);
    rig_idle(&r, 20);
    assert_true(reply.body_sz > 0);
    r.is_deaf[0] = 1;
    rig_idle(&r, 500);
    uint32_t stuck_at = r.slot[0].record_no;
    uint64_t used = tdm_quic_counters(r.quic)->pool_used_sz;
    rig_idle(&r, 2000);
    assert_int_equal(r.slot[0].record_no, stuck_at);
    assert_true(stuck_at < 100000);
    assert_true(tdm_quic_counters(r.quic)->pool_used_sz <= used + (16u << 10));
    rig_close(&r);
}

static void drain_lets_streams_end_and_closes(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    tdm_error_t err = {0};
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/stream?2000", "{}", 2, &reply);
    rig_turn(&r, RIG_MS);
    tdm_h3_drain(r.h3);
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_true(reply.body_hash == hash_of_records(2000));
    rig_idle(&r, 2500);
    assert_true(tdm_client_is_closed(r.client[0], &err));
    assert_int_equal(tdm_quic_counters(r.quic)->connections_failed, 0);
    assert_int_equal(tdm_quic_counters(r.quic)->connection_cnt, 0);
    rig_close(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(get_is_answered),
    cmocka_unit_test(post_body_arrives_whole),
    cmocka_unit_test(head_has_no_body),
    cmocka_unit_test(options_names_the_methods),
    cmocka_unit_test(busy_says_when_to_retry),
    cmocka_unit_test(unknown_method_is_told),
    cmocka_unit_test(ten_thousand_records_arrive_in_order),
    cmocka_unit_test(records_survive_loss),
    cmocka_unit_test(streams_of_one_connection_take_turns),
    cmocka_unit_test(many_connections_are_served),
    cmocka_unit_test(reader_that_stops_costs_one_pipe),
    cmocka_unit_test(drain_lets_streams_end_and_closes),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
