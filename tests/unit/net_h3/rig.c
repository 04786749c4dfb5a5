/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/net_h3/rig.h"

#include "appliance/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* --- certificate ------------------------------------------------------ */

static char cert_path[256];
static char key_path[256];

static void forget_cert(void) {
    unlink(cert_path);
    unlink(key_path);
}

static void make_cert(void) {
    if (cert_path[0] != '\0') return;
    snprintf(cert_path, sizeof cert_path, "/tmp/tdm-rig-%d-cert.pem", (int)getpid());
    snprintf(key_path, sizeof key_path, "/tmp/tdm-rig-%d-key.pem", (int)getpid());
    forget_cert();
    atexit(forget_cert);
    tdm_cert_config_t cfg = {
        .cert_file = cert_path,
        .key_file = key_path,
        .name = {"localhost", "127.0.0.1"},
        .name_cnt = 2,
        .wall_s = tdm_clock_wall_s(),
    };
    int is_made = 0;
    tdm_error_t err = {0};
    if (tdm_cert_ensure(&cfg, &is_made, &err) != TDM_OK) fail_msg("%s", err.text);
}

const char *rig_cert(void) {
    make_cert();
    return cert_path;
}

const char *rig_key(void) {
    make_cert();
    return key_path;
}

/* --- the pretended tile ----------------------------------------------- */

static rig_slot_t *slot_of(tdm_exchange_t *x) {
    return (rig_slot_t *)((uint8_t *)x - offsetof(rig_slot_t, x));
}

static tdm_exchange_t *on_open(void *ctx, const tdm_endpoint_t *remote, int is_vital) {
    rig_t *r = ctx;
    (void)is_vital;
    assert_int_equal(remote->version, 4);
    for (uint32_t i = 0; i < r->exchange_max; i++) {
        rig_slot_t *s = &r->slot[i];
        if (s->is_used) continue;
        uint32_t generation = s->x.handle.generation + 1u;
        s->is_used = 1;
        s->is_ready = 0;
        s->is_gone = 0;
        s->is_end_sent = 0;
        s->record_cnt = 0;
        s->record_no = 0;
        memset(&s->x, 0, sizeof s->x);
        s->x.handle = (tdm_handle_t){i, generation};
        s->x.body = s->body;
        s->x.reply = &s->pipe;
        tdm_pipe_reset(&s->pipe);
        r->open_cnt++;
        return &s->x;
    }
    return NULL;
}

static tdm_reason_t on_ready(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    rig_t *r = ctx;
    assert_int_equal(now_ns, r->now_ns);
    assert_true(x->arrival_ns >= x->first_byte_ns);
    r->ready_cnt++;
    r->last = *x;
    r->last_body_hash = tdm_sum_bytes(0, x->body, x->body_sz);
    if (r->ready_answer != TDM_REASON_NONE) return r->ready_answer;
    slot_of(x)->is_ready = 1;
    return TDM_REASON_NONE;
}

static void on_gone(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    rig_t *r = ctx;
    (void)now_ns;
    assert_true(slot_of(x)->is_ready);
    assert_false(slot_of(x)->is_gone);
    slot_of(x)->is_gone = 1;
    r->gone_cnt++;
}

static void on_closed(void *ctx, tdm_exchange_t *x, int64_t now_ns) {
    rig_t *r = ctx;
    (void)now_ns;
    assert_true(slot_of(x)->is_used);
    slot_of(x)->is_used = 0;
    r->closed_cnt++;
}

static void on_sent(void *ctx, tdm_exchange_t *x, uint32_t token_cnt, int64_t made_ns,
                    int64_t now_ns) {
    (void)made_ns;
    rig_t *r = ctx;
    (void)x;
    assert_int_equal(now_ns, r->now_ns);
    r->token_cnt += token_cnt;
}

static void write_text(rig_slot_t *s, const char *text) {
    assert_int_equal(tdm_pipe_write(&s->pipe, text, (uint32_t)strlen(text), 0), 1);
}

