/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who has not proved its address costs little and gets little; who
   moves is followed; who is forgotten hears so; and whoever streams is not
   disturbed by a storm of newcomers.
   Method: the rig's server and clock; datagrams are carried by hand where
   their way matters. */
#include "tests/unit/net_h3/rig.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static uint32_t stranger_cnt = 20000;

static const tdm_quic_counters_t *counters(rig_t *r) {
    return tdm_quic_counters(r->quic);
}

static tdm_client_t *client_make(rig_t *r) {
    tdm_client_t *c = NULL;
    tdm_error_t err = {0};
    tdm_client_config_t cfg = {.host = "localhost",
                               .port = 443,
                               .verify = TDM_CLIENT_VERIFY_INSECURE,
                               .connect_timeout_ns = 30 * TDM_NS_PER_S};
    assert_int_equal(tdm_client_open(&cfg, r->now_ns, &c, &err), TDM_OK);
    return c;
}

/* first_flight gives a client's first datagram. */
static uint32_t first_flight(rig_t *r, uint8_t *buf) {
    tdm_client_t *c = client_make(r);
    uint32_t sz = tdm_client_output(c, buf, 1500, r->now_ns);
    tdm_client_close(c);
    assert_true(sz >= TDM_QUIC_DATAGRAM_MIN);
    return sz;
}

/* out takes all that the server sends now and adds up the bytes by the
   last byte of the destination; answers the last datagram's size. */
static uint32_t out(rig_t *r, uint8_t *last, uint64_t by_source[256]) {
    uint8_t buf[1500];
    tdm_datagram_t dg;
    uint32_t sz, last_sz = 0;
    (void)tdm_quic_poll(r->quic, r->now_ns);
    while ((sz = tdm_quic_output(r->quic, buf, sizeof buf, &dg, r->now_ns)) > 0) {
        if (by_source != NULL) by_source[dg.remote.addr[3]] += sz;
        if (last != NULL) memcpy(last, buf, sz);
        last_sz = sz;
    }
    return last_sz;
}

static void serve_one(rig_t *r, uint32_t i) {
    rig_reply_t reply;
    rig_send(r, i, "GET", "/health", NULL, 0, &reply);
    assert_true(rig_run(r, &reply.is_ended, 3000));
    assert_int_equal(reply.status, 200);
}

static int handshakes_add_up(rig_t *r) {
    const tdm_quic_counters_t *n = counters(r);
    return n->handshakes_started == n->handshakes_done + n->handshakes_failed + n->half_open_cnt;
}

static int is_retry(const uint8_t *p) {
    return (p[0] & 0xf0u) == 0xf0u;
}

/* --- amplification ---------------------------------------------------- */

static void silent_strangers_get_three_times_their_bytes(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    uint64_t got[256] = {0};
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
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
    serve_one(&r, 0);
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
    serve_one(&r, 0);
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
    serve_one(&r, 0);      /* who is inside notices nothing */
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
    tdm_client_t *c = client_make(&r);
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
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
    serve_one(&r, 1);
    assert_true(handshakes_add_up(&r));
    rig_close(&r);
}

/* --- stateless reset -------------------------------------------------- */

static void a_restarted_server_ends_old_connections(void **state) {
    (void)state;
    rig_t before, after;
    uint8_t buf[1500], answer[1500];
    tdm_error_t err = {0};
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&before, &cfg);
    rig_open(&after, &cfg); /* the same key, a new life */
    rig_dial_ready(&before, 0);
    serve_one(&before, 0);
    rig_send(&before, 0, "GET", "/health", NULL, 0, &reply);
    before.now_ns += 100 * RIG_MS;
    uint32_t sz = tdm_client_output(before.client[0], buf, sizeof buf, before.now_ns);
    assert_true(sz > 43);
    assert_int_equal(rig_input(&after, buf, sz, 2), TDM_DROP_quic_unknown);
    uint32_t n = out(&after, answer, NULL);
    assert_int_equal(n, 43);
    tdm_client_input(before.client[0], answer, n, before.now_ns);
    assert_true(tdm_client_is_closed(before.client[0], &err));
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
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

/* --- peers that move -------------------------------------------------- */

static void a_peer_on_a_new_address_is_followed(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/stream?20000", "{}", 2, &reply);
    rig_idle(&r, 5);
    assert_false(reply.is_ended);
    r.client_at[0].addr[3] = 99; /* another address and port in mid-stream */
    r.client_at[0].port = 9999;
    assert_true(rig_run(&r, &reply.is_ended, 5000));
    assert_int_equal(reply.outcome, TDM_CLIENT_DONE);
    serve_one(&r, 0);
    assert_int_equal(counters(&r)->path_changes, 1);
    rig_close(&r);
}

