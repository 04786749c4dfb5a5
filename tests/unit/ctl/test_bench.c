/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what a bench concludes follows from its windows: a rate beyond one
   that was missed is not carried, a gain stands beside its bound, and the
   plan beside what was seen.
   Method: windows made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/attr.h"
#include "appliance/ctl/bench.h"
#include "appliance/ctl/bench_file.h"
#include "appliance/ctl/bench_report.h"
#include "appliance/ctl/cell.h"
#include "appliance/ctl/page.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* window makes one with so many seconds in attention of ten. */
static json_t *window(const char *path, const char *policy, double rate, int is_kept,
                      double attention_s) {
    return json_pack("{s:s, s:s, s:f, s:b, s:s, s:f, s:f, s:{s:f, s:{s:f, s:f}, s:{s:f, s:f}}, "
                     "s:{s:i, s:i}, s:{s:i}, s:n}",
                     "path", path, "policy", policy, "rate", rate, "kept", is_kept, "missed",
                     is_kept ? "" : "gaps", "attention_s", attention_s, "attention_share",
                     attention_s / 10.0, "replay", "share_over", is_kept ? 0.002 : 0.03, "tbt_ms",
                     "p50", 20.0, "p99", 50.0, "ttft_ms", "p50", 400.0, "p90", 2000.0, "hybrid",
                     "fused", 90, "fallback", 10, "fallbacks", "<reason>", 10, "power");
}

static json_t *bench(void) {
    json_t *cells = json_array();
    for (int i = 0; i < 4; i++)
        (void)json_array_append_new(cells, window("fused", "quantile", 1 + i, i < 2 || i == 3, 4));
    for (int i = 0; i < 4; i++)
        (void)json_array_append_new(cells, window("serial", "quantile", 1 + i, i < 1, 5));
    (void)json_array_append_new(cells, window("fused", "static:512", 1, 0, 4));
    json_t *planned = json_pack("{s:[{s:s, s:s, s:i, s:i, s:[{s:f, s:{s:f, s:f}, s:{s:f, s:f}}]}]}",
                                "curves", "route", "fused", "policy", "", "appliances", 1,
                                "prefill_appliances", 0, "points", "rate", 2.0, "gap_ms", "p50",
                                22.0, "p99", 45.0, "ttft_ms", "p50", 400.0, "p90", 1000.0);
    return json_pack("{s:{s:s, s:s}, s:s, s:f, s:f, s:o, s:o}", "appliance", "model",
                     "<script>alert(1)</script>", "backend", "cpu", "trace", "a \"b\"", "window_s",
                     75.0, "epsilon", 0.01, "cells", cells, "planned", planned);
}

static double of(const json_t *rows, size_t i, const char *key) {
    return json_number_value(json_object_get(json_array_get(rows, i), key));
}

static int is_near(double a, double b) {
    return a > b - 1e-9 && a < b + 1e-9;
}

static void a_rate_is_carried_up_to_the_first_that_was_missed(void **state) {
    (void)state;
    json_t *all = bench();
    tdm_bench_conclude(all);
    const json_t *rows = json_object_get(all, "carries");
    assert_int_equal(json_array_size(rows), 3);
    assert_true(of(rows, 0, "rate") == 2.0 && of(rows, 1, "rate") == 1.0 &&
                of(rows, 2, "rate") == 0.0);
    /* fused took 4 s for what took serial 5 of its 10: 1 / (1 - 0.5 + 0.5 / 1.25) */
    assert_true(of(rows, 0, "over_serial") == 2.0);
    assert_true(is_near(of(rows, 0, "attention_speedup"), 1.25));
    assert_true(is_near(of(rows, 0, "bound"), 1.0 / 0.9));
    assert_true(json_is_null(json_object_get(json_array_get(rows, 1), "over_serial")));
    assert_true(json_is_null(json_object_get(json_array_get(rows, 2), "over_serial")));
    json_decref(all);
}

/* Of two ways that kept all that they were asked neither has a capacity, and
   there is no gain; a rate that was measured and kept is not taken back by a
   simulated miss below it, nor closed by one above. */
