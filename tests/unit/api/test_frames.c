/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the bytes clients rely on, exactly.
   Method: whole replies against literal text; the random part of an id is
   scrubbed to '#', time is the rig's.  The ten incompatibilities that
   broke clients of other servers are tests of their own below. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

static char scrubbed[1 << 16];

/* scrub copies text with the hex digits of "cmpl-<hex>" as one '#'. */
static const char *scrub(const char *text) {
    uint32_t at = 0;
    while (*text && at + 8 < sizeof scrubbed) {
        if (strncmp(text, "cmpl-", 5) != 0) {
            scrubbed[at++] = *text++;
            continue;
        }
        memcpy(scrubbed + at, "cmpl-#", 6);
        at += 6;
        text += 5;
        text += strspn(text, "0123456789abcdef");
    }
    scrubbed[at] = 0;
    return scrubbed;
}

#define CHAT  "/v1/chat/completions"
#define COMP  "/v1/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHUNK                                                                                      \
    "data: {\"id\":\"chatcmpl-#\",\"object\":\"chat.completion.chunk\",\"created\":1700000005,"    \
    "\"model\":\"tiny\",\"choices\":["
#define TEXT_CHUNK                                                                                 \
    "data: {\"id\":\"cmpl-#\",\"object\":\"text_completion\",\"created\":1700000005,"              \
    "\"model\":\"tiny\",\"choices\":["

static const tdm_request_t *submitted(rig_t *r) {
    const tdm_request_t *q = rig_submit(r);
    assert_non_null(q);
    return q;
}

static void a_chat_stream_is_byte_exact(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT, "{" HELLO ",\"stream\":true,\"max_tokens\":3}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    rig_token(&r, q, 'Y', 0);
    rig_poll(&r);
    rig_token(&r, q, '"', 1);
    rig_poll(&r);
    rig_token(&r, q, '\n', 2);
    rig_poll(&r);
    rig_end(&r, q, TDM_FINISH_LENGTH, 3);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_EVENT_STREAM);
    assert_int_equal(e->x.head.content_sz, -1);
    assert_int_equal(e->x.head.is_stream, 1);
    assert_string_equal(scrub(e->text),
                        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Y\"},"
                              "\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
                              "{\"index\":0,\"delta\":{\"content\":\"\\\"\"},\"logprobs\":null,"
                              "\"finish_reason\":null}]}\n\n" CHUNK
                              "{\"index\":0,\"delta\":{\"content\":\"\\n\"},\"logprobs\":null,"
                              "\"finish_reason\":null}]}\n\n" CHUNK
                              "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,"
                              "\"finish_reason\":\"length\"}]}\n\n"
                              "data: [DONE]\n\n");
    assert_int_equal(e->token_cnt, 3);
    assert_int_equal(e->end_cnt, 1);
    assert_int_equal(e->flags & TDM_EGRESS_ABORT, 0);
    rig_stop(&r);
}

/* The usual case: the last token and its END are there together. */
static void the_last_token_carries_the_finish(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true,\"max_tokens\":2}");
    rig_serve(&r, submitted(&r), "xy", TDM_FINISH_LENGTH);
    assert_string_equal(scrub(e->text), TEXT_CHUNK "{\"index\":0,\"text\":\"x\",\"logprobs\":null,"
                                                   "\"finish_reason\":null}]}\n\n" TEXT_CHUNK
                                                   "{\"index\":0,\"text\":\"y\",\"logprobs\":null,"
                                                   "\"finish_reason\":\"length\"}]}\n\n"
                                                   "data: [DONE]\n\n");
    rig_stop(&r);
}

static void a_chat_body_is_byte_exact(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT, "{\"model\":\"org/tiny-alias\"," HELLO "}");
    const tdm_request_t *q = submitted(&r);
    rig_event(&r, q, (tdm_event_t){.kind = TDM_EVENT_ACCEPTED, .cached_cnt = 1});
    rig_tokens(&r, q, "a\tb", 0);
    rig_end(&r, q, TDM_FINISH_STOP, 3);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_JSON);
    assert_int_equal(e->x.head.is_stream, 0);
    assert_string_equal(
        scrub(e->text),
        "{\"id\":\"chatcmpl-#\",\"object\":\"chat.completion\",\"created\":1700000005,"
        "\"model\":\"org/tiny-alias\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
        "\"assistant\",\"content\":\"a\\tb\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5,"
        "\"prompt_tokens_details\":{\"cached_tokens\":1}}}");
    assert_int_equal(e->token_cnt, 3);
    rig_stop(&r);
}

