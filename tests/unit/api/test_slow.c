/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a slow reader costs its own stream and nothing else; stop strings end a
   reply in time; the accounts add up. */
#include "tests/unit/api/rig.h"

#include <jansson.h>

static void a_full_pipe_holds_one_stream_and_no_other(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *slow = rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    const tdm_request_t *qs = rig_submitted(&r);
    slow->is_stuck = 1;
    rig_accept(&r, qs);
    for (uint32_t i = 0; i < 500; i++) rig_token(&r, qs, 'a' + (int32_t)(i % 26), i);
    rig_end(&r, qs, TDM_FINISH_LENGTH, 500);
    rig_settle(&r);
    assert_true(tdm_api_tile_stats(r.tile)->pipe_full_cnt > 0);
    assert_int_equal(slow->end_cnt, 0);
    assert_true(tdm_pipe_used(&slow->pipe) < r.pipe_sz);
    assert_true(tdm_api_tile_next_ns(r.tile, r.now_ns) - r.now_ns <= 2 * TDM_NS_PER_MS);
    rig_exchange_t *quick = rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    rig_serve(&r, rig_submitted(&r), "quick", TDM_FINISH_STOP);
    assert_int_equal(quick->end_cnt, 1);
    slow->is_stuck = 0;
    rig_settle(&r);
    assert_int_equal(slow->end_cnt, 1);
    assert_int_equal(slow->token_cnt, 500);
    const char *at = slow->text;
    for (uint32_t i = 0; i < 500; i++) { /* nothing lost, nothing twice */
        char want[16];
        (void)snprintf(want, sizeof want, "\"text\":\"%c\"", 'a' + (int)(i % 26));
        at = strstr(at, "\"text\":");
        assert_non_null(at);
        assert_memory_equal(at, want, strlen(want));
        at++;
    }
    assert_null(strstr(at, "\"text\":"));
    assert_int_equal(tdm_api_tile_next_ns(r.tile, r.now_ns), TDM_TIME_NEVER);
    rig_stop(&r);
}

static void a_whole_reply_larger_than_its_pipe_arrives(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.context_max = 16384;
    r.config.id_slab_sz = 1 << 20;
    r.event_depth = 16384;
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, CHAT,
                                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                                 "\"return_token_ids\":true}");
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    for (uint32_t i = 0; i < 12000; i++) rig_token(&r, q, 1, i); /* six bytes each, escaped */
    rig_end(&r, q, TDM_FINISH_LENGTH, 12000);
    rig_settle(&r);
    assert_int_equal(e->end_cnt, 1);
    assert_true(e->text_sz > 12000 * 8);
    assert_int_equal(e->x.head.content_sz, -1);
    assert_int_equal(e->token_cnt, 12000);
    json_t *v = json_loads(e->text, 0, NULL);
    assert_non_null(v);
    const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    assert_int_equal(
        json_string_length(json_object_get(json_object_get(choice, "message"), "content")), 12000);
    assert_int_equal(json_array_size(json_object_get(choice, "token_ids")), 12000);
    json_decref(v);
    rig_stop(&r);
}

static void a_full_egress_lane_loses_no_word(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.egress_depth = 1;
    rig_start(&r);
    rig_exchange_t *e[24];
    for (uint32_t i = 0; i < 24; i++) {
        e[i] = rig_exchange_fresh(&r, 1);
        e[i]->x.method = TDM_METHOD_GET;
        strcpy(e[i]->x.path, "/health");
        rig_push(&r, e[i]);
    }
    rig_settle(&r);
    for (uint32_t i = 0; i < 24; i++) {
        assert_int_equal(e[i]->end_cnt, 1);
        assert_string_equal(e[i]->text, "{\"status\":\"ok\"}");
    }
    assert_true(tdm_api_tile_stats(r.tile)->egress_full_cnt > 0);
    rig_stop(&r);
}

static void a_stop_string_is_a_control_word_at_once(void **state) {
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        rig_t r;
        rig_default(&r);
        rig_start(&r);
        rig_exchange_t *e = rig_post(&r, COMP,
                                     is_stream ? "{\"prompt\":\"a\",\"stop\":[\"\\nUser:\"],"
                                                 "\"stream\":true}"
                                               : "{\"prompt\":\"a\",\"stop\":[\"\\nUser:\"]}");
        const tdm_request_t *q = rig_submitted(&r);
        rig_accept(&r, q);
        rig_tokens(&r, q, "Hi\nUser", 0);
        rig_settle(&r);
        rig_check_controls(&r, q, 0, 0);
        assert_null(strstr(e->text, "User"));
        rig_token(&r, q, ':', 7);
        rig_settle(&r);
        rig_check_controls(&r, q, 1, 0);
        rig_tokens(&r, q, " more", 8);
        rig_end(&r, q, TDM_FINISH_LENGTH, 13); /* the length came first; the text ended before */
        rig_settle(&r);
        assert_null(strstr(e->text, "User"));
        assert_null(strstr(e->text, "more"));
        assert_non_null(strstr(e->text, "\"finish_reason\":\"stop\""));
        assert_int_equal(rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stop),
                         5);
        assert_int_equal(e->token_cnt, 8);
        rig_stop(&r);
    }
}

