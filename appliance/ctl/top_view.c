/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/top_view.h"

#include "appliance/base/attr.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- what was said ---------------------------------------------------------- */

static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static const json_t *part(const json_t *o, const char *key) {
    return json_object_get(o, key);
}

void tdm_top_take_status(tdm_top_view_t *v, json_t *status) {
    if (number(status, "uptime_s") < number(v->status, "uptime_s")) {
        tdm_top_forget(v);
        v->lane_cnt = v->lane_next = 0;
    }
    json_decref(v->before);
    v->before = v->status;
    v->status = status;
}

static char letter_of(const json_t *row) {
    static const struct {
        const char *path;
        char letter;
    } known[] = {{"fused", 'F'},        {"streams", '2'},     {"serial", 'S'},
                 {"prefill_only", 'p'}, {"decode_only", 'd'}, {"idle", '.'}};
    if (number(row, "lost") > 0) return 'X';
    for (size_t i = 0; i < TDM_COUNT_OF(known); i++)
        if (strcmp(text(row, "path"), known[i].path) == 0) return known[i].letter;
    return '?';
}

void tdm_top_take_iterations(tdm_top_view_t *v, const json_t *page) {
    const json_t *list = part(page, "iterations");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        v->lane[v->lane_cnt++ % TDM_TOP_LANE] =
            (tdm_top_iteration_t){.path = letter_of(row),
                                  .ms = number(row, "ms"),
                                  .limit_ms = number(row, "limit_ms"),
                                  .is_late = number(row, "late") > 0};
    }
    v->lane_next = (uint64_t)json_integer_value(json_object_get(page, "next"));
}

void tdm_top_forget(tdm_top_view_t *v) {
    json_decref(v->status);
    json_decref(v->before);
    json_decref(v->changes);
    json_decref(v->audit);
    json_decref(v->requests);
    v->status = v->before = v->changes = v->audit = v->requests = NULL;
}

/* --- the grid ----------------------------------------------------------------- */

static void put(tdm_grid_t *g, int row, int col, tdm_style_t style, char c) {
    if (row < 0 || row >= g->rows || col < 0 || col >= g->cols) return;
    g->ch[row][col] = c >= ' ' && c <= '~' ? c : '?';
    g->style[row][col] = (uint8_t)style;
}

/* say writes formatted text from col on and gives the column after it. */
__attribute__((format(printf, 5, 6))) static int say(tdm_grid_t *g, int row, int col,
                                                     tdm_style_t style, const char *format, ...) {
    char buf[TDM_TOP_COL_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buf, sizeof buf, format, args);
    va_end(args);
    n = n < 0 ? 0 : n < (int)sizeof buf ? n : (int)sizeof buf - 1;
    for (int i = 0; i < n; i++) put(g, row, col + i, style, buf[i]);
    return col + n;
}

/* bar fills width cells to a share of one, with a bracket at both ends. */
static int bar(tdm_grid_t *g, int row, int col, int width, double share, tdm_style_t style) {
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    int full = (int)(share * width + 0.5);
    put(g, row, col, TDM_STYLE_DIM, '[');
    for (int i = 0; i < width; i++)
        put(g, row, col + 1 + i, i < full ? style : TDM_STYLE_DIM, i < full ? '#' : '.');
    put(g, row, col + 1 + width, TDM_STYLE_DIM, ']');
    return col + 2 + width;
}

static void head(tdm_grid_t *g, int row, const char *name) {
    int col = say(g, row, 0, TDM_STYLE_BOLD, "%s ", name);
    for (; col < g->cols; col++) put(g, row, col, TDM_STYLE_DIM, '-');
}

/* --- regions ------------------------------------------------------------------ */

/* grown is the growth per second of a number at parent.key. */
static double grown(const tdm_top_view_t *v, const char *parent, const char *key) {
    double span_s = number(v->status, "uptime_s") - number(v->before, "uptime_s");
    if (!v->before || span_s <= 0) return 0;
    return (number(part(v->status, parent), key) - number(part(v->before, parent), key)) / span_s;
}

