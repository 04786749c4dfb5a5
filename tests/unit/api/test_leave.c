/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every slot comes back and every exchange ends once, whoever leaves
   when, and whatever is said about the past. */
#include "tests/unit/api/rig.h"

typedef enum moment {
    BEFORE_ARRIVAL, /* the hang-up is in its lane before the arrival is taken */
    QUEUED,         /* submitted, no verdict */
    ACCEPTED,
    IN_DECODE,
    FULL_PIPE,
    STOP_HIT,
    ENDED_UNREAD, /* END came, the pipe is full */
    ALL_DONE,
    MOMENT_CNT
} moment_t;

/* bring takes a fresh request to a moment; its request, NULL where none. */
static const tdm_request_t *bring(rig_t *r, rig_exchange_t **e, moment_t moment, int is_stream) {
    char body[128];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stream\":%s,\"stop\":\"##\"}",
                   is_stream ? "true" : "false");
    *e = rig_exchange_fresh(r, 0);
    strcpy((*e)->x.path, COMP);
    rig_body(*e, body, strlen(body));
    rig_push(r, *e);
    if (moment == BEFORE_ARRIVAL) return NULL;
    (*e)->is_stuck = moment == FULL_PIPE || moment == ENDED_UNREAD;
    rig_poll(r);
    const tdm_request_t *q = rig_submitted(r);
    if (moment == QUEUED) return q;
    rig_accept(r, q);
    rig_settle(r);
    if (moment == ACCEPTED) return q;
    uint32_t cnt = moment == FULL_PIPE || moment == ENDED_UNREAD ? 400 : 3;
    for (uint32_t i = 0; i < cnt; i++) rig_token(r, q, 'a' + (int32_t)(i % 26), i);
    rig_settle(r);
    if (moment == STOP_HIT) {
        rig_token(r, q, '#', 3);
        rig_token(r, q, '#', 4);
        rig_settle(r);
    }
    if (moment == ENDED_UNREAD || moment == ALL_DONE) {
        rig_end(r, q, TDM_FINISH_STOP, cnt);
        rig_settle(r);
    }
    return q;
}

/* Tokens that the scheduler has sent by then. */
static const uint32_t sent_by[MOMENT_CNT] = {
    [IN_DECODE] = 3, [FULL_PIPE] = 400, [STOP_HIT] = 5, [ENDED_UNREAD] = 400, [ALL_DONE] = 3};

static void leave_at(moment_t moment, int is_stream) {
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = NULL;
    const tdm_request_t *q = bring(&r, &e, moment, is_stream);
    tdm_handle_t handle = q ? q->handle : (tdm_handle_t){0};
    int was_over = e->end_cnt > 0;
    rig_hang_up(&r, e);
    rig_hang_up(&r, e); /* twice is once */
    rig_settle(&r);
    assert_int_equal(e->end_cnt, 1);
    assert_true(was_over || (e->flags & TDM_EGRESS_ABORT));
    assert_true(e->flags & TDM_EGRESS_BODY_DONE);
    assert_int_equal(
        rig_count(&r, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_client_gone)),
        !was_over);
    int is_live = moment > BEFORE_ARRIVAL && moment < ENDED_UNREAD;
    if (moment == QUEUED) { /* CANCEL must not overtake the submit */
        rig_check_controls(&r, q, 0, 0);
        rig_accept(&r, q);
        rig_settle(&r);
    }
    if (is_live) {
        assert_int_equal(tdm_api_tile_open_cnt(r.tile), 1); /* the slot waits for END */
        rig_check_controls(&r, q, moment == STOP_HIT, 1);
        rig_token(&r, q, 'z', sent_by[moment]);
        rig_end(&r, q, TDM_FINISH_CANCELLED, 9);
        rig_settle(&r);
    }
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    assert_int_equal(r.vitals.pending_cnt, 0);
    assert_int_equal(rig_count(&r, TDM_METRIC_api_prompt_bytes, 0), 0);
    assert_true(!is_live ||
                rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_cancelled) == 1);
    if (moment != BEFORE_ARRIVAL)
        assert_int_equal(
            rig_outcomes(&r, TDM_LABEL_API_openai_completions, TDM_LABEL_OUTCOME_cancelled) +
                rig_outcomes(&r, TDM_LABEL_API_openai_completions, TDM_LABEL_OUTCOME_stop),
            1);
    /* words about the past change nothing */
    uint64_t stale = tdm_api_tile_stats(r.tile)->stale_cnt;
    if (q) {
        tdm_request_t old = {.handle = handle};
        rig_token(&r, &old, 'z', 0);
        rig_end(&r, &old, TDM_FINISH_STOP, 0);
        rig_settle(&r);
        assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, stale + 2);
    }
    e = rig_post(&r, COMP, "{\"prompt\":\"ok\"}");
    rig_serve(&r, rig_submitted(&r), "k", TDM_FINISH_STOP);
    assert_int_equal(e->x.head.status, 200);
    rig_stop(&r);
}

static void leaving_at_any_moment_frees_everything(void **state) {
    (void)state;
    for (int m = 0; m < MOMENT_CNT; m++) {
        leave_at((moment_t)m, 0);
        leave_at((moment_t)m, 1);
    }
}

/* outlast takes a request to a moment at which the appliance ends what still
   runs: its client is told, and nothing is left. */
