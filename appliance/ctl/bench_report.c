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

/* What a way to serve carries: the highest rate up to which every window was
   kept, and the lowest that was not. */
typedef struct carried {
    double rate, missed_at; /* 0: none */
    int is_open;            /* it may carry more */
    int is_seen;            /* nothing that this rests on is simulated */
} carried_t;

/* carried reads the windows of a way to serve; rates rise.  A simulated miss
   below a rate that was measured and kept does not count, and one above it
   does not close what was measured. */
static carried_t carried(const json_t *cells, const json_t *like) {
    double floor = measured(cells, like);
    carried_t c = {.is_open = 1, .is_seen = 1};
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *w = json_array_get(cells, i);
        double rate = bench_number(w, "rate", NULL, NULL);
        if (!bench_is_like(w, like) || (bench_is_simulated(w) && rate < floor)) continue;
        if (!json_is_true(json_object_get(w, "kept"))) {
            c.is_open = bench_is_simulated(w) && c.rate > 0.0 && c.rate == floor;
            if (!c.is_open) c.missed_at = rate;
            if (!c.is_open && bench_is_simulated(w)) c.is_seen = 0;
            break;
        }
        c.rate = rate;
        c.is_seen = !bench_is_simulated(w);
    }
    return c;
}

/* is_closed: its rate is a capacity that another may be divided by. */
static int is_closed(const carried_t *c) {
    return c->rate > 0.0 && !c->is_open;
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

/* best_static gives the fixed chunk under which serial carries most, NULL
   where that is open of one of them. */
static const json_t *best_static(const json_t *cells, carried_t *best) {
    const json_t *found = NULL;
    *best = (carried_t){0};
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *w = json_array_get(cells, i);
        if (strcmp(bench_text(w, "path"), "serial") != 0 ||
            strncmp(bench_text(w, "policy"), "static:", 7) != 0)
            continue;
        carried_t c = carried(cells, w);
        if (c.rate > 0.0 && c.is_open) return NULL;
        if (c.rate <= best->rate) continue;
        *best = c;
        found = w;
    }
    return found;
}

static json_t *number_or_null(int is_there, double v) {
    return is_there ? json_real(v) : json_null();
}

/* beside finds the windows of a way to serve and of serial where attention is
   compared: of the rates that both keep the highest of which both were
   measured, else of which neither was.  NULL: none. */
static const json_t *beside(const json_t *cells, const json_t *like, double most,
                            const json_t **serial) {
    const json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *a = json_array_get(cells, i);
        double rate = bench_number(a, "rate", NULL, NULL);
        if (!bench_is_like(a, like) || rate > most) continue;
        const json_t *b = window_at(cells, "serial", bench_text(like, "policy"), rate);
        if (!b || bench_is_simulated(a) != bench_is_simulated(b)) continue;
        if (found && !bench_is_simulated(found) && bench_is_simulated(a)) continue;
        found = a;
        *serial = b;
    }
    return found;
}

/* put_over puts a row's gain over what another carries, and between what it
   must lie, as each is known between two rates. */
static void put_over(json_t *row, const char *name, const carried_t *own, const carried_t *base,
                     int is_there) {
    char span[32];
    int has = is_there && is_closed(own) && is_closed(base) && own->is_seen == base->is_seen;
    (void)snprintf(span, sizeof span, "%.20s_span", name);
    (void)json_object_set_new(row, name, number_or_null(has, has ? own->rate / base->rate : 0.0));
    (void)json_object_set_new(
        row, span,
        has ? json_pack("[f,f]", own->rate / base->missed_at, own->missed_at / base->rate)
            : json_null());
}

/* compare sets a cell beside serial: under the same policy, and under the
   fixed chunk that serves it best. */
