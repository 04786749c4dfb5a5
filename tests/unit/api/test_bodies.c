/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every body has one written-down answer: what is refused, with
   which status, code and param, and what is accepted.
   Method: a table; after each refused body a good one must be submitted,
   and the counters of the reason must have moved by one. */
#include "tests/unit/api/body_cases.h"

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
        rig_check_error(e, c->reason, c->param);
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

static void a_whole_number_may_have_a_point(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        uint32_t max_tokens; /* 0: refused */
        tdm_reason_t reason;
    } c[] = {{"\"max_tokens\":8.0", 8, 0},
             {"\"max_tokens\":0.8e1,\"seed\":-2e3,\"n\":1.0", 8, 0},
             {"\"max_tokens\":8.5", 0, TDM_REFUSE_bad_type},
             {"\"max_tokens\":1e300", 0, TDM_REFUSE_bad_type},
             {"\"max_tokens\":0.0", 0, TDM_REFUSE_bad_value},
             {"\"n\":2.0", 0, TDM_REFUSE_unsupported_parameter},
             {"\"n\":1.5", 0, TDM_REFUSE_bad_type}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_t r;
        char body[200];
        rig_default(&r);
        rig_start(&r);
        (void)snprintf(body, sizeof body, "{\"prompt\":\"hi\",%s}", c[i].fields);
        rig_exchange_t *e = rig_post(&r, COMP, body);
        const tdm_request_t *q = rig_submit(&r);
        assert_int_equal(q ? q->output_max : 0, c[i].max_tokens);
        if (q)
            rig_serve(&r, q, "x", TDM_FINISH_LENGTH);
        else
            assert_string_equal(rig_error_code(e), tdm_reason_name(c[i].reason));
        rig_stop(&r);
    }
}

static void only_who_may_choose_a_class_is_heard(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        uint32_t from;
        int is_trusted;
        int slo_class; /* -1: refused */
        tdm_reason_t reason;
    } c[] = {
        {"\"priority\":0", TDM_API_SLO_TRUSTED, 1, 0, 0},
        {"\"priority\":2", TDM_API_SLO_TRUSTED, 1, 2, 0},
        {"\"priority\":2", TDM_API_SLO_TRUSTED, 0, 1, 0},
        {"\"priority\":2", TDM_API_SLO_ALL, 0, 2, 0},
        {"\"priority\":2", TDM_API_SLO_NONE, 1, 1, 0},
        {"\"priority\":99", TDM_API_SLO_TRUSTED, 0, 1, 0},
        {"\"priority\":3", TDM_API_SLO_TRUSTED, 1, -1, TDM_REFUSE_bad_value},
        {"\"priority\":-1", TDM_API_SLO_TRUSTED, 1, -1, TDM_REFUSE_bad_value},
        {"\"priority\":0.5", TDM_API_SLO_TRUSTED, 1, -1, TDM_REFUSE_bad_type},
        {"\"slo_tpot_ms\":60", TDM_API_SLO_TRUSTED, 1, 0, 0},
        {"\"slo_tpot_ms\":100", TDM_API_SLO_TRUSTED, 1, 1, 0},
        {"\"slo_tpot_ms\":9999", TDM_API_SLO_TRUSTED, 1, 2, 0},
        {"\"slo_tpot_ms\":49", TDM_API_SLO_TRUSTED, 1, -1, TDM_REFUSE_slo_unsupported},
        {"\"slo_tpot_ms\":49", TDM_API_SLO_TRUSTED, 0, 1, 0},
        {"\"slo_ttft_ms\":1,\"slo_tpot_ms\":999", TDM_API_SLO_TRUSTED, 1, 2, 0},
        {"\"slo_ttft_ms\":2000,\"slo_tpot_ms\":999", TDM_API_SLO_TRUSTED, 1, 1, 0},
        {"\"priority\":2,\"slo_tpot_ms\":500", TDM_API_SLO_TRUSTED, 1, 2, 0},
        {"\"priority\":2,\"slo_tpot_ms\":499", TDM_API_SLO_TRUSTED, 1, -1,
         TDM_REFUSE_slo_unsupported},
    };
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        rig_t r;
        char body[200];
        rig_default(&r);
        r.config.class_cnt = 3;
        r.config.class_default = 1;
        r.config.slo_from = c[i].from;
        r.config.promise[0] = (tdm_api_class_t){200 * TDM_NS_PER_MS, 50 * TDM_NS_PER_MS};
        r.config.promise[1] = (tdm_api_class_t){1000 * TDM_NS_PER_MS, 100 * TDM_NS_PER_MS};
        r.config.promise[2] = (tdm_api_class_t){5000 * TDM_NS_PER_MS, 500 * TDM_NS_PER_MS};
        rig_start(&r);
        tdm_error_t err = {0};
        static const char keys[] =
            "t 8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a\n";
        assert_int_equal(tdm_auth_parse(&r.auth, keys, sizeof keys - 1, &err), TDM_OK);
        rig_exchange_t *e = rig_exchange_fresh(&r, 0);
        strcpy(e->x.path, COMP);
        strcpy(e->x.authorization, "Bearer k");
        e->x.is_trusted_peer = (uint16_t)c[i].is_trusted;
        (void)snprintf(body, sizeof body, "{\"prompt\":\"hi\",%s}", c[i].fields);
        rig_body(e, body, strlen(body));
        rig_push(&r, e);
        rig_poll(&r);
        const tdm_request_t *q = rig_submit(&r);
        assert_int_equal(q != NULL, c[i].slo_class >= 0);
        if (q) {
            assert_int_equal(q->slo_class, c[i].slo_class);
            rig_serve(&r, q, "x", TDM_FINISH_LENGTH);
        } else {
            assert_int_equal(e->x.head.status, 400);
            assert_int_equal(
                rig_count(&r, TDM_METRIC_refusals_total, tdm_label_reason(c[i].reason)), 1);
        }
        rig_stop(&r);
    }
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
    static char ids[2048] = "{\"tokens\":[97";
    for (uint32_t i = 0; i < 511; i++) strcat(ids, ",97");
    strcat(ids, "]}");
    e = rig_post(&r, DET, ids);
    rig_settle(&r);
    assert_int_equal(e->text_sz, 512 + strlen("{\"prompt\":\"\"}"));
    rig_stop(&r);
}

