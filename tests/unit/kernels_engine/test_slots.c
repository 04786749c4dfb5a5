/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a plan that contradicts itself, the config or the slots is
   refused and changes nothing.  Method: one legal plan after a legal
   history, and one test per wrong number; then random damage to every
   word of the plan under the sanitizers. */
#include "kernels/engine/slots.h"

#include "appliance/abi/reasons.h"
#include "appliance/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const tdm_slots_config_t config = {.seq_max = 8,
                                          .token_max = 300,
                                          .context_max = 200,
                                          .kv_page_cnt = 20,
                                          .vocab = 100,
                                          .variant_cnt = 1};

static tdm_slots_t *slots;
static uint64_t slots_sz;
static tdm_plan_t *plan;

static tdm_sampling_t plain(void) {
    return (tdm_sampling_t){.top_p = 1.0f, .repetition_penalty = 1.0f};
}

static void clear(void) {
    memset(plan, 0, sizeof *plan);
}

static void add_open(uint32_t slot, uint32_t prompt_cnt) {
    plan->open[plan->open_cnt++] =
        (tdm_plan_open_t){.slot = slot, .prompt_cnt = prompt_cnt, .sampling = plain()};
}

static void add_grant(uint32_t slot, uint32_t page) {
    plan->grant[plan->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = plan->page_cnt, .page_cnt = 1};
    plan->page[plan->page_cnt++] = page;
}

static void add_slice(uint32_t slot, uint32_t pos, uint32_t cnt, uint32_t is_last) {
    plan->slice[plan->slice_cnt++] = (tdm_plan_slice_t){
        .slot = slot, .pos = pos, .cnt = cnt, .token_off = plan->token_cnt, .is_last = is_last};
    for (uint32_t i = 0; i < cnt; i++)
        plan->token[plan->token_cnt++] = (int32_t)((pos + i) % config.vocab);
}

static void add_decode(uint32_t slot, uint32_t pos) {
    plan->decode[plan->decode_cnt++] = (tdm_plan_decode_t){.slot = slot, .pos = pos};
}

static void accept(void) {
    tdm_error_t err = {0};
    if (tdm_slots_check(slots, plan, &err) != TDM_OK) fail_msg("refused: %s", err.text);
}

static void refuse(const char *word) {
    tdm_error_t err = {0};
    assert_int_equal(tdm_slots_check(slots, plan, &err), TDM_ERR_CORRUPT);
    if (!strstr(err.text, word)) fail_msg("wanted \"%s\" in: %s", word, err.text);
}

/* legal: slot 1 decodes, slot 2 goes on with its prompt, slot 4 opens,
   slot 3 closes. */
static void legal(void) {
    clear();
    plan->route = TDM_ROUTE_FUSED;
    plan->close[plan->close_cnt++] = 3;
    add_open(4, 10);
    add_grant(4, 9);
    add_grant(2, 7);
    add_slice(2, 64, 20, 0);
    add_slice(4, 0, 10, 1);
    add_decode(1, 5);
}

/* finish ends the iteration of the plan; token: what each slot draws. */
static void finish(const int32_t *token) {
    for (uint32_t i = 0; i < plan->slice_cnt; i++) {
        const tdm_plan_slice_t *c = &plan->slice[i];
        if (c->is_last) tdm_slots_draw(slots, c->slot, c->pos + c->cnt, token[c->slot]);
        if (c->is_last) tdm_slots_sampled(slots, c->slot, c->pos + c->cnt, token[c->slot]);
        tdm_slots_done(slots, c->slot, c->pos, c->cnt);
    }
    for (uint32_t i = 0; i < plan->decode_cnt; i++) {
        const tdm_plan_decode_t *d = &plan->decode[i];
        tdm_slots_draw(slots, d->slot, d->pos + 1, token[d->slot]);
        tdm_slots_sampled(slots, d->slot, d->pos + 1, token[d->slot]);
        tdm_slots_done(slots, d->slot, d->pos, 1);
    }
}