static void what_was_never_missed_is_at_least(void **state) {
    (void)state;
    json_t *all =
        json_pack("{s:{s:s}, s:f, s:[]}", "appliance", "model", "m", "epsilon", 0.01, "cells");
    json_t *cells = json_object_get(all, "cells");
    json_t *guessed = window("serial", "quantile", 2, 0, 5);
    json_t *above = window("fused", "quantile", 5, 0, 4);
    (void)json_object_set_new(guessed, "simulated", json_object());
    (void)json_object_set_new(above, "simulated", json_object());
    (void)json_array_append_new(cells, window("fused", "quantile", 4, 1, 4));
    (void)json_array_append_new(cells, above);
    (void)json_array_append_new(cells, window("serial", "quantile", 1, 1, 5));
    (void)json_array_append_new(cells, guessed);
    (void)json_array_append_new(cells, window("serial", "quantile", 3, 1, 5));
    tdm_bench_conclude(all);
    const json_t *rows = json_object_get(all, "carries");
    assert_true(of(rows, 0, "rate") == 4.0 && of(rows, 1, "rate") == 3.0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(json_is_true(json_object_get(json_array_get(rows, i), "is_open")));
        assert_true(json_is_null(json_object_get(json_array_get(rows, i), "over_serial")));
    }
    char *said = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&said, &sz);
    tdm_bench_say(f, all);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(said, "fused/quantile carries at least 4.000 requests/s"));
    assert_null(strstr(said, "x serial"));
    free(said);
    json_decref(all);
}

static void the_plan_stands_beside_what_was_seen(void **state) {
    (void)state;
    json_t *all = bench();
    tdm_bench_conclude(all);
    const json_t *rows = json_object_get(all, "errors");
    assert_int_equal(json_array_size(rows), 1);
    assert_true(is_near(of(rows, 0, "gap_p50"), 0.1));
    assert_true(is_near(of(rows, 0, "gap_p99"), -0.1));
    assert_true(is_near(of(rows, 0, "ttft_p50"), 0.0));
    assert_true(is_near(of(rows, 0, "ttft_p90"), -0.5));
    json_decref(all);
}

static void the_page_escapes_and_stands_alone(void **state) {
    (void)state;
    json_t *all = bench();
    char *page = NULL;
    size_t sz = 0;
    tdm_bench_conclude(all);
    FILE *f = open_memstream(&page, &sz);
    tdm_bench_report(f, all);
    tdm_bench_say(f, all);
    assert_int_equal(fclose(f), 0);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<reason>"));
    assert_non_null(strstr(page, "&#60;reason&#62; 10"));
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "nan"));
    assert_non_null(strstr(page, "fused/quantile carries 2.000 requests/s, 2.000 x serial"));
    assert_non_null(strstr(page, "fused/static:512 carries less than 1.000 requests/s\n"));
    free(page);
    json_decref(all);
}

static char *page_of(json_t *all) {
    char *page = NULL;
    size_t sz = 0;
    tdm_bench_conclude(all);
    FILE *f = open_memstream(&page, &sz);
    tdm_bench_report(f, all);
    assert_int_equal(fclose(f), 0);
    return page;
}

/* is_void: an element without an end. */
static int is_void(const char *name) {
    return strcmp(name, "meta") == 0 || strcmp(name, "br") == 0 || strcmp(name, "path") == 0 ||
           strcmp(name, "circle") == 0 || name[0] == '!';
}

/* closes_all says whether every element is closed, in order; a path or circle
   with a title is closed itself. */
static int closes_all(const char *page) {
    char open[64][16], name[16];
    uint32_t depth = 0;
    for (const char *at = page; (at = strchr(at, '<'));) {
        int is_end = at[1] == '/';
        const char *end = strchr(at, '>');
        size_t sz = strcspn(at + 1 + is_end, " >/");
        if (!end || sz == 0 || sz >= sizeof name) return 0;
        (void)snprintf(name, sizeof name, "%.*s", (int)sz, at + 1 + is_end);
        int is_alone = end[-1] == '/' || (is_void(name) && strcmp(name, "circle") != 0);
        if (is_end && (depth == 0 || strcmp(open[--depth], name) != 0)) return 0;
        if (!is_end && !is_alone && depth == TDM_COUNT_OF(open)) return 0;
        if (!is_end && !is_alone) (void)snprintf(open[depth++], sizeof name, "%s", name);
        at = end;
    }
    return depth == 0;
}

