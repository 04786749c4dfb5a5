/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles of a packet by stage, at the server, from requests of a client in
   the same thread: link (headers off and on), QUIC (decryption, frames,
   encryption) and HTTP/3 with the exchange's own work.  The linker wraps
   the doors of net/quic and net/h3 (--wrap), so that production code runs
   unchanged; QUIC's share is its own time less what HTTP/3 took inside.
   Counter of the processor (RDTSC); requests during which the processor
   was taken away are counted and left out; the best of five rounds. */
#include "tests/perf/net/measure.h"
#include "tests/unit/net_h3/rig.h"
#include "tests/unit/net_link/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <x86intrin.h>

#include <cmocka.h>

#define REQUESTS 2000u
#define FRAMES   20000u

static uint64_t quic_cycles, h3_cycles, packets;
static int h3_depth; /* h3's calls into quic are quic's time */

static tdm_quic_app_t real;

#define IN_H3(call)                                                                                \
    do {                                                                                           \
        uint64_t from = __rdtsc();                                                                 \
        h3_depth++;                                                                                \
        call;                                                                                      \
        h3_depth--;                                                                                \
        if (h3_depth == 0) h3_cycles += __rdtsc() - from;                                          \
    } while (0)

static int stream_data(void *ctx, tdm_quic_conn_t *c, int64_t id, const uint8_t *bytes, uint64_t sz,
                       int is_fin, int64_t now_ns) {
    int rv;
    IN_H3(rv = real.stream_data(ctx, c, id, bytes, sz, is_fin, now_ns));
    return rv;
}

static int send_pull(void *ctx, tdm_quic_conn_t *c, tdm_quic_send_t *out, int64_t now_ns) {
    int rv;
    IN_H3(rv = real.send_pull(ctx, c, out, now_ns));
    return rv;
}

static int send_sent(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t sz) {
    int rv;
    IN_H3(rv = real.send_sent(ctx, c, id, sz));
    return rv;
}

static int stream_acked(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t sz) {
    int rv;
    IN_H3(rv = real.stream_acked(ctx, c, id, sz));
    return rv;
}

static int stream_close(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t error) {
    int rv;
    IN_H3(rv = real.stream_close(ctx, c, id, error));
    return rv;
}

tdm_quic_app_t __real_tdm_h3_app(tdm_h3_t *h);
tdm_quic_app_t __wrap_tdm_h3_app(tdm_h3_t *h);
tdm_quic_app_t __wrap_tdm_h3_app(tdm_h3_t *h) {
    tdm_quic_app_t app = real = __real_tdm_h3_app(h);
    app.stream_data = stream_data;
    app.send_pull = send_pull;
    app.send_sent = send_sent;
    app.stream_acked = stream_acked;
    app.stream_close = stream_close;
    return app;
}

void __real_tdm_h3_reply(tdm_h3_t *h, tdm_exchange_t *x, uint32_t flags, int64_t now_ns);
void __wrap_tdm_h3_reply(tdm_h3_t *h, tdm_exchange_t *x, uint32_t flags, int64_t now_ns);
void __wrap_tdm_h3_reply(tdm_h3_t *h, tdm_exchange_t *x, uint32_t flags, int64_t now_ns) {
    IN_H3(__real_tdm_h3_reply(h, x, flags, now_ns));
}

tdm_reason_t __real_tdm_quic_input(tdm_quic_t *q, const tdm_datagram_t *dg, int64_t now_ns);
tdm_reason_t __wrap_tdm_quic_input(tdm_quic_t *q, const tdm_datagram_t *dg, int64_t now_ns);
tdm_reason_t __wrap_tdm_quic_input(tdm_quic_t *q, const tdm_datagram_t *dg, int64_t now_ns) {
    uint64_t inside = h3_cycles, from = __rdtsc();
    tdm_reason_t r = __real_tdm_quic_input(q, dg, now_ns);
    quic_cycles += __rdtsc() - from - (h3_cycles - inside);
    packets++;
    return r;
}

uint32_t __real_tdm_quic_output(tdm_quic_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg,
                                int64_t now_ns);
uint32_t __wrap_tdm_quic_output(tdm_quic_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg,
                                int64_t now_ns);
