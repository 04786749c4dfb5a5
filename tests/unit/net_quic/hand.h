/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_QUIC_HAND_H
#define TDM_TESTS_NET_QUIC_HAND_H

/* Datagrams carried by hand between clients and the rig's server, where
   their way matters: from which address, how often, or not at all. */

#include "tests/unit/net_h3/rig.h"

static inline const tdm_quic_counters_t *counters(rig_t *r) {
    return tdm_quic_counters(r->quic);
}

/* loose_client opens a client that belongs to no rig; the caller closes. */
tdm_client_t *loose_client(rig_t *r);

/* first_flight gives a client's first datagram, of a client that is
   forgotten at once.  buf: [1500]. */
uint32_t first_flight(rig_t *r, uint8_t *buf);

/* out takes all that the server sends now and adds up the bytes by the
   last byte of the destination; answers the last datagram's size, and
   copies it to last [1500] where that is not NULL. */
uint32_t out(rig_t *r, uint8_t *last, uint64_t by_source[256]);

/* handshakes_add_up: each one begun is done, failed or under way. */
int handshakes_add_up(rig_t *r);

#endif /* TDM_TESTS_NET_QUIC_HAND_H */
