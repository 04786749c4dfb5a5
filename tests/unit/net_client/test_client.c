/* SPDX-License-Identifier: Apache-2.0 */
/* The client over real sockets of the loopback interface: requests, trust,
   refusals and the ways a connection can fail. */
#include "appliance/base/clock.h"
#include "appliance/base/sum.h"
#include "net/client/client.h"
#include "net/quic/cert.h"
#include "tests/unit/net_client/loop_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char cert_file[64];
static char key_file[64];
static loop_server_t *server;

typedef struct seen {
    int status;
    int is_ended;
    tdm_client_outcome_t outcome;
    uint64_t body_sz;
    uint32_t event_cnt;
    char tail[64]; /* the last bytes of the body */
} seen_t;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((seen_t *)ctx)->status = status;
}

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)id;
    seen_t *s = ctx;
    s->body_sz += sz;
    for (uint64_t i = 0; i < sz; i++) {
        memmove(s->tail, s->tail + 1, sizeof s->tail - 1u);
        s->tail[sizeof s->tail - 1u] = (char)bytes[i];
        s->event_cnt += bytes[i] == '{';
    }
}

static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    (void)id;
    (void)error;
    seen_t *s = ctx;
    s->is_ended = 1;
    s->outcome = outcome;
}

static int ends_with(const seen_t *s, const char *text) {
    size_t sz = strlen(text);
    return memcmp(s->tail + sizeof s->tail - sz, text, sz) == 0;
}

static tdm_client_config_t config(uint16_t verify) {
    return (tdm_client_config_t){
        .host = "127.0.0.1", .port = loop_server_port(server), .verify = verify};
}

static tdm_client_t *dial(uint16_t verify) {
    tdm_client_t *c = NULL;
    tdm_error_t err = {0};
    tdm_client_config_t cfg = config(verify);
    if (tdm_client_connect(&cfg, &c, &err) != TDM_OK) fail_msg("%s", err.text);
    return c;
}

static int64_t ask(tdm_client_t *c, const char *method, const char *path, const void *body,
                   uint64_t body_sz, seen_t *seen) {
    int64_t id = -1;
    tdm_error_t err = {0};
    tdm_client_request_t req = {.method = method, .path = path, .body = body, .body_sz = body_sz};
    tdm_client_sink_t sink = {.ctx = seen, .head = on_head, .body = on_body, .end = on_end};
    memset(seen, 0, sizeof *seen);
    if (tdm_client_request(c, &req, &sink, &id, &err) != TDM_OK) fail_msg("%s", err.text);
    return id;
}

static void wait_for(tdm_client_t *c, int64_t id) {
    tdm_error_t err = {0};
    if (tdm_client_wait(c, id, 10 * TDM_NS_PER_S, &err) != TDM_OK) fail_msg("%s", err.text);
}

static void get_and_post_are_answered(void **state) {
    (void)state;
    seen_t seen;
    static uint8_t body[300000];
    char hash_text[48];
    for (uint32_t i = 0; i < sizeof body; i++) body[i] = (uint8_t)(i * 7u + (i >> 9));
    uint64_t hash = tdm_sum_bytes(TDM_SUM_FIRST, body, sizeof body);
    snprintf(hash_text, sizeof hash_text, "\"hash\":\"%016llx\"}", (unsigned long long)hash);
    tdm_client_t *c = dial(TDM_CLIENT_VERIFY_INSECURE);
    wait_for(c, ask(c, "GET", "/health", NULL, 0, &seen));
    assert_int_equal(seen.status, 200);
    assert_true(ends_with(&seen, "{\"status\":\"ok\"}"));
    wait_for(c, ask(c, "POST", "/echo", body, sizeof body, &seen));
    assert_int_equal(seen.status, 200);
    assert_true(ends_with(&seen, hash_text));
    assert_int_equal(seen.outcome, TDM_CLIENT_DONE);
    assert_true(tdm_client_rtt_ns(c) > 0);
    tdm_client_close(c);
}

static void stream_arrives_whole(void **state) {
    (void)state;
    seen_t seen;
    tdm_client_t *c = dial(TDM_CLIENT_VERIFY_INSECURE);
    wait_for(c, ask(c, "GET", "/stream?5000", NULL, 0, &seen));
    assert_int_equal(seen.event_cnt, 5000);
    assert_true(ends_with(&seen, "data: [DONE]\n\n"));
    tdm_client_close(c);
}

static void streams_run_side_by_side(void **state) {
    (void)state;
    static seen_t seen[50];
    tdm_client_t *c = dial(TDM_CLIENT_VERIFY_INSECURE);
    for (int i = 0; i < 50; i++) (void)ask(c, "GET", "/stream?200", NULL, 0, &seen[i]);
    wait_for(c, -1);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(seen[i].outcome, TDM_CLIENT_DONE);
        assert_int_equal(seen[i].event_cnt, 200);
    }
    tdm_client_close(c);
}

static void stream_limit_is_told_and_passes(void **state) {
    (void)state;
    static seen_t seen[101];
    tdm_error_t err = {0};
    tdm_client_request_t req = {.method = "GET", .path = "/health"};
    tdm_client_t *c = dial(TDM_CLIENT_VERIFY_INSECURE);
    for (int i = 0; i < 100; i++) (void)ask(c, "GET", "/health", NULL, 0, &seen[i]);
    assert_int_equal(tdm_client_request(c, &req, NULL, NULL, &err), TDM_ERR_FULL);
    wait_for(c, -1);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(tdm_client_step(c, TDM_NS_PER_MS, &err), TDM_OK);
    }
    wait_for(c, ask(c, "GET", "/health", NULL, 0, &seen[100]));
    assert_int_equal(seen[100].status, 200);
    tdm_client_close(c);
}

