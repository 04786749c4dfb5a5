/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include "appliance/base/clock.h"

/* Between the notice and the final GOAWAY, and again before the end: long
   enough for requests already on their way. */
#define GOAWAY_STEP_NS (500 * TDM_NS_PER_MS)

static void *mem_alloc(size_t sz, void *c) {
    return tdm_quic_conn_alloc(c, sz);
}

static void mem_free(void *p, void *c) {
    tdm_quic_conn_free(c, p);
}

static void *mem_calloc(size_t cnt, size_t sz, void *c) {
    size_t total;
    if (__builtin_mul_overflow(cnt, sz, &total)) return NULL;
    void *p = tdm_quic_conn_alloc(c, total);
    if (p != NULL) memset(p, 0, total);
    return p;
}

static void *mem_realloc(void *p, size_t sz, void *c) {
    return tdm_quic_conn_realloc(c, p, sz);
}

/* fail closes the connection with the code that RFC 9114 gives for what
   nghttp3 found. */
static int fail(session_t *s, int64_t liberr) {
    s->h->counters.protocol_errors += liberr != NGHTTP3_ERR_NOMEM;
    tdm_quic_conn_fail(s->c, nghttp3_err_infer_quic_app_error_code((int)liberr));
    return -1;
}

static int bind_own_streams(session_t *s) {
    int64_t control = tdm_quic_conn_open_uni(s->c);
    int64_t encoder = tdm_quic_conn_open_uni(s->c);
    int64_t decoder = tdm_quic_conn_open_uni(s->c);
    if (control < 0 || encoder < 0 || decoder < 0) return NGHTTP3_ERR_H3_GENERAL_PROTOCOL_ERROR;
    int rv = nghttp3_conn_bind_control_stream(s->nc, control);
    return rv != 0 ? rv : nghttp3_conn_bind_qpack_streams(s->nc, encoder, decoder);
}

static int session_open(void *ctx, tdm_quic_conn_t *c, int64_t now_ns) {
    tdm_h3_t *h = ctx;
    h->now_ns = now_ns;
    session_t *s = &h->session[tdm_quic_conn_idx(c)];
    *s = (session_t){.h = h, .c = c, .first = NONE_IDX};
    tdm_quic_conn_set_user(c, s);
    s->mem = (nghttp3_mem){c, mem_alloc, mem_free, mem_calloc, mem_realloc};
    h->counters.connection_cnt++;

    /* No dynamic QPACK table in either direction: header memory stays
       bounded by one request's and no stream waits for another's. */
    nghttp3_settings settings;
    nghttp3_settings_default(&settings);
    settings.max_field_section_size = h->cfg.header_max;
    settings.qpack_encoder_max_dtable_capacity = 0;
    int rv = nghttp3_conn_server_new(&s->nc, &request_calls, &settings, &s->mem, s);
    if (rv != 0) {
        s->nc = NULL;
        return fail(s, rv);
    }
    nghttp3_conn_set_max_client_streams_bidi(s->nc, tdm_quic_conn_stream_max(c));
    rv = bind_own_streams(s);
    return rv == 0 ? 0 : fail(s, rv);
}

static void session_close(void *ctx, tdm_quic_conn_t *c, int64_t now_ns) {
    tdm_h3_t *h = ctx;
    session_t *s = tdm_quic_conn_user(c);
    h->now_ns = now_ns;
    while (s->first != NONE_IDX) stream_free(&h->stream[s->first]);
    if (s->nc != NULL) nghttp3_conn_del(s->nc);
    s->nc = NULL;
    h->counters.connection_cnt--;
}

/* find walks the session's streams, at most stream_max of a connection:
   nghttp3 0.8 keeps its user pointer to itself. */
static stream_t *find(session_t *s, int64_t id) {
    for (uint32_t i = s->first; i != NONE_IDX; i = s->h->stream[i].next) {
        if (s->h->stream[i].id == id) return &s->h->stream[i];
    }
    return NULL;
}

