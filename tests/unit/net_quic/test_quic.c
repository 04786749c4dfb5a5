/* SPDX-License-Identifier: Apache-2.0 */
/* The QUIC server among strangers: garbage, wrong versions, too many, too
   fast, too little memory.  Each drop reason is moved, and an innocent
   client is served before and after. */
#include "tests/unit/net_quic/hand.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static uint64_t dropped(rig_t *r, tdm_reason_t reason) {
    return counters(r)->drop[reason];
}

/* --- garbage ----------------------------------------------------------- */

static void garbage_is_dropped_by_reason(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_open(&r, NULL);
    memset(buf, 0, sizeof buf);
    assert_int_equal(rig_input(&r, buf, 0, 9), TDM_DROP_quic_malformed);
    assert_int_equal(rig_input(&r, buf, 5, 9), TDM_DROP_quic_malformed);
    buf[0] = 0x40; /* a short header with an id that nobody has */
    assert_int_equal(rig_input(&r, buf, 60, 9), TDM_DROP_quic_unknown);
    uint32_t sz = first_flight(&r, buf);
    assert_int_equal(rig_input(&r, buf, 1199, 9), TDM_DROP_quic_malformed);
    buf[0] = (uint8_t)(buf[0] | 0x20u); /* a Handshake packet out of nowhere */
    assert_int_equal(rig_input(&r, buf, sz, 9), TDM_DROP_quic_unknown);
    assert_int_equal(counters(&r)->connection_cnt, 0);
    assert_int_equal(dropped(&r, TDM_DROP_quic_malformed), 3);
    assert_int_equal(dropped(&r, TDM_DROP_quic_unknown), 2);
    rig_dial_ready(&r, 0);
    rig_serve_one(&r, 0);
    rig_close(&r);
}

static void random_datagrams_do_no_harm(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_begin(&r);
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t sz = tdm_rng_below(&r.rng, sizeof buf);
        for (uint32_t k = 0; k < sz; k++) buf[k] = (uint8_t)tdm_rng_next(&r.rng);
        (void)rig_input(&r, buf, sz, i);
        if (i % 64 == 0) rig_turn(&r, RIG_MS);
    }
    rig_serve_one(&r, 0);
    rig_close(&r);
}

static void damaged_first_flights_do_no_harm(void **state) {
    (void)state;
    rig_t r;
    uint8_t good[1500];
    uint8_t buf[1500];
    rig_begin(&r);
    uint32_t sz = first_flight(&r, good);
    for (uint32_t i = 0; i < 400; i++) {
        memcpy(buf, good, sz);
        uint32_t at = tdm_rng_below(&r.rng, i < 200 ? 60 : sz);
        buf[at] = (uint8_t)(buf[at] ^ (1u << tdm_rng_below(&r.rng, 8)));
        (void)rig_input(&r, buf, sz, i);
        rig_turn(&r, RIG_MS);
    }
    rig_serve_one(&r, 0);
    rig_idle(&r, 11000); /* half-open handshakes time out */
    assert_true(counters(&r)->connection_cnt <= 1);
    rig_close(&r);
}

static void other_versions_are_told_ours(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    uint8_t out[1500];
    tdm_datagram_t dg;
    rig_open(&r, NULL);
    uint32_t sz = first_flight(&r, buf);
    buf[1] = 0xfa; /* version 0xfa000001 */
    assert_int_equal(rig_input(&r, buf, sz, 77), TDM_DROP_quic_version);
    assert_int_equal(counters(&r)->version_answers, 1);
    uint32_t n = tdm_quic_output(r.quic, out, sizeof out, &dg, r.now_ns);
    assert_true(n > 7 && n < 100);
    assert_true(out[0] & 0x80u);
    assert_memory_equal(out + 1, "\0\0\0\0", 4);     /* version negotiation */
    assert_int_equal(out[5], buf[6 + buf[5]]);       /* their source id comes back */
    assert_memory_equal(out + n - 8, "\0\0\0\1", 4); /* version 1 */
    assert_int_equal(dg.remote.addr[3], 77);
    assert_int_equal(tdm_quic_output(r.quic, out, sizeof out, &dg, r.now_ns), 0);
    /* A flood of them is answered up to the queue's depth, no further. */
    for (int i = 0; i < 100; i++) (void)rig_input(&r, buf, sz, 77);
    int cnt = 0;
    while (tdm_quic_output(r.quic, out, sizeof out, &dg, r.now_ns) > 0) cnt++;
    assert_in_range(cnt, 1, 32);
    assert_int_equal(dropped(&r, TDM_DROP_quic_version), 101);
    /* Too short to be answered. */
    assert_int_equal(rig_input(&r, buf, 600, 77), TDM_DROP_quic_malformed);
    rig_close(&r);
}

