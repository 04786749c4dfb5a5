/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever way a client spells its request, the api tile sees one
   whole exchange, and requests over a bound get a typed answer.
   Method: raw sockets against the door of rig.h. */
#include "raw.h"

#include "appliance/base/clock.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static rig_t *rig;

static int setup(void **state) {
    (void)state;
    rig = rig_open(NULL);
    return 0;
}

/* Every test ends with all slots free. */
static int teardown(void **state) {
    (void)state;
    return close_idle(rig);
}

static void a_body_comes_back(void **state) {
    (void)state;
    const char *a = client_ask(rig, "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n" END "hello");
    has(a, "HTTP/1.1 200 OK\r\n");
    has(a, "Content-Length: 5\r\n");
    has(a, "Content-Type: text/plain; charset=utf-8\r\n");
    has(a, "\r\n\r\nhello");
}

static void the_exchange_holds_what_was_sent(void **state) {
    (void)state;
    const char *a = client_ask(
        rig,
        "POST /v1/x%20y?a=1&b=%32 HTTP/1.1\r\nAuthorization: Bearer k\r\nX-Request-ID: id-1\r\n"
        "Content-Type: application/json\r\nContent-Length: 3\r\n" END "abc");
    has(a, "method 2\n");
    has(a, "path /v1/x%20y\n");
    has(a, "query a=1&b=%32\n");
    has(a, "authorization Bearer k\n");
    has(a, "content-type application/json\n");
    has(a, "request-id id-1\n");
    has(a, "trusted 1\n");
    has(a, "truncated 0\n");
    has(a, "body 3\n");
    has(a, "ordered 1\n");
    has(a, "x-request-id: id-1\r\n");
}

/* As it is sent to a proxy (RFC 9112 section 3.2.2). */
static void a_target_may_name_its_host(void **state) {
    (void)state;
    static const struct {
        const char *target, *path, *query;
    } c[] = {{"http://localhost/a%20b?c=1", "/a%20b", "c=1"},
             {"HTTP://localhost:8080/a", "/a", ""},
             {"https://[::1]/a?b?c", "/a", "b?c"},
             {"http://localhost", "/", ""},
             {"http://localhost?x", "/", "x"},
             {"http:///a", "http:///a", ""},
             {"ftp://localhost/a", "ftp://localhost/a", ""}};
    for (size_t i = 0; i < TDM_COUNT_OF(c); i++) {
        char request[256], want[256];
        (void)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" END, c[i].target);
        (void)snprintf(want, sizeof want, "path %s\nquery %s\n", c[i].path, c[i].query);
        const char *a = client_ask(rig, request);
        has(a, want);
        has(a, "truncated 0\n");
    }
    char long_host[512];
    (void)snprintf(long_host, sizeof long_host, "GET http://%0300d/ HTTP/1.1\r\n" END, 1);
    has(client_ask(rig, long_host), "truncated 1\n");
}

static void a_long_field_is_cut_and_says_so(void **state) {
    (void)state;
    char path[600], key[1000];
    memset(path, 'p', sizeof path);
    memset(key, 'k', sizeof key);
    char request[2048];
    (void)snprintf(request, sizeof request, "GET /%.300s HTTP/1.1\r\n" END, path);
    has(client_ask(rig, request), "truncated 1\n");
    (void)snprintf(request, sizeof request, "GET /x?%.300s HTTP/1.1\r\n" END, path);
    has(client_ask(rig, request), "truncated 1\n");
    (void)snprintf(request, sizeof request,
                   "GET /x HTTP/1.1\r\nAuthorization: Bearer %.600s\r\n" END, key);
    has(client_ask(rig, request), "truncated 1\n");
}

