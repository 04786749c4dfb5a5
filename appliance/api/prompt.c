/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/api/prompt.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* Tokens that end a turn, besides the EOS that the model's file names. */
static const char *const turn_end[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};

tdm_status_t tdm_prompt_chat_kind(const char *name, const tdm_tokenizer_t *t, tdm_chat_kind_t *out,
                                  tdm_error_t *err) {
    int is_auto = strcmp(name, "auto") == 0;
    int kind = is_auto ? (int)tdm_chat_of(t) : tdm_chat_kind_from_name(name);
    if (kind < 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "api tile: no chat template named %s", name);
    if (kind == (int)TDM_CHAT_UNKNOWN)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "the model's own chat template is none that is implemented; set "
                             "model.chat_template to chatml, smollm2, llama2, llama3, llama3.1 or "
                             "none");
    *out = (tdm_chat_kind_t)kind;
    return TDM_OK;
}

static void add_end(tdm_prompt_t *p, int32_t id) {
    for (uint32_t i = 0; i < p->end_cnt; i++)
        if (p->end_id[i] == id) return;
    if (id >= 0 && p->end_cnt < TDM_END_ID_MAX) p->end_id[p->end_cnt++] = id;
}

void tdm_prompt_end_ids(tdm_prompt_t *p, const int32_t *end_id, uint32_t end_cnt) {
    p->end_cnt = 0;
    for (uint32_t i = 0; i < end_cnt; i++) add_end(p, end_id[i]);
    add_end(p, tdm_tokenizer_eos(p->tokenizer));
    for (uint32_t i = 0; end_cnt == 0 && i < TDM_COUNT_OF(turn_end); i++)
        add_end(p, tdm_tokenizer_find_special(p->tokenizer, turn_end[i]));
}

static int too_long(const tdm_prompt_t *p, tdm_refusal_t *r, const char *param) {
    return tdm_refuse_text(r, TDM_REFUSE_context_too_long, param,
                           "the prompt has more than %u tokens, the context length", p->id_max);
}

int tdm_prompt_ids(tdm_prompt_t *p, const json_t *array, const char *param,
                   tdm_refusal_t *refusal) {
    uint64_t cnt = json_array_size(array);
    if (cnt == 0) return tdm_refuse(refusal, TDM_REFUSE_prompt_empty, param);
    for (uint64_t i = 0; i < cnt; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
        int64_t id = json_integer_value(v);
        if (id < 0 || id >= (int64_t)p->vocab)
            return tdm_refuse_text(refusal, TDM_REFUSE_token_out_of_vocabulary, param,
                                   "token %llu is outside the vocabulary of %u ids",
                                   (unsigned long long)i, p->vocab);
        if (i < p->id_max) p->ids[i] = (int32_t)id;
    }
    if (cnt > p->id_max)
        return tdm_refuse_text(refusal, TDM_REFUSE_context_too_long, param,
                               "the prompt has %llu tokens, the context length is %u",
                               (unsigned long long)cnt, p->id_max);
    p->id_cnt = (uint32_t)cnt;
    return 1;
}

/* encoded takes the answer of the tokenizer. */
static int encoded(tdm_prompt_t *p, tdm_encode_t answer, const char *param,
                   tdm_refusal_t *refusal) {
    switch (answer) {
    case TDM_ENCODE_OK: break;
    case TDM_ENCODE_BAD_UTF8: return tdm_refuse(refusal, TDM_REFUSE_bad_utf8, param);
    case TDM_ENCODE_TOO_LONG:
    case TDM_ENCODE_FULL: return too_long(p, refusal, param);
    default: return tdm_refuse(refusal, TDM_REFUSE_internal, param);
    }
    return p->id_cnt > 0 ? 1 : tdm_refuse(refusal, TDM_REFUSE_prompt_empty, param);
}

