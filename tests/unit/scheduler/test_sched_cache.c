/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what was computed once is not computed again for the same tenant,
   whoever asks for it and whatever came between; pages are shared, counted
   and given back; a hash is never believed.
   Method: the ledger alone, then worlds whose executor knows the tokens
   behind every page. */

#include "appliance/base/clock.h"
#include "scheduler/kv.h"
#include "scheduler/tape.h"
#include "tests/sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- the ledger ------------------------------------------------------------ */

#define PAGES   12u
#define SLOTS   4u
#define TABLE   8u
#define BUCKETS 4u /* few: chains are walked */

static struct {
    tdm_kv_t kv;
    uint32_t free[PAGES], owner[PAGES], table[SLOTS * TABLE], slot_free[SLOTS];
    tdm_kv_slot_t slot[SLOTS];
    tdm_kv_chain_t chain[SLOTS];
    uint32_t bucket[BUCKETS];
    tdm_prefix_page_t page[PAGES];
    int32_t token[PAGES * TDM_KV_PAGE_TOKENS];
} l;

static tdm_kv_t *ledger(void) {
    static const uint64_t key[2] = {7, 9};
    memset(&l, 0, sizeof l);
    l.kv = (tdm_kv_t){.page_cnt = PAGES,
                      .slot_cnt = SLOTS,
                      .table_max = TABLE,
                      .free = l.free,
                      .owner = l.owner,
                      .table = l.table,
                      .slot_free = l.slot_free,
                      .slot = l.slot,
                      .chain = l.chain,
                      .prefix = {.page_cnt = PAGES,
                                 .bucket_cnt = BUCKETS,
                                 .bucket = l.bucket,
                                 .page = l.page,
                                 .token = l.token}};
    tdm_kv_init(&l.kv, key);
    return &l.kv;
}

/* text gives 64 tokens that depend on which alone. */
static const int32_t *text(int32_t which) {
    static int32_t token[TDM_KV_PAGE_TOKENS];
    for (int32_t i = 0; i < TDM_KV_PAGE_TOKENS; i++) token[i] = which * 1000 + i;
    return token;
}

/* compute opens a slot, fills and lists pages of texts first, first + 1 ... */
static uint32_t compute(tdm_kv_t *kv, uint32_t need, int32_t first, uint32_t cnt) {
    uint32_t slot = tdm_kv_open(kv, need);
    tdm_kv_cover(kv, slot, cnt * TDM_KV_PAGE_TOKENS);
    for (uint32_t i = 0; i < cnt; i++) tdm_kv_list(kv, slot, 0, text(first + (int32_t)i));
    assert_null(tdm_kv_check(kv));
    return slot;
}

static void a_page_is_found_by_tenant_parent_and_every_token(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    compute(kv, 2, 1, 2);
    uint64_t root = TDM_PREFIX_ROOT, first = kv->chain[0].serial - 1u;
    assert_int_not_equal(tdm_prefix_find(&kv->prefix, 0, root, text(1)), TDM_PREFIX_NONE);
    assert_int_not_equal(tdm_prefix_find(&kv->prefix, 0, first, text(2)), TDM_PREFIX_NONE);
    assert_int_equal(tdm_prefix_find(&kv->prefix, 1, root, text(1)), TDM_PREFIX_NONE);
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, root, text(2)), TDM_PREFIX_NONE);
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, first, text(1)), TDM_PREFIX_NONE);
    for (uint32_t i = 0; i < TDM_KV_PAGE_TOKENS; i++) {
        int32_t other[TDM_KV_PAGE_TOKENS];
        memcpy(other, text(1), sizeof other);
        other[i]++;
        assert_int_equal(tdm_prefix_find(&kv->prefix, 0, root, other), TDM_PREFIX_NONE);
    }
}

static void an_equal_hash_alone_is_no_hit(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t slot = compute(kv, 1, 1, 1);
    uint32_t page = tdm_kv_page(kv, slot, 0);
    l.token[page * TDM_KV_PAGE_TOKENS + 63u]++; /* as if another text had this hash */
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, TDM_PREFIX_ROOT, text(1)), TDM_PREFIX_NONE);
    l.token[page * TDM_KV_PAGE_TOKENS + 63u]--;
    kv->prefix.page[page].parent++;
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, TDM_PREFIX_ROOT, text(1)), TDM_PREFIX_NONE);
    kv->prefix.page[page].parent--;
    kv->prefix.page[page].tenant++;
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, TDM_PREFIX_ROOT, text(1)), TDM_PREFIX_NONE);
    kv->prefix.page[page].tenant--;
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, TDM_PREFIX_ROOT, text(1)), page);
}

