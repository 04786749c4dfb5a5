/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/report.h"

#include <string.h>

#define NAME_MAX_ 64u

/* name_of says what a curve is of: "fused", "static:512 serial", "2 prefill
   + 1 decode". */
static const char *name_of(const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                           char buf[NAME_MAX_]) {
    static const char *const route[] = {"fused", "streams", "serial"};
    const char *ran = route[(c->route - TDM_ROUTE_FUSED) % TDM_COUNT_OF(route)];
    if (c->prefill_cnt > 0)
        (void)snprintf(buf, NAME_MAX_, "%u prefill + %u decode", c->prefill_cnt,
                       c->appliances - c->prefill_cnt);
    else if (ask->policy_cnt > 1)
        (void)snprintf(buf, NAME_MAX_, "%s %s", ask->policy[c->policy].name, ran);
    else
        (void)snprintf(buf, NAME_MAX_, "%s", ran);
    return buf;
}

/* What a curve is measured against: serial under the same policy; pools
   against the first of their number, which is fused and does both. */
static const tdm_planner_curve_t *base_of(const tdm_planner_curve_t *curve, uint32_t cnt,
                                          const tdm_planner_curve_t *c) {
    for (uint32_t i = 0; i < cnt; i++) {
        const tdm_planner_curve_t *b = &curve[i];
        if (b->appliances != c->appliances || b->prefill_cnt > 0 || b->policy != c->policy)
            continue;
        if (c->prefill_cnt > 0 || b->route == TDM_ROUTE_SERIAL) return b;
    }
    return NULL;
}

/* gain_of gives the curve's rate over its base's, 0 where there is none to
   give; bound is the most that its attention allows, 0 for pools. */
static double gain_of(const tdm_planner_curve_t *curve, uint32_t cnt, const tdm_planner_curve_t *c,
                      double *bound) {
    const tdm_planner_curve_t *b = base_of(curve, cnt, c);
    *bound = 0.0;
    if (!b || b == c || !(b->best > 0.0) || !(c->best > 0.0)) return 0.0;
    for (uint32_t k = 0; k < c->point_cnt; k++) /* the last that is not over what it carries */
        if (c->prefill_cnt == 0 && c->point[k].rate <= 1.001 * c->best)
            *bound = tdm_planner_bound(&c->point[k]);
    return c->best / b->best;
}

static double ttft_percentile(const tdm_planner_ask_t *ask) {
    return ask->ttft_share > 0.0 ? 100.0 * ask->ttft_share : 99.0;
}

/* has_best: asked for rates, nobody looked for the highest that is kept. */
static int has_best(const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c) {
    return c->best > 0.0 || ask->rate_cnt == 0;
}

/* put_gain: ", 1.12 x serial (at most 1.14)". */
static void put_gain(FILE *f, const tdm_planner_curve_t *curve, uint32_t cnt,
                     const tdm_planner_curve_t *c) {
    double bound, gain = gain_of(curve, cnt, c, &bound);
    if (gain > 0.0 && c->prefill_cnt > 0) fprintf(f, ", %.3f x as many that do both", gain);
    if (gain > 0.0 && c->prefill_cnt == 0)
        fprintf(f, ", %.3f x serial (its attention allows %.3f)", gain, bound);
}

static double ms(double ns) {
    return ns / 1e6;
}

static const char *kind_of(const tdm_planner_ask_t *ask) {
    return ask->is_model ? "a model, not a measurement" : "measured";
}

/* --- text ------------------------------------------------------------------ */

