/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: over TCP nothing changes without a key, this origin and the
   session's token; over the Unix socket the kernel's word decides; every
   refusal is counted and audited.
   Method: asks as the door would make them, against the API alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/abi/exchange.h"
#include "appliance/abi/reasons.h"
#include "appliance/control/console.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static tdm_console_t console;
static tdm_auth_t auth;
static tdm_config_t config;
static tdm_block_t block;
static tdm_http1_page_t page;
static uint32_t wakes;

static void wake(void *ctx) {
    (void)ctx;
    wakes++;
}

/* keys_file writes one with the key "secret" of that name. */
static void keys_file(char *path, const char *name) {
    uint8_t hash[32];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(gnutls_hash_fast(GNUTLS_DIG_SHA256, "secret", 6, hash), 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    (void)fprintf(f, "%s ", name);
    for (size_t i = 0; i < 32; i++) (void)fprintf(f, "%02x", hash[i]);
    (void)fprintf(f, "\n");
    (void)fclose(f);
}

static void open_console(const char *keys) {
    tdm_error_t err = {0};
    memset(&console, 0, sizeof console);
    (void)tdm_block_init(&block, "test");
    tdm_config_default(&config);
    config.state_dir[0] = '\0';
    (void)snprintf(config.control_admin_keys_file, sizeof config.control_admin_keys_file, "%s",
                   keys);
    tdm_auth_init(&auth);
    tdm_change_init(&console.change, NULL, NULL, &config, 0);
    console.block = &block;
    console.wake = wake;
    wakes = 0;
    assert_int_equal(tdm_console_open(&console, &config, &auth, &err), TDM_OK);
}

static int setup(void **state) {
    (void)state;
    char path[] = "/tmp/tdm-keys-XXXXXX";
    keys_file(path, "ann");
    open_console(path);
    (void)unlink(path);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tdm_console_close(&console);
    return 0;
}

/* An ask that may change things: each test takes one thing away. */
static tdm_http1_ask_t good(const char *path, const char *body) {
    return (tdm_http1_ask_t){.method = TDM_METHOD_POST,
                             .is_trusted = 1,
                             .peer_fd = -1,
                             .path = path,
                             .query = "",
                             .accept = "",
                             .accept_encoding = "",
                             .authorization = "Bearer secret",
                             .host = "127.0.0.1:8080",
                             .origin = "http://127.0.0.1:8080",
                             .fetch_site = "same-origin",
                             .csrf = console.csrf,
                             .content_type = "application/json",
                             .content_coding = "",
                             .body = body,
                             .body_sz = strlen(body)};
}

static uint16_t answer(const tdm_http1_ask_t *ask) {
    memset(&page, 0, sizeof page);
    assert_int_equal(tdm_console_answer(&console, ask, &page), 1);
    return page.status;
}

static int says(const char *word) {
    return memmem(page.data, page.sz, word, strlen(word)) != NULL;
}

static void denied(tdm_http1_ask_t ask, const char *word) {
    uint64_t before = console.audit.cnt;
    console.audit.denied_cnt = 0; /* of this minute: each is looked for here */
    uint32_t label = tdm_label_reason(TDM_REFUSE_auth);
    uint64_t counted = *tdm_block_word(&block, TDM_METRIC_refusals_total, label);
    assert_int_equal(answer(&ask), 403);
    if (!says(word)) fail_msg("%s: %.*s", word, (int)page.sz, page.data);
    assert_int_equal(console.audit.cnt, before + 1);
    assert_int_equal(*tdm_block_word(&block, TDM_METRIC_refusals_total, label), counted + 1);
    assert_int_equal(console.change.ask.kind, TDM_CHANGE_NONE);
    assert_int_equal(wakes, 0);
}

static void a_whole_ask_is_taken(void **state) {
    (void)state;
    tdm_http1_ask_t ask = good("/api/v1/drain", "{\"why\": \"kernel\"}");
    assert_int_equal(answer(&ask), 202);
    assert_true(says("\"asked\": 1"));
    assert_int_equal(wakes, 1);
    assert_int_equal(console.change.ask.kind, TDM_CHANGE_DRAIN);
    assert_string_equal(console.change.ask.actor.name, "key ann");
    assert_string_equal(console.change.ask.why, "kernel");
    assert_int_equal(answer(&ask), 409); /* one at a time */
}

static void over_tcp_each_proof_is_needed(void **state) {
    (void)state;
    static const char *const path[] = {"/api/v1/drain",           "/api/v1/undrain",
                                       "/api/v1/config/apply",    "/api/v1/config/confirm",
                                       "/api/v1/config/rollback", "/api/v1/reload"};
    for (size_t i = 0; i < TDM_COUNT_OF(path); i++) {
        tdm_http1_ask_t ask = good(path[i], "{}");
        ask.authorization = "Bearer wrong";
        denied(ask, "this needs the role");
        ask = good(path[i], "{}");
        ask.authorization = "";
        denied(ask, "this needs the role");
        ask = good(path[i], "{}");
        ask.csrf = "";
        denied(ask, "CSRF");
        ask = good(path[i], "{}");
        ask.csrf = "00000000000000000000000000000000";
        denied(ask, "CSRF");
        ask = good(path[i], "{}");
        ask.origin = "http://evil.example";
        denied(ask, "another origin");
        ask = good(path[i], "{}");
        ask.origin = "null";
        denied(ask, "another origin");
        ask = good(path[i], "{}");
        ask.fetch_site = "cross-site";
        denied(ask, "another origin");
        ask = good(path[i], "{}");
        ask.fetch_site = "same-site";
        denied(ask, "another origin");
    }
}

/* One byte of the token is enough, wherever it stands, and so is its end. */
static void a_token_is_whole_or_none(void **state) {
    (void)state;
    char token[sizeof console.csrf + 1];
    size_t sz = strlen(console.csrf);
    for (size_t i = 0; i <= sz + 1; i++) {
        memcpy(token, console.csrf, sz + 1);
        if (i < sz)
            token[i] = token[i] == '0' ? '1' : '0';
        else if (i == sz)
            token[sz - 1] = '\0';
        else
            memcpy(token + sz, "0", 2);
        tdm_http1_ask_t ask = good("/api/v1/drain", "{}");
        ask.csrf = token;
        denied(ask, "CSRF");
    }
}

/* A keys file may name a key as it likes: the answer stays JSON. */
static void a_session_is_json_whatever_the_key_is_called(void **state) {
    (void)state;
    static const char *const name[] = {"o\"ps\\", "o\x01", "caf\xc3\xa9", "\xff"};
    for (size_t i = 0; i < TDM_COUNT_OF(name); i++) {
        char path[] = "/tmp/tdm-keys-XXXXXX", want[64];
        keys_file(path, name[i]);
        tdm_console_close(&console);
        open_console(path);
        (void)unlink(path);
        tdm_http1_ask_t ask = good("/api/v1/session", "");
        ask.method = TDM_METHOD_GET;
        assert_int_equal(answer(&ask), 200);
        json_t *root = json_loadb(page.data, page.sz, 0, NULL);
        if (!root) fail_msg("%.*s", (int)page.sz, page.data);
        (void)snprintf(want, sizeof want, "key %s", name[i]);
        assert_string_equal(json_string_value(json_object_get(root, "who")), i < 3 ? want : "?");
        assert_string_equal(json_string_value(json_object_get(root, "role")), "admin");
        json_decref(root);
    }
}

static void a_body_must_be_json(void **state) {
    (void)state;
    tdm_http1_ask_t ask = good("/api/v1/drain", "{}");
    static const char *const type[] = {"", "text/plain", "application/jsonp", "application/x"};
    for (size_t i = 0; i < TDM_COUNT_OF(type); i++) {
        ask.content_type = type[i];
        assert_int_equal(answer(&ask), 415);
        assert_int_equal(page.is_coded, 0);
    }
    static const char *const coding[] = {"gzip", "identity, br", "zstd"};
    ask.content_type = "application/json; charset=utf-8";
    for (size_t i = 0; i < TDM_COUNT_OF(coding); i++) {
        ask.content_coding = coding[i];
        assert_int_equal(answer(&ask), 415);
        assert_true(says("unsupported_media_type") && says("Content-Encoding"));
        assert_int_equal(page.is_coded, 1);
    }
    static const char *const bad[] = {"[]",
                                      "{",
                                      "{\"why\": 3}",
                                      "{\"confirm_s\": -1}",
                                      "{\"confirm_s\": 86401}",
                                      "{\"other\": 1}",
                                      "{\"revision\": 4294967295}"};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        ask = good("/api/v1/drain", bad[i]);
        assert_int_equal(answer(&ask), 400);
        assert_true(says("bad_value"));
    }
    ask = good("/api/v1/config/apply", "{}");
    assert_int_equal(answer(&ask), 400);
    assert_true(says("the candidate is missing"));
    ask = good("/api/v1/config/apply", "{\"config\": {\"sched\": {\"sequences\": 3}}}");
    assert_int_equal(answer(&ask), 400);
    assert_true(says("a change needs a restart"));
    assert_int_equal(wakes, 0);
}

