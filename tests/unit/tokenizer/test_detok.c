/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: text given out is always whole UTF-8, and the same text whatever
   the tokens' cuts.  Method: the byte tokenizer, whose tokens cut every
   character; broken bytes against Unicode's own examples of replacement
   (table 3-8); random bytes against an obvious decoder of the whole. */
#include "appliance/base/rng.h"
#include "appliance/model/dummy.h"
#include "appliance/tokenizer/detok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

static tdm_model_t *model;
static tdm_tokenizer_t *tok;

static int open_tiny(void **state) {
    (void)state;
    tdm_model_options_t o = {.flags = TDM_MODEL_SHAPE_ONLY};
    return tdm_model_open("dummy:tiny", &o, &model, NULL) == TDM_OK &&
                   tdm_tokenizer_open(model, &tok, NULL) == TDM_OK
               ? 0
               : -1;
}

static int close_tiny(void **state) {
    (void)state;
    tdm_tokenizer_close(tok);
    tdm_model_close(model);
    return 0;
}

/* speak pushes bytes one token each; every push must give whole
   characters. */
static uint32_t speak(const uint8_t *p, uint32_t sz, char *out) {
    tdm_detok_t d;
    uint32_t n = 0;
    tdm_detok_init(&d, 0);
    for (uint32_t i = 0; i < sz; i++) {
        uint32_t got = tdm_detok_push(&d, tok, p[i], out + n);
        if (got) assert_true(((uint8_t)out[n] & 0xc0) != 0x80); /* begins a character */
        n += got;
        assert_true(d.held_cnt <= 3);
    }
    return n + tdm_detok_flush(&d, out + n);
}

static void whole_text_comes_back(void **state) {
    (void)state;
    const char *text = "Ça va? Привет 你好 😀👍🏽 \xf4\x8f\xbf\xbf end";
    char out[1024];
    uint32_t n = speak((const uint8_t *)text, (uint32_t)strlen(text), out);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(out, text, n);
}

static void a_character_is_held_until_it_is_whole(void **state) {
    (void)state;
    tdm_detok_t d;
    char out[TDM_DETOK_OUT_MAX];
    tdm_detok_init(&d, 0);
    assert_int_equal(tdm_detok_push(&d, tok, 0xf0, out), 0);
    assert_int_equal(tdm_detok_push(&d, tok, 0x9f, out), 0);
    assert_int_equal(tdm_detok_push(&d, tok, 0x98, out), 0);
    assert_int_equal(tdm_detok_push(&d, tok, 0x80, out), 4);
    assert_memory_equal(out, "😀", 4);
    assert_int_equal(tdm_detok_flush(&d, out), 0);
}

static void broken_bytes_become_replacements_as_unicode_says(void **state) {
    (void)state;
#define R "\xef\xbf\xbd"
    const struct {
        const char *in, *out;
    } row[] = {
        {"a\xf1\x80\x80\xe1\x80\xc2"
         "b\x80"
         "c\x80\xbf"
         "d",
         "a" R R R "b" R "c" R R "d"},
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},
        {"x\xe2\x82", "x" R},
        {"\xf0\x9f\x98", R},
        {"\xc3", R},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        char out[256];
        uint32_t n = speak((const uint8_t *)row[i].in, (uint32_t)strlen(row[i].in), out);
        if (n != strlen(row[i].out) || memcmp(out, row[i].out, n) != 0)
            fail_msg("row %u gives %u bytes, expected %zu", i, n, strlen(row[i].out));
    }
#undef R
}

