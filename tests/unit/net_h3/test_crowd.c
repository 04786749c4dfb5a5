/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who sends requests that do not end keeps nobody else from being served,
   and what he took comes back.
   Method: bench.h, with eight exchanges, sixteen streams and connections of
   several addresses. */
#include "appliance/base/clock.h"
#include "tests/unit/net_h3/bench.h"

#define H3_REQUEST_REJECTED 0x10bu
#define STREAM_CNT          16u

static const uint8_t get[] = {0x01, 0x08, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, 'h'};
static const uint8_t post[] = {0x01, 0x08, 0, 0, 0xd4, 0xd7, 0xc1, 0x50, 0x01, 'h', 0x00, 0x01};

static bench_t b;
static int64_t next_id[BENCH_CONN_CNT - 1u];

/* Guests 0 and 1 come from one address, 2 from another. */
static int setup(void **state) {
    (void)state;
    bench_open(&b);
    assert_int_equal(bench_begin(&b, 100000), 0);
    for (uint32_t i = 0; i < 3; i++) bench_join(&b, i, i == 2 ? 9 : 7);
    memset(next_id, 0, sizeof next_id);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) bench_leave(&b, i);
    bench_end(&b);
    assert_int_equal(tdm_h3_counters(b.h3)->unfinished_cnt, 0);
    bench_close(&b);
    return 0;
}

/* start begins a request of guest i and gives its stream. */
static int64_t start(uint32_t i, const uint8_t *bytes, uint64_t sz, int is_fin) {
    int64_t id = next_id[i];
    next_id[i] += 4;
    assert_int_equal(bench_feed_of(&b, &b.guest[i], id, bytes, sz, is_fin), 0);
    assert_int_equal(b.guest[i].error, 0);
    return id;
}

static void is_served(uint32_t i) {
    uint32_t before = b.ready_cnt;
    (void)start(i, get, sizeof get, 1);
    assert_int_equal(b.ready_cnt, before + 1u);
}

static const tdm_h3_counters_t *counters(void) {
    return tdm_h3_counters(b.h3);
}

static void headers_that_do_not_end_hold_no_exchange(void **state) {
    (void)state;
    for (uint32_t i = 0; i < STREAM_CNT - 4u; i++) (void)start(i % 2, get, sizeof get - 1u, 0);
    for (uint32_t i = 0; i < 3; i++) is_served(i);
    assert_int_equal(counters()->refused[TDM_REFUSE_exchange_limit], 0);
}

static void bodies_that_do_not_end_leave_room_for_the_whole(void **state) {
    (void)state;
    for (uint32_t i = 0; i < BENCH_SLOT_CNT + 2u; i++) (void)start(i % 2, post, sizeof post, 0);
    assert_int_equal(counters()->unfinished_cnt, BENCH_SLOT_CNT - 1u);
    assert_int_equal(counters()->refused[TDM_REFUSE_exchange_limit], 3);
    is_served(0);
}

static void the_source_with_most_makes_way(void **state) {
    (void)state;
    for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) (void)start(0, post, sizeof post, 0);
    assert_int_equal(counters()->rejected, 0);
    int64_t id = start(2, post, sizeof post, 0);
    assert_int_equal(counters()->rejected, 1);
    assert_int_equal(b.guest[0].reset_error, H3_REQUEST_REJECTED);
    assert_int_equal(b.guest[0].reset_id, 0); /* the oldest */
    assert_int_equal(counters()->unfinished_cnt, BENCH_SLOT_CNT - 1u);
    assert_int_equal(bench_feed_of(&b, &b.guest[2], id, "!", 1, 1), 0);
    assert_int_equal(b.ready_cnt, 1);
    /* What comes late of the one that made way, and its end, are nobody's. */
    uint64_t consumed = b.guest[0].consumed_sz;
    assert_int_equal(bench_feed_of(&b, &b.guest[0], 0, "late", 4, 1), 0);
    assert_int_equal(b.guest[0].consumed_sz, consumed + 4u);
    assert_int_equal(b.app.stream_close(b.app.ctx, &b.guest[0], 0, H3_REQUEST_REJECTED), 0);
    assert_int_equal(b.guest[0].error, 0);
}

