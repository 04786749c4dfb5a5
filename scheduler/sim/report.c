/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/report.h"

#include "scheduler/sim/chart.h"
#include "scheduler/sim/report_private.h"

#include <math.h>
#include <string.h>

#define NAME_MAX_ 64u
/* Of a rate: a run of ten first-token targets.  Below that nobody is told. */
#define HIDDEN_MOST 0.1

static double gbit_of(const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c) {
    return ask->link.bytes_per_s[c->link] * 8.0 / 1e9;
}

/* name_of says what a curve is of: "fused", "static:512 serial", "2 prefill
   + 1 decode". */
static const char *name_of(const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                           char buf[NAME_MAX_]) {
    static const char *const route[] = {"fused", "streams", "serial"};
    const char *ran = route[(c->route - TDM_ROUTE_FUSED) % TDM_COUNT_OF(route)];
    if (c->prefill_cnt > 0)
        (void)snprintf(buf, NAME_MAX_, "%u prefill + %u decode over %.4g Gbit/s", c->prefill_cnt,
                       c->appliances - c->prefill_cnt, gbit_of(ask, c));
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
    if (!b || b == c || !(b->best > 0.0) || !(c->best > 0.0) || b->is_open || c->is_open)
        return 0.0;
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

static const char *at_least(const tdm_planner_curve_t *c) {
    return c->is_open ? "at least " : "";
}

/* put_hidden says where a run was too short to say much. */
static void put_hidden(FILE *f, const tdm_planner_curve_t *c) {
    if (c->is_open)
        fprintf(f, " (nothing that was tried is missed: more --requests)");
    else if (c->hidden > HIDDEN_MOST)
        fprintf(f,
                " (up to %.0f %% too high, as so short a queue hides behind the first token's "
                "target: more --requests)",
                100.0 * c->hidden);
}

/* put_gain: ", 1.12 x serial (at most 1.14)". */
static void put_gain(FILE *f, const tdm_planner_curve_t *curve, uint32_t cnt,
                     const tdm_planner_curve_t *c) {
    double bound, gain = gain_of(curve, cnt, c, &bound);
    if (gain > 0.0 && c->prefill_cnt > 0)
        fprintf(f, ", %.3f x as many that do both (the wire alone would carry %.3f)", gain,
                c->wire);
    if (gain > 0.0 && c->prefill_cnt == 0)
        fprintf(f, ", %.3f x serial (its attention allows %.3f)", gain, bound);
}

/* put_crossing says, of pools of one number of appliances, from which network
   on they carry more than as many that do both; where two of those asked lie on
   both sides, where a line between them crosses, by the logarithm of speed.  A
   gain that plans erred by is none. */
static void put_crossing(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                         uint32_t cnt) {
    const tdm_planner_curve_t *under = NULL, *over = NULL;
    double best = 0.0, low = 0.0, high = 0.0, bound;
    uint32_t is_open = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        double gain = curve[i].prefill_cnt > 0 ? gain_of(curve, cnt, &curve[i], &bound) : 0.0;
        is_open |= curve[i].is_open && (curve[i].prefill_cnt > 0 || i == 0);
        best = fmax(best, gain);
        if (curve[i].prefill_cnt == 0 || over) continue;
        *(gain > 1.0 ? &over : &under) = &curve[i];
        *(gain > 1.0 ? &high : &low) = gain;
    }
    if (!has_best(ask, curve) || !(curve->best > 0.0) || is_open) {
        fprintf(f, "pools of %u: no crossing can be told", curve->appliances);
        return;
    }
    if (!over && under)
        fprintf(f,
                "pools of %u carry no more than as many that do both, at most %.3f x, up to "
                "%.4g Gbit/s",
                curve->appliances, best, gbit_of(ask, under));
    else if (over && !under)
        fprintf(f,
                "pools of %u carry more than as many that do both from the slowest network "
                "asked on, %.4g Gbit/s",
                curve->appliances, gbit_of(ask, over));
    else if (over)
        fprintf(f,
                "pools of %u carry more than as many that do both from about %.3g Gbit/s on: "
                "%.3f x at %.4g, %.3f x at %.4g",
                curve->appliances,
                gbit_of(ask, under) *
                    pow(gbit_of(ask, over) / gbit_of(ask, under), (1.0 - low) / (high - low)),
                low, gbit_of(ask, under), high, gbit_of(ask, over));
    double error = report_capacity_error(ask->trust);
    if (fabs(best - 1.0) <= error)
        fprintf(f, "; plans of windows erred by up to %.1f %% of a capacity, so that is none",
                100.0 * error);
}

