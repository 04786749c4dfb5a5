/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever the cable loses, doubles, reorders, delays or damages,
   every stream is the lossless one or ends with a typed error, the
   accounts agree at every scrape, and nothing stays taken.
   Method: the world of world.h under a chaos port with a tenth of each, one
   seed after another; the number of seeds is the first argument, the first
   seed the second. */

#include "world.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "tests/unit/net_port/env.h"

#include <rte_mbuf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TENTH       100000u
#define STREAM_CNT  5u
#define STREAM_TEXT "400"
#define BODY_SZ     6000u
#define TURN_MAX    400000u
#define SCRAPE      16u /* turns */

static uint32_t seed_cnt = 30, seed_first = 1;
static world_t w;

static struct {
    uint64_t whole, typed, lost, unconnected, scrapes;
    tdm_port_chaos_stats_t weather;
    uint64_t checksum, gaps;
} total;

/* lossless gives the hash of what /stream answers. */
static uint64_t lossless(uint32_t cnt) {
    uint64_t hash = TDM_SUM_FIRST;
    for (uint32_t i = 0; i < cnt; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, "t%u ", i);
        hash = tdm_sum_bytes(hash, text, (size_t)n);
    }
    return hash;
}

/* scrape holds every account to its neighbour: cable, weather, port, link,
   QUIC, and the numbers that a scraper sees. */
static void scrape(uint64_t seed) {
    tdm_port_chaos_stats_t c;
    tdm_port_stats_t p;
    tdm_net_tile_publish(w.tile);
    tdm_port_chaos_read(w.port, &c);
    tdm_port_stats_read(w.port, &p);
    const tdm_link_counters_t *l = tdm_net_tile_link_counters(w.tile);
    uint64_t delivered = l->datagrams + l->replies + l->consumed, drops = 0;
    for (uint32_t r = 0; r < TDM_REASON_CNT; r++) drops += l->rx_drop[r];
    uint64_t rx = *tdm_block_word(w.block, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_rx);
    uint64_t tx = *tdm_block_word(w.block, TDM_METRIC_net_packets_total, TDM_LABEL_DIRECTION_tx);
    const tdm_quic_counters_t *q = tdm_net_tile_quic_counters(w.tile);
    int is_good = rx == delivered + drops && rx == c.out[0] && tx == c.in[1] && rx == p.rx_frames;
    for (uint32_t way = 0; way < 2; way++)
        is_good &= c.in[way] + c.doubled[way] == c.out[way] + c.dropped[way] + c.held[way];
    is_good &=
        q->handshakes_started == q->handshakes_done + q->handshakes_failed + q->half_open_cnt;
    is_good &= tdm_net_tile_is_conserved(w.tile);
    if (!is_good) fail_msg("the accounts of seed %llu disagree", (unsigned long long)seed);
    total.scrapes++;
}

static void judge(const answer_t *a, uint64_t want, uint64_t seed, uint32_t i) {
    if (!a->is_ended) fail_msg("stream %u of seed %llu never ended", i, (unsigned long long)seed);
    if (a->outcome != TDM_CLIENT_DONE) {
        total.lost++; /* reset or connection lost: the client was told which */
    } else if (a->status != 200) {
        total.typed++;
    } else if (a->hash == want) {
        total.whole++;
    } else {
        fail_msg("stream %u of seed %llu differs", i, (unsigned long long)seed);
    }
}

static void add_up(const tdm_port_chaos_stats_t *c) {
    for (uint32_t way = 0; way < 2; way++) {
        total.weather.in[way] += c->in[way];
        total.weather.dropped[way] += c->dropped[way];
        total.weather.doubled[way] += c->doubled[way];
        total.weather.late[way] += c->late[way];
        total.weather.corrupted[way] += c->corrupted[way];
    }
    const tdm_link_counters_t *l = tdm_net_tile_link_counters(w.tile);
    total.checksum += l->rx_drop[TDM_DROP_udp_checksum] + l->rx_drop[TDM_DROP_ip_checksum];
    total.gaps += tdm_net_tile_quic_counters(w.tile)->packet_gaps;
}

static void talk(uint64_t seed) {
    static uint8_t body[BODY_SZ];
    answer_t a[STREAM_CNT + 1];
    for (uint32_t i = 0; i < BODY_SZ; i++) body[i] = (uint8_t)(i * 7 + i / 256 + seed);
    for (uint32_t i = 0; i < STREAM_CNT; i++)
        world_request(&w, "POST", "/stream", STREAM_TEXT, strlen(STREAM_TEXT), &a[i]);
    world_request(&w, "POST", "/echo", body, BODY_SZ, &a[STREAM_CNT]);
    for (uint32_t i = 0; i <= STREAM_CNT; i++) {
        for (uint32_t n = 0; n < TURN_MAX && !a[i].is_ended; n++) {
            world_hurry(&w);
            if (n % SCRAPE == 0) scrape(seed);
        }
    }
    uint64_t want = lossless((uint32_t)atoi(STREAM_TEXT));
    for (uint32_t i = 0; i < STREAM_CNT; i++) judge(&a[i], want, seed, i);
    judge(&a[STREAM_CNT], tdm_sum_bytes(TDM_SUM_FIRST, body, BODY_SZ), seed, STREAM_CNT);
}

