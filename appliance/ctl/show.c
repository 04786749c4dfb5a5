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

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEGRADED = 3, EXIT_UNREACHABLE = 4 };

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

/* ask fetches a path of the management port, by POST without a body or by
   GET; the caller frees page.text. */
static tdm_status_t ask(const tdm_ctl_options_t *o, const char *path, int is_post, page_t *page,
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
    if (is_post) (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
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

static tdm_status_t get(const tdm_ctl_options_t *o, const char *path, page_t *page,
                        tdm_error_t *err) {
    return ask(o, path, 0, page, err);
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

/* cell writes a scalar into buf as a table shows it. */
static void cell(const json_t *v, char *buf, size_t cap) {
    if (json_is_string(v))
        (void)snprintf(buf, cap, "%s", json_string_value(v));
    else if (json_is_integer(v))
        (void)snprintf(buf, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(buf, cap, "%.3f", json_real_value(v));
    else
        (void)snprintf(buf, cap, "%s", json_is_true(v) ? "true" : json_is_false(v) ? "false" : "-");
}

#define COLUMN_MAX 12

/* print_table writes an array of like objects with a heading; numbers to
   the right. */
static void print_table(const json_t *rows, int depth) {
    const char *key[COLUMN_MAX];
    size_t width[COLUMN_MAX], column_cnt = 0;
    char text[256];
    const char *name;
    json_t *v;
    json_object_foreach(json_array_get(rows, 0), name, v) {
        if (column_cnt == COLUMN_MAX) break;
        key[column_cnt] = name;
        width[column_cnt] = strlen(name);
        for (size_t r = 0; r < json_array_size(rows); r++) {
            cell(json_object_get(json_array_get(rows, r), name), text, sizeof text);
            width[column_cnt] = TDM_MAX(width[column_cnt], strlen(text));
        }
        column_cnt++;
    }
    for (size_t r = 0; r <= json_array_size(rows); r++) {
        printf("%*s", depth * 2, "");
        for (size_t c = 0; c < column_cnt; c++) {
            const json_t *at = json_object_get(json_array_get(rows, r ? r - 1 : 0), key[c]);
            int is_last = c + 1 == column_cnt;
            if (r)
                cell(at, text, sizeof text);
            else
                (void)snprintf(text, sizeof text, "%s", key[c]);
            if (json_is_number(at))
                printf("%*s%s", (int)width[c], text, is_last ? "" : "  ");
            else
                printf("%-*s%s", is_last ? 0 : (int)width[c], text, is_last ? "" : "  ");
        }
        printf("\n");
    }
}

/* print_tree writes nested JSON as indented lines, "name  value". */
static void print_tree(const char *name, const json_t *v, int depth) {
    printf("%*s%-*s", depth * 2, "", 26 - depth * 2, name);
    if (json_is_object(v)) {
        printf("%s\n", json_object_size(v) ? "" : "-");
        print_object(v, depth + 1);
    } else if (json_is_array(v)) {
        printf("%s\n", json_array_size(v) ? "" : "-");
        if (json_is_object(json_array_get(v, 0))) {
            print_table(v, depth + 1);
            return;
        }
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

/* print_findings says what is wrong; the gravest are first.  Returns how
   many are worse than a notice. */
static int print_findings(const json_t *root) {
    const json_t *list = json_object_get(root, "findings");
    int worse = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        const char *gravity = json_string_value(json_object_get(f, "gravity"));
        const char *text = json_string_value(json_object_get(f, "text"));
        printf("%-10s%s\n", gravity ? gravity : "?", text ? text : "?");
        worse += gravity && strcmp(gravity, "notice") != 0;
    }
    if (json_array_size(list) == 0) {
        const char *state = json_string_value(json_object_get(root, "state"));
        printf("%s, nothing is wrong\n", state ? state : "?");
    }
    return worse;
}

/* What a word shows: a page, or some members of /status. */
typedef struct view {
    const char *word;
    const char *path;
    const char *member[4]; /* none: the whole page */
} view_t;

static const view_t view[] = {
    {"status", "/status", {NULL}},
    {"health", "/status", {"state", "findings", "faults", NULL}},
    {"slo", "/status", {"slo", "latency", NULL}},
    {"scheduler", "/status", {"requests", "iterations", "chunk_limited", NULL}},
    {"attention", "/status", {"hybrid", "iterations", "vcta", "fallbacks"}},
    {"fallbacks", "/status", {"hybrid", "fallbacks", NULL}},
    {"drops", "/status", {"net", NULL}},
    {"rings", "/status", {"rings", NULL}},
    {"tiles", "/status", {"tiles", NULL}},
    {"kv", "/status", {"kv", NULL}},
    {"requests", "/status", {"requests", "tokens", "latency", "refusals"}},
    {"flight", "/status", {"flight", NULL}},
    {"journey", "/journey", {NULL}},
    {"metrics", "/metrics", {NULL}},
    {"config", "/config", {NULL}},
    {"models", "/v1/models", {NULL}},
    {"version", "/version", {NULL}},
};

/* part gives the members of a view as an object of its own. */
static json_t *part(const view_t *v, const json_t *root) {
    json_t *out = json_object();
    for (size_t i = 0; i < TDM_COUNT_OF(v->member) && v->member[i]; i++) {
        json_t *member = json_object_get(root, v->member[i]);
        if (member) (void)json_object_set(out, v->member[i], member);
    }
    return out;
}

/* print_view prints a page that is a JSON object; the exit status. */
static int print_view(const tdm_ctl_options_t *o, const view_t *v, const json_t *root) {
    int is_status = strcmp(v->word, "status") == 0, is_health = strcmp(v->word, "health") == 0;
    json_t *shown = v->member[0] ? part(v, root) : json_incref((json_t *)(uintptr_t)root);
    int worse = 0;
    if (o->is_json) {
        char *text = json_dumps(shown, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
        printf("%s\n", text ? text : "{}");
        free(text);
        const json_t *list = json_object_get(root, "findings");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *g = json_object_get(json_array_get(list, i), "gravity");
            worse += strcmp(json_string_value(g) ? json_string_value(g) : "", "notice") != 0;
        }
    } else {
        if (is_status || is_health) worse = print_findings(root);
        const char *key;
        json_t *member;
        json_object_foreach(shown, key, member) {
            if (!is_health && strcmp(key, "findings") != 0) print_tree(key, member, 0);
        }
    }
    json_decref(shown);
    return is_health && worse ? EXIT_DEGRADED : 0;
}

static int print_page(const tdm_ctl_options_t *o, const view_t *v, const page_t *p) {
    int is_whole = o->is_json && !v->member[0]; /* as the server said it */
    json_t *root = is_whole ? NULL : json_loads(p->text, 0, NULL);
    int rc = 0;
    if (json_is_object(root))
        rc = print_view(o, v, root);
    else
        fputs(p->text, stdout);
    json_decref(root);
    return rc;
}

static int show_once(const tdm_ctl_options_t *o, const view_t *v) {
    page_t page;
    tdm_error_t err = {0};
    if (get(o, v->path, &page, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return EXIT_UNREACHABLE;
    }
    int rc = page.status == 200 ? 0 : EXIT_FAILED;
    if (page.text && rc == 0) rc = print_page(o, v, &page);
    if (page.text && page.status != 200) fputs(page.text, stdout);
    free(page.text);
    (void)fflush(stdout);
    return rc;
}

int tdm_show(const tdm_ctl_options_t *o) {
    const view_t *v = NULL;
    for (size_t i = 0; o->word_cnt == 1 && i < TDM_COUNT_OF(view); i++)
        if (strcmp(o->word[0], view[i].word) == 0) v = &view[i];
    if (!v) {
        fprintf(stderr, "tandemctl: show");
        for (size_t i = 0; i < TDM_COUNT_OF(view); i++)
            fprintf(stderr, "%s%s", i ? "|" : " ", view[i].word);
        fprintf(stderr, "\n");
        return EXIT_USAGE;
    }
    for (;;) {
        if (o->watch_s && isatty(STDOUT_FILENO)) printf("\033[H\033[2J");
        int rc = show_once(o, v);
        if (!o->watch_s || ferror(stdout)) return rc;
        (void)sleep(o->watch_s);
    }
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

/* number reads a member of a page's JSON object; -1 where it is none. */
static long long number(const page_t *p, const char *key) {
    json_t *v = p->text ? json_loads(p->text, 0, NULL) : NULL;
    long long n = json_is_integer(json_object_get(v, key))
                      ? (long long)json_integer_value(json_object_get(v, key))
                      : -1;
    json_decref(v);
    return n;
}

/* say_reload prints what came of it and gives the exit status. */
static int say_reload(const page_t *p) {
    json_t *v = json_loads(p->text, 0, NULL);
    const char *result = json_string_value(json_object_get(v, "result"));
    const char *message = json_string_value(json_object_get(v, "message"));
    int is_ok = result && strcmp(result, "ok") == 0;
    if (is_ok)
        printf("revision %lld is in force\n", number(p, "revision"));
    else
        fprintf(stderr, "tandemctl: refused: %s\n", message ? message : "?");
    json_decref(v);
    return is_ok ? 0 : EXIT_FAILED;
}

int tdm_ctl_reload(const tdm_ctl_options_t *o) {
    page_t page;
    tdm_error_t err = {0};
    if (ask(o, "/reload", 1, &page, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return EXIT_UNREACHABLE;
    }
    long long asked = number(&page, "asked");
    int is_taken = page.status == 202 && asked > 0;
    if (!is_taken)
        fprintf(stderr, "tandemctl: %s", page.text ? page.text : "the server does not reload\n");
    free(page.text);
    int64_t give_up = tdm_clock_now_ns() + (int64_t)o->seconds * TDM_NS_PER_S;
    while (is_taken && tdm_clock_now_ns() < give_up) {
        if (get(o, "/reload", &page, &err) != TDM_OK) return EXIT_UNREACHABLE;
        int is_done = page.text && number(&page, "done") >= asked;
        int rc = is_done ? say_reload(&page) : EXIT_FAILED;
        free(page.text);
        if (is_done) return rc;
        (void)usleep(10000);
    }
    return EXIT_FAILED;
}