static void a_thief_of_datagrams_gains_nothing(void **state) {
    (void)state;
    rig_t r;
    uint8_t buf[1500];
    uint64_t got[256] = {0};
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
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
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
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
    serve_one(&r, 0); /* its connection did not mind */
    r.is_deaf[0] = 1;
    r.now_ns += 60 * TDM_NS_PER_S; /* the connection is gone */
    (void)out(&r, NULL, NULL);
    assert_int_equal(counters(&r)->connection_cnt, 0);
    assert_int_equal(replay(&r, &tape), 0);
    rig_open(&restarted, &cfg);
    assert_int_equal(replay(&restarted, &tape), 0);
    assert_int_equal(counters(&restarted)->handshakes_done, 0);
    assert_true(counters(&restarted)->resets > 0); /* who lives on hears that we do not */
    rig_close(&restarted);
    rig_close(&r);
}

/* --- one floods ------------------------------------------------------- */

/* fifty_connect dials fifty clients within a second and answers how many
   milliseconds all took; flood: Initials of one other source per one of
   theirs. */
static int64_t fifty_connect(uint32_t flood, uint64_t *limited) {
    static uint8_t junk[64][1500];
    uint32_t junk_sz[64], next = 0, done = 0;
    rig_t r;
    rig_config_t cfg = rig_default();
    cfg.connection_max = 128;
    cfg.pool_sz = 64u << 20;
    cfg.handshake_per_s = 200;
    cfg.handshake_per_s_source = 10;
    cfg.half_open_max = 64;
    rig_open(&r, &cfg);
    for (uint32_t i = 0; i < 64; i++) junk_sz[i] = first_flight(&r, junk[i]);
    int64_t from = r.now_ns, took = 0;
    for (uint32_t ms = 0; ms < 9000 && done < 50; ms++) {
        if (ms % 20 == 0 && ms / 20 < 50) rig_dial(&r, ms / 20, 1000 + ms);
        for (uint32_t k = 0; ms < 1000 && ms % 2 == 0 && k < flood; k++, next++)
            (void)rig_input(&r, junk[next % 64], junk_sz[next % 64], 7);
        rig_turn(&r, RIG_MS);
        done = 0;
        for (uint32_t i = 0; i < 50; i++)
            done += r.client[i] != NULL && tdm_client_is_ready(r.client[i]);
        took = (r.now_ns - from) / RIG_MS;
    }
    assert_int_equal(done, 50);
    *limited = counters(&r)->drop[TDM_DROP_quic_handshake_rate];
    for (uint32_t i = 0; i < 50; i++) serve_one(&r, i);
    rig_close(&r);
    return took;
}

static void one_that_floods_costs_the_others_nothing(void **state) {
    (void)state;
    uint64_t none, limited;
    int64_t alone = fifty_connect(0, &none), beside = fifty_connect(10, &limited);
    print_message("fifty connect within %lld ms, beside a flood of %llu within %lld ms\n",
                  (long long)alone, (unsigned long long)limited, (long long)beside);
    assert_int_equal(none, 0);
    assert_true(limited > 1000);
    assert_true(beside * 95 <= alone * 100);
}

/* --- losses that nobody counted --------------------------------------- */

static void packets_that_never_came_are_counted(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_config_t cfg = rig_default();
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    for (int i = 0; i < 80; i++) serve_one(&r, 0);
    assert_int_equal(counters(&r)->packet_gaps, 0);
    uint32_t lost = 0;
    uint8_t buf[1500];
    for (int i = 0; i < 7; i++) {
        rig_send(&r, 0, "GET", "/health", NULL, 0, &reply);
        while (tdm_client_output(r.client[0], buf, sizeof buf, r.now_ns) > 0) lost++;
        assert_true(rig_run(&r, &reply.is_ended, 5000));
    }
    assert_true(lost >= 7);
    for (int i = 0; i < 80; i++) serve_one(&r, 0);
    assert_int_equal(counters(&r)->packet_gaps, lost);
    rig_close(&r);
}

/* --- a storm ---------------------------------------------------------- */

#define STORM 200u

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * TDM_NS_PER_S + t.tv_nsec;
}

typedef struct storm {
    tdm_client_t *client[STORM];
    uint64_t started;    /* handshakes, before this turn */
    uint32_t start_max;  /* handshakes begun in one turn */
    uint32_t silent_max; /* turns in a row without a byte of the stream */
    uint32_t silent_cnt;
    int64_t gap_ns; /* server CPU time since the stream's last datagram */
    int64_t gap_max_ns;
} storm_t;

static tdm_endpoint_t storm_at(uint32_t i) {
    return (tdm_endpoint_t){
        .version = 4, .port = 7777, .addr = {10, 9, (uint8_t)(i >> 8), (uint8_t)i}};
}

