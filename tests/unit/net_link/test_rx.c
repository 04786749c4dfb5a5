/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every field of every header of a UDP datagram is checked, and a
   wrong one has exactly one reason.
   Method: a table of fields; each takes its border values and sixteen
   random ones, with the checksums made right again and with a wrong one,
   and the row's own rule says what must come out. */

#include "frames.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAYLOAD_SZ 100u
#define IP4_TOTAL  (20u + 8u + PAYLOAD_SZ)
#define UDP_SZ     (8u + PAYLOAD_SZ)

typedef enum sum_state { RIGHT, WRONG } sum_state_t;

/* A row: where the field lies, how wide it is, what must come out for a
   value.  The rule is told whether the checksums are right. */
typedef struct row {
    const char *name;
    uint32_t at, bytes, shift, bits; /* bits counted from shift, in a big-endian word */
    tdm_reason_t (*rule)(uint32_t v, sum_state_t sum);
} row_t;

#define OK TDM_REASON_NONE

/* --- rules for IPv4 ------------------------------------------------- */

static tdm_reason_t any_value(uint32_t v, sum_state_t sum) {
    (void)v;
    return sum == RIGHT ? OK : TDM_DROP_ip_checksum;
}
static tdm_reason_t ethertype4(uint32_t v, sum_state_t sum) {
    switch (v) {
    case 0x0800: return sum == RIGHT ? OK : TDM_DROP_ip_checksum;
    case 0x0806: return TDM_DROP_arp_malformed;
    case 0x86dd: return TDM_DROP_ip_version;
    case 0x8100:
    case 0x88a8:
    case 0x9100: return TDM_DROP_vlan_unknown;
    default: return TDM_DROP_ethertype_unknown;
    }
}
static tdm_reason_t version4(uint32_t v, sum_state_t sum) {
    return v != 4 ? TDM_DROP_ip_version : any_value(v, sum);
}
static tdm_reason_t ihl(uint32_t v, sum_state_t sum) {
    if (v < 5) return TDM_DROP_ip_header_length;
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return v == 5 ? OK : TDM_DROP_ip_options;
}
static tdm_reason_t total_length(uint32_t v, sum_state_t sum) {
    if (v < 20 || v > IP4_TOTAL) return TDM_DROP_ip_total_length;
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return v == IP4_TOTAL ? OK : TDM_DROP_udp_length;
}
static tdm_reason_t flags_and_offset(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return v == 0 || v == 0x4000 ? OK : TDM_DROP_ip_fragment;
}
static tdm_reason_t ttl(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return v == 0 ? TDM_DROP_ip_ttl : OK;
}
static tdm_reason_t protocol4(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    if (v == 17) return OK;
    return v == 1 ? TDM_DROP_icmp_ignored : TDM_DROP_ip_protocol;
}
/* First two bytes of the source; the rest stays 0.1. */
static tdm_reason_t source4(uint32_t v, sum_state_t sum) {
    uint32_t first = v >> 8;
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return first == 0 || first == 127 || first >= 224 ? TDM_DROP_ip_source : OK;
}
static tdm_reason_t destination4(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_ip_checksum;
    return v == (10u << 8 | 88) ? OK : TDM_DROP_ip_not_ours;
}

/* --- rules for UDP, with its own checksum --------------------------- */

static tdm_reason_t udp_any(uint32_t v, sum_state_t sum) {
    (void)v;
    return sum == RIGHT ? OK : TDM_DROP_udp_checksum;
}
static tdm_reason_t udp_source_port(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_udp_checksum;
    return v == 0 ? TDM_DROP_udp_port : OK;
}
static tdm_reason_t udp_destination_port(uint32_t v, sum_state_t sum) {
    if (sum == WRONG) return TDM_DROP_udp_checksum;
    return v == OUR_PORT ? OK : TDM_DROP_udp_port;
}
static tdm_reason_t udp_length(uint32_t v, sum_state_t sum) {
    if (v < 8 || v > UDP_SZ) return TDM_DROP_udp_length;
    return sum == RIGHT ? OK : TDM_DROP_udp_checksum;
}

/* --- rules for IPv6, which has no header checksum ------------------- */

