/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: encoding keeps its bounds and its promise about control tokens,
   merging is right for words of any length, and no vocabulary, however
   broken, gets through.  Method: a handful of tokens written as a GGUF
   file; an obvious merge loop as oracle for long random words; one case
   for each rule a file can break. */
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/model/dummy.h"
#include "appliance/tokenizer/tokenizer.h"
#include "tests/unit/model/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define TEXT_MAX (1u << 20)

typedef struct word {
    const char *text;
    int32_t kind;
} word_t;

/* Tokens 0..: 'a' 'b' 'c', what they merge to, specials at the end. */
static const word_t abc[] = {
    {"a", 1},
    {"b", 1},
    {"c", 1},
    {"ab", 1},
    {"bc", 1},
    {"aa", 1},
    {"abc", 1},
    {"aaaa", 1},
    {"ca", 1},
    {"abca", 1},
    {"\xc4\xa0", 1} /* a space */,
    {"<s>", 3},
    {"<|end|>", 3},
    {"<|end|>>", 3},
    {"cab", 4},
};
enum { ID_S = 11, ID_END = 12, ID_END_LONG = 13, ID_USER = 14, ABC_CNT = 15 };
static const char *const abc_merges[] = {"b c", "a b", "a a", "a bc", "aa aa", "c a", "ab ca"};
enum { ABC_MERGES = 7 };

/* What a hostile case changes. */
typedef struct change {
    const char *model, *pre, *extra_merge, *extra_token;
    int32_t extra_kind, bos;
    int has_no_tokens, has_no_kinds, has_short_kinds, has_no_merges, is_piece_model, has_nan_score,
        has_short_scores;
    const float *score; /* [ABC_CNT] */
} change_t;

static void build(gguf_build_t *b, const change_t *c) {
    uint64_t cnt = ABC_CNT + (c->extra_token != NULL);
    gguf_start(b);
    gguf_key_string(b, "tokenizer.ggml.model", c->model ? c->model : "gpt2");
    gguf_key_string(b, "tokenizer.ggml.pre", c->pre ? c->pre : "gpt-2");
    if (!c->has_no_tokens) {
        gguf_key_array(b, "tokenizer.ggml.tokens", 8, cnt);
        for (uint32_t i = 0; i < ABC_CNT; i++) gguf_text(b, abc[i].text, strlen(abc[i].text));
        if (c->extra_token) gguf_text(b, c->extra_token, strlen(c->extra_token));
    }
    if (!c->has_no_kinds) {
        gguf_key_array(b, "tokenizer.ggml.token_type", 5, cnt - (uint64_t)c->has_short_kinds);
        for (uint32_t i = 0; i < ABC_CNT - (uint32_t)c->has_short_kinds; i++)
            gguf_raw32(b, (uint32_t)abc[i].kind);
        if (c->extra_token) gguf_raw32(b, (uint32_t)c->extra_kind);
    }
    if (!c->has_no_merges) {
        gguf_key_array(b, "tokenizer.ggml.merges", 8, ABC_MERGES + (c->extra_merge != NULL));
        for (uint32_t i = 0; i < ABC_MERGES; i++)
            gguf_text(b, abc_merges[i], strlen(abc_merges[i]));
        if (c->extra_merge) gguf_text(b, c->extra_merge, strlen(c->extra_merge));
    }
    if (c->is_piece_model) {
        gguf_key_array(b, "tokenizer.ggml.scores", 6, cnt - (uint64_t)c->has_short_scores);
        for (uint32_t i = 0; i < cnt - (uint64_t)c->has_short_scores; i++) {
            float f = c->has_nan_score && i == 3 ? __builtin_nanf("")
                      : c->score                 ? c->score[i]
                                                 : -(float)i;
            gguf_raw(b, &f, sizeof f);
        }
    }
    gguf_key_u32(b, "tokenizer.ggml.bos_token_id", c->bos ? (uint32_t)c->bos : ID_S);
    gguf_key_bool(b, "tokenizer.ggml.add_bos_token", 1);
    gguf_finish(b);
}

