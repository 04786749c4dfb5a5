/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http1/http1_private.h"

#include "appliance/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A body over its bound is read and thrown away up to this much more, so
   that the client reads our answer before it sees a reset. */
#define DRAIN_MAX(config) ((config)->body_max + (UINT64_C(4) << 20))

static const char *field(connection_t *conn, const char *name) {
    const char *v = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
    return v ? v : "";
}

/* put copies text into out[cap] and says whether all of it fit. */
static int put(char *out, size_t cap, const char *text, size_t sz) {
    size_t n = TDM_MIN(sz, cap - 1);
    memcpy(out, text, n);
    out[n] = '\0';
    return n == sz;
}

/* origin_form gives path and query of a target.  One that names a host (RFC
   9112 section 3.2.2), as it is sent to a proxy, keeps it in r->host. */
static const char *origin_form(request_t *r, const char *uri) {
    size_t skip = strncasecmp(uri, "http://", 7) == 0    ? 7
                  : strncasecmp(uri, "https://", 8) == 0 ? 8
                                                         : 0;
    size_t sz = skip ? strcspn(uri + skip, "/?") : 0;
    if (sz == 0) return uri;
    r->is_truncated = !put(r->host, sizeof r->host, uri + skip, sz);
    return uri + skip + sz;
}

/* The library calls this with the request target as it came, before it
   decodes anything: path and query stay raw, as over HTTP/3. */
void *tdm_http1_uri(void *cls, const char *uri, connection_t *conn) {
    request_t *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->door = cls;
    r->conn = conn;
    r->link = tdm_http1_link_of(conn);
    if (r->link) {
        tdm_http1_due(r->link, r->door->config.header_ms);
        tdm_http1_yield(r->link, YIELD_NS);
    }
    r->first_byte_ns = tdm_clock_now_ns();
    r->target_end = uri + strlen(uri);
    uri = origin_form(r, uri);
    const char *mark = strchr(uri, '?');
    size_t path_sz = mark ? (size_t)(mark - uri) : strlen(uri);
    int is_whole = put(r->path, sizeof r->path, path_sz ? uri : "/", path_sz ? path_sz : 1);
    if (mark) is_whole &= put(r->query, sizeof r->query, mark + 1, strlen(mark + 1));
    r->is_truncated |= !is_whole;
    return r;
}

/* --- the head --------------------------------------------------------- */

static uint16_t method_of(const char *method) {
    if (strcmp(method, "GET") == 0) return TDM_METHOD_GET;
    if (strcmp(method, "HEAD") == 0) return TDM_METHOD_HEAD;
    if (strcmp(method, "POST") == 0) return TDM_METHOD_POST;
    if (strcmp(method, "OPTIONS") == 0) return TDM_METHOD_OPTIONS;
    return TDM_METHOD_OTHER;
}

/* fields_t is what all fields of a head say together. */
typedef struct fields {
    request_t *request;
    uint64_t sz;
    size_t coding_sz;
    uint32_t seen;  /* bit i: once[i] was there */
    uint8_t is_bad; /* a name or value that is none, or a second line of once */
    uintptr_t at;   /* of the head's text: what is before was looked at */
    uintptr_t end;
} fields_t;

/* Fields that may come once: of two, one reader takes the first and another
   the second.  Those of the length stand first. */
enum { CONTENT_LENGTH, TRANSFER_ENCODING, HOST };
static const char *const once[] = {"content-length", "transfer-encoding", "host",
                                   "authorization",  "content-type",      "origin",
                                   "x-request-id"};

static void add_once(fields_t *f, const char *key) {
    for (uint32_t i = 0; i < TDM_COUNT_OF(once); i++) {
        if (strcasecmp(key, once[i]) != 0) continue;
        if (f->seen >> i & 1u) f->is_bad = 1;
        f->seen |= 1u << i;
    }
}

/* gap goes on to `to`.  Between what the library gives there are blanks and the
   NULs that it wrote itself, for a colon or for CR LF.  One more was the
   client's: the library ends a text there, others do not (RFC 9110, 5.5).  The
   name of a folded line (RFC 9112, 5.2) lies elsewhere, with the rest of the
   line at its end. */
