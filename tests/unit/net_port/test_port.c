/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the environment refuses clearly, ports open and close without a
   trace, and every frame and buffer is accounted.
   Method: one EAL on ordinary pages; the wire and null kinds. */

#include "net/port/port.h"

#include <pthread.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MBUF_CNT 256u

static const tdm_port_config_t wire = {
    .kind = TDM_PORT_WIRE, .mtu = 1500, .rx_desc = 64, .tx_desc = 64, .mbuf_cnt = MBUF_CNT};

static void missing_hugepages_are_refused_in_one_line(void **state) {
    (void)state;
    tdm_port_env_config_t env = {.memory_mb = 1u << 24}; /* 16 TiB: no host has them free */
    tdm_error_t err = {0};
    tdm_status_t st = tdm_port_env_start(&env, &err);
    if (st == TDM_ERR_UNSUPPORTED) skip(); /* a kernel without hugepages says so instead */
    assert_int_equal(st, TDM_ERR_NOMEM);
    assert_non_null(strstr(err.text, "have "));
    assert_non_null(strstr(err.text, "need 8388608 "));
    assert_non_null(strstr(err.text, "sysctl -w vm.nr_hugepages="));
    env.memory_mb = 0;
    assert_int_equal(tdm_port_env_start(&env, &err), TDM_ERR_INVAL);
}

static void start_leaves_affinity_and_signals_alone(void **state) {
    (void)state;
    cpu_set_t before, after;
    sigset_t all, mask;
    tdm_error_t err = {0};
    tdm_port_env_config_t env = {.memory_mb = tdm_port_memory_mb(4096, 1500), .is_no_huge = 1};
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    if (tdm_port_env_start(&env, &err) != TDM_OK) fail_msg("%s", err.text);
    pthread_getaffinity_np(pthread_self(), sizeof after, &after);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(sigismember(&mask, SIGRTMAX), 1);
    assert_int_equal(sigismember(&mask, SIGTERM), 1);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
}

static void kinds_have_names(void **state) {
    (void)state;
    for (int i = 0; i < TDM_PORT_KIND_CNT; i++) {
        tdm_port_kind_t kind;
        assert_int_equal(tdm_port_kind_parse(tdm_port_kind_name((tdm_port_kind_t)i), &kind),
                         TDM_OK);
        assert_int_equal(kind, i);
    }
    tdm_port_kind_t kind;
    assert_int_equal(tdm_port_kind_parse("carrier-pigeon", &kind), TDM_ERR_NOT_FOUND);
    assert_int_equal(tdm_port_kind_parse("", &kind), TDM_ERR_NOT_FOUND);
    assert_string_equal(tdm_port_kind_name(TDM_PORT_KIND_CNT), "unknown");
}

static void refused(const tdm_port_config_t *c, tdm_status_t want) {
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_port_open(c, &p, &err), want);
    assert_non_null(strstr(err.text, "port: "));
    assert_null(p);
}

static void impossible_configs_are_refused(void **state) {
    (void)state;
    tdm_port_config_t c[8] = {wire, wire, wire, wire, wire, wire, wire, wire};
    c[0].kind = TDM_PORT_KIND_CNT;
    c[1].mtu = 1279;
    c[2].mtu = 9001;
    c[3].rx_desc = 31;
    c[4].tx_desc = 4097;
    c[5].mbuf_cnt = 191; /* 64 + 64 + two bursts are needed */
    c[6].mbuf_cnt = (1u << 20) + 1;
    c[7].kind = TDM_PORT_PCAP; /* without a file */
    for (size_t i = 0; i < TDM_COUNT_OF(c); i++) refused(&c[i], TDM_ERR_INVAL);
}

/* An af_xdp driver lends the kernel 2,048 buffers whatever it is asked
   for: with few more it would starve while it runs. */
