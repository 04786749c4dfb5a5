/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every submit is answered by the call itself, accepted or with one
   typed reason, and each reason can occur.  Method: one world per case. */

#include "appliance/base/clock.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void refused_as(uint32_t id, tdm_reason_t reason) {
    assert_int_equal(w.end[id].kind, TDM_EVENT_REFUSED);
    assert_string_equal(tdm_reason_name((tdm_reason_t)w.end[id].reason), tdm_reason_name(reason));
    assert_true(world_stats(&w)->reason[reason] > 0);
}

static void prompt_and_output_fill_the_context_exactly(void **state) {
    (void)state;
    uint32_t fits = rig_ask(1000, 24, 0), over = rig_ask(1000, 25, 0),
             huge = rig_ask(10, UINT32_MAX, 0);
    refused_as(over, TDM_REFUSE_context_too_long);
    refused_as(huge, TDM_REFUSE_context_too_long);
    assert_int_equal(w.end[over].retry_ms, 0);
    assert_true(world_run(&w, 1000));
    assert_int_equal(w.end[fits].finish, TDM_FINISH_LENGTH);
    assert_int_equal(w.end[fits].out_cnt, 24);
    world_settled(&w);
}

static void what_can_never_fit_is_refused_at_once(void **state) {
    (void)state;
    world_close(&w);
    tdm_sched_sizes_t sizes = world_sizes();
    sizes.page_cnt = 4;
    tdm_sched_live_t live = world_live();
    world_open(&w, 1, &sizes, &live);
    uint32_t over = rig_ask(256, 2, 0), fits = rig_ask(256, 1, 0);
    refused_as(over, TDM_REFUSE_kv_never);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[fits].out_cnt, 1);
}

static void a_prompt_outside_the_vocabulary_never_reaches_the_executor(void **state) {
    (void)state;
    static const int32_t bad[] = {1000, -1, INT32_MAX, INT32_MIN};
    for (uint32_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        int32_t prompt[3] = {1, bad[i], 2};
        tdm_request_t r = {.handle = {.slot = i, .generation = 7},
                           .deadline_ns = TDM_TIME_NEVER,
                           .prompt_cnt = 3,
                           .output_max = 1,
                           .prompt = prompt};
        tdm_submit_t s = {.request = &r, .generation = 7};
        tdm_sched_submit(w.sched, w.now_ns, &s);
        const tdm_event_t *e = tdm_sched_event_peek(w.sched, 0);
        assert_non_null(e);
        assert_int_equal(e->reason, TDM_REFUSE_token_out_of_vocabulary);
        tdm_sched_event_drop(w.sched, 0);
    }
}

static void empty_and_senseless_requests_have_their_reasons(void **state) {
    (void)state;
    int32_t token = 1;
    tdm_request_t good = {.handle = {.slot = 0, .generation = 1},
                          .deadline_ns = TDM_TIME_NEVER,
                          .prompt_cnt = 1,
                          .output_max = 1,
                          .prompt = &token};
    tdm_request_t bad[4] = {good, good, good, good};
    bad[0].prompt_cnt = 0;
    bad[1].output_max = 0;
    bad[2].slo_class = TDM_SLO_CLASS_MAX;
    bad[3].sampling.stop_cnt = TDM_STOP_ID_MAX + 1;
    for (uint32_t i = 0; i < 4; i++) {
        tdm_submit_t s = {.request = &bad[i], .generation = 1};
        tdm_sched_submit(w.sched, w.now_ns, &s);
        const tdm_event_t *e = tdm_sched_event_peek(w.sched, 0);
        assert_non_null(e);
        assert_int_equal(e->kind, TDM_EVENT_REFUSED);
        assert_int_equal(e->reason, i ? TDM_REFUSE_bad_value : TDM_REFUSE_prompt_empty);
        tdm_sched_event_drop(w.sched, 0);
    }
}

static void a_stale_or_doubled_submit_is_counted_and_not_answered(void **state) {
    (void)state;
    int32_t token = 1;
    tdm_request_t r = {.handle = {.slot = 3, .generation = 5},
                       .deadline_ns = TDM_TIME_NEVER,
                       .prompt_cnt = 1,
                       .output_max = 1,
                       .prompt = &token};
    tdm_submit_t stale = {.request = &r, .generation = 4}, good = {.request = &r, .generation = 5};
    tdm_sched_submit(w.sched, w.now_ns, &stale);
    assert_null(tdm_sched_event_peek(w.sched, 0));
    tdm_sched_submit(w.sched, w.now_ns, &good);
    tdm_sched_submit(w.sched, w.now_ns, &good);
    r.api = 1;
    tdm_sched_submit(w.sched, w.now_ns, &good);
    assert_int_equal(tdm_sched_event_peek(w.sched, 0)->kind, TDM_EVENT_ACCEPTED);
    tdm_sched_event_drop(w.sched, 0);
    assert_null(tdm_sched_event_peek(w.sched, 0));
    assert_int_equal(world_stats(&w)->reason[TDM_DROP_stale_handle], 3);
    assert_int_equal(world_stats(&w)->received, 1);
    world_check(&w);
}

