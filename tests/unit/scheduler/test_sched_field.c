/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what other serving systems got wrong in the field does not happen
   here.  Each test is named after the case it replays (running decodes
   starved, a short request behind a huge one, a request that never fits,
   two limits, admission that stays shut, pages of the aborted, cancels in
   bad moments, overload).  Method: worlds in virtual time. */

#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void big_world(uint32_t page_cnt, uint32_t context_max, uint64_t seed) {
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.seq_max = 64;
    sizes.page_cnt = page_cnt;
    sizes.context_max = context_max;
    live.token_max = 2048;
    live.short_max = 512;
    world_open(&w, seed, &sizes, &live);
}

/* B16 */
static void decodes_keep_their_gap_in_a_prefill_storm(void **state) {
    (void)state;
    big_world(8192, 8192, 16);
    w.live.token_max = 8192;
    w.live.class_of[0].gap_ns = 60 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    uint32_t stream[30];
    tdm_rng_t r = {.state = 16};
    for (uint32_t i = 0; i < 30; i++) stream[i] = rig_ask(50, 1000, 0);
    int64_t next = w.now_ns, end = w.now_ns + 60 * TDM_NS_PER_S;
    uint64_t storm_cnt = 0;
    while (w.now_ns < end && w.live_cnt > 0) {
        for (; next <= w.now_ns; next += TDM_NS_PER_S / 6)
            storm_cnt += rig_ask(3000 + tdm_rng_below(&r, 3001), 20, 2) != UINT32_MAX;
        world_plan(&w);
        if (!world_finish(&w)) w.now_ns = next;
    }
    assert_true(storm_cnt > 100);
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(w.end[stream[i]].out_cnt, 1000);
        assert_true(w.end[stream[i]].gap_ns <= 61 * TDM_NS_PER_MS);
    }
    assert_true(world_stats(&w)->reason[TDM_CAP_time_limit] > 100);
}

/* B17 */
static void a_short_request_does_not_wait_behind_a_huge_one(void **state) {
    (void)state;
    int64_t alone = 0;
    for (uint32_t with_short = 0; with_short <= 1; with_short++) {
        big_world(2048, TDM_CONTEXT_MAX, 17);
        uint32_t huge = rig_ask(100000, 4, 3), small = 0;
        while (w.now_ns < 3 * TDM_NS_PER_S) world_turn(&w);
        if (with_short) {
            int64_t begin = w.now_ns;
            small = rig_ask(101, 4, 3);
            for (uint32_t i = 0; i < 4; i++) world_turn(&w);
            assert_int_equal(w.end[small].kind, 0);
            world_turn(&w);
            world_turn(&w);
            assert_int_equal(w.end[small].out_cnt, 4);
            assert_true(w.now_ns - begin < 5 * TDM_NS_PER_S);
        }
        assert_true(world_run(&w, 5000));
        assert_int_equal(w.end[huge].out_cnt, 4);
        if (!with_short)
            alone = w.end[huge].end_ns;
        else
            assert_true(w.end[huge].end_ns - TDM_NS_PER_S < (alone - TDM_NS_PER_S) / 100 * 105);
        world_close(&w);
    }
}

/* B17: a steady stream of short prompts gets its quarter and no more. */
static void short_prompts_get_a_quarter_and_long_ones_go_on(void **state) {
    (void)state;
    big_world(4096, TDM_CONTEXT_MAX, 18);
    w.live.prefill_limit_ns = 10 * TDM_NS_PER_S;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) w.live.class_of[k].gap_ns = 10 * TDM_NS_PER_S;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(100000, 4, 0);
    for (uint32_t i = 0; i < 20; i++) {
        while (world_stats(&w)->waiting_cnt < 20) rig_ask(200, 1, 3);
        world_turn(&w);
        uint32_t tok = 0;
        for (uint32_t k = 0; k < w.plan->slice_cnt; k++)
            if (w.plan->slice[k].cnt <= 200) tok += w.plan->slice[k].cnt;
        assert_true(w.plan->token_cnt <= 2048 && w.plan->token_cnt > 2048 - 16);
        assert_true(tok >= 2048 / 4 - 200 && tok <= 2048 / 2);
    }
}

