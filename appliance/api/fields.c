/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/fields.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COMP     TDM_FIELDS_COMPLETIONS
#define CHAT     TDM_FIELDS_CHAT
#define BOTH     (COMP | CHAT)
#define TOK      TDM_FIELDS_TOKENIZE
#define DETOK    TDM_FIELDS_DETOKENIZE
#define STREAM   TDM_FIELDS_STREAM
#define MESSAGE  TDM_FIELDS_MESSAGE
#define ANY_BODY (BOTH | TOK | DETOK)

typedef enum row_kind {
    ROW_BOOL,
    ROW_INT,
    ROW_NUMBER,
    ROW_NODE,
    ROW_NEUTRAL,
    ROW_IGNORED
} row_kind_t;

/* Values that change nothing, for ROW_NEUTRAL; null is always one. */
#define IS_FALSE     1u
#define IS_TRUE      2u
#define IS_ZERO      4u
#define IS_ONE       8u
#define IS_EMPTY     16u  /* "", [] or {} */
#define IS_NONE      32u  /* "none" or "auto": without tools there is nothing to choose */
#define IS_TEXT_TYPE 64u  /* {"type": "text"} */
#define IS_TEXT_LIST 128u /* ["text"] */
#define IS_COUNT     256u /* 1, and other integers from 1 on are the refused ones */
#define IS_NULL      0u

/* Ranges of ROW_INT and ROW_NUMBER are closed but for these. */
#define LO_OPEN 1u

typedef struct row {
    const char *name;
    uint32_t who;
    row_kind_t kind;
    uint32_t offset; /* in tdm_fields_t */
    uint32_t flags;  /* LO_OPEN, or IS_* of ROW_NEUTRAL */
    double lo;
    double hi;
} row_t;

#define AT(member) (uint32_t) offsetof(tdm_fields_t, member)
#define BOOL(name, who, member)                                                                    \
    { name, who, ROW_BOOL, AT(member), 0, 0, 0 }
#define INT(name, who, member, lo, hi)                                                             \
    { name, who, ROW_INT, AT(member), 0, lo, hi }
#define NUMBER(name, who, member, lo, hi)                                                          \
    { name, who, ROW_NUMBER, AT(member), 0, lo, hi }
#define NUMBER_ABOVE(name, who, member, lo, hi)                                                    \
    { name, who, ROW_NUMBER, AT(member), LO_OPEN, lo, hi }
#define NODE(name, who, member)                                                                    \
    { name, who, ROW_NODE, AT(member), 0, 0, 0 }
#define NEUTRAL(name, who, values)                                                                 \
    { name, who, ROW_NEUTRAL, 0, values, 0, 0 }
#define IGNORED(name, who)                                                                         \
    { name, who, ROW_IGNORED, 0, 0, 0, 0 }