uint32_t __wrap_tdm_quic_output(tdm_quic_t *q, uint8_t *buf, uint32_t buf_sz, tdm_datagram_t *dg,
                                int64_t now_ns) {
    uint64_t inside = h3_cycles, from = __rdtsc();
    uint32_t sz = __real_tdm_quic_output(q, buf, buf_sz, dg, now_ns);
    quic_cycles += __rdtsc() - from - (h3_cycles - inside);
    packets += sz > 0;
    return sz;
}

uint32_t __real_tdm_quic_poll(tdm_quic_t *q, int64_t now_ns);
uint32_t __wrap_tdm_quic_poll(tdm_quic_t *q, int64_t now_ns);
uint32_t __wrap_tdm_quic_poll(tdm_quic_t *q, int64_t now_ns) {
    uint64_t inside = h3_cycles, from = __rdtsc();
    uint32_t n = __real_tdm_quic_poll(q, now_ns);
    quic_cycles += __rdtsc() - from - (h3_cycles - inside);
    return n;
}

/* --- rounds ------------------------------------------------------------------ */

typedef struct figures {
    double link_in, link_out, quic, h3, packets; /* a packet; packets a request */
    uint64_t left_out;
} figures_t;

static void keep(double *best, double v) {
    if (*best == 0 || v < *best) *best = v;
}

static void link_round(figures_t *f) {
    static int64_t in[FRAMES], out[FRAMES];
    static uint8_t buf[2048], reply[2048];
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 1);
    test_frame_t frame = udp4_frame(64);
    test_frame_t arp = arp_frame(1, peer_mac, peer4, our4);
    uint32_t cnt = 0, header_sz;
    (void)offer(l, &arp, 1, NULL); /* the peer is known from its question */
    for (uint32_t i = 0; i < FRAMES; i++) {
        uint64_t a = __rdtsc();
        tdm_link_verdict_t v = tdm_link_rx(l, frame.b, frame.sz, reply, sizeof reply, 1);
        uint64_t b = __rdtsc();
        tdm_reason_t r = tdm_link_udp_wrap(l, &v.datagram.remote, OUR_PORT, 0,
                                           buf + TDM_LINK_HEADER_MAX, 64, 1, &header_sz);
        uint64_t d = __rdtsc();
        assert_int_equal(v.kind, TDM_LINK_DATAGRAM);
        assert_int_equal(r, TDM_REASON_NONE);
        in[cnt] = (int64_t)(b - a);
        out[cnt++] = (int64_t)(d - b);
    }
    keep(&f->link_in, (double)measure_p(in, cnt, 50)); /* a median needs no leaving out */
    keep(&f->link_out, (double)measure_p(out, cnt, 50));
    link_free(l);
}

static void h3_round(rig_t *r, figures_t *f) {
    static int64_t quic[REQUESTS], h3[REQUESTS];
    uint32_t cnt = 0;
    uint64_t first = packets;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        rig_reply_t reply;
        int64_t switches = measure_switches();
        uint64_t q = quic_cycles, h = h3_cycles, p = packets;
        (void)rig_send(r, 0, "GET", "/health", NULL, 0, &reply);
        assert_int_equal(rig_run(r, &reply.is_ended, 1000), 1);
        assert_int_equal(reply.status, 200);
        if (measure_switches() != switches) {
            f->left_out++;
            continue;
        }
        uint64_t n = packets - p ? packets - p : 1;
        quic[cnt] = (int64_t)((quic_cycles - q) / n);
        h3[cnt++] = (int64_t)((h3_cycles - h) / n);
    }
    f->packets = (double)(packets - first) / REQUESTS;
    keep(&f->quic, (double)measure_p(quic, cnt, 50));
    keep(&f->h3, (double)measure_p(h3, cnt, 50));
}

int main(void) {
    static rig_t r;
    figures_t f = {0};
    rig_config_t c = rig_default();
    rig_open(&r, &c);
    rig_dial_ready(&r, 0);
    for (uint32_t i = 0; i < MEASURE_ROUNDS; i++) {
        link_round(&f);
        h3_round(&r, &f);
    }
    printf("cycles a packet: link in %.0f, link out %.0f, QUIC %.0f, HTTP/3 %.0f; "
           "%.1f packets a request, left out %llu of %u requests\n",
           f.link_in, f.link_out, f.quic, f.h3, f.packets, (unsigned long long)f.left_out,
           REQUESTS * MEASURE_ROUNDS);
    rig_close(&r);
    return 0;
}
