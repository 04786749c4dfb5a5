/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/3 from client to tile and back, in memory: what a request becomes,
   what a reply becomes, and how every kind of early end is noticed. */
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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
    assert_non_null(strstr(reply.head, "server: tandem/test\n"));
    assert_non_null(strstr(reply.head, "x-request-id: rig-1\n"));
    assert_non_null(strstr(reply.head, "access-control-allow-origin: *\n"));
    rig_close(&r);
}

static void post_body_arrives_whole(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    const uint64_t sz = 200u << 10;
    uint8_t *body = malloc(sz);
    assert_non_null(body);
    rig_open(&r, &cfg);
    for (uint64_t i = 0; i < sz; i++) body[i] = (uint8_t)tdm_rng_next(&r.rng);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 2000));
    assert_int_equal(reply.status, 200);
    assert_int_equal(r.last.body_sz, sz);
    assert_true(r.last_body_hash == rig_hash(0, body, sz));
    free(body);
    rig_close(&r);
}

/* one_request runs a request to its end on a fresh rig. */
static void one_request(rig_t *r, const char *method, const char *path, rig_reply_t *reply) {
    rig_config_t cfg = rig_default();
    rig_open(r, &cfg);
    rig_dial_ready(r, 0);
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
        h = rig_hash(h, text, (uint64_t)n);
    }
    return h;
}

static void ten_thousand_records_arrive_in_order(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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

/* --- early ends ------------------------------------------------------- */

static void cancel_is_noticed_at_the_packet(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    int64_t id = rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply);
    rig_idle(&r, 20);
    assert_true(reply.body_sz > 0);
    tdm_client_cancel(r.client[0], id);
    assert_int_equal(reply.outcome, TDM_CLIENT_CANCELLED);
    rig_idle(&r, 3);
    assert_int_equal(r.gone_cnt, 1);
    rig_idle(&r, 50);
    assert_int_equal(r.closed_cnt, 1);
    rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.status, 200);
    rig_close(&r);
}

static void cancel_while_queued_is_noticed(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    r.is_tile_silent = 1;
    rig_dial_ready(&r, 0);
    int64_t id = rig_send(&r, 0, "POST", "/v1/completions", "{}", 2, &reply);
    rig_idle(&r, 10);
    assert_int_equal(r.ready_cnt, 1);
    tdm_client_cancel(r.client[0], id);
    rig_idle(&r, 3);
    assert_int_equal(r.gone_cnt, 1);
    rig_idle(&r, 20);
    assert_int_equal(r.closed_cnt, 1);
    /* The api tile's END comes late: counted, harmless. */
    tdm_h3_reply(r.h3, &r.slot[0].x, TDM_EGRESS_END, r.now_ns);
    assert_int_equal(tdm_h3_counters(r.h3)->stale, 1);
    rig_close(&r);
}

static void connection_close_frees_its_exchanges(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[3];
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply[i]);
    }
    rig_idle(&r, 20);
    tdm_client_shutdown(r.client[0]);
    rig_turn(&r, RIG_MS);
    assert_int_equal(r.gone_cnt, 3);
    assert_int_equal(r.closed_cnt, 3);
    assert_int_equal(tdm_quic_counters(r.quic)->connection_cnt, 0);
    assert_int_equal(tdm_quic_counters(r.quic)->pool_used_sz, 0);
    assert_int_equal(reply[0].outcome, TDM_CLIENT_LOST);
    rig_close(&r);
}

static void silence_frees_the_slot(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply);
    rig_idle(&r, 20);
    r.is_deaf[0] = 1;
    rig_idle(&r, 4000);
    assert_int_equal(r.gone_cnt, 0);
    rig_idle(&r, 3000);
    assert_int_equal(r.gone_cnt, 1);
    assert_int_equal(r.closed_cnt, 1);
    assert_int_equal(tdm_quic_counters(r.quic)->connections_idle, 1);
    assert_int_equal(tdm_quic_counters(r.quic)->connection_cnt, 0);
    assert_int_equal(tdm_quic_counters(r.quic)->tls_session_cnt, 0);
    rig_close(&r);
}

static void cut_reply_resets_the_stream(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    one_request(&r, "GET", "/cut", &reply);
    assert_int_equal(reply.outcome, TDM_CLIENT_RESET);
    assert_int_equal(reply.error, 0x102); /* H3_INTERNAL_ERROR */
    rig_idle(&r, 20);
    assert_int_equal(r.closed_cnt, 1);
    assert_int_equal(r.gone_cnt, 0);
    rig_close(&r);
}

/* --- refusals --------------------------------------------------------- */

static void no_free_exchange_is_503(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t first;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    cfg.exchange_max = 1;
    rig_open(&r, &cfg);
    r.is_tile_silent = 1;
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", "{}", 2, &first);
    rig_idle(&r, 5);
    rig_send(&r, 0, "POST", "/v1/completions", "{}", 2, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.status, 503);
    assert_non_null(strstr(reply.body, "\"code\":\"exchange_limit\""));
    assert_non_null(strstr(reply.body, "\"type\":\"server_error\""));
    assert_non_null(strstr(reply.head, "retry-after: 1\n"));
    assert_int_equal(tdm_h3_counters(r.h3)->refused[TDM_REFUSE_exchange_limit], 1);
    rig_close(&r);
}

