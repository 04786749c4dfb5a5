/* SPDX-License-Identifier: Apache-2.0 */
/* From the port to the exchange ring on one core, without QUIC: burst from
   a wire port, judgement by the link, one 16-byte word on a ring for every
   datagram, mbuf given back.  Thread CPU time of 256 frames at a time,
   their arrival not counted; a frame that does not come out ends the
   program.  Prints millions of packets a second, the median of the best of
   five interleaved rounds. */
#include "appliance/abi/exchange.h"
#include "appliance/base/check.h"
#include "appliance/ring/ring.h"
#include "net/port/port.h"
#include "tests/perf/net/measure.h"
#include "tests/unit/net_link/frames.h"

#include <rte_mbuf.h>
#include <string.h>

#define BATCH   256u /* what the wire holds */
#define BATCHES 2000u

typedef struct variant {
    const char *name;
    test_frame_t frame;
    int64_t best_ns; /* of a batch: the median of the best round */
    uint64_t left_out;
} variant_t;

static tdm_port_t *port;
static tdm_link_t *l;
static tdm_ring_t ring;

static uint64_t carry(void) {
    struct rte_mbuf *m[TDM_PORT_BURST_MAX];
    uint8_t reply[1600];
    uint64_t pushed = 0;
    int64_t now_ns = tdm_clock_now_ns();
    for (uint32_t n; (n = tdm_port_rx(port, m, TDM_PORT_BURST_MAX)) > 0;) {
        for (uint32_t i = 0; i < n; i++) {
            tdm_link_verdict_t v =
                tdm_link_rx(l, rte_pktmbuf_mtod(m[i], const uint8_t *), rte_pktmbuf_pkt_len(m[i]),
                            reply, sizeof reply, now_ns);
            tdm_arrival_t word = {.generation = v.datagram.payload_sz};
            pushed += v.kind == TDM_LINK_DATAGRAM && tdm_ring_push(&ring, 0, &word);
        }
        rte_pktmbuf_free_bulk(m, n);
    }
    return pushed;
}

static void round_of(variant_t *v) {
    static int64_t sample[BATCHES];
    uint32_t cnt = 0;
    for (uint32_t b = 0; b < BATCHES; b++) {
        for (uint32_t i = 0; i < BATCH; i++)
            TDM_CHECK(tdm_port_wire_put(port, v->frame.b, v->frame.sz));
        int64_t switches = measure_switches(), from_ns = measure_cpu_ns();
        uint64_t pushed = carry();
        int64_t passed_ns = measure_cpu_ns() - from_ns;
        TDM_CHECK(pushed == BATCH); /* zero loss */
        tdm_arrival_t word;
        while (tdm_ring_pop(&ring, &word)) pushed--;
        TDM_CHECK(pushed == 0);
        if (measure_switches() == switches)
            sample[cnt++] = passed_ns;
        else
            v->left_out++;
    }
    int64_t median_ns = measure_p(sample, cnt, 50);
    if (median_ns && (v->best_ns == 0 || median_ns < v->best_ns)) v->best_ns = median_ns;
}

int main(void) {
    tdm_error_t err = {0};
    tdm_port_env_config_t env = {.memory_mb = 64, .is_no_huge = 1, .file_prefix = "tdm-perf"};
    tdm_port_config_t pc = {
        .kind = TDM_PORT_WIRE, .mtu = 1500, .rx_desc = 64, .tx_desc = 64, .mbuf_cnt = 1024};
    tdm_lane_t *lane = NULL;
    tdm_link_config_t c = link_config();
    variant_t v[] = {{"ipv4 64", udp4_frame(64), 0, 0},
                     {"ipv4 1200", udp4_frame(1200), 0, 0},
                     {"ipv6 64", udp6_frame(64), 0, 0}};
    if (tdm_port_env_start(&env, &err) != TDM_OK || tdm_port_open(&pc, &port, &err) != TDM_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_lane_footprint(512, sizeof(tdm_arrival_t)));
    TDM_CHECK(mem && tdm_lane_init(mem, 512, sizeof(tdm_arrival_t), &lane) == TDM_OK);
    tdm_ring_init(&ring, &lane, 1, NULL);
    l = link_make(&c, tdm_clock_now_ns());
    for (uint32_t r = 0; r < MEASURE_ROUNDS; r++)
        for (uint32_t i = 0; i < TDM_COUNT_OF(v); i++) round_of(&v[i]);
    for (uint32_t i = 0; i < TDM_COUNT_OF(v); i++)
        printf("parse_to_ring %-10s %6.2f Mpps  %5.0f ns a packet, left out %llu of %u batches\n",
               v[i].name, BATCH * 1e3 / (double)v[i].best_ns, (double)v[i].best_ns / BATCH,
               (unsigned long long)v[i].left_out, BATCHES * MEASURE_ROUNDS);
    TDM_CHECK(tdm_link_is_conserved(l));
    link_free(l);
    free(mem);
    return tdm_port_close(port) != 0;
}