static int prompt_string(tdm_prompt_t *p, const json_t *v, int add_special,
                         tdm_refusal_t *refusal) {
    uint64_t sz = json_string_length(v);
    if (sz == 0) return tdm_refuse(refusal, TDM_REFUSE_prompt_empty, "prompt");
    tdm_encode_t answer = tdm_tokenizer_encode(p->tokenizer, p->scratch, json_string_value(v), sz,
                                               add_special ? TDM_ENCODE_ADD_SPECIAL : 0, p->ids,
                                               p->id_max, &p->id_cnt);
    return encoded(p, answer, "prompt", refusal);
}

int tdm_prompt_completion(tdm_prompt_t *p, const tdm_fields_t *f, tdm_refusal_t *refusal) {
    const json_t *v = f->prompt;
    if (!v) return tdm_refuse(refusal, TDM_REFUSE_missing_field, "prompt");
    if (json_is_array(v) && json_array_size(v) > 0) {
        const json_t *first = json_array_get(v, 0);
        int is_nested = json_is_array(first) || json_is_string(first);
        if (is_nested && json_array_size(v) > 1)
            return tdm_refuse_text(refusal, TDM_REFUSE_unsupported_parameter, "prompt",
                                   "one prompt per request is implemented");
        if (is_nested) v = first;
    }
    if (json_is_string(v)) return prompt_string(p, v, f->add_special_tokens, refusal);
    if (json_is_array(v)) return tdm_prompt_ids(p, v, "prompt", refusal);
    return tdm_refuse(refusal, TDM_REFUSE_bad_type, "prompt");
}

/* parts_join writes the text parts of a content list one after the other
   into the JSON region. */
