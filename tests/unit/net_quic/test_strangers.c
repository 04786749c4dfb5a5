/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who has not proved its address costs little and gets little.
   Method: the rig's server and clock; datagrams are carried by hand. */
#include "tests/unit/net_quic/hand.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t stranger_cnt = 20000;

static int is_retry(const uint8_t *p) {
    return (p[0] & 0xf0u) == 0xf0u;
}

/* --- amplification ---------------------------------------------------- */

static void silent_strangers_get_three_times_their_bytes(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    uint64_t got[256] = {0};
    rig_open(&r, NULL);
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t sz = first_flight(&r, buf);
        assert_int_equal(rig_input(&r, buf, sz, i), TDM_REASON_NONE);
    }
    for (int ms = 0; ms < 12000; ms += 5) { /* every probe until the handshake limit */
        (void)out(&r, NULL, got);
        r.now_ns += 5 * RIG_MS;
    }
    for (uint32_t i = 0; i < 16; i++) assert_in_range(got[i], 1201, 3 * 1200);
    const tdm_quic_counters_t *n = counters(&r);
    assert_int_equal(n->unproved_rx_sz, 16 * 1200);
    assert_true(n->unproved_tx_sz <= 3 * n->unproved_rx_sz);
    assert_int_equal(n->handshakes_failed, 16);
    assert_int_equal(n->connection_cnt, 0);
    assert_int_equal(n->pool_used_sz, 0);
    assert_true(handshakes_add_up(&r));
    rig_close(&r);
}

static void strangers_under_retry_leave_no_trace(void **state) {
    (void)state;
    rig_t r;
    static uint8_t buf[64][1500];
    uint32_t sz[64];
    uint64_t got[256] = {0};
    rig_config_t cfg = rig_default();
    cfg.is_retry_always = 1;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 64; i++) sz[i] = first_flight(&r, buf[i]);
    for (uint32_t i = 0; i < stranger_cnt; i++) {
        assert_int_equal(rig_input(&r, buf[i % 64], sz[i % 64], i), TDM_DROP_quic_retry);
        if (i % 32 == 31) (void)out(&r, NULL, got);
        r.now_ns += 10000;
    }
    const tdm_quic_counters_t *n = counters(&r);
    assert_int_equal(n->handshakes_started, 0);
    assert_int_equal(n->connection_cnt, 0);
    assert_int_equal(n->pool_high_sz, 0);
    assert_int_equal(n->tls_session_cnt, 0);
    assert_int_equal(n->drop[TDM_DROP_quic_retry], stranger_cnt);
    assert_in_range(n->retries, stranger_cnt / 2, stranger_cnt); /* 16 answers wait at most */
    assert_true(n->unproved_tx_sz <= n->unproved_rx_sz / 4);
    assert_int_equal(n->datagrams_tx, n->retries);
    print_message(
        "%u sources under Retry: %llu answers, %llu bytes for %llu, %llu bytes of memory\n",
        stranger_cnt, (unsigned long long)n->retries, (unsigned long long)n->unproved_tx_sz,
        (unsigned long long)n->unproved_rx_sz, (unsigned long long)n->pool_high_sz);
    rig_close(&r);
}

/* --- Retry ------------------------------------------------------------ */

static void a_client_passes_through_retry(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.is_retry_always = 1;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->retries, 1);
    assert_int_equal(counters(&r)->retry_tokens, 1);
    assert_int_equal(counters(&r)->handshakes_done, 1);
    rig_close(&r);
}

static void retry_goes_on_with_load_and_off_after_it(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500], last[1500];
    rig_config_t cfg = rig_default();
    cfg.retry_half_open = 4;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->retries, 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(counters(&r)->is_retry_on, 0);
        assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), 20 + i), TDM_REASON_NONE);
        (void)out(&r, NULL, NULL);
    }
    assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), 30), TDM_DROP_quic_retry);
    uint32_t sz = out(&r, last, NULL);
    assert_true(sz > 0 && sz < 300);
    assert_true(is_retry(last));
    assert_int_equal(counters(&r)->is_retry_on, 1);
    rig_serve_one(&r, 0);  /* who is inside notices nothing */
    rig_dial_ready(&r, 1); /* who can prove its address comes in */
    assert_int_equal(counters(&r)->retry_tokens, 1);
    rig_idle(&r, 3000); /* silence ends them after five seconds */
    assert_int_equal(counters(&r)->is_retry_on, 1);
    rig_idle(&r, 5000);
    assert_int_equal(counters(&r)->half_open_cnt, 0);
    assert_int_equal(counters(&r)->is_retry_on, 0);
    assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), 40), TDM_REASON_NONE);
    assert_true(handshakes_add_up(&r));
    rig_close(&r);
}

static void retry_goes_on_with_the_rate(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_config_t cfg = rig_default();
    cfg.retry_per_s = 50; /* five in a tenth of a second */
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), i), TDM_REASON_NONE);
    assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), 5), TDM_DROP_quic_retry);
    rig_idle(&r, 1900);
    assert_int_equal(counters(&r)->is_retry_on, 1);
    rig_idle(&r, 200);
    assert_int_equal(counters(&r)->is_retry_on, 0);
    rig_close(&r);
}

