/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ARP, echo and neighbour solicitations are answered right, their
   malformed kinds are dropped by reason, and answers have a rate.
   Method: hand-made frames; answers are taken apart byte by byte. */

#include "frames.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_link_t *l;

static int setup(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    l = link_make(&c, 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    link_free(l);
    return 0;
}

static void arp_request_is_answered_to_its_sender(void **state) {
    (void)state;
    test_frame_t r, f = arp_frame(1, peer_mac, peer4, our4);
    assert_int_equal(offer(l, &f, 0, &r).kind, TDM_LINK_REPLY);
    assert_int_equal(r.sz, 60);
    assert_memory_equal(r.b, peer_mac, 6);
    assert_memory_equal(r.b + 6, our_mac, 6);
    assert_int_equal(get16(r.b + 12), 0x0806);
    assert_int_equal(get16(r.b + 20), 2);
    assert_memory_equal(r.b + 22, our_mac, 6);
    assert_memory_equal(r.b + 28, our4, 4);
    assert_memory_equal(r.b + 32, peer_mac, 6);
    assert_memory_equal(r.b + 38, peer4, 4);
    for (uint32_t i = 42; i < 60; i++) assert_int_equal(r.b[i], 0);
}

static void arp_probe_is_answered_and_not_learned(void **state) {
    (void)state;
    static const uint8_t none[4];
    test_frame_t f = arp_frame(1, peer_mac, none, our4);
    assert_int_equal(offer(l, &f, 0, NULL).kind, TDM_LINK_REPLY);
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
}

static void malformed_arp_is_dropped(void **state) {
    (void)state;
    static const struct {
        uint32_t at, value;
    } bad[] = {{14, 0},      {14, 6}, {16, 0x86dd}, {18, 0x0604 + 1},
               {18, 0x0704}, {20, 0}, {20, 3},      {20, 0xffff}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        test_frame_t f = arp_frame(1, peer_mac, peer4, our4);
        put16(f.b + bad[i].at, bad[i].value);
        assert_int_equal(reason_of(l, &f), TDM_DROP_arp_malformed);
    }
    static const uint8_t bad_mac[][6] = {{0}, {1, 0, 0, 0, 0, 1}, {2, 't', 'd', 'm', 0, 2}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad_mac); i++) {
        test_frame_t f = arp_frame(1, bad_mac[i], peer4, our4);
        assert_int_equal(reason_of(l, &f), TDM_DROP_arp_malformed);
    }
    static const uint8_t bad_ip[][4] = {{10, 88, 0, 2},   {10, 88, 0, 255}, {10, 88, 0, 0},
                                        {192, 168, 0, 1}, {127, 0, 0, 1},   {224, 0, 0, 1}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad_ip); i++) {
        test_frame_t f = arp_frame(1, peer_mac, bad_ip[i], our4);
        assert_int_equal(reason_of(l, &f), TDM_DROP_arp_malformed);
    }
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
}

static void arp_for_others_is_not_ours(void **state) {
    (void)state;
    test_frame_t f = arp_frame(1, peer_mac, peer4, gateway4);
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_not_ours);
    f = arp_frame(1, peer_mac, peer4, peer4); /* gratuitous */
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_not_ours);
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
}

static void echo_is_returned_byte_for_byte(void **state) {
    (void)state;
    for (uint32_t sz = 0; sz <= 1472; sz += 23) {
        test_frame_t r, f = echo4_frame(sz);
        assert_int_equal(offer(l, &f, 0, &r).kind, TDM_LINK_REPLY);
        assert_int_equal(r.sz, f.sz < 60 ? 60 : f.sz); /* never more than was asked */
        assert_memory_equal(r.b, peer_mac, 6);
        assert_memory_equal(r.b + 26, our4, 4);
        assert_memory_equal(r.b + 30, peer4, 4);
        assert_int_equal(reference_sum(r.b + 14, 20, 0), 0xffff);
        assert_int_equal(reference_sum(r.b + 34, 8 + sz, 0), 0xffff);
        assert_int_equal(get16(r.b + 34), 0);
        assert_memory_equal(r.b + 38, f.b + 38, 4 + sz);
    }
}

static void echo6_is_returned_byte_for_byte(void **state) {
    (void)state;
    for (uint32_t sz = 0; sz <= 1452; sz += 23) {
        test_frame_t r, f = echo6_frame(sz);
        assert_int_equal(offer(l, &f, 0, &r).kind, TDM_LINK_REPLY);
        assert_int_equal(r.sz, f.sz);
        assert_memory_equal(r.b + 22, our6, 16);
        assert_memory_equal(r.b + 38, peer6, 16);
        uint32_t body = 8 + sz;
        assert_int_equal(
            reference_sum(r.b + 54, body, (uint32_t)reference_sum(r.b + 22, 32, 0) + 58 + body),
            0xffff);
        assert_int_equal(get16(r.b + 54), 129 << 8);
        assert_memory_equal(r.b + 58, f.b + 58, 4 + sz);
    }
}