static int setup(void **state) {
    (void)state;
    slots_sz = tdm_slots_footprint(&config);
    void *mem = aligned_alloc(64, slots_sz);
    plan = malloc(sizeof *plan);
    assert_non_null(mem);
    assert_non_null(plan);
    memset(mem, 0, slots_sz);
    slots = tdm_slots_init(mem, &config);
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(1, 5);
    add_open(2, 150);
    add_open(3, 1);
    add_grant(1, 0);
    add_grant(2, 1);
    add_grant(3, 2);
    add_slice(1, 0, 5, 1);
    add_slice(2, 0, 64, 0);
    add_slice(3, 0, 1, 1);
    accept();
    tdm_slots_apply(slots, plan);
    finish((const int32_t[]){[1] = 42, [3] = -1});
    legal();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(slots);
    free(plan);
    return 0;
}

static void a_legal_plan_is_applied(void **state) {
    (void)state;
    accept();
    tdm_slots_apply(slots, plan);
    assert_int_equal(tdm_slots_stride(slots), 4);
    assert_int_equal(tdm_slots_pages(slots)[2 * 4 + 0], 1);
    assert_int_equal(tdm_slots_pages(slots)[2 * 4 + 1], 7);
    assert_int_equal(tdm_slots_at(slots, 2)->next_pos, 84);
    assert_int_equal(tdm_slots_at(slots, 3)->is_open, 0);
    assert_int_equal(tdm_slots_at(slots, 4)->next_pos, 10);
    assert_int_equal(tdm_slots_at(slots, 1)->next_pos, 6);
    assert_int_equal(tdm_slots_history(slots, 1)[5], 42);
    assert_int_equal(tdm_slots_history(slots, 2)[70], 70);
    finish((const int32_t[]){[1] = 43, [4] = 44});
    assert_int_equal(tdm_slots_history(slots, 1)[6], 43);
}

static void a_check_changes_nothing(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) accept(); /* again and again */
    add_decode(2, 84);
    refuse("twice");
    plan->decode_cnt--;
    accept();
}

static void reopened_slots_start_empty(void **state) {
    (void)state;
    clear();
    plan->close[plan->close_cnt++] = 1;
    add_open(1, 3);
    add_grant(1, 11);
    add_slice(1, 0, 3, 1);
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    accept();
    tdm_slots_apply(slots, plan);
    assert_int_equal(tdm_slots_at(slots, 1)->page_cnt, 1);
    assert_int_equal(tdm_slots_pages(slots)[4], 11);
    assert_int_equal(tdm_slots_at(slots, 1)->token_cnt, 3);
}

static void counts_are_bounded(void **state) {
    (void)state;
    uint32_t *const count[] = {&plan->close_cnt, &plan->open_cnt,  &plan->grant_cnt,
                               &plan->page_cnt,  &plan->slice_cnt, &plan->token_cnt,
                               &plan->decode_cnt};
    for (size_t i = 0; i < TDM_COUNT_OF(count); i++) {
        uint32_t kept = *count[i];
        *count[i] = UINT32_MAX;
        refuse("_cnt");
        *count[i] = TDM_PLAN_PAGE_MAX + 1;
        refuse("_cnt");
        *count[i] = kept;
    }
    plan->token_cnt = config.token_max + 1;
    refuse("token_cnt");
}

static void route_and_contents_agree(void **state) {
    (void)state;
    for (uint32_t route = 0; route < TDM_ROUTE_CNT; route++) {
        plan->route = route;
        if (route >= TDM_ROUTE_FUSED) {
            accept();
        } else {
            refuse("route");
        }
    }
    plan->route = TDM_ROUTE_CNT;
    refuse("route");
    plan->decode_cnt = 0;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    accept();
    plan->route = TDM_ROUTE_FUSED;
    refuse("route");
}

static void variant_and_reason_are_known(void **state) {
    (void)state;
    plan->variant = 1;
    refuse("variant");
    plan->variant = 0;
    plan->reason = TDM_FALLBACK_not_profitable;
    accept();
    plan->reason = TDM_REFUSE_auth;
    refuse("fallback");
    plan->reason = UINT32_MAX;
    refuse("fallback");
}

static void slots_open_and_close_once(void **state) {
    (void)state;
    plan->close[0] = 8;
    refuse("closes");
    plan->close[0] = UINT32_MAX;
    refuse("closes");
    plan->close[0] = 6;
    refuse("closes");
    plan->close[0] = 3;
    plan->close[plan->close_cnt++] = 3;
    refuse("closes");
    legal();
    plan->open[0].slot = 2;
    refuse("opens");
    plan->open[0].slot = 8;
    refuse("opens");
    plan->open[0].slot = UINT32_MAX;
    refuse("opens");
    legal();
    add_open(4, 10);
    refuse("opens");
}