static tdm_reason_t ethertype6(uint32_t v, sum_state_t sum) {
    switch (v) {
    case 0x86dd: return sum == RIGHT ? OK : TDM_DROP_udp_checksum;
    case 0x0800: return TDM_DROP_ip_version;
    default: return ethertype4(v, sum);
    }
}
static tdm_reason_t version6(uint32_t v, sum_state_t sum) {
    return v != 6 ? TDM_DROP_ip_version : udp_any(v, sum);
}
static tdm_reason_t payload_length(uint32_t v, sum_state_t sum) {
    if (v > UDP_SZ) return TDM_DROP_ip_total_length;
    return v < UDP_SZ ? TDM_DROP_udp_length : udp_any(v, sum);
}
static tdm_reason_t next_header(uint32_t v, sum_state_t sum) {
    switch (v) {
    case 17: return udp_any(v, sum);
    case 58: return sum == RIGHT ? TDM_DROP_icmp_ignored : TDM_DROP_icmp_malformed;
    case 44: return TDM_DROP_ip_fragment;
    case 0:
    case 43:
    case 50:
    case 51:
    case 60:
    case 135:
    case 139:
    case 140: return TDM_DROP_ip_options;
    default: return TDM_DROP_ip_protocol;
    }
}
static tdm_reason_t hop_limit(uint32_t v, sum_state_t sum) {
    return v == 0 ? TDM_DROP_ip_ttl : udp_any(v, sum);
}
/* First two bytes of the source, the rest ::1: multicast, and ::1 itself. */
static tdm_reason_t source6(uint32_t v, sum_state_t sum) {
    return v >> 8 == 0xff || v == 0 ? TDM_DROP_ip_source : udp_any(v, sum);
}
static tdm_reason_t destination6(uint32_t v, sum_state_t sum) {
    return v == 0xfd88 ? udp_any(v, sum) : TDM_DROP_ip_not_ours;
}

static const row_t row4[] = {
    {"ethertype", 12, 2, 0, 16, ethertype4},
    {"version", 14, 1, 4, 4, version4},
    {"header length", 14, 1, 0, 4, ihl},
    {"type of service", 15, 1, 0, 8, any_value},
    {"total length", 16, 2, 0, 16, total_length},
    {"identification", 18, 2, 0, 16, any_value},
    {"flags and offset", 20, 2, 0, 16, flags_and_offset},
    {"time to live", 22, 1, 0, 8, ttl},
    {"protocol", 23, 1, 0, 8, protocol4},
    {"source", 26, 2, 0, 16, source4},
    {"destination", 30, 2, 0, 16, destination4},
};
static const row_t row4_udp[] = {
    {"source port", 34, 2, 0, 16, udp_source_port},
    {"destination port", 36, 2, 0, 16, udp_destination_port},
    {"udp length", 38, 2, 0, 16, udp_length},
};
static const row_t row6[] = {
    {"ethertype", 12, 2, 0, 16, ethertype6},
    {"version", 14, 1, 4, 4, version6},
    {"traffic class", 14, 2, 4, 8, udp_any},
    {"flow label", 16, 2, 0, 16, udp_any},
    {"payload length", 18, 2, 0, 16, payload_length},
    {"next header", 20, 1, 0, 8, next_header},
    {"hop limit", 21, 1, 0, 8, hop_limit},
    {"source", 22, 2, 0, 16, source6},
    {"destination", 38, 2, 0, 16, destination6},
    {"source port", 54, 2, 0, 16, udp_source_port},
    {"destination port", 56, 2, 0, 16, udp_destination_port},
    {"udp length", 58, 2, 0, 16, udp_length},
};

/* --- the table's driver --------------------------------------------- */

static uint32_t field_get(const test_frame_t *f, const row_t *r) {
    uint32_t w = r->bytes == 1 ? f->b[r->at] : get16(f->b + r->at);
    return w >> r->shift & ((1u << r->bits) - 1);
}

static void field_set(test_frame_t *f, const row_t *r, uint32_t v) {
    uint32_t mask = ((1u << r->bits) - 1) << r->shift;
    uint32_t w = r->bytes == 1 ? f->b[r->at] : get16(f->b + r->at);
    w = (w & ~mask) | (v << r->shift & mask);
    if (r->bytes == 1)
        f->b[r->at] = (uint8_t)w;
    else
        put16(f->b + r->at, w);
}

