/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a flood of any kind keeps every table at its size, is answered no
   faster than its rate, leaves the gateway where it was, and each of its
   frames has one fate.
   Method: COUNT frames of each kind at a million a second of the link's own
   time, with random sources; what came of them is printed, with the CPU
   time of a frame. */
#include "frames.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define REPLY_PER_S 1000u

static uint32_t count = 100000;

typedef struct flood {
    const char *name;
    test_frame_t frame;
    uint32_t random_at; /* two bytes of the source, at most 250 each; 0: always the same */
    int is_sum_kept;    /* the checksum is taken from the frame as it is */
    tdm_reason_t reason;
} flood_t;

static test_frame_t redirect_frame(void) {
    test_frame_t f = echo4_frame(28);
    f.b[34] = 5; /* go by another way */
    f.b[35] = 1;
    fix4(&f);
    return f;
}

static test_frame_t fragment4_frame(uint32_t offset, uint32_t is_last) {
    test_frame_t f = udp4_frame(64);
    put16(f.b + 20, offset / 8 | (is_last ? 0u : 0x2000u));
    fix4_header(&f);
    return f;
}

static test_frame_t fragment6_frame(void) {
    test_frame_t f = udp6_frame(64);
    f.b[20] = 44; /* a fragment header comes next */
    return f;
}

static test_frame_t gateway_frame(void) {
    static const uint8_t thief[6] = {2, 'e', 'v', 'i', 'l', 1};
    return arp_frame(2, thief, gateway4, our4);
}

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * TDM_NS_PER_S + t.tv_nsec;
}

/* learn_gateway lets the link ask for its gateway and hear the answer. */
static void learn_gateway(tdm_link_t *l, uint8_t *mac) {
    uint8_t frame[TDM_LINK_HEADER_MAX + 1], question[TDM_LINK_SOLICIT_MAX];
    tdm_endpoint_t far = {.port = 9, .version = 4, .addr = {192, 0, 2, 1}};
    uint32_t header_sz;
    (void)tdm_link_udp_wrap(l, &far, OUR_PORT, 0, frame + TDM_LINK_HEADER_MAX, 1, 0, &header_sz);
    assert_int_not_equal(tdm_link_solicit(l, question, sizeof question, 0), 0);
    test_frame_t answer = arp_frame(2, peer_mac, gateway4, our4);
    assert_int_equal(offer(l, &answer, 0, NULL).kind, TDM_LINK_CONSUMED);
    uint8_t out[TDM_LINK_HEADER_MAX + TDM_LINK_HELD_PAYLOAD_MAX];
    assert_int_not_equal(tdm_link_release(l, out, sizeof out, 0), 0);
    memcpy(mac, out, 6);
}

static void run(flood_t *f) {
    tdm_link_config_t c = link_config();
    uint8_t before[6], reply[2048];
    c.ipv4_prefix = 16;
    c.reply_per_s = REPLY_PER_S;
    memcpy(c.gateway4, gateway4, 4);
    tdm_link_t *l = link_make(&c, 0);
    learn_gateway(l, before);
    tdm_rng_t rng = {.state = 5};
    const tdm_link_counters_t *n = tdm_link_counters(l);
    uint64_t rx = n->rx_frames, replies = n->replies, drops = n->rx_drop[f->reason];
    uint64_t limited = n->rx_drop[TDM_DROP_reply_rate];
    int64_t from = cpu_ns(), now = 0;
    for (uint32_t i = 0; i < count; i++) {
        now = i * INT64_C(1000);
        if (f->random_at > 0) {
            f->frame.b[f->random_at] = (uint8_t)(1 + tdm_rng_below(&rng, 250));
            f->frame.b[f->random_at + 1] = (uint8_t)(1 + tdm_rng_below(&rng, 250));
            if (!f->is_sum_kept) fix4_header(&f->frame);
        }
        (void)tdm_link_rx(l, f->frame.b, f->frame.sz, reply, sizeof reply, now);
    }
    int64_t took = cpu_ns() - from;
    replies = n->replies - replies;
    drops = n->rx_drop[f->reason] - drops;
    limited = f->reason == TDM_DROP_reply_rate ? 0 : n->rx_drop[TDM_DROP_reply_rate] - limited;
    print_message(
        "%-22s %8u frames  %5llu answered  %8llu %-16s %3llu of %u neighbours  %4lld ns\n", f->name,
        count, (unsigned long long)replies, (unsigned long long)drops, tdm_reason_name(f->reason),
        (unsigned long long)n->neighbours, c.neighbour_max, (long long)took / count);
    assert_int_equal(n->rx_frames - rx, count);
    assert_int_equal(replies + drops + limited, count);
    assert_true(replies <= REPLY_PER_S + (uint64_t)count * REPLY_PER_S / 1000000 + 1);
    assert_true(n->neighbours <= c.neighbour_max);
    assert_true(tdm_link_is_conserved(l));
    /* The way to everyone else is the one that was asked for. */
    uint8_t frame[TDM_LINK_HEADER_MAX + 1];
    tdm_endpoint_t far = {.port = 9, .version = 4, .addr = {192, 0, 2, 1}};
    uint32_t header_sz;
    assert_int_equal(
        tdm_link_udp_wrap(l, &far, OUR_PORT, 0, frame + TDM_LINK_HEADER_MAX, 1, now, &header_sz),
        TDM_REASON_NONE);
    assert_int_not_equal(header_sz, 0);
    assert_memory_equal(frame + TDM_LINK_HEADER_MAX - header_sz, before, 6);
    link_free(l);
}

static void every_flood_keeps_to_its_bounds(void **state) {
    (void)state;
    flood_t flood[] = {
        {"ARP questions", arp_frame(1, peer_mac, peer4, our4), 30, 1, TDM_DROP_reply_rate},
        {"ARP answers", arp_frame(2, peer_mac, peer4, our4), 30, 1, TDM_DROP_arp_malformed},
        {"ARP, our gateway's name", gateway_frame(), 0, 1, TDM_DROP_arp_malformed},
        {"echo", echo4_frame(32), 28, 0, TDM_DROP_reply_rate},
        {"echo over IPv6", echo6_frame(32), 0, 1, TDM_DROP_reply_rate},
        {"redirect", redirect_frame(), 28, 0, TDM_DROP_icmp_ignored},
        {"ND solicitations", solicitation_frame(peer6, our6), 0, 1, TDM_DROP_reply_rate},
        {"ND advertisements", advertisement_frame(peer6, peer_mac), 0, 1, TDM_DROP_icmp_ignored},
        {"first fragments", fragment4_frame(0, 0), 28, 0, TDM_DROP_ip_fragment},
        {"middle fragments", fragment4_frame(1480, 0), 28, 0, TDM_DROP_ip_fragment},
        {"last fragments", fragment4_frame(65528, 1), 28, 0, TDM_DROP_ip_fragment},
        {"fragments over IPv6", fragment6_frame(), 0, 1, TDM_DROP_ip_fragment},
    };
    for (uint32_t i = 0; i < sizeof flood / sizeof *flood; i++) run(&flood[i]);
}

/* floods [COUNT]: frames of each kind. */
int main(int argc, char **argv) {
    if (argc > 1) count = (uint32_t)strtoul(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_flood_keeps_to_its_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