/* B19 */
static void a_request_that_never_fits_blocks_nobody(void **state) {
    (void)state;
    big_world(1197, TDM_CONTEXT_MAX, 19);
    uint32_t big = rig_ask(100000, 10, 0);
    assert_int_equal(w.end[big].reason, TDM_REFUSE_kv_never);
    uint32_t small[10];
    for (uint32_t i = 0; i < 10; i++) small[i] = rig_ask(100, 10, 0);
    assert_true(world_run(&w, 50));
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(w.end[small[i]].out_cnt, 10);
    world_settled(&w);
}

/* B20 */
static void accepted_means_scheduled_around_the_pools_edge(void **state) {
    (void)state;
    big_world(1000, TDM_CONTEXT_MAX, 20);
    for (uint32_t len = 64000 - 65; len <= 64000 + 1; len++) {
        uint32_t a = rig_ask(len, 1, 0), small = 0;
        if (len <= 64000) {
            assert_int_equal(w.end[a].kind, 0);
            world_turn(&w);
            assert_true(w.plan->slice_cnt > 0);
            small = rig_ask(10, 2, 0);
            world_control(&w, a, TDM_CONTROL_CANCEL);
        } else {
            assert_int_equal(w.end[a].reason, TDM_REFUSE_kv_never);
            small = rig_ask(10, 2, 0);
        }
        assert_true(world_run(&w, 50));
        assert_int_equal(w.end[small].out_cnt, 2);
        world_settled(&w);
    }
}

/* B20, S4: pools of 1..8 pages, every prompt length, three outputs, a
   neighbour that wants pages too. */
static void small_pools_serve_every_length_that_fits(void **state) {
    (void)state;
    for (uint32_t pages = 1; pages <= 8; pages++) {
        tdm_sched_sizes_t sizes = world_sizes();
        tdm_sched_live_t live = world_live();
        sizes.page_cnt = pages;
        sizes.seq_max = 3;
        sizes.context_max = 600;
        world_open(&w, pages, &sizes, &live);
        for (uint32_t len = 1; len <= pages * TDM_KV_PAGE_TOKENS + 2; len++)
            for (uint32_t out = 1; out <= 3; out++) {
                uint32_t a = rig_ask(len, out, 0), b = rig_ask(len / 2 + 1, out, 0),
                         c = rig_ask(1, 1, 0);
                int fits = len + out - 1 <= pages * TDM_KV_PAGE_TOKENS;
                assert_int_equal(w.end[a].reason, fits ? 0 : TDM_REFUSE_kv_never);
                assert_true(world_run(&w, 100));
                assert_int_equal(w.end[a].out_cnt, fits ? out : 0);
                assert_int_equal(w.end[b].out_cnt, out);
                assert_int_equal(w.end[c].out_cnt, 1);
            }
        world_settled(&w);
        world_close(&w);
    }
}

/* B22 */
static void admission_opens_again_after_everyone_left(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.depth = 1;
    world_open(&w, 22, &sizes, &live);
    uint32_t id = 0;
    do {
        id = rig_ask(500, 50, 0);
        world_turn(&w);
    } while (w.end[id].kind == 0);
    assert_int_equal(w.end[id].reason, TDM_REFUSE_waiting_full);
    world_plan(&w);
    for (uint32_t i = 0; i < id; i++) world_control(&w, i, TDM_CONTROL_CANCEL);
    const tdm_sched_stats_t *t = world_stats(&w);
    assert_int_equal(t->waiting_cnt + t->running_cnt, 0);
    while (world_finish(&w)) {
    }
    uint32_t next = rig_ask(500, 5, 0);
    world_turn(&w);
    assert_int_equal(w.plan->open_cnt, 1);
    assert_true(world_run(&w, 50));
    assert_int_equal(w.end[next].out_cnt, 5);
    world_settled(&w);
}

/* B23: no eviction; the more urgent takes the next slot, equals keep
   their order. */