static void a_completion_body_lists_token_ids_when_asked(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e =
        rig_post(&r, COMP, "{\"prompt\":[97,98],\"return_token_ids\":true,\"max_tokens\":2}");
    rig_serve(&r, submitted(&r), "hi", TDM_FINISH_LENGTH);
    assert_string_equal(
        scrub(e->text),
        "{\"id\":\"cmpl-#\",\"object\":\"text_completion\",\"created\":1700000005,"
        "\"model\":\"tiny\",\"choices\":[{\"index\":0,\"text\":\"hi\",\"logprobs\":null,"
        "\"finish_reason\":\"length\",\"token_ids\":[104,105]}],"
        "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4,"
        "\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    rig_stop(&r);
}

/* A stop id is an output token, and no text. */
static void a_stop_id_is_counted_and_not_printed(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        rig_exchange_t *e =
            rig_post(&r, COMP,
                     is_stream ? "{\"prompt\":\"a\",\"stream\":true,\"return_token_ids\":true}"
                               : "{\"prompt\":\"a\",\"return_token_ids\":true}");
        const tdm_request_t *q = submitted(&r);
        rig_accept(&r, q);
        rig_token(&r, q, 'z', 0);
        rig_event(&r, q,
                  (tdm_event_t){.kind = TDM_EVENT_TOKEN,
                                .token = 'E',
                                .index = 1,
                                .flags = TDM_EVENT_FLAG_STOP_ID});
        rig_end(&r, q, TDM_FINISH_STOP, 2);
        rig_settle(&r);
        assert_null(strstr(e->text, "E\""));
        assert_non_null(strstr(e->text, "\"text\":\"z\""));
        assert_non_null(strstr(e->text, "\"finish_reason\":\"stop\""));
        assert_non_null(
            strstr(e->text, is_stream ? "\"token_ids\":[69]" : "\"token_ids\":[122,69]"));
        assert_int_equal(e->token_cnt, 2);
    }
    rig_stop(&r);
}

static void usage_comes_in_a_chunk_without_choices(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP,
                                 "{\"prompt\":\"ab\",\"stream\":true,\"max_tokens\":1,"
                                 "\"stream_options\":{\"include_usage\":true}}");
    rig_serve(&r, submitted(&r), "x", TDM_FINISH_LENGTH);
    assert_string_equal(
        scrub(e->text),
        TEXT_CHUNK "{\"index\":0,\"text\":\"x\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                   "\"usage\":null}\n\n" TEXT_CHUNK
                   "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n"
                   "data: [DONE]\n\n");
    rig_stop(&r);
}

static void continuous_usage_counts_up_in_each_chunk(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP,
                                 "{\"prompt\":\"ab\",\"stream\":true,\"max_tokens\":2,"
                                 "\"stream_options\":{\"include_usage\":true,"
                                 "\"continuous_usage_stats\":true}}");
    rig_serve(&r, submitted(&r), "xy", TDM_FINISH_LENGTH);
    const char *one = strstr(e->text, "\"completion_tokens\":1,");
    assert_non_null(one);
    const char *two = strstr(one, "\"completion_tokens\":2,");
    assert_non_null(two);
    assert_non_null(strstr(two + 1, "\"choices\":[],\"usage\":{\"prompt_tokens\":3,"
                                    "\"completion_tokens\":2,"));
    assert_null(strstr(e->text, "\"usage\":null"));
    rig_stop(&r);
}

static void an_error_after_the_head_is_an_event_and_done(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT, "{" HELLO ",\"stream\":true}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    rig_token(&r, q, 'Y', 0);
    rig_event(&r, q,
              (tdm_event_t){.kind = TDM_EVENT_END,
                            .finish = TDM_FINISH_ERROR,
                            .reason = TDM_REFUSE_nan_logits,
                            .index = 1});
    rig_settle(&r);
    const char *error = strstr(e->text, "data: {\"error\"");
    assert_non_null(error);
    assert_string_equal(error,
                        "data: {\"error\":{\"message\":\"the model produced no finite logits for "
                        "this request\",\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"nan_logits\"}}\n\ndata: [DONE]\n\n");
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(
        rig_count(&r, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_nan_logits)), 1);
    rig_stop(&r);
}