/* What nobody told is neither 0 nor left out; every gain has its bound, and
   between what it lies; axes have their unit, and what was promised is said. */
static void the_page_says_what_it_knows_and_what_not(void **state) {
    (void)state;
    json_t *all = bench();
    char *page = page_of(all);
    assert_true(closes_all(page));
    assert_non_null(strstr(page, "<dt>device</dt><dd>not told</dd>"));
    assert_non_null(strstr(page, "<dt>commit</dt><dd>not told</dd>"));
    assert_non_null(strstr(page, "requests/s</text>"));
    assert_non_null(strstr(page, "target 1<"));
    assert_non_null(strstr(page, "fused/static:512</td><td>less than <b>1.000</b></td>"));
    /* fused carries 2 and misses 3, serial 1 and 2 */
    assert_non_null(strstr(page, "<b>2.000</b> (1.000 to 3.000)</td><td>1.111</td>"));
    /* of 100 hybrids ten did not fuse, and nobody told goodput, board or CTAs */
    assert_non_null(strstr(page,
                           "<td>90.0</td><td class=\"left note\">&#60;reason&#62; 10</td>"
                           "<td>-</td><td>40.0</td><td>-</td><td>-</td><td>-</td><td>-</td>"));
    assert_null(strstr(page, "0.000 / 0.000"));
    /* the plan's p99 gap of 45 where 50 was seen */
    assert_non_null(strstr(page, ">-10 %</text>"));
    free(page);
    json_decref(all);

    all = bench();
    (void)json_object_set_new(json_object_get(all, "appliance"), "device", json_string("a <GPU>"));
    page = page_of(all);
    assert_non_null(strstr(page, "<dt>device</dt><dd>a &#60;GPU&#62;</dd>"));
    free(page);
    (void)json_object_set_new(all, "made",
                              json_pack("{s:s, s:s}", "device", "a <card>", "commit", "abc"));
    page = page_of(all);
    assert_non_null(strstr(page, "<dt>device</dt><dd>a &#60;card&#62;</dd>"));
    assert_non_null(strstr(page, "<dt>commit</dt><dd>abc</dd>"));
    free(page);
    json_decref(all);
}

/* A window that asked for less than its list is told, the one that did most so;
   files from before windows told say nothing. */
static void the_page_says_what_was_cut_off(void **state) {
    (void)state;
    static const char *const want[] = {
        "<dt>context</dt><dd>4096 tokens: 30 of 60 requests of a window cut, by 900 prompt and 7 "
        "output tokens</dd>",
        "<dt>context</dt><dd>4096 tokens: no request cut</dd>",
        "<dt>context</dt><dd>told by nobody: no request cut</dd>", NULL};
    for (int k = 0; k < 4; k++) {
        json_t *all = bench();
        json_t *cells = json_object_get(all, "cells");
        for (size_t i = 0; i < json_array_size(cells) && k < 3; i++) {
            json_t *told = json_pack("{s:i, s:i, s:i, s:i, s:i, s:{s:f, s:f, s:f}}", "listed", 60,
                                     "requests_cut", k == 0 && i == 2 ? 30 : 0, "prompt_tokens_cut",
                                     900, "output_tokens_cut", 7, "context", 4096, "tpot_ms", "p50",
                                     1.25, "p99", 2.5, "p999", 3.75);
            if (k == 2) (void)json_object_set_new(told, "context", json_null());
            (void)json_object_update(json_object_get(json_array_get(cells, i), "replay"), told);
            json_decref(told);
        }
        char *page = page_of(all);
        assert_true(closes_all(page));
        if (want[k]) assert_non_null(strstr(page, want[k]));
        if (want[k]) assert_non_null(strstr(page, "<td>1.2 / 2.5 / 3.8</td>"));
        if (!want[k]) assert_null(strstr(page, "<dt>context"));
        free(page);
        json_decref(all);
    }
}

/* Of a measured window the share of a fallback is its own and the slow-down the
   plan's: 30 of 1,000 iterations, each 8 % of a mean one longer. */