static void shared_pages_are_counted_and_outlive_their_slot(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 3, 1, 2), b = tdm_kv_open(kv, 4);
    assert_true(tdm_kv_match(kv, b, 0, text(1)) && tdm_kv_match(kv, b, 0, text(2)));
    assert_int_equal(tdm_kv_match(kv, b, 0, text(3)), 0);
    assert_int_equal(tdm_kv_page(kv, b, 1), tdm_kv_page(kv, a, 1));
    assert_int_equal(kv->slot[b].filled_cnt, 2);
    assert_int_equal(kv->slot[b].promised_cnt, 2);
    assert_int_equal(kv->prefix.page[tdm_kv_page(kv, a, 0)].ref, 2);
    assert_null(tdm_kv_check(kv));
    tdm_kv_retire(kv, a);
    assert_int_equal(kv->prefix.idle_cnt, 0);
    assert_null(tdm_kv_check(kv));
    tdm_kv_retire(kv, b);
    assert_int_equal(kv->prefix.idle_cnt, 2);
    assert_int_equal(tdm_kv_spare(kv), PAGES);
    assert_null(tdm_kv_check(kv));
}

static void a_twin_keeps_its_own_page_and_goes_on_under_the_first(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 2, 1, 1), b = compute(kv, 2, 1, 2);
    assert_int_not_equal(tdm_kv_page(kv, a, 0), tdm_kv_page(kv, b, 0));
    assert_int_equal(kv->slot[b].shared_cnt, 1);
    tdm_kv_retire(kv, a);
    tdm_kv_retire(kv, b);
    uint32_t c = tdm_kv_open(kv, 3);
    assert_true(tdm_kv_match(kv, c, 0, text(1)) && tdm_kv_match(kv, c, 0, text(2)));
    assert_null(tdm_kv_check(kv));
}

static void idle_pages_are_free_for_all_and_the_oldest_goes_first(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    tdm_kv_retire(kv, compute(kv, 4, 1, 4));
    tdm_kv_retire(kv, compute(kv, 4, 11, 4));
    assert_int_equal(kv->prefix.idle_cnt, 8);
    assert_true(tdm_kv_can_open(kv, PAGES));
    uint32_t a = tdm_kv_open(kv, 6);
    tdm_kv_cover(kv, a, 6 * TDM_KV_PAGE_TOKENS); /* four were free: two more */
    assert_int_equal(kv->prefix.evicted_cnt, 2);
    assert_null(tdm_kv_check(kv));
    uint32_t b = tdm_kv_open(kv, 6); /* the ends of the older text went, its start is there */
    assert_true(tdm_kv_match(kv, b, 0, text(1)) && tdm_kv_match(kv, b, 0, text(2)));
    assert_int_equal(tdm_kv_match(kv, b, 0, text(3)), 0);
    assert_null(tdm_kv_check(kv));
    tdm_kv_cover(kv, b, 6 * TDM_KV_PAGE_TOKENS);
    assert_int_equal(tdm_kv_spare(kv), 0);
    assert_null(tdm_kv_check(kv));
}

static void a_match_uses_up_no_one_elses_promise(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    tdm_kv_retire(kv, compute(kv, 4, 1, 4));
    uint32_t a = tdm_kv_open(kv, 8), b = tdm_kv_open(kv, 4);
    for (int32_t i = 1; i <= 4; i++) (void)tdm_kv_match(kv, b, 0, text(i));
    assert_null(tdm_kv_check(kv));
    tdm_kv_cover(kv, a, 8 * TDM_KV_PAGE_TOKENS);
    assert_int_equal(kv->prefix.evicted_cnt, 0);
    assert_null(tdm_kv_check(kv));
}

