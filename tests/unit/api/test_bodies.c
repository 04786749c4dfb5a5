/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every body has one written-down answer: what is refused, with
   which status, code and param, and what is accepted.
   Method: a table; after each refused body a good one must be submitted,
   and the counters of the reason must have moved by one. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

#define CHAT "/v1/chat/completions"
#define COMP "/v1/completions"
#define TOK  "/tokenize"
#define DET  "/detokenize"

typedef struct body_case {
    const char *path;
    const char *body;
    tdm_reason_t reason; /* NONE: accepted */
    const char *param;   /* NULL: null */
} body_case_t;

#define OK         TDM_REASON_NONE
#define C(fields)  "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," fields "}"
#define P(fields)  "{\"prompt\":\"hi\"," fields "}"
#define M(message) "{\"messages\":[" message "]}"
#define R(reason)  TDM_REFUSE_##reason

static const body_case_t body_case[] = {
    /* not JSON, or not an object */
    {COMP, "", R(bad_json), NULL},
    {COMP, " ", R(bad_json), NULL},
    {COMP, "{", R(bad_json), NULL},
    {COMP, "{}x", R(bad_json), NULL},
    {COMP, "{\"prompt\":}", R(bad_json), NULL},
    {COMP, "{'prompt':'hi'}", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"hi\",}", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"hi\" \"model\":\"tiny\"}", R(bad_json), NULL},
    {COMP, "prompt=hi", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"hi\\q\"}", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"hi\\ud800\"}", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"a\nb\"}", R(bad_json), NULL},
    {COMP, P("\"temperature\":NaN"), R(bad_json), NULL},
    {COMP, P("\"temperature\":Infinity"), R(bad_json), NULL},
    {COMP, P("\"temperature\":-"), R(bad_json), NULL},
    {COMP, P("\"temperature\":01"), R(bad_json), NULL},
    {COMP, P("\"temperature\":.5"), R(bad_json), NULL},
    {COMP, P("\"stream\":True"), R(bad_json), NULL},
    {COMP, "[]", R(bad_type), NULL},
    {COMP, "[{\"prompt\":\"hi\"}]", R(bad_type), NULL},
    {COMP, "\"hi\"", R(bad_json), NULL},
    {COMP, "null", R(bad_json), NULL},
    {COMP, "{\"prompt\":\"\xff\"}", R(bad_utf8), NULL},
    {COMP, "{\"prompt\":\"\xc3\"}", R(bad_utf8), NULL},
    {COMP, "{\"prompt\":\"\xc4\xe3\xba\xc3\"}", R(bad_utf8), NULL},
    {COMP, "{\"prompt\":\"\xed\xa0\x80\"}", R(bad_utf8), NULL},
    {COMP, "{\"prompt\":\"hi\",\"prompt\":\"ho\"}", R(duplicate_key), NULL},
    {COMP, P("\"metadata\":{\"a\":1,\"a\":2}"), R(duplicate_key), NULL},
    {COMP, P("\"temperature\":1e999"), R(bad_value), NULL},
    {COMP, P("\"max_tokens\":99999999999999999999"), R(bad_value), NULL},
    {COMP, P("\"seed\":18446744073709551616"), R(bad_value), NULL},

    /* model */
    {COMP, P("\"model\":\"tiny\""), OK, NULL},
    {COMP, P("\"model\":\"org/tiny-alias\""), OK, NULL},
    {COMP, P("\"model\":null"), OK, NULL},
    {COMP, P("\"model\":\"gpt-4\""), R(model_not_found), "model"},
    {COMP, P("\"model\":\"\""), R(model_not_found), "model"},
    {COMP, P("\"model\":\"tiny\\u0000\""), R(model_not_found), "model"},
    {COMP, P("\"model\":\"a\\\"b\\\\c\\n\""), R(model_not_found), "model"},
    {COMP, P("\"model\":7"), R(bad_type), "model"},
    {COMP, P("\"model\":[\"tiny\"]"), R(bad_type), "model"},

    /* prompt */
    {COMP, "{\"prompt\":\"hi\"}", OK, NULL},
    {COMP, "{\"prompt\":\"a\\u0000b\"}", OK, NULL},
    {COMP, "{\"prompt\":\"\\ud83d\\ude00\"}", OK, NULL},
    {COMP, "{\"prompt\":[\"hi\"]}", OK, NULL},
    {COMP, "{\"prompt\":[1]}", OK, NULL},
    {COMP, "{\"prompt\":[0,511]}", OK, NULL},
    {COMP, "{\"prompt\":[[1,2]]}", OK, NULL},
    {COMP, "{}", R(missing_field), "prompt"},
    {COMP, "{\"prompt\":null}", R(missing_field), "prompt"},
    {COMP, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", R(missing_field), "prompt"},
    {COMP, "{\"prompt\":\"\"}", R(prompt_empty), "prompt"},
    {COMP, "{\"prompt\":[]}", R(prompt_empty), "prompt"},
    {COMP, "{\"prompt\":[\"\"]}", R(prompt_empty), "prompt"},
    {COMP, "{\"prompt\":[[]]}", R(prompt_empty), "prompt"},
    {COMP, "{\"prompt\":7}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":true}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":{}}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[1,\"a\"]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[1.5]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[1.0]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[null]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[true]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[[[1]]]}", R(bad_type), "prompt"},
    {COMP, "{\"prompt\":[\"a\",\"b\"]}", R(unsupported_parameter), "prompt"},
    {COMP, "{\"prompt\":[[1],[2]]}", R(unsupported_parameter), "prompt"},
    {COMP, "{\"prompt\":[512]}", R(token_out_of_vocabulary), "prompt"},
    {COMP, "{\"prompt\":[-1]}", R(token_out_of_vocabulary), "prompt"},
    {COMP, "{\"prompt\":[1,2,9223372036854775807]}", R(token_out_of_vocabulary), "prompt"},
    {COMP, "{\"prompt\":[4294967297]}", R(token_out_of_vocabulary), "prompt"},

    /* messages */
    {CHAT, M("{\"role\":\"user\",\"content\":\"hi\"}"), OK, NULL},
    {CHAT, M("{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}"), OK,
     NULL},
    {CHAT, M("{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}"),
     OK, NULL},
    {CHAT,
     M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
       "{\"type\":\"text\",\"text\":\"b\"}]}"),
     OK, NULL},
    {CHAT, M("{\"role\":\"user\",\"content\":\"hi\",\"name\":\"bob\"}"), OK, NULL},
    {CHAT, M("{\"role\":\"assistant\",\"content\":\"hi\",\"tool_calls\":[]}"), OK, NULL},
    {CHAT, M("{\"role\":\"user\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"x\"}"), OK,
     NULL},
    {CHAT, "{}", R(missing_field), "messages"},
    {CHAT, "{\"prompt\":\"hi\"}", R(missing_field), "messages"},
    {CHAT, "{\"messages\":null}", R(missing_field), "messages"},
    {CHAT, "{\"messages\":[]}", R(prompt_empty), "messages"},
    {CHAT, "{\"messages\":\"hi\"}", R(bad_type), "messages"},
    {CHAT, "{\"messages\":{\"role\":\"user\",\"content\":\"hi\"}}", R(bad_type), "messages"},
    {CHAT, M("\"hi\""), R(bad_type), "messages[0]"},
    {CHAT, M("null"), R(bad_type), "messages[0]"},
    {CHAT, M("{\"role\":\"user\",\"content\":\"hi\"},7"), R(bad_type), "messages[1]"},
    {CHAT, M("{\"content\":\"hi\"}"), R(missing_field), "messages[0].role"},
    {CHAT, M("{\"role\":null,\"content\":\"hi\"}"), R(missing_field), "messages[0].role"},
    {CHAT, M("{\"role\":1,\"content\":\"hi\"}"), R(bad_type), "messages[0].role"},
    {CHAT, M("{\"role\":\"tool\",\"content\":\"hi\"}"), R(bad_value), "messages[0].role"},
    {CHAT, M("{\"role\":\"User\",\"content\":\"hi\"}"), R(bad_value), "messages[0].role"},
    {CHAT, M("{\"role\":\"\",\"content\":\"hi\"}"), R(bad_value), "messages[0].role"},
    {CHAT, M("{\"role\":\"user\"}"), R(missing_field), "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":null}"), R(missing_field), "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":7}"), R(bad_type), "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"a\"}}"), R(bad_type),
     "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[\"a\"]}"), R(bad_type), "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}"), R(bad_type),
     "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"), R(missing_field),
     "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}"), R(bad_type),
     "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}"),
     R(unsupported_content), "messages[0].content"},
    {CHAT, M("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}"),
     R(unsupported_content), "messages[0].content"},
    {CHAT, M("{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{}]}"),
     R(unsupported_parameter), "messages[0].tool_calls"},
    {CHAT, M("{\"role\":\"user\",\"content\":\"x\",\"tool_call_id\":\"1\"}"),
     R(unsupported_parameter), "messages[0].tool_call_id"},

    /* lengths */
    {COMP, P("\"max_tokens\":1"), OK, NULL},
    {COMP, P("\"max_tokens\":509"), OK, NULL},
    {COMP, P("\"max_tokens\":null"), OK, NULL},
    {COMP, P("\"max_tokens\":0"), R(bad_value), "max_tokens"},
    {COMP, P("\"max_tokens\":-1"), R(bad_value), "max_tokens"},
    {COMP, P("\"max_tokens\":2147483648"), R(bad_value), "max_tokens"},
    {COMP, P("\"max_tokens\":1.5"), R(bad_type), "max_tokens"},
    {COMP, P("\"max_tokens\":5.0"), R(bad_type), "max_tokens"},
    {COMP, P("\"max_tokens\":\"5\""), R(bad_type), "max_tokens"},
    {COMP, P("\"max_tokens\":true"), R(bad_type), "max_tokens"},
    {COMP, P("\"max_tokens\":[5]"), R(bad_type), "max_tokens"},
    {COMP, P("\"max_tokens\":510"), R(context_too_long), "max_tokens"},
    {COMP, P("\"max_tokens\":2147483647"), R(context_too_long), "max_tokens"},
    {CHAT, C("\"max_completion_tokens\":511"), R(context_too_long), "max_completion_tokens"},
    {CHAT, C("\"max_completion_tokens\":0"), R(bad_value), "max_completion_tokens"},
    {COMP, P("\"min_tokens\":3,\"max_tokens\":3"), OK, NULL},
    {COMP, P("\"min_tokens\":4,\"max_tokens\":3"), R(bad_value), "min_tokens"},
    {COMP, P("\"min_tokens\":-1"), R(bad_value), "min_tokens"},
    {COMP, P("\"min_tokens\":\"1\""), R(bad_type), "min_tokens"},

    /* stops */
    {COMP, P("\"stop\":null"), OK, NULL},
    {COMP, P("\"stop\":\"a\""), OK, NULL},
    {COMP, P("\"stop\":[]"), OK, NULL},
    {COMP, P("\"stop\":[\"a\",\"ab\",\"abc\"]"), OK, NULL},
    {COMP,
     P("\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\","
       "\"m\",\"n\",\"o\",\"p\"]"),
     OK, NULL},
    {COMP,
     P("\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\","
       "\"m\",\"n\",\"o\",\"p\",\"q\"]"),
     R(bad_value), "stop"},
    {COMP, P("\"stop\":\"\""), R(bad_value), "stop"},
    {COMP, P("\"stop\":[\"a\",\"\"]"), R(bad_value), "stop"},
    {COMP, P("\"stop\":7"), R(bad_type), "stop"},
    {COMP, P("\"stop\":[7]"), R(bad_type), "stop"},
    {COMP, P("\"stop\":[null]"), R(bad_type), "stop"},
    {COMP, P("\"stop\":{}"), R(bad_type), "stop"},
    {COMP, P("\"stop_token_ids\":[1,2]"), OK, NULL},
    {COMP, P("\"stop_token_ids\":[]"), OK, NULL},
    {COMP, P("\"stop_token_ids\":null"), OK, NULL},
    {COMP, P("\"stop_token_ids\":5"), R(bad_type), "stop_token_ids"},
    {COMP, P("\"stop_token_ids\":[1.5]"), R(bad_type), "stop_token_ids"},
    {COMP, P("\"stop_token_ids\":[512]"), R(token_out_of_vocabulary), "stop_token_ids"},
    {COMP, P("\"stop_token_ids\":[-1]"), R(token_out_of_vocabulary), "stop_token_ids"},
    {COMP, P("\"stop_token_ids\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"), R(bad_value),
     "stop_token_ids"},
    {COMP, P("\"include_stop_str_in_output\":true"), OK, NULL},
    {COMP, P("\"include_stop_str_in_output\":1"), R(bad_type), "include_stop_str_in_output"},
    {COMP, P("\"ignore_eos\":true"), OK, NULL},
    {COMP, P("\"ignore_eos\":\"true\""), R(bad_type), "ignore_eos"},

    /* sampling */
    {COMP, P("\"temperature\":0"), OK, NULL},
    {COMP, P("\"temperature\":1e-8"), OK, NULL},
    {COMP, P("\"temperature\":2"), OK, NULL},
    {COMP, P("\"temperature\":2.0001"), R(bad_value), "temperature"},
    {COMP, P("\"temperature\":-0.1"), R(bad_value), "temperature"},
    {COMP, P("\"temperature\":1e30"), R(bad_value), "temperature"},
    {COMP, P("\"temperature\":\"1\""), R(bad_type), "temperature"},
    {COMP, P("\"temperature\":true"), R(bad_type), "temperature"},
    {COMP, P("\"top_p\":1"), OK, NULL},
    {COMP, P("\"top_p\":1e-9"), OK, NULL},
    {COMP, P("\"top_p\":1e-300"), OK, NULL},
    {COMP, P("\"top_p\":0"), R(bad_value), "top_p"},
    {COMP, P("\"top_p\":1.1"), R(bad_value), "top_p"},
    {COMP, P("\"top_p\":-1"), R(bad_value), "top_p"},
    {COMP, P("\"top_p\":[]"), R(bad_type), "top_p"},
    {COMP, P("\"top_k\":-1"), OK, NULL},
    {COMP, P("\"top_k\":0"), OK, NULL},
    {COMP, P("\"top_k\":10000000"), OK, NULL},
    {COMP, P("\"top_k\":-2"), R(bad_value), "top_k"},
    {COMP, P("\"top_k\":1.5"), R(bad_type), "top_k"},
    {COMP, P("\"min_p\":0.5"), OK, NULL},
    {COMP, P("\"min_p\":1.5"), R(bad_value), "min_p"},
    {COMP, P("\"min_p\":-0.5"), R(bad_value), "min_p"},
    {COMP, P("\"repetition_penalty\":2"), OK, NULL},
    {COMP, P("\"repetition_penalty\":0"), R(bad_value), "repetition_penalty"},
    {COMP, P("\"repetition_penalty\":2.5"), R(bad_value), "repetition_penalty"},
    {COMP, P("\"presence_penalty\":-2"), OK, NULL},
    {COMP, P("\"presence_penalty\":-2.1"), R(bad_value), "presence_penalty"},
    {COMP, P("\"frequency_penalty\":2"), OK, NULL},
    {COMP, P("\"frequency_penalty\":2.1"), R(bad_value), "frequency_penalty"},
    {COMP, P("\"frequency_penalty\":\"x\""), R(bad_type), "frequency_penalty"},
    {COMP, P("\"seed\":0"), OK, NULL},
    {COMP, P("\"seed\":-1"), OK, NULL},
    {COMP, P("\"seed\":9223372036854775807"), OK, NULL},
    {COMP, P("\"seed\":1.5"), R(bad_type), "seed"},
    {COMP, P("\"seed\":\"1\""), R(bad_type), "seed"},

    /* delivery */
    {COMP, P("\"stream\":false"), OK, NULL},
    {COMP, P("\"stream\":null"), OK, NULL},
    {COMP, P("\"stream\":\"true\""), R(bad_type), "stream"},
    {COMP, P("\"stream\":1"), R(bad_type), "stream"},
    {COMP, P("\"stream_options\":null"), OK, NULL},
    {COMP, P("\"stream_options\":{}"), OK, NULL},
    {COMP, P("\"stream_options\":{\"include_usage\":null,\"other\":1}"), OK, NULL},
    {COMP, P("\"stream_options\":true"), R(bad_type), "stream_options"},
    {COMP, P("\"stream_options\":{\"include_usage\":1}"), R(bad_type),
     "stream_options.include_usage"},
    {COMP, P("\"stream_options\":{\"continuous_usage_stats\":\"y\"}"), R(bad_type),
     "stream_options.continuous_usage_stats"},
    {COMP, P("\"return_token_ids\":true"), OK, NULL},
    {COMP, P("\"return_token_ids\":0"), R(bad_type), "return_token_ids"},
    {COMP, P("\"add_special_tokens\":false"), OK, NULL},
    {COMP, P("\"slo_ttft_ms\":100"), OK, NULL},
    {COMP, P("\"slo_ttft_ms\":-1"), R(bad_value), "slo_ttft_ms"},
    {COMP, P("\"slo_tpot_ms\":\"a\""), R(bad_type), "slo_tpot_ms"},

    /* known and not implemented: refused by name, neutral values pass */
    {COMP, P("\"n\":1"), OK, NULL},
    {COMP, P("\"n\":null"), OK, NULL},
    {COMP, P("\"n\":2"), R(unsupported_parameter), "n"},
    {COMP, P("\"n\":1000000"), R(unsupported_parameter), "n"},
    {COMP, P("\"n\":0"), R(bad_value), "n"},
    {COMP, P("\"n\":\"1\""), R(bad_type), "n"},
    {COMP, P("\"best_of\":1"), OK, NULL},
    {COMP, P("\"best_of\":3"), R(unsupported_parameter), "best_of"},
    {COMP, P("\"logprobs\":null"), OK, NULL},
    {COMP, P("\"logprobs\":0"), R(unsupported_parameter), "logprobs"},
    {COMP, P("\"logprobs\":5"), R(unsupported_parameter), "logprobs"},
    {COMP, P("\"logprobs\":1000000000"), R(unsupported_parameter), "logprobs"},
    {CHAT, C("\"logprobs\":false"), OK, NULL},
    {CHAT, C("\"logprobs\":true"), R(unsupported_parameter), "logprobs"},
    {CHAT, C("\"top_logprobs\":0"), OK, NULL},
    {CHAT, C("\"top_logprobs\":5"), R(unsupported_parameter), "top_logprobs"},
    {COMP, P("\"echo\":false"), OK, NULL},
    {COMP, P("\"echo\":true"), R(unsupported_parameter), "echo"},
    {COMP, P("\"suffix\":\"\""), OK, NULL},
    {COMP, P("\"suffix\":\"x\""), R(unsupported_parameter), "suffix"},
    {COMP, P("\"logit_bias\":{}"), OK, NULL},
    {COMP, P("\"logit_bias\":{\"5\":-100}"), R(unsupported_parameter), "logit_bias"},
    {CHAT, C("\"response_format\":{\"type\":\"text\"}"), OK, NULL},
    {CHAT, C("\"response_format\":null"), OK, NULL},
    {CHAT, C("\"response_format\":{\"type\":\"json_object\"}"), R(unsupported_parameter),
     "response_format"},
    {CHAT, C("\"response_format\":\"text\""), R(unsupported_parameter), "response_format"},
    {CHAT, C("\"tools\":[]"), OK, NULL},
    {CHAT, C("\"tools\":[{\"type\":\"function\"}]"), R(unsupported_parameter), "tools"},
    {CHAT, C("\"tool_choice\":\"auto\""), OK, NULL},
    {CHAT, C("\"tool_choice\":\"none\""), OK, NULL},
    {CHAT, C("\"tool_choice\":\"required\""), R(unsupported_parameter), "tool_choice"},
    {CHAT, C("\"functions\":[{}]"), R(unsupported_parameter), "functions"},
    {CHAT, C("\"modalities\":[\"text\"]"), OK, NULL},
    {CHAT, C("\"modalities\":[\"audio\"]"), R(unsupported_parameter), "modalities"},
    {CHAT, C("\"audio\":{}"), R(unsupported_parameter), "audio"},
    {CHAT, C("\"prediction\":{}"), R(unsupported_parameter), "prediction"},
    {CHAT, C("\"reasoning_effort\":\"low\""), R(unsupported_parameter), "reasoning_effort"},
    {CHAT, C("\"web_search_options\":{}"), R(unsupported_parameter), "web_search_options"},
    {COMP, P("\"use_beam_search\":true"), R(unsupported_parameter), "use_beam_search"},
    {COMP, P("\"length_penalty\":1.0"), OK, NULL},
    {COMP, P("\"length_penalty\":1.2"), R(unsupported_parameter), "length_penalty"},
    {COMP, P("\"skip_special_tokens\":true"), OK, NULL},
    {COMP, P("\"skip_special_tokens\":false"), R(unsupported_parameter), "skip_special_tokens"},
    {COMP, P("\"prompt_logprobs\":1"), R(unsupported_parameter), "prompt_logprobs"},
    {COMP, P("\"guided_json\":{}"), R(unsupported_parameter), "guided_json"},
    {COMP, P("\"guided_regex\":\"a\""), R(unsupported_parameter), "guided_regex"},
    {COMP, P("\"structured_outputs\":{}"), R(unsupported_parameter), "structured_outputs"},
    {COMP, P("\"bad_words\":[\"a\"]"), R(unsupported_parameter), "bad_words"},
    {COMP, P("\"allowed_token_ids\":[1]"), R(unsupported_parameter), "allowed_token_ids"},
    {COMP, P("\"truncate_prompt_tokens\":5"), R(unsupported_parameter), "truncate_prompt_tokens"},
    {COMP, P("\"mirostat\":0"), OK, NULL},
    {COMP, P("\"mirostat\":2"), R(unsupported_parameter), "mirostat"},
    {COMP, P("\"typical_p\":0.5"), R(unsupported_parameter), "typical_p"},
    {COMP, P("\"grammar\":\"root ::= x\""), R(unsupported_parameter), "grammar"},
    {CHAT, C("\"add_generation_prompt\":true"), OK, NULL},
    {CHAT, C("\"add_generation_prompt\":false"), R(unsupported_parameter), "add_generation_prompt"},
    {CHAT, C("\"chat_template\":\"x\""), R(unsupported_parameter), "chat_template"},
    {CHAT, C("\"continue_final_message\":true"), R(unsupported_parameter),
     "continue_final_message"},

    /* /tokenize and /detokenize */
    {TOK, "{\"prompt\":\"hi\"}", OK, NULL},
    {TOK, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", OK, NULL},
    {TOK, "{\"prompt\":\"hi\",\"add_special_tokens\":false}", OK, NULL},
    {TOK, "{\"prompt\":\"hi\",\"add_special_tokens\":0}", R(bad_type), "add_special_tokens"},
    {TOK, "{}", R(missing_field), "prompt"},
    {TOK, "{\"prompt\":\"\"}", R(prompt_empty), "prompt"},
    {TOK, "{\"prompt\":\"hi\",\"model\":\"x\"}", R(model_not_found), "model"},
    {DET, "{\"tokens\":[104,105]}", OK, NULL},
    {DET, "{}", R(missing_field), "tokens"},
    {DET, "{\"tokens\":\"hi\"}", R(bad_type), "tokens"},
    {DET, "{\"tokens\":[\"hi\"]}", R(bad_type), "tokens"},
    {DET, "{\"tokens\":[]}", R(prompt_empty), "tokens"},
    {DET, "{\"tokens\":[512]}", R(token_out_of_vocabulary), "tokens"},
};

