/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ports over an interface of the kernel, af_packet and af_xdp, carry
   what a peer sends, survive a flapping link, count what is too long, and
   leave nothing behind.
   Method: two network namespaces with a veth between them; the peer is a
   child process on kernel sockets, the tile is played by hand.  The
   argument names the kind.  Needs root, ip, ethtool and ping, else it is
   skipped (77). */

#include "appliance/base/clock.h"
#include "net/link/link.h"
#include "tests/unit/net_port/env.h"
#include "tests/unit/shell.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UDP_PORT 8443
#define FLAPS    20
#define BURST    5000
#define OVERRUN  20000
#define MBUFS    8192
#define PINGS    (3 * MBUFS / 2) /* each takes two buffers: three times round the pool */
/* What must come comes at once; the peer's kernel looks at a link that
   flaps once a second only, and this machine may have much other work. */
#define PATIENCE_NS (60 * TDM_NS_PER_S)

static struct {
    tdm_port_kind_t kind;
    tdm_port_t *port;
    tdm_link_t *link;
    void *link_mem;
    pid_t peer;
    int to_peer, from_peer; /* one command line there, one answer line back */
    int is_last;            /* the port is closed after this fact */
    uint64_t datagrams;
    uint64_t reason[TDM_REASON_CNT];
} g;

/* --- the peer --------------------------------------------------------- */

/* burst sends cnt datagrams of sz bytes without a pause. */
static int burst(unsigned cnt, unsigned sz) {
    static char text[9000];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(UDP_PORT)};
    inet_pton(AF_INET, "10.99.0.2", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0), lost = 0;
    for (unsigned i = 0; i < cnt; i++)
        lost += sendto(fd, text, sz, 0, (struct sockaddr *)&to, sizeof to) != (ssize_t)sz;
    close(fd);
    return lost;
}

static void peer_main(int in, int out) {
    char line[256];
    FILE *f = fdopen(in, "r");
    if (f == NULL || unshare(CLONE_NEWNET) != 0) _exit(1);
    if (write(out, "0\n", 2) != 2) _exit(1);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned cnt, sz;
        int rc = sscanf(line, "burst %u %u", &cnt, &sz) == 2 ? burst(cnt, sz) : system(line);
        dprintf(out, "%d\n", rc);
    }
    _exit(0);
}

/* --- the tile --------------------------------------------------------- */

static void turn(void) {
    struct rte_mbuf *m[TDM_PORT_BURST_MAX];
    int64_t now = tdm_clock_now_ns();
    uint32_t cnt = tdm_port_rx(g.port, m, TDM_PORT_BURST_MAX);
    for (uint32_t i = 0; i < cnt; i++) {
        struct rte_mbuf *r = tdm_port_mbuf_alloc(g.port);
        assert_non_null(r);
        tdm_link_verdict_t v =
            tdm_link_rx(g.link, rte_pktmbuf_mtod(m[i], const uint8_t *), rte_pktmbuf_data_len(m[i]),
                        rte_pktmbuf_mtod(r, uint8_t *), rte_pktmbuf_tailroom(r), now);
        rte_pktmbuf_free(m[i]);
        g.datagrams += v.kind == TDM_LINK_DATAGRAM;
        g.reason[v.kind == TDM_LINK_DROP ? v.reason : TDM_REASON_NONE]++;
        if (v.kind == TDM_LINK_REPLY) {
            assert_non_null(rte_pktmbuf_append(r, (uint16_t)v.reply_sz));
            (void)tdm_port_tx(g.port, &r, 1);
        } else {
            rte_pktmbuf_free(r);
        }
    }
}

/* peer_does gives the peer one line and serves the port until it is done;
   peer_overruns leaves the port alone meanwhile. */
