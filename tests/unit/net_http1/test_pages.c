/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: pages over the Unix socket know who asks and carry their policy;
   a feed goes on by itself, ends with its client, and is bounded.
   Method: raw sockets against the door of rig.h with a page of our own. */
#include "raw.h"

#include "appliance/base/atomic.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static rig_t *rig;
static char folder[] = "/tmp/tdm-pages-XXXXXX", path[96];
static uint32_t more_cnt;

static size_t more(void *ctx, uint64_t *cursor, int64_t now_ns, char *buf, size_t cap) {
    (void)ctx;
    (void)now_ns;
    (void)tdm_add_relaxed(&more_cnt, 1u);
    return (size_t)snprintf(buf, cap, "data: %u\n\n", (unsigned)++*cursor);
}

static int page(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page_) {
    static char text[1024];
    (void)ctx;
    if (strcmp(ask->path, "/feed") == 0) {
        page_->content_type = TDM_CONTENT_EVENT_STREAM;
        page_->more = more;
        page_->more_ms = 20;
        return 1;
    }
    if (strcmp(ask->path, "/who") != 0) return 0;
    struct ucred who = {0};
    socklen_t sz = sizeof who;
    int rc = ask->peer_fd < 0 ? -1 : getsockopt(ask->peer_fd, SOL_SOCKET, SO_PEERCRED, &who, &sz);
    int n =
        snprintf(text, sizeof text,
                 "%s pid %d uid %d trusted %d origin %s csrf %s coding [%s] body "
                 "%.*s\n",
                 rc == 0 ? "unix" : "tcp", (int)who.pid, (int)who.uid, ask->is_trusted, ask->origin,
                 ask->csrf, ask->content_coding, (int)ask->body_sz, ask->body ? ask->body : "");
    *page_ = (tdm_http1_page_t){.status = 200,
                                .content_type = TDM_CONTENT_HTML,
                                .is_coded = ask->content_coding[0] != '\0',
                                .policy = "default-src 'none'",
                                .data = text,
                                .sz = (uint64_t)n};
    return 1;
}

static int setup(void **state) {
    (void)state;
    tdm_error_t err = {0};
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/run/ctl.sock", folder);
    rig = rig_open_with_page(NULL, page);
    return tdm_http1_unix_open(rig_door(rig), path, &err) == TDM_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    int is_idle = rig_wait_idle(rig);
    rig_close(rig);
    int is_left = access(path, F_OK) == 0;
    char run[160];
    (void)snprintf(run, sizeof run, "%s/run", folder);
    (void)rmdir(run);
    (void)rmdir(folder);
    return is_idle && !is_left ? 0 : -1;
}

static int unix_connect(void) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

static const char *unix_ask(const char *request) {
    int fd = unix_connect();
    client_send(fd, request);
    const char *text = client_read(fd, NULL, NULL);
    (void)close(fd);
    return text;
}

static void the_kernel_says_who_asks(void **state) {
    (void)state;
    char want[64];
    const char *a = unix_ask("GET /who HTTP/1.1\r\n" END);
    (void)snprintf(want, sizeof want, "unix pid %d uid %d trusted 1", (int)getpid(), (int)getuid());
    assert_non_null(strstr(a, want));
    a = client_ask(rig, "GET /who HTTP/1.1\r\n" END);
    assert_non_null(strstr(a, "tcp pid 0 uid 0 trusted 1"));
    a = client_ask(rig, "GET /who HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n");
    assert_non_null(strstr(a, "tcp pid 0 uid 0 trusted 0"));
    /* no browser speaks over it */
    a = unix_ask("GET /who HTTP/1.1\r\nConnection: close\r\nHost: evil.example\r\n\r\n");
    assert_non_null(strstr(a, want));
}

