/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a plan holds what it should: decodes first, prefill up to the
   time limit and the bounds, the right cap named, short prompts not stuck
   behind long ones, nobody overtaken for ever.  Method: a world whose
   plans are looked at before they run. */

#include "appliance/base/clock.h"
#include "scheduler/order.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void open_world(const tdm_sched_sizes_t *sizes, const tdm_sched_live_t *live) {
    world_open(&w, 1, sizes, live);
}

static int setup(void **state) {
    (void)state;
    tdm_sched_sizes_t sizes = world_sizes();
    sizes.depth = 1;
    tdm_sched_live_t live = world_live();
    open_world(&sizes, &live);
    return 0;
}

/* decode_some starts n short streams and turns until they decode too. */
static void decode_some(uint32_t n, uint32_t output_max, uint32_t slo_class) {
    for (uint32_t i = 0; i < n; i++) rig_ask(10, output_max, slo_class);
    n += world_stats(&w)->decode_cnt;
    for (int i = 0; i < 20 && world_stats(&w)->decode_cnt < n; i++) world_turn(&w);
    assert_int_equal(world_stats(&w)->decode_cnt, n);
}

static void nothing_to_do_makes_no_plan(void **state) {
    (void)state;
    assert_int_equal(world_plan(&w), 0);
    world_kill(&w);
    assert_int_equal(world_plan(&w), 0);
}

static void a_prompt_is_cut_into_slices_and_then_decodes(void **state) {
    (void)state;
    w.live.token_max = 64;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(150, 3, 0);
    static const uint32_t cnt[] = {64, 64, 22};
    for (uint32_t i = 0; i < 3; i++) {
        world_turn(&w);
        assert_int_equal(w.plan->route, TDM_ROUTE_PREFILL_ONLY);
        assert_int_equal(w.plan->slice[0].cnt, cnt[i]);
        assert_int_equal(w.plan->slice[0].is_last, i == 2);
        assert_int_equal(w.plan->open_cnt, i == 0);
        assert_int_equal(w.record.cap, i == 2 ? TDM_CAP_no_work : TDM_CAP_token_max);
    }
    for (uint32_t i = 0; i < 2; i++) {
        world_turn(&w);
        assert_int_equal(w.plan->route, TDM_ROUTE_DECODE_ONLY);
        assert_int_equal(w.plan->decode[0].pos, 150 + i);
    }
    assert_int_equal(w.live_cnt, 0);
    world_settled(&w);
}

static void several_prompts_share_one_iteration(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) rig_ask(20, 3, 0);
    world_turn(&w);
    assert_int_equal(w.plan->slice_cnt, 4);
    assert_int_equal(w.plan->token_cnt, 80);
    assert_int_equal(w.record.cap, TDM_CAP_no_work);
}

static void every_decode_is_in_every_plan(void **state) {
    (void)state;
    decode_some(4, 60, 0);
    for (uint32_t i = 0; i < 40; i++) {
        rig_ask(300, 2, 3);
        world_plan(&w);
        assert_true(w.plan->decode_cnt >= 4);
        world_finish(&w);
    }
}

static void the_route_for_both_kinds_is_the_configured_one(void **state) {
    (void)state;
    decode_some(1, 100, 0);
    for (uint32_t route = TDM_ROUTE_FUSED; route <= TDM_ROUTE_SERIAL; route++) {
        w.live.route = route;
        w.live.revision = route;
        tdm_sched_live_set(w.sched, &w.live);
        rig_ask(20, 1, 0);
        world_turn(&w);
        assert_int_equal(w.plan->route, route);
        assert_int_equal(w.record.live_revision, route);
        assert_true(world_stats(&w)->route_cnt[route] > 0);
    }
}

