/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bench_report.h"

#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"

/* --- what it comes to --------------------------------------------------------------- */

/* measured gives the highest rate of a way to serve below which no measured
   window was missed. */
static double measured(const json_t *cells, const json_t *like) {
    double best = 0.0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (!bench_is_like(c, like) || bench_is_simulated(c)) continue;
        if (!json_is_true(json_object_get(c, "kept"))) break;
        best = bench_number(c, "rate", NULL, NULL);
    }
    return best;
}

/* carried gives the highest rate of a way to serve up to which every window
   was kept; rates rise.  A simulated miss below a rate that was measured and
   kept does not count, and one above it does not close what was measured.
   *is_open: it may carry more. */
static double carried(const json_t *cells, const json_t *like, int *is_open) {
    double best = 0.0, floor = measured(cells, like);
    *is_open = 1;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double rate = bench_number(c, "rate", NULL, NULL);
        if (!bench_is_like(c, like) || (bench_is_simulated(c) && rate < floor)) continue;
        if (!json_is_true(json_object_get(c, "kept"))) {
            *is_open = bench_is_simulated(c) && best > 0.0 && best == floor;
            break;
        }
        best = rate;
    }
    return best;
}

/* window_at finds the window of a path and policy at a rate. */
static const json_t *window_at(const json_t *cells, const char *path, const char *policy,
                               double rate) {
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (strcmp(bench_text(c, "path"), path) == 0 &&
            strcmp(bench_text(c, "policy"), policy) == 0 &&
            bench_number(c, "rate", NULL, NULL) == rate)
            return c;
    }
    return NULL;
}

/* compare sets a cell beside serial under the same policy. */
static void compare(json_t *row, const json_t *cells) {
    const char *policy = bench_text(row, "policy");
    json_t *serial = json_pack("{s:s, s:s}", "path", "serial", "policy", policy);
    int is_open, is_base_open;
    double own = carried(cells, row, &is_open), base = carried(cells, serial, &is_base_open);
    json_decref(serial);
    double both = TDM_MIN(own, base);
    const json_t *a = window_at(cells, bench_text(row, "path"), policy, both);
    const json_t *b = window_at(cells, "serial", policy, both);
    int is_there = both > 0.0 && a && b && strcmp(bench_text(row, "path"), "serial") != 0 &&
                   bench_is_simulated(a) == bench_is_simulated(b);
    double share = is_there ? bench_number(b, "attention_share", NULL, NULL) : 0.0;
    double fast = is_there ? bench_number(a, "attention_s", NULL, NULL) : 0.0;
    double speedup = fast > 0.0 ? bench_number(b, "attention_s", NULL, NULL) / fast : 0.0;
    if (is_there && bench_is_simulated(a)) { /* the simulator knows both of one run */
        share = bench_number(a, "serial_share", NULL, NULL);
        speedup = bench_number(a, "attention_speedup", NULL, NULL);
    }
    int has_bound = speedup > 0.0;
    int has_gain = is_there && !is_open && !is_base_open;
    (void)json_object_set_new(row, "rate", json_real(own));
    (void)json_object_set_new(row, "is_open", json_boolean(is_open));
    (void)json_object_set_new(row, "over_serial", has_gain ? json_real(own / base) : json_null());
    (void)json_object_set_new(row, "attention_share", is_there ? json_real(share) : json_null());
    (void)json_object_set_new(row, "attention_speedup",
                              has_bound ? json_real(speedup) : json_null());
    (void)json_object_set_new(
        row, "bound", has_bound ? json_real(1.0 / (1.0 - share + share / speedup)) : json_null());
}

const json_t *bench_planned(const json_t *planned, const json_t *cell) {
    const json_t *curves = json_object_get(planned, "curves");
    for (size_t i = 0; i < json_array_size(curves); i++) {
        const json_t *c = json_array_get(curves, i), *points = json_object_get(c, "points");
        const char *policy = bench_text(c, "policy");
        if (strcmp(policy[0] ? policy : "quantile", bench_text(cell, "policy")) != 0 ||
            strcmp(bench_text(c, "route"), bench_text(cell, "path")) != 0 ||
            bench_number(c, "appliances", NULL, NULL) != 1.0 ||
            bench_number(c, "prefill_appliances", NULL, NULL) != 0.0)
            continue;
        for (size_t k = 0; k < json_array_size(points); k++) {
            const json_t *p = json_array_get(points, k);
            double over =
                bench_number(p, "rate", NULL, NULL) / bench_number(cell, "rate", NULL, NULL);
            if (over > 0.999 && over < 1.001) return p;
        }
    }
    return NULL;
}

static json_t *error_of(double planned, double seen) {
    return seen > 0.0 ? json_real(planned / seen - 1.0) : json_null();
}