static void check_error(const rig_exchange_t *e, tdm_reason_t reason, const char *param) {
    assert_int_equal(e->end_cnt, 1);
    assert_int_equal(e->x.head.status, tdm_reason_http(reason));
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_JSON);
    assert_int_equal(e->x.head.content_sz, e->text_sz);
    assert_true((e->x.head.retry_after_ms > 0) ==
                (e->x.head.status == 429 || e->x.head.status == 503));
    json_t *v = json_loads(e->text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(v);
    const json_t *error = json_object_get(v, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), tdm_reason_name(reason));
    const json_t *p = json_object_get(error, "param");
    assert_non_null(p);
    if (param)
        assert_string_equal(json_string_value(p), param);
    else
        assert_true(json_is_null(p));
    assert_true(json_string_length(json_object_get(error, "message")) > 0);
    json_decref(v);
}

static uint64_t refusals(const rig_t *r, tdm_reason_t reason) {
    return reason ? rig_count(r, TDM_METRIC_refusals_total, tdm_label_reason(reason)) : 0;
}

/* serve_good sends a good request through to its end. */
static void serve_good(rig_t *r) {
    rig_exchange_t *e = rig_post(r, COMP, "{\"prompt\":\"ok\",\"max_tokens\":1}");
    const tdm_request_t *q = rig_submit(r);
    assert_non_null(q);
    rig_serve(r, q, "k", TDM_FINISH_LENGTH);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->end_cnt, 1);
}

