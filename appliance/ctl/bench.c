/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/bench.h"

#include "appliance/abi/limits.h"
#include "appliance/base/clock.h"
#include "appliance/base/sum.h"
#include "appliance/ctl/bench_file.h"
#include "appliance/ctl/bench_report.h"
#include "appliance/ctl/cell.h"
#include "appliance/ctl/leave.h"
#include "appliance/ctl/page.h"
#include "appliance/ctl/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CELL_MAX 16u
#define RATE_MAX 16u
#define WORD_MAX 64u
#define REST_S   4.0 /* between two windows, and the slowest replay's end */

/* What the command line asked for. */
typedef struct words {
    tdm_ctl_options_t o;
    const char *out, *planned, *trace, *only;
    tdm_cell_t cell[CELL_MAX];
    double rate[RATE_MAX];
    uint32_t warm[RATE_MAX]; /* decodes that run when the first request of a rate arrives */
    uint32_t cell_cnt, rate_cnt;
    double window, epsilon;
    double seconds;       /* no window begins that would end after so many; 0: no end */
    double first;         /* seconds of the window before all others; 0: none */
    char *word[WORD_MAX]; /* for replay */
    uint32_t word_cnt;
    json_t *promise; /* those of them that every window of a file shares */
    json_t *under;   /* what a window says it ran under, beside the build */
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

/* rates_read takes RATE[@WARM], the one that matters most first. */
static int rates_read(const char *text, words_t *w) {
    for (w->rate_cnt = 0; w->rate_cnt < RATE_MAX; text++) {
        double v;
        uint32_t warm;
        const char *end = tdm_ctl_rate_read(text, &v, &warm);
        if (!end) return 0;
        for (uint32_t i = 0; i < w->rate_cnt; i++)
            if (tdm_bench_is_rate(v, w->rate[i])) return 0;
        w->warm[w->rate_cnt] = warm;
        w->rate[w->rate_cnt++] = v;
        text = end;
        if (!*text) return 1;
    }
    return 0;
}

/* is_asked says whether --only names a window, as PATH/POLICY or PATH/POLICY@RATE. */
static int is_asked(const words_t *w, const tdm_cell_t *cell, double rate) {
    char name[64];
    int sz = snprintf(name, sizeof name, "%s/%s", cell->path, cell->policy);
    const char *at = w->only;
    if (!at) return 1;
    for (; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, name, (size_t)sz) != 0) continue;
        char after = at[sz];
        if (after == 0 || after == ',' || (after == '@' && strtod(at + sz + 1, NULL) == rate))
            return 1;
    }
    return 0;
}

/* note_read takes KEY=VALUE. */
static int note_read(const char *text, json_t *into) {
    char key[32];
    size_t sz = strcspn(text, "=");
    if (sz == 0 || sz >= sizeof key || !text[sz]) return 0;
    (void)snprintf(key, sizeof key, "%.*s", (int)sz, text);
    return json_object_set_new(into, key, json_string(text + sz + 1)) == 0;
}

static int under_read(const char *text, words_t *w) {
    return note_read(text, w->under);
}

/* list_read takes a value that is a list or a pair: 1, 0 where name is of none,
   -1 with err where the value is wrong. */
static int list_read(words_t *w, const char *name, const char *value, tdm_error_t *err) {
    static const struct {
        const char *name;
        int (*read)(const char *text, words_t *w);
        const char *what;
    } list[] = {
        {"--cells", cells_read,
         "up to 16 PATH/POLICY, of fused, streams and serial, and of quantile, margin, "
         "static:64 or fifo:64 to 8192"},
        {"--rates", rates_read,
         "up to 16 RATE[@WARM], each once, above 0 and below 1e6, WARM a whole number to 256"},
        {"--note", under_read, "KEY=VALUE, the key shorter than 32"}};
    _Static_assert(TDM_SEQ_MAX == 256, "as it is told");
    for (size_t i = 0; i < TDM_COUNT_OF(list); i++) {
        if (strcmp(name, list[i].name) != 0) continue;
        if (value && list[i].read(value, w)) return 1;
        if (value)
            (void)tdm_error_set(err, TDM_ERR_INVAL, "%s takes %s, not \"%.60s\"", name,
                                list[i].what, value);
        else
            (void)tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", name);
        return -1;
    }
    return 0;
}