/* A list may come in several lines; the api tile judges what it says. */
static void every_line_of_a_coding_is_kept(void **state) {
    (void)state;
    char request[512], text[64];
    hasnt(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "Accept-Encoding");
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "content-coding []\n");
    has(client_ask(rig, "POST /info HTTP/1.1\r\nContent-Encoding: identity\r\n"
                        "content-encoding: gzip\r\nContent-Length: 1\r\n" END "a"),
        "content-coding [identity,gzip]\n");
    has(client_ask(rig, "POST /coded HTTP/1.1\r\nContent-Length: 1\r\n" END "a"),
        "Accept-Encoding: identity\r\n");
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    for (int more = 0; more < 2; more++) {
        (void)snprintf(request, sizeof request,
                       "GET /info HTTP/1.1\r\nContent-Encoding: %s\r\n%s" END, text,
                       more ? "Content-Encoding: b\r\n" : "");
        has(client_ask(rig, request), more ? "truncated 1\n" : "truncated 0\n");
    }
}

static void a_dripped_request_is_waited_for(void **state) {
    (void)state;
    const char request[] = "POST /echo HTTP/1.1\r\nContent-Length: 10\r\n" END "0123456789";
    int fd = client_connect(rig);
    for (size_t i = 0; i < sizeof request - 1; i++) {
        client_send_bytes(fd, request + i, 1);
        if (i % 16 == 0) sleep_us(500);
    }
    has(client_read(fd, NULL, NULL), "\r\n\r\n0123456789");
    (void)close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state) {
    (void)state;
    const char *a = client_ask(rig, "POST /echo HTTP/1.1\r\nContent-Length: 2\r\n" HOST "\r\nq1"
                                    "GET /info?second HTTP/1.1\r\n" HOST "\r\n"
                                    "POST /echo HTTP/1.1\r\nContent-Length: 2\r\n" END "q3");
    const char *first = strstr(a, "q1"), *second = strstr(a, "query second"),
               *third = strstr(a, "q3");
    assert_true(first && second && third && first < second && second < third);
}

static void keep_alive_serves_many(void **state) {
    (void)state;
    int fd = client_connect(rig);
    for (int i = 0; i < 100; i++) {
        char request[128], want[32];
        (void)snprintf(request, sizeof request,
                       "POST /echo HTTP/1.1\r\nContent-Length: 4\r\n" HOST "\r\n%04d", i);
        (void)snprintf(want, sizeof want, "\r\n\r\n%04d", i);
        client_send(fd, request);
        has(client_read(fd, want, NULL), want);
    }
    (void)close(fd);
    assert_int_equal(rig_arrivals(rig), 100);
    assert_int_equal(rig_counter(rig, TDM_METRIC_exchanges_total, TDM_LABEL_DOOR_http1), 100);
}

static void a_chunked_body_arrives_whole(void **state) {
    (void)state;
    const char *a = client_ask(rig, "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END
                                    "3\r\nabc\r\nA;ext=1\r\n0123456789\r\n1\r\nz\r\n0\r\n\r\n");
    has(a, "\r\n\r\nabc0123456789z");
}

static void a_body_larger_than_the_first_buffer_arrives_whole(void **state) {
    (void)state;
    static char body[60001], request[61000];
    for (size_t i = 0; i < 60000; i++) body[i] = (char)('a' + i % 23);
    (void)snprintf(request, sizeof request,
                   "POST /echo HTTP/1.1\r\nContent-Length: 60000\r\n" END "%s", body);
    size_t sz = 0;
    int fd = client_connect(rig);
    client_send(fd, request);
    const char *a = client_read(fd, NULL, &sz);
    (void)close(fd);
    assert_true(sz > 60000);
    assert_memory_equal(a + sz - 60000, body, 60000);
}

static void expect_gets_100_before_the_body(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" END);
    has(client_read(fd, "\r\n\r\n", NULL), "HTTP/1.1 100 Continue\r\n");
    client_send(fd, "ok");
    has(client_read(fd, NULL, NULL), "\r\n\r\nok");
    (void)close(fd);
}

static uint64_t refused(tdm_reason_t reason) {
    return rig_counter(rig, TDM_METRIC_refusals_total, tdm_label_reason(reason));
}

