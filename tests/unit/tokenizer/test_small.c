/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: both forms of vocabulary, from both kinds of file, give the ids of
   the libraries that define them.  Method: small tokenizers trained with
   sentencepiece and tokenizers, their files and vectors committed under
   tests/numerics/golden. */
#include "appliance/tokenizer/detok.h"
#include "appliance/tokenizer/tokenizer.h"
#include "tests/unit/model/gguf_build.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define GOLDEN   TDM_SOURCE_DIR "/tests/numerics/golden/"
#define TEXT_MAX 16384

static json_t *golden;

static int open_golden(void **state) {
    (void)state;
    json_error_t where;
    golden = json_load_file(GOLDEN "small_tokenizers.json", JSON_ALLOW_NUL, &where);
    return golden ? 0 : -1;
}

static int close_golden(void **state) {
    (void)state;
    json_decref(golden);
    return 0;
}

/* check_texts encodes every text of a set; where the set says how the ids
   decode, it decodes them as well. */
static void check_texts(const tdm_tokenizer_t *t, const json_t *set, uint32_t flags,
                        uint32_t detok_flags) {
    static int32_t ids[TEXT_MAX];
    tdm_encode_scratch_t *s;
    tdm_error_t err = {0};
    const json_t *v;
    size_t i;
    uint32_t seen = 0;
    assert_int_equal(tdm_encode_scratch_create(t, TEXT_MAX, &s, &err), TDM_OK);
    json_array_foreach(json_object_get(set, "texts"), i, v) {
        const json_t *text = json_object_get(v, "text"), *want = json_object_get(v, "ids");
        const json_t *decoded = json_object_get(v, "decoded");
        uint32_t cnt;
        assert_int_equal(tdm_tokenizer_encode(t, s, json_string_value(text),
                                              json_string_length(text), flags, ids, TEXT_MAX, &cnt),
                         TDM_ENCODE_OK);
        int is_same = cnt == json_array_size(want);
        for (uint32_t k = 0; is_same && k < cnt; k++)
            is_same = ids[k] == json_integer_value(json_array_get(want, k));
        if (!is_same) fail_msg("text %zu: '%s': %u ids", i, json_string_value(text), cnt);
        seen++;
        if (!decoded) continue;
        char out[TDM_DETOK_OUT_MAX];
        tdm_detok_t d;
        const char *p = json_string_value(decoded);
        tdm_detok_init(&d, detok_flags);
        for (uint32_t k = 0; k < cnt; k++) {
            uint32_t n = tdm_detok_push(&d, t, ids[k], out);
            assert_memory_equal(out, p, n);
            p += n;
        }
        assert_int_equal(p - json_string_value(decoded), json_string_length(decoded));
    }
    assert_true(seen >= 80);
    tdm_encode_scratch_destroy(s);
}

/* gguf_of_pieces writes the metadata that a converter would. */
static void gguf_of_pieces(const json_t *set, gguf_build_t *b) {
    const json_t *v;
    size_t i;
    gguf_start(b);
    gguf_key_string(b, "tokenizer.ggml.model", "llama");
    gguf_key_array(b, "tokenizer.ggml.tokens", 8, json_array_size(json_object_get(set, "tokens")));
    json_array_foreach(json_object_get(set, "tokens"), i, v)
        gguf_text(b, json_string_value(v), json_string_length(v));
    gguf_key_array(b, "tokenizer.ggml.scores", 6, json_array_size(json_object_get(set, "scores")));
    json_array_foreach(json_object_get(set, "scores"), i, v) {
        float f = (float)json_number_value(v);
        gguf_raw(b, &f, sizeof f);
    }
    gguf_key_array(b, "tokenizer.ggml.token_type", 5,
                   json_array_size(json_object_get(set, "kinds")));
    json_array_foreach(json_object_get(set, "kinds"), i, v)
        gguf_raw32(b, (uint32_t)json_integer_value(v));
    gguf_key_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_key_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_key_u32(b, "tokenizer.ggml.unknown_token_id", 0);
    gguf_key_bool(b, "tokenizer.ggml.add_space_prefix",
                  json_is_true(json_object_get(set, "prefix")));
    gguf_finish(b);
}