static void header(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *s = v->status, *facts = part(s, "tandem"), *r = part(s, "requests");
    int up = (int)number(s, "uptime_s");
    const char *state = v->is_gone ? "no answer" : text(s, "state");
    tdm_style_t style = strcmp(state, "ready") == 0 ? TDM_STYLE_GOOD : TDM_STYLE_BAD;
    char load[128] = "";
    if (!v->is_gone)
        (void)snprintf(load, sizeof load, " run %.0f wait %.0f %.0f tok/s", number(r, "running"),
                       number(r, "waiting"), grown(v, "tokens", "output"));
    char rest[256];
    int n =
        snprintf(rest, sizeof rest, "%s up %d:%02d:%02d rev %.0f%s", v->is_paused ? " PAUSED" : "",
                 up / 3600, up / 60 % 60, up % 60, number(s, "revision"), load);
    int col = say(g, row, 0, TDM_STYLE_BOLD, "tandem %s ", text(facts, "version"));
    /* the model's name has what room the others leave */
    int room = g->cols - col - 1 - (int)strlen(state) - n;
    col = say(g, row, col, TDM_STYLE_PLAIN, "%.*s ", TDM_MIN(TDM_MAX(room, 8), 40),
              text(facts, "model"));
    col = say(g, row, col, style, "%s", state);
    say(g, row, col, TDM_STYLE_PLAIN, "%s", rest);
}

static tdm_style_t style_of(const char *gravity) {
    return strcmp(gravity, "critical") == 0  ? TDM_STYLE_BAD
           : strcmp(gravity, "warning") == 0 ? TDM_STYLE_WARN
                                             : TDM_STYLE_PLAIN;
}

/* verdict writes at most max findings, or that nobody answers, and gives the
   row after them. */
static int verdict(const tdm_top_view_t *v, tdm_grid_t *g, int row, int max) {
    const json_t *list = part(v->status, "findings");
    size_t cnt = json_array_size(list);
    if (v->is_gone) {
        say(g, row, 0, TDM_STYLE_BAD,
            "no answer for %.0f s: what stands below is what it said last", v->silent_s);
        return row + 1;
    }
    if (cnt == 0) say(g, row, 0, TDM_STYLE_GOOD, "nothing is wrong");
    for (size_t i = 0; i < cnt && (int)i < max; i++) {
        const json_t *f = json_array_get(list, i);
        int more = (int)i + 1 == max && cnt > i + 1;
        int col = say(g, row + (int)i, 0, style_of(text(f, "gravity")), "%s: %s",
                      text(f, "gravity"), text(f, "text"));
        if (more) say(g, row + (int)i, col, TDM_STYLE_DIM, " (+%zu)", cnt - i - 1);
    }
    return row + TDM_MIN(TDM_MAX((int)cnt, 1), max);
}

/* promise writes one objective of a class: what is promised, who kept it. */
static int promise(tdm_grid_t *g, int row, int col, const json_t *o, const char *name) {
    double met = number(o, "met"), all = met + number(o, "missed");
    double share = all > 0 ? met / all : 1;
    tdm_style_t style = share >= 0.99  ? TDM_STYLE_GOOD
                        : share >= 0.9 ? TDM_STYLE_WARN
                                       : TDM_STYLE_BAD;
    col = say(g, row, col, TDM_STYLE_PLAIN, " %s<%.0fms ", name, number(o, "promise_ms"));
    if (all <= 0) return say(g, row, col, TDM_STYLE_DIM, "no traffic       ");
    col = bar(g, row, col, 8, share, style);
    return say(g, row, col, style, " %6.2f%%", 100 * share);
}

/* promises writes the classes with traffic, or all, and gives the row
   after them. */
static int promises(const tdm_top_view_t *v, tdm_grid_t *g, int row, int is_all) {
    const json_t *list = part(v->status, "slo");
    int begin = row;
    for (size_t i = 0; i + 2 < json_array_size(list); i += 3) {
        const json_t *ttft = json_array_get(list, i), *tpot = json_array_get(list, i + 1);
        double seen = number(ttft, "met") + number(ttft, "missed");
        if (seen <= 0 && !is_all && i != 0) continue;
        int col = say(g, row, 0, TDM_STYLE_BOLD, "%-11s", text(ttft, "class"));
        col = promise(g, row, col, ttft, "first");
        (void)promise(g, row, col, tpot, "gap");
        row++;
    }
    const json_t *l = part(v->status, "latency");
    const json_t *first = part(l, "ttft_ms"), *gap = part(l, "itl_ms");
    say(g, row, 0, TDM_STYLE_PLAIN,
        "since start: first token p50 %.1f p99 %.1f ms, gap p50 %.1f p99 %.1f ms",
        number(first, "p50"), number(first, "p99"), number(gap, "p50"), number(gap, "p99"));
    return row + 1 > begin + 2 ? row + 1 : begin + 2;
}