static void held_text_comes_out_at_the_end(void **state) {
    (void)state;
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        rig_t r;
        rig_default(&r);
        rig_start(&r);
        rig_exchange_t *e = rig_post(
            &r, COMP,
            is_stream ? "{\"prompt\":\"a\",\"stop\":\"END!\",\"stream\":true,\"max_tokens\":5}"
                      : "{\"prompt\":\"a\",\"stop\":\"END!\",\"max_tokens\":5}");
        rig_serve(&r, rig_submitted(&r), "x END", TDM_FINISH_LENGTH);
        assert_non_null(strstr(e->text, is_stream ? "\"text\":\"END\",\"logprobs\":null,"
                                                    "\"finish_reason\":\"length\""
                                                  : "\"text\":\"x END\""));
        rig_stop(&r);
    }
}

/* B31: the length runs out inside a character. */
static void a_cut_character_is_still_valid_json(void **state) {
    (void)state;
    for (uint32_t cut = 1; cut <= 2; cut++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            rig_t r;
            rig_default(&r);
            rig_start(&r);
            rig_exchange_t *e = rig_post(
                &r, COMP, is_stream ? "{\"prompt\":\"a\",\"stream\":true}" : "{\"prompt\":\"a\"}");
            const tdm_request_t *q = rig_submitted(&r);
            rig_accept(&r, q);
            static const uint8_t euro[] = {0xe2, 0x82, 0xac};
            for (uint32_t i = 0; i < cut; i++) rig_token(&r, q, euro[i], i);
            rig_end(&r, q, TDM_FINISH_LENGTH, cut);
            rig_settle(&r);
            assert_non_null(strstr(e->text, "\"text\":\"\xef\xbf\xbd\""));
            assert_non_null(strstr(e->text, "\"finish_reason\":\"length\""));
            assert_int_equal(e->token_cnt, cut);
            rig_stop(&r);
        }
    }
}

static void the_stop_string_stays_where_it_was_asked_for(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP,
                                 "{\"prompt\":\"a\",\"stop\":[\"END\",\"ENDING\"],"
                                 "\"include_stop_str_in_output\":true}");
    rig_serve(&r, rig_submitted(&r), "the ENDING", TDM_FINISH_STOP);
    assert_non_null(strstr(e->text, "\"text\":\"the END\""));
    rig_stop(&r);
}

/* B46: every request ends in one outcome; received = ended + open. */
static void outcomes_add_up(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    const uint32_t api = TDM_LABEL_API_openai_completions;
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, rig_submitted(&r), "x", TDM_FINISH_STOP);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, rig_submitted(&r), "xy", TDM_FINISH_LENGTH);
    (void)rig_post(&r, COMP, "{\"prompt\":\"\"}");
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_refuse(&r, rig_submitted(&r), TDM_REFUSE_kv_full, 0);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    const tdm_request_t *q = rig_submitted(&r);
    rig_hang_up(&r, e);
    rig_poll(&r);
    rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_fail(&r, q, TDM_REFUSE_nan_logits, 0);
    rig_settle(&r);
    assert_int_equal(rig_outcomes(&r, api, TDM_LABEL_OUTCOME_stop), 1);
    assert_int_equal(rig_outcomes(&r, api, TDM_LABEL_OUTCOME_length), 1);
    assert_int_equal(rig_outcomes(&r, api, TDM_LABEL_OUTCOME_rejected), 2);
    assert_int_equal(rig_outcomes(&r, api, TDM_LABEL_OUTCOME_cancelled), 1);
    assert_int_equal(rig_outcomes(&r, api, TDM_LABEL_OUTCOME_error), 1);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_output), 3);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_total, TDM_LABEL_TOKEN_prompt), 6);
    const tdm_api_stats_t *s = tdm_api_tile_stats(r.tile);
    assert_int_equal(s->exchange_cnt, 6);
    assert_int_equal(s->exchange_end_cnt, 6);
    rig_stop(&r);
}

static void a_request_id_is_echoed_or_made(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const char *const bad[] = {"", "a b", "a\r\nx: y", "\x80"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        e->x.method = TDM_METHOD_GET;
        strcpy(e->x.path, "/health");
        strcpy(e->x.request_id, bad[i]);
        rig_push(&r, e);
        rig_settle(&r);
        assert_memory_equal(e->x.head.request_id, "req-", 4);
        assert_int_equal(strlen(e->x.head.request_id), 20);
    }
    rig_stop(&r);
}

static void a_poll_takes_no_more_than_its_batch(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.arrival_batch = 2;
    r.config.event_batch = 8;
    rig_start(&r);
    for (uint32_t i = 0; i < 5; i++) {
        rig_exchange_t *e = rig_exchange_fresh(&r, 1);
        e->x.method = TDM_METHOD_GET;
        strcpy(e->x.path, "/health");
        rig_push(&r, e);
    }
    rig_poll(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->exchange_cnt, 2);
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->exchange_cnt, 5);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_tokens(&r, q, "0123456789", 0);
    rig_poll(&r);
    assert_int_equal(tdm_ring_cnt(&r.events), 3);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pipe_holds_one_stream_and_no_other),
        cmocka_unit_test(a_whole_reply_larger_than_its_pipe_arrives),
        cmocka_unit_test(a_full_egress_lane_loses_no_word),
        cmocka_unit_test(a_stop_string_is_a_control_word_at_once),
        cmocka_unit_test(held_text_comes_out_at_the_end),
        cmocka_unit_test(a_cut_character_is_still_valid_json),
        cmocka_unit_test(the_stop_string_stays_where_it_was_asked_for),
        cmocka_unit_test(outcomes_add_up),
        cmocka_unit_test(a_request_id_is_echoed_or_made),
        cmocka_unit_test(a_poll_takes_no_more_than_its_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
