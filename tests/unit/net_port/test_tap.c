/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the TAP kind and the link answer the kernel, both IP versions.
   Method: in a network namespace of its own the test opens a TAP port,
   lets the kernel ping the appliance's addresses through raw sockets, and
   plays the tile by hand: port to link to port.  Needs root and
   /dev/net/tun, else it is skipped (77). */

#include "appliance/base/clock.h"
#include "net/link/link.h"
#include "tests/unit/net_port/env.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <rte_mbuf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PING_CNT 20

static tdm_port_t *port;
static tdm_link_t *link_under_test;
static void *link_mem;

static const tdm_port_config_t port_config = {
    .kind = TDM_PORT_TAP,
    .mtu = 1500,
    .rx_desc = 256,
    .tx_desc = 256,
    .mbuf_cnt = 1024,
    .tap_name = "tdmtest0",
    .tap_ipv4 = "10.88.0.1/24",
    .tap_ipv6 = "fd88:7464:6d00::1/64",
};

/* turn moves one burst from the kernel through the link and back. */
static uint32_t turn(void) {
    struct rte_mbuf *m[TDM_PORT_BURST_MAX];
    int64_t now = tdm_clock_now_ns();
    uint32_t cnt = tdm_port_rx(port, m, TDM_PORT_BURST_MAX);
    for (uint32_t i = 0; i < cnt; i++) {
        struct rte_mbuf *r = tdm_port_mbuf_alloc(port);
        assert_non_null(r);
        tdm_link_verdict_t v = tdm_link_rx(
            link_under_test, rte_pktmbuf_mtod(m[i], const uint8_t *), rte_pktmbuf_data_len(m[i]),
            rte_pktmbuf_mtod(r, uint8_t *), rte_pktmbuf_tailroom(r), now);
        rte_pktmbuf_free(m[i]);
        if (v.kind == TDM_LINK_REPLY) {
            assert_non_null(rte_pktmbuf_append(r, (uint16_t)v.reply_sz));
            assert_int_equal(tdm_port_tx(port, &r, 1), 1);
        } else {
            rte_pktmbuf_free(r);
        }
    }
    return cnt;
}

static int open_all(void **state) {
    (void)state;
    tdm_error_t err = {0};
    if (tdm_port_open(&port_config, &port, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    tdm_link_config_t c = {.mtu = 1500,
                           .udp_port = 8443,
                           .has_ipv4 = 1,
                           .has_ipv6 = 1,
                           .ipv4_prefix = 24,
                           .ipv6_prefix = 64,
                           .neighbour_max = 64,
                           .reply_per_s = 1000,
                           .solicit_per_s = 10};
    tdm_port_mac(port, c.mac);
    inet_pton(AF_INET, "10.88.0.2", c.ipv4);
    inet_pton(AF_INET6, "fd88:7464:6d00::2", c.ipv6);
    link_mem = aligned_alloc(TDM_CACHE_LINE, tdm_link_footprint(c.neighbour_max));
    return tdm_link_init(link_mem, &c, tdm_clock_now_ns(), &link_under_test, &err) == TDM_OK ? 0
                                                                                             : -1;
}

static int close_all(void **state) {
    (void)state;
    uint32_t leaked = tdm_port_close(port);
    free(link_mem);
    return leaked == 0 ? 0 : -1;
}

/* ping sends one echo request and serves the port until the answer came
   or half a minute passed. */
static int ping(int fd, const struct sockaddr *to, socklen_t to_sz, const uint8_t *request,
                size_t sz, uint8_t want_type, size_t skip) {
    assert_int_equal(sendto(fd, request, sz, 0, to, to_sz), (ssize_t)sz);
    int64_t end = tdm_clock_now_ns() + 30 * TDM_NS_PER_S;
    while (tdm_clock_now_ns() < end) {
        uint8_t answer[512];
        turn();
        ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        if (n >= (ssize_t)(skip + sz) && answer[skip] == want_type &&
            memcmp(answer + skip + 4, request + 4, sz - 4) == 0)
            return 1;
    }
    return 0;
}

static void kernel_ping_over_ipv4_is_answered(void **state) {
    (void)state;
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    assert_true(fd >= 0);
    struct sockaddr_in to = {.sin_family = AF_INET};
    inet_pton(AF_INET, "10.88.0.2", &to.sin_addr);
    int answered = 0;
    for (uint16_t seq = 1; seq <= PING_CNT; seq++) {
        uint8_t r[40] = {ICMP_ECHO, 0, 0, 0, 0x12, 0x34, 0, (uint8_t)seq};
        uint32_t sum = (ICMP_ECHO << 8) + 0x1234u + seq;
        sum = ~((sum >> 16) + (sum & 0xffff));
        r[2] = (uint8_t)(sum >> 8);
        r[3] = (uint8_t)sum;
        answered += ping(fd, (struct sockaddr *)&to, sizeof to, r, sizeof r, ICMP_ECHOREPLY, 20);
    }
    close(fd);
    assert_int_equal(answered, PING_CNT);
}

static void kernel_ping_over_ipv6_is_answered(void **state) {
    (void)state;
    if (access("/proc/net/if_inet6", F_OK) != 0) skip();
    int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    assert_true(fd >= 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, "fd88:7464:6d00::2", &to.sin6_addr);
    int answered = 0;
    for (uint16_t seq = 1; seq <= PING_CNT; seq++) {
        uint8_t r[40] = {ICMP6_ECHO_REQUEST, 0, 0, 0, 0x12, 0x34, 0, (uint8_t)seq};
        answered += ping(fd, (struct sockaddr *)&to, sizeof to, r, sizeof r, ICMP6_ECHO_REPLY, 0);
    }
    close(fd);
    assert_int_equal(answered, PING_CNT);
}

static void interrupt_descriptor_tells_of_frames(void **state) {
    (void)state;
    int fd = tdm_port_rx_fd(port);
    assert_true(fd >= 0);
    int64_t end = tdm_clock_now_ns() + TDM_NS_PER_S / 5;
    while (tdm_clock_now_ns() < end) turn(); /* what the kernel had to say at start */
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8443)};
    inet_pton(AF_INET, "10.88.0.2", &to.sin_addr);
    assert_int_equal(sendto(s, "hello", 5, 0, (struct sockaddr *)&to, sizeof to), 5);
    close(s);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int rc;
    do rc = poll(&p, 1, 30000);
    while (rc < 0 && errno == EINTR);
    assert_int_equal(rc, 1);
    uint64_t before = tdm_link_counters(link_under_test)->datagrams;
    end = tdm_clock_now_ns() + 30 * TDM_NS_PER_S;
    while (tdm_link_counters(link_under_test)->datagrams == before && tdm_clock_now_ns() < end)
        turn();
    assert_int_equal(tdm_link_counters(link_under_test)->datagrams, before + 1);
}