static tdm_style_t path_style(char path) {
    return path == 'F'                  ? TDM_STYLE_FUSED
           : path == 'S' || path == '2' ? TDM_STYLE_UNFUSED
           : path == 'p'                ? TDM_STYLE_PREFILL
           : path == 'X'                ? TDM_STYLE_BAD
                                        : TDM_STYLE_DECODE;
}

/* lane draws the newest iterations in height rows under a head. */
static int lane(const tdm_top_view_t *v, tdm_grid_t *g, int row, int height) {
    int width = g->cols - 8;
    uint64_t kept = TDM_MIN(v->lane_cnt, (uint64_t)TDM_TOP_LANE);
    uint64_t shown = TDM_MIN(kept, (uint64_t)(width > 0 ? width : 0));
    double top_ms = 1e-3;
    for (uint64_t i = v->lane_cnt - shown; i < v->lane_cnt; i++)
        top_ms = TDM_MAX(top_ms, v->lane[i % TDM_TOP_LANE].ms);
    head(g, row, "iterations: F fused  S serial  2 streams  p prefill  d decode  X lost  ! late");
    say(g, row + 1, 0, TDM_STYLE_DIM, "%6.1f", top_ms);
    say(g, row + height, 0, TDM_STYLE_DIM, "  0 ms");
    for (uint64_t i = 0; i < shown; i++) {
        const tdm_top_iteration_t *it = &v->lane[(v->lane_cnt - shown + i) % TDM_TOP_LANE];
        int col = 8 + width - (int)shown + (int)i;
        int full = (int)(it->ms / top_ms * height + 0.999);
        int limit = (int)TDM_MIN(it->limit_ms / top_ms * height + 0.999, height + 1.0);
        for (int k = 0; k < TDM_MAX(full, 1) && k < height; k++)
            put(g, row + height - k, col, path_style(it->path), it->path);
        if (limit > full && limit <= height)
            put(g, row + height - limit + 1, col, TDM_STYLE_DIM, '=');
        if (it->is_late) put(g, row + height - TDM_MIN(full, height - 1), col, TDM_STYLE_BAD, '!');
    }
    return row + height + 1;
}

/* most gives the member of an object of counts that is largest. */
static const char *most(const json_t *counts, double *value) {
    const char *best = "none", *key;
    json_t *n;
    *value = 0;
    json_object_foreach((json_t *)(uintptr_t)counts, key, n) {
        if (json_number_value(n) <= *value) continue;
        *value = json_number_value(n);
        best = key;
    }
    return best;
}

/* tile_bars writes each CTA tile that ran with its share of the iterations
   with prefill. */
static void tile_bars(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *shapes = part(v->status, "cta_tiles");
    double all = 0, split = 0;
    const char *key;
    json_t *n;
    json_object_foreach((json_t *)(uintptr_t)shapes, key, n) {
        all += number(n, "whole") + number(n, "split");
        split += number(n, "split");
    }
    int col = say(g, row, 0, TDM_STYLE_PLAIN, "prefill tiles");
    if (all <= 0) say(g, row, col, TDM_STYLE_DIM, " none yet");
    json_object_foreach((json_t *)(uintptr_t)shapes, key, n) {
        double share = (number(n, "whole") + number(n, "split")) / all;
        if (col > g->cols - 26) break;
        col = say(g, row, col, TDM_STYLE_PLAIN, " %s ", key);
        col = bar(g, row, col, 6, share, TDM_STYLE_PREFILL);
        col = say(g, row, col, TDM_STYLE_PLAIN, " %.0f%%", 100 * share);
    }
    if (all > 0) say(g, row, col, TDM_STYLE_PLAIN, "  split in %.0f%%", 100 * split / all);
}

static int attention(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *s = v->status, *x = part(part(s, "vcta"), "executed"), *h = part(s, "hybrid");
    double p = number(x, "prefill"), d = number(x, "decode"), n;
    double fused = number(h, "fused"), all = fused + number(h, "fallback");
    head(g, row, "attention");
    int col = say(g, row + 1, 0, TDM_STYLE_PLAIN, "virtual CTA prefill ");
    col = bar(g, row + 1, col, 16, p + d > 0 ? p / (p + d) : 0, TDM_STYLE_PREFILL);
    say(g, row + 1, col, TDM_STYLE_PLAIN, " decode  %.0f : %.0f", p, d);
    col = say(g, row + 2, 0, TDM_STYLE_PLAIN, "hybrid fused ");
    col = bar(g, row + 2, col, 8, all > 0 ? fused / all : 0, TDM_STYLE_FUSED);
    col =
        say(g, row + 2, col, TDM_STYLE_PLAIN, all > 0 ? " %.1f%%" : " none yet", 100 * fused / all);
    const char *why = most(part(s, "fallbacks"), &n);
    col = say(g, row + 2, col, n > 0 ? TDM_STYLE_WARN : TDM_STYLE_PLAIN, "  fallback %s %.0f", why,
              n);
    why = most(part(s, "chunk_limited"), &n);
    say(g, row + 2, col, TDM_STYLE_PLAIN, "  prefill ended: %s", why);
    tile_bars(v, g, row + 3);
    return row + 4;
}