static void gap(fields_t *f, uintptr_t to, uint32_t nul_max) {
    if (to < f->at || to > f->end) {
        f->is_bad = 1;
        return;
    }
    for (; f->at < to; f->at++) {
        char c = *(const char *)f->at;
        if (c == '\0' && nul_max-- == 0) f->is_bad = 1;
        if (c != '\0' && c != ' ' && c != '\t') f->is_bad = 1;
        if (f->is_bad) return;
    }
}

/* is_name: RFC 9110 section 5.6.2.  The library takes "Content-Length " for
   another field than Content-Length, and so its body for a request. */
static int is_name(const char *key) {
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t sz = strspn(key, token);
    return sz > 0 && key[sz] == '\0';
}

/* is_host: one host, perhaps with a port, or nothing (RFC 9110, 7.2; RFC 3986,
   3.2.2). */
static int is_host(const char *value) {
    static const char good[] = "-._~%!$&'()*+,;=:[]0123456789abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return value[strspn(value, good)] == '\0';
}

/* add_coding keeps all lines of Content-Encoding, which is a list. */
static void add_coding(fields_t *f, const char *value) {
    char *out = f->request->coding;
    size_t cap = sizeof f->request->coding, at = f->coding_sz;
    if (at > 0 && at + 1 < cap) out[at++] = ',';
    f->request->is_truncated |= !put(out + at, cap - at, value, strlen(value));
    f->coding_sz = at + strlen(out + at);
}

static enum MHD_Result add_field(void *cls, enum MHD_ValueKind kind, const char *key,
                                 const char *value) {
    fields_t *f = cls;
    (void)kind;
    gap(f, (uintptr_t)key, 2);
    f->at = (uintptr_t)key + strlen(key);
    if (value) {
        gap(f, (uintptr_t)value, 1);
        f->at = (uintptr_t)value + strlen(value);
    }
    if (!value) value = "";
    f->sz += strlen(key) + strlen(value) + 4; /* ": " and CR LF */
    f->is_bad |= !is_name(key);
    /* The library ends a line at LF alone, others at CR as well (RFC 9110, 5.5). */
    f->is_bad |= strpbrk(value, "\r\n") != NULL;
    if (strcasecmp(key, once[HOST]) == 0) f->is_bad |= !is_host(value);
    add_once(f, key);
    if (strcasecmp(key, "content-encoding") == 0) add_coding(f, value);
    return MHD_YES;
}

/* look_at_fields goes through the head behind its first line, which lies in
   the library's memory as it came. */
static void look_at_fields(fields_t *f, connection_t *conn, const char *method,
                           const char *version) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t sz = info ? info->header_size : 0;
    f->at = (uintptr_t)version + strlen(version);
    f->end = (uintptr_t)method + sz;
    f->is_bad = sz > LINK_SZ || f->request->target_end + 1 != version;
    (void)MHD_get_connection_values(conn, MHD_HEADER_KIND, add_field, f);
    gap(f, f->end, 4);
}

/* is_framed: there is a host, and everybody agrees where the body ends (RFC 9112 section 6.3).
   The library leaves out a transfer coding that it does not know, prefers
   chunks to a length, and goes on behind both. */
static int is_framed(const fields_t *f, connection_t *conn, const char *version) {
    int is_old = strcmp(version, "HTTP/1.0") == 0;
    if (f->is_bad) return 0;
    if (!is_old && !(f->seen >> HOST & 1u)) return 0; /* RFC 9112 section 3.2 */
    if (!(f->seen >> TRANSFER_ENCODING & 1u)) return 1;
    if (is_old || f->seen >> CONTENT_LENGTH & 1u) return 0;
    return strcasecmp(field(conn, once[TRANSFER_ENCODING]), "chunked") == 0;
}

/* judge says whom a request is from.  A browser that runs here sends what
   pages of others want: only one that names this machine is its own. */
static void judge(request_t *r, connection_t *conn) {
    int is_unix, is_local = tdm_http1_is_local(conn, &is_unix);
    r->is_misnamed = is_local && !is_unix &&
                     !tdm_http1_is_named(r->door, r->host[0] ? r->host : field(conn, "host"),
                                         field(conn, "origin"));
    r->is_trusted = is_local && !r->is_misnamed;
    if (r->is_misnamed)
        tdm_count(r->door->wires.block, TDM_METRIC_http_misnamed_requests_total, 0, 1);
}

/* look_at_head decides what the header alone decides; says whether the
   refusal must go out before the body. */
