/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include <strings.h>

/* What nghttp3 charges per field beyond its bytes (RFC 9114, 4.2.2). */
#define FIELD_OVERHEAD 32u

void client_left(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    if (st->is_gone) return;
    st->is_gone = 1;
    st->moved_ns = h->now_ns;
    late_remove(st);
    if (st->is_taken && !st->is_end_seen && st->x != NULL) {
        h->cfg.tile.exchange_gone(h->cfg.tile.ctx, st->x, h->now_ns);
    }
}

void stop_read(stream_t *st, uint64_t error) {
    if (st->is_read_stopped || st->is_whole) return;
    st->is_read_stopped = 1;
    (void)nghttp3_conn_shutdown_stream_read(st->session->nc, st->id);
    tdm_quic_conn_stop_read(st->session->c, st->id, error);
}

void deliver(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    if (st->is_delivered || st->is_gone) return;
    st->is_delivered = 1;
    st->moved_ns = h->now_ns;
    finished(st);
    if (st->draft != NULL) draft_free(st);
    tdm_reason_t reason = st->refuse != 0 ? st->refuse : TDM_REFUSE_exchange_limit;
    if (st->x != NULL) {
        st->x->refuse = st->refuse;
        st->x->first_byte_ns = st->first_byte_ns;
        st->x->arrival_ns = h->now_ns;
        if (h->cfg.tile.exchange_answer != NULL &&
            h->cfg.tile.exchange_answer(h->cfg.tile.ctx, st->x, h->now_ns)) {
            tdm_reply_head_t head = st->x->head;
            st->is_end_seen = 1;
            (void)own_take(st);
            reply_head(st, &head);
            return;
        }
        reason = h->cfg.tile.exchange_ready(h->cfg.tile.ctx, st->x, h->now_ns);
    }
    if (reason == TDM_REFUSE_exchange_limit) h->short_ns = h->now_ns;
    st->is_taken = reason == TDM_REASON_NONE;
    if (!st->is_taken) refusal_answer(st, reason);
}

/* --- header fields ---------------------------------------------------- */

static int is_text(nghttp3_vec v, const char *text) {
    return v.len == strlen(text) && memcmp(v.base, text, v.len) == 0;
}

static uint16_t method_of(nghttp3_vec v) {
    if (is_text(v, "GET")) return TDM_METHOD_GET;
    if (is_text(v, "HEAD")) return TDM_METHOD_HEAD;
    if (is_text(v, "POST")) return TDM_METHOD_POST;
    if (is_text(v, "OPTIONS")) return TDM_METHOD_OPTIONS;
    return TDM_METHOD_OTHER;
}

/* copy fills a bounded field; one that is cut makes the request refused. */
static void copy(stream_t *st, char *dst, uint64_t dst_sz, const uint8_t *src, uint64_t sz) {
    uint64_t n = TDM_MIN(sz, dst_sz - 1u);
    memcpy(dst, src, n);
    dst[n] = '\0';
    if (n == sz) return;
    st->draft->is_truncated = 1;
    st->refuse = TDM_REFUSE_header_too_large;
}

/* copy_once refuses a field that comes twice: which one counts would be a
   guess. */
static void copy_once(stream_t *st, char *dst, uint64_t dst_sz, nghttp3_vec v) {
    if (dst[0] != '\0') {
        st->refuse = TDM_REFUSE_bad_request;
        return;
    }
    copy(st, dst, dst_sz, v.base, v.len);
}

/* copy_more keeps all lines of a field that is a list. */
static void copy_more(stream_t *st, char *dst, uint64_t dst_sz, nghttp3_vec v) {
    uint64_t sz = strlen(dst);
    if (sz > 0 && sz + 1u < dst_sz) dst[sz++] = ',';
    copy(st, dst + sz, dst_sz - sz, v.base, v.len);
}

static void copy_path(stream_t *st, nghttp3_vec v) {
    draft_t *d = st->draft;
    const uint8_t *q = memchr(v.base, '?', v.len);
    uint64_t path_sz = q == NULL ? v.len : (uint64_t)(q - v.base);
    copy(st, d->path, sizeof d->path, v.base, path_sz);
    if (q != NULL) copy(st, d->query, sizeof d->query, q + 1, v.len - path_sz - 1u);
}

/* note_host keeps the host that is asked for.  :authority comes before any
   host; both are there and the same, or one is (RFC 9114, 4.3.1). */
