/* SPDX-License-Identifier: Apache-2.0 */
/* What the door refuses by itself, with which status, before the api sees it. */
#include "tests/unit/net_h3/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

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
    rig_begin(&r);
    r.ready_answer = TDM_REFUSE_queue_full;
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
    const uint64_t sz = RIG_BODY_MAX + (40u << 10);
    uint8_t *body = calloc(1, sz);
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/v1/completions", body, sz, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 2000));
    assert_int_equal(reply.status, 413);
    assert_non_null(strstr(reply.body, "body_too_large"));
    assert_int_equal(r.last.refuse, TDM_REFUSE_body_too_large);
    assert_true(tdm_h3_counters(r.h3)->body_discarded_sz > 0);
    rig_serve_one(&r, 0);
    free(body);
    rig_close(&r);
}

static void endless_body_is_stopped(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    const uint64_t sz = 4u << 20;
    uint8_t *body = calloc(1, sz);
    rig_begin(&r);
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
    rig_begin(&r);
    rig_serve_one(&r, 0);
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

/* A list may come in several lines; the api tile judges what it says. */
static void every_line_of_a_coding_is_kept(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    tdm_client_header_t two[] = {{"content-encoding", "identity"}, {"content-encoding", "gzip"}};
    rig_begin(&r);
    rig_send_with(&r, 0, "/", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 500));
    assert_string_equal(r.last.content_coding, "");
    assert_null(strstr(reply.head, "accept-encoding"));
    rig_send_with(&r, 0, "/", two, 2, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 500));
    assert_string_equal(r.last.content_coding, "identity,gzip");
    assert_non_null(strstr(reply.head, "accept-encoding: identity\n"));
    rig_close(&r);
    uint16_t refuse = 0;
    char text[64];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1u] = '\0';
    two[0].value = text;
    assert_int_equal(refused_by(two, 1, "/", &refuse), 200);
    assert_int_equal(refused_by(two, 2, "/", &refuse), 431);
    assert_int_equal(refuse, TDM_REFUSE_header_too_large);
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

/* Through QUIC: a stream beside it goes on to its end. */
static void a_body_of_another_length_costs_its_stream(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t stream, bad;
    tdm_client_header_t length = {"content-length", "5"};
    rig_begin(&r);
    r.is_tile_silent = 1;
    rig_send(&r, 0, "GET", "/stream?40", NULL, 0, &stream);
    rig_idle(&r, 5);
    rig_send_with(&r, 0, "/", &length, 1, &bad);
    assert_true(rig_run(&r, &bad.is_ended, 500));
    assert_int_equal(bad.error, 0x10e);
    assert_false(stream.is_ended);
    r.is_tile_silent = 0;
    assert_true(rig_run(&r, &stream.is_ended, 5000));
    assert_int_equal(stream.outcome, TDM_CLIENT_DONE);
    rig_serve_one(&r, 0);
    rig_idle(&r, 100);
    assert_int_equal(r.open_cnt, r.closed_cnt);
    rig_close(&r);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_free_exchange_is_503),
        cmocka_unit_test(full_ring_is_answered_here),
        cmocka_unit_test(big_body_is_refused_and_the_connection_lives),
        cmocka_unit_test(endless_body_is_stopped),
        cmocka_unit_test(long_fields_are_431),
        cmocka_unit_test(second_key_is_400),
        cmocka_unit_test(every_line_of_a_coding_is_kept),
        cmocka_unit_test(announced_big_body_is_413_at_once),
        cmocka_unit_test(malformed_fields_are_a_message_error),
        cmocka_unit_test(a_body_of_another_length_costs_its_stream),
        cmocka_unit_test(slow_request_is_408),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