static void an_error_before_the_body_has_its_status(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT, "{" HELLO "}");
    const tdm_request_t *q = submitted(&r);
    rig_accept(&r, q);
    rig_token(&r, q, 'Y', 0);
    rig_event(&r, q,
              (tdm_event_t){.kind = TDM_EVENT_END,
                            .finish = TDM_FINISH_ERROR,
                            .reason = TDM_REFUSE_executor_failed,
                            .index = 1});
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 503);
    assert_int_equal(e->x.head.retry_after_ms, r.config.retry_after_ms);
    assert_string_equal(e->text, "{\"error\":{\"message\":\"the executor failed repeatedly under "
                                 "this request\",\"type\":\"server_error\",\"param\":null,"
                                 "\"code\":\"executor_failed\"}}");
    assert_int_equal(e->x.head.content_sz, e->text_sz);
    rig_stop(&r);
}

/* --- the ten incompatibilities ---------------------------------------- */

/* play streams `text` for a body and gives the exchange. */
static rig_exchange_t *play(rig_t *r, const char *path, const char *body, const char *text,
                            tdm_finish_t finish) {
    rig_exchange_t *e = rig_post(r, path, body);
    rig_serve(r, submitted(r), text, finish);
    return e;
}

/* each_event calls back with the JSON of each event but [DONE]. */
static uint32_t each_event(const char *text, void (*check)(const json_t *, uint32_t, void *),
                           void *ctx) {
    uint32_t cnt = 0;
    while (*text) {
        assert_memory_equal(text, "data: ", 6); /* 1: with the space */
        const char *end = strstr(text, "\n\n");
        assert_non_null(end);
        if (strncmp(text, "data: [DONE]", 12) == 0) {
            assert_string_equal(end, "\n\n");
            return cnt;
        }
        json_t *v = json_loadb(text + 6, (size_t)(end - text) - 6, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(v);
        check(v, cnt++, ctx);
        json_decref(v);
        text = end + 2;
    }
    fail_msg("no [DONE]");
    return 0;
}

typedef struct seen {
    char text[64];
    uint32_t choice_cnt;
    uint32_t usage_cnt;
    uint32_t finish_cnt;
} seen_t;

static void check_chat_event(const json_t *v, uint32_t idx, void *ctx) {
    seen_t *seen = ctx;
    assert_string_equal(json_string_value(json_object_get(v, "object")), "chat.completion.chunk");
    const json_t *choices = json_object_get(v, "choices");
    assert_true(json_is_array(choices));
    if (json_array_size(choices) == 0) {
        assert_true(json_is_object(json_object_get(v, "usage")));
        seen->usage_cnt++;
        return;
    }
    /* 2: usage never in a chunk with choices */
    assert_false(json_is_object(json_object_get(v, "usage")));
    const json_t *choice = json_array_get(choices, 0);
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *content = json_object_get(delta, "content");
    assert_true(json_is_string(content)); /* 3: never null */
    assert_true((json_object_get(delta, "role") != NULL) == (idx == 0));
    if (idx == 0) assert_true(json_string_length(content) > 0);
    strcat(seen->text, json_string_value(content)); /* 4: deltas, not the whole */
    const json_t *finish = json_object_get(choice, "finish_reason");
    assert_non_null(finish);
    assert_true(json_is_null(json_object_get(choice, "logprobs")));
    if (json_is_string(finish)) { /* 10: stop or length */
        assert_true(strcmp(json_string_value(finish), "stop") == 0 ||
                    strcmp(json_string_value(finish), "length") == 0);
        seen->finish_cnt++;
    }
    seen->choice_cnt++;
}

static void streams_keep_what_chat_clients_expect(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = play(&r, CHAT,
                             "{" HELLO ",\"stream\":true,\"stream_options\":"
                             "{\"include_usage\":true}}",
                             "Hello", TDM_FINISH_STOP);
    seen_t seen = {0};
    assert_int_equal(each_event(e->text, check_chat_event, &seen), 6);
    assert_string_equal(seen.text, "Hello");
    assert_int_equal(seen.choice_cnt, 5);
    assert_int_equal(seen.usage_cnt, 1);
    assert_int_equal(seen.finish_cnt, 1);
    assert_null(strstr(e->text, "\n:")); /* no heartbeat comments */
    rig_stop(&r);
}

/* 5: ids, usage and text agree when a stop string trims the reply. */
static void lengths_agree_after_stop_trimming(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e =
        play(&r, COMP, "{\"prompt\":\"a\",\"stop\":\"ST\",\"return_token_ids\":true}", "abSTcd",
             TDM_FINISH_STOP);
    assert_non_null(strstr(e->text, "\"text\":\"ab\""));
    assert_non_null(strstr(e->text, "\"token_ids\":[97,98,83,84]"));
    assert_non_null(strstr(e->text, "\"completion_tokens\":4"));
    assert_int_equal(
        rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop_string), 2);
    rig_stop(&r);
}