static void the_urgent_takes_the_next_slot_and_equals_keep_their_order(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.seq_max = 2;
    world_open(&w, 23, &sizes, &live);
    uint32_t a = rig_ask(10, 40, 3), b = rig_ask(10, 60, 3);
    for (uint32_t i = 0; i < 5; i++) world_turn(&w);
    uint32_t low = rig_ask(10, 5, 3), low2 = rig_ask(10, 5, 3), high = rig_ask(10, 5, 0);
    assert_true(world_run(&w, 300));
    assert_true(w.end[high].end_ns < w.end[low].end_ns);
    assert_true(w.end[low].end_ns <= w.end[low2].end_ns);
    assert_int_equal(w.end[a].out_cnt, 40);
    assert_int_equal(w.end[b].out_cnt, 60);
}

/* B25 */
static void pages_wait_for_the_iteration_that_may_write_them(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.page_cnt = 4;
    world_open(&w, 25, &sizes, &live);
    uint32_t a = rig_ask(200, 57, 0);
    world_turn(&w);
    world_plan(&w);
    uint32_t flying = w.x.flight_cnt;
    assert_true(flying > 0);
    world_control(&w, a, TDM_CONTROL_CANCEL);
    uint32_t b = rig_ask(200, 2, 0);
    assert_true(world_stats(&w)->page_fenced > 0);
    assert_int_equal(world_plan(&w), 0);
    for (uint32_t i = 1; i < flying; i++) {
        world_finish(&w);
        assert_int_equal(world_plan(&w), 0);
    }
    world_finish(&w);
    assert_int_equal(world_stats(&w)->page_fenced, 0);
    assert_true(world_plan(&w) > 0);
    assert_int_equal(w.end[b].kind, 0);
    assert_true(world_run(&w, 20));
    assert_int_equal(w.end[b].out_cnt, 2);
    world_settled(&w);
}

/* B26, S6, S9 */
static void ten_thousand_aborts_leave_nothing_behind(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    live.token_max = 64;
    world_open(&w, 26, &sizes, &live);
    tdm_rng_t r = {.state = 26};
    for (uint32_t n = 0; n < 10000; n++) {
        uint32_t id = rig_ask(1 + tdm_rng_below(&r, 200), 1 + tdm_rng_below(&r, 6), n % 4);
        uint32_t turns = tdm_rng_below(&r, 8);
        for (uint32_t i = 0; i < turns; i++) world_turn(&w);
        if (tdm_rng_below(&r, 2)) world_plan(&w);
        world_control(&w, id, TDM_CONTROL_CANCEL);
        if (tdm_rng_below(&r, 4) == 0) world_control(&w, id, TDM_CONTROL_CANCEL);
        if (tdm_rng_below(&r, 4) == 0 && id > 5) world_control(&w, id - 5, TDM_CONTROL_CANCEL);
    }
    assert_true(world_run(&w, 1000));
    world_settled(&w);
    assert_true(world_stats(&w)->ended[TDM_FINISH_CANCELLED] > 2000);
    assert_true(world_stats(&w)->ended[TDM_FINISH_LENGTH] > 500);
}

/* B28: same content, same seed, at once: two requests, both whole. */
static void twins_run_side_by_side(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    world_open(&w, 28, &sizes, &live);
    world_ask_t twin = {.prompt_cnt = 100, .output_max = 20, .identity = 77};
    uint32_t a = world_submit(&w, &twin), b = world_submit(&w, &twin);
    assert_true(world_run(&w, 100));
    assert_int_equal(w.end[a].out_cnt, 20);
    assert_true(w.end[a].tokens_hash == w.end[b].tokens_hash);
    world_settled(&w);
}