static void every_frame_has_one_verdict(void **state) {
    (void)state;
    tdm_port_stats_t s;
    tdm_port_stats_read(port, &s);
    assert_true(tdm_link_is_conserved(link_under_test));
    assert_int_equal(s.rx_frames, tdm_link_counters(link_under_test)->rx_frames);
    assert_true(s.tx_frames >= 2 * PING_CNT);
}

static void a_second_port_of_the_same_name_is_refused(void **state) {
    (void)state;
    tdm_port_t *second = NULL;
    tdm_error_t err = {0};
    tdm_port_config_t c = port_config;
    snprintf(c.tap_ipv4, sizeof c.tap_ipv4, "10.89.0.1/24");
    snprintf(c.tap_ipv6, sizeof c.tap_ipv6, "fd89::1/64");
    assert_int_equal(tdm_port_open(&c, &second, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "exists already"));
}

static void an_overlapping_subnet_is_refused_by_name(void **state) {
    (void)state;
    static const char *const v4[] = {"10.88.0.9/24", "10.0.0.1/8", "10.88.0.129/25"};
    static const char *const v6[] = {"fd88:7464:6d00::9/64", "fd88::1/16"};
    tdm_port_t *second = NULL;
    tdm_error_t err = {0};
    for (size_t i = 0; i < TDM_COUNT_OF(v4) + TDM_COUNT_OF(v6); i++) {
        tdm_port_config_t c = port_config;
        int is_v4 = i < TDM_COUNT_OF(v4);
        snprintf(c.tap_name, sizeof c.tap_name, "tdmtest1");
        snprintf(c.tap_ipv4, sizeof c.tap_ipv4, "%s", is_v4 ? v4[i] : "");
        snprintf(c.tap_ipv6, sizeof c.tap_ipv6, "%s", is_v4 ? "" : v6[i - TDM_COUNT_OF(v4)]);
        assert_int_equal(tdm_port_open(&c, &second, &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, "overlaps"));
        assert_non_null(strstr(err.text, "tdmtest0"));
    }
}

static void without_the_right_it_says_so(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        tdm_port_t *p = NULL;
        tdm_error_t err = {0};
        tdm_port_config_t c = port_config;
        snprintf(c.tap_name, sizeof c.tap_name, "tdmtest1");
        snprintf(c.tap_ipv4, sizeof c.tap_ipv4, "10.89.0.1/24");
        c.tap_ipv6[0] = '\0';
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(2);
        tdm_status_t st = tdm_port_open(&c, &p, &err);
        _exit(st == TDM_ERR_PERM && strstr(err.text, "CAP_NET_ADMIN") != NULL ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_interface_is_gone_after_close(void **state) {
    (void)state;
    assert_int_not_equal(if_nametoindex("tdmtest0"), 0);
    assert_int_equal(close_all(NULL), 0);
    assert_int_equal(if_nametoindex("tdmtest0"), 0);
    assert_int_equal(open_all(NULL), 0); /* and may come again */
}

int main(void) {
    if (!env_own_net()) return 77;
    if (env_begin(port_config.mbuf_cnt)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_ping_over_ipv4_is_answered),
        cmocka_unit_test(kernel_ping_over_ipv6_is_answered),
        cmocka_unit_test(interrupt_descriptor_tells_of_frames),
        cmocka_unit_test(every_frame_has_one_verdict),
        cmocka_unit_test(a_second_port_of_the_same_name_is_refused),
        cmocka_unit_test(an_overlapping_subnet_is_refused_by_name),
        cmocka_unit_test(without_the_right_it_says_so),
        cmocka_unit_test(the_interface_is_gone_after_close),
    };
    int failed = cmocka_run_group_tests(tests, open_all, close_all);
    tdm_port_env_stop();
    return failed;
}
