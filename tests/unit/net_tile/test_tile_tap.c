/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a client on a kernel socket talks HTTP/3 with the tile through a
   TAP, over both IP versions, while the tile shares cores and sleeps.
   Method: a network namespace of its own; the tile and a fake api run in
   one thread as boot would run them, with an adaptive poller that sleeps
   on the doorbell and the port's receive descriptor; all signals are
   blocked, as a strict boot might do.  Skipped (77) without root or
   /dev/net/tun. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/poll.h"
#include "net/client/client.h"
#include "net/quic/cert.h"
#include "net/tile/tile.h"
#include "tests/unit/net_port/env.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define EXCHANGE_MAX 8u
#define SERVER_PORT  8443u

static struct {
    tdm_port_t *port;
    tdm_net_tile_t *tile;
    tdm_block_t *block;
    tdm_lane_t *lane[3];
    tdm_ring_t arrivals, hangups, egress;
    tdm_doorbell_t bell;
    uint32_t asleep;
    uint32_t is_stopping;
    pthread_t thread;
    tdm_poller_t poller;
    char cert[64], key[64];
} g;

/* api_turn echoes each body. */
static uint32_t api_turn(void) {
    tdm_arrival_t a;
    tdm_hangup_t h;
    uint32_t cnt = 0;
    while (tdm_ring_pop(&g.hangups, &h)) cnt++;
    while (tdm_ring_pop(&g.arrivals, &a)) {
        tdm_exchange_t *x = a.exchange;
        x->head.status = 200;
        x->head.content_type = TDM_CONTENT_TEXT;
        x->head.content_sz = (int64_t)x->body_sz;
        tdm_egress_t e = {.handle = x->handle, .flags = TDM_EGRESS_HEAD | TDM_EGRESS_END};
        if (x->body_sz > 0 && tdm_pipe_write(x->reply, x->body, (uint32_t)x->body_sz, 1))
            e.flags |= TDM_EGRESS_RECORD;
        cnt += (uint32_t)tdm_ring_push(&g.egress, 0, &e);
    }
    return cnt;
}

static void *tile_main(void *arg) {
    (void)arg;
    while (!tdm_load_acquire(&g.is_stopping)) {
        int64_t now = tdm_clock_now_ns();
        uint32_t work = tdm_net_tile_poll(g.tile, now) + api_turn();
        if (!tdm_poller_may_sleep(&g.poller, work, now)) continue;
        if (tdm_net_tile_poll(g.tile, now) + api_turn() == 0)
            tdm_poller_sleep(&g.poller, tdm_net_tile_next_ns(g.tile), now);
        else
            tdm_poller_stay(&g.poller);
    }
    return NULL;
}

/* --- opening -------------------------------------------------------- */

static void *table(uint64_t sz) {
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_size_align(sz, TDM_CACHE_LINE));
    assert_non_null(mem);
    memset(mem, 0, sz);
    return mem;
}

static void ring_make(tdm_ring_t *r, uint32_t i, uint32_t elem_sz, tdm_doorbell_t *bell) {
    void *mem = table(tdm_lane_footprint(64, elem_sz));
    assert_int_equal(tdm_lane_init(mem, 64, elem_sz, &g.lane[i]), TDM_OK);
    tdm_ring_init(r, &g.lane[i], 1, bell);
}

