/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a bench as tables: what was measured, then what was not. */
#include "appliance/base/attr.h"
#include "appliance/ctl/bench_private.h"
#include "scheduler/sim/chart.h"

/* put_number writes one; "-" where there is none. */
static void put_number(FILE *f, const json_t *v, double scale, int digits) {
    if (json_is_number(v))
        fprintf(f, "%.*f", digits, scale * json_number_value(v));
    else
        fputc('-', f);
}

/* put_of writes a / b / .. of an object. */
static void put_of(FILE *f, const json_t *of, const char *const *key, double scale, int digits) {
    int is_there = 0;
    for (uint32_t i = 0; key[i]; i++) is_there |= json_is_number(json_object_get(of, key[i]));
    fprintf(f, "<td>");
    for (uint32_t i = 0; key[i] && is_there; i++) {
        fprintf(f, "%s", i ? " / " : "");
        put_number(f, json_object_get(of, key[i]), scale, digits);
    }
    if (!is_there) fputc('-', f);
    fprintf(f, "</td>");
}

static double sum_of(const json_t *counts) {
    const char *key;
    json_t *v;
    double sum = 0.0;
    json_object_foreach((json_t *)(uintptr_t)counts, key, v) if (strcmp(key, "idle") != 0) sum +=
        json_number_value(v);
    return sum;
}

/* lost_of gives the share of capacity that a reason cost a window; < 0: nobody
   told.  Of a measured window the plan tells what such an iteration loses, in
   mean ones, and the window how many there were. */
static double lost_of(const json_t *planned, const json_t *cell, const char *why, double share) {
    const json_t *own = bench_get(cell, "lost", why, NULL);
    if (json_is_number(own)) return json_number_value(own);
    const json_t *p = bench_planned(planned, cell);
    const json_t *told = bench_get(p, "fallbacks", why, NULL);
    double of = bench_number(told, "iterations", NULL, NULL),
           all = bench_number(p, "iterations", NULL, NULL);
    if (!(of > 0.0) || !(all > 0.0) || !json_is_number(json_object_get(told, "lost_share")))
        return -1.0;
    return share * bench_number(told, "lost_share", NULL, NULL) / (of / all);
}

/* saved_of gives the share of such an iteration that fusing would have saved, by
   the plan; < 0: nobody told. */
static double saved_of(const json_t *planned, const json_t *cell, const char *why) {
    const json_t *own = bench_get(cell, "saved", why, NULL);
    const json_t *told = bench_get(bench_planned(planned, cell), "fallbacks", why, "saved_share");
    if (!json_is_number(own)) own = told;
    return json_is_number(own) ? json_number_value(own) : -1.0;
}

/* put_fallbacks says why hybrids did not fuse, and what that cost. */
static void put_fallbacks(FILE *f, const json_t *planned, const json_t *cell) {
    double all = sum_of(json_object_get(cell, "iterations"));
    const char *key, *comma = "";
    json_t *v;
    fprintf(f, "<td class=\"left note\">");
    json_object_foreach(json_object_get(cell, "fallbacks"), key, v) {
        double cnt = json_number_value(v), share = all > 0.0 ? cnt / all : 0.0;
        if (cnt <= 0.0) continue;
        fprintf(f, "%s", comma);
        tdm_chart_lost(f, key, cnt, share, lost_of(planned, cell, key, share),
                       saved_of(planned, cell, key));
        comma = ", ";
    }
    fprintf(f, "%s</td>", *comma ? "" : json_object_get(cell, "fallbacks") ? "none" : "-");
}

/* put_vcta: millions of virtual CTAs, and how many of those planned were not
   executed. */
static void put_vcta(FILE *f, const json_t *cell) {
    const json_t *made = bench_get(cell, "vcta", "planned", NULL),
                 *ran = bench_get(cell, "vcta", "executed", NULL);
    fprintf(f, "<td>");
    if (json_is_object(made) && json_is_object(ran))
        fprintf(f, "%.1f / %.1f, %.0f", bench_number(made, "prefill", NULL, NULL) / 1e6,
                bench_number(made, "decode", NULL, NULL) / 1e6, sum_of(made) - sum_of(ran));
    else
        fputc('-', f);
    fprintf(f, "</td>");
}