static tdm_status_t open_changed(const change_t *c, uint32_t rows, tdm_tokenizer_t **t,
                                 tdm_error_t *err) {
    gguf_build_t b;
    tdm_gguf_t *g;
    build(&b, c);
    assert_int_equal(tdm_gguf_parse(b.bytes, b.sz, &g, err), TDM_OK);
    tdm_status_t st = tdm_tokenizer_open_gguf(g, rows, t, err);
    tdm_gguf_close(g); /* an open tokenizer needs the file no longer */
    gguf_drop(&b);
    return st;
}

static tdm_tokenizer_t *tok;
static tdm_encode_scratch_t *scratch;
static int32_t *ids;

static int open_abc(void **state) {
    (void)state;
    tdm_error_t err = {0};
    ids = malloc(TEXT_MAX * sizeof *ids);
    assert_int_equal(open_changed(&(change_t){0}, 32, &tok, &err), TDM_OK);
    assert_int_equal(tdm_encode_scratch_create(tok, TEXT_MAX, &scratch, &err), TDM_OK);
    return ids ? 0 : -1;
}

static int close_abc(void **state) {
    (void)state;
    tdm_encode_scratch_destroy(scratch);
    tdm_tokenizer_close(tok);
    free(ids);
    return 0;
}

static uint32_t encode(const char *text, uint32_t flags) {
    uint32_t cnt;
    assert_int_equal(
        tdm_tokenizer_encode(tok, scratch, text, strlen(text), flags, ids, TEXT_MAX, &cnt),
        TDM_ENCODE_OK);
    return cnt;
}

static void assert_ids(uint32_t cnt, const int32_t *want, uint32_t want_cnt) {
    assert_int_equal(cnt, want_cnt);
    for (uint32_t i = 0; i < cnt; i++) assert_int_equal(ids[i], want[i]);
}

static void merges_go_by_rank_and_then_from_the_left(void **state) {
    (void)state;
    assert_ids(encode("abc", 0), (int32_t[]){6}, 1);      /* b c first, then a bc */
    assert_ids(encode("aaaaa", 0), (int32_t[]){7, 0}, 2); /* leftmost pairs */
    assert_ids(encode("aab", 0), (int32_t[]){0, 3}, 2);   /* a b before a a */
    assert_ids(encode("abca", 0), (int32_t[]){6, 0}, 2);  /* ab ca is never reached */
    assert_ids(encode("ab ab", 0), (int32_t[]){3, 10, 3}, 3);
    assert_int_equal(encode("", 0), 0);
}

static void bytes_without_a_token_are_left_out(void **state) {
    (void)state;
    assert_ids(encode("azb", 0), (int32_t[]){3}, 1);
}

static void control_tokens_count_only_where_trusted(void **state) {
    (void)state;
    uint32_t cnt;
    const char *text = "a<|end|>b<|end|>>";
    assert_ids(encode(text, TDM_ENCODE_PARSE_SPECIAL), (int32_t[]){0, ID_END, 1, ID_END_LONG}, 4);
    cnt = encode(text, 0);
    for (uint32_t i = 0; i < cnt; i++) assert_true(ids[i] != ID_END && ids[i] != ID_END_LONG);
    /* every span: a control token counts exactly where it lies inside */
    for (uint32_t start = 0; start <= 17; start++)
        for (uint32_t end = start; end <= 17; end++) {
            const tdm_span_t span = {start, end};
            uint32_t first = 0, second = 0, longer = 0;
            assert_int_equal(tdm_tokenizer_encode_spans(tok, scratch, text, 17, &span, 1, 0, ids,
                                                        TEXT_MAX, &cnt),
                             TDM_ENCODE_OK);
            for (uint32_t i = 0; i < cnt; i++) {
                first += ids[i] == ID_END;
                longer += ids[i] == ID_END_LONG;
            }
            second = start <= 9 && end >= 16;
            assert_int_equal(longer, start <= 9 && end == 17);
            assert_int_equal(first, (uint32_t)(start <= 1 && end >= 8) + (second && !longer));
        }
    const tdm_span_t two[] = {{0, 1}, {9, 17}};
    assert_int_equal(
        tdm_tokenizer_encode_spans(tok, scratch, text, 17, two, 2, 0, ids, TEXT_MAX, &cnt),
        TDM_ENCODE_OK);
    assert_int_equal(ids[cnt - 1], ID_END_LONG);
}

