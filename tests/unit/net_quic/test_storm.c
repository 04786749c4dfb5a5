/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever streams or connects is not disturbed by a storm of
   newcomers, nor by one source that floods.
   Method: the rig's server and clock; the CPU time of the server is
   measured between two datagrams of a stream, and printed. */
#include "tests/unit/net_quic/hand.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

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
    for (uint32_t i = 0; i < 50; i++) rig_serve_one(&r, i);
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
    for (uint32_t i = 0; i < STORM; i++) s.client[i] = loose_client(&r);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_floods_costs_the_others_nothing),
        cmocka_unit_test(a_storm_of_handshakes_barely_touches_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
