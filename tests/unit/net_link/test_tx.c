/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what we send, another station of the same kind accepts, and an
   obvious reference agrees with every checksum; bad configs are refused.
   Method: two links back to back; the reference of frames.c. */

#include "frames.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A link that knows the peer of both versions. */
static tdm_link_t *acquainted(const tdm_link_config_t *c) {
    tdm_link_t *l = link_make(c, 0);
    test_frame_t f4 = arp_frame(1, peer_mac, peer4, our4), f6 = solicitation_frame(peer6, our6);
    if (c->vlan == 0) {
        offer(l, &f4, 0, NULL);
        offer(l, &f6, 0, NULL);
    }
    return l;
}

static tdm_endpoint_t peer_end(uint32_t version) {
    tdm_endpoint_t e = {.port = PEER_PORT, .version = (uint16_t)version};
    memcpy(e.addr, version == 4 ? peer4 : peer6, version == 4 ? 4 : 16);
    return e;
}

/* wrapped sends sz random bytes in an exact-size buffer. */
static test_frame_t wrapped(tdm_link_t *l, uint32_t version, uint32_t sz, uint32_t ecn,
                            tdm_rng_t *rng) {
    test_frame_t f;
    uint8_t *buf = malloc(TDM_LINK_HEADER_MAX + sz), *payload = buf + TDM_LINK_HEADER_MAX;
    uint32_t header_sz = 0;
    tdm_endpoint_t to = peer_end(version);
    for (uint32_t i = 0; i < sz; i++) payload[i] = (uint8_t)tdm_rng_next(rng);
    assert_int_equal(tdm_link_udp_wrap(l, &to, OUR_PORT, ecn, payload, sz, 0, &header_sz),
                     TDM_REASON_NONE);
    f.sz = header_sz + sz;
    memcpy(f.b, payload - header_sz, f.sz);
    free(buf);
    return f;
}

static void frames_satisfy_an_obvious_reference(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = acquainted(&c);
    tdm_rng_t rng = {.state = 11};
    for (uint32_t sz = 0; sz <= 1452; sz += sz < 70 ? 1 : 13) {
        test_frame_t f = wrapped(l, 4, sz, 2, &rng);
        assert_int_equal(f.sz, 42 + sz);
        assert_memory_equal(f.b, peer_mac, 6);
        assert_memory_equal(f.b + 6, our_mac, 6);
        assert_int_equal(get16(f.b + 16), 28 + sz);
        assert_int_equal(f.b[15], 2);
        assert_int_equal(reference_sum(f.b + 14, 20, 0), 0xffff);
        uint32_t udp = 8 + sz;
        assert_int_equal(
            reference_sum(f.b + 34, udp, (uint32_t)reference_sum(f.b + 26, 8, 0) + 17 + udp),
            0xffff);
        assert_int_not_equal(get16(f.b + 40), 0);
        f = wrapped(l, 6, sz, 1, &rng);
        assert_int_equal(f.sz, 62 + sz);
        assert_int_equal(get16(f.b + 14), 0x6010);
        assert_int_equal(get16(f.b + 18), udp);
        assert_int_equal(
            reference_sum(f.b + 54, udp, (uint32_t)reference_sum(f.b + 22, 32, 0) + 17 + udp),
            0xffff);
    }
    link_free(l);
}

static void a_sum_of_zero_is_sent_as_all_ones(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = acquainted(&c);
    tdm_endpoint_t to = peer_end(4);
    uint8_t buf[TDM_LINK_HEADER_MAX + 2] = {0}, *payload = buf + TDM_LINK_HEADER_MAX;
    uint32_t header_sz;
    assert_int_equal(tdm_link_udp_wrap(l, &to, OUR_PORT, 0, payload, 2, 0, &header_sz), 0);
    uint32_t sum = get16(payload - 2);
    put16(payload, sum); /* these two bytes cancel the rest */
    assert_int_equal(tdm_link_udp_wrap(l, &to, OUR_PORT, 0, payload, 2, 0, &header_sz), 0);
    assert_int_equal(get16(payload - 2), 0xffff);
    link_free(l);
}

