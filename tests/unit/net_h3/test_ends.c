/* SPDX-License-Identifier: Apache-2.0 */
/* Early ends of an exchange: each kind is noticed, and frees what it held. */
#include "tests/unit/net_h3/rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void cancel_is_noticed_at_the_packet(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    int64_t id = rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply);
    rig_idle(&r, 20);
    assert_true(reply.body_sz > 0);
    tdm_client_cancel(r.client[0], id);
    assert_int_equal(reply.outcome, TDM_CLIENT_CANCELLED);
    rig_idle(&r, 3);
    assert_int_equal(r.gone_cnt, 1);
    rig_idle(&r, 50);
    assert_int_equal(r.closed_cnt, 1);
    rig_serve_one(&r, 0);
    rig_close(&r);
}

static void cancel_while_queued_is_noticed(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    r.is_tile_silent = 1;
    int64_t id = rig_send(&r, 0, "POST", "/v1/completions", "{}", 2, &reply);
    rig_idle(&r, 10);
    assert_int_equal(r.ready_cnt, 1);
    tdm_client_cancel(r.client[0], id);
    rig_idle(&r, 3);
    assert_int_equal(r.gone_cnt, 1);
    rig_idle(&r, 20);
    assert_int_equal(r.closed_cnt, 1);
    /* The api tile's END comes late: counted, harmless. */
    tdm_h3_reply(r.h3, &r.slot[0].x, TDM_EGRESS_END, r.now_ns);
    assert_int_equal(tdm_h3_counters(r.h3)->stale, 1);
    rig_close(&r);
}

static void connection_close_frees_its_exchanges(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply[3];
    rig_begin(&r);
    for (uint32_t i = 0; i < 3; i++) {
        rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply[i]);
    }
    rig_idle(&r, 20);
    tdm_client_shutdown(r.client[0]);
    rig_turn(&r, RIG_MS);
    assert_int_equal(r.gone_cnt, 3);
    assert_int_equal(r.closed_cnt, 3);
    assert_int_equal(tdm_quic_counters(r.quic)->connection_cnt, 0);
    assert_int_equal(tdm_quic_counters(r.quic)->pool_used_sz, 0);
    assert_int_equal(reply[0].outcome, TDM_CLIENT_LOST);
    rig_close(&r);
}

static void silence_frees_the_slot(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "POST", "/stream?100000", "{}", 2, &reply);
    rig_idle(&r, 20);
    r.is_deaf[0] = 1;
    rig_idle(&r, 4000);
    assert_int_equal(r.gone_cnt, 0);
    rig_idle(&r, 3000);
    assert_int_equal(r.gone_cnt, 1);
    assert_int_equal(r.closed_cnt, 1);
    assert_int_equal(tdm_quic_counters(r.quic)->connections_idle, 1);
    assert_int_equal(tdm_quic_counters(r.quic)->connection_cnt, 0);
    assert_int_equal(tdm_quic_counters(r.quic)->tls_session_cnt, 0);
    rig_close(&r);
}

static void cut_reply_resets_the_stream(void **state) {
    (void)state;
    rig_t r;
    rig_reply_t reply;
    rig_begin(&r);
    rig_send(&r, 0, "GET", "/cut", NULL, 0, &reply);
    assert_true(rig_run(&r, &reply.is_ended, 1000));
    assert_int_equal(reply.outcome, TDM_CLIENT_RESET);
    assert_int_equal(reply.error, 0x102); /* H3_INTERNAL_ERROR */
    rig_idle(&r, 20);
    assert_int_equal(r.closed_cnt, 1);
    assert_int_equal(r.gone_cnt, 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_is_noticed_at_the_packet),
        cmocka_unit_test(cancel_while_queued_is_noticed),
        cmocka_unit_test(connection_close_frees_its_exchanges),
        cmocka_unit_test(silence_frees_the_slot),
        cmocka_unit_test(cut_reply_resets_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