/* answer does what an api tile would, by path. */
static void answer(rig_t *r, rig_slot_t *s) {
    tdm_exchange_t *x = &s->x;
    char text[320];
    s->is_ready = 2;
    x->head = (tdm_reply_head_t){.status = 200, .content_type = TDM_CONTENT_JSON};
    memcpy(x->head.request_id, x->request_id, sizeof x->head.request_id);
    if (strcmp(x->path, "/stream") == 0) {
        x->head.content_type = TDM_CONTENT_EVENT_STREAM;
        x->head.content_sz = -1;
        x->head.is_stream = 1;
        s->record_cnt = (uint32_t)atoi(x->query);
        tdm_h3_reply(r->h3, x, TDM_EGRESS_HEAD, r->now_ns);
        return;
    }
    if (strcmp(x->path, "/cut") == 0) {
        x->head.content_sz = -1;
        write_text(s, "half");
        tdm_h3_reply(r->h3, x, TDM_EGRESS_HEAD | TDM_EGRESS_RECORD, r->now_ns);
        tdm_h3_reply(r->h3, x, TDM_EGRESS_END | TDM_EGRESS_ABORT, r->now_ns);
        s->is_end_sent = 1;
        return;
    }
    x->head.is_coded = x->content_coding[0] != '\0';
    snprintf(text, sizeof text, "{\"path\":\"%s\",\"body\":%llu}", x->path,
             (unsigned long long)x->body_sz);
    if (x->refuse != 0) {
        x->head.status = (uint16_t)tdm_reason_http((tdm_reason_t)x->refuse);
        snprintf(text, sizeof text, "{\"error\":\"%s\"}", tdm_reason_name((tdm_reason_t)x->refuse));
    } else if (strcmp(x->path, "/busy") == 0) {
        x->head.status = 429;
        x->head.retry_after_ms = 1500;
    } else if (x->method == TDM_METHOD_OPTIONS) {
        x->head.status = 204;
        x->head.allow = (1u << TDM_METHOD_GET) | (1u << TDM_METHOD_OPTIONS);
        text[0] = '\0';
    }
    x->head.content_sz = (int64_t)strlen(text);
    if (text[0] != '\0') write_text(s, text);
    tdm_h3_reply(r->h3, x, TDM_EGRESS_HEAD | TDM_EGRESS_RECORD | TDM_EGRESS_END, r->now_ns);
    s->is_end_sent = 1;
}

/* stream_on writes records while the pipe takes them. */
static void stream_on(rig_t *r, rig_slot_t *s) {
    char text[64];
    uint32_t flags = 0;
    while (s->record_no < s->record_cnt) {
        snprintf(text, sizeof text, "data: {\"token\":%u}\n\n", s->record_no);
        if (!tdm_pipe_write(&s->pipe, text, (uint32_t)strlen(text), 1)) break;
        s->record_no++;
        flags |= TDM_EGRESS_RECORD;
    }
    if (s->record_no == s->record_cnt) {
        flags |= TDM_EGRESS_END;
        s->is_end_sent = 1;
    }
    if (flags != 0) tdm_h3_reply(r->h3, &s->x, flags, r->now_ns);
}

static void tile_turn(rig_t *r) {
    if (r->is_tile_silent) return;
    for (uint32_t i = 0; i < r->exchange_max; i++) {
        rig_slot_t *s = &r->slot[i];
        if (!s->is_used || s->is_gone || s->is_end_sent) continue;
        if (s->is_ready == 1) answer(r, s);
        if (s->is_used && s->record_cnt > 0 && !s->is_gone) stream_on(r, s);
    }
}

/* --- life ------------------------------------------------------------- */

rig_config_t rig_default(void) {
    return (rig_config_t){
        .connection_max = 16,
        .stream_max = 32,
        .exchange_max = RIG_EXCHANGE_MAX,
        .handshake_per_s = 1000,
        .handshake_per_s_source = 1000,
        .pool_sz = 16u << 20,
        .connection_pool_sz = 2u << 20,
        .discard_max = 64u << 10,
        .idle_timeout_ns = 5000 * RIG_MS,
        .request_timeout_ns = 2000 * RIG_MS,
        .datagram_max = TDM_QUIC_DATAGRAM_MIN,
    };
}

static void *take(uint64_t sz) {
    assert_true(sz > 0);
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, sz), 0);
    return p;
}

