/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/check.h"
#include "appliance/tokenizer/tokenizer_private.h"
#include "appliance/tokenizer/utf8_private.h"

#include <stdlib.h>
#include <string.h>

/* JIT matching keeps its backtracking on a stack of its own. */
#define JIT_STACK_MIN (32u << 10)
#define JIT_STACK_MAX (1u << 20)

tdm_status_t tdm_encode_scratch_create(const tdm_tokenizer_t *t, uint32_t text_max,
                                       tdm_encode_scratch_t **out, tdm_error_t *err) {
    *out = NULL;
    if (text_max == 0 || text_max > (1u << 28))
        return tdm_error_set(err, TDM_ERR_INVAL, "tokenizer: a text bound of %u bytes", text_max);
    tdm_encode_scratch_t *s = calloc(1, sizeof *s);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    uint64_t cnt = (uint64_t)text_max + 1;
    int is_whole = 1;
    s->text_max = text_max;
    if (t->form != TDM_TOK_BYTES) {
        s->symbol = malloc(cnt * sizeof *s->symbol);
        s->heap = malloc(2 * cnt * sizeof *s->heap);
        is_whole = s->symbol && s->heap;
    }
    if (t->form == TDM_TOK_PIECES) {
        s->piece_text = malloc(cnt);
        is_whole = is_whole && s->piece_text;
    }
    if (t->form == TDM_TOK_BYTE_LEVEL) {
        s->context = pcre2_match_context_create(NULL);
        s->jit_stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
        is_whole = is_whole && s->context && s->jit_stack;
        if (is_whole) pcre2_jit_stack_assign(s->context, NULL, s->jit_stack);
        for (uint32_t i = 0; i < t->pretok.stage_cnt; i++) {
            s->match[i] = pcre2_match_data_create(1, NULL);
            is_whole = is_whole && s->match[i];
        }
    }
    if (!is_whole) {
        tdm_encode_scratch_destroy(s);
        return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for texts of %u bytes",
                             text_max);
    }
    *out = s;
    return TDM_OK;
}

void tdm_encode_scratch_destroy(tdm_encode_scratch_t *s) {
    if (!s) return;
    for (uint32_t i = 0; i < TDM_PRETOK_STAGE_MAX; i++) pcre2_match_data_free(s->match[i]);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->jit_stack);
    free(s->symbol);
    free(s->heap);
    free(s->piece_text);
    free(s);
}

/* The ids written so far. */
typedef struct output {
    const tdm_tokenizer_t *t;
    tdm_encode_scratch_t *s;
    int32_t *ids;
    uint32_t cnt, max;
} output_t;

static int emit(output_t *o, int32_t id) {
    if (o->cnt == o->max) return TDM_ENCODE_FULL;
    o->ids[o->cnt++] = id;
    return TDM_ENCODE_OK;
}

/* byte_word merges the bytes of one word of a byte-level vocabulary. */
static int byte_word(void *ctx, const char *word, uint32_t sz) {
    output_t *o = ctx;
    const tdm_tokenizer_t *t = o->t;
    int32_t id = tdm_vocab_find(&t->vocab, word, sz);
    if (id >= 0 && t->vocab.token[id].is_whole) return emit(o, id);
    tdm_symbol_t *symbol = o->s->symbol;
    uint32_t n = 0;
    for (uint32_t i = 0; i < sz; i++) {
        int32_t b = t->byte_id[(uint8_t)word[i]];
        if (b >= 0) symbol[n++] = (tdm_symbol_t){.id = b, .at = i, .sz = 1};
    }
    n = tdm_merge(&t->pairs, symbol, n, o->s->heap);
    for (uint32_t i = 0; i < n; i++) {
        int rc = emit(o, symbol[i].id);
        if (rc != TDM_ENCODE_OK) return rc;
    }
    return TDM_ENCODE_OK;
}

/* piece_part merges the characters of a text between special tokens; what
   has no piece becomes bytes.  U+2581, the mark that such vocabularies
   write for a space, means a space in text as well. */
static int piece_part(output_t *o, const char *text, uint32_t sz) {
    const tdm_tokenizer_t *t = o->t;
    char *copy = o->s->piece_text;
    tdm_symbol_t *symbol = o->s->symbol;
    uint32_t used = 0, n = 0;
    if (t->is_space_prefixed) copy[used++] = ' ';
    used += (uint32_t)tdm_spelling_spaces(text, sz, copy + used);
    for (uint32_t i = 0; i < used;) {
        uint32_t len;
        (void)tdm_utf8_decode((const uint8_t *)copy + i, &len);
        int32_t id = tdm_vocab_find(&t->vocab, copy + i, len);
        symbol[n++] = (tdm_symbol_t){.id = id, .at = i, .sz = len};
        i += len;
    }
    n = tdm_merge(&t->pairs, symbol, n, o->s->heap);
    int rc = TDM_ENCODE_OK;
    for (uint32_t i = 0; rc == TDM_ENCODE_OK && i < n; i++) {
        if (symbol[i].id >= 0) {
            rc = emit(o, symbol[i].id);
            continue;
        }
        const uint8_t *p = (const uint8_t *)copy + symbol[i].at;
        if (t->byte_id[p[0]] < 0) {
            if (t->unknown >= 0) rc = emit(o, t->unknown);
            continue;
        }
        for (uint32_t k = 0; rc == TDM_ENCODE_OK && k < symbol[i].sz; k++)
            rc = emit(o, t->byte_id[p[k]]);
    }
    return rc;
}