/* Two look at the same revision and both apply: the second hears so. */
static void who_looked_at_an_old_revision_hears_a_conflict(void **state) {
    (void)state;
    console.change.revision = 4;
    console.change.kept[4] = console.change.kept[0];
    tdm_http1_ask_t ask = good("/api/v1/config/apply",
                               "{\"config\": {\"sched\": {\"gap_ms\": 77}}, \"revision\": 3}");
    assert_int_equal(answer(&ask), 409);
    assert_true(says("\"code\":\"conflict\"") && says("made from revision 3, but 4 is in force"));
    assert_int_equal(console.change.ask.kind, TDM_CHANGE_NONE);
    assert_int_equal(console.audit.cnt, 1);
    assert_int_equal(wakes, 0);
    ask = good("/api/v1/config/apply",
               "{\"config\": {\"sched\": {\"gap_ms\": 77}}, \"revision\": 4}");
    assert_int_equal(answer(&ask), 202);
    assert_int_equal(console.change.ask.revision, 4);
}

static void without_a_keys_file_it_is_read_only(void **state) {
    (void)state;
    tdm_console_close(&console);
    open_console("");
    denied(good("/api/v1/drain", "{}"), "read-only");
    tdm_http1_ask_t ask = good("/api/v1/session", "");
    ask.method = TDM_METHOD_GET;
    assert_int_equal(answer(&ask), 200);
    assert_true(says("\"can_change\":false") && says("\"csrf\":\"\""));
    /* What the file already says may be made to count by this machine, not
       by a page that its browser shows. */
    ask = good("/reload", "");
    ask.authorization = ask.csrf = "";
    assert_int_equal(answer(&ask), 202);
    console.change.ask.kind = TDM_CHANGE_NONE;
    wakes = 0;
    ask.origin = "http://evil.example";
    denied(ask, "another origin");
    ask = good("/reload", "");
    ask.authorization = "";
    ask.is_trusted = 0;
    denied(ask, "only this machine");
}

