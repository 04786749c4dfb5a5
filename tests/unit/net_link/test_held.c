/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is sent to a neighbour that is still asked for arrives once it
   has answered; the list has its bounds, and each datagram one fate.
   Method: datagrams with numbers in them, offered to tdm_link_udp_wrap;
   answers of neighbours; the frames that tdm_link_release gives. */

#include "frames.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define CAP (TDM_LINK_HEADER_MAX + TDM_LINK_HELD_PAYLOAD_MAX)

/* put offers a datagram of sz bytes that begins with `number`. */
static tdm_reason_t put(tdm_link_t *l, uint32_t last, uint32_t number, uint32_t sz, int64_t now,
                        uint32_t *header_sz) {
    static uint8_t buf[TDM_LINK_HEADER_MAX + 9000];
    uint8_t *payload = buf + TDM_LINK_HEADER_MAX;
    tdm_endpoint_t to = {
        .port = PEER_PORT, .version = 4, .addr = {our4[0], our4[1], our4[2], (uint8_t)last}};
    memset(payload, 0, sz);
    payload[0] = (uint8_t)number;
    tdm_reason_t r = tdm_link_udp_wrap(l, &to, OUR_PORT, 0, payload, sz, now, header_sz);
    assert_true(tdm_link_is_conserved(l));
    return r;
}

static void hold(tdm_link_t *l, uint32_t last, uint32_t number, int64_t now) {
    uint32_t header_sz = 1;
    assert_int_equal(put(l, last, number, 100, now, &header_sz), TDM_REASON_NONE);
    assert_int_equal(header_sz, 0);
}

/* answer lets the neighbour tell its link address, after the question. */
static void answer(tdm_link_t *l, uint32_t last, int64_t now) {
    uint8_t question[TDM_LINK_SOLICIT_MAX];
    const uint8_t addr[4] = {our4[0], our4[1], our4[2], (uint8_t)last};
    while (tdm_link_solicit(l, question, sizeof question, now) > 0) {
    }
    test_frame_t f = arp_frame(2, peer_mac, addr, our4);
    assert_int_equal(offer(l, &f, now, NULL).kind, TDM_LINK_CONSUMED);
}

/* release takes the next frame's number, 0 where none is ready; checks its
   addresses. */
static uint32_t release(tdm_link_t *l, uint32_t last, int64_t now) {
    uint8_t frame[CAP];
    uint32_t sz = tdm_link_release(l, frame, CAP, now);
    assert_true(tdm_link_is_conserved(l));
    if (sz == 0) return 0;
    assert_memory_equal(frame, peer_mac, 6);
    assert_int_equal(frame[33], last);
    assert_int_equal(sz, 42 + get16(frame + 38) - 8);
    return frame[42];
}

static void what_waited_is_sent_in_order(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    for (uint32_t i = 1; i <= TDM_LINK_HELD_HOP_MAX; i++) hold(l, 9, i, i);
    assert_int_equal(release(l, 9, 100), 0); /* nobody has answered */
    answer(l, 9, 1000);
    for (uint32_t i = 1; i <= TDM_LINK_HELD_HOP_MAX; i++) assert_int_equal(release(l, 9, 1000), i);
    assert_int_equal(release(l, 9, 1000), 0);
    const tdm_link_counters_t *n = tdm_link_counters(l);
    assert_int_equal(n->held, 0);
    assert_int_equal(n->released, TDM_LINK_HELD_HOP_MAX);
    assert_int_equal(n->tx_datagrams, TDM_LINK_HELD_HOP_MAX);
    assert_int_equal(n->tx_drop[TDM_DROP_neighbour_unknown], 0);
    link_free(l);
}

static void newer_ones_push_out_the_oldest_of_their_hop(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    hold(l, 10, 77, 0); /* another hop's is not touched */
    for (uint32_t i = 1; i <= 10; i++) hold(l, 9, i, i);
    assert_int_equal(tdm_link_counters(l)->held, TDM_LINK_HELD_HOP_MAX + 1);
    assert_int_equal(tdm_link_counters(l)->tx_drop[TDM_DROP_neighbour_unknown],
                     10 - TDM_LINK_HELD_HOP_MAX);
    answer(l, 9, 1000);
    for (uint32_t i = 11 - TDM_LINK_HELD_HOP_MAX; i <= 10; i++)
        assert_int_equal(release(l, 9, 1000), i);
    assert_int_equal(release(l, 9, 1000), 0);
    answer(l, 10, 1000);
    assert_int_equal(release(l, 10, 1000), 77);
    link_free(l);
}

static void who_never_answers_costs_a_place_for_a_while(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    tdm_link_t *l = link_make(&c, 0);
    uint32_t header_sz;
    for (uint32_t i = 0; i < TDM_LINK_HELD_MAX; i++) hold(l, 20 + i, 1, 0);
    assert_int_equal(put(l, 90, 2, 100, 1, &header_sz), TDM_DROP_neighbour_unknown);
    assert_int_equal(tdm_link_counters(l)->held, TDM_LINK_HELD_MAX);
    /* Late ones are given up, by a release as well as for a newcomer. */
    int64_t late = TDM_LINK_HELD_NS + 1;
    hold(l, 90, 3, late);
    assert_int_equal(tdm_link_counters(l)->held, 1);
    assert_int_equal(release(l, 90, late), 0);
    assert_int_equal(release(l, 90, 2 * late + 1), 0);
    assert_int_equal(tdm_link_counters(l)->held, 0);
    assert_int_equal(tdm_link_counters(l)->tx_drop[TDM_DROP_neighbour_unknown],
                     TDM_LINK_HELD_MAX + 2);
    assert_int_equal(tdm_link_counters(l)->tx_datagrams, 0);
    link_free(l);
}

static void what_has_no_way_or_no_room_is_not_held(void **state) {
    (void)state;
    tdm_link_config_t c = link_config();
    c.mtu = 9000;
    tdm_link_t *l = link_make(&c, 0);
    uint32_t header_sz;
    assert_int_equal(put(l, 9, 1, TDM_LINK_HELD_PAYLOAD_MAX + 1, 0, &header_sz),
                     TDM_DROP_neighbour_unknown);
    assert_int_equal(put(l, 9, 2, TDM_LINK_HELD_PAYLOAD_MAX, 0, &header_sz), TDM_REASON_NONE);
    tdm_endpoint_t far = {.port = 9, .version = 4, .addr = {192, 0, 2, 1}}; /* no gateway */
    uint8_t buf[TDM_LINK_HEADER_MAX + 1];
    assert_int_equal(
        tdm_link_udp_wrap(l, &far, OUR_PORT, 0, buf + TDM_LINK_HEADER_MAX, 1, 0, &header_sz),
        TDM_DROP_neighbour_unknown);
    assert_int_equal(tdm_link_counters(l)->held, 1);
    answer(l, 9, 1);
    uint8_t frame[CAP];
    assert_int_equal(tdm_link_release(l, frame, CAP - 1, 1), 0); /* a buffer that is too small */
    assert_int_equal(release(l, 9, 1), 2);
    link_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waited_is_sent_in_order),
        cmocka_unit_test(newer_ones_push_out_the_oldest_of_their_hop),
        cmocka_unit_test(who_never_answers_costs_a_place_for_a_while),
        cmocka_unit_test(what_has_no_way_or_no_room_is_not_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
