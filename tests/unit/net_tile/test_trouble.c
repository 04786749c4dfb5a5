/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever the port does, nothing is lost without a name: an empty
   pool, a transmit queue that takes nothing, frames that the device loses, a
   flood of fragments.
   Method: the world of world.h.  Argument: fragments of the flood. */

#include "world.h"

#include "appliance/base/clock.h"
#include "tests/unit/net_port/env.h"

#include <rte_mbuf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static world_t w;
static uint32_t fragment_cnt = 100000;

static int setup(void **state) {
    (void)state;
    world_open(&w, 64);
    world_connect(&w);
    return 0;
}

static int setup_alone(void **state) {
    (void)state;
    world_open(&w, 64);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    world_close(&w);
    return 0;
}

static void an_empty_pool_drops_counts_and_recovers(void **state) {
    (void)state;
    struct rte_mbuf *held[WORLD_MBUF_CNT];
    answer_t a;
    uint32_t n = 0;
    while (n < WORLD_MBUF_CNT && (held[n] = tdm_port_mbuf_alloc(w.port)) != NULL) n++;
    world_request(&w, "POST", "/echo", "patience", 8, &a);
    for (uint32_t i = 0; i < 200; i++) world_turn(&w);
    assert_int_equal(a.is_ended, 0);
    assert_true(world_drops(&w, TDM_DROP_no_mbuf) > 1);
    for (uint32_t i = 0; i < n; i++) rte_pktmbuf_free(held[i]);
    assert_true(world_until(&w, &a.is_ended, 200000));
    assert_string_equal(a.text, "patience");
    world_settle(&w);
}

/* probe_put asks the tile for an ARP answer, a frame that it must send. */
static void probe_put(void) {
    static const uint8_t probe[60] = {2,  't', 'd', 'm', 0, 2, 2, 't', 'd', 'm', 0,   1,   8, 6,
                                      0,  1,   8,   0,   6, 4, 0, 1,   2,   't', 'd', 'm', 0, 1,
                                      10, 88,  0,   1,   0, 0, 0, 0,   0,   0,   10,  88,  0, 2};
    (void)tdm_port_wire_put(w.port, probe, sizeof probe);
}

static void a_stuck_transmit_queue_is_bounded_and_recovers(void **state) {
    (void)state;
    answer_t a[WORLD_EXCHANGE_MAX];
    w.is_cut = 1;
    for (uint32_t i = 0; i < 1000; i++) { /* more questions than the wire holds answers */
        probe_put();
        if (i % 16 == 0) world_turn(&w);
    }
    for (uint32_t i = 0; i < 200; i++) world_turn(&w);
    assert_true(world_drops(&w, TDM_DROP_tx_full) > 100);
    w.is_cut = 0;
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++)
        world_request(&w, "POST", "/echo", "after", 5, &a[i]);
    for (uint32_t i = 0; i < WORLD_EXCHANGE_MAX; i++) {
        assert_true(world_until(&w, &a[i].is_ended, 400000));
        assert_string_equal(a[i].text, "after");
    }
    world_settle(&w);
}

/* asked turns for ns, asking for a frame at every 16th turn; take: the
   wire gives one frame up at every take-th turn (0: none), so the port
   takes another. */
static void asked(int64_t ns, uint32_t take) {
    static uint8_t frame[2048];
    int64_t end = w.now_ns + ns;
    for (uint32_t i = 1; w.now_ns < end; i++) {
        if (i % 16 == 0) probe_put();
        if (take > 0 && i % take == 0) (void)tdm_port_wire_get(w.port, frame, sizeof frame);
        world_turn(&w);
    }
}

static void a_port_that_takes_nothing_for_a_second_is_said_to(void **state) {
    (void)state;
    w.is_cut = 1;
    for (uint32_t i = 0; i < 400; i++) {
        probe_put();
        world_turn(&w);
    }
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 0);
    asked(TDM_NET_STUCK_NS * 9 / 10, 0);
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 0); /* not yet */
    asked(TDM_NET_STUCK_NS / 5, 0);
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 1);
    assert_true(world_drops(&w, TDM_DROP_tx_full) > 1000);
    w.is_cut = 0;
    asked(100 * TDM_NS_PER_MS, 0);
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 0);
    world_settle(&w);
}