/* values_of: zero, one, the two largest, the right value and its
   neighbours, and sixteen random ones. */
static uint32_t values_of(const row_t *r, uint32_t right, tdm_rng_t *rng, uint32_t out[32]) {
    uint32_t max = (1u << r->bits) - 1, n = 0;
    const uint32_t border[] = {0, 1, max - 1, max, right, right - 1, right + 1};
    for (size_t i = 0; i < TDM_COUNT_OF(border); i++) out[n++] = border[i] & max;
    for (uint32_t i = 0; i < 16; i++) out[n++] = tdm_rng_below(rng, max + 1);
    if (r->bits == 8) { /* the protocols and next headers that mean something */
        static const uint8_t known[] = {1, 17, 43, 44, 58, 59, 135};
        for (size_t i = 0; i < TDM_COUNT_OF(known); i++) out[n++] = known[i];
    }
    return n;
}

typedef void (*fixer_t)(test_frame_t *f, sum_state_t sum);

static void fix_ip4(test_frame_t *f, sum_state_t sum) {
    fix4(f);
    if (sum == WRONG) f->b[24] ^= 0x10;
}
static void fix_udp4(test_frame_t *f, sum_state_t sum) {
    fix4(f);
    if (sum == WRONG) f->b[40] ^= 0x10;
}
static void fix_udp6(test_frame_t *f, sum_state_t sum) {
    fix6(f);
    if (sum == WRONG) f->b[f->b[20] == 58 ? 56 : 60] ^= 0x10;
}

static uint32_t table_run(const test_frame_t *good, const row_t *row, size_t row_cnt, fixer_t fixer,
                          uint64_t seed) {
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    tdm_rng_t rng = {.state = seed};
    uint32_t frames = 0;
    for (size_t i = 0; i < row_cnt; i++) {
        uint32_t value[32], n = values_of(&row[i], field_get(good, &row[i]), &rng, value);
        for (uint32_t k = 0; k < 2 * n; k++) {
            test_frame_t f = *good;
            sum_state_t sum = k % 2 == 0 ? RIGHT : WRONG;
            field_set(&f, &row[i], value[k / 2]);
            fixer(&f, sum);
            tdm_reason_t want = row[i].rule(value[k / 2], sum), got = reason_of(l, &f);
            if (want != got)
                fail_msg("%s = %u, checksum %s: want %s, got %s (seed %llu)", row[i].name,
                         value[k / 2], sum == RIGHT ? "right" : "wrong", tdm_reason_name(want),
                         tdm_reason_name(got), (unsigned long long)seed);
            frames++;
        }
    }
    link_free(l);
    return frames;
}

static void every_ipv4_field_has_its_reason(void **state) {
    (void)state;
    test_frame_t good = udp4_frame(PAYLOAD_SZ);
    uint32_t frames = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        frames += table_run(&good, row4, TDM_COUNT_OF(row4), fix_ip4, seed);
        frames += table_run(&good, row4_udp, TDM_COUNT_OF(row4_udp), fix_udp4, seed);
    }
    assert_true(frames > 5000);
}

static void every_ipv6_field_has_its_reason(void **state) {
    (void)state;
    test_frame_t good = udp6_frame(PAYLOAD_SZ);
    for (uint64_t seed = 1; seed <= 8; seed++)
        table_run(&good, row6, TDM_COUNT_OF(row6), fix_udp6, seed);
}

/* --- what a table of single fields does not reach ------------------- */

static void good_datagrams_are_delivered_as_sent(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t sz = 0; sz <= 1452; sz += 11) {
        test_frame_t f[2] = {udp4_frame(sz), udp6_frame(sz)};
        for (uint32_t i = 0; i < 2; i++) {
            f[i].b[15] = (uint8_t)(i == 0 ? 0x03 : 0x30); /* ECN: congestion experienced */
            if (i == 0) fix4(&f[i]);
            tdm_link_verdict_t v = tdm_link_rx(l, f[i].b, f[i].sz, NULL, 0, 0);
            assert_int_equal(v.kind, TDM_LINK_DATAGRAM);
            assert_int_equal(v.datagram.payload_sz, sz);
            assert_ptr_equal(v.datagram.payload, f[i].b + (i == 0 ? 42 : 62));
            assert_int_equal(v.datagram.ecn, 3);
            assert_int_equal(v.datagram.remote.version, i == 0 ? 4 : 6);
            assert_int_equal(v.datagram.remote.port, PEER_PORT);
            assert_int_equal(v.datagram.local.port, OUR_PORT);
            assert_memory_equal(v.datagram.remote.addr, i == 0 ? peer4 : peer6, i == 0 ? 4 : 16);
            assert_memory_equal(v.datagram.local.addr, i == 0 ? our4 : our6, i == 0 ? 4 : 16);
        }
    }
    link_free(l);
}

