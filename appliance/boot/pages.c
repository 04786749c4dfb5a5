/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/boot/pages.h"

#include "appliance/base/atomic.h"
#include "appliance/base/check.h"
#include "appliance/base/clock.h"
#include "telemetry/read/journey.h"
#include "telemetry/read/page.h"
#include "telemetry/read/process.h"
#include "telemetry/read/snapshot.h"
#include "telemetry/read/status.h"

#include <stdlib.h>
#include <string.h>

tdm_status_t tdm_pages_open(tdm_pages_t *p, const tdm_wires_t *wires, const tdm_config_t *config,
                            const tdm_auth_t *auth, int64_t start_ns, tdm_error_t *err) {
    *p = (tdm_pages_t){.wires = wires,
                       .config = config,
                       .auth = auth,
                       .start_ns = start_ns,
                       .cap = TDM_METRICS_TEXT_MAX};
    p->text = malloc(p->cap);
    p->gz = malloc(p->cap);
    p->past = calloc(TDM_PAGES_PAST, sizeof *p->past);
    if (p->text && p->gz && p->past) return TDM_OK;
    tdm_pages_close(p);
    return tdm_error_set(err, TDM_ERR_NOMEM, "no memory for the pages of the management port");
}

void tdm_pages_close(tdm_pages_t *p) {
    free(p->text);
    free(p->gz);
    free(p->past);
    p->text = p->gz = NULL;
    p->past = NULL;
}

void tdm_pages_fact(tdm_pages_t *p, const char *key, const char *value) {
    TDM_CHECK(p->fact_cnt < TDM_PAGES_FACT_MAX);
    p->fact[p->fact_cnt++] = (tdm_fact_t){key, value};
}

static int failed(tdm_http1_page_t *page) {
    static const char text[] = "the page does not fit its buffer\n";
    *page = (tdm_http1_page_t){
        .status = 500, .content_type = TDM_CONTENT_TEXT, .data = text, .sz = sizeof text - 1};
    return 1;
}

static int refused(tdm_http1_page_t *page) {
    static const char text[] =
        "{\"error\":{\"message\":\"a valid bearer key is required\",\"type\":"
        "\"authentication_error\",\"param\":null,\"code\":\"auth\"}}";
    *page = (tdm_http1_page_t){
        .status = 401, .content_type = TDM_CONTENT_JSON, .data = text, .sz = sizeof text - 1};
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

static int forbidden(tdm_pages_t *p, tdm_http1_page_t *page) {
    static const char text[] =
        "{\"error\":{\"message\":\"only this machine may ask for a reload\",\"type\":"
        "\"permission_error\",\"param\":null,\"code\":\"auth\"}}";
    tdm_count(p->wires->block[TDM_BLOCK_PAGE], TDM_METRIC_refusals_total,
              tdm_label_reason(TDM_REFUSE_auth), 1);
    *page = (tdm_http1_page_t){
        .status = 403, .content_type = TDM_CONTENT_JSON, .data = text, .sz = sizeof text - 1};
    return 1;
}

/* reload: POST asks and is answered at once; GET tells what came of it. */
static int reload(tdm_pages_t *p, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    int is_post = ask->method == TDM_METHOD_POST;
    if (is_post && !ask->is_trusted) return forbidden(p, page);
    if (is_post) p->ask(p->ask_ctx);
    (void)done(p, page, TDM_CONTENT_JSON, tdm_reload_text(p->reload, p->text, p->cap));
    if (is_post && page->status == 200) page->status = 202;
    return 1;
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

/* window_begin gives the snapshot that the window begins with, NULL: at the
   start, and keeps s for later ones. */
static const tdm_snapshot_t *window_begin(tdm_pages_t *p, const tdm_snapshot_t *s) {
    const tdm_snapshot_t *begin = NULL;
    uint64_t kept = TDM_MIN(p->past_cnt, (uint64_t)TDM_PAGES_PAST);
    for (uint64_t i = p->past_cnt - kept; i < p->past_cnt; i++) {
        begin = &p->past[i % TDM_PAGES_PAST];
        if (s->at_ns - begin->at_ns <= TDM_PAGES_WINDOW_S * TDM_NS_PER_S) break;
    }
    if (p->past_cnt == 0 ||
        s->at_ns - p->past[(p->past_cnt - 1) % TDM_PAGES_PAST].at_ns >= TDM_NS_PER_S) {
        tdm_snapshot_t *slot = &p->past[p->past_cnt % TDM_PAGES_PAST];
        if (slot != begin) {
            *slot = *s;
            p->past_cnt++;
        }
    }
    return begin;
}

int tdm_pages_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    tdm_pages_t *p = ctx;
    static const char *const path[] = {"/metrics", "/status", "/journey", "/config", "/reload"};
    uint32_t which = 0;
    while (which < TDM_COUNT_OF(path) && strcmp(ask->path, path[which]) != 0) which++;
    if (which == TDM_COUNT_OF(path)) return 0;
    int is_reload = which == 4;
    if ((is_reload && !p->reload) || (ask->method == TDM_METHOD_POST && !is_reload)) return 0;
    if (tdm_auth_check(p->auth, ask->authorization, ask->is_trusted) < 0) return refused(page);
    if (is_reload) return reload(p, ask, page);

    static tdm_snapshot_t s; /* one thread; too large for a stack */
    tdm_process_sample(p->wires->block[TDM_BLOCK_PAGE]);
    uint32_t torn = tdm_snapshot_take(&s, (const tdm_block_t *const *)p->wires->block,
                                      p->wires->block_cnt, tdm_clock_now_ns());
    tdm_count(p->wires->block[TDM_BLOCK_PAGE], TDM_METRIC_snapshots_torn_total, 0, torn);
    size_t sz = 0;
    switch (which) {
    case 0: return metrics(p, ask, page, &s);
    case 1:
        if (tdm_status_json(window_begin(p, &s), &s, p->start_ns, p->fact, p->fact_cnt, p->text,
                            p->cap, &sz) != TDM_OK)
            return failed(page);
        return done(p, page, TDM_CONTENT_JSON, sz);
    case 2: {
        tdm_journey_t j;
        tdm_journey_between(&j, NULL, &s);
        return done(p, page, TDM_CONTENT_TEXT, tdm_journey_text(&j, p->text, p->cap));
    }
    default: return done(p, page, TDM_CONTENT_JSON, config_text(p));
    }
}
