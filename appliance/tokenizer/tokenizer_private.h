/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_TOKENIZER_PRIVATE_H
#define TDM_TOKENIZER_TOKENIZER_PRIVATE_H

/* An open tokenizer and how it is put together:

     loader (from_gguf.c, from_json.c, folder.c, tokenizer.c for dummies)
        tdm_vocab_open, _add per id   vocab.c    bytes and kind of each token
        tdm_vocab_seal                           hash of normal tokens, specials
        tdm_merge_rule_add per merge  spelling.c, pairs.c   (left, right) -> rank, token
        tdm_pretok_open               pretok.c   regular expressions
        tdm_tokenizer_seal            tokenizer.c  byte ids, whole words
     encode.c uses it, merge.c is its inner loop */

#include "appliance/tokenizer/chat.h"
#include "appliance/tokenizer/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Kinds of token, as numbered by tokenizer.ggml.token_type. */
typedef enum tdm_token_kind {
    TDM_TOKEN_NORMAL = 1,
    TDM_TOKEN_UNKNOWN = 2,
    TDM_TOKEN_CONTROL = 3,
    TDM_TOKEN_USER = 4,
    TDM_TOKEN_UNUSED = 5,
    TDM_TOKEN_BYTE = 6,
} tdm_token_kind_t;

typedef enum tdm_tok_form {
    TDM_TOK_BYTES,      /* one id per byte */
    TDM_TOK_BYTE_LEVEL, /* words, bytes, merges */
    TDM_TOK_PIECES,     /* characters with the space as part of words, merges, byte fallback */
} tdm_tok_form_t;

typedef struct tdm_token {
    uint32_t at; /* in bytes[] */
    uint16_t sz;
    uint8_t kind;     /* tdm_token_kind_t */
    uint8_t is_whole; /* the merges of its bytes give exactly this token */
} tdm_token_t;

typedef struct tdm_vocab {
    uint32_t cnt; /* ids with a token */
    uint32_t cap;
    tdm_token_t *token; /* [cap] */
    char *bytes;
    uint64_t used, room;
    uint32_t *slot; /* normal tokens by their bytes, id + 1, 0 is empty */
    uint32_t mask;
    uint32_t sz_max;       /* bytes of the longest normal token */
    uint32_t special_cnt;  /* control and user tokens */
    int32_t *special;      /* by first byte, then longest first */
    uint32_t first[257];   /* special[first[b]] .. special[first[b + 1]) begin with b */
    uint8_t has_user[256]; /* some user token begins with b */
    int has_any_user;
} tdm_vocab_t;

typedef struct tdm_pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX is empty */
    uint32_t rank;
    int32_t id;
} tdm_pair_t;

typedef struct tdm_pairs {
    tdm_pair_t *slot;
    uint32_t mask;
    uint32_t cnt;
    uint32_t cnt_max;
} tdm_pairs_t;

#define TDM_PRETOK_STAGE_MAX 4

/* Stage k cuts every part that stage k-1 left into matches and gaps. */
typedef struct tdm_pretok {
    const char *name;
    uint32_t stage_cnt;
    pcre2_code *stage[TDM_PRETOK_STAGE_MAX];
} tdm_pretok_t;

struct tdm_tokenizer {
    char name[64];
    tdm_tok_form_t form;
    uint32_t row_cnt; /* rows of the embedding */
    tdm_vocab_t vocab;
    tdm_pairs_t pairs;
    tdm_pretok_t pretok;
    int32_t byte_id[256]; /* -1: that byte has no token and is left out */
    int32_t bos, eos, unknown;
    int is_bos_added, is_eos_added;
    int is_space_prefixed;    /* pieces: a text begins with a space */
    int is_whole_word_direct; /* a word that is a token is not merged (ignore_merges) */
    tdm_chat_kind_t chat;
};

/* One symbol of a word: an id (-1: a character without a piece) and its
   bytes; prev and next chain those still alive, UINT32_MAX ends. */
typedef struct tdm_symbol {
    int32_t id;
    uint32_t at, sz;
    uint32_t prev, next;
} tdm_symbol_t;

/* A merge that was possible when it was entered; ordered by rank, then by
   position. */
typedef struct tdm_candidate {
    uint32_t rank;
    uint32_t left; /* symbol */
    int32_t left_id, right_id;
} tdm_candidate_t;

