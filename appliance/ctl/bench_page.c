/* SPDX-License-Identifier: Apache-2.0 */
/* The bench as a page: under what, what it comes to, charts over load. */
#include "appliance/ctl/bench_report.h"

#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"
#include "scheduler/sim/chart.h"

#include <math.h>

#define POINT_MAX 64u /* of a line; more are left out, and the page says so */

static const struct figure {
    const char *title;
    const char *seen[2];    /* of a window's replay */
    const char *planned[2]; /* of a planner's point */
    double scale;
    const char *target; /* of a window's replay; "": epsilon; NULL: none was promised */
} figure[] = {
    {"gaps over the target, %", {"share_over", NULL}, {"over_share", NULL}, 100.0, ""},
    {"gap between tokens p99, ms", {"tbt_ms", "p99"}, {"gap_ms", "p99"}, 1.0, "gap_target_ms"},
    {"first token p90, ms", {"ttft_ms", "p90"}, {"ttft_ms", "p90"}, 1.0, "ttft_target_ms"},
    {"first token p50, ms", {"ttft_ms", "p50"}, {"ttft_ms", "p50"}, 1.0, NULL}};

static double value_of(const json_t *v, double scale) {
    return json_is_number(v) ? scale * json_number_value(v) : NAN;
}

/* seen_at and told_at give what a figure shows of a window; NaN: nothing. */
static double seen_at(const json_t *cell, const struct figure *k) {
    return value_of(bench_get(cell, "replay", k->seen[0], k->seen[1]), k->scale);
}
static double told_at(const json_t *all, const json_t *cell, const struct figure *k) {
    if (bench_is_simulated(cell)) return seen_at(cell, k);
    const json_t *p = bench_planned(json_object_get(all, "planned"), cell);
    return p ? value_of(bench_get(p, k->planned[0], k->planned[1], NULL), k->scale) : NAN;
}

static tdm_chart_ink_t ink_of(const json_t *cell) {
    const char *path = bench_text(cell, "path");
    if (strcmp(path, "fused") == 0) return TDM_CHART_FUSED;
    return strcmp(path, "streams") == 0 ? TDM_CHART_STREAMS : TDM_CHART_SERIAL;
}

/* --- charts --------------------------------------------------------------------------- */

static double target_of(const json_t *all, const struct figure *k) {
    const json_t *cells = json_object_get(all, "cells");
    if (!k->target) return 0.0;
    if (!*k->target) return k->scale * bench_number(all, "epsilon", NULL, NULL);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        double v = bench_number(json_array_get(cells, i), "replay", k->target, NULL);
        if (v > 0.0) return v;
    }
    return 0.0;
}

/* axes_of holds all that is drawn of a figure, so that policies compare; what
   is far over the target leaves the chart, so that what is near can be read. */
static tdm_chart_t axes_of(const json_t *all, const struct figure *k) {
    const json_t *cells = json_object_get(all, "cells");
    double least = INFINITY, most = 0.0, top = 0.0, target = target_of(all, k);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double rate = bench_number(c, "rate", NULL, NULL);
        least = fmin(least, rate);
        most = fmax(most, rate);
        top = fmax(top, fmax(seen_at(c, k), told_at(all, c, k)));
    }
    if (target > 0.0) top = fmin(fmax(top, 1.1 * target), 3.0 * target);
    tdm_chart_t chart = {.title = k->title, .top = top > 0.0 ? 1.05 * top : 1.0, .target = target};
    tdm_chart_span(&chart, least, most);
    return chart;
}

/* put_line draws one way to serve, from cells[at] on: dots where it was seen,
   a thin line where it was simulated or planned, a tie between the two. */