/* own takes argv[i] and its value where they are the bench's: 1, 0 where
   not, -1 with err where the value is wrong. */
static int own(words_t *w, const char *a, const char *value, tdm_error_t *err) {
    const tdm_ctl_number_t number[] = {{"--window", &w->window, 1, 86400, 0},
                                       {"--seconds", &w->seconds, 1, 1e6, 0},
                                       {"--first", &w->first, 0, 86400, 0}};
    const struct {
        const char *name;
        const char **at;
    } text[] = {{"--out", &w->out}, {"--planned", &w->planned}, {"--only", &w->only}};
    for (size_t i = 0; i < TDM_COUNT_OF(number); i++)
        if (strcmp(a, number[i].name) == 0)
            return tdm_ctl_number_read(&number[i], value, err) == TDM_OK ? 1 : -1;
    for (size_t i = 0; i < TDM_COUNT_OF(text); i++) {
        if (strcmp(a, text[i].name) != 0) continue;
        *text[i].at = value;
        if (value) return 1;
        (void)tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", a);
        return -1;
    }
    return list_read(w, a, value, err);
}

/* is_bench_s: what each window's replay is told by the bench alone; typed, it
   would stand behind that and undo it. */
static int is_bench_s(const char *word) {
    static const char *const told[] = {"--rate",      "--load",    "--capacity", "--duration",
                                       "--text-seed", "--records", "--cut",      "--quiet",
                                       "--json",      "-o"};
    for (size_t i = 0; i < TDM_COUNT_OF(told); i++)
        if (strcmp(word, told[i]) == 0) return 1;
    return 0;
}

/* only_fit: each that --only names is a window of this bench. */
static tdm_status_t only_fit(const words_t *w, tdm_error_t *err) {
    for (const char *at = w->only; at && *at; at += strcspn(at, ","), at += *at == ',') {
        words_t one = {0};
        char name[64];
        int is_there = 0;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        one.only = name;
        for (uint32_t i = 0; i < w->cell_cnt; i++)
            for (uint32_t k = 0; k < w->rate_cnt; k++)
                is_there |= is_asked(&one, &w->cell[i], w->rate[k]);
        if (!is_there)
            return tdm_error_set(err, TDM_ERR_INVAL, "--only: %s is none of --cells, at --rates",
                                 name);
    }
    return TDM_OK;
}

/* replay_fit refuses now what the first window's replay would. */
static tdm_status_t replay_fit(words_t *w, tdm_error_t *err) {
    char *argv[WORD_MAX + 2];
    for (uint32_t i = 0; i < w->word_cnt; i++) argv[2 + i] = w->word[i];
    return tdm_ctl_replay_fit((int)w->word_cnt + 2, argv, err);
}

static tdm_status_t words_read(int argc, char **argv, words_t *w, tdm_error_t *err) {
    const tdm_ctl_number_t epsilon = {"--epsilon", &w->epsilon, 0, 1, 0};
    char *rest[WORD_MAX];
    int rest_cnt = 0;
    *w = (words_t){.window = 75, .epsilon = 0.01, .first = -1};
    w->promise = json_array();
    w->under = json_object();
    (void)cells_read("fused/quantile,serial/quantile", w);
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        int n = own(w, argv[i], value, err);
        if (n < 0) return err->status;
        if (is_bench_s(argv[i])) return tdm_ctl_no_use(argv[i], err);
        i += n;
        if (n > 0) continue;
        if (w->word_cnt + 2u > WORD_MAX) /* with its value */
            return tdm_error_set(err, TDM_ERR_INVAL, "too many words");
        if (strcmp(argv[i], "--socket") == 0 && value) { /* a replay asks at a door */
            rest[rest_cnt++] = argv[i];
            rest[rest_cnt++] = argv[++i];
            continue;
        }
        w->word[w->word_cnt++] = argv[i];
        if (strcmp(argv[i], "--trace") == 0) w->trace = value;
        if (strcmp(argv[i], "--epsilon") == 0 &&
            tdm_ctl_number_read(&epsilon, value, err) != TDM_OK)
            return err->status;
        /* where to ask is for both */
        if ((strcmp(argv[i], "--http") == 0 || strcmp(argv[i], "--key") == 0) && value) {
            rest[rest_cnt++] = argv[i];
            rest[rest_cnt++] = argv[i + 1];
            w->word[w->word_cnt++] = argv[++i];
        } else if (strcmp(argv[i], "--trace") == 0 && value) {
            w->word[w->word_cnt++] = argv[++i]; /* a place on this machine */
        } else {
            (void)json_array_append_new(w->promise, json_string(argv[i]));
        }
    }
    tdm_status_t st = tdm_ctl_options_parse(rest_cnt, rest, 0, TDM_CTL_USE_PAGE, &w->o, err);
    if (st == TDM_OK) st = replay_fit(w, err);
    if (st != TDM_OK) return st;
    if (w->first < 0.0) w->first = TDM_MAX(w->window / 8.0, 1.0);
    if (!w->out) return tdm_error_set(err, TDM_ERR_INVAL, "--out is missing");
    if (w->rate_cnt == 0) return tdm_error_set(err, TDM_ERR_INVAL, "--rates is missing");
    return only_fit(w, err);
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

