/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bench_report.h"

#include "appliance/base/attr.h"
#include "scheduler/sim/report.h"

#include <string.h>

/* get walks up to three keys. */
static const json_t *get(const json_t *j, const char *a, const char *b, const char *c) {
    j = json_object_get(j, a);
    if (b) j = json_object_get(j, b);
    return c ? json_object_get(j, c) : j;
}

static double number(const json_t *j, const char *a, const char *b, const char *c) {
    return json_number_value(get(j, a, b, c));
}

static const char *text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "?";
}

static int is_like(const json_t *a, const json_t *b) {
    return strcmp(text(a, "path"), text(b, "path")) == 0 &&
           strcmp(text(a, "policy"), text(b, "policy")) == 0;
}

/* is_simulated: nobody measured this cell. */
static int is_simulated(const json_t *cell) {
    return json_is_object(json_object_get(cell, "simulated"));
}

/* --- what it comes to --------------------------------------------------------------- */

/* measured gives the highest rate of a way to serve below which no measured
   window was missed. */
static double measured(const json_t *cells, const json_t *like) {
    double best = 0.0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (!is_like(c, like) || is_simulated(c)) continue;
        if (!json_is_true(json_object_get(c, "kept"))) break;
        best = number(c, "rate", NULL, NULL);
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
        double rate = number(c, "rate", NULL, NULL);
        if (!is_like(c, like) || (is_simulated(c) && rate < floor)) continue;
        if (!json_is_true(json_object_get(c, "kept"))) {
            *is_open = is_simulated(c) && best > 0.0 && best == floor;
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
        if (strcmp(text(c, "path"), path) == 0 && strcmp(text(c, "policy"), policy) == 0 &&
            number(c, "rate", NULL, NULL) == rate)
            return c;
    }
    return NULL;
}