static void put_line(FILE *f, const json_t *all, size_t at, const struct figure *k,
                     const tdm_chart_t *chart) {
    const json_t *cells = json_object_get(all, "cells"), *first = json_array_get(cells, at);
    tdm_chart_ink_t ink = ink_of(first);
    double seen_x[POINT_MAX], seen[POINT_MAX], told_x[POINT_MAX], told[POINT_MAX], off[POINT_MAX];
    uint32_t seen_cnt = 0, told_cnt = 0;
    char name[64];
    (void)snprintf(name, sizeof name, "%.15s/%.23s", bench_text(first, "path"),
                   bench_text(first, "policy"));
    for (size_t i = at; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double rate = bench_number(c, "rate", NULL, NULL), v = told_at(all, c, k);
        if (!bench_is_like(c, first)) break;
        if (isfinite(v) && told_cnt < POINT_MAX) {
            told_x[told_cnt] = rate;
            told[told_cnt++] = v;
        }
        if (bench_is_simulated(c) || !isfinite(seen_at(c, k)) || seen_cnt == POINT_MAX) continue;
        seen_x[seen_cnt] = rate;
        seen[seen_cnt++] = seen_at(c, k);
        off[seen_cnt - 1u] = v;
    }
    tdm_chart_line(f, chart, ink, 0, told_x, told, told_cnt);
    tdm_chart_line(f, chart, ink, 1, seen_x, seen, seen_cnt);
    for (uint32_t i = 0; i < told_cnt; i++)
        tdm_chart_dot(f, chart, ink, 0, told_x[i], told[i], name);
    for (uint32_t i = 0; i < seen_cnt; i++)
        tdm_chart_dot(f, chart, ink, 1, seen_x[i], seen[i], name);
    for (uint32_t i = 0; i < seen_cnt && k != figure;
         i++) /* a share of next to none has no error */
        if (isfinite(off[i]) && seen[i] > 0.0)
            tdm_chart_error(f, chart, ink, seen_x[i], off[i], seen[i]);
}

/* is_first says whether no cell before cells[i] has its policy. */
static int is_first(const json_t *cells, size_t i) {
    const char *policy = bench_text(json_array_get(cells, i), "policy");
    for (size_t k = 0; k < i; k++)
        if (strcmp(bench_text(json_array_get(cells, k), "policy"), policy) == 0) return 0;
    return 1;
}

/* put_key explains the lines of one policy. */
static void put_key(FILE *f, const json_t *cells, const char *policy) {
    fprintf(f, "<p>");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        char name[48];
        if (strcmp(bench_text(c, "policy"), policy) != 0 ||
            (i > 0 && bench_is_like(c, json_array_get(cells, i - 1))))
            continue;
        for (int is_seen = 1; is_seen >= 0; is_seen--) {
            (void)snprintf(name, sizeof name, "%.15s, %s", bench_text(c, "path"),
                           is_seen ? "measured" : "simulated");
            if (bench_count(cells, c, !is_seen) > 0) tdm_chart_key(f, ink_of(c), is_seen, name);
        }
    }
    fprintf(f, "</p>\n");
}

/* put_charts draws a row of charts for each policy, on the same axes. */
static void put_charts(FILE *f, const json_t *all) {
    const json_t *cells = json_object_get(all, "cells");
    for (size_t p = 0; p < json_array_size(cells); p++) {
        const char *policy = bench_text(json_array_get(cells, p), "policy");
        if (!is_first(cells, p)) continue;
        fprintf(f, "<div class=\"row\"><h3>Policy ");
        tdm_chart_text(f, policy);
        fprintf(f, "</h3>");
        put_key(f, cells, policy);
        fprintf(f, "<div class=\"charts\">\n");
        for (size_t k = 0; k < TDM_COUNT_OF(figure); k++) {
            tdm_chart_t chart = axes_of(all, &figure[k]);
            tdm_chart_open(f, &chart);
            for (size_t i = 0; i < json_array_size(cells); i++)
                if (strcmp(bench_text(json_array_get(cells, i), "policy"), policy) == 0 &&
                    (i == 0 ||
                     !bench_is_like(json_array_get(cells, i), json_array_get(cells, i - 1))))
                    put_line(f, all, i, &figure[k], &chart);
            tdm_chart_close(f);
        }
        fprintf(f, "</div></div>\n");
    }
}

/* --- under what ------------------------------------------------------------------------ */

static void put_term(FILE *f, const char *name, const char *value) {
    fprintf(f, "<dt>%s</dt><dd>", name);
    tdm_chart_text(f, value && *value ? value : "not told");
    fprintf(f, "</dd>\n");
}

/* put_under lists what windows say they ran under, each with how many; where
   they do not, what the appliance said. */