static void open_server(rig_t *r, const rig_config_t *cfg) {
    tdm_error_t err = {0};
    tdm_h3_config_t h3_cfg = {
        .connection_max = cfg->connection_max,
        .stream_max = cfg->connection_max * cfg->stream_max,
        .exchange_max = RIG_EXCHANGE_MAX,
        .body_max = RIG_BODY_MAX,
        .discard_max = cfg->discard_max,
        .header_max = 4096,
        .request_timeout_ns = cfg->request_timeout_ns,
        .tile = {.ctx = r,
                 .exchange_open = on_open,
                 .exchange_ready = on_ready,
                 .exchange_gone = on_gone,
                 .exchange_closed = on_closed,
                 .record_sent = on_sent},
    };
    r->h3_mem = take(tdm_h3_footprint(&h3_cfg));
    if (tdm_h3_create(r->h3_mem, &h3_cfg, &r->h3, &err) != TDM_OK) fail_msg("%s", err.text);
    tdm_quic_config_t quic_cfg = {
        .connection_max = cfg->connection_max,
        .stream_max = cfg->stream_max,
        .pool_sz = cfg->pool_sz,
        .connection_pool_sz = cfg->connection_pool_sz,
        .handshake_per_s = cfg->handshake_per_s,
        .handshake_per_s_source = cfg->handshake_per_s_source,
        .half_open_max = cfg->half_open_max,
        .retry_half_open = cfg->retry_half_open,
        .retry_per_s = cfg->retry_per_s,
        .is_retry_always = (uint8_t)cfg->is_retry_always,
        .idle_timeout_ns = cfg->idle_timeout_ns,
        .datagram_max = cfg->datagram_max,
        .tile_idx = 7,
        .cert_file = rig_cert(),
        .key_file = rig_key(),
        .seed = r->seed,
        .app = tdm_h3_app(r->h3),
    };
    r->quic_mem = take(tdm_quic_footprint(&quic_cfg));
    if (tdm_quic_create(r->quic_mem, &quic_cfg, &r->quic, &err) != TDM_OK) {
        fail_msg("%s", err.text);
    }
    tdm_h3_attach(r->h3, r->quic);
}

void rig_open(rig_t *r, const rig_config_t *cfg) {
    rig_config_t plain = rig_default();
    if (cfg == NULL) cfg = &plain;
    memset(r, 0, sizeof *r);
    r->now_ns = 1000 * RIG_MS;
    r->seed = 20240607;
    r->rng.state = r->seed;
    r->exchange_max = cfg->exchange_max;
    for (uint32_t i = 0; i < r->exchange_max; i++) {
        r->slot[i].body = take(RIG_BODY_MAX);
        r->slot[i].pipe_buf = take(RIG_PIPE_SZ);
        assert_int_equal(tdm_pipe_init(&r->slot[i].pipe, r->slot[i].pipe_buf, RIG_PIPE_SZ), TDM_OK);
    }
    open_server(r, cfg);
}

void rig_close(rig_t *r) {
    for (uint32_t i = 0; i < RIG_CLIENT_MAX; i++) tdm_client_close(r->client[i]);
    tdm_quic_destroy(r->quic);
    assert_int_equal(r->open_cnt, r->closed_cnt);
    assert_int_equal(tdm_h3_counters(r->h3)->stream_cnt, 0);
    assert_int_equal(tdm_h3_counters(r->h3)->connection_cnt, 0);
    for (uint32_t i = 0; i < RIG_EXCHANGE_MAX; i++) {
        free(r->slot[i].body);
        free(r->slot[i].pipe_buf);
    }
    free(r->quic_mem);
    free(r->h3_mem);
}

static tdm_endpoint_t at(uint32_t source, uint16_t port) {
    tdm_endpoint_t e = {.version = 4, .port = port};
    e.addr[0] = 10;
    e.addr[2] = (uint8_t)(source >> 8);
    e.addr[3] = (uint8_t)source;
    return e;
}

void rig_dial(rig_t *r, uint32_t i, uint32_t source) {
    tdm_error_t err = {0};
    tdm_client_config_t cfg = {.host = "localhost",
                               .port = 443,
                               .verify = TDM_CLIENT_VERIFY_INSECURE,
                               .idle_timeout_ns = 20000 * RIG_MS,
                               .is_keep_alive_off = (uint8_t)!r->is_keep_alive};
    r->is_deaf[i] = 0;
    r->client_at[i] = at(source, (uint16_t)(4000 + i));
    if (tdm_client_open(&cfg, r->now_ns, &r->client[i], &err) != TDM_OK) fail_msg("%s", err.text);
}

void rig_dial_ready(rig_t *r, uint32_t i) {
    rig_dial(r, i, 2);
    for (int n = 0; n < 200 && !tdm_client_is_ready(r->client[i]); n++) rig_turn(r, RIG_MS);
    assert_true(tdm_client_is_ready(r->client[i]));
}

void rig_begin(rig_t *r) {
    rig_open(r, NULL);
    rig_dial_ready(r, 0);
}

/* --- the wire --------------------------------------------------------- */

static int is_lost(rig_t *r) {
    return r->loss > 0 && tdm_rng_below(&r->rng, 1000) < r->loss;
}

tdm_reason_t rig_input(rig_t *r, const void *bytes, uint32_t sz, uint32_t source) {
    tdm_datagram_t dg = {
        .remote = at(source, 5555), .local = at(1, 443), .payload = bytes, .payload_sz = sz};
    return tdm_quic_input(r->quic, &dg, r->now_ns);
}

