/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bench_file.h"

#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"
#include "appliance/ctl/bench_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

/* is_bench: cells are objects, and their order is of words. */
static int is_bench(const json_t *all) {
    const json_t *cells = json_object_get(all, "cells"), *order = json_object_get(all, "order");
    int ok = json_is_array(cells) && json_is_array(order);
    for (size_t i = 0; ok && i < json_array_size(cells); i++)
        ok = json_is_object(json_array_get(cells, i));
    for (size_t i = 0; ok && i < json_array_size(order); i++)
        ok = json_is_string(json_array_get(order, i));
    return ok;
}

tdm_status_t tdm_bench_load(const char *path, json_t **all, tdm_error_t *err) {
    json_error_t je;
    FILE *f = fopen(path, "re");
    *all = NULL;
    if (!f)
        return tdm_error_set(err, errno == ENOENT ? TDM_ERR_NOT_FOUND : TDM_ERR_IO, "%s: %s", path,
                             strerror(errno));
    *all = json_loadf(f, 0, &je);
    (void)fclose(f);
    if (is_bench(*all)) return TDM_OK;
    if (*all) (void)snprintf(je.text, sizeof je.text, "no bench");
    json_decref(*all);
    *all = NULL;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "%s: %s", path, je.text);
}

static int is_fact_like(const json_t *a, const json_t *b, const char *fact, tdm_error_t *err) {
    const char *x = text(json_object_get(a, "appliance"), fact);
    const char *y = text(json_object_get(b, "appliance"), fact);
    if (strcmp(x, y) == 0) return 1;
    (void)tdm_error_set(err, TDM_ERR_INVAL, "another %s: %s, not %s", fact, y, x);
    return 0;
}

/* is_device_like: files from before appliances told their device say nothing. */
static int is_device_like(const json_t *a, const json_t *b, tdm_error_t *err) {
    if (!json_object_get(json_object_get(a, "appliance"), "device") ||
        !json_object_get(json_object_get(b, "appliance"), "device"))
        return 1;
    return is_fact_like(a, b, "device", err);
}

/* is_work_like says whether two benches measured the same, by whatever build. */
static tdm_status_t is_work_like(const json_t *a, const json_t *b, tdm_error_t *err) {
    static const char *const key[] = {"trace", "trace_sum", "window_s", "epsilon", "words"};
    if (!is_fact_like(a, b, "model", err) || !is_fact_like(a, b, "backend", err) ||
        !is_device_like(a, b, err))
        return TDM_ERR_INVAL;
    for (size_t i = 0; i < TDM_COUNT_OF(key); i++)
        if (!json_equal(json_object_get(a, key[i]), json_object_get(b, key[i])))
            return tdm_error_set(err, TDM_ERR_INVAL, "another %s", key[i]);
    return TDM_OK;
}

tdm_status_t tdm_bench_is_like(const json_t *a, const json_t *b, tdm_error_t *err) {
    return is_fact_like(a, b, "build", err) ? is_work_like(a, b, err) : TDM_ERR_INVAL;
}

/* --- cells ------------------------------------------------------------------------ */

int tdm_bench_is_rate(double a, double b) {
    return a > 0.999 * b && a < 1.001 * b;
}

/* find gives the place of a window, measured or not; the number of cells where
   there is none. */
static size_t find(const json_t *cells, const char *path, const char *policy, double rate) {
    size_t i = 0, cnt = json_array_size(cells);
    for (; i < cnt; i++) {
        const json_t *c = json_array_get(cells, i);
        if (strcmp(text(c, "path"), path) == 0 && strcmp(text(c, "policy"), policy) == 0 &&
            tdm_bench_is_rate(bench_number(c, "rate", NULL, NULL), rate))
            break;
    }
    return i;
}

static int is_simulated(const json_t *cell) {
    return json_is_object(json_object_get(cell, "simulated"));
}

int tdm_bench_has(const json_t *all, const char *path, const char *policy, double rate) {
    const json_t *cells = json_object_get(all, "cells");
    size_t i = find(cells, path, policy, rate);
    return i < json_array_size(cells) && !is_simulated(json_array_get(cells, i));
}

