/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/page.h"

#include <curl/curl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static size_t on_bytes(char *bytes, size_t one, size_t cnt, void *ctx) {
    tdm_page_t *p = ctx;
    size_t sz = one * cnt;
    if (sz > TDM_PAGE_MAX_SZ - p->sz) return 0;
    char *grown = realloc(p->text, p->sz + sz + 1);
    if (!grown) return 0;
    p->text = grown;
    memcpy(p->text + p->sz, bytes, sz);
    p->sz += sz;
    p->text[p->sz] = 0;
    return sz;
}

/* is_there: somebody listens on the Unix socket. */
static int is_there(const char *path) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path) return 0;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    int rc = connect(fd, (const struct sockaddr *)&addr, sizeof addr);
    (void)close(fd);
    return rc == 0;
}

/* socket_of gives the socket to use, NULL: TCP.  One that was named is
   used whether somebody is there or not. */
static const char *socket_of(const tdm_ctl_options_t *o) {
    if (o->socket) return o->socket;
    return !o->is_http_named && is_there(TDM_CTL_SOCKET_PATH) ? TDM_CTL_SOCKET_PATH : NULL;
}

static long patience_ms(const tdm_ctl_options_t *o) {
    return 1000L * (long)(o->is_patient ? o->seconds : TDM_MIN(o->seconds, TDM_CTL_ANSWER_S));
}

/* ask sends one request; body NULL: GET.  csrf: NULL or a token. */
static tdm_status_t ask(const tdm_ctl_options_t *o, const char *path, const char *body,
                        const char *csrf, tdm_page_t *page, tdm_error_t *err) {
    char url[TDM_CTL_URL_MAX + 128], line[TDM_CTL_KEY_MAX + 88];
    memset(page, 0, sizeof *page);
    CURL *curl = curl_easy_init();
    if (!curl) return tdm_error_set(err, TDM_ERR_NOMEM, "libcurl cannot start");
    const char *named = socket_of(o);
    struct curl_slist *header = NULL;
    int http_sz = (int)strlen(o->http); /* a URL is often copied with its last slash */
    while (http_sz > 0 && o->http[http_sz - 1] == '/') http_sz--;
    (void)snprintf(url, sizeof url, "%.*s%s", named ? INT_MAX : http_sz,
                   named ? "http://localhost" : o->http, path);
    if (named) (void)curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, named);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, page);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, patience_ms(o));
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    if (body) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        header = curl_slist_append(header, "Content-Type: application/json");
    }
    if (o->key) {
        (void)snprintf(line, sizeof line, "Authorization: Bearer %s", o->key);
        header = curl_slist_append(header, line);
    }
    if (csrf) {
        (void)snprintf(line, sizeof line, "X-CSRF-Token: %s", csrf);
        header = curl_slist_append(header, line);
    }
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, header);
    CURLcode code = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &page->status);
    curl_slist_free_all(header);
    curl_easy_cleanup(curl);
    if (code == CURLE_OK) return TDM_OK;
    free(page->text);
    page->text = NULL;
    return tdm_error_set(err, TDM_ERR_CLOSED, "%s: %s", named ? named : url,
                         curl_easy_strerror(code));
}

tdm_status_t tdm_page_get(const tdm_ctl_options_t *o, const char *path, tdm_page_t *page,
                          tdm_error_t *err) {
    return ask(o, path, NULL, NULL, page, err);
}

tdm_status_t tdm_page_post(const tdm_ctl_options_t *o, const char *path, const char *body,
                           tdm_page_t *page, tdm_error_t *err) {
    char token[64] = "";
    if (!socket_of(o)) {
        tdm_status_t st = tdm_page_get(o, "/api/v1/session", page, err);
        if (st != TDM_OK) return st;
        json_t *session = page->text ? json_loads(page->text, 0, NULL) : NULL;
        const char *csrf = json_string_value(json_object_get(session, "csrf"));
        (void)snprintf(token, sizeof token, "%s", csrf ? csrf : "");
        json_decref(session);
        free(page->text);
    }
    return ask(o, path, body, token[0] ? token : NULL, page, err);
}

void tdm_page_say(const tdm_page_t *page) {
    json_t *root = page->text ? json_loads(page->text, 0, NULL) : NULL;
    const char *message =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    fprintf(stderr, "tandemctl: %s\n",
            message      ? message
            : page->text ? page->text
                         : "the server said nothing");
    json_decref(root);
}
