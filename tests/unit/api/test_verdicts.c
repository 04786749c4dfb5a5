/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the HTTP status waits for the verdict, full tables are answers, and
   readiness says what is true. */
#include "tests/unit/api/rig.h"

static void the_status_waits_for_the_verdict(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const struct {
        tdm_reason_t reason;
        uint32_t hint_ms;
        uint32_t retry_ms;
    } c[] = {{TDM_REFUSE_waiting_full, 250, 250},
             {TDM_REFUSE_kv_full, 0, 1000},
             {TDM_REFUSE_kv_never, 0, 0},
             {TDM_REFUSE_deadline_unreachable, 40, 40},
             {TDM_REFUSE_decode_over_budget, 0, 1000},
             {TDM_REFUSE_tenant_rate, 0, 1000},
             {TDM_REFUSE_executor_down, 0, 1000}};
    for (uint32_t i = 0; i < TDM_COUNT_OF(c); i++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            rig_exchange_t *e = rig_post(
                &r, COMP, is_stream ? "{\"prompt\":\"a\",\"stream\":true}" : "{\"prompt\":\"a\"}");
            rig_settle(&r);
            assert_int_equal(e->flags & TDM_EGRESS_HEAD, 0);
            assert_true(e->flags & TDM_EGRESS_BODY_DONE);
            rig_refuse(&r, rig_submitted(&r), c[i].reason, c[i].hint_ms);
            rig_settle(&r);
            assert_int_equal(e->x.head.status, tdm_reason_http(c[i].reason));
            assert_int_equal(e->x.head.retry_after_ms, c[i].retry_ms);
            assert_string_equal(rig_error_code(e), tdm_reason_name(c[i].reason));
            assert_int_equal(e->end_cnt, 1);
        }
    }
    assert_int_equal(tdm_api_tile_open_cnt(r.tile), 0);
    rig_stop(&r);
}

/* A reason that is none, or a group that is no refusal, is our own fault. */
static void a_verdict_without_a_reason_is_internal(void **state) {
    (void)state;
    static const tdm_reason_t reason[] = {TDM_REASON_NONE, TDM_FAULT_executor_exit, TDM_REASON_CNT};
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    for (uint32_t i = 0; i < TDM_COUNT_OF(reason); i++) {
        rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
        rig_refuse(&r, rig_submitted(&r), reason[i], 0);
        rig_settle(&r);
        assert_int_equal(e->x.head.status, 500);
        assert_string_equal(rig_error_code(e), tdm_reason_name(TDM_REFUSE_internal));
    }
    rig_stop(&r);
}

static void full_tables_and_rings_are_answers(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    r.config.request_max = 4;
    r.config.id_slab_sz = 3 * 4096; /* three requests */
    r.request_depth = 2;            /* lanes hold what they say */
    rig_start(&r);
    rig_exchange_t *e[4];
    const tdm_request_t *q[4] = {0};
    for (uint32_t i = 0; i < 2; i++) e[i] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(rig_error_code(e[2]), "queue_full");
    assert_int_equal(e[2]->x.head.status, 429);
    for (uint32_t i = 0; i < 2; i++) q[i] = rig_submitted(&r);
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    q[2] = rig_submitted(&r);
    e[3] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(rig_error_code(e[3]), "prompt_memory");
    assert_int_equal(rig_count(&r, TDM_METRIC_api_prompt_bytes, 0), 3 * 4096); /* full */
    for (uint32_t i = 0; i < 3; i++) rig_serve(&r, q[i], "x", TDM_FINISH_LENGTH);
    assert_int_equal(rig_count(&r, TDM_METRIC_api_prompt_bytes, 0), 0);
    rig_stop(&r);

    rig_default(&r);
    r.config.request_max = 2;
    rig_start(&r);
    for (uint32_t i = 0; i < 3; i++) e[i] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_string_equal(rig_error_code(e[2]), "request_slots");
    for (uint32_t i = 0; i < 2; i++) rig_serve(&r, rig_submitted(&r), "x", TDM_FINISH_LENGTH);
    e[2] = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    rig_serve(&r, rig_submitted(&r), "x", TDM_FINISH_LENGTH);
    assert_int_equal(e[2]->x.head.status, 200);
    rig_stop(&r);
}