void tdm_bench_add(json_t *all, json_t *cell) {
    json_t *cells = json_object_get(all, "cells"), *order = json_object_get(all, "order");
    char name[64];
    (void)snprintf(name, sizeof name, "%.15s/%.23s", text(cell, "path"), text(cell, "policy"));
    size_t i = find(cells, text(cell, "path"), text(cell, "policy"),
                    bench_number(cell, "rate", NULL, NULL));
    if (i < json_array_size(cells))
        (void)json_array_set_new(cells, i, cell);
    else
        (void)json_array_append_new(cells, cell);
    for (i = 0; i < json_array_size(order); i++)
        if (strcmp(json_string_value(json_array_get(order, i)), name) == 0) return;
    (void)json_array_append_new(order, json_string(name));
}

void tdm_bench_under(json_t *all) {
    const json_t *cells = json_object_get(all, "cells");
    json_t *build = json_object_get(json_object_get(all, "appliance"), "build");
    for (size_t i = 0; build && i < json_array_size(cells); i++) {
        json_t *c = json_array_get(cells, i), *under = json_object_get(c, "under");
        if (is_simulated(c)) continue;
        if (!under) {
            under = json_object();
            (void)json_object_set_new(c, "under", under);
        }
        if (!json_object_get(under, "build")) (void)json_object_set(under, "build", build);
    }
}

/* is_named says whether a list "PATH/POLICY,..." names a window's cell. */
static int is_named(const char *list, const json_t *cell) {
    char name[64];
    int sz = snprintf(name, sizeof name, "%.15s/%.23s", text(cell, "path"), text(cell, "policy"));
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == (size_t)sz && strncmp(at, name, (size_t)sz) == 0) return 1;
    return 0;
}

tdm_status_t tdm_bench_merge(json_t *into, json_t *from, const char *keep, uint32_t *came,
                             tdm_error_t *err) {
    const json_t *cells = json_object_get(from, "cells");
    int is_same = is_fact_like(into, from, "build", err);
    tdm_status_t st = is_same || keep ? is_work_like(into, from, err) : TDM_ERR_INVAL;
    *came = 0;
    tdm_bench_under(from);
    for (size_t i = 0; st == TDM_OK && i < json_array_size(cells); i++) {
        json_t *c = json_array_get(cells, i);
        if (is_simulated(c) || (!is_same && !is_named(keep, c)) ||
            tdm_bench_has(into, text(c, "path"), text(c, "policy"),
                          bench_number(c, "rate", NULL, NULL)))
            continue;
        tdm_bench_add(into, json_incref(c));
        ++*came;
    }
    return st;
}

/* --- simulated cells ------------------------------------------------------------------ */

/* missed names the part of the promise that a planner's point broke; the queue
   can grow in a plan of windows alone (plan.h). */
static const char *missed(const json_t *plan, const json_t *p) {
    double first = bench_number(p, "waiting_first", NULL, NULL),
           last = bench_number(p, "waiting_last", NULL, NULL);
    if (bench_number(p, "over_share", NULL, NULL) > bench_number(plan, "epsilon", NULL, NULL))
        return "gaps";
    if (bench_number(p, "ttft_ms", "p90", NULL) > bench_number(plan, "ttft_ms", NULL, NULL))
        return "ttft";
    return last > TDM_MAX(first + 1.0, 1.1 * first) ? "queue" : "";
}

static json_t *simulated(const json_t *plan, const json_t *curve, const json_t *p) {
    const char *why = missed(plan, p), *policy = text(curve, "policy"), *key;
    double both = bench_number(p, "hybrid", NULL, NULL),
           fused = both * bench_number(p, "fused_share", NULL, NULL);
    json_t *fallbacks = json_object(), *lost = json_object(), *saved = json_object(), *v;
    json_object_foreach(json_object_get(p, "fallbacks"), key, v) {
        (void)json_object_set_new(fallbacks, key,
                                  json_real(bench_number(v, "iterations", NULL, NULL)));
        (void)json_object_set_new(lost, key, json_real(bench_number(v, "lost_share", NULL, NULL)));
        (void)json_object_set(saved, key, json_object_get(v, "saved_share"));
    }
    return json_pack(
        "{s:s, s:s, s:f, s:b, s:s, s:{s:s, s:b}, s:{s:f, s:O, s:O, s:O, s:f, s:f}, s:f, s:f, s:f, "
        "s:{s:f, s:f}, s:{s:f}, s:o, s:o, s:o, s:n}",
        "path", text(curve, "route"), "policy", policy[0] ? policy : "quantile", "rate",
        bench_number(p, "rate", NULL, NULL), "kept", why[0] == 0, "missed", why, "simulated",
        "profile", text(plan, "profile"), "is_model",
        json_is_true(json_object_get(plan, "is_model")), "replay", "share_over",
        bench_number(p, "over_share", NULL, NULL), "tbt_ms", json_object_get(p, "gap_ms"),
        "ttft_ms", json_object_get(p, "ttft_ms"), "e2e_ms", json_object_get(p, "e2e_ms"),
        "ttft_target_ms", bench_number(plan, "ttft_ms", NULL, NULL), "gap_target_ms",
        bench_number(plan, "gap_ms", NULL, NULL), "attention_share",
        bench_number(p, "attention_share", NULL, NULL), "serial_share",
        bench_number(p, "serial_share", NULL, NULL), "attention_speedup",
        bench_number(p, "attention_speedup", NULL, NULL), "hybrid", "fused", fused, "fallback",
        both - fused, "iterations", "all", bench_number(p, "iterations", NULL, NULL), "fallbacks",
        fallbacks, "lost", lost, "saved", saved, "power");
}