static void too_few_buffers_for_af_xdp_are_refused(void **state) {
    (void)state;
    tdm_port_config_t c = {
        .kind = TDM_PORT_AF_XDP, .mtu = 1500, .rx_desc = 512, .tx_desc = 512, .device = "nobody0"};
    static const uint32_t few[] = {1088, 2048, 3135};
    for (size_t i = 0; i < 2 * TDM_COUNT_OF(few); i++) {
        tdm_port_t *p = NULL;
        tdm_error_t err = {0};
        c.mbuf_cnt = few[i % TDM_COUNT_OF(few)];
        c.chaos.under = TDM_PORT_AF_XDP;
        if (i == TDM_COUNT_OF(few)) c.kind = TDM_PORT_CHAOS;
        assert_int_equal(tdm_port_open(&c, &p, &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, "outside 3136.."));
        assert_non_null(strstr(err.text, "port.mbufs"));
    }
    c.kind = TDM_PORT_AF_XDP;
    c.mbuf_cnt = 3136; /* enough: the interface is what is missing */
    refused(&c, TDM_ERR_NOT_FOUND);
}

static void wrong_tap_addresses_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"10.88.0.1",    "10.88.0.1/",    "10.88.0.1/0",
                                      "10.88.0.1/32", "10.88.0.1/24x", "10.88.0/24",
                                      "/24",          "fd88::1/64",    "10.88.0.1/-1"};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        tdm_port_config_t c = wire;
        c.kind = TDM_PORT_TAP;
        snprintf(c.tap_name, sizeof c.tap_name, "tdmtest9");
        snprintf(c.tap_ipv4, sizeof c.tap_ipv4, "%s", bad[i]);
        refused(&c, TDM_ERR_INVAL);
        if (i == 7) continue; /* that one is right for IPv6 */
        c.tap_ipv4[0] = '\0';
        snprintf(c.tap_ipv6, sizeof c.tap_ipv6, "%s", bad[i]);
        refused(&c, TDM_ERR_INVAL);
    }
}

static void frames_cross_the_wire_unchanged(void **state) {
    (void)state;
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_port_open(&wire, &p, &err), TDM_OK);
    for (uint32_t sz = 14; sz <= 1514; sz += 25) {
        uint8_t in[1514], out[2048];
        struct rte_mbuf *m[4];
        for (uint32_t i = 0; i < sz; i++) in[i] = (uint8_t)(sz + i);
        assert_int_equal(tdm_port_wire_put(p, in, sz), 1);
        assert_int_equal(tdm_port_rx(p, m, 4), 1);
        assert_int_equal(rte_pktmbuf_data_len(m[0]), sz);
        assert_memory_equal(rte_pktmbuf_mtod(m[0], uint8_t *), in, sz);
        assert_int_equal(tdm_port_tx(p, m, 1), 1);
        assert_int_equal(tdm_port_wire_get(p, out, sizeof out), sz);
        assert_memory_equal(in, out, sz);
    }
    assert_int_equal(tdm_port_rx_fd(p), -1);
    tdm_port_stats_t s;
    tdm_port_stats_read(p, &s);
    assert_int_equal(s.rx_frames, s.tx_frames);
    assert_int_equal(s.rx_bytes, s.tx_bytes);
    assert_int_equal(s.mbuf_used, 0);
    assert_int_equal(tdm_port_close(p), 0);
}

static void an_mbuf_has_its_headroom_and_a_whole_mtu(void **state) {
    (void)state;
    for (uint32_t mtu = 1280; mtu <= 9000; mtu += 7720) {
        tdm_port_config_t c = wire;
        tdm_port_t *p = NULL;
        tdm_error_t err = {0};
        c.mtu = (uint16_t)mtu;
        assert_int_equal(tdm_port_open(&c, &p, &err), TDM_OK);
        struct rte_mbuf *m = tdm_port_mbuf_alloc(p);
        assert_non_null(m);
        assert_true(rte_pktmbuf_headroom(m) >= TDM_PORT_HEADROOM);
        assert_true(rte_pktmbuf_tailroom(m) >= mtu + 18);
        rte_pktmbuf_free(m);
        assert_int_equal(tdm_port_close(p), 0);
    }
}

