/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever holds connections or exchange slots does not shut others
   out: health and metrics answer within a second, and an address that
   takes too much gives up its own first.  Requests that two readers could
   cut differently have one meaning.
   Method: raw sockets against the door of rig.h; a thread that drips. */
#include "raw.h"

#include "net/http1/http1_private.h"

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static rig_t *rig;

static int page(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *out) {
    (void)ctx;
    if (strcmp(ask->path, "/metrics") != 0) return 0;
    *out = (tdm_http1_page_t){.status = 200, .data = "metric 1\n", .sz = 9};
    return 1;
}

static int setup(void **state) {
    (void)state;
    rig = NULL;
    return 0;
}

/* Every test ends with all slots free. */
static int teardown(void **state) {
    (void)state;
    return close_idle(rig);
}

static uint64_t refused_connections(void) {
    return rig_counter(rig, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1);
}

static uint64_t connections(void) {
    return rig_counter(rig, TDM_METRIC_connections, TDM_LABEL_DOOR_http1);
}

/* falls_to waits up to 2 s until no more than cnt connections are open. */
static int falls_to(uint64_t cnt) {
    for (int i = 0; i < 2000 && connections() > cnt; i++) sleep_us(1000);
    return connections() <= cnt;
}

static int is_closed(int fd) {
    char byte;
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 500) > 0 && recv(fd, &byte, 1, 0) <= 0;
}

/* --- drips --------------------------------------------------------------- */

#define DRIPPERS 32

typedef struct drip {
    uint32_t stop;
    const char *head; /* what each connection begins with */
    uint64_t begun;   /* connections opened in all */
} drip_t;

/* drip_main keeps DRIPPERS half requests alive, a byte each 20 ms, and
   begins anew what the door closes. */
static void *drip_main(void *arg) {
    drip_t *d = arg;
    int fd[DRIPPERS];
    for (int i = 0; i < DRIPPERS; i++) fd[i] = -1;
    while (!tdm_load_relaxed(&d->stop)) {
        for (int i = 0; i < DRIPPERS; i++) {
            char byte;
            if (fd[i] >= 0 && (recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0 ||
                               send(fd[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)) {
                (void)close(fd[i]);
                fd[i] = -1;
            }
            if (fd[i] >= 0) continue;
            fd[i] = client_connect(rig);
            client_send(fd[i], d->head);
            d->begun++;
        }
        sleep_us(20000);
    }
    for (int i = 0; i < DRIPPERS; i++)
        if (fd[i] >= 0) (void)close(fd[i]);
    return NULL;
}

/* slowest_ms asks a path, again where the door turned us away, and tells
   how long the slowest answer took. */
static int64_t slowest_ms(const char *request, int cnt) {
    int64_t worst_ns = 0;
    for (int i = 0; i < cnt; i++) {
        int64_t start_ns = tdm_clock_now_ns();
        while (!strstr(client_ask(rig, request), "200 OK"))
            assert_true(tdm_clock_now_ns() - start_ns < 5 * TDM_NS_PER_S);
        worst_ns = TDM_MAX(worst_ns, tdm_clock_now_ns() - start_ns);
        sleep_us(50000);
    }
    return worst_ns / TDM_NS_PER_MS;
}

static void survive(const char *head) {
    tdm_http1_config_t c = rig_config();
    c.conn_max = c.conn_per_address_max = 16;
    c.reserve_cnt = 2;
    rig = rig_open_with_page(&c, page);
    drip_t d = {.head = head};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drip_main, &d), 0);
    sleep_us(100000); /* all places are taken */
    int64_t health_ms = slowest_ms("GET /health HTTP/1.1\r\n" END, 5);
    int64_t metrics_ms = slowest_ms("GET /metrics HTTP/1.1\r\n" END, 5);
    tdm_store_relaxed(&d.stop, 1u);
    (void)pthread_join(thread, NULL);
    printf("health within %lld ms, metrics within %lld ms, %llu connections of %d drippers\n",
           (long long)health_ms, (long long)metrics_ms, (unsigned long long)d.begun, DRIPPERS);
    assert_true(health_ms < 1000 && metrics_ms < 1000);
    assert_true(refused_connections() > 0);
}

/* say is the library with a message. */
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    tdm_http1_log(rig_door(rig), format, args);
    va_end(args);
}

