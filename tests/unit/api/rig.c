/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/api/rig.h"

#include <jansson.h>

static uint32_t ceil_pow2(uint32_t v) {
    uint32_t p = 1;
    while (p < v) p <<= 1;
    return p;
}

static void *aligned_zeros(uint64_t sz) {
    uint64_t whole = (sz + TDM_CACHE_LINE - 1) / TDM_CACHE_LINE * TDM_CACHE_LINE;
    void *p = aligned_alloc(TDM_CACHE_LINE, whole);
    assert_non_null(p);
    memset(p, 0, whole);
    return p;
}

static tdm_lane_t *lane(rig_t *r, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *l = NULL;
    void *mem = aligned_zeros(tdm_lane_footprint(ceil_pow2(depth), elem_sz));
    r->lane_mem[r->lane_cnt++] = mem;
    assert_int_equal(tdm_lane_init(mem, ceil_pow2(depth), elem_sz, &l), TDM_OK);
    return l;
}

static void ring(rig_t *r, tdm_ring_t *ring, uint32_t lane_cnt, uint32_t depth, uint32_t elem_sz) {
    tdm_lane_t *lanes[RIG_DOOR_CNT];
    for (uint32_t i = 0; i < lane_cnt; i++) lanes[i] = lane(r, depth, elem_sz);
    tdm_ring_init(ring, lanes, lane_cnt, NULL);
}

void rig_default(rig_t *r) {
    memset(r, 0, sizeof *r);
    tdm_api_config_default(&r->config);
    r->config.request_max = 8;
    r->config.context_max = 512;
    r->config.id_slab_sz = 64 * 4096;
    r->config.body_max = 64 * 1024;
    r->config.json_sz = 1 << 20;
    r->config.model_name_cnt = 2;
    r->config.model_name[0] = "tiny";
    r->config.model_name[1] = "org/tiny-alias";
    r->config.version = "0.1.0";
    r->config.chat_template = "none";
    r->config.wall_offset_ns = 1700000000 * TDM_NS_PER_S;
    r->config.loaded_s = 1600000000;
    r->config.seed = 7;
    r->now_ns = 5 * TDM_NS_PER_S;
    r->event_depth = 1024;
    r->request_depth = 64;
    r->egress_depth = 256;
    r->pipe_sz = TDM_API_PIPE_MIN;
    tdm_auth_init(&r->auth);
}

void rig_start(rig_t *r) {
    tdm_error_t err = {0};
    tdm_model_options_t shape_only = {.flags = TDM_MODEL_SHAPE_ONLY};
    assert_int_equal(tdm_model_open("dummy:tiny", &shape_only, &r->model, &err), TDM_OK);
    assert_int_equal(tdm_tokenizer_open(r->model, &r->tokenizer, &err), TDM_OK);
    assert_int_equal(tdm_encode_scratch_create(r->tokenizer, (uint32_t)r->config.body_max + 65536,
                                               &r->scratch, &err),
                     TDM_OK);
    r->block = tdm_block_init(aligned_zeros(tdm_block_footprint()), "api0");
    ring(r, &r->arrivals, RIG_DOOR_CNT, RIG_SLOT_CNT, sizeof(tdm_arrival_t));
    ring(r, &r->hangups, RIG_DOOR_CNT, RIG_SLOT_CNT, sizeof(tdm_hangup_t));
    ring(r, &r->events, 1, r->event_depth, sizeof(tdm_event_t));
    ring(r, &r->requests, 1, r->request_depth, sizeof(tdm_submit_t));
    ring(r, &r->controls, 1, 2 * r->config.request_max, sizeof(tdm_control_t));
    tdm_api_wires_t w = {.arrivals = &r->arrivals,
                         .hangups = &r->hangups,
                         .events = &r->events,
                         .requests = &r->requests,
                         .controls = &r->controls,
                         .door_cnt = RIG_DOOR_CNT,
                         .tokenizer = r->tokenizer,
                         .scratch = r->scratch,
                         .auth = &r->auth,
                         .vitals = &r->vitals,
                         .block = r->block};
    for (uint32_t d = 0; d < RIG_DOOR_CNT; d++) {
        ring(r, &r->egress[d], 1, r->egress_depth, sizeof(tdm_egress_t));
        w.door[d] = (tdm_api_door_t){.egress = &r->egress[d], .slot_cnt = RIG_SLOT_CNT};
        r->ex[d] = calloc(RIG_SLOT_CNT, sizeof(rig_exchange_t));
        assert_non_null(r->ex[d]);
        for (uint32_t i = 0; i < RIG_SLOT_CNT; i++) {
            rig_exchange_t *e = &r->ex[d][i];
            e->x.handle.slot = i;
            e->text = calloc(1, 1);
            assert_int_equal(tdm_pipe_init(&e->pipe, aligned_zeros(r->pipe_sz), r->pipe_sz),
                             TDM_OK);
        }
    }
    uint64_t sz = tdm_api_tile_footprint(&r->config, &w);
    assert_true(sz > 0);
    r->tile_mem = aligned_zeros(sz);
    assert_int_equal(tdm_api_tile_init(r->tile_mem, &r->config, &w, &r->tile, &err), TDM_OK);
}

