/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a streamed answer arrives record by record, a client that leaves
   is noticed within 10 ms wherever its request is, a slow one costs only
   its own pipe, and no slot is ever lost.
   Method: raw sockets against the door of rig.h; the leaving is timed
   from close(2) to the hang-up in the played api. */
#include "raw.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

static void a_stream_is_one_chunk_per_record(void **state) {
    (void)state;
    const char *a = client_ask(rig, "POST /stream?5,2000 HTTP/1.1\r\nContent-Length: 0\r\n" END);
    has(a, "Content-Type: text/event-stream; charset=utf-8\r\n");
    has(a, "Transfer-Encoding: chunked\r\n");
    has(a, "Cache-Control: no-cache\r\n");
    has(a, "X-Accel-Buffering: no\r\n");
    has(a, "\r\n\r\n9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n"
           "\r\n9\r\ndata: 4\n\n\r\n0\r\n\r\n");
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_observations(rig, TDM_METRIC_ttft_seconds), 1);
    assert_int_equal(rig_observations(rig, TDM_METRIC_itl_seconds), 4);
    assert_int_equal(rig_observations(rig, TDM_METRIC_e2e_seconds), 1);
}

static void records_come_apart_on_the_wire(void **state) {
    (void)state;
    int fd = client_connect(rig);
    /* The second record would come after an hour. */
    client_send(fd, "POST /stream?2,3600000000 HTTP/1.1\r\nContent-Length: 0\r\n" END);
    assert_null(strstr(client_read(fd, "data: 0\n\n", NULL), "data: 1"));
    (void)close(fd);
    assert_true(rig_wait_idle(rig));
    fd = client_connect(rig); /* and each in a chunk of its own */
    client_send(fd, "POST /stream?3,200000 HTTP/1.1\r\nContent-Length: 0\r\n" END);
    has(client_read(fd, NULL, NULL),
        "9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    (void)close(fd);
}

static void http10_gets_a_stream_without_chunks(void **state) {
    (void)state;
    const char *a = client_ask(rig, "GET /stream?3,0 HTTP/1.0\r\n\r\n");
    has(a, "\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n");
    assert_null(strstr(a, "chunked"));
}

static void many_streams_run_side_by_side(void **state) {
    (void)state;
    enum { CNT = 12 };
    int fd[CNT];
    for (int i = 0; i < CNT; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /stream?50,1000 HTTP/1.1\r\n" END);
    }
    for (int i = 0; i < CNT; i++) {
        has(client_read(fd[i], NULL, NULL), "data: 49\n\n\r\n0\r\n\r\n");
        (void)close(fd[i]);
    }
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_observations(rig, TDM_METRIC_itl_seconds), CNT * 49);
    assert_int_equal(rig_hangups(rig), 0);
}

/* leave_ns closes fd and gives the time until the api saw the hang-up. */
static int64_t leave_ns(int fd) {
    uint64_t before = rig_hangups(rig);
    int64_t left_ns = tdm_clock_now_ns();
    (void)close(fd);
    while (rig_hangups(rig) == before) {
        assert_true(tdm_clock_now_ns() - left_ns < 30 * TDM_NS_PER_S);
        sleep_us(100);
    }
    return rig_hangup_ns(rig) - left_ns;
}

#define LEAVERS_MAX 30u

/* leavers asks and leaves until one was seen within 10 ms, and gives how
   many that took: a host that takes the core away delays some, not all. */
static uint32_t leavers(const char *request, const char *mark, int is_reset) {
    for (uint32_t n = 1; n <= LEAVERS_MAX; n++) {
        int fd = client_connect(rig);
        struct linger now = {is_reset, 0};
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
        uint64_t before = rig_arrivals(rig);
        client_send(fd, request);
        if (mark)
            has(client_read(fd, mark, NULL), mark);
        else
            while (rig_arrivals(rig) == before) sleep_us(200);
        if (leave_ns(fd) < 10 * TDM_NS_PER_MS) return n;
    }
    fail_msg("none of %u was seen within 10 ms", LEAVERS_MAX);
    return 0;
}

/* Whoever asks for the head alone reads no body: the api stops, and the
   connection goes on. */
