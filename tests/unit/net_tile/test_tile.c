/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the net tile carries requests and streams end to end, gives every
   slot, mbuf and cancel its due, and its accounts add up whatever happens
   on the cable.
   Method: the world of world.h, with seeded loss. */

#include "world.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "net/tile/tile_private.h"
#include "tests/unit/net_port/env.h"

#include <rte_mbuf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static world_t w;

static int setup(void **state) {
    (void)state;
    world_open(&w, 64);
    world_connect(&w);
    return 0;
}

static int setup_short_ring(void **state) {
    (void)state;
    world_open(&w, 1);
    world_connect(&w);
    return 0;
}

static int setup_exception(void **state) {
    (void)state;
    world_open_exception(&w);
    world_connect(&w);
    return 0;
}

static int setup_unasked(void **state) {
    (void)state;
    world_open_unasked(&w);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    world_close(&w);
    return 0;
}

/* observed is how many values a histogram series holds. */
static uint64_t observed(tdm_metric_t metric) {
    const tdm_metric_row_t *row = &tdm_metric_row[metric];
    const uint64_t *word = tdm_block_word(w.block, metric, 0);
    uint64_t n = 0;
    for (uint32_t i = 0; i <= row->bound_cnt; i++) n += word[i];
    return n;
}

static void a_body_goes_out_and_comes_back(void **state) {
    (void)state;
    static uint8_t body[20000];
    answer_t a;
    for (uint32_t i = 0; i < sizeof body; i++) body[i] = (uint8_t)(i * 31 + i / 256);
    world_request(&w, "POST", "/echo", body, sizeof body, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(a.outcome, TDM_CLIENT_DONE);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.sz, sizeof body);
    assert_true(a.hash == tdm_sum_bytes(TDM_SUM_FIRST, body, sizeof body));
    world_settle(&w);
}

static void tokens_arrive_in_order_and_are_observed(void **state) {
    (void)state;
    answer_t a;
    world_request(&w, "GET", "/echo", NULL, 0, &a); /* no token, no observation */
    assert_true(world_until(&w, &a.is_ended, 20000));
    world_settle(&w);
    assert_int_equal(observed(TDM_METRIC_e2e_seconds), 0);
    world_request(&w, "POST", "/echo", "x", 1, &a); /* a token, but no stream: only an end */
    assert_true(world_until(&w, &a.is_ended, 20000));
    world_settle(&w);
    assert_int_equal(observed(TDM_METRIC_ttft_seconds), 0);
    assert_int_equal(observed(TDM_METRIC_e2e_seconds), 1);
    world_request(&w, "POST", "/stream", "40", 2, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(a.outcome, TDM_CLIENT_DONE);
    assert_non_null(strstr(a.text, "t0 t1 t2 t3 "));
    assert_non_null(strstr(a.text, "t38 t39 "));
    world_settle(&w);
    assert_int_equal(observed(TDM_METRIC_ttft_seconds), 1);
    assert_int_equal(observed(TDM_METRIC_itl_seconds), 39);
    assert_int_equal(observed(TDM_METRIC_e2e_seconds), 2);
    assert_int_equal(world_counted(&w, TDM_METRIC_exchanges_total, TDM_LABEL_DOOR_h3), 3);
    assert_int_equal(world_counted(&w, TDM_METRIC_http_responses_total,
                                   tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_h3,
                                               tdm_label_code(200))),
                     3);
    assert_true(world_counted(&w, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_rx) > 3);
    assert_true(world_counted(&w, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_tx) > 3);
    uint64_t pool = world_counted(&w, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_total);
    uint64_t used = world_counted(&w, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_used);
    assert_true(used > 0 && used < pool);
}

static void many_streams_share_the_tile(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX];
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
            world_request(&w, "POST", "/stream", "100", 3, &a[i]);
        for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) {
            assert_true(world_until(&w, &a[i].is_ended, 50000));
            assert_int_equal(a[i].outcome, TDM_CLIENT_DONE);
            assert_true(a[i].hash == a[0].hash);
        }
        world_settle(&w);
    }
}