static void outlast(moment_t moment, int is_stream) {
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = NULL;
    const tdm_request_t *q = bring(&r, &e, moment, is_stream);
    int is_live = moment < ENDED_UNREAD;
    r.vitals.refusal = TDM_REFUSE_draining;
    r.vitals.is_over = 1;
    rig_settle(&r);
    if (moment == QUEUED) {
        rig_check_controls(&r, q, 0, 0); /* CANCEL must not overtake the submit */
        rig_accept(&r, q);
        rig_settle(&r);
    }
    if (is_live) {
        rig_check_controls(&r, q, moment == STOP_HIT, 1);
        rig_end(&r, q, TDM_FINISH_CANCELLED, sent_by[moment]);
    }
    e->is_stuck = 0;
    rig_settle(&r);
    assert_int_equal(e->end_cnt, 1);
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    if (!is_live || moment == STOP_HIT) {
        assert_int_equal(e->x.head.status, 200);
        assert_non_null(strstr(e->text, "\"finish_reason\":\"stop\""));
    } else if (is_stream) {
        assert_int_equal(e->x.head.status, 200);
        assert_true(e->flags & TDM_EGRESS_FAILED);
        assert_non_null(
            strstr(e->text, "data: {\"error\":{\"message\":\"this appliance is stopping"));
        assert_non_null(strstr(e->text, "\"code\":\"draining\"}}\n\ndata: [DONE]\n\n"));
    } else {
        rig_check_error(e, TDM_REFUSE_draining, NULL);
    }
    rig_stop(&r);
}

static void who_outlasts_a_drain_is_told(void **state) {
    (void)state;
    for (int m = QUEUED; m < MOMENT_CNT; m++) {
        outlast((moment_t)m, 0);
        outlast((moment_t)m, 1);
    }
}

static void a_hang_up_of_another_generation_is_stale(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    tdm_hangup_t old = {.generation = e->x.handle.generation - 1, .slot = e->x.handle.slot};
    assert_true(tdm_ring_push(&r.hangups, 0, &old));
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 1);
    assert_int_equal(tdm_api_tile_stats(r.tile)->hangup_cnt, 0);
    rig_serve(&r, rig_submitted(&r), "x", TDM_FINISH_STOP);
    assert_int_equal(e->x.head.status, 200);
    /* an arrival that does not match its exchange */
    tdm_arrival_t a = {.exchange = &e->x, .generation = e->x.handle.generation + 1};
    assert_true(tdm_ring_push(&r.arrivals, 0, &a));
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 2);
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

/* One slot for all: what comes late for its last owner is not for the
   next one, nor is a hang-up that crossed an END. */
static void a_reused_slot_hears_nothing_of_its_past(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.request_max = 1;
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    tdm_request_t old = *rig_submitted(&r);
    tdm_hangup_t crossed = {.generation = e->x.handle.generation, .slot = e->x.handle.slot};
    rig_serve(&r, &old, "x", TDM_FINISH_STOP);
    for (uint32_t i = 1; i < RIG_SLOT_CNT; i++) (void)rig_exchange_fresh(&r, 0);
    e = rig_post(&r, COMP, "{\"prompt\":\"b\"}");
    assert_int_equal(e->x.handle.slot, crossed.slot);
    const tdm_request_t *q = rig_submitted(&r);
    assert_int_equal(q->handle.slot, old.handle.slot);
    rig_refuse(&r, &old, TDM_REFUSE_kv_full, 0);
    rig_accept(&r, q);
    rig_token(&r, &old, 'z', 0);
    rig_end(&r, &old, TDM_FINISH_ERROR, 0);
    assert_true(tdm_ring_push(&r.hangups, 0, &crossed));
    rig_tokens(&r, q, "yes", 0);
    rig_end(&r, q, TDM_FINISH_STOP, 3);
    rig_settle(&r);
    assert_int_equal(e->x.head.status, 200);
    assert_non_null(strstr(e->text, "\"text\":\"yes\""));
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 4);
    rig_stop(&r);
}

/* The scheduler contradicts itself: counted, nothing breaks. */
static void events_out_of_turn_are_stale(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\",\"max_tokens\":2}");
    const tdm_request_t *q = rig_submitted(&r);
    rig_token(&r, q, 'x', 0); /* before the verdict */
    rig_end(&r, q, TDM_FINISH_STOP, 0);
    rig_accept(&r, q);
    rig_accept(&r, q); /* twice */
    rig_refuse(&r, q, TDM_REFUSE_kv_full, 0);
    tdm_request_t nowhere = {.handle = {.slot = 999, .generation = 1}};
    rig_token(&r, &nowhere, 'x', 0);
    rig_token(&r, q, 'y', 1); /* a gap */
    rig_token(&r, q, 512, 0); /* no such id */
    rig_token(&r, q, -1, 0);
    rig_tokens(&r, q, "ab", 0);
    rig_token(&r, q, 'c', 2); /* over output_max */
    rig_end(&r, q, TDM_FINISH_LENGTH, 2);
    rig_settle(&r);
    assert_int_equal(tdm_api_tile_stats(r.tile)->stale_cnt, 5);
    assert_int_equal(rig_count(&r, TDM_METRIC_tokens_discarded_total, TDM_LABEL_DISCARD_stale), 6);
    assert_non_null(strstr(e->text, "\"text\":\"ab\""));
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaving_at_any_moment_frees_everything),
        cmocka_unit_test(who_outlasts_a_drain_is_told),
        cmocka_unit_test(a_hang_up_of_another_generation_is_stale),
        cmocka_unit_test(a_reused_slot_hears_nothing_of_its_past),
        cmocka_unit_test(events_out_of_turn_are_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