static const row_t table[] = {
    /* what to answer */
    NODE("model", ANY_BODY, model),
    NODE("prompt", COMP | TOK, prompt),
    NODE("messages", CHAT | TOK, messages),
    NODE("tokens", DETOK, tokens),
    NODE("role", MESSAGE, role),
    NODE("content", MESSAGE, content),
    BOOL("add_special_tokens", COMP | TOK, add_special_tokens),

    /* how long */
    INT("max_tokens", BOTH, max_tokens, 1, 2147483647.0),
    INT("max_completion_tokens", BOTH, max_completion_tokens, 1, 2147483647.0),
    INT("min_tokens", BOTH, min_tokens, 0, 2147483647.0),
    NODE("stop", BOTH, stop),
    NODE("stop_token_ids", BOTH, stop_token_ids),
    BOOL("include_stop_str_in_output", BOTH, include_stop_str_in_output),
    BOOL("ignore_eos", BOTH, ignore_eos),

    /* how to draw */
    NUMBER("temperature", BOTH, temperature, 0, 2),
    NUMBER_ABOVE("top_p", BOTH, top_p, 0, 1),
    INT("top_k", BOTH, top_k, -1, 2147483647.0),
    NUMBER("min_p", BOTH, min_p, 0, 1),
    NUMBER_ABOVE("repetition_penalty", BOTH, repetition_penalty, 0, 2),
    NUMBER("presence_penalty", BOTH, presence_penalty, -2, 2),
    NUMBER("frequency_penalty", BOTH, frequency_penalty, -2, 2),
    INT("seed", BOTH, seed, -9223372036854775808.0, 9223372036854775808.0),

    /* how to deliver */
    BOOL("stream", BOTH, is_stream),
    NODE("stream_options", BOTH, stream_options),
    BOOL("include_usage", STREAM, include_usage),
    BOOL("continuous_usage_stats", STREAM, continuous_usage_stats),
    BOOL("return_token_ids", BOTH, return_token_ids),
    INT("priority", BOTH, priority, -9007199254740992.0, 9007199254740992.0),
    NUMBER("slo_ttft_ms", BOTH, slo_ttft_ms, 0, 86400000.0),
    NUMBER("slo_tpot_ms", BOTH, slo_tpot_ms, 0, 86400000.0),
    INT("held_tokens", COMP, held_tokens, 0, 2147483647.0),

    /* known, not implemented */
    NEUTRAL("n", BOTH, IS_COUNT),
    NEUTRAL("best_of", BOTH, IS_COUNT),
    NEUTRAL("logprobs", BOTH, IS_FALSE),
    NEUTRAL("top_logprobs", BOTH, IS_ZERO),
    NEUTRAL("prompt_logprobs", BOTH, IS_NULL),
    NEUTRAL("echo", BOTH, IS_FALSE),
    NEUTRAL("suffix", BOTH, IS_EMPTY),
    NEUTRAL("logit_bias", BOTH, IS_EMPTY),
    NEUTRAL("response_format", BOTH, IS_TEXT_TYPE),
    NEUTRAL("tools", BOTH, IS_EMPTY),
    NEUTRAL("tool_choice", BOTH, IS_NONE),
    NEUTRAL("functions", BOTH, IS_EMPTY),
    NEUTRAL("function_call", BOTH, IS_NONE),
    NEUTRAL("modalities", BOTH, IS_TEXT_LIST),
    NEUTRAL("audio", BOTH, IS_NULL),
    NEUTRAL("prediction", BOTH, IS_NULL),
    NEUTRAL("reasoning_effort", BOTH, IS_NULL),
    NEUTRAL("verbosity", BOTH, IS_NULL),
    NEUTRAL("web_search_options", BOTH, IS_NULL),
    NEUTRAL("use_beam_search", BOTH, IS_FALSE),
    NEUTRAL("length_penalty", BOTH, IS_ONE),
    NEUTRAL("early_stopping", BOTH, IS_FALSE),
    NEUTRAL("skip_special_tokens", BOTH, IS_TRUE),
    NEUTRAL("truncate_prompt_tokens", BOTH | TOK, IS_NULL),
    NEUTRAL("prompt_embeds", BOTH, IS_NULL),
    NEUTRAL("allowed_token_ids", BOTH, IS_NULL),
    NEUTRAL("bad_words", BOTH, IS_EMPTY),
    NEUTRAL("logits_processors", BOTH, IS_EMPTY),
    NEUTRAL("guided_json", BOTH, IS_NULL),
    NEUTRAL("guided_regex", BOTH, IS_NULL),
    NEUTRAL("guided_choice", BOTH, IS_NULL),
    NEUTRAL("guided_grammar", BOTH, IS_NULL),
    NEUTRAL("structured_outputs", BOTH, IS_NULL),
    NEUTRAL("grammar", BOTH, IS_EMPTY),
    NEUTRAL("json_schema", BOTH, IS_EMPTY),
    NEUTRAL("typical_p", BOTH, IS_ONE),
    NEUTRAL("top_a", BOTH, IS_ZERO),
    NEUTRAL("tfs", BOTH, IS_ONE),
    NEUTRAL("mirostat", BOTH, IS_ZERO),
    NEUTRAL("repeat_penalty", BOTH, IS_ONE),
    NEUTRAL("dry_multiplier", BOTH, IS_ZERO),
    NEUTRAL("xtc_probability", BOTH, IS_ZERO),
    NEUTRAL("add_generation_prompt", CHAT | TOK, IS_TRUE),
    NEUTRAL("continue_final_message", CHAT | TOK, IS_FALSE),
    NEUTRAL("chat_template", CHAT | TOK, IS_NULL),
    NEUTRAL("chat_template_kwargs", CHAT | TOK, IS_EMPTY),
    NEUTRAL("documents", CHAT, IS_EMPTY),
    NEUTRAL("return_token_strs", TOK, IS_FALSE),
    NEUTRAL("tool_calls", MESSAGE, IS_EMPTY),
    NEUTRAL("function_call", MESSAGE, IS_NULL),
    NEUTRAL("tool_call_id", MESSAGE, IS_NULL),

    /* known, without effect on tokens */
    IGNORED("user", BOTH),
    IGNORED("metadata", BOTH),
    IGNORED("store", BOTH),
    IGNORED("service_tier", BOTH),
    IGNORED("parallel_tool_calls", BOTH),
    IGNORED("safety_identifier", BOTH),
    IGNORED("prompt_cache_key", BOTH),
    IGNORED("cache_salt", BOTH),
    IGNORED("spaces_between_special_tokens", BOTH),
    IGNORED("return_tokens_as_token_ids", BOTH),
    IGNORED("request_id", BOTH),
    IGNORED("name", MESSAGE),
    IGNORED("refusal", MESSAGE),
};