void tdm_report_text(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    fprintf(f,
            "profile %s (%s), %u requests; promise: p%.4g first token %.0f ms, %.2g %% of gaps "
            "over %.0f ms at most\n",
            ask->profile_name, kind_of(ask), ask->workload->row_cnt, ttft_percentile(ask),
            ms((double)ask->ttft_ns), 100.0 * ask->epsilon, ms((double)ask->gap_ns));
    for (uint32_t i = 0; i < curve_cnt; i++) {
        const tdm_planner_curve_t *c = &curve[i];
        char name[NAME_MAX_];
        fprintf(f, "\n%u x %s", c->appliances, name_of(ask, c, name));
        if (has_best(ask, c)) fprintf(f, ": carries %.3f requests/s", c->best);
        put_gain(f, curve, curve_cnt, c);
        fputc('\n', f);
        fprintf(f, "%10s %8s %8s %9s %9s %10s %10s %8s %8s\n", "requests/s", "in SLO", "over",
                "gap p50", "gap p99", "TTFT p50", "TTFT p99", "fused", "attn");
        for (uint32_t k = 0; k < c->point_cnt; k++) {
            const tdm_planner_point_t *p = &c->point[k];
            fprintf(f,
                    "%10.3f %7.2f%% %7.2f%% %6.0f ms %6.0f ms %7.0f ms %7.0f ms %7.1f%% %7.1f%%\n",
                    p->rate, 100.0 * p->attainment, 100.0 * p->over_share, ms(p->gap_ns[0]),
                    ms(p->gap_ns[1]), ms(p->ttft_ns[0]), ms(p->ttft_ns[1]), 100.0 * p->fused_share,
                    100.0 * p->attention_share);
        }
    }
}

/* --- JSON -------------------------------------------------------------------- */

static void put_string(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void put_three(FILE *f, const char *name, const double ns[3]) {
    fprintf(f, ", \"%s_ms\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}", name, ms(ns[0]),
            ms(ns[1]), ms(ns[2]));
}

static void put_point(FILE *f, const tdm_planner_point_t *p) {
    fprintf(f,
            "{\"rate\": %.4f, \"requests\": %u, \"kept\": %s, \"decodes\": %.1f, "
            "\"waiting_first\": %.2f, "
            "\"waiting_last\": %.2f, \"attainment\": %.5f, \"over_share\": %.6f",
            p->rate, p->requests, p->is_kept ? "true" : "false", p->decodes, p->waiting[0],
            p->waiting[1], p->attainment, p->over_share);
    put_three(f, "gap", p->gap_ns);
    fprintf(f, ", \"gap_p5_to_p95_ms\": [");
    for (uint32_t i = 0; i < TDM_PLANNER_GAP_CNT; i++)
        fprintf(f, "%s%.1f", i ? ", " : "", ms(p->gap_at_ns[i]));
    fputc(']', f);
    fprintf(f, ", \"ttft_ms\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f}",
            ms(p->ttft_ns[0]), ms(p->ttft_p90_ns), ms(p->ttft_ns[1]), ms(p->ttft_ns[2]));
    put_three(f, "e2e", p->e2e_ns);
    fprintf(f, ", \"iterations\": %llu, \"hybrid\": %llu, \"busy_s\": %.3f, \"attention_s\": %.3f",
            (unsigned long long)p->iterations, (unsigned long long)p->hybrid, p->busy_ns / 1e9,
            p->attention_ns / 1e9);
    fprintf(f,
            ", \"fused_share\": %.4f, \"attention_share\": %.4f, \"serial_share\": %.4f, "
            "\"attention_speedup\": %.4f, \"bound\": %.4f, \"fallbacks\": {",
            p->fused_share, p->attention_share, p->serial_share, p->attention_speedup,
            tdm_planner_bound(p));
    const char *comma = "";
    for (uint32_t r = 1; r < TDM_REASON_CNT; r++) {
        if (p->fallback[r] == 0) continue;
        fprintf(f, "%s\"%s\": {\"iterations\": %llu, \"lost_share\": %.5f}", comma,
                tdm_reason_name((tdm_reason_t)r), (unsigned long long)p->fallback[r],
                p->lost_share[r]);
        comma = ", ";
    }
    fprintf(f, "}}");
}

void tdm_report_json(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    fprintf(f, "{\"profile\": ");
    put_string(f, ask->profile_name);
    fprintf(f, ", \"trace\": ");
    put_string(f, ask->trace_name);
    fprintf(f,
            ", \"is_model\": %s, \"requests\": %u, \"ttft_ms\": %.1f, \"gap_ms\": %.1f, "
            "\"epsilon\": %g, \"noise\": %.4f, \"curves\": [",
            ask->is_model ? "true" : "false", ask->workload->row_cnt, ms((double)ask->ttft_ns),
            ms((double)ask->gap_ns), ask->epsilon, ask->noise);
    for (uint32_t i = 0; i < curve_cnt; i++) {
        const tdm_planner_curve_t *c = &curve[i];
        static const char *const route[] = {"fused", "streams", "serial"};
        double bound, gain = gain_of(curve, curve_cnt, c, &bound);
        fprintf(f, "%s\n {\"route\": \"%s\", \"policy\": ", i ? "," : "",
                route[(c->route - TDM_ROUTE_FUSED) % TDM_COUNT_OF(route)]);
        put_string(f, ask->policy_cnt > 0 ? ask->policy[c->policy].name : "");
        fprintf(f,
                ", \"appliances\": %u, \"prefill_appliances\": %u, \"best\": %.4f, \"gain\": %.4f, "
                "\"gain_bound\": %.4f, \"points\": [",
                c->appliances, c->prefill_cnt, c->best, gain, bound);
        for (uint32_t k = 0; k < curve[i].point_cnt; k++) {
            fprintf(f, "%s\n  ", k ? "," : "");
            put_point(f, &curve[i].point[k]);
        }
        fprintf(f, "]}");
    }
    fprintf(f, "]}\n");
}

/* --- HTML --------------------------------------------------------------------- */

#define CHART_W 560.0
#define CHART_H 260.0
#define EDGE    50.0

/* colour_of: the routes in three colours; policies in dashes, pools apart. */
static const char *colour_of(const tdm_planner_curve_t *c) {
    static const char *const colour[TDM_PLANNER_ROUTES] = {"#0a6", "#06c", "#c50"};
    return c->prefill_cnt > 0 ? "#80c" : colour[(c->route - TDM_ROUTE_FUSED) % TDM_PLANNER_ROUTES];
}

void tdm_report_escaped(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else
            fputc(*s, f);
    }
}