static uint64_t responses(void) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k <= TDM_LABEL_CODE_5xx; k++)
        sum += rig_counter(rig, TDM_METRIC_http_responses_total,
                           tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_http1, k));
    return sum;
}

/* The library's message about a client that left holds the path it asked
   for.  A status in there is no status: it once ended the process. */
static void the_words_of_a_client_are_no_status(void **state) {
    (void)state;
    rig = rig_open(NULL);
    say("Failed to send the response headers for the request for `%s'. Error: %s\n",
        "/HTTP response code is 999999", "gone");
    say("%s (HTTP response code is %u ('%s')).\n", "HTTP response code is 400", 400u, "x");
    say("HTTP response code is 400\n");
    for (unsigned status = 0; status < 400; status += 50)
        say("(HTTP response code is %u ('%s'))\n", status, "x");
    say("(HTTP response code is %u ('%s'))\n", 999999u, "x");
    assert_int_equal(responses(), 0);
    say("Error processing request (HTTP response code is %u ('%s')). Closing connection.\n", 431u,
        "HTTP response code is 999999");
    assert_int_equal(responses(), 1);
}

static void dripping_headers_do_not_lock_others_out(void **state) {
    (void)state;
    survive("GET /info HTTP/1.1\r\n" HOST "X-Slow: ");
}

static void silent_connections_do_not_lock_others_out(void **state) {
    (void)state;
    survive("");
}

/* --- places kept for health ------------------------------------------------- */

static void a_house_full_of_exchanges_shows_its_health(void **state) {
    (void)state;
    tdm_http1_config_t c = rig_config();
    c.reserve_cnt = 2;
    rig = rig_open_with_page(&c, page);
    int fd[14];
    for (int i = 0; i < 14; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /never HTTP/1.1\r\n" HOST "\r\n");
    }
    while (rig_arrivals(rig) < 14) sleep_us(1000);
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "\"code\":\"exchange_limit\"");
    has(client_ask(rig, "POST /health HTTP/1.1\r\nContent-Length: 0\r\n" END), " 503 ");
    has(client_ask(rig, "GET /health HTTP/1.1\r\n" END), "200 OK");
    has(client_ask(rig, "HEAD /ready HTTP/1.1\r\n" END), "200 OK");
    has(client_ask(rig, "GET /metrics HTTP/1.1\r\n" END), "metric 1");
    for (int i = 0; i < 14; i++) (void)close(fd[i]);
}

static void a_house_full_of_connections_shows_its_health(void **state) {
    (void)state;
    tdm_http1_config_t c = rig_config();
    c.conn_max = c.conn_per_address_max = 4;
    c.reserve_cnt = 2;
    rig = rig_open_with_page(&c, page);
    int fd[4];
    for (int i = 0; i < 4; i++) { /* streams make way for nobody */
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /stream?1000,20000 HTTP/1.1\r\n" HOST "\r\n");
        has(client_read(fd[i], "data: 0", NULL), "200 OK");
    }
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "\"code\":\"exchange_limit\"");
    has(client_ask(rig, "GET /health HTTP/1.1\r\n" END), "200 OK");
    has(client_ask(rig, "GET /metrics HTTP/1.1\r\n" END), "metric 1");
    assert_int_equal(refused_connections(), 0);
    int kept[2] = {client_connect(rig), client_connect(rig)};
    assert_string_equal(client_ask(rig, "GET /health HTTP/1.1\r\n" END), ""); /* both are taken */
    assert_int_equal(refused_connections(), 1);
    (void)close(fd[0]);
    (void)close(fd[1]);
    (void)close(kept[0]);
    assert_true(falls_to(4));
    client_send(kept[1], "GET /info HTTP/1.1\r\n" END); /* the house is not full any more */
    has(client_read(kept[1], NULL, NULL), "200 OK");
    (void)close(kept[1]);
    (void)close(fd[2]);
    (void)close(fd[3]);
}

static void idle_connections_make_way_oldest_first(void **state) {
    (void)state;
    tdm_http1_config_t c = rig_config();
    c.conn_max = c.conn_per_address_max = 3;
    rig = rig_open_with_page(&c, page);
    int fd[3];
    for (int i = 0; i < 3; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /info HTTP/1.1\r\n" HOST "\r\n");
        has(client_read(fd[i], "ordered", NULL), "200 OK");
    }
    sleep_us(400000); /* longer than any of them is safe */
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
    assert_true(is_closed(fd[0]));
    client_send(fd[2], "GET /info HTTP/1.1\r\n" HOST "\r\n");
    has(client_read(fd[2], "ordered", NULL), "200 OK");
    assert_int_equal(refused_connections(), 1);
    for (int i = 0; i < 3; i++) (void)close(fd[i]);
}