void rig_stop(rig_t *r) {
    for (uint32_t d = 0; d < RIG_DOOR_CNT; d++) {
        for (uint32_t i = 0; i < RIG_SLOT_CNT; i++) {
            free(r->ex[d][i].text);
            free(r->ex[d][i].x.body);
            free(r->ex[d][i].pipe.buf);
        }
        free(r->ex[d]);
    }
    for (uint32_t i = 0; i < r->lane_cnt; i++) free(r->lane_mem[i]);
    free(r->tile_mem);
    free(r->block);
    tdm_encode_scratch_destroy(r->scratch);
    tdm_tokenizer_close(r->tokenizer);
    tdm_model_close(r->model);
}

rig_exchange_t *rig_exchange_fresh(rig_t *r, uint32_t door) {
    for (uint32_t i = 0; i < RIG_SLOT_CNT; i++) {
        rig_exchange_t *e = &r->ex[door][r->next[door]++ % RIG_SLOT_CNT];
        if (e->x.handle.generation != 0 && e->end_cnt == 0) continue; /* still open */
        tdm_handle_t handle = {.slot = e->x.handle.slot, .generation = e->x.handle.generation + 1};
        free(e->x.body);
        e->x = (tdm_exchange_t){.handle = handle,
                                .door = (uint16_t)door,
                                .door_kind = door == 0 ? TDM_DOOR_H3 : TDM_DOOR_HTTP1,
                                .method = TDM_METHOD_POST,
                                .is_trusted_peer = 1,
                                .first_byte_ns = r->now_ns,
                                .arrival_ns = r->now_ns,
                                .reply = &e->pipe};
        tdm_pipe_reset(&e->pipe);
        e->cursor = tdm_pipe_begin();
        e->is_stuck = 0;
        e->words = e->flags = e->end_cnt = e->token_cnt = e->record_cnt = e->text_sz = 0;
        e->text[0] = 0;
        strcpy(e->x.request_id, "rq");
        return e;
    }
    fail_msg("no free exchange");
    return NULL;
}

void rig_body(rig_exchange_t *e, const void *body, uint64_t sz) {
    free(e->x.body);
    e->x.body = malloc(sz ? sz : 1);
    assert_non_null(e->x.body);
    memcpy(e->x.body, body, sz);
    e->x.body_sz = sz;
}

void rig_push(rig_t *r, rig_exchange_t *e) {
    tdm_arrival_t a = {.exchange = &e->x, .generation = e->x.handle.generation};
    assert_true(tdm_ring_push(&r->arrivals, e->x.door, &a));
}

void rig_hang_up(rig_t *r, const rig_exchange_t *e) {
    tdm_hangup_t h = {.generation = e->x.handle.generation, .slot = e->x.handle.slot};
    assert_true(tdm_ring_push(&r->hangups, e->x.door, &h));
}