static void expect_over_the_bound_gets_413_at_once(void **state) {
    (void)state;
    const char *a = client_ask(rig, "POST /echo HTTP/1.1\r\nContent-Length: 65537\r\n"
                                    "Expect: 100-continue\r\n" HOST "\r\n");
    hasnt(a, "100 Continue");
    has(a, "HTTP/1.1 413 ");
    has(a, "\"code\":\"body_too_large\"");
    has(a, "application/json");
    assert_int_equal(refused(TDM_REFUSE_body_too_large), 1);
    assert_int_equal(rig_arrivals(rig), 0);
}

static void a_body_over_the_bound_gets_413(void **state) {
    (void)state;
    static char body[70000];
    memset(body, 'x', sizeof body);
    int fd = client_connect(rig);
    client_send(fd, "POST /echo HTTP/1.1\r\nContent-Length: 70000\r\n" END);
    client_send_bytes(fd, body, sizeof body);
    has(client_read(fd, NULL, NULL), "\"code\":\"body_too_large\"");
    (void)close(fd);
    fd = client_connect(rig);
    client_send(fd, "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END "11170\r\n");
    client_send_bytes(fd, body, sizeof body);
    client_send(fd, "\r\n0\r\n\r\n");
    has(client_read(fd, NULL, NULL), "HTTP/1.1 413 ");
    (void)close(fd);
    assert_int_equal(refused(TDM_REFUSE_body_too_large), 2);
    assert_int_equal(rig_arrivals(rig), 0);
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
}

/* The door reads body_max and 4 MiB more, then closes: sending must fail
   long before the client's own bound of 64 MiB. */
static void an_endless_body_is_cut(void **state) {
    (void)state;
    static char chunk[65536 + 16];
    int head_sz = snprintf(chunk, sizeof chunk, "10000\r\n");
    memset(chunk + head_sz, 'x', 65536);
    memcpy(chunk + head_sz + 65536, "\r\n", 2);
    size_t chunk_sz = (size_t)head_sz + 65538, sent = 0;
    int fd = client_connect(rig);
    client_send(fd, "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END);
    while (sent < (64u << 20)) {
        ssize_t n = send(fd, chunk + sent % chunk_sz, chunk_sz - sent % chunk_sz, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += (size_t)n;
    }
    (void)close(fd);
    assert_in_range(sent, 4u << 20, 32u << 20);
    assert_int_equal(rig_arrivals(rig), 0);
}

static void bodies_together_have_a_bound(void **state) {
    (void)state;
    rig_close(rig);
    tdm_http1_config_t c = rig_config();
    c.body_total_max = 65536;
    rig = rig_open(&c);
    static char body[40000];
    memset(body, 'x', sizeof body);
    int one = client_connect(rig);
    client_send(one, "POST /echo HTTP/1.1\r\nContent-Length: 40000\r\n" END);
    client_send_bytes(one, body, 39999);
    sleep_us(50000);
    int two = client_connect(rig);
    client_send(two, "POST /echo HTTP/1.1\r\nContent-Length: 5000\r\n" END);
    client_send_bytes(two, body, 5000);
    has(client_read(two, NULL, NULL), "\"code\":\"exchange_limit\"");
    client_send_bytes(one, body, 1);
    has(client_read(one, NULL, NULL), "200 OK");
    (void)close(one);
    (void)close(two);
    assert_int_equal(refused(TDM_REFUSE_exchange_limit), 1);
}

static void a_header_over_the_bound_gets_431(void **state) {
    (void)state;
    static char value[50000], request[51000];
    memset(value, 'v', sizeof value);
    (void)snprintf(request, sizeof request, "GET /info HTTP/1.1\r\nX-A: %.4500s\r\n" END, value);
    const char *a = client_ask(rig, request);
    has(a, "HTTP/1.1 431 ");
    has(a, "\"code\":\"header_too_large\"");
    assert_int_equal(refused(TDM_REFUSE_header_too_large), 1);
    (void)snprintf(request, sizeof request, "GET /info HTTP/1.1\r\nX-A: %.49000s\r\n" END, value);
    has(client_ask(rig, request), "HTTP/1.1 431 ");
    assert_int_equal(refused(TDM_REFUSE_header_too_large), 2); /* the library's own, too */
    assert_int_equal(rig_arrivals(rig), 0);
}

#define WIDE 16000u
static char wide[WIDE + 1];

/* fields writes WIDE bytes of header fields of field_sz bytes each. */
static void fields(char *text, uint32_t field_sz) {
    for (uint32_t at = 0; at + field_sz <= WIDE; at += field_sz)
        text += sprintf(text, "x: %.*s\r\n", (int)field_sz - 5, wide);
}

/* Few long ones and many short ones; then a body or a long reply still has
   room to pass. */
static void a_header_up_to_the_bound_is_served(void **state) {
    (void)state;
    static char header[WIDE + 1], request[3 * WIDE], body[WIDE + 1];
    tdm_http1_config_t c = rig_config();
    c.header_max = 16384; /* as a house has it */
    rig_close(rig);
    rig = rig_open(&c);
    memset(wide, 'v', WIDE);
    memset(body, 'b', WIDE);
    for (uint32_t field_sz = WIDE; field_sz >= 100; field_sz /= 2) {
        fields(header, field_sz);
        (void)snprintf(request, sizeof request, "GET /info HTTP/1.1\r\n%s" END, header);
        has(client_ask(rig, request), "HTTP/1.1 200 ");
        (void)snprintf(request, sizeof request,
                       "POST /echo HTTP/1.1\r\nContent-Length: %zu\r\n%s" END "%s", strlen(body),
                       header, body);
        has(client_ask(rig, request), "bbb");
        (void)snprintf(request, sizeof request, "POST /stream?50,0 HTTP/1.1\r\n%s" END, header);
        has(client_ask(rig, request), "data: 49");
    }
    assert_int_equal(refused(TDM_REFUSE_header_too_large), 0);
}

static void nonsense_is_refused_and_the_next_request_served(void **state) {
    (void)state;
    static const char *const bad[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET /info HTTP/1.1\r\nContent-Length: banana\r\n" END,
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n" END,
        "POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n" END,
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END "zz\r\nabc\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END "ffffffffffffffffff\r\nabc",
        "GET /info HTTP/9.9\r\n" END,
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello, TLS?\r\n\r\n",
        "GET /info HTTP/1.1\r\nno colon here\r\n\r\n",
    };
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        int fd = client_connect(rig);
        client_send(fd, bad[i]);
        sleep_us(3000);
        (void)close(fd);
        has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
    }
    assert_true(refused(TDM_REFUSE_bad_request) >= 3);
}

/* dripped_ms sends head, then a byte each 20 ms, and says how long the door
   let it go on; bounded by 30 s. */
static int64_t dripped_ms(const char *head) {
    int64_t start_ns = tdm_clock_now_ns();
    int fd = client_connect(rig);
    client_send(fd, head);
    char byte;
    while (tdm_clock_now_ns() - start_ns < 30 * TDM_NS_PER_S &&
           recv(fd, &byte, 1, MSG_DONTWAIT) != 0 && send(fd, "x", 1, MSG_NOSIGNAL) == 1)
        sleep_us(20000);
    (void)close(fd);
    return (tdm_clock_now_ns() - start_ns) / TDM_NS_PER_MS;
}

static void a_request_that_drips_in_is_cut(void **state) {
    (void)state;
    rig_close(rig);
    tdm_http1_config_t c = rig_config();
    c.header_ms = 300;
    c.body_ms = 600;
    rig = rig_open(&c);
    /* Not before its time, and by this bound: the default of the header is 5 s, of the body 30 s.
     */
    assert_in_range(dripped_ms(""), 250, 4500);
    assert_in_range(dripped_ms("GET /info HTTP/1.1\r\n" HOST "X-Slow: "), 250, 4500);
    assert_in_range(dripped_ms("POST /echo HTTP/1.1\r\nContent-Length: 60000\r\n" END), 550, 25000);
    assert_int_equal(refused(TDM_REFUSE_request_timeout), 3);
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
}

static void a_long_answer_is_not_overdue(void **state) {
    (void)state;
    rig_close(rig);
    tdm_http1_config_t c = rig_config();
    c.header_ms = c.body_ms = 1000; /* the request itself must be in by then */
    rig = rig_open(&c);
    has(client_ask(rig, "GET /stream?8,300000 HTTP/1.1\r\n" END), "data: 7\n\n\r\n0\r\n\r\n");
    assert_int_equal(refused(TDM_REFUSE_request_timeout), 0);
}

static void head_sends_no_body(void **state) {
    (void)state;
    const char *a = client_ask(rig, "HEAD /big?50000 HTTP/1.1\r\n" END);
    has(a, "HTTP/1.1 200 OK\r\n");
    has(a, "Content-Length: 50000\r\n");
    assert_string_equal(strstr(a, "\r\n\r\n"), "\r\n\r\n");
}

/* The product and no version, whoever answers: the api, or the door itself. */
static void every_answer_names_the_product(void **state) {
    (void)state;
    static const char *const ask[] = {
        "GET /info HTTP/1.1\r\n" END, "HEAD /info HTTP/1.1\r\n" END,
        "OPTIONS /allow HTTP/1.1\r\n" END, "GET /stream?2,10 HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\nContent-Length: 90000\r\nExpect: 100-continue\r\n" END};
    for (size_t i = 0; i < TDM_COUNT_OF(ask); i++) {
        const char *a = client_ask(rig, ask[i]);
        has(a, "\r\nServer: tandem\r\n");
        assert_null(strstr(strstr(a, "Server: ") + 1, "Server: "));
    }
}

static void options_tells_methods_and_cors(void **state) {
    (void)state;
    const char *a = client_ask(rig, "OPTIONS /allow HTTP/1.1\r\nOrigin: http://app\r\n" END);
    has(a, "HTTP/1.1 204 ");
    has(a, "Allow: GET, POST, OPTIONS\r\n");
    has(a, "Access-Control-Allow-Origin: *\r\n");
    has(a, "Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n");
    has(a, "Access-Control-Allow-Headers: " TDM_CORS_SENT "\r\n");
    has(a, "Access-Control-Allow-Headers: authorization, *\r\n"); /* SDKs send names of their own */
    has(a, "Access-Control-Max-Age: " TDM_CORS_AGE_S "\r\n");
    assert_null(strstr(a, "Expose"));
}

static void a_refusal_tells_when_to_come_again(void **state) {
    (void)state;
    const char *a = client_ask(rig, "GET /limited HTTP/1.1\r\n" END);
    has(a, "HTTP/1.1 429 ");
    has(a, "Access-Control-Expose-Headers: " TDM_CORS_READ "\r\n");
    has(a, "Retry-After: 2\r\n");
    has(a, "retry-after-ms: 1500\r\n");
    has(a, "x-should-retry: true\r\n");
    has(a, "openai-processing-ms: 7\r\n");
    assert_int_equal(rig_counter(rig, TDM_METRIC_http_responses_total,
                                 tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_http1,
                                             TDM_LABEL_CODE_4xx)),
                     1);
}

static void connections_over_the_bound_are_closed(void **state) {
    (void)state;
    rig_close(rig);
    tdm_http1_config_t c = rig_config();
    c.conn_per_address_max = 3;
    rig = rig_open(&c);
    int fd[3];
    for (int i = 0; i < 3; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /stream?1000,20000 HTTP/1.1\r\n" HOST "\r\n");
        has(client_read(fd[i], "data: 0", NULL), "200 OK");
    }
    assert_string_equal(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "");
    assert_int_equal(rig_counter(rig, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1),
                     1);
    assert_int_equal(rig_counter(rig, TDM_METRIC_connections, TDM_LABEL_DOOR_http1), 3);
    (void)close(fd[0]);
    sleep_us(50000);
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
    (void)close(fd[1]);
    (void)close(fd[2]);
}

static void exchanges_over_the_bound_get_503(void **state) {
    (void)state;
    int fd[16];
    for (int i = 0; i < 16; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /never HTTP/1.1\r\n" HOST "\r\n");
    }
    while (rig_arrivals(rig) < 16) sleep_us(1000);
    const char *a = client_ask(rig, "GET /info HTTP/1.1\r\n" END);
    has(a, "HTTP/1.1 503 ");
    has(a, "\"code\":\"exchange_limit\"");
    has(a, "\"type\":\"server_error\"");
    has(a, "Retry-After: 1\r\n");
    for (int i = 0; i < 16; i++) (void)close(fd[i]);
    assert_true(rig_wait_idle(rig));
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "200 OK");
}

