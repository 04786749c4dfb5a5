/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was computed once is not computed again for the same tenant,
   whoever asks for it and whatever came between.
   Method: worlds whose executor knows the tokens behind every page. */

#include "appliance/base/clock.h"
#include "scheduler/kv.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void open_world(uint32_t has_cache, uint32_t depth) {
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.has_cache = has_cache;
    sizes.depth = depth;
    world_close(&w);
    world_open(&w, 3, &sizes, &live);
}

static int setup(void **state) {
    (void)state;
    open_world(1, 2);
    return 0;
}

static uint32_t ask(uint32_t prompt_cnt, uint32_t output_max, uint32_t prefix_cnt,
                    uint32_t tenant) {
    world_ask_t a = {.prompt_cnt = prompt_cnt,
                     .output_max = output_max,
                     .prefix = 77,
                     .prefix_cnt = prefix_cnt,
                     .tenant = tenant};
    return world_submit(&w, &a);
}

/* alone runs one request to its end and gives the tokens it was spared. */
static uint64_t alone(uint32_t prompt_cnt, uint32_t prefix_cnt, uint32_t tenant) {
    uint64_t before = world_stats(&w)->cache_saved_tokens;
    (void)ask(prompt_cnt, 10, prefix_cnt, tenant);
    assert_true(world_run(&w, 100));
    return world_stats(&w)->cache_saved_tokens - before;
}

static void the_same_prompt_again_computes_its_end_alone(void **state) {
    (void)state;
    for (uint32_t cnt = 1; cnt < 200; cnt++) {
        open_world(1, 1 + cnt % 2);
        assert_int_equal(alone(cnt, cnt, 0), 0);
        uint32_t full = (cnt - 1) / TDM_KV_PAGE_TOKENS * TDM_KV_PAGE_TOKENS;
        assert_int_equal(alone(cnt, cnt, 0), full);
        assert_int_equal(w.cached_cnt, full);
        assert_int_equal(world_stats(&w)->prefill_tokens, 2 * cnt - full);
        world_settled(&w);
    }
}

static void another_tenant_finds_nothing_and_off_is_off(void **state) {
    (void)state;
    assert_int_equal(alone(200, 200, 1), 0);
    assert_int_equal(alone(200, 200, 2), 0);
    assert_int_equal(alone(200, 200, 1), 192);
    assert_int_equal(alone(200, 130, 2), 128);
    open_world(0, 2);
    assert_int_equal(alone(200, 200, 1), 0);
    assert_int_equal(alone(200, 200, 1), 0);
    assert_int_equal(world_stats(&w)->cache_lookup_cnt, 0);
    assert_int_equal(world_stats(&w)->page_free, w.sizes.page_cnt);
}

/* The same 64 tokens after other ones are another page. */
static void a_page_is_what_went_before_it_too(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        world_ask_t a = {.prompt_cnt = 300, .output_max = 3, .blocks = 99, .identity = 1 + i};
        world_submit(&w, &a);
        assert_true(world_run(&w, 100));
    }
    assert_true(world_stats(&w)->cache_hit_cnt > 30); /* 2 first pages, 4 second ones, ... */
    assert_true(world_stats(&w)->cache_saved_tokens > 40 * TDM_KV_PAGE_TOKENS);
    world_settled(&w);
}

static void a_conversation_finds_its_own_answers(void **state) {
    (void)state;
    world_ask_t a = {.prompt_cnt = 60, .output_max = 150};
    for (uint32_t i = 0; i < WORLD_TEXT_MAX; i++) {
        world_submit(&w, &a);
        assert_true(world_run(&w, 400));
    }
    uint64_t before = world_stats(&w)->cache_saved_tokens;
    world_ask_t b = {.prompt_cnt = 250, .output_max = 5, .follow = 1};
    world_submit(&w, &b);
    assert_true(world_run(&w, 100));
    assert_int_equal(world_stats(&w)->cache_saved_tokens - before, 192); /* of 209 computed */
}

static void many_at_once_share_what_one_holds(void **state) {
    (void)state;
    assert_int_equal(alone(450, 450, 0), 0);
    for (uint32_t i = 0; i < 8; i++) ask(450, 60, 448, 0);
    for (uint32_t i = 0; i < 6; i++) world_turn(&w);
    const tdm_sched_stats_t *t = world_stats(&w);
    assert_int_equal(t->running_cnt, 8); /* of 8 pages each: 64 in all without sharing, here 15 */
    assert_true(t->page_held + t->page_cached - t->page_idle < 20);
    assert_true(world_run(&w, 200));
    assert_int_equal(world_stats(&w)->cache_saved_tokens, 8 * 448);
    world_settled(&w);
}

static void nobody_is_refused_for_what_is_only_cached(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t id = ask(900, 20, i % 3 * 300, i % 5);
        assert_true(world_run(&w, 200));
        assert_int_equal(w.end[id].finish, TDM_FINISH_LENGTH);
    }
    assert_true(world_stats(&w)->cache_evict_cnt > 0);
    world_settled(&w);
}

static void shared_pages_survive_every_end_of_a_sharer(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 14; turn++) {
        open_world(1, 2);
        assert_int_equal(alone(300, 300, 0), 0);
        uint32_t a = ask(300, 40, 300, 0), b = ask(300, 40, 256, 0);
        for (uint32_t i = 0; i < turn; i++) world_turn(&w);
        world_control(&w, a, TDM_CONTROL_CANCEL);
        uint32_t c = ask(300, 40, 192, 0);
        assert_true(world_run(&w, 300));
        assert_int_equal(w.end[b].out_cnt, 40);
        assert_int_equal(w.end[c].out_cnt, 40);
        world_settled(&w);
    }
}

static void a_death_forgets_the_cache_and_changes_no_token(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 14; turn++) {
        open_world(1, 1 + turn % 2);
        assert_int_equal(alone(300, 300, 0), 0);
        uint32_t id[8];
        for (uint32_t i = 0; i < 8; i++) id[i] = ask(450, 40, i % 2 ? 300 : 120, 0);
        for (uint32_t i = 0; i < turn; i++) world_turn(&w);
        world_kill(&w);
        assert_int_equal(world_stats(&w)->page_cached, 0);
        assert_int_equal(world_stats(&w)->running_cnt, 0);
        world_up(&w);
        assert_true(world_run(&w, 600));
        for (uint32_t i = 0; i < 8; i++) assert_int_equal(w.end[id[i]].out_cnt, 40);
        world_settled(&w);
    }
}

static void what_was_not_finite_is_not_served_again(void **state) {
    (void)state;
    world_ask_t a = {.prompt_cnt = 200,
                     .output_max = 10,
                     .prefix = 77,
                     .prefix_cnt = 200,
                     .seed_flags = FAKE_SEED_NAN};
    world_submit(&w, &a);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[0].reason, TDM_REFUSE_nan_logits);
    assert_int_equal(alone(200, 200, 0), 0);
    assert_int_equal(world_stats(&w)->cache_flush_cnt, 3);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_same_prompt_again_computes_its_end_alone),
        CASE(another_tenant_finds_nothing_and_off_is_off),
        CASE(a_page_is_what_went_before_it_too),
        CASE(a_conversation_finds_its_own_answers),
        CASE(many_at_once_share_what_one_holds),
        CASE(nobody_is_refused_for_what_is_only_cached),
        CASE(shared_pages_survive_every_end_of_a_sharer),
        CASE(a_death_forgets_the_cache_and_changes_no_token),
        CASE(what_was_not_finite_is_not_served_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
