/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the bytes clients rely on, exactly.
   Method: whole replies against literal text; the random part of an id is
   scrubbed to '#', time is the rig's. */
#include "tests/unit/api/rig.h"

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

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHUNK                                                                                      \
    "data: {\"id\":\"chatcmpl-#\",\"object\":\"chat.completion.chunk\",\"created\":1700000005,"    \
    "\"model\":\"tiny\",\"choices\":["
#define TEXT_CHUNK                                                                                 \
    "data: {\"id\":\"cmpl-#\",\"object\":\"text_completion\",\"created\":1700000005,"              \
    "\"model\":\"tiny\",\"choices\":["

static void a_chat_stream_is_byte_exact(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT, "{" HELLO ",\"stream\":true,\"max_tokens\":3}");
    const tdm_request_t *q = rig_submitted(&r);
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
    rig_serve(&r, rig_submitted(&r), "xy", TDM_FINISH_LENGTH);
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
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_event(&r, q, (tdm_event_t){.kind = TDM_EVENT_TOKEN, .token = 'a', .cached_cnt = 1});
    rig_tokens(&r, q, "\tb", 1);
    rig_end(&r, q, TDM_FINISH_STOP, 3);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 200);
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_JSON);
    assert_int_equal(e->x.head.is_stream, 0);
    assert_int_equal(e->x.head.content_sz, e->text_sz); /* short: the length is known */
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
    rig_serve(&r, rig_submitted(&r), "hi", TDM_FINISH_LENGTH);
    assert_string_equal(
        scrub(e->text),
        "{\"id\":\"cmpl-#\",\"object\":\"text_completion\",\"created\":1700000005,"
        "\"model\":\"tiny\",\"choices\":[{\"index\":0,\"text\":\"hi\",\"logprobs\":null,"
        "\"finish_reason\":\"length\",\"token_ids\":[104,105]}],"
        "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4,"
        "\"prompt_tokens_details\":{\"cached_tokens\":0}}}");
    rig_stop(&r);
}

/* A character of three bytes comes as three tokens: whose ids were asked
   for sees each when it is there, others see the character. */
static void ids_do_not_wait_for_the_character(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (int has_ids = 0; has_ids < 2; has_ids++) {
        rig_exchange_t *e =
            rig_post(&r, COMP,
                     has_ids ? "{\"prompt\":\"a\",\"stream\":true,\"return_token_ids\":true}"
                             : "{\"prompt\":\"a\",\"stream\":true}");
        const tdm_request_t *q = rig_submitted(&r);
        rig_accept(&r, q);
        rig_settle(&r);
        for (uint32_t i = 0; i < 3; i++) {
            rig_token(&r, q, (int32_t)(uint8_t) "\xe2\x82\xac"[i], i);
            rig_settle(&r);
            assert_int_equal(e->token_cnt, has_ids || i == 2 ? i + 1 : 0);
            char id[32];
            (void)snprintf(id, sizeof id, "\"token_ids\":[%d]", (int)(uint8_t) "\xe2\x82\xac"[i]);
            assert_int_equal(strstr(e->text, id) != NULL, has_ids);
        }
        assert_non_null(strstr(e->text, "\"text\":\"\xe2\x82\xac\""));
        rig_end(&r, q, TDM_FINISH_LENGTH, 3);
        rig_settle(&r);
        assert_int_equal(e->token_cnt, 3);
    }
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
        const tdm_request_t *q = rig_submitted(&r);
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
    rig_serve(&r, rig_submitted(&r), "x", TDM_FINISH_LENGTH);
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
    rig_serve(&r, rig_submitted(&r), "xy", TDM_FINISH_LENGTH);
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
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_token(&r, q, 'Y', 0);
    rig_fail(&r, q, TDM_REFUSE_nan_logits, 1);
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
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_token(&r, q, 'Y', 0);
    rig_fail(&r, q, TDM_REFUSE_executor_failed, 1);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 503);
    assert_int_equal(e->x.head.retry_after_ms, r.config.retry_after_ms);
    assert_string_equal(e->text, "{\"error\":{\"message\":\"the executor failed repeatedly under "
                                 "this request\",\"type\":\"server_error\",\"param\":null,"
                                 "\"code\":\"executor_failed\"}}");
    assert_int_equal(e->x.head.content_sz, e->text_sz);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_stream_is_byte_exact),
        cmocka_unit_test(the_last_token_carries_the_finish),
        cmocka_unit_test(a_chat_body_is_byte_exact),
        cmocka_unit_test(a_completion_body_lists_token_ids_when_asked),
        cmocka_unit_test(ids_do_not_wait_for_the_character),
        cmocka_unit_test(a_stop_id_is_counted_and_not_printed),
        cmocka_unit_test(usage_comes_in_a_chunk_without_choices),
        cmocka_unit_test(continuous_usage_counts_up_in_each_chunk),
        cmocka_unit_test(an_error_after_the_head_is_an_event_and_done),
        cmocka_unit_test(an_error_before_the_body_has_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