static double ms(double ns) {
    return ns / 1e6;
}

static const char *kind_of(const tdm_planner_ask_t *ask) {
    return ask->is_model ? "a model, not a measurement" : "measured";
}

/* put_fallbacks writes why hybrids did not fuse, and what that cost. */
static void put_fallbacks(FILE *f, const tdm_planner_point_t *p, const char *none) {
    const char *comma = "";
    for (uint32_t r = 1; r < TDM_REASON_CNT; r++) {
        if (p->fallback[r] == 0) continue;
        fprintf(f, "%s", comma);
        tdm_chart_lost(f, tdm_reason_name((tdm_reason_t)r), (double)p->fallback[r],
                       (double)p->fallback[r] / (double)TDM_MAX(p->iterations, UINT64_C(1)),
                       p->lost_share[r], p->saved_share[r]);
        comma = ", ";
    }
    if (!*comma) fprintf(f, "%s", none);
}

/* --- text ------------------------------------------------------------------ */

/* put_lost_lines: fallbacks at the highest load that is not over what is
   carried; of loads that were asked for, at the highest. */
static void put_lost_lines(FILE *f, const tdm_planner_curve_t *c) {
    const tdm_planner_point_t *at = NULL;
    for (uint32_t k = 0; k < c->point_cnt; k++)
        if (!(c->best > 0.0) || c->point[k].rate <= 1.001 * c->best) at = &c->point[k];
    uint64_t cnt = 0;
    for (uint32_t r = 1; r < TDM_REASON_CNT && at; r++) cnt += at->fallback[r];
    if (cnt == 0) return;
    fprintf(f, "  not fused at %.3f/s: ", at->rate);
    put_fallbacks(f, at, "none");
    fputc('\n', f);
}

/* put_crossing_line: curves up to cnt, of which the last number of appliances
   is told. */
static void put_crossing_line(FILE *f, const tdm_planner_ask_t *ask,
                              const tdm_planner_curve_t *curve, uint32_t cnt) {
    uint32_t from = cnt - 1u;
    while (from > 0 && curve[from - 1u].appliances == curve[cnt - 1u].appliances) from--;
    if (curve[cnt - 1u].prefill_cnt == 0) return;
    fprintf(f, "\n");
    put_crossing(f, ask, curve + from, cnt - from);
    fprintf(f, "\n");
}

/* put_head says what was asked, and how far the answer may be believed. */
static void put_head(FILE *f, const tdm_planner_ask_t *ask) {
    fprintf(f, "all simulated, by the scheduler's own code in simulated time: profile %s (%s",
            ask->profile_name, kind_of(ask));
    if (!ask->is_model) report_profile_error(f, ask->trust);
    fprintf(f,
            "), trace %s, %u requests; promise: p%.4g first token %.0f ms, %.2g %% of gaps over "
            "%.0f ms at most\n",
            ask->trace_name, ask->workload->row_cnt, ttft_percentile(ask), ms((double)ask->ttft_ns),
            100.0 * ask->epsilon, ms((double)ask->gap_ns));
    if (ask->link.cnt > 0)
        fprintf(f, "pools: keys and values of a prompt travel, %.0f bytes a token, after %.0f us\n",
                ask->link.token_bytes, (double)ask->link.latency_ns / 1e3);
    report_trust_text(f, ask->trust);
}

