/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the first stop string is found wherever the text is cut, nothing
   of it is shown, and nothing else is held back longer than needed.
   Method: an obvious search over the whole text as oracle, all two-cut
   splits of fixed texts, random texts over a two-letter alphabet where
   partial matches abound. */
#include "appliance/base/rng.h"
#include "appliance/tokenizer/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above first */
#include <cmocka.h>

/* first_stop gives where the text ends: the start of the stop string that
   is complete first, of equals the one that begins first; -1 for none. */
static int first_stop(const char *text, const char *const *stop, uint32_t cnt) {
    size_t n = strlen(text);
    for (size_t end = 1; end <= n; end++) {
        int start = -1;
        for (uint32_t k = 0; k < cnt; k++) {
            size_t len = strlen(stop[k]);
            if (len > end || memcmp(text + end - len, stop[k], len) != 0) continue;
            if (start < 0 || (int)(end - len) < start) start = (int)(end - len);
        }
        if (start >= 0) return start;
    }
    return -1;
}

/* longest_open gives how much of the end of text may still become a stop. */
static size_t longest_open(const char *text, size_t n, const char *const *stop, uint32_t cnt) {
    size_t best = 0;
    for (uint32_t k = 0; k < cnt; k++)
        for (size_t len = 1; len < strlen(stop[k]) && len <= n; len++)
            if (memcmp(text + n - len, stop[k], len) == 0 && len > best) best = len;
    return best;
}

static tdm_stop_t s;

static void start(const char *const *stop, uint32_t cnt) {
    tdm_stop_init(&s);
    for (uint32_t k = 0; k < cnt; k++)
        assert_int_equal(tdm_stop_add(&s, stop[k], strlen(stop[k])), TDM_OK);
}

/* feed pushes text in parts that end at cut[], and checks all that is
   shown against the oracle, after each part. */
static void feed(const char *text, const char *const *stop, uint32_t cnt, const size_t *cut,
                 uint32_t cut_cnt) {
    char shown[4096], part[4096];
    size_t n = strlen(text), at = 0, used = 0;
    int want = first_stop(text, stop, cnt), is_hit = 0;
    start(stop, cnt);
    for (uint32_t k = 0; k <= cut_cnt; k++) {
        size_t end = k < cut_cnt ? cut[k] : n;
        uint32_t out_sz;
        is_hit = tdm_stop_push(&s, text + at, (uint32_t)(end - at), part, &out_sz);
        assert_true(out_sz <= end - at + TDM_STOP_BYTES_MAX);
        memcpy(shown + used, part, out_sz);
        used += out_sz;
        at = end;
        if (is_hit) break;
        assert_int_equal(used, at - longest_open(text, at, stop, cnt));
    }
    assert_int_equal(is_hit, want >= 0);
    if (is_hit) {
        uint32_t out_sz = 9;
        assert_int_equal(used, want);
        assert_int_equal(tdm_stop_push(&s, "more", 4, part, &out_sz), 1);
        assert_int_equal(out_sz, 0);
        assert_int_equal(tdm_stop_flush(&s, part), 0);
    } else {
        uint32_t out_sz = tdm_stop_flush(&s, part);
        memcpy(shown + used, part, out_sz);
        used += out_sz;
        assert_int_equal(used, n);
        assert_int_equal(tdm_stop_flush(&s, part), 0);
    }
    assert_memory_equal(shown, text, used);
}

static void stop_strings_are_found_over_all_splits(void **state) {
    (void)state;
    const char *stop[] = {"\nUser:", "###", "ababac", "<|im_end|>", "é", "ab"};
    const char *text[] = {
        "Hello \nUsed by \nUser: no",
        "####",
        "ab",
        "xabab",
        "## # ## a \nUse",
        "aababababacx",
        "<|im_en<|im_end|>",
        "caf\xc3\xa9 noir",
        "nothing here",
        "",
    };
    for (uint32_t t = 0; t < TDM_COUNT_OF(text); t++)
        for (uint32_t first = 0; first < TDM_COUNT_OF(stop); first++)
            for (uint32_t cnt = 1; first + cnt <= TDM_COUNT_OF(stop); cnt++) {
                size_t n = strlen(text[t]);
                for (size_t a = 0; a <= n; a++)
                    for (size_t b = a; b <= n; b++)
                        feed(text[t], stop + first, cnt, (size_t[]){a, b}, 2);
            }
}

static void random_texts_agree_with_a_search_of_the_whole(void **state) {
    (void)state;
    const uint64_t seed = 11;
    tdm_rng_t rng = {seed};
    for (int round = 0; round < 20000; round++) {
        char text[64], store[4][9];
        const char *stop[4];
        uint32_t cnt = 1 + tdm_rng_below(&rng, 4), n = tdm_rng_below(&rng, 60);
        for (uint32_t i = 0; i < n; i++) text[i] = (char)('a' + tdm_rng_below(&rng, 2));
        text[n] = 0;
        for (uint32_t k = 0; k < cnt; k++) {
            uint32_t len = 3 + tdm_rng_below(&rng, 6);
            for (uint32_t i = 0; i < len; i++) store[k][i] = (char)('a' + tdm_rng_below(&rng, 2));
            store[k][len] = 0;
            stop[k] = store[k];
        }
        size_t cut[64];
        for (uint32_t i = 0; i < n; i++) cut[i] = i + 1; /* byte by byte */
        feed(text, stop, cnt, cut, n);
        size_t a = tdm_rng_below(&rng, n + 1);
        feed(text, stop, cnt, &a, 1);
    }
}

static void no_stop_string_holds_nothing_back(void **state) {
    (void)state;
    char out[16];
    uint32_t out_sz;
    tdm_stop_init(&s);
    assert_int_equal(tdm_stop_push(&s, "abc", 3, out, &out_sz), 0);
    assert_int_equal(out_sz, 3);
    assert_int_equal(tdm_stop_flush(&s, out), 0);
}

static void the_set_is_bounded(void **state) {
    (void)state;
    static char long_text[TDM_STOP_BYTES_MAX + 1];
    memset(long_text, 'x', sizeof long_text);
    tdm_stop_init(&s);
    assert_int_equal(tdm_stop_add(&s, "", 0), TDM_ERR_INVAL);
    assert_int_equal(tdm_stop_add(&s, long_text, TDM_STOP_BYTES_MAX + 1), TDM_ERR_LIMIT);
    assert_int_equal(tdm_stop_add(&s, long_text, TDM_STOP_BYTES_MAX), TDM_OK);
    assert_int_equal(tdm_stop_add(&s, "a", 1), TDM_ERR_LIMIT);
    tdm_stop_init(&s);
    for (uint32_t i = 0; i < TDM_STOP_STRING_MAX; i++)
        assert_int_equal(tdm_stop_add(&s, "ab", 2), TDM_OK);
    assert_int_equal(tdm_stop_add(&s, "ab", 2), TDM_ERR_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_are_found_over_all_splits),
        cmocka_unit_test(random_texts_agree_with_a_search_of_the_whole),
        cmocka_unit_test(no_stop_string_holds_nothing_back),
        cmocka_unit_test(the_set_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
