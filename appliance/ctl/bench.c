/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bench.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/bench_report.h"
#include "appliance/ctl/cell.h"
#include "appliance/ctl/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_MAX 16u
#define RATE_MAX 16u
#define WORD_MAX 64u

/* What the command line asked for. */
typedef struct words {
    tdm_ctl_options_t o;
    const char *out, *planned, *trace;
    tdm_cell_t cell[CELL_MAX];
    double rate[RATE_MAX];
    uint32_t cell_cnt, rate_cnt;
    double window, epsilon;
    char *word[WORD_MAX]; /* for replay */
    uint32_t word_cnt;
} words_t;

static int cells_read(const char *text, words_t *w) {
    for (w->cell_cnt = 0; w->cell_cnt < CELL_MAX; text++) {
        size_t sz = strcspn(text, ",");
        if (!tdm_cell_read(text, sz, &w->cell[w->cell_cnt++])) return 0;
        text += sz;
        if (!*text) return 1;
    }
    return 0;
}

/* rates_read takes rising numbers. */
static int rates_read(const char *text, words_t *w) {
    for (w->rate_cnt = 0; w->rate_cnt < RATE_MAX; text++) {
        char *end;
        double v = strtod(text, &end);
        if (end == text || !(v > 0.0 && v < 1e6) || (*end && *end != ',')) return 0;
        if (w->rate_cnt > 0 && v <= w->rate[w->rate_cnt - 1u]) return 0;
        w->rate[w->rate_cnt++] = v;
        text = end;
        if (!*text) return 1;
    }
    return 0;
}

/* own takes argv[i] and its value where they are the bench's: 1, 0 where
   not, -1 where the value is wrong. */
static int own(words_t *w, const char *a, const char *value) {
    const tdm_ctl_number_t window = {"--window", &w->window, 1, 86400};
    const struct {
        const char *name;
        const char **at;
    } text[] = {{"--out", &w->out}, {"--planned", &w->planned}};
    if (strcmp(a, "--cells") == 0) return value && cells_read(value, w) ? 1 : -1;
    if (strcmp(a, "--rates") == 0) return value && rates_read(value, w) ? 1 : -1;
    if (strcmp(a, window.name) == 0) return value && tdm_ctl_number_read(&window, value) ? 1 : -1;
    for (size_t i = 0; i < TDM_COUNT_OF(text); i++) {
        if (strcmp(a, text[i].name) != 0) continue;
        *text[i].at = value;
        return value ? 1 : -1;
    }
    return 0;
}

static tdm_status_t words_read(int argc, char **argv, words_t *w, tdm_error_t *err) {
    const tdm_ctl_number_t epsilon = {"--epsilon", &w->epsilon, 0, 1};
    char *rest[WORD_MAX];
    int rest_cnt = 0;
    *w = (words_t){.window = 75, .epsilon = 0.01};
    (void)cells_read("fused/quantile,serial/quantile", w);
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        int n = own(w, argv[i], value);
        if (n < 0) return tdm_error_set(err, TDM_ERR_INVAL, "%s: a wrong value", argv[i]);
        i += n;
        if (n > 0) continue;
        if (w->word_cnt == WORD_MAX) return tdm_error_set(err, TDM_ERR_INVAL, "too many words");
        w->word[w->word_cnt++] = argv[i];
        if (strcmp(argv[i], "--trace") == 0) w->trace = value;
        if (strcmp(argv[i], "--epsilon") == 0 && (!value || !tdm_ctl_number_read(&epsilon, value)))
            return tdm_error_set(err, TDM_ERR_INVAL, "--epsilon: a wrong value");
        /* where to ask is for both */
        if ((strcmp(argv[i], "--http") == 0 || strcmp(argv[i], "--socket") == 0 ||
             strcmp(argv[i], "--key") == 0) &&
            value) {
            rest[rest_cnt++] = argv[i];
            rest[rest_cnt++] = argv[i + 1];
            w->word[w->word_cnt++] = argv[++i];
        }
    }
    if (!w->trace) return tdm_error_set(err, TDM_ERR_INVAL, "--trace is missing");
    if (!w->out) return tdm_error_set(err, TDM_ERR_INVAL, "--out is missing");
    if (w->rate_cnt == 0) return tdm_error_set(err, TDM_ERR_INVAL, "--rates is missing");
    return tdm_ctl_options_parse(rest_cnt, rest, 0, &w->o, err);
}

/* --- the run ----------------------------------------------------------------------- */

static void say(const json_t *cell) {
    const json_t *said = json_object_get(cell, "replay");
    const json_t *gap = json_object_get(said, "tbt_ms"), *ttft = json_object_get(said, "ttft_ms");
    fprintf(stderr,
            "%s/%s at %.3f/s: %s%s, gaps over %.3f %%, gap p99 %.1f ms, TTFT p50 %.0f p90 %.0f ms, "
            "fused %.0f of %.0f\n",
            json_string_value(json_object_get(cell, "path")),
            json_string_value(json_object_get(cell, "policy")),
            json_number_value(json_object_get(cell, "rate")),
            json_is_true(json_object_get(cell, "kept")) ? "kept" : "missed by ",
            json_string_value(json_object_get(cell, "missed")),
            100.0 * json_number_value(json_object_get(said, "share_over")),
            json_number_value(json_object_get(gap, "p99")),
            json_number_value(json_object_get(ttft, "p50")),
            json_number_value(json_object_get(ttft, "p90")),
            json_number_value(json_object_get(json_object_get(cell, "hybrid"), "fused")),
            json_number_value(json_object_get(json_object_get(cell, "hybrid"), "fused")) +
                json_number_value(json_object_get(json_object_get(cell, "hybrid"), "fallback")));
}

