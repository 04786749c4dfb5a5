/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h3/h3_private.h"

#include "appliance/ring/pipe.h"

#include <stdio.h>

#define FIELD_MAX 24u
#define TEXT_MAX  512u

/* fields is a header section being built: nghttp3 copies the values when
   the response is submitted. */
typedef struct fields {
    nghttp3_nv nv[FIELD_MAX];
    uint32_t cnt;
    uint32_t text_used;
    char text[TEXT_MAX];
} fields_t;

static void add(fields_t *f, const char *name, const char *value) {
    if (f->cnt == FIELD_MAX) return;
    f->nv[f->cnt++] = (nghttp3_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = strlen(value),
        .flags = NGHTTP3_NV_FLAG_NO_COPY_NAME, /* names are literals */
    };
}

static void add_number(fields_t *f, const char *name, uint64_t value) {
    char digit[20]; /* of 2^64 - 1 */
    uint32_t cnt = 0;
    if (TEXT_MAX - f->text_used < sizeof digit + 1u) return;
    do digit[cnt++] = (char)('0' + value % 10u);
    while ((value /= 10u) > 0);
    char *text = f->text + f->text_used;
    for (uint32_t i = 0; i < cnt; i++) text[i] = digit[cnt - 1u - i];
    text[cnt] = '\0';
    f->text_used += cnt + 1u;
    add(f, name, text);
}

static void add_methods(fields_t *f, uint32_t allow) {
    static const char *const name[] = {"GET", "HEAD", "POST", "OPTIONS"};
    char *text = f->text + f->text_used;
    if (TEXT_MAX - f->text_used < 48) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(name); i++) {
        if (!(allow & (1u << i))) continue;
        n += (uint32_t)snprintf(text + n, 48 - n, "%s%s", n == 0 ? "" : ", ", name[i]);
    }
    f->text_used += n + 1u;
    add(f, "allow", text);
    add(f, "access-control-allow-methods", text);
    add(f, "access-control-allow-headers", TDM_CORS_SENT);
    add(f, "access-control-max-age", TDM_CORS_AGE_S);
}

static const char *content_type_text(uint32_t type) {
    switch (type) {
    case TDM_CONTENT_JSON: return "application/json";
    case TDM_CONTENT_EVENT_STREAM: return "text/event-stream; charset=utf-8";
    case TDM_CONTENT_PROMETHEUS: return "text/plain; version=0.0.4; charset=utf-8";
    case TDM_CONTENT_OPENMETRICS:
        return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case TDM_CONTENT_TEXT: return "text/plain; charset=utf-8";
    default: return NULL;
    }
}

static void build(fields_t *f, const tdm_reply_head_t *head) {
    const char *type = content_type_text(head->content_type);
    f->cnt = 0;
    f->text_used = 0;
    add_number(f, ":status", head->status);
    add(f, "server", TDM_SERVER);
    if (type != NULL) add(f, "content-type", type);
    if (head->content_sz >= 0) add_number(f, "content-length", (uint64_t)head->content_sz);
    if (head->request_id[0] != '\0') add(f, "x-request-id", head->request_id);
    if (head->status == 401) add(f, "www-authenticate", "Bearer");
    if (head->is_coded) add(f, "accept-encoding", "identity");
    if (head->is_stream) {
        add(f, "cache-control", "no-cache");
        add(f, "x-accel-buffering", "no");
    }
    if (head->processing_ms != 0) add_number(f, "openai-processing-ms", head->processing_ms);
    if (head->retry_after_ms != 0) {
        add_number(f, "retry-after", (head->retry_after_ms + 999u) / 1000u);
        add_number(f, "retry-after-ms", head->retry_after_ms);
        add(f, "x-should-retry", "true");
    }
    add(f, "access-control-allow-origin", "*");
    /* Long, and of use only where one of them is there. */
    if (head->request_id[0] != '\0' || head->retry_after_ms != 0 || head->processing_ms != 0)
        add(f, "access-control-expose-headers", TDM_CORS_READ);
    if (head->allow != 0) add_methods(f, head->allow);
}

/* --- the body --------------------------------------------------------- */

/* drain_pipe throws away what nobody will read. */
static void drain_pipe(stream_t *st) {
    tdm_pipe_record_t rec;
    while (st->x != NULL && tdm_pipe_peek(st->x->reply, &st->cursor, &rec)) {
        tdm_pipe_release(st->x->reply, rec.sz);
    }
}

