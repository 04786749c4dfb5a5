/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a result moves sequences on, ends them for the right reason, and
   is doubted before anything changes.  Method: worlds for the good ones,
   damaged copies of a good result for the rest. */

#include "appliance/base/clock.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_stop_id_ends_the_stream_and_is_flagged(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 200, .seed_flags = FAKE_SEED_STOP};
    uint32_t id = world_submit(&w, &a);
    assert_true(world_run(&w, 300));
    assert_int_equal(w.end[id].finish, TDM_FINISH_STOP);
    assert_true(w.end[id].out_cnt >= 1 && w.end[id].out_cnt < 200);
    assert_int_equal(world_stats(&w)->ended[TDM_FINISH_STOP], 1);
    world_settled(&w);
    assert_int_equal(world_stats(&w)->discard_tokens, 1);
}

static void ignored_stop_ids_run_to_the_length(void **state) {
    (void)state;
    world_ask_t a = {
        .output_max = 100, .seed_flags = FAKE_SEED_STOP, .flags = TDM_SAMPLING_IGNORE_EOS};
    uint32_t id = world_submit(&w, &a);
    assert_true(world_run(&w, 300));
    assert_int_equal(w.end[id].finish, TDM_FINISH_LENGTH);
    assert_int_equal(w.end[id].out_cnt, 100);
}

static void min_tokens_travel_to_the_executor(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 100, .seed_flags = FAKE_SEED_STOP, .min_tokens = 30};
    uint32_t id = world_submit(&w, &a);
    assert_true(world_run(&w, 300));
    assert_true(w.end[id].out_cnt > 30);
}

static void one_token_is_a_whole_answer(void **state) {
    (void)state;
    world_ask_t a = {.prompt_cnt = 1, .output_max = 1};
    uint32_t id = world_submit(&w, &a);
    assert_true(world_run(&w, 3));
    assert_int_equal(w.end[id].out_cnt, 1);
    assert_int_equal(w.plan_cnt, 1);
    world_settled(&w);
}

static void nan_logits_end_one_sequence_and_spare_its_neighbours(void **state) {
    (void)state;
    world_ask_t bad = {.output_max = 20, .seed_flags = FAKE_SEED_NAN}, good = {.output_max = 20};
    uint32_t a = world_submit(&w, &good), b = world_submit(&w, &bad), c = world_submit(&w, &good);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[b].finish, TDM_FINISH_ERROR);
    assert_int_equal(w.end[b].reason, TDM_REFUSE_nan_logits);
    assert_int_equal(w.end[b].out_cnt, 2);
    assert_int_equal(w.end[a].out_cnt, 20);
    assert_int_equal(w.end[c].out_cnt, 20);
    assert_int_equal(world_stats(&w)->reason[TDM_FAULT_sequence_nan], 1);
    world_settled(&w);
}

static void a_stop_string_ends_as_stop(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 50};
    uint32_t id = world_submit(&w, &a);
    for (int i = 0; i < 5; i++) world_turn(&w);
    world_control(&w, id, TDM_CONTROL_STOP_HIT);
    assert_int_equal(w.end[id].finish, TDM_FINISH_STOP);
    world_control(&w, id, TDM_CONTROL_STOP_HIT);
    world_control(&w, id, TDM_CONTROL_CANCEL);
    assert_int_equal(world_stats(&w)->reason[TDM_DROP_stale_handle], 2);
    world_settled(&w);
}

/* --- doubt ------------------------------------------------------------------ */

typedef void damage_t(tdm_result_t *r);

static void no_damage(tdm_result_t *r) {
    (void)r;
}
static void other_iteration(tdm_result_t *r) {
    r->iteration++;
}
static void one_sample_less(tdm_result_t *r) {
    r->sample_cnt--;
}
static void far_too_many_samples(tdm_result_t *r) {
    r->sample_cnt = UINT32_MAX;
}
static void other_slot(tdm_result_t *r) {
    r->sample[0].slot ^= 1u;
}
static void other_position(tdm_result_t *r) {
    r->sample[0].pos++;
}
static void token_over_vocabulary(tdm_result_t *r) {
    r->sample[0].token = 1000;
}
static void token_negative(tdm_result_t *r) {
    r->sample[0].token = -1;
}
static void route_unknown(tdm_result_t *r) {
    r->route = TDM_ROUTE_CNT;
}
static void reason_of_another_group(tdm_result_t *r) {
    r->reason = TDM_CAP_slots;
}
static void reason_unknown(tdm_result_t *r) {
    r->reason = 60000;
}
static void fault_unknown(tdm_result_t *r) {
    r->fault = 60000;
}
static void fault_named(tdm_result_t *r) {
    r->fault = TDM_FAULT_executor_protocol;
}