static void a_fallback_says_what_it_costs(void **state) {
    (void)state;
    json_t *all = bench(), *cells = json_object_get(all, "cells");
    json_t *c = json_array_get(cells, 1);
    json_t *point = json_array_get(
        json_object_get(
            json_array_get(json_object_get(json_object_get(all, "planned"), "curves"), 0),
            "points"),
        0);
    (void)json_object_set_new(
        c, "iterations", json_pack("{s:i, s:i, s:i}", "idle", 500, "fused", 900, "serial", 100));
    (void)json_object_set_new(c, "fallbacks",
                              json_pack("{s:i, s:i}", "not_profitable", 30, "operator", 0));
    char *page = page_of(all);
    assert_non_null(strstr(page, "not_profitable 30 (3.00 % of iterations; what they cost nobody "
                                 "told)"));
    assert_null(strstr(page, "operator"));
    free(page);
    (void)json_object_set_new(point, "iterations", json_integer(2000));
    (void)json_object_set_new(
        point, "fallbacks",
        json_pack("{s:{s:i, s:f}}", "not_profitable", "iterations", 100, "lost_share", 0.004));
    page = page_of(all);
    assert_non_null(strstr(page, "not_profitable 30 (3.00 % of iterations; 0.240 % of capacity)"));
    free(page);
    (void)json_object_set_new(
        json_object_get(json_object_get(point, "fallbacks"), "not_profitable"), "saved_share",
        json_real(0.025));
    page = page_of(all);
    assert_non_null(strstr(page,
                           "not_profitable 30 (3.00 % of iterations; 9.6 % of time x 2.5 % of "
                           "it that fusing saves = 0.240 % of capacity)"));
    free(page);
    json_decref(all);
}

/* Fused is divided by serial's best fixed chunk, where both are closed. */
static void the_best_fixed_chunk_is_a_base_too(void **state) {
    (void)state;
    json_t *all = bench(), *cells = json_object_get(all, "cells");
    for (int i = 0; i < 2; i++)
        (void)json_array_append_new(cells, window("serial", "static:512", 0.5 + i, i < 1, 5));
    for (int i = 0; i < 2; i++)
        (void)json_array_append_new(cells, window("serial", "static:1024", 0.8 + i, i < 1, 5));
    tdm_bench_conclude(all);
    const json_t *rows = json_object_get(all, "carries");
    assert_true(is_near(of(rows, 0, "over_static"), 2.0 / 0.8));
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "static")),
                        "static:1024");
    (void)json_array_append_new(cells, window("serial", "static:2048", 1, 1, 5)); /* open */
    tdm_bench_conclude(all);
    assert_true(json_is_null(
        json_object_get(json_array_get(json_object_get(all, "carries"), 0), "over_static")));
    json_decref(all);
}

/* Two windows are measured and the plan has others: those are filled in, each
   says by what, gives way to a measurement, and is compared with its like. */