static void a_farewell_ends_what_is_open(void **state) {
    (void)state;
    answer_t a;
    world_request(&w, "GET", "/hang", NULL, 0, &a);
    for (uint32_t i = 0; i < 2000; i++) world_turn(&w);
    assert_int_equal(a.is_ended, 0);
    uint64_t sent = tdm_net_tile_quic_counters(w.tile)->datagrams_tx;
    tdm_net_tile_farewell(w.tile, w.now_ns);
    assert_int_equal(tdm_net_tile_quic_counters(w.tile)->datagrams_tx, sent + 1);
    assert_true(world_until(&w, &a.is_ended, 2000));
    assert_int_not_equal(a.outcome, TDM_CLIENT_DONE);
    world_settle(&w);
}

static void one_request_too_many_hears_so(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX + 1];
    int64_t id[WORLD_EXCHANGE_MAX];
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
        id[i] = world_request(&w, "GET", "/hang", NULL, 0, &a[i]);
    for (uint32_t i = 0; i < 2000; i++) world_turn(&w);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), WORLD_EXCHANGE_MAX);
    world_request(&w, "GET", "/hang", NULL, 0, &a[WORLD_EXCHANGE_MAX]);
    assert_true(world_until(&w, &a[WORLD_EXCHANGE_MAX].is_ended, 20000));
    assert_int_equal(a[WORLD_EXCHANGE_MAX].status, 503);
    assert_int_equal(
        world_counted(&w, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_exchange_limit)),
        1);
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) tdm_client_cancel(w.client, id[i]);
    world_settle(&w);
    world_request(&w, "POST", "/echo", "x", 1, &a[0]); /* and the next one is served */
    assert_true(world_until(&w, &a[0].is_ended, 20000));
    assert_int_equal(a[0].status, 200);
    world_settle(&w);
}

static void a_full_exchange_ring_answers_429(void **state) {
    (void)state;
    answer_t a[3];
    w.is_api_asleep = 1;
    for (uint32_t i = 0; i < 3; i++) world_request(&w, "POST", "/echo", "x", 1, &a[i]);
    for (uint32_t i = 0; i < 4000; i++) world_turn(&w);
    w.is_api_asleep = 0;
    uint32_t ok = 0, busy = 0;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(world_until(&w, &a[i].is_ended, 20000));
        ok += a[i].status == 200;
        busy += a[i].status == 429;
    }
    assert_int_equal(ok, 1);
    assert_int_equal(busy, 2);
    assert_int_equal(
        world_counted(&w, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_queue_full)), 2);
    world_settle(&w);
}

static void a_cancel_reaches_the_api_in_the_turn_it_arrives(void **state) {
    (void)state;
    answer_t a;
    int64_t id = world_request(&w, "GET", "/hang", NULL, 0, &a);
    for (uint32_t i = 0; i < 2000; i++) world_turn(&w);
    assert_int_equal(a.status, 200);
    tdm_client_cancel(w.client, id);
    uint64_t datagrams = 0;
    for (uint32_t i = 0; i < 100 && w.hangup_cnt == 0; i++) {
        datagrams = tdm_net_tile_link_counters(w.tile)->datagrams;
        world_turn(&w);
    }
    /* The datagram with the reset, the hangup, its handling: one turn. */
    assert_int_equal(w.hangup_cnt, 1);
    assert_true(tdm_net_tile_link_counters(w.tile)->datagrams > datagrams);
    world_settle(&w);
    assert_int_equal(world_counted(&w, TDM_METRIC_disconnects_total, TDM_LABEL_DOOR_h3), 1);
}

