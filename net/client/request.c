/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/client_private.h"

#include <stdlib.h>
#include <string.h>

request_t *request_find(tdm_client_t *c, int64_t id) {
    for (request_t *r = c->first; r != NULL; r = r->next) {
        if (r->id == id) return r;
    }
    return NULL;
}

void request_end(request_t *r, tdm_client_outcome_t outcome, uint64_t error) {
    if (r->is_ended) return;
    r->is_ended = 1;
    r->client->open_cnt--;
    client_keep(r->client);
    if (r->sink.end != NULL) r->sink.end(r->sink.ctx, r->id, outcome, error);
}

static void request_free(request_t *r) {
    if (r->prev != NULL) r->prev->next = r->next;
    if (r->next != NULL) r->next->prev = r->prev;
    if (r->client->first == r) r->client->first = r->next;
    free(r->body);
    free(r);
}

void requests_free(tdm_client_t *c) {
    for (request_t *r = c->first; r != NULL; r = r->next) {
        request_end(r, TDM_CLIENT_LOST, 0);
    }
    while (c->first != NULL) request_free(c->first);
}

/* --- what nghttp3 tells about a reply --------------------------------- */

static int on_field(nghttp3_conn *hc, int64_t id, int32_t token, nghttp3_rcbuf *name_buf,
                    nghttp3_rcbuf *value_buf, uint8_t flags, void *user, void *stream_user) {
    (void)hc;
    (void)flags;
    (void)user;
    request_t *r = stream_user;
    if (r == NULL || r->is_ended) return 0;
    const char *name = (const char *)nghttp3_rcbuf_get_buf(name_buf).base;
    const char *value = (const char *)nghttp3_rcbuf_get_buf(value_buf).base;
    if (token == NGHTTP3_QPACK_TOKEN__STATUS) {
        r->status = atoi(value);
        r->is_head_told = r->status >= 200; /* 1xx comes before the reply */
        if (r->is_head_told && r->sink.head != NULL) r->sink.head(r->sink.ctx, id, r->status);
    } else if (r->is_head_told && r->sink.header != NULL) {
        r->sink.header(r->sink.ctx, id, name, value);
    }
    return 0;
}

static int on_body(nghttp3_conn *hc, int64_t id, const uint8_t *bytes, size_t sz, void *user,
                   void *stream_user) {
    (void)hc;
    tdm_client_t *c = user;
    request_t *r = stream_user;
    (void)ngtcp2_conn_extend_max_stream_offset(c->nc, id, sz);
    ngtcp2_conn_extend_max_offset(c->nc, sz);
    if (r != NULL && !r->is_ended && r->sink.body != NULL) {
        r->sink.body(r->sink.ctx, id, bytes, sz);
    }
    return 0;
}

static int on_consumed_late(nghttp3_conn *hc, int64_t id, size_t sz, void *user,
                            void *stream_user) {
    (void)hc;
    (void)stream_user;
    tdm_client_t *c = user;
    (void)ngtcp2_conn_extend_max_stream_offset(c->nc, id, sz);
    ngtcp2_conn_extend_max_offset(c->nc, sz);
    return 0;
}

static int on_whole(nghttp3_conn *hc, int64_t id, void *user, void *stream_user) {
    (void)hc;
    (void)id;
    (void)user;
    if (stream_user != NULL) request_end(stream_user, TDM_CLIENT_DONE, 0);
    return 0;
}

static int on_closed(nghttp3_conn *hc, int64_t id, uint64_t error, void *user, void *stream_user) {
    (void)hc;
    (void)id;
    (void)user;
    if (stream_user == NULL) return 0;
    request_end(stream_user, TDM_CLIENT_RESET, error);
    request_free(stream_user);
    return 0;
}

static int on_stop_wanted(nghttp3_conn *hc, int64_t id, uint64_t error, void *user,
                          void *stream_user) {
    (void)hc;
    (void)stream_user;
    tdm_client_t *c = user;
    return ngtcp2_conn_shutdown_stream_read(c->nc, id, error) == 0 ? 0
                                                                   : NGHTTP3_ERR_CALLBACK_FAILURE;
}

static int on_reset_wanted(nghttp3_conn *hc, int64_t id, uint64_t error, void *user,
                           void *stream_user) {
    (void)hc;
    tdm_client_t *c = user;
    if (stream_user != NULL) request_end(stream_user, TDM_CLIENT_RESET, error);
    return ngtcp2_conn_shutdown_stream_write(c->nc, id, error) == 0 ? 0
                                                                    : NGHTTP3_ERR_CALLBACK_FAILURE;
}

static const nghttp3_callbacks reply_calls = {
    .stream_close = on_closed,
    .recv_data = on_body,
    .deferred_consume = on_consumed_late,
    .recv_header = on_field,
    .stop_sending = on_stop_wanted,
    .end_stream = on_whole,
    .reset_stream = on_reset_wanted,
};

