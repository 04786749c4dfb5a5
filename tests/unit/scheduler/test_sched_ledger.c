/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the KV ledger alone: no page is promised, held or written twice, a
   fence holds, shared pages are counted and given back, and a hash is never
   believed.  Method: few pages and slots, the ledger's own check. */

#include "scheduler/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

/* --- pages of one ------------------------------------------------------ */

static void a_promise_keeps_pages_from_others(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = tdm_kv_open(kv, 8);
    assert_int_equal(kv->free_cnt, PAGES);
    assert_int_equal(tdm_kv_can_open(kv, 5), 0);
    assert_int_equal(tdm_kv_can_open(kv, 4), 1);
    tdm_kv_cover(kv, a, 65);
    assert_int_equal(kv->slot[a].owned_cnt, 2);
    assert_int_equal(tdm_kv_can_open(kv, 5), 0);
    tdm_kv_retire(kv, a);
    assert_int_equal(tdm_kv_can_open(kv, 8), 1);
    assert_null(tdm_kv_check(kv));
}

static void a_fence_holds_until_its_iteration_is_done(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = tdm_kv_open(kv, 8);
    tdm_kv_cover(kv, a, 8 * TDM_KV_PAGE_TOKENS);
    kv->slot[a].last_iteration = 3;
    tdm_kv_done(kv, 2);
    tdm_kv_retire(kv, a);
    assert_int_equal(kv->slot[a].state, TDM_KV_SLOT_FENCED);
    assert_int_equal(kv->fenced_cnt, 8);
    assert_int_equal(tdm_kv_can_open(kv, 5), 0);
    assert_null(tdm_kv_check(kv));
    tdm_kv_done(kv, 3);
    assert_int_equal(kv->fenced_cnt, 0);
    assert_int_equal(kv->free_cnt, PAGES);
    assert_null(tdm_kv_check(kv));
}

static void an_epochs_end_drops_fences_and_forgets_grants(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = tdm_kv_open(kv, 4), b = tdm_kv_open(kv, 4);
    tdm_kv_cover(kv, a, 100);
    tdm_kv_cover(kv, b, 100);
    kv->slot[a].last_iteration = kv->slot[b].last_iteration = 7;
    kv->slot[a].is_open = kv->slot[b].is_open = 1;
    kv->slot[b].granted_cnt = 2;
    tdm_kv_retire(kv, a);
    assert_int_equal(kv->slot[a].must_close, 1);
    tdm_kv_epoch_end(kv, 7);
    assert_int_equal(kv->slot[a].state, TDM_KV_SLOT_FREE);
    assert_int_equal(kv->slot[a].must_close, 0);
    assert_int_equal(kv->slot[b].state, TDM_KV_SLOT_HELD);
    assert_int_equal(kv->slot[b].owned_cnt, 2);
    assert_int_equal(kv->slot[b].granted_cnt, 0);
    assert_null(tdm_kv_check(kv));
}

static void the_check_sees_pages_and_slots_miscounted(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = tdm_kv_open(kv, 4), b = tdm_kv_open(kv, 4);
    tdm_kv_cover(kv, a, 100);
    tdm_kv_cover(kv, b, 100);
    assert_null(tdm_kv_check(kv));
    kv->free_cnt--;
    assert_string_equal(tdm_kv_check(kv), "pages are not conserved");
    kv->free_cnt++;
    uint32_t page = kv->table[a * TABLE];
    kv->table[a * TABLE] = kv->table[b * TABLE];
    assert_string_equal(tdm_kv_check(kv), "a page is in a table that is not its owner's");
    kv->table[a * TABLE] = page;
    kv->promised_cnt++;
    assert_string_equal(tdm_kv_check(kv), "the promised count is wrong");
    kv->promised_cnt--;
    kv->fenced_cnt++;
    assert_string_equal(tdm_kv_check(kv), "the fenced count is wrong");
    kv->fenced_cnt--;
    kv->slot_free_cnt--;
    assert_string_equal(tdm_kv_check(kv), "slots are not conserved");
}

static void pages_round_up(void **state) {
    (void)state;
    assert_int_equal(tdm_kv_pages(0), 0);
    assert_int_equal(tdm_kv_pages(1), 1);
    assert_int_equal(tdm_kv_pages(64), 1);
    assert_int_equal(tdm_kv_pages(65), 2);
    assert_int_equal(tdm_kv_pages(UINT32_MAX), 1u << 26);
}

/* --- pages of several -------------------------------------------------- */

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

