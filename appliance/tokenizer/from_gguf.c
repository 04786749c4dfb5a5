/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tokenizer from the tokenizer.* metadata of a GGUF file. */

#define KEY "tokenizer.ggml."

/* optional_id reads an id that may be absent. */
static tdm_status_t optional_id(const tdm_gguf_t *g, const char *key, int32_t *id,
                                tdm_error_t *err) {
    uint32_t v;
    *id = -1;
    if (!tdm_gguf_has(g, key)) return TDM_OK;
    tdm_status_t st = tdm_gguf_u32(g, key, &v, err);
    if (st != TDM_OK) return st;
    if (v >= TDM_VOCAB_MAX) {
        if (v == UINT32_MAX) return TDM_OK; /* some writers mean "none" */
        return tdm_error_set(err, TDM_ERR_CORRUPT, "gguf: key %s: %u is no token", key, v);
    }
    *id = (int32_t)v;
    return TDM_OK;
}

static tdm_status_t optional_bool(const tdm_gguf_t *g, const char *key, int *flag,
                                  tdm_error_t *err) {
    return tdm_gguf_has(g, key) ? tdm_gguf_bool(g, key, flag, err) : TDM_OK;
}

static tdm_status_t read_tokens(tdm_tokenizer_t *t, const tdm_gguf_t *g, tdm_error_t *err) {
    tdm_gguf_array_t tokens, kinds = {0};
    tdm_status_t st = tdm_gguf_array(g, KEY "tokens", TDM_GGUF_STRING, &tokens, err);
    if (st == TDM_OK) st = tdm_gguf_array(g, KEY "token_type", TDM_GGUF_I32, &kinds, err);
    if (st != TDM_OK) return st;
    if (kinds.cnt != tokens.cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: %llu tokens, %llu token types",
                             (unsigned long long)tokens.cnt, (unsigned long long)kinds.cnt);
    if (tokens.cnt > t->row_cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: %llu tokens, the model has %u rows",
                             (unsigned long long)tokens.cnt, t->row_cnt);
    st = tdm_vocab_open(&t->vocab, (uint32_t)tokens.cnt, tokens.sz, err);
    uint64_t cursor = 0;
    tdm_gguf_string_t s;
    for (uint32_t id = 0; st == TDM_OK && tdm_gguf_array_string(&tokens, &cursor, &s); id++)
        st = tdm_spelling_add(t, s.bytes, s.sz, tdm_gguf_array_u32(&kinds, id), err);
    return st == TDM_OK ? tdm_vocab_seal(&t->vocab, err) : st;
}

static tdm_status_t read_merges(tdm_tokenizer_t *t, const tdm_gguf_t *g, tdm_error_t *err) {
    tdm_gguf_array_t merges;
    tdm_status_t st = tdm_gguf_array(g, KEY "merges", TDM_GGUF_STRING, &merges, err);
    if (st == TDM_OK) st = tdm_pairs_open(&t->pairs, (uint32_t)merges.cnt, err);
    uint64_t cursor = 0;
    tdm_gguf_string_t s;
    for (uint32_t rank = 0; st == TDM_OK && tdm_gguf_array_string(&merges, &cursor, &s); rank++) {
        const char *gap = s.sz ? memchr(s.bytes + 1, ' ', s.sz - 1) : NULL;
        uint64_t left_sz = gap ? (uint64_t)(gap - s.bytes) : 0;
        st = tdm_merge_rule_add(t, rank, s.bytes, left_sz, gap ? gap + 1 : NULL,
                                gap ? s.sz - left_sz - 1 : 0, err);
    }
    return st;
}

static tdm_status_t read_scores(tdm_tokenizer_t *t, const tdm_gguf_t *g, tdm_error_t *err) {
    tdm_gguf_array_t scores;
    tdm_status_t st = tdm_gguf_array(g, KEY "scores", TDM_GGUF_F32, &scores, err);
    if (st != TDM_OK) return st;
    if (scores.cnt != t->vocab.cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: %u tokens, %llu scores",
                             t->vocab.cnt, (unsigned long long)scores.cnt);
    float *score = malloc(((uint64_t)t->vocab.cnt + 1) * sizeof *score);
    if (!score) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory for scores");
    for (uint32_t i = 0; i < t->vocab.cnt; i++) score[i] = tdm_gguf_array_f32(&scores, i);
    st = tdm_pairs_from_scores(&t->pairs, &t->vocab, score, err);
    free(score);
    return st;
}