static int look_at_head(request_t *r, connection_t *conn, const char *method, const char *version) {
    const tdm_http1_config_t *config = &r->door->config;
    fields_t f = {.request = r};
    r->method = method_of(method);
    judge(r, conn);
    look_at_fields(&f, conn, method, version);
    if (f.sz > config->header_max) {
        r->refuse = TDM_REFUSE_header_too_large;
        return 1;
    }
    if (!is_framed(&f, conn, version)) {
        r->refuse = TDM_REFUSE_bad_request;
        return 1;
    }
    /* The library refused a length that is no number before it got here. */
    uint64_t body_sz = strtoull(field(conn, "content-length"), NULL, 10);
    if (body_sz <= config->body_max) return 0;
    r->refuse = TDM_REFUSE_body_too_large;
    return body_sz > DRAIN_MAX(config) || strcasecmp(field(conn, "expect"), "100-continue") == 0;
}

/* --- the body --------------------------------------------------------- */

static void refuse_body(request_t *r, tdm_reason_t reason) {
    r->refuse = (uint16_t)reason;
    tdm_http1_body_drop(r->door, r->body, r->body_cap);
    r->body = NULL;
    r->body_sz = r->body_cap = 0;
}

static enum MHD_Result take_body(request_t *r, const char *data, size_t sz) {
    const tdm_http1_config_t *config = &r->door->config;
    if (!r->refuse && sz > config->body_max - r->body_sz) refuse_body(r, TDM_REFUSE_body_too_large);
    if (!r->refuse && !tdm_http1_body_grow(r->door, r, sz))
        refuse_body(r, TDM_REFUSE_exchange_limit);
    if (r->refuse) {
        r->dropped_sz += sz;
        return r->dropped_sz <= DRAIN_MAX(config) ? MHD_YES : MHD_NO;
    }
    memcpy(r->body + r->body_sz, data, sz);
    r->body_sz += sz;
    return MHD_YES;
}

/* --- the exchange ------------------------------------------------------ */

static void fill(request_t *r, connection_t *conn, tdm_exchange_t *x) {
    x->method = r->method;
    x->is_trusted_peer = r->is_trusted;
    x->is_misnamed = r->is_misnamed;
    x->first_byte_ns = r->first_byte_ns;
    x->arrival_ns = tdm_clock_now_ns();
    x->body = r->body;
    x->body_sz = r->body_sz;
    memcpy(x->path, r->path, sizeof x->path);
    memcpy(x->query, r->query, sizeof x->query);
    memcpy(x->content_coding, r->coding, sizeof x->content_coding);
    const struct {
        const char *name;
        char *out;
        size_t cap;
    } row[] = {{"authorization", x->authorization, sizeof x->authorization},
               {"content-type", x->content_type, sizeof x->content_type},
               {"x-request-id", x->request_id, sizeof x->request_id}};
    int is_whole = !r->is_truncated;
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        const char *v = field(conn, row[i].name);
        is_whole &= put(row[i].out, row[i].cap, v, strlen(v));
    }
    x->is_truncated = !is_whole;
}

/* push_locked offers the arrival to the api tiles in turn; 0: all full. */
static int push_locked(tdm_http1_t *d, slot_t *s) {
    tdm_arrival_t a = {&s->exchange, s->exchange.handle.generation, 0};
    for (uint32_t i = 0; i < d->wires.api_cnt; i++) {
        s->api = (uint16_t)((d->next_api + i) % d->wires.api_cnt);
        if (!tdm_ring_push(d->wires.arrivals[s->api], d->config.door, &a)) continue;
        d->next_api = s->api + 1u;
        return 1;
    }
    return 0;
}

/* is_vital: what a full house still answers, besides the caller's pages. */
static int is_vital(const request_t *r) {
    if (r->method != TDM_METHOD_GET && r->method != TDM_METHOD_HEAD) return 0;
    return strcmp(r->path, "/health") == 0 || strcmp(r->path, "/ready") == 0;
}

