/* SPDX-License-Identifier: Apache-2.0 */
/* The server against clients that were not written here: gtlsclient
   (Debian's ngtcp2-client) and aioquic (Python).  Each test is skipped
   where its client is not installed.
   usage: unit_net_interop [PYTHON]   the interpreter that has aioquic */
#include "appliance/base/clock.h"
#include "appliance/base/sum.h"
#include "net/quic/cert.h"
#include "tests/unit/net_client/loop_server.h"
#include "tests/unit/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static const char *python = "python3";
static loop_server_t *server;

static void need_gtlsclient(void) {
    if (shell("command -v gtlsclient >/dev/null 2>&1") != 0) skip();
}

static uint64_t read_file(const char *name, char *buf, uint64_t buf_sz) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("%s was not written", path);
    uint64_t sz = fread(buf, 1, buf_sz - 1u, f);
    fclose(f);
    buf[sz] = '\0';
    return sz;
}

static int gtlsclient(const char *options, const char *path) {
    return shell("cd %s && timeout 20 gtlsclient -q --exit-on-all-streams-close --download=%s %s "
                 "127.0.0.1 %u 'https://localhost%s' >%s/log 2>&1",
                 dir, dir, options, loop_server_port(server), path, dir);
}

static void gtlsclient_gets(void **state) {
    (void)state;
    char text[256];
    need_gtlsclient();
    assert_int_equal(gtlsclient("", "/health"), 0);
    read_file("health", text, sizeof text);
    assert_string_equal(text, "{\"status\":\"ok\"}");
}

#define BODY_SZ 150001u

/* make_body writes the file that is posted and answers its hash. */
static uint64_t make_body(void) {
    static char body[BODY_SZ];
    char path[160];
    snprintf(path, sizeof path, "%s/body", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (uint32_t i = 0; i < sizeof body; i++) body[i] = (char)(i * 13u + (i >> 8));
    assert_int_equal(fwrite(body, 1, sizeof body, f), sizeof body);
    fclose(f);
    return tdm_sum_bytes(TDM_SUM_FIRST, body, sizeof body);
}

static void gtlsclient_posts(void **state) {
    (void)state;
    char text[256];
    char want[64];
    need_gtlsclient();
    uint64_t hash = make_body();
    assert_int_equal(gtlsclient("-m POST -d body", "/echo"), 0);
    read_file("echo", text, sizeof text);
    snprintf(want, sizeof want, "\"hash\":\"%016llx\"", (unsigned long long)hash);
    assert_non_null(strstr(text, want));
}

static uint32_t count(const char *text, const char *word) {
    uint32_t cnt = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++) cnt++;
    return cnt;
}

static void gtlsclient_streams_through_loss(void **state) {
    (void)state;
    static char text[1u << 20];
    need_gtlsclient();
    assert_int_equal(gtlsclient("-t 0.05 -r 0.05", "/stream?3000"), 0);
    uint64_t sz = read_file("stream?3000", text, sizeof text);
    assert_int_equal(count(text, "token"), 3000);
    assert_string_equal(text + sz - 14, "data: [DONE]\n\n");
}

static void gtlsclient_updates_keys(void **state) {
    (void)state;
    static char text[1u << 20];
    need_gtlsclient();
    assert_int_equal(gtlsclient("--key-update=1ms", "/stream?6000"), 0);
    read_file("stream?6000", text, sizeof text);
    assert_int_equal(count(text, "token"), 6000);
}

/* The client is sending when it moves: one that only listens cannot know
   that its old address is dead, and nobody could tell the server. */
static void gtlsclient_moves_to_another_port(void **state) {
    (void)state;
    char text[256];
    need_gtlsclient();
    make_body();
    assert_int_equal(
        gtlsclient("-m POST -d body --change-local-addr=1ms --nat-rebinding", "/moved"), 0);
    read_file("moved", text, sizeof text);
    assert_non_null(strstr(text, "\"body\":150001"));
}

static void aioquic_agrees(void **state) {
    (void)state;
    const char *peer = TDM_SOURCE_DIR "/tests/unit/net_client/aioquic_peer.py";
    if (shell("%s %s --has >/dev/null 2>&1", python, peer) != 0) skip();
    if (shell("timeout 40 %s %s %u >%s/log 2>&1", python, peer, loop_server_port(server), dir) !=
        0) {
        char text[2048];
        read_file("log", text, sizeof text);
        fail_msg("%s", text);
    }
}

static int group_setup(void **state) {
    (void)state;
    char cert[96];
    char key[96];
    tdm_error_t err = {0};
    int is_made = 0;
    snprintf(dir, sizeof dir, "/tmp/tdm-interop-XXXXXX");
    if (mkdtemp(dir) == NULL) return -1;
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    tdm_cert_config_t cfg = {.cert_file = cert,
                             .key_file = key,
                             .name = {"localhost"},
                             .name_cnt = 1,
                             .wall_s = tdm_clock_wall_s()};
    if (tdm_cert_ensure(&cfg, &is_made, &err) != TDM_OK) return -1;
    server = loop_server_start(0, cert, key);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    (void)loop_server_stop(server);
    return shell("rm -r %s", dir);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gtlsclient_gets),
        cmocka_unit_test(gtlsclient_posts),
        cmocka_unit_test(gtlsclient_streams_through_loss),
        cmocka_unit_test(gtlsclient_updates_keys),
        cmocka_unit_test(gtlsclient_moves_to_another_port),
        cmocka_unit_test(aioquic_agrees),
    };
    if (argc > 1) python = argv[1];
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