rig_exchange_t *rig_post(rig_t *r, const char *path, const char *body) {
    rig_exchange_t *e = rig_exchange_fresh(r, 0);
    (void)snprintf(e->x.path, sizeof e->x.path, "%s", path);
    rig_body(e, body, strlen(body));
    rig_push(r, e);
    rig_poll(r);
    return e;
}

rig_exchange_t *rig_get(rig_t *r, const char *path) {
    rig_exchange_t *e = rig_exchange_fresh(r, 1);
    e->x.method = TDM_METHOD_GET;
    (void)snprintf(e->x.path, sizeof e->x.path, "%s", path);
    rig_push(r, e);
    rig_settle(r);
    return e;
}

static uint32_t read_pipe(rig_exchange_t *e) {
    tdm_pipe_record_t rec;
    uint32_t cnt = 0;
    while (!e->is_stuck && tdm_pipe_peek(&e->pipe, &e->cursor, &rec)) {
        char *text = realloc(e->text, e->text_sz + rec.sz + 1);
        assert_non_null(text);
        memcpy(text + e->text_sz, rec.bytes, rec.sz);
        e->text = text;
        e->text_sz += rec.sz;
        e->text[e->text_sz] = 0;
        e->token_cnt += rec.token_cnt;
        e->record_cnt++;
        tdm_pipe_release(&e->pipe, rec.sz);
        cnt++;
    }
    return cnt;
}

static uint64_t total(const rig_t *r, tdm_metric_t metric) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < tdm_metric_row[metric].series_cnt; i++) n += rig_count(r, metric, i);
    return n;
}

/* requests_add_up holds between any two polls, whatever a test does. */
static void requests_add_up(const rig_t *r) {
    assert_int_equal(total(r, TDM_METRIC_requests_received_total),
                     total(r, TDM_METRIC_requests_total) +
                         rig_count(r, TDM_METRIC_requests_open, 0));
}

uint32_t rig_poll(rig_t *r) {
    r->now_ns += 1000;
    uint32_t work = tdm_api_tile_poll(r->tile, r->now_ns);
    requests_add_up(r);
    for (uint32_t d = 0; d < RIG_DOOR_CNT; d++) {
        tdm_egress_t word;
        while (tdm_ring_pop(&r->egress[d], &word)) {
            rig_exchange_t *e = &r->ex[d][word.handle.slot];
            assert_int_equal(word.handle.generation, e->x.handle.generation);
            assert_int_equal(e->end_cnt, 0); /* nothing follows an END */
            e->words++;
            e->flags |= word.flags;
            if (word.flags & TDM_EGRESS_END) e->end_cnt++;
        }
        for (uint32_t i = 0; i < RIG_SLOT_CNT; i++) work += read_pipe(&r->ex[d][i]);
    }
    return work;
}

void rig_settle(rig_t *r) {
    uint32_t turns = 0;
    while (rig_poll(r) > 0) assert_true(++turns < 100000);
}

const tdm_request_t *rig_submit(rig_t *r) {
    tdm_submit_t s;
    if (!tdm_ring_pop(&r->requests, &s)) return NULL;
    assert_int_equal(s.generation, s.request->handle.generation);
    return s.request;
}

void rig_event(rig_t *r, const tdm_request_t *q, tdm_event_t e) {
    e.handle = q->handle;
    assert_true(tdm_ring_push(&r->events, 0, &e));
}

void rig_accept(rig_t *r, const tdm_request_t *q) {
    rig_event(r, q, (tdm_event_t){.kind = TDM_EVENT_ACCEPTED});
}

void rig_refuse(rig_t *r, const tdm_request_t *q, tdm_reason_t reason, uint32_t retry_after_ms) {
    rig_event(r, q,
              (tdm_event_t){.kind = TDM_EVENT_REFUSED,
                            .reason = (uint16_t)reason,
                            .retry_after_ms = retry_after_ms});
}

