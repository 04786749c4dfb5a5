/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams into net/quic: as they are, and real ones of a client with a
   few bytes changed.

   Input: records of one flag byte, two bytes of length, and bytes.  Flags:
   1 the bytes are a patch for the client's next datagram (pairs of place
   and value), 2 a second passes, 4 the client sends a request first, 8
   another source address, 16 (first record) the server whose datagrams
   may be larger than the client's first, 32 a volley of variants of each
   datagram before it.  One client is connected anew for
   every input that has a patch; after each input all connections end by
   silence. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_h3/rig.h"

FUZZ_UNIT("datagrams")

#define VOLLEY 32u /* hostile datagrams for one true one: a handshake costs as much as 500 */

static rig_t small, large;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    rig_config_t c = rig_default();
    c.exchange_max = 4;
    rig_open(&small, &c);
    c.datagram_max = 1400;
    rig_open(&large, &c);
    return 0;
}

static void input(rig_t *r, const uint8_t *bytes, size_t sz, tdm_endpoint_t from) {
    tdm_datagram_t dg = {.remote = from,
                         .local = {.version = 4, .port = 443, .addr = {10, 0, 0, 1}},
                         .payload = fuzz_copy(bytes, sz),
                         .payload_sz = (uint32_t)sz};
    (void)tdm_quic_input(r->quic, &dg, r->now_ns);
    free((void *)(uintptr_t)dg.payload);
    fuzz_cnt++;
}

/* volley sends a datagram VOLLEY times, each with the patch moved further
   on and every fourth cut short: the place of a byte among all of a packet
   (header, number, frames, seal) is most of what there is to try. */
static void volley(rig_t *r, const uint8_t *bytes, size_t sz, const uint8_t *patch, size_t patch_sz,
                   tdm_endpoint_t from) {
    uint8_t buf[1500];
    size_t step = 1 + (patch_sz ? patch[0] % 61 : 0);
    for (size_t v = 1; v <= VOLLEY && sz > 0; v++) {
        memcpy(buf, bytes, sz);
        for (size_t k = 0; k + 2 < patch_sz; k += 3)
            buf[((patch[k] | (uint32_t)patch[k + 1] << 8) + v * step) % sz] ^= patch[k + 2];
        input(r, buf, v % 4 ? sz : 1 + v * step % sz, from);
    }
}

/* patched sends the client's waiting datagrams, each with the patch; after
   a volley as they were, so that the connection goes on. */
static void patched(rig_t *r, const uint8_t *patch, size_t sz, uint32_t flags) {
    uint8_t buf[1500];
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t out = tdm_client_output(r->client[0], buf, sizeof buf, r->now_ns);
        if (out == 0) return;
        tdm_endpoint_t from = r->client_at[0];
        if (flags & 8) from.port++;
        if (flags & 32)
            volley(r, buf, out, patch, sz, from);
        else
            for (size_t k = 0; k + 2 < sz; k += 3)
                buf[(patch[k] | (uint32_t)patch[k + 1] << 8) % out] ^= patch[k + 2];
        input(r, buf, out, from);
    }
}

/* raw sends the bytes from a source without a connection; the volley's
   patch is the bytes themselves. */
static void raw(rig_t *r, const uint8_t *bytes, size_t sz, uint32_t flags) {
    tdm_endpoint_t from = {.version = 4, .port = 5555, .addr = {10, 0, 0, flags & 8 ? 3 : 2}};
    if (flags & 32) volley(r, bytes, sz, bytes, TDM_MIN(sz, (size_t)9), from);
    input(r, bytes, sz, from);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    fuzz_in_t in = {data, sz};
    static rig_reply_t reply;
    rig_t *r = sz && data[0] & 16 ? &large : &small;
    int is_sent = 0;
    while (in.left > 3) {
        uint32_t flags = fuzz_u8(&in);
        size_t got, max = fuzz_u16(&in) % 1500;
        const uint8_t *bytes = fuzz_take(&in, max, &got);
        if (flags & 2) rig_turn(r, 1000 * RIG_MS);
        if (flags & 1 && !r->client[0]) rig_dial(r, 0, 2);
        if (flags & 4 && r->client[0] && !is_sent && tdm_client_is_ready(r->client[0])) {
            (void)rig_send(r, 0, "GET", "/x", NULL, 0, &reply);
            is_sent = 1;
        }
        if (flags & 1)
            patched(r, bytes, got, flags);
        else
            raw(r, bytes, got, flags);
        rig_turn(r, RIG_MS);
    }
    tdm_client_close(r->client[0]);
    r->client[0] = NULL;
    for (uint32_t i = 0; i < 40 && tdm_quic_counters(r->quic)->connection_cnt > 0; i++)
        rig_turn(r, 1000 * RIG_MS);
    FUZZ_CHECK(tdm_quic_counters(r->quic)->connection_cnt == 0);
    FUZZ_CHECK(r->open_cnt == r->closed_cnt);
    return 0;
}
