/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/pages.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "telemetry/flight/recent.h"
#include "telemetry/read/journey.h"
#include "telemetry/read/page.h"
#include "telemetry/read/process.h"
#include "telemetry/read/snapshot.h"
#include "telemetry/read/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tdm_status_t tdm_pages_open(tdm_pages_t *p, const tdm_wires_t *wires, const tdm_config_t *config,
                            tdm_console_t *console, const void *flight, int64_t start_ns,
                            tdm_error_t *err) {
    *p = (tdm_pages_t){.wires = wires,
                       .config = config,
                       .console = console,
                       .flight = flight,
                       .start_ns = start_ns,
                       .cap = TDM_METRICS_TEXT_MAX};
    p->text = malloc(p->cap);
    p->gz = malloc(p->cap);
    p->past = calloc(TDM_PAGES_PAST, sizeof *p->past);
    p->history = calloc(1, sizeof *p->history);
    if (flight) p->stories = malloc(tdm_recent_footprint(flight));
    (void)pthread_mutex_init(&p->lock, NULL);
    if (p->text && p->gz && p->past && p->history && (p->stories || !flight)) {
        tdm_web_open(&p->web, config->control_chart);
        return TDM_OK;
    }
    tdm_pages_close(p);
    return tdm_error_set(err, TDM_ERR_NOMEM, "no memory for the pages of the management port");
}

void tdm_pages_close(tdm_pages_t *p) {
    tdm_web_close(&p->web);
    free(p->text);
    free(p->gz);
    free(p->past);
    free(p->history);
    free(p->stories);
    p->text = p->gz = NULL;
    p->past = NULL;
    p->history = NULL;
    p->stories = NULL;
}

void tdm_pages_fact(tdm_pages_t *p, const char *key, const char *value) {
    TDM_CHECK(p->fact_cnt < TDM_PAGES_FACT_MAX);
    p->fact[p->fact_cnt++] = (tdm_fact_t){key, value};
}

static int failed(tdm_http1_page_t *page) {
    static const char text[] = "the page does not fit its buffer, or memory is short\n";
    *page = (tdm_http1_page_t){
        .status = 500, .content_type = TDM_CONTENT_TEXT, .data = text, .sz = sizeof text - 1};
    return 1;
}

static int done(tdm_pages_t *p, tdm_http1_page_t *page, tdm_content_type_t type, size_t sz) {
    if (sz >= p->cap) return failed(page);
    *page = (tdm_http1_page_t){
        .status = 200, .content_type = (uint16_t)type, .data = p->text, .sz = sz};
    return 1;
}

void tdm_pages_config(tdm_pages_t *p, const tdm_config_t *config) {
    tdm_store_release(&p->config, config); /* V3: pairs with the acquire in config_text */
}

static size_t config_text(tdm_pages_t *p) {
    return tdm_config_print(tdm_load_acquire(&p->config), p->text, p->cap); /* V3 */
}

static int bad_set(tdm_http1_page_t *page) {
    static const char text[] =
        "{\"error\":{\"message\":\"set is native, compat or all\",\"type\":"
        "\"invalid_request_error\",\"param\":\"set\",\"code\":\"bad_value\"}}";
    *page = (tdm_http1_page_t){
        .status = 400, .content_type = TDM_CONTENT_JSON, .data = text, .sz = sizeof text - 1};
    return 1;
}

static int metrics(tdm_pages_t *p, const tdm_http1_ask_t *ask, tdm_http1_page_t *page,
                   const tdm_snapshot_t *s) {
    tdm_metrics_page_t m;
    tdm_metrics_ask_t want = {.query = ask->query,
                              .accept = ask->accept,
                              .accept_encoding = ask->accept_encoding,
                              .fact = p->fact,
                              .fact_cnt = p->fact_cnt,
                              .model_name = p->model_name};
    tdm_status_t st = tdm_metrics_page(s, &want, p->text, p->cap, p->gz, p->cap, &m);
    if (st == TDM_ERR_INVAL) {
        tdm_count(p->wires->block[TDM_BLOCK_PAGE], TDM_METRIC_refusals_total,
                  tdm_label_reason(TDM_REFUSE_bad_value), 1);
        return bad_set(page);
    }
    if (st != TDM_OK) return failed(page);
    *page = (tdm_http1_page_t){.status = 200,
                               .content_type = m.format == TDM_METRICS_OPENMETRICS
                                                   ? TDM_CONTENT_OPENMETRICS
                                                   : TDM_CONTENT_PROMETHEUS,
                               .is_gzip = (uint32_t)m.is_gzip,
                               .data = m.data,
                               .sz = m.sz};
    return 1;
}

