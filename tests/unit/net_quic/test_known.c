/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: datagrams of a life that is over, or of one that was heard before,
   do nothing again; who is forgotten hears so; packets that never came are
   counted.
   Method: the rig's server and clock; datagrams are carried by hand,
   recorded, and played again. */
#include "tests/unit/net_quic/hand.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* --- stateless reset -------------------------------------------------- */

static void a_restarted_server_ends_old_connections(void **state) {
    (void)state;
    rig_t before, after;
    uint8_t buf[1500], answer[1500];
    tdm_error_t err = {0};
    rig_reply_t reply;
    rig_open(&before, NULL);
    rig_open(&after, NULL); /* the same key, a new life */
    rig_dial_ready(&before, 0);
    rig_serve_one(&before, 0);
    rig_send(&before, 0, "GET", "/health", NULL, 0, &reply);
    before.now_ns += 100 * RIG_MS;
    uint32_t sz = tdm_client_output(before.client[0], buf, sizeof buf, before.now_ns);
    assert_true(sz > 43);
    assert_int_equal(rig_input(&after, buf, sz, 2), TDM_DROP_quic_unknown);
    uint32_t n = out(&after, answer, NULL);
    assert_int_equal(n, 43);
    tdm_client_input(before.client[0], answer, n, before.now_ns);
    assert_true(tdm_client_is_closed(before.client[0], &err));
    assert_non_null(strstr(err.text, "does not know this connection"));
    assert_true(reply.is_ended);
    assert_int_equal(reply.outcome, TDM_CLIENT_LOST);
    assert_int_equal(counters(&after)->resets, 1);
    rig_close(&before);
    rig_close(&after);
}

static void resets_are_few_and_shorter_than_their_cause(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    rig_open(&r, NULL);
    memset(buf, 0x5a, sizeof buf);
    for (uint32_t sz = 18; sz < 90; sz++) {
        buf[1] = (uint8_t)sz;
        uint64_t got[256] = {0};
        (void)rig_input(&r, buf, sz, 77);
        (void)out(&r, NULL, got);
        assert_true(got[77] < sz);
        assert_int_equal(got[77] > 0, sz > 21);
    }
    uint64_t before = counters(&r)->resets;
    for (uint32_t i = 0; i < 100000; i++) { /* a second of them */
        (void)rig_input(&r, buf, 60, i);
        if (i % 16 == 0) (void)out(&r, NULL, NULL);
        r.now_ns += 10000;
    }
    assert_in_range(counters(&r)->resets - before, 100, 401);
    assert_true(counters(&r)->unproved_tx_sz < counters(&r)->unproved_rx_sz);
    rig_close(&r);
}

/* --- replays ---------------------------------------------------------- */

#define TAPE_MAX 400u

typedef struct tape {
    uint8_t bytes[TAPE_MAX][1500];
    uint32_t sz[TAPE_MAX];
    uint32_t cnt;
} tape_t;

/* replay plays every datagram of the tape from its true address; answers
   how many exchanges that opened. */
static uint32_t replay(rig_t *r, const tape_t *t) {
    uint32_t before = r->open_cnt;
    for (uint32_t i = 0; i < t->cnt; i++) {
        (void)rig_input(r, t->bytes[i], t->sz[i], 2);
        (void)out(r, NULL, NULL);
        r->now_ns += 100000;
    }
    return r->open_cnt - before;
}

static void old_datagrams_do_nothing_again(void **state) {
    (void)state;
    static tape_t tape;
    rig_t r, restarted;
    rig_reply_t reply[8];
    rig_open(&r, NULL);
    tape.cnt = 0;
    rig_dial(&r, 0, 2);
    r.client_at[0].port = 5555; /* where rig_input sends from */
    for (uint32_t n = 0; n < 300 && tape.cnt < TAPE_MAX; n++) {
        if (n >= 40 && n < 48) rig_send(&r, 0, "GET", "/health", NULL, 0, &reply[n - 40]);
        uint8_t *at = tape.bytes[tape.cnt];
        while (tape.cnt < TAPE_MAX &&
               (tape.sz[tape.cnt] = tdm_client_output(r.client[0], at, 1500, r.now_ns)) > 0) {
            (void)rig_input(&r, at, tape.sz[tape.cnt], 2);
            at = tape.bytes[++tape.cnt];
        }
        rig_turn(&r, RIG_MS);
    }
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(reply[i].status, 200);
    assert_int_equal(r.open_cnt, 8);
    assert_true(tape.cnt >= 10);
    r.now_ns += TDM_NS_PER_S;
    assert_int_equal(replay(&r, &tape), 0);
    assert_int_equal(counters(&r)->connection_cnt, 1);
    rig_serve_one(&r, 0); /* its connection did not mind */
    r.is_deaf[0] = 1;
    r.now_ns += 60 * TDM_NS_PER_S; /* the connection is gone */
    (void)out(&r, NULL, NULL);
    assert_int_equal(counters(&r)->connection_cnt, 0);
    assert_int_equal(replay(&r, &tape), 0);
    rig_open(&restarted, NULL);
    assert_int_equal(replay(&restarted, &tape), 0);
    assert_int_equal(counters(&restarted)->handshakes_done, 0);
    assert_true(counters(&restarted)->resets > 0); /* who lives on hears that we do not */
    rig_close(&restarted);
    rig_close(&r);
}

/* --- losses that nobody counted --------------------------------------- */

static void packets_that_never_came_are_counted(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    for (int i = 0; i < 80; i++) rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->packet_gaps, 0);
    uint32_t lost = 0;
    uint8_t buf[1500];
    for (int i = 0; i < 7; i++) {
        rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
        while (tdm_client_output(r.client[0], buf, sizeof buf, r.now_ns) > 0) lost++;
        assert_true(rig_run(&r, &reply.is_ended, 5000));
    }
    assert_true(lost >= 7);
    for (int i = 0; i < 80; i++) rig_serve_one(&r, 0);
    assert_int_equal(counters(&r)->packet_gaps, lost);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restarted_server_ends_old_connections),
        cmocka_unit_test(resets_are_few_and_shorter_than_their_cause),
        cmocka_unit_test(old_datagrams_do_nothing_again),
        cmocka_unit_test(packets_that_never_came_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