static void every_cut_of_a_frame_is_dropped(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    const test_frame_t whole[] = {udp4_frame(PAYLOAD_SZ), udp6_frame(PAYLOAD_SZ), echo4_frame(40),
                                  echo6_frame(40), solicitation_frame(peer6, our6)};
    for (size_t i = 0; i < TDM_COUNT_OF(whole); i++) {
        for (uint32_t sz = 0; sz < whole[i].sz; sz++) {
            test_frame_t f = whole[i];
            f.sz = sz;
            tdm_link_verdict_t v = offer(l, &f, 0, NULL);
            assert_int_equal(v.kind, TDM_LINK_DROP);
            uint32_t ip_sz = i == 0 || i == 2 ? 34 : 54;
            assert_int_equal(v.reason,
                             sz < ip_sz ? TDM_DROP_frame_short : TDM_DROP_ip_total_length);
        }
    }
    test_frame_t arp = arp_frame(1, peer_mac, peer4, our4);
    for (arp.sz = 0; arp.sz < 42; arp.sz++)
        assert_int_equal(reason_of(l, &arp), TDM_DROP_frame_short);
    link_free(l);
}

static void padding_behind_the_packet_is_ignored(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t pad = 0; pad < 64; pad++) {
        test_frame_t f4 = udp4_frame(3), f6 = udp6_frame(3);
        f4.sz += pad;
        f6.sz += pad;
        assert_int_equal(offer(l, &f4, 0, NULL).datagram.payload_sz, 3);
        assert_int_equal(offer(l, &f6, 0, NULL).datagram.payload_sz, 3);
    }
    link_free(l);
}

static void header_length_and_total_length_cannot_lie_together(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t n = 0; n < 16; n++) {
        uint32_t header = n * 4;
        const uint32_t total[] = {0, 19, 20, header - 1, header, IP4_TOTAL, 65535};
        for (size_t k = 0; k < TDM_COUNT_OF(total); k++) {
            test_frame_t f = udp4_frame(PAYLOAD_SZ);
            uint32_t t = total[k] & 0xffff;
            f.b[14] = (uint8_t)(0x40 | n);
            put16(f.b + 16, t);
            fix4_header(&f);
            tdm_reason_t want = header < 20                   ? TDM_DROP_ip_header_length
                                : t < header || t > IP4_TOTAL ? TDM_DROP_ip_total_length
                                : header > 20                 ? TDM_DROP_ip_options
                                : t < IP4_TOTAL               ? TDM_DROP_udp_length
                                                              : TDM_REASON_NONE;
            assert_int_equal(reason_of(l, &f), want);
        }
    }
    /* A header that leaves the frame. */
    test_frame_t f = udp4_frame(0);
    f.b[14] = 0x4f;
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_header_length);
    link_free(l);
}

static void the_reserved_flag_must_be_zero(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t flags = 0; flags < 8; flags++) {
        test_frame_t f = udp4_frame(8);
        put16(f.b + 20, flags << 13);
        fix4(&f);
        int is_whole = flags == 0 || flags == 2; /* "don't fragment" or nothing */
        assert_int_equal(reason_of(l, &f), is_whole ? TDM_REASON_NONE : TDM_DROP_ip_fragment);
    }
    link_free(l);
}

static void a_subnet_of_two_has_no_edges(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    c.ipv4_prefix = 31;
    c.ipv4[3] = 1;
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t f = udp4_frame(8);
    f.b[29] = 0; /* 10.88.0.0 to 10.88.0.1: both hosts (RFC 3021) */
    f.b[33] = 1;
    fix4(&f);
    assert_int_equal(reason_of(l, &f), TDM_REASON_NONE);
    link_free(l);
}