static void doubt_and_death_forget_and_a_child_of_the_gone_matches_nothing(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 3, 1, 3);
    tdm_kv_doubt(kv, a);
    assert_null(tdm_kv_check(kv));
    assert_int_equal(tdm_prefix_find(&kv->prefix, 0, TDM_PREFIX_ROOT, text(1)), TDM_PREFIX_NONE);
    tdm_kv_retire(kv, a);
    assert_int_equal(kv->free_cnt, PAGES);
    a = compute(kv, 3, 1, 3);
    uint32_t first = tdm_kv_page(kv, a, 0);
    tdm_kv_retire(kv, a);
    (void)tdm_prefix_forget(&kv->prefix, first); /* its children stay behind, */
    kv->owner[first] = TDM_KV_NONE;
    kv->free[kv->free_cnt++] = first;
    kv->cached_cnt--;
    a = compute(kv, 3, 1, 1); /* and are not those of the same text computed again */
    tdm_kv_retire(kv, a);
    a = tdm_kv_open(kv, 3);
    assert_int_equal(tdm_kv_match(kv, a, 0, text(1)), 1);
    assert_int_equal(tdm_kv_match(kv, a, 0, text(2)), 0);
    tdm_kv_retire(kv, a);
    tdm_kv_epoch_end(kv, 1);
    assert_int_equal(kv->free_cnt, PAGES);
    assert_int_equal(kv->cached_cnt, 0);
    assert_null(tdm_kv_check(kv));
}

static void a_fence_holds_shared_pages_too(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 3, 1, 2);
    kv->slot[a].last_iteration = 5;
    tdm_kv_retire(kv, a);
    assert_int_equal(kv->prefix.idle_cnt, 0);
    assert_int_equal(tdm_kv_spare(kv), PAGES - 2u);
    assert_null(tdm_kv_check(kv));
    tdm_kv_done(kv, 5);
    assert_int_equal(kv->prefix.idle_cnt, 2);
    assert_null(tdm_kv_check(kv));
}

static void the_check_sees_each_kind_of_damage(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 3, 1, 2), page = tdm_kv_page(kv, a, 0);
    tdm_kv_retire(kv, compute(kv, 2, 11, 2));
    assert_null(tdm_kv_check(kv));
    kv->prefix.page[page].ref++;
    assert_string_equal(tdm_kv_check(kv), "a shared page is not counted by as many as hold it");
    kv->prefix.page[page].ref--;
    kv->slot[a].shared_cnt--;
    assert_string_equal(tdm_kv_check(kv), "a slot's shared pages are miscounted");
    kv->slot[a].shared_cnt++;
    kv->cached_cnt--;
    assert_string_equal(tdm_kv_check(kv), "the cached pages are miscounted");
    kv->cached_cnt++;
    kv->prefix.idle_cnt++;
    assert_string_equal(tdm_kv_check(kv), "the idle pages are miscounted");
    kv->prefix.idle_cnt--;
    kv->prefix.listed_cnt++;
    assert_string_equal(tdm_kv_check(kv), "the cached pages are miscounted");
    kv->prefix.listed_cnt--;
    kv->prefix.page[kv->prefix.oldest].is_idle = 0;
    assert_string_equal(tdm_kv_check(kv), "a page in no table is not idle");
    kv->prefix.page[kv->prefix.oldest].is_idle = 1;
    assert_null(tdm_kv_check(kv));
}

static void a_tape_gives_every_row_once(void **state) {
    (void)state;
    static uint32_t free_row[4];
    static int32_t token[4 * 8];
    tdm_tape_t t = {.row_cnt = 4, .row_sz = 8, .free = free_row, .token = token};
    tdm_tape_init(&t);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t row = tdm_tape_take(&t);
        *tdm_tape_at(&t, row, 7) = (int32_t)row;
        seen |= 1u << row;
    }
    assert_int_equal(seen, 15);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(*tdm_tape_at(&t, i, 7), i);
    tdm_tape_give(&t, 2);
    assert_int_equal(tdm_tape_take(&t), 2);
}

/* --- worlds ---------------------------------------------------------------- */

static world_t w;

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

static int teardown(void **state) {
    (void)state;
    world_close(&w);
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
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_found_by_tenant_parent_and_every_token),
        cmocka_unit_test(an_equal_hash_alone_is_no_hit),
        cmocka_unit_test(shared_pages_are_counted_and_outlive_their_slot),
        cmocka_unit_test(a_twin_keeps_its_own_page_and_goes_on_under_the_first),
        cmocka_unit_test(idle_pages_are_free_for_all_and_the_oldest_goes_first),
        cmocka_unit_test(a_match_uses_up_no_one_elses_promise),
        cmocka_unit_test(doubt_and_death_forget_and_a_child_of_the_gone_matches_nothing),
        cmocka_unit_test(a_fence_holds_shared_pages_too),
        cmocka_unit_test(the_check_sees_each_kind_of_damage),
        cmocka_unit_test(a_tape_gives_every_row_once),
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