/* text_seed differs from window to window and is the same in every sitting. */
static uint32_t text_seed(const tdm_cell_t *cell, double rate) {
    uint64_t sum = tdm_sum_bytes(TDM_SUM_FIRST, cell->path, strlen(cell->path) + 1u);
    sum = tdm_sum_bytes(sum, cell->policy, strlen(cell->policy) + 1u);
    return (uint32_t)(tdm_sum_bytes(sum, &rate, sizeof rate) >> 33) + 1u;
}

static tdm_cell_window_t window_of(words_t *w, uint32_t k, uint32_t text_seed) {
    return (tdm_cell_window_t){.rate = w->rate[k],
                               .warm = w->warm[k],
                               .epsilon = w->epsilon,
                               .seconds = w->window,
                               .text_seed = text_seed,
                               .word = w->word,
                               .word_cnt = w->word_cnt};
}

/* unseen is a window before all others, as memory is touched for the first
   time in it. */
static tdm_status_t unseen(words_t *w, long long *base, const tdm_cell_t *cell, tdm_error_t *err) {
    tdm_cell_window_t window = window_of(w, 0, 0);
    window.seconds = w->first;
    tdm_status_t st = tdm_cell_apply(&w->o, cell, window.seconds, base, err);
    json_t *first = st == TDM_OK ? tdm_cell_run(&w->o, cell, &window, err) : NULL;
    json_decref(first);
    return first ? TDM_OK : TDM_ERR_CLOSED;
}

/* one runs a window and files it. */
static tdm_status_t one(words_t *w, long long *base, const tdm_cell_t *cell, uint32_t k,
                        json_t *all, tdm_error_t *err) {
    tdm_cell_window_t window = window_of(w, k, text_seed(cell, w->rate[k]));
    tdm_status_t st = tdm_cell_apply(&w->o, cell, window.seconds, base, err);
    json_t *got = st == TDM_OK ? tdm_cell_run(&w->o, cell, &window, err) : NULL;
    if (!got) return TDM_ERR_CLOSED;
    say(got);
    (void)json_object_set_new(got, "under", json_copy(w->under));
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) && strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        (void)json_object_set_new(got, "ended", json_string(when));
    tdm_bench_add(all, got);
    tdm_bench_under(all);
    return tdm_bench_save(w->out, all, err);
}

/* run_cells runs what is asked for and not there yet: every cell at the first
   rate, then at the second, so that wherever a sitting ends whole comparisons
   are there.  left counts what time did not allow. */