static void an_address_over_its_bound_gives_up_its_own(void **state) {
    (void)state;
    tdm_http1_config_t c = rig_config();
    c.conn_per_address_max = 2;
    rig = rig_open_with_page(&c, page);
    int other = client_connect_from(rig, 9);
    sleep_us(20000);
    int mine[2] = {client_connect_from(rig, 7), client_connect_from(rig, 7)};
    sleep_us(400000);
    int third = client_connect_from(rig, 7);
    client_send(third, "GET /info HTTP/1.1\r\n" END);
    has(client_read(third, NULL, NULL), "200 OK");
    assert_true(is_closed(mine[0]));
    client_send(other, "GET /info HTTP/1.1\r\n" END); /* older, of another address */
    has(client_read(other, NULL, NULL), "200 OK");
    (void)close(other);
    (void)close(third);
    (void)close(mine[0]);
    (void)close(mine[1]);
}

/* A client that resets in the middle of an answer leaves its place too,
   and not only its slot. */
static void a_reset_gives_the_place_back(void **state) {
    (void)state;
    static const char *const path[] = {"/stream?1000,20000", "/big?50000000", "/never"};
    rig = rig_open(NULL);
    for (int i = 0; i < 9; i++) {
        char request[128];
        int fd = client_connect(rig);
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", path[i % 3]);
        client_send(fd, request);
        while (rig_arrivals(rig) <= (uint64_t)i) sleep_us(1000);
        sleep_us(30000); /* unread bytes make the close a reset */
        (void)close(fd);
    }
    assert_true(falls_to(0));
}

/* --- requests with two readings ------------------------------------------------ */

static uint32_t times(const char *text, const char *part) {
    uint32_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) n++;
    return n;
}

/* Twenty requests in one write, bodies of every kind among them. */
static void a_pipeline_of_bodies_keeps_its_borders(void **state) {
    (void)state;
    rig = rig_open(NULL);
    char text[8192] = "";
    for (int i = 0; i < 10; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used,
                       "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 8\r\n\r\n<len %02d>"
                       "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                       "3;x=\"y\"\r\n<ch\r\n5\r\nk %02d>\r\n0\r\nTrailer: t\r\n\r\n",
                       i, i);
    }
    strcat(text, "GET /info HTTP/1.1\r\n" END);
    int fd = client_connect(rig);
    client_send(fd, text);
    const char *a = client_read(fd, NULL, NULL);
    for (int i = 0; i < 10; i++) {
        char want[16];
        (void)snprintf(want, sizeof want, "<len %02d>", i);
        has(a, want);
        (void)snprintf(want, sizeof want, "<chk %02d>", i);
        has(a, want);
    }
    assert_int_equal(times(a, "HTTP/1.1 200 OK"), 21);
    assert_int_equal(rig_arrivals(rig), 21);
    (void)close(fd);
}

/* What smuggling needs: a request whose body two readers end in different
   places.  Whatever the door makes of it, the bytes behind it must not
   become a request of their own. */
static void nothing_is_smuggled_behind_a_body(void **state) {
    (void)state;
    rig = rig_open(NULL);
    static const char *const text[] = {
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\nContent-Length: 40\r\n\r\n"
        "abcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: -4\r\n\r\nGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST
        "Content-Length: +4\r\n\r\nabcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST
        "Content-Length: 4, 4\r\n\r\nabcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST
        "Content-Length: 0x4\r\n\r\nabcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST
        "Content-Length: 4 4\r\n\r\nabcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
        "-1\r\nGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
        "fffffffffffffffff\r\nGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
        "4\r\nabcdGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n"
        "GET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: identity, chunked\r\n\r\n"
        "0\r\n\r\nGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n"
        "0\r\n\r\nGET /smuggled HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGGET /smuggled HTTP/1.1\r\n" END,
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(text); i++) {
        int fd = client_connect(rig);
        client_send(fd, text[i]);
        (void)shutdown(fd, SHUT_WR);
        const char *a = client_read(fd, NULL, NULL);
        if (strstr(a, "/smuggled")) fail_msg("case %u:\n%s\nanswered\n%s", i, text[i], a);
        (void)close(fd);
    }
}