static void the_waiting_queue_is_bounded_in_requests(void **state) {
    (void)state;
    for (uint32_t i = 0; i < w.sizes.waiting_max; i++)
        assert_int_equal(w.end[rig_ask(10, 5, 0)].kind, 0);
    uint32_t over = rig_ask(10, 5, 0);
    refused_as(over, TDM_REFUSE_waiting_full);
    assert_true(w.end[over].retry_ms >= w.live.retry_min_ms);
    world_turn(&w);
    assert_int_equal(w.end[rig_ask(10, 5, 0)].kind, 0);
    assert_true(world_run(&w, 1000));
    world_settled(&w);
}

static void the_waiting_queue_is_bounded_in_tokens(void **state) {
    (void)state;
    w.live.waiting_tokens_max = 1500;
    tdm_sched_live_set(w.sched, &w.live);
    uint32_t a = rig_ask(1000, 5, 0), b = rig_ask(501, 5, 0), c = rig_ask(500, 5, 0);
    assert_int_equal(w.end[a].kind, 0);
    refused_as(b, TDM_REFUSE_waiting_full);
    assert_int_equal(w.end[c].kind, 0);
    w.live.waiting_tokens_max = 1;
    tdm_sched_live_set(w.sched, &w.live);
    assert_true(world_run(&w, 1000));
    assert_int_equal(w.end[rig_ask(100, 1, 0)].kind, 0);
}

static void retry_after_grows_with_the_backlog(void **state) {
    (void)state;
    tdm_sched_drain_set(w.sched, 1);
    uint32_t idle = rig_ask(10, 1, 0);
    refused_as(idle, TDM_REFUSE_draining);
    tdm_sched_drain_set(w.sched, 0);
    for (int i = 0; i < 20; i++) rig_ask(900, 5, 0);
    tdm_sched_drain_set(w.sched, 1);
    uint32_t busy = rig_ask(10, 1, 0);
    assert_true(w.end[busy].retry_ms > w.end[idle].retry_ms);
    assert_true(w.end[busy].retry_ms <= w.live.retry_max_ms);
}

static void draining_ends_what_runs_and_takes_nothing_new(void **state) {
    (void)state;
    uint32_t a = rig_ask(100, 20, 0);
    tdm_sched_drain_set(w.sched, 1);
    refused_as(rig_ask(10, 1, 0), TDM_REFUSE_draining);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[a].finish, TDM_FINISH_LENGTH);
    assert_int_equal(world_stats(&w)->is_draining, 1);
    world_settled(&w);
}

static void without_an_executor_the_reason_says_whether_it_ever_was(void **state) {
    (void)state;
    world_kill(&w);
    refused_as(rig_ask(10, 1, 0), TDM_REFUSE_executor_down);
    tdm_sched_t *s = NULL;
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_sched_footprint(&w.sizes));
    assert_int_equal(tdm_sched_init(mem, &w.sizes, &w.live, &s, NULL), TDM_OK);
    int32_t token = 1;
    tdm_request_t r = {.handle = {.generation = 1},
                       .prompt_cnt = 1,
                       .output_max = 1,
                       .deadline_ns = TDM_TIME_NEVER,
                       .prompt = &token};
    tdm_submit_t submit = {.request = &r, .generation = 1};
    tdm_sched_submit(s, 0, &submit);
    assert_int_equal(tdm_sched_event_peek(s, 0)->reason, TDM_REFUSE_starting);
    free(mem);
}

static void a_deadline_behind_the_backlog_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) rig_ask(900, 5, 0);
    world_ask_t a = {.prompt_cnt = 10, .output_max = 1, .deadline_ns = w.now_ns + TDM_NS_PER_MS};
    refused_as(world_submit(&w, &a), TDM_REFUSE_deadline_unreachable);
    a.deadline_ns = w.now_ns + 100 * TDM_NS_PER_S;
    assert_int_equal(w.end[world_submit(&w, &a)].kind, 0);
}

static void one_stream_too_many_is_refused_where_the_guard_is_on(void **state) {
    (void)state;
    w.live.decode_guard = 1;
    /* four streams and the head-room that a cap without experience keeps */
    w.live.class_of[0].gap_ns = (int64_t)(1.1 * (5e6 + 4.5 * 4e4));
    tdm_sched_live_set(w.sched, &w.live);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(w.end[rig_ask(1, 30, 0)].kind, 0);
        world_turn(&w);
    }
    refused_as(rig_ask(1, 30, 0), TDM_REFUSE_decode_over_budget);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[rig_ask(1, 1, 0)].kind, 0);
}

static void a_bad_size_has_no_footprint(void **state) {
    (void)state;
    tdm_sched_sizes_t s = world_sizes();
    s.depth = 3;
    assert_int_equal(tdm_sched_footprint(&s), 0);
    s = world_sizes();
    s.page_cnt = UINT32_MAX;
    assert_int_equal(tdm_sched_footprint(&s), 0);
    s = world_sizes();
    tdm_sched_t *out = NULL;
    tdm_error_t err = {0};
    assert_int_equal(tdm_sched_init((char *)w.mem + 8, &s, &w.live, &out, &err), TDM_ERR_INVAL);
}