static void note_host(stream_t *st, nghttp3_vec v) {
    draft_t *d = st->draft;
    if (v.len == 0) d->is_malformed = 1;
    if (d->host[0] == '\0') {
        copy(st, d->host, sizeof d->host, v.base, v.len);
        return;
    }
    uint64_t sz = strlen(d->host);
    if (sz != v.len || strncasecmp(d->host, (const char *)v.base, sz) != 0) d->is_malformed = 1;
}

static uint64_t number_of(nghttp3_vec v) {
    uint64_t n = 0;
    for (size_t i = 0; i < v.len; i++) {
        if (v.base[i] < '0' || v.base[i] > '9' || n > UINT64_MAX / 10u - 1u) return UINT64_MAX;
        n = n * 10u + (uint64_t)(v.base[i] - '0');
    }
    return n;
}

static int on_field(nghttp3_conn *nc, int64_t id, int32_t token, nghttp3_rcbuf *name_buf,
                    nghttp3_rcbuf *value_buf, uint8_t flags, void *user, void *stream_user) {
    (void)nc;
    (void)id;
    (void)flags;
    session_t *s = user;
    stream_t *st = stream_user;
    if (st == NULL || st->draft == NULL) return 0;
    nghttp3_vec name = nghttp3_rcbuf_get_buf(name_buf);
    nghttp3_vec value = nghttp3_rcbuf_get_buf(value_buf);
    st->header_sz += name.len + value.len + FIELD_OVERHEAD;
    if (st->header_sz > s->h->cfg.header_max) {
        st->refuse = TDM_REFUSE_header_too_large;
        return 0;
    }
    if (token == NGHTTP3_QPACK_TOKEN__METHOD) st->method = method_of(value);
    if (token == NGHTTP3_QPACK_TOKEN_CONTENT_LENGTH) st->content_sz = number_of(value);
    draft_t *d = st->draft;
    switch (token) {
    case NGHTTP3_QPACK_TOKEN__AUTHORITY:
    case NGHTTP3_QPACK_TOKEN_HOST: note_host(st, value); break;
    case NGHTTP3_QPACK_TOKEN__PATH: copy_path(st, value); break;
    case NGHTTP3_QPACK_TOKEN_AUTHORIZATION:
        copy_once(st, d->authorization, sizeof d->authorization, value);
        break;
    case NGHTTP3_QPACK_TOKEN_CONTENT_TYPE:
        copy_once(st, d->content_type, sizeof d->content_type, value);
        break;
    case NGHTTP3_QPACK_TOKEN_CONTENT_ENCODING:
        copy_more(st, d->content_coding, sizeof d->content_coding, value);
        break;
    default:
        if (is_text(name, "x-request-id")) {
            copy_once(st, d->request_id, sizeof d->request_id, value);
        }
    }
    return 0;
}

static int on_trailer(nghttp3_conn *nc, int64_t id, int32_t token, nghttp3_rcbuf *name_buf,
                      nghttp3_rcbuf *value_buf, uint8_t flags, void *user, void *stream_user) {
    (void)nc;
    (void)id;
    (void)token;
    (void)flags;
    session_t *s = user;
    stream_t *st = stream_user;
    if (st == NULL) return 0;
    st->header_sz +=
        nghttp3_rcbuf_get_buf(name_buf).len + nghttp3_rcbuf_get_buf(value_buf).len + FIELD_OVERHEAD;
    if (st->header_sz > s->h->cfg.header_max) st->refuse = TDM_REFUSE_header_too_large;
    return 0;
}

/* --- the request's life ----------------------------------------------- */

static int on_begin(nghttp3_conn *nc, int64_t id, void *user, void *stream_user) {
    (void)stream_user;
    session_t *s = user;
    stream_t *st = stream_open(s, id);
    if (st == NULL) {
        reject(s, id);
        return 0;
    }
    return nghttp3_conn_set_stream_user_data(nc, id, st) == 0 ? 0 : NGHTTP3_ERR_CALLBACK_FAILURE;
}