int own_take(stream_t *st) {
    tdm_h3_t *h = st->session->h;
    tdm_pipe_record_t rec;
    uint32_t cursor = st->cursor, sz = 0;
    if (!st->is_vital || st->method != TDM_METHOD_GET) return 0;
    while (tdm_pipe_peek(st->x->reply, &cursor, &rec)) {
        if (rec.sz > OWN_COPY_MAX - sz) return 0;
        sz += rec.sz;
    }
    st->own_copy = tdm_quic_conn_alloc(st->session->c, sz);
    if (st->own_copy == NULL) return 0;
    for (st->own_sz = 0; tdm_pipe_peek(st->x->reply, &st->cursor, &rec); st->own_sz += rec.sz) {
        memcpy(st->own_copy + st->own_sz, rec.bytes, rec.sz);
        h->cfg.tile.record_sent(h->cfg.tile.ctx, st->x, rec.token_cnt, rec.made_ns, h->now_ns);
    }
    st->own_body = st->own_copy;
    exchange_give_back(st);
    return 1;
}

static nghttp3_ssize read_own(stream_t *st, nghttp3_vec *vec, uint32_t *flags) {
    *flags |= NGHTTP3_DATA_FLAG_EOF;
    st->is_end_sent = 1;
    vec[0] = (nghttp3_vec){(uint8_t *)(uintptr_t)st->own_body, st->own_sz};
    return st->own_sz > 0;
}

/* on_read gives nghttp3 the records that wait in the pipe.  Their bytes
   stay where they are until reply_acked. */
static nghttp3_ssize on_read(nghttp3_conn *nc, int64_t id, nghttp3_vec *vec, size_t vec_max,
                             uint32_t *flags, void *user, void *stream_user) {
    (void)nc;
    (void)id;
    tdm_h3_t *h = ((session_t *)user)->h;
    stream_t *st = stream_user;
    if (st->own_body != NULL) return read_own(st, vec, flags);
    if (st->x == NULL) return NGHTTP3_ERR_WOULDBLOCK;
    /* END is looked at before the pipe: what was written before END is
       then seen as well. */
    int is_end_seen = st->is_end_seen;
    size_t cnt = 0;
    tdm_pipe_record_t rec;
    while (cnt < vec_max && tdm_pipe_peek(st->x->reply, &st->cursor, &rec)) {
        vec[cnt++] = (nghttp3_vec){(uint8_t *)(uintptr_t)rec.bytes, rec.sz};
        st->owed_sz += rec.sz;
        h->cfg.tile.record_sent(h->cfg.tile.ctx, st->x, rec.token_cnt, rec.made_ns, h->now_ns);
    }
    if (cnt < vec_max && is_end_seen) {
        *flags |= NGHTTP3_DATA_FLAG_EOF;
        st->is_end_sent = 1;
        return (nghttp3_ssize)cnt;
    }
    return cnt == 0 ? NGHTTP3_ERR_WOULDBLOCK : (nghttp3_ssize)cnt;
}

int reply_acked(stream_t *st, uint64_t sz) {
    st->moved_ns = st->session->h->now_ns;
    if (st->own_body != NULL || st->x == NULL) return 0;
    tdm_pipe_release(st->x->reply, sz);
    st->owed_sz -= TDM_MIN(sz, st->owed_sz);
    give_back_taken(st);
    return 0;
}

/* --- the reply's life ------------------------------------------------- */

void reply_head(stream_t *st, const tdm_reply_head_t *head) {
    session_t *s = st->session;
    tdm_h3_t *h = s->h;
    fields_t f;
    build(&f, head);
    st->is_head_sent = 1;
    st->is_bodyless = st->method == TDM_METHOD_HEAD || head->status == 204 || head->status == 304;
    const nghttp3_data_reader reader = {on_read};
    int rv =
        nghttp3_conn_submit_response(s->nc, st->id, f.nv, f.cnt, st->is_bodyless ? NULL : &reader);
    if (rv != 0) {
        tdm_quic_conn_fail(s->c, nghttp3_err_infer_quic_app_error_code(rv));
        return;
    }
    if (st->is_bodyless) st->is_end_sent = 1;
    h->counters.replies++;
    tdm_quic_conn_wake(s->c);
}

void reply_more(stream_t *st) {
    session_t *s = st->session;
    if (st->is_bodyless) {
        drain_pipe(st);
        return;
    }
    int rv = nghttp3_conn_resume_stream(s->nc, st->id);
    if (rv != 0) tdm_quic_conn_fail(s->c, nghttp3_err_infer_quic_app_error_code(rv));
    tdm_quic_conn_wake(s->c);
}

void reply_cut(stream_t *st, uint64_t error) {
    session_t *s = st->session;
    st->is_gone = 1;
    st->moved_ns = s->h->now_ns;
    late_remove(st);
    (void)nghttp3_conn_shutdown_stream_read(s->nc, st->id);
    nghttp3_conn_shutdown_stream_write(s->nc, st->id);
    tdm_quic_conn_reset(s->c, st->id, error);
}
