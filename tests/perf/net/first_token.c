/* SPDX-License-Identifier: Apache-2.0 */
/* Time to the first token at the client, HTTP/3 beside HTTP/1.1, of a
   running appliance: requests take turns on two connections that stay
   open, so handshakes do not count.  Wall clock; samples during which the
   client's processor was taken away are counted and left out.

   usage: perf_first_token H3_HOST H3_PORT HTTP_PORT [REQUESTS] */
#include "net/client/client.h"
#include "tests/perf/net/measure.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAMPLE_MAX 10000

static const char body[] = "{\"prompt\":\"Once upon a time\",\"max_tokens\":2,\"stream\":true,"
                           "\"temperature\":0,\"ignore_eos\":true}";

static void stop(const char *what) {
    (void)fprintf(stderr, "perf_first_token: %s\n", what);
    exit(1);
}

/* --- HTTP/3 ------------------------------------------------------------ */

static int64_t first_ns; /* of the request under way; 0: nothing came yet */

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)ctx;
    (void)id;
    (void)bytes;
    if (sz && !first_ns) first_ns = tdm_clock_now_ns();
}

static int64_t over_h3(tdm_client_t *c) {
    static const tdm_client_header_t type = {"content-type", "application/json"};
    tdm_client_request_t req = {.method = "POST",
                                .path = "/v1/completions",
                                .header = &type,
                                .header_cnt = 1,
                                .body = (const uint8_t *)body,
                                .body_sz = sizeof body - 1};
    tdm_client_sink_t sink = {.body = on_body};
    tdm_error_t err = {0};
    int64_t id = -1, from_ns = tdm_clock_now_ns();
    first_ns = 0;
    if (tdm_client_request(c, &req, &sink, &id, &err) != TDM_OK ||
        tdm_client_wait(c, id, 10 * TDM_NS_PER_S, &err) != TDM_OK || !first_ns)
        stop(err.text[0] ? err.text : "no token over HTTP/3");
    return first_ns - from_ns;
}

/* --- HTTP/1.1 ------------------------------------------------------------ */

static int dial(uint16_t port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
        stop("no HTTP/1.1 connection");
    return fd;
}

static int64_t over_http1(int fd) {
    char text[65536], request[1024];
    int sz = snprintf(
        request, sizeof request,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        sizeof body - 1, body);
    size_t got = 0;
    int64_t from_ns = tdm_clock_now_ns(), seen_ns = 0;
    if (send(fd, request, (size_t)sz, MSG_NOSIGNAL) != sz) stop("cannot send over HTTP/1.1");
    do {
        ssize_t n = recv(fd, text + got, sizeof text - 1 - got, 0);
        if (n <= 0) stop("the HTTP/1.1 connection ended");
        got += (size_t)n;
        text[got] = 0;
        if (!seen_ns && strstr(text, "data: ")) seen_ns = tdm_clock_now_ns();
    } while (!strstr(text, "\r\n0\r\n\r\n"));
    return seen_ns - from_ns;
}

/* --- turns ---------------------------------------------------------------- */

static void print(const char *name, int64_t *sample, uint32_t cnt) {
    printf("first token %-9s p50 %7.1f us  p99 %7.1f us of %u\n", name,
           (double)measure_p(sample, cnt, 50) / 1e3, (double)measure_p(sample, cnt, 99) / 1e3, cnt);
}

int main(int argc, char **argv) {
    if (argc < 4) stop("usage: perf_first_token H3_HOST H3_PORT HTTP_PORT [REQUESTS]");
    static int64_t h3[SAMPLE_MAX], http1[SAMPLE_MAX];
    uint32_t cnt = argc > 4 ? (uint32_t)atoi(argv[4]) : 500, h3_cnt = 0, http1_cnt = 0;
    if (cnt > SAMPLE_MAX) cnt = SAMPLE_MAX;
    tdm_client_config_t cfg = {.host = argv[1], .port = (uint16_t)atoi(argv[2])};
    tdm_client_t *c = NULL;
    tdm_error_t err = {0};
    if (tdm_client_connect(&cfg, &c, &err) != TDM_OK) stop(err.text);
    int fd = dial((uint16_t)atoi(argv[3]));
    for (uint32_t i = 0; i < cnt; i++) {
        int64_t switches = measure_switches();
        h3[h3_cnt] = over_h3(c);
        h3_cnt += measure_switches() == switches;
        switches = measure_switches();
        http1[http1_cnt] = over_http1(fd);
        http1_cnt += measure_switches() == switches;
    }
    print("HTTP/3", h3, h3_cnt);
    print("HTTP/1.1", http1, http1_cnt);
    tdm_client_close(c);
    (void)close(fd);
    return 0;
}