static void prompts_and_sampling_are_in_range(void **state) {
    (void)state;
    plan->open[0].prompt_cnt = 0;
    refuse("prompt");
    plan->open[0].prompt_cnt = config.context_max + 1;
    refuse("prompt");
    plan->open[0].prompt_cnt = 11; /* is_last comes a token too early */
    refuse("ends its prompt");
    plan->open[0].prompt_cnt = 10;
    plan->open[0].sampling.temperature = NAN;
    refuse("temperature");
    plan->open[0].sampling = plain();
    plan->open[0].sampling.stop_cnt = 1;
    plan->open[0].sampling.stop_id[0] = 100;
    refuse("stop_id");
}

static void grants_stay_inside(void **state) {
    (void)state;
    plan->grant[0].slot = 6;
    refuse("grants");
    plan->grant[0].slot = UINT32_MAX;
    refuse("grants");
    legal();
    plan->grant[0].page_off = 3;
    refuse("grant [");
    plan->grant[0].page_off = UINT32_MAX;
    refuse("grant [");
    legal();
    plan->grant[0].page_cnt = UINT32_MAX;
    refuse("grant [");
    legal();
    plan->page[0] = config.kv_page_cnt;
    refuse("page 20");
    legal();
    for (uint32_t i = 0; i < 4; i++) add_grant(4, 10 + i); /* five of four */
    refuse("pages");
}

static void inputs_are_contiguous(void **state) {
    (void)state;
    plan->slice[0].pos = 63;
    refuse("position");
    plan->slice[0].pos = 65;
    refuse("position");
    plan->slice[0].pos = UINT32_MAX;
    refuse("position");
    legal();
    plan->decode[0].pos = 4;
    refuse("position");
    plan->decode[0].pos = 6;
    refuse("position");
    plan->decode[0] = (tdm_plan_decode_t){.slot = 5, .pos = 0};
    refuse("not open");
    plan->decode[0].slot = UINT32_MAX;
    refuse("not open");
    plan->decode[0] = (tdm_plan_decode_t){.slot = 3, .pos = 1}; /* closed by this plan */
    refuse("not open");
    plan->decode[0] = (tdm_plan_decode_t){.slot = 4, .pos = 0};
    refuse("twice");
}

static void decodes_need_a_known_token(void **state) {
    (void)state;
    clear();
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_grant(2, 7);
    add_decode(2, 64); /* its prompt goes on: nothing was sampled */
    refuse("unknown");
}

static void a_poisoned_slot_may_still_be_decoded(void **state) {
    (void)state;
    /* The plan was built before the scheduler saw the NaN. */
    clear();
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_decode(3, 1);
    accept();
}

static void inputs_stay_inside_pages_and_context(void **state) {
    (void)state;
    plan->grant[1].page_cnt = 0;
    refuse("pages");
    legal();
    plan->slice[0].cnt = 0;
    refuse("empty");
    plan->slice[0].cnt = UINT32_MAX;
    refuse("slice [");
    legal();
    plan->slice[0].token_off = 15;
    refuse("slice [");
    plan->slice[0].token_off = UINT32_MAX;
    refuse("slice [");
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    for (uint32_t i = 0; i < 3; i++) add_grant(2, 5 + i);
    add_slice(2, 64, 137, 1); /* 201 of 200 */
    refuse("context");
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    for (uint32_t i = 0; i < 3; i++) add_grant(2, 5 + i);
    add_slice(2, 64, 136, 1); /* the last position there is */
    accept();
}

/* Two slices that name the same tokens would be more rows than there is
   room for. */
static void slices_share_no_tokens(void **state) {
    (void)state;
    legal();
    plan->slice[1].token_off = 0;
    plan->slice[1].cnt = 10;
    plan->slice[0].cnt = 21; /* with the other's 10 more than the 30 */
    refuse("more than its 30 tokens");
    plan->slice[0].cnt = 20;
    accept();
}