static void what_nobody_measured_is_simulated_and_says_so(void **state) {
    (void)state;
    json_error_t je;
    json_t *plan = json_loads(
        "{\"profile\": \"card.json\", \"is_model\": true, \"trace\": \"t\", \"epsilon\": 0.01,"
        " \"ttft_ms\": 5000, \"gap_ms\": 60, \"curves\": [{\"route\": \"fused\", \"policy\": \"\","
        " \"appliances\": 1, \"prefill_appliances\": 0, \"points\": [{\"rate\": 2.0, \"over_share\":"
        " 0.002, \"fused_share\": 0.9, \"serial_share\": 0.5, \"attention_speedup\": 1.25,"
        " \"gap_ms\": {\"p50\": 9}, \"ttft_ms\": {\"p50\": 9, \"p90\": 99}, \"e2e_ms\": {},"
        " \"fallbacks\": {\"not_profitable\": {\"iterations\": 3, \"lost_share\": 0.01}}}]},"
        " {\"route\": \"serial\", \"policy\": \"\", \"appliances\": 1, \"prefill_appliances\": 0,"
        " \"points\": [{\"rate\": 2.0, \"over_share\": 0.02, \"gap_ms\": {}, \"ttft_ms\": {},"
        " \"e2e_ms\": {}}, {\"rate\": 1.0, \"over_share\": 0.0, \"gap_ms\": {}, \"ttft_ms\":"
        " {\"p90\": 6000}, \"e2e_ms\": {}}]}]}",
        0, &je);
    assert_non_null(plan);
    json_t *all = json_pack("{s:{s:s}, s:f, s:[], s:[], s:O}", "appliance", "model", "m", "epsilon",
                            0.01, "order", "cells", "planned", plan);
    tdm_bench_add(all, window("serial", "quantile", 1, 1, 5));
    tdm_bench_simulate(all, plan);
    const json_t *cells = json_object_get(all, "cells");
    assert_int_equal(json_array_size(cells), 3); /* serial at 1 is measured */
    assert_true(tdm_bench_has(all, "serial", "quantile", 1));
    assert_false(tdm_bench_has(all, "fused", "quantile", 2));
    const json_t *fused = json_array_get(cells, 1), *serial = json_array_get(cells, 2);
    assert_true(json_is_true(json_object_get(fused, "kept")));
    assert_true(json_is_false(json_object_get(serial, "kept")));
    assert_string_equal(json_string_value(json_object_get(serial, "missed")), "gaps");
    tdm_bench_conclude(all);
    char *page = NULL;
    size_t sz = 0;
    FILE *f = open_memstream(&page, &sz);
    tdm_bench_report(f, all);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(page, "1 measured, 2 simulated on the profile card.json, a model that "
                                 "nobody measured"));
    free(page);
    tdm_bench_add(all, window("fused", "quantile", 2, 1, 4));
    assert_true(tdm_bench_has(all, "fused", "quantile", 2));
    assert_int_equal(json_array_size(json_object_get(all, "cells")), 3);
    json_decref(all);
    json_decref(plan);
}

static json_t *build_of(const char *build) {
    return json_pack("{s:{s:s}, s:s, s:s, s:f, s:f, s:[], s:[], s:[]}", "appliance", "build", build,
                     "trace", "t", "trace_sum", "0", "window_s", 75.0, "epsilon", 0.01, "words",
                     "order", "cells");
}

/* Two builds: a window of the other comes in where its cell was named whole, says
   whose it is, and what differs in the work is refused whatever was named. */
