/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: ten reports of clients that other servers broke stay away from
   here.  The number before each fact is the report's:
     1  text-generation-inference 2019   no space after "data:"
     2  llama.cpp 15444                  usage in a chunk with choices
     3  llama.cpp 14268                  content null in the first chunk
     4  TensorRT-LLM 3280                chunks carried the whole text
     5  TensorRT-LLM 18190               lengths differ after stop trimming
     6  dynamo 2035                      ignore_eos lost
     7  llama-cpp-python 1907            max_completion_tokens ignored
     8  koboldcpp 643                    "stop": null
     9  mlx-omni-server 72               OPTIONS answered by 405
    10  openai-dotnet 267                finish_reason "eos" */
#include "tests/unit/api/rig.h"

#include <jansson.h>

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* play streams `text` for a body and gives the exchange. */
static rig_exchange_t *play(rig_t *r, const char *path, const char *body, const char *text,
                            tdm_finish_t finish) {
    rig_exchange_t *e = rig_post(r, path, body);
    rig_serve(r, rig_submitted(r), text, finish);
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
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop), 2);
    rig_stop(&r);
}

/* 6: ignore_eos reaches the sampler: no end token stops the request. */
static void ignore_eos_is_kept(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"ignore_eos\":true,\"min_tokens\":4}");
    const tdm_request_t *q = rig_submitted(&r);
    assert_int_equal(q->sampling.stop_cnt, 0);
    assert_int_equal(q->sampling.flags, TDM_SAMPLING_IGNORE_EOS);
    assert_int_equal(q->sampling.min_tokens, 4);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q = rig_submitted(&r);
    assert_true(q->sampling.stop_cnt >= 1);
    assert_int_equal(q->sampling.stop_id[0], 257);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"ignore_eos\":true,\"stop_token_ids\":[9]}");
    q = rig_submitted(&r);
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
    assert_int_equal(rig_submitted(&r)->output_max, 5);
    (void)rig_post(&r, CHAT, "{" HELLO ",\"max_tokens\":9,\"max_completion_tokens\":null}");
    assert_int_equal(rig_submitted(&r)->output_max, 9);
    (void)rig_post(&r, CHAT, "{" HELLO ",\"max_tokens\":null}");
    assert_int_equal(rig_submitted(&r)->output_max, 510);
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
        cmocka_unit_test(streams_keep_what_chat_clients_expect),
        cmocka_unit_test(lengths_agree_after_stop_trimming),
        cmocka_unit_test(ignore_eos_is_kept),
        cmocka_unit_test(max_completion_tokens_wins),
        cmocka_unit_test(stop_null_is_no_stop),
        cmocka_unit_test(options_is_answered_on_every_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