static void full_ring_is_answered_here(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    r.ready_answer = TDM_REFUSE_queue_full;
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", "{}", 2, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.status, 429);
    assert_non_null(strstr(reply.body, "\"code\":\"queue_full\""));
    assert_non_null(strstr(reply.head, "x-request-id: rig-1\n"));
    assert_int_equal(r.closed_cnt, 1);
    rig_close(&r);
}

static void big_body_is_refused_and_the_connection_lives(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    const uint64_t sz = RIG_BODY_MAX + (40u << 10);
    uint8_t *body = calloc(1, sz);
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 2000));
    assert_int_equal(reply.status, 413);
    assert_non_null(strstr(reply.body, "body_too_large"));
    assert_int_equal(r.last.refuse, TDM_REFUSE_body_too_large);
    assert_true(tdm_h3_counters(r.h3)->body_discarded_sz > 0);
    rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.status, 200);
    free(body);
    rig_close(&r);
}

static void endless_body_is_stopped(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    const uint64_t sz = 4u << 20;
    uint8_t *body = calloc(1, sz);
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.status, 413);
    rig_idle(&r, 100);
    assert_true(tdm_h3_counters(r.h3)->body_discarded_sz < RIG_BODY_MAX + (512u << 10));
    assert_int_equal(r.closed_cnt, 1);
    free(body);
    rig_close(&r);
}

/* refused_by sends one request with own fields and returns its status. */
static int refused_by(const tdm_client_header_t *header, uint32_t cnt, const char *path,
                      uint16_t *refuse) {
    rig_t r;
    rig_reply_t reply = {0};
    rig_reply_t dummy;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    int64_t dummy_id = rig_send(&r, 0, "GET", "/health", NULL, 0, &dummy);
    assert_true(dummy_id >= 0 && rig_run(&r, &dummy.is_ended, 100));
    rig_send_with(&r, 0, path, header, cnt, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 500));
    *refuse = r.last.refuse;
    int answer = reply.outcome == TDM_CLIENT_DONE ? reply.status : -(int)reply.error;
    rig_close(&r);
    return answer;
}

static void long_fields_are_431(void **state) {
    (void)state;
    uint16_t refuse = 0;
    char text[5000];
    memset(text, 'a', sizeof text - 1u);
    text[sizeof text - 1u] = '\0';
    tdm_client_header_t big = {"x-anything", text};
    assert_int_equal(refused_by(&big, 1, "/", &refuse), 431);
    assert_int_equal(refuse, TDM_REFUSE_header_too_large);
    text[600] = '\0';
    tdm_client_header_t key = {"authorization", text};
    assert_int_equal(refused_by(&key, 1, "/", &refuse), 431);
    text[0] = '/';
    text[300] = '\0';
    assert_int_equal(refused_by(NULL, 0, text, &refuse), 431);
}

static void second_key_is_400(void **state) {
    (void)state;
    uint16_t refuse = 0;
    tdm_client_header_t two[] = {{"authorization", "Bearer a"}, {"authorization", "Bearer b"}};
    assert_int_equal(refused_by(two, 2, "/", &refuse), 400);
    assert_int_equal(refuse, TDM_REFUSE_bad_request);
}

static void announced_big_body_is_413_at_once(void **state) {
    (void)state;
    uint16_t refuse = 0;
    tdm_client_header_t length = {"content-length", "99999999"};
    (void)refused_by(&length, 1, "/", &refuse);
    assert_int_equal(refuse, TDM_REFUSE_body_too_large);
}

static void malformed_fields_are_a_message_error(void **state) {
    (void)state;
    uint16_t refuse = 0;
    tdm_client_header_t pseudo = {":unknown", "x"};
    assert_int_equal(refused_by(&pseudo, 1, "/", &refuse), -0x10e);
    tdm_client_header_t hop = {"connection", "close"};
    assert_int_equal(refused_by(&hop, 1, "/", &refuse), -0x10e);
}

static void slow_request_is_408(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    const uint64_t sz = 200u << 10;
    uint8_t *body = calloc(1, sz);
    cfg.idle_timeout_ns = 20000 * RIG_MS;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    rig_turn(&r, RIG_MS);
    r.is_deaf[0] = 1;
    rig_idle(&r, 2500);
    assert_int_equal(r.last.refuse, TDM_REFUSE_request_timeout);
    r.is_deaf[0] = 0;
    assert_true(rig_run(&r, &reply.is_ended, 10000));
    assert_int_equal(reply.status, 408);
    free(body);
    rig_close(&r);
}

static void drain_lets_streams_end_and_closes(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    tdm_error_t err = {0};
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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
    cmocka_unit_test(cancel_is_noticed_at_the_packet),
    cmocka_unit_test(cancel_while_queued_is_noticed),
    cmocka_unit_test(connection_close_frees_its_exchanges),
    cmocka_unit_test(silence_frees_the_slot),
    cmocka_unit_test(cut_reply_resets_the_stream),
    cmocka_unit_test(no_free_exchange_is_503),
    cmocka_unit_test(full_ring_is_answered_here),
    cmocka_unit_test(big_body_is_refused_and_the_connection_lives),
    cmocka_unit_test(endless_body_is_stopped),
    cmocka_unit_test(long_fields_are_431),
    cmocka_unit_test(second_key_is_400),
    cmocka_unit_test(announced_big_body_is_413_at_once),
    cmocka_unit_test(malformed_fields_are_a_message_error),
    cmocka_unit_test(slow_request_is_408),
    cmocka_unit_test(drain_lets_streams_end_and_closes),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