static void cancels_at_random_moments_leave_nothing_behind(void **state) {
    (void)state;
    const uint64_t seed = 7;
    tdm_rng_t rng = {.state = seed};
    answer_t a[WORLD_EXCHANGE_MAX];
    for (uint32_t round = 0; round < 60; round++) {
        int64_t id[WORLD_EXCHANGE_MAX];
        for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
            id[i] = world_request(&w, "POST", i % 2 ? "/hang" : "/stream", "30", 2, &a[i]);
        for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) {
            for (uint32_t k = tdm_rng_below(&rng, 12); k > 0; k--) world_turn(&w);
            tdm_client_cancel(w.client, id[i]);
        }
        world_settle(&w);
    }
    assert_true(w.hangup_cnt >= 30 * WORLD_EXCHANGE_MAX / 2);
    answer_t last;
    world_request(&w, "POST", "/echo", "still here", 10, &last);
    assert_true(world_until(&w, &last.is_ended, 20000));
    assert_string_equal(last.text, "still here");
    world_settle(&w);
}

static void silence_ends_in_hangups_at_the_idle_timeout(void **state) {
    (void)state;
    answer_t a[2];
    world_request(&w, "GET", "/hang", NULL, 0, &a[0]);
    world_request(&w, "GET", "/hang", NULL, 0, &a[1]);
    for (uint32_t i = 0; i < 2000; i++) world_turn(&w);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), 2);
    tdm_client_close(w.client);
    w.client = NULL;
    int64_t end = w.now_ns + 36 * TDM_NS_PER_S; /* 30 s after the first PING that it missed */
    while (w.now_ns < end && w.hangup_cnt < 2) {
        world_turn(&w);
        w.now_ns += 10 * TDM_NS_PER_MS;
    }
    assert_int_equal(w.hangup_cnt, 2);
    world_settle(&w);
}

/* A client that sends no PING of its own waits for longer than both idle
   timeouts. */
static void a_slow_answer_outlives_the_idle_timeout(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_client_config_t c = {.host = "localhost",
                             .port = 8443,
                             .verify = TDM_CLIENT_VERIFY_INSECURE,
                             .connect_timeout_ns = 20 * TDM_NS_PER_S,
                             .is_keep_alive_off = 1};
    answer_t a;
    tdm_client_close(w.client);
    assert_int_equal(tdm_client_open(&c, w.now_ns, &w.client, &err), TDM_OK);
    for (uint32_t i = 0; i < 20000 && !tdm_client_is_ready(w.client); i++) world_hurry(&w);
    int64_t id = world_request(&w, "GET", "/hang", NULL, 0, &a);
    int64_t end = w.now_ns + 100 * TDM_NS_PER_S;
    while (w.now_ns < end && !a.is_ended) {
        world_turn(&w);
        w.now_ns += 10 * TDM_NS_PER_MS;
    }
    assert_int_equal(a.is_ended, 0);
    assert_int_equal(w.hangup_cnt, 0);
    tdm_client_cancel(w.client, id);
    world_settle(&w);
}

static void one_in_ten_frames_lost_changes_nothing_but_time(void **state) {
    (void)state;
    answer_t a[4];
    w.loss_ppm = 100000;
    for (uint32_t i = 0; i < 4; i++) world_request(&w, "POST", "/stream", "300", 3, &a[i]);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(world_until(&w, &a[i].is_ended, 400000));
        assert_int_equal(a[i].outcome, TDM_CLIENT_DONE);
        assert_true(a[i].hash == a[0].hash);
    }
    w.loss_ppm = 0;
    world_settle(&w);
}

/* chaos_round starts a stream per slot, cancels some at random moments,
   and checks that the others are whole and equal. */
static void chaos_round(tdm_rng_t *rng, uint64_t seed) {
    answer_t a[WORLD_EXCHANGE_MAX];
    int64_t id[WORLD_EXCHANGE_MAX];
    uint64_t hash = 0;
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
        id[i] = world_request(&w, "POST", "/stream", "150", 3, &a[i]);
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) {
        if (tdm_rng_below(rng, 4) != 0) continue;
        for (uint32_t k = tdm_rng_below(rng, 300); k > 0; k--) world_turn(&w);
        tdm_client_cancel(w.client, id[i]);
    }
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) {
        if (!world_until(&w, &a[i].is_ended, 3000000))
            fail_msg("stream %u never ended (seed %llu)", i, (unsigned long long)seed);
        /* A slot of the round before may still wait for its reset: 503. */
        if (a[i].outcome != TDM_CLIENT_DONE || a[i].status == 503) continue;
        if (hash == 0) hash = a[i].hash;
        if (a[i].status != 200 || a[i].hash != hash)
            fail_msg("stream %u differs (seed %llu)", i, (unsigned long long)seed);
    }
}