static void the_head_of_a_stream_ends_it(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "HEAD /stream?9,3600000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    has(client_read(fd, "\r\n\r\n", NULL), "200 OK");
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_hangups(rig), 1);
    assert_int_equal(rig_counter(rig, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_http1), 0);
    client_send(fd, "GET /stream?2,1000 HTTP/1.1\r\n" END);
    has(client_read(fd, NULL, NULL), "data: 1\n\n\r\n0\r\n\r\n");
    (void)close(fd);
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_hangups(rig), 1);
}

static void leaving_while_queued_is_seen_within_10_ms(void **state) {
    (void)state;
    uint32_t cnt = leavers("GET /never HTTP/1.1\r\n" END, NULL, 0);
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_hangups(rig), cnt);
    assert_int_equal(rig_counter(rig, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_http1), cnt);
}

static void leaving_mid_stream_is_seen_within_10_ms(void **state) {
    (void)state;
    /* The second record would come after an hour. */
    uint32_t cnt = leavers("GET /stream?9,3600000000 HTTP/1.1\r\n" END, "data: 0\n\n", 0);
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_hangups(rig), cnt);
}

static void a_reset_is_seen_within_10_ms(void **state) {
    (void)state;
    (void)leavers("GET /never HTTP/1.1\r\n" END, NULL, 1);
}

static void leaving_is_seen_behind_pipelined_bytes(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "GET /never HTTP/1.1\r\n" HOST "\r\nGET /info HTTP/1.1\r\n" HOST "\r\n");
    while (rig_arrivals(rig) == 0) sleep_us(200);
    (void)leave_ns(fd);
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_arrivals(rig), 1);
}

static void a_full_hangup_lane_is_tried_again(void **state) {
    (void)state;
    enum { CNT = 12 }; /* the lanes hold fewer */
    int fd[CNT];
    rig_hold_hangups(rig, 1);
    for (int i = 0; i < CNT; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], "GET /never HTTP/1.1\r\n" END);
    }
    while (rig_arrivals(rig) < CNT) sleep_us(200);
    for (int i = 0; i < CNT; i++) (void)close(fd[i]);
    sleep_us(30000);
    assert_int_equal(tdm_http1_open_cnt(rig_door(rig)), CNT);
    assert_int_equal(tdm_http1_next_ns(rig_door(rig), 0), TDM_NS_PER_MS);
    rig_hold_hangups(rig, 0);
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_hangups(rig), CNT);
    assert_true(tdm_http1_next_ns(rig_door(rig), 0) > TDM_NS_PER_MS);
}

/* A body of 3 MB goes through a pipe of 16 KiB to a client that reads
   nothing at first; others are served meanwhile. */
static void a_slow_reader_costs_only_its_own_pipe(void **state) {
    (void)state;
    int slow = client_connect(rig);
    int small = 32768;
    assert_int_equal(setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    client_send(slow, "GET /big?3000000 HTTP/1.1\r\n" END);
    while (rig_arrivals(rig) == 0) sleep_us(200);
    for (int i = 0; i < 20; i++)
        has(client_ask(rig, "GET /stream?3,0 HTTP/1.1\r\n" END), "data: 2\n\n\r\n0\r\n\r\n");
    static char buf[65536];
    uint64_t got = 0;
    for (ssize_t n; (n = recv(slow, buf, sizeof buf, 0)) > 0;) got += (uint64_t)n;
    (void)close(slow);
    assert_in_range(got, 3000000, 3000000 + 1000);
}

static void large_answers_are_byte_exact(void **state) {
    (void)state;
    size_t sz = 0;
    int fd = client_connect(rig);
    client_send(fd, "GET /big?200000 HTTP/1.1\r\n" END);
    const char *a = client_read(fd, NULL, &sz);
    (void)close(fd);
    const char *body = strstr(a, "\r\n\r\n");
    assert_non_null(body);
    body += 4;
    assert_int_equal(sz - (size_t)(body - a), 200000);
    for (size_t i = 0; i < 200000; i++)
        if (body[i] != (char)('a' + i % 26)) fail_msg("byte %zu is %d", i, body[i]);
}

static void an_aborted_stream_is_cut(void **state) {
    (void)state;
    const char *a = client_ask(rig, "GET /abort HTTP/1.1\r\n" HOST "\r\n");
    has(a, "data: 0\n\n");
    assert_null(strstr(a, "\r\n0\r\n\r\n"));
    assert_int_equal(rig_hangups(rig), 0);
    assert_int_equal(rig_counter(rig, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_http1), 0);
}

/* The client's FIN may be seen before the library says that it is done. */
static void leaving_after_the_last_byte_is_no_disconnect(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        int fd = client_connect(rig);
        client_send(fd, "GET /big?10 HTTP/1.1\r\n" END);
        has(client_read(fd, "abcdefghij", NULL), "abcdefghij");
        (void)close(fd);
    }
    assert_true(rig_wait_idle(rig));
    assert_int_equal(rig_counter(rig, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_http1), 0);
}

