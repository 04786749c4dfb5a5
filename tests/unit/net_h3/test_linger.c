/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an exchange lasts no longer than its client does its part: takes the
   answer, and ends what is over.
   Method: bench.h, whose answers are taken and acknowledged step by step. */
#include "appliance/base/clock.h"
#include "tests/unit/net_h3/bench.h"

#define H3_EXCESSIVE_LOAD    0x107u
#define H3_REQUEST_CANCELLED 0x10cu

static const uint8_t get[] = {0x01, 0x08, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, 'h'};
static const uint8_t post[] = {0x01, 0x08, 0, 0, 0xd4, 0xd7, 0xc1, 0x50, 0x01, 'h', 0x00, 0x01};

static bench_t b;
static tdm_quic_conn_t *const guest = &b.guest[0];

static int setup(void **state) {
    (void)state;
    bench_open(&b);
    assert_int_equal(bench_begin(&b, 100000), 0);
    bench_join(&b, 0, 7);
    bench_join(&b, 1, 9);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bench_leave(&b, 0);
    bench_leave(&b, 1);
    bench_end(&b);
    bench_close(&b);
    return 0;
}

static uint32_t held(void) {
    return b.open_cnt - b.closed_cnt;
}

static uint64_t lingered(void) {
    return tdm_h3_counters(b.h3)->lingered;
}

/* pass lets s seconds go by, in the steps in which the tile would look. */
static void pass(int64_t s) {
    for (int64_t end = b.now_ns + s * TDM_NS_PER_S; b.now_ns < end;) {
        b.now_ns += TDM_NS_PER_S / 8;
        (void)tdm_h3_poll(b.h3, b.now_ns);
    }
}

static void feed(int64_t id, const void *bytes, uint64_t sz, int is_fin) {
    assert_int_equal(bench_feed_of(&b, guest, id, bytes, sz, is_fin), 0);
}

/* pull sends what the guest is owed, and gives how much that was. */
static uint64_t pull(void) {
    uint64_t all = 0;
    for (int i = 0; i < 200; i++) {
        tdm_quic_send_t s = {.stream_id = -1};
        assert_int_equal(b.app.send_pull(b.app.ctx, guest, &s, b.now_ns), 0);
        if (s.stream_id < 0) break;
        uint64_t sz = 0;
        for (uint32_t v = 0; v < s.vec_cnt; v++) sz += s.vec[v].sz;
        assert_int_equal(b.app.send_sent(b.app.ctx, guest, s.stream_id, sz), 0);
        if (s.stream_id % 4 == 0) all += sz; /* not our own streams */
    }
    return all;
}

static void ack(int64_t id, uint64_t sz) {
    b.app.input_done(b.app.ctx, guest, b.now_ns);
    assert_int_equal(b.app.stream_acked(b.app.ctx, guest, id, sz), 0);
}

/* is_ended_in_two_steps: the stream, then the connection, patience_s each. */
static void is_ended_in_two_steps(int64_t patience_s) {
    pass(patience_s - 1);
    assert_int_equal(guest->reset_error, 0);
    pass(2);
    assert_int_equal(guest->reset_error, H3_REQUEST_CANCELLED);
    assert_int_equal(guest->error, 0);
    pass(patience_s);
    assert_int_equal(guest->error, H3_EXCESSIVE_LOAD);
    assert_true(lingered() >= 2);
}

static void an_answer_that_nobody_takes(void **state) {
    (void)state;
    feed(0, get, sizeof get, 1);
    bench_answer(&b);
    assert_true(pull() > 2);
    assert_int_equal(held(), 1);
    is_ended_in_two_steps(30);
}

/* No window for the connection: QUIC does not even ask for it. */
static void an_answer_that_cannot_be_sent(void **state) {
    (void)state;
    feed(0, get, sizeof get, 1);
    bench_answer(&b);
    is_ended_in_two_steps(30);
}