static void user_defined_tokens_count_everywhere(void **state) {
    (void)state;
    assert_ids(encode("acabb", 0), (int32_t[]){0, ID_USER, 1}, 3);
}

static void the_begin_token_comes_where_asked(void **state) {
    (void)state;
    assert_ids(encode("ab", TDM_ENCODE_ADD_SPECIAL), (int32_t[]){ID_S, 3}, 2);
    assert_ids(encode("", TDM_ENCODE_ADD_SPECIAL), (int32_t[]){ID_S}, 1);
}

static void bounds_are_kept(void **state) {
    (void)state;
    uint32_t cnt;
    tdm_encode_scratch_t *small;
    tdm_error_t err = {0};
    assert_int_equal(tdm_encode_scratch_create(tok, 4, &small, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_encode(tok, small, "aaaa", 4, 0, ids, 1, &cnt), TDM_ENCODE_OK);
    assert_int_equal(tdm_tokenizer_encode(tok, small, "aaaaa", 5, 0, ids, 9, &cnt),
                     TDM_ENCODE_TOO_LONG);
    assert_int_equal(cnt, 0);
    tdm_encode_scratch_destroy(small);
    assert_int_equal(tdm_encode_scratch_create(tok, 0, &small, &err), TDM_ERR_INVAL);
    for (uint32_t max = 0; max < 6; max++) {
        ids[max] = -7;
        tdm_encode_t rc = tdm_tokenizer_encode(tok, scratch, "ab<|end|>ab ab", 14,
                                               TDM_ENCODE_PARSE_SPECIAL, ids, max, &cnt);
        assert_int_equal(rc, max < 5 ? TDM_ENCODE_FULL : TDM_ENCODE_OK);
        assert_int_equal(cnt, max < 5 ? 0 : 5);
        if (max < 5) assert_int_equal(ids[max], -7);
    }
}

static void text_that_is_no_utf8_is_refused(void **state) {
    (void)state;
    const char *bad[] = {"a\x80",      "\xc0\xaf", "\xed\xa0\x80",        "\xf4\x90\x80\x80",
                         "ab\xe2\x82", "\xff",     "\xf8\x88\x80\x80\x80"};
    uint32_t cnt;
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++)
        assert_int_equal(
            tdm_tokenizer_encode(tok, scratch, bad[i], strlen(bad[i]), 0, ids, TEXT_MAX, &cnt),
            TDM_ENCODE_BAD_UTF8);
    assert_int_equal(tdm_tokenizer_encode(tok, scratch, "a\0b", 3, 0, ids, TEXT_MAX, &cnt),
                     TDM_ENCODE_OK); /* a zero byte is text */
}

/* joined gives the normal token whose text is that of a and then b, -1
   for none; rank_of how early the list merges them, ABC_MERGES for never. */
static int32_t joined(int32_t a, int32_t b) {
    size_t n = strlen(abc[a].text);
    for (int32_t id = 0; id < ABC_CNT; id++)
        if (abc[id].kind == 1 && strncmp(abc[id].text, abc[a].text, n) == 0 &&
            strcmp(abc[id].text + n, abc[b].text) == 0)
            return id;
    return -1;
}

static uint32_t rank_of(int32_t a, int32_t b) {
    size_t n = strlen(abc[a].text);
    for (uint32_t r = 0; r < ABC_MERGES; r++)
        if (strncmp(abc_merges[r], abc[a].text, n) == 0 && abc_merges[r][n] == ' ' &&
            strcmp(abc_merges[r] + n + 1, abc[b].text) == 0)
            return r;
    return ABC_MERGES;
}