static int peer_does(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int peer_overruns(const char *line);
static int peer_answer(int is_served);

static void peer_told(const char *line) {
    size_t sz = strlen(line);
    assert_int_equal(write(g.to_peer, line, sz), sz);
    assert_int_equal(write(g.to_peer, "\n", 1), 1);
}

static int peer_does(const char *fmt, ...) {
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    peer_told(line);
    return peer_answer(1);
}

static int peer_overruns(const char *line) {
    peer_told(line);
    return peer_answer(0);
}

static int peer_answer(int is_served) {
    char answer[16] = {0};
    int64_t end = tdm_clock_now_ns() + PATIENCE_NS;
    struct pollfd p = {.fd = g.from_peer, .events = POLLIN};
    while (poll(&p, 1, 0) == 0 && tdm_clock_now_ns() < end)
        if (g.port != NULL && is_served) turn();
    if (poll(&p, 1, 0) <= 0 || read(g.from_peer, answer, sizeof answer - 1) <= 0) return -1;
    return atoi(answer);
}

static void serve_for(int64_t ms) {
    int64_t end = tdm_clock_now_ns() + ms * TDM_NS_PER_MS;
    while (tdm_clock_now_ns() < end) turn();
}

/* serve_until_seen serves until cnt were counted, and a little longer, so
   that one too many is seen as well. */
static void serve_until_seen(const uint64_t *count, uint64_t cnt) {
    int64_t end = tdm_clock_now_ns() + PATIENCE_NS;
    while (*count < cnt && tdm_clock_now_ns() < end) turn();
    serve_for(20);
}

static int open_with(uint16_t queues, uint32_t drop_ppm) {
    tdm_error_t err = {0};
    tdm_port_config_t pc = {.kind = g.kind,
                            .mtu = 1500,
                            .rx_desc = 2048,
                            .tx_desc = 512,
                            .rx_queues = queues,
                            .mbuf_cnt = MBUFS,
                            .device = "vb"};
    if (drop_ppm > 0) {
        pc.kind = TDM_PORT_CHAOS;
        pc.chaos = (tdm_port_chaos_t){.under = g.kind, .drop_ppm = drop_ppm, .seed = 5};
    }
    memset(g.reason, 0, sizeof g.reason);
    g.datagrams = 0;
    if (g.port != NULL) return 0;
    if (tdm_port_open(&pc, &g.port, &err) != TDM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    tdm_link_config_t c = {.mtu = 1500,
                           .udp_port = UDP_PORT,
                           .has_ipv4 = 1,
                           .has_ipv6 = 1,
                           .ipv4_prefix = 24,
                           .ipv6_prefix = 64,
                           .ipv4 = {10, 99, 0, 2},
                           .neighbour_max = 64,
                           .reply_per_s = 1000000,
                           .solicit_per_s = 10};
    tdm_port_mac(g.port, c.mac);
    inet_pton(AF_INET6, "fd99::2", c.ipv6);
    g.link_mem = aligned_alloc(TDM_CACHE_LINE, tdm_link_footprint(c.neighbour_max));
    return tdm_link_init(g.link_mem, &c, tdm_clock_now_ns(), &g.link, &err) == TDM_OK ? 0 : -1;
}

static int open_one(void **state) {
    (void)state;
    return open_with(1, 0);
}

static int open_two(void **state) {
    (void)state;
    return open_with(2, 0);
}

static int open_in_bad_weather(void **state) {
    (void)state;
    return open_with(1, 250000);
}

/* The driver of af_xdp opens an interface once per process (its memory
   stays registered), so its facts share one port. */
static int close_all(void **state) {
    (void)state;
    if (g.port == NULL || (g.kind == TDM_PORT_AF_XDP && !g.is_last)) return 0;
    uint32_t leaked = tdm_port_close(g.port);
    g.port = NULL;
    free(g.link_mem);
    int is_program_left = shell("ip -d link show vb | grep -q xdp") == 0;
    if (leaked > 0 || is_program_left)
        fprintf(stderr, "%u buffers leaked, program left: %d\n", leaked, is_program_left);
    return leaked == 0 && !is_program_left ? 0 : -1;
}

/* --- facts ------------------------------------------------------------ */

static void both_ip_versions_are_answered(void **state) {
    (void)state;
    assert_int_equal(peer_does("ping -q -c 20 -i 0.01 -W 2 10.99.0.2 >/dev/null"), 0);
    if (access("/proc/net/if_inet6", F_OK) == 0)
        assert_int_equal(peer_does("ping -6 -q -c 5 -i 0.01 -W 2 fd99::2 >/dev/null"), 0);
    assert_int_equal(tdm_port_is_up(g.port), 1);
}

static void a_burst_arrives_whole_or_is_counted(void **state) {
    (void)state;
    assert_int_equal(peer_does("ping -q -c 1 -W 2 10.99.0.2 >/dev/null"), 0);
    assert_int_equal(peer_does("burst %d 64", BURST), 0);
    serve_for(200);
    tdm_port_stats_t s;
    tdm_port_stats_read(g.port, &s);
    print_message("burst of %d: %llu arrived, missed %llu, no mbuf %llu\n", BURST,
                  (unsigned long long)g.datagrams, (unsigned long long)s.nic_missed,
                  (unsigned long long)s.no_mbuf);
    if (g.kind == TDM_PORT_AF_PACKET) assert_int_equal(g.datagrams, BURST);
    assert_true(g.datagrams + s.nic_missed >= BURST);
    assert_int_equal(g.reason[TDM_DROP_udp_checksum], 0);
}

/* Nobody serves the port while far more comes than its ring holds: what is
   lost is counted, and afterwards every buffer of the pool goes out and
   comes in, several times, with no frame lost. */
static void an_overrun_passes(void **state) {
    (void)state;
    tdm_port_stats_t before, s;
    assert_int_equal(peer_does("ping -q -c 1 -W 2 10.99.0.2 >/dev/null"), 0);
    tdm_port_stats_read(g.port, &before);
    g.datagrams = 0;
    char line[32];
    snprintf(line, sizeof line, "burst %d 64", OVERRUN);
    assert_int_equal(peer_overruns(line), 0);
    serve_for(100);
    tdm_port_stats_read(g.port, &s);
    uint64_t missed = s.nic_missed - before.nic_missed;
    print_message("overrun by %d: %llu arrived, missed %llu\n", OVERRUN,
                  (unsigned long long)g.datagrams, (unsigned long long)missed);
    assert_true(g.datagrams < OVERRUN);
    if (g.kind == TDM_PORT_AF_XDP) assert_true(g.datagrams + missed >= OVERRUN);
    assert_int_equal(peer_does("ping -q -f -c %d 10.99.0.2 | grep -q ' %d received'", PINGS, PINGS),
                     0);
    tdm_port_stats_t end;
    tdm_port_stats_read(g.port, &end);
    assert_true(end.tx_frames - s.tx_frames >= PINGS);
    assert_int_equal(end.nic_missed, s.nic_missed);
    assert_int_equal(end.nic_error, 0);
    assert_int_equal(end.no_mbuf, 0);
}

/* A descriptor that a sleeper may wait on is readable while a frame waits,
   and silent when none does. */
static void a_sleeper_is_woken_by_a_frame(void **state) {
    (void)state;
    g.is_last = 1;
    struct pollfd p = {.fd = tdm_port_rx_fd(g.port), .events = POLLIN};
    if (g.kind != TDM_PORT_AF_XDP) skip(); /* af_packet: its driver keeps its socket */
    assert_true(p.fd >= 0);
    for (int i = 0; i < 20; i++) {
        serve_for(2);
        assert_int_equal(peer_overruns("burst 1 64"), 0);
        assert_int_equal(poll(&p, 1, 60000), 1);
        int64_t end = tdm_clock_now_ns() + PATIENCE_NS;
        while (poll(&p, 1, 0) == 1 && tdm_clock_now_ns() < end) turn();
        assert_int_equal(poll(&p, 1, 0), 0);
    }
    assert_true(g.datagrams >= 20);
}

static void a_frame_too_long_is_cut_and_counted(void **state) {
    (void)state;
    if (g.kind != TDM_PORT_AF_PACKET) skip(); /* the kernel drops it there */
    assert_int_equal(shell("ip link set vb mtu 9000"), 0);
    assert_int_equal(peer_does("ip link set va mtu 9000"), 0);
    assert_int_equal(peer_does("ping -q -c 1 -W 2 10.99.0.2 >/dev/null"), 0);
    assert_int_equal(peer_does("burst 10 7000"), 0);
    serve_until_seen(&g.reason[TDM_DROP_ip_total_length], 10);
    assert_int_equal(g.datagrams, 0);
    assert_int_equal(g.reason[TDM_DROP_ip_total_length], 10);
    assert_int_equal(peer_does("ip link set va mtu 1500"), 0);
    assert_int_equal(shell("ip link set vb mtu 1500"), 0);
    assert_int_equal(peer_does("burst 10 1400"), 0);
    serve_until_seen(&g.datagrams, 10);
    assert_int_equal(g.datagrams, 10);
}

static void a_flapping_link_comes_back(void **state) {
    (void)state;
    int64_t worst_ns = 0;
    uint8_t m[6];
    tdm_port_mac(g.port, m);
    /* The peer's kernel asks for an address again after a second at the
       earliest; what is measured here is the port. */
    assert_int_equal(
        peer_does("ip neigh replace 10.99.0.2 dev va lladdr %02x:%02x:%02x:%02x:%02x:%02x", m[0],
                  m[1], m[2], m[3], m[4], m[5]),
        0);
    for (int i = 0; i < FLAPS; i++) {
        assert_int_equal(shell("ip link set vb down"), 0);
        int64_t down_ns = tdm_clock_now_ns();
        while (tdm_port_is_up(g.port) && tdm_clock_now_ns() - down_ns < PATIENCE_NS) turn();
        assert_int_equal(tdm_port_is_up(g.port), 0);
        assert_int_equal(shell("ip link set vb up"), 0);
        int64_t from = tdm_clock_now_ns();
        int rc = 1;
        while (rc != 0 && tdm_clock_now_ns() - from < PATIENCE_NS)
            rc = peer_does("ping -q -c 1 -W 0.1 10.99.0.2 >/dev/null 2>&1");
        assert_int_equal(rc, 0);
        while (!tdm_port_is_up(g.port) && tdm_clock_now_ns() - from < PATIENCE_NS) turn();
        assert_int_equal(tdm_port_is_up(g.port), 1);
        worst_ns = TDM_MAX(worst_ns, tdm_clock_now_ns() - from);
    }
    assert_int_equal(peer_does("ip neigh del 10.99.0.2 dev va"), 0);
    print_message("%d flaps: traffic back after %.0f ms at most\n", FLAPS, (double)worst_ns / 1e6);
}

static void two_queues_are_polled(void **state) {
    (void)state;
    if (g.kind == TDM_PORT_AF_XDP) skip(); /* a veth has one, and it is taken */
    assert_int_equal(peer_does("ping -q -c 20 -i 0.01 -W 2 10.99.0.2 >/dev/null"), 0);
    assert_int_equal(peer_does("burst 200 64"), 0);
    serve_until_seen(&g.datagrams, 200);
    assert_int_equal(g.datagrams, 200);
}

static void bad_weather_takes_its_share_of_a_real_device(void **state) {
    (void)state;
    if (g.kind == TDM_PORT_AF_XDP) skip();
    tdm_port_chaos_stats_t n = {0};
    for (int i = 0; i < 10; i++) assert_int_equal(peer_does("burst 40 64"), 0);
    int64_t end = tdm_clock_now_ns() + PATIENCE_NS;
    for (; n.in[0] < 400 && tdm_clock_now_ns() < end; tdm_port_chaos_read(g.port, &n)) turn();
    serve_for(100); /* what it holds back comes as well */
    tdm_port_chaos_read(g.port, &n);
    assert_true(n.in[0] >= 400);
    assert_in_range(n.dropped[0] * 100 / n.in[0], 18, 32);
    assert_in_range(g.datagrams, 272, 328); /* of 400 */
    assert_int_equal(n.in[0], n.out[0] + n.dropped[0] + n.held[0]);
    assert_int_equal(tdm_port_is_up(g.port), 1);
}

static void impossible_devices_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *device;
        uint16_t mtu;
        tdm_status_t status;
        const char *word;
    } row[] = {{"", 1500, TDM_ERR_INVAL, "no interface name"},
               {"v,x=1", 1500, TDM_ERR_INVAL, "no interface name"},
               {"nobody0", 1500, TDM_ERR_NOT_FOUND, "there is no interface nobody0"},
               {"vb", 9000, TDM_ERR_INVAL, "carries 1500 bytes"}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_port_t *p = NULL;
        tdm_error_t err = {0};
        tdm_port_config_t pc = {
            .kind = g.kind, .mtu = row[i].mtu, .rx_desc = 256, .tx_desc = 256, .mbuf_cnt = 2688};
        snprintf(pc.device, sizeof pc.device, "%s", row[i].device);
        assert_int_equal(tdm_port_open(&pc, &p, &err), row[i].status);
        assert_non_null(strstr(err.text, row[i].word));
    }
    tdm_port_t *p = NULL;
    tdm_error_t err = {0};
    tdm_port_config_t pc = {.kind = TDM_PORT_PCI,
                            .mtu = 1500,
                            .rx_desc = 256,
                            .tx_desc = 256,
                            .mbuf_cnt = 1024,
                            .device = "0000:99:00.0"};
    assert_int_equal(tdm_port_open(&pc, &p, &err), TDM_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "vfio-pci"));
    pc.kind = g.kind;
    pc.rx_queues = TDM_PORT_RX_QUEUE_MAX + 1;
    assert_int_equal(tdm_port_open(&pc, &p, &err), TDM_ERR_INVAL);
}