static void stations_other_than_us_are_not_ours(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t bit = 0; bit < 48; bit++) {
        test_frame_t f = udp4_frame(8);
        f.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(reason_of(l, &f), TDM_DROP_mac_not_ours);
    }
    /* Groups carry only what belongs to groups. */
    test_frame_t f = udp4_frame(8);
    memcpy(f.b, broadcast_mac, 6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_mac_not_ours);
    memcpy(f.b, group6_mac, 6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_mac_not_ours);
    f = udp6_frame(8);
    memcpy(f.b, group6_mac, 6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_not_ours);
    memcpy(f.b, broadcast_mac, 6);
    assert_int_equal(reason_of(l, &f), TDM_DROP_mac_not_ours);
    f = udp6_frame(8);
    memcpy(f.b + 38, group6, 16);
    fix6(&f);
    assert_int_equal(reason_of(l, &f), TDM_DROP_ip_not_ours);
    /* Senders that are no station. */
    static const uint8_t none[6];
    const uint8_t *bad[] = {none, broadcast_mac, group6_mac, our_mac};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        f = udp4_frame(8);
        memcpy(f.b + 6, bad[i], 6);
        assert_int_equal(reason_of(l, &f), TDM_DROP_ip_source);
    }
    link_free(l);
}

static void sources_that_no_reply_may_reach_are_refused(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    static const uint8_t bad4[][4] = {{0, 0, 0, 0},   {127, 0, 0, 1},   {10, 88, 0, 2},
                                      {10, 88, 0, 0}, {10, 88, 0, 255}, {224, 0, 0, 1},
                                      {239, 1, 2, 3}, {240, 0, 0, 1},   {255, 255, 255, 255}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad4); i++) {
        test_frame_t f = udp4_frame(8);
        memcpy(f.b + 26, bad4[i], 4);
        fix4(&f);
        assert_int_equal(reason_of(l, &f), TDM_DROP_ip_source);
    }
    static const uint8_t bad6[][16] = {{0},
                                       {[15] = 1},
                                       {[10] = 0xff, 0xff, 10, 88, 0, 1},
                                       {0xff, 2, [15] = 1},
                                       {0xfd, 0x88, [15] = 2}};
    for (size_t i = 0; i < TDM_COUNT_OF(bad6); i++) {
        test_frame_t f = udp6_frame(8);
        memcpy(f.b + 22, bad6[i], 16);
        fix6(&f);
        assert_int_equal(reason_of(l, &f), TDM_DROP_ip_source);
    }
    link_free(l);
}

static void udp_checksum_zero_means_none_over_ipv4_only(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t f = udp4_frame(8);
    put16(f.b + 40, 0);
    assert_int_equal(reason_of(l, &f), TDM_REASON_NONE);
    f = udp6_frame(8);
    put16(f.b + 60, 0);
    assert_int_equal(reason_of(l, &f), TDM_DROP_udp_checksum);
    /* A sum that comes out as zero travels as all ones; and only so. */
    f = udp4_frame(2);
    put16(f.b + 42, 0);
    fix4(&f);
    put16(f.b + 42, get16(f.b + 40)); /* now the data cancel the sum */
    fix4(&f);
    assert_int_equal(get16(f.b + 40), 0xffff);
    assert_int_equal(reason_of(l, &f), TDM_REASON_NONE);
    link_free(l);
}

/* --- VLAN ----------------------------------------------------------- */

static test_frame_t tagged(test_frame_t f, uint32_t type, uint32_t tci) {
    memmove(f.b + 16, f.b + 12, f.sz - 12);
    put16(f.b + 12, type);
    put16(f.b + 14, tci);
    f.sz += 4;
    return f;
}