/* obvious merges by looking at every pair each time: the least cost, the
   leftmost of equals.  score NULL goes by rank, else by best score. */
static uint32_t obvious(const char *text, uint32_t sz, const float *score, int32_t *sym) {
    uint32_t n = sz;
    for (uint32_t i = 0; i < sz; i++) sym[i] = text[i] - 'a';
    for (;;) {
        float best = 1e9f;
        uint32_t at = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            int32_t id = joined(sym[i], sym[i + 1]);
            if (id < 0 || (!score && rank_of(sym[i], sym[i + 1]) == ABC_MERGES)) continue;
            float cost = score ? -score[id] : (float)rank_of(sym[i], sym[i + 1]);
            if (cost < best) {
                best = cost;
                at = i;
            }
        }
        if (best == 1e9f) return n;
        sym[at] = joined(sym[at], sym[at + 1]);
        for (uint32_t i = at + 1; i + 1 < n; i++) sym[i] = sym[i + 1];
        n--;
    }
}

static void words_of_any_length_merge_as_the_obvious_loop_does(void **state) {
    (void)state;
    const uint64_t seed = 3;
    tdm_rng_t rng = {seed};
    static char text[256];
    static int32_t sym[256];
    for (int round = 0; round < 2000; round++) {
        uint32_t sz = 1 + tdm_rng_below(&rng, 150), cnt;
        for (uint32_t i = 0; i < sz; i++) {
            text[i] = (char)('a' + tdm_rng_below(&rng, 3));
            /* "cab" is a user-defined token and would cut the word */
            if (i >= 2 && memcmp(text + i - 2, "cab", 3) == 0) text[i] = 'a';
        }
        uint32_t want = obvious(text, sz, NULL, sym);
        assert_int_equal(tdm_tokenizer_encode(tok, scratch, text, sz, 0, ids, TEXT_MAX, &cnt),
                         TDM_ENCODE_OK);
        if (cnt != want) fail_msg("seed %llu round %d", (unsigned long long)seed, round);
        for (uint32_t i = 0; i < cnt; i++) assert_int_equal(ids[i], sym[i]);
    }
}

static void pieces_merge_by_score_and_then_from_the_left(void **state) {
    (void)state;
    const uint64_t seed = 17;
    tdm_rng_t rng = {seed};
    static char text[64];
    static int32_t sym[64];
    for (int round = 0; round < 300; round++) {
        float score[ABC_CNT];
        for (uint32_t i = 0; i < ABC_CNT; i++) score[i] = -(float)tdm_rng_below(&rng, 8);
        tdm_tokenizer_t *t;
        tdm_encode_scratch_t *s;
        tdm_error_t err = {0};
        change_t c = {.model = "llama", .is_piece_model = 1, .score = score};
        assert_int_equal(open_changed(&c, 32, &t, &err), TDM_OK);
        assert_int_equal(tdm_encode_scratch_create(t, 64, &s, &err), TDM_OK);
        for (int w = 0; w < 20; w++) {
            uint32_t sz = 1 + tdm_rng_below(&rng, 50), cnt;
            for (uint32_t i = 0; i < sz; i++) {
                text[i] = (char)('a' + tdm_rng_below(&rng, 3));
                if (i >= 2 && memcmp(text + i - 2, "cab", 3) == 0) text[i] = 'a';
            }
            uint32_t want = obvious(text, sz, score, sym);
            assert_int_equal(tdm_tokenizer_encode(t, s, text, sz, 0, ids, TEXT_MAX, &cnt),
                             TDM_ENCODE_OK);
            /* the space before the text has no piece and no bytes here */
            if (cnt != want) fail_msg("seed %llu round %d", (unsigned long long)seed, round);
            for (uint32_t i = 0; i < cnt; i++) assert_int_equal(ids[i], sym[i]);
        }
        tdm_encode_scratch_destroy(s);
        tdm_tokenizer_close(t);
    }
}

/* cpu_ns is this thread's own time, whatever runs beside it. */
static int64_t cpu_ns(void) {
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (int64_t)t.tv_sec * TDM_NS_PER_S + t.tv_nsec;
}