static void an_end_without_a_head_closes(void **state) {
    (void)state;
    assert_string_equal(client_ask(rig, "GET /headless HTTP/1.1\r\n" HOST "\r\n"), "");
}

static void a_stale_word_is_counted_and_dropped(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "GET /never HTTP/1.1\r\n" END);
    while (rig_arrivals(rig) == 0) sleep_us(200);
    sleep_us(5000); /* the played api is idle: its lane is ours for two words */
    assert_true(rig_push_word(rig, (tdm_egress_t){{0, 999}, TDM_EGRESS_END, 0}));
    assert_true(rig_push_word(rig, (tdm_egress_t){{1u << 30, 1}, TDM_EGRESS_END, 0}));
    sleep_us(50000);
    assert_int_equal(
        rig_counter(rig, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_stale_handle)), 2);
    assert_int_equal(tdm_http1_open_cnt(rig_door(rig)), 1);
    (void)close(fd);
}

static void closing_the_door_cuts_what_is_open(void **state) {
    (void)state;
    int fd[3];
    const char *const request[] = {"GET /never HTTP/1.1\r\n" END,
                                   "GET /stream?9,3600000000 HTTP/1.1\r\n" END,
                                   "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n" END "half"};
    for (int i = 0; i < 3; i++) {
        fd[i] = client_connect(rig);
        client_send(fd[i], request[i]);
    }
    while (rig_arrivals(rig) < 2) sleep_us(200);
    (void)client_read(fd[1], "data: 0\n\n", NULL);
    rig_close(rig);
    for (int i = 0; i < 3; i++) {
        assert_null(strstr(client_read(fd[i], NULL, NULL), "\r\n0\r\n\r\n"));
        (void)close(fd[i]);
    }
    rig = rig_open(NULL);
}

static void a_quiesced_door_finishes_and_takes_nobody(void **state) {
    (void)state;
    int fd = client_connect(rig);
    client_send(fd, "GET /stream?20,5000 HTTP/1.1\r\n" END);
    (void)client_read(fd, "data: 0\n\n", NULL);
    tdm_http1_quiesce(rig_door(rig));
    has(client_read(fd, NULL, NULL), "data: 19\n\n\r\n0\r\n\r\n");
    (void)close(fd);
}

static uint64_t connections(void) {
    return rig_counter(rig, TDM_METRIC_connections, TDM_LABEL_DOOR_http1);
}

/* Clients that leave after a random number of bytes and microseconds, in
   the request or in the answer: all slots come back, hang-ups are at most
   one per arrival. */