/* B40: what users write never becomes a control token, whole or spread
   over parts; only the structure of the conversation makes any. */
static void control_text_in_contents_stays_text(void **state) {
    (void)state;
    static const char *const piece[] = {"<|im_end|>", "<|im_start|>", "<|im_",
                                        "end|>",      "system\\n",    "<|bos|>",
                                        "\\n",        "<|eos|>",      "x"};
    rig_t r;
    rig_default(&r);
    r.config.chat_template = "chatml";
    rig_start(&r);
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        tdm_rng_t rng = {.state = seed};
        char body[1024] = "{\"messages\":[{\"role\":\"user\",\"content\":[";
        uint32_t part_cnt = 1 + tdm_rng_below(&rng, 3);
        for (uint32_t p = 0; p < part_cnt; p++) {
            strcat(body, p ? ",{\"type\":\"text\",\"text\":\"" : "{\"type\":\"text\",\"text\":\"");
            for (uint32_t n = 1 + tdm_rng_below(&rng, 5); n > 0; n--)
                strcat(body, piece[tdm_rng_below(&rng, TDM_COUNT_OF(piece))]);
            strcat(body, "\"}");
        }
        strcat(body, "]}]}");
        rig_exchange_t *e = rig_post(&r, CHAT, body);
        const tdm_request_t *q = rig_submit(&r);
        assert_non_null(q);
        uint32_t start_cnt = 0, end_cnt = 0, other_cnt = 0;
        for (uint32_t i = 0; i < q->prompt_cnt; i++) {
            start_cnt += q->prompt[i] == 258;
            end_cnt += q->prompt[i] == 259;
            other_cnt += q->prompt[i] == 256 || q->prompt[i] == 257;
        }
        if (start_cnt != 2 || end_cnt != 1 || other_cnt != 0)
            fail_msg("seed %llu: %u starts, %u ends, %u others: %s", (unsigned long long)seed,
                     start_cnt, end_cnt, other_cnt, body);
        rig_hang_up(&r, e);
        rig_poll(&r);
        rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
        rig_settle(&r);
    }
    rig_stop(&r);
}

/* The message alone says what the field may be. */
static void a_field_at_fault_is_told_what_it_may_be(void **state) {
    (void)state;
    static const struct {
        const char *field, *message;
    } want[] = {
        {"\"temperature\":3", "temperature must be a number from 0 to 2"},
        {"\"temperature\":\"1\"", "temperature must be a number from 0 to 2"},
        {"\"top_p\":0", "top_p must be a number over 0, at most 1"},
        {"\"max_tokens\":0", "max_tokens must be a whole number from 1 to 2147483647"},
        {"\"seed\":1.5", "seed must be a whole number of 64 bits"},
        {"\"stream\":1", "stream must be true or false"},
        {"\"n\":2", "n over 1 is not implemented"},
        {"\"n\":0", "n must be a whole number from 1 on"},
        {"\"logprobs\":true", "logprobs would change the output and is not implemented"},
        {"\"stream_options\":{\"include_usage\":1}",
         "stream_options.include_usage must be true or false"},
        {"\"stop\":7", "stop: a field has the wrong JSON type"},
    };
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *huge = rig_post(&r, COMP, "{\"prompt\":\"hi\",\"seed\":18446744073709551616}");
    rig_settle(&r);
    assert_non_null(strstr(huge->text, "a number is out of range: line 1, column "));
    rig_exchange_t *twice = rig_post(&r, COMP, "{\"prompt\":\"hi\",\n\"prompt\":\"hi\"}");
    rig_settle(&r);
    assert_non_null(strstr(twice->text, "a key appears twice: line 2, column "));
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        char body[256], message[256];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"hi\",%s}", want[i].field);
        (void)snprintf(message, sizeof message, "{\"error\":{\"message\":\"%s\"", want[i].message);
        rig_exchange_t *e = rig_post(&r, COMP, body);
        rig_settle(&r);
        if (strncmp(e->text, message, strlen(message)) != 0)
            fail_msg("%s: %s", want[i].field, e->text);
    }
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_body_has_its_answer, show_case),
        cmocka_unit_test(fields_reach_the_request),
        cmocka_unit_test(ignored_fields_are_counted_by_kind),
        cmocka_unit_test(only_trusted_peers_choose_a_class),
        cmocka_unit_test(a_whole_number_may_have_a_point),
        cmocka_unit_test(only_who_may_choose_a_class_is_heard),
        cmocka_unit_test(errors_never_quote_the_request),
        cmocka_unit_test(a_field_at_fault_is_told_what_it_may_be),
        cmocka_unit_test(a_context_error_names_both_numbers),
        cmocka_unit_test(control_text_in_contents_stays_text),
        cmocka_unit_test(tokenize_and_detokenize_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
