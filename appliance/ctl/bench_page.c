/* SPDX-License-Identifier: Apache-2.0 */
/* The bench as a page: charts over load, a row a window. */
#include "appliance/ctl/bench_report.h"

#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"
#include "scheduler/sim/report.h"

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
    return chart[k].scale * bench_number(cell, "replay", chart[k].seen[0], chart[k].seen[1]);
}
static double planned_at(const json_t *all, const json_t *cell, size_t k) {
    if (bench_is_simulated(cell)) return seen_at(cell, k);
    const json_t *p = bench_planned(json_object_get(all, "planned"), cell);
    return p ? chart[k].scale * bench_number(p, chart[k].planned[0], chart[k].planned[1], NULL)
             : -1.0;
}

static const char *ink_of(const json_t *cell) {
    const char *path = bench_text(cell, "path");
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
    size_t word = strcspn(bench_text(first, "policy"), ":");
    int is_fixed = bench_text(first, "policy")[word] != 0;
    fprintf(f,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" "
            "stroke-dasharray=\"%s\" points=\"",
            ink_of(first), is_planned ? 1 : 2,
            is_planned ? "2 3"
            : is_fixed ? "8 3"
                       : "none");
    for (size_t i = at; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double v = is_planned              ? planned_at(all, c, k)
                   : bench_is_simulated(c) ? -1.0
                                           : seen_at(c, k);
        if (!bench_is_like(c, first)) break;
        if (v >= 0.0)
            fprintf(f, "%.1f,%.1f ", x_of(bench_number(c, "rate", NULL, NULL), most), y_of(v, top));
    }
    fprintf(f, "\"><title>");
    tdm_report_escaped(f, bench_text(first, "path"));
    fputc('/', f);
    tdm_report_escaped(f, bench_text(first, "policy"));
    fprintf(f, "%s</title></polyline>\n", is_planned ? ", planned" : "");
}

/* target_of gives what chart k should stay under; 0: the windows do not say. */
static double target_of(const json_t *all, size_t k) {
    const json_t *first = json_array_get(json_object_get(all, "cells"), 0);
    static const char *const key[] = {NULL, "gap_target_ms", "ttft_target_ms"};
    if (!key[k]) return chart[k].scale * bench_number(all, "epsilon", NULL, NULL);
    return bench_number(first, "replay", key[k], NULL);
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
        most = TDM_MAX(most, bench_number(c, "rate", NULL, NULL));
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
        if (i > 0 && bench_is_like(json_array_get(cells, i), json_array_get(cells, i - 1)))
            continue;
        put_line(f, all, i, k, most, top, 0);
        put_line(f, all, i, k, most, top, 1);
    }
    if (target > 0.0 && target < 0.9 * top) put_target(f, target, top);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (!bench_is_simulated(c))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(bench_number(c, "rate", NULL, NULL), most), y_of(seen_at(c, k), top),
                    ink_of(c));
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
    double fused = bench_number(c, "hybrid", "fused", NULL);
    double both = fused + bench_number(c, "hybrid", "fallback", NULL);
    const json_t *said = json_object_get(c, "replay");
    fprintf(f, "<tr><td>");
    tdm_report_escaped(f, bench_text(c, "path"));
    fprintf(f, "<td>");
    tdm_report_escaped(f, bench_text(c, "policy"));
    fprintf(f, "<td>%s<td>%.3f<td>%s<td>%.3f / %.3f",
            bench_is_simulated(c) ? "simulated" : "measured", bench_number(c, "rate", NULL, NULL),
            json_is_true(json_object_get(c, "kept")) ? "kept" : bench_text(c, "missed"),
            100.0 * bench_number(said, "share_over", NULL, NULL),
            100.0 * bench_number(said, "share_over_twice", NULL, NULL));
    static const char *const part[] = {"tbt_ms", "ttft_ms", "e2e_ms"};
    for (size_t i = 0; i < TDM_COUNT_OF(part); i++)
        fprintf(f, "<td>%.1f / %.1f / %.1f", bench_number(said, part[i], "p50", NULL),
                bench_number(said, part[i], "p99", NULL),
                bench_number(said, part[i], "p999", NULL));
    fprintf(f, "<td>%.3f<td>%.1f %%<td>%.1f %%<td>",
            bench_number(said, "goodput_per_s", NULL, NULL),
            both > 0.0 ? 100.0 * fused / both : 0.0,
            100.0 * bench_number(c, "attention_share", NULL, NULL));
    put_fallbacks(f, c);
    const json_t *p = json_object_get(c, "power");
    if (json_is_object(p))
        fprintf(f, "<td>%.0f / %.0f<td>%.3f<td>%.0f", bench_number(p, "mean_w", NULL, NULL),
                bench_number(p, "max_w", NULL, NULL), bench_number(p, "j_per_token", NULL, NULL),
                bench_number(p, "sm_clock_mhz", NULL, NULL));
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
        tdm_report_escaped(f, bench_text(r, "path"));
        fprintf(f, "<td>");
        tdm_report_escaped(f, bench_text(r, "policy"));
        fprintf(f, "<td>%.3f", bench_number(r, "rate", NULL, NULL));
        for (size_t k = 0; k < TDM_COUNT_OF(key); k++)
            fprintf(f, "<td>%+.1f %%", 100.0 * bench_number(r, key[k], NULL, NULL));
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
        tdm_report_escaped(f, bench_text(s, "profile"));
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
    tdm_report_escaped(f, bench_text(json_object_get(all, "appliance"), "model"));
    fprintf(f, ", ");
    tdm_report_escaped(f, bench_text(json_object_get(all, "appliance"), "backend"));
    fprintf(f, "; trace ");
    tdm_report_escaped(f, bench_text(all, "trace"));
    fprintf(
        f,
        ", %.0f s a window. Kept: at most %.3g %% of gaps over the target, nine first tokens in "
        "ten in time, the queue no longer at the end. Solid: fused green, streams blue, serial "
        "orange; long dashes: a fixed chunk; dotted: planned or simulated, circles: measured; "
        "grey: the target, at four times of which a chart ends. %u windows are measured, "
        "%u simulated",
        bench_number(all, "window_s", NULL, NULL), 100.0 * bench_number(all, "epsilon", NULL, NULL),
        bench_count(cells, NULL, 0), bench_count(cells, NULL, 1));
    put_profile(f, cells);
    fprintf(f, ".</p>\n<ul>");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        fprintf(f, "<li>");
        tdm_report_escaped(f, bench_text(row, "path"));
        fputc('/', f);
        tdm_report_escaped(f, bench_text(row, "policy"));
        fprintf(f, " carries %s<b>%.3f</b> requests/s", bench_at_least(row),
                bench_number(row, "rate", NULL, NULL));
        bench_put_gain(f, row);
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