/* --- too many, too fast ------------------------------------------------ */

static void table_full_refuses_and_recovers(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.connection_max = 3;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 3; i++) rig_dial_ready(&r, i);
    rig_dial(&r, 3, 3);
    rig_idle(&r, 20);
    assert_false(tdm_client_is_ready(r.client[3]));
    assert_true(dropped(&r, TDM_DROP_quic_connection_limit) > 0);
    for (uint32_t i = 0; i < 3; i++) rig_serve_one(&r, i);
    tdm_client_shutdown(r.client[1]);
    rig_idle(&r, 4000); /* the fourth tries again by itself */
    assert_true(tdm_client_is_ready(r.client[3]));
    rig_serve_one(&r, 3);
    rig_close(&r);
}

/* PINGs keep a connection from its idle end, but not against one that proves
   its address; a request keeps it against everybody. */
static void quiet_connections_make_way(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[3];
    rig_config_t cfg = rig_default();
    cfg.connection_max = 3;
    cfg.idle_timeout_ns = 20000 * RIG_MS; /* as if each sent PINGs */
    rig_open(&r, &cfg);
    r.is_tile_silent = 1;
    for (uint32_t i = 0; i < 3; i++) rig_dial_ready(&r, i);
    for (uint32_t i = 0; i < 2; i++) rig_send(&r, i, "GET", "/health", NULL, 0, &reply[i]);
    rig_idle(&r, 2500);
    rig_dial(&r, 3, 3);
    rig_idle(&r, 3000);
    assert_true(tdm_client_is_ready(r.client[3]));
    assert_true(counters(&r)->retries > 0);
    assert_int_equal(counters(&r)->retry_tokens, 1);
    assert_int_equal(counters(&r)->connections_failed, 0);
    /* All are busy: no place for a fifth. */
    rig_send(&r, 3, "GET", "/health", NULL, 0, &reply[2]);
    rig_idle(&r, 2500);
    uint64_t before = dropped(&r, TDM_DROP_quic_connection_limit);
    rig_dial(&r, 4, 4);
    rig_idle(&r, 1000);
    assert_false(tdm_client_is_ready(r.client[4]));
    assert_true(dropped(&r, TDM_DROP_quic_connection_limit) > before);
    r.is_tile_silent = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(reply); i++) {
        assert_true(rig_run(&r, &reply[i].is_ended, 500));
        assert_int_equal(reply[i].status, 200);
    }
    rig_close(&r);
}

static void handshakes_are_limited_in_all(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.handshake_per_s = 4;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 12; i++) rig_dial(&r, i, 100 + i);
    rig_idle(&r, 30);
    assert_int_equal(counters(&r)->handshakes_done, 4);
    assert_true(dropped(&r, TDM_DROP_quic_handshake_rate) >= 8);
    rig_idle(&r, 4000);
    assert_true(counters(&r)->handshakes_done > 8);
    rig_close(&r);
}

static void handshakes_are_limited_per_source(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.handshake_per_s_source = 2;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 6; i++) rig_dial(&r, i, 50); /* one address */
    rig_dial(&r, 6, 51);
    rig_idle(&r, 30);
    assert_int_equal(counters(&r)->handshakes_done, 3);
    assert_true(tdm_client_is_ready(r.client[6]));
    assert_true(dropped(&r, TDM_DROP_quic_handshake_rate) >= 4);
    rig_close(&r);
}

static void sources_of_one_prefix_share_a_limit(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_config_t cfg = rig_default();
    cfg.handshake_per_s_source = 2;
    rig_open(&r, &cfg);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 8; i++) {
        tdm_datagram_t dg = {.payload = buf, .payload_sz = first_flight(&r, buf)};
        dg.local = (tdm_endpoint_t){.addr = {0xfd}, .port = 443, .version = 6};
        dg.remote = (tdm_endpoint_t){.addr = {0xfd, 1}, .port = 1000, .version = 6};
        dg.remote.addr[15] = (uint8_t)i; /* another host of the same /64 */
        taken += tdm_quic_input(r.quic, &dg, r.now_ns) == TDM_REASON_NONE;
    }
    assert_int_equal(taken, 2);
    tdm_datagram_t dg = {.payload = buf, .payload_sz = first_flight(&r, buf)};
    dg.local = (tdm_endpoint_t){.addr = {0xfd}, .port = 443, .version = 6};
    dg.remote = (tdm_endpoint_t){.addr = {0xfd, 2}, .port = 1000, .version = 6};
    assert_int_equal(tdm_quic_input(r.quic, &dg, r.now_ns), TDM_REASON_NONE);
    while (tdm_quic_poll(r.quic, r.now_ns) > 0) {
    }
    uint32_t sz = tdm_quic_output(r.quic, buf, sizeof buf, &dg, r.now_ns);
    assert_true(sz > 0);
    assert_int_equal(dg.remote.version, 6);
    assert_int_equal(dg.remote.addr[0], 0xfd);
    rig_close(&r);
}