static void put_under(FILE *f, const json_t *all, const char *name, const char *key) {
    const json_t *cells = json_object_get(all, "cells");
    const char *made = json_string_value(bench_get(all, "made", key, NULL)), *comma = "";
    const char *said = json_string_value(bench_get(all, "appliance", key, NULL));
    fprintf(f, "<dt>%s</dt><dd>", name);
    if (made) tdm_chart_text(f, made);
    for (size_t i = 0; i < json_array_size(cells) && !made; i++) {
        const char *v = json_string_value(bench_get(json_array_get(cells, i), "under", key, NULL));
        uint32_t cnt = 0, before = 0;
        for (size_t k = 0; v && k < json_array_size(cells); k++) {
            const char *w =
                json_string_value(bench_get(json_array_get(cells, k), "under", key, NULL));
            cnt += w && strcmp(v, w) == 0;
            before += k < i && w && strcmp(v, w) == 0;
        }
        if (!v || before > 0) continue;
        fprintf(f, "%s", comma);
        tdm_chart_text(f, v);
        fprintf(f, " (%u windows)", cnt);
        comma = ", ";
    }
    if (!made && !*comma) tdm_chart_text(f, said ? said : "not told");
    fprintf(f, "</dd>\n");
}

/* put_when gives the days between which windows ended. */
static void put_when(FILE *f, const json_t *all) {
    const json_t *cells = json_object_get(all, "cells");
    const char *first = NULL, *last = NULL;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const char *at = json_string_value(json_object_get(json_array_get(cells, i), "ended"));
        if (at && (!first || strcmp(at, first) < 0)) first = at;
        if (at && (!last || strcmp(at, last) > 0)) last = at;
    }
    if (!first) {
        put_under(f, all, "date", "date");
        return;
    }
    fprintf(f, "<dt>date</dt><dd>");
    tdm_chart_text(f, first);
    if (strcmp(first, last) != 0) fprintf(f, " to ");
    if (strcmp(first, last) != 0) tdm_chart_text(f, last);
    fprintf(f, "</dd>\n");
}

/* put_command writes what measures the same: rates with their warm starts. */
static void put_command(FILE *f, const json_t *all) {
    const json_t *cells = json_object_get(all, "cells"), *words = json_object_get(all, "words");
    const char *made = json_string_value(bench_get(all, "made", "command", NULL));
    fprintf(f, "<dt>command</dt><dd>");
    if (made) tdm_chart_text(f, made);
    if (made) fprintf(f, "; ");
    fprintf(f, "<code>tandemctl bench serve --out BASE --trace ");
    tdm_chart_text(f, bench_text(all, "trace"));
    fprintf(f, " --window %g --cells ", bench_number(all, "window_s", NULL, NULL));
    for (size_t i = 0, n = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        if (bench_count(cells, c, 0) == 0 ||
            (i > 0 && bench_is_like(c, json_array_get(cells, i - 1))))
            continue;
        if (n++) fputc(',', f);
        tdm_chart_text(f, bench_text(c, "path"));
        fputc('/', f);
        tdm_chart_text(f, bench_text(c, "policy"));
    }
    fprintf(f, " --rates ");
    for (size_t i = 0, n = 0; i < json_array_size(cells); i++) {
        const json_t *c = json_array_get(cells, i);
        double rate = bench_number(c, "rate", NULL, NULL);
        int is_new = !bench_is_simulated(c);
        for (size_t k = 0; k < i && is_new; k++)
            is_new = bench_is_simulated(json_array_get(cells, k)) ||
                     bench_number(json_array_get(cells, k), "rate", NULL, NULL) != rate;
        if (!is_new) continue;
        fprintf(f, "%s%g", n++ ? "," : "", rate);
        if (bench_number(c, "replay", "warm", NULL) > 0.0)
            fprintf(f, "@%.0f", bench_number(c, "replay", "warm", NULL));
    }
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        fputc(' ', f);
        tdm_chart_text(f, word ? word : "?");
    }
    fprintf(f, "</code></dd>\n");
}

/* put_profile names what the simulated cells and the plan rest on. */
static void put_profile(FILE *f, const json_t *all) {
    const json_t *cells = json_object_get(all, "cells"), *plan = json_object_get(all, "planned");
    const json_t *on = json_is_object(plan) ? plan : NULL;
    for (size_t i = 0; i < json_array_size(cells) && !on; i++) {
        const json_t *s = json_object_get(json_array_get(cells, i), "simulated");
        if (json_is_object(s)) on = s;
    }
    fprintf(f, "<dt>windows</dt><dd>%u measured, %u simulated", bench_count(cells, NULL, 0),
            bench_count(cells, NULL, 1));
    if (on) fprintf(f, " on the profile ");
    if (on) tdm_chart_text(f, bench_text(on, "profile"));
    if (on)
        fprintf(f, json_is_true(json_object_get(on, "is_model")) ? ", a model that nobody measured"
                                                                 : ", itself measured");
    fprintf(f, "</dd>\n");
}