/* value of a point on a chart: 0 attainment in percent, 1 TTFT p99 in
   seconds, 2 gap p99 in milliseconds. */
static double value_of(const tdm_planner_point_t *p, uint32_t chart) {
    if (chart == 0) return 100.0 * p->attainment;
    return chart == 1 ? p->ttft_ns[1] / 1e9 : p->gap_ns[1] / 1e6;
}

static double highest(const tdm_planner_curve_t *c, uint32_t cnt, uint32_t chart, double *rate) {
    double top = chart == 0 ? 100.0 : 0.0;
    *rate = 0.0;
    for (uint32_t i = 0; i < cnt; i++)
        for (uint32_t k = 0; k < c[i].point_cnt; k++) {
            top = TDM_MAX(top, value_of(&c[i].point[k], chart));
            *rate = TDM_MAX(*rate, c[i].point[k].rate);
        }
    return top > 0.0 ? top : 1.0;
}

/* put_chart draws the curves of one number of appliances. */
static void put_chart(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                      uint32_t cnt, uint32_t chart) {
    static const char *const title[] = {"requests in SLO, %", "first token p99, s",
                                        "gap between tokens p99, ms"};
    double rate, top = highest(c, cnt, chart, &rate);
    fprintf(
        f,
        "<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" role=\"img\"><text x=\"%.0f\" y=\"16\">%s"
        "</text>\n<path d=\"M%.0f 24V%.0fH%.0f\" fill=\"none\" stroke=\"#888\"/>\n",
        CHART_W, CHART_H, CHART_W, EDGE, title[chart], EDGE, CHART_H - EDGE, CHART_W - 10.0);
    fprintf(
        f, "<text x=\"4\" y=\"34\">%.4g</text><text x=\"%.0f\" y=\"%.0f\">%.4g requests/s</text>\n",
        top, CHART_W - 130.0, CHART_H - EDGE + 18.0, rate);
    for (uint32_t i = 0; i < cnt; i++) {
        char name[NAME_MAX_];
        fprintf(f,
                "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" "
                "stroke-dasharray=\"%u %u\" points=\"",
                colour_of(&c[i]), c[i].policy ? 12u / (c[i].policy + 1u) : 1u,
                c[i].policy ? 3u : 0u);
        for (uint32_t k = 0; k < c[i].point_cnt; k++)
            fprintf(f, "%.1f,%.1f ",
                    EDGE + (CHART_W - 10.0 - EDGE) * c[i].point[k].rate / (rate > 0.0 ? rate : 1.0),
                    CHART_H - EDGE -
                        (CHART_H - EDGE - 24.0) * value_of(&c[i].point[k], chart) / top);
        fprintf(f, "\"><title>%s</title></polyline>\n", name_of(ask, &c[i], name));
    }
    uint32_t words = TDM_PLANNER_ROUTES + (c[cnt - 1u].prefill_cnt > 0); /* pools are the last */
    for (uint32_t i = 0; i < words; i++) {
        static const char *const word[] = {"fused", "streams", "serial", "pools"};
        static const char *const ink[] = {"#0a6", "#06c", "#c50", "#80c"};
        fprintf(f, "<text x=\"%.0f\" y=\"%.0f\" fill=\"%s\">%s</text>\n", EDGE + 90.0 * i,
                CHART_H - 10.0, ink[i], word[i]);
    }
    fprintf(f, "</svg>\n");
}