static int plain_part(output_t *o, const char *text, uint32_t sz) {
    if (sz == 0) return TDM_ENCODE_OK;
    if (o->t->form == TDM_TOK_PIECES) return piece_part(o, text, sz);
    if (o->t->form == TDM_TOK_BYTE_LEVEL) {
        int rc = tdm_pretok_walk(&o->t->pretok, o->s, text, sz, byte_word, o);
        return rc < 0 ? TDM_ENCODE_FAILED : rc;
    }
    int rc = TDM_ENCODE_OK;
    for (uint32_t i = 0; rc == TDM_ENCODE_OK && i < sz; i++)
        rc = emit(o, o->t->byte_id[(uint8_t)text[i]]);
    return rc;
}

/* special_at gives the longest special token that stands at text[at]; a
   control token only where it ends at or before `trusted_end`. */
static int32_t special_at(const tdm_vocab_t *v, const char *text, uint32_t sz, uint32_t at,
                          uint32_t trusted_end) {
    uint8_t b = (uint8_t)text[at];
    if (at >= trusted_end && !v->has_user[b]) return -1;
    for (uint32_t i = v->first[b]; i < v->first[b + 1]; i++) {
        const tdm_token_t *t = &v->token[v->special[i]];
        uint32_t end = at + t->sz;
        if (end > (t->kind == TDM_TOKEN_USER ? sz : trusted_end)) continue;
        if (memcmp(v->bytes + t->at, text + at, t->sz) == 0) return v->special[i];
    }
    return -1;
}

tdm_encode_t tdm_tokenizer_encode_spans(const tdm_tokenizer_t *t, tdm_encode_scratch_t *s,
                                        const char *text, uint64_t sz, const tdm_span_t *spans,
                                        uint32_t span_cnt, uint32_t flags, int32_t *ids,
                                        uint32_t id_max, uint32_t *cnt) {
    *cnt = 0;
    if (sz > s->text_max) return TDM_ENCODE_TOO_LONG;
    if (!tdm_utf8_is_valid((const uint8_t *)text, sz)) return TDM_ENCODE_BAD_UTF8;
    uint32_t end = (uint32_t)sz;
    const tdm_span_t whole = {0, end};
    if (flags & TDM_ENCODE_PARSE_SPECIAL) {
        spans = &whole;
        span_cnt = 1;
    }
    output_t o = {.t = t, .s = s, .ids = ids, .max = id_max};
    int rc = TDM_ENCODE_OK;
    int is_special_added = (flags & TDM_ENCODE_ADD_SPECIAL) != 0;
    if (is_special_added && t->is_bos_added) rc = emit(&o, t->bos);

    uint32_t from = 0, k = 0;
    uint32_t at = span_cnt || t->vocab.has_any_user ? 0 : end;
    while (rc == TDM_ENCODE_OK && at < end) {
        while (k < span_cnt && spans[k].end <= at) k++;
        int is_trusted = k < span_cnt && spans[k].start <= at;
        if (!is_trusted && !t->vocab.has_any_user) { /* nothing can stand before the next span */
            at = k < span_cnt ? TDM_MIN(spans[k].start, end) : end;
            continue;
        }
        uint32_t trusted_end = is_trusted ? TDM_MIN(spans[k].end, end) : 0;
        int32_t id = special_at(&t->vocab, text, end, at, trusted_end);
        if (id < 0) {
            at++;
            continue;
        }
        rc = plain_part(&o, text + from, at - from);
        if (rc == TDM_ENCODE_OK) rc = emit(&o, id);
        at += t->vocab.token[id].sz;
        from = at;
    }
    if (rc == TDM_ENCODE_OK) rc = plain_part(&o, text + from, end - from);
    if (rc == TDM_ENCODE_OK && is_special_added && t->is_eos_added) rc = emit(&o, t->eos);
    if (rc == TDM_ENCODE_OK) *cnt = o.cnt;
    return (tdm_encode_t)rc;
}

tdm_encode_t tdm_tokenizer_encode(const tdm_tokenizer_t *t, tdm_encode_scratch_t *s,
                                  const char *text, uint64_t sz, uint32_t flags, int32_t *ids,
                                  uint32_t id_max, uint32_t *cnt) {
    return tdm_tokenizer_encode_spans(t, s, text, sz, NULL, 0, flags, ids, id_max, cnt);
}