/* put_cut says what windows did not ask for of their lists: the most of any,
   by its share; nothing where none of them tells. */
static void put_cut(FILE *f, const json_t *all) {
    const json_t *cells = json_object_get(all, "cells"), *worst = NULL;
    double most = -1.0;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *said = json_object_get(json_array_get(cells, i), "replay");
        double listed = bench_number(said, "listed", NULL, NULL),
               cut = bench_number(said, "requests_cut", NULL, NULL);
        if (!(listed > 0.0) || cut / listed <= most) continue;
        most = cut / listed;
        worst = said;
    }
    if (!worst) return;
    char text[160];
    const json_t *context = json_object_get(worst, "context");
    if (!json_is_number(context))
        (void)snprintf(text, sizeof text, "told by nobody: no request cut");
    else if (most > 0.0)
        (void)snprintf(
            text, sizeof text,
            "%.0f tokens: %.0f of %.0f requests of a window cut, by %.0f prompt and %.0f "
            "output tokens",
            json_number_value(context), bench_number(worst, "requests_cut", NULL, NULL),
            bench_number(worst, "listed", NULL, NULL),
            bench_number(worst, "prompt_tokens_cut", NULL, NULL),
            bench_number(worst, "output_tokens_cut", NULL, NULL));
    else
        (void)snprintf(text, sizeof text, "%.0f tokens: no request cut",
                       json_number_value(context));
    put_term(f, "context", text);
}

static void put_conditions(FILE *f, const json_t *all) {
    const json_t *facts = json_object_get(all, "appliance");
    char text[256];
    fprintf(f, "<dl>");
    (void)snprintf(text, sizeof text, "%.100s, backend %.40s, version %.40s",
                   bench_text(facts, "model"), bench_text(facts, "backend"),
                   bench_text(facts, "version"));
    put_term(f, "model", text);
    (void)snprintf(text, sizeof text, "%.100s (sum %.40s), %.0f s a window",
                   bench_text(all, "trace"), bench_text(all, "trace_sum"),
                   bench_number(all, "window_s", NULL, NULL));
    put_term(f, "trace", text);
    put_cut(f, all);
    double gap = target_of(all, &figure[1]), ttft = target_of(all, &figure[2]);
    (void)snprintf(text, sizeof text,
                   "at most %.3g %% of gaps over %.4g ms, nine first tokens in ten within %.5g ms, "
                   "nobody refused, the queue no longer at the end",
                   100.0 * bench_number(all, "epsilon", NULL, NULL), gap, ttft);
    put_term(f, "promise", text);
    put_profile(f, all);
    put_under(f, all, "device", "device");
    if (json_is_string(bench_get(all, "made", "driver", NULL)))
        put_under(f, all, "driver", "driver");
    put_under(f, all, "commit", "commit");
    put_under(f, all, "engine", "engine");
    put_under(f, all, "build", "build");
    put_under(f, all, "profile", "profile");
    put_under(f, all, "card", "card");
    put_when(f, all);
    put_command(f, all);
    fprintf(f, "</dl>\n");
}

/* --- what it comes to -------------------------------------------------------------------- */

static void put_real(FILE *f, const json_t *row, const char *key, double scale, int digits) {
    const json_t *v = json_object_get(row, key);
    fprintf(f, "<td>");
    if (json_is_number(v))
        fprintf(f, "%.*f", digits, scale * json_number_value(v));
    else
        fputc('-', f);
    fprintf(f, "</td>");
}

/* put_gain writes a gain with between what it lies. */
static void put_gain(FILE *f, const json_t *row, const char *key, const char *span) {
    const json_t *two = json_object_get(row, span);
    fprintf(f, "<td>");
    if (!json_is_number(json_object_get(row, key)))
        fputc('-', f);
    else
        fprintf(f, "<b>%.3f</b> (%.3f to %.3f)", bench_number(row, key, NULL, NULL),
                json_number_value(json_array_get(two, 0)),
                json_number_value(json_array_get(two, 1)));
    fprintf(f, "</td>");
}