/* libxdp's own record of the driver's memory is never freed by the driver. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:xsk_umem__create\n";
}

/* --- two namespaces --------------------------------------------------- */

static int world_open(void) {
    int down[2], up[2];
    char word[8];
    if (geteuid() != 0 || shell("which ip ethtool ping >/dev/null 2>&1") != 0) return 0;
    if (pipe(down) != 0 || pipe(up) != 0 || unshare(CLONE_NEWNET) != 0) return 0;
    g.peer = fork();
    if (g.peer == 0) {
        close(down[1]);
        close(up[0]);
        peer_main(down[0], up[1]);
    }
    g.to_peer = down[1];
    g.from_peer = up[0];
    close(down[0]);
    close(up[1]);
    if (read(g.from_peer, word, sizeof word) <= 0) return 0;
    if (shell("ip link add vb type veth peer name va numrxqueues 2 numtxqueues 2 2>/dev/null || "
              "ip link add vb type veth peer name va") != 0 ||
        shell("ip link set va netns %d && ip link set vb up", (int)g.peer) != 0)
        return 0;
    return peer_does("ip link set va up && ip addr add 10.99.0.1/24 dev va && "
                     "(ip -6 addr add fd99::1/64 dev va nodad 2>/dev/null; "
                     "ethtool -K va tx off >/dev/null)") == 0;
}

#define TEST(name, open)                                                                           \
    { #name, name, open, close_all, NULL }

int main(int argc, char **argv) {
    if (argc < 2 || tdm_port_kind_parse(argv[1], &g.kind) != TDM_OK) return 2;
    if (!world_open()) {
        fprintf(stderr, "needs root, ip, ethtool, ping and veth\n");
        return 77;
    }
    if (env_begin(3 * MBUFS)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(both_ip_versions_are_answered, open_one),
        TEST(a_frame_too_long_is_cut_and_counted, open_one),
        TEST(a_flapping_link_comes_back, open_one),
        TEST(a_burst_arrives_whole_or_is_counted, open_one),
        TEST(an_overrun_passes, open_one),
        TEST(a_sleeper_is_woken_by_a_frame, open_one),
        TEST(two_queues_are_polled, g.kind == TDM_PORT_AF_XDP ? NULL : open_two),
        TEST(bad_weather_takes_its_share_of_a_real_device,
             g.kind == TDM_PORT_AF_XDP ? NULL : open_in_bad_weather),
        cmocka_unit_test(impossible_devices_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    close(g.to_peer);
    (void)waitpid(g.peer, NULL, 0);
    return failed;
}