/* past_at gives the n-th snapshot ever kept; the PAST newest are there. */
static tdm_snapshot_t *past_at(tdm_pages_t *p, uint64_t n) {
    return &p->past[n % TDM_PAGES_PAST];
}

/* window_begin gives the snapshot that the window begins with, NULL: none is
   kept yet, the start. */
static const tdm_snapshot_t *window_begin(tdm_pages_t *p, int64_t now_ns) {
    static tdm_snapshot_t s; /* one thread; too large for a stack */
    (void)pthread_mutex_lock(&p->lock);
    uint64_t cnt = p->past_cnt, n = cnt - TDM_MIN(cnt, (uint64_t)TDM_PAGES_PAST);
    while (n + 1 < cnt && now_ns - past_at(p, n)->at_ns > TDM_PAGES_WINDOW_S * TDM_NS_PER_S) n++;
    if (cnt) s = *past_at(p, n);
    (void)pthread_mutex_unlock(&p->lock);
    return cnt ? &s : NULL;
}

void tdm_pages_remember(tdm_pages_t *p, int64_t now_ns) {
    static tdm_snapshot_t s; /* one thread; too large for a stack */
    int is_past = p->past_cnt == 0 || now_ns - past_at(p, p->past_cnt - 1)->at_ns >= TDM_NS_PER_S;
    int is_history = tdm_history_due(p->history, now_ns);
    if (!is_past && !is_history) return; /* only this thread writes them */
    uint32_t torn = tdm_snapshot_take(&s, (const tdm_block_t *const *)p->wires->block,
                                      p->wires->block_cnt, now_ns);
    tdm_count(p->wires->block[TDM_BLOCK_MGMT], TDM_METRIC_snapshots_torn_total, 0, torn);
    (void)pthread_mutex_lock(&p->lock);
    if (is_past) *past_at(p, p->past_cnt++) = s;
    if (is_history) tdm_history_keep(p->history, &s);
    (void)pthread_mutex_unlock(&p->lock);
}

/* since_begin gives where counts of the last span_s seconds begin; NULL: at
   the start. */
static const tdm_snapshot_t *since_begin(tdm_pages_t *p, int64_t now_ns, uint64_t span_s) {
    static tdm_snapshot_t s; /* one thread; too large for a stack */
    int64_t span_ns = (int64_t)TDM_MIN(span_s, (uint64_t)TDM_HISTORY_SPAN_S) * TDM_NS_PER_S;
    if (span_ns == 0) return NULL;
    (void)pthread_mutex_lock(&p->lock);
    const tdm_snapshot_t *kept = tdm_history_find(p->history, now_ns - span_ns);
    if (kept) s = *kept;
    (void)pthread_mutex_unlock(&p->lock);
    return kept ? &s : NULL;
}

/* What each path shows. */
enum {
    PAGE_METRICS,
    PAGE_STATUS,
    PAGE_JOURNEY,
    PAGE_CONFIG,
    PAGE_ITERATIONS,
    PAGE_REQUESTS,
    PAGE_STREAM,
    PAGE_NONE
};

static uint32_t page_of(const char *path) {
    static const struct {
        const char *path;
        uint32_t page;
    } row[] = {{"/metrics", PAGE_METRICS},          {"/status", PAGE_STATUS},
               {"/journey", PAGE_JOURNEY},          {"/config", PAGE_CONFIG},
               {"/api/v1/status", PAGE_STATUS},     {"/api/v1/journey", PAGE_JOURNEY},
               {"/api/v1/config", PAGE_CONFIG},     {"/api/v1/iterations", PAGE_ITERATIONS},
               {"/api/v1/requests", PAGE_REQUESTS}, {"/api/v1/stream", PAGE_STREAM}};
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++)
        if (strcmp(path, row[i].path) == 0) return row[i].page;
    return PAGE_NONE;
}