void rig_token(rig_t *r, const tdm_request_t *q, int32_t id, uint32_t index) {
    rig_event(r, q, (tdm_event_t){.kind = TDM_EVENT_TOKEN, .token = id, .index = index});
}

void rig_tokens(rig_t *r, const tdm_request_t *q, const char *text, uint32_t first) {
    for (uint32_t i = 0; text[i]; i++) rig_token(r, q, (uint8_t)text[i], first + i);
}

void rig_end(rig_t *r, const tdm_request_t *q, tdm_finish_t finish, uint32_t cnt) {
    rig_event(r, q, (tdm_event_t){.kind = TDM_EVENT_END, .finish = (uint16_t)finish, .index = cnt});
}

void rig_fail(rig_t *r, const tdm_request_t *q, tdm_reason_t reason, uint32_t cnt) {
    rig_event(r, q,
              (tdm_event_t){.kind = TDM_EVENT_END,
                            .finish = TDM_FINISH_ERROR,
                            .reason = (uint16_t)reason,
                            .index = cnt});
}

int rig_control(rig_t *r, tdm_control_t *c) {
    return tdm_ring_pop(&r->controls, c);
}

void rig_check_controls(rig_t *r, const tdm_request_t *q, int stops, int cancels) {
    tdm_control_t c;
    while (rig_control(r, &c)) {
        assert_int_equal(c.handle.slot, q->handle.slot);
        assert_int_equal(c.handle.generation, q->handle.generation);
        if (c.kind == TDM_CONTROL_STOP_HIT) stops--;
        if (c.kind == TDM_CONTROL_CANCEL) cancels--;
    }
    assert_int_equal(stops, 0);
    assert_int_equal(cancels, 0);
}

void rig_serve(rig_t *r, const tdm_request_t *q, const char *text, tdm_finish_t finish) {
    rig_accept(r, q);
    rig_tokens(r, q, text, 0);
    rig_end(r, q, finish, (uint32_t)strlen(text));
    rig_settle(r);
}

uint64_t rig_count(const rig_t *r, tdm_metric_t metric, uint32_t idx) {
    return *tdm_block_word(r->block, metric, idx);
}

uint64_t rig_outcomes(const rig_t *r, uint32_t api, uint32_t outcome) {
    return rig_count(r, TDM_METRIC_requests_total,
                     tdm_series3(TDM_METRIC_requests_total, api, 0, outcome));
}

const tdm_request_t *rig_submitted(rig_t *r) {
    const tdm_request_t *q = rig_submit(r);
    assert_non_null(q);
    return q;
}

const char *rig_error_code(const rig_exchange_t *e) {
    static char code[64];
    json_t *v = json_loads(e->text, 0, NULL);
    assert_non_null(v);
    (void)snprintf(code, sizeof code, "%s",
                   json_string_value(json_object_get(json_object_get(v, "error"), "code")));
    json_decref(v);
    return code;
}

void rig_check_error(const rig_exchange_t *e, tdm_reason_t reason, const char *param) {
    assert_int_equal(e->end_cnt, 1);
    assert_int_equal(e->x.head.status, tdm_reason_http(reason));
    assert_int_equal(e->x.head.content_type, TDM_CONTENT_JSON);
    assert_int_equal(e->x.head.content_sz, e->text_sz);
    assert_true((e->x.head.retry_after_ms > 0) ==
                (e->x.head.status == 429 || e->x.head.status == 503));
    json_t *v = json_loads(e->text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(v);
    const json_t *error = json_object_get(v, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), tdm_reason_name(reason));
    const json_t *p = json_object_get(error, "param");
    assert_non_null(p);
    if (param)
        assert_string_equal(json_string_value(p), param);
    else
        assert_true(json_is_null(p));
    assert_true(json_string_length(json_object_get(error, "message")) > 0);
    /* Many clients show the message alone. */
    if (param) assert_non_null(strstr(json_string_value(json_object_get(error, "message")), param));
    json_decref(v);
}
