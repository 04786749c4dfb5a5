/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the neighbour table learns only what was asked or told to us,
   stays small, ages, and keeps its gateway.
   Method: datagrams offered to tdm_link_udp_wrap, whose destination
   address in the frame shows what the table believes. */

#include "frames.h"

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t thief_mac[6] = {2, 'e', 'v', 'i', 'l', 1};

/* send offers a datagram and gives the link address it went to, NULL
   where the link knew none. */
static const uint8_t *send(tdm_link_t *l, uint32_t version, const uint8_t *addr, int64_t now) {
    static uint8_t frame[256];
    tdm_endpoint_t to = {.port = 9, .version = (uint16_t)version};
    uint32_t header_sz;
    memcpy(to.addr, addr, version == 4 ? 4 : 16);
    tdm_reason_t r =
        tdm_link_udp_wrap(l, &to, OUR_PORT, 0, frame + TDM_LINK_HEADER_MAX, 10, now, &header_sz);
    assert_true(tdm_link_is_conserved(l));
    if (r == TDM_REASON_NONE && header_sz > 0) return frame + TDM_LINK_HEADER_MAX - header_sz;
    assert_true(r == TDM_REASON_NONE || r == TDM_DROP_neighbour_unknown); /* held, or not even */
    return NULL;
}

/* question takes the next one the link wants to ask; 0 when none. */
static uint32_t question(tdm_link_t *l, test_frame_t *f, int64_t now) {
    f->sz = tdm_link_solicit(l, f->b, TDM_LINK_SOLICIT_MAX, now);
    return f->sz;
}

static void unknown_neighbours_are_asked_for(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q;
    assert_null(send(l, 4, peer4, 0));
    assert_int_equal(question(l, &q, 0), 60);
    assert_memory_equal(q.b, broadcast_mac, 6);
    assert_int_equal(get16(q.b + 20), 1);
    assert_memory_equal(q.b + 38, peer4, 4);
    assert_null(send(l, 6, peer6, 0));
    assert_int_equal(question(l, &q, 0), 86);
    assert_int_equal(get16(q.b), 0x3333);
    assert_int_equal(q.b[21], 255);
    assert_memory_equal(q.b + 62, peer6, 16);
    assert_int_equal(
        reference_sum(q.b + 54, 32, (uint32_t)reference_sum(q.b + 22, 32, 0) + 58 + 32), 0xffff);
    assert_int_equal(question(l, &q, 0), 0);

    test_frame_t a4 = arp_frame(2, peer_mac, peer4, our4);
    test_frame_t a6 = advertisement_frame(peer6, peer_mac);
    assert_int_equal(offer(l, &a4, 1000, NULL).kind, TDM_LINK_CONSUMED);
    assert_int_equal(offer(l, &a6, 1000, NULL).kind, TDM_LINK_CONSUMED);
    assert_memory_equal(send(l, 4, peer4, 2000), peer_mac, 6);
    assert_memory_equal(send(l, 6, peer6, 2000), peer_mac, 6);
    /* The same answer again is gossip. */
    assert_int_equal(reason_of(l, &a4), TDM_DROP_arp_malformed);
    assert_int_equal(reason_of(l, &a6), TDM_DROP_icmp_ignored);
    link_free(l);
}

static void who_asks_us_is_known_to_us(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t f = arp_frame(1, peer_mac, peer4, our4), q;
    offer(l, &f, 0, NULL);
    f = solicitation_frame(peer6, our6);
    offer(l, &f, 0, NULL);
    assert_memory_equal(send(l, 4, peer4, 0), peer_mac, 6);
    assert_memory_equal(send(l, 6, peer6, 0), peer_mac, 6);
    assert_int_equal(question(l, &q, 0), 0);
    assert_int_equal(tdm_link_counters(l)->neighbours, 2);
    link_free(l);
}

static void questions_are_few(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q;
    uint32_t asked = 0;
    for (uint32_t ms = 0; ms < 10000; ms++) { /* one silent peer, ten seconds */
        assert_null(send(l, 4, peer4, ms * TDM_NS_PER_MS));
        while (question(l, &q, ms * TDM_NS_PER_MS) > 0) asked++;
    }
    assert_in_range(asked, 9, 11);
    for (uint32_t i = 0; i < 200000; i++) { /* and a sweep over the whole subnet */
        int64_t now = 20 * TDM_NS_PER_S + i * INT64_C(50000);
        uint8_t addr[4] = {10, 88, 0, (uint8_t)(3 + i % 200)};
        send(l, 4, addr, now);
        while (question(l, &q, now) > 0) asked++;
    }
    assert_true(asked <= 11 + 10 + 10 * 10);
    link_free(l);
}

static void gateway_is_the_way_to_everyone_else(void **state) {
    (void)state;
    static const uint8_t far4[4] = {192, 0, 2, 9}, far6[16] = {0x20, 1, 0x0d, 0xb8, [15] = 9};
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q;
    assert_null(send(l, 4, far4, 0)); /* without a gateway there is no way */
    assert_int_equal(question(l, &q, 0), 0);
    link_free(l);

    memcpy(c.gateway4, gateway4, 4);
    memcpy(c.gateway6, gateway6, 16);
    l = link_make(&c, 0);
    assert_null(send(l, 4, far4, 0));
    assert_int_equal(question(l, &q, 0), 60);
    assert_memory_equal(q.b + 38, gateway4, 4);
    test_frame_t a = arp_frame(2, peer_mac, gateway4, our4);
    assert_int_equal(offer(l, &a, 0, NULL).kind, TDM_LINK_CONSUMED);
    assert_memory_equal(send(l, 4, far4, 0), peer_mac, 6);
    assert_null(send(l, 6, far6, 0));
    link_free(l);
}