static void an_address_that_is_none_is_refused_by_name(void **state) {
    (void)state;
    tdm_http1_config_t c = rig_config();
    tdm_http1_wires_t w = {.api_cnt = 1};
    tdm_http1_t *door = NULL;
    tdm_error_t err = {0};
    c.address = "localhost";
    assert_int_equal(tdm_http1_open(&c, &w, &door, &err), TDM_ERR_INVAL);
    has(err.text, "localhost");
    c = rig_config();
    c.port = tdm_http1_port(rig_door(rig));
    assert_int_equal(tdm_http1_open(&c, &w, &door, &err), TDM_ERR_IO);
    has(err.text, "in use");
    c = rig_config();
    c.pipe_sz = 1000;
    assert_int_equal(tdm_http1_open(&c, &w, &door, &err), TDM_ERR_INVAL);
    assert_null(door);
}

static int has_ipv6(void) {
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int is_there = fd >= 0 && bind(fd, (struct sockaddr *)&in6, sizeof in6) == 0;
    if (fd >= 0) (void)close(fd);
    return is_there;
}

static void the_door_speaks_ipv6(void **state) {
    (void)state;
    if (!has_ipv6()) {
        print_message("this host has no IPv6 loopback: not tried\n");
        return;
    }
    rig_close(rig);
    tdm_http1_config_t c = rig_config();
    c.address = "::1";
    rig = rig_open(&c);
    has(client_ask(rig, "GET /info HTTP/1.1\r\n" END), "trusted 1\n");
}