static void the_time_limit_cuts_prefill_and_not_decodes(void **state) {
    (void)state;
    w.live.class_of[0].gap_ns = 10 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    decode_some(4, 100, 0);
    rig_ask(800, 2, 0);
    for (uint32_t i = 0; i < 6; i++) {
        world_turn(&w);
        assert_int_equal(w.plan->decode_cnt, 4);
        assert_true(w.plan->token_cnt > 0 && w.plan->token_cnt < 256);
        assert_int_equal(w.record.cap, TDM_CAP_time_limit);
        assert_true(w.plan->limit_ns == 10 * TDM_NS_PER_MS);
        assert_true(w.plan->predicted_ns <= w.plan->limit_ns);
        assert_true(w.record.actual_ns <= w.record.limit_ns + TDM_NS_PER_MS / 10);
    }
}

static void a_limit_under_a_power_cap_is_told_apart(void **state) {
    (void)state;
    w.live.class_of[0].gap_ns = 10 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    decode_some(4, 100, 0);
    rig_ask(800, 2, 0);
    for (int is_held = 1; is_held >= 0; is_held--) {
        tdm_sched_throttled(w.sched, is_held);
        world_turn(&w);
        assert_int_equal(w.record.cap, is_held ? TDM_CAP_power : TDM_CAP_time_limit);
    }
    assert_int_equal(world_stats(&w)->reason[TDM_CAP_power], 1);
    tdm_sched_throttled(w.sched, 1); /* what is no time limit keeps its name */
    while (w.record.cap != TDM_CAP_no_work) world_turn(&w);
}

static void the_tightest_class_sets_the_limit(void **state) {
    (void)state;
    rig_ask(20, 100, 3);
    world_turn(&w);
    assert_int_equal(w.record.limit_class, TDM_SLO_CLASS_MAX);
    world_turn(&w);
    assert_true(w.plan->limit_ns == w.live.class_of[3].gap_ns);
    assert_int_equal(w.record.limit_class, 3);
    decode_some(2, 100, 1);
    world_turn(&w);
    assert_true(w.plan->limit_ns == w.live.class_of[1].gap_ns);
    assert_int_equal(w.record.limit_class, 1);
}

static void decodes_over_the_limit_stop_prefill_until_it_starves(void **state) {
    (void)state;
    decode_some(4, 200, 0);
    w.live.class_of[0].gap_ns = 1;
    w.live.starve_ns = 50 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(400, 2, 3);
    int64_t begin = w.now_ns;
    while (w.now_ns - begin <= w.live.starve_ns) {
        world_turn(&w);
        assert_int_equal(w.plan->token_cnt, 0);
        assert_int_equal(w.record.cap, TDM_CAP_time_limit);
    }
    world_turn(&w);
    assert_int_equal(w.plan->token_cnt, w.live.floor_cnt);
    assert_int_equal(w.record.is_forced, 1);
    world_turn(&w);
    assert_int_equal(w.plan->token_cnt, 0);
    assert_true(world_run(&w, 2000));
}

static void a_tiny_limit_without_decodes_still_moves(void **state) {
    (void)state;
    w.live.prefill_limit_ns = 1;
    w.live.starve_ns = TDM_NS_PER_S * 1000;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(200, 1, 0);
    world_turn(&w);
    assert_int_equal(w.plan->token_cnt, w.live.floor_cnt);
    assert_true(world_run(&w, 20));
}

static void slices_are_bounded(void **state) {
    (void)state;
    w.live.slice_max = 2;
    tdm_sched_live_set(w.sched, &w.live);
    for (uint32_t i = 0; i < 5; i++) rig_ask(10, 2, 0);
    world_turn(&w);
    assert_int_equal(w.plan->slice_cnt, 2);
    assert_int_equal(w.record.cap, TDM_CAP_slice_max);
}

