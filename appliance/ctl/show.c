/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/show.h"

#include "appliance/base/clock.h"

#include <curl/curl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 4 };

#define PAGE_MAX_SZ (4u << 20)

typedef struct page {
    long status;
    size_t sz;
    char *text; /* NUL-terminated */
} page_t;

static size_t on_bytes(char *bytes, size_t one, size_t cnt, void *ctx) {
    page_t *p = ctx;
    size_t sz = one * cnt;
    if (sz > PAGE_MAX_SZ - p->sz) return 0;
    char *grown = realloc(p->text, p->sz + sz + 1);
    if (!grown) return 0;
    p->text = grown;
    memcpy(p->text + p->sz, bytes, sz);
    p->sz += sz;
    p->text[p->sz] = 0;
    return sz;
}

/* get fetches a path of the management port; the caller frees page.text. */
static tdm_status_t get(const tdm_ctl_options_t *o, const char *path, page_t *page,
                        tdm_error_t *err) {
    char url[512], auth[600];
    memset(page, 0, sizeof *page);
    CURL *curl = curl_easy_init();
    if (!curl) return tdm_error_set(err, TDM_ERR_NOMEM, "libcurl cannot start");
    struct curl_slist *header = NULL;
    (void)snprintf(url, sizeof url, "%s%s", o->http, path);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, page);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 5000L);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    if (o->key) {
        (void)snprintf(auth, sizeof auth, "Authorization: Bearer %s", o->key);
        header = curl_slist_append(NULL, auth);
        (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, header);
    }
    CURLcode code = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &page->status);
    curl_slist_free_all(header);
    curl_easy_cleanup(curl);
    if (code == CURLE_OK) return TDM_OK;
    free(page->text);
    page->text = NULL;
    return tdm_error_set(err, TDM_ERR_CLOSED, "%s: %s", url, curl_easy_strerror(code));
}

static void print_tree(const char *name, const json_t *v, int depth);

static void print_scalar(const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    printf("%s\n", text ? text : "?");
    free(text);
}

static void print_object(const json_t *o, int depth) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) print_tree(key, v, depth);
}

/* print_tree writes nested JSON as indented lines, "name  value". */
static void print_tree(const char *name, const json_t *v, int depth) {
    printf("%*s%-*s", depth * 2, "", 26 - depth * 2, name);
    if (json_is_object(v)) {
        printf("%s\n", json_object_size(v) ? "" : "-");
        print_object(v, depth + 1);
    } else if (json_is_array(v)) {
        printf("\n");
        for (size_t i = 0; i < json_array_size(v); i++) {
            char *text = json_dumps(json_array_get(v, i), JSON_ENCODE_ANY);
            printf("%*s%s\n", depth * 2 + 2, "", text ? text : "?");
            free(text);
        }
    } else if (json_is_string(v)) {
        printf("%s\n", json_string_value(v));
    } else {
        print_scalar(v);
    }
}

static void print_page(const tdm_ctl_options_t *o, const page_t *p) {
    json_t *root = o->is_json ? NULL : json_loads(p->text, 0, NULL);
    if (json_is_object(root))
        print_object(root, 0);
    else
        fputs(p->text, stdout);
    json_decref(root);
}

int tdm_show(const tdm_ctl_options_t *o) {
    static const struct {
        const char *word, *path;
    } what[] = {{"status", "/status"}, {"journey", "/journey"},  {"metrics", "/metrics"},
                {"config", "/config"}, {"models", "/v1/models"}, {"version", "/version"}};
    const char *path = NULL;
    for (size_t i = 0; o->word_cnt == 1 && i < TDM_COUNT_OF(what); i++)
        if (strcmp(o->word[0], what[i].word) == 0) path = what[i].path;
    if (!path) {
        fprintf(stderr, "tandemctl: show status|journey|metrics|config|models|version\n");
        return EXIT_USAGE;
    }
    page_t page;
    tdm_error_t err = {0};
    if (get(o, path, &page, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return EXIT_UNREACHABLE;
    }
    if (page.text) print_page(o, &page);
    free(page.text);
    return page.status == 200 ? 0 : EXIT_FAILED;
}

int tdm_wait_ready(const tdm_ctl_options_t *o) {
    int64_t give_up = tdm_clock_now_ns() + (int64_t)o->seconds * TDM_NS_PER_S;
    tdm_error_t err = {0};
    long status = 0;
    while (tdm_clock_now_ns() < give_up) {
        page_t page;
        if (o->pid && kill((pid_t)o->pid, 0) != 0) {
            fprintf(stderr, "tandemctl: process %lld is gone\n", (long long)o->pid);
            return EXIT_FAILED;
        }
        tdm_status_t st = get(o, "/ready", &page, &err);
        status = st == TDM_OK ? page.status : 0;
        free(page.text);
        if (status == 200) return 0;
        (void)usleep(100000);
    }
    fprintf(stderr, "tandemctl: not ready after %u s: %s\n", o->seconds,
            status ? "the server answers, but not 200" : err.text);
    return status ? EXIT_FAILED : EXIT_UNREACHABLE;
}
