/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TOKENIZER_CHAT_H
#define TDM_TOKENIZER_CHAT_H

/* Chat templates from a closed set: the text a model was trained to see
   around a conversation.  A template of a file is never run; it is
   recognised by what it contains, or the operator names one.

     chatml    <|im_start|>role LF content <|im_end|> LF ...
     smollm2   chatml, with SmolLM2's system message where none is given
     llama2    <s>[INST] <<SYS>> ... [/INST] answer </s> ...
     llama3    <|start_header_id|>role<|end_header_id|> LF LF content <|eot_id|> ...
     llama3.1  llama3, with the knowledge and date lines in the system turn
     none      contents, one after another, a line feed between them

   Rendering gives a text and the spans of it that come from the template:
   only there may control tokens be recognised (tdm_tokenizer_encode_spans),
   whatever users write into their messages. */

#include "appliance/tokenizer/tokenizer.h"

TDM_BEGIN_DECLS

#define TDM_CHAT_MESSAGE_MAX 1024 /* messages of one conversation */
#define TDM_CHAT_SPAN_MAX    (TDM_CHAT_MESSAGE_MAX + 2)

typedef enum tdm_chat_kind {
    TDM_CHAT_NONE,
    TDM_CHAT_CHATML,
    TDM_CHAT_SMOLLM2,
    TDM_CHAT_LLAMA2,
    TDM_CHAT_LLAMA3,
    TDM_CHAT_LLAMA31,
    TDM_CHAT_KIND_CNT,
    TDM_CHAT_UNKNOWN = TDM_CHAT_KIND_CNT /* a file's template outside the set: not to be rendered */
} tdm_chat_kind_t;

typedef enum tdm_chat_role { TDM_CHAT_SYSTEM, TDM_CHAT_USER, TDM_CHAT_ASSISTANT } tdm_chat_role_t;

typedef struct tdm_chat_message {
    tdm_chat_role_t role;
    const char *content; /* UTF-8, not terminated */
    uint64_t sz;
} tdm_chat_message_t;

typedef enum tdm_chat {
    TDM_CHAT_OK,
    TDM_CHAT_ROLE_ORDER, /* llama2: user and assistant must alternate, system only first */
    TDM_CHAT_EMPTY,      /* no message */
    TDM_CHAT_TOO_MANY,   /* over TDM_CHAT_MESSAGE_MAX */
    TDM_CHAT_TOO_LONG,   /* the text does not fit */
} tdm_chat_t;

/* The rendered text and its trusted spans; the caller owns the memory and
   sets text and text_max. */
typedef struct tdm_chat_text {
    char *text;
    uint64_t text_max;
    uint64_t sz;
    uint32_t span_cnt;
    tdm_span_t span[TDM_CHAT_SPAN_MAX];
} tdm_chat_text_t;

/* tdm_chat_kind_name and _from_name: "chatml", ...; -1 for no such name. */
const char *tdm_chat_kind_name(tdm_chat_kind_t kind);
int tdm_chat_kind_from_name(const char *name);

/* tdm_chat_of gives the template recognised in the tokenizer's files; NONE
   where they have none, UNKNOWN where it is outside the closed set. */
tdm_chat_kind_t tdm_chat_of(const tdm_tokenizer_t *t);

/* tdm_chat_detect recognises a template's source text; an empty one is
   NONE. */
tdm_chat_kind_t tdm_chat_detect(const char *source, uint64_t sz);

/* tdm_chat_role_from_name: "system", "developer" (as system), "user",
   "assistant"; -1 for any other. */
int tdm_chat_role_from_name(const char *name, uint64_t sz);

/* tdm_chat_render writes the conversation; with is_answer_due it ends where
   the assistant's next turn begins.  The text holds its own begin-of-text
   token where the template has one: encode it without ADD_SPECIAL. */
TDM_MUST_USE tdm_chat_t tdm_chat_render(tdm_chat_kind_t kind, const tdm_chat_message_t *message,
                                        uint32_t cnt, int is_answer_due, tdm_chat_text_t *out);

TDM_END_DECLS

#endif /* TDM_TOKENIZER_CHAT_H */
