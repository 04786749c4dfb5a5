/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NET_LINK_FRAMES_H
#define TDM_TESTS_NET_LINK_FRAMES_H

/* Frames for tests of net/link, built and checksummed the obvious way,
   with none of the room's own code. */

#include "net/link/link.h"

#define FRAME_MAX 2048

typedef struct test_frame {
    uint8_t b[FRAME_MAX];
    uint32_t sz;
} test_frame_t;

extern const uint8_t our_mac[6], peer_mac[6], broadcast_mac[6], group6_mac[6];
extern const uint8_t our4[4], peer4[4], gateway4[4];
extern const uint8_t our6[16], peer6[16], group6[16], gateway6[16];
#define OUR_PORT  8443u
#define PEER_PORT 50000u

/* link_config is our station: 10.88.0.2/24 and fd88::2/64, no gateway. */
tdm_link_config_t link_config(void);

/* link_make takes memory from the heap; link_free gives it back. */
tdm_link_t *link_make(const tdm_link_config_t *c, int64_t now_ns);
void link_free(tdm_link_t *l);

/* reference_sum is RFC 1071 word by word: the folded sum, not inverted. */
uint16_t reference_sum(const uint8_t *p, uint32_t sz, uint32_t sum);

void put16(uint8_t *p, uint32_t v);
uint32_t get16(const uint8_t *p);

/* Frames from the peer to us, all right. */
test_frame_t udp4_frame(uint32_t payload_sz);
test_frame_t udp6_frame(uint32_t payload_sz);
test_frame_t echo4_frame(uint32_t data_sz);
test_frame_t echo6_frame(uint32_t data_sz);
test_frame_t arp_frame(uint32_t op, const uint8_t *sender_mac, const uint8_t *sender,
                       const uint8_t *target);
test_frame_t solicitation_frame(const uint8_t *src, const uint8_t *target);
test_frame_t advertisement_frame(const uint8_t *target, const uint8_t *mac);

/* fix4 and fix6 make the checksums of an untagged IPv4 or IPv6 frame
   right again, of whatever protocol; fix4 believes IHL and total length
   where they lie inside the frame. */
void fix4(test_frame_t *f);
void fix6(test_frame_t *f);
void fix4_header(test_frame_t *f);

/* offer judges a copy in an exact-size heap buffer, with an exact-size
   reply buffer, so that any byte too far is caught; reply, where not
   NULL, receives what was answered.  Conservation is checked each time. */
tdm_link_verdict_t offer(tdm_link_t *l, const test_frame_t *f, int64_t now_ns, test_frame_t *reply);

/* reason_of names a verdict: a drop's reason, NONE for all else. */
tdm_reason_t reason_of(tdm_link_t *l, const test_frame_t *f);

#endif /* TDM_TESTS_NET_LINK_FRAMES_H */
