/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the nouns under the scheduler keep their promises alone: the
   transition table, the prediction, the queues, the tape, the
   configuration.  Method: each on small memory of its own. */

#include "appliance/base/rng.h"
#include "scheduler/config.h"
#include "scheduler/order.h"
#include "scheduler/predict.h"
#include "scheduler/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- seq --------------------------------------------------------------- */

static void only_the_drawn_arrows_exist(void **state) {
    (void)state;
    static const char *const drawn[] = {
        "free>waiting",   "waiting>prefill", "waiting>done",     "waiting>cancelled",
        "waiting>failed", "prefill>decode",  "prefill>done",     "prefill>cancelled",
        "prefill>failed", "prefill>waiting", "decode>waiting",   "decode>done",
        "decode>failed",  "done>free",       "decode>cancelled", "cancelled>free",
        "failed>free"};
    uint32_t cnt = 0;
    for (int a = 0; a < TDM_SEQ_STATE_CNT; a++)
        for (int b = 0; b < TDM_SEQ_STATE_CNT; b++) {
            char name[40] = "";
            strcat(strcat(strcat(name, tdm_seq_state_name((tdm_seq_state_t)a)), ">"),
                   tdm_seq_state_name((tdm_seq_state_t)b));
            int is_drawn = 0;
            for (size_t i = 0; i < TDM_COUNT_OF(drawn); i++) is_drawn |= !strcmp(drawn[i], name);
            assert_int_equal(tdm_seq_may((tdm_seq_state_t)a, (tdm_seq_state_t)b), is_drawn);
            cnt += (uint32_t)is_drawn;
        }
    assert_int_equal(cnt, TDM_COUNT_OF(drawn));
    assert_int_equal(tdm_seq_may((tdm_seq_state_t)99, TDM_SEQ_FREE), 0);
    assert_string_equal(tdm_seq_state_name((tdm_seq_state_t)99), "unknown");
}

/* --- predict ------------------------------------------------------------- */

static tdm_profile_t profile_of(double fixed, double token, double pair, double kv) {
    tdm_profile_t p = {.is_measured = 1};
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++)
        p.row[r] = (tdm_profile_row_t){fixed, token, pair, kv};
    return p;
}

static void pairs_count_each_query_with_its_keys(void **state) {
    (void)state;
    for (uint32_t pos = 0; pos < 20; pos++)
        for (uint32_t cnt = 0; cnt < 20; cnt++) {
            uint64_t slow = 0;
            for (uint32_t i = 0; i < cnt; i++) slow += pos + i + 1u;
            assert_true(tdm_predict_pairs(pos, cnt) == slow);
        }
}

static void the_correction_follows_the_machine_and_not_a_spike(void **state) {
    (void)state;
    tdm_predict_t p;
    tdm_profile_t profile = profile_of(1000, 0, 0, 0);
    tdm_predict_init(&p);
    tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 0, 5);
    tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 5, -1);
    assert_true(p.all.correction == 1.0);
    tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 100, 300);
    assert_true(p.all.correction == 3.0);
    for (int i = 0; i < 80; i++) tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 100, 50);
    assert_true(p.all.correction > 0.49 && p.all.correction < 0.52);
    tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 100, 100000);
    assert_true(p.all.correction > 0.55 && p.all.correction < 0.6);
    for (int i = 0; i < 200; i++)
        tdm_predict_learn(&p, &profile, TDM_ROUTE_FUSED, NULL, 1, INT64_MAX / 8);
    assert_true(p.all.correction <= 1024.0);
}

/* A machine that wakes is late at first, once or thrice: that is no scale. */
static void the_first_iterations_are_no_scale(void **state) {
    (void)state;
    tdm_profile_t profile = profile_of(1000, 0, 0, 0);
    tdm_load_t decode = {.decode_cnt = 1};
    for (uint32_t late = 1; late <= 3; late++) {
        tdm_predict_t p;
        tdm_predict_init(&p);
        for (uint32_t i = 0; i < TDM_PREDICT_WARM; i++)
            tdm_predict_learn(&p, &profile, TDM_ROUTE_DECODE_ONLY, NULL, 1000,
                              i < late ? 100000 - i : 990 + i);
        int64_t ns = tdm_predict_ns(&p, &profile, TDM_ROUTE_FUSED, &decode);
        assert_in_range(ns, 990, 1000);
    }
}