/* Sixteen times the text may take somewhat over sixteen times as long; a
   loop over all pairs takes 256 times.  The bound lies well between, since
   other work may take the cache away. */
static void a_hostile_word_costs_no_square(void **state) {
    (void)state;
    const uint32_t small_sz = 1u << 14, large_sz = 1u << 18;
    char *text = malloc(large_sz);
    assert_non_null(text);
    tdm_rng_t rng = {9};
    for (uint32_t i = 0; i < large_sz; i++) text[i] = (char)('a' + tdm_rng_below(&rng, 2));
    int64_t took[2] = {INT64_MAX, INT64_MAX};
    for (int k = 0; k < 2; k++)
        for (int best = 0; best < 3; best++) {
            uint32_t cnt;
            int64_t t0 = cpu_ns();
            assert_int_equal(tdm_tokenizer_encode(tok, scratch, text, k ? large_sz : small_sz, 0,
                                                  ids, TEXT_MAX, &cnt),
                             TDM_ENCODE_OK);
            took[k] = TDM_MIN(took[k], cpu_ns() - t0);
        }
    print_message("16 KiB word %.1f ms, 256 KiB word %.1f ms\n", (double)took[0] / 1e6,
                  (double)took[1] / 1e6);
    assert_true(took[1] < 100 * took[0]);
    free(text);
}

static void broken_vocabularies_are_refused_by_name(void **state) {
    (void)state;
    static char huge[TDM_PIECE_MAX + 2];
    memset(huge, 'x', sizeof huge - 1);
    const struct {
        change_t c;
        uint32_t rows;
        tdm_status_t want;
        const char *text;
    } row[] = {
        {{.model = "bert"}, 32, TDM_ERR_UNSUPPORTED, "'bert'"},
        {{.pre = "qwen35"}, 32, TDM_ERR_UNSUPPORTED, "'qwen35'"},
        {{.has_no_tokens = 1}, 32, TDM_ERR_NOT_FOUND, "tokenizer.ggml.tokens"},
        {{.has_no_kinds = 1}, 32, TDM_ERR_NOT_FOUND, "tokenizer.ggml.token_type"},
        {{.has_short_kinds = 1}, 32, TDM_ERR_CORRUPT, "15 tokens, 14 token types"},
        {{.has_no_merges = 1}, 32, TDM_ERR_NOT_FOUND, "tokenizer.ggml.merges"},
        {{.extra_merge = "a c"}, 32, TDM_ERR_CORRUPT, "merge 7 names no token"},
        {{.extra_merge = "zz b"}, 32, TDM_ERR_CORRUPT, "merge 7 names no token"},
        {{.extra_merge = "ab"}, 32, TDM_ERR_CORRUPT, "merge 7 is malformed"},
        {{.extra_merge = ""}, 32, TDM_ERR_CORRUPT, "merge 7 is malformed"},
        {{.extra_merge = "a "}, 32, TDM_ERR_CORRUPT, "merge 7 is malformed"},
        {{.extra_merge = "a b"}, 32, TDM_ERR_CORRUPT, "merge 7 repeats"},
        {{.extra_token = "abc", .extra_kind = 1}, 32, TDM_ERR_CORRUPT, "tokens 6 and 15"},
        {{.extra_token = "", .extra_kind = 1}, 32, TDM_ERR_CORRUPT, "token 15 is empty"},
        {{.extra_token = "x", .extra_kind = 9}, 32, TDM_ERR_CORRUPT, "token 15 is of kind 9"},
        {{.extra_token = "x", .extra_kind = -1}, 32, TDM_ERR_CORRUPT, "token 15 is of kind"},
        {{.extra_token = "\xe4\xb8\x80", .extra_kind = 1}, 32, TDM_ERR_CORRUPT, "not byte-level"},
        {{.extra_token = "\xff", .extra_kind = 1}, 32, TDM_ERR_CORRUPT, "not byte-level"},
        {{.extra_token = "<0x41>", .extra_kind = 6}, 32, TDM_ERR_CORRUPT, "is no byte"},
        {{.extra_token = huge, .extra_kind = 1}, 32, TDM_ERR_LIMIT, "token 15 has 513 bytes"},
        {{.bos = 99}, 32, TDM_ERR_CORRUPT, "begin token 99"},
        {{0}, 14, TDM_ERR_CORRUPT, "the model has 14 rows"},
        {{.is_piece_model = 1, .model = "llama", .has_nan_score = 1}, 32, TDM_ERR_CORRUPT, "score"},
        {{.is_piece_model = 1, .model = "llama", .has_short_scores = 1},
         32,
         TDM_ERR_CORRUPT,
         "14 scores"},
        {{.model = "llama"}, 32, TDM_ERR_NOT_FOUND, "tokenizer.ggml.scores"},
        {{.is_piece_model = 1, .model = "llama", .extra_token = "<0xZZ>", .extra_kind = 6},
         32,
         TDM_ERR_CORRUPT,
         "is no byte"},
        {{.is_piece_model = 1, .model = "llama", .extra_token = "\xc3", .extra_kind = 1},
         32,
         TDM_ERR_CORRUPT,
         "not UTF-8"},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_tokenizer_t *t;
        tdm_error_t err = {0};
        tdm_status_t st = open_changed(&row[i].c, row[i].rows, &t, &err);
        if (st != row[i].want || !strstr(err.text, row[i].text) || t)
            fail_msg("case %u: %s: %s", i, tdm_status_name(st), err.text);
    }
}