/* deliver gives a damaged copy of the next result and returns the verdict. */
static tdm_reason_t deliver(damage_t *damage) {
    static tdm_result_t copy;
    copy = *fake_finish(&w.x, w.now_ns, w.now_ns + TDM_NS_PER_MS);
    damage(&copy);
    tdm_sched_result(w.sched, w.now_ns, &copy);
    world_read(&w);
    world_check(&w);
    return tdm_sched_watch(w.sched, w.now_ns);
}

static void a_result_that_contradicts_its_plan_ends_the_executor(void **state) {
    (void)state;
    static damage_t *const damages[] = {
        other_iteration,         one_sample_less, far_too_many_samples,  other_slot,
        other_position,          token_negative,  token_over_vocabulary, route_unknown,
        reason_of_another_group, reason_unknown,  fault_unknown,         fault_named};
    for (size_t i = 0; i < TDM_COUNT_OF(damages); i++) {
        world_ask_t a = {.output_max = 10};
        uint32_t id = world_submit(&w, &a);
        world_plan(&w);
        assert_int_equal(deliver(damages[i]), TDM_FAULT_executor_protocol);
        assert_int_equal(tdm_sched_watch(w.sched, w.now_ns), TDM_REASON_NONE);
        assert_int_equal(world_plan(&w), 0);
        world_kill(&w);
        world_up(&w);
        assert_true(world_run(&w, 30));
        assert_int_equal(w.end[id].out_cnt, 10);
    }
    assert_int_equal(world_stats(&w)->reason[TDM_FAULT_executor_protocol], TDM_COUNT_OF(damages));
    world_settled(&w);
}

static void an_undamaged_result_passes_the_same_road(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 10};
    world_submit(&w, &a);
    world_plan(&w);
    assert_int_equal(deliver(no_damage), TDM_REASON_NONE);
    assert_int_equal(world_stats(&w)->iteration_cnt, 1);
}

static void vcta_differ(tdm_result_t *r) {
    r->vcta_planned[0] = 5;
}
static void times_swapped(tdm_result_t *r) {
    r->start_ns = r->end_ns + 1;
}
static void fell_back(tdm_result_t *r) {
    r->reason = TDM_FALLBACK_head_dim;
}

static void lesser_oddities_are_counted_and_survived(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 30};
    world_submit(&w, &a);
    world_plan(&w);
    assert_int_equal(deliver(vcta_differ), TDM_REASON_NONE);
    world_plan(&w);
    assert_int_equal(deliver(times_swapped), TDM_REASON_NONE);
    world_plan(&w);
    assert_int_equal(deliver(fell_back), TDM_REASON_NONE);
    const tdm_sched_stats_t *t = world_stats(&w);
    assert_int_equal(t->reason[TDM_FAULT_vcta_mismatch], 1);
    assert_int_equal(t->reason[TDM_FAULT_clock_backwards], 1);
    assert_int_equal(t->reason[TDM_FALLBACK_head_dim], 1);
    assert_int_equal(t->iteration_cnt, 3);
}

/* What an executor may say of its times. */
static struct { int64_t start_ns, end_ns; } lie;
static void times_lie(tdm_result_t *r) {
    r->start_ns = lie.start_ns;
    r->end_ns = lie.end_ns;
}

/* With the longest gap of a class that counts from its first token on, every
   sum of times is near its bound. */
