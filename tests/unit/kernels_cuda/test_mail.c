/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whoever sees a mail's number sees all of the mail, and a mail of an
   earlier step is not taken for this one's (kernels/cuda/mail.h, G1 and C1).
   Method: a thread plays the device, which writes tokens and times and then
   the number, one step at a time; run under ThreadSanitizer too. */
#include "kernels/cuda/mail.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define STEPS 500u
#define WANTS 8u
#define BOXES 2u

typedef struct desk {
    tdm_mail_t mail[BOXES];
    tdm_step_drawn_t drawn[BOXES][WANTS];
    uint64_t sent; /* the host's word to the device: the step that may run */
} desk_t;

static desk_t desk;

static uint32_t box_cnt;

static void *device(void *arg) {
    (void)arg;
    for (uint64_t seq = 1; seq <= STEPS; seq++) {
        while (tdm_load_acquire(&desk.sent) < seq) (void)sched_yield();
        uint64_t box = seq % box_cnt;
        for (uint32_t i = 0; i < WANTS; i++)
            desk.drawn[box][i] = (tdm_step_drawn_t){.token = (int32_t)(seq * WANTS + i)};
        desk.mail[box].start_ns = 2 * seq;
        desk.mail[box].end_ns = 2 * seq + 1;
        tdm_store_release(&desk.mail[box].seq, seq); /* G1 */
    }
    return NULL;
}

static void read_mail(uint64_t seq) {
    uint64_t box = seq % box_cnt;
    while (!tdm_mail_is_here(&desk.mail[box], seq)) (void)sched_yield();
    assert_true(desk.mail[box].start_ns == 2 * seq && desk.mail[box].end_ns == 2 * seq + 1);
    for (uint32_t i = 0; i < WANTS; i++)
        assert_int_equal(desk.drawn[box][i].token, (int32_t)(seq * WANTS + i));
}

static void a_number_brings_all_of_its_mail(void **state) {
    (void)state;
    pthread_t thread;
    box_cnt = 1;
    memset(&desk, 0, sizeof desk);
    assert_int_equal(pthread_create(&thread, NULL, device, NULL), 0);
    for (uint64_t seq = 1; seq <= STEPS; seq++) {
        assert_false(tdm_mail_is_here(&desk.mail[0], seq));
        tdm_store_release(&desk.sent, seq);
        read_mail(seq);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Two steps are on their way: each brings its mail into a box of its own. */
static void two_boxes_hold_the_mail_of_two_steps(void **state) {
    (void)state;
    pthread_t thread;
    box_cnt = BOXES;
    memset(&desk, 0, sizeof desk);
    assert_int_equal(pthread_create(&thread, NULL, device, NULL), 0);
    tdm_store_release(&desk.sent, UINT64_C(1));
    for (uint64_t seq = 1; seq <= STEPS; seq++) {
        tdm_store_release(&desk.sent, TDM_MIN(seq + 1, (uint64_t)STEPS));
        read_mail(seq);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_number_brings_all_of_its_mail),
                                       cmocka_unit_test(two_boxes_hold_the_mail_of_two_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