/* B29: cancel of A in each of its states never touches B in any of its. */
static void a_cancel_in_any_state_leaves_the_other_untouched(void **state) {
    (void)state;
    for (uint32_t of_a = 0; of_a < 10; of_a++)
        for (uint32_t of_b = 0; of_b < 10; of_b++)
            for (uint32_t flying = 0; flying <= 1; flying++) {
                tdm_sched_sizes_t sizes = world_sizes();
                tdm_sched_live_t live = world_live();
                live.token_max = 48;
                sizes.seq_max = 1 + of_b % 2;
                world_open(&w, 29, &sizes, &live);
                uint32_t a = 0, b = 0;
                if (of_a >= of_b)
                    a = rig_ask(130, 9, 0);
                else
                    b = rig_ask(130, 9, 0);
                for (uint32_t i = 0; i < (of_a > of_b ? of_a - of_b : of_b - of_a); i++)
                    world_turn(&w);
                if (of_a >= of_b)
                    b = rig_ask(130, 9, 0);
                else
                    a = rig_ask(130, 9, 0);
                for (uint32_t i = 0; i < TDM_MIN(of_a, of_b); i++) world_turn(&w);
                if (flying) world_plan(&w);
                world_control(&w, a, TDM_CONTROL_CANCEL);
                assert_true(world_run(&w, 100));
                assert_int_equal(w.end[b].out_cnt, 9);
                assert_int_equal(w.end[b].finish, TDM_FINISH_LENGTH);
                world_settled(&w);
                world_close(&w);
            }
}

/* S11 */
static void slow_iterations_cut_the_next_prefill_share(void **state) {
    (void)state;
    big_world(4096, TDM_CONTEXT_MAX, 11);
    w.live.class_of[0].gap_ns = 60 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    for (uint32_t i = 0; i < 4; i++) rig_ask(10, 500, 0);
    rig_ask(100000, 2, 3);
    for (uint32_t i = 0; i < 10; i++) world_turn(&w);
    uint32_t before = w.plan->token_cnt;
    w.slow = 3.0;
    for (uint32_t i = 0; i < 30; i++) world_turn(&w);
    assert_true(w.plan->token_cnt < before / 2);
    assert_int_equal(w.plan->decode_cnt, 4);
    assert_true(w.record.actual_ns < 66 * TDM_NS_PER_MS);
    assert_true(world_stats(&w)->correction > 2.5);
}

/* S7: ten times what can be served; what is served is not less. */
static uint64_t tokens_under_load(uint32_t per_second) {
    big_world(1024, 2048, 7);
    tdm_rng_t r = {.state = 7};
    int64_t next = w.now_ns, end = w.now_ns + 20 * TDM_NS_PER_S;
    while (w.now_ns < end) {
        for (; next <= w.now_ns; next += TDM_NS_PER_S / per_second)
            rig_ask(200 + tdm_rng_below(&r, 400), 20, 0);
        if (!world_turn(&w)) w.now_ns = next;
    }
    assert_true(world_stats(&w)->waiting_cnt <= w.sizes.waiting_max);
    uint64_t tokens = w.token_cnt;
    uint64_t full = world_stats(&w)->reason[TDM_REFUSE_waiting_full];
    assert_int_equal(full > 0, per_second > 100);
    assert_true(world_run(&w, 5000));
    world_settled(&w);
    world_close(&w);
    return tokens;
}

static void tenfold_overload_costs_no_goodput(void **state) {
    (void)state;
    uint64_t fair = tokens_under_load(40), over = tokens_under_load(400);
    assert_true(over * 10 >= fair * 9);
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(decodes_keep_their_gap_in_a_prefill_storm),
        CASE(a_short_request_does_not_wait_behind_a_huge_one),
        CASE(short_prompts_get_a_quarter_and_long_ones_go_on),
        CASE(a_request_that_never_fits_blocks_nobody),
        CASE(accepted_means_scheduled_around_the_pools_edge),
        CASE(small_pools_serve_every_length_that_fits),
        CASE(admission_opens_again_after_everyone_left),
        CASE(the_urgent_takes_the_next_slot_and_equals_keep_their_order),
        CASE(pages_wait_for_the_iteration_that_may_write_them),
        CASE(ten_thousand_aborts_leave_nothing_behind),
        CASE(twins_run_side_by_side),
        CASE(a_cancel_in_any_state_leaves_the_other_untouched),
        CASE(slow_iterations_cut_the_next_prefill_share),
        CASE(tenfold_overload_costs_no_goodput),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