/* compare sets a cell beside serial under the same policy. */
static void compare(json_t *row, const json_t *cells) {
    const char *policy = text(row, "policy");
    json_t *serial = json_pack("{s:s, s:s}", "path", "serial", "policy", policy);
    int is_open, is_base_open;
    double own = carried(cells, row, &is_open), base = carried(cells, serial, &is_base_open);
    json_decref(serial);
    double both = TDM_MIN(own, base);
    const json_t *a = window_at(cells, text(row, "path"), policy, both);
    const json_t *b = window_at(cells, "serial", policy, both);
    int is_there = both > 0.0 && a && b && strcmp(text(row, "path"), "serial") != 0 &&
                   is_simulated(a) == is_simulated(b);
    double share = is_there ? number(b, "attention_share", NULL, NULL) : 0.0;
    double fast = is_there ? number(a, "attention_s", NULL, NULL) : 0.0;
    double speedup = fast > 0.0 ? number(b, "attention_s", NULL, NULL) / fast : 0.0;
    if (is_there && is_simulated(a)) { /* the simulator knows both of one run */
        share = number(a, "serial_share", NULL, NULL);
        speedup = number(a, "attention_speedup", NULL, NULL);
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

/* planned_point finds what was planned for a window; NULL: nothing.  A plan
   of one policy alone does not name it: it is the appliance's own. */
static const json_t *planned_point(const json_t *planned, const json_t *cell) {
    const json_t *curves = json_object_get(planned, "curves");
    for (size_t i = 0; i < json_array_size(curves); i++) {
        const json_t *c = json_array_get(curves, i), *points = json_object_get(c, "points");
        const char *policy = text(c, "policy");
        if (strcmp(policy[0] ? policy : "quantile", text(cell, "policy")) != 0 ||
            strcmp(text(c, "route"), text(cell, "path")) != 0 ||
            number(c, "appliances", NULL, NULL) != 1.0 ||
            number(c, "prefill_appliances", NULL, NULL) != 0.0)
            continue;
        for (size_t k = 0; k < json_array_size(points); k++) {
            const json_t *p = json_array_get(points, k);
            double over = number(p, "rate", NULL, NULL) / number(cell, "rate", NULL, NULL);
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
        const json_t *p = planned_point(json_object_get(all, "planned"), c);
        if (!p || is_simulated(c)) continue;
        json_t *row = json_pack("{s:s, s:s, s:f}", "path", text(c, "path"), "policy",
                                text(c, "policy"), "rate", number(c, "rate", NULL, NULL));
        static const struct {
            const char *key, *planned, *seen, *at;
        } part[] = {{"gap_p50", "gap_ms", "tbt_ms", "p50"},
                    {"gap_p99", "gap_ms", "tbt_ms", "p99"},
                    {"ttft_p50", "ttft_ms", "ttft_ms", "p50"},
                    {"ttft_p90", "ttft_ms", "ttft_ms", "p90"}};
        for (size_t k = 0; k < TDM_COUNT_OF(part); k++)
            (void)json_object_set_new(row, part[k].key,
                                      error_of(number(p, part[k].planned, part[k].at, NULL),
                                               number(c, "replay", part[k].seen, part[k].at)));
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
        const json_t *p = is_like(c, like) ? planned_point(planned, c) : NULL;
        if (!p) continue;
        double first = number(p, "waiting_first", NULL, NULL);
        if (number(p, "over_share", NULL, NULL) > number(all, "epsilon", NULL, NULL) ||
            number(p, "ttft_ms", "p90", NULL) > number(planned, "ttft_ms", NULL, NULL) ||
            number(p, "waiting_last", NULL, NULL) > TDM_MAX(first + 1.0, 1.1 * first))
            break;
        best = number(c, "rate", NULL, NULL);
    }
    return best;
}

/* count counts the cells of a way to serve that were measured, or simulated. */
static uint32_t count(const json_t *cells, const json_t *like, int is_sim) {
    uint32_t cnt = 0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        cnt += (!like || is_like(c, like)) && is_simulated(c) == is_sim;
    }
    return cnt;
}

void tdm_bench_conclude(json_t *all) {
    const json_t *cells = json_object_get(all, "cells");
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (i > 0 && is_like(c, json_array_get(cells, i - 1))) continue;
        json_t *row = json_pack("{s:s, s:s}", "path", text(c, "path"), "policy", text(c, "policy"));
        compare(row, cells);
        (void)json_object_set_new(row, "measured", json_integer(count(cells, c, 0)));
        (void)json_object_set_new(row, "simulated", json_integer(count(cells, c, 1)));
        (void)json_object_set_new(row, "planned", json_real(plan_carries(all, c)));
        (void)json_array_append_new(rows, row);
    }
    (void)json_object_set_new(all, "carries", rows);
    (void)json_object_set_new(all, "errors", errors_of(all));
}

/* --- text ------------------------------------------------------------------------------ */

static const char *at_least(const json_t *row) {
    return json_is_true(json_object_get(row, "is_open")) ? "at least " : "";
}

static void put_gain(FILE *f, const json_t *row) {
    if (json_is_number(json_object_get(row, "over_serial")))
        fprintf(f, ", %.3f x serial", number(row, "over_serial", NULL, NULL));
    if (!json_is_number(json_object_get(row, "bound"))) return;
    fprintf(f, " (attention is %.1f %% of serial's time and ran %.3f x as fast, which allows %.3f)",
            100.0 * number(row, "attention_share", NULL, NULL),
            number(row, "attention_speedup", NULL, NULL), number(row, "bound", NULL, NULL));
}

void tdm_bench_say(FILE *f, const json_t *all) {
    const json_t *rows = json_object_get(all, "carries");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        fprintf(f, "%s/%s carries %s%.3f requests/s", text(row, "path"), text(row, "policy"),
                at_least(row), number(row, "rate", NULL, NULL));
        put_gain(f, row);
        if (number(row, "simulated", NULL, NULL) > 0.0)
            fprintf(f, "; %.0f of its cells are simulated, %.0f measured",
                    number(row, "simulated", NULL, NULL), number(row, "measured", NULL, NULL));
        fputc('\n', f);
    }
}

/* --- the page ---------------------------------------------------------------------------- */