static void loss_and_cancels_together_leave_nothing_half(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        tdm_rng_t rng = {.state = seed};
        w.rng = seed;
        w.loss_ppm = (uint32_t)seed * 50000;
        for (uint32_t round = 0; round < 4; round++) chaos_round(&rng, seed);
        w.loss_ppm = 0;
        world_settle(&w);
        assert_true(tdm_net_tile_is_conserved(w.tile));
    }
}

static void stale_egress_words_are_counted_and_ignored(void **state) {
    (void)state;
    answer_t a;
    world_request(&w, "GET", "/hang", NULL, 0, &a);
    for (uint32_t i = 0; i < 2000; i++) world_turn(&w);
    tdm_handle_t h = w.job[0].x->handle;
    const tdm_egress_t bad[] = {
        {.handle = {h.slot, h.generation - 1}, .flags = TDM_EGRESS_END},
        {.handle = {h.slot, h.generation + 1}, .flags = TDM_EGRESS_END | TDM_EGRESS_ABORT},
        {.handle = {WORLD_SLOT_CNT, 1}, .flags = TDM_EGRESS_HEAD},
        {.handle = {UINT32_MAX, UINT32_MAX}, .flags = UINT32_MAX},
        {.handle = {h.slot + 1, 0}, .flags = TDM_EGRESS_END},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++)
        assert_int_equal(tdm_ring_push(&w.egress, 0, &bad[i]), 1);
    world_turn(&w);
    assert_int_equal(world_drops(&w, TDM_DROP_stale_handle), TDM_COUNT_OF(bad));
    assert_int_equal(a.is_ended, 0);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), 1);
    w.job[0].is_hanging = 0;
    assert_true(world_until(&w, &a.is_ended, 20000));
    world_settle(&w);
}

static void hostile_frames_are_dropped_by_reason(void **state) {
    (void)state;
    uint8_t frame[80] = {2, 't', 'd', 'm', 0, 2, 2, 't', 'd', 'm', 0, 1, 0x12, 0x34};
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(tdm_port_wire_put(w.port, frame, sizeof frame), 1);
        world_turn(&w);
    }
    assert_int_equal(world_drops(&w, TDM_DROP_ethertype_unknown), 100);
    assert_true(tdm_net_tile_is_conserved(w.tile));
}

/* A TCP segment to our own address, a frame of an unknown type, an ARP
   question about somebody else, and a datagram to another port. */
static uint32_t foreign_frame(uint32_t i, uint8_t frame[60]) {
    static const uint8_t ip[] = {8, 0, 0x45, 0,  0,  40, 0, 0,  0x40, 0, 64,
                                 6, 0, 0,    10, 88, 0,  1, 10, 88,   0, 2};
    static const uint8_t arp[] = {8, 6,  0,  1, 8, 0, 6, 4, 0, 1, 2, 't', 'd', 'm', 0,
                                  1, 10, 88, 0, 1, 0, 0, 0, 0, 0, 0, 10,  88,  0,   77};
    memset(frame, 0, 60);
    memcpy(frame, "\x02tdm\0\x02\x02tdm\0\x01", 12);
    frame[12] = 0x88, frame[13] = 0xcc;
    if (i == 1) memcpy(frame + 12, arp, sizeof arp), memset(frame, 0xff, 6);
    if (i < 2) return 60;
    memcpy(frame + 12, ip, sizeof ip);
    if (i == 3) frame[23] = 17, frame[39] = 20; /* UDP, length 20, port 0 to 0 */
    uint32_t sum = 0;
    for (uint32_t k = 14; k < 34; k += 2) sum += (uint32_t)(frame[k] << 8 | frame[k + 1]);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    frame[24] = (uint8_t)(sum >> 8);
    frame[25] = (uint8_t)sum;
    return 60;
}

