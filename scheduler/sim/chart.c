/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/chart.h"

#include <math.h>

#define WIDTH  420.0
#define HEIGHT 270.0
#define LEFT   52.0
#define RIGHT  12.0
#define ABOVE  30.0
#define BELOW  42.0

static const char *const class_of[TDM_CHART_INK_CNT] = {"fused", "streams", "serial", "pools"};

/* Dark where the reader's machine is; paper is white. */
static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#5c6570;--line:#d5dae0;"
    "--fused:#00794f;--streams:#0058c0;--serial:#b84a00;--pools:#7a14b8}"
    "@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14171b;"
    "--soft:#9aa4b0;--line:#363d46;--fused:#3ecf98;--streams:#6fb0ff;--serial:#ff9a5a;"
    "--pools:#cf8cff}}"
    "body{font:14px/1.45 sans-serif;color:var(--ink);background:var(--paper);max-width:1760px;"
    "margin:1.5em auto;padding:0 1em}p,dl{max-width:72em}"
    "dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 1em}"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:1em;"
    "max-width:1760px}svg{width:100%;height:auto;max-width:560px}"
    "svg text{font-size:12px;fill:var(--ink)}svg .soft{fill:var(--soft)}"
    ".axis{stroke:var(--soft);fill:none}.grid{stroke:var(--line)}"
    ".target{stroke:var(--ink);stroke-dasharray:7 3}"
    ".tie{stroke:var(--soft)}svg .error{font-size:11px;paint-order:stroke;stroke:var(--paper);"
    "stroke-width:3px;fill:var(--c)}"
    ".fused{--c:var(--fused)}.streams{--c:var(--streams)}.serial{--c:var(--serial)}"
    ".pools{--c:var(--pools)}"
    ".seen,.sim{stroke:var(--c);fill:none}.seen{stroke-width:2.5}"
    ".sim{stroke-width:1.25;stroke-dasharray:2 3}"
    ".dot{stroke:var(--c);stroke-width:1.5;fill:var(--c)}.sim.dot{fill:var(--paper);"
    "stroke-width:1;stroke-dasharray:none}"
    ".key{display:inline-block;margin-right:1.5em;white-space:nowrap}.key svg{width:44px;"
    "height:14px;vertical-align:middle}"
    ".wide{overflow-x:auto}table{border-collapse:collapse}td,th{padding:3px 8px;"
    "text-align:right;white-space:nowrap;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{vertical-align:bottom}td:first-child,th:first-child,.left{text-align:left}"
    ".told td{color:var(--soft);font-style:italic}.note{white-space:normal;min-width:16em}"
    "@page{size:A4 landscape;margin:9mm}"
    "@media print{body{font-size:9px;margin:0;padding:0}.wide{overflow:visible}"
    "td,th{padding:1px 3px;font-size:6.2px}.charts{grid-template-columns:repeat(4,1fr)}"
    ".note{min-width:8em}svg,tr,.row{break-inside:avoid}thead{display:table-header-group}}";

void tdm_chart_text(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else
            fputc(*s, f);
    }
}

void tdm_chart_head(FILE *f, const char *title) {
    fprintf(f,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
            "name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>%s</title>"
            "<style>%s</style></head>\n<body>\n",
            title, style);
}

void tdm_chart_tail(FILE *f) {
    fprintf(f, "</body></html>\n");
}

/* round_step gives 1, 2 or 5 times a power of ten: about span / 5. */
static double round_step(double span) {
    double ten = pow(10.0, floor(log10(span / 5.0))), x = span / 5.0 / ten;
    return ten * (x < 1.5 ? 1.0 : x < 3.5 ? 2.0 : x < 7.5 ? 5.0 : 10.0);
}

void tdm_chart_span(tdm_chart_t *c, double least, double most) {
    if (!(most > 0.0)) most = 1.0;
    if (!(least > 0.4 * most) || !(least < 0.999 * most)) least = 0.0;
    double step = round_step(most - least);
    c->low = least > 0.0 ? floor(least / step + 1e-9) * step : 0.0;
    c->high = ceil(most / step - 1e-9) * step;
}

static double x_of(const tdm_chart_t *c, double rate) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (rate - c->low) / (c->high - c->low);
}
static double y_of(const tdm_chart_t *c, double v) {
    return HEIGHT - BELOW - (HEIGHT - ABOVE - BELOW) * fmax(0.0, fmin(v, c->top)) / c->top;
}

