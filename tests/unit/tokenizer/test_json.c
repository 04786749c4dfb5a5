/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a tokenizer.json is taken where every step of it is implemented,
   and refused by the name of the first step that is not.  Method: a small
   right file of each form; one text in it replaced per case. */
#include "appliance/tokenizer/detok.h"
#include "appliance/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static const char words[] =
    "{\"normalizer\":null,"
    "\"added_tokens\":[{\"id\":5,\"content\":\"<|end|>\",\"special\":true,\"lstrip\":false},"
    "{\"id\":6,\"content\":\"##\",\"special\":false}],"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Digits\",\"individual_digits\":true},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<|end|>\"}}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"byte_fallback\":false,"
    "\"ignore_merges\":false,"
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"1\":3,\"11\":4},\"merges\":[\"a b\",[\"1\",\"1\"]]}}";

#define MARK "\xe2\x96\x81"
static const char pieces[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]},"
    "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
    "{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
    "\"pre_tokenizer\":null,"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\"}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"" MARK "\":4,\"a\":5,"
    "\"" MARK "a\":6},\"merges\":[\"" MARK " a\"]}}";

/* assert_same_from_memory reads the file's text from a block of exactly its
   size: the outcome is the file's. */
static void assert_same_from_memory(const char *path, tdm_status_t st, const tdm_error_t *err) {
    static char text[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t sz = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    assert_in_range(sz, 0, sizeof text - 1);
    char *copy = malloc(sz + !sz);
    assert_non_null(copy);
    memcpy(copy, text, sz);
    tdm_tokenizer_t *t;
    tdm_error_t again = {0};
    assert_int_equal(tdm_tokenizer_parse_json(copy, sz, path, 8, &t, &again), st);
    free(copy);
    if (st == TDM_OK)
        tdm_tokenizer_close(t);
    else
        assert_string_equal(again.text, err->text);
}

/* open_replaced opens base with the first `from` in it replaced by `to`. */
static tdm_status_t open_replaced(const char *base, const char *from, const char *to,
                                  tdm_tokenizer_t **t, tdm_error_t *err) {
    char path[] = "/tmp/tdm-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    const char *at = from ? strstr(base, from) : base;
    assert_non_null(at);
    (void)fwrite(base, 1, (size_t)(at - base), f);
    if (from) {
        (void)fputs(to, f);
        at += strlen(from);
    }
    (void)fputs(at, f);
    (void)fclose(f);
    tdm_status_t st = tdm_tokenizer_open_json(path, 8, t, err);
    assert_same_from_memory(path, st, err);
    (void)unlink(path);
    return st;
}

static void assert_encodes(const tdm_tokenizer_t *t, const char *text, uint32_t flags,
                           const int32_t *want, uint32_t want_cnt) {
    tdm_encode_scratch_t *s;
    int32_t ids[32];
    uint32_t cnt;
    assert_int_equal(tdm_encode_scratch_create(t, 64, &s, NULL), TDM_OK);
    assert_int_equal(tdm_tokenizer_encode(t, s, text, strlen(text), flags, ids, 32, &cnt),
                     TDM_ENCODE_OK);
    assert_int_equal(cnt, want_cnt);
    for (uint32_t i = 0; i < cnt; i++) assert_int_equal(ids[i], want[i]);
    tdm_encode_scratch_destroy(s);
}

static void a_byte_level_file_is_taken(void **state) {
    (void)state;
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    if (open_replaced(words, NULL, NULL, &t, &err) != TDM_OK) fail_msg("%s", err.text);
    assert_encodes(t, "ab11a", 0, (int32_t[]){2, 3, 3, 0}, 4); /* digits stand alone */
    assert_encodes(t, "a<|end|>", TDM_ENCODE_ADD_SPECIAL | TDM_ENCODE_PARSE_SPECIAL,
                   (int32_t[]){0, 5, 5}, 3);
    assert_encodes(t, "a##b", 0, (int32_t[]){0, 6, 1}, 3);
    assert_int_equal(tdm_tokenizer_eos(t), 5);
    assert_int_equal(tdm_tokenizer_bos(t), -1);
    tdm_tokenizer_close(t);
}

static void a_piece_file_is_taken(void **state) {
    (void)state;
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    if (open_replaced(pieces, NULL, NULL, &t, &err) != TDM_OK) fail_msg("%s", err.text);
    assert_encodes(t, "a a", TDM_ENCODE_ADD_SPECIAL, (int32_t[]){1, 6, 6}, 3);
    assert_encodes(t, "a" MARK "a", TDM_ENCODE_ADD_SPECIAL, (int32_t[]){1, 6, 6}, 3);
    assert_encodes(t, "\xc3\xa9", 0, (int32_t[]){4, 2, 3}, 3);  /* bytes for want of a piece */
    assert_encodes(t, "\xe4\xb8\x80", 0, (int32_t[]){4, 0}, 2); /* not even bytes: unknown */
    tdm_detok_t d;
    char out[TDM_DETOK_OUT_MAX];
    tdm_detok_init(&d, TDM_DETOK_STRIP_FIRST);
    assert_int_equal(tdm_detok_push(&d, t, 6, out), 1);
    assert_int_equal(tdm_detok_push(&d, t, 6, out), 2);
    assert_memory_equal(out, " a", 2);
    assert_int_equal(tdm_detok_push(&d, t, 2, out), 0);
    assert_int_equal(tdm_detok_push(&d, t, 3, out), 2);
    assert_int_equal(tdm_detok_push(&d, t, 0, out), 0);
    tdm_tokenizer_close(t);
}

static void what_is_not_implemented_or_broken_is_refused_by_name(void **state) {
    (void)state;
    const struct {
        const char *base, *from, *to;
        tdm_status_t want;
        const char *text;
    } row[] = {
        {words, "\"BPE\"", "\"Unigram\"", TDM_ERR_UNSUPPORTED, "'Unigram'"},
        {words, "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", TDM_ERR_UNSUPPORTED,
         "'NFC'"},
        {words, "\"Digits\"", "\"Punctuation\"", TDM_ERR_UNSUPPORTED, "'Punctuation'"},
        {words, "\"individual_digits\":true", "\"individual_digits\":false", TDM_ERR_UNSUPPORTED,
         "'Digits'"},
        {words, "\"add_prefix_space\":false", "\"add_prefix_space\":true", TDM_ERR_UNSUPPORTED,
         "add_prefix_space"},
        {words, "\"use_regex\":true", "\"use_regex\":false", TDM_ERR_UNSUPPORTED, "use_regex"},
        {words, "{\"type\":\"Digits\",\"individual_digits\":true}",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"}}", TDM_ERR_UNSUPPORTED, "'x+'"},
        {words, "\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}",
         TDM_ERR_UNSUPPORTED, "'WordPiece'"},
        {words, "\"TemplateProcessing\"", "\"BertProcessing\"", TDM_ERR_UNSUPPORTED,
         "'BertProcessing'"},
        {words, "\"dropout\":null", "\"dropout\":0.1", TDM_ERR_UNSUPPORTED, "dropout"},
        {words, "\"dropout\":null", "\"end_of_word_suffix\":\"</w>\"", TDM_ERR_UNSUPPORTED,
         "end_of_word_suffix"},
        {words, "\"lstrip\":false", "\"lstrip\":true", TDM_ERR_UNSUPPORTED, "lstrip"},
        {words, "\"id\":6", "\"id\":2", TDM_ERR_CORRUPT, "id 2 appears twice"},
        {words, "\"id\":6", "\"id\":8", TDM_ERR_CORRUPT, "added_tokens"},
        {words, "\"id\":6", "\"id\":6.0", TDM_ERR_CORRUPT, "added_tokens"},
        {words, "\"11\":4", "\"11\":3", TDM_ERR_CORRUPT, "id 3 appears twice"},
        {words, "\"11\":4", "\"11\":-4", TDM_ERR_CORRUPT, "'11'"},
        {words, "\"11\":4", "\"11\":8", TDM_ERR_CORRUPT, "'11'"},
        {words, "\"11\":4", "\"11\":\"4\"", TDM_ERR_CORRUPT, "'11'"},
        {words, "\"11\":4", "\"ab\":4", TDM_ERR_CORRUPT, "duplicate"},
        {words, "\"a b\"", "\"a 1\"", TDM_ERR_CORRUPT, "merge 0 names no token"},
        {words, "\"a b\"", "7", TDM_ERR_CORRUPT, "merges"},
        {words, "[\"1\",\"1\"]", "[\"1\"]", TDM_ERR_CORRUPT, "merges"},
        {words, "[\"1\",\"1\"]", "\"a b\"", TDM_ERR_CORRUPT, "merge 1 repeats"},
        {words, "\"merges\"", "\"merge\"", TDM_ERR_CORRUPT, "model.merges"},
        {words, "\"vocab\"", "\"words\"", TDM_ERR_CORRUPT, "model.vocab"},
        {words, "\"model\"", "\"modell\"", TDM_ERR_CORRUPT, "model"},
        {words, "{\"SpecialToken\":{\"id\":\"<|end|>\"}}", "{\"SpecialToken\":{\"id\":\"nope\"}}",
         TDM_ERR_CORRUPT, "post_processor"},
        {words, "}", "", TDM_ERR_CORRUPT, "line 1"},
        {pieces, "\"Prepend\"", "\"Lowercase\"", TDM_ERR_UNSUPPORTED, "'Lowercase'"},
        {pieces, "\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Metaspace\"}",
         TDM_ERR_UNSUPPORTED, "'Metaspace'"},
        {pieces, "\"Fuse\"", "\"CTC\"", TDM_ERR_UNSUPPORTED, "'CTC'"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        tdm_status_t st = open_replaced(row[i].base, row[i].from, row[i].to, &t, &err);
        if (st != row[i].want || !strstr(err.text, row[i].text) || t)
            fail_msg("case %u: %s: %s", i, tdm_status_name(st), err.text);
    }
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    char part[sizeof words];
    for (size_t n = 0; n + 1 < sizeof words; n += 7) {
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        memcpy(part, words, n);
        part[n] = 0;
        assert_int_equal(open_replaced(part, NULL, NULL, &t, &err), TDM_ERR_CORRUPT);
        assert_null(t);
    }
    tdm_tokenizer_t *t;
    tdm_error_t err = {0};
    assert_int_equal(tdm_tokenizer_open_json("/nonexistent/tokenizer.json", 8, &t, &err),
                     TDM_ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_level_file_is_taken),
        cmocka_unit_test(a_piece_file_is_taken),
        cmocka_unit_test(what_is_not_implemented_or_broken_is_refused_by_name),
        cmocka_unit_test(every_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