static tdm_cell_window_t window_of(words_t *w, double rate, uint32_t text_seed) {
    return (tdm_cell_window_t){.rate = rate,
                               .epsilon = w->epsilon,
                               .seconds = w->window,
                               .text_seed = text_seed,
                               .word = w->word,
                               .word_cnt = w->word_cnt};
}

/* run_cells fills an array with every cell at every rate; before them goes a
   window that nobody sees, as memory is touched for the first time in it. */
static tdm_status_t run_cells(words_t *w, long long revision, json_t *cells, tdm_error_t *err) {
    tdm_cell_window_t unseen = window_of(w, w->rate[0], 0);
    unseen.seconds = TDM_MAX(w->window / 8.0, 1.0);
    tdm_status_t st = tdm_cell_apply(&w->o, &w->cell[0], revision, err);
    json_t *first = st == TDM_OK ? tdm_cell_run(&w->o, &w->cell[0], &unseen, err) : NULL;
    if (!first) return TDM_ERR_CLOSED;
    json_decref(first);
    for (uint32_t i = 0; i < w->cell_cnt && st == TDM_OK; i++) {
        st = tdm_cell_apply(&w->o, &w->cell[i], revision, err);
        for (uint32_t k = 0; k < w->rate_cnt && st == TDM_OK; k++) {
            tdm_cell_window_t window = window_of(w, w->rate[k], 1 + i * RATE_MAX + k);
            json_t *cell = tdm_cell_run(&w->o, &w->cell[i], &window, err);
            if (!cell) return TDM_ERR_CLOSED;
            say(cell);
            (void)json_array_append_new(cells, cell);
        }
    }
    return st;
}

/* facts_of asks what is served, and on what. */
static json_t *facts_of(const tdm_ctl_options_t *o, tdm_error_t *err) {
    tdm_page_t page;
    if (tdm_page_get(o, "/status", &page, err) != TDM_OK) return NULL;
    json_t *status = page.text ? json_loads(page.text, 0, NULL) : NULL;
    json_t *facts = json_incref(json_object_get(status, "tandem"));
    json_decref(status);
    free(page.text);
    if (!facts) (void)tdm_error_set(err, TDM_ERR_CORRUPT, "/status is not the appliance's");
    return facts;
}

static tdm_status_t write_out(const words_t *w, const json_t *all, tdm_error_t *err) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s.json", w->out);
    if (json_dump_file(all, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
        return tdm_error_set(err, TDM_ERR_IO, "%s cannot be written", path);
    (void)snprintf(path, sizeof path, "%s.html", w->out);
    FILE *f = fopen(path, "we");
    if (f) tdm_bench_report(f, all);
    int ok = f && !ferror(f);
    if (f) ok = fclose(f) == 0 && ok;
    return ok ? TDM_OK : tdm_error_set(err, TDM_ERR_IO, "%s: %s", path, strerror(errno));
}

static json_t *planned_load(const char *path, tdm_error_t *err) {
    json_error_t je;
    if (!path) return json_null();
    json_t *j = json_load_file(path, 0, &je);
    if (!j) (void)tdm_error_set(err, TDM_ERR_CORRUPT, "%s line %d: %s", path, je.line, je.text);
    return j;
}

int tdm_ctl_bench(int argc, char **argv) {
    static words_t w;
    tdm_error_t err = {0}, back = {0};
    long long revision = 0;
    if (argc < 3 || strcmp(argv[2], "serve") != 0 || words_read(argc, argv, &w, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: bench: %s; see tandemctl help\n",
                err.text[0] ? err.text : "bench serve");
        return TDM_EXIT_USAGE;
    }
    json_t *planned = planned_load(w.planned, &err), *facts = planned ? facts_of(&w.o, &err) : NULL;
    if (!facts || tdm_cell_revision(&w.o, &revision, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: bench: %s\n", err.text);
        json_decref(facts);
        json_decref(planned);
        return planned ? TDM_EXIT_UNREACHABLE : TDM_EXIT_FAILED;
    }
    json_t *cells = json_array();
    tdm_status_t st = run_cells(&w, revision, cells, &err);
    if (tdm_cell_back(&w.o, revision, &back) != TDM_OK)
        fprintf(stderr, "tandemctl: bench: %s\n", back.text);
    json_t *all =
        json_pack("{s:o, s:s, s:f, s:f, s:o, s:o}", "appliance", facts, "trace", w.trace,
                  "window_s", w.window, "epsilon", w.epsilon, "cells", cells, "planned", planned);
    if (all) tdm_bench_conclude(all);
    tdm_status_t wrote = all ? write_out(&w, all, st == TDM_OK ? &err : &back) : TDM_ERR_NOMEM;
    if (st != TDM_OK || wrote != TDM_OK)
        fprintf(stderr, "tandemctl: bench: %s\n", st != TDM_OK ? err.text : back.text);
    if (all) tdm_bench_say(stdout, all);
    json_decref(all);
    return st == TDM_OK && wrote == TDM_OK ? 0 : TDM_EXIT_FAILED;
}