static void slots_and_pages_are_named_when_they_run_out(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 9; i++) rig_ask(10, 20, 0);
    world_turn(&w);
    assert_int_equal(w.plan->slice_cnt, 8);
    assert_int_equal(w.record.cap, TDM_CAP_slots);
    assert_true(world_run(&w, 200));
    for (uint32_t i = 0; i < 5; i++) rig_ask(900, 20, 0);
    for (uint32_t i = 0; i < 20; i++) world_turn(&w);
    assert_int_equal(world_stats(&w)->running_cnt, 4);
    assert_true(world_stats(&w)->reason[TDM_CAP_kv_pages] > 0);
    assert_true(world_run(&w, 500));
    world_settled(&w);
}

static void a_large_request_is_not_overtaken_for_ever(void **state) {
    (void)state;
    w.live.bypass_ns = 200 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    for (uint32_t i = 0; i < 4; i++) rig_ask(900, 100, 0);
    for (uint32_t i = 0; i < 20; i++) world_turn(&w);
    uint32_t large = rig_ask(1000, 20, 3);
    for (uint32_t i = 0; i < 2000 && w.end[large].kind == 0; i++) {
        rig_ask(60, 60, 0);
        world_turn(&w);
    }
    assert_int_equal(w.end[large].finish, TDM_FINISH_LENGTH);
    assert_true(w.end[large].ttft_ns < 5 * TDM_NS_PER_S);
}

static void less_work_goes_first(void **state) {
    (void)state;
    uint32_t large = rig_ask(900, 2, 0);
    world_turn(&w); /* begun, and still it waits */
    uint32_t middle = rig_ask(400, 2, 0), little = rig_ask(200, 2, 0);
    while (w.end[little].kind == 0) world_turn(&w);
    assert_int_equal(w.end[middle].kind, 0);
    while (w.end[middle].kind == 0) world_turn(&w);
    assert_int_equal(w.end[large].kind, 0);
    assert_true(world_run(&w, 100));
    world_settled(&w);
}

/* More little prompts come than are served, for ever. */
static void a_long_prompt_is_overtaken_within_its_patience(void **state) {
    (void)state;
    uint32_t large = rig_ask(900, 2, 0);
    for (uint32_t i = 0; i < 2000 && w.end[large].kind == 0; i++) {
        rig_ask(150, 1, 0);
        rig_ask(150, 1, 0);
        world_turn(&w);
    }
    int64_t token_ns = 60 * TDM_NS_PER_US; /* 256 of them take 15 ms */
    assert_int_equal(w.end[large].finish, TDM_FINISH_LENGTH);
    assert_true(w.end[large].ttft_ns > 300 * TDM_NS_PER_MS);
    assert_true(w.end[large].ttft_ns < 2 * (int64_t)w.live.patience * 900 * token_ns);
}

/* No patience: neither less work nor a quarter of the iteration lets a prompt pass. */
static void without_patience_prompts_go_in_order_of_arrival(void **state) {
    (void)state;
    w.live.patience = 0.0;
    tdm_sched_live_set(w.sched, &w.live);
    uint32_t idx[6], prompt[6] = {900, 150, 700, 20, 900, 1};
    for (uint32_t i = 0; i < 6; i++) idx[i] = rig_ask(prompt[i], 2, 0);
    for (uint32_t ended = 0; ended < 6;) {
        world_turn(&w);
        for (uint32_t i = ended + 1u; i < 6; i++)
            assert_true(w.end[idx[i]].kind == 0 || w.end[idx[i - 1u]].kind != 0);
        while (ended < 6 && w.end[idx[ended]].kind != 0) ended++;
    }
    world_settled(&w);
}

static void a_slice_that_is_cut_ends_on_a_tile(void **state) {
    (void)state;
    w.live.token_max = 250;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(7, 100, 0);
    world_turn(&w);
    w.live.class_of[0].gap_ns = 11 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    rig_ask(700, 2, 0);
    for (uint32_t i = 0; i < 4; i++) {
        world_turn(&w);
        uint32_t end = w.plan->slice[0].pos + w.plan->slice[0].cnt;
        assert_true(w.plan->slice[0].is_last || end % 16 == 0);
    }
}