static int tiles(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *list = part(v->status, "tiles"), *old = part(v->before, "tiles");
    int col = say(g, row, 0, TDM_STYLE_BOLD, "tiles ");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *t = json_array_get(list, i), *o = json_array_get(old, i);
        double busy = number(t, "busy_s") - number(o, "busy_s");
        double idle = number(t, "idle_s") - number(o, "idle_s");
        double share = busy + idle > 0 ? busy / (busy + idle) : 0;
        tdm_style_t style = share > 0.9 ? TDM_STYLE_BAD : TDM_STYLE_PLAIN;
        col = say(g, row, col, style, " %s %.0f%%", text(t, "tile"), 100 * share);
        col = say(g, row, col, TDM_STYLE_DIM, " (%.0fms)", number(t, "longest_turn_ms"));
    }
    return row + 1;
}

/* rings_of writes the rings that were full, or those that were not, as far
   as there is room. */
static int rings_of(const json_t *list, tdm_grid_t *g, int row, int col, int is_full) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        double full = number(r, "full");
        if ((full > 0) != is_full || number(r, "capacity") <= 0 || col > g->cols - 22) continue;
        col = say(g, row, col, is_full ? TDM_STYLE_WARN : TDM_STYLE_PLAIN, " %s %.0f/%.0f%s",
                  text(r, "ring"), number(r, "high_watermark"), number(r, "capacity"),
                  is_full ? " FULL" : "");
    }
    return col;
}

static int rings_line(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *list = part(v->status, "rings");
    int col = say(g, row, 0, TDM_STYLE_BOLD, "rings ");
    col = say(g, row, col, TDM_STYLE_DIM, "at most");
    (void)rings_of(list, g, row, rings_of(list, g, row, col, 1), 0);
    double n;
    const json_t *net = part(v->status, "net");
    const char *why = most(part(net, "drops"), &n);
    say(g, row + 1, 0, TDM_STYLE_BOLD, "net   ");
    say(g, row + 1, 6, TDM_STYLE_PLAIN, " rx %.0f tx %.0f packets, most dropped: %s %.0f",
        number(part(net, "packets"), "rx"), number(part(net, "packets"), "tx"), why, n);
    return row + 2;
}

static int device(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *s = v->status, *gpu = part(s, "gpu"), *power = part(s, "power"),
                 *kv = part(s, "kv");
    double total = number(kv, "total");
    int col = say(g, row, 0, TDM_STYLE_BOLD, "device");
    col = say(g, row, col, TDM_STYLE_PLAIN, " %s, %.0f SMs, life %.0f, kv ",
              text(part(s, "tandem"), "backend"), number(gpu, "sms"), number(gpu, "life"));
    col = bar(g, row, col, 10, total > 0 ? number(kv, "used") / total : 0, TDM_STYLE_PLAIN);
    col = say(g, row, col, TDM_STYLE_PLAIN, " %3.0f%%",
              total > 0 ? 100 * number(kv, "used") / total : 0);
    if (json_is_number(part(power, "sm_clock_mhz")))
        say(g, row, col, TDM_STYLE_PLAIN, " SM clock %.0f of %.0f MHz",
            number(power, "sm_clock_mhz"), number(power, "sm_clock_max_mhz"));
    else
        say(g, row, col, TDM_STYLE_DIM, " SM clock: not measured");
    return row + 1;
}

/* gauge writes a named bar of a share that the board may not tell. */
static int gauge(tdm_grid_t *g, int row, int col, const char *name, const json_t *share) {
    col = say(g, row, col, TDM_STYLE_PLAIN, " %s ", name);
    if (!json_is_number(share)) return say(g, row, col, TDM_STYLE_DIM, "-");
    col = bar(g, row, col, 6, json_number_value(share), TDM_STYLE_PLAIN);
    return say(g, row, col, TDM_STYLE_PLAIN, "%.0f%%", 100 * json_number_value(share));
}

