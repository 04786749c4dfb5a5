/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a replay counts what its requests met with: every token once, every
   gap once, every ending by its name, latencies from the scheduled
   arrival; and what it sends repeats blocks where the trace does.
   Method: a job fed with replies by hand, whole, in single bytes, and cut
   off. */

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/ctl/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_tally_t tally;
static tdm_job_t job;
static uint32_t ended_cnt;

static void on_ended(tdm_job_t *j) {
    assert_ptr_equal(j, &job);
    ended_cnt++;
}

#define MS TDM_NS_PER_MS

/* begin starts a job that was due at 1 s and is sent 7 ms later. */
static void begin(void) {
    static const tdm_workload_row_t row = {.at_ns = 400 * MS, .prompt_cnt = 10, .output_cnt = 5};
    memset(&tally, 0, sizeof tally);
    tally.gap_target_ns = 50 * MS;
    tally.ttft_target_ns = 200 * MS;
    tally.epsilon = 0.5;
    ended_cnt = 0;
    static const tdm_job_form_t form = {.model = "m"};
    tdm_job_init(&job, &tally, on_ended, 3, &row, &form, TDM_NS_PER_S, TDM_NS_PER_S + 7 * MS);
}

static void body(const char *text, int64_t at_ms) {
    tdm_job_body(&job, (const uint8_t *)text, strlen(text), TDM_NS_PER_S + at_ms * MS);
}

#define EVENT(ids) "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"token_ids\":[" ids "]}]}\n\n"
#define USAGE                                                                                      \
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":4,"                                    \
    "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n"
#define DONE "data: [DONE]\n\n"

static void a_stream_is_counted_token_by_token(void **state) {
    (void)state;
    begin();
    tdm_job_head(&job, 200);
    body(EVENT("4"), 107);
    body(EVENT("5,6"), 117);
    body(EVENT(""), 120); /* text that was held back, without a token */
    body(EVENT("7"), 187);
    body(USAGE DONE, 188);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 190 * MS);
    assert_int_equal(ended_cnt, 1);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_DONE);
    assert_int_equal(job.seen.token_cnt, 4);
    assert_int_equal(job.seen.cached_cnt, 8);
    assert_int_equal(job.seen.gap_cnt, 3); /* 10, 0 and 70 ms */
    assert_int_equal(job.seen.over_cnt, 1);
    assert_int_equal(job.seen.gap_max_ns, 70 * MS);
    assert_int_equal(job.seen.late_ns, 7 * MS);
    assert_int_equal(job.seen.first_ns, 107 * MS); /* from when it was due, not sent */
    assert_int_equal(job.seen.last_ns, 187 * MS);
    assert_int_equal(job.seen.end_ns, 190 * MS);
    assert_int_equal(tally.gap.cnt, 3);
    assert_int_equal(tally.over_cnt, 1);
    assert_int_equal(tally.good_cnt, 1);
    assert_int_equal(tally.end_ns, 590 * MS);
    tdm_job_end(&job, TDM_OUTCOME_LOST, 2 * TDM_NS_PER_S); /* it is over */
    assert_int_equal(ended_cnt, 1);
    assert_int_equal(tally.row_cnt, 1);
}

static void pieces_of_any_size_say_the_same(void **state) {
    (void)state;
    static const char text[] = EVENT("4") EVENT("5,6") ": a comment\n\n" EVENT("7") USAGE DONE;
    begin();
    tdm_job_head(&job, 200);
    for (const char *p = text; *p; p++)
        tdm_job_body(&job, (const uint8_t *)p, 1, TDM_NS_PER_S + 100 * MS);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 100 * MS);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_DONE);
    assert_int_equal(job.seen.token_cnt, 4);
}

static void servers_without_ids_are_counted_by_text(void **state) {
    (void)state;
    begin();
    tdm_job_head(&job, 200);
    body("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{}, \"finish_reason\":\"stop\"}]}\n\n" DONE,
         10);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 11 * MS);
    assert_int_equal(job.seen.token_cnt, 2);
}