static void compare(json_t *row, const json_t *cells) {
    const char *policy = bench_text(row, "policy");
    json_t *serial = json_pack("{s:s, s:s}", "path", "serial", "policy", policy);
    carried_t own = carried(cells, row), base = carried(cells, serial), fixed;
    json_decref(serial);
    const json_t *b, *a = beside(cells, row, TDM_MIN(own.rate, base.rate), &b);
    int is_there = a && strcmp(bench_text(row, "path"), "serial") != 0;
    double share = is_there ? bench_number(b, "attention_share", NULL, NULL) : 0.0;
    double fast = is_there ? bench_number(a, "attention_s", NULL, NULL) : 0.0;
    double speedup = fast > 0.0 ? bench_number(b, "attention_s", NULL, NULL) / fast : 0.0;
    if (is_there && bench_is_simulated(a)) { /* the simulator knows both of one run */
        share = bench_number(a, "serial_share", NULL, NULL);
        speedup = bench_number(a, "attention_speedup", NULL, NULL);
    }
    int has_bound = speedup > 0.0;
    (void)json_object_set_new(row, "rate", json_real(own.rate));
    (void)json_object_set_new(row, "missed_at", number_or_null(own.missed_at > 0.0, own.missed_at));
    (void)json_object_set_new(row, "is_open", json_boolean(own.is_open));
    (void)json_object_set_new(row, "is_seen", json_boolean(own.is_seen));
    put_over(row, "over_serial", &own, &base, is_there);
    (void)json_object_set_new(row, "attention_share", number_or_null(is_there, share));
    (void)json_object_set_new(row, "attention_speedup", number_or_null(has_bound, speedup));
    (void)json_object_set_new(
        row, "bound",
        number_or_null(has_bound, has_bound ? 1.0 / (1.0 - share + share / speedup) : 0.0));
    const json_t *best = best_static(cells, &fixed);
    put_over(row, "over_static", &own, &fixed, best && !bench_is_like(best, row));
    (void)json_object_set_new(row, "static",
                              best ? json_string(bench_text(best, "policy")) : json_null());
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

const char *bench_bound(const json_t *row, double *rate) {
    double missed = bench_number(row, "missed_at", NULL, NULL);
    *rate = bench_number(row, "rate", NULL, NULL);
    if (json_is_true(json_object_get(row, "is_open"))) return "at least ";
    if (*rate > 0.0 || !(missed > 0.0)) return "";
    *rate = missed;
    return "less than ";
}

/* put_over_word writes a gain, with between what it lies. */
static void put_over_word(FILE *f, const json_t *row, const char *name, const char *span,
                          const char *base) {
    const json_t *two = json_object_get(row, span);
    if (!json_is_number(json_object_get(row, name))) return;
    fprintf(f, ", %.3f x %s", bench_number(row, name, NULL, NULL), base);
    if (json_array_size(two) == 2)
        fprintf(f, " (between %.3f and %.3f)", json_number_value(json_array_get(two, 0)),
                json_number_value(json_array_get(two, 1)));
}

void bench_put_gain(FILE *f, const json_t *row) {
    char fixed[40];
    (void)snprintf(fixed, sizeof fixed, "serial/%.23s", bench_text(row, "static"));
    put_over_word(f, row, "over_serial", "over_serial_span", "serial");
    if (json_is_number(json_object_get(row, "bound")))
        fprintf(f,
                " (attention is %.1f %% of serial's time and ran %.3f x as fast, which allows "
                "%.3f)",
                100.0 * bench_number(row, "attention_share", NULL, NULL),
                bench_number(row, "attention_speedup", NULL, NULL),
                bench_number(row, "bound", NULL, NULL));
    else if (json_is_number(json_object_get(row, "over_serial")))
        fprintf(f, " (what attention allows is not told)");
    put_over_word(f, row, "over_static", "over_static_span", fixed);
}

void tdm_bench_say(FILE *f, const json_t *all) {
    const json_t *rows = json_object_get(all, "carries");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double rate;
        const char *bound = bench_bound(row, &rate);
        fprintf(f, "%s/%s carries %s%.3f requests/s", bench_text(row, "path"),
                bench_text(row, "policy"), bound, rate);
        bench_put_gain(f, row);
        if (bench_number(row, "simulated", NULL, NULL) > 0.0)
            fprintf(f, "; %.0f of its cells are simulated, %.0f measured",
                    bench_number(row, "simulated", NULL, NULL),
                    bench_number(row, "measured", NULL, NULL));
        fputc('\n', f);
    }
}