/* board writes two lines: what the driver tells of power, and of load. */
static int board(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *power = part(v->status, "power"), *b = part(v->status, "board");
    double watts = number(power, "average_w"), limit = number(power, "limit_w");
    int col = say(g, row, 0, TDM_STYLE_BOLD, "power ");
    if (json_is_number(part(power, "average_w"))) {
        double held = grown(v, "power", "held_by_power_s") + grown(v, "power", "held_by_heat_s") +
                      grown(v, "power", "held_by_hardware_s");
        double tokens = grown(v, "tokens", "output");
        col = bar(g, row, col, 10, limit > 0 ? watts / limit : 0,
                  held > 0.01 ? TDM_STYLE_WARN : TDM_STYLE_PLAIN);
        col = say(g, row, col, TDM_STYLE_PLAIN, " %.0f of %.0f W, peak %.0f", watts, limit,
                  number(power, "instant_max_w"));
        if (json_is_number(part(b, "temperature_c")))
            col = say(g, row, col, TDM_STYLE_PLAIN, ", %.0f C", number(b, "temperature_c"));
        if (tokens > 0)
            col = say(g, row, col, TDM_STYLE_PLAIN, ", %.2f J/token",
                      grown(v, "power", "energy_j") / tokens);
        say(g, row, col, held > 0.01 ? TDM_STYLE_WARN : TDM_STYLE_PLAIN, ", held back %.0f%%",
            100 * TDM_MIN(held, 1.0));
    } else {
        say(g, row, col, TDM_STYLE_DIM, "the device does not tell");
    }
    col = say(g, row + 1, 0, TDM_STYLE_BOLD, "load  ");
    col = gauge(g, row + 1, col - 1, "SM", part(b, "sm_active"));
    col = gauge(g, row + 1, col, "occupancy", part(b, "occupancy"));
    col = gauge(g, row + 1, col, "tensor", part(b, "tensor"));
    (void)gauge(g, row + 1, col, "DRAM", part(b, "dram"));
    return row + 2;
}

static int events(const tdm_top_view_t *v, tdm_grid_t *g, int row, int max) {
    const json_t *list = part(v->audit, "entries"), *drained = part(v->changes, "drained");
    const json_t *pending = part(v->changes, "pending");
    if (json_is_object(pending) && max-- > 0)
        say(g, row++, 0, TDM_STYLE_WARN, "revision %.0f awaits its confirmation, back in %.0f s",
            number(pending, "revision"), number(pending, "left_s"));
    if (json_is_object(drained) && max-- > 0)
        say(g, row++, 0, TDM_STYLE_WARN, "drained by %s: %s", text(drained, "by"),
            text(drained, "why"));
    for (size_t i = 0; i < json_array_size(list) && max-- > 0; i++) {
        const json_t *e = json_array_get(list, i);
        say(g, row++, 0, strcmp(text(e, "result"), "ok") == 0 ? TDM_STYLE_PLAIN : TDM_STYLE_WARN,
            "%.19s %s %s by %s %s %s", text(e, "at"), text(e, "what"), text(e, "result"),
            text(e, "who"), text(e, "detail"), text(e, "why"));
    }
    if (max > 0 && json_array_size(list) == 0) say(g, row++, 0, TDM_STYLE_DIM, "no event yet");
    return row;
}

/* --- pages --------------------------------------------------------------------- */

static void keys(const tdm_top_view_t *v, tdm_grid_t *g) {
    int row = g->rows - 1;
    if (v->question[0]) {
        say(g, row, 0, TDM_STYLE_BOLD, "%s", v->question);
        return;
    }
    int col =
        say(g, row, 0, TDM_STYLE_DIM,
            "1 all 2 promises 3 lane 4 rings 5 requests 6 events p pause d drain ? help q end");
    if (v->said[0]) say(g, row - 1, 0, TDM_STYLE_BOLD, "%-*s", g->cols, v->said);
    (void)col;
}

static void all(const tdm_top_view_t *v, tdm_grid_t *g) {
    /* a higher terminal has more than one line of findings, and of events */
    int row = verdict(v, g, 1, TDM_MAX(1, g->rows / 12 - 1));
    row = promises(v, g, row, 0);
    int told = TDM_MAX(1, g->rows / 12 - 1);
    int below = 4 + 1 + 2 + 3 + told + 1; /* attention, tiles, rings, device, events, keys */
    int height = g->rows - row - 1 - below;
    row = lane(v, g, row, TDM_MAX(height, 3));
    row = attention(v, g, row);
    row = tiles(v, g, row);
    row = rings_line(v, g, row);
    row = board(v, g, device(v, g, row));
    (void)events(v, g, row, g->rows - 1 - row);
}

