/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of event streams: whole and in pieces it tells the same.
   Input: one byte, the length of the pieces; then the stream. */
#include "tests/fuzz/fuzz.h"

#include "appliance/ctl/sse.h"

FUZZ_UNIT("streams")

static void on_data(void *ctx, const char *line) {
    uint64_t *h = ctx;
    for (; *line; line++) *h = (*h ^ (uint8_t)*line) * UINT64_C(0x100000001b3);
    *h = (*h ^ 256) * UINT64_C(0x100000001b3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    static tdm_sse_t whole, cut;
    uint64_t whole_hash = 0, cut_hash = 0;
    fuzz_in_t in = {data, sz};
    size_t piece_max = 1 + fuzz_u8(&in) % 16, piece_sz;
    tdm_sse_init(&whole, on_data, &whole_hash);
    tdm_sse_init(&cut, on_data, &cut_hash);
    tdm_sse_feed(&whole, in.at, in.left);
    while (in.left > 0) {
        const uint8_t *piece = fuzz_take(&in, piece_max, &piece_sz);
        uint8_t *copy = fuzz_copy(piece, piece_sz);
        tdm_sse_feed(&cut, copy, piece_sz);
        free(copy);
    }
    FUZZ_CHECK(whole_hash == cut_hash && whole.over_cnt == cut.over_cnt);
    fuzz_cnt++;
    return 0;
}