static void curl_gets_an_answer(void **state) {
    (void)state;
    char command[256];
    (void)snprintf(command, sizeof command,
                   "command -v curl >/dev/null || exit 77; test \"$(curl -sS --max-time 5 -d hello "
                   "http://127.0.0.1:%u/echo)\" = hello",
                   tdm_http1_port(rig_door(rig)));
    int rc = system(command); /* a fixed command line of this test */
    if (WEXITSTATUS(rc) == 77) {
        print_message("curl is not installed: not asked\n");
        return;
    }
    assert_int_equal(rc, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_body_comes_back),
        CASE(the_exchange_holds_what_was_sent),
        CASE(a_target_may_name_its_host),
        CASE(a_long_field_is_cut_and_says_so),
        CASE(every_line_of_a_coding_is_kept),
        CASE(a_dripped_request_is_waited_for),
        CASE(pipelined_requests_are_answered_in_order),
        CASE(keep_alive_serves_many),
        CASE(a_chunked_body_arrives_whole),
        CASE(a_body_larger_than_the_first_buffer_arrives_whole),
        CASE(expect_gets_100_before_the_body),
        CASE(expect_over_the_bound_gets_413_at_once),
        CASE(a_body_over_the_bound_gets_413),
        CASE(an_endless_body_is_cut),
        CASE(bodies_together_have_a_bound),
        CASE(a_header_over_the_bound_gets_431),
        CASE(a_header_up_to_the_bound_is_served),
        CASE(nonsense_is_refused_and_the_next_request_served),
        CASE(a_request_that_drips_in_is_cut),
        CASE(a_long_answer_is_not_overdue),
        CASE(head_sends_no_body),
        CASE(every_answer_names_the_product),
        CASE(options_tells_methods_and_cors),
        CASE(a_refusal_tells_when_to_come_again),
        CASE(connections_over_the_bound_are_closed),
        CASE(exchanges_over_the_bound_get_503),
        CASE(an_address_that_is_none_is_refused_by_name),
        CASE(the_door_speaks_ipv6),
        CASE(curl_gets_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
