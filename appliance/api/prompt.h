/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_PROMPT_H
#define TDM_API_PROMPT_H

/* tdm_prompt turns the checked fields of a body into what the scheduler
   takes: prompt ids and sampling parameters.  Pure but for the memory it
   is lent: the ids of the longest prompt, the tokenizer's scratch and the
   body's JSON region. */

#include "appliance/abi/sampling.h"
#include "appliance/api/fields.h"
#include "appliance/api/json.h"
#include "appliance/api/text.h"
#include "appliance/tokenizer/chat.h"

#define TDM_END_ID_MAX (TDM_STOP_ID_MAX / 2) /* end tokens of a model */

typedef struct tdm_prompt {
    const tdm_tokenizer_t *tokenizer;
    tdm_encode_scratch_t *scratch;
    tdm_json_t *json;
    tdm_chat_kind_t chat;
    int32_t *ids;            /* [id_max] */
    uint32_t id_max;         /* the context */
    uint32_t output_default; /* output tokens where a request names none; 0: the rest */
    uint32_t vocab;
    uint32_t end_cnt;
    int32_t end_id[TDM_END_ID_MAX]; /* the model's end tokens */
    uint32_t id_cnt;                /* result */
    tdm_chat_text_t text;
    tdm_chat_message_t message[TDM_CHAT_MESSAGE_MAX];
} tdm_prompt_t;

/* tdm_prompt_chat_kind finds the chat template that name means: one of the
   closed set, or for "auto" the model's own.  UNSUPPORTED where there is no
   such name, or the model has a template that is none of the set: a wrong
   one would be answered without a sign. */
TDM_MUST_USE tdm_status_t tdm_prompt_chat_kind(const char *name, const tdm_tokenizer_t *t,
                                               tdm_chat_kind_t *out, tdm_error_t *err);

/* tdm_prompt_end_ids sets the model's end tokens: the given ones and the
   tokenizer's EOS, and where none are given also the turn ends that chat
   models are trained to write.  tokenizer and vocab are set before. */
void tdm_prompt_end_ids(tdm_prompt_t *p, const int32_t *end_id, uint32_t end_cnt);

/* tdm_prompt_completion reads f->prompt: a string, an array of ids, or an
   array that holds just one of either.  1, or 0 and the refusal. */
int tdm_prompt_completion(tdm_prompt_t *p, const tdm_fields_t *f, tdm_refusal_t *refusal);

/* tdm_prompt_chat reads f->messages: roles system, developer, user and
   assistant, contents strings or lists of text parts. */
int tdm_prompt_chat(tdm_prompt_t *p, tdm_fields_t *f, tdm_refusal_t *refusal);

/* tdm_prompt_ids reads an array of ids named param into p->ids. */
int tdm_prompt_ids(tdm_prompt_t *p, const json_t *array, const char *param, tdm_refusal_t *refusal);

/* tdm_prompt_output gives the output tokens allowed: max_completion_tokens,
   else max_tokens, else the rest of the context; 0 and the refusal where
   prompt and output do not fit, or min_tokens is over it. */
uint32_t tdm_prompt_output(const tdm_prompt_t *p, const tdm_fields_t *f, tdm_refusal_t *refusal);

/* tdm_prompt_sampling fills s from f; seed is used where f has none. */
int tdm_prompt_sampling(const tdm_prompt_t *p, const tdm_fields_t *f, uint64_t seed,
                        tdm_sampling_t *s, tdm_refusal_t *refusal);

/* tdm_prompt_stops reads f->stop (null, a string, an array of strings)
   into a fresh set. */
int tdm_prompt_stops(const tdm_fields_t *f, tdm_stop_t *stop, tdm_refusal_t *refusal);

#endif /* TDM_API_PROMPT_H */