static void one_with_as_few_waits(void **state) {
    (void)state;
    (void)start(2, post, sizeof post, 0);
    for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) (void)start(0, post, sizeof post, 0);
    assert_int_equal(counters()->refused[TDM_REFUSE_exchange_limit], 2);
    assert_int_equal(counters()->rejected, 0);
    b.now_ns += TDM_NS_PER_S; /* by then they had their time */
    (void)start(0, post, sizeof post, 0);
    assert_int_equal(counters()->rejected, 1);
    assert_int_equal(b.guest[0].reset_id, 0);
    assert_int_equal(b.guest[2].reset_error, 0);
}

static void a_full_table_of_streams_makes_way(void **state) {
    (void)state;
    for (uint32_t i = 0; i < STREAM_CNT; i++) (void)start(i % 2, get, sizeof get - 1u, 0);
    assert_int_equal(counters()->stream_cnt, STREAM_CNT);
    is_served(2);
    assert_int_equal(counters()->rejected, 1);
    assert_int_equal(counters()->stream_cnt, STREAM_CNT);
    uint32_t before = b.ready_cnt; /* the same source: not before they had their time */
    (void)start(1, get, sizeof get, 1);
    assert_int_equal(counters()->rejected, 2);
    assert_int_equal(b.guest[1].reset_id, next_id[1] - 4);
    assert_int_equal(b.ready_cnt, before);
    b.now_ns += TDM_NS_PER_S;
    is_served(1);
}

static void a_header_that_does_not_end_is_late(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) (void)start(i, get, sizeof get - 1u, 0);
    assert_int_equal(tdm_h3_poll(b.h3, b.now_ns + 29 * TDM_NS_PER_S), 0);
    assert_int_equal(tdm_h3_poll(b.h3, b.now_ns + 30 * TDM_NS_PER_S), 3);
    assert_int_equal(counters()->refused[TDM_REFUSE_request_timeout], 3);
    assert_int_equal(counters()->replies, 3);
    for (uint32_t i = 0; i < 3; i++) { /* its rest is nobody's */
        assert_int_equal(bench_feed_of(&b, &b.guest[i], 0, &get[sizeof get - 1u], 1, 1), 0);
        assert_int_equal(b.app.stream_close(b.app.ctx, &b.guest[i], 0, 0x100), 0);
    }
    assert_int_equal(b.ready_cnt, 0);
    assert_int_equal(counters()->stream_cnt, 0);
}

/* Whoever had the exchange, it is free once its request is over. */
static void what_was_taken_comes_back(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 5; round++) {
        int64_t id[BENCH_SLOT_CNT];
        for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) id[i] = start(i % 2, post, sizeof post, 0);
        (void)start(2, post, sizeof post, 0);
        is_served(2);
        bench_answer(&b);
        for (uint32_t i = 0; i < BENCH_SLOT_CNT; i++) {
            assert_int_equal(b.app.stream_reset(b.app.ctx, &b.guest[i % 2], id[i], 0x10c), 0);
            assert_int_equal(b.app.stream_close(b.app.ctx, &b.guest[i % 2], id[i], 0x10c), 0);
        }
        for (int64_t at = next_id[2] - 8; at < next_id[2]; at += 4)
            assert_int_equal(b.app.stream_close(b.app.ctx, &b.guest[2], at, 0x100), 0);
        assert_int_equal(counters()->unfinished_cnt, 0);
        assert_int_equal(counters()->stream_cnt, 0);
        assert_int_equal(b.open_cnt, b.closed_cnt);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(headers_that_do_not_end_hold_no_exchange),
        T(bodies_that_do_not_end_leave_room_for_the_whole),
        T(the_source_with_most_makes_way),
        T(one_with_as_few_waits),
        T(a_full_table_of_streams_makes_way),
        T(a_header_that_does_not_end_is_late),
        T(what_was_taken_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