static void the_kernel_gets_what_is_not_ours(void **state) {
    (void)state;
    uint8_t frame[60], got[2048];
    answer_t a;
    uint64_t before =
        world_counted(&w, TDM_METRIC_net_exception_packets_total, TDM_LABEL_DIRECTION_rx);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(tdm_port_wire_put(w.port, frame, foreign_frame(i, frame)), 1);
        world_turn(&w);
        assert_int_equal(tdm_port_wire_get(w.exception, got, sizeof got), 60);
        assert_memory_equal(got, frame, 60); /* unchanged */
    }
    assert_int_equal(
        world_counted(&w, TDM_METRIC_net_exception_packets_total, TDM_LABEL_DIRECTION_rx),
        before + 4);
    for (uint32_t r = 1; r < TDM_REASON_CNT; r++)
        if (tdm_reason_group_of((tdm_reason_t)r) == TDM_GROUP_DROP)
            assert_int_equal(world_drops(&w, (tdm_reason_t)r), 0);
    /* What was ours and damaged stays ours to count. */
    world_request(&w, "POST", "/echo", "x", 1, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(tdm_port_wire_get(w.exception, got, sizeof got), 0);
    /* The kernel's frames go out as they are. */
    assert_int_equal(tdm_port_wire_put(w.exception, frame, 60), 1);
    world_turn(&w);
    assert_int_equal(
        world_counted(&w, TDM_METRIC_net_exception_packets_total, TDM_LABEL_DIRECTION_tx), 1);
    world_settle(&w);
    assert_true(tdm_net_tile_is_conserved(w.tile));
}

static void a_kernel_that_takes_nothing_costs_only_its_own(void **state) {
    (void)state;
    uint8_t frame[60], got[2048];
    answer_t a;
    for (uint32_t i = 0; i < 600; i++) {
        (void)tdm_port_wire_put(w.port, frame, foreign_frame(0, frame));
        if (i % 16 == 15) world_turn(&w);
    }
    assert_true(world_drops(&w, TDM_DROP_tx_full) > 100);
    assert_true(tdm_net_tile_is_conserved(w.tile));
    world_request(&w, "POST", "/echo", "go on", 5, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_string_equal(a.text, "go on");
    while (tdm_port_wire_get(w.exception, got, sizeof got) > 0) {
    }
    world_settle(&w);
}

/* The server's first flight waits for the client's link address, which costs
   the time of one question and not that of QUIC's first probe (RFC 9002
   section 6.2.2: a second). */
static void a_first_handshake_loses_nothing_while_the_client_is_asked_for(void **state) {
    (void)state;
    int64_t begin_ns = w.now_ns;
    world_connect(&w);
    assert_true(w.now_ns - begin_ns < 100 * TDM_NS_PER_MS);
    assert_int_equal(world_drops(&w, TDM_DROP_neighbour_unknown), 0);
    const tdm_link_counters_t *n = tdm_net_tile_link_counters(w.tile);
    assert_int_equal(n->solicits, 1);
    assert_in_range(n->released, 1, TDM_LINK_HELD_HOP_MAX);
    assert_int_equal(n->held, 0);
    assert_int_equal(world_counted(&w, TDM_METRIC_net_released_datagrams_total, 0), n->released);
    assert_int_equal(world_counted(&w, TDM_METRIC_net_held_datagrams, 0), 0);
    assert_int_equal(world_counted(&w, TDM_METRIC_net_neighbours, 0), 1);
}

static void draining_lets_streams_end(void **state) {
    (void)state;
    answer_t a;
    world_request(&w, "POST", "/stream", "200", 3, &a);
    for (uint32_t i = 0; i < 50; i++) world_turn(&w);
    tdm_net_tile_drain(w.tile);
    assert_true(world_until(&w, &a.is_ended, 50000));
    assert_int_equal(a.outcome, TDM_CLIENT_DONE);
    assert_non_null(strstr(a.text, "t0 t1 "));
    world_settle(&w);
}

static void impossible_configs_are_refused(void **state) {
    (void)state;
    tdm_net_tile_config_t c = {.exchange_max = 0};
    assert_int_equal(tdm_net_tile_footprint(&c), 0);
    c.exchange_max = TDM_NET_EXCHANGE_MAX + 1;
    assert_int_equal(tdm_net_tile_footprint(&c), 0);
    tdm_net_tile_t *t = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_net_tile_create(w.tile_mem, &c, 0, &t, &err), TDM_ERR_INVAL);
    c.port = w.port;
    c.egress = &w.egress;
    c.block = w.block;
    c.api_cnt = 1;
    c.arrivals[0] = &w.arrivals;
    c.hangups[0] = &w.hangups;
    assert_int_equal(tdm_net_tile_create(w.tile_mem, &c, 0, &t, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "hangup lane")); /* 8 deep, 16385 exchanges */
}