static void every_icmp_type_but_echo_is_ignored(void **state) {
    (void)state;
    for (uint32_t type = 0; type < 256; type++) {
        test_frame_t f = echo4_frame(16);
        f.b[34] = (uint8_t)type;
        fix4(&f);
        assert_int_equal(reason_of(l, &f), type == 8 ? TDM_REASON_NONE : TDM_DROP_icmp_ignored);
        f.b[36] ^= 1;
        assert_int_equal(reason_of(l, &f), TDM_DROP_icmp_malformed);
        f = echo6_frame(16);
        f.b[54] = (uint8_t)type;
        fix6(&f);
        int is_nd = type == 135 || type == 136; /* hop limit 64, too short */
        assert_int_equal(reason_of(l, &f), type == 128 ? TDM_REASON_NONE
                                           : is_nd     ? TDM_DROP_nd_malformed
                                                       : TDM_DROP_icmp_ignored);
    }
    test_frame_t f = echo4_frame(16);
    f.b[35] = 1; /* a code that echo does not have */
    fix4(&f);
    assert_int_equal(reason_of(l, &f), TDM_DROP_icmp_ignored);
}

static void solicitation_is_answered_with_our_address(void **state) {
    (void)state;
    test_frame_t r, f = solicitation_frame(peer6, our6);
    assert_int_equal(offer(l, &f, 0, &r).kind, TDM_LINK_REPLY);
    assert_int_equal(r.sz, 14 + 40 + 32);
    assert_memory_equal(r.b, peer_mac, 6);
    assert_memory_equal(r.b + 22, our6, 16);
    assert_memory_equal(r.b + 38, peer6, 16);
    assert_int_equal(r.b[21], 255);
    assert_int_equal(r.b[54], 136);
    assert_int_equal(r.b[58], 0x60);
    assert_memory_equal(r.b + 62, our6, 16);
    assert_int_equal(get16(r.b + 78), 2 << 8 | 1);
    assert_memory_equal(r.b + 80, our_mac, 6);
    assert_int_equal(
        reference_sum(r.b + 54, 32, (uint32_t)reference_sum(r.b + 22, 32, 0) + 58 + 32), 0xffff);
}

static void duplicate_address_detection_hears_of_us(void **state) {
    (void)state;
    static const uint8_t none[16];
    test_frame_t r, f = solicitation_frame(none, our6);
    f.sz -= 8; /* RFC 4861 7.1.1: no option when the source is unspecified */
    put16(f.b + 18, 24);
    fix6(&f);
    assert_int_equal(offer(l, &f, 0, &r).kind, TDM_LINK_REPLY);
    assert_int_equal(get16(r.b), 0x3333); /* to all nodes */
    assert_int_equal(r.b[38], 0xff);
    assert_int_equal(r.b[58], 0x20);
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
    f = solicitation_frame(none, our6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_nd_malformed);
}

static void malformed_neighbour_discovery_is_dropped(void **state) {
    (void)state;
    const test_frame_t good[] = {solicitation_frame(peer6, our6),
                                 advertisement_frame(peer6, peer_mac)};
    for (size_t i = 0; i < TDM_COUNT_OF(good); i++) {
        static const struct {
            uint32_t at;
            uint8_t value;
        } bad[] = {{21, 254}, {21, 1}, {55, 1}, {62, 0xff}, {79, 0}, {79, 2}, {79, 255}};
        for (size_t k = 0; k < TDM_COUNT_OF(bad); k++) {
            test_frame_t f = good[i];
            f.b[bad[k].at] = bad[k].value;
            fix6(&f);
            assert_int_equal(reason_of(l, &f), TDM_DROP_nd_malformed);
        }
        for (uint32_t cut = 1; cut < 32; cut++) { /* 24 bytes without option are whole */
            if (cut == 8) continue;
            test_frame_t f = good[i];
            f.sz -= cut;
            put16(f.b + 18, 32 - cut);
            fix6(&f);
            tdm_reason_t want = 32 - cut < 4 ? TDM_DROP_icmp_malformed : TDM_DROP_nd_malformed;
            assert_int_equal(reason_of(l, &f), want);
        }
        test_frame_t f = good[i];
        f.b[80] |= 1; /* a group as link address */
        fix6(&f);
        assert_int_equal(reason_of(l, &f), TDM_DROP_nd_malformed);
    }
    test_frame_t f = solicitation_frame(gateway6, gateway6); /* not about us */
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_not_ours);
    static const uint8_t far[16] = {0x20, 1, [15] = 1};
    f = solicitation_frame(far, our6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_nd_malformed);
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
}