static void a_diff_changes_nothing(void **state) {
    (void)state;
    tdm_http1_ask_t ask =
        good("/api/v1/config/diff", "{\"config\": {\"sched\": {\"gap_ms\": 77}}}");
    ask.authorization = ask.csrf = "";
    assert_int_equal(answer(&ask), 200);
    assert_true(says("sched.gap_ms") && says("\"to\":\"77\""));
    assert_int_equal(wakes, 0);
}

static void the_socket_asks_the_kernel(void **state) {
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    tdm_http1_ask_t ask = good("/api/v1/drain", "{}");
    ask.peer_fd = pair[0];
    ask.authorization = ask.csrf = ask.origin = ask.fetch_site = "";
    assert_int_equal(answer(&ask), 202); /* the process's own user */
    console.change.ask.kind = TDM_CHANGE_NONE;
    wakes = 0;
    tdm_actor_t actor;
    tdm_console_actor(&console, &ask, &actor);
    assert_int_equal(actor.role, TDM_ROLE_ADMIN);
    (void)close(pair[0]);
    (void)close(pair[1]);
    int null[2];
    assert_int_equal(pipe(null), 0); /* no socket: the kernel says nothing */
    ask.peer_fd = null[0];
    denied(ask, "this needs the role operator");
    ask.method = TDM_METHOD_GET;
    ask.path = "/api/v1/audit";
    denied(ask, "this needs the role viewer");
    (void)close(null[0]);
    (void)close(null[1]);
}

static void who_may_not_look_over_tcp_hears_401(void **state) {
    (void)state;
    tdm_http1_ask_t ask = good("/api/v1/changes", "");
    ask.method = TDM_METHOD_GET;
    ask.authorization = "";
    assert_int_equal(answer(&ask), 200);
    ask.is_trusted = 0;
    assert_int_equal(answer(&ask), 401);
    assert_false(says("http.hosts"));
    ask.is_misnamed = 1; /* a browser here, and somebody else's page in it */
    static const char *const path[] = {"/api/v1/changes", "/api/v1/session", "/api/v1/audit",
                                       "/reload"};
    for (size_t i = 0; i < TDM_COUNT_OF(path); i++) {
        ask.path = path[i];
        assert_int_equal(answer(&ask), 401);
        assert_true(says("http.hosts") && !says(console.csrf));
    }
    ask.is_misnamed = 0;
    ask.authorization = "Bearer secret";
    assert_int_equal(answer(&ask), 200);
    ask.path = "/api/v1/other";
    assert_int_equal(tdm_console_answer(&console, &ask, &page), 0);
    ask.method = TDM_METHOD_POST;
    assert_int_equal(tdm_console_answer(&console, &ask, &page), 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_whole_ask_is_taken),
        T(over_tcp_each_proof_is_needed),
        T(a_token_is_whole_or_none),
        T(a_session_is_json_whatever_the_key_is_called),
        T(a_body_must_be_json),
        T(who_looked_at_an_old_revision_hears_a_conflict),
        T(without_a_keys_file_it_is_read_only),
        T(a_diff_changes_nothing),
        T(the_socket_asks_the_kernel),
        T(who_may_not_look_over_tcp_hears_401),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