#define CHART_W 560.0
#define CHART_H 260.0
#define EDGE    50.0

static const struct chart {
    const char *title;
    const char *seen[2];    /* of a window's replay */
    const char *planned[2]; /* of a planner's point */
    double scale;
} chart[] = {{"gaps over the target, %", {"share_over", NULL}, {"over_share", NULL}, 100.0},
             {"gap between tokens p99, ms", {"tbt_ms", "p99"}, {"gap_ms", "p99"}, 1.0},
             {"first token p50, ms", {"ttft_ms", "p50"}, {"ttft_ms", "p50"}, 1.0}};

/* seen_at and planned_at give what chart k shows of a window; -1: nothing. */
static double seen_at(const json_t *cell, size_t k) {
    return chart[k].scale * number(cell, "replay", chart[k].seen[0], chart[k].seen[1]);
}
static double planned_at(const json_t *all, const json_t *cell, size_t k) {
    if (is_simulated(cell)) return seen_at(cell, k);
    const json_t *p = planned_point(json_object_get(all, "planned"), cell);
    return p ? chart[k].scale * number(p, chart[k].planned[0], chart[k].planned[1], NULL) : -1.0;
}

static const char *ink_of(const json_t *cell) {
    const char *path = text(cell, "path");
    if (strcmp(path, "fused") == 0) return "#0a6";
    return strcmp(path, "streams") == 0 ? "#06c" : "#c50";
}

static double x_of(double rate, double most) {
    return EDGE + (CHART_W - 10.0 - EDGE) * rate / most;
}
/* y_of: what is far over the target leaves the chart, so that what is near
   can be read. */
static double y_of(double v, double top) {
    return CHART_H - EDGE - (CHART_H - EDGE - 24.0) * TDM_MIN(v, top) / top;
}

/* put_line draws the windows of one way to serve, from cells[at] on. */
static void put_line(FILE *f, const json_t *all, size_t at, size_t k, double most, double top,
                     int is_planned) {
    const json_t *cells = json_object_get(all, "cells"), *first = json_array_get(cells, at);
    size_t word = strcspn(text(first, "policy"), ":");
    int is_fixed = text(first, "policy")[word] != 0;
    fprintf(f,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" "
            "stroke-dasharray=\"%s\" points=\"",
            ink_of(first), is_planned ? 1 : 2,
            is_planned ? "2 3"
            : is_fixed ? "8 3"
                       : "none");
    for (size_t i = at; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double v = is_planned ? planned_at(all, c, k) : is_simulated(c) ? -1.0 : seen_at(c, k);
        if (!is_like(c, first)) break;
        if (v >= 0.0)
            fprintf(f, "%.1f,%.1f ", x_of(number(c, "rate", NULL, NULL), most), y_of(v, top));
    }
    fprintf(f, "\"><title>");
    tdm_report_escaped(f, text(first, "path"));
    fputc('/', f);
    tdm_report_escaped(f, text(first, "policy"));
    fprintf(f, "%s</title></polyline>\n", is_planned ? ", planned" : "");
}

/* target_of gives what chart k should stay under; 0: the windows do not say. */
static double target_of(const json_t *all, size_t k) {
    const json_t *first = json_array_get(json_object_get(all, "cells"), 0);
    static const char *const key[] = {NULL, "gap_target_ms", "ttft_target_ms"};
    if (!key[k]) return chart[k].scale * number(all, "epsilon", NULL, NULL);
    return number(first, "replay", key[k], NULL);
}

static void put_target(FILE *f, double target, double top) {
    double y = y_of(target, top);
    fprintf(f,
            "<path d=\"M%.0f %.1fH%.0f\" stroke=\"#888\" stroke-dasharray=\"1 3\"/>"
            "<text x=\"4\" y=\"%.1f\">%.4g</text>\n",
            EDGE, y, CHART_W - 10.0, y + 4.0, target);
}