static void a_page_hears_headers_and_body(void **state) {
    (void)state;
    const char *a = unix_ask("POST /who HTTP/1.1\r\nOrigin: http://o\r\nX-CSRF-Token: abc\r\n"
                             "Content-Length: 5\r\n" END "hello");
    assert_non_null(strstr(a, "origin http://o csrf abc coding [] body hello"));
    assert_null(strstr(a, "Accept-Encoding: identity"));
    assert_non_null(strstr(a, "Content-Security-Policy: default-src 'none'\r\n"));
    assert_non_null(strstr(a, "X-Frame-Options: DENY\r\n"));
    assert_non_null(strstr(a, "Server: tandem\r\n"));
    assert_non_null(strstr(a, "Content-Type: text/html; charset=utf-8\r\n"));
    assert_null(strstr(a, "Access-Control-Allow-Origin"));
    a = unix_ask("POST /who HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Encoding: br\r\n"
                 "Content-Length: 5\r\n" END "hello");
    assert_non_null(strstr(a, "coding [gzip,br] body hello"));
    assert_non_null(strstr(a, "\r\nAccept-Encoding: identity\r\n"));
}

/* The API itself is there as well, as over TCP. */
static void the_api_answers_over_it(void **state) {
    (void)state;
    const char *a = unix_ask("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n" END "hello");
    assert_non_null(strstr(a, "\r\n\r\nhello"));
    a = unix_ask("GET /stream?3,10 HTTP/1.1\r\n" END);
    assert_non_null(strstr(a, "data: 2"));
}

static void connections_over_it_are_bounded(void **state) {
    (void)state;
    int fd[24];
    uint64_t before = rig_counter(rig, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1);
    for (size_t i = 0; i < 24; i++) fd[i] = unix_connect();
    for (int i = 0; i < 200; i++) {
        if (rig_counter(rig, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1) ==
            before + 8)
            break;
        sleep_us(10000);
    }
    assert_int_equal(rig_counter(rig, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1),
                     before + 8);
    for (size_t i = 0; i < 24; i++) (void)close(fd[i]);
    const char *a = ""; /* places come back */
    for (int i = 0; i < 100 && !strstr(a, "unix pid"); i++) {
        sleep_us(20000);
        a = unix_ask("GET /who HTTP/1.1\r\n" END);
    }
    assert_non_null(strstr(a, "unix pid"));
}

/* --- a process without a descriptor left --------------------------------- */

static int64_t cpu_ns(void) {
    struct timespec ts;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static uint64_t put_off(void) {
    return rig_counter(rig, TDM_METRIC_http_connections_put_off_total, 0);
}

/* wait_put_off connects fd, for which the door has no descriptor, looks on for
   a while, and lets it have one. */
static void wait_put_off(int fd, const struct sockaddr *addr, socklen_t addr_sz) {
    struct rlimit was, none;
    uint64_t before = put_off();
    int least = dup(fd);
    assert_true(least > fd);
    (void)close(least);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = (struct rlimit){(rlim_t)least, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(fd, addr, addr_sz), 0);
    for (int i = 0; i < 200 && put_off() == before; i++) sleep_us(10000);
    int64_t spent_ns = cpu_ns();
    uint64_t first = put_off();
    sleep_us(500000);
    spent_ns = cpu_ns() - spent_ns;
    uint64_t more = put_off() - first;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(first > before);
    assert_in_range(more, 0, 20);
    /* The rig's own threads look ten thousand times a second. */
    assert_in_range(spent_ns, 0, INT64_C(250000000));
    client_send(fd, "GET /info HTTP/1.1\r\n" END);
    assert_non_null(strstr(client_read(fd, NULL, NULL), "HTTP/1.1 200 OK"));
    (void)close(fd);
}

static void without_a_descriptor_a_peer_waits_and_nobody_spins(void **state) {
    (void)state;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(tdm_http1_port(rig_door(rig))),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 2; i++) {
        int a = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        wait_put_off(a, (const void *)&un, sizeof un);
        int b = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        wait_put_off(b, (const void *)&in, sizeof in);
    }
}