/* 6: ignore_eos reaches the sampler: no end token stops the request. */
static void ignore_eos_is_kept(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"ignore_eos\":true,\"min_tokens\":4}");
    const tdm_request_t *q = submitted(&r);
    assert_int_equal(q->sampling.stop_cnt, 0);
    assert_int_equal(q->sampling.flags, TDM_SAMPLING_IGNORE_EOS);
    assert_int_equal(q->sampling.min_tokens, 4);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q = submitted(&r);
    assert_true(q->sampling.stop_cnt >= 1);
    assert_int_equal(q->sampling.stop_id[0], 257);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"ignore_eos\":true,\"stop_token_ids\":[9]}");
    q = submitted(&r);
    assert_int_equal(q->sampling.stop_cnt, 1);
    assert_int_equal(q->sampling.stop_id[0], 9);
    rig_stop(&r);
}

/* 7: the new name is heard, and wins over the old one. */
static void max_completion_tokens_wins(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    (void)rig_post(&r, CHAT, "{" HELLO ",\"max_tokens\":9,\"max_completion_tokens\":5}");
    assert_int_equal(submitted(&r)->output_max, 5);
    (void)rig_post(&r, CHAT, "{" HELLO ",\"max_tokens\":9,\"max_completion_tokens\":null}");
    assert_int_equal(submitted(&r)->output_max, 9);
    (void)rig_post(&r, CHAT, "{" HELLO ",\"max_tokens\":null}");
    assert_int_equal(submitted(&r)->output_max, 510);
    rig_stop(&r);
}

/* 8 */
static void stop_null_is_no_stop(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e =
        play(&r, CHAT, "{" HELLO ",\"stop\":null,\"stream\":true}", "null", TDM_FINISH_STOP);
    seen_t seen = {0};
    each_event(e->text, check_chat_event, &seen);
    assert_string_equal(seen.text, "null");
    rig_stop(&r);
}

/* 9: a preflight is answered everywhere, key or not. */
static void options_is_answered_on_every_path(void **state) {
    (void)state;
    static const char *const path[] = {"/v1/models", CHAT, COMP, "/health", "/nowhere", "*"};
    rig_t r;
    rig_default(&r);
    r.auth.key_cnt = 1;
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(path); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        e->x.method = TDM_METHOD_OPTIONS;
        strcpy(e->x.path, path[i]);
        rig_push(&r, e);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, 204);
        assert_true(e->x.head.allow & (1u << TDM_METHOD_OPTIONS));
        assert_int_equal(e->text_sz, 0);
        assert_int_equal(e->end_cnt, 1);
    }
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_stream_is_byte_exact),
        cmocka_unit_test(the_last_token_carries_the_finish),
        cmocka_unit_test(a_chat_body_is_byte_exact),
        cmocka_unit_test(a_completion_body_lists_token_ids_when_asked),
        cmocka_unit_test(a_stop_id_is_counted_and_not_printed),
        cmocka_unit_test(usage_comes_in_a_chunk_without_choices),
        cmocka_unit_test(continuous_usage_counts_up_in_each_chunk),
        cmocka_unit_test(an_error_after_the_head_is_an_event_and_done),
        cmocka_unit_test(an_error_before_the_body_has_its_status),
        cmocka_unit_test(streams_keep_what_chat_clients_expect),
        cmocka_unit_test(lengths_agree_after_stop_trimming),
        cmocka_unit_test(ignore_eos_is_kept),
        cmocka_unit_test(max_completion_tokens_wins),
        cmocka_unit_test(stop_null_is_no_stop),
        cmocka_unit_test(options_is_answered_on_every_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