static void put_chart(FILE *f, const json_t *all, size_t k) {
    const json_t *cells = json_object_get(all, "cells");
    double most = 1e-9, top = 1e-9, target = target_of(all, k);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        most = TDM_MAX(most, number(c, "rate", NULL, NULL));
        top = TDM_MAX(top, TDM_MAX(seen_at(c, k), planned_at(all, c, k)));
    }
    if (target > 0.0) top = TDM_MIN(top, 4.0 * target);
    fprintf(
        f,
        "<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" role=\"img\">"
        "<text x=\"%.0f\" y=\"16\">%s</text>\n"
        "<path d=\"M%.0f 24V%.0fH%.0f\" fill=\"none\" stroke=\"#888\"/>\n"
        "<text x=\"4\" y=\"34\">%.4g</text><text x=\"%.0f\" y=\"%.0f\">%.4g requests/s</text>\n",
        CHART_W, CHART_H, CHART_W, EDGE, chart[k].title, EDGE, CHART_H - EDGE, CHART_W - 10.0, top,
        CHART_W - 130.0, CHART_H - EDGE + 18.0, most);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        if (i > 0 && is_like(json_array_get(cells, i), json_array_get(cells, i - 1))) continue;
        put_line(f, all, i, k, most, top, 0);
        put_line(f, all, i, k, most, top, 1);
    }
    if (target > 0.0 && target < 0.9 * top) put_target(f, target, top);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (!is_simulated(c))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(number(c, "rate", NULL, NULL), most), y_of(seen_at(c, k), top), ink_of(c));
    }
    fprintf(f, "</svg>\n");
}

/* put_fallbacks lists why hybrids did not fuse. */
static void put_fallbacks(FILE *f, const json_t *cell) {
    const char *key, *comma = "";
    json_t *v;
    json_object_foreach(json_object_get(cell, "fallbacks"), key, v) {
        if (json_number_value(v) <= 0.0) continue;
        fprintf(f, "%s", comma);
        tdm_report_escaped(f, key);
        fprintf(f, " %.0f", json_number_value(v));
        comma = ", ";
    }
}

static void put_row(FILE *f, const json_t *c) {
    double fused = number(c, "hybrid", "fused", NULL);
    double both = fused + number(c, "hybrid", "fallback", NULL);
    const json_t *said = json_object_get(c, "replay");
    fprintf(f, "<tr><td>");
    tdm_report_escaped(f, text(c, "path"));
    fprintf(f, "<td>");
    tdm_report_escaped(f, text(c, "policy"));
    fprintf(f, "<td>%s<td>%.3f<td>%s<td>%.3f / %.3f", is_simulated(c) ? "simulated" : "measured",
            number(c, "rate", NULL, NULL),
            json_is_true(json_object_get(c, "kept")) ? "kept" : text(c, "missed"),
            100.0 * number(said, "share_over", NULL, NULL),
            100.0 * number(said, "share_over_twice", NULL, NULL));
    static const char *const part[] = {"tbt_ms", "ttft_ms", "e2e_ms"};
    for (size_t i = 0; i < TDM_COUNT_OF(part); i++)
        fprintf(f, "<td>%.1f / %.1f / %.1f", number(said, part[i], "p50", NULL),
                number(said, part[i], "p99", NULL), number(said, part[i], "p999", NULL));
    fprintf(f, "<td>%.3f<td>%.1f %%<td>%.1f %%<td>", number(said, "goodput_per_s", NULL, NULL),
            both > 0.0 ? 100.0 * fused / both : 0.0,
            100.0 * number(c, "attention_share", NULL, NULL));
    put_fallbacks(f, c);
    const json_t *p = json_object_get(c, "power");
    if (json_is_object(p))
        fprintf(f, "<td>%.0f / %.0f<td>%.3f<td>%.0f", number(p, "mean_w", NULL, NULL),
                number(p, "max_w", NULL, NULL), number(p, "j_per_token", NULL, NULL),
                number(p, "sm_clock_mhz", NULL, NULL));
    else
        fprintf(f, "<td>-<td>-<td>-");
    fprintf(f, "</tr>\n");
}