void tdm_bench_simulate(json_t *all, const json_t *plan) {
    const json_t *curves = json_object_get(plan, "curves"), *cells = json_object_get(all, "cells");
    for (size_t i = 0; i < json_array_size(curves); i++) {
        const json_t *c = json_array_get(curves, i), *points = json_object_get(c, "points");
        if (bench_number(c, "appliances", NULL, NULL) != 1.0 ||
            bench_number(c, "prefill_appliances", NULL, NULL) != 0.0)
            continue;
        for (size_t k = 0; k < json_array_size(points); k++) {
            json_t *cell = simulated(plan, c, json_array_get(points, k));
            if (!cell) continue; /* no point of a plan */
            size_t at = find(cells, text(cell, "path"), text(cell, "policy"),
                             bench_number(cell, "rate", NULL, NULL));
            if (at == json_array_size(cells))
                tdm_bench_add(all, cell);
            else
                json_decref(cell);
        }
    }
}

/* --- to disk ------------------------------------------------------------------------- */

/* place gives the rank of a cell: as the order has its way to serve. */
static size_t place(const json_t *order, const json_t *cell) {
    char name[64];
    size_t i = 0;
    (void)snprintf(name, sizeof name, "%.15s/%.23s", text(cell, "path"), text(cell, "policy"));
    while (i < json_array_size(order) &&
           strcmp(json_string_value(json_array_get(order, i)), name) != 0)
        i++;
    return i;
}

static int is_before(const json_t *order, const json_t *a, const json_t *b) {
    size_t x = place(order, a), y = place(order, b);
    return x != y ? x < y
                  : bench_number(a, "rate", NULL, NULL) < bench_number(b, "rate", NULL, NULL);
}

/* sort puts the cells in the order of their ways to serve, rates rising; by
   insertion, as there are some tens of them. */
static void sort(json_t *all) {
    json_t *cells = json_object_get(all, "cells"), *sorted = json_array();
    const json_t *order = json_object_get(all, "order");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        json_t *c = json_array_get(cells, i);
        size_t at = json_array_size(sorted);
        while (at > 0 && is_before(order, c, json_array_get(sorted, at - 1u))) at--;
        (void)json_array_insert(sorted, at, c);
    }
    (void)json_object_set_new(all, "cells", sorted);
}

static int write_json(FILE *f, const json_t *all) {
    return json_dumpf(all, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
}

static int write_html(FILE *f, const json_t *all) {
    tdm_bench_report(f, all);
    return 1;
}

static tdm_status_t write_one(const char *base, const char *end, const json_t *all,
                              int (*write)(FILE *f, const json_t *all), tdm_error_t *err) {
    char path[4096], tmp[4100];
    int n = snprintf(path, sizeof path, "%s.%s", base, end);
    if (n < 0 || (size_t)n >= sizeof path)
        return tdm_error_set(err, TDM_ERR_INVAL, "--out is too long");
    (void)snprintf(tmp, sizeof tmp, "%s.new", path);
    FILE *f = fopen(tmp, "we");
    int ok = f && write(f, all) && !ferror(f);
    if (f) ok = fclose(f) == 0 && ok;
    if (ok && rename(tmp, path) == 0) return TDM_OK;
    tdm_status_t st = tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
    (void)remove(tmp);
    return st;
}

tdm_status_t tdm_bench_save(const char *base, json_t *all, tdm_error_t *err) {
    sort(all);
    tdm_bench_conclude(all);
    tdm_status_t st = write_one(base, "json", all, write_json, err);
    return st == TDM_OK ? write_one(base, "html", all, write_html, err) : st;
}
