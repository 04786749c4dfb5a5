/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/wire.h"

#include "appliance/base/clock.h"
#include "net/client/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTION_MAX 256u

typedef struct h3 {
    tdm_wire_t wire;
    tdm_client_config_t config;
    char auth[600];
    uint32_t cnt;
    uint32_t next; /* the connection that is asked first */
    tdm_client_t *client[CONNECTION_MAX];
    uint32_t at[CONNECTION_MAX]; /* own index: what a job keeps a pointer to */
} h3_t;

static void on_head(void *ctx, int64_t id, int status) {
    (void)id;
    tdm_job_head(ctx, status);
}

static void on_header(void *ctx, int64_t id, const char *name, const char *value) {
    (void)id;
    tdm_job_header(ctx, name, value);
}

static void on_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    (void)id;
    tdm_job_body(ctx, bytes, sz, tdm_clock_now_ns());
}

static void on_end(void *ctx, int64_t id, tdm_client_outcome_t outcome, uint64_t error) {
    (void)id;
    (void)error;
    if (outcome == TDM_CLIENT_CANCELLED) return;
    tdm_job_end(ctx, outcome == TDM_CLIENT_DONE ? TDM_OUTCOME_DONE : TDM_OUTCOME_LOST,
                tdm_clock_now_ns());
}

static tdm_status_t begin(tdm_wire_t *w, tdm_job_t *job, const char *body, size_t sz,
                          tdm_error_t *err) {
    h3_t *h = (h3_t *)w;
    tdm_client_header_t header[3] = {{"content-type", "application/json"},
                                     {"user-agent", "tandemctl"},
                                     {"authorization", h->auth}};
    tdm_client_request_t r = {.method = "POST",
                              .path = "/v1/completions",
                              .header = header,
                              .header_cnt = h->auth[0] ? 3 : 2,
                              .body = (const uint8_t *)body,
                              .body_sz = sz};
    tdm_client_sink_t sink = {
        .ctx = job, .head = on_head, .header = on_header, .body = on_body, .end = on_end};
    for (uint32_t i = 0; i < h->cnt; i++) {
        uint32_t k = (h->next + i) % h->cnt;
        if (!h->client[k] || tdm_client_request(h->client[k], &r, &sink, &job->id, err) != TDM_OK)
            continue;
        job->wire = &h->at[k];
        h->next = k + 1u;
        return TDM_OK;
    }
    return tdm_error_set(err, TDM_ERR_FULL, "every connection has as many streams as it may");
}

static tdm_status_t dial(h3_t *h, uint32_t k, tdm_error_t *err) {
    return tdm_client_connect(&h->config, &h->client[k], err);
}

/* renew closes a connection that is over, which ends its jobs as lost, and
   tries for a short while to make it again; one that cannot be made is
   tried at the next step. */
static void renew(h3_t *h, uint32_t k) {
    tdm_error_t err = {0};
    tdm_client_close(h->client[k]);
    h->client[k] = NULL;
    if (dial(h, k, &err) != TDM_OK) h->client[k] = NULL;
}

static tdm_status_t step(tdm_wire_t *w, int64_t until_ns, tdm_error_t *err) {
    h3_t *h = (h3_t *)w;
    struct pollfd p[CONNECTION_MAX];
    (void)err;
    for (uint32_t k = 0; k < h->cnt; k++) {
        if (!h->client[k] || tdm_client_step(h->client[k], 0, NULL) != TDM_OK) renew(h, k);
        p[k] = (struct pollfd){.fd = h->client[k] ? tdm_client_fd(h->client[k]) : -1,
                               .events = POLLIN};
        if (h->client[k]) until_ns = TDM_MIN(until_ns, tdm_client_next_ns(h->client[k]));
    }
    int64_t left_ns = until_ns - tdm_clock_now_ns();
    struct timespec wait = {.tv_sec = left_ns / TDM_NS_PER_S, .tv_nsec = left_ns % TDM_NS_PER_S};
    if (left_ns <= 0 || ppoll(p, h->cnt, &wait, NULL) <= 0) return TDM_OK;
    for (uint32_t k = 0; k < h->cnt; k++)
        if (p[k].revents && tdm_client_step(h->client[k], 0, NULL) != TDM_OK) renew(h, k);
    return TDM_OK;
}

static void cancel(tdm_wire_t *w, tdm_job_t *job) {
    h3_t *h = (h3_t *)w;
    uint32_t k = (uint32_t)((uint32_t *)job->wire - h->at);
    if (h->client[k]) tdm_client_cancel(h->client[k], job->id);
}

/* --- a page ----------------------------------------------------------------- */

typedef struct page {
    char *buf;
    size_t sz, len;
    int status;
} page_t;

static void page_head(void *ctx, int64_t id, int status) {
    (void)id;
    ((page_t *)ctx)->status = status;
}

static void page_body(void *ctx, int64_t id, const uint8_t *bytes, uint64_t sz) {
    page_t *p = ctx;
    (void)id;
    sz = TDM_MIN(sz, (uint64_t)(p->sz - 1u - p->len));
    memcpy(p->buf + p->len, bytes, sz);
    p->len += sz;
}

static tdm_status_t get(tdm_wire_t *w, const char *path, char *buf, size_t sz, tdm_error_t *err) {
    h3_t *h = (h3_t *)w;
    page_t page = {.buf = buf, .sz = sz};
    tdm_client_header_t header[1] = {{"authorization", h->auth}};
    tdm_client_request_t r = {
        .method = "GET", .path = path, .header = header, .header_cnt = h->auth[0] != 0};
    tdm_client_sink_t sink = {.ctx = &page, .head = page_head, .body = page_body};
    int64_t id;
    tdm_status_t st = tdm_client_request(h->client[0], &r, &sink, &id, err);
    if (st == TDM_OK) st = tdm_client_wait(h->client[0], id, 10 * TDM_NS_PER_S, err);
    buf[page.len] = 0;
    if (st != TDM_OK || page.status == 200) return st;
    return tdm_error_set(err, TDM_ERR_PERM, "%s: the server answers %d", path, page.status);
}

static void close_all(tdm_wire_t *w) {
    h3_t *h = (h3_t *)w;
    for (uint32_t k = 0; k < h->cnt; k++) tdm_client_close(h->client[k]);
    free(h);
}

tdm_status_t tdm_wire_h3(const tdm_ctl_options_t *o, uint32_t connections, tdm_wire_t **out,
                         tdm_error_t *err) {
    h3_t *h = calloc(1, sizeof *h);
    if (!h) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    h->wire = (tdm_wire_t){.name = "HTTP/3",
                           .begin = begin,
                           .step = step,
                           .cancel = cancel,
                           .get = get,
                           .close = close_all};
    h->config = (tdm_client_config_t){
        .host = o->host,
        .port = o->port,
        .verify =
            o->certificate && !o->is_insecure ? TDM_CLIENT_VERIFY_CA : TDM_CLIENT_VERIFY_INSECURE,
        .ca_file = o->certificate,
    };
    if (o->key) (void)snprintf(h->auth, sizeof h->auth, "Bearer %s", o->key);
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < TDM_MIN(connections, CONNECTION_MAX) && st == TDM_OK; k++) {
        st = dial(h, k, err);
        if (st == TDM_OK) h->cnt++;
    }
    /* later attempts happen while requests are under way: short ones */
    h->config.connect_timeout_ns = TDM_NS_PER_S;
    if (st == TDM_OK)
        *out = &h->wire;
    else
        close_all(&h->wire);
    return st;
}