/* second_flight runs a client up to its Initial with a token. */
static uint32_t second_flight(rig_t *r, tdm_client_t *c, uint8_t *buf) {
    uint8_t answer[1500];
    uint32_t sz = tdm_client_output(c, buf, 1500, r->now_ns);
    assert_int_equal(rig_input(r, buf, sz, 9), TDM_DROP_quic_retry);
    sz = out(r, answer, NULL);
    assert_true(is_retry(answer));
    tdm_client_input(c, answer, sz, r->now_ns);
    return tdm_client_output(c, buf, 1500, r->now_ns);
}

static void tokens_are_good_once_from_there_and_now(void **state) {
    (void)state;
    rig_t r;
    uint8_t good[1500], bad[1500], last[1500];
    rig_config_t cfg = rig_default();
    cfg.is_retry_always = 1;
    rig_open(&r, &cfg);
    tdm_client_t *c = loose_client(&r);
    uint32_t sz = second_flight(&r, c, good);
    /* 1 flags, 4 version, 1+16 id, 1+12 own id, 2 length of the token */
    uint32_t token_at = 37;
    assert_int_equal(good[token_at], 0xb6);

    assert_int_equal(rig_input(&r, good, sz, 10), TDM_DROP_quic_token); /* another address */
    uint32_t n = out(&r, last, NULL);
    assert_true(n > 0 && n <= 1200);
    assert_true((last[0] & 0xf0u) == 0xc0u); /* an Initial that closes */
    for (uint32_t k = 1; k < 60; k += 7) {
        memcpy(bad, good, sz);
        bad[token_at + k] = (uint8_t)(bad[token_at + k] ^ 0x10u);
        assert_int_equal(rig_input(&r, bad, sz, 9), TDM_DROP_quic_token);
    }
    memcpy(bad, good, sz);
    bad[6] = (uint8_t)(bad[6] ^ 1u); /* another connection id */
    assert_int_equal(rig_input(&r, bad, sz, 9), TDM_DROP_quic_token);
    memcpy(bad, good, sz);
    bad[token_at] = 0x36; /* no token of ours: as none */
    assert_int_equal(rig_input(&r, bad, sz, 9), TDM_DROP_quic_retry);
    assert_int_equal(counters(&r)->connection_cnt, 0);

    r.now_ns += 11 * TDM_NS_PER_S; /* too old */
    assert_int_equal(rig_input(&r, good, sz, 9), TDM_DROP_quic_token);
    r.now_ns -= 2 * TDM_NS_PER_S;
    assert_int_equal(rig_input(&r, good, sz, 9), TDM_REASON_NONE);
    (void)out(&r, NULL, NULL);
    assert_int_equal(counters(&r)->retry_tokens, 1);
    assert_int_equal(rig_input(&r, good, sz, 9), TDM_REASON_NONE); /* the same connection */
    (void)out(&r, NULL, NULL);
    assert_int_equal(counters(&r)->handshakes_started, 1);
    tdm_client_close(c);
    rig_close(&r);
}

static void early_data_is_not_taken(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_open(&r, NULL);
    uint32_t sz = first_flight(&r, buf);
    buf[0] = (uint8_t)((buf[0] & 0xcfu) | 0x10u); /* a 0-RTT packet */
    assert_int_equal(rig_input(&r, buf, sz, 9), TDM_DROP_quic_unknown);
    assert_int_equal(counters(&r)->connection_cnt, 0);
    rig_close(&r);
}

/* --- half-open -------------------------------------------------------- */

static void silent_handshakes_cannot_fill_the_table(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_config_t cfg = rig_default();
    cfg.half_open_max = 4;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 12; i++) {
        tdm_reason_t want = i < 4 ? TDM_REASON_NONE : TDM_DROP_quic_half_open;
        assert_int_equal(rig_input(&r, buf, first_flight(&r, buf), 20 + i), want);
        if (i % 2) (void)out(&r, NULL, NULL);
    }
    assert_int_equal(counters(&r)->half_open_cnt, 4);
    rig_dial(&r, 0, 2);
    rig_idle(&r, 20);
    assert_false(tdm_client_is_ready(r.client[0]));
    rig_idle(&r, 11000); /* they time out */
    assert_int_equal(counters(&r)->handshakes_failed, 4);
    assert_int_equal(counters(&r)->half_open_cnt, 0);
    rig_dial_ready(&r, 1);
    rig_serve_one(&r, 1);
    assert_true(handshakes_add_up(&r));
    rig_close(&r);
}

/* strangers [COUNT]: how many sources try under Retry. */
int main(int argc, char **argv) {
    if (argc > 1) stranger_cnt = (uint32_t)strtoul(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_strangers_get_three_times_their_bytes),
        cmocka_unit_test(strangers_under_retry_leave_no_trace),
        cmocka_unit_test(a_client_passes_through_retry),
        cmocka_unit_test(retry_goes_on_with_load_and_off_after_it),
        cmocka_unit_test(retry_goes_on_with_the_rate),
        cmocka_unit_test(tokens_are_good_once_from_there_and_now),
        cmocka_unit_test(early_data_is_not_taken),
        cmocka_unit_test(silent_handshakes_cannot_fill_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
