/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/check.h"
#include "appliance/tokenizer/tokenizer_private.h"

#include <string.h>

/* PCRE2 counts U+180E as \s; Unicode's White_Space, which the makers of
   these vocabularies used, does not.  So the class is spelt out. */
#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                 \
    "\\x{202f}\\x{205f}\\x{3000}"
#define SPACE    "[" WS "]"
#define NO_SPACE "[^" WS "]"

#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACE "+(?!" NO_SPACE  \
    ")|" SPACE "+"
#define LLAMA3_WORDS                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS               \
    "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?!" NO_SPACE ")|" SPACE "+"

/* The closed set.  Several names of the format mean the same cut. */
static const struct {
    const char *name;
    const char *stage[TDM_PRETOK_STAGE_MAX];
} known[] = {
    {"gpt-2", {GPT2_WORDS}},
    {"smollm", {"\\p{N}", GPT2_WORDS}},
    {"llama-bpe", {LLAMA3_WORDS}},
    {"llama3", {LLAMA3_WORDS}},
    {"llama-v3", {LLAMA3_WORDS}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_WORDS, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

/* Patterns as they stand in tokenizer.json files. */
static const struct {
    const char *pattern, *name;
} pattern_of[] = {
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "llama-bpe"},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"},
};

const char *tdm_pretok_of_pattern(const char *pattern) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(pattern_of); i++)
        if (strcmp(pattern_of[i].pattern, pattern) == 0) return pattern_of[i].name;
    return NULL;
}

tdm_status_t tdm_pretok_open(tdm_pretok_t *p, const char *name, uint64_t sz, tdm_error_t *err) {
    uint32_t k = 0;
    while (k < TDM_COUNT_OF(known) &&
           !(strlen(known[k].name) == sz && memcmp(known[k].name, name, sz) == 0))
        k++;
    if (k == TDM_COUNT_OF(known))
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "tokenizer: pre-tokenizer '%.*s' is not implemented",
                             (int)TDM_MIN(sz, (uint64_t)64), name);
    p->name = known[k].name;
    for (uint32_t i = 0; i < TDM_PRETOK_STAGE_MAX && known[k].stage[i]; i++) {
        int code;
        PCRE2_SIZE at;
        p->stage[i] = pcre2_compile((PCRE2_SPTR)known[k].stage[i], PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
        if (!p->stage[i])
            return tdm_error_set(err, TDM_ERR_INTERNAL, "tokenizer: PCRE2 error %d at %zu of '%s'",
                                 code, (size_t)at, known[k].name);
        p->stage_cnt = i + 1;
        /* Where the platform has no JIT, pcre2_match interprets: slower,
           and the same words. */
        (void)pcre2_jit_compile(p->stage[i], PCRE2_JIT_COMPLETE);
    }
    return TDM_OK;
}

void tdm_pretok_close(tdm_pretok_t *p) {
    for (uint32_t i = 0; i < p->stage_cnt; i++) pcre2_code_free(p->stage[i]);
    memset(p, 0, sizeof *p);
}

typedef struct walk {
    const tdm_pretok_t *p;
    tdm_encode_scratch_t *s;
    tdm_word_fn word;
    void *ctx;
} walk_t;

/* cut walks one part through stage k and those after it; the recursion is
   TDM_PRETOK_STAGE_MAX deep.  A part is matched as a text of its own, so
   that a look-ahead ends where an earlier stage cut. */
static int cut(const walk_t *w, uint32_t k, const char *part, uint32_t sz) {
    if (sz == 0) return 0;
    if (k == w->p->stage_cnt) return w->word(w->ctx, part, sz);
    pcre2_match_data *match = w->s->match[k];
    uint32_t at = 0;
    while (at < sz) {
        int n = pcre2_match(w->p->stage[k], (PCRE2_SPTR)part, sz, at, PCRE2_NO_UTF_CHECK, match,
                            w->s->context);
        if (n == PCRE2_ERROR_NOMATCH) break;
        if (n < 0) return -1;
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(match);
        uint32_t start = (uint32_t)v[0], end = (uint32_t)v[1];
        if (end <= start) return -1; /* no pattern here matches nothing */
        int rc = cut(w, k + 1, part + at, start - at);
        if (rc == 0) rc = cut(w, k + 1, part + start, end - start);
        if (rc != 0) return rc;
        at = end;
    }
    return cut(w, k + 1, part + at, sz - at);
}

int tdm_pretok_walk(const tdm_pretok_t *p, tdm_encode_scratch_t *s, const char *text, uint32_t sz,
                    tdm_word_fn word, void *ctx) {
    const walk_t w = {.p = p, .s = s, .word = word, .ctx = ctx};
    return cut(&w, 0, text, sz);
}