static int on_headers_done(nghttp3_conn *nc, int64_t id, int is_fin, void *user,
                           void *stream_user) {
    session_t *s = user;
    stream_t *st = stream_user;
    if (st == NULL || st->draft == NULL) return 0;
    if (st->draft->is_malformed) {
        session_cut(s, id, NGHTTP3_H3_MESSAGE_ERROR);
        return 0;
    }
    s->h->counters.requests++;
    /* Streams of one connection take turns instead of queueing behind each
       other, whatever the client asked: each carries tokens somebody
       waits for. */
    const nghttp3_pri pri = {.urgency = NGHTTP3_DEFAULT_URGENCY, .inc = 1};
    if (nghttp3_conn_set_stream_priority(nc, id, &pri) != 0) return NGHTTP3_ERR_CALLBACK_FAILURE;
    exchange_take(st, is_fin);
    if (st->refuse == 0 && st->content_sz > s->h->cfg.body_max) {
        st->refuse = TDM_REFUSE_body_too_large;
    }
    if (st->x == NULL || st->refuse != 0 || st->is_vital) deliver(st);
    return 0;
}

static void discard(stream_t *st, uint64_t sz) {
    tdm_h3_t *h = st->session->h;
    st->discard_sz += sz;
    h->counters.body_discarded_sz += sz;
    if (st->discard_sz > h->cfg.discard_max) stop_read(st, NGHTTP3_H3_NO_ERROR);
}

static int on_body(nghttp3_conn *nc, int64_t id, const uint8_t *bytes, size_t sz, void *user,
                   void *stream_user) {
    (void)nc;
    session_t *s = user;
    stream_t *st = stream_user;
    s->body_sz += sz;
    if (st != NULL) st->moved_ns = s->h->now_ns;
    tdm_quic_conn_consumed(s->c, id, sz);
    if (st == NULL || st->is_gone) return 0;
    if (st->is_delivered) {
        discard(st, sz);
        return 0;
    }
    tdm_exchange_t *x = st->x;
    if (sz > s->h->cfg.body_max - x->body_sz) {
        st->refuse = TDM_REFUSE_body_too_large;
        discard(st, sz);
        x->body_sz = 0;
        deliver(st);
        return 0;
    }
    memcpy(x->body + x->body_sz, bytes, sz);
    x->body_sz += sz;
    return 0;
}

static int on_whole(nghttp3_conn *nc, int64_t id, void *user, void *stream_user) {
    (void)nc;
    (void)id;
    (void)user;
    stream_t *st = stream_user;
    if (st == NULL) return 0;
    st->is_whole = 1;
    late_remove(st);
    deliver(st);
    return 0;
}

/* nghttp3 found a malformed message and wants the stream cut both ways. */
static int on_stop_wanted(nghttp3_conn *nc, int64_t id, uint64_t error, void *user,
                          void *stream_user) {
    (void)nc;
    (void)stream_user;
    session_t *s = user;
    s->h->counters.protocol_errors++;
    tdm_quic_conn_stop_read(s->c, id, error);
    return 0;
}

static int on_reset_wanted(nghttp3_conn *nc, int64_t id, uint64_t error, void *user,
                           void *stream_user) {
    session_t *s = user;
    stream_t *st = stream_user;
    if (st != NULL) client_left(st);
    nghttp3_conn_shutdown_stream_write(nc, id);
    tdm_quic_conn_stop_write(s->c, id, error);
    return 0;
}

static int on_closed(nghttp3_conn *nc, int64_t id, uint64_t error, void *user, void *stream_user) {
    (void)nc;
    (void)id;
    (void)error;
    (void)user;
    if (stream_user != NULL) stream_free(stream_user);
    return 0;
}

static int on_consumed_late(nghttp3_conn *nc, int64_t id, size_t sz, void *user,
                            void *stream_user) {
    (void)nc;
    (void)stream_user;
    tdm_quic_conn_consumed(((session_t *)user)->c, id, sz);
    return 0;
}

static int on_reply_acked(nghttp3_conn *nc, int64_t id, uint64_t sz, void *user,
                          void *stream_user) {
    (void)nc;
    (void)id;
    (void)user;
    return stream_user == NULL ? 0 : reply_acked(stream_user, sz);
}

const nghttp3_callbacks request_calls = {
    .acked_stream_data = on_reply_acked,
    .stream_close = on_closed,
    .recv_data = on_body,
    .deferred_consume = on_consumed_late,
    .begin_headers = on_begin,
    .recv_header = on_field,
    .end_headers = on_headers_done,
    .recv_trailer = on_trailer,
    .stop_sending = on_stop_wanted,
    .end_stream = on_whole,
    .reset_stream = on_reset_wanted,
};