static const body_case_t *at_case; /* the one under test, for show_case */

static int show_case(void **state) {
    (void)state;
    if (at_case) print_error("failed: POST %s %s\n", at_case->path, at_case->body);
    return 0;
}

static void run_case(rig_t *r, const body_case_t *c) {
    uint64_t before = refusals(r, c->reason);
    rig_exchange_t *e = rig_post(r, c->path, c->body);
    rig_settle(r);
    const tdm_request_t *q = rig_submit(r);
    if (c->reason != OK) {
        assert_null(q);
        check_error(e, c->reason, c->param);
        assert_int_equal(refusals(r, c->reason), before + 1);
        serve_good(r);
        return;
    }
    if (q) rig_serve(r, q, "x", TDM_FINISH_LENGTH);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->end_cnt, 1);
    assert_true(e->text_sz > 0);
}

static void every_body_has_its_answer(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    assert_true(TDM_COUNT_OF(body_case) > 200);
    for (uint32_t i = 0; i < TDM_COUNT_OF(body_case); i++) {
        at_case = &body_case[i];
        run_case(&r, at_case);
    }
    at_case = NULL;
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

/* The values of the fields arrive where the scheduler reads them. */
static void fields_reach_the_request(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    (void)rig_post(&r, COMP,
                   "{\"prompt\":\"ab\",\"max_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,"
                   "\"top_k\":40,\"min_p\":0.125,\"repetition_penalty\":1.5,"
                   "\"presence_penalty\":-0.5,\"frequency_penalty\":0.75,\"seed\":-2,"
                   "\"min_tokens\":3,\"stop_token_ids\":[5,6]}");
    const tdm_request_t *q = rig_submit(&r);
    assert_non_null(q);
    assert_int_equal(q->prompt_cnt, 3);
    assert_int_equal(q->prompt[0], 256);
    assert_int_equal(q->prompt[1], 'a');
    assert_int_equal(q->prompt[2], 'b');
    assert_int_equal(q->output_max, 7);
    assert_int_equal(q->arrival_ns, 5 * TDM_NS_PER_S);
    assert_int_equal(q->deadline_ns, TDM_TIME_NEVER);
    const tdm_sampling_t *s = &q->sampling;
    assert_true(s->temperature == 0.5f && s->top_p == 0.25f && s->min_p == 0.125f);
    assert_true(s->repetition_penalty == 1.5f && s->presence_penalty == -0.5f);
    assert_true(s->frequency_penalty == 0.75f);
    assert_int_equal(s->top_k, 40);
    assert_true(s->seed == (uint64_t)-2);
    assert_int_equal(s->min_tokens, 3);
    assert_int_equal(s->flags, 0);
    assert_true(s->stop_cnt >= 3);
    assert_int_equal(s->stop_id[s->stop_cnt - 2], 5);
    assert_int_equal(s->stop_id[s->stop_cnt - 1], 6);

    (void)rig_post(&r, COMP,
                   "{\"prompt\":[97],\"temperature\":1e-8,\"top_k\":512,\"top_p\":1e-300}");
    q = rig_submit(&r);
    assert_non_null(q);
    assert_int_equal(q->prompt_cnt, 1);
    assert_int_equal(q->output_max, 511);
    assert_true(q->sampling.temperature == 0.0f); /* tiny is greedy */
    assert_int_equal(q->sampling.top_k, 0);       /* the whole vocabulary is off */
    assert_true(q->sampling.top_p > 0.0f);
    uint64_t seed = q->sampling.seed;
    (void)rig_post(&r, COMP, "{\"prompt\":[97]}");
    q = rig_submit(&r);
    assert_non_null(q);
    assert_true(q->sampling.seed != seed); /* nobody chose one */
    rig_stop(&r);
}

static void ignored_fields_are_counted_by_kind(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    (void)rig_post(&r, CHAT,
                   C("\"user\":\"u\",\"metadata\":{},\"store\":true,\"service_tier\":\"auto\","
                     "\"parallel_tool_calls\":true,\"priority\":3,\"wholly_new\":[1],\"x\":null"));
    assert_non_null(rig_submit(&r));
    assert_int_equal(rig_count(&r, TDM_METRIC_fields_ignored_total, TDM_LABEL_FIELD_known), 6);
    assert_int_equal(rig_count(&r, TDM_METRIC_fields_ignored_total, TDM_LABEL_FIELD_unknown), 2);
    rig_stop(&r);
}

/* slo_* fields choose a class for a trusted peer, and nothing for others. */
static void only_trusted_peers_choose_a_class(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.class_cnt = 3;
    r.config.class_default = 1;
    r.config.slo[0].ttft_ns = 200 * TDM_NS_PER_MS;
    r.config.slo[1].ttft_ns = 1000 * TDM_NS_PER_MS;
    r.config.slo[2].ttft_ns = 5000 * TDM_NS_PER_MS;
    rig_start(&r);
    static const struct {
        const char *body;
        int is_trusted;
        uint32_t slo_class;
        int64_t due_ms;
    } c[] = {
        {P("\"slo_ttft_ms\":300"), 1, 0, 300},   {P("\"slo_ttft_ms\":6000"), 1, 2, 6000},
        {P("\"slo_ttft_ms\":6000"), 0, 1, 1000}, {P("\"slo_ttft_ms\":1"), 1, 1, 1},
        {"{\"prompt\":\"hi\"}", 1, 1, 1000},
    };
    r.auth.key_cnt = 1;
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        r.auth.key_cnt = c[i].is_trusted ? 0 : 1;
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        strcpy(e->x.path, COMP);
        /* sha256("k") is not needed: an open list trusts, a closed one asks */
        if (!c[i].is_trusted) {
            tdm_error_t err = {0};
            static const char keys[] =
                "t 8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a\n";
            assert_int_equal(tdm_auth_parse(&r.auth, keys, sizeof keys - 1, &err), TDM_OK);
            strcpy(e->x.authorization, "Bearer k");
            e->x.is_trusted_peer = 0;
        }
        rig_body(e, c[i].body, strlen(c[i].body));
        rig_push(&r, e);
        rig_poll(&r);
        const tdm_request_t *q = rig_submit(&r);
        assert_non_null(q);
        assert_int_equal(q->slo_class, c[i].slo_class);
        assert_int_equal(q->tenant, c[i].is_trusted ? 0 : 1);
        assert_int_equal(q->deadline_ns - q->arrival_ns, c[i].due_ms * TDM_NS_PER_MS);
        rig_serve(&r, q, "x", TDM_FINISH_LENGTH);
        assert_int_equal(e->x.slo_class, c[i].slo_class);
    }
    rig_stop(&r);
}