static void endings_have_their_names(void **state) {
    (void)state;
    static const char refusal[] =
        "{\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":\"waiting_full\"}}";
    begin();
    tdm_job_head(&job, 429);
    tdm_job_header(&job, "Retry-After", "2");
    body(refusal, 5);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 6 * MS);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_REFUSED);
    assert_int_equal(job.seen.retry_ms, 2000);
    assert_string_equal(tally.code[0].name, "waiting_full");
    assert_int_equal(tally.good_cnt + tally.e2e.cnt, 0);

    begin(); /* cut off in the middle, and said to be whole */
    tdm_job_head(&job, 200);
    body(EVENT("1"), 5);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 6 * MS);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_LOST);

    begin(); /* an error inside */
    tdm_job_head(&job, 200);
    body(EVENT("1") "data: {\"error\":{\"code\":\"executor_failed\"}}\n\n" DONE, 5);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 6 * MS);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_FAILED);
    assert_string_equal(tally.code[0].name, "executor_failed");

    begin(); /* garbage, without end */
    static char junk[3u * TDM_JOB_TEXT_MAX];
    memset(junk, 'x', sizeof junk - 1);
    tdm_job_head(&job, 500);
    body(junk, 5);
    tdm_job_end(&job, TDM_OUTCOME_DONE, TDM_NS_PER_S + 6 * MS);
    assert_int_equal(job.seen.outcome, TDM_OUTCOME_REFUSED);
    assert_string_equal(tally.code[0].name, "unnamed");

    begin();
    tdm_job_end(&job, TDM_OUTCOME_TIMEOUT, 9 * TDM_NS_PER_S);
    assert_string_equal(tally.code[0].name, "timeout");
}

static void percentiles_are_at_most_one_percent_high(void **state) {
    (void)state;
    tdm_rng_t rng = {.state = 5};
    static int64_t v[20000];
    memset(&tally, 0, sizeof tally);
    tally.gap_target_ns = INT64_MAX / 4;
    for (uint32_t i = 0; i < TDM_COUNT_OF(v); i++) {
        v[i] = (int64_t)(1000.0 * (1u + tdm_rng_below(&rng, 5000000)));
        tdm_tally_gap(&tally, v[i]);
    }
    for (uint32_t i = 0; i < TDM_COUNT_OF(v); i++) /* the largest first, as far as asked */
        for (uint32_t k = i + 1; i < 202 && k < TDM_COUNT_OF(v); k++)
            if (v[k] > v[i]) {
                int64_t x = v[i];
                v[i] = v[k];
                v[k] = x;
            }
    int64_t want = v[200], got = tdm_tally_at(&tally.gap, 0.99);
    assert_true(got >= want * 999 / 1000 && got <= want * 102 / 100);
    assert_int_equal(tdm_tally_at(&tally.gap, 1.0), v[0]);
    assert_int_equal(tdm_tally_at(&tally.ttft, 0.5), 0);
}

static void more_names_than_places_are_still_counted(void **state) {
    (void)state;
    begin();
    for (uint32_t i = 0; i < 100; i++) {
        tdm_seen_t s = {.outcome = TDM_OUTCOME_REFUSED};
        (void)snprintf(s.code, sizeof s.code, "code %u", i);
        tdm_tally_end(&tally, &s);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tally.code_cnt; i++) sum += tally.code[i].cnt;
    assert_int_equal(sum, 100);
    assert_int_equal(tally.code_cnt, TDM_TALLY_CODE_MAX);
    assert_string_equal(tally.code[TDM_TALLY_CODE_MAX - 1].name, "others");
}

/* A request that was given up without a token waited at least so long: left
   out, the slowest would make the percentiles better. */
static void who_was_given_up_counts_as_slow(void **state) {
    (void)state;
    begin();
    for (uint32_t i = 0; i < 9; i++) {
        tdm_seen_t s = {.outcome = TDM_OUTCOME_DONE, .first_ns = 10 * MS, .end_ns = 20 * MS};
        tdm_tally_end(&tally, &s);
    }
    tdm_seen_t never = {
        .outcome = TDM_OUTCOME_TIMEOUT, .first_ns = -1, .last_ns = -1, .end_ns = 30 * TDM_NS_PER_S};
    tdm_tally_end(&tally, &never);
    assert_int_equal(tally.ttft.cnt, 10);
    assert_int_equal(tally.ttft_over_cnt, 1);
    assert_true(tdm_tally_at(&tally.ttft, 0.99) >= 30 * TDM_NS_PER_S);
    never.outcome = TDM_OUTCOME_LOST; /* nobody knows how long it would have waited */
    tdm_tally_end(&tally, &never);
    assert_int_equal(tally.ttft.cnt, 10);
    tdm_tally_frame_t frame = {.door = "http1", .factor = 1.0};
    char *text = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&text, &sz);
    tdm_tally_text(f, &tally, &frame);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "TTFT is of 10 requests: of 1 nothing was heard"));
    free(text);
}

