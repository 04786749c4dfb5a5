/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as real mbufs through the whole net tile: wire port, link, QUIC.

   Input: as for the link target, flags 1 (checksums), 2 (a second
   passes) and 8 (our station).  The world is kept between inputs; after
   each one all is quiet for seven minutes of its own time, in which
   connections and neighbours end, and no mbuf may be missing. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_link/frames.h"
#include "tests/unit/net_tile/world.h"

#include "appliance/base/clock.h"

FUZZ_UNIT("frames")

static world_t w;
static uint32_t used_at_rest;

static uint32_t used(void) {
    tdm_port_stats_t s;
    tdm_port_stats_read(w.port, &s);
    return s.mbuf_used;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    tdm_error_t err = {0};
    tdm_port_env_config_t env = {.memory_mb = 64, .is_no_huge = 1, .file_prefix = "tdm-fuzz-tile"};
    if (tdm_port_env_start(&env, &err) != TDM_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    world_open(&w, 8);
    for (uint32_t i = 0; i < 16; i++) world_turn(&w);
    used_at_rest = used();
    return 0;
}

static void take_sent(void) {
    static uint8_t sent[2048];
    while (tdm_port_wire_get(w.port, sent, sizeof sent) > 0) continue;
}

static void turn(int64_t passed_ns) {
    w.now_ns += passed_ns;
    (void)tdm_net_tile_poll(w.tile, w.now_ns);
    take_sent();
}

static void aim(test_frame_t *f, uint32_t flags) {
    uint8_t mac[6];
    tdm_port_mac(w.port, mac);
    if (flags & 8 && f->sz >= 6) memcpy(f->b, mac, 6);
    if (!(flags & 1) || f->sz < 54) return;
    uint32_t type = get16(f->b + 12);
    if (type == 0x0800) fix4(f);
    if (type == 0x86dd) fix6(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    while (in.left > 3) {
        static test_frame_t f;
        uint32_t flags = fuzz_u8(&in);
        size_t frame_sz, max = fuzz_u16(&in) % FRAME_MAX;
        const uint8_t *bytes = fuzz_take(&in, max, &frame_sz);
        memcpy(f.b, bytes, frame_sz);
        f.sz = (uint32_t)frame_sz;
        aim(&f, flags);
        (void)tdm_port_wire_put(w.port, f.b, f.sz);
        turn(flags & 2 ? TDM_NS_PER_S : 50000);
        fuzz_cnt++;
    }
    for (uint32_t i = 0; i < 8; i++) turn(60 * TDM_NS_PER_S);
    FUZZ_CHECK(tdm_net_tile_is_conserved(w.tile));
    FUZZ_CHECK(tdm_net_tile_exchange_cnt(w.tile) == 0);
    FUZZ_CHECK(used() <= used_at_rest + 1); /* the tile may hold one spare */
    return 0;
}