static void tokens_are_in_the_vocabulary(void **state) {
    (void)state;
    plan->token[3] = 100;
    refuse("vocabulary");
    plan->token[3] = -1;
    refuse("vocabulary");
    plan->token[3] = 99;
    accept();
    plan->slice[1].is_last = 2;
    refuse("ends its prompt");
}

static void pages_have_one_writer(void **state) {
    (void)state;
    plan->page[0] = 7; /* slot 4 and slot 2 write page 7 */
    refuse("twice");
    plan->page[0] = 0; /* slot 4 and slot 1, which had it before */
    refuse("twice");
    plan->page[0] = 1; /* slot 2's first page, full: shared to read */
    accept();
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_grant(2, 8);
    add_grant(2, 8); /* one slot, the same page twice */
    add_slice(2, 64, 70, 0);
    refuse("twice");
}

/* damaged: whatever is wrong, check answers and never reads outside. */
static void random_damage_is_answered(void **state) {
    (void)state;
    tdm_rng_t rng = {2024};
    uint32_t refused = 0;
    for (int round = 0; round < 20000; round++) {
        legal();
        uint32_t hit = 1 + tdm_rng_below(&rng, 3);
        for (uint32_t i = 0; i < hit; i++) {
            static const struct {
                size_t off, cnt;
            } region[] = {{offsetof(tdm_plan_t, route), 3},  {offsetof(tdm_plan_t, close_cnt), 7},
                          {offsetof(tdm_plan_t, close), 2},  {offsetof(tdm_plan_t, open), 16},
                          {offsetof(tdm_plan_t, grant), 9},  {offsetof(tdm_plan_t, page), 3},
                          {offsetof(tdm_plan_t, slice), 10}, {offsetof(tdm_plan_t, token), 30},
                          {offsetof(tdm_plan_t, decode), 3}};
            uint32_t value = (uint32_t)(tdm_rng_next(&rng) >> 32) >> tdm_rng_below(&rng, 32);
            uint32_t r = tdm_rng_below(&rng, TDM_COUNT_OF(region));
            size_t word = tdm_rng_below(&rng, (uint32_t)region[r].cnt);
            memcpy((uint8_t *)plan + region[r].off + 4 * word, &value, sizeof value);
        }
        tdm_error_t err = {0};
        int is_refused = tdm_slots_check(slots, plan, &err) == TDM_ERR_CORRUPT;
        uint64_t rows = 0;
        for (uint32_t i = 0; !is_refused && i < plan->slice_cnt; i++) rows += plan->slice[i].cnt;
        assert_true(rows <= config.token_max);
        refused += (uint32_t)is_refused;
    }
    assert_in_range(refused, 10000, 20000);
    legal();
    accept();
    a_legal_plan_is_applied(state);
}

/* Slots 1 and 4 sample in the plan under way, slot 2 does not: the next
   plan's decodes may count on the first two. */
static void a_plan_may_follow_one_under_way(void **state) {
    (void)state;
    tdm_slots_apply(slots, plan);
    assert_int_equal(tdm_slots_at(slots, 4)->token_cnt, 10);
    assert_int_equal(tdm_slots_at(slots, 4)->due_cnt, 11);
    clear();
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_decode(1, 6);
    add_decode(4, 10);
    accept();
    add_decode(2, 84);
    refuse("unknown");
    plan->decode_cnt--;
    add_decode(4, 11);
    refuse("twice");
    plan->decode_cnt--;
    plan->decode[1].pos = 11; /* two ahead of what is known */
    refuse("position");
    plan->decode[1].pos = 10;
    tdm_slots_apply(slots, plan);
    assert_int_equal(tdm_slots_at(slots, 4)->token_cnt, 10);
    assert_int_equal(tdm_slots_at(slots, 4)->due_cnt, 12);
}

static void a_slot_under_way_may_be_closed_and_is_opened_when_done(void **state) {
    (void)state;
    tdm_plan_t *first = malloc(sizeof *first), *second = plan;
    assert_non_null(first);
    memcpy(first, plan, sizeof *first);
    tdm_slots_apply(slots, plan);
    clear();
    plan->route = TDM_ROUTE_IDLE;
    plan->close[plan->close_cnt++] = 1;
    accept();
    tdm_slots_apply(slots, plan);
    clear();
    plan->route = TDM_ROUTE_IDLE;
    add_open(1, 3);
    refuse("under way");
    plan = first;
    finish((const int32_t[]){[1] = 43, [4] = 44});
    plan = second;
    accept();
    tdm_slots_apply(slots, plan);
    assert_int_equal(tdm_slots_at(slots, 1)->busy_cnt, 0);
    free(first);
}