void tdm_report_text(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    put_head(f, ask);
    for (uint32_t i = 0; i < curve_cnt; i++) {
        const tdm_planner_curve_t *c = &curve[i];
        char name[NAME_MAX_];
        fprintf(f, "\n%u x %s", c->appliances, name_of(ask, c, name));
        if (has_best(ask, c)) fprintf(f, ": carries %s%.3f requests/s", at_least(c), c->best);
        put_hidden(f, c);
        put_gain(f, curve, curve_cnt, c);
        fputc('\n', f);
        fprintf(f, "%10s %8s %8s %8s %9s %9s %10s %10s %10s %8s %8s\n", "requests/s", "promise",
                "in SLO", "over", "gap p50", "gap p99", "TTFT p50", "TTFT p90", "TTFT p99", "fused",
                "attn");
        for (uint32_t k = 0; k < c->point_cnt; k++) {
            const tdm_planner_point_t *p = &c->point[k];
            fprintf(f,
                    "%10.3f %8s %7.2f%% %7.2f%% %6.0f ms %6.0f ms %7.0f ms %7.0f ms %7.0f ms "
                    "%7.1f%% %7.1f%%\n",
                    p->rate, p->is_kept ? "kept" : "missed", 100.0 * p->attainment,
                    100.0 * p->over_share, ms(p->gap_ns[0]), ms(p->gap_ns[1]), ms(p->ttft_ns[0]),
                    ms(p->ttft_p90_ns), ms(p->ttft_ns[1]), 100.0 * p->fused_share,
                    100.0 * p->attention_share);
        }
        put_lost_lines(f, c);
        if (i + 1u == curve_cnt || curve[i + 1u].appliances != c->appliances)
            put_crossing_line(f, ask, curve, i + 1u);
    }
}

/* --- JSON -------------------------------------------------------------------- */

void report_string(FILE *f, const char *s) {
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
        fprintf(f, "%s\"%s\": {\"iterations\": %llu, \"lost_share\": %.5f, \"saved_share\": %.5f}",
                comma, tdm_reason_name((tdm_reason_t)r), (unsigned long long)p->fallback[r],
                p->lost_share[r], p->saved_share[r]);
        comma = ", ";
    }
    fprintf(f, "}}");
}

void tdm_report_json(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    fprintf(f, "{\"profile\": ");
    report_string(f, ask->profile_name);
    fprintf(f, ", \"trace\": ");
    report_string(f, ask->trace_name);
    fprintf(f,
            ", \"is_simulated\": true, \"is_model\": %s, \"requests\": %u, \"ttft_ms\": %.1f, "
            "\"ttft_share\": %g, \"gap_ms\": %.1f, \"epsilon\": %g, \"noise\": %.4f",
            ask->is_model ? "true" : "false", ask->workload->row_cnt, ms((double)ask->ttft_ns),
            ttft_percentile(ask) / 100.0, ms((double)ask->gap_ns), ask->epsilon, ask->noise);
    if (ask->link.cnt > 0)
        fprintf(f, ", \"kv_bytes\": %.0f, \"link_us\": %g", ask->link.token_bytes,
                (double)ask->link.latency_ns / 1e3);
    report_trust_json(f, ask->trust);
    fprintf(f, ", \"curves\": [");
    for (uint32_t i = 0; i < curve_cnt; i++) {
        const tdm_planner_curve_t *c = &curve[i];
        static const char *const route[] = {"fused", "streams", "serial"};
        double bound, gain = gain_of(curve, curve_cnt, c, &bound);
        fprintf(f, "%s\n {\"route\": \"%s\", \"policy\": ", i ? "," : "",
                route[(c->route - TDM_ROUTE_FUSED) % TDM_COUNT_OF(route)]);
        report_string(f, ask->policy_cnt > 0 ? ask->policy[c->policy].name : "");
        fprintf(f,
                ", \"appliances\": %u, \"prefill_appliances\": %u, \"best\": %.4f, "
                "\"is_open\": %s, \"hidden\": %.4f, \"gain\": %.4f, \"gain_bound\": %.4f",
                c->appliances, c->prefill_cnt, c->best, c->is_open ? "true" : "false", c->hidden,
                gain, bound);
        if (c->prefill_cnt > 0)
            fprintf(f, ", \"link_gbit\": %g, \"wire_per_s\": %.4f", gbit_of(ask, c), c->wire);
        fprintf(f, ", \"points\": [");
        for (uint32_t k = 0; k < curve[i].point_cnt; k++) {
            fprintf(f, "%s\n  ", k ? "," : "");
            put_point(f, &curve[i].point[k]);
        }
        fprintf(f, "]}");
    }
    fprintf(f, "]}\n");
}

/* --- HTML --------------------------------------------------------------------- */