static int open_all(void **state) {
    (void)state;
    tdm_error_t err = {0};
    int is_made;
    tdm_port_config_t pc = {.kind = TDM_PORT_TAP,
                            .mtu = 1500,
                            .rx_desc = 256,
                            .tx_desc = 256,
                            .mbuf_cnt = 1024,
                            .tap_name = "tdmtest0",
                            .tap_ipv4 = "10.88.0.1/24",
                            .tap_ipv6 = "fd88:7464:6d00::1/64"};
    if (tdm_port_open(&pc, &g.port, &err) != TDM_OK) fail_msg("%s", err.text);
    snprintf(g.cert, sizeof g.cert, "/tmp/tdm-test-tap-%ld.crt", (long)getpid());
    snprintf(g.key, sizeof g.key, "/tmp/tdm-test-tap-%ld.key", (long)getpid());
    tdm_cert_config_t cc = {.cert_file = g.cert,
                            .key_file = g.key,
                            .name = {"10.88.0.2"},
                            .name_cnt = 1,
                            .wall_s = tdm_clock_wall_s()};
    if (tdm_cert_ensure(&cc, &is_made, &err) != TDM_OK) fail_msg("%s", err.text);
    if (tdm_doorbell_open(&g.bell, &g.asleep, &err) != TDM_OK) fail_msg("%s", err.text);
    ring_make(&g.arrivals, 0, sizeof(tdm_arrival_t), NULL);
    ring_make(&g.hangups, 1, sizeof(tdm_hangup_t), NULL);
    ring_make(&g.egress, 2, sizeof(tdm_egress_t), &g.bell);
    g.block = tdm_block_init(table(tdm_block_footprint()), "net0");

    tdm_net_tile_config_t c = {
        .api_cnt = 1,
        .exchange_max = EXCHANGE_MAX,
        .pipe_sz = 65536,
        .body_max = 32768,
        .port = g.port,
        .link = {.mtu = 1500,
                 .udp_port = SERVER_PORT,
                 .has_ipv4 = 1,
                 .has_ipv6 = 1,
                 .ipv4_prefix = 24,
                 .ipv6_prefix = 64,
                 .neighbour_max = 64,
                 .reply_per_s = 1000,
                 .solicit_per_s = 10},
        .quic = {.connection_max = 8,
                 .stream_max = 32,
                 .pool_sz = 16u << 20,
                 .connection_pool_sz = 2u << 20,
                 .handshake_per_s = 100,
                 .handshake_per_s_source = 100,
                 .idle_timeout_ns = 30 * TDM_NS_PER_S,
                 .cert_file = g.cert,
                 .key_file = g.key},
        .h3 = {.stream_max = 64},
        .arrivals = {&g.arrivals},
        .hangups = {&g.hangups},
        .egress = &g.egress,
        .block = g.block,
    };
    tdm_port_mac(g.port, c.link.mac);
    inet_pton(AF_INET, "10.88.0.2", c.link.ipv4);
    inet_pton(AF_INET6, "fd88:7464:6d00::2", c.link.ipv6);
    void *mem = table(tdm_net_tile_footprint(&c));
    int64_t now = tdm_clock_now_ns();
    if (tdm_net_tile_create(mem, &c, now, &g.tile, &err) != TDM_OK) fail_msg("%s", err.text);
    tdm_poller_init(&g.poller, TDM_POLL_ADAPTIVE, &g.bell, tdm_port_rx_fd(g.port), now);
    return pthread_create(&g.thread, NULL, tile_main, NULL);
}

static int close_all(void **state) {
    (void)state;
    tdm_store_release(&g.is_stopping, 1);
    tdm_doorbell_ring(&g.bell);
    pthread_join(g.thread, NULL);
    int is_conserved = tdm_net_tile_is_conserved(g.tile);
    tdm_net_tile_destroy(g.tile);
    uint32_t leaked = tdm_port_close(g.port);
    tdm_doorbell_close(&g.bell);
    free(g.tile);
    free(g.block);
    for (uint32_t i = 0; i < 3; i++) free(g.lane[i]);
    unlink(g.cert);
    unlink(g.key);
    return is_conserved && leaked == 0 ? 0 : -1;
}

/* --- the client ----------------------------------------------------- */

typedef struct answer {
    int status;
    uint64_t sz;
    uint8_t body[32768];
} answer_t;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((answer_t *)ctx)->status = status;
}
static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    answer_t *a = ctx;
    (void)id;
    if (a->sz + sz <= sizeof a->body) memcpy(a->body + a->sz, bytes, sz);
    a->sz += sz;
}