static void pieces_match_sentencepiece(void **state) {
    (void)state;
    const char *name[] = {"pieces", "pieces_bare"};
    for (uint32_t k = 0; k < 2; k++) {
        const json_t *set = json_object_get(golden, name[k]);
        gguf_build_t b;
        tdm_gguf_t *g;
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        gguf_of_pieces(set, &b);
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        if (tdm_tokenizer_open_gguf(g, 1000, &t, &err) != TDM_OK) fail_msg("%s", err.text);
        assert_string_equal(tdm_tokenizer_name(t), "llama");
        check_texts(t, set, 0, k == 0 ? TDM_DETOK_STRIP_FIRST : 0);

        /* the model wants its begin token first */
        tdm_encode_scratch_t *s;
        int32_t ids[8];
        uint32_t cnt;
        assert_int_equal(tdm_encode_scratch_create(t, 64, &s, &err), TDM_OK);
        assert_int_equal(tdm_tokenizer_encode(t, s, "", 0, TDM_ENCODE_ADD_SPECIAL, ids, 8, &cnt),
                         TDM_ENCODE_OK);
        assert_int_equal(cnt, 1);
        assert_int_equal(ids[0], 1);
        tdm_encode_scratch_destroy(s);
        tdm_tokenizer_close(t);
        tdm_gguf_close(g);
        gguf_drop(&b);
    }
}

static void tokenizer_json_matches_the_library_that_wrote_it(void **state) {
    (void)state;
    const char *name[] = {"gpt2", "llama3", "smollm"};
    for (uint32_t k = 0; k < TDM_COUNT_OF(name); k++) {
        const json_t *set = json_object_get(golden, name[k]);
        char path[512];
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        (void)snprintf(path, sizeof path, GOLDEN "%s",
                       json_string_value(json_object_get(set, "file")));
        uint32_t vocab = (uint32_t)json_integer_value(json_object_get(set, "vocab"));
        if (tdm_tokenizer_open_json(path, vocab, &t, &err) != TDM_OK) fail_msg("%s", err.text);
        assert_int_equal(tdm_tokenizer_vocab(t), vocab);
        check_texts(t, set, TDM_ENCODE_ADD_SPECIAL, 0);
        assert_int_equal(tdm_tokenizer_bos(t), k == 1 ? 0 : -1);
        assert_int_equal(tdm_tokenizer_find_special(t, "<|eot_id|>"), 1);
        tdm_tokenizer_close(t);
        assert_int_equal(tdm_tokenizer_open_json(path, vocab - 1, &t, &err), TDM_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "outside the model's"));
    }
}

/* The same vocabulary through GGUF metadata: merges as "a b" strings. */
static void gguf_metadata_matches_the_library_as_well(void **state) {
    (void)state;
    const struct {
        const char *set, *pre;
    } row[] = {
        {"gpt2", "gpt-2"},
        {"llama3", "llama-bpe"},
        {"smollm", "smollm"},
        {"default", "default"},
    };
    for (uint32_t k = 0; k < TDM_COUNT_OF(row); k++) {
        const json_t *set = json_object_get(golden, row[k].set);
        json_error_t where;
        char path[512];
        (void)snprintf(path, sizeof path, GOLDEN "%s",
                       json_string_value(json_object_get(set, "file")));
        json_t *file = json_load_file(path, 0, &where);
        json_t *model = json_object_get(file, "model");
        json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
        size_t cnt = json_object_size(vocab), i;
        const char *text, *by_id[1024] = {0};
        json_t *v;
        assert_true(cnt < 1024);
        json_object_foreach(vocab, text, v) by_id[json_integer_value(v)] = text;
        gguf_build_t b;
        gguf_start(&b);
        gguf_key_string(&b, "tokenizer.ggml.model", "gpt2");
        gguf_key_string(&b, "tokenizer.ggml.pre", row[k].pre);
        gguf_key_array(&b, "tokenizer.ggml.tokens", 8, cnt);
        for (i = 0; i < cnt; i++) gguf_text(&b, by_id[i], strlen(by_id[i]));
        gguf_key_array(&b, "tokenizer.ggml.token_type", 5, cnt);
        for (i = 0; i < cnt; i++) gguf_raw32(&b, i < 2 ? 3 : 1);
        gguf_key_array(&b, "tokenizer.ggml.merges", 8, json_array_size(merges));
        json_array_foreach(merges, i, v) {
            char merge[4 * TDM_PIECE_MAX];
            int n = json_is_string(v) ? snprintf(merge, sizeof merge, "%s", json_string_value(v))
                                      : snprintf(merge, sizeof merge, "%s %s",
                                                 json_string_value(json_array_get(v, 0)),
                                                 json_string_value(json_array_get(v, 1)));
            gguf_text(&b, merge, (uint64_t)n);
        }
        gguf_key_u32(&b, "tokenizer.ggml.bos_token_id", 0);
        gguf_finish(&b);
        tdm_gguf_t *g;
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, &err), TDM_OK);
        if (tdm_tokenizer_open_gguf(g, 1024, &t, &err) != TDM_OK) fail_msg("%s", err.text);
        check_texts(t, set, TDM_ENCODE_ADD_SPECIAL, 0);
        tdm_tokenizer_close(t);
        tdm_gguf_close(g);
        gguf_drop(&b);
        json_decref(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_match_sentencepiece),
        cmocka_unit_test(tokenizer_json_matches_the_library_that_wrote_it),
        cmocka_unit_test(gguf_metadata_matches_the_library_as_well),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