static void put_capacity(FILE *f, const json_t *row) {
    double rate = bench_number(row, "rate", NULL, NULL), shown,
           told = bench_number(row, "planned", NULL, NULL);
    const char *bound = bench_bound(row, &shown);
    int is_open = json_is_true(json_object_get(row, "is_open")),
        is_seen = json_is_true(json_object_get(row, "is_seen"));
    fprintf(f, "<tr><td>");
    tdm_chart_text(f, bench_text(row, "path"));
    fputc('/', f);
    tdm_chart_text(f, bench_text(row, "policy"));
    fprintf(f, "</td><td>%s<b>%.3f</b></td>", bound, shown);
    put_real(f, row, "missed_at", 1.0, 3);
    fprintf(f, "<td>%s</td><td>%.0f / %.0f</td>", is_seen ? "measured" : "<i>simulated</i>",
            bench_number(row, "measured", NULL, NULL), bench_number(row, "simulated", NULL, NULL));
    if (told > 0.0 && is_seen && !is_open && rate > 0.0)
        fprintf(f, "<td>%.3f, %+.1f %%</td>", told, 100.0 * (told / rate - 1.0));
    else if (told > 0.0)
        fprintf(f, "<td>%.3f</td>", told);
    else
        fprintf(f, "<td>-</td>");
    put_gain(f, row, "over_serial", "over_serial_span");
    put_real(f, row, "bound", 1.0, 3);
    put_real(f, row, "attention_share", 100.0, 1);
    put_real(f, row, "attention_speedup", 1.0, 3);
    put_gain(f, row, "over_static", "over_static_span");
    fprintf(f, "</tr>\n");
}

static void put_capacities(FILE *f, const json_t *all) {
    const json_t *rows = json_object_get(all, "carries");
    const char *fixed = json_string_value(json_object_get(json_array_get(rows, 0), "static"));
    fprintf(f,
            "<h2>What it carries</h2>\n<div class=\"wide\"><table><thead><tr><th>way to serve</th>"
            "<th>carries,<br>requests/s</th><th>missed<br>at</th><th>rests on<br>windows</th>"
            "<th>measured /<br>simulated</th><th>the plan says,<br>its error</th><th>over serial,"
            "<br>same policy</th><th>bound<br>1/(1-a+a/s)</th><th>a: attention,<br>%% of serial's "
            "time</th><th>s: attention's<br>speed-up</th><th>over serial/");
    tdm_chart_text(f, fixed ? fixed : "static");
    fprintf(f, "</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(rows); i++) put_capacity(f, json_array_get(rows, i));
    fprintf(f, "</tbody></table></div>\n<p>A way that missed nothing carries at least so much, and "
               "has no gain yet. A gain is known as closely as its two capacities: it lies between "
               "the figures in brackets. Where it is over the bound, not attention alone made it: "
               "larger chunks fit under the same promise, or the rates stand far apart. Nothing "
               "that was measured is divided by what was simulated.</p>\n");
}

static void put_errors(FILE *f, const json_t *all) {
    static const char *const key[] = {"gap_p50", "gap_p99", "ttft_p50", "ttft_p90"};
    const json_t *rows = json_object_get(all, "errors");
    if (json_array_size(rows) == 0) return;
    fprintf(f,
            "<h2>The plan over what was seen</h2>\n<div class=\"wide\"><table><thead><tr><th>way "
            "to serve</th><th>requests/s</th><th>gap p50, %%</th><th>gap p99, %%</th><th>first "
            "token p50, %%</th><th>first token p90, %%</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        fprintf(f, "<tr><td>");
        tdm_chart_text(f, bench_text(r, "path"));
        fputc('/', f);
        tdm_chart_text(f, bench_text(r, "policy"));
        fprintf(f, "</td><td>%.3f</td>", bench_number(r, "rate", NULL, NULL));
        for (size_t k = 0; k < TDM_COUNT_OF(key); k++) {
            const json_t *v = json_object_get(r, key[k]);
            if (json_is_number(v))
                fprintf(f, "<td>%+.1f</td>", 100.0 * json_number_value(v));
            else
                fprintf(f, "<td>-</td>");
        }
        fprintf(f, "</tr>\n");
    }
    fprintf(f, "</tbody></table></div>\n");
}

void tdm_bench_report(FILE *f, const json_t *all) {
    tdm_chart_head(f, "Tandem under load");
    fprintf(f, "<h1>Under load</h1>\n");
    put_conditions(f, all);
    put_capacities(f, all);
    fprintf(f, "<h2>Over load</h2>\n<p>Thick with full dots: measured. Thin and dotted with hollow "
               "dots: simulated or planned; beside a measured dot stands what the plan is off by "
               "there. What lies over three times its target is drawn at the chart's top.</p>\n");
    put_charts(f, all);
    put_errors(f, all);
    bench_put_tables(f, all);
    tdm_chart_tail(f);
}