/* is_text: valid UTF-8 by trying every form of table 3-7. */
static int char_len(const uint8_t *p, uint32_t sz) {
    static const uint8_t form[][5] = {
        /* length, first lo, first hi, second lo, second hi */
        {1, 0x00, 0x7f, 0, 0},       {2, 0xc2, 0xdf, 0x80, 0xbf}, {3, 0xe0, 0xe0, 0xa0, 0xbf},
        {3, 0xe1, 0xec, 0x80, 0xbf}, {3, 0xed, 0xed, 0x80, 0x9f}, {3, 0xee, 0xef, 0x80, 0xbf},
        {4, 0xf0, 0xf0, 0x90, 0xbf}, {4, 0xf1, 0xf3, 0x80, 0xbf}, {4, 0xf4, 0xf4, 0x80, 0x8f},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(form); i++) {
        const uint8_t *f = form[i];
        if (p[0] < f[1] || p[0] > f[2] || f[0] > sz) continue;
        if (f[0] > 1 && (p[1] < f[3] || p[1] > f[4])) continue;
        int is_whole = 1;
        for (uint32_t k = 2; k < f[0]; k++) is_whole &= (p[k] & 0xc0) == 0x80;
        if (is_whole) return f[0];
    }
    return 0;
}

static void random_bytes_give_valid_text_and_keep_whole_characters(void **state) {
    (void)state;
    const uint64_t seed = 5;
    tdm_rng_t rng = {seed};
    static const uint8_t alphabet[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc2, 0xdf,
                                       0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    for (int round = 0; round < 20000; round++) {
        static uint8_t in[12]; /* of the stack gcc 12 at -O3 says it may not be filled */
        char out[64];
        uint32_t sz = 1 + tdm_rng_below(&rng, sizeof in), whole_in = 0, whole_out = 0;
        for (uint32_t i = 0; i < sz; i++) in[i] = alphabet[tdm_rng_below(&rng, sizeof alphabet)];
        uint32_t n = speak(in, sz, out);
        for (uint32_t i = 0; i < sz;) {
            int len = char_len(in + i, sz - i);
            whole_in += len > 0;
            i += len > 0 ? (uint32_t)len : 1;
        }
        for (uint32_t i = 0; i < n;) {
            int len = char_len((const uint8_t *)out + i, n - i);
            if (len == 0) fail_msg("seed %llu round %d", (unsigned long long)seed, round);
            whole_out += memcmp(out + i, "\xef\xbf\xbd", 3) != 0;
            i += (uint32_t)len;
        }
        assert_int_equal(whole_in, whole_out);
    }
}

static void control_tokens_and_strange_ids_give_no_text(void **state) {
    (void)state;
    tdm_detok_t d;
    char out[TDM_DETOK_OUT_MAX];
    tdm_detok_init(&d, 0);
    const int32_t id[] = {TDM_DUMMY_BOS, TDM_DUMMY_EOS, TDM_DUMMY_START, TDM_DUMMY_END, -1,
                          512,           INT32_MAX,     INT32_MIN};
    for (uint32_t i = 0; i < TDM_COUNT_OF(id); i++)
        assert_int_equal(tdm_detok_push(&d, tok, id[i], out), 0);
    assert_int_equal(tdm_detok_push(&d, tok, TDM_DUMMY_SYLLABLE, out), 2);
    assert_memory_equal(out, "ba", 2);
}

static void one_leading_space_is_stripped_where_asked(void **state) {
    (void)state;
    tdm_detok_t d;
    char out[TDM_DETOK_OUT_MAX];
    tdm_detok_init(&d, TDM_DETOK_STRIP_FIRST);
    assert_int_equal(tdm_detok_push(&d, tok, ' ', out), 0);
    assert_int_equal(tdm_detok_push(&d, tok, ' ', out), 1);
    tdm_detok_init(&d, TDM_DETOK_STRIP_FIRST);
    assert_int_equal(tdm_detok_push(&d, tok, 'a', out), 1);
    assert_int_equal(tdm_detok_push(&d, tok, ' ', out), 1);
    tdm_detok_init(&d, 0);
    assert_int_equal(tdm_detok_push(&d, tok, ' ', out), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_text_comes_back),
        cmocka_unit_test(a_character_is_held_until_it_is_whole),
        cmocka_unit_test(broken_bytes_become_replacements_as_unicode_says),
        cmocka_unit_test(random_bytes_give_valid_text_and_keep_whole_characters),
        cmocka_unit_test(control_tokens_and_strange_ids_give_no_text),
        cmocka_unit_test(one_leading_space_is_stripped_where_asked),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