static void another_builds_windows_come_in_by_name_alone(void **state) {
    (void)state;
    tdm_error_t err = {0};
    uint32_t came = 9;
    json_t *new = build_of("new"), *old = build_of("old");
    json_t *were = json_object_get(old, "cells");
    (void)json_array_append_new(json_object_get(new, "cells"),
                                window("fused", "quantile", 1, 1, 4));
    for (int i = 1; i <= 2; i++)
        (void)json_array_append_new(were, window("fused", "quantile", i, 1, 4));
    (void)json_array_append_new(were, window("streams", "quantile", 2, 1, 4));
    (void)json_array_append_new(were, window("serial", "static:1024", 2, 1, 4));
    assert_int_not_equal(tdm_bench_merge(new, old, NULL, &came, &err), TDM_OK);
    assert_non_null(strstr(err.text, "another build: old, not new"));
    tdm_bench_under(new);
    assert_int_equal(tdm_bench_merge(new, old, "fused/quantile,serial/static:10", &came, &err),
                     TDM_OK);
    assert_int_equal(came, 1);
    const json_t *cells = json_object_get(new, "cells");
    assert_int_equal(json_array_size(cells), 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(json_string_value(json_object_get(
                                json_object_get(json_array_get(cells, i), "under"), "build")),
                            i == 0 ? "new" : "old");
    (void)json_object_set_new(old, "window_s", json_real(60.0));
    assert_int_not_equal(tdm_bench_merge(new, old, "streams/quantile", &came, &err), TDM_OK);
    assert_int_equal(json_array_size(cells), 2);
    json_decref(new);
    json_decref(old);
}

/* Windows of two devices are no one curve; a file from before appliances told
   theirs goes with either. */
static void another_devices_windows_stay_out(void **state) {
    (void)state;
    static const struct {
        const char *ours, *theirs;
        tdm_status_t st;
    } of[] = {{"NVIDIA H200", "NVIDIA H200", TDM_OK},
              {"NVIDIA H200", "CPU", TDM_ERR_INVAL},
              {NULL, "NVIDIA H200", TDM_OK},
              {"NVIDIA H200", NULL, TDM_OK}};
    for (size_t i = 0; i < TDM_COUNT_OF(of); i++) {
        tdm_error_t err = {0};
        json_t *a = build_of("one"), *b = build_of("one");
        if (of[i].ours)
            (void)json_object_set_new(json_object_get(a, "appliance"), "device",
                                      json_string(of[i].ours));
        if (of[i].theirs)
            (void)json_object_set_new(json_object_get(b, "appliance"), "device",
                                      json_string(of[i].theirs));
        assert_int_equal(tdm_bench_is_like(a, b, &err), of[i].st);
        if (of[i].st != TDM_OK) assert_non_null(strstr(err.text, "another device: CPU"));
        json_decref(a);
        json_decref(b);
    }
}

/* The files come from disk: what is no bench is refused, a point that is none
   adds nothing. */
static void damaged_files_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"cells\": []}",
        "{\"cells\": {}, \"order\": []}",
        "{\"cells\": [1], \"order\": []}",
        "{\"cells\": [], \"order\": [1]}",
        "{\"cells\": [], \"order\": [null, \"fused/quantile\"]}",
    };
    for (size_t i = 0; i <= TDM_COUNT_OF(bad); i++) {
        char path[] = "/tmp/tdm-bench-XXXXXX";
        const char *text =
            i < TDM_COUNT_OF(bad) ? bad[i] : "{\"cells\": [{}], \"order\": [\"fused/quantile\"]}";
        int fd = mkstemp(path);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        (void)close(fd);
        json_t *all = NULL;
        tdm_error_t err = {0};
        tdm_status_t st = tdm_bench_load(path, &all, &err);
        (void)unlink(path);
        assert_int_equal(st, i < TDM_COUNT_OF(bad) ? TDM_ERR_CORRUPT : TDM_OK);
        assert_int_equal(all != NULL, st == TDM_OK);
        if (all) tdm_bench_add(all, window("fused", "quantile", 2, 1, 4));
        json_decref(all);
    }
    json_t *plan = json_loads("{\"curves\": [{\"route\": \"fused\", \"appliances\": 1,"
                              " \"prefill_appliances\": 0, \"points\": [{\"rate\": 2.0}, 7]}]}",
                              0, NULL);
    json_t *all = json_pack("{s:[], s:[]}", "order", "cells");
    tdm_bench_simulate(all, plan);
    assert_int_equal(json_array_size(json_object_get(all, "cells")), 0);
    assert_int_equal(json_array_size(json_object_get(all, "order")), 0);
    json_decref(all);
    json_decref(plan);
}