/* --- sizes ------------------------------------------------------------ */

static char *repeated(const char *head, const char *unit, uint32_t cnt, const char *tail) {
    size_t unit_sz = strlen(unit);
    char *text = malloc(strlen(head) + unit_sz * cnt + strlen(tail) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, head);
    for (uint32_t i = 0; i < cnt; i++) at = stpcpy(at, unit);
    strcpy(at, tail);
    return text;
}

static void expect(rig_t *r, const char *path, char *body, tdm_reason_t reason, const char *param) {
    rig_exchange_t *e = rig_post(r, path, body);
    rig_settle(r);
    if (reason != OK) {
        check_error(e, reason, param);
    } else {
        const tdm_request_t *q = rig_submit(r);
        assert_non_null(q);
        rig_serve(r, q, "x", TDM_FINISH_LENGTH);
        assert_int_equal(e->x.head.status, 200);
    }
    free(body);
}

static void sizes_are_refused_at_their_bound(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    /* depth 32 passes, 33 does not; brackets in strings are text */
    expect(&r, COMP, repeated("{\"prompt\":\"hi\",\"x\":", "[", 31, ""), R(bad_json), NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"hi\",\"x\":", "[", 32, ""), R(json_depth), NULL);
    expect(&r, COMP, repeated("", "{\"a\":", 33, ""), R(json_depth), NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"", "[{", 100, "\"}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"\\\"", "[{", 100, "\"}"), OK, NULL);
    /* keys of one object */
    char *keys = malloc(4096);
    for (uint32_t cnt = 63; cnt <= 64; cnt++) {
        char *at = stpcpy(keys, "{\"prompt\":\"hi\"");
        for (uint32_t i = 0; i < cnt; i++) at += sprintf(at, ",\"k%u\":0", i);
        strcpy(at, "}");
        expect(&r, COMP, strdup(keys), cnt == 63 ? OK : R(bad_value), NULL);
    }
    free(keys);
    /* ids around the context */
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 510, "]}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 511, "]}"), R(context_too_long),
           "max_tokens");
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 512, "]}"), R(context_too_long), "prompt");
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 20000, "]}"), R(bad_value), NULL);
    /* text around the context: BOS and 510 bytes leave one token */
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 510, "\"}"), OK, NULL);
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 511, "\"}"), R(context_too_long),
           "max_tokens");
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 512, "\"}"), R(context_too_long), "prompt");
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 60000, "\"}"), R(context_too_long), "prompt");
    expect(&r, CHAT,
           repeated("{\"messages\":[{\"role\":\"user\",\"content\":\"", "a", 600, "\"}]}"),
           R(context_too_long), "messages");
    expect(&r, CHAT,
           repeated("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}",
                    ",{\"role\":\"user\",\"content\":\"a\"}", 1024, "]}"),
           R(bad_value), "messages");
    /* stop strings: one too long, and too long together */
    expect(&r, COMP, repeated("{\"prompt\":\"a\",\"stop\":\"", "b", 1025, "\"}"), R(bad_value),
           "stop");
    /* the body itself */
    expect(&r, COMP, repeated("{\"prompt\":\"", "a", 65536, "\"}"), R(body_too_large), NULL);
    rig_stop(&r);
}