/* may_look fills page with a refusal where the asker may not. */
static int may_look(tdm_pages_t *p, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    tdm_actor_t actor;
    tdm_console_actor(p->console, ask, &actor);
    if (actor.role >= TDM_ROLE_VIEWER) return 1;
    tdm_console_turn_away(p->console, ask, page);
    return 0;
}

static const tdm_snapshot_t *snapshot(tdm_pages_t *p) {
    static tdm_snapshot_t s; /* one thread; too large for a stack */
    tdm_block_t *b = p->wires->block[TDM_BLOCK_PAGE];
    tdm_process_sample(b);
    uint32_t torn = tdm_snapshot_take(&s, (const tdm_block_t *const *)p->wires->block,
                                      p->wires->block_cnt, tdm_clock_now_ns());
    tdm_count(b, TDM_METRIC_snapshots_torn_total, 0, torn);
    return &s;
}

/* asked gives the number of "key=N" in a query, fallback where none is. */
static uint64_t asked(const char *query, const char *key, uint64_t fallback) {
    size_t sz = strlen(key);
    for (const char *at = query; at; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, key, sz) == 0 && at[sz] == '=' && at[sz + 1] >= '0' && at[sz + 1] <= '9')
            return strtoull(at + sz + 1, NULL, 10);
    }
    return fallback;
}

/* --- lists of the flight recorder ------------------------------------------ */

static size_t iterations_text(tdm_pages_t *p, uint64_t from, uint64_t *next, char *buf,
                              size_t cap) {
    FILE *f = fmemopen(buf, cap, "w");
    if (!f) return 0;
    *next = tdm_recent_iterations(p->flight, from, TDM_PAGES_LANE_MAX, f);
    long sz = ftell(f);
    return fclose(f) == 0 && sz > 0 ? (size_t)sz : 0;
}

static size_t requests_text(tdm_pages_t *p, uint32_t max, char *buf, size_t cap) {
    FILE *f = fmemopen(buf, cap, "w");
    if (!f) return 0;
    tdm_recent_slowest(p->flight, p->stories, max, f);
    long sz = ftell(f);
    return fclose(f) == 0 && sz > 0 ? (size_t)sz : 0;
}

static int iterations(tdm_pages_t *p, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    static const char head[] = "{\"iterations\":";
    uint64_t next = 0;
    size_t sz = sizeof head - 1;
    memcpy(p->text, head, sz);
    size_t list_sz =
        iterations_text(p, asked(ask->query, "from", 0), &next, p->text + sz, p->cap - sz - 64);
    if (list_sz == 0) return failed(page);
    sz += list_sz;
    int n = snprintf(p->text + sz, p->cap - sz, ",\"next\":%llu}\n", (unsigned long long)next);
    return done(p, page, TDM_CONTENT_JSON, sz + (size_t)TDM_MAX(n, 0));
}

static int requests(tdm_pages_t *p, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    static const char head[] = "{\"requests\":";
    uint64_t max = TDM_MIN(asked(ask->query, "slowest", 20), (uint64_t)TDM_PAGES_REQUESTS_MAX);
    size_t sz = sizeof head - 1;
    memcpy(p->text, head, sz);
    size_t list_sz = requests_text(p, (uint32_t)max, p->text + sz, p->cap - sz - 8);
    if (list_sz == 0) return failed(page);
    sz += list_sz;
    memcpy(p->text + sz, "}\n", 2);
    return done(p, page, TDM_CONTENT_JSON, sz + 2);
}

/* --- the stream -------------------------------------------------------------- */

/* A cursor: the number of the iteration to tell next, and what the call is
   of its second. */
#define CURSOR_NEXT    ((UINT64_C(1) << 48) - 1)
#define LANES_PER_S    5u
#define LANE_MS        (1000u / LANES_PER_S)
#define EVENT_ROOM     64u /* of the words around an event's data */
#define STREAM_SLOWEST 10u

/* An event being written. */
typedef struct events {
    char *buf;
    size_t cap, sz;
} events_t;