static void echo_over(const char *host) {
    static uint8_t body[20000];
    static answer_t a;
    tdm_error_t err = {0};
    tdm_client_t *client = NULL;
    tdm_client_config_t c = {
        .host = host, .port = SERVER_PORT, .verify = TDM_CLIENT_VERIFY_INSECURE};
    if (tdm_client_connect(&c, &client, &err) != TDM_OK) fail_msg("%s: %s", host, err.text);
    for (uint32_t round = 0; round < 20; round++) {
        int64_t id;
        uint64_t sz = 1 + round * 1000;
        for (uint64_t i = 0; i < sz; i++) body[i] = (uint8_t)(i * 13 + round);
        tdm_client_sink_t sink = {.ctx = &a, .head = on_head, .body = on_body};
        tdm_client_request_t r = {.method = "POST", .path = "/echo", .body = body, .body_sz = sz};
        a.status = 0;
        a.sz = 0;
        assert_int_equal(tdm_client_request(client, &r, &sink, &id, &err), TDM_OK);
        if (tdm_client_wait(client, id, 5 * TDM_NS_PER_S, &err) != TDM_OK) fail_msg("%s", err.text);
        assert_int_equal(a.status, 200);
        assert_int_equal(a.sz, sz);
        assert_memory_equal(a.body, body, sz);
    }
    tdm_client_close(client);
}

static void http3_works_over_ipv4(void **state) {
    (void)state;
    echo_over("10.88.0.2");
}

static void http3_works_over_ipv6(void **state) {
    (void)state;
    if (access("/proc/net/if_inet6", F_OK) != 0) skip();
    echo_over("fd88:7464:6d00::2");
}

/* dropped reads what the tile published; the tile goes on meanwhile. */
static uint64_t dropped(tdm_reason_t reason) {
    return tdm_load_relaxed(
        tdm_block_word(g.block, TDM_METRIC_net_drops_total, tdm_label_reason(reason)));
}

static void frames_over_our_mtu_are_counted_not_cut(void **state) {
    (void)state;
    static const uint8_t big[4000];
    struct ifreq ifr = {.ifr_name = "tdmtest0", .ifr_mtu = 5000};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SERVER_PORT)};
    inet_pton(AF_INET, "10.88.0.2", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(ioctl(fd, SIOCSIFMTU, &ifr), 0);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(sendto(fd, big, sizeof big, 0, (struct sockaddr *)&to, sizeof to),
                         sizeof big);
    close(fd);
    int64_t end = tdm_clock_now_ns() + 30 * TDM_NS_PER_S;
    while (dropped(TDM_DROP_nic_error) < 10 && tdm_clock_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    assert_int_equal(dropped(TDM_DROP_nic_error), 10);
    echo_over("10.88.0.2"); /* and all is well */
}

static void an_idle_tile_sleeps(void **state) {
    (void)state;
    clockid_t clock;
    struct timespec t0, t1, pause = {.tv_nsec = 500 * 1000 * 1000};
    assert_int_equal(pthread_getcpuclockid(g.thread, &clock), 0);
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
    clock_gettime(clock, &t0);
    nanosleep(&pause, NULL);
    clock_gettime(clock, &t1);
    int64_t used = (t1.tv_sec - t0.tv_sec) * TDM_NS_PER_S + (t1.tv_nsec - t0.tv_nsec);
    assert_true(used < 100 * TDM_NS_PER_MS); /* of 500: it slept, sanitizers or not */
}

int main(void) {
    sigset_t all;
    if (!env_own_net()) return 77;
    signal(SIGPIPE, SIG_IGN);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    if (env_begin(2048)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http3_works_over_ipv4),
        cmocka_unit_test(http3_works_over_ipv6),
        cmocka_unit_test(frames_over_our_mtu_are_counted_not_cut),
        cmocka_unit_test(an_idle_tile_sleeps),
    };
    int failed = cmocka_run_group_tests(tests, open_all, close_all);
    tdm_port_env_stop();
    return failed;
}