static void a_port_that_is_only_late_is_not_stuck(void **state) {
    (void)state;
    w.is_cut = 1;
    for (uint32_t i = 0; i < 400; i++) {
        probe_put();
        world_turn(&w);
    }
    asked(3 * TDM_NET_STUCK_NS, 8000); /* one frame in 400 ms */
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 0);
    assert_true(world_drops(&w, TDM_DROP_tx_full) > 1000);
    w.is_cut = 0;
    world_settle(&w);
}

/* Nobody asks any more: what was refused long ago says nothing now. */
static void a_stuck_port_is_forgotten_in_silence(void **state) {
    (void)state;
    w.is_cut = 1;
    for (uint32_t i = 0; i < 400; i++) {
        probe_put();
        world_turn(&w);
    }
    asked(TDM_NET_STUCK_NS * 11 / 10, 0);
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 1);
    for (int64_t end = w.now_ns + 12 * TDM_NS_PER_S; w.now_ns < end;) world_turn(&w);
    assert_int_equal(tdm_net_tile_is_stuck(w.tile), 0);
    w.is_cut = 0;
    world_settle(&w);
}

static void what_the_device_loses_is_counted(void **state) {
    (void)state;
    static uint8_t frame[60000];
    answer_t a;
    for (uint32_t i = 0; i < 300; i++) (void)tdm_port_wire_put(w.port, frame, 60);
    assert_int_equal(tdm_port_wire_put(w.port, frame, sizeof frame), 0);
    assert_int_equal(world_drops(&w, TDM_DROP_nic_missed), 300 - 256);
    assert_int_equal(world_drops(&w, TDM_DROP_nic_error), 1);
    world_request(&w, "POST", "/echo", "on we go", 8, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_int_equal(world_drops(&w, TDM_DROP_mac_not_ours), 256);
    assert_string_equal(a.text, "on we go");
    world_settle(&w);
}

/* fragment writes the first fragment of a UDP datagram to our address. */
static void fragment(uint8_t frame[60]) {
    static const uint8_t begin[] = {2,    't',  'd',  'm', 0, 2,  2,  't', 'd',  'm', 0,  1,
                                    0x08, 0x00, 0x45, 0,   0, 40, 0,  7,   0x20, 0,   64, 17,
                                    0,    0,    10,   88,  0, 1,  10, 88,  0,    2};
    memset(frame, 0, 60);
    memcpy(frame, begin, sizeof begin);
    frame[39] = 20; /* the datagram's length; ports 0 to 0 */
    uint32_t sum = 0;
    for (uint32_t k = 14; k < 34; k += 2) sum += (uint32_t)(frame[k] << 8 | frame[k + 1]);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    frame[24] = (uint8_t)(sum >> 8);
    frame[25] = (uint8_t)sum;
}

static void a_flood_of_fragments_keeps_the_pool_flat(void **state) {
    (void)state;
    uint8_t frame[60];
    tdm_port_stats_t s;
    answer_t a;
    const uint32_t cnt = fragment_cnt;
    fragment(frame);
    uint32_t put = 0, high = 0;
    while (put < cnt) {
        put += (uint32_t)tdm_port_wire_put(w.port, frame, sizeof frame);
        if (put % 32 != 0) continue;
        world_turn(&w);
        tdm_port_stats_read(w.port, &s);
        high = TDM_MAX(high, s.mbuf_used);
    }
    world_turn(&w); /* for those that the client's own frames held up */
    assert_int_equal(world_drops(&w, TDM_DROP_ip_fragment), cnt);
    assert_true(high <= 16); /* the spare, and what waits on the wire */
    world_request(&w, "POST", "/echo", "whole", 5, &a);
    assert_true(world_until(&w, &a.is_ended, 20000));
    assert_string_equal(a.text, "whole");
    world_settle(&w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    if (argc > 1) fragment_cnt = (uint32_t)strtoul(argv[1], NULL, 10);
    if (env_begin(4 * WORLD_MBUF_CNT)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(an_empty_pool_drops_counts_and_recovers),
        TEST(a_stuck_transmit_queue_is_bounded_and_recovers),
        TEST(a_port_that_takes_nothing_for_a_second_is_said_to),
        TEST(a_port_that_is_only_late_is_not_stuck),
        cmocka_unit_test_setup_teardown(a_stuck_port_is_forgotten_in_silence, setup_alone,
                                        teardown),
        TEST(what_the_device_loses_is_counted),
        TEST(a_flood_of_fragments_keeps_the_pool_flat),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
