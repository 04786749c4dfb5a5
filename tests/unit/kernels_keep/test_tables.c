/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a device that hears deltas alone has, whenever an iteration runs, the
   page tables and sampling parameters that the engine's slots have.
   Method: 100,000 drawn plans, legal by tdm_slots_check; a model of the device
   takes entries and stale slots as a step brings them, from arrays full of
   noise; now and then many plans go by without a step, until the list of
   entries overflows.  Counted: the bytes of deltas against those of whole
   tables. */
#include "kernels/keep/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/engine/slots.h"
#include "kernels/include/kv.h"

#define SEQS    24u
#define CONTEXT (40u * TDM_KV_PAGE_TOKENS)
#define PAGES   4096u
#define PLANS   100000u

typedef struct world {
    tdm_tables_t t;
    tdm_slots_t *slots;
    tdm_plan_t plan;
    uint32_t stride;
    uint32_t table[SEQS * (CONTEXT / TDM_KV_PAGE_TOKENS)]; /* the device's */
    tdm_sampling_t sampling[SEQS];
    uint64_t steps, overflows, entries, states;
    tdm_rng_t rng;
} world_t;

/* What a step's kernels do. */
static void send(world_t *w, int is_state) {
    for (uint32_t i = 0; i < w->t.entry_cnt; i++) {
        assert_true(w->t.entry[i].at < TDM_COUNT_OF(w->table));
        w->table[w->t.entry[i].at] = w->t.entry[i].page;
    }
    w->entries += w->t.entry_cnt;
    for (uint32_t i = 0; is_state && i < w->t.stale_cnt; i++) {
        uint32_t slot = w->t.stale[i];
        w->sampling[slot] = tdm_slots_at(w->slots, slot)->sampling;
        w->states++;
    }
    tdm_tables_sent(&w->t, is_state);
}

static void overflow(void *ctx) {
    world_t *w = ctx;
    assert_int_equal(w->t.entry_cnt, TDM_PLAN_PAGE_MAX);
    w->overflows++;
    send(w, 0);
}

static void draw_sampling(tdm_sampling_t *s, tdm_rng_t *rng) {
    *s = (tdm_sampling_t){.seed = tdm_rng_next(rng),
                          .temperature = (float)tdm_rng_below(rng, 8) / 4.0f,
                          .top_p = 1.0f,
                          .repetition_penalty = 1.0f,
                          .top_k = (int32_t)tdm_rng_below(rng, 50),
                          .stop_cnt = 1};
    s->stop_id[0] = (int32_t)tdm_rng_below(rng, 300);
}

static void grant(world_t *w, uint32_t slot, uint32_t cnt) {
    tdm_plan_t *p = &w->plan;
    if (cnt == 0) return;
    p->grant[p->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = p->page_cnt, .page_cnt = cnt};
    for (uint32_t i = 0; i < cnt; i++) p->page[p->page_cnt++] = tdm_rng_below(&w->rng, PAGES);
}

/* Some slots close, some open, also one that closed in this plan, some grow. */
static void draw_plan(world_t *w) {
    tdm_plan_t *p = &w->plan;
    p->close_cnt = p->open_cnt = p->grant_cnt = p->page_cnt = 0;
    p->route = TDM_ROUTE_IDLE;
    p->iteration++;
    for (uint32_t slot = 0; slot < SEQS; slot++) {
        const tdm_slot_t *s = tdm_slots_at(w->slots, slot);
        uint32_t is_open = s->is_open, have = s->page_cnt;
        if (is_open && tdm_rng_below(&w->rng, 6) == 0) {
            p->close[p->close_cnt++] = slot;
            is_open = 0;
        }
        if (!is_open && tdm_rng_below(&w->rng, 3) == 0) {
            tdm_plan_open_t *o = &p->open[p->open_cnt++];
            *o = (tdm_plan_open_t){.slot = slot, .prompt_cnt = 1 + tdm_rng_below(&w->rng, 100)};
            draw_sampling(&o->sampling, &w->rng);
            is_open = 1;
            have = 0;
        }
        if (is_open && tdm_rng_below(&w->rng, 2))
            grant(w, slot, tdm_rng_below(&w->rng, TDM_MIN(w->stride - have, 9u) + 1));
    }
}

