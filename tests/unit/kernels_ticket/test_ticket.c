/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every item is handed out exactly once, nobody waits, the counters
   reset themselves, and both kinds meet on every SM.
   Method: all interleavings of small launches at the grain of a draw, by
   depth-first search over who draws next; then real threads (the
   ThreadSanitizer build runs them too). */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/ticket/ticket.h"

#define SM_MAX   8
#define ITEM_MAX 4096

typedef struct launch {
    tdm_ticket_t ticket;
    tdm_ticket_line_t drawn[SM_MAX];
    tdm_ticket_deal_t deal;
    uint32_t sm_cnt;
} launch_t;

static void check_all_zero(const launch_t *l) {
    assert_int_equal(l->ticket.next[TDM_KIND_PREFILL].value, 0);
    assert_int_equal(l->ticket.next[TDM_KIND_DECODE].value, 0);
    assert_int_equal(l->ticket.gone.value, 0);
    for (uint32_t i = 0; i < SM_MAX; i++) assert_int_equal(l->drawn[i].value, 0);
}

/* Explores every order in which the SMs still present may draw. */
static uint64_t explore(const launch_t *before, const uint8_t seen_before[TDM_KIND_CNT][8],
                        uint32_t gone_mask) {
    uint64_t end_cnt = 0;
    for (uint32_t sm = 0; sm < before->sm_cnt; sm++) {
        if (gone_mask & (1u << sm)) continue;
        launch_t next = *before;
        uint8_t seen[TDM_KIND_CNT][8];
        memcpy(seen, seen_before, sizeof seen);
        uint32_t index = 0;
        uint32_t kind = tdm_ticket_draw(&next.ticket, &next.deal, &next.drawn[sm], sm, &index);
        if (kind != TDM_TICKET_NONE) {
            assert_true(index < before->deal.item_cnt[kind]);
            assert_int_equal(seen[kind][index], 0);
            seen[kind][index] = 1;
            end_cnt += explore(&next, seen, gone_mask);
            continue;
        }
        int is_last = tdm_ticket_leave(&next.ticket, next.drawn, next.sm_cnt, next.sm_cnt);
        uint32_t gone = gone_mask | (1u << sm);
        assert_int_equal(is_last, gone == (1u << before->sm_cnt) - 1);
        for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
            for (uint32_t i = 0; i < before->deal.item_cnt[k]; i++) assert_int_equal(seen[k][i], 1);
        }
        if (is_last) {
            check_all_zero(&next);
            end_cnt++;
            continue;
        }
        end_cnt += explore(&next, seen, gone);
    }
    return end_cnt;
}

static void every_order_of_draws_hands_out_each_item_once(void **state) {
    (void)state;
    const uint8_t none[TDM_KIND_CNT][8] = {{0}};
    for (uint32_t sm_cnt = 1; sm_cnt <= 3; sm_cnt++) {
        for (uint32_t p = 0; p <= 3; p++) {
            for (uint32_t d = 0; d <= 3; d++) {
                for (uint32_t policy = 0; policy <= TDM_TICKET_EVEN; policy++) {
                    launch_t l = {.deal = {.item_cnt = {p, d}, .policy = policy}, .sm_cnt = sm_cnt};
                    assert_true(explore(&l, none, 0) > 0);
                }
            }
        }
    }
}

static void turns_follow_the_ratio_of_what_is_left(void **state) {
    (void)state;
    for (uint32_t p = 0; p <= 12; p++) {
        for (uint32_t d = 0; d <= 12; d++) {
            if (p + d == 0) continue;
            for (uint32_t start = 0; start < 30; start++) {
                uint32_t prefill = 0;
                for (uint32_t t = start; t < start + p + d; t++) {
                    prefill +=
                        tdm_ticket_kind(t, p, d, TDM_TICKET_PROPORTIONAL) == TDM_KIND_PREFILL;
                }
                assert_int_equal(prefill, p);
            }
        }
    }
    /* Evenly spread: of 1 : 3, never two prefill turns in a row. */
    for (uint32_t t = 0; t < 100; t++) {
        assert_false(tdm_ticket_kind(t, 5, 15, TDM_TICKET_PROPORTIONAL) == TDM_KIND_PREFILL &&
                     tdm_ticket_kind(t + 1, 5, 15, TDM_TICKET_PROPORTIONAL) == TDM_KIND_PREFILL);
    }
    assert_int_equal(tdm_ticket_kind(UINT32_MAX, INT32_MAX, 1, TDM_TICKET_PROPORTIONAL),
                     TDM_KIND_PREFILL);
}