static void no_cut_point_loses_a_slot(void **state) {
    (void)state;
    const uint64_t seed = 0x7a11;
    static const char *const request[] = {
        "GET /stream?40,100 HTTP/1.1\r\n" END,
        "GET /never HTTP/1.1\r\n" END,
        "POST /echo HTTP/1.1\r\nContent-Length: 20\r\n" END "01234567890123456789",
        "GET /big?100000 HTTP/1.1\r\n" END,
        "GET /stream?3,0 HTTP/1.1\r\n" HOST "\r\nGET /stream?3,0 HTTP/1.1\r\n" END,
        "GET /abort HTTP/1.1\r\n" END,
    };
    tdm_rng_t rng = {seed};
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 400; i++) {
        const char *text = request[tdm_rng_below(&rng, TDM_COUNT_OF(request))];
        size_t sz = strlen(text);
        if (tdm_rng_below(&rng, 3) == 0) sz = tdm_rng_below(&rng, (uint32_t)sz + 1);
        int fd = client_connect(rig);
        client_send_bytes(fd, text, sz);
        if (tdm_rng_below(&rng, 2)) sleep_us(tdm_rng_below(&rng, 3000));
        if (tdm_rng_below(&rng, 4) == 0) {
            char buf[64];
            (void)recv(fd, buf, tdm_rng_below(&rng, sizeof buf), MSG_DONTWAIT);
        }
        (void)close(fd);
    }
    assert_true(rig_wait_idle(rig));
    for (int i = 0; i < 2000 && connections() > 0; i++) sleep_us(1000);
    assert_int_equal(connections(), 0);
    assert_true(rig_hangups(rig) <= rig_arrivals(rig));
    assert_true(rig_arrivals(rig) > 20);
    has(client_ask(rig, "GET /stream?3,0 HTTP/1.1\r\n" END), "data: 2\n\n\r\n0\r\n\r\n");
}

/* --- pages of the door ------------------------------------------------- */

static int page(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *out) {
    static char text[256];
    (void)ctx;
    if (strcmp(ask->path, "/metrics") != 0) return 0;
    if (ask->method == TDM_METHOD_POST && strcmp(ask->query, "do") != 0) return 0;
    int sz = snprintf(text, sizeof text, "query %s accept %s coding %s trusted %u\n", ask->query,
                      ask->accept, ask->accept_encoding, ask->is_trusted);
    out->content_type = TDM_CONTENT_OPENMETRICS;
    out->data = text;
    out->sz = (uint64_t)sz;
    return 1;
}

static void a_page_needs_no_api_tile(void **state) {
    (void)state;
    rig_close(rig);
    rig = rig_open_with_page(NULL, page);
    const char *a = client_ask(rig, "GET /metrics?set=all HTTP/1.1\r\nAccept: a/b\r\n"
                                    "Accept-Encoding: gzip\r\n" END);
    has(a, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    has(a, "\r\n\r\nquery set=all accept a/b coding gzip trusted 1\n");
    const char *h = client_ask(rig, "HEAD /metrics HTTP/1.1\r\n" END);
    has(h, "200 OK");
    assert_string_equal(strstr(h, "\r\n\r\n"), "\r\n\r\n");
    assert_int_equal(rig_arrivals(rig), 0);
    has(client_ask(rig, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n" END), "path /metrics\n");
    assert_int_equal(rig_arrivals(rig), 1);
    const char *p = "POST /metrics?do HTTP/1.1\r\nContent-Length: 0\r\n" END;
    has(client_ask(rig, p), "\r\n\r\nquery do accept  coding  trusted 1\n");
    assert_int_equal(rig_arrivals(rig), 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_stream_is_one_chunk_per_record),
        CASE(records_come_apart_on_the_wire),
        CASE(http10_gets_a_stream_without_chunks),
        CASE(many_streams_run_side_by_side),
        CASE(the_head_of_a_stream_ends_it),
        CASE(leaving_while_queued_is_seen_within_10_ms),
        CASE(leaving_mid_stream_is_seen_within_10_ms),
        CASE(a_reset_is_seen_within_10_ms),
        CASE(leaving_is_seen_behind_pipelined_bytes),
        CASE(a_full_hangup_lane_is_tried_again),
        CASE(a_slow_reader_costs_only_its_own_pipe),
        CASE(large_answers_are_byte_exact),
        CASE(an_aborted_stream_is_cut),
        CASE(leaving_after_the_last_byte_is_no_disconnect),
        CASE(an_end_without_a_head_closes),
        CASE(a_stale_word_is_counted_and_dropped),
        CASE(closing_the_door_cuts_what_is_open),
        CASE(a_quiesced_door_finishes_and_takes_nobody),
        CASE(no_cut_point_loses_a_slot),
        CASE(a_page_needs_no_api_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