/* A body whose tree outgrows jansson's region is too large, and the next
   one finds the region empty again. */
static void the_json_region_is_a_bound(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.context_max = 65536;
    r.config.id_slab_sz = 1 << 20;
    r.config.json_sz = 64 * 1024;
    rig_start(&r);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 20000, "]}"), R(body_too_large), NULL);
    expect(&r, COMP, repeated("{\"prompt\":[1", ",1", 200, "]}"), OK, NULL);
    assert_true(tdm_api_tile_stats(r.tile)->json_high <= 64 * 1024);
    rig_stop(&r);
}

/* B31, M12: no byte of a request is in an error. */
static void errors_never_quote_the_request(void **state) {
    (void)state;
    static const char *const body[] = {
        "{\"prompt\":\"SECRET\",\"model\":\"SECRET\"}",
        "{\"prompt\":\"SECRET",
        "SECRET",
        "{\"SECRET\":1,\"SECRET\":2}",
        "{\"prompt\":\"SECRET\xff\"}",
        "{\"prompt\":\"SECRET\",\"logit_bias\":{\"SECRET\":1}}",
    };
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(body); i++) {
        rig_exchange_t *e = rig_post(&r, COMP, body[i]);
        rig_settle(&r);
        assert_true(e->x.head.status >= 400);
        assert_null(strstr(e->text, "SECRET"));
        assert_null(strchr(e->text, '\xff'));
    }
    rig_stop(&r);
}

