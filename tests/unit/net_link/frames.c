/* SPDX-License-Identifier: Apache-2.0 */
#include "frames.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const uint8_t our_mac[6] = {2, 't', 'd', 'm', 0, 2};
const uint8_t peer_mac[6] = {2, 't', 'd', 'm', 0, 1};
const uint8_t broadcast_mac[6] = {255, 255, 255, 255, 255, 255};
const uint8_t group6_mac[6] = {0x33, 0x33, 0xff, 0, 0, 2};
const uint8_t our4[4] = {10, 88, 0, 2}, peer4[4] = {10, 88, 0, 1}, gateway4[4] = {10, 88, 0, 254};
const uint8_t our6[16] = {0xfd, 0x88, [15] = 2}, peer6[16] = {0xfd, 0x88, [15] = 1};
const uint8_t gateway6[16] = {0xfd, 0x88, [15] = 0xfe};
const uint8_t group6[16] = {0xff, 2, [11] = 1, [12] = 0xff, [15] = 2};

tdm_link_config_t link_config(void) {
    tdm_link_config_t c = {.mtu = 1500,
                           .udp_port = OUR_PORT,
                           .has_ipv4 = 1,
                           .has_ipv6 = 1,
                           .ipv4_prefix = 24,
                           .ipv6_prefix = 64,
                           .neighbour_max = 64,
                           .reply_per_s = 1000000000,
                           .solicit_per_s = 10,
                           .seed = 1};
    memcpy(c.mac, our_mac, 6);
    memcpy(c.ipv4, our4, 4);
    memcpy(c.ipv6, our6, 16);
    return c;
}

tdm_link_t *link_make(const tdm_link_config_t *c, int64_t now_ns) {
    tdm_link_t *l = NULL;
    tdm_error_t err = {0};
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_link_footprint(c->neighbour_max));
    assert_non_null(mem);
    assert_int_equal(tdm_link_init(mem, c, now_ns, &l, &err), TDM_OK);
    return l;
}

void link_free(tdm_link_t *l) {
    free(l);
}