/* One request that nobody took: no time passed, and a rate of it is 0. */
static void a_replay_without_a_span_is_json(void **state) {
    (void)state;
    begin();
    tdm_tally_end(&tally, &(tdm_seen_t){.outcome = TDM_OUTCOME_UNSENT,
                                        .late_ns = -1,
                                        .first_ns = -1,
                                        .last_ns = -1,
                                        .end_ns = -1});
    tdm_tally_frame_t frame = {.door = "http1", .factor = 1.0};
    char *text = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&text, &sz);
    tdm_tally_json(f, &tally, &frame);
    tdm_tally_text(f, &tally, &frame);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "\"goodput_per_s\": 0.000000, "));
    assert_null(strstr(text, "nan"));
    free(text);
}

/* said gives what tdm_tally_text and tdm_tally_json write; the caller frees it. */
static char *said(const tdm_tally_frame_t *frame, int is_json) {
    char *text = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&text, &sz);
    (is_json ? tdm_tally_json : tdm_tally_text)(f, &tally, frame);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* Two servers are comparable where both were asked for the same: what was cut
   off a list is told, and by whose word, also that there was none. */
static void what_was_not_asked_for_is_told(void **state) {
    (void)state;
    static const struct {
        tdm_tally_frame_t frame;
        const char *text, *json;
    } want[] = {
        {{.door = "d",
          .context_from = TDM_CONTEXT_SERVER,
          .context = 4096,
          .list_cnt = 500,
          .cut_cnt = 12,
          .cut_prompt_cnt = 34567,
          .cut_output_cnt = 120},
         "  context 4096 tokens, as the server says: 12 of 500 requests cut, by 34567 prompt "
         "and 120 output tokens\n",
         "\"listed\": 500, \"context\": 4096, \"context_from\": \"server\", "
         "\"requests_cut\": 12, \"prompt_tokens_cut\": 34567, \"output_tokens_cut\": 120"},
        {{.door = "d", .context_from = TDM_CONTEXT_OPTION, .context = 64, .list_cnt = 5},
         "  context 64 tokens, as --context says: no request cut\n",
         "\"context\": 64, \"context_from\": \"option\", \"requests_cut\": 0"},
        {{.door = "d", .list_cnt = 5},
         "  context told by nobody (--context): no request cut\n",
         "\"context\": null, \"context_from\": null, \"requests_cut\": 0"}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        begin();
        char *text = said(&want[i].frame, 0), *json = said(&want[i].frame, 1);
        assert_non_null(strstr(text, want[i].text));
        assert_non_null(strstr(json, want[i].json));
        free(text);
        free(json);
    }
}

/* A record says what of its row was asked for and what was not; of one that
   was never sent too. */
static void a_record_says_what_was_cut_off(void **state) {
    (void)state;
    static const tdm_workload_row_t row = {.prompt_cnt = 500, .output_cnt = 90};
    static const tdm_job_form_t form = {.model = "m", .context = 128, .vocab = 9, .block_tok = 512};
    begin();
    tdm_job_init(&job, &tally, on_ended, 0, &row, &form, 0, 0);
    assert_int_equal(job.seen.prompt_cnt + job.seen.prompt_cut, 500);
    assert_int_equal(job.seen.output_max + job.seen.output_cut, 90);
    assert_int_equal(job.seen.prompt_cnt + job.seen.output_max, 128);
    tdm_seen_t unsent = tdm_job_unseen(&form, 0, &row);
    assert_int_equal(unsent.prompt_cut, job.seen.prompt_cut);
    char *text = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&text, &sz);
    tdm_tally_record(f, &unsent);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "\"prompt\": 64, \"output_max\": 64, \"prompt_cut\": 436, "
                                 "\"output_cut\": 26, "));
    free(text);
    static char body_text[2048];
    tdm_workload_row_t rows[] = {row};
    tdm_workload_t list = {.row = rows, .row_cnt = 1};
    assert_true(tdm_job_text(&form, &list, 0, body_text, sizeof body_text) > 0);
    uint32_t commas = 0;
    for (const char *p = strstr(body_text, "\"prompt\":["); *p != ']'; p++) commas += *p == ',';
    assert_int_equal(commas, 63);
    assert_non_null(strstr(body_text, "\"max_tokens\":64"));
}

/* A server that stops early did less work than one that does not, and one that
   says nothing at all did no good. */
