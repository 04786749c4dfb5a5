/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a client sees of a stopped text does not depend on how the
   text was cut into tokens, and is what the whole text says.
   Method: random texts over a small alphabet with random stop strings,
   byte by byte through tdm_text, against the obvious search of the whole
   text; seeded, the seed is printed on failure. */
#include "appliance/api/text.h"
#include "tests/unit/api/rig.h"

#define TEXT_MAX 64

typedef struct stops {
    char text[TDM_STOP_STRING_MAX][8];
    uint32_t cnt;
} stops_t;

/* expect finds the stop string that ends first (the one that begins first
   where two do), and the text before it, or with it where visible. */
static int expect(const char *text, const stops_t *s, int is_visible, char *out) {
    size_t sz = strlen(text);
    for (size_t end = 1; end <= sz; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < s->cnt; i++) {
            size_t len = strlen(s->text[i]);
            if (len <= end && len > longest && memcmp(text + end - len, s->text[i], len) == 0)
                longest = len;
        }
        if (!longest) continue;
        size_t keep = is_visible ? end : end - longest;
        memcpy(out, text, keep);
        out[keep] = 0;
        return 1;
    }
    strcpy(out, text);
    return 0;
}

static void draw(tdm_rng_t *rng, char *out, uint32_t max) {
    static const char *const piece[] = {"a", "b", "c", "\xc3\xa9", "\xe2\x82\xac"};
    uint32_t cnt = 1 + tdm_rng_below(rng, max);
    out[0] = 0;
    while (cnt--) strcat(out, piece[tdm_rng_below(rng, TDM_COUNT_OF(piece))]);
}

/* see pushes text byte by byte, until a hit or the end. */
static int see(tdm_text_t *x, const char *text, char *out) {
    char piece[TDM_TEXT_PIECE_MAX];
    uint32_t at = 0;
    for (; *text; text++) {
        int is_hit = 0;
        uint32_t sz = tdm_text_push(x, (uint8_t)*text, piece, &is_hit);
        memcpy(out + at, piece, sz);
        at += sz;
        if (!is_hit) continue;
        assert_int_equal(tdm_text_finish(x, piece), 0);
        out[at] = 0;
        return 1;
    }
    uint32_t sz = tdm_text_finish(x, piece);
    memcpy(out + at, piece, sz);
    out[at + sz] = 0;
    return 0;
}

static void every_cut_agrees_with_the_whole_text(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        tdm_rng_t rng = {.state = seed};
        char text[8 * TEXT_MAX], want[8 * TEXT_MAX], got[8 * TEXT_MAX];
        stops_t s = {.cnt = tdm_rng_below(&rng, 4)};
        int is_visible = (int)tdm_rng_below(&rng, 2);
        draw(&rng, text, TEXT_MAX);
        tdm_text_t x;
        tdm_text_init(&x, r.tokenizer, is_visible);
        for (uint32_t i = 0; i < s.cnt; i++) {
            do draw(&rng, s.text[i], 3);
            while (strlen(s.text[i]) >= sizeof s.text[i] - 1);
            assert_int_equal(tdm_stop_add(&x.stop, s.text[i], strlen(s.text[i])), TDM_OK);
        }
        int want_hit = expect(text, &s, is_visible, want);
        int got_hit = see(&x, text, got);
        tdm_text_restart(&x);
        char again[8 * TEXT_MAX];
        int again_hit = see(&x, text, again);
        if (got_hit != want_hit || strcmp(got, want) || again_hit != got_hit || strcmp(again, got))
            fail_msg("seed %llu: \"%s\" gave \"%s\" then \"%s\", want \"%s\"",
                     (unsigned long long)seed, text, got, again, want);
    }
    rig_stop(&r);
}

static void a_stop_string_at_the_first_token_leaves_nothing(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    tdm_text_t x;
    char out[64];
    tdm_text_init(&x, r.tokenizer, 0);
    assert_int_equal(tdm_stop_add(&x.stop, "a", 1), TDM_OK);
    assert_int_equal(see(&x, "abc", out), 1);
    assert_string_equal(out, "");
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_agrees_with_the_whole_text),
        cmocka_unit_test(a_stop_string_at_the_first_token_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
