/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the console's files are served whole, with a policy that they keep
   to themselves, and nothing else is.
   Method: asks as the door makes them; the text of every file is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/abi/exchange.h"
#include "appliance/web/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tdm_web_t web;
static tdm_http1_page_t page;

static int ask(const char *path, uint16_t method) {
    tdm_http1_ask_t a = {.method = method, .peer_fd = -1, .path = path};
    memset(&page, 0, sizeof page);
    return tdm_web_answer(&web, &a, &page);
}

static int has(const char *word) {
    return memmem(page.data, page.sz, word, strlen(word)) != NULL;
}

static const char *const file[] = {"/ui/", "/ui/console.css", "/ui/console.js", "/ui/draw.js",
                                   "/ui/operate.js"};

static void files_are_whole_and_typed(void **state) {
    (void)state;
    static const uint16_t type[] = {TDM_CONTENT_HTML, TDM_CONTENT_CSS, TDM_CONTENT_SCRIPT,
                                    TDM_CONTENT_SCRIPT, TDM_CONTENT_SCRIPT};
    static const char *const disk[] = {"index.html", "console.css", "console.js", "draw.js",
                                       "operate.js"};
    for (size_t i = 0; i < TDM_COUNT_OF(file); i++) {
        assert_int_equal(ask(file[i], TDM_METHOD_GET), 1);
        assert_int_equal(page.status, 200);
        assert_int_equal(page.content_type, type[i]);
        assert_non_null(strstr(page.policy, "default-src 'none'"));
        assert_null(strstr(page.policy, "unsafe"));
        char path[512];
        static char text[1 << 18];
        (void)snprintf(path, sizeof path, TDM_SOURCE_DIR "/appliance/web/%s", disk[i]);
        FILE *f = fopen(path, "re");
        assert_non_null(f);
        size_t sz = fread(text, 1, sizeof text, f);
        (void)fclose(f);
        assert_int_equal(sz, page.sz);
        assert_memory_equal(text, page.data, sz);
    }
}

/* What the policy would stop, or what could make markup of a name. */
static void files_keep_to_their_policy(void **state) {
    (void)state;
    static const char *const never[] = {"innerHTML",      "outerHTML", "insertAdjacentHTML",
                                        "document.write", "eval(",     "new Function",
                                        "http://",        "https://",  "javascript:"};
    static const char *const inside[] = {" style=", " onclick=", " onload=", "<script>", "<style"};
    for (size_t i = 0; i < TDM_COUNT_OF(file); i++) {
        assert_int_equal(ask(file[i], TDM_METHOD_GET), 1);
        for (size_t k = 0; k < TDM_COUNT_OF(never); k++)
            if (has(never[k])) fail_msg("%s: %s", file[i], never[k]);
    }
    assert_int_equal(ask("/ui/", TDM_METHOD_GET), 1);
    for (size_t k = 0; k < TDM_COUNT_OF(inside); k++)
        if (has(inside[k])) fail_msg("%s", inside[k]);
}

static void nothing_else_is_there(void **state) {
    (void)state;
    static const char *const none[] = {
        "/",           "/uix",     "/ui/../etc/passwd", "/ui//console.js", "/ui/console.js/",
        "/ui/files.c", "/ui/index"};
    for (size_t i = 0; i < TDM_COUNT_OF(none); i++)
        assert_int_equal(ask(none[i], TDM_METHOD_GET), 0);
    assert_int_equal(ask("/ui/", TDM_METHOD_POST), 0);
    assert_int_equal(ask("/ui", TDM_METHOD_GET), 1);
    assert_int_equal(page.status, 308);
    assert_string_equal(page.location, "/ui/");
}

static void chart_js_is_the_packages_or_empty(void **state) {
    (void)state;
    tdm_web_open(&web, "");
    assert_int_equal(ask("/ui/chart.js", TDM_METHOD_GET), 1);
    assert_int_equal(page.sz, 0);
    tdm_web_open(&web, "/there/is/no/such/file");
    assert_int_equal(ask("/ui/chart.js", TDM_METHOD_GET), 1);
    assert_int_equal(page.sz, 0);
    char path[] = "/tmp/tdm-chart-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "chart", 5), 5);
    (void)close(fd);
    tdm_web_open(&web, path);
    assert_int_equal(ask("/ui/chart.js", TDM_METHOD_GET), 1);
    assert_int_equal(page.sz, 5);
    assert_memory_equal(page.data, "chart", 5);
    tdm_web_close(&web);
    assert_int_equal(truncate(path, (4 << 20) + 1), 0);
    tdm_web_open(&web, path);
    assert_int_equal(ask("/ui/chart.js", TDM_METHOD_GET), 1);
    assert_int_equal(page.sz, 0);
    (void)unlink(path);
    tdm_web_close(&web);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_whole_and_typed),
        cmocka_unit_test(files_keep_to_their_policy),
        cmocka_unit_test(nothing_else_is_there),
        cmocka_unit_test(chart_js_is_the_packages_or_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