/* A host that two readers could cut differently is none, and one must be
   there (RFC 9112, 3.2). */
static void a_host_that_cannot_be_one_is_refused(void **state) {
    (void)state;
    rig = rig_open(NULL);
    static const struct {
        const char *version, *host;
        int is_good;
    } c[] = {
        {"1.1", "", 0},
        {"1.2", "", 0},
        {"1.0", "", 1},
        {"1.1", "Host:\r\n", 1},
        {"1.1", "Host: localhost\r\n", 1},
        {"1.1", "Host: localhost:80\r\n", 1},
        {"1.1", "Host: [::1]:80\r\n", 1},
        {"1.1", "Host: a_b-c.~x%41!$&'()*+,;=\r\n", 1},
        {"1.1", "Host: local host\r\n", 0},
        {"1.1", "Host: local\thost\r\n", 0},
        {"1.1", "Host: localhost/\r\n", 0},
        {"1.1", "Host: http://localhost\r\n", 0},
        {"1.1", "Host: user@localhost\r\n", 0},
        {"1.1", "Host: localhost?a\r\n", 0},
        {"1.1", "Host: localhost#a\r\n", 0},
        {"1.1", "Host: local\\host\r\n", 0},
        {"1.1", "Host: local\"host\r\n", 0},
        {"1.1", "Host: local\x7fhost\r\n", 0},
        {"1.0", "Host: a b\r\n", 0},
    };
    for (uint32_t i = 0; i < 2 * TDM_COUNT_OF(c); i++) {
        char text[256];
        const char *target = i % 2 == 0 ? "/info" : "http://localhost/info";
        (void)snprintf(text, sizeof text, "GET %s HTTP/%s\r\n%sConnection: close\r\n\r\n", target,
                       c[i / 2].version, c[i / 2].host);
        const char *a = client_ask(rig, text);
        has(a, c[i / 2].is_good ? " 200 OK" : " 400 Bad Request");
        if (!c[i / 2].is_good) has(a, "bad_request");
    }
}

/* Whoever stands before us may have read it in the other way, so it is not
   answered but refused, at once, and what is behind it is not read. */
static void a_request_with_two_readings_is_the_last_of_its_connection(void **state) {
    (void)state;
    rig = rig_open(NULL);
    static const char *const method[] = {"POST", "GET", "OPTIONS", "DELETE"};
    static const char *const fields[] = {
        "Content-Length: 4\r\nContent-Length: 40\r\n",
        "Content-Length: 4\r\ncontent-length: 4\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: \r\n",
        "Transfer-Encoding: chunked \r\n",
        "Content-Length : 4\r\n",
        "Content-Length\t: 4\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X(Y: 4\r\n",
        "Host: other\r\n",
        "X: a\rContent-Length: 4\r\n",
        "X: a\rHost: other\r\n",
        "X: a\rb\r\n",
        "X: \ra\r\n",
        "X: a\r b\r\n",
        "Authorization: Bearer a\rb\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
        "Origin: http://localhost\r\nOrigin: http://evil.example\r\n",
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(fields) * TDM_COUNT_OF(method); i++) {
        char text[512];
        const char *name = method[i % TDM_COUNT_OF(method)], *f = fields[i / TDM_COUNT_OF(method)];
        uint64_t before =
            rig_counter(rig, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_bad_request));
        (void)snprintf(text, sizeof text,
                       "%s /echo HTTP/1.1\r\n" HOST "%s\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n" HOST
                       "\r\n",
                       name, f);
        int fd = client_connect(rig);
        client_send(fd, text);
        int64_t begin_ns = tdm_clock_now_ns();
        const char *a = client_read(fd, NULL, NULL);
        if (!strstr(a, "HTTP/1.1 400 ") || !strstr(a, "bad_request") || times(a, "HTTP/1.1 ") != 1)
            fail_msg("%s with %s:\n%s", name, f, a);
        assert_true(tdm_clock_now_ns() - begin_ns < 2 * TDM_NS_PER_S);
        assert_int_equal(
            rig_counter(rig, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_bad_request)),
            before + 1);
        (void)close(fd);
    }
    assert_int_equal(rig_arrivals(rig), 0);
    has(client_ask(rig, "POST /echo HTTP/1.1\r\nTransfer-Encoding:  Chunked\r\n" END
                        "4\r\nabcd\r\n0\r\n\r\n"),
        "\r\n\r\nabcd");
    has(client_ask(rig, "GET /info HTTP/1.1\r\nX-!#$%&'*+-.^_`|~9: a\r\n" END), "200 OK");
}