static tdm_chart_ink_t ink_of(const tdm_planner_curve_t *c) {
    static const tdm_chart_ink_t ink[TDM_PLANNER_ROUTES] = {TDM_CHART_FUSED, TDM_CHART_STREAMS,
                                                            TDM_CHART_SERIAL};
    return c->prefill_cnt > 0 ? TDM_CHART_POOLS
                              : ink[(c->route - TDM_ROUTE_FUSED) % TDM_PLANNER_ROUTES];
}

/* value of a point on a chart: 0 attainment in percent, 1 TTFT p99 in
   seconds, 2 gap p99 in milliseconds. */
static double value_of(const tdm_planner_point_t *p, uint32_t chart) {
    if (chart == 0) return 100.0 * p->attainment;
    return chart == 1 ? p->ttft_ns[1] / 1e9 : p->gap_ns[1] / 1e6;
}

/* axes_of holds the curves of one number of appliances; what is far over its
   target leaves the chart. */
static tdm_chart_t axes_of(const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c, uint32_t cnt,
                           uint32_t chart) {
    static const char *const title[] = {"requests in SLO, %", "first token p99, s",
                                        "gap between tokens p99, ms"};
    double least = INFINITY, most = 0.0, top = chart == 0 ? 100.0 : 0.0;
    double target = chart == 0   ? 0.0
                    : chart == 1 ? (double)ask->ttft_ns / 1e9
                                 : (double)ask->gap_ns / 1e6;
    for (uint32_t i = 0; i < cnt; i++)
        for (uint32_t k = 0; k < c[i].point_cnt; k++) {
            top = fmax(top, value_of(&c[i].point[k], chart));
            least = fmin(least, c[i].point[k].rate);
            most = fmax(most, c[i].point[k].rate);
        }
    if (target > 0.0) top = fmin(fmax(top, 1.1 * target), 3.0 * target);
    tdm_chart_t out = {.title = title[chart], .top = 1.05 * top, .target = target};
    tdm_chart_span(&out, least, most);
    return out;
}

/* is_in says whether a curve stands in the charts of a policy: pools in the
   first one's. */
static int is_in(const tdm_planner_curve_t *c, uint32_t policy) {
    return c->policy == policy;
}

static void put_chart(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                      uint32_t cnt, uint32_t chart, uint32_t policy) {
    tdm_chart_t axes = axes_of(ask, c, cnt, chart);
    tdm_chart_open(f, &axes);
    for (uint32_t i = 0; i < cnt; i++) {
        double x[TDM_PLANNER_RATE_MAX], y[TDM_PLANNER_RATE_MAX];
        char name[NAME_MAX_];
        if (!is_in(&c[i], policy)) continue;
        for (uint32_t k = 0; k < c[i].point_cnt; k++) {
            x[k] = c[i].point[k].rate;
            y[k] = value_of(&c[i].point[k], chart);
        }
        tdm_chart_line(f, &axes, ink_of(&c[i]), 0, x, y, c[i].point_cnt);
        for (uint32_t k = 0; k < c[i].point_cnt; k++)
            tdm_chart_dot(f, &axes, ink_of(&c[i]), 0, x[k], y[k], name_of(ask, &c[i], name));
    }
    tdm_chart_close(f);
}

/* put_charts draws a row of charts for each policy, on the same axes. */
static void put_charts(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                       uint32_t cnt) {
    for (uint32_t p = 0; p < TDM_MAX(ask->policy_cnt, 1u); p++) {
        fprintf(f, "<div class=\"row\"><h3>%s%s</h3><p>", ask->policy_cnt ? "Policy " : "",
                ask->policy_cnt ? ask->policy[p].name : "Over load");
        for (uint32_t i = 0; i < cnt; i++) {
            char name[NAME_MAX_];
            if (is_in(&c[i], p)) tdm_chart_key(f, ink_of(&c[i]), 0, name_of(ask, &c[i], name));
        }
        fprintf(f, "</p><div class=\"charts\">\n");
        for (uint32_t chart = 0; chart < 3; chart++) put_chart(f, ask, c, cnt, chart, p);
        fprintf(f, "</div></div>\n");
    }
}