static void both_kinds_meet_on_every_sm(void **state) {
    (void)state;
    launch_t l = {.deal = {.item_cnt = {40, 40}}, .sm_cnt = 4};
    uint32_t cnt[4][TDM_KIND_CNT] = {{0}};
    for (uint32_t i = 0; i < 80; i++) {
        uint32_t sm = i % 4;
        uint32_t index;
        uint32_t kind = tdm_ticket_draw(&l.ticket, &l.deal, &l.drawn[sm], sm, &index);
        cnt[sm][kind]++;
    }
    for (uint32_t sm = 0; sm < 4; sm++) {
        assert_in_range(cnt[sm][TDM_KIND_PREFILL], 8, 12);
        assert_in_range(cnt[sm][TDM_KIND_DECODE], 8, 12);
    }
}

static void a_finished_kind_does_not_grow_its_counter(void **state) {
    (void)state;
    launch_t l = {.deal = {.item_cnt = {0, 1000}}, .sm_cnt = 1};
    uint32_t index;
    while (tdm_ticket_draw(&l.ticket, &l.deal, &l.drawn[0], 0, &index) != TDM_TICKET_NONE) {
    }
    assert_int_equal(l.ticket.next[TDM_KIND_PREFILL].value, 0);
    assert_int_equal(l.ticket.next[TDM_KIND_DECODE].value, 1000);
}

typedef struct race {
    launch_t launch;
    uint32_t seen[TDM_KIND_CNT][ITEM_MAX];
    uint32_t last_cnt;
    pthread_barrier_t barrier;
} race_t;

typedef struct racer {
    race_t *race;
    uint32_t sm;
} racer_t;

#define ROUNDS 200

static void *race_main(void *arg) {
    racer_t *me = arg;
    race_t *r = me->race;
    launch_t *l = &r->launch;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&r->barrier);
        uint32_t index;
        uint32_t kind;
        while ((kind = tdm_ticket_draw(&l->ticket, &l->deal, &l->drawn[me->sm], me->sm, &index)) !=
               TDM_TICKET_NONE) {
            tdm_add_relaxed(&r->seen[kind][index], 1u);
        }
        if (tdm_ticket_leave(&l->ticket, l->drawn, SM_MAX, l->sm_cnt)) {
            tdm_add_relaxed(&r->last_cnt, 1u);
        }
    }
    return NULL;
}

static void threads_draw_each_item_once_and_leave_zeros(void **state) {
    (void)state;
    static race_t r;
    memset(&r, 0, sizeof r);
    r.launch.sm_cnt = 4;
    r.launch.deal = (tdm_ticket_deal_t){.item_cnt = {300, 701}};
    assert_int_equal(pthread_barrier_init(&r.barrier, NULL, 4), 0);
    pthread_t thread[4];
    racer_t racer[4];
    for (uint32_t i = 0; i < 4; i++) {
        racer[i] = (racer_t){.race = &r, .sm = i};
        assert_int_equal(pthread_create(&thread[i], NULL, race_main, &racer[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&r.barrier);
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        for (uint32_t i = 0; i < r.launch.deal.item_cnt[k]; i++) {
            assert_int_equal(r.seen[k][i], ROUNDS);
        }
        assert_int_equal(r.seen[k][r.launch.deal.item_cnt[k]], 0);
    }
    assert_int_equal(r.last_cnt, ROUNDS);
    check_all_zero(&r.launch);
}

static void roles_follow_the_shares_on_every_sm(void **state) {
    (void)state;
    tdm_ticket_line_t drawn[4];
    memset(drawn, 0, sizeof drawn);
    for (uint32_t sm = 0; sm < 4; sm++) { /* 1 : 1, two drawers of an SM: one of each kind */
        uint32_t first = tdm_ticket_role(&drawn[sm], sm, 1, 1);
        assert_int_equal(tdm_ticket_role(&drawn[sm], sm, 1, 1), first ^ 1u);
    }
    uint32_t prefill = 0; /* 3 : 1, of eight drawers six are prefill */
    memset(drawn, 0, sizeof drawn);
    for (uint32_t i = 0; i < 8; i++) {
        prefill += tdm_ticket_role(&drawn[i / 2], i / 2, 3, 1) == TDM_KIND_PREFILL;
    }
    assert_true(prefill >= 5 && prefill <= 7);
    prefill = 0;
    drawn[0].value = 0;
    for (uint32_t i = 0; i < 8; i++) {
        prefill += tdm_ticket_role(&drawn[0], 0, 3, 1) == TDM_KIND_PREFILL;
    }
    assert_int_equal(prefill, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_draws_hands_out_each_item_once),
        cmocka_unit_test(turns_follow_the_ratio_of_what_is_left),
        cmocka_unit_test(both_kinds_meet_on_every_sm),
        cmocka_unit_test(roles_follow_the_shares_on_every_sm),
        cmocka_unit_test(a_finished_kind_does_not_grow_its_counter),
        cmocka_unit_test(threads_draw_each_item_once_and_leave_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
