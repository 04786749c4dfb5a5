/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer.h"

#include "appliance/model/dummy.h"
#include "appliance/tokenizer/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tdm_tokenizer_close(tdm_tokenizer_t *t) {
    if (!t) return;
    tdm_vocab_close(&t->vocab);
    tdm_pairs_close(&t->pairs);
    tdm_pretok_close(&t->pretok);
    free(t);
}

static tdm_status_t check_id(const char *what, int32_t id, const tdm_tokenizer_t *t,
                             tdm_error_t *err) {
    if (id < -1 || id >= (int32_t)t->vocab.cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: %s token %d is outside its %u", what,
                             id, t->vocab.cnt);
    return TDM_OK;
}

/* byte_ids finds the token of each byte: a token of that one byte, or in a
   piece vocabulary the token <0xHH>. */
static tdm_status_t byte_ids(tdm_tokenizer_t *t, tdm_error_t *err) {
    const tdm_vocab_t *v = &t->vocab;
    for (uint32_t b = 0; b < 256; b++) {
        char c = (char)b;
        t->byte_id[b] = t->form == TDM_TOK_BYTE_LEVEL ? tdm_vocab_find(v, &c, 1) : -1;
    }
    for (uint32_t id = 0; id < v->cnt; id++) {
        const tdm_token_t *k = &v->token[id];
        if (k->kind != TDM_TOKEN_BYTE) continue;
        if (k->sz != 1 || t->form == TDM_TOK_BYTE_LEVEL)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: token %u is no byte", id);
        uint8_t b = (uint8_t)v->bytes[k->at];
        if (t->byte_id[b] >= 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: two tokens for byte %u", b);
        t->byte_id[b] = (int32_t)id;
    }
    return TDM_OK;
}

/* whole_words marks the tokens that merging their own bytes gives, so that
   such a word needs no merging; ignore_merges marks all. */
static void whole_words(tdm_tokenizer_t *t) {
    tdm_symbol_t symbol[TDM_PIECE_MAX];
    tdm_candidate_t heap[2 * TDM_PIECE_MAX];
    tdm_vocab_t *v = &t->vocab;
    for (uint32_t id = 0; id < v->cnt; id++) {
        tdm_token_t *k = &v->token[id];
        if (k->kind != TDM_TOKEN_NORMAL) continue;
        int is_known = 1;
        for (uint32_t i = 0; i < k->sz; i++) {
            int32_t b = t->byte_id[(uint8_t)v->bytes[k->at + i]];
            symbol[i] = (tdm_symbol_t){.id = b, .at = i, .sz = 1};
            is_known &= b >= 0;
        }
        if (t->is_whole_word_direct)
            k->is_whole = 1;
        else if (is_known)
            k->is_whole =
                tdm_merge(&t->pairs, symbol, k->sz, heap) == 1 && symbol[0].id == (int32_t)id;
    }
}

tdm_status_t tdm_tokenizer_seal(tdm_tokenizer_t *t, tdm_error_t *err) {
    if (t->vocab.cnt > t->row_cnt)
        return tdm_error_set(err, TDM_ERR_CORRUPT, "tokenizer: %u tokens, the model has %u rows",
                             t->vocab.cnt, t->row_cnt);
    tdm_status_t st = check_id("begin", t->bos, t, err);
    if (st == TDM_OK) st = check_id("end", t->eos, t, err);
    if (st == TDM_OK) st = check_id("unknown", t->unknown, t, err);
    if (st == TDM_OK) st = byte_ids(t, err);
    if (st != TDM_OK) return st;
    if (t->bos < 0) t->is_bos_added = 0;
    if (t->eos < 0) t->is_eos_added = 0;
    if (t->form == TDM_TOK_BYTE_LEVEL) whole_words(t);
    return TDM_OK;
}

static tdm_status_t open_bytes(uint32_t row_cnt, tdm_tokenizer_t **out, tdm_error_t *err) {
    static const char *const special[] = {"<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"};
    if (row_cnt < TDM_DUMMY_SYLLABLE)
        return tdm_error_set(err, TDM_ERR_INVAL, "tokenizer: %u rows do not hold bytes", row_cnt);
    tdm_tokenizer_t *t = calloc(1, sizeof *t);
    if (!t) return tdm_error_set(err, TDM_ERR_NOMEM, "tokenizer: no memory");
    t->form = TDM_TOK_BYTES;
    t->row_cnt = row_cnt;
    t->bos = TDM_DUMMY_BOS;
    t->eos = TDM_DUMMY_EOS;
    t->unknown = -1;
    t->is_bos_added = 1;
    t->chat = TDM_CHAT_CHATML;
    (void)snprintf(t->name, sizeof t->name, "bytes");
    tdm_status_t st = tdm_vocab_open(&t->vocab, row_cnt, 4 * (uint64_t)row_cnt, err);
    for (uint32_t id = 0; st == TDM_OK && id < row_cnt; id++) {
        char text[4];
        if (id < 256) {
            text[0] = (char)id;
            st = tdm_vocab_add(&t->vocab, text, 1, TDM_TOKEN_BYTE, err);
        } else if (id < TDM_DUMMY_SYLLABLE) {
            const char *s = special[id - 256];
            st = tdm_vocab_add(&t->vocab, s, strlen(s), TDM_TOKEN_CONTROL, err);
        } else { /* syllables repeat, and text never becomes one */
            st =
                tdm_vocab_add(&t->vocab, text, tdm_dummy_syllable(id, text), TDM_TOKEN_UNUSED, err);
        }
    }
    if (st == TDM_OK) st = tdm_vocab_seal(&t->vocab, err);
    if (st == TDM_OK) st = tdm_tokenizer_seal(t, err);
    if (st != TDM_OK) {
        tdm_tokenizer_close(t);
        return st;
    }
    *out = t;
    return TDM_OK;
}

tdm_status_t tdm_tokenizer_open(const tdm_model_t *model, tdm_tokenizer_t **out, tdm_error_t *err) {
    *out = NULL;
    uint32_t row_cnt = tdm_model_shape(model)->vocab;
    const char *folder = tdm_model_folder(model);
    if (folder) return tdm_tokenizer_open_folder(folder, row_cnt, out, err);
    const tdm_gguf_t *g = tdm_model_gguf(model);
    return g ? tdm_tokenizer_open_gguf(g, row_cnt, out, err) : open_bytes(row_cnt, out, err);
}

uint32_t tdm_tokenizer_vocab(const tdm_tokenizer_t *t) {
    return t->row_cnt;
}

int tdm_tokenizer_is_control(const tdm_tokenizer_t *t, int32_t id) {
    if (id < 0 || id >= (int32_t)t->vocab.cnt) return 0;
    return t->vocab.token[id].kind == TDM_TOKEN_CONTROL;
}

const char *tdm_tokenizer_piece(const tdm_tokenizer_t *t, int32_t id, uint32_t *sz) {
    *sz = 0;
    if (id < 0 || id >= (int32_t)t->vocab.cnt) return "";
    uint8_t kind = t->vocab.token[id].kind;
    if (kind == TDM_TOKEN_CONTROL || kind == TDM_TOKEN_UNKNOWN) return "";
    *sz = t->vocab.token[id].sz;
    return tdm_vocab_bytes(&t->vocab, id);
}

int32_t tdm_tokenizer_find_special(const tdm_tokenizer_t *t, const char *text) {
    size_t sz = strlen(text);
    for (uint32_t i = 0; i < t->vocab.special_cnt; i++) {
        int32_t id = t->vocab.special[i];
        const tdm_token_t *k = &t->vocab.token[id];
        if (k->kind == TDM_TOKEN_CONTROL && k->sz == sz &&
            memcmp(tdm_vocab_bytes(&t->vocab, id), text, sz) == 0)
            return id;
    }
    return -1;
}

int32_t tdm_tokenizer_bos(const tdm_tokenizer_t *t) {
    return t->bos;
}

int32_t tdm_tokenizer_eos(const tdm_tokenizer_t *t) {
    return t->eos;
}

const char *tdm_tokenizer_name(const tdm_tokenizer_t *t) {
    return t->name;
}

tdm_chat_kind_t tdm_chat_of(const tdm_tokenizer_t *t) {
    return t->chat;
}
