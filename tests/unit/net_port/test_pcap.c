/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a capture file says to us, and what we write in answer, is
   exact: file in, file out, through the DPDK pcap driver and the link.
   Method: a capture of 1,000 frames is written by hand, of which the
   answers are known; both files are compared byte by byte with them. */

#include "../net_link/frames.h"
#include "tests/unit/net_port/env.h"

#include <rte_mbuf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FRAME_CNT 1000u
#define KIND_CNT  8u

/* The file format of libpcap, savefile(5): a header of 24 bytes, then 16
   bytes before each frame; here in the host's byte order. */
typedef struct pcap_file {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy, snap, link;
} pcap_file_t;
typedef struct pcap_record {
    uint32_t s, us, kept_sz, sz;
} pcap_record_t;

static void pcap_begin(FILE *f) {
    pcap_file_t h = {.magic = 0xa1b2c3d4, .major = 2, .minor = 4, .snap = 65535, .link = 1};
    assert_int_equal(fwrite(&h, sizeof h, 1, f), 1);
}

static void pcap_put(FILE *f, const test_frame_t *frame) {
    pcap_record_t r = {.kept_sz = frame->sz, .sz = frame->sz};
    assert_int_equal(fwrite(&r, sizeof r, 1, f), 1);
    assert_int_equal(fwrite(frame->b, frame->sz, 1, f), 1);
}

static int pcap_get(FILE *f, test_frame_t *frame) {
    pcap_record_t r;
    if (fread(&r, sizeof r, 1, f) != 1) return 0;
    assert_int_equal(r.kept_sz, r.sz);
    assert_in_range(r.sz, 14, FRAME_MAX);
    frame->sz = r.sz;
    assert_int_equal(fread(frame->b, frame->sz, 1, f), 1);
    return 1;
}

/* frame_of gives frame i of the capture; eight kinds in turn. */
static test_frame_t frame_of(uint32_t i) {
    test_frame_t f;
    switch (i % KIND_CNT) {
    case 0: return arp_frame(1, peer_mac, peer4, our4);
    case 1: return echo4_frame(i);
    case 2: return echo6_frame(i);
    case 3: return solicitation_frame(peer6, our6);
    case 4: return udp4_frame(i);
    case 5: return udp6_frame(i);
    case 6:
        f = udp4_frame(i);
        f.b[24] ^= 1;
        return f; /* IP checksum */
    default:
        f = udp6_frame(i);
        f.b[60] ^= 1;
        return f; /* UDP checksum */
    }
}

/* swap exchanges n bytes at a and b. */
static void swap(uint8_t *a, uint8_t *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint8_t t = a[i];
        a[i] = b[i];
        b[i] = t;
    }
}

/* answer_of turns frame i into its answer, the obvious way; 0: none. */
static int answer_of(uint32_t i, test_frame_t *f) {
    *f = frame_of(i);
    swap(f->b, f->b + 6, 6);
    memcpy(f->b + 6, our_mac, 6);
    switch (i % KIND_CNT) {
    case 0:
        f->b[21] = 2;
        memcpy(f->b + 32, f->b + 22, 10); /* the sender becomes the target */
        memcpy(f->b + 22, our_mac, 6);
        memcpy(f->b + 28, our4, 4);
        return 1;
    case 1:
        swap(f->b + 26, f->b + 30, 4);
        put16(f->b + 18, 0);
        put16(f->b + 20, 0x4000);
        f->b[34] = 0;
        fix4(f);
        if (f->sz < 60) memset(f->b + f->sz, 0, 60 - f->sz);
        f->sz = f->sz < 60 ? 60 : f->sz;
        return 1;
    case 2:
        swap(f->b + 22, f->b + 38, 16);
        f->b[54] = 129;
        fix6(f);
        return 1;
    case 3:
        memcpy(f->b + 38, peer6, 16);
        memcpy(f->b + 22, our6, 16);
        f->b[54] = 136;
        f->b[58] = 0x60;
        f->b[78] = 2;
        memcpy(f->b + 80, our_mac, 6);
        fix6(f);
        return 1;
    default: return 0;
    }
}