static void two_links_understand_each_other(void **state) {
    (void)state;
    for (uint32_t vlan = 0; vlan < 20; vlan += 10) {
        tdm_link_config_t a = link_config(), b = link_config();
        a.vlan = b.vlan = (uint16_t)vlan;
        b.udp_port = PEER_PORT;
        memcpy(b.mac, peer_mac, 6);
        memcpy(b.ipv4, peer4, 4);
        memcpy(b.ipv6, peer6, 16);
        tdm_link_t *la = link_make(&a, 0), *lb = link_make(&b, 0);
        for (uint32_t version = 4; version <= 6; version += 2) {
            uint8_t buf[TDM_LINK_HEADER_MAX + 5], *payload = buf + TDM_LINK_HEADER_MAX;
            tdm_endpoint_t to = peer_end(version);
            uint32_t header_sz;
            memcpy(payload, "hello", 5);
            assert_int_equal(tdm_link_udp_wrap(la, &to, OUR_PORT, 3, payload, 5, 0, &header_sz),
                             TDM_REASON_NONE);
            assert_int_equal(header_sz, 0); /* held */
            test_frame_t q, r, f;
            q.sz = tdm_link_solicit(la, q.b, FRAME_MAX, 0);
            assert_int_not_equal(q.sz, 0);
            assert_int_equal(offer(lb, &q, 0, &r).kind, TDM_LINK_REPLY);
            assert_int_equal(offer(la, &r, 0, NULL).kind, TDM_LINK_CONSUMED);
            assert_int_equal(tdm_link_udp_wrap(la, &to, OUR_PORT, 3, payload, 5, 0, &header_sz),
                             TDM_REASON_NONE);
            f.sz = header_sz + 5;
            memcpy(f.b, payload - header_sz, f.sz);
            test_frame_t late;
            late.sz = tdm_link_release(la, late.b, FRAME_MAX, 0);
            assert_int_equal(late.sz, f.sz); /* the same frame as the one not held */
            assert_memory_equal(late.b, f.b, f.sz);
            assert_int_equal(tdm_link_release(la, late.b, FRAME_MAX, 0), 0);
            tdm_link_verdict_t v = tdm_link_rx(lb, f.b, f.sz, NULL, 0, 0);
            assert_int_equal(v.kind, TDM_LINK_DATAGRAM);
            assert_int_equal(v.datagram.payload_sz, 5);
            assert_memory_equal(v.datagram.payload, "hello", 5);
            assert_int_equal(v.datagram.ecn, 3);
            assert_int_equal(v.datagram.remote.port, OUR_PORT);
            assert_true(tdm_endpoint_equal(&v.datagram.local, &to));
        }
        link_free(la);
        link_free(lb);
    }
}

static void nothing_over_the_mtu_is_sent(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = acquainted(&c);
    static uint8_t buf[TDM_LINK_HEADER_MAX + 2000];
    for (uint32_t version = 4; version <= 6; version += 2) {
        tdm_endpoint_t to = peer_end(version);
        uint32_t max = tdm_link_payload_max(l, (uint16_t)version), header_sz;
        assert_int_equal(max, version == 4 ? 1472 : 1452);
        uint8_t *payload = buf + TDM_LINK_HEADER_MAX;
        assert_int_equal(tdm_link_udp_wrap(l, &to, 1, 0, payload, max, 0, &header_sz), 0);
        assert_int_equal(header_sz + max, 1514);
        assert_int_equal(tdm_link_udp_wrap(l, &to, 1, 0, payload, max + 1, 0, &header_sz),
                         TDM_DROP_datagram_too_long);
        assert_int_equal(tdm_link_udp_wrap(l, &to, 1, 0, payload, UINT32_MAX, 0, &header_sz),
                         TDM_DROP_datagram_too_long);
    }
    tdm_endpoint_t nobody = {.port = 1, .version = 5};
    uint32_t header_sz;
    assert_int_equal(
        tdm_link_udp_wrap(l, &nobody, 1, 0, buf + TDM_LINK_HEADER_MAX, 1, 0, &header_sz),
        TDM_DROP_neighbour_unknown);
    assert_true(tdm_link_is_conserved(l));
    link_free(l);
}

static void frames_that_were_never_offered_are_accounted(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    tdm_link_rx_drop(l, TDM_DROP_frame_segmented, 9000);
    assert_int_equal(tdm_link_counters(l)->rx_drop[TDM_DROP_frame_segmented], 1);
    assert_int_equal(tdm_link_counters(l)->rx_bytes, 9000);
    assert_true(tdm_link_is_conserved(l));
    link_free(l);
}

static void impossible_configs_are_refused(void **state) {
    (void)state;
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_link_footprint(64));
    tdm_link_config_t bad[17];
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) bad[i] = link_config();
    bad[0].mtu = 1279;
    bad[1].mtu = 9001;
    bad[2].vlan = 4095;
    bad[3].udp_port = 0;
    bad[4].has_ipv4 = bad[4].has_ipv6 = 0;
    bad[5].ipv4_prefix = 33;
    bad[6].ipv6_prefix = 129;
    bad[7].neighbour_max = 63;
    bad[8].neighbour_max = 8192;
    bad[9].mac[0] |= 1;
    memset(bad[10].mac, 0, 6);
    bad[11].ipv4[3] = 0;
    bad[12].ipv4[0] = 127;
    memset(bad[13].ipv6, 0, 16);
    memcpy(bad[14].gateway4, "\xc0\x00\x02\x01", 4);
    memcpy(bad[15].gateway4, our4, 4);
    bad[16].gateway_mac[0] = 1;
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        tdm_link_t *l = NULL;
        tdm_error_t err = {0};
        assert_int_equal(tdm_link_init(mem, &bad[i], 0, &l, &err), TDM_ERR_INVAL);
        assert_non_null(strstr(err.text, "link: "));
    }
    free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_satisfy_an_obvious_reference),
        cmocka_unit_test(a_sum_of_zero_is_sent_as_all_ones),
        cmocka_unit_test(two_links_understand_each_other),
        cmocka_unit_test(nothing_over_the_mtu_is_sent),
        cmocka_unit_test(frames_that_were_never_offered_are_accounted),
        cmocka_unit_test(impossible_configs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