static tdm_status_t run_cells(words_t *w, long long *base, json_t *all, uint32_t *left,
                              tdm_error_t *err) {
    int64_t began_ns = tdm_clock_now_ns();
    int is_first = 1;
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < w->rate_cnt; k++)
        for (uint32_t i = 0; i < w->cell_cnt && st == TDM_OK; i++) {
            const tdm_cell_t *cell = &w->cell[i];
            if (!is_asked(w, cell, w->rate[k]) ||
                tdm_bench_has(all, cell->path, cell->policy, w->rate[k]))
                continue;
            double spent = (double)(tdm_clock_now_ns() - began_ns) / 1e9;
            if (w->seconds > 0.0 &&
                spent + w->window + (is_first ? w->first : 0.0) + REST_S > w->seconds) {
                ++*left;
                continue;
            }
            if (is_first && w->first > 0.0) st = unseen(w, base, cell, err);
            is_first = 0;
            if (st == TDM_OK) st = one(w, base, cell, k, all, err);
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

static json_t *planned_load(const char *path, tdm_error_t *err) {
    json_error_t je;
    if (!path) return json_null();
    json_t *j = json_load_file(path, 0, &je);
    if (!j) (void)tdm_error_set(err, TDM_ERR_CORRUPT, "%s line %d: %s", path, je.line, je.text);
    return j;
}

/* name_of leaves the folders of a path out. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* begin gives the file that the windows go to: the one that is there, where it
   is of this build and these promises, or a new one. */
static tdm_status_t begin(words_t *w, json_t **all, tdm_error_t *err) {
    char path[4096], sum[24];
    json_t *facts = facts_of(&w->o, err), *there = NULL;
    if (!facts) return TDM_ERR_CLOSED;
    (void)snprintf(sum, sizeof sum, "%016llx",
                   (unsigned long long)tdm_sum_file(TDM_SUM_FIRST, w->trace));
    *all = json_pack("{s:o, s:s, s:s, s:f, s:f, s:O, s:[], s:[], s:n}", "appliance", facts, "trace",
                     name_of(w->trace), "trace_sum", sum, "window_s", w->window, "epsilon",
                     w->epsilon, "words", w->promise, "order", "cells", "planned");
    if (!*all) return tdm_error_set(err, TDM_ERR_NOMEM, "no memory");
    for (uint32_t i = 0; i < w->cell_cnt; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s/%s", w->cell[i].path, w->cell[i].policy);
        (void)json_array_append_new(json_object_get(*all, "order"), json_string(name));
    }
    (void)snprintf(path, sizeof path, "%s.json", w->out);
    tdm_status_t st = tdm_bench_load(path, &there, err);
    if (st == TDM_ERR_NOT_FOUND) return TDM_OK;
    if (st == TDM_OK) st = tdm_bench_is_like(*all, there, err);
    if (st != TDM_OK) {
        json_decref(there);
        return st;
    }
    json_decref(*all);
    *all = there;
    return TDM_OK;
}

static int failed(const tdm_error_t *err, int code) {
    fprintf(stderr, "tandemctl: bench: %s\n", err->text);
    return code;
}

static int serve(words_t *w, json_t *all, long long base) {
    tdm_error_t err = {0}, back = {0};
    uint32_t left = 0;
    json_t *planned = planned_load(w->planned, &err);
    if (!planned) return failed(&err, TDM_EXIT_FAILED);
    if (w->planned) (void)json_object_set(all, "planned", planned);
    json_decref(planned);
    tdm_status_t st = run_cells(w, &base, all, &left, &err);
    if (tdm_cell_back(&w->o, &base, &back) != TDM_OK) (void)failed(&back, 0);
    if (st != TDM_OK) (void)failed(&err, 0);
    tdm_status_t saved = tdm_bench_save(w->out, all, &back);
    if (saved != TDM_OK) (void)failed(&back, 0);
    tdm_bench_say(stdout, all);
    if (left > 0) printf("%u windows are left for another sitting\n", left);
    return st == TDM_OK && saved == TDM_OK ? 0 : TDM_EXIT_FAILED;
}

static int bench_serve(int argc, char **argv) {
    static words_t w;
    tdm_error_t err = {0};
    json_t *all = NULL;
    long long base = 0;
    int rc;
    if (words_read(argc, argv, &w, &err) != TDM_OK) {
        rc = tdm_ctl_usage("bench serve", &err);
    } else {
        tdm_leave_heed(); /* the appliance is as before when a signal has its way */
        tdm_status_t st = begin(&w, &all, &err);
        if (st == TDM_OK) st = tdm_cell_begin(&w.o, &base, &err);
        if (st == TDM_OK)
            rc = serve(&w, all, base);
        else
            rc = failed(&err, st == TDM_ERR_CLOSED ? TDM_EXIT_UNREACHABLE : TDM_EXIT_FAILED);
    }
    json_decref(all);
    json_decref(w.promise);
    json_decref(w.under);
    tdm_leave();
    return rc;
}

/* --- merge ---------------------------------------------------------------------------- */

/* add_file merges a bench; of another build than the first, the cells in keep. */
static tdm_status_t add_file(const char *path, const char *keep, json_t **all, tdm_error_t *err) {
    json_t *from = NULL;
    uint32_t came = 0;
    tdm_status_t st = tdm_bench_load(path, &from, err);
    if (st != TDM_OK) return st;
    if (*all) {
        st = tdm_bench_merge(*all, from, keep, &came, err);
    } else {
        *all = json_incref(from);
        tdm_bench_under(*all);
        came = (uint32_t)json_array_size(json_object_get(from, "cells"));
    }
    if (st == TDM_OK) printf("%s: %u windows\n", path, came);
    json_decref(from);
    return st;
}

/* of_plan gives a bench without a window, to be filled by a plan alone. */
static json_t *of_plan(const json_t *plan) {
    return json_pack("{s:{s:s, s:s, s:s}, s:O?, s:s, s:n, s:O?, s:[], s:[], s:[], s:n}",
                     "appliance", "build", "", "model", "no appliance", "backend", "simulated",
                     "trace", json_object_get(plan, "trace"), "trace_sum", "", "window_s",
                     "epsilon", json_object_get(plan, "epsilon"), "words", "order", "cells",
                     "planned");
}

static int bench_merge(int argc, char **argv) {
    const char *out = NULL, *plan_path = NULL, *keep = NULL, *wrong = NULL;
    json_t *all = NULL, *plan = NULL, *made = json_object();
    tdm_error_t err = {0};
    tdm_status_t st = TDM_OK;
    for (int i = 3; i < argc && st == TDM_OK && !wrong; i++) {
        const char **value = strcmp(argv[i], "--out") == 0    ? &out
                             : strcmp(argv[i], "--plan") == 0 ? &plan_path
                             : strcmp(argv[i], "--keep") == 0 ? &keep
                                                              : NULL;
        if (value && i + 1 < argc)
            *value = argv[++i];
        else if (strcmp(argv[i], "--note") == 0 && i + 1 < argc && note_read(argv[i + 1], made))
            i++;
        else if (argv[i][0] == '-' || value)
            wrong = argv[i];
        else
            st = add_file(argv[i], keep, &all, &err);
    }
    if (st == TDM_OK && !wrong && plan_path && !(plan = planned_load(plan_path, &err)))
        st = TDM_ERR_CORRUPT;
    if (st == TDM_OK && !all && plan) all = of_plan(plan);
    if (st == TDM_OK && (wrong || !out || !all)) {
        st = wrong ? tdm_ctl_no_use(wrong, &err)
                   : tdm_error_set(&err, TDM_ERR_INVAL, "--out BASE and files");
        json_decref(plan);
        json_decref(made);
        json_decref(all);
        return tdm_ctl_usage("bench merge", &err);
    }
    if (st == TDM_OK && plan) {
        tdm_bench_simulate(all, plan);
        (void)json_object_set(all, "planned", plan);
    }
    if (st == TDM_OK && json_object_size(made) > 0) {
        json_t *was = json_object_get(all, "made");
        if (json_is_object(was))
            (void)json_object_update(was, made);
        else
            (void)json_object_set(all, "made", made);
    }
    if (st == TDM_OK) st = tdm_bench_save(out, all, &err);
    if (st == TDM_OK) tdm_bench_say(stdout, all);
    json_decref(made);
    json_decref(plan);
    json_decref(all);
    return st == TDM_OK ? 0 : failed(&err, TDM_EXIT_FAILED);
}

int tdm_ctl_bench(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[2], "serve") == 0) return bench_serve(argc, argv);
    if (argc > 2 && strcmp(argv[2], "merge") == 0) return bench_merge(argc, argv);
    fprintf(stderr, "tandemctl: bench: serve or merge\n");
    return TDM_EXIT_HELP;
}