static int parts_join(tdm_prompt_t *p, const json_t *parts, const char *param,
                      tdm_chat_message_t *m, tdm_refusal_t *refusal) {
    uint64_t sz = 0;
    size_t i;
    json_t *part;
    json_array_foreach(parts, i, part) {
        const json_t *type = json_object_get(part, "type");
        if (!json_is_object(part) || !json_is_string(type))
            return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
        if (strcmp(json_string_value(type), "text") != 0)
            return tdm_refuse(refusal, TDM_REFUSE_unsupported_content, param);
        const json_t *text = json_object_get(part, "text");
        if (!text) return tdm_refuse(refusal, TDM_REFUSE_missing_field, param);
        if (!json_is_string(text)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
        sz += json_string_length(text);
    }
    char *to = tdm_json_take(p->json, sz);
    if (!to) return tdm_refuse(refusal, TDM_REFUSE_body_too_large, param);
    m->content = to;
    m->sz = sz;
    json_array_foreach(parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        memcpy(to, json_string_value(text), json_string_length(text));
        to += json_string_length(text);
    }
    return 1;
}

static int read_message(tdm_prompt_t *p, tdm_fields_t *f, const json_t *v, uint32_t idx,
                        tdm_refusal_t *refusal) {
    char param[64], prefix[32];
    tdm_chat_message_t *m = &p->message[idx];
    (void)snprintf(param, sizeof param, "messages[%u]", idx);
    if (!json_is_object(v)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
    (void)snprintf(prefix, sizeof prefix, "messages[%u].", idx);
    f->role = f->content = NULL;
    if (!tdm_fields_read(f, v, TDM_FIELDS_MESSAGE, prefix, refusal)) return 0;

    (void)snprintf(param, sizeof param, "messages[%u].role", idx);
    if (!f->role) return tdm_refuse(refusal, TDM_REFUSE_missing_field, param);
    if (!json_is_string(f->role)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
    int role = tdm_chat_role_from_name(json_string_value(f->role), json_string_length(f->role));
    if (role < 0)
        return tdm_refuse_text(refusal, TDM_REFUSE_bad_value, param,
                               "%s must be system, developer, user or assistant", param);
    m->role = (tdm_chat_role_t)role;

    (void)snprintf(param, sizeof param, "messages[%u].content", idx);
    if (!f->content) return tdm_refuse(refusal, TDM_REFUSE_missing_field, param);
    if (json_is_array(f->content)) return parts_join(p, f->content, param, m, refusal);
    if (!json_is_string(f->content)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
    m->content = json_string_value(f->content);
    m->sz = json_string_length(f->content);
    return 1;
}

/* Bytes a template may put around one message, and around them all. */
#define TEMPLATE_MESSAGE_MAX 128u
#define TEMPLATE_TEXT_MAX    4096u

static int encode_chat(tdm_prompt_t *p, uint32_t cnt, tdm_refusal_t *refusal) {
    uint64_t sz = TEMPLATE_TEXT_MAX + (uint64_t)cnt * TEMPLATE_MESSAGE_MAX;
    for (uint32_t i = 0; i < cnt; i++) sz += p->message[i].sz;
    tdm_chat_text_t *text = &p->text;
    text->text = tdm_json_take(p->json, sz);
    text->text_max = sz;
    if (!text->text) return tdm_refuse(refusal, TDM_REFUSE_body_too_large, "messages");
    switch (tdm_chat_render(p->chat, p->message, cnt, 1, text)) {
    case TDM_CHAT_OK: break;
    case TDM_CHAT_ROLE_ORDER:
        return tdm_refuse_text(refusal, TDM_REFUSE_bad_value, "messages",
                               "this model wants user and assistant in turn, system only first");
    default: return tdm_refuse(refusal, TDM_REFUSE_internal, "messages");
    }
    tdm_encode_t answer =
        tdm_tokenizer_encode_spans(p->tokenizer, p->scratch, text->text, text->sz, text->span,
                                   text->span_cnt, 0, p->ids, p->id_max, &p->id_cnt);
    return encoded(p, answer, "messages", refusal);
}

int tdm_prompt_chat(tdm_prompt_t *p, tdm_fields_t *f, tdm_refusal_t *refusal) {
    const json_t *v = f->messages;
    if (!v) return tdm_refuse(refusal, TDM_REFUSE_missing_field, "messages");
    if (!json_is_array(v)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, "messages");
    uint64_t cnt = json_array_size(v);
    if (cnt == 0) return tdm_refuse(refusal, TDM_REFUSE_prompt_empty, "messages");
    if (cnt > TDM_CHAT_MESSAGE_MAX)
        return tdm_refuse_text(refusal, TDM_REFUSE_bad_value, "messages", "more than %d messages",
                               TDM_CHAT_MESSAGE_MAX);
    for (uint32_t i = 0; i < cnt; i++)
        if (!read_message(p, f, json_array_get(v, i), i, refusal)) return 0;
    return encode_chat(p, (uint32_t)cnt, refusal);
}

uint32_t tdm_prompt_output(const tdm_prompt_t *p, const tdm_fields_t *f, tdm_refusal_t *refusal) {
    int has_new_name = f->max_completion_tokens >= 0;
    const char *param = has_new_name ? "max_completion_tokens" : "max_tokens";
    int64_t rest = (int64_t)p->id_max - (int64_t)p->id_cnt;
    int64_t max = has_new_name ? f->max_completion_tokens : f->max_tokens;
    if (max < 0) {
        max = TDM_MAX(rest, 1);
        if (p->output_default)
            max = TDM_MIN(max, TDM_MAX((int64_t)p->output_default, f->min_tokens));
    }
    if (max > rest) {
        tdm_refuse_text(refusal, TDM_REFUSE_context_too_long, param,
                        "%u prompt tokens and %lld output tokens exceed the context length, %u",
                        p->id_cnt, (long long)max, p->id_max);
        return 0;
    }
    if (f->min_tokens > max) {
        tdm_refuse_text(refusal, TDM_REFUSE_bad_value, "min_tokens",
                        "min_tokens is over the %lld output tokens allowed", (long long)max);
        return 0;
    }
    return (uint32_t)max;
}

static int add_stop_id(const tdm_prompt_t *p, const json_t *v, tdm_sampling_t *s,
                       tdm_refusal_t *refusal) {
    static const char param[] = "stop_token_ids";
    if (!json_is_integer(v)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, param);
    int64_t id = json_integer_value(v);
    if (id < 0 || id >= (int64_t)p->vocab)
        return tdm_refuse(refusal, TDM_REFUSE_token_out_of_vocabulary, param);
    if (s->stop_cnt == TDM_STOP_ID_MAX)
        return tdm_refuse_text(refusal, TDM_REFUSE_bad_value, param,
                               "more than %d stop ids, the model's own included", TDM_STOP_ID_MAX);
    s->stop_id[s->stop_cnt++] = (int32_t)id;
    return 1;
}

/* Below this temperature the highest logit wins every draw; dividing by it
   could overflow. */
#define TEMPERATURE_MIN 1e-5

/* above_zero narrows a number in (0, ...] without letting it become 0. */
static float above_zero(double v) {
    return v < (double)FLT_MIN ? FLT_MIN : (float)v;
}

int tdm_prompt_sampling(const tdm_prompt_t *p, const tdm_fields_t *f, uint64_t seed,
                        tdm_sampling_t *s, tdm_refusal_t *refusal) {
    int is_off = f->top_k <= 0 || f->top_k >= (int64_t)p->vocab;
    *s = (tdm_sampling_t){
        .seed = f->has_seed ? (uint64_t)f->seed : seed,
        .temperature = f->temperature < TEMPERATURE_MIN ? 0.0f : (float)f->temperature,
        .top_p = above_zero(f->top_p),
        .min_p = (float)f->min_p,
        .repetition_penalty = above_zero(f->repetition_penalty),
        .presence_penalty = (float)f->presence_penalty,
        .frequency_penalty = (float)f->frequency_penalty,
        .top_k = is_off ? 0 : (int32_t)f->top_k,
        .min_tokens = (uint32_t)f->min_tokens,
    };
    /* ignore_eos frees a request from the model's end tokens only: its own
       stop_token_ids still end it. */
    for (uint32_t i = 0; i < p->end_cnt && !f->ignore_eos; i++)
        s->stop_id[s->stop_cnt++] = p->end_id[i];
    if (f->stop_token_ids && !json_is_array(f->stop_token_ids))
        return tdm_refuse(refusal, TDM_REFUSE_bad_type, "stop_token_ids");
    for (size_t i = 0; i < json_array_size(f->stop_token_ids); i++)
        if (!add_stop_id(p, json_array_get(f->stop_token_ids, i), s, refusal)) return 0;
    if (f->ignore_eos && s->stop_cnt == 0) s->flags |= TDM_SAMPLING_IGNORE_EOS;
    return 1;
}

static int add_stop(tdm_stop_t *stop, const json_t *v, tdm_refusal_t *refusal) {
    if (!json_is_string(v)) return tdm_refuse(refusal, TDM_REFUSE_bad_type, "stop");
    if (tdm_stop_add(stop, json_string_value(v), json_string_length(v)) == TDM_OK) return 1;
    return tdm_refuse_text(refusal, TDM_REFUSE_bad_value, "stop",
                           "up to %d stop strings, none empty, %u bytes together",
                           TDM_STOP_STRING_MAX, TDM_STOP_BYTES_MAX);
}

int tdm_prompt_stops(const tdm_fields_t *f, tdm_stop_t *stop, tdm_refusal_t *refusal) {
    tdm_stop_init(stop);
    if (!f->stop) return 1;
    if (!json_is_array(f->stop)) return add_stop(stop, f->stop, refusal);
    for (size_t i = 0; i < json_array_size(f->stop); i++)
        if (!add_stop(stop, json_array_get(f->stop, i), refusal)) return 0;
    return 1;
}