struct tdm_encode_scratch {
    uint32_t text_max;
    tdm_symbol_t *symbol;  /* [text_max + 1] */
    tdm_candidate_t *heap; /* [2 * (text_max + 1)] */
    char *piece_text;      /* [text_max + 1], form PIECES only */
    pcre2_match_data *match[TDM_PRETOK_STAGE_MAX];
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
};

/* vocab.c.  add takes ids in order; bytes are copied. */
TDM_MUST_USE tdm_status_t tdm_vocab_open(tdm_vocab_t *v, uint32_t cap, uint64_t bytes_hint,
                                         tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_vocab_add(tdm_vocab_t *v, const char *bytes, uint64_t sz,
                                        tdm_token_kind_t kind, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_vocab_seal(tdm_vocab_t *v, tdm_error_t *err);
void tdm_vocab_close(tdm_vocab_t *v);
/* tdm_vocab_find: the normal token with these bytes, -1 for none. */
int32_t tdm_vocab_find(const tdm_vocab_t *v, const char *bytes, uint64_t sz);
static inline const char *tdm_vocab_bytes(const tdm_vocab_t *v, int32_t id) {
    return v->bytes + v->token[id].at;
}

/* pairs.c.  add: CORRUPT where the pair is there already. */
TDM_MUST_USE tdm_status_t tdm_pairs_open(tdm_pairs_t *p, uint32_t cnt_max, tdm_error_t *err);
TDM_MUST_USE int tdm_pairs_add(tdm_pairs_t *p, int32_t left, int32_t right, uint32_t rank,
                               int32_t id);
void tdm_pairs_close(tdm_pairs_t *p);
/* tdm_pairs_from_scores fills pairs from the scores of a piece vocabulary:
   two tokens that together make a third may merge, best score first. */
TDM_MUST_USE tdm_status_t tdm_pairs_from_scores(tdm_pairs_t *p, const tdm_vocab_t *v,
                                                const float *score, tdm_error_t *err);

static inline const tdm_pair_t *tdm_pairs_find(const tdm_pairs_t *p, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return NULL;
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t at = (uint32_t)(h >> 32) & p->mask;; at = (at + 1) & p->mask) {
        if (p->slot[at].key == key) return &p->slot[at];
        if (p->slot[at].key == UINT64_MAX) return NULL;
    }
}

/* merge.c.  Symbols 0..cnt-1 are set but for prev and next; the result is
   compacted to the front and its count returned. */
uint32_t tdm_merge(const tdm_pairs_t *p, tdm_symbol_t *symbol, uint32_t cnt, tdm_candidate_t *heap);

/* pretok.c */
TDM_MUST_USE tdm_status_t tdm_pretok_open(tdm_pretok_t *p, const char *name, uint64_t sz,
                                          tdm_error_t *err);
void tdm_pretok_close(tdm_pretok_t *p);
/* tdm_pretok_of_pattern: the closed set's name for a regular expression of
   tokenizer.json, NULL where it has none. */
const char *tdm_pretok_of_pattern(const char *pattern);
/* tdm_pretok_walk calls word for each word in order and gives 0; what word
   returned where that was not 0, which ends the walk; -1 where the engine
   gave up. */
typedef int (*tdm_word_fn)(void *ctx, const char *word, uint32_t sz);
TDM_MUST_USE int tdm_pretok_walk(const tdm_pretok_t *p, tdm_encode_scratch_t *s, const char *text,
                                 uint32_t sz, tdm_word_fn word, void *ctx);

/* spelling.c.  spaces turns a piece's spelling into its bytes, at most sz of
   them, and gives their number.  hex_byte reads "<0xHH>", -1 for anything
   else.  add enters the next id of a vocabulary by its spelling; rule_add
   one merge of its list. */
uint64_t tdm_spelling_spaces(const char *text, uint64_t sz, char *out);
int tdm_spelling_hex_byte(const char *text, uint64_t sz);
TDM_MUST_USE tdm_status_t tdm_spelling_add(tdm_tokenizer_t *t, const char *text, uint64_t sz,
                                           uint32_t kind, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_merge_rule_add(tdm_tokenizer_t *t, uint32_t rank, const char *left,
                                             uint64_t left_sz, const char *right, uint64_t right_sz,
                                             tdm_error_t *err);

/* tokenizer.c: byte ids, whole words, checks; the last step of a loader. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_seal(tdm_tokenizer_t *t, tdm_error_t *err);

#endif /* TDM_TOKENIZER_TOKENIZER_PRIVATE_H */
