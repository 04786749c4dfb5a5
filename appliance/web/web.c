/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/web/web.h"

#include "appliance/base/log.h"
#include "appliance/web/files_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHART_MAX (4u << 20)

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "connect-src 'self'; img-src data:; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'";

void tdm_web_open(tdm_web_t *w, const char *chart_path) {
    *w = (tdm_web_t){0};
    if (!chart_path[0]) return;
    FILE *f = fopen(chart_path, "re");
    char *buf = f ? malloc(CHART_MAX + 1) : NULL;
    size_t sz = buf ? fread(buf, 1, CHART_MAX + 1, f) : 0;
    if (sz == 0 || sz > CHART_MAX) {
        tdm_log(TDM_LOG_WARN, "web", "no curves in the web console: %s: %s", chart_path,
                !f   ? strerror(errno)
                : sz ? "over 4 MiB"
                     : "cannot be read");
        free(buf);
    } else {
        char *kept = realloc(buf, sz);
        w->chart = kept ? kept : buf;
        w->chart_sz = sz;
    }
    if (f) (void)fclose(f);
}

void tdm_web_close(tdm_web_t *w) {
    free(w->chart);
    *w = (tdm_web_t){0};
}

static uint16_t type_of(const char *name) {
    const char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".css") == 0) return TDM_CONTENT_CSS;
    return dot && strcmp(dot, ".html") == 0 ? TDM_CONTENT_HTML : TDM_CONTENT_SCRIPT;
}

static int give(tdm_http1_page_t *page, const char *name, const void *data, uint64_t sz) {
    *page = (tdm_http1_page_t){
        .status = 200, .content_type = type_of(name), .policy = policy, .data = data, .sz = sz};
    return 1;
}

/* The page's links are relative, so /ui needs its slash. */
static int turn(tdm_http1_page_t *page) {
    static const char text[] = "<!DOCTYPE html><title>Tandem</title><a href=\"/ui/\">/ui/</a>\n";
    *page = (tdm_http1_page_t){.status = 308,
                               .content_type = TDM_CONTENT_HTML,
                               .policy = policy,
                               .location = "/ui/",
                               .data = text,
                               .sz = sizeof text - 1};
    return 1;
}

int tdm_web_answer(void *ctx, const tdm_http1_ask_t *ask, tdm_http1_page_t *page) {
    const tdm_web_t *w = ctx;
    if (ask->method == TDM_METHOD_POST || strncmp(ask->path, "/ui", 3) != 0) return 0;
    const char *name = ask->path + 3;
    if (name[0] == '\0') return turn(page);
    if (*name++ != '/') return 0;
    if (name[0] == '\0') name = "index.html";
    if (strcmp(name, "chart.js") == 0)
        return give(page, name, w->chart ? w->chart : "", w->chart_sz);
    for (size_t i = 0; i < tdm_web_file_cnt; i++)
        if (strcmp(name, tdm_web_file[i].name) == 0)
            return give(page, name, tdm_web_file[i].data, tdm_web_file[i].sz);
    return 0;
}