void session_cut(session_t *s, int64_t id, uint64_t error) {
    stream_t *st = find(s, id);
    s->h->counters.protocol_errors++;
    (void)nghttp3_conn_shutdown_stream_read(s->nc, id);
    nghttp3_conn_shutdown_stream_write(s->nc, id);
    if (st != NULL) client_left(st);
    tdm_quic_conn_reset(s->c, id, error);
}

/* cut is for a request that nghttp3 0.8 calls malformed as if the connection
   were at fault: it has changed nothing but this stream by then, which is not
   read any further.  rest_sz: bytes that nobody took, whose room in the
   connection's window the others need. */
static int cut(session_t *s, int64_t id, uint64_t rest_sz, uint64_t error) {
    tdm_quic_conn_consumed(s->c, id, rest_sz);
    session_cut(s, id, error);
    return 0;
}

static int on_data(void *ctx, tdm_quic_conn_t *c, int64_t id, const uint8_t *bytes, uint64_t sz,
                   int is_fin, int64_t now_ns) {
    session_t *s = tdm_quic_conn_user(c);
    ((tdm_h3_t *)ctx)->now_ns = now_ns;
    s->body_sz = 0;
    nghttp3_ssize n = nghttp3_conn_read_stream(s->nc, id, bytes, sz, is_fin);
    /* A body of another length than it said (RFC 9114, 4.1.2), and a stream
       that ends before its request began (4.1). */
    if (n == NGHTTP3_ERR_MALFORMED_HTTP_MESSAGING)
        return cut(s, id, sz - s->body_sz, NGHTTP3_H3_MESSAGE_ERROR);
    if (n == NGHTTP3_ERR_H3_FRAME_UNEXPECTED && is_fin && sz == 0 && (id & 2) == 0)
        return cut(s, id, 0, NGHTTP3_H3_REQUEST_INCOMPLETE);
    if (n < 0) return fail(s, n);
    /* Bytes of bodies are counted where they are taken. */
    tdm_quic_conn_consumed(c, id, (uint64_t)n);
    return 0;
}

static int on_acked(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t sz) {
    (void)ctx;
    session_t *s = tdm_quic_conn_user(c);
    int rv = nghttp3_conn_add_ack_offset(s->nc, id, sz);
    return rv == 0 || rv == NGHTTP3_ERR_STREAM_NOT_FOUND ? 0 : fail(s, rv);
}

static int on_reset(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t error) {
    (void)ctx;
    (void)error;
    session_t *s = tdm_quic_conn_user(c);
    (void)nghttp3_conn_shutdown_stream_read(s->nc, id);
    stream_t *st = find(s, id);
    /* After our STOP_SENDING it is the answer we asked for. */
    if (st == NULL || st->is_whole || st->is_read_stopped) return 0;
    client_left(st);
    nghttp3_conn_shutdown_stream_write(s->nc, id);
    tdm_quic_conn_stop_write(c, id, NGHTTP3_H3_REQUEST_CANCELLED);
    return 0;
}

/* on_input_done notices readers that left: STOP_SENDING shuts our half of
   a stream before its end was sent. */
static void on_input_done(void *ctx, tdm_quic_conn_t *c, int64_t now_ns) {
    tdm_h3_t *h = ctx;
    session_t *s = tdm_quic_conn_user(c);
    h->now_ns = now_ns;
    for (uint32_t i = s->first; i != NONE_IDX; i = h->stream[i].next) {
        stream_t *st = &h->stream[i];
        if (st->is_gone || st->is_end_sent || !tdm_quic_conn_is_shut(c, st->id)) continue;
        client_left(st);
        nghttp3_conn_shutdown_stream_write(s->nc, st->id);
        stop_read(st, NGHTTP3_H3_REQUEST_CANCELLED);
    }
}