static void an_empty_pool_is_counted_and_recovers(void **state) {
    (void)state;
    static const uint8_t frame[60];
    struct rte_mbuf *m[MBUF_CNT + 1] = {0};
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    tdm_port_stats_t s;
    uint32_t n = 0;
    assert_int_equal(tdm_port_open(&wire, &p, &err), TDM_OK);
    while ((m[n] = tdm_port_mbuf_alloc(p)) != NULL) n++;
    assert_int_equal(n, MBUF_CNT);
    assert_int_equal(tdm_port_wire_put(p, frame, sizeof frame), 0);
    tdm_port_stats_read(p, &s);
    assert_int_equal(s.tx_no_mbuf, 1);
    assert_int_equal(s.no_mbuf, 1);
    assert_int_equal(s.mbuf_used, MBUF_CNT);
    rte_pktmbuf_free(m[--n]); /* one buffer back is enough */
    assert_int_equal(tdm_port_wire_put(p, frame, sizeof frame), 1);
    while (n > 0) rte_pktmbuf_free(m[--n]);
    assert_int_equal(tdm_port_close(p), 0);
}

static void a_full_transmit_queue_frees_what_it_cannot_take(void **state) {
    (void)state;
    tdm_port_config_t c = wire;
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    tdm_port_stats_t s;
    uint8_t out[64];
    uint32_t taken = 0, got = 0;
    c.mbuf_cnt = 2048;
    assert_int_equal(tdm_port_open(&c, &p, &err), TDM_OK);
    for (uint32_t i = 0; i < 1000; i += 20) {
        struct rte_mbuf *m[20];
        for (uint32_t k = 0; k < 20; k++) {
            m[k] = tdm_port_mbuf_alloc(p);
            assert_non_null(m[k]);
            rte_pktmbuf_append(m[k], 60);
        }
        taken += tdm_port_tx(p, m, 20);
    }
    tdm_port_stats_read(p, &s);
    assert_true(s.tx_full > 0);
    assert_int_equal(taken + s.tx_full, 1000);
    assert_int_equal(s.tx_frames, taken);
    assert_int_equal(s.mbuf_used, taken);
    while (tdm_port_wire_get(p, out, sizeof out) > 0) got++;
    assert_int_equal(got, taken);
    assert_int_equal(tdm_port_close(p), 0);
}

static void close_tells_of_leaked_buffers(void **state) {
    (void)state;
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_port_open(&wire, &p, &err), TDM_OK);
    assert_non_null(tdm_port_mbuf_alloc(p));
    assert_non_null(tdm_port_mbuf_alloc(p));
    assert_int_equal(tdm_port_close(p), 2);
    assert_int_equal(tdm_port_close(NULL), 0);
}

static void a_null_port_receives_for_ever(void **state) {
    (void)state;
    tdm_port_config_t c = wire;
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    c.kind = TDM_PORT_NULL;
    if (tdm_port_open(&c, &p, &err) != TDM_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < 1000; i++) {
        struct rte_mbuf *m[TDM_PORT_BURST_MAX];
        assert_int_equal(tdm_port_rx(p, m, 1000), TDM_PORT_BURST_MAX); /* bounded */
        assert_int_equal(tdm_port_tx(p, m, TDM_PORT_BURST_MAX), TDM_PORT_BURST_MAX);
    }
    assert_int_equal(tdm_port_close(p), 0);
}

static void ports_come_and_go(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        tdm_port_config_t c = wire;
        tdm_port_t *p = NULL;
        tdm_error_t err = {0};
        c.kind = i % 2 ? TDM_PORT_NULL : TDM_PORT_WIRE;
        if (tdm_port_open(&c, &p, &err) != TDM_OK) fail_msg("%s", err.text);
        assert_int_equal(tdm_port_close(p), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_hugepages_are_refused_in_one_line),
        cmocka_unit_test(start_leaves_affinity_and_signals_alone), /* starts EAL for the rest */
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(impossible_configs_are_refused),
        cmocka_unit_test(too_few_buffers_for_af_xdp_are_refused),
        cmocka_unit_test(wrong_tap_addresses_are_refused),
        cmocka_unit_test(frames_cross_the_wire_unchanged),
        cmocka_unit_test(an_mbuf_has_its_headroom_and_a_whole_mtu),
        cmocka_unit_test(an_empty_pool_is_counted_and_recovers),
        cmocka_unit_test(a_full_transmit_queue_frees_what_it_cannot_take),
        cmocka_unit_test(close_tells_of_leaked_buffers),
        cmocka_unit_test(a_null_port_receives_for_ever),
        cmocka_unit_test(ports_come_and_go),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
