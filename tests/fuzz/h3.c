/* SPDX-License-Identifier: Apache-2.0 */
/* Stream bytes and header blocks into net/h3.

   Input: one byte that bounds the allocations, then records of one
   operation byte, one byte of length, and bytes.  The low bits of the
   operation choose the stream (0, 4, 8, 12 are requests, 2, 6, 10, 14 the
   client's own), the high ones what happens:
     0 bytes   1 bytes and end   2 reset   3 close   4 answer and take
     5 a header block made from the bytes as literal fields, and end
     6 bytes, one at a time      7 the end alone */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/net_h3/bench.h"

FUZZ_UNIT("conversations")

static bench_t b;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    bench_open(&b);
    return 0;
}

static uint32_t put_int(uint8_t *p, uint32_t first, uint32_t prefix_max, uint32_t v) {
    if (v < prefix_max) {
        p[0] = (uint8_t)(first | v);
        return 1;
    }
    p[0] = (uint8_t)(first | prefix_max);
    uint32_t n = 1;
    for (v -= prefix_max; v >= 128; v >>= 7) p[n++] = (uint8_t)(v | 128);
    p[n++] = (uint8_t)v;
    return n;
}

/* header_block writes a HEADERS frame with the usual pseudo fields and the
   bytes as "name:value" fields, one a line, without Huffman coding. */
static uint32_t header_block(uint8_t *out, const uint8_t *bytes, size_t sz) {
    static const uint8_t usual[] = {0, 0, 0xd1, 0xd7, 0xc1, 0x50, 0x01, 'h'};
    uint8_t *p = out + 3; /* type and a length of two bytes */
    memcpy(p, usual, sizeof usual);
    p += sizeof usual;
    for (size_t at = 0; at < sz;) {
        const uint8_t *line = bytes + at;
        const uint8_t *end = memchr(line, '\n', sz - at);
        size_t line_sz = end ? (size_t)(end - line) : sz - at;
        const uint8_t *colon = line_sz ? memchr(line, ':', line_sz) : NULL;
        size_t name_sz = colon ? (size_t)(colon - line) : line_sz;
        size_t value_sz = colon ? line_sz - name_sz - 1 : 0;
        p += put_int(p, 0x20, 7, (uint32_t)name_sz);
        memcpy(p, line, name_sz);
        p += name_sz;
        p += put_int(p, 0, 127, (uint32_t)value_sz);
        if (value_sz) memcpy(p, colon + 1, value_sz);
        p += value_sz;
        at += line_sz + 1;
    }
    uint32_t block_sz = (uint32_t)(p - out) - 3;
    out[0] = 1;
    out[1] = (uint8_t)(0x40 | block_sz >> 8);
    out[2] = (uint8_t)block_sz;
    return block_sz + 3;
}

static int feed(int64_t id, const uint8_t *bytes, size_t sz, int is_fin) {
    uint8_t *copy = fuzz_copy(bytes, sz);
    int rv = bench_feed(&b, id, copy, sz, is_fin);
    free(copy);
    return rv;
}

static int do_record(fuzz_in_t *in) {
    uint8_t block[2048];
    uint32_t op = fuzz_u8(in);
    size_t sz, max = fuzz_u8(in);
    int64_t id = (int64_t)(op & 7) * 2;
    const uint8_t *bytes = fuzz_take(in, max, &sz);
    int rv = 0;
    switch (op >> 5) {
    case 0: return feed(id, bytes, sz, 0);
    case 1: return feed(id, bytes, sz, 1);
    case 2: return b.app.stream_reset(b.app.ctx, &b.conn, id, 0x10c);
    case 3: return b.app.stream_close(b.app.ctx, &b.conn, id, 0x100);
    case 4:
        bench_answer(&b);
        bench_take(&b);
        return 0;
    case 5: return feed(id, block, header_block(block, bytes, sz), 1);
    case 6:
        for (size_t i = 0; i < sz && rv == 0; i++) rv = feed(id, bytes + i, 1, 0);
        return rv;
    default: return feed(id, NULL, 0, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    static const uint8_t control[] = {0x00, 0x04, 0x00};
    fuzz_in_t in = {data, sz};
    uint32_t bound = fuzz_u8(&in);
    fuzz_cnt++;
    int is_alive = bench_begin(&b, bound < 200 ? 100000 : bound - 200) == 0;
    if (is_alive && bound % 2 == 0) is_alive = feed(2, control, sizeof control, 0) == 0;
    while (is_alive && in.left > 0) is_alive = do_record(&in) == 0 && b.conn.error == 0;
    bench_end(&b);
    return 0;
}