static char *begin_event(events_t *e, const char *name) {
    int n = snprintf(e->buf + e->sz, e->cap - e->sz, "event: %s\ndata: ", name);
    return e->buf + e->sz + TDM_MAX(n, 0);
}

/* end_event keeps data_sz bytes of data, without the line break that ends
   them; one that did not fit is left out whole. */
static void end_event(events_t *e, char *data, size_t data_sz, int fits) {
    if (!fits || data_sz == 0) return;
    if (data[data_sz - 1] == '\n') data_sz--;
    memcpy(data + data_sz, "\n\n", 2);
    e->sz = (size_t)(data - e->buf) + data_sz + 2;
}

static size_t left(const events_t *e) {
    return e->cap - e->sz - EVENT_ROOM;
}

static void every_second(tdm_pages_t *p, events_t *e, int64_t now_ns) {
    const tdm_snapshot_t *s = snapshot(p);
    size_t sz = 0;
    char *data = begin_event(e, "status");
    tdm_status_span_t span = {.now = s, .window = window_begin(p, s->at_ns)};
    tdm_status_t st = tdm_status_json(&span, p->start_ns, p->fact, p->fact_cnt, data, left(e), &sz);
    end_event(e, data, sz, st == TDM_OK);
    data = begin_event(e, "requests");
    end_event(e, data, requests_text(p, STREAM_SLOWEST, data, left(e)), 1);
    data = begin_event(e, "changes");
    sz = tdm_change_state_text(&p->console->change, 0, now_ns, data, left(e));
    end_event(e, data, sz, sz < left(e));
}

/* more writes the next events of /api/v1/stream: a tdm_http1_more_fn. */
static size_t more(void *ctx, uint64_t *cursor, int64_t now_ns, char *buf, size_t cap) {
    tdm_pages_t *p = ctx;
    events_t e = {.buf = buf, .cap = cap};
    uint64_t next = *cursor & CURSOR_NEXT, turn = *cursor >> 48;
    char *data = begin_event(&e, "lane");
    size_t sz = iterations_text(p, next, &next, data, left(&e));
    if (sz > 2) end_event(&e, data, sz, 1); /* else "[]": nothing happened */
    if (turn == 0) every_second(p, &e, now_ns);
    *cursor = (turn + 1) % LANES_PER_S << 48 | (next & CURSOR_NEXT);
    return e.sz;
}

static int stream(tdm_pages_t *p, tdm_http1_page_t *page) {
    *page = (tdm_http1_page_t){.status = 200,
                               .content_type = TDM_CONTENT_EVENT_STREAM,
                               .more = more,
                               .more_ctx = p,
                               .more_ms = LANE_MS};
    return 1;
}

int tdm_pages_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    tdm_pages_t *p = ctx;
    if (tdm_console_answer(p->console, ask, page) || tdm_web_answer(&p->web, ask, page)) return 1;
    uint32_t which = page_of(ask->path);
    if (which == PAGE_NONE || ask->method == TDM_METHOD_POST) return 0;
    if (!may_look(p, ask, page)) return 1;
    if (which == PAGE_STREAM) return stream(p, page);
    if (which == PAGE_ITERATIONS) return iterations(p, ask, page);
    if (which == PAGE_REQUESTS) return requests(p, ask, page);
    const tdm_snapshot_t *s = snapshot(p);
    size_t sz = 0;
    switch (which) {
    case PAGE_METRICS: return metrics(p, ask, page, s);
    case PAGE_STATUS: {
        tdm_status_span_t span = {.now = s,
                                  .window = window_begin(p, s->at_ns),
                                  .since = since_begin(p, s->at_ns, asked(ask->query, "since", 0))};
        if (tdm_status_json(&span, p->start_ns, p->fact, p->fact_cnt, p->text, p->cap, &sz) !=
            TDM_OK)
            return failed(page);
        return done(p, page, TDM_CONTENT_JSON, sz);
    }
    case PAGE_JOURNEY: {
        tdm_journey_t j;
        tdm_journey_between(&j, NULL, s);
        return done(p, page, TDM_CONTENT_TEXT, tdm_journey_text(&j, p->text, p->cap));
    }
    default: return done(p, page, TDM_CONTENT_JSON, config_text(p));
    }
}
