/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define BLOCK_SZ (32u * 1024u) /* the library's buffer for a body of known size */

static void add(struct MHD_Response *response, const char *name, const char *value) {
    /* Refused values (a line break in a request id) are left out. */
    (void)MHD_add_response_header(response, name, value);
}

static void add_u64(struct MHD_Response *response, const char *name, uint64_t v) {
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    add(response, name, text);
}

static const char *content_type_text(uint32_t type) {
    static const char *const text[] = {
        [TDM_CONTENT_NONE] = NULL,
        [TDM_CONTENT_JSON] = "application/json",
        [TDM_CONTENT_EVENT_STREAM] = "text/event-stream; charset=utf-8",
        [TDM_CONTENT_PROMETHEUS] = "text/plain; version=0.0.4; charset=utf-8",
        [TDM_CONTENT_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
        [TDM_CONTENT_TEXT] = "text/plain; charset=utf-8",
        [TDM_CONTENT_HTML] = "text/html; charset=utf-8",
        [TDM_CONTENT_CSS] = "text/css; charset=utf-8",
        [TDM_CONTENT_SCRIPT] = "text/javascript; charset=utf-8",
    };
    return type < TDM_COUNT_OF(text) ? text[type] : NULL;
}

/* add_common: what every answer of this door carries. */
static void add_common(struct MHD_Response *response, uint32_t type) {
    const char *text = content_type_text(type);
    add(response, "Server", TDM_SERVER);
    if (text) add(response, "Content-Type", text);
    add(response, "X-Content-Type-Options", "nosniff");
}

/* Pages of other origins may read the API, never the pages that the door
   answers by itself: those tell of the machine.  has_fields: one of
   TDM_CORS_READ is there. */
static void add_origin(const tdm_http1_t *d, struct MHD_Response *response, int has_fields) {
    if (!d->config.allow_origin) return;
    add(response, "Access-Control-Allow-Origin", d->config.allow_origin);
    if (has_fields) add(response, "Access-Control-Expose-Headers", TDM_CORS_READ);
}

/* A client that may come again: the seconds of RFC 9110 section 10.2.3
   rounded up, and the two fields that OpenAI's clients read. */
static void add_retry(struct MHD_Response *response, uint32_t retry_after_ms) {
    if (!retry_after_ms) return;
    add_u64(response, "Retry-After", (retry_after_ms + 999u) / 1000u);
    add_u64(response, "retry-after-ms", retry_after_ms);
    add(response, "x-should-retry", "true");
}

static void add_allow(const tdm_http1_t *d, struct MHD_Response *response, uint32_t allow) {
    static const char *const name[] = {"GET", "HEAD", "POST", "OPTIONS"};
    char text[64] = "";
    size_t sz = 0;
    for (uint32_t m = 0; m < TDM_COUNT_OF(name); m++)
        if (allow & (1u << m))
            sz += (size_t)snprintf(text + sz, sizeof text - sz, "%s%s", sz ? ", " : "", name[m]);
    if (!sz) return;
    add(response, "Allow", text);
    if (!d->config.allow_origin) return;
    add(response, "Access-Control-Allow-Methods", text);
    add(response, "Access-Control-Allow-Headers", TDM_CORS_SENT);
    add(response, "Access-Control-Max-Age", TDM_CORS_AGE_S);
}

static enum MHD_Result send_response(request_t *r, connection_t *conn,
                                     struct MHD_Response *response, uint32_t status) {
    enum MHD_Result result = MHD_queue_response(conn, status, response);
    MHD_destroy_response(response);
    if (result == MHD_YES)
        tdm_count(r->door->wires.block, TDM_METRIC_http_responses_total,
                  tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_http1,
                              tdm_label_code(status)),
                  1);
    return result;
}

/* --- the body from the pipe -------------------------------------------- */

/* next_record looks for a record: 1 found; else *end is what to tell the
   library, and where that is 0 the connection was suspended.  Where the
   client left, the library gets one more byte and a socket that takes
   none: a failing write closes the connection at once.  Told of an error
   instead, 0.9.75 forgets a connection that was reset until it has been
   silent for idle_s, and its place with it. */