/* soft_of opens a door of conn_max connections where soft and hard descriptors
   are allowed, and gives the soft bound then; 0: the door was refused for it. */
static uint64_t soft_of(uint32_t conn_max, rlim_t soft, rlim_t hard) {
    int pipe_fd[2];
    uint64_t out = 0;
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit l = {soft, hard};
        tdm_http1_config_t config;
        tdm_http1_wires_t wires = {.api_cnt = 1};
        tdm_http1_t *door;
        tdm_error_t err = {0};
        tdm_http1_config_default(&config);
        config.port = 0;
        config.is_driven = 1;
        config.conn_max = conn_max;
        if (setrlimit(RLIMIT_NOFILE, &l) != 0) _exit(1);
        tdm_status_t st = tdm_http1_open(&config, &wires, &door, &err);
        if (st != TDM_OK && (st != TDM_ERR_LIMIT || !strstr(err.text, "descriptors"))) _exit(1);
        if (st != TDM_OK) l.rlim_cur = 0;
        if (st == TDM_OK && getrlimit(RLIMIT_NOFILE, &l) != 0) _exit(1);
        out = l.rlim_cur;
        _exit(write(pipe_fd[1], &out, sizeof out) != sizeof out);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipe_fd[0], &out, sizeof out), sizeof out);
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
    return out;
}

/* So that its bound is reached before the process's: over that one, peers are
   refused in order; without a descriptor, they hang. */
static void a_door_has_descriptors_for_its_connections(void **state) {
    (void)state;
    assert_int_equal(soft_of(64, 1024, 1024), 1024); /* as it was */
    assert_in_range(soft_of(2000, 256, 4096), 2000, 2400);
    assert_int_equal(soft_of(2000, 256, 2000), 0);
    assert_int_equal(soft_of(512, 256, 512), 0);
}

static void a_name_is_taken_over_from_the_dead_only(void **state) {
    (void)state;
    tdm_error_t err = {0};
    rig_t *other = rig_open_with_page(NULL, page);
    assert_int_equal(tdm_http1_unix_open(rig_door(other), path, &err), TDM_ERR_FULL);
    assert_non_null(strstr(err.text, "another process"));
    char dead[96];
    (void)snprintf(dead, sizeof dead, "%s/run/dead", folder);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%s", dead);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof addr), 0);
    (void)close(fd); /* the name stays */
    assert_int_equal(tdm_http1_unix_open(rig_door(other), dead, &err), TDM_OK);
    rig_close(other);
    assert_int_not_equal(access(dead, F_OK), 0);
}

/* A name in control.socket may be mistyped: what is there is not ours to
   take away. */
static void what_is_no_socket_stays(void **state) {
    (void)state;
    rig_t *other = rig_open_with_page(NULL, page);
    char name[112];
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "%s/run/thing", folder);
        int fd = i == 0 ? open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
        if (fd >= 0) assert_int_equal(write(fd, "kept", 4), 4);
        if (fd >= 0) (void)close(fd);
        int rc = i == 1   ? mkdir(name, 0700)
                 : i == 2 ? mkfifo(name, 0600)
                 : i == 3 ? symlink("nowhere", name)
                 : i == 4 ? symlink(path, name) /* to a socket: the link is no socket */
                          : 0;
        assert_int_equal(rc, 0);
        struct stat before, after;
        tdm_error_t err = {0};
        assert_int_equal(lstat(name, &before), 0);
        assert_int_equal(tdm_http1_unix_open(rig_door(other), name, &err), TDM_ERR_FULL);
        assert_non_null(strstr(err.text, "no socket"));
        assert_int_equal(lstat(name, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(after.st_size, before.st_size);
        assert_int_equal(after.st_mode, before.st_mode);
        assert_int_equal(remove(name), 0);
    }
    rig_close(other);
}

/* --- feeds ---------------------------------------------------------------- */