void tdm_fields_default(tdm_fields_t *f) {
    *f = (tdm_fields_t){.max_tokens = -1,
                        .max_completion_tokens = -1,
                        .temperature = 1,
                        .top_p = 1,
                        .repetition_penalty = 1,
                        .add_special_tokens = 1};
}

static const row_t *find(const char *name, uint32_t who) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(table); i++)
        if ((table[i].who & who) && strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static int is_word(const json_t *v, const char *word) {
    return json_is_string(v) && strcmp(json_string_value(v), word) == 0;
}

static int is_empty(const json_t *v) {
    if (json_is_string(v)) return json_string_length(v) == 0;
    if (json_is_array(v)) return json_array_size(v) == 0;
    return json_is_object(v) && json_object_size(v) == 0;
}

static int is_neutral(const json_t *v, uint32_t values) {
    if ((values & IS_FALSE) && json_is_false(v)) return 1;
    if ((values & IS_TRUE) && json_is_true(v)) return 1;
    if ((values & IS_ZERO) && json_is_number(v) && json_number_value(v) == 0) return 1;
    if ((values & IS_ONE) && json_is_number(v) && json_number_value(v) == 1) return 1;
    if ((values & IS_EMPTY) && is_empty(v)) return 1;
    if ((values & IS_NONE) && (is_word(v, "none") || is_word(v, "auto"))) return 1;
    if ((values & IS_TEXT_TYPE) && json_is_object(v) && json_object_size(v) == 1)
        return is_word(json_object_get(v, "type"), "text");
    if ((values & IS_TEXT_LIST) && json_is_array(v) && json_array_size(v) == 1)
        return is_word(json_array_get(v, 0), "text");
    return 0;
}

#define WHOLE_MAX 9007199254740992.0 /* 2^53: a double past it may stand for another number */

/* whole reads 8, and 8.0 or 8e0 as languages with one kind of number write it. */
static int whole(const json_t *v, int64_t *out) {
    double d = json_number_value(v);
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 1;
    }
    if (!json_is_real(v) || !(d >= -WHOLE_MAX && d <= WHOLE_MAX)) return 0;
    *out = (int64_t)d;
    return (double)*out == d;
}