static void a_context_error_names_both_numbers(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, P("\"max_tokens\":600"));
    rig_settle(&r);
    assert_non_null(strstr(e->text, "3 prompt tokens and 600 output tokens exceed the context "
                                    "length, 512"));
    rig_stop(&r);
}

static void tokenize_and_detokenize_are_exact(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, TOK, "{\"prompt\":\"hi\"}");
    rig_settle(&r);
    assert_string_equal(e->text, "{\"count\":3,\"max_model_len\":512,\"tokens\":[256,104,105]}");
    assert_int_equal(e->token_cnt, 0);
    e = rig_post(&r, TOK, "{\"prompt\":\"hi\",\"add_special_tokens\":false}");
    rig_settle(&r);
    assert_string_equal(e->text, "{\"count\":2,\"max_model_len\":512,\"tokens\":[104,105]}");
    e = rig_post(&r, DET, "{\"tokens\":[256,104,34,195,169,195]}");
    rig_settle(&r);
    assert_string_equal(e->text, "{\"prompt\":\"h\\\"\xc3\xa9\xef\xbf\xbd\"}");
    /* a list longer than one record */
    char *ids = repeated("{\"tokens\":[97", ",97", 511, "]}");
    e = rig_post(&r, DET, ids);
    rig_settle(&r);
    assert_int_equal(e->text_sz, 512 + strlen("{\"prompt\":\"\"}"));
    free(ids);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_body_has_its_answer, show_case),
        cmocka_unit_test(fields_reach_the_request),
        cmocka_unit_test(ignored_fields_are_counted_by_kind),
        cmocka_unit_test(only_trusted_peers_choose_a_class),
        cmocka_unit_test(sizes_are_refused_at_their_bound),
        cmocka_unit_test(the_json_region_is_a_bound),
        cmocka_unit_test(errors_never_quote_the_request),
        cmocka_unit_test(a_context_error_names_both_numbers),
        cmocka_unit_test(tokenize_and_detokenize_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