static void starting_and_draining_refuse_generation(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    static const tdm_reason_t reason[] = {TDM_REFUSE_starting, TDM_REFUSE_draining};
    for (uint32_t i = 0; i < 2; i++) {
        r.vitals.refusal = reason[i];
        rig_exchange_t *e = rig_post(&r, COMP, "{\"prompt\":\"a\"}");
        assert_int_equal(e->x.head.status, 503);
        assert_string_equal(rig_error_code(e), tdm_reason_name(reason[i]));
        assert_int_equal(e->x.head.retry_after_ms, 1000);
        assert_int_equal(rig_get(&r, "/ready")->x.head.status, 503);
        assert_int_equal(rig_get(&r, "/health")->x.head.status, 200);
    }
    /* an executor restart: not ready, but requests wait for it */
    r.vitals.refusal = TDM_REFUSE_executor_down;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 503);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}");
    assert_non_null(rig_submit(&r));
    rig_stop(&r);
}

static void readiness_is_a_token_lately_or_nothing_pending(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    r.now_ns += 100 * TDM_NS_PER_S;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    const tdm_request_t *q = rig_submitted(&r);
    rig_accept(&r, q);
    rig_poll(&r);
    assert_int_equal(r.vitals.pending_cnt, 1);
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    r.now_ns += 11 * TDM_NS_PER_S;
    rig_exchange_t *e = rig_get(&r, "/ready");
    assert_int_equal(e->x.head.status, 503);
    assert_string_equal(e->text, "{\"status\":\"stalled\"}");
    rig_token(&r, q, 'x', 0);
    rig_poll(&r);
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    rig_end(&r, q, TDM_FINISH_STOP, 1);
    rig_poll(&r);
    assert_int_equal(r.vitals.pending_cnt, 0);
    r.now_ns += 11 * TDM_NS_PER_S;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    rig_stop(&r);
}

static void a_port_that_sends_nothing_is_not_ready(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    r.vitals.is_port_stuck = 1;
    rig_exchange_t *e = rig_get(&r, "/ready");
    assert_int_equal(e->x.head.status, 503);
    assert_string_equal(e->text, "{\"status\":\"port_stuck\"}");
    assert_int_equal(rig_get(&r, "/health")->x.head.status, 200);
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\"}"); /* the other door still serves */
    assert_non_null(rig_submit(&r));
    r.vitals.is_port_stuck = 0;
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    rig_stop(&r);
}

/* A probe that is taken in the poll that accepts the first request after a
   long silence. */
static void readiness_does_not_blame_a_request_just_accepted(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    r.now_ns += 100 * TDM_NS_PER_S;
    (void)rig_post(&r, COMP, "{\"prompt\":\"a\",\"stream\":true}");
    rig_accept(&r, rig_submitted(&r));
    assert_int_equal(rig_get(&r, "/ready")->x.head.status, 200);
    assert_int_equal(r.vitals.pending_cnt, 1);
    rig_stop(&r);
}

/* A request whose bytes came after the turn's clock was read. */
static void one_that_came_within_the_turn_took_no_negative_time(void **state) {
    (void)state;
    rig_t r;
    rig_default(&r);
    rig_start(&r);
    rig_exchange_t *e = rig_exchange_fresh(&r, 0);
    (void)snprintf(e->x.path, sizeof e->x.path, COMP);
    rig_body(e, "{\"prompt\":\"a\"}", 14);
    e->x.first_byte_ns = r.now_ns + 5000;
    e->x.arrival_ns = r.now_ns + 7000;
    rig_push(&r, e);
    rig_poll(&r); /* a microsecond later */
    (void)rig_submitted(&r);
    uint32_t fault = tdm_label_reason(TDM_FAULT_clock_backwards);
    assert_int_equal(rig_count(&r, TDM_METRIC_faults_total, fault), 0);
    uint64_t cnt = 0;
    const uint64_t *w =
        tdm_block_word(r.block, TDM_METRIC_ingest_seconds, TDM_LABEL_API_openai_completions);
    for (uint32_t b = 0; b <= tdm_metric_row[TDM_METRIC_ingest_seconds].bound_cnt; b++) cnt += w[b];
    assert_int_equal(cnt, 1);
    assert_int_equal(w[tdm_metric_row[TDM_METRIC_ingest_seconds].bound_cnt + 1], 2000);
    rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_status_waits_for_the_verdict),
        cmocka_unit_test(a_verdict_without_a_reason_is_internal),
        cmocka_unit_test(full_tables_and_rings_are_answers),
        cmocka_unit_test(starting_and_draining_refuse_generation),
        cmocka_unit_test(readiness_is_a_token_lately_or_nothing_pending),
        cmocka_unit_test(a_port_that_sends_nothing_is_not_ready),
        cmocka_unit_test(readiness_does_not_blame_a_request_just_accepted),
        cmocka_unit_test(one_that_came_within_the_turn_took_no_negative_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