static void gateway_cannot_be_stolen_by_gossip(void **state) {
    (void)state;
    static const uint8_t far4[4] = {192, 0, 2, 9};
    tdm_link_config_t c = link_config();
    memcpy(c.gateway4, gateway4, 4);
    memcpy(c.gateway6, gateway6, 16);
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q, a = arp_frame(2, peer_mac, gateway4, our4);
    send(l, 4, far4, 0);
    question(l, &q, 0);
    offer(l, &a, 0, NULL);
    const test_frame_t attack[] = {
        arp_frame(1, thief_mac, gateway4, our4),     /* asks us in the gateway's name */
        arp_frame(2, thief_mac, gateway4, our4),     /* answers unasked */
        arp_frame(1, thief_mac, gateway4, gateway4), /* announces */
        advertisement_frame(gateway6, thief_mac),    solicitation_frame(gateway6, our6),
    };
    for (uint32_t i = 0; i < 1000; i++) offer(l, &attack[i % 5], i, NULL);
    assert_memory_equal(send(l, 4, far4, 1000), peer_mac, 6);
    link_free(l);
}

static void configured_gateway_address_needs_no_question(void **state) {
    (void)state;
    static const uint8_t far4[4] = {192, 0, 2, 9};
    tdm_link_config_t c = link_config();
    memcpy(c.gateway4, gateway4, 4);
    memcpy(c.gateway_mac, peer_mac, 6);
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q;
    assert_memory_equal(send(l, 4, far4, 0), peer_mac, 6);
    assert_int_equal(question(l, &q, 0), 0);
    link_free(l);
}

static void entries_age(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q, f = arp_frame(1, peer_mac, peer4, our4);
    offer(l, &f, 0, NULL);
    assert_memory_equal(send(l, 4, peer4, 59 * TDM_NS_PER_S), peer_mac, 6);
    assert_int_equal(question(l, &q, 59 * TDM_NS_PER_S), 0);
    /* Stale: still used, but asked about. */
    assert_memory_equal(send(l, 4, peer4, 61 * TDM_NS_PER_S), peer_mac, 6);
    assert_int_equal(question(l, &q, 61 * TDM_NS_PER_S), 60);
    f = arp_frame(2, thief_mac, peer4, our4); /* the host has a new card */
    assert_int_equal(offer(l, &f, 61 * TDM_NS_PER_S, NULL).kind, TDM_LINK_CONSUMED);
    assert_memory_equal(send(l, 4, peer4, 62 * TDM_NS_PER_S), thief_mac, 6);
    /* Dead: unanswered for five minutes. */
    assert_null(send(l, 4, peer4, 400 * TDM_NS_PER_S));
    link_free(l);
}

static void late_answers_are_gossip(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q, a = arp_frame(2, peer_mac, peer4, our4);
    send(l, 4, peer4, 0);
    question(l, &q, 0);
    assert_int_equal(offer(l, &a, 4 * TDM_NS_PER_S, NULL).kind, TDM_LINK_DROP);
    assert_null(send(l, 4, peer4, 4 * TDM_NS_PER_S));
    link_free(l);
}

static void an_answer_to_everybody_is_gossip(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    test_frame_t q, a = arp_frame(2, peer_mac, peer4, our4);
    send(l, 4, peer4, 0);
    question(l, &q, 0);
    memcpy(a.b, broadcast_mac, 6);
    assert_int_equal(offer(l, &a, 0, NULL).kind, TDM_LINK_DROP);
    assert_null(send(l, 4, peer4, 0));
    link_free(l);
}

static void a_flood_of_strangers_keeps_the_table_and_its_users(void **state) {
    (void)state;
    const uint64_t seed = 3;
    tdm_link_config_t c = link_config();
    c.ipv4_prefix = 8;
    c.reply_per_s = 1000;
    tdm_link_t *l = link_make(&c, 0);
    tdm_rng_t rng = {.state = seed};
    test_frame_t f = arp_frame(1, peer_mac, peer4, our4);
    offer(l, &f, 0, NULL);
    assert_non_null(send(l, 4, peer4, 0)); /* a user now */
    for (uint32_t i = 0; i < 1000000; i++) {
        f.b[29] = (uint8_t)tdm_rng_next(&rng);
        f.b[30] = (uint8_t)(1 + tdm_rng_below(&rng, 250));
        f.b[31] = (uint8_t)(1 + tdm_rng_below(&rng, 250));
        uint8_t reply[96];
        tdm_link_rx(l, f.b, f.sz, reply, sizeof reply, i * INT64_C(1000));
    }
    const tdm_link_counters_t *n = tdm_link_counters(l);
    assert_int_equal(n->neighbours, c.neighbour_max);
    assert_true(n->neighbour_evicted > 900000);
    assert_true(n->replies <= 2000);
    assert_int_equal(n->replies + n->rx_drop[TDM_DROP_reply_rate], 1000001);
    assert_memory_equal(send(l, 4, peer4, TDM_NS_PER_S), peer_mac, 6);
    assert_true(tdm_link_is_conserved(l));
    link_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_neighbours_are_asked_for),
        cmocka_unit_test(who_asks_us_is_known_to_us),
        cmocka_unit_test(questions_are_few),
        cmocka_unit_test(gateway_is_the_way_to_everyone_else),
        cmocka_unit_test(gateway_cannot_be_stolen_by_gossip),
        cmocka_unit_test(configured_gateway_address_needs_no_question),
        cmocka_unit_test(entries_age),
        cmocka_unit_test(late_answers_are_gossip),
        cmocka_unit_test(an_answer_to_everybody_is_gossip),
        cmocka_unit_test(a_flood_of_strangers_keeps_the_table_and_its_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