void tdm_chart_open(FILE *f, const tdm_chart_t *c) {
    double up = round_step(c->top), on = round_step(c->high - c->low);
    fprintf(f,
            "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">"
            "<text x=\"%.0f\" y=\"16\">%s</text>\n",
            WIDTH, HEIGHT, c->title, LEFT, c->title);
    for (uint32_t i = 0; i < 16u && i * up <= c->top * 1.0001; i++) {
        double y = y_of(c, i * up);
        fprintf(f,
                "<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/><text class=\"soft\" x=\"%.0f\" "
                "y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 5.0, y + 4.0, i * up);
    }
    for (uint32_t i = 0; i < 16u && c->low + i * on <= c->high * 1.0001; i++)
        fprintf(f,
                "<path class=\"axis\" d=\"M%.1f %.0fv4\"/><text class=\"soft\" x=\"%.1f\" "
                "y=\"%.0f\" text-anchor=\"middle\">%.4g</text>\n",
                x_of(c, c->low + i * on), HEIGHT - BELOW, x_of(c, c->low + i * on),
                HEIGHT - BELOW + 17.0, c->low + i * on);
    fprintf(f,
            "<path class=\"axis\" d=\"M%.0f %.0fV%.0fH%.0f\"/><text class=\"soft\" x=\"%.0f\" "
            "y=\"%.0f\" text-anchor=\"end\">requests/s</text>\n",
            LEFT, ABOVE, HEIGHT - BELOW, WIDTH - RIGHT, WIDTH - RIGHT, HEIGHT - 8.0);
    if (c->target > 0.0 && c->target <= c->top)
        fprintf(f,
                "<path class=\"target\" d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\">"
                "target %.4g</text>\n",
                LEFT, y_of(c, c->target), WIDTH - RIGHT, LEFT + 4.0, y_of(c, c->target) - 4.0,
                c->target);
}

void tdm_chart_line(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, int is_seen,
                    const double *x, const double *y, uint32_t cnt) {
    const char *then = "M";
    fprintf(f, "<path class=\"%s %s\" d=\"", is_seen ? "seen" : "sim", class_of[ink]);
    for (uint32_t i = 0; i < cnt; i++) {
        if (isfinite(y[i])) fprintf(f, "%s%.1f %.1f", then, x_of(c, x[i]), y_of(c, y[i]));
        then = isfinite(y[i]) ? "L" : "M";
    }
    fprintf(f, "\"/>\n");
}

void tdm_chart_dot(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, int is_seen, double x,
                   double y, const char *name) {
    fprintf(f, "<circle class=\"%s dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
            is_seen ? "seen" : "sim", class_of[ink], x_of(c, x), y_of(c, y), is_seen ? "3.5" : "2");
    tdm_chart_text(f, name);
    fprintf(f, ", %s, %.4g at %.4g requests/s%s</title></circle>\n",
            is_seen ? "measured" : "simulated", y, x, y > c->top ? ", beyond the chart" : "");
}

void tdm_chart_error(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, double x, double told,
                     double seen) {
    static const double down[TDM_CHART_INK_CNT] = {-9.0, -22.0, 17.0, 30.0}; /* off each other */
    fprintf(f,
            "<path class=\"tie\" d=\"M%.1f %.1fV%.1f\"/><text class=\"error %s\" x=\"%.1f\" "
            "y=\"%.1f\" text-anchor=\"middle\">%+.0f %%</text>\n",
            x_of(c, x), y_of(c, told), y_of(c, seen), class_of[ink], x_of(c, x),
            y_of(c, seen) + down[ink], 100.0 * (told / seen - 1.0));
}

void tdm_chart_close(FILE *f) {
    fprintf(f, "</svg>\n");
}

void tdm_chart_key(FILE *f, tdm_chart_ink_t ink, int is_seen, const char *name) {
    const char *kind = is_seen ? "seen" : "sim";
    fprintf(f,
            "<span class=\"key\"><svg viewBox=\"0 0 44 14\"><path class=\"%s %s\" d=\"M2 7H42\"/>"
            "<circle class=\"%s dot %s\" cx=\"22\" cy=\"7\" r=\"%s\"/></svg> ",
            kind, class_of[ink], kind, class_of[ink], is_seen ? "3.5" : "2");
    tdm_chart_text(f, name);
    fprintf(f, "</span>\n");
}

void tdm_chart_lost(FILE *f, const char *name, double cnt, double share, double lost,
                    double saved) {
    tdm_chart_text(f, name);
    fprintf(f, " %.0f", cnt);
    if (!(share > 0.0)) return;
    fprintf(f, " (%.2f %% of iterations; ", 100.0 * share);
    if (lost < 0.0)
        fprintf(f, "what they cost nobody told)");
    else if (lost > 0.0 && saved > 0.0)
        fprintf(f, "%.1f %% of time x %.1f %% of it that fusing saves = %.3f %% of capacity)",
                100.0 * lost / saved, 100.0 * saved, 100.0 * lost);
    else
        fprintf(f, "%.3f %% of capacity)", 100.0 * lost);
}