static void cells_are_read_whole_or_not_at_all(void **state) {
    (void)state;
    tdm_cell_t c;
    static const char *const good[] = {"fused/quantile", "streams/margin", "serial/static:64",
                                       "serial/fifo:64"};
    static const char *const bad[] = {"",
                                      "fused",
                                      "fused/",
                                      "warp/quantile",
                                      "fused/best",
                                      "fused/static",
                                      "fused/static:63",
                                      "fused/static:9000",
                                      "/quantile",
                                      "fused/static:x",
                                      "fused/quantile,",
                                      "fused/fifo",
                                      "fused/fifo:",
                                      "fused/fifo:63"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(tdm_cell_read(good[i], strlen(good[i]), &c));
    assert_int_equal(c.prefill_tokens, 64);
    assert_int_equal(c.is_fifo, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(tdm_cell_read(bad[i], strlen(bad[i]), &c));
}

static void a_cell_is_served_under_keys_the_appliance_knows(void **state) {
    (void)state;
    static const struct {
        const char *cell, *word[TDM_CELL_WORD_MAX];
    } of[] = {
        {"fused/quantile", {"sched.route=fused", "sched.policy=quantile"}},
        {"streams/margin", {"sched.route=streams", "sched.policy=margin"}},
        {"serial/static:1024",
         {"sched.route=serial", "sched.policy=static", "sched.prefill_tokens=1024"}},
        {"serial/fifo:8192",
         {"sched.route=serial", "sched.policy=static", "sched.prefill_tokens=8192",
          "sched.patience=0"}},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(of); i++) {
        tdm_cell_t c;
        char word[TDM_CELL_WORD_MAX][TDM_CELL_WORD_SZ];
        assert_true(tdm_cell_read(of[i].cell, strlen(of[i].cell), &c));
        uint32_t cnt = tdm_cell_words(&c, word);
        for (uint32_t k = 0; k < TDM_CELL_WORD_MAX; k++) {
            assert_int_equal(k < cnt, of[i].word[k] != NULL);
            if (k < cnt) assert_string_equal(word[k], of[i].word[k]);
        }
    }
}

/* bench_of runs bench serve against nobody, with words and a trace behind
   them. */
static int bench_of(const char *const *word, uint32_t cnt) {
    static const char *const fixed[] = {"tandemctl",  "bench",  "serve",      "--out",
                                        "/nowhere/b", "--http", "127.0.0.1:1"};
    const char *argv[128];
    uint32_t n = 0;
    for (uint32_t i = 0; i < TDM_COUNT_OF(fixed); i++) argv[n++] = fixed[i];
    for (uint32_t i = 0; i < cnt; i++) argv[n++] = word[i];
    argv[n++] = "--trace";
    argv[n++] = "/nowhere/t";
    return tdm_ctl_bench((int)n, (char **)(uintptr_t)argv);
}

static void words_beyond_the_bounds_are_refused(void **state) {
    (void)state;
    static const char *const good[] = {"1", "0.5@256,2@0"};
    static const char *const bad[] = {
        "1@4294967297", "1@257", "1@-1", "1@x", "1,1",
        "1,,2",         "0",     "nan",  "",    "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
    };
    for (size_t i = 0; i < TDM_COUNT_OF(good); i++)
        assert_int_equal(bench_of((const char *const[]){"--rates", good[i]}, 2),
                         TDM_EXIT_UNREACHABLE);
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++)
        assert_int_equal(bench_of((const char *const[]){"--rates", bad[i]}, 2), TDM_EXIT_USAGE);
    /* what a bench tells its replays itself would be undone by a word behind it */
    static const char *const alone[] = {"--rate",      "--load",    "--capacity", "--duration",
                                        "--text-seed", "--records", "-o"};
    for (size_t i = 0; i < TDM_COUNT_OF(alone); i++)
        assert_int_equal(bench_of((const char *const[]){"--rates", "1", alone[i], "1"}, 4),
                         TDM_EXIT_HELP);
    static const char *const only[] = {"fused/quantile",   "serial/quantile@1,fused/quantile@1",
                                       "fused/quantil",    "fused/quantile@2",
                                       "streams/quantile", "fused/quantile@1,serial/margin"};
    for (size_t i = 0; i < TDM_COUNT_OF(only); i++)
        assert_int_equal(bench_of((const char *const[]){"--rates", "1", "--only", only[i]}, 4),
                         i < 2 ? TDM_EXIT_UNREACHABLE : TDM_EXIT_USAGE);
    /* 64 words go to the replays: two of --http, two of --trace */
    for (uint32_t cnt = 55; cnt < 70; cnt++) {
        const char *word[72] = {"--rates", "1"};
        for (uint32_t i = 0; i < cnt; i++) word[2 + i] = "--spread";
        assert_int_equal(bench_of(word, 2 + cnt), cnt > 60 ? TDM_EXIT_USAGE : TDM_EXIT_UNREACHABLE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_carried_up_to_the_first_that_was_missed),
        cmocka_unit_test(what_was_never_missed_is_at_least),
        cmocka_unit_test(the_plan_stands_beside_what_was_seen),
        cmocka_unit_test(the_page_escapes_and_stands_alone),
        cmocka_unit_test(the_page_says_what_it_knows_and_what_not),
        cmocka_unit_test(the_page_says_what_was_cut_off),
        cmocka_unit_test(a_fallback_says_what_it_costs),
        cmocka_unit_test(the_best_fixed_chunk_is_a_base_too),
        cmocka_unit_test(what_nobody_measured_is_simulated_and_says_so),
        cmocka_unit_test(another_builds_windows_come_in_by_name_alone),
        cmocka_unit_test(another_devices_windows_stay_out),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(cells_are_read_whole_or_not_at_all),
        cmocka_unit_test(a_cell_is_served_under_keys_the_appliance_knows),
        cmocka_unit_test(words_beyond_the_bounds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