/* nghttp3 hears which streams there can be: it takes a priority of another
   (PRIORITY_UPDATE, RFC 9218, 7.2) for an error of the connection. */
static int on_close(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t error) {
    (void)ctx;
    session_t *s = tdm_quic_conn_user(c);
    int rv = nghttp3_conn_close_stream(s->nc, id, error);
    nghttp3_conn_set_max_client_streams_bidi(s->nc, tdm_quic_conn_stream_max(c));
    return rv == 0 || rv == NGHTTP3_ERR_STREAM_NOT_FOUND ? 0 : fail(s, rv);
}

static int on_pull(void *ctx, tdm_quic_conn_t *c, tdm_quic_send_t *out, int64_t now_ns) {
    session_t *s = tdm_quic_conn_user(c);
    ((tdm_h3_t *)ctx)->now_ns = now_ns;
    nghttp3_vec vec[TDM_QUIC_SEND_VEC_MAX];
    nghttp3_ssize n =
        nghttp3_conn_writev_stream(s->nc, &out->stream_id, &out->is_fin, vec, TDM_COUNT_OF(vec));
    if (n < 0) return fail(s, n);
    out->vec_cnt = (uint32_t)n;
    for (uint32_t i = 0; i < out->vec_cnt; i++) {
        out->vec[i] = (tdm_quic_vec_t){vec[i].base, vec[i].len};
    }
    return 0;
}

static int on_sent(void *ctx, tdm_quic_conn_t *c, int64_t id, uint64_t sz) {
    (void)ctx;
    session_t *s = tdm_quic_conn_user(c);
    int rv = nghttp3_conn_add_write_offset(s->nc, id, sz);
    return rv == 0 ? 0 : fail(s, rv);
}

/* Now we wait for the peer: one that reads nothing and says nothing until
   the idle timeout is given up, however its stack answers a PING. */
static void on_blocked(void *ctx, tdm_quic_conn_t *c, int64_t id) {
    (void)ctx;
    tdm_quic_conn_keep(c, 0);
    nghttp3_conn_block_stream(((session_t *)tdm_quic_conn_user(c))->nc, id);
}

static void on_shut(void *ctx, tdm_quic_conn_t *c, int64_t id) {
    (void)ctx;
    nghttp3_conn_shutdown_stream_write(((session_t *)tdm_quic_conn_user(c))->nc, id);
}

static int on_writable(void *ctx, tdm_quic_conn_t *c, int64_t id) {
    (void)ctx;
    session_t *s = tdm_quic_conn_user(c);
    tdm_quic_conn_keep(c, s->stream_cnt > 0);
    int rv = nghttp3_conn_unblock_stream(s->nc, id);
    return rv == 0 ? 0 : fail(s, rv);
}

void session_drain(session_t *s) {
    int64_t now_ns = s->h->now_ns;
    if (s->goaway != GOAWAY_NONE && now_ns - s->goaway_ns < GOAWAY_STEP_NS) return;
    if (s->goaway == GOAWAY_FINAL) {
        if (s->stream_cnt == 0) tdm_quic_conn_fail(s->c, NGHTTP3_H3_NO_ERROR);
        return;
    }
    int rv = s->goaway == GOAWAY_NONE ? nghttp3_conn_submit_shutdown_notice(s->nc)
                                      : nghttp3_conn_shutdown(s->nc);
    if (rv != 0) {
        (void)fail(s, rv);
        return;
    }
    s->goaway++;
    s->goaway_ns = now_ns;
    tdm_quic_conn_wake(s->c);
}

const tdm_quic_app_t session_calls = {
    .conn_open = session_open,
    .conn_close = session_close,
    .stream_data = on_data,
    .stream_acked = on_acked,
    .stream_reset = on_reset,
    .stream_close = on_close,
    .input_done = on_input_done,
    .send_pull = on_pull,
    .send_sent = on_sent,
    .send_blocked = on_blocked,
    .send_shut = on_shut,
    .send_writable = on_writable,
};
