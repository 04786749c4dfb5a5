// SPDX-License-Identifier: Apache-2.0
// The named cases, each with the four fills: lengths at the edges of pages,
// tiles and splits; what has broken other kernels (empty rows, sinking
// scores, one key, offsets past 32 bits, odd head groups, later chunks,
// canary pages); later tokens that are not finite; contexts past what the
// fused kernels take.
#include <stdio.h>
#include <string.h>

#include "tests/numerics/attention_cuda/rig.h"

typedef void edge_fn(world_t *w, uint32_t i);

static void shape(world_t *w, uint32_t nhead_q, uint32_t nhead_kv, uint32_t dim, uint32_t page) {
    tdm_pod_shape_t s = {nhead_q, nhead_kv, dim, TDM_POD_BF16, TDM_POD_BF16, page, 0};
    w->shape = s;
}

static void prefill(world_t *w, uint32_t kv, uint32_t cnt) {
    world_add(w, kv, cnt);
    w->prefill_cnt++;
}

static void decode(world_t *w, uint32_t kv) {
    world_add(w, kv, 1);
    w->decode_cnt++;
}

// Types take turns over the cases of an edge.
static void type(world_t *w, uint32_t i) {
    static const uint32_t list[][2] = {{TDM_POD_BF16, TDM_POD_BF16},
                                       {TDM_POD_F16, TDM_POD_F16},
                                       {TDM_POD_BF16, TDM_POD_E4M3},
                                       {TDM_POD_F16, TDM_POD_E4M3}};
    w->shape.dtype = list[i % 4][0];
    w->shape.kv_dtype = list[i % 4][1];
}

static void empty_decode_row(world_t *w, uint32_t i) {
    shape(w, 8, 2, 64u << i / 4 % 2, 16u << i % 4);
    type(w, i / 2);
    const uint32_t kv[] = {17, 0, 33, 1};
    for (uint32_t s = 0; s < 4; s++) decode(w, kv[s]);
}

// With splits of 64 most partials of the early rows are empty.
static void empty_partials(world_t *w, uint32_t i) {
    shape(w, 4, 1, 64u << i % 2, 64);
    type(w, i / 2);
    prefill(w, 512, 512);
    prefill(w, 3, 200); // rows before position 0
    decode(w, 0);
    decode(w, 2048);
}

static void sinking_scores(world_t *w, uint32_t i) {
    static const uint32_t kv[] = {1, 15, 16, 17, 512};
    static const uint32_t dim[] = {64, 128, 96, 256};
    shape(w, 8, 2, dim[i / 4 % 4], 64);
    type(w, i);
    w->style = WORLD_SINKING;
    for (uint32_t s = 0; s < 5; s++) prefill(w, kv[s], kv[s] < 40 ? kv[s] : 40);
    for (uint32_t s = 0; s < 5; s++) decode(w, kv[s]);
}

// Rows that see nothing, item after item.
static void empty_items(world_t *w, uint32_t i) {
    shape(w, 8, 8, 64u << i % 2, 64);
    for (uint32_t s = 0; s < 24; s++) prefill(w, s % 6 == 5 ? 90 : 0, 1 + s);
    if (i / 2) decode(w, 300);
}

static void one_key(world_t *w, uint32_t i) {
    shape(w, 8, 2, 64u << i % 2, 16);
    type(w, i);
    for (uint32_t s = 0; s < 8; s++) decode(w, 1);
    decode(w, 4096);
}

static void short_lengths(world_t *w, uint32_t i) { // lengths 1 to 40 in batches of 1 to 9
    shape(w, 4, 1, 64u << i % 2, 16);
    for (uint32_t s = 0; s <= i % 9; s++) decode(w, 1 + (i + s * 7) % 40);
}

static void edge_lengths(world_t *w, uint32_t i) { // around pages, tiles, splits
    static const uint32_t at[] = {1, 16, 32, 64, 128, 256, 512, 1024};
    shape(w, 8, 2, 64u << i % 2, 16u << i / 2 % 4);
    type(w, i);
    for (uint32_t n = 0; n < TDM_COUNT_OF(at); n++) {
        for (uint32_t d = 0; d < 3; d++) {
            uint32_t kv = at[n] + d - 1;
            prefill(w, kv, kv && kv < 70 ? kv : 1 + kv % 70);
        }
    }
    for (uint32_t n = 0; n < TDM_COUNT_OF(at); n++) {
        for (uint32_t d = 0; d < 3; d++) decode(w, at[n] + d - 1);
    }
}

static void head_groups(world_t *w, uint32_t i) {
    static const uint32_t head[][2] = {{28, 4}, {24, 4}, {20, 4},  {64, 4}, {71, 1}, {24, 1},
                                       {7, 7},  {48, 2}, {32, 32}, {16, 1}, {128, 1}};
    static const uint32_t dim[] = {64, 128, 96, 256};
    uint32_t n = TDM_COUNT_OF(head);
    shape(w, head[i % n][0], head[i % n][1], dim[i / n % 4], 64);
    type(w, i);
    prefill(w, 333, 77);
    prefill(w, 64, 64);
    for (uint32_t s = 0; s < 5; s++) decode(w, 1 + s * 77);
}