uint16_t reference_sum(const uint8_t *p, uint32_t sz, uint32_t sum) {
    for (uint32_t i = 0; i < sz; i++) {
        sum += i % 2 == 0 ? (uint32_t)p[i] << 8 : p[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t)sum;
}

void put16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

uint32_t get16(const uint8_t *p) {
    return (uint32_t)p[0] << 8 | p[1];
}

/* --- headers -------------------------------------------------------- */

static test_frame_t eth_frame(const uint8_t *dst, uint32_t type) {
    test_frame_t f = {.sz = 14};
    memcpy(f.b, dst, 6);
    memcpy(f.b + 6, peer_mac, 6);
    put16(f.b + 12, type);
    return f;
}

static test_frame_t ip4_frame(uint32_t protocol, uint32_t body_sz) {
    test_frame_t f = eth_frame(our_mac, 0x0800);
    uint8_t *ip = f.b + 14;
    ip[0] = 0x45;
    put16(ip + 2, 20 + body_sz);
    put16(ip + 4, 0x1234);
    ip[8] = 64;
    ip[9] = (uint8_t)protocol;
    memcpy(ip + 12, peer4, 4);
    memcpy(ip + 16, our4, 4);
    for (uint32_t i = 0; i < body_sz; i++) ip[20 + i] = (uint8_t)(i * 7 + 3);
    f.sz = 34 + body_sz;
    return f;
}

static test_frame_t ip6_frame(uint32_t next_header, uint32_t body_sz) {
    test_frame_t f = eth_frame(our_mac, 0x86dd);
    uint8_t *ip = f.b + 14;
    ip[0] = 0x60;
    put16(ip + 4, body_sz);
    ip[6] = (uint8_t)next_header;
    ip[7] = 64;
    memcpy(ip + 8, peer6, 16);
    memcpy(ip + 24, our6, 16);
    for (uint32_t i = 0; i < body_sz; i++) ip[40 + i] = (uint8_t)(i * 7 + 3);
    f.sz = 54 + body_sz;
    return f;
}

void fix4_header(test_frame_t *f) {
    uint8_t *ip = f->b + 14;
    uint32_t header_sz = TDM_MIN((ip[0] & 15u) * 4u, f->sz - 14);
    put16(ip + 10, 0);
    put16(ip + 10, (uint16_t)~reference_sum(ip, header_sz, 0));
}

static uint32_t pseudo(const uint8_t *addrs, uint32_t addrs_sz, uint32_t protocol, uint32_t sz) {
    return (uint32_t)reference_sum(addrs, addrs_sz, 0) + protocol + sz;
}

void fix4(test_frame_t *f) {
    uint8_t *ip = f->b + 14, *body = ip + 20;
    uint32_t body_sz = f->sz - 34;
    fix4_header(f);
    if (ip[9] == 17) {
        uint32_t udp_sz = get16(body + 4);
        if (udp_sz < 8 || udp_sz > body_sz) return;
        put16(body + 6, 0);
        uint16_t c = (uint16_t)~reference_sum(body, udp_sz, pseudo(ip + 12, 8, 17, udp_sz));
        put16(body + 6, c != 0 ? c : 0xffff);
    } else if (ip[9] == 1) {
        put16(body + 2, 0);
        put16(body + 2, (uint16_t)~reference_sum(body, body_sz, 0));
    }
}

void fix6(test_frame_t *f) {
    uint8_t *ip = f->b + 14, *body = ip + 40;
    uint32_t body_sz = TDM_MIN(get16(ip + 4), f->sz - 54), at = ip[6] == 17 ? 6 : 2;
    if (ip[6] == 17) body_sz = TDM_MIN(get16(body + 4), body_sz);
    put16(body + at, 0);
    uint16_t c = (uint16_t)~reference_sum(body, body_sz, pseudo(ip + 8, 32, ip[6], body_sz));
    put16(body + at, c != 0 ? c : 0xffff);
}

/* --- whole frames --------------------------------------------------- */

static void udp_header(uint8_t *udp, uint32_t udp_sz) {
    put16(udp, PEER_PORT);
    put16(udp + 2, OUR_PORT);
    put16(udp + 4, udp_sz);
}

test_frame_t udp4_frame(uint32_t payload_sz) {
    test_frame_t f = ip4_frame(17, 8 + payload_sz);
    udp_header(f.b + 34, 8 + payload_sz);
    fix4(&f);
    return f;
}

test_frame_t udp6_frame(uint32_t payload_sz) {
    test_frame_t f = ip6_frame(17, 8 + payload_sz);
    udp_header(f.b + 54, 8 + payload_sz);
    fix6(&f);
    return f;
}

test_frame_t echo4_frame(uint32_t data_sz) {
    test_frame_t f = ip4_frame(1, 8 + data_sz);
    put16(f.b + 34, 8 << 8);
    fix4(&f);
    return f;
}

test_frame_t echo6_frame(uint32_t data_sz) {
    test_frame_t f = ip6_frame(58, 8 + data_sz);
    put16(f.b + 54, 128 << 8);
    fix6(&f);
    return f;
}

test_frame_t arp_frame(uint32_t op, const uint8_t *sender_mac, const uint8_t *sender,
                       const uint8_t *target) {
    test_frame_t f = eth_frame(op == 1 ? broadcast_mac : our_mac, 0x0806);
    static const uint8_t kind[6] = {0, 1, 8, 0, 6, 4};
    memcpy(f.b + 14, kind, 6);
    put16(f.b + 20, op);
    memcpy(f.b + 22, sender_mac, 6);
    memcpy(f.b + 28, sender, 4);
    memcpy(f.b + 38, target, 4);
    f.sz = 60;
    return f;
}

static test_frame_t nd_frame(uint32_t type, const uint8_t *target, uint32_t option,
                             const uint8_t *mac) {
    test_frame_t f = ip6_frame(58, 32);
    uint8_t *icmp = f.b + 54;
    f.b[14 + 7] = 255;
    memset(icmp, 0, 8);
    icmp[0] = (uint8_t)type;
    memcpy(icmp + 8, target, 16);
    icmp[24] = (uint8_t)option;
    icmp[25] = 1;
    memcpy(icmp + 26, mac, 6);
    return f;
}

test_frame_t solicitation_frame(const uint8_t *src, const uint8_t *target) {
    test_frame_t f = nd_frame(135, target, 1, peer_mac);
    memcpy(f.b, group6_mac, 6);
    memcpy(f.b + 22, src, 16);
    memcpy(f.b + 38, group6, 16);
    fix6(&f);
    return f;
}

test_frame_t advertisement_frame(const uint8_t *target, const uint8_t *mac) {
    test_frame_t f = nd_frame(136, target, 2, mac);
    memcpy(f.b + 22, target, 16);
    f.b[58] = 0x60; /* solicited, override */
    fix6(&f);
    return f;
}

/* --- judging -------------------------------------------------------- */

tdm_link_verdict_t offer(tdm_link_t *l, const test_frame_t *f, int64_t now_ns,
                         test_frame_t *reply) {
    uint32_t cap = 1518;
    uint8_t *copy = malloc(f->sz > 0 ? f->sz : 1), *out = malloc(cap);
    assert_non_null(copy);
    assert_non_null(out);
    memcpy(copy, f->b, f->sz);
    tdm_link_verdict_t v = tdm_link_rx(l, copy, f->sz, out, cap, now_ns);
    assert_true(tdm_link_is_conserved(l));
    if (reply != NULL && v.kind == TDM_LINK_REPLY) {
        assert_in_range(v.reply_sz, 60, cap);
        memcpy(reply->b, out, v.reply_sz);
        reply->sz = v.reply_sz;
    }
    if (v.kind == TDM_LINK_DATAGRAM) { /* the view lies inside the frame */
        assert_true(v.datagram.payload >= copy);
        assert_true(v.datagram.payload + v.datagram.payload_sz <= copy + f->sz);
    }
    free(copy);
    free(out);
    return v;
}

tdm_reason_t reason_of(tdm_link_t *l, const test_frame_t *f) {
    tdm_link_verdict_t v = offer(l, f, TDM_NS_PER_S, NULL);
    return v.kind == TDM_LINK_DROP ? v.reason : TDM_REASON_NONE;
}