static void run_seed(uint64_t seed) {
    tdm_port_chaos_t weather = {.under = TDM_PORT_WIRE,
                                .drop_ppm = TENTH,
                                .double_ppm = TENTH,
                                .reorder_ppm = TENTH,
                                .delay_ppm = TENTH,
                                .corrupt_ppm = TENTH,
                                .seed = seed};
    tdm_port_chaos_stats_t c;
    world_open_chaos(&w, 64, &weather);
    if (world_is_connected(&w))
        talk(seed);
    else
        total.unconnected++; /* closed by its time limit */
    scrape(seed);
    tdm_port_chaos_calm(w.port);
    for (uint32_t i = 0; i < 200000 && tdm_net_tile_exchange_cnt(w.tile) > 0; i++) world_hurry(&w);
    assert_int_equal(tdm_net_tile_exchange_cnt(w.tile), 0);
    tdm_port_chaos_read(w.port, &c);
    add_up(&c);
    world_close(&w); /* checks that every mbuf is back */
}

static void every_stream_is_whole_or_ends_typed(void **state) {
    (void)state;
    for (uint32_t i = 0; i < seed_cnt; i++) run_seed(seed_first + i);
    const tdm_port_chaos_stats_t *n = &total.weather;
    print_message("%u seeds: %llu whole, %llu refused, %llu lost, %llu without a connection; "
                  "%llu scrapes agreed\n",
                  seed_cnt, (unsigned long long)total.whole, (unsigned long long)total.typed,
                  (unsigned long long)total.lost, (unsigned long long)total.unconnected,
                  (unsigned long long)total.scrapes);
    for (uint32_t way = 0; way < 2; way++)
        print_message("%s %llu: dropped %llu, doubled %llu, late %llu, damaged %llu\n",
                      way ? "sent" : "received", (unsigned long long)n->in[way],
                      (unsigned long long)n->dropped[way], (unsigned long long)n->doubled[way],
                      (unsigned long long)n->late[way], (unsigned long long)n->corrupted[way]);
    print_message("checksum drops %llu, packet gaps %llu\n", (unsigned long long)total.checksum,
                  (unsigned long long)total.gaps);
    assert_true(total.whole >= (uint64_t)seed_cnt * STREAM_CNT / 2);
    for (uint32_t way = 0; way < 2; way++) {
        assert_in_range(n->dropped[way] * 100 / n->in[way], 7, 13);
        assert_in_range(n->corrupted[way] * 100 / n->in[way], 6, 12);
        assert_true(n->late[way] > n->in[way] / 10);
        assert_true(n->doubled[way] > n->in[way] / 20);
    }
    assert_true(total.checksum > 0);
    assert_true(total.gaps > 0);
}

/* The same seed gives the same weather. */
static void a_seed_can_be_repeated(void **state) {
    (void)state;
    uint8_t got[2][64];
    for (uint32_t round = 0; round < 2; round++) {
        tdm_port_chaos_t weather = {
            .under = TDM_PORT_WIRE, .drop_ppm = 500000, .reorder_ppm = 300000, .seed = 99};
        tdm_error_t err = {0};
        tdm_port_config_t pc = {.kind = TDM_PORT_CHAOS,
                                .mtu = 1500,
                                .rx_desc = 64,
                                .tx_desc = 64,
                                .mbuf_cnt = WORLD_MBUF_CNT,
                                .chaos = weather};
        tdm_port_t *p = NULL;
        struct rte_mbuf *m[8];
        uint8_t frame[60] = {0};
        uint32_t n = 0;
        memset(got[round], 0xff, sizeof got[round]);
        assert_int_equal(tdm_port_open(&pc, &p, &err), TDM_OK);
        for (uint32_t i = 0; i < 80; i++) {
            frame[0] = (uint8_t)i;
            if (i < 60) assert_int_equal(tdm_port_wire_put(p, frame, sizeof frame), 1);
            for (uint32_t k = tdm_port_rx(p, m, 8); k > 0; k--) {
                got[round][n++] = *rte_pktmbuf_mtod(m[k - 1], uint8_t *);
                rte_pktmbuf_free(m[k - 1]);
            }
        }
        assert_in_range(n, 15, 45);
        assert_int_equal(tdm_port_close(p), 0);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

int main(int argc, char **argv) {
    if (argc > 1) seed_cnt = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) seed_first = (uint32_t)strtoul(argv[2], NULL, 10);
    if (env_begin(4 * WORLD_MBUF_CNT)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_can_be_repeated),
        cmocka_unit_test(every_stream_is_whole_or_ends_typed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
