/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, whole: parser, every view it hands out, shape, tokenizer,
   weights.  Input: the file. */
#include "tests/fuzz/fuzz.h"

#include "appliance/model/weights.h"
#include "appliance/tokenizer/tokenizer.h"

FUZZ_UNIT("files")

static uint64_t sum;

static void look(const void *bytes, uint64_t sz) {
    const uint8_t *p = bytes;
    for (uint64_t i = 0; i < sz; i++) sum += p[i];
}

static void walk(const tdm_gguf_t *g) {
    for (uint32_t i = 0; i < tdm_gguf_key_cnt(g); i++) {
        tdm_gguf_string_t key = tdm_gguf_key(g, i), s;
        char name[TDM_GGUF_NAME_MAX + 1];
        FUZZ_CHECK(key.sz <= TDM_GGUF_NAME_MAX);
        memcpy(name, key.bytes, key.sz);
        name[key.sz] = 0;
        uint32_t n;
        float f;
        int is;
        tdm_gguf_array_t a;
        (void)!tdm_gguf_u32(g, name, &n, NULL);
        (void)!tdm_gguf_f32(g, name, &f, NULL);
        (void)!tdm_gguf_bool(g, name, &is, NULL);
        if (tdm_gguf_string(g, name, &s, NULL) == TDM_OK) look(s.bytes, s.sz);
        if (tdm_gguf_array(g, name, TDM_GGUF_STRING, &a, NULL) == TDM_OK)
            for (uint64_t at = 0; tdm_gguf_array_string(&a, &at, &s);) look(s.bytes, s.sz);
        if (tdm_gguf_array(g, name, TDM_GGUF_I32, &a, NULL) == TDM_OK)
            for (uint64_t k = 0; k < a.cnt; k++) sum += tdm_gguf_array_u32(&a, k);
    }
    for (uint32_t i = 0; i < tdm_gguf_tensor_cnt(g); i++)
        look(tdm_gguf_tensor_at(g, i)->bytes, tdm_gguf_tensor_at(g, i)->sz);
}

static void load(const tdm_gguf_t *g, const tdm_shape_t *shape) {
    static tdm_weights_t w;
    tdm_error_t err = {0};
    uint64_t sz = tdm_weights_sz(shape, TDM_WEIGHT_BF16);
    if (sz > 1u << 20) return;
    tdm_arena_t arena = fuzz_arena(sz);
    if (tdm_weights_load(g, shape, TDM_WEIGHT_BF16, &arena, NULL, NULL, &w, &err) != TDM_OK)
        FUZZ_CHECK(err.text[0] != 0);
    free(arena.base);
}

static void encode(const tdm_gguf_t *g, uint32_t vocab) {
    tdm_tokenizer_t *t;
    tdm_encode_scratch_t *s;
    tdm_error_t err = {0};
    int32_t ids[64];
    uint32_t cnt;
    if (tdm_tokenizer_open_gguf(g, vocab, &t, &err) != TDM_OK) return;
    if (tdm_encode_scratch_create(t, 64, &s, &err) == TDM_OK) {
        if (tdm_tokenizer_encode(t, s, "a b<s>", 6, TDM_ENCODE_PARSE_SPECIAL, ids, 64, &cnt) ==
            TDM_ENCODE_OK)
            for (uint32_t i = 0; i < cnt; i++) FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < vocab);
        tdm_encode_scratch_destroy(s);
    }
    tdm_tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t sz) {
    uint8_t *copy = fuzz_copy(data, sz);
    tdm_gguf_t *g;
    tdm_error_t err = {0};
    fuzz_cnt++;
    if (tdm_gguf_parse(copy, sz, &g, &err) == TDM_OK) {
        tdm_shape_t shape;
        walk(g);
        int is_model = tdm_shape_from_gguf(g, &shape, &err) == TDM_OK;
        if (is_model) load(g, &shape);
        encode(g, is_model ? shape.vocab : 64);
        tdm_gguf_close(g);
    } else {
        FUZZ_CHECK(err.text[0] != 0);
    }
    free(copy);
    return 0;
}