static void a_capture_is_answered_byte_for_byte(void **state) {
    (void)state;
    char in[64], out[64];
    snprintf(in, sizeof in, "/tmp/tdm-test-%ld-in.pcap", (long)getpid());
    snprintf(out, sizeof out, "/tmp/tdm-test-%ld-out.pcap", (long)getpid());
    FILE *f = fopen(in, "wb");
    assert_non_null(f);
    pcap_begin(f);
    for (uint32_t i = 0; i < FRAME_CNT; i++) {
        test_frame_t frame = frame_of(i);
        pcap_put(f, &frame);
    }
    assert_int_equal(fclose(f), 0);

    tdm_port_config_t pc = {.kind = TDM_PORT_PCAP,
                            .mtu = 1500,
                            .rx_desc = 64,
                            .tx_desc = 64,
                            .mbuf_cnt = 1024,
                            .pcap_rx = in,
                            .pcap_tx = out};
    tdm_port_t *port = NULL;
    tdm_error_t err = {0};
    if (tdm_port_open(&pc, &port, &err) != TDM_OK) fail_msg("%s", err.text);
    tdm_link_config_t lc = link_config();
    tdm_link_t *l = link_make(&lc, 0);
    uint32_t seen = 0, datagrams = 0, cnt;
    struct rte_mbuf *m[TDM_PORT_BURST_MAX];
    while ((cnt = tdm_port_rx(port, m, TDM_PORT_BURST_MAX)) > 0) {
        for (uint32_t i = 0; i < cnt; i++, seen++) {
            struct rte_mbuf *r = tdm_port_mbuf_alloc(port);
            assert_non_null(r);
            tdm_link_verdict_t v =
                tdm_link_rx(l, rte_pktmbuf_mtod(m[i], uint8_t *), rte_pktmbuf_data_len(m[i]),
                            rte_pktmbuf_mtod(r, uint8_t *), rte_pktmbuf_tailroom(r), 0);
            datagrams += v.kind == TDM_LINK_DATAGRAM && v.datagram.payload_sz == seen;
            rte_pktmbuf_append(r, (uint16_t)v.reply_sz);
            if (v.kind == TDM_LINK_REPLY)
                assert_int_equal(tdm_port_tx(port, &r, 1), 1);
            else
                rte_pktmbuf_free(r);
            rte_pktmbuf_free(m[i]);
        }
    }
    const tdm_link_counters_t *n = tdm_link_counters(l);
    assert_int_equal(seen, FRAME_CNT);
    assert_int_equal(datagrams, FRAME_CNT / 4);
    assert_int_equal(n->datagrams, FRAME_CNT / 4);
    assert_int_equal(n->replies, FRAME_CNT / 2);
    assert_int_equal(n->rx_drop[TDM_DROP_ip_checksum], FRAME_CNT / 8);
    assert_int_equal(n->rx_drop[TDM_DROP_udp_checksum], FRAME_CNT / 8);
    assert_true(tdm_link_is_conserved(l));
    link_free(l);
    assert_int_equal(tdm_port_close(port), 0);

    f = fopen(out, "rb");
    pcap_file_t h;
    test_frame_t got, want;
    assert_non_null(f);
    assert_int_equal(fread(&h, sizeof h, 1, f), 1);
    for (uint32_t i = 0; i < FRAME_CNT; i++) {
        if (!answer_of(i, &want)) continue;
        assert_true(pcap_get(f, &got));
        assert_int_equal(got.sz, want.sz);
        assert_memory_equal(got.b, want.b, want.sz);
    }
    assert_false(pcap_get(f, &got));
    fclose(f);
    unlink(in);
    unlink(out);
}

static void a_missing_capture_is_named(void **state) {
    (void)state;
    tdm_port_config_t pc = {.kind = TDM_PORT_PCAP,
                            .mtu = 1500,
                            .rx_desc = 64,
                            .tx_desc = 64,
                            .mbuf_cnt = 256,
                            .pcap_rx = "/nonexistent.pcap"};
    tdm_port_t *port = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_port_open(&pc, &port, &err), TDM_ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent.pcap"));
}

int main(void) {
    if (env_begin(2048)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_is_answered_byte_for_byte),
        cmocka_unit_test(a_missing_capture_is_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_port_env_stop();
    return failed;
}