static void client_turn(rig_t *r, uint32_t i) {
    uint8_t buf[1500];
    uint32_t sz;
    for (int n = 0; n < 64; n++) {
        sz = tdm_client_output(r->client[i], buf, sizeof buf, r->now_ns);
        if (sz == 0) break;
        if (r->is_deaf[i] || is_lost(r)) continue;
        tdm_datagram_t dg = {
            .remote = r->client_at[i], .local = at(1, 443), .payload = buf, .payload_sz = sz};
        (void)tdm_quic_input(r->quic, &dg, r->now_ns);
    }
}

static void server_turn(rig_t *r) {
    uint8_t buf[1500];
    tdm_datagram_t dg;
    (void)tdm_quic_poll(r->quic, r->now_ns);
    (void)tdm_h3_poll(r->h3, r->now_ns);
    for (int n = 0; n < 256; n++) {
        uint32_t sz = tdm_quic_output(r->quic, buf, sizeof buf, &dg, r->now_ns);
        if (sz == 0) break;
        assert_int_equal(dg.local.port, 443);
        if (is_lost(r)) continue;
        for (uint32_t i = 0; i < RIG_CLIENT_MAX; i++) {
            if (r->client[i] == NULL || r->is_deaf[i]) continue;
            if (!tdm_endpoint_equal(&dg.remote, &r->client_at[i])) continue;
            tdm_client_input(r->client[i], buf, sz, r->now_ns);
        }
    }
}

void rig_turn(rig_t *r, int64_t step_ns) {
    for (uint32_t i = 0; i < RIG_CLIENT_MAX; i++) {
        if (r->client[i] != NULL) client_turn(r, i);
    }
    r->now_ns += step_ns / 2;
    server_turn(r);
    tile_turn(r);
    server_turn(r);
    r->now_ns += step_ns / 2;
}

int rig_run(rig_t *r, const int *flag, int64_t ms) {
    int64_t until_ns = r->now_ns + ms * RIG_MS;
    while (r->now_ns < until_ns && !*flag) rig_turn(r, RIG_MS);
    return *flag;
}

void rig_idle(rig_t *r, int64_t ms) {
    const int never = 0;
    (void)rig_run(r, &never, ms);
}

/* --- requests --------------------------------------------------------- */

static void sink_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((rig_reply_t *)ctx)->status = status;
}

static void sink_header(void *ctx, int64_t id, const char *name, const char *value) {
    (void)id;
    rig_reply_t *out = ctx;
    size_t used = strlen(out->head);
    snprintf(out->head + used, sizeof out->head - used, "%s: %s\n", name, value);
}

static void sink_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)id;
    rig_reply_t *out = ctx;
    if (out->body_sz < sizeof out->body - 1u) {
        memcpy(out->body + out->body_sz, bytes, TDM_MIN(sz, sizeof out->body - 1u - out->body_sz));
    }
    out->body_sz += sz;
    out->body_hash = tdm_sum_bytes(out->body_hash, bytes, sz);
    out->piece_cnt++;
}

static void sink_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    (void)id;
    rig_reply_t *out = ctx;
    assert_false(out->is_ended);
    out->is_ended = 1;
    out->outcome = outcome;
    out->error = error;
}

static int64_t submit(rig_t *r, uint32_t i, const tdm_client_request_t *req, rig_reply_t *out) {
    memset(out, 0, sizeof *out);
    int64_t id = -1;
    tdm_error_t err = {0};
    tdm_client_sink_t sink = {out, sink_head, sink_header, sink_body, sink_end};
    if (tdm_client_request(r->client[i], req, &sink, &id, &err) != TDM_OK) {
        fail_msg("%s", err.text);
    }
    return id;
}

int64_t rig_send(rig_t *r, uint32_t i, const char *method, const char *path, const void *body,
                 uint64_t body_sz, rig_reply_t *out) {
    static const tdm_client_header_t header[] = {
        {"content-type", "application/json"},
        {"authorization", "Bearer secret"},
        {"x-request-id", "rig-1"},
    };
    tdm_client_request_t req = {.method = method,
                                .path = path,
                                .header = header,
                                .header_cnt = TDM_COUNT_OF(header),
                                .body = body,
                                .body_sz = body_sz};
    return submit(r, i, &req, out);
}

void rig_serve_one(rig_t *r, uint32_t i) {
    rig_reply_t reply;
    rig_send(r, i, "GET", "/health", NULL, 0, &reply);
    assert_true(rig_run(r, &reply.is_ended, 3000));
    assert_int_equal(reply.status, 200);
}

int64_t rig_send_with(rig_t *r, uint32_t i, const char *path, const tdm_client_header_t *header,
                      uint32_t header_cnt, rig_reply_t *out) {
    tdm_client_request_t req = {
        .method = "GET", .path = path, .header = header, .header_cnt = header_cnt};
    return submit(r, i, &req, out);
}