static void a_feed_goes_on(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "GET /feed HTTP/1.1\r\n" END);
    const char *a = client_read(fd, "data: 5\n", NULL);
    assert_non_null(strstr(a, "data: 1\n\n"));
    assert_non_null(strstr(a, "data: 5\n\n"));
    (void)close(fd);
    uint32_t seen = 0; /* nobody asks for more once the client has left */
    for (int i = 0; i < 50; i++) {
        seen = tdm_load_relaxed(&more_cnt);
        sleep_us(100000);
        if (tdm_load_relaxed(&more_cnt) == seen) break;
    }
    assert_int_equal(tdm_load_relaxed(&more_cnt), seen);
}

static void feeds_are_bounded(void **state) {
    (void)state;
    int fd[TDM_HTTP1_FEED_CNT_MAX];
    for (size_t i = 0; i < TDM_HTTP1_FEED_CNT_MAX; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /feed HTTP/1.1\r\n" END);
        assert_non_null(strstr(client_read(fd[i], "data: 1\n", NULL), "200 OK"));
    }
    const char *a = client_ask(rig, "GET /feed HTTP/1.1\r\n" END);
    assert_non_null(strstr(a, "503 "));
    assert_non_null(strstr(a, "exchange_limit"));
    for (size_t i = 0; i < TDM_HTTP1_FEED_CNT_MAX; i++) (void)close(fd[i]);
    for (int i = 0; i < 100 && !strstr(a, "data: 1\n"); i++) {
        sleep_us(20000);
        int last = client_connect(rig);
        client_send(last, "GET /feed HTTP/1.1\r\n" END);
        a = client_read(last, "\n\n", NULL);
        (void)close(last);
    }
    assert_non_null(strstr(a, "data: 1\n"));
}

/* A viewer's feed waits for us, not we for it: at a bound others make way. */
static void a_feed_does_not_make_way(void **state) {
    (void)state;
    tdm_http1_config_t config = rig_config();
    config.conn_max = 8;
    config.conn_per_address_max = 8;
    rig_t *other = rig_open_with_page(&config, page);
    int feed = client_connect(other), idle[24];
    client_send(feed, "GET /feed HTTP/1.1\r\n" END);
    (void)client_read(feed, "data: 1\n", NULL);
    sleep_us(400000); /* longer than a connection is safe from making way */
    for (int i = 0; i < 24; i++) idle[i] = client_connect_from(other, 1u + (uint32_t)i % 3u);
    sleep_us(300000);
    for (int i = 0; i < 24; i++) { /* some have made way by now, in the order they came */
        client_send(idle[i], "G");
        sleep_us(10000);
    }
    (void)client_read(feed, "data: 5\n", NULL);
    const char *a = client_read(feed, "\n\n", NULL);
    assert_non_null(strstr(a, "data: ")); /* it goes on */
    for (int i = 0; i < 24; i++) (void)close(idle[i]);
    (void)close(feed);
    rig_close(other);
}

/* The door closes with a feed under way. */
static void closing_ends_a_feed(void **state) {
    (void)state;
    rig_t *other = rig_open_with_page(NULL, page);
    int fd = client_connect(other);
    client_send(fd, "GET /feed HTTP/1.1\r\n" END);
    (void)client_read(fd, "data: 1\n", NULL);
    rig_close(other);
    char byte[4096];
    while (read(fd, byte, sizeof byte) > 0) {
    }
    (void)close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(the_kernel_says_who_asks),
        T(a_page_hears_headers_and_body),
        T(the_api_answers_over_it),
        T(connections_over_it_are_bounded),
        T(without_a_descriptor_a_peer_waits_and_nobody_spins),
        T(a_door_has_descriptors_for_its_connections),
        T(a_name_is_taken_over_from_the_dead_only),
        T(what_is_no_socket_stays),
        T(a_feed_goes_on),
        T(feeds_are_bounded),
        T(a_feed_does_not_make_way),
        T(closing_ends_a_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