static void put_errors(FILE *f, const json_t *all) {
    static const char *const key[] = {"gap_p50", "gap_p99", "ttft_p50", "ttft_p90"};
    const json_t *rows = json_object_get(all, "errors");
    if (json_array_size(rows) == 0) return;
    fprintf(f, "<h2>The plan over what was seen</h2><table><tr><th>path<th>policy<th>requests/s"
               "<th>gap p50<th>gap p99<th>TTFT p50<th>TTFT p90</tr>\n");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        fprintf(f, "<tr><td>");
        tdm_report_escaped(f, text(r, "path"));
        fprintf(f, "<td>");
        tdm_report_escaped(f, text(r, "policy"));
        fprintf(f, "<td>%.3f", number(r, "rate", NULL, NULL));
        for (size_t k = 0; k < TDM_COUNT_OF(key); k++)
            fprintf(f, "<td>%+.1f %%", 100.0 * number(r, key[k], NULL, NULL));
        fprintf(f, "</tr>\n");
    }
    fprintf(f, "</table>\n");
}

/* put_profile names what the simulated cells rest on. */
static void put_profile(FILE *f, const json_t *cells) {
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *s = json_object_get(json_array_get(cells, i), "simulated");
        if (!json_is_object(s)) continue;
        fprintf(f, " on the profile ");
        tdm_report_escaped(f, text(s, "profile"));
        fprintf(f, json_is_true(json_object_get(s, "is_model")) ? ", a model that nobody measured"
                                                                : ", measured");
        return;
    }
}

void tdm_bench_report(FILE *f, const json_t *all) {
    const json_t *rows = json_object_get(all, "carries"), *cells = json_object_get(all, "cells");
    fprintf(
        f,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tandem under load</title>"
        "<style>body{font:14px sans-serif;max-width:1200px;margin:2em auto}td,th{padding:2px "
        "10px;text-align:right}svg text{font-size:12px}</style>\n<h1>Under load</h1><p>");
    tdm_report_escaped(f, text(json_object_get(all, "appliance"), "model"));
    fprintf(f, ", ");
    tdm_report_escaped(f, text(json_object_get(all, "appliance"), "backend"));
    fprintf(f, "; trace ");
    tdm_report_escaped(f, text(all, "trace"));
    fprintf(
        f,
        ", %.0f s a window. Kept: at most %.3g %% of gaps over the target, nine first tokens in "
        "ten in time, the queue no longer at the end. Solid: fused green, streams blue, serial "
        "orange; long dashes: a fixed chunk; dotted: planned or simulated, circles: measured; "
        "grey: the target, at four times of which a chart ends. %u windows are measured, "
        "%u simulated",
        number(all, "window_s", NULL, NULL), 100.0 * number(all, "epsilon", NULL, NULL),
        count(cells, NULL, 0), count(cells, NULL, 1));
    put_profile(f, cells);
    fprintf(f, ".</p>\n<ul>");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        fprintf(f, "<li>");
        tdm_report_escaped(f, text(row, "path"));
        fputc('/', f);
        tdm_report_escaped(f, text(row, "policy"));
        fprintf(f, " carries %s<b>%.3f</b> requests/s", at_least(row),
                number(row, "rate", NULL, NULL));
        put_gain(f, row);
        fprintf(f, "</li>\n");
    }
    fprintf(f, "</ul>\n");
    for (size_t k = 0; k < TDM_COUNT_OF(chart); k++) put_chart(f, all, k);
    fprintf(f, "<table><tr><th>path<th>policy<th>how<th>requests/s<th>promise<th>over / twice %%"
               "<th>gap p50 / p99 / p99.9 ms<th>TTFT<th>e2e<th>goodput/s<th>fused<th>attention"
               "<th>fallbacks<th>W mean / most<th>J a token<th>SM MHz</tr>\n");
    for (size_t i = 0; i < json_array_size(cells); i++) put_row(f, json_array_get(cells, i));
    fprintf(f, "</table>\n");
    put_errors(f, all);
    fprintf(f, "</html>\n");
}