static void rings_page(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *list = part(v->status, "rings"), *drops = part(part(v->status, "net"), "drops");
    head(g, row++, "ring        entries    highest   capacity  times full");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *r = json_array_get(list, i);
        say(g, row++, 0, number(r, "full") > 0 ? TDM_STYLE_WARN : TDM_STYLE_PLAIN,
            "%-10s %8.0f   %8.0f   %8.0f    %8.0f", text(r, "ring"), number(r, "entries"),
            number(r, "high_watermark"), number(r, "capacity"), number(r, "full"));
    }
    row = board(v, g, device(v, g, tiles(v, g, row)));
    head(g, row++, "packets and messages dropped, by reason");
    const char *key;
    json_t *n;
    json_object_foreach((json_t *)(uintptr_t)drops, key, n)
        say(g, row++, 0, TDM_STYLE_PLAIN, "%-28s %10.0f", key, json_number_value(n));
}

static void requests_page(const tdm_top_view_t *v, tdm_grid_t *g, int row) {
    const json_t *list = part(v->requests, "requests");
    head(g, row++,
         "slowest     class        ending       total ms  ingest  queue  prefill   decode");
    for (size_t i = 0; i < json_array_size(list) && row < g->rows - 1; i++) {
        const json_t *r = json_array_get(list, i), *p = part(r, "phases");
        say(g, row++, 0, TDM_STYLE_PLAIN, "%-11s %-12s %-12s %8.1f %7.1f %6.1f %8.1f %8.1f",
            text(r, "id"), text(r, "class"), text(r, "ending"), number(r, "total_ms"),
            number(p, "ingest"), number(p, "queue"), number(p, "prefill"), number(p, "decode"));
    }
}

static void help(tdm_grid_t *g, int row) {
    static const char *const line[] = {
        "1 everything at once             4 rings, tiles and drops",
        "2 promises and all findings      5 the slowest requests, by phase",
        "3 the lane, as high as it fits   6 events: who changed what",
        "p stops the picture, and goes on",
        "d drains, or takes requests again, and asks first",
        "q ends",
        "",
        "The lane: a column is an iteration, the newest on the right. Its letter is the",
        "path that ran, its height the time it took, '=' the time limit, '!' a token",
        "later than promised.",
        "Promises, latencies, attention and rings' highest are since start; rates, tiles",
        "and the lane are now. What is wrong is said in words in the second line, of the",
        "last 15 seconds.",
    };
    head(g, row++, "help");
    for (size_t i = 0; i < TDM_COUNT_OF(line); i++)
        say(g, row + (int)i, 0, TDM_STYLE_PLAIN, "%s", line[i]);
}

void tdm_top_draw(const tdm_top_view_t *v, tdm_grid_t *g) {
    g->cols = TDM_MIN(g->cols, TDM_TOP_COL_MAX);
    g->rows = TDM_MIN(g->rows, TDM_TOP_ROW_MAX);
    memset(g->ch, ' ', sizeof g->ch);
    memset(g->style, 0, sizeof g->style);
    header(v, g, 0);
    switch (v->page) {
    case TDM_TOP_PROMISES:
        (void)promises(v, g, verdict(v, g, 1, TDM_MAX(1, g->rows - 9)), 1);
        break;
    case TDM_TOP_LANE_PAGE: (void)lane(v, g, verdict(v, g, 1, 1), g->rows - 4); break;
    case TDM_TOP_RINGS: rings_page(v, g, verdict(v, g, 1, 1)); break;
    case TDM_TOP_REQUESTS: requests_page(v, g, verdict(v, g, 1, 1)); break;
    case TDM_TOP_EVENTS: (void)events(v, g, verdict(v, g, 1, 1), g->rows - 3); break;
    case TDM_TOP_HELP: help(g, verdict(v, g, 1, 1)); break;
    default: all(v, g); break;
    }
    for (int r = 2; v->is_gone && r < g->rows; r++)
        memset(g->style[r], TDM_STYLE_DIM, sizeof g->style[r]);
    for (int c = 0; c < g->cols && g->rows > 0; c++) put(g, g->rows - 1, c, TDM_STYLE_PLAIN, ' ');
    keys(v, g);
}
