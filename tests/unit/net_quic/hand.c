/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/net_quic/hand.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

tdm_client_t *loose_client(rig_t *r) {
    tdm_client_t *c = NULL;
    tdm_error_t err = {0};
    tdm_client_config_t cfg = {.host = "localhost",
                               .port = 443,
                               .verify = TDM_CLIENT_VERIFY_INSECURE,
                               .connect_timeout_ns = 30 * TDM_NS_PER_S};
    assert_int_equal(tdm_client_open(&cfg, r->now_ns, &c, &err), TDM_OK);
    return c;
}

uint32_t first_flight(rig_t *r, uint8_t *buf) {
    tdm_client_t *c = loose_client(r);
    uint32_t sz = tdm_client_output(c, buf, 1500, r->now_ns);
    tdm_client_close(c);
    assert_true(sz >= TDM_QUIC_DATAGRAM_MIN);
    return sz;
}

uint32_t out(rig_t *r, uint8_t *last, uint64_t by_source[256]) {
    uint8_t buf[1500];
    tdm_datagram_t dg;
    uint32_t sz, last_sz = 0;
    (void)tdm_quic_poll(r->quic, r->now_ns);
    while ((sz = tdm_quic_output(r->quic, buf, sizeof buf, &dg, r->now_ns)) > 0) {
        if (by_source != NULL) by_source[dg.remote.addr[3]] += sz;
        if (last != NULL) memcpy(last, buf, sz);
        last_sz = sz;
    }
    return last_sz;
}

int handshakes_add_up(rig_t *r) {
    const tdm_quic_counters_t *n = counters(r);
    return n->handshakes_started == n->handshakes_done + n->handshakes_failed + n->half_open_cnt;
}