static void a_clock_that_lies_is_counted_and_moves_nothing(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    live.class_of[1].gap_ns = INT64_MAX / 4 / TDM_CONTEXT_MAX;
    live.class_of[1].burst_ns = INT64_MAX / 4;
    rig_teardown(NULL);
    world_open(&w, 3, &sizes, &live);
    const int64_t told[] = {INT64_MIN, INT64_MIN + 1, -1, INT64_MAX / 2, INT64_MAX};
    uint32_t id = rig_ask(20, 70, 1), cnt = 0;
    world_plan(&w); /* the world wants a first token to come after its request */
    assert_int_equal(deliver(no_damage), TDM_REASON_NONE);
    w.now_ns += TDM_NS_PER_MS;
    for (size_t i = 0; i < TDM_COUNT_OF(told); i++)
        for (size_t k = 0; k <= TDM_COUNT_OF(told); k++) {
            lie.start_ns = told[i];
            lie.end_ns = k < TDM_COUNT_OF(told) ? told[k] : w.now_ns;
            world_plan(&w);
            assert_int_equal(deliver(times_lie), TDM_REASON_NONE);
            assert_int_equal(world_stats(&w)->reason[TDM_FAULT_clock_backwards], ++cnt);
            assert_true(world_stats(&w)->last_token_ns <= w.now_ns);
            w.now_ns += TDM_NS_PER_MS;
            world_plan(&w);
            assert_int_equal(deliver(no_damage), TDM_REASON_NONE);
            tdm_sched_record_t record = {.actual_ns = -1};
            while (tdm_sched_record_pop(w.sched, &record))
                assert_in_range(record.actual_ns, 0, 2 * TDM_NS_PER_MS);
        }
    for (uint32_t i = 0; i < 100 && w.end[id].kind != TDM_EVENT_END; i++) {
        world_plan(&w);
        assert_int_equal(deliver(no_damage), TDM_REASON_NONE);
        w.now_ns += TDM_NS_PER_MS;
    }
    assert_int_equal(w.end[id].out_cnt, 70);
    assert_int_equal(w.end[id].finish, TDM_FINISH_LENGTH);
    assert_int_equal(world_stats(&w)->reason[TDM_FAULT_clock_backwards], cnt);
}

static void a_result_nobody_waits_for_is_a_protocol_fault(void **state) {
    (void)state;
    static tdm_result_t r;
    memset(&r, 0, sizeof r);
    r.epoch = w.epoch;
    r.iteration = 1;
    tdm_sched_result(w.sched, w.now_ns, &r);
    assert_int_equal(tdm_sched_watch(w.sched, w.now_ns), TDM_FAULT_executor_protocol);
}

static void the_last_records_are_kept(void **state) {
    (void)state;
    world_ask_t a = {.output_max = 40};
    world_submit(&w, &a);
    for (int i = 0; i < 30; i++) {
        world_plan(&w);
        deliver(no_damage);
    }
    tdm_sched_record_t record;
    uint64_t want = 30 - 16 + 1;
    uint32_t cnt = 0;
    while (tdm_sched_record_pop(w.sched, &record)) {
        assert_int_equal(record.iteration, want++);
        cnt++;
    }
    assert_int_equal(cnt, 16);
    assert_true(record.actual_ns == TDM_NS_PER_MS);
}

static void idle_for_a_while(tdm_result_t *r) {
    r->idle_ns = 700;
}

/* Of four plans the first follows nothing, the second lies at the executor
   when the first ends, the third is made after that. */
static void idle_time_is_of_plans_that_were_there_in_time(void **state) {
    (void)state;
    static const int64_t want[] = {-1, 700, -1, 700};
    world_ask_t a = {.output_max = 40};
    world_submit(&w, &a);
    for (size_t i = 0; i < TDM_COUNT_OF(want); i++) {
        tdm_sched_record_t record = {.idle_ns = 0};
        if (i % 2 == 0) w.now_ns += 5 * TDM_NS_PER_MS;
        if (i % 2 == 0) assert_int_equal(world_plan(&w), 2);
        assert_int_equal(deliver(idle_for_a_while), TDM_REASON_NONE);
        w.now_ns += TDM_NS_PER_MS;
        assert_int_equal(tdm_sched_record_pop(w.sched, &record), 1);
        assert_int_equal(record.idle_ns, want[i]);
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_stop_id_ends_the_stream_and_is_flagged),
        CASE(ignored_stop_ids_run_to_the_length),
        CASE(min_tokens_travel_to_the_executor),
        CASE(one_token_is_a_whole_answer),
        CASE(nan_logits_end_one_sequence_and_spare_its_neighbours),
        CASE(a_stop_string_ends_as_stop),
        CASE(a_result_that_contradicts_its_plan_ends_the_executor),
        CASE(an_undamaged_result_passes_the_same_road),
        CASE(lesser_oddities_are_counted_and_survived),
        CASE(a_clock_that_lies_is_counted_and_moves_nothing),
        CASE(a_result_nobody_waits_for_is_a_protocol_fault),
        CASE(idle_time_is_of_plans_that_were_there_in_time),
        CASE(the_last_records_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
