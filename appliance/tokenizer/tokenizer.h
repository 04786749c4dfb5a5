/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_TOKENIZER_H
#define TDM_TOKENIZER_TOKENIZER_H

/* Text to token ids, and ids to bytes.

   byte-level   text -> special tokens cut out -> words (regular expression
                of tokenizer.ggml.pre) -> bytes -> merges by rank
   pieces       text -> spaces as part of words -> characters -> merges by
                score; what has no piece falls back to bytes (SentencePiece
                style: Llama-2, Yi)
   bytes        one id per byte (dummy models)

   A control token such as <|im_end|> inside text is ordinary text unless
   its place is marked as trusted: a user cannot end a turn by writing so.
   Tokens of type "user defined" are cut out everywhere, as their makers
   mean them to be.

   Ownership: open and close by boot.  An open tokenizer is read-only and
   serves any number of api tiles; each tile brings its own scratch, which
   carries all memory that encoding needs.
   Limits: text of at most the scratch's text_max bytes; the time of encode
   grows as n log n with the text, whatever the text is.
   Unicode: character classes are those of the installed PCRE2 (10.42:
   Unicode 14). */

#include "appliance/base/status.h"
#include "appliance/model/model.h"

TDM_BEGIN_DECLS

#define TDM_PIECE_MAX   512  /* bytes of one token */
#define TDM_SPECIAL_MAX 8192 /* control and user-defined tokens */

typedef struct tdm_tokenizer tdm_tokenizer_t;
typedef struct tdm_encode_scratch tdm_encode_scratch_t;

/* What became of a text.  Only OK gives ids. */
typedef enum tdm_encode {
    TDM_ENCODE_OK,
    TDM_ENCODE_BAD_UTF8, /* the text is not UTF-8 */
    TDM_ENCODE_TOO_LONG, /* over the scratch's text_max */
    TDM_ENCODE_FULL,     /* more ids than the caller takes */
    TDM_ENCODE_FAILED,   /* the regular expression engine gave up */
} tdm_encode_t;

#define TDM_ENCODE_ADD_SPECIAL   1u /* begin (and end) tokens where the model wants them */
#define TDM_ENCODE_PARSE_SPECIAL 2u /* the whole text is trusted */

/* A part of a text, [start, end) in bytes, in which control tokens count. */
typedef struct tdm_span {
    uint32_t start;
    uint32_t end;
} tdm_span_t;

/* tdm_tokenizer_open takes the tokenizer of a model: the file's own, the
   files of a folder, or the byte tokenizer of a dummy.
   UNSUPPORTED, by name, for a tokenizer model or pre-tokenizer outside the
   closed set. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_open(const tdm_model_t *model, tdm_tokenizer_t **out,
                                             tdm_error_t *err);

/* tdm_tokenizer_open_gguf reads the metadata of a GGUF file; vocab is the
   number of rows of the embedding, which no id may pass. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_open_gguf(const tdm_gguf_t *g, uint32_t vocab,
                                                  tdm_tokenizer_t **out, tdm_error_t *err);

/* tdm_tokenizer_open_json reads a tokenizer.json of Hugging Face.  Any
   normalizer, pre-tokenizer or decoder outside the closed set is refused
   by name. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_open_json(const char *path, uint32_t vocab,
                                                  tdm_tokenizer_t **out, tdm_error_t *err);

/* tdm_tokenizer_parse_json does so with the text of the file, which needs
   no zero; name stands in the sentence of an error. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_parse_json(const char *text, uint64_t sz, const char *name,
                                                   uint32_t vocab, tdm_tokenizer_t **out,
                                                   tdm_error_t *err);

/* tdm_tokenizer_open_folder reads the tokenizer.json of a folder, and what
   its tokenizer_config.json adds where there is one: begin and end tokens
   that tokenizer.json does not name, and the chat template (or that of
   chat_template.jinja).  A begin or end token that is no special token of
   the vocabulary is CORRUPT. */
TDM_MUST_USE tdm_status_t tdm_tokenizer_open_folder(const char *folder, uint32_t vocab,
                                                    tdm_tokenizer_t **out, tdm_error_t *err);

/* tdm_tokenizer_close frees; NULL is allowed. */
void tdm_tokenizer_close(tdm_tokenizer_t *t);

/* tdm_encode_scratch_create takes about 64 bytes per byte of text_max, once;
   pages that no text needs are never touched.  One per thread. */
TDM_MUST_USE tdm_status_t tdm_encode_scratch_create(const tdm_tokenizer_t *t, uint32_t text_max,
                                                    tdm_encode_scratch_t **out, tdm_error_t *err);
void tdm_encode_scratch_destroy(tdm_encode_scratch_t *s);

/* tdm_tokenizer_encode writes at most id_max ids and their count; flags are
   TDM_ENCODE_ADD_SPECIAL and _PARSE_SPECIAL.  text needs no zero. */
TDM_MUST_USE tdm_encode_t tdm_tokenizer_encode(const tdm_tokenizer_t *t, tdm_encode_scratch_t *s,
                                               const char *text, uint64_t sz, uint32_t flags,
                                               int32_t *ids, uint32_t id_max, uint32_t *cnt);

/* tdm_tokenizer_encode_spans does the same with control tokens counting
   only inside the given spans: ascending, apart, inside the text. */
TDM_MUST_USE tdm_encode_t tdm_tokenizer_encode_spans(const tdm_tokenizer_t *t,
                                                     tdm_encode_scratch_t *s, const char *text,
                                                     uint64_t sz, const tdm_span_t *spans,
                                                     uint32_t span_cnt, uint32_t flags,
                                                     int32_t *ids, uint32_t id_max, uint32_t *cnt);

/* tdm_tokenizer_vocab: ids are in [0, vocab), the rows of the embedding;
   rows without a token have no bytes. */
uint32_t tdm_tokenizer_vocab(const tdm_tokenizer_t *t);

/* tdm_tokenizer_piece gives the bytes of a token, not terminated; a space
   mark is already a space.  Empty for control tokens and for ids outside. */
const char *tdm_tokenizer_piece(const tdm_tokenizer_t *t, int32_t id, uint32_t *sz);

/* tdm_tokenizer_is_control: 1 for a control token, 0 for all other ids. */
int tdm_tokenizer_is_control(const tdm_tokenizer_t *t, int32_t id);

/* tdm_tokenizer_find_special gives the id of a control token by its text,
   -1 where there is none. */
int32_t tdm_tokenizer_find_special(const tdm_tokenizer_t *t, const char *text);

/* tdm_tokenizer_bos and _eos: -1 where the model has none. */
int32_t tdm_tokenizer_bos(const tdm_tokenizer_t *t);
int32_t tdm_tokenizer_eos(const tdm_tokenizer_t *t);

/* tdm_tokenizer_name: "gpt2/smollm", "llama", "bytes": for logs. */
const char *tdm_tokenizer_name(const tdm_tokenizer_t *t);

TDM_END_DECLS

#endif /* TDM_TOKENIZER_TOKENIZER_H */