static json_t *errors_of(const json_t *all) {
    json_t *rows = json_array();
    const json_t *cells = json_object_get(all, "cells");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        const json_t *p = bench_planned(json_object_get(all, "planned"), c);
        if (!p || bench_is_simulated(c)) continue;
        json_t *row =
            json_pack("{s:s, s:s, s:f}", "path", bench_text(c, "path"), "policy",
                      bench_text(c, "policy"), "rate", bench_number(c, "rate", NULL, NULL));
        static const struct {
            const char *key, *planned, *seen, *at;
        } part[] = {{"gap_p50", "gap_ms", "tbt_ms", "p50"},
                    {"gap_p99", "gap_ms", "tbt_ms", "p99"},
                    {"ttft_p50", "ttft_ms", "ttft_ms", "p50"},
                    {"ttft_p90", "ttft_ms", "ttft_ms", "p90"}};
        for (size_t k = 0; k < TDM_COUNT_OF(part); k++)
            (void)json_object_set_new(
                row, part[k].key,
                error_of(bench_number(p, part[k].planned, part[k].at, NULL),
                         bench_number(c, "replay", part[k].seen, part[k].at)));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* plan_carries gives the highest rate of a way to serve up to which the plan
   keeps the promise at every rate that was measured. */
static double plan_carries(const json_t *all, const json_t *like) {
    const json_t *cells = json_object_get(all, "cells"), *planned = json_object_get(all, "planned");
    double best = 0.0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        const json_t *p = bench_is_like(c, like) ? bench_planned(planned, c) : NULL;
        if (!p) continue;
        double first = bench_number(p, "waiting_first", NULL, NULL);
        if (bench_number(p, "over_share", NULL, NULL) > bench_number(all, "epsilon", NULL, NULL) ||
            bench_number(p, "ttft_ms", "p90", NULL) >
                bench_number(planned, "ttft_ms", NULL, NULL) ||
            bench_number(p, "waiting_last", NULL, NULL) > TDM_MAX(first + 1.0, 1.1 * first))
            break;
        best = bench_number(c, "rate", NULL, NULL);
    }
    return best;
}

uint32_t bench_count(const json_t *cells, const json_t *like, int is_sim) {
    uint32_t cnt = 0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        cnt += (!like || bench_is_like(c, like)) && bench_is_simulated(c) == is_sim;
    }
    return cnt;
}

void tdm_bench_conclude(json_t *all) {
    const json_t *cells = json_object_get(all, "cells");
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (i > 0 && bench_is_like(c, json_array_get(cells, i - 1))) continue;
        json_t *row = json_pack("{s:s, s:s}", "path", bench_text(c, "path"), "policy",
                                bench_text(c, "policy"));
        compare(row, cells);
        (void)json_object_set_new(row, "measured", json_integer(bench_count(cells, c, 0)));
        (void)json_object_set_new(row, "simulated", json_integer(bench_count(cells, c, 1)));
        (void)json_object_set_new(row, "planned", json_real(plan_carries(all, c)));
        (void)json_array_append_new(rows, row);
    }
    (void)json_object_set_new(all, "carries", rows);
    (void)json_object_set_new(all, "errors", errors_of(all));
}

/* --- text ------------------------------------------------------------------------------ */

const char *bench_at_least(const json_t *row) {
    return json_is_true(json_object_get(row, "is_open")) ? "at least " : "";
}

void bench_put_gain(FILE *f, const json_t *row) {
    if (json_is_number(json_object_get(row, "over_serial")))
        fprintf(f, ", %.3f x serial", bench_number(row, "over_serial", NULL, NULL));
    if (!json_is_number(json_object_get(row, "bound"))) return;
    fprintf(f, " (attention is %.1f %% of serial's time and ran %.3f x as fast, which allows %.3f)",
            100.0 * bench_number(row, "attention_share", NULL, NULL),
            bench_number(row, "attention_speedup", NULL, NULL),
            bench_number(row, "bound", NULL, NULL));
}

void tdm_bench_say(FILE *f, const json_t *all) {
    const json_t *rows = json_object_get(all, "carries");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        fprintf(f, "%s/%s carries %s%.3f requests/s", bench_text(row, "path"),
                bench_text(row, "policy"), bench_at_least(row),
                bench_number(row, "rate", NULL, NULL));
        bench_put_gain(f, row);
        if (bench_number(row, "simulated", NULL, NULL) > 0.0)
            fprintf(f, "; %.0f of its cells are simulated, %.0f measured",
                    bench_number(row, "simulated", NULL, NULL),
                    bench_number(row, "measured", NULL, NULL));
        fputc('\n', f);
    }
}