static void connections_share_the_output(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[4];
    rig_open(&r, NULL);
    for (uint32_t i = 0; i < 4; i++) rig_dial_ready(&r, i);
    for (uint32_t i = 0; i < 4; i++) {
        rig_send(&r, i, "POST", "/stream?1000000", "{}", 2, &reply[i]);
    }
    rig_idle(&r, 200);
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (uint32_t i = 0; i < 4; i++) {
        least = TDM_MIN(least, reply[i].body_sz);
        most = TDM_MAX(most, reply[i].body_sz);
    }
    assert_true(least > 100000);
    assert_true(most - least < most / 4u);
    rig_close(&r);
}

static void one_handshake_starts_per_poll(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_open(&r, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t sz = first_flight(&r, buf);
        assert_int_equal(rig_input(&r, buf, sz, i), TDM_REASON_NONE);
    }
    for (uint32_t i = 1; i <= 8; i++) {
        assert_int_equal(tdm_quic_next_ns(r.quic), 0);
        (void)tdm_quic_poll(r.quic, r.now_ns);
        assert_int_equal(counters(&r)->handshakes_started, i);
    }
    rig_close(&r);
}

/* --- too little memory -------------------------------------------------- */

static void every_quota_is_survived(void **state) {
    (void)state;
    uint32_t served = 0;
    uint64_t memory_drops = 0;
    for (uint64_t quota = 1024; quota < (400u << 10); quota += 2731) {
        rig_t r;
        rig_reply_t reply = {0};
        rig_config_t cfg = rig_default();
        cfg.exchange_max = 2;
        cfg.connection_max = 2;
        cfg.connection_pool_sz = quota;
        rig_open(&r, &cfg);
        rig_dial(&r, 0, 2);
        rig_idle(&r, 12);
        if (tdm_client_is_ready(r.client[0])) {
            rig_send(&r, 0, "POST", "/stream?50", "{}", 2, &reply);
            rig_idle(&r, 40);
        }
        served += reply.is_ended && reply.outcome == TDM_CLIENT_DONE;
        memory_drops += dropped(&r, TDM_DROP_quic_memory);
        rig_close(&r);
    }
    assert_true(served > 10);
    assert_true(memory_drops > 10);
}

static void empty_pool_hurts_only_newcomers(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.pool_sz = 600u << 10;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_serve_one(&r, 0);
    for (uint32_t i = 1; i < 16; i++) rig_dial(&r, i, i);
    rig_idle(&r, 50);
    assert_true(dropped(&r, TDM_DROP_quic_memory) > 0);
    assert_true(counters(&r)->pool_fail_cnt > 0);
    for (uint32_t i = 1; i < 16; i++) r.is_deaf[i] = 1;
    rig_serve_one(&r, 0);
    rig_close(&r);
}

/* --- life ---------------------------------------------------- */

static void closed_connection_says_so_again(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_idle(&r, 50);
    r.is_deaf[0] = 1;
    tdm_h3_drain(r.h3);
    rig_idle(&r, 1010); /* closed while the client heard nothing */
    assert_int_equal(counters(&r)->tls_session_cnt, 0);
    r.is_deaf[0] = 0;
    rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 100));
    assert_int_equal(reply.outcome, TDM_CLIENT_LOST);
    rig_close(&r);
}

static void wrong_config_is_refused(void **state) {
    (void)state;
    tdm_quic_config_t cfg = {.connection_max = 0};
    assert_int_equal(tdm_quic_footprint(&cfg), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_dropped_by_reason),
        cmocka_unit_test(random_datagrams_do_no_harm),
        cmocka_unit_test(damaged_first_flights_do_no_harm),
        cmocka_unit_test(other_versions_are_told_ours),
        cmocka_unit_test(table_full_refuses_and_recovers),
        cmocka_unit_test(quiet_connections_make_way),
        cmocka_unit_test(handshakes_are_limited_in_all),
        cmocka_unit_test(handshakes_are_limited_per_source),
        cmocka_unit_test(sources_of_one_prefix_share_a_limit),
        cmocka_unit_test(connections_share_the_output),
        cmocka_unit_test(one_handshake_starts_per_poll),
        cmocka_unit_test(every_quota_is_survived),
        cmocka_unit_test(empty_pool_hurts_only_newcomers),
        cmocka_unit_test(closed_connection_says_so_again),
        cmocka_unit_test(wrong_config_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
