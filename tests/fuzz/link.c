/* SPDX-License-Identifier: Apache-2.0 */
/* Frames through net/link, each in a heap buffer of its exact size.

   Input: records of one flag byte, two bytes of length, and the frame.
   Flags: 1 make the checksums right, 2 a second passes, 4 answer the
   sender of a datagram, 8 the destination is our station, 16 tagged
   station (first record only).  Many frames share one link, so that the
   neighbour table and the rate limits see a history. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_link/frames.h"

#include "appliance/base/clock.h"

FUZZ_UNIT("frames")

static void answer(tdm_link_t *l, const tdm_datagram_t *dg, int64_t now_ns) {
    uint8_t buf[TDM_LINK_HEADER_MAX + 64];
    uint32_t header_sz = 0;
    tdm_reason_t r = tdm_link_udp_wrap(l, &dg->remote, OUR_PORT, dg->ecn, buf + TDM_LINK_HEADER_MAX,
                                       64, now_ns, &header_sz);
    FUZZ_CHECK(r == TDM_REASON_NONE || r == TDM_DROP_neighbour_unknown);
    FUZZ_CHECK(header_sz <= TDM_LINK_HEADER_MAX);
}

/* release sends what waited for an answer: never more than was held. */
static void release(tdm_link_t *l, int64_t now_ns) {
    uint64_t held = tdm_link_counters(l)->held;
    for (uint64_t cnt = 0;; cnt++) {
        uint8_t *frame = malloc(TDM_LINK_HEADER_MAX + TDM_LINK_HELD_PAYLOAD_MAX);
        FUZZ_CHECK(frame);
        uint32_t cap = TDM_LINK_HEADER_MAX + TDM_LINK_HELD_PAYLOAD_MAX;
        uint32_t sz = tdm_link_release(l, frame, cap, now_ns);
        free(frame);
        FUZZ_CHECK(sz <= cap && cnt <= held);
        if (sz == 0) return;
    }
}

static void ask(tdm_link_t *l, int64_t now_ns) {
    uint32_t cnt = 0, sz;
    do {
        uint8_t *question = malloc(TDM_LINK_SOLICIT_MAX);
        FUZZ_CHECK(question);
        sz = tdm_link_solicit(l, question, TDM_LINK_SOLICIT_MAX, now_ns);
        free(question);
        FUZZ_CHECK(sz <= TDM_LINK_SOLICIT_MAX);
        FUZZ_CHECK(cnt++ <= TDM_LINK_PENDING_MAX); /* one question a next hop */
    } while (sz > 0);
}

static void fix(test_frame_t *f) {
    uint32_t type = f->sz >= 14 ? get16(f->b + 12) : 0;
    if (type == 0x0800 && f->sz >= 34) fix4(f);
    if (type == 0x86dd && f->sz >= 54) fix6(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    tdm_link_config_t c = link_config();
    if (sz && data[0] & 16) c.vlan = 7;
    int64_t now_ns = TDM_NS_PER_S;
    tdm_link_t *l = link_make(&c, now_ns);
    while (in.left > 3) {
        static test_frame_t f;
        uint32_t flags = fuzz_u8(&in);
        size_t frame_sz, max = fuzz_u16(&in) % FRAME_MAX;
        const uint8_t *bytes = fuzz_take(&in, max, &frame_sz);
        memcpy(f.b, bytes, frame_sz);
        f.sz = (uint32_t)frame_sz;
        if (flags & 8 && f.sz >= 6) memcpy(f.b, our_mac, 6);
        if (flags & 1) fix(&f);
        if (flags & 2) now_ns += TDM_NS_PER_S;
        tdm_link_verdict_t v = offer(l, &f, now_ns, NULL);
        fuzz_cnt++;
        if (v.kind == TDM_LINK_DATAGRAM && flags & 4) answer(l, &v.datagram, now_ns);
        release(l, now_ns);
        ask(l, now_ns);
    }
    FUZZ_CHECK(tdm_link_is_conserved(l));
    link_free(l);
    return 0;
}