/* read_form reads which kind of tokenizer it is, and what follows from it. */
static tdm_status_t read_form(tdm_tokenizer_t *t, const tdm_gguf_t *g, tdm_error_t *err) {
    tdm_gguf_string_t model, pre = {"default", 7};
    tdm_status_t st = tdm_gguf_string(g, KEY "model", &model, err);
    if (st != TDM_OK) return st;
    if (tdm_gguf_equals(model, "llama")) {
        t->form = TDM_TOK_PIECES;
        t->is_space_prefixed = 1;
        t->is_bos_added = 1;
        (void)snprintf(t->name, sizeof t->name, "llama");
        return TDM_OK;
    }
    if (!tdm_gguf_equals(model, "gpt2"))
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "tokenizer: model '%.*s' is not implemented",
                             (int)TDM_MIN(model.sz, (uint64_t)64), model.bytes);
    t->form = TDM_TOK_BYTE_LEVEL;
    if (tdm_gguf_has(g, KEY "pre")) st = tdm_gguf_string(g, KEY "pre", &pre, err);
    if (st == TDM_OK) st = tdm_pretok_open(&t->pretok, pre.bytes, pre.sz, err);
    if (st != TDM_OK) return st;
    /* Llama 3 takes a word that is a token as it is, and begins a text
       with its begin token; its files say neither. */
    if (strncmp(t->pretok.name, "llama", 5) == 0) {
        t->is_whole_word_direct = 1;
        t->is_bos_added = 1;
    }
    (void)snprintf(t->name, sizeof t->name, "gpt2/%s", t->pretok.name);
    return TDM_OK;
}

static tdm_status_t read_all(tdm_tokenizer_t *t, const tdm_gguf_t *g, tdm_error_t *err) {
    tdm_status_t st = read_form(t, g, err);
    if (st == TDM_OK) st = optional_id(g, KEY "bos_token_id", &t->bos, err);
    if (st == TDM_OK) st = optional_id(g, KEY "eos_token_id", &t->eos, err);
    if (st == TDM_OK) st = optional_id(g, KEY "unknown_token_id", &t->unknown, err);
    if (st == TDM_OK) st = optional_bool(g, KEY "add_bos_token", &t->is_bos_added, err);
    if (st == TDM_OK) st = optional_bool(g, KEY "add_eos_token", &t->is_eos_added, err);
    if (st == TDM_OK && t->form == TDM_TOK_PIECES)
        st = optional_bool(g, KEY "add_space_prefix", &t->is_space_prefixed, err);
    if (st == TDM_OK) st = read_tokens(t, g, err);
    if (st == TDM_OK)
        st = t->form == TDM_TOK_PIECES ? read_scores(t, g, err) : read_merges(t, g, err);
    if (st == TDM_OK && tdm_gguf_has(g, "tokenizer.chat_template")) {
        tdm_gguf_string_t source;
        st = tdm_gguf_string(g, "tokenizer.chat_template", &source, err);
        if (st == TDM_OK) t->chat = tdm_chat_detect(source.bytes, source.sz);
    }
    return st == TDM_OK ? tdm_tokenizer_seal(t, err) : st;
}

tdm_status_t tdm_tokenizer_open_gguf(const tdm_gguf_t *g, uint32_t vocab, tdm_tokenizer_t **out,
                                     tdm_error_t *err) {
    *out = NULL;
    tdm_tokenizer_t *t = calloc(1, sizeof *t);
    if (!t) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    t->row_cnt = vocab;
    t->bos = t->eos = t->unknown = -1;
    tdm_status_t st = read_all(t, g, err);
    if (st != TDM_OK) {
        tdm_tokenizer_close(t);
        return st;
    }
    *out = t;
    return TDM_OK;
}