static void the_check_sees_shared_pages_miscounted(void **state) {
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

/* --- the check that a serving tile makes ------------------------------- */

/* some makes one round of looks at cnt pages and entries, from a place at any
   time; the first sentence, NULL: none. */
static const char *some(const tdm_kv_t *kv, tdm_kv_cursor_t *at, uint32_t cnt) {
    const char *wrong = NULL;
    for (uint32_t i = 0; !wrong && i < PAGES + SLOTS * (TABLE + 1u); i += cnt) {
        tdm_kv_cursor_t before = *at;
        wrong = tdm_kv_check_some(kv, at, cnt);
        /* so much and no more, whatever the pool's size */
        if (!wrong) assert_int_equal(at->page, (before.page + cnt) % PAGES);
    }
    return wrong;
}

/* One word of the ledger that is changed and put back. */
typedef struct plant {
    uint32_t *word, value;
    const char *sentence; /* NULL: one or another, by where the round begins */
} plant_t;

static void some_at_a_time_sees_what_the_whole_does(void **state) {
    (void)state;
    tdm_kv_t *kv = ledger();
    uint32_t a = compute(kv, 3, 1, 2), b = tdm_kv_open(kv, 2);
    tdm_kv_cover(kv, b, 100);
    uint32_t own = tdm_kv_page(kv, b, 0), shared = tdm_kv_page(kv, a, 0);
    tdm_kv_retire(kv, compute(kv, 2, 11, 2));
    tdm_kv_retire(kv, compute(kv, 2, 21, 1));
    uint32_t idle = kv->prefix.oldest, idler = kv->prefix.newest, *free_page = &kv->free[0];
    assert_true(kv->prefix.idle_cnt == 3 && kv->free_cnt > 1 && idle != idler);
    tdm_prefix_page_t *p = kv->prefix.page;
    uint32_t *chain = &kv->prefix.bucket[0];
    while (*chain == TDM_PREFIX_NONE) chain++;
    const plant_t plant[] = {
        {&kv->free_cnt, kv->free_cnt - 1u, "pages are not conserved"},
        {&kv->cached_cnt, kv->cached_cnt + 1u, "pages are not conserved"},
        {&kv->promised_cnt, kv->promised_cnt + 1u, "the promised count is wrong"},
        {&kv->fenced_cnt, 1u, "the fenced count is wrong"},
        {&kv->slot_free_cnt, 0u, "slots are not conserved"},
        {&kv->close_cnt, 1u, "the slots to close are miscounted"},
        {&kv->slot[a].owned_cnt, TABLE + 1u, "a page table is over its length"},
        {&kv->slot[a].shared_cnt, 1u, "pages are not conserved"},
        {&kv->slot[a].shared_cnt, TABLE, "a slot's shared pages are miscounted"},
        {&kv->slot[b].granted_cnt, TABLE, "more pages granted than owned"},
        {&kv->table[b * TABLE], kv->free[1], "a page is in a table that is not its owner's"},
        {&kv->table[b * TABLE + 1u], PAGES, "a page number is outside the pool"},
        {&kv->owner[own], a, "a page is in a table that is not its owner's"},
        {&kv->owner[own], SLOTS, NULL},
        {&kv->owner[own], TDM_KV_SHARED, NULL},
        {&kv->owner[shared], TDM_KV_NONE, NULL},
        {&kv->owner[*free_page], b, "a free page has an owner"},
        {free_page, own, "a free page has an owner"},
        {free_page, PAGES, "a free page has an owner"},
        {&p[shared].ref, 0u, "a page in no table is not idle"},
        {&p[idle].ref, 1u, "a page in no table is not idle"},
        {&p[idle].is_idle, 0u, "a page in no table is not idle"},
        {&p[idle].older, idle, "the idle pages are no list"},
        {&p[idle].newer, PAGES, "the idle pages are no list"},
        {&p[idler].newer, idle, "the idle pages are no list"},
        {&kv->prefix.oldest, idler, "the idle pages are no list"},
        {&kv->prefix.newest, idle, "the idle pages are no list"},
        {chain, TDM_PREFIX_NONE, "a page is in a wrong bucket"},
        {chain, PAGES, "a page is in a wrong bucket"},
    };
    for (uint32_t cnt = 1; cnt <= 5; cnt++)
        for (uint32_t start = 0; start < PAGES; start += 5) {
            tdm_kv_cursor_t at = {.page = start, .slot = start % SLOTS, .entry = start % TABLE};
            assert_null(some(kv, &at, cnt));
            for (uint32_t i = 0; i < TDM_COUNT_OF(plant); i++) {
                uint32_t was = *plant[i].word;
                *plant[i].word = plant[i].value;
                const char *whole = tdm_kv_check(kv), *part = some(kv, &at, cnt);
                const char *want = plant[i].sentence;
                if (!whole || !part || (want && strcmp(part, want) != 0))
                    fail_msg("plant %u by %u: %s; %s, not %s", i, cnt, whole ? whole : "-",
                             part ? part : "-", want ? want : "any");
                *plant[i].word = was;
            }
            assert_null(some(kv, &at, cnt));
        }
    p[shared].serial = kv->prefix.serial + 1u;
    tdm_kv_cursor_t at = {0};
    assert_string_equal(some(kv, &at, 3), "a serial was given twice");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_promise_keeps_pages_from_others),
        cmocka_unit_test(a_fence_holds_until_its_iteration_is_done),
        cmocka_unit_test(an_epochs_end_drops_fences_and_forgets_grants),
        cmocka_unit_test(the_check_sees_pages_and_slots_miscounted),
        cmocka_unit_test(pages_round_up),
        cmocka_unit_test(a_page_is_found_by_tenant_parent_and_every_token),
        cmocka_unit_test(an_equal_hash_alone_is_no_hit),
        cmocka_unit_test(shared_pages_are_counted_and_outlive_their_slot),
        cmocka_unit_test(a_twin_keeps_its_own_page_and_goes_on_under_the_first),
        cmocka_unit_test(idle_pages_are_free_for_all_and_the_oldest_goes_first),
        cmocka_unit_test(a_match_uses_up_no_one_elses_promise),
        cmocka_unit_test(doubt_and_death_forget_and_a_child_of_the_gone_matches_nothing),
        cmocka_unit_test(a_fence_holds_shared_pages_too),
        cmocka_unit_test(the_check_sees_shared_pages_miscounted),
        cmocka_unit_test(some_at_a_time_sees_what_the_whole_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
