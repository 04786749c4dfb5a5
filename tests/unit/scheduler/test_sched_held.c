/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a prompt whose keys and values come with it costs only what is
   left of it, and nobody else ever reads those pages.
   Method: worlds whose executor fills such pages itself and refuses them
   to all others. */

#include "appliance/base/clock.h"
#include "scheduler/kv.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void open_world(const tdm_sched_sizes_t *sizes) {
    tdm_sched_live_t live = world_live();
    world_close(&w);
    world_open(&w, 3, sizes, &live);
}

static int setup(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    sizes.has_cache = 1;
    open_world(&sizes);
    return 0;
}

static uint32_t ask(uint32_t prompt_cnt, uint32_t held_cnt, uint64_t identity) {
    world_ask_t a = {
        .prompt_cnt = prompt_cnt, .output_max = 10, .held_cnt = held_cnt, .identity = identity};
    return world_submit(&w, &a);
}

/* computed runs one request to its end and gives the prompt tokens that
   were computed for it. */
static uint64_t computed(uint32_t prompt_cnt, uint32_t held_cnt, uint64_t identity) {
    uint64_t before = world_stats(&w)->prefill_tokens;
    uint32_t id = ask(prompt_cnt, held_cnt, identity);
    assert_true(world_run(&w, 200));
    assert_int_equal(w.end[id].finish, TDM_FINISH_LENGTH);
    world_settled(&w);
    return world_stats(&w)->prefill_tokens - before;
}

static void only_the_rest_is_computed(void **state) {
    (void)state;
    assert_int_equal(computed(450, 450, 1), 450 - 448);
    assert_int_equal(computed(448, 448, 2), 64); /* its last token is computed in any case */
    assert_int_equal(computed(449, 448, 3), 1);
    assert_int_equal(computed(450, 130, 4), 450 - 128);
    assert_int_equal(computed(450, 63, 5), 450);
    assert_int_equal(computed(1, 1, 6), 1);
    assert_int_equal(world_stats(&w)->held_tokens, 448 + 384 + 448 + 128);
    assert_int_equal(w.cached_cnt, 0); /* no client is told of a cache */
}

static void nobody_else_reads_such_pages(void **state) {
    (void)state;
    assert_int_equal(computed(450, 450, 7), 2);
    assert_int_equal(world_stats(&w)->page_cached, 0);
    assert_int_equal(computed(450, 0, 7), 450);
    assert_int_equal(computed(450, 0, 7), 2); /* what was computed here is shared as ever */
}

static void a_death_computes_all_of_it_again(void **state) {
    (void)state;
    for (uint32_t turn = 1; turn < 8; turn++) {
        uint64_t before = world_stats(&w)->prefill_tokens;
        uint32_t id = ask(450, 450, 10 + turn);
        for (uint32_t i = 0; i < turn; i++) world_turn(&w);
        world_kill(&w);
        world_up(&w);
        assert_true(world_run(&w, 200));
        assert_int_equal(w.end[id].out_cnt, 10);
        assert_true(world_stats(&w)->prefill_tokens - before >= 450);
    }
    world_settled(&w);
}

static void what_a_plan_cannot_grant_waits_for_the_next(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    sizes.depth = 1;
    sizes.context_max = TDM_CONTEXT_MAX;
    sizes.page_cnt = 3 * (TDM_CONTEXT_MAX / TDM_KV_PAGE_TOKENS);
    open_world(&sizes);
    for (uint32_t i = 0; i < 3; i++) ask(TDM_CONTEXT_MAX - 10, TDM_CONTEXT_MAX - 10, 20 + i);
    assert_int_equal(world_plan(&w), 1);
    assert_int_equal(world_stats(&w)->running_cnt, 2); /* of 2,048 pages each */
    assert_true(world_run(&w, 200));
    assert_int_equal(world_stats(&w)->prefill_tokens, 3 * ((TDM_CONTEXT_MAX - 10) % 64));
    world_settled(&w);
}

static void more_than_the_prompt_is_no_value(void **state) {
    (void)state;
    uint32_t id = ask(100, 101, 30);
    assert_int_equal(w.end[id].kind, TDM_EVENT_REFUSED);
    assert_int_equal(w.end[id].reason, TDM_REFUSE_bad_value);
}

/* Prompts that start and do not fit the time beside a decode keep their pages
   until their first slice; more of them than a plan may grant then go on in
   the plans after it. */
static void pages_of_many_starts_are_granted_by_several_plans(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.context_max = TDM_CONTEXT_MAX;
    sizes.page_cnt = 9000;
    live.policy = TDM_POLICY_MARGIN;
    live.margin = 1.0;
    live.token_max = 512;
    live.starve_ns = live.bypass_ns = INT64_MAX / 4;
    live.class_of[0].gap_ns = 2 * TDM_NS_PER_MS;
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        live.profile.row[r] = (tdm_profile_row_t){.fixed_ns = 1e6, .pair_ns = 1.0};
    world_close(&w);
    world_open(&w, 3, &sizes, &live);
    world_ask_t decode = {.prompt_cnt = 10, .output_max = 1000};
    uint32_t first = world_submit(&w, &decode);
    for (uint32_t i = 0; i < 4; i++) (void)world_turn(&w);
    uint64_t before = world_stats(&w)->prefill_tokens;
    for (uint32_t k = TDM_SLO_CLASS_MAX; k-- > 0;) {
        world_ask_t a = {.prompt_cnt = TDM_CONTEXT_MAX - 1u,
                         .output_max = 1,
                         .held_cnt = TDM_CONTEXT_MAX - 1u,
                         .slo_class = k};
        (void)world_submit(&w, &a);
        (void)world_turn(&w);
    }
    assert_int_equal(world_stats(&w)->running_cnt, 1 + TDM_SLO_CLASS_MAX);
    assert_int_equal(world_stats(&w)->prefill_tokens, before); /* all have started, none runs */
    live.class_of[0].gap_ns = TDM_NS_PER_S;
    w.live = live;
    tdm_sched_live_set(w.sched, &live);
    world_ask_t another = {.prompt_cnt = 10, .output_max = 10};
    (void)world_submit(&w, &another); /* its page is one more than a plan grants */
    for (uint32_t i = 0; i < 4; i++) (void)world_turn(&w);
    assert_int_equal(world_stats(&w)->prefill_tokens - before, TDM_SLO_CLASS_MAX * 63 + 10);
    world_control(&w, first, TDM_CONTROL_CANCEL);
    assert_true(world_run(&w, 20));
    world_settled(&w);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(only_the_rest_is_computed),
        CASE(nobody_else_reads_such_pages),
        CASE(a_death_computes_all_of_it_again),
        CASE(what_a_plan_cannot_grant_waits_for_the_next),
        CASE(more_than_the_prompt_is_no_value),
        CASE(pages_of_many_starts_are_granted_by_several_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