static void a_tenant_over_its_rate_is_refused_until_its_bucket_fills(void **state) {
    (void)state;
    w.live.tenant[3] =
        (tdm_sched_tenant_t){.weight = 1.0, .token_per_s = 100.0, .token_burst = 60.0};
    tdm_sched_live_set(w.sched, &w.live);
    world_ask_t a = {.prompt_cnt = 20, .output_max = 20, .tenant = 3};
    uint32_t first = world_submit(&w, &a), second = world_submit(&w, &a);
    assert_int_equal(w.end[first].kind, 0);
    refused_as(second, TDM_REFUSE_tenant_rate);
    assert_true(w.end[second].retry_ms >= 190 && w.end[second].retry_ms <= 210); /* 20 of 100/s */
    assert_int_equal(w.end[rig_ask(20, 20, 0)].kind, 0); /* another tenant */
    w.now_ns += 201 * TDM_NS_PER_MS;
    assert_int_equal(w.end[world_submit(&w, &a)].kind, 0);
    assert_int_equal(world_stats(&w)->reason[TDM_REFUSE_tenant_rate], 1);
    assert_true(world_run(&w, 500));
}

static void what_a_tenant_does_not_use_comes_back(void **state) {
    (void)state;
    w.live.tenant[1] =
        (tdm_sched_tenant_t){.weight = 1.0, .token_per_s = 1.0, .token_burst = 110.0};
    tdm_sched_live_set(w.sched, &w.live);
    world_ask_t a = {.prompt_cnt = 10, .output_max = 100, .tenant = 1};
    uint32_t id = world_submit(&w, &a);
    world_turn(&w);
    refused_as(world_submit(&w, &a), TDM_REFUSE_tenant_rate);
    world_control(&w, id, TDM_CONTROL_CANCEL);
    a.output_max = 80;
    assert_int_equal(w.end[world_submit(&w, &a)].kind, 0);
    /* over the whole burst: only a full bucket lets it through */
    a.output_max = 300;
    refused_as(world_submit(&w, &a), TDM_REFUSE_tenant_rate);
    w.now_ns += 120 * TDM_NS_PER_S;
    assert_int_equal(w.end[world_submit(&w, &a)].kind, 0);
    assert_true(world_run(&w, 500));
}

static void pages_that_come_back_too_late_are_a_refusal(void **state) {
    (void)state;
    w.live.ttft_guard = 1;
    w.live.class_of[0].ttft_ns = 100 * TDM_NS_PER_S;
    tdm_sched_live_set(w.sched, &w.live);
    for (int i = 0; i < 4; i++) rig_ask(10, 60, 0);
    assert_true(world_run(&w, 500)); /* pages have come back at some pace */
    for (int i = 0; i < 6; i++) rig_ask(200, 800, 0);
    for (int i = 0; i < 12; i++) world_turn(&w);
    assert_int_equal(w.end[rig_ask(200, 800, 0)].kind, 0);
    w.live.class_of[0].ttft_ns = 300 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    refused_as(rig_ask(200, 800, 0), TDM_REFUSE_kv_full);
    w.live.ttft_guard = 0;
    tdm_sched_live_set(w.sched, &w.live);
    assert_int_equal(w.end[rig_ask(200, 800, 0)].kind, 0);
}

static void a_class_target_behind_the_backlog_is_refused_where_the_guard_is_on(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) rig_ask(900, 5, 0);
    w.live.class_of[0].ttft_ns = TDM_NS_PER_MS;
    w.live.ttft_guard = 1;
    tdm_sched_live_set(w.sched, &w.live);
    refused_as(rig_ask(10, 1, 0), TDM_REFUSE_deadline_unreachable);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(prompt_and_output_fill_the_context_exactly),
        CASE(what_can_never_fit_is_refused_at_once),
        CASE(a_prompt_outside_the_vocabulary_never_reaches_the_executor),
        CASE(empty_and_senseless_requests_have_their_reasons),
        CASE(a_stale_or_doubled_submit_is_counted_and_not_answered),
        CASE(the_waiting_queue_is_bounded_in_requests),
        CASE(the_waiting_queue_is_bounded_in_tokens),
        CASE(retry_after_grows_with_the_backlog),
        CASE(draining_ends_what_runs_and_takes_nothing_new),
        CASE(without_an_executor_the_reason_says_whether_it_ever_was),
        CASE(a_deadline_behind_the_backlog_is_refused),
        CASE(one_stream_too_many_is_refused_where_the_guard_is_on),
        CASE(a_tenant_over_its_rate_is_refused_until_its_bucket_fills),
        CASE(what_a_tenant_does_not_use_comes_back),
        CASE(pages_that_come_back_too_late_are_a_refusal),
        CASE(a_class_target_behind_the_backlog_is_refused_where_the_guard_is_on),
        CASE(a_bad_size_has_no_footprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