static enum MHD_Result submit(request_t *r, connection_t *conn) {
    tdm_http1_t *d = r->door;
    enum MHD_Result result;
    if (r->link) {
        tdm_http1_due(r->link, 0);
        tdm_http1_yield(r->link, YIELD_NS);
    }
    if (r->refuse) return tdm_http1_refuse(r, conn, (tdm_reason_t)r->refuse);
    if (tdm_http1_local(r, conn, &result)) return result;
    link_t *link = r->link;
    int has_place = link && (is_vital(r) || !tdm_http1_is_extra(d, link));
    slot_t *s = has_place ? tdm_http1_slot_take(d, is_vital(r)) : NULL;
    if (!s) return tdm_http1_refuse(r, conn, TDM_REFUSE_exchange_limit);
    fill(r, conn, &s->exchange);
    (void)pthread_mutex_lock(&d->lock);
    /* Pushed and suspended under one lock: the answer cannot come between. */
    int has_left = link->has_left;
    int is_pushed = !has_left && push_locked(d, s);
    if (is_pushed) {
        s->body_cap = r->body_cap;
        r->body = NULL;
        r->body_cap = 0;
        r->slot = s;
        s->conn = conn;
        s->link = link;
        link->slot = s;
        s->is_suspended = 1;
        MHD_suspend_connection(conn);
    } else {
        s->exchange.body = NULL;
        s->egress = TDM_EGRESS_END; /* api never saw it */
        tdm_http1_slot_release_locked(d, s);
    }
    (void)pthread_mutex_unlock(&d->lock);
    if (has_left) return MHD_NO;
    if (!is_pushed) return tdm_http1_refuse(r, conn, TDM_REFUSE_exchange_limit);
    tdm_count(d->wires.block, TDM_METRIC_exchanges_total, TDM_LABEL_DOOR_http1, 1);
    return MHD_YES;
}

/* resumed goes on with a slot whose connection was woken. */
static enum MHD_Result resumed(request_t *r, connection_t *conn) {
    tdm_http1_t *d = r->door;
    slot_t *s = r->slot;
    (void)pthread_mutex_lock(&d->lock);
    int is_over = s->is_gone || d->is_closing ||
                  ((s->egress & TDM_EGRESS_END) && !(s->egress & TDM_EGRESS_HEAD));
    int is_ready = !is_over && (s->egress & TDM_EGRESS_HEAD);
    if (!is_over && !is_ready) {
        s->is_suspended = 1;
        MHD_suspend_connection(conn);
    }
    (void)pthread_mutex_unlock(&d->lock);
    if (is_over) return MHD_NO;
    return is_ready ? tdm_http1_reply(r, conn) : MHD_YES;
}

enum MHD_Result tdm_http1_handle(void *cls, connection_t *conn, const char *url, const char *method,
                                 const char *version, const char *data, size_t *data_sz,
                                 void **con_cls) {
    (void)cls;
    (void)url;
    request_t *r = *con_cls;
    if (!r) return MHD_NO;
    if (!r->has_head) {
        r->has_head = 1;
        if (r->link) {
            tdm_http1_due(r->link, r->door->config.body_ms);
            tdm_http1_yield(r->link, YIELD_BODY_NS);
        }
        r->is_last = look_at_head(r, conn, method, version) != 0;
        return r->is_last ? tdm_http1_refuse(r, conn, (tdm_reason_t)r->refuse) : MHD_YES;
    }
    if (*data_sz) {
        enum MHD_Result result = take_body(r, data, *data_sz);
        *data_sz = 0;
        return result;
    }
    if (r->slot) return resumed(r, conn);
    return submit(r, conn);
}

void tdm_http1_completed(void *cls, connection_t *conn, void **con_cls,
                         enum MHD_RequestTerminationCode code) {
    (void)cls;
    (void)conn;
    request_t *r = *con_cls;
    if (!r) return;
    *con_cls = NULL;
    tdm_http1_t *d = r->door;
    slot_t *s = r->slot;
    if (r->link) tdm_http1_yield(r->link, YIELD_NS);
    if (s) {
        int is_cut = code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
        s->stream.sent_ns = tdm_clock_now_ns();
        tdm_stream_ended(&s->stream, d->wires.block, &s->exchange,
                         is_cut ? TDM_STREAM_LEFT : tdm_http1_slot_end(d, s));
        tdm_http1_slot_detach(d, s, is_cut, r->method == TDM_METHOD_HEAD);
    }
    if (r->feed) tdm_http1_feed_close(d, r->feed);
    tdm_http1_body_drop(d, r->body, r->body_cap);
    free(r);
}