/* storm_in brings what the crowd sends, a burst of 32 at most. */
static void storm_in(rig_t *r, storm_t *s, uint32_t *turn) {
    uint8_t buf[1500];
    uint32_t cnt = 0;
    for (uint32_t k = 0; k < STORM && cnt < 32; k++) {
        uint32_t i = (*turn)++ % STORM, sz;
        while (cnt < 32 && (sz = tdm_client_output(s->client[i], buf, sizeof buf, r->now_ns)) > 0) {
            tdm_datagram_t dg = {.remote = storm_at(i),
                                 .local = {.version = 4, .port = 443},
                                 .payload = buf,
                                 .payload_sz = sz};
            cnt++;
            int64_t from = cpu_ns();
            (void)tdm_quic_input(r->quic, &dg, r->now_ns);
            s->gap_ns += cpu_ns() - from;
        }
    }
}

static void storm_out(rig_t *r, storm_t *s) {
    uint8_t buf[1500];
    int is_stream = 0;
    for (uint32_t n = 0; n < 64; n++) {
        tdm_datagram_t dg;
        int64_t from = cpu_ns();
        uint32_t sz = tdm_quic_output(r->quic, buf, sizeof buf, &dg, r->now_ns);
        s->gap_ns += cpu_ns() - from;
        if (sz == 0) break;
        if (tdm_endpoint_equal(&dg.remote, &r->client_at[0])) {
            tdm_client_input(r->client[0], buf, sz, r->now_ns);
            if (!is_stream) s->gap_max_ns = TDM_MAX(s->gap_max_ns, s->gap_ns);
            is_stream = 1;
            s->gap_ns = 0;
        } else {
            uint32_t i = (uint32_t)dg.remote.addr[2] << 8 | dg.remote.addr[3];
            tdm_client_input(s->client[i], buf, sz, r->now_ns);
        }
    }
    s->silent_cnt = is_stream ? 0 : s->silent_cnt + 1;
    s->silent_max = TDM_MAX(s->silent_max, s->silent_cnt);
}

static void storm_turn(rig_t *r, storm_t *s, uint32_t *turn) {
    uint8_t buf[1500];
    uint32_t sz;
    storm_in(r, s, turn);
    while ((sz = tdm_client_output(r->client[0], buf, sizeof buf, r->now_ns)) > 0) {
        tdm_datagram_t dg = {.remote = r->client_at[0],
                             .local = {.version = 4, .port = 443},
                             .payload = buf,
                             .payload_sz = sz};
        (void)tdm_quic_input(r->quic, &dg, r->now_ns);
    }
    int64_t from = cpu_ns();
    s->started = counters(r)->handshakes_started;
    (void)tdm_quic_poll(r->quic, r->now_ns);
    (void)tdm_h3_poll(r->h3, r->now_ns);
    s->gap_ns += cpu_ns() - from;
    uint64_t begun = counters(r)->handshakes_started - s->started;
    s->start_max = TDM_MAX(s->start_max, (uint32_t)begun);
    storm_out(r, s);
    r->now_ns += RIG_MS;
}

static void a_storm_of_handshakes_barely_touches_a_stream(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    static storm_t s;
    uint32_t turn = 0;
    rig_config_t cfg = rig_default();
    cfg.connection_max = 256;
    cfg.pool_sz = 64u << 20;
    rig_open(&r, &cfg);
    rig_dial_ready(&r, 0);
    rig_send(&r, 0, "POST", "/stream?1000000", "{}", 2, &reply);
    rig_idle(&r, 50);
    for (uint32_t i = 0; i < STORM; i++) s.client[i] = client_make(&r);
    for (uint32_t n = 0; n < 20000 && counters(&r)->handshakes_done < STORM + 1; n++) {
        /* The pretended tile writes on by itself in rig_turn only. */
        for (uint32_t i = 0; i < RIG_EXCHANGE_MAX; i++) {
            rig_slot_t *x = &r.slot[i];
            if (!x->is_used || x->record_cnt == 0) continue;
            if (tdm_pipe_write(&x->pipe, "data: a token\n\n", 15, 1))
                tdm_h3_reply(r.h3, &x->x, TDM_EGRESS_RECORD, r.now_ns);
        }
        storm_turn(&r, &s, &turn);
    }
    assert_int_equal(counters(&r)->handshakes_done, STORM + 1);
    assert_int_equal(s.start_max, 1);
    assert_in_range(s.silent_max, 0, 8);
    print_message("storm of %u handshakes: the stream waited %.2f ms of CPU at most, %u turns\n",
                  STORM, (double)s.gap_max_ns / 1e6, s.silent_max);
    for (uint32_t i = 0; i < STORM; i++) tdm_client_close(s.client[i]);
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
        cmocka_unit_test(a_restarted_server_ends_old_connections),
        cmocka_unit_test(resets_are_few_and_shorter_than_their_cause),
        cmocka_unit_test(a_peer_on_a_new_address_is_followed),
        cmocka_unit_test(a_thief_of_datagrams_gains_nothing),
        cmocka_unit_test(old_datagrams_do_nothing_again),
        cmocka_unit_test(one_that_floods_costs_the_others_nothing),
        cmocka_unit_test(packets_that_never_came_are_counted),
        cmocka_unit_test(a_storm_of_handshakes_barely_touches_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
