/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a page of somebody else in a browser of this machine is a stranger,
   whether its name leads here (DNS rebinding) or it sends across origins;
   everybody who asks by a name of ours is as trusted as before.
   Method: each form of Host and Origin through the door of rig.h. */
#include "raw.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static rig_t *rig;
static char own[256]; /* of the machine that runs the test */

static int setup(void **state) {
    (void)state;
    tdm_http1_config_t config = rig_config();
    config.hosts = "tandem.rack, proxy.example.,x_1";
    if (gethostname(own, sizeof own - 1) != 0) own[0] = '\0';
    rig = rig_open(&config);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return close_idle(rig);
}

static uint64_t misnamed(void) {
    return rig_counter(rig, TDM_METRIC_http_misnamed_requests_total, 0);
}

static const char *target = "/info";

/* ask sends one request with these fields, NULL: without, which HTTP/1.0 may,
   and holds what the api tile saw against is_trusted; the counter counts the
   others. */
static void ask(const char *host, const char *origin, int is_trusted) {
    char request[1024];
    uint64_t before = misnamed();
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.%d\r\nConnection: close\r\n", target,
                     host != NULL);
    if (host) n += snprintf(request + n, sizeof request - (size_t)n, "Host: %s\r\n", host);
    if (origin) n += snprintf(request + n, sizeof request - (size_t)n, "Origin: %s\r\n", origin);
    (void)snprintf(request + n, sizeof request - (size_t)n, "\r\n");
    const char *a = client_ask(rig, request);
    if (host && strchr(host, '@')) /* no host at all */
        has(a, "bad_request");
    else if (!strstr(a, is_trusted ? "trusted 1\n" : "trusted 0\n"))
        fail_msg("Host %s, Origin %s: not trusted %d:\n%.1000s", host ? host : "-",
                 origin ? origin : "-", is_trusted, a);
    assert_int_equal(misnamed() - before, !is_trusted);
}

static const char *const ours[] = {
    "127.0.0.1",    "127.0.0.1:8080", "10.88.0.2",    "[::1]",         "[::1]:8080",
    "[fd88::2]:80", "localhost",      "LOCALHOST:1",  "localhost.",    "a.localhost:3000",
    "tandem.rack",  "Tandem.Rack:80", "tandem.rack.", "proxy.example", "x_1:8080",
};

static const char *const others[] = {
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "notlocalhost",
    "127.0.0.1.example",
    "127.0.0.1.nip.io:1",
    "tandem.rack.evil",
    "eviltandem.rack",
    "tandem",
    "rack",
    "proxy.example.evil",
    "[::1",
    "[::1]evil",
    "[evil.example]:80",
    "[127.0.0.1]",
    "::1",
    "127.1",
    "0x7f000001",
    "2130706433",
    "localhost:80x",
    "localhost:80.evil",
    "tandem.rack,x_1",
    "127.0.0.1@evil.example",
    "..",
    ".",
};

static void a_host_of_ours_is_trusted(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(ours); i++) ask(ours[i], NULL, 1);
    ask(own[0] ? own : "localhost", NULL, 1);
    ask(NULL, NULL, 1); /* no browser: they always send one */
    ask("", NULL, 1);
}

static void a_host_of_others_is_not(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(others); i++) ask(others[i], NULL, 0);
}

/* Whatever page sends, it is judged as a host is. */
static void so_is_an_origin(void **state) {
    (void)state;
    char origin[128];
    for (size_t i = 0; i < TDM_COUNT_OF(ours) + TDM_COUNT_OF(others); i++) {
        int is_ours = i < TDM_COUNT_OF(ours);
        const char *name = is_ours ? ours[i] : others[i - TDM_COUNT_OF(ours)];
        (void)snprintf(origin, sizeof origin, "http%s://%s", i % 2 ? "s" : "", name);
        ask("127.0.0.1:8080", origin, is_ours);
    }
    ask("127.0.0.1", "null", 0);
    ask("127.0.0.1", "http://", 0);
    ask("127.0.0.1", "nonsense", 0);
    /* both are of the page's own name: the same origin, and a stranger's */
    ask("evil.example:8080", "http://evil.example:8080", 0);
    /* programs that have pages, not pages of the web */
    ask("127.0.0.1", "vscode-webview://abc", 1);
    ask("evil.example", "vscode-webview://abc", 0);
}

/* HTTP/1.0 has no Host: a balancer's probe. */
static void a_probe_without_a_host_is_trusted(void **state) {
    (void)state;
    has(client_ask(rig, "GET /info HTTP/1.0\r\n\r\n"), "trusted 1\n");
}

/* The host of a target stands instead of Host (RFC 9112 section 3.2.2). */
static void a_target_with_a_host_is_judged_by_it(void **state) {
    (void)state;
    target = "http://evil.example/info";
    ask("localhost", NULL, 0);
    ask(NULL, NULL, 0);
    target = "http://localhost@evil.example/info";
    ask("localhost", NULL, 0);
    target = "http://localhost:8080/info";
    ask("evil.example", NULL, 1);
    target = "/info";
}

static void names_that_are_none_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"http://a", "a:80", "a,*", "*.a", "a/b", "a;b", "[::1]"};
    static char is_long[600];
    memset(is_long, 'a', sizeof is_long - 1);
    tdm_http1_wires_t wires = {.api_cnt = 1};
    for (size_t i = 0; i <= TDM_COUNT_OF(bad); i++) {
        tdm_error_t err = {0};
        tdm_http1_t *d;
        tdm_http1_config_t config = rig_config();
        config.hosts = i < TDM_COUNT_OF(bad) ? bad[i] : is_long;
        tdm_status_t st = tdm_http1_open(&config, &wires, &d, &err);
        assert_int_equal(st, i < TDM_COUNT_OF(bad) ? TDM_ERR_INVAL : TDM_ERR_LIMIT);
        assert_null(d);
        assert_non_null(strstr(err.text, "hosts"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_of_ours_is_trusted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_host_of_others_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(so_is_an_origin, setup, teardown),
        cmocka_unit_test_setup_teardown(a_target_with_a_host_is_judged_by_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_probe_without_a_host_is_trusted, setup, teardown),
        cmocka_unit_test(names_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