static void each_route_has_its_own_correction(void **state) {
    (void)state;
    tdm_predict_t p;
    tdm_profile_t profile = profile_of(1000, 0, 0, 0);
    tdm_load_t fill = {.prefill_cnt = 1}, decode = {.decode_cnt = 1};
    tdm_predict_init(&p);
    tdm_predict_learn(&p, &profile, TDM_ROUTE_PREFILL_ONLY, NULL, 1000, 500);
    assert_true(tdm_predict_ns(&p, &profile, TDM_ROUTE_FUSED, &decode) == 500);
    for (int i = 0; i < 50; i++)
        tdm_predict_learn(&p, &profile, TDM_ROUTE_DECODE_ONLY, NULL, 1000, 4000);
    assert_true(tdm_predict_ns(&p, &profile, TDM_ROUTE_FUSED, &decode) == 4000);
    assert_true(tdm_predict_ns(&p, &profile, TDM_ROUTE_FUSED, &fill) == 500);
}

static void routes_follow_from_what_is_present(void **state) {
    (void)state;
    tdm_load_t none = {0}, fill = {.prefill_cnt = 1}, decode = {.decode_cnt = 1},
               both = {.prefill_cnt = 1, .decode_cnt = 1};
    assert_int_equal(tdm_predict_route(&none, TDM_ROUTE_FUSED), TDM_ROUTE_IDLE);
    assert_int_equal(tdm_predict_route(&fill, TDM_ROUTE_FUSED), TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(tdm_predict_route(&decode, TDM_ROUTE_FUSED), TDM_ROUTE_DECODE_ONLY);
    assert_int_equal(tdm_predict_route(&both, TDM_ROUTE_SERIAL), TDM_ROUTE_SERIAL);
}

/* --- order --------------------------------------------------------------- */

static void prompts_have_eight_sizes(void **state) {
    (void)state;
    static const uint32_t want[][2] = {{1, 0},    {512, 0},   {513, 1},   {1024, 1},
                                       {1025, 2}, {16384, 5}, {32768, 6}, {32769, 7}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++)
        assert_int_equal(tdm_order_size(want[i][0], 512), want[i][1]);
    assert_int_equal(tdm_order_size(UINT32_MAX, 512), TDM_SIZE_CNT - 1);
    assert_int_equal(tdm_order_size(1, 0), 1);
    for (uint32_t size = 0; size < TDM_SIZE_CNT; size++) {
        uint32_t queue = tdm_queue_of(2, size, 5);
        assert_int_equal(tdm_queue_class(queue), 2);
        assert_int_equal(tdm_queue_is_short(queue), size == 0);
    }
}

static void who_has_more_to_do_is_due_later(void **state) {
    (void)state;
    tdm_seq_t q = {.accepted_ns = 1000, .fill_cnt = 100, .pos = 40};
    assert_true(tdm_order_due(&q, 0.0, 20.0) == 1000);
    assert_true(tdm_order_due(&q, 2.0, 20.0) == 1000 + 20 * 120);
    assert_true(tdm_order_due(&q, 2.0, 0.0) == 1000);
    assert_true(tdm_order_due(&q, 1e300, 1000.0) > 0);
    q.is_returned = 1; /* it keeps its place */
    assert_true(tdm_order_due(&q, 2.0, 20.0) == 1000);
}

static void queues_keep_order_and_tokens(void **state) {
    (void)state;
    tdm_order_t o;
    tdm_seq_t seq[6];
    uint32_t queue = tdm_queue_of(1, 0, 3);
    memset(seq, 0, sizeof seq);
    tdm_order_init(&o);
    for (uint32_t i = 0; i < 6; i++) {
        seq[i].order = i + 1;
        seq[i].queue = TDM_QUEUE_NONE;
        seq[i].state = TDM_SEQ_WAITING;
        seq[i].slot = TDM_SEQ_NONE;
        seq[i].fill_cnt = 100;
        tdm_order_append(&o, seq, i, queue);
    }
    assert_true(tdm_order_backlog(&o, 0) == 0);
    assert_true(tdm_order_backlog(&o, 1) == 600);
    tdm_order_remove(&o, seq, 3);
    tdm_order_remove(&o, seq, 1);
    seq[3].is_returned = seq[1].is_returned = 1;
    tdm_order_return(&o, seq, 3, queue);
    tdm_order_return(&o, seq, 1, queue);
    static const uint32_t want[] = {1, 3, 0, 2, 4, 5};
    uint32_t at = o.queue[queue].head;
    for (uint32_t i = 0; i < 6; i++, at = seq[at].next) assert_int_equal(at, want[i]);
    seq[1].slot = 0;
    tdm_order_settle(&o, seq, 1);
    assert_int_equal(tdm_order_first_waiting(&o, seq, queue), 3);
    seq[3].slot = 1;
    tdm_order_settle(&o, seq, 3);
    assert_int_equal(tdm_order_first_waiting(&o, seq, queue), 0);
    seq[0].slot = 2; /* the eldest comes last, and stands first */
    tdm_order_settle(&o, seq, 0);
    assert_int_equal(o.queue[queue].head, 0);
    assert_int_equal(seq[0].next, 1);
    tdm_order_advance(&o, seq, 3, 60);
    assert_true(tdm_order_backlog(&o, 3) == 540);
    assert_int_equal(tdm_seq_fill_left(&seq[3]), 40);
}

static void slack_shrinks_with_time_and_work(void **state) {
    (void)state;
    tdm_seq_t q = {.deadline_ns = 1000, .fill_cnt = 10};
    assert_true(tdm_order_slack(&q, 0, 50.0) == 500);
    assert_true(tdm_order_slack(&q, 600, 50.0) == -100);
    q.pos = 10;
    assert_true(tdm_order_slack(&q, 600, 50.0) == 400);
}

/* --- tape -------------------------------------------------------------- */

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

/* --- config --------------------------------------------------------------- */

static void the_default_is_valid_and_each_bad_value_is_named(void **state) {
    (void)state;
    tdm_sched_live_t live;
    tdm_error_t err = {0};
    tdm_sched_live_default(&live);
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_OK);
    live.token_max = TDM_PLAN_TOKEN_MAX + 1;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "token_max"));
    tdm_sched_live_default(&live);
    live.profile.row[TDM_ROUTE_FUSED].pair_ns = -1.0;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "pair_ns"));
    live.profile.row[TDM_ROUTE_FUSED].pair_ns = __builtin_nan("");
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_ERR_INVAL);
    tdm_sched_live_default(&live);
    live.class_of[3].gap_ns = 0;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "gap_ns"));
    /* the due time of a last token has its range too */
    live.class_of[3].gap_ns = INT64_MAX / 4;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_OK);
    live.class_of[3].burst_ns = 1;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "gap_ns"));
    live.class_of[3].gap_ns = INT64_MAX / 4 / TDM_CONTEXT_MAX;
    assert_int_equal(tdm_sched_live_check(&live, &err), TDM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_drawn_arrows_exist),
        cmocka_unit_test(pairs_count_each_query_with_its_keys),
        cmocka_unit_test(the_correction_follows_the_machine_and_not_a_spike),
        cmocka_unit_test(the_first_iterations_are_no_scale),
        cmocka_unit_test(each_route_has_its_own_correction),
        cmocka_unit_test(routes_follow_from_what_is_present),
        cmocka_unit_test(prompts_have_eight_sizes),
        cmocka_unit_test(who_has_more_to_do_is_due_later),
        cmocka_unit_test(queues_keep_order_and_tokens),
        cmocka_unit_test(slack_shrinks_with_time_and_work),
        cmocka_unit_test(a_tape_gives_every_row_once),
        cmocka_unit_test(the_default_is_valid_and_each_bad_value_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