static void only_our_vlan_is_taken(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t ours = pass == 0 ? 0 : 7;
        c.vlan = (uint16_t)ours;
        tdm_link_t *l = link_make(&c, 0);
        test_frame_t plain = udp4_frame(8);
        tdm_reason_t untagged = ours == 0 ? TDM_REASON_NONE : TDM_DROP_vlan_unknown;
        assert_int_equal(reason_of(l, &plain), untagged);
        for (uint32_t priority = 0; priority < 16; priority++) { /* DEI included */
            for (uint32_t vlan = 0; vlan < 4096; vlan += vlan < 8 ? 1 : 511) {
                test_frame_t f = tagged(plain, 0x8100, priority << 12 | vlan);
                assert_int_equal(reason_of(l, &f),
                                 vlan == ours ? TDM_REASON_NONE : TDM_DROP_vlan_unknown);
            }
        }
        static const uint32_t type[] = {0x8100, 0x88a8, 0x9100};
        for (uint32_t i = 0; i < 9; i++) { /* two tags, in any dress */
            test_frame_t f = tagged(tagged(plain, type[i % 3], ours), type[i / 3], ours);
            assert_int_equal(reason_of(l, &f), TDM_DROP_vlan_unknown);
        }
        test_frame_t f = tagged(plain, 0x8100, ours);
        for (f.sz = 14; f.sz < 18; f.sz++) assert_int_equal(reason_of(l, &f), TDM_DROP_frame_short);
        link_free(l);
    }
}

/* --- noise ---------------------------------------------------------- */

static void noise_never_breaks_the_accounts(void **state) {
    (void)state;
    const uint64_t seed = 20221120;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    tdm_rng_t rng = {.state = seed};
    const test_frame_t base[] = {udp4_frame(60),
                                 udp6_frame(60),
                                 echo4_frame(30),
                                 echo6_frame(30),
                                 arp_frame(1, peer_mac, peer4, our4),
                                 solicitation_frame(peer6, our6),
                                 advertisement_frame(peer6, peer_mac)};
    for (uint32_t i = 0; i < 60000; i++) {
        test_frame_t f = base[tdm_rng_below(&rng, TDM_COUNT_OF(base))];
        for (uint32_t k = tdm_rng_below(&rng, 4); k > 0; k--)
            f.b[tdm_rng_below(&rng, f.sz)] = (uint8_t)tdm_rng_next(&rng);
        if (tdm_rng_below(&rng, 4) == 0) f.sz = tdm_rng_below(&rng, f.sz + 1);
        if (f.sz >= 54 && get16(f.b + 12) == 0x0800 && tdm_rng_below(&rng, 2)) fix4(&f);
        if (f.sz >= 70 && get16(f.b + 12) == 0x86dd && tdm_rng_below(&rng, 2)) fix6(&f);
        offer(l, &f, i * INT64_C(1000), NULL);
    }
    assert_int_equal(tdm_link_counters(l)->rx_frames, 60000);
    link_free(l);
}

static void a_million_bad_frames_take_no_time(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t f = udp4_frame(8);
    put16(f.b + 20, 0x2000); /* first fragments with changing ids */
    for (uint32_t i = 0; i < 1000000; i++) {
        put16(f.b + 18, i & 0xffff);
        if (i < 1000) fix4_header(&f);
        tdm_link_rx(l, f.b, f.sz, NULL, 0, 0);
    }
    const tdm_link_counters_t *n = tdm_link_counters(l);
    assert_true(n->rx_drop[TDM_DROP_ip_fragment] >= 1000);
    assert_int_equal(n->rx_drop[TDM_DROP_ip_fragment] + n->rx_drop[TDM_DROP_ip_checksum], 1000000);
    link_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ipv4_field_has_its_reason),
        cmocka_unit_test(every_ipv6_field_has_its_reason),
        cmocka_unit_test(good_datagrams_are_delivered_as_sent),
        cmocka_unit_test(every_cut_of_a_frame_is_dropped),
        cmocka_unit_test(padding_behind_the_packet_is_ignored),
        cmocka_unit_test(header_length_and_total_length_cannot_lie_together),
        cmocka_unit_test(the_reserved_flag_must_be_zero),
        cmocka_unit_test(a_subnet_of_two_has_no_edges),
        cmocka_unit_test(stations_other_than_us_are_not_ours),
        cmocka_unit_test(sources_that_no_reply_may_reach_are_refused),
        cmocka_unit_test(udp_checksum_zero_means_none_over_ipv4_only),
        cmocka_unit_test(only_our_vlan_is_taken),
        cmocka_unit_test(noise_never_breaks_the_accounts),
        cmocka_unit_test(a_million_bad_frames_take_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