int requests_open(tdm_client_t *c) {
    int64_t id[3];
    nghttp3_settings settings;
    nghttp3_settings_default(&settings);
    settings.qpack_encoder_max_dtable_capacity = 0;
    if (nghttp3_conn_client_new(&c->hc, &reply_calls, &settings, nghttp3_mem_default(), c) != 0) {
        c->hc = NULL;
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (ngtcp2_conn_open_uni_stream(c->nc, &id[i], NULL) != 0) return -1;
    }
    if (nghttp3_conn_bind_control_stream(c->hc, id[0]) != 0) return -1;
    return nghttp3_conn_bind_qpack_streams(c->hc, id[1], id[2]);
}

/* --- making one ------------------------------------------------------- */

static nghttp3_ssize on_read(nghttp3_conn *hc, int64_t id, nghttp3_vec *vec, size_t vec_max,
                             uint32_t *flags, void *user, void *stream_user) {
    (void)hc;
    (void)id;
    (void)vec_max;
    (void)user;
    request_t *r = stream_user;
    vec[0] = (nghttp3_vec){r->body, r->body_sz};
    *flags |= NGHTTP3_DATA_FLAG_EOF;
    return 1;
}

static void add(nghttp3_nv *nv, size_t *cnt, const char *name, const char *value) {
    nv[(*cnt)++] = (nghttp3_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value,
                                strlen(name), strlen(value), NGHTTP3_NV_FLAG_NONE};
}

static size_t build(const tdm_client_t *c, const tdm_client_request_t *req, nghttp3_nv *nv) {
    size_t cnt = 0;
    add(nv, &cnt, ":method", req->method);
    add(nv, &cnt, ":scheme", "https");
    add(nv, &cnt, ":authority", c->authority);
    add(nv, &cnt, ":path", req->path);
    for (uint32_t i = 0; i < req->header_cnt; i++) {
        add(nv, &cnt, req->header[i].name, req->header[i].value);
    }
    return cnt;
}

static request_t *request_make(tdm_client_t *c, const tdm_client_request_t *req,
                               const tdm_client_sink_t *sink) {
    request_t *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->client = c;
    if (sink != NULL) r->sink = *sink;
    if (req->body_sz > 0) {
        r->body = malloc(req->body_sz);
        if (r->body == NULL) {
            free(r);
            return NULL;
        }
        memcpy(r->body, req->body, req->body_sz);
        r->body_sz = req->body_sz;
    }
    return r;
}

static void request_link(tdm_client_t *c, request_t *r) {
    r->next = c->first;
    if (c->first != NULL) c->first->prev = r;
    c->first = r;
    c->open_cnt++;
    client_keep(c);
}

tdm_status_t tdm_client_request(tdm_client_t *c, const tdm_client_request_t *req,
                                const tdm_client_sink_t *sink, int64_t *id, tdm_error_t *err) {
    static const nghttp3_data_reader reader = {on_read};
    nghttp3_nv nv[4 + TDM_CLIENT_HEADER_MAX];
    int64_t stream_id;
    if (c->state != CLIENT_READY)
        return tdm_error_set(err, TDM_ERR_CLOSED, "client: not connected");
    if (req->header_cnt > TDM_CLIENT_HEADER_MAX) {
        return tdm_error_set(err, TDM_ERR_LIMIT, "client: over %u headers", TDM_CLIENT_HEADER_MAX);
    }
    request_t *r = request_make(c, req, sink);
    if (r == NULL) return tdm_error_set(err, TDM_ERR_NOMEM, "client: no memory for a request");
    if (ngtcp2_conn_open_bidi_stream(c->nc, &stream_id, NULL) != 0) {
        free(r->body);
        free(r);
        return tdm_error_set(err, TDM_ERR_FULL, "client: the server allows no further stream now");
    }
    r->id = stream_id;
    request_link(c, r);
    int rv = nghttp3_conn_submit_request(c->hc, stream_id, nv, build(c, req, nv),
                                         r->body == NULL ? NULL : &reader, r);
    if (rv != 0) {
        c->open_cnt--;
        client_keep(c);
        request_free(r);
        return tdm_error_set(err, TDM_ERR_INVAL, "client: %s", nghttp3_strerror(rv));
    }
    if (id != NULL) *id = stream_id;
    return TDM_OK;
}

void tdm_client_cancel(tdm_client_t *c, int64_t id) {
    request_t *r = request_find(c, id);
    if (r == NULL || r->is_ended) return;
    request_end(r, TDM_CLIENT_CANCELLED, 0);
    if (c->state != CLIENT_READY) return;
    (void)nghttp3_conn_shutdown_stream_read(c->hc, id);
    nghttp3_conn_shutdown_stream_write(c->hc, id);
    (void)ngtcp2_conn_shutdown_stream(c->nc, id, NGHTTP3_H3_REQUEST_CANCELLED);
}

uint32_t tdm_client_open_cnt(const tdm_client_t *c) {
    return c->open_cnt;
}