static void put_rows(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c) {
    char name[NAME_MAX_];
    for (uint32_t k = 0; k < c->point_cnt; k++) {
        const tdm_planner_point_t *p = &c->point[k];
        fprintf(f,
                "<tr><td>%s</td><td>%.3f</td><td>%s</td><td>%.2f</td><td>%.2f</td><td>%.0f / %.0f "
                "/ %.0f</td><td>%.0f / %.0f / %.0f / %.0f</td>",
                name_of(ask, c, name), p->rate, p->is_kept ? "kept" : "missed",
                100.0 * p->attainment, 100.0 * p->over_share, ms(p->gap_ns[0]), ms(p->gap_ns[1]),
                ms(p->gap_ns[2]), ms(p->ttft_ns[0]), ms(p->ttft_p90_ns), ms(p->ttft_ns[1]),
                ms(p->ttft_ns[2]));
        if (p->hybrid > 0)
            fprintf(f, "<td>%.1f</td>", 100.0 * p->fused_share);
        else
            fprintf(f, "<td>-</td>");
        fprintf(f, "<td>%.1f</td><td>%.3f</td><td>%.3f</td><td class=\"left note\">",
                100.0 * p->attention_share, p->attention_speedup, tdm_planner_bound(p));
        put_fallbacks(f, p, p->hybrid > 0 ? "none" : "-");
        fprintf(f, "</td></tr>\n");
    }
}

static void put_appliances(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *c,
                           uint32_t cnt) {
    fprintf(f, "<h2>%u appliance%s</h2><ul>\n", c->appliances, c->appliances > 1 ? "s" : "");
    for (uint32_t i = 0; i < cnt; i++) {
        char name[NAME_MAX_];
        fprintf(f, "<li>%s", name_of(ask, &c[i], name));
        if (has_best(ask, &c[i]))
            fprintf(f, " carries %s<b>%.3f</b> requests/s", at_least(&c[i]), c[i].best);
        put_hidden(f, &c[i]);
        put_gain(f, c, cnt, &c[i]);
        fprintf(f, "</li>\n");
    }
    if (c[cnt - 1u].prefill_cnt > 0 && has_best(ask, c)) {
        fprintf(f, "<li>");
        put_crossing(f, ask, c, cnt);
        fprintf(f, "</li>\n");
    }
    fprintf(f, "</ul>\n");
    put_charts(f, ask, c, cnt);
    fprintf(
        f, "<div class=\"wide\"><table class=\"told\"><thead><tr><th>way to serve</th>"
           "<th>requests/s</th><th>promise</th><th>in SLO, %%</th><th>gaps over, %%</th><th>gap, ms"
           "<br>p50 / p99 / p99.9</th><th>first token, ms<br>p50 / p90 / p99 / p99.9</th>"
           "<th>hybrids<br>fused, %%</th><th>attention,<br>%% of time</th><th>its speed<br>over "
           "serial</th><th>bound of<br>the gain</th><th class=\"left\">fallbacks: iterations "
           "(share of time x what fusing saves of it = capacity lost)</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < cnt; i++) put_rows(f, ask, &c[i]);
    fprintf(f, "</tbody></table></div>\n");
}

void tdm_report_html(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt) {
    tdm_chart_head(f, "Tandem capacity");
    fprintf(f, "<h1>Capacity</h1>\n<p>All of this is simulated: the scheduler's own code in "
               "simulated time, on the profile ");
    tdm_chart_text(f, ask->profile_name);
    fprintf(f, " (%s", kind_of(ask));
    if (!ask->is_model) report_profile_error(f, ask->trust);
    fprintf(f, "), with the trace ");
    tdm_chart_text(f, ask->trace_name);
    fprintf(f,
            ", %u requests. Promise: first token within %.0f ms at p%.4g, at most %g %% of "
            "gaps over %.0f ms.</p>\n",
            ask->workload->row_cnt, ms((double)ask->ttft_ns), ttft_percentile(ask),
            100.0 * ask->epsilon, ms((double)ask->gap_ns));
    if (ask->link.cnt > 0)
        fprintf(f,
                "<p>Keys and values of a prompt, %.0f bytes a token, travel from pool to pool with "
                "a delay of %.0f us.</p>\n",
                ask->link.token_bytes, (double)ask->link.latency_ns / 1e3);
    report_trust_html(f, ask->trust);
    for (uint32_t i = 0, cnt; i < curve_cnt; i += cnt) {
        for (cnt = 1; i + cnt < curve_cnt && curve[i + cnt].appliances == curve[i].appliances;)
            cnt++;
        put_appliances(f, ask, &curve[i], cnt);
    }
    tdm_chart_tail(f);
}