static void put_rows(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c) {
    char name[NAME_MAX_];
    for (uint32_t k = 0; k < c->point_cnt; k++) {
        const tdm_planner_point_t *p = &c->point[k];
        fprintf(f, "<tr><td>%s<td>%.3f<td>%.2f %%<td>%.2f %%", name_of(ask, c, name), p->rate,
                100.0 * p->attainment, 100.0 * p->over_share);
        fprintf(f, "<td>%.0f / %.0f / %.0f<td>%.0f / %.0f / %.0f<td>%.1f %%<td>%.1f %%</tr>\n",
                ms(p->gap_ns[0]), ms(p->gap_ns[1]), ms(p->gap_ns[2]), ms(p->ttft_ns[0]),
                ms(p->ttft_ns[1]), ms(p->ttft_ns[2]), 100.0 * p->fused_share,
                100.0 * p->attention_share);
    }
}

static void put_appliances(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                           uint32_t cnt) {
    fprintf(f, "<h2>%u appliance%s</h2><ul>\n", c->appliances, c->appliances > 1 ? "s" : "");
    for (uint32_t i = 0; i < cnt; i++) {
        char name[NAME_MAX_];
        fprintf(f, "<li>%s", name_of(ask, &c[i], name));
        if (has_best(ask, &c[i])) fprintf(f, " carries <b>%.3f</b> requests/s", c[i].best);
        put_gain(f, c, cnt, &c[i]);
        fprintf(f, "</li>\n");
    }
    fprintf(f, "</ul>\n");
    for (uint32_t chart = 0; chart < 3; chart++) put_chart(f, ask, c, cnt, chart);
    fprintf(f, "<table><tr><th>attention<th>requests/s<th>in SLO<th>gaps over<th>gap p50 / p99 / "
               "p99.9 ms<th>TTFT p50 / p99 / p99.9 ms<th>fused<th>attention share</tr>\n");
    for (uint32_t i = 0; i < cnt; i++) put_rows(f, ask, &c[i]);
    fprintf(f, "</table>\n");
}

void tdm_report_html(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    fprintf(
        f, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tandem capacity</title>"
           "<style>body{font:14px sans-serif;max-width:1200px;margin:2em auto}td,th{padding:2px "
           "12px;text-align:right}svg text{font-size:12px}</style>\n<h1>Capacity</h1><p>Profile ");
    tdm_report_escaped(f, ask->profile_name);
    fprintf(f,
            " (%s), %u requests. Promise: first token within %.0f ms at p%.4g, at most %g %% of "
            "gaps over %.0f ms.</p>\n",
            kind_of(ask), ask->workload->row_cnt, ms((double)ask->ttft_ns), ttft_percentile(ask),
            100.0 * ask->epsilon, ms((double)ask->gap_ns));
    for (uint32_t i = 0, cnt; i < curve_cnt; i += cnt) {
        for (cnt = 1; i + cnt < curve_cnt && curve[i + cnt].appliances == curve[i].appliances;)
            cnt++;
        put_appliances(f, ask, &curve[i], cnt);
    }
    fprintf(f, "</html>\n");
}