static tdm_reason_t check_count(const json_t *v) {
    int64_t i;
    if (!whole(v, &i)) return TDM_REFUSE_bad_type;
    if (i < 1) return TDM_REFUSE_bad_value;
    return i == 1 ? TDM_REASON_NONE : TDM_REFUSE_unsupported_parameter;
}

static int is_in_range(const row_t *row, double v) {
    return ((row->flags & LO_OPEN) ? v > row->lo : v >= row->lo) && v <= row->hi;
}

static tdm_reason_t store(tdm_fields_t *f, const row_t *row, const json_t *v) {
    void *to = (char *)f + row->offset;
    switch (row->kind) {
    case ROW_BOOL:
        if (!json_is_boolean(v)) return TDM_REFUSE_bad_type;
        *(int *)to = json_is_true(v);
        break;
    case ROW_INT: {
        int64_t i;
        if (!whole(v, &i)) return TDM_REFUSE_bad_type;
        if (!is_in_range(row, (double)i)) return TDM_REFUSE_bad_value;
        *(int64_t *)to = i;
        if (row->offset == AT(seed)) f->has_seed = 1;
        if (row->offset == AT(priority)) f->has_priority = 1;
        break;
    }
    case ROW_NUMBER:
        if (!json_is_number(v)) return TDM_REFUSE_bad_type;
        if (!is_in_range(row, json_number_value(v))) return TDM_REFUSE_bad_value;
        *(double *)to = json_number_value(v);
        break;
    case ROW_NODE: *(const json_t **)to = v; break;
    case ROW_NEUTRAL:
        if (row->flags & IS_COUNT) return check_count(v);
        if (!is_neutral(v, row->flags)) return TDM_REFUSE_unsupported_parameter;
        break;
    case ROW_IGNORED: f->known_ignored_cnt++; break;
    }
    return TDM_REASON_NONE;
}

/* refuse says what a field may be: one sentence for type and range. */
static int refuse(tdm_refusal_t *r, tdm_reason_t reason, const row_t *row, const char *param) {
    int is_huge = row->hi > WHOLE_MAX;
    switch (row->kind) {
    case ROW_BOOL: return tdm_refuse_text(r, reason, param, "%s must be true or false", param);
    case ROW_INT:
        if (is_huge)
            return tdm_refuse_text(r, reason, param, "%s must be a whole number of 64 bits", param);
        return tdm_refuse_text(r, reason, param, "%s must be a whole number from %.0f to %.0f",
                               param, row->lo, row->hi);
    case ROW_NUMBER:
        return tdm_refuse_text(r, reason, param,
                               row->flags & LO_OPEN ? "%s must be a number over %g, at most %g"
                                                    : "%s must be a number from %g to %g",
                               param, row->lo, row->hi);
    default: break;
    }
    if (!(row->flags & IS_COUNT))
        return tdm_refuse_text(r, reason, param,
                               "%s would change the output and is not implemented", param);
    return tdm_refuse_text(r, reason, param,
                           reason == TDM_REFUSE_unsupported_parameter
                               ? "%s over 1 is not implemented"
                               : "%s must be a whole number from 1 on",
                           param);
}

int tdm_fields_read(tdm_fields_t *f, const json_t *object, uint32_t who, const char *prefix,
                    tdm_refusal_t *refusal) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, name, v) {
        const row_t *row = find(name, who);
        if (!row) {
            f->unknown_cnt++;
            continue;
        }
        if (json_is_null(v)) continue;
        tdm_reason_t reason = store(f, row, v);
        if (!reason) continue;
        char param[sizeof refusal->param];
        (void)snprintf(param, sizeof param, "%s%s", prefix, row->name);
        return refuse(refusal, reason, row, param);
    }
    return 1;
}