static void the_dummy_reads_bytes(void **state) {
    (void)state;
    tdm_model_options_t o = {.flags = TDM_MODEL_SHAPE_ONLY};
    tdm_model_t *m;
    tdm_tokenizer_t *t;
    tdm_encode_scratch_t *s;
    tdm_error_t err = {0};
    uint32_t cnt, sz;
    assert_int_equal(tdm_model_open("dummy:tiny", &o, &m, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_open(m, &t, &err), TDM_OK);
    assert_int_equal(tdm_encode_scratch_create(t, 64, &s, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_vocab(t), 512);
    assert_int_equal(tdm_tokenizer_encode(t, s, "hé<|im_end|>", 13,
                                          TDM_ENCODE_ADD_SPECIAL | TDM_ENCODE_PARSE_SPECIAL, ids,
                                          64, &cnt),
                     TDM_ENCODE_OK);
    assert_ids(cnt, (int32_t[]){TDM_DUMMY_BOS, 'h', 0xc3, 0xa9, TDM_DUMMY_END}, 5);
    assert_int_equal(tdm_tokenizer_eos(t), TDM_DUMMY_EOS);
    (void)tdm_tokenizer_piece(t, 300, &sz);
    assert_true(sz >= 2);
    (void)tdm_tokenizer_piece(t, TDM_DUMMY_END, &sz);
    assert_int_equal(sz, 0);
    assert_int_equal(tdm_tokenizer_is_control(t, TDM_DUMMY_END), 1);
    tdm_encode_scratch_destroy(s);
    tdm_tokenizer_close(t);
    tdm_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_and_then_from_the_left),
        cmocka_unit_test(bytes_without_a_token_are_left_out),
        cmocka_unit_test(control_tokens_count_only_where_trusted),
        cmocka_unit_test(user_defined_tokens_count_everywhere),
        cmocka_unit_test(the_begin_token_comes_where_asked),
        cmocka_unit_test(bounds_are_kept),
        cmocka_unit_test(text_that_is_no_utf8_is_refused),
        cmocka_unit_test(words_of_any_length_merge_as_the_obvious_loop_does),
        cmocka_unit_test(pieces_merge_by_score_and_then_from_the_left),
        cmocka_unit_test(a_hostile_word_costs_no_square),
        cmocka_unit_test(broken_vocabularies_are_refused_by_name),
        cmocka_unit_test(the_dummy_reads_bytes),
    };
    return cmocka_run_group_tests(tests, open_abc, close_abc);
}