static void fewer_tokens_than_asked_for_are_told(void **state) {
    (void)state;
    begin();
    tdm_seen_t s = {.outcome = TDM_OUTCOME_DONE, .output_max = 5, .token_cnt = 5, .end_ns = MS};
    tdm_tally_end(&tally, &s);
    assert_int_equal(tally.short_cnt, 0);
    s.token_cnt = 4;
    tdm_tally_end(&tally, &s);
    assert_int_equal(tally.good_cnt, 2);
    s.token_cnt = 0;
    s.first_ns = s.last_ns = -1;
    tdm_tally_end(&tally, &s);
    assert_int_equal(tally.short_cnt, 2);
    assert_int_equal(tally.good_cnt, 2);
    tdm_tally_frame_t frame = {.door = "d", .is_drawn = 1};
    char *text = said(&frame, 0), *json = said(&frame, 1);
    assert_non_null(strstr(text, "  2 that came whole had fewer tokens than were asked for\n"));
    assert_non_null(strstr(text, "(arrivals drawn)"));
    assert_non_null(strstr(text, "stalls over 200 ms"));
    assert_non_null(strstr(json, "\"arrivals\": \"drawn\", \"short\": 2"));
    free(text);
    free(json);
}

/* --- what is sent -------------------------------------------------------- */

static void equal_blocks_are_equal_tokens(void **state) {
    (void)state;
    uint32_t block[] = {0, 7, 9, 0, 7, 5};
    tdm_workload_row_t row[] = {
        {.prompt_cnt = 250, .output_cnt = 3, .block_off = 0, .block_cnt = 3},
        {.prompt_cnt = 250, .output_cnt = 3, .block_off = 3, .block_cnt = 3},
        {.prompt_cnt = 250, .output_cnt = 3}};
    tdm_workload_t list = {.row = row, .row_cnt = 3, .block = block, .block_cnt = 6};
    tdm_job_form_t form = {.model = "m", .vocab = 1000, .seed = 1, .block_tok = 64};
    uint32_t same = 0, other = 0;
    for (uint32_t i = 0; i < 250; i++) {
        int32_t a = tdm_job_token(&form, &list, 0, i), b = tdm_job_token(&form, &list, 1, i);
        assert_true(a >= 0 && a < 1000);
        if (i < 128) assert_int_equal(a, b);
        if (i >= 128) same += a == b;
        other += a == tdm_job_token(&form, &list, 2, i);
    }
    /* chance alone: one in a thousand */
    assert_true(same < 5 && other < 5);
    assert_int_not_equal(tdm_job_token(&form, &list, 0, 0), tdm_job_token(&form, &list, 0, 64));
}

static void a_body_has_the_tokens_and_fits(void **state) {
    (void)state;
    static char text[8192];
    tdm_workload_row_t row[] = {{.prompt_cnt = 300, .output_cnt = 17}};
    tdm_workload_t list = {.row = row, .row_cnt = 1};
    tdm_job_form_t form = {.model = "m", .vocab = 1u << 20, .seed = 1, .block_tok = 512};
    size_t most = tdm_job_text_max(&form, row), sz = tdm_job_text(&form, &list, 0, text, most);
    assert_true(sz > 0 && sz < most && strlen(text) == sz);
    uint32_t commas = 0;
    for (const char *p = strstr(text, "\"prompt\":["); *p != ']'; p++) commas += *p == ',';
    assert_int_equal(commas, 299);
    assert_non_null(strstr(text, "\"max_tokens\":17"));
    assert_non_null(strstr(text, "\"ignore_eos\":true"));
    assert_int_equal(tdm_job_text(&form, &list, 0, text, most - 1), 0);
    form.is_plain = 1;
    assert_true(tdm_job_text(&form, &list, 0, text, most) > 0);
    assert_null(strstr(text, "ignore_eos"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_counted_token_by_token),
        cmocka_unit_test(pieces_of_any_size_say_the_same),
        cmocka_unit_test(servers_without_ids_are_counted_by_text),
        cmocka_unit_test(endings_have_their_names),
        cmocka_unit_test(percentiles_are_at_most_one_percent_high),
        cmocka_unit_test(more_names_than_places_are_still_counted),
        cmocka_unit_test(who_was_given_up_counts_as_slow),
        cmocka_unit_test(a_replay_without_a_span_is_json),
        cmocka_unit_test(what_was_not_asked_for_is_told),
        cmocka_unit_test(a_record_says_what_was_cut_off),
        cmocka_unit_test(fewer_tokens_than_asked_for_are_told),
        cmocka_unit_test(equal_blocks_are_equal_tokens),
        cmocka_unit_test(a_body_has_the_tokens_and_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