static int next_record(request_t *r, ssize_t *end) {
    tdm_http1_t *d = r->door;
    slot_t *s = r->slot;
    int is_found = 0;
    *end = 0;
    (void)pthread_mutex_lock(&d->lock);
    if (s->is_gone && !d->is_closing) {
        (void)shutdown(s->link->fd, SHUT_RDWR);
        *end = 1;
    } else if (d->is_closing) {
        *end = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (tdm_pipe_peek(&s->pipe, &s->cursor, &s->rec)) {
        s->rec_off = 0;
        is_found = 1;
    } else if (s->egress & TDM_EGRESS_END) {
        *end = s->egress & TDM_EGRESS_ABORT ? MHD_CONTENT_READER_END_WITH_ERROR
                                            : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        s->is_suspended = 1;
        MHD_suspend_connection(r->conn);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return is_found;
}

/* read_body hands over one record per call, so that the library sends one
   chunk per record: clients count chunks as tokens. */
static ssize_t read_body(void *cls, uint64_t pos, char *buf, size_t max) {
    request_t *r = cls;
    slot_t *s = r->slot;
    ssize_t end;
    (void)pos;
    if (s->rec_off == s->rec.sz && !next_record(r, &end)) {
        if (end == 1) buf[0] = 0;
        return end;
    }
    uint32_t n = (uint32_t)TDM_MIN((size_t)(s->rec.sz - s->rec_off), max);
    memcpy(buf, s->rec.bytes + s->rec_off, n);
    tdm_pipe_release(&s->pipe, n);
    s->rec_off += n;
    if (s->rec_off == s->rec.sz)
        tdm_stream_sent(&s->stream, r->door->wires.block, &s->exchange, s->rec.token_cnt,
                        tdm_clock_now_ns());
    return n;
}

enum MHD_Result tdm_http1_reply(request_t *r, connection_t *conn) {
    const tdm_reply_head_t *head = &r->slot->exchange.head;
    struct MHD_Response *response =
        head->content_sz == 0
            ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
            : MHD_create_response_from_callback(head->content_sz < 0 ? MHD_SIZE_UNKNOWN
                                                                     : (uint64_t)head->content_sz,
                                                BLOCK_SZ, read_body, r, NULL);
    if (!response) return MHD_NO;
    add_common(response, head->content_type);
    add_origin(r->door, response,
               head->request_id[0] || head->retry_after_ms || head->processing_ms);
    add_retry(response, head->retry_after_ms);
    add_allow(r->door, response, head->allow);
    if (head->request_id[0]) add(response, "x-request-id", head->request_id);
    if (head->processing_ms) add_u64(response, "openai-processing-ms", head->processing_ms);
    if (head->status == 401) add(response, "WWW-Authenticate", "Bearer");
    if (head->is_coded) add(response, "Accept-Encoding", "identity");
    if (head->is_stream) {
        add(response, "Cache-Control", "no-cache");
        add(response, "X-Accel-Buffering", "no");
    }
    return send_response(r, conn, response, head->status);
}

/* --- answers of the door itself ---------------------------------------- */

static const char *error_type(uint32_t status) {
    return status == 429   ? "rate_limit_error"
           : status >= 500 ? "server_error"
                           : "invalid_request_error";
}

enum MHD_Result tdm_http1_refuse(request_t *r, connection_t *conn, tdm_reason_t reason) {
    uint32_t status = (uint32_t)tdm_reason_http(reason);
    char text[512];
    int sz =
        snprintf(text, sizeof text,
                 "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
                 tdm_reason_text(reason), error_type(status), tdm_reason_name(reason));
    if (sz < 0 || (size_t)sz >= sizeof text) return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer((size_t)sz, text, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    add_common(response, TDM_CONTENT_JSON);
    if (r->is_last) add(response, "Connection", "close");
    int may_retry = status == 429 || status == 503;
    add_origin(r->door, response, may_retry);
    if (may_retry) add_retry(response, 1000);
    tdm_count(r->door->wires.block, TDM_METRIC_refusals_total, tdm_label_reason(reason), 1);
    return send_response(r, conn, response, status);
}

/* put_off: a peer waits for whom there is no descriptor.  The library looks
   at it no more until one of its connections ends, but where it has none it
   looks again at once, and for ever ("... at FIRST connection ..."): as there
   is nobody else to serve, its thread is held here. */
static int put_off(tdm_http1_t *d, const char *format) {
    static const char known[] = "Hit process or system resource limit at ";
    if (strncmp(format, known, sizeof known - 1) != 0) return 0;
    tdm_count(d->wires.block, TDM_METRIC_http_connections_put_off_total, 0, 1);
    const struct timespec pause = {.tv_nsec = PUT_OFF_NS};
    if (format[sizeof known - 1] == 'F') (void)nanosleep(&pause, NULL);
    return 1;
}

/* The library's parser answers what is no HTTP by itself and says so in a
   message alone, "... (HTTP response code is %u ...)" with the code first
   among its values (libmicrohttpd 0.9.75, connection.c): counted here, and
   in no other place.  The format tells, not the text, which may hold a
   client's words.  Its other messages are about clients that left. */
void tdm_http1_log(void *cls, const char *format, va_list args) {
    static const char known[] = "HTTP response code is %u";
    tdm_http1_t *d = cls;
    if (put_off(d, format)) return;
    const char *mark = strstr(format, known), *value = strchr(format, '%');
    if (!mark || value != mark + sizeof known - 3u) return;
    unsigned status = va_arg(args, unsigned);
    if (status < 400 || status > 599) return;
    tdm_reason_t reason = status == 431 || status == 414 ? TDM_REFUSE_header_too_large
                          : status == 413                ? TDM_REFUSE_body_too_large
                          : status >= 500                ? TDM_REFUSE_internal
                                                         : TDM_REFUSE_bad_request;
    tdm_count(d->wires.block, TDM_METRIC_refusals_total, tdm_label_reason(reason), 1);
    tdm_count(
        d->wires.block, TDM_METRIC_http_responses_total,
        tdm_series2(TDM_METRIC_http_responses_total, TDM_LABEL_DOOR_http1, tdm_label_code(status)),
        1);
}

static const char *header(connection_t *conn, const char *name) {
    const char *v = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
    return v ? v : "";
}

/* ask_of gives the question as a page hears it; pointers live as long as
   the request. */
static tdm_http1_ask_t ask_of(const request_t *r, connection_t *conn) {
    return (tdm_http1_ask_t){
        .method = r->method,
        .is_trusted = r->is_trusted,
        .is_misnamed = r->is_misnamed,
        .peer_fd = r->link && r->link->is_unix ? r->link->fd : -1,
        .path = r->path,
        .query = r->query,
        .accept = header(conn, "accept"),
        .accept_encoding = header(conn, "accept-encoding"),
        .authorization = header(conn, "authorization"),
        .host = r->host[0] ? r->host : header(conn, "host"),
        .origin = header(conn, "origin"),
        .fetch_site = header(conn, "sec-fetch-site"),
        .csrf = header(conn, "x-csrf-token"),
        .content_type = header(conn, "content-type"),
        .content_coding = r->coding,
        .body = (const char *)r->body,
        .body_sz = r->body_sz,
    };
}

/* response_of makes the library's response of a page; NULL: no memory, or
   no place for one more feed. */
static struct MHD_Response *response_of(request_t *r, const tdm_http1_page_t *page) {
    if (!page->more)
        return MHD_create_response_from_buffer(page->sz, (void *)(uintptr_t)page->data,
                                               MHD_RESPMEM_MUST_COPY);
    r->feed = tdm_http1_feed_open(r->door, r, page);
    if (!r->feed) return NULL;
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SZ, tdm_http1_feed_read,
                                             r->feed, NULL);
}

/* add_policy: what a page for people carries, so that a browser runs and
   loads nothing but what this door sends. */
static void add_policy(struct MHD_Response *response, const char *policy) {
    add(response, "Content-Security-Policy", policy);
    add(response, "X-Frame-Options", "DENY");
    add(response, "Referrer-Policy", "no-referrer");
    add(response, "Cross-Origin-Opener-Policy", "same-origin");
    add(response, "Cross-Origin-Resource-Policy", "same-origin");
}

int tdm_http1_local(request_t *r, connection_t *conn, enum MHD_Result *result) {
    const tdm_http1_wires_t *wires = &r->door->wires;
    if (!wires->page || r->is_truncated) return 0;
    if (r->method > TDM_METHOD_POST) return 0;
    tdm_http1_ask_t ask = ask_of(r, conn);
    tdm_http1_page_t page = {.status = 200};
    if (!wires->page(wires->page_ctx, &ask, &page)) return 0;
    if (page.more && r->method == TDM_METHOD_HEAD) page.more = NULL;
    struct MHD_Response *response = response_of(r, &page);
    *result = MHD_NO;
    if (!response && page.more) *result = tdm_http1_refuse(r, conn, TDM_REFUSE_exchange_limit);
    if (!response) return 1;
    add_common(response, page.content_type);
    if (page.is_coded) add(response, "Accept-Encoding", "identity");
    if (page.is_gzip) add(response, "Content-Encoding", "gzip");
    if (page.policy) add_policy(response, page.policy);
    if (page.location) add(response, "Location", page.location);
    if (page.status == 401) {
        add(response, "WWW-Authenticate", "Bearer");
        tdm_count(wires->block, TDM_METRIC_refusals_total, tdm_label_reason(TDM_REFUSE_auth), 1);
    }
    add(response, "Vary", "Accept, Accept-Encoding");
    add(response, "Cache-Control", "no-store");
    *result = send_response(r, conn, response, page.status);
    return 1;
}