/* The library ends a value at a NUL, others do not, and of a line that is
   folded it adds the rest to the name (RFC 9110, 5.5; RFC 9112, 5.2).
   |: a NUL. */
static void a_head_that_is_no_text_is_refused(void **state) {
    (void)state;
    rig = rig_open(NULL);
    static const char *const head[] = {
        "GET /in|fo HTTP/1.1\r\n",
        "GET /info| HTTP/1.1\r\n",
        "GET /info?a|b HTTP/1.1\r\n",
        "GET http://local|host/info HTTP/1.1\r\n",
        "GET /info HTTP/1.1\r\nX: a|b\r\n",
        "GET /info HTTP/1.1\r\nX: a|\r\n",
        "GET /info HTTP/1.1\r\nX: |\r\n",
        "GET /info HTTP/1.1\r\nX: a|:b\r\n",
        "GET /info HTTP/1.1\r\nX: a| \t\r\n",
        "GET /info HTTP/1.1\r\nX:| a\r\n",
        "GET /info HTTP/1.1\r\nX: a\r\n|Y: b\r\n",
        "GET /info HTTP/1.1\r\nX: a|b\r\nY: c\r\n",
        "GET /info HTTP/1.1\r\nAuthorization: Bearer a|b\r\n",
        "GET /info HTTP/1.1\r\nX-Request-Id: a|b\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 0|4\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked|, gzip\r\n",
        "GET /info HTTP/1.1\r\nX: a\r\n b\r\n",
        "GET /info HTTP/1.1\r\nX: a\r\n\tb\r\n",
        "GET /info HTTP/1.1\r\nX: a\r\n \r\n",
        "GET /info HTTP/1.1\r\nX:\r\n a\r\n",
        "GET /info HTTP/1.1\r\nX: a\r\n b\r\n c\r\nY: d\r\n",
        "GET /info HTTP/1.1\r\nX-: a\r\n Request-Id\r\n",
        "POST /echo HTTP/1.1\r\nContent-: 4\r\n Length\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-: chunked\r\n Encoding\r\n",
    };
    for (uint32_t i = 0; i < 2 * TDM_COUNT_OF(head); i++) {
        char text[256];
        size_t sz = (size_t)snprintf(text, sizeof text, "%s%s0\r\n\r\n", head[i / 2],
                                     i % 2 == 0 ? END : HOST "\r\n");
        for (char *at = text; (at = strchr(at, '|')) != NULL;) *at = '\0';
        int fd = client_connect(rig);
        client_send_bytes(fd, text, sz);
        const char *a = client_read(fd, NULL, NULL);
        if (!strstr(a, "HTTP/1.1 400 ") || times(a, "HTTP/1.1 ") != 1)
            fail_msg("%s:\n%s", head[i / 2], a);
        (void)close(fd);
    }
    assert_int_equal(rig_arrivals(rig), 0);
    /* Lines that end in LF alone, values of nothing, blanks around them. */
    has(client_ask(rig, "GET /info HTTP/1.1\nX:\nY: \t \r\nZ:a\r\nW: \ta b\t \n" END), "200 OK");
    has(client_ask(rig, "GET /info HTTP/1.1\r\nHost:\r\nConnection:close\r\n\r\n"), "200 OK");
    has(client_ask(rig, "GET /info HTTP/1.0\r\n\r\n"), "200 OK");
    has(client_ask(rig, "GET /info HTTP/1.0\n\n"), "200 OK");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_words_of_a_client_are_no_status),
        CASE(dripping_headers_do_not_lock_others_out),
        CASE(silent_connections_do_not_lock_others_out),
        CASE(a_house_full_of_exchanges_shows_its_health),
        CASE(a_house_full_of_connections_shows_its_health),
        CASE(idle_connections_make_way_oldest_first),
        CASE(an_address_over_its_bound_gives_up_its_own),
        CASE(a_reset_gives_the_place_back),
        CASE(a_pipeline_of_bodies_keeps_its_borders),
        CASE(nothing_is_smuggled_behind_a_body),
        CASE(a_host_that_cannot_be_one_is_refused),
        CASE(a_request_with_two_readings_is_the_last_of_its_connection),
        CASE(a_head_that_is_no_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