static void an_ended_slot_is_closed_by_the_next_plan(void **state) {
    (void)state;
    uint32_t a = rig_ask(10, 50, 0);
    rig_ask(10, 50, 0);
    world_turn(&w);
    world_turn(&w);
    world_control(&w, a, TDM_CONTROL_CANCEL);
    world_turn(&w);
    assert_int_equal(w.plan->close_cnt, 1);
    world_turn(&w);
    assert_int_equal(w.plan->close_cnt, 0);
    assert_true(world_run(&w, 100));
    world_settled(&w);
}

static void depth_two_plans_ahead_of_unknown_tokens(void **state) {
    (void)state;
    world_close(&w);
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    open_world(&sizes, &live);
    uint32_t a = rig_ask(10, 5, 0);
    assert_int_equal(world_plan(&w), 2);
    assert_int_equal(w.plan->decode_cnt, 1);
    assert_int_equal(w.plan->decode[0].pos, 10);
    assert_int_equal(world_plan(&w), 0);
    assert_true(world_run(&w, 10));
    assert_int_equal(w.end[a].out_cnt, 5);
    assert_true(world_stats(&w)->discard_tokens == 0);
    world_settled(&w);
}

static void a_deaf_api_tile_stops_planning_and_loses_nothing(void **state) {
    (void)state;
    uint32_t a = rig_ask(10, 900, 0);
    w.is_deaf[0] = 1;
    uint32_t turns = 0;
    while (world_turn(&w)) assert_true(turns++ < 100);
    assert_true(world_stats(&w)->outbox_stall_cnt > 0);
    assert_true(turns >= 3 * w.sizes.seq_max - 2);
    w.is_deaf[0] = 0;
    world_read(&w);
    assert_true(world_run(&w, 2000));
    assert_int_equal(w.end[a].out_cnt, 900);
}

/* served gives the output tokens that a tenant's requests got. */
static uint64_t served(const uint32_t *id, uint32_t cnt) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cnt; i++) sum += w.end[id[i]].kind ? 1u : 0u;
    return sum;
}

static void a_light_tenant_is_not_behind_a_flood(void **state) {
    (void)state;
    uint32_t flood[60], light[6];
    world_ask_t a = {.prompt_cnt = 100, .output_max = 20, .tenant = 1};
    for (uint32_t i = 0; i < 60; i++) flood[i] = world_submit(&w, &a);
    a.tenant = 2;
    for (uint32_t i = 0; i < 4; i++) light[i] = world_submit(&w, &a);
    while (served(light, 4) < 4) world_turn(&w);
    assert_true(served(flood, 60) < 24); /* first in, first out would have made it 60 */
    assert_true(world_run(&w, 4000));
}

static void weights_share_what_there_is(void **state) {
    (void)state;
    uint32_t heavy[30], normal[30];
    w.live.tenant[1].weight = 3.0;
    tdm_sched_live_set(w.sched, &w.live);
    world_ask_t a = {.prompt_cnt = 100, .output_max = 20};
    for (uint32_t i = 0; i < 30; i++) {
        a.tenant = 2;
        normal[i] = world_submit(&w, &a);
        a.tenant = 1;
        heavy[i] = world_submit(&w, &a);
    }
    while (served(heavy, 30) < 24) world_turn(&w);
    assert_true(served(normal, 30) <= 12 && served(normal, 30) >= 4);
    assert_true(world_run(&w, 4000));
}

static void idleness_earns_no_claim(void **state) {
    (void)state;
    uint32_t early[20], late[20];
    world_ask_t a = {.prompt_cnt = 100, .output_max = 20, .tenant = 1};
    for (uint32_t i = 0; i < 20; i++) early[i] = world_submit(&w, &a);
    while (served(early, 20) < 10) world_turn(&w);
    a.tenant = 5;
    for (uint32_t i = 0; i < 20; i++) late[i] = world_submit(&w, &a);
    while (served(early, 20) < 20) world_turn(&w);
    assert_true(served(late, 20) <= 14); /* side by side, not all of it first */
    assert_true(world_run(&w, 4000));
}