/* open_on opens slot 4 with 100 tokens, the first 64 of them in a page that
   is filled. */
static void open_on(uint32_t page) {
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(4, 100);
    plan->open[0].filled_cnt = 64;
    add_grant(4, page);
    add_grant(4, 9);
    plan->grant[0].page_cnt = 2;
    plan->grant_cnt = 1;
    add_slice(4, 64, 36, 1);
    accept();
    tdm_slots_apply(slots, plan);
}

/* The 64th token of a page is drawn while the plan that runs on it is
   checked: whoever opens on the page later has it in its history. */
static void a_page_keeps_the_tokens_drawn_ahead(void **state) {
    (void)state;
    tdm_plan_t *plans = malloc(2 * sizeof *plans), *mine = plan;
    assert_non_null(plans);
    for (uint32_t i = 0; i < 2; i++) {
        plan = &plans[i];
        clear();
        plan->route = i ? TDM_ROUTE_DECODE_ONLY : TDM_ROUTE_PREFILL_ONLY;
        if (i == 0) add_open(5, 63);
        if (i == 0) add_grant(5, 10);
        if (i == 0) add_slice(5, 0, 63, 1);
        if (i == 1) add_decode(5, 63);
        accept();
        tdm_slots_apply(slots, plan);
    }
    for (uint32_t i = 0; i < 2; i++) {
        plan = &plans[i];
        finish((const int32_t[]){[5] = 70 + (int32_t)i});
    }
    plan = mine;
    open_on(10);
    assert_int_equal(tdm_slots_history(slots, 4)[63], 70);
    free(plans);
}

/* Slot 2 has computed 64 tokens into page 1; slot 4 opens on them. */
static void a_slot_opens_on_filled_pages_with_their_tokens(void **state) {
    (void)state;
    open_on(1);
    assert_int_equal(tdm_slots_at(slots, 4)->next_pos, 100);
    assert_memory_equal(tdm_slots_history(slots, 4), tdm_slots_history(slots, 2),
                        64 * sizeof(int32_t));
    assert_int_equal(tdm_slots_pages(slots)[4 * tdm_slots_stride(slots)], 1);
}

static void filled_tokens_are_whole_pages_and_where_inputs_begin(void **state) {
    (void)state;
    clear();
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(4, 100);
    add_grant(4, 9);
    add_slice(4, 0, 10, 0);
    plan->open[0].filled_cnt = 63;
    refuse("filled");
    plan->open[0].filled_cnt = UINT32_MAX - 63u;
    refuse("filled");
    plan->open[0].filled_cnt = 64;
    refuse("position 0, expected 64");
    plan->slice[0].pos = 64;
    refuse("past its 1 pages");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define FACT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        FACT(a_legal_plan_is_applied),
        FACT(a_plan_may_follow_one_under_way),
        FACT(a_slot_under_way_may_be_closed_and_is_opened_when_done),
        FACT(a_page_keeps_the_tokens_drawn_ahead),
        FACT(a_check_changes_nothing),
        FACT(reopened_slots_start_empty),
        FACT(a_slot_opens_on_filled_pages_with_their_tokens),
        FACT(filled_tokens_are_whole_pages_and_where_inputs_begin),
        FACT(counts_are_bounded),
        FACT(route_and_contents_agree),
        FACT(variant_and_reason_are_known),
        FACT(slots_open_and_close_once),
        FACT(prompts_and_sampling_are_in_range),
        FACT(grants_stay_inside),
        FACT(inputs_are_contiguous),
        FACT(decodes_need_a_known_token),
        FACT(a_poisoned_slot_may_still_be_decoded),
        FACT(inputs_stay_inside_pages_and_context),
        FACT(slices_share_no_tokens),
        FACT(tokens_are_in_the_vocabulary),
        FACT(pages_have_one_writer),
        FACT(random_damage_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