static void a_body_that_is_late_and_stays(void **state) {
    (void)state;
    feed(0, post, sizeof post, 0);
    assert_int_equal(held(), 1);
    pass(31);
    bench_answer(&b); /* of the api tile: 408 */
    assert_true(pull() > 2);
    is_ended_in_two_steps(30);
}

static void a_header_that_is_late_and_stays(void **state) {
    (void)state;
    feed(0, get, sizeof get - 1u, 0);
    pass(30);
    assert_int_equal(tdm_h3_counters(b.h3)->refused[TDM_REFUSE_request_timeout], 1);
    ack(0, pull());
    is_ended_in_two_steps(30);
}

/* A client that says that it is gone, and does not end its half. */
static void one_that_left_by_half(void **state) {
    (void)state;
    feed(0, post, sizeof post, 0);
    assert_int_equal(b.app.stream_reset(b.app.ctx, guest, 0, H3_REQUEST_CANCELLED), 0);
    pass(29);
    assert_int_equal(guest->error, 0);
    pass(2);
    assert_int_equal(guest->error, H3_EXCESSIVE_LOAD);
}

static void who_takes_a_little_is_served(void **state) {
    (void)state;
    feed(0, get, sizeof get, 1);
    bench_answer(&b);
    ack(0, pull() - 2u);
    for (uint32_t i = 0; i < 2; i++) {
        pass(20);
        ack(0, 1);
    }
    assert_int_equal(lingered(), 0);
    assert_int_equal(held(), 0);
    assert_int_equal(b.app.stream_close(b.app.ctx, guest, 0, 0x100), 0);
}

/* An answer that we owe is no fault of the client. */
static void who_waits_for_us_waits(void **state) {
    (void)state;
    feed(0, get, sizeof get, 1);
    pass(600);
    bench_answer(&b);
    pass(20);
    assert_int_equal(lingered(), 0);
    ack(0, pull());
    assert_int_equal(held(), 0);
    assert_int_equal(b.app.stream_close(b.app.ctx, guest, 0, 0x100), 0);
}

/* What is acknowledged needs no exchange, whenever its stream ends. */
static void an_answer_that_was_taken_gives_its_exchange_back(void **state) {
    (void)state;
    for (int64_t id = 0; id < 12; id += 4) {
        feed(id, get, sizeof get, 1);
        bench_answer(&b);
        uint64_t sz = pull();
        ack(id, sz - 1u);
        assert_int_equal(held(), 1);
        ack(id, 1);
        assert_int_equal(held(), 0);
    }
    assert_int_equal(tdm_h3_counters(b.h3)->stream_cnt, 3);
    assert_int_equal(tdm_h3_counters(b.h3)->stale, 0);
}

static void short_places_shorten_the_patience(void **state) {
    (void)state;
    for (int64_t id = 0; id < 4 * (int64_t)BENCH_SLOT_CNT; id += 4) feed(id, get, sizeof get, 1);
    bench_answer(&b);
    (void)pull();
    pass(8);
    assert_int_equal(lingered(), 0);
    for (int64_t id = 0; guest->error == 0; id += 4) {
        assert_in_range(id, 0, 20);
        assert_int_equal(bench_feed_of(&b, &b.guest[1], id, get, sizeof get, 1), 0);
        assert_int_equal(b.app.stream_close(b.app.ctx, &b.guest[1], id, 0x100), 0);
        pass(1);
    }
    assert_int_equal(guest->error, H3_EXCESSIVE_LOAD);
    assert_int_equal(lingered(), 2 * BENCH_SLOT_CNT);
    assert_int_equal(b.guest[1].error, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(an_answer_that_nobody_takes),
        T(an_answer_that_cannot_be_sent),
        T(a_body_that_is_late_and_stays),
        T(a_header_that_is_late_and_stays),
        T(one_that_left_by_half),
        T(who_takes_a_little_is_served),
        T(who_waits_for_us_waits),
        T(an_answer_that_was_taken_gives_its_exchange_back),
        T(short_places_shorten_the_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