static void a_lost_deadline_goes_before_a_small_counter(void **state) {
    (void)state;
    w.live.class_of[0].ttft_ns = 300 * TDM_NS_PER_MS;
    tdm_sched_live_set(w.sched, &w.live);
    world_ask_t a = {.prompt_cnt = 100, .output_max = 40, .tenant = 1};
    uint32_t id[40];
    for (uint32_t i = 0; i < 20; i++) id[i] = world_submit(&w, &a);
    for (int i = 0; i < 80; i++) world_turn(&w); /* all of them are late by now */
    a.tenant = 2;
    uint32_t first = world_submit(&w, &a);
    while (w.end[first].kind == 0) world_turn(&w);
    assert_true(served(id, 20) >= 16);
    assert_true(world_run(&w, 4000));
}

static void the_longest_wait_is_told_by_class(void **state) {
    (void)state;
    int64_t oldest[TDM_SLO_CLASS_MAX];
    tdm_sched_sizes_t sizes = world_sizes();
    tdm_sched_live_t live = world_live();
    sizes.seq_max = 1;
    world_close(&w);
    world_open(&w, 1, &sizes, &live);
    tdm_sched_oldest(w.sched, oldest);
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) assert_true(oldest[k] == TDM_TIME_NEVER);
    int64_t first = 0, other = 0;
    for (uint32_t i = 0; i < 4; i++) {
        world_ask_t a = {.prompt_cnt = 100, .output_max = 40, .slo_class = i == 3 ? 2 : 0};
        world_submit(&w, &a);
        if (i == 0) world_turn(&w); /* it has the slot: only the others wait */
        if (i == 1) first = w.now_ns;
        if (i == 3) other = w.now_ns;
        w.now_ns += 7 * TDM_NS_PER_MS;
    }
    tdm_sched_oldest(w.sched, oldest);
    assert_true(oldest[0] == first && oldest[1] == TDM_TIME_NEVER && oldest[2] == other);
    assert_true(world_run(&w, 2000));
    tdm_sched_oldest(w.sched, oldest);
    assert_true(oldest[0] == TDM_TIME_NEVER && oldest[2] == TDM_TIME_NEVER);
    world_settled(&w);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        CASE(nothing_to_do_makes_no_plan),
        CASE(a_prompt_is_cut_into_slices_and_then_decodes),
        CASE(several_prompts_share_one_iteration),
        CASE(every_decode_is_in_every_plan),
        CASE(the_route_for_both_kinds_is_the_configured_one),
        CASE(the_time_limit_cuts_prefill_and_not_decodes),
        CASE(a_limit_under_a_power_cap_is_told_apart),
        CASE(the_tightest_class_sets_the_limit),
        CASE(decodes_over_the_limit_stop_prefill_until_it_starves),
        CASE(a_tiny_limit_without_decodes_still_moves),
        CASE(slices_are_bounded),
        CASE(a_light_tenant_is_not_behind_a_flood),
        CASE(weights_share_what_there_is),
        CASE(idleness_earns_no_claim),
        CASE(a_lost_deadline_goes_before_a_small_counter),
        CASE(slots_and_pages_are_named_when_they_run_out),
        CASE(a_large_request_is_not_overtaken_for_ever),
        CASE(less_work_goes_first),
        CASE(a_long_prompt_is_overtaken_within_its_patience),
        CASE(without_patience_prompts_go_in_order_of_arrival),
        CASE(a_slice_that_is_cut_ends_on_a_tile),
        CASE(an_ended_slot_is_closed_by_the_next_plan),
        CASE(depth_two_plans_ahead_of_unknown_tokens),
        CASE(a_deaf_api_tile_stops_planning_and_loses_nothing),
        CASE(the_longest_wait_is_told_by_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