static void options_of_neighbour_discovery_have_their_size(void **state) {
    (void)state;
    for (uint32_t type = 0; type < 256; type++) { /* no option may be empty, known or not */
        test_frame_t f = solicitation_frame(peer6, our6);
        put16(f.b + 78, type << 8);
        fix6(&f);
        assert_int_equal(reason_of(l, &f), TDM_DROP_nd_malformed);
    }
    for (uint32_t type = 0; type < 4; type++) { /* an unknown one may be longer, ours not */
        test_frame_t f = solicitation_frame(peer6, our6);
        f.sz += 8;
        put16(f.b + 18, 40);
        put16(f.b + 78, type << 8 | 2);
        fix6(&f);
        assert_int_equal(reason_of(l, &f), type == 1 ? TDM_DROP_nd_malformed : TDM_REASON_NONE);
    }
}

static void unasked_answers_are_ignored(void **state) {
    (void)state;
    test_frame_t f = advertisement_frame(peer6, peer_mac);
    assert_int_equal(reason_of(l, &f), TDM_DROP_icmp_ignored);
    f = arp_frame(2, peer_mac, peer4, our4);
    assert_int_equal(reason_of(l, &f), TDM_DROP_arp_malformed);
    assert_int_equal(tdm_link_counters(l)->neighbours, 0);
}

static void answers_keep_to_their_rate(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    c.reply_per_s = 100;
    tdm_link_t *limited = link_make(&c, 0);
    const test_frame_t kinds[] = {arp_frame(1, peer_mac, peer4, our4), echo4_frame(8),
                                  echo6_frame(8), solicitation_frame(peer6, our6)};
    uint64_t answered = 0;
    for (uint32_t i = 0; i < 40000; i++) { /* four seconds of flood, all kinds */
        int64_t now = i * TDM_NS_PER_S / 10000;
        tdm_link_verdict_t v = offer(limited, &kinds[i % 4], now, NULL);
        if (v.kind == TDM_LINK_DROP) assert_int_equal(v.reason, TDM_DROP_reply_rate);
        answered += v.kind == TDM_LINK_REPLY;
    }
    assert_in_range(answered, 495, 501); /* one second's worth at once, then 100 a second */
    test_frame_t f = udp4_frame(8);      /* datagrams know no such limit */
    assert_int_equal(offer(limited, &f, 4 * TDM_NS_PER_S, NULL).kind, TDM_LINK_DATAGRAM);
    link_free(limited);
}

static void a_clock_that_goes_back_neither_gives_nor_takes(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    c.reply_per_s = 10;
    tdm_link_t *limited = link_make(&c, TDM_NS_PER_S);
    test_frame_t f = echo4_frame(8);
    for (uint32_t i = 0; i < 1000; i++) { /* ten were saved up, whatever the clock does */
        tdm_link_verdict_t v = offer(limited, &f, i % 2 ? 0 : TDM_NS_PER_S, NULL);
        assert_int_equal(v.kind, i < 10 ? TDM_LINK_REPLY : TDM_LINK_DROP);
    }
    link_free(limited);
}

static void replies_carry_our_vlan(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    c.vlan = 7;
    tdm_link_t *v7 = link_make(&c, 0);
    test_frame_t r, f = echo4_frame(32);
    memmove(f.b + 16, f.b + 12, f.sz - 12);
    put16(f.b + 12, 0x8100);
    put16(f.b + 14, 7);
    f.sz += 4;
    assert_int_equal(offer(v7, &f, 0, &r).kind, TDM_LINK_REPLY);
    assert_int_equal(r.sz, f.sz);
    assert_int_equal(get16(r.b + 12), 0x8100);
    assert_int_equal(get16(r.b + 14), 7);
    assert_int_equal(get16(r.b + 16), 0x0800);
    link_free(v7);
}

static void a_small_reply_buffer_is_never_overrun(void **state) {
    (void)state;
    const test_frame_t kinds[] = {arp_frame(1, peer_mac, peer4, our4), echo4_frame(100),
                                  echo6_frame(100), solicitation_frame(peer6, our6)};
    for (size_t i = 0; i < TDM_COUNT_OF(kinds); i++) {
        for (uint32_t cap = 0; cap < 256; cap++) {
            uint8_t *out = malloc(cap > 0 ? cap : 1);
            tdm_link_verdict_t v = tdm_link_rx(l, kinds[i].b, kinds[i].sz, out, cap, 0);
            if (v.kind == TDM_LINK_REPLY) assert_true(v.reply_sz <= cap);
            free(out);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(arp_request_is_answered_to_its_sender),
        TEST(arp_probe_is_answered_and_not_learned),
        TEST(malformed_arp_is_dropped),
        TEST(arp_for_others_is_not_ours),
        TEST(echo_is_returned_byte_for_byte),
        TEST(echo6_is_returned_byte_for_byte),
        TEST(every_icmp_type_but_echo_is_ignored),
        TEST(solicitation_is_answered_with_our_address),
        TEST(duplicate_address_detection_hears_of_us),
        TEST(malformed_neighbour_discovery_is_dropped),
        TEST(options_of_neighbour_discovery_have_their_size),
        TEST(unasked_answers_are_ignored),
        TEST(answers_keep_to_their_rate),
        TEST(a_clock_that_goes_back_neither_gives_nor_takes),
        TEST(replies_carry_our_vlan),
        TEST(a_small_reply_buffer_is_never_overrun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
