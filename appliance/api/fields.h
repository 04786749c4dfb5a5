/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_FIELDS_H
#define TDM_API_FIELDS_H

/* The fields of a JSON body.  One table (fields.c) says of each: which
   endpoints know it, its type, its range, where it goes.  A field is

     stored    typed, in range, into tdm_fields_t
     neutral   known, would change the output, not implemented: refused by
               name unless its value changes nothing
     ignored   known and without effect on tokens, or unknown: counted

   null always means "not given". */

#include "appliance/api/refusal.h"

#include <jansson.h>

/* Who knows a field: bits of a table row and of tdm_fields_read. */
#define TDM_FIELDS_COMPLETIONS 1u
#define TDM_FIELDS_CHAT        2u
#define TDM_FIELDS_TOKENIZE    4u
#define TDM_FIELDS_DETOKENIZE  8u
#define TDM_FIELDS_STREAM      16u /* the object stream_options */
#define TDM_FIELDS_MESSAGE     32u /* one element of messages */

/* Nodes point into the body's tree and are NULL where not given. */
typedef struct tdm_fields {
    const json_t *model;
    const json_t *prompt;
    const json_t *messages;
    const json_t *tokens;
    const json_t *stop;
    const json_t *stop_token_ids;
    const json_t *stream_options;
    const json_t *role;
    const json_t *content;
    int64_t max_tokens; /* -1: not given */
    int64_t max_completion_tokens;
    int64_t min_tokens;
    int64_t top_k; /* -1 or 0: off */
    int64_t seed;
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    int64_t priority;    /* a class of service, 0 is the most urgent */
    int64_t held_tokens; /* prompt tokens not to be computed, of a bench's warm start */
    double slo_ttft_ms;  /* 0: not given */
    double slo_tpot_ms;
    int is_stream;
    int include_usage;
    int continuous_usage_stats;
    int include_stop_str_in_output;
    int ignore_eos;
    int return_token_ids;
    int add_special_tokens;
    int has_seed;
    int has_priority;
    uint32_t known_ignored_cnt;
    uint32_t unknown_cnt;
} tdm_fields_t;

/* tdm_fields_default sets what a body without any field means. */
void tdm_fields_default(tdm_fields_t *f);

/* tdm_fields_read reads every field of object that `who` (one bit) knows
   into f, which holds defaults or the result of an outer object.  prefix
   is put before names in a refusal ("messages[3]."), "" at the top.
   Returns 1, or 0 and the refusal of the first field at fault. */
int tdm_fields_read(tdm_fields_t *f, const json_t *object, uint32_t who, const char *prefix,
                    tdm_refusal_t *refusal);

#endif /* TDM_API_FIELDS_H */
