/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/wire.h"

#include "appliance/base/clock.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct http1 {
    tdm_wire_t wire;
    char base[TDM_CTL_URL_MAX + 1];
    CURLM *multi;
    struct curl_slist *header;
    CURL **idle; /* [idle_max] handles that can be used again */
    uint32_t idle_cnt, idle_max;
} http1_t;

static size_t on_header(char *line, size_t one, size_t cnt, void *ctx) {
    tdm_job_t *job = ctx;
    char text[256];
    size_t sz = one * cnt;
    int status;
    (void)snprintf(text, sizeof text, "%.*s", (int)TDM_MIN(sz, sizeof text - 1u), line);
    text[strcspn(text, "\r\n")] = 0;
    char *value = strchr(text, ':');
    if (sscanf(text, "HTTP/%*s %d", &status) == 1) {
        if (status >= 200) tdm_job_head(job, status);
    } else if (value) {
        *value = 0;
        value += 1 + strspn(value + 1, " ");
        tdm_job_header(job, text, value);
    }
    return sz;
}

static size_t on_body(char *bytes, size_t one, size_t cnt, void *ctx) {
    tdm_job_body(ctx, (const uint8_t *)bytes, one * cnt, tdm_clock_now_ns());
    return one * cnt;
}

/* common sets what every exchange has. */
static void common(const http1_t *h, CURL *curl, const char *path) {
    char url[600];
    (void)snprintf(url, sizeof url, "%s%s", h->base, path);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, h->header);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
}

static tdm_status_t begin(tdm_wire_t *w, tdm_job_t *job, const char *body, size_t sz,
                          tdm_error_t *err) {
    http1_t *h = (http1_t *)w;
    CURL *curl = h->idle_cnt ? h->idle[--h->idle_cnt] : curl_easy_init();
    if (!curl) return tdm_error_set(err, TDM_ERR_FULL, "no further handle");
    curl_easy_reset(curl);
    common(h, curl, "/v1/completions");
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)sz);
    (void)curl_easy_setopt(curl, CURLOPT_COPYPOSTFIELDS, body);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, job);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, job);
    (void)curl_easy_setopt(curl, CURLOPT_PRIVATE, job);
    job->wire = curl;
    if (curl_multi_add_handle(h->multi, curl) == CURLM_OK) return TDM_OK;
    curl_easy_cleanup(curl);
    return tdm_error_set(err, TDM_ERR_FULL, "libcurl takes no further request");
}

static void put_back(http1_t *h, CURL *curl) {
    (void)curl_multi_remove_handle(h->multi, curl);
    if (h->idle_cnt < h->idle_max)
        h->idle[h->idle_cnt++] = curl;
    else
        curl_easy_cleanup(curl);
}

static void finished(http1_t *h) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left))) {
        if (m->msg != CURLMSG_DONE) continue;
        CURL *curl = m->easy_handle;
        CURLcode code = m->data.result;
        char *job = NULL;
        (void)curl_easy_getinfo(curl, CURLINFO_PRIVATE, &job);
        put_back(h, curl);
        tdm_job_end((tdm_job_t *)(void *)job,
                    code == CURLE_OK ? TDM_OUTCOME_DONE : TDM_OUTCOME_LOST, tdm_clock_now_ns());
    }
}

static tdm_status_t step(tdm_wire_t *w, int64_t until_ns, tdm_error_t *err) {
    http1_t *h = (http1_t *)w;
    int running;
    (void)curl_multi_perform(h->multi, &running);
    finished(h);
    int64_t left_ns = until_ns - tdm_clock_now_ns();
    int ms = left_ns <= 0 ? 0 : (int)TDM_MIN(left_ns / TDM_NS_PER_MS, INT64_C(1000));
    if (curl_multi_poll(h->multi, NULL, 0, ms, NULL) != CURLM_OK)
        return tdm_error_set(err, TDM_ERR_IO, "libcurl cannot wait");
    (void)curl_multi_perform(h->multi, &running);
    finished(h);
    return TDM_OK;
}

static void cancel(tdm_wire_t *w, tdm_job_t *job) {
    http1_t *h = (http1_t *)w;
    /* its connection is in mid-reply: not to be used again */
    (void)curl_multi_remove_handle(h->multi, job->wire);
    curl_easy_cleanup(job->wire);
}

typedef struct page {
    char *buf;
    size_t sz, len;
} page_t;

static size_t page_body(char *bytes, size_t one, size_t cnt, void *ctx) {
    page_t *p = ctx;
    size_t sz = TDM_MIN(one * cnt, p->sz - 1u - p->len);
    memcpy(p->buf + p->len, bytes, sz);
    p->len += sz;
    return one * cnt;
}

static tdm_status_t get(tdm_wire_t *w, const char *path, char *buf, size_t sz, tdm_error_t *err) {
    http1_t *h = (http1_t *)w;
    page_t page = {.buf = buf, .sz = sz};
    long status = 0;
    CURL *curl = curl_easy_init();
    if (!curl) return tdm_error_set(err, TDM_ERR_NOMEM, "libcurl cannot start");
    common(h, curl, path);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, page_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &page);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 10000L);
    CURLcode code = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    buf[page.len] = 0;
    if (code != CURLE_OK)
        return tdm_error_set(err, TDM_ERR_CLOSED, "%s%s: %s", h->base, path,
                             curl_easy_strerror(code));
    if (status == 200) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_PERM, "%s%s: the server answers %ld", h->base, path, status);
}

static void close_all(tdm_wire_t *w) {
    http1_t *h = (http1_t *)w;
    while (h->idle_cnt) curl_easy_cleanup(h->idle[--h->idle_cnt]);
    if (h->multi) (void)curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->header);
    free(h->idle);
    free(h);
}

/* base_read takes a base as people and OpenAI's clients write it, with a slash
   or /v1 behind. */
static void base_read(http1_t *h, const char *url) {
    size_t sz = (size_t)snprintf(h->base, sizeof h->base, "%s", url);
    while (sz > 0 && h->base[sz - 1] == '/') sz--;
    if (sz > 3 && strncmp(h->base + sz - 3, "/v1", 3) == 0) sz -= 3;
    h->base[TDM_MIN(sz, sizeof h->base - 1u)] = 0;
}

tdm_status_t tdm_wire_http1(const tdm_ctl_options_t *o, uint32_t open_max, tdm_wire_t **out,
                            tdm_error_t *err) {
    char auth[600];
    http1_t *h = calloc(1, sizeof *h);
    if (!h) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    h->wire = (tdm_wire_t){.name = "HTTP/1.1",
                           .begin = begin,
                           .step = step,
                           .cancel = cancel,
                           .get = get,
                           .close = close_all};
    base_read(h, o->http);
    h->idle = calloc(open_max, sizeof *h->idle);
    h->idle_max = open_max;
    h->multi = curl_multi_init();
    h->header = curl_slist_append(NULL, "Content-Type: application/json");
    if (h->header) h->header = curl_slist_append(h->header, "Expect:");
    if (h->header && o->key) {
        (void)snprintf(auth, sizeof auth, "Authorization: Bearer %s", o->key);
        h->header = curl_slist_append(h->header, auth);
    }
    if (!h->idle || !h->multi || !h->header) {
        close_all(&h->wire);
        return tdm_error_set(err, TDM_ERR_NOMEM, "libcurl cannot start");
    }
    (void)curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)TDM_MIN(open_max, 1024u));
    *out = &h->wire;
    return TDM_OK;
}
