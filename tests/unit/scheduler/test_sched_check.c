/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a serving tile looks at, some at a time, finds what the walk
   over everything finds of sequences, queues and counts; of pages
   test_sched_ledger tells.  Method: one word of a world in the middle of its
   work is changed, found and put back. */

#include "scheduler/step_private.h"
#include "tests/unit/scheduler/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* round_of looks at everything once, cnt at a time. */
static const char *round_of(uint32_t cnt) {
    const char *wrong = NULL;
    uint32_t most = w.sched->seq_cnt + w.sched->sizes.page_cnt;
    for (uint32_t i = 0; !wrong && i < most; i += cnt)
        wrong = tdm_sched_check_some(w.sched, &w.looked, cnt);
    return wrong;
}

/* A word of 32 or of 8 bits, and its wrong value. */
typedef struct plant {
    uint32_t *word;
    uint8_t *byte;
    uint32_t value;
} plant_t;

static void some_at_a_time_sees_what_the_whole_does(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 40; i++) rig_ask(40, 30, i % 2);
    for (uint32_t i = 0; i < 5; i++) world_turn(&w);
    tdm_sched_t *s = w.sched;
    assert_true(s->waiting_cnt > 4 && s->running_cnt > 1);
    uint32_t run = s->slot_seq[0], head = 0, second;
    assert_int_not_equal(run, TDM_SEQ_NONE);
    while (head < s->seq_cnt &&
           !(s->seq[head].state == TDM_SEQ_WAITING && s->seq[head].next != TDM_SEQ_NONE))
        head++;
    second = s->seq[head].next;
    tdm_seq_t *q = &s->seq[second];
    tdm_queue_t *l = &s->queues.queue[q->queue];
    const plant_t plant[] = {
        {.word = &s->running_cnt, .value = s->running_cnt + 1u},
        {.word = &s->waiting_cnt, .value = s->waiting_cnt - 1u},
        {.word = &s->flight_cnt, .value = s->sizes.depth + 1u},
        {.word = &s->slot_seq[0], .value = TDM_SEQ_NONE},
        {.word = &s->slot_seq[0], .value = head},
        {.word = &s->by_request[(size_t)q->api * s->sizes.request_max + q->handle.slot],
         .value = run},
        {.word = &q->next, .value = TDM_SEQ_NONE},
        {.word = &q->next, .value = s->seq_cnt},
        {.word = &q->prev, .value = TDM_SEQ_NONE},
        {.word = &q->prev, .value = second},
        {.word = &l->tail, .value = TDM_SEQ_NONE},
        {.word = &l->head, .value = s->seq_cnt},
        {.word = &s->seq[run].pos, .value = UINT32_MAX / 2},
        {.word = &s->seq[run].out_cnt, .value = s->seq[run].output_max},
        {.byte = &s->seq[run].state, .value = TDM_SEQ_DONE},
        {.word = &s->outbox[0].head, .value = s->outbox[0].tail + s->outbox[0].mask + 2u},
    };
    for (uint32_t cnt = 1; cnt <= 16; cnt += 5)
        for (uint32_t i = 0; i < TDM_COUNT_OF(plant); i++) {
            const plant_t *p = &plant[i];
            uint32_t was = p->word ? *p->word : *p->byte;
            assert_null(tdm_sched_check(s));
            assert_null(round_of(cnt));
            if (p->word)
                *p->word = p->value;
            else
                *p->byte = (uint8_t)p->value;
            if (!round_of(cnt)) fail_msg("plant %u by %u is not seen", i, cnt);
            if (p->word)
                *p->word = was;
            else
                *p->byte = (uint8_t)was;
        }
    assert_true(world_run(&w, 4000));
    world_settled(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(some_at_a_time_sees_what_the_whole_does, rig_setup,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