static void cancel_ends_at_once(void **state) {
    (void)state;
    seen_t seen;
    seen_t after;
    tdm_error_t err = {0};
    tdm_client_t *c = dial(TDM_CLIENT_VERIFY_INSECURE);
    int64_t id = ask(c, "GET", "/stream?10000000", NULL, 0, &seen);
    while (seen.body_sz == 0) assert_int_equal(tdm_client_step(c, TDM_NS_PER_S, &err), TDM_OK);
    tdm_client_cancel(c, id);
    assert_int_equal(seen.outcome, TDM_CLIENT_CANCELLED);
    assert_int_equal(tdm_client_open_cnt(c), 0);
    wait_for(c, ask(c, "GET", "/health", NULL, 0, &after));
    assert_int_equal(after.status, 200);
    tdm_client_close(c);
}

/* --- trust -------------------------------------------------------------- */

static void pinned_certificate_is_trusted_and_no_other(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    uint8_t peer[TDM_CLIENT_PIN_SZ];
    tdm_client_config_t cfg = config(TDM_CLIENT_VERIFY_PIN);
    assert_int_equal(tdm_cert_fingerprint(cert_file, cfg.pin, &err), TDM_OK);
    assert_int_equal(tdm_client_connect(&cfg, &c, &err), TDM_OK);
    assert_true(tdm_client_peer_pin(c, peer));
    assert_memory_equal(peer, cfg.pin, sizeof peer);
    tdm_client_close(c);
    cfg.pin[5] ^= 1u;
    assert_int_not_equal(tdm_client_connect(&cfg, &c, &err), TDM_OK);
    assert_non_null(strstr(err.text, "not the pinned one"));
}

static void ca_file_decides_and_the_name_counts(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    tdm_client_config_t cfg = config(TDM_CLIENT_VERIFY_CA);
    cfg.ca_file = cert_file;
    if (tdm_client_connect(&cfg, &c, &err) != TDM_OK) fail_msg("%s", err.text);
    tdm_client_close(c);
    cfg.host = "localhost"; /* resolves here, but is not in the certificate */
    assert_int_not_equal(tdm_client_connect(&cfg, &c, &err), TDM_OK);
    cfg.host = "127.0.0.1";
    cfg.ca_file = NULL; /* the system's store does not know us */
    assert_int_not_equal(tdm_client_connect(&cfg, &c, &err), TDM_OK);
    cfg.ca_file = "/nonexistent.pem";
    assert_int_equal(tdm_client_connect(&cfg, &c, &err), TDM_ERR_NOT_FOUND);
}

/* --- failures ----------------------------------------------------------- */

static void closed_port_is_told_quickly(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    tdm_client_config_t cfg = config(TDM_CLIENT_VERIFY_INSECURE);
    cfg.port = 9; /* discard: nothing listens */
    cfg.connect_timeout_ns = 60 * TDM_NS_PER_S;
    int64_t begin_ns = tdm_clock_now_ns();
    assert_int_equal(tdm_client_connect(&cfg, &c, &err), TDM_ERR_CLOSED);
    assert_non_null(strstr(err.text, "nothing listens"));
    assert_true(tdm_clock_now_ns() - begin_ns < cfg.connect_timeout_ns / 2); /* not by waiting */
}

static void second_address_is_tried(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    tdm_client_config_t cfg = config(TDM_CLIENT_VERIFY_INSECURE);
    cfg.host = "localhost"; /* ::1 may come first, where nothing listens */
    if (tdm_client_connect(&cfg, &c, &err) != TDM_OK) fail_msg("%s", err.text);
    tdm_client_close(c);
}

static void bad_host_is_told(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_t *c = NULL;
    tdm_client_config_t cfg = config(TDM_CLIENT_VERIFY_INSECURE);
    cfg.host = "";
    assert_int_equal(tdm_client_connect(&cfg, &c, &err), TDM_ERR_INVAL);
}

static int group_setup(void **state) {
    (void)state;
    tdm_error_t err = {0};
    int is_made = 0;
    snprintf(cert_file, sizeof cert_file, "/tmp/tdm-client-%d-cert.pem", (int)getpid());
    snprintf(key_file, sizeof key_file, "/tmp/tdm-client-%d-key.pem", (int)getpid());
    tdm_cert_config_t cfg = {.cert_file = cert_file,
                             .key_file = key_file,
                             .name = {"127.0.0.1"},
                             .name_cnt = 1,
                             .wall_s = tdm_clock_wall_s()};
    if (tdm_cert_ensure(&cfg, &is_made, &err) != TDM_OK) return -1;
    server = loop_server_start(0, cert_file, key_file);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    uint64_t answered = loop_server_stop(server);
    unlink(cert_file);
    unlink(key_file);
    return answered > 100 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_and_post_are_answered),
        cmocka_unit_test(stream_arrives_whole),
        cmocka_unit_test(streams_run_side_by_side),
        cmocka_unit_test(stream_limit_is_told_and_passes),
        cmocka_unit_test(cancel_ends_at_once),
        cmocka_unit_test(pinned_certificate_is_trusted_and_no_other),
        cmocka_unit_test(ca_file_decides_and_the_name_counts),
        cmocka_unit_test(closed_port_is_told_quickly),
        cmocka_unit_test(second_address_is_tried),
        cmocka_unit_test(bad_host_is_told),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
