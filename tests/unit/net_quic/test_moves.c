/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who moves is followed, also who only listens; who steals datagrams
   gains nothing.
   Method: the rig's server and clock; a client's address changes, and what
   is sent to the old one is lost. */
#include "tests/unit/net_quic/hand.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void a_peer_on_a_new_address_is_followed(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/stream?20000", "{}", 2, &reply);
    rig_idle(&r, 5);
    assert_false(reply.is_ended);
    r.client_at[0].addr[3] = 99; /* another address and port in mid-stream */
    r.client_at[0].port = 9999;
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->path_changes, 1);
    rig_close(&r);
}

static void rebound_address_is_followed(void **state) {
    (void)state;
    rig_t r;
    rig_begin(&r);
    rig_serve_one(&r, 0);
    rig_idle(&r, 100);
    r.client_at[0].port = 9999; /* a NAT chose another port */
    rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->connection_cnt, 1);
    rig_close(&r);
}

/* from_elsewhere lets what client 0 has to send arrive from another port
   of its host. */
static void from_elsewhere(rig_t *r) {
    uint8_t buf[1500];
    for (uint32_t sz; (sz = tdm_client_output(r->client[0], buf, sizeof buf, r->now_ns)) > 0;) {
        tdm_datagram_t dg = {.remote = r->client_at[0],
                             .local = {.version = 4, .port = 443, .addr = {10, 0, 0, 1}},
                             .payload = buf,
                             .payload_sz = sz};
        dg.remote.port++;
        assert_int_equal(tdm_quic_input(r->quic, &dg, r->now_ns), TDM_REASON_NONE);
    }
}

/* ngtcp2 0.12 stopped the process (an assertion) where a peer came back
   to its old address while its new one was being validated, and path MTU
   discovery was off. */
static void a_peer_that_moves_to_and_fro_does_no_harm(void **state) {
    (void)state;
    static const uint16_t datagram_max[] = {TDM_QUIC_DATAGRAM_MIN, 1400};
    for (uint32_t k = 0; k < TDM_COUNT_OF(datagram_max); k++) {
        rig_t r;
        rig_config_t cfg = rig_default();
        cfg.datagram_max = datagram_max[k];
        rig_open(&r, &cfg);
        rig_dial_ready(&r, 0);
        rig_serve_one(&r, 0);
        for (uint32_t n = 0; n < 10; n++) {
            rig_reply_t reply;
            rig_idle(&r, 20);
            (void)rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
            from_elsewhere(&r);
            assert_true(rig_run(&r, &reply.is_ended, 3000)); /* from the old address again */
        }
        assert_int_equal(counters(&r)->connection_cnt, 1);
        rig_close(&r);
    }
}

static void a_thief_of_datagrams_gains_nothing(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    uint64_t got[256] = {0};
    rig_reply_t reply;
    rig_begin(&r);
    rig_idle(&r, 100);
    /* A request of the client, sent from another address by who stole it;
       the client's own copy never comes. */
    rig_send(&r, 0, "POST", "/stream?20000", "{}", 2, &reply);
    uint32_t sz = tdm_client_output(r.client[0], buf, sizeof buf, r.now_ns);
    assert_int_equal(rig_input(&r, buf, sz, 66), TDM_REASON_NONE);
    r.is_deaf[0] = 1;
    for (int i = 0; i < 200; i++) {
        r.now_ns += RIG_MS;
        (void)out(&r, NULL, got);
    }
    assert_true(got[66] <= 3u * sz);
    r.is_deaf[0] = 0;
    assert_true(rig_run(&r, &reply.is_ended, 20000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    assert_int_equal(counters(&r)->connection_cnt, 1);
    rig_close(&r);
}

/* move gives client 0 another address: what goes to the old one is lost. */
static void move(rig_t *r, uint32_t last) {
    r->client_at[0].addr[3] = (uint8_t)last;
    r->client_at[0].port = (uint16_t)(9000 + last);
}

/* Between two tokens a NAT forgets a client that has nothing to say.  The
   server cannot know; the client, which waits for the rest, says so within
   a second of silence. */
static void a_listener_is_found_again(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_open(&r, NULL);
    r.is_keep_alive = 1;
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/stream?20000", "{}", 2, &reply);
    rig_idle(&r, 5);
    for (uint32_t i = 0; i < 3; i++) {
        r.is_tile_silent = 1;
        rig_idle(&r, 300);
        move(&r, 90 + i);
        r.is_tile_silent = 0;
        uint64_t before = reply.body_sz;
        rig_idle(&r, 5);
        assert_false(reply.is_ended);
        assert_true(reply.body_sz == before); /* it went to where nobody is */
        rig_idle(&r, 2000);
        assert_true(reply.body_sz > before);
        assert_int_equal(counters(&r)->path_changes, i + 1);
        if (reply.is_ended) break;
    }
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->connection_cnt, 1);
    rig_close(&r);
}

/* A client with nothing to wait for lets the connection rest. */
static void an_idle_client_says_little(void **state) {
    (void)state;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.idle_timeout_ns = 60000 * RIG_MS;
    rig_open(&r, &cfg);
    r.is_keep_alive = 1;
    rig_dial_ready(&r, 0);
    rig_serve_one(&r, 0);
    rig_idle(&r, 1000);
    uint64_t before = counters(&r)->datagrams_rx;
    rig_idle(&r, 20000); /* a PING each third of its 20 s, and what that brings */
    assert_in_range(counters(&r)->datagrams_rx - before, 2, 8);
    assert_int_equal(counters(&r)->connection_cnt, 1);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_on_a_new_address_is_followed),
        cmocka_unit_test(rebound_address_is_followed),
        cmocka_unit_test(a_peer_that_moves_to_and_fro_does_no_harm),
        cmocka_unit_test(a_thief_of_datagrams_gains_nothing),
        cmocka_unit_test(a_listener_is_found_again),
        cmocka_unit_test(an_idle_client_says_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