// Decodes of 1 to 8 tokens, over the edges of steps, pages and tiles; with
// fewer keys than tokens, and with later tokens that are not finite.
static void drafts(world_t *w, uint32_t i) {
    static const uint32_t head[][2] = {{8, 8}, {8, 4}, {9, 3},  {8, 2},  {10, 2},
                                       {7, 1}, {8, 1}, {12, 1}, {32, 2}, {17, 1}};
    static const uint32_t kv[] = {3, 8, 16, 33, 65, 130, 700, 2049};
    uint32_t n = TDM_COUNT_OF(head);
    shape(w, head[i % n][0], head[i % n][1], 64u << i / n % 2, 16u << i % 4);
    w->shape.dtype = w->shape.kv_dtype = i / n / 2 % 2 ? TDM_POD_F16 : TDM_POD_BF16;
    w->hot = i % 3;
    if (i % 2) prefill(w, 90, 33);
    for (uint32_t s = 0; s < 8; s++) {
        world_add(w, kv[(s + i) % 8], 1 + s);
        w->decode_cnt++;
    }
}

// All two-way cuts of a prompt, the odd ones, and one in many pieces.
static void chunks(world_t *w, uint32_t i) {
    static const uint32_t prompt[] = {17, 64, 80, 100};
    uint32_t n = prompt[i % 4];
    shape(w, 4, 2, 64u << i / 4 % 2, 16);
    for (uint32_t c = 1; c < n; c += 1 + n / 24) {
        prefill(w, c, c);
        prefill(w, n, n - c);
    }
    for (uint32_t c = 0, last = 0; c < n; last = c) { // 33 + 33 + ...
        c = c + 33 < n ? c + 33 : n;
        prefill(w, c, c - last);
    }
}

static void history_is_not_chunk(world_t *w, uint32_t i) {
    shape(w, 8, 2, 128, 32);
    if (i % 2) prefill(w, 160, 64);
    prefill(w, 96, 96);
    if (i % 2 == 0) prefill(w, 160, 64);
}

// The last token of a slice is infinite or NaN, and rows before it stand in
// the same tile.
static void hot_tokens(world_t *w, uint32_t i) {
    static const uint32_t dim[] = {64, 128, 96, 256};
    shape(w, i / 8 % 2 ? 8 : 4, i / 8 % 2 ? 1 : 4, dim[i / 2 % 4], 16);
    w->hot = i % 2 ? WORLD_HOT_V : WORLD_HOT_NAN;
    w->shape.dtype = w->shape.kv_dtype = i / 16 % 2 ? TDM_POD_F16 : TDM_POD_BF16;
    if (i % 5 == 4 && w->hot == WORLD_HOT_NAN) w->shape.kv_dtype = TDM_POD_E4M3;
    prefill(w, 100, 100);
    prefill(w, 700, 130);
    prefill(w, 1025, 2);
    prefill(w, 64, 1);
    decode(w, 100);
}

static void shared_pages(world_t *w, uint32_t i) {
    shape(w, 8, 2, 64u << i % 2, 16u << i / 2 % 4);
    type(w, i);
    w->is_shared = 1;
    prefill(w, 900, 60);
    prefill(w, 1000, 90);
    for (uint32_t s = 0; s < 8; s++) decode(w, 500 + 50 * s);
}

// More than 2^32 elements in a pool, and more than 2^32 bytes.
static void far_pages(world_t *w, uint32_t i) {
    shape(w, 32, 32, 128, 64);
    if (i % 2) w->shape.kv_dtype = TDM_POD_E4M3;
    w->page_min = 16500;
    prefill(w, 64, 64);
    prefill(w, 150, 10);
    for (uint32_t s = 0; s < 6; s++) decode(w, 64 * (1 + s % 2));
}

// Past the fused kernels' contexts: the plain ones, with a reason.
static void long_contexts(world_t *w, uint32_t i) {
    shape(w, 4, 1, 64, 64);
    type(w, i);
    prefill(w, TDM_CONTEXT_MAX + 1, 5);
    decode(w, 200000 + i);
    decode(w, 77);
}

static const struct {
    const char *name;
    edge_fn *fn;
    uint32_t cnt;
} list[] = {{"empty_decode_row", empty_decode_row, 16},
            {"empty_partials", empty_partials, 8},
            {"empty_items", empty_items, 4},
            {"sinking_scores", sinking_scores, 16},
            {"one_key", one_key, 8},
            {"short_lengths", short_lengths, 40},
            {"edge_lengths", edge_lengths, 8},
            {"head_groups", head_groups, 44},
            {"drafts", drafts, 40},
            {"chunks", chunks, 8},
            {"history_is_not_chunk", history_is_not_chunk, 2},
            {"hot_tokens", hot_tokens, 32},
            {"shared_pages", shared_pages, 8},
            {"far_pages", far_pages, 2},
            {"long_contexts", long_contexts, 4}};

void edges(uint64_t seed) {
    static world_t w;
    uint64_t s = seed * 100003;
    for (uint32_t e = 0; e < TDM_COUNT_OF(list); e++) {
        uint64_t before = fail_cnt;
        for (uint32_t i = 0; i < list[e].cnt; i++) {
            for (uint32_t fill = 0; fill < 4; fill++) {
                memset(&w, 0, sizeof w);
                list[e].fn(&w, i);
                world_open(&w, ++s, fill);
                tdm_rng_t rng = {s};
                uint32_t split = list[e].fn == empty_partials ? 64u : i % 3 ? 0u : 128u;
                knobs_t k = {i % 3, split, list[e].fn == empty_partials ? 8u : 0u};
                rig_check(&w, &k, &rng);
                world_close(&w);
            }
        }
        printf("edge %s: %u cases x 4 fills, %llu failures\n", list[e].name, list[e].cnt,
               (unsigned long long)(fail_cnt - before));
    }
    rig_table();
}