static void compare(const world_t *w) {
    for (uint32_t slot = 0; slot < SEQS; slot++) {
        const tdm_slot_t *s = tdm_slots_at(w->slots, slot);
        if (!s->is_open) continue;
        assert_memory_equal(w->table + slot * w->stride,
                            tdm_slots_pages(w->slots) + (uint64_t)slot * w->stride,
                            s->page_cnt * sizeof(uint32_t));
        assert_memory_equal(&w->sampling[slot], &s->sampling, sizeof s->sampling);
    }
}

static void deltas_come_to_the_whole(void **state) {
    (void)state;
    static world_t w;
    tdm_error_t err = {0};
    const tdm_slots_config_t config = {.seq_max = SEQS,
                                       .token_max = 64,
                                       .context_max = CONTEXT,
                                       .kv_page_cnt = PAGES,
                                       .vocab = 300,
                                       .variant_cnt = 1};
    uint64_t sz = (tdm_slots_footprint(&config) + 63) / 64 * 64;
    void *mem = aligned_alloc(64, sz);
    assert_non_null(mem);
    memset(mem, 0, sz);
    w.slots = tdm_slots_init(mem, &config);
    w.stride = tdm_slots_stride(w.slots);
    w.rng.state = 9;
    memset(w.table, 0xa5, sizeof w.table); /* a device's memory is noise */
    memset(w.sampling, 0xa5, sizeof w.sampling);
    assert_int_equal(SEQS * w.stride, TDM_COUNT_OF(w.table));
    tdm_tables_init(&w.t, w.stride);
    for (uint32_t n = 0; n < PLANS; n++) {
        draw_plan(&w);
        if (tdm_slots_check(w.slots, &w.plan, &err) != TDM_OK) fail_msg("%s", err.text);
        tdm_slots_apply(w.slots, &w.plan);
        tdm_tables_apply(&w.t, &w.plan, overflow, &w);
        int is_quiet = n / 2000 % 2; /* hardly any iteration for a while */
        if (tdm_rng_below(&w.rng, is_quiet ? 500 : 2)) continue;
        send(&w, 1);
        w.steps++;
        compare(&w);
    }
    assert_true(w.steps > PLANS / 8 && w.overflows > 0 && w.states > w.steps / 2);
    uint64_t whole = w.steps * SEQS * (w.stride * sizeof(uint32_t) + sizeof(tdm_sampling_t));
    uint64_t delta = w.entries * sizeof(tdm_table_entry_t) + w.states * sizeof(tdm_sampling_t);
    printf("  %u plans, %llu steps, %llu overflows: %llu bytes of deltas, %llu of whole tables\n",
           PLANS, (unsigned long long)w.steps, (unsigned long long)w.overflows,
           (unsigned long long)delta, (unsigned long long)whole);
    free(mem);
}

/* A slot that opens twice between two steps is told once, as it is last. */
static void a_slot_is_told_once(void **state) {
    (void)state;
    static tdm_tables_t t;
    static tdm_plan_t p;
    tdm_tables_init(&t, 10);
    p.open_cnt = 1;
    p.open[0].slot = 3;
    p.grant_cnt = 1;
    p.grant[0] = (tdm_plan_grant_t){.slot = 3, .page_cnt = 2};
    p.page[0] = 70;
    p.page[1] = 71;
    for (int i = 0; i < 3; i++) tdm_tables_apply(&t, &p, NULL, NULL);
    assert_int_equal(t.stale_cnt, 1);
    assert_int_equal(t.entry_cnt, 6);
    assert_int_equal(t.entry[5].at, 31);
    tdm_tables_sent(&t, 0);
    assert_int_equal(t.stale_cnt, 1);
    assert_int_equal(t.entry_cnt, 0);
    tdm_tables_sent(&t, 1);
    p.open_cnt = 0;
    tdm_tables_apply(&t, &p, NULL, NULL);
    assert_int_equal(t.stale_cnt, 0);
    assert_int_equal(t.entry[0].at, 32); /* behind the two that it has */
    p.open_cnt = 1;
    tdm_tables_apply(&t, &p, NULL, NULL);
    assert_int_equal(t.stale_cnt, 1);
    assert_int_equal(t.entry[2].at, 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deltas_come_to_the_whole),
        cmocka_unit_test(a_slot_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