/* A polling tile waits for no page: before the first request all are there
   but the far end of each body's room. */
static void pages_are_there_before_requests(void **state) {
    (void)state;
    tdm_net_tile_config_t c = w.tile->c;
    c.body_max = 1 << 20;
    uint64_t sz = tdm_net_tile_footprint(&c), body = sz - c.exchange_max * c.body_max;
    uint8_t *mem = mmap(NULL, sz, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *is_there = calloc(sz / 4096 + 1, 1);
    assert_ptr_not_equal(mem, MAP_FAILED);
    assert_non_null(is_there);
    (void)madvise(mem, sz, MADV_NOHUGEPAGE); /* each page for itself */
    tdm_net_tile_t *t = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_net_tile_create(mem, &c, w.now_ns, &t, &err), TDM_OK);
    assert_int_equal(mincore(mem, sz, is_there), 0);
    for (uint64_t at = 0; at < body; at += 4096) assert_true(is_there[at / 4096] & 1);
    for (uint32_t i = 0; i < c.exchange_max; i++)
        for (uint64_t at = 0; at < 16384; at += 4096)
            assert_true(is_there[(body + i * c.body_max + at) / 4096] & 1);
    tdm_net_tile_destroy(t);
    free(is_there);
    (void)munmap(mem, sz);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    if (env_begin(4 * WORLD_MBUF_CNT)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(a_body_goes_out_and_comes_back),
        TEST(tokens_arrive_in_order_and_are_observed),
        TEST(many_streams_share_the_tile),
        TEST(one_request_too_many_hears_so),
        cmocka_unit_test_setup_teardown(a_full_exchange_ring_answers_429, setup_short_ring,
                                        teardown),
        TEST(a_cancel_reaches_the_api_in_the_turn_it_arrives),
        TEST(cancels_at_random_moments_leave_nothing_behind),
        TEST(silence_ends_in_hangups_at_the_idle_timeout),
        TEST(a_slow_answer_outlives_the_idle_timeout),
        TEST(one_in_ten_frames_lost_changes_nothing_but_time),
        TEST(loss_and_cancels_together_leave_nothing_half),
        TEST(stale_egress_words_are_counted_and_ignored),
        TEST(hostile_frames_are_dropped_by_reason),
        cmocka_unit_test_setup_teardown(the_kernel_gets_what_is_not_ours, setup_exception,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_kernel_that_takes_nothing_costs_only_its_own,
                                        setup_exception, teardown),
        cmocka_unit_test_setup_teardown(
            a_first_handshake_loses_nothing_while_the_client_is_asked_for, setup_unasked, teardown),
        TEST(draining_lets_streams_end),
        TEST(a_farewell_ends_what_is_open),
        TEST(impossible_configs_are_refused),
        TEST(pages_are_there_before_requests),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