static void put_row(FILE *f, const json_t *planned, const json_t *c) {
    static const char *const
        three[] = {"p50", "p99", "p999", NULL},
        *const four[] = {"p50", "p90", "p99", "p999", NULL},
        *const over[] = {"share_over", "share_over_twice", NULL},
        *const stall[] = {"stall200_share", "stall500_share", NULL},
        *const queue[] = {"waiting_first", "waiting_last", NULL},
        *const good[] = {"goodput_per_s", NULL}, *const attention[] = {"attention_share", NULL},
        *const watt[] = {"mean_w", "max_w", NULL}, *const joule[] = {"j_per_token", NULL},
        *const clock[] = {"sm_clock_mhz", NULL}, *const held[] = {"held_share", NULL};
    double fused = bench_number(c, "hybrid", "fused", NULL);
    double both = fused + bench_number(c, "hybrid", "fallback", NULL);
    const json_t *said = json_object_get(c, "replay"), *p = json_object_get(c, "power");
    fprintf(f, "<tr><td>");
    tdm_chart_text(f, bench_text(c, "path"));
    fputc('/', f);
    tdm_chart_text(f, bench_text(c, "policy"));
    fprintf(f, "</td><td>%.3f</td><td>", bench_number(c, "rate", NULL, NULL));
    put_number(f, json_object_get(said, "warm"), 1.0, 0);
    fprintf(f, "</td><td>");
    tdm_chart_text(f, json_is_true(json_object_get(c, "kept")) ? "kept" : bench_text(c, "missed"));
    fprintf(f, "</td>");
    put_of(f, said, over, 100.0, 3);
    put_of(f, json_object_get(said, "tbt_ms"), three, 1.0, 1);
    put_of(f, json_object_get(said, "tpot_ms"), three, 1.0, 1);
    put_of(f, said, stall, 100.0, 3);
    put_of(f, json_object_get(said, "ttft_ms"), four, 1.0, 0);
    put_of(f, json_object_get(said, "e2e_ms"), three, 1e-3, 2);
    put_of(f, said, queue, 1.0, 1);
    put_of(f, said, good, 1.0, 3);
    if (both > 0.0)
        fprintf(f, "<td>%.1f</td>", 100.0 * fused / both);
    else
        fprintf(f, "<td>-</td>");
    put_fallbacks(f, planned, c);
    put_vcta(f, c);
    put_of(f, c, attention, 100.0, 1);
    put_of(f, p, watt, 1.0, 0);
    put_of(f, p, joule, 1.0, 3);
    put_of(f, p, clock, 1.0, 0);
    put_of(f, p, held, 100.0, 0);
    fprintf(f, "</tr>\n");
}

static void put_table(FILE *f, const json_t *all, int is_sim) {
    const json_t *cells = json_object_get(all, "cells");
    if (bench_count(cells, NULL, is_sim) == 0) return;
    fprintf(f, "<h2>%s windows</h2>\n", is_sim ? "Simulated" : "Measured");
    if (is_sim)
        fprintf(f, "<p>Nobody measured these: the scheduler's own code in simulated time, on the "
                   "profile above. What a simulator has no word on is -.</p>\n");
    fprintf(
        f,
        "<div class=\"wide\"><table%s><thead><tr><th>way to serve</th><th>requests/s</th>"
        "<th>decodes at<br>its start</th><th>promise</th><th>gaps over the target /<br>over "
        "twice that, %%</th><th>gap, ms<br>p50 / p99 / p99.9</th><th>a request's mean gap,<br>"
        "ms, p50 / p99 / p99.9</th><th>gaps over<br>200 / 500 "
        "ms, %%</th><th>first token, ms<br>p50 / p90 / p99 / p99.9</th><th>request, s<br>p50 / "
        "p99 / p99.9</th><th>waiting, first /<br>last quarter</th><th>goodput,<br>requests/s"
        "</th><th>hybrids<br>fused, %%</th><th class=\"left\">fallbacks: iterations (share of "
        "time x what fusing saves of it = capacity lost, by the plan)</th><th>10&#8310; virtual "
        "CTAs,<br>prefill / decode,<br>"
        "not executed</th><th>attention,<br>%% of time</th><th>board, W<br>mean / most</th>"
        "<th>J a<br>token</th><th>SM<br>MHz</th><th>held by<br>power, %%</th></tr></thead>"
        "<tbody>\n",
        is_sim ? " class=\"told\"" : "");
    for (size_t i = 0; i < json_array_size(cells); i++)
        if (bench_is_simulated(json_array_get(cells, i)) == is_sim)
            put_row(f, json_object_get(all, "planned"), json_array_get(cells, i));
    fprintf(f, "</tbody></table></div>\n");
}

void bench_put_tables(FILE *f, const json_t *all) {
    put_table(f, all, 0);
    put_table(f, all, 1);
}
