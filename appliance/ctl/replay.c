/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/replay.h"

#include "appliance/abi/limits.h"
#include "appliance/base/clock.h"
#include "appliance/ctl/leave.h"
#include "appliance/ctl/wire.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LEAD_NS     (200 * TDM_NS_PER_MS) /* from the last preparation to the first arrival */
#define TICK_NS     (200 * TDM_NS_PER_MS) /* progress and patience */
#define WINDOW_FULL 0.9                   /* share of a window that a list must reach into */
#define LINE_NS     (10 * TDM_NS_PER_S)   /* of progress where no terminal is: what a log bears */

/* What the command line asked for. */
typedef struct words {
    tdm_ctl_options_t o;
    const char *trace, *records;
    int is_http1, is_plain, is_quiet, is_cut, is_spread;
    double requests, duration, rate, load, capacity, cv, scale, context, vocab, connections,
        open_max, ttft_ms, gap_ms, epsilon, warm, text_seed;
} words_t;

typedef struct replay {
    const words_t *w;
    tdm_workload_t list;
    tdm_workload_t warm; /* decodes that run when the first request arrives */
    tdm_tally_t tally;
    tdm_tally_t warm_tally; /* of them, for nobody */
    tdm_tally_frame_t frame;
    tdm_job_form_t form;
    char model[128];
    tdm_wire_t *wire;
    tdm_job_t *job;  /* [slot_cnt], and behind them one for each of warm */
    uint32_t *spare; /* [spare_cnt] indices of jobs that are not open */
    uint32_t slot_cnt, spare_cnt, next;
    char *body;
    size_t body_sz;
    int64_t start_ns, tick_ns, line_ns;
    uint32_t look_cnt[2]; /* at the queue, in the window's first and last quarter */
    FILE *records;
} replay_t;

static replay_t self; /* jobs find their replay here: there is one in a process */

/* --- words ------------------------------------------------------------------ */

/* own takes argv[i], with its value, where it is one of replay's: the words
   taken, 0 where it is not, -1 with err where its value is wrong. */
static int own(words_t *w, const char *a, const char *value, tdm_error_t *err) {
    const tdm_ctl_number_t number[] = {{"--requests", &w->requests, 1, TDM_WORKLOAD_ROW_MAX, 1},
                                       {"--duration", &w->duration, 0.001, 1e7, 0},
                                       {"--rate", &w->rate, 1e-6, 1e6, 0},
                                       {"--load", &w->load, 1e-3, 1e3, 0},
                                       {"--capacity", &w->capacity, 1e-6, 1e6, 0},
                                       {"--cv", &w->cv, 0.05, 50, 0},
                                       {"--scale", &w->scale, 1e-6, 1e3, 0},
                                       {"--context", &w->context, 2, 1 << 20, 1},
                                       {"--vocab", &w->vocab, 2, 1 << 20, 1},
                                       {"--connections", &w->connections, 1, 256, 1},
                                       {"--open-max", &w->open_max, 1, 16384, 1},
                                       {"--warm", &w->warm, 0, TDM_SEQ_MAX, 1},
                                       {"--text-seed", &w->text_seed, 0, 1e15, 1},
                                       {"--ttft-ms", &w->ttft_ms, 0.001, 1e7, 0},
                                       {"--gap-ms", &w->gap_ms, 0.001, 1e7, 0},
                                       {"--epsilon", &w->epsilon, 0, 1, 0}};
    if (strcmp(a, "--plain") == 0) return w->is_plain = 1;
    if (strcmp(a, "--quiet") == 0) return w->is_quiet = 1;
    if (strcmp(a, "--cut") == 0) return w->is_cut = 1;
    if (strcmp(a, "--spread") == 0) return w->is_spread = 1;
    for (size_t k = 0; k < TDM_COUNT_OF(number); k++)
        if (strcmp(number[k].name, a) == 0)
            return tdm_ctl_number_read(&number[k], value, err) == TDM_OK ? 2 : -1;
    if (strcmp(a, "--trace") == 0)
        w->trace = value;
    else if (strcmp(a, "--records") == 0)
        w->records = value;
    else if (strcmp(a, "--door") != 0)
        return 0;
    if (!value) (void)tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", a);
    if (!value || strcmp(a, "--door") != 0) return value ? 2 : -1;
    w->is_http1 = strcmp(value, "http1") == 0;
    if (w->is_http1 || strcmp(value, "h3") == 0) return 2;
    (void)tdm_error_set(err, TDM_ERR_INVAL, "--door takes h3 or http1, not \"%.40s\"", value);
    return -1;
}

static tdm_status_t words_read(int argc, char **argv, words_t *w, tdm_error_t *err) {
    char *rest[64];
    int rest_cnt = 0;
    *w = (words_t){.requests = 500,
                   .scale = 1,
                   .vocab = 256,
                   .connections = 8,
                   .open_max = 1024,
                   .ttft_ms = 5000,
                   .gap_ms = 500,
                   .epsilon = 0.01,
                   .text_seed = -1};
    for (int i = 2; i < argc;) {
        int n = own(w, argv[i], i + 1 < argc ? argv[i + 1] : NULL, err);
        if (n < 0) return err->status;
        i += n;
        if (n > 0) continue;
        if (rest_cnt == 64) return tdm_error_set(err, TDM_ERR_INVAL, "too many words");
        rest[rest_cnt++] = argv[i++];
    }
    tdm_status_t st = tdm_ctl_options_parse(rest_cnt, rest, 0, TDM_CTL_REPLAY_USES, &w->o, err);
    if (st != TDM_OK) return st;
    if (w->o.word_cnt) return tdm_ctl_no_use(w->o.word[0], err);
    if (!w->trace) return tdm_error_set(err, TDM_ERR_INVAL, "--trace is missing");
    if ((w->load > 0) != (w->capacity > 0) || (w->load > 0 && w->rate > 0))
        return tdm_error_set(err, TDM_ERR_INVAL, "give --rate, or --load with --capacity");
    if (w->is_cut && w->duration <= 0)
        return tdm_error_set(err, TDM_ERR_INVAL, "--cut needs --duration, its window");
    if (w->load > 0) w->rate = w->load * w->capacity;
    return TDM_OK;
}

/* --- the list ---------------------------------------------------------------- */

/* within_duration leaves those that arrive within --duration.  A list that ends
   long before its window would leave it idle, and the window's figures be those
   of another load. */
static tdm_status_t within_duration(replay_t *r, tdm_error_t *err) {
    const words_t *w = r->w;
    uint32_t n = 0, cnt = r->list.row_cnt;
    if (w->duration <= 0) return TDM_OK;
    double end_s = (double)r->list.row[cnt - 1u].at_ns / 1e9;
    if (w->is_cut && end_s < WINDOW_FULL * w->duration)
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "the list of %u requests ends after %.1f s of a window of %.1f s: "
                             "more rows (--requests), or a shorter window",
                             cnt, end_s, w->duration);
    while (n < cnt && (double)r->list.row[n].at_ns <= w->duration * 1e9) n++;
    r->list.row_cnt = n; /* the first arrives at 0 */
    return TDM_OK;
}

static tdm_status_t list_load(replay_t *r, tdm_error_t *err) {
    const words_t *w = r->w;
    uint64_t seed = w->o.seed >= 0 ? (uint64_t)w->o.seed : 1u;
    uint32_t rows = (uint32_t)w->requests;
    tdm_status_t st = tdm_workload_generate(w->trace, rows, seed, &r->list, err);
    if (st == TDM_ERR_NOT_FOUND) st = tdm_workload_read(w->trace, rows, &r->list, err);
    if (st != TDM_OK) return st;
    *err = (tdm_error_t){0};
    if (w->is_spread) tdm_workload_spread(&r->list);
    double before = tdm_workload_rate(&r->list);
    if (w->rate <= 0 && !r->list.has_arrivals)
        return tdm_error_set(err, TDM_ERR_INVAL, "%s has no arrivals: give --rate", w->trace);
    st = tdm_workload_scale(&r->list, w->scale, err);
    if (st != TDM_OK) return st;
    /* tdm_workload_pace: what has no span cannot be stretched */
    r->frame.is_drawn = w->rate > 0 && (!r->list.has_arrivals || before <= 0);
    if (w->rate > 0) tdm_workload_pace(&r->list, w->rate, w->cv > 0 ? w->cv : 1, seed);
    r->frame.factor = r->list.has_arrivals && w->rate > 0 && before > 0 ? before / w->rate : 1.0;
    st = within_duration(r, err);
    if (st != TDM_OK) return st;
    if (w->cv > 0 && !r->frame.is_drawn)
        return tdm_error_set(err, TDM_ERR_INVAL, "--cv is of drawn arrivals: %s has its own",
                             w->trace);
    r->frame.offered = tdm_workload_rate(&r->list);
    r->frame.span_s = (double)r->list.row[r->list.row_cnt - 1u].at_ns / 1e9;
    if (w->is_cut && w->duration > 0) r->frame.span_s = w->duration;
    r->frame.is_cut = (uint32_t)w->is_cut;
    r->frame.warm_cnt = (uint32_t)w->warm;
    r->form.seed = w->text_seed >= 0 ? (uint64_t)w->text_seed : seed;
    r->form.block_tok = (uint32_t)fmax(1.0, floor(TDM_WORKLOAD_BLOCK_TOK * w->scale + 0.5));
    return tdm_workload_warm(&r->list, (uint32_t)w->warm, seed, &r->warm, err);
}

/* lists_fit counts what of the lists is not asked for, and reserves the
   longest body. */
static tdm_status_t lists_fit(replay_t *r, tdm_error_t *err) {
    const tdm_workload_t *const lists[] = {&r->list, &r->warm};
    uint32_t context = r->form.context > 0 ? r->form.context : UINT32_MAX;
    tdm_workload_over_t over = tdm_workload_over(&r->list, context);
    r->frame.context = r->form.context;
    r->frame.list_cnt = r->list.row_cnt;
    r->frame.cut_cnt = over.row_cnt;
    r->frame.cut_prompt_cnt = over.prompt_cnt;
    r->frame.cut_output_cnt = over.output_cnt;
    r->frame.warm_cut_cnt = tdm_workload_over(&r->warm, context).row_cnt;
    for (uint32_t k = 0; k < TDM_COUNT_OF(lists); k++)
        for (uint32_t i = 0; i < lists[k]->row_cnt; i++)
            r->body_sz = TDM_MAX(r->body_sz, tdm_job_text_max(&r->form, &lists[k]->row[i]));
    r->body = malloc(r->body_sz);
    return r->body ? TDM_OK : tdm_error_set(err, TDM_ERR_NOMEM, "no memory for a request");
}

/* model_of finds the model that is asked among those that a server lists: the
   one of --model, which it need not tell, else the first. */
static const json_t *model_of(const json_t *root, const char *name) {
    const json_t *data = json_object_get(root, "data");
    for (size_t i = 0; name && i < json_array_size(data); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(data, i), "id"));
        if (id && strcmp(id, name) == 0) return json_array_get(data, i);
    }
    return name ? NULL : json_array_get(data, 0);
}

/* ask_model finds the model's name, and its context: as --context says, else
   as the server does, else none is known and every row goes as it is listed,
   so that what a server cannot take it refuses, and is counted by its name. */
static tdm_status_t ask_model(replay_t *r, tdm_error_t *err) {
    static char page[65536];
    const words_t *w = r->w;
    tdm_status_t st = r->wire->get(r->wire, "/v1/models", page, sizeof page, err);
    json_t *root = st == TDM_OK ? json_loads(page, 0, NULL) : NULL;
    const json_t *model = model_of(root, w->o.model);
    const char *id = w->o.model ? w->o.model : json_string_value(json_object_get(model, "id"));
    json_int_t n = json_integer_value(json_object_get(model, "max_model_len"));
    r->frame.context_from = w->context > 0                 ? TDM_CONTEXT_OPTION
                            : n > 1 && n <= UINT32_MAX / 2 ? TDM_CONTEXT_SERVER
                                                           : TDM_CONTEXT_UNKNOWN;
    if (r->frame.context_from == TDM_CONTEXT_OPTION) r->form.context = (uint32_t)w->context;
    if (r->frame.context_from == TDM_CONTEXT_SERVER) r->form.context = (uint32_t)n;
    if (id && strlen(id) < sizeof r->model && !strpbrk(id, "\"\\"))
        (void)snprintf(r->model, sizeof r->model, "%s", id);
    json_decref(root);
    r->form.model = r->model;
    if (st != TDM_OK || r->model[0]) return st;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "the server lists no model");
}

/* --- the loop ------------------------------------------------------------------ */

static void on_ended(tdm_job_t *job) {
    if (self.records) tdm_tally_record(self.records, &job->seen);
    self.spare[self.spare_cnt++] = (uint32_t)(job - self.job);
}

/* skip counts a row that was never sent; waited_ns < 0: nothing is known of it. */
static void skip(replay_t *r, tdm_outcome_t outcome, int64_t waited_ns) {
    tdm_seen_t seen = tdm_job_unseen(&r->form, r->next, &r->list.row[r->next]);
    seen.end_ns = waited_ns;
    seen.outcome = outcome;
    tdm_tally_end(&r->tally, &seen);
    if (r->records) tdm_tally_record(r->records, &seen);
    r->next++;
}

/* send_due sends what is due; 0: the wire takes no more now. */
static int send_due(replay_t *r, int64_t now_ns, tdm_error_t *err) {
    int64_t patience_ns = (int64_t)r->w->o.seconds * TDM_NS_PER_S;
    while (r->next < r->list.row_cnt) {
        const tdm_workload_row_t *row = &r->list.row[r->next];
        int64_t due_ns = r->start_ns + row->at_ns;
        if (due_ns > now_ns) return 1;
        if (r->spare_cnt == 0 || now_ns - due_ns > patience_ns) {
            int is_late = r->spare_cnt > 0;
            skip(r, is_late ? TDM_OUTCOME_TIMEOUT : TDM_OUTCOME_UNSENT,
                 is_late ? now_ns - due_ns : -1);
            continue;
        }
        tdm_job_t *job = &r->job[r->spare[r->spare_cnt - 1u]];
        size_t sz = tdm_job_text(&r->form, &r->list, r->next, r->body, r->body_sz);
        now_ns = tdm_clock_now_ns();
        tdm_job_init(job, &r->tally, on_ended, r->next, row, &r->form, due_ns, now_ns);
        r->spare_cnt--;
        if (r->wire->begin(r->wire, job, r->body, sz, err) != TDM_OK) {
            job->is_open = 0;
            r->spare_cnt++;
            return 0;
        }
        r->next++;
    }
    return 1;
}

/* give_up ends what is open and was due before a time. */
static void give_up(replay_t *r, tdm_outcome_t outcome, int64_t before_ns, int64_t now_ns) {
    for (uint32_t i = 0; i < r->slot_cnt; i++) {
        tdm_job_t *job = &r->job[i];
        if (!job->is_open || job->due_ns >= before_ns) continue;
        r->wire->cancel(r->wire, job);
        tdm_job_end(job, outcome, now_ns);
    }
}

static void lose_patience(replay_t *r, int64_t now_ns) {
    int64_t patience_ns = (int64_t)r->w->o.seconds * TDM_NS_PER_S;
    give_up(r, TDM_OUTCOME_TIMEOUT, now_ns - patience_ns, now_ns);
}

/* --- a window -------------------------------------------------------------- */

static int64_t window_ns(const replay_t *r) {
    return (int64_t)(r->frame.span_s * 1e9);
}

/* look counts those without a token yet. */
static void look(replay_t *r, int64_t now_ns) {
    int64_t at_ns = now_ns - r->start_ns, quarter_ns = window_ns(r) / 4;
    uint32_t which = at_ns < quarter_ns ? 0u : 1u, cnt = 0;
    if (at_ns < 0 || (which == 1 && at_ns < 3 * quarter_ns)) return;
    for (uint32_t i = 0; i < r->slot_cnt; i++) cnt += r->job[i].is_open && r->job[i].last_ns == 0;
    r->frame.waiting[which] += cnt;
    r->look_cnt[which]++;
}

/* cut ends the window.  Who waits longer than the target by now has missed
   it, by at least so much; of the others nothing can be said. */
static void cut(replay_t *r, int64_t now_ns) {
    for (uint32_t i = 0; i < r->slot_cnt; i++) {
        tdm_job_t *job = &r->job[i];
        int64_t ns = now_ns - job->due_ns;
        if (job->is_open && job->last_ns == 0 && ns > r->tally.ttft_target_ns)
            job->seen.first_ns = ns;
    }
    give_up(r, TDM_OUTCOME_CUT, INT64_MAX, now_ns);
    while (r->next < r->list.row_cnt) skip(r, TDM_OUTCOME_UNSENT, -1);
}

/* account writes how far the replay is. */
static void account(const replay_t *r, char *line, size_t sz) {
    const tdm_tally_t *t = &r->tally;
    uint64_t none = tdm_tally_unanswered(t);
    int n = snprintf(line, sz, "%llu of %u, %u open, %llu refused, ",
                     (unsigned long long)t->row_cnt, r->list.row_cnt, r->slot_cnt - r->spare_cnt,
                     (unsigned long long)t->outcome[TDM_OUTCOME_REFUSED]);
    if (none)
        n += snprintf(line + n, sz - (size_t)n, "%llu unanswered, ", (unsigned long long)none);
    (void)snprintf(line + n, sz - (size_t)n, "TTFT p50 %.0f ms, TBT p99 %.0f ms",
                   (double)tdm_tally_at(&t->ttft, 0.5) / 1e6,
                   (double)tdm_tally_at(&t->gap, 0.99) / 1e6);
}

static void progress(replay_t *r, int64_t now_ns, int is_last) {
    uint32_t done = (uint32_t)(30.0 * (double)r->tally.row_cnt / r->list.row_cnt);
    struct winsize size = {0};
    char told[200], line[sizeof told + 64];
    if (r->w->is_quiet) return;
    account(r, told, sizeof told);
    if (!isatty(STDERR_FILENO)) {
        if (is_last || now_ns < r->line_ns) return;
        r->line_ns = now_ns + LINE_NS;
        fprintf(stderr, "%.0f s: %s\n", (double)(now_ns - r->start_ns) / 1e9, told);
        return;
    }
    (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    (void)snprintf(line, sizeof line, "[%.*s%.*s] %s", (int)done, "##############################",
                   30 - (int)done, "..............................", told);
    /* a line that wraps could not be written over */
    int cols = size.ws_col > 1 ? size.ws_col - 1 : 79;
    fprintf(stderr, "\r\033[K%.*s%s", cols, line, is_last ? "\n" : "");
}

static void on_warm_ended(tdm_job_t *job) {
    (void)job;
}

/* is_warm says whether all that should run does, or has; 0 with err set
   where one never will. */
static int is_warm(const replay_t *r, tdm_error_t *err) {
    for (uint32_t i = 0; i < r->warm.row_cnt; i++) {
        const tdm_job_t *job = &r->job[r->slot_cnt + i];
        if (job->last_ns != 0) continue;
        if (!job->is_open)
            (void)tdm_error_set(err, TDM_ERR_CLOSED, "warm start: %s (%s)",
                                tdm_outcome_name(job->seen.outcome), job->seen.code);
        return 0;
    }
    return 1;
}

/* warm_up starts the decodes that would be running by now, and waits until
   each has a token. */
static tdm_status_t warm_up(replay_t *r, tdm_error_t *err) {
    int64_t begin_ns = tdm_clock_now_ns(), end_ns = begin_ns + r->w->o.seconds * TDM_NS_PER_S;
    tdm_status_t st = TDM_OK;
    *err = (tdm_error_t){0};
    for (uint32_t i = 0; i < r->warm.row_cnt && st == TDM_OK;) {
        tdm_job_t *job = &r->job[r->slot_cnt + i];
        size_t sz = tdm_job_text(&r->form, &r->warm, i, r->body, r->body_sz);
        tdm_job_init(job, &r->warm_tally, on_warm_ended, i, &r->warm.row[i], &r->form, begin_ns,
                     begin_ns);
        st = r->wire->begin(r->wire, job, r->body, sz, err);
        i += st == TDM_OK;
        if (st != TDM_ERR_FULL) continue;
        job->is_open = 0;
        st = r->wire->step(r->wire, tdm_clock_now_ns() + TDM_NS_PER_MS, err);
    }
    while (st == TDM_OK && !is_warm(r, err)) {
        if (err->text[0]) return TDM_ERR_CLOSED;
        if (tdm_clock_now_ns() > end_ns || tdm_leave_by())
            return tdm_error_set(err, TDM_ERR_TIMEOUT, "warm start: not all decodes have begun");
        st = r->wire->step(r->wire, tdm_clock_now_ns() + TICK_NS, err);
    }
    return st;
}

/* cool_down gives up what is left of them. */
static void cool_down(replay_t *r) {
    for (uint32_t i = 0; i < r->warm.row_cnt; i++) {
        tdm_job_t *job = &r->job[r->slot_cnt + i];
        if (!job->is_open) continue;
        r->wire->cancel(r->wire, job);
        tdm_job_end(job, TDM_OUTCOME_TIMEOUT, tdm_clock_now_ns());
    }
}

static tdm_status_t run(replay_t *r, tdm_error_t *err) {
    tdm_status_t st = warm_up(r, err);
    r->warm_tally = r->tally; /* empty, with its targets: gaps count from here on */
    r->start_ns = tdm_clock_now_ns() + LEAD_NS;
    r->line_ns = r->start_ns + LINE_NS;
    while (st == TDM_OK && (r->next < r->list.row_cnt || r->spare_cnt < r->slot_cnt)) {
        int64_t now_ns = tdm_clock_now_ns();
        if (tdm_leave_by()) {
            give_up(r, TDM_OUTCOME_CUT, INT64_MAX, now_ns);
            r->frame.span_s = (double)TDM_MAX(now_ns - r->start_ns, INT64_C(0)) / 1e9;
            st = tdm_error_set(err, TDM_ERR_CLOSED, "interrupted, %u of %u were due", r->next,
                               r->list.row_cnt);
            break;
        }
        if (r->w->is_cut && now_ns >= r->start_ns + window_ns(r)) {
            cut(r, now_ns);
            break;
        }
        int is_free = send_due(r, now_ns, err);
        int64_t until_ns = now_ns + TICK_NS;
        if (r->next < r->list.row_cnt)
            until_ns = TDM_MIN(until_ns, is_free ? r->start_ns + r->list.row[r->next].at_ns
                                                 : now_ns + TDM_NS_PER_MS);
        st = r->wire->step(r->wire, until_ns, err);
        if (now_ns < r->tick_ns) continue;
        r->tick_ns = now_ns + TICK_NS;
        lose_patience(r, now_ns);
        look(r, now_ns);
        progress(r, now_ns, 0);
    }
    progress(r, tdm_clock_now_ns(), 1);
    for (uint32_t i = 0; i < 2; i++) r->frame.waiting[i] /= TDM_MAX(r->look_cnt[i], 1u);
    tdm_tally_add_gaps(&r->tally, &r->warm_tally);
    return st;
}

static tdm_status_t prepare(replay_t *r, tdm_error_t *err) {
    const words_t *w = r->w;
    tdm_status_t st = w->is_http1
                          ? tdm_wire_http1(&w->o, (uint32_t)(w->open_max + w->warm), &r->wire, err)
                          : tdm_wire_h3(&w->o, (uint32_t)w->connections, &r->wire, err);
    if (st == TDM_OK) st = ask_model(r, err);
    if (st == TDM_OK) st = lists_fit(r, err);
    if (st != TDM_OK) return st;
    r->frame.door = r->wire->name;
    r->slot_cnt = r->spare_cnt = (uint32_t)TDM_MIN(w->open_max, (double)r->list.row_cnt);
    r->job = calloc(r->slot_cnt + r->warm.row_cnt, sizeof *r->job);
    r->spare = calloc(r->slot_cnt, sizeof *r->spare);
    if (!r->job || !r->spare)
        return tdm_error_set(err, TDM_ERR_NOMEM, "no memory for %u requests", r->slot_cnt);
    for (uint32_t i = 0; i < r->slot_cnt; i++) r->spare[i] = r->slot_cnt - 1u - i;
    r->tally.ttft_target_ns = (int64_t)(w->ttft_ms * 1e6);
    r->tally.gap_target_ns = (int64_t)(w->gap_ms * 1e6);
    r->tally.epsilon = w->epsilon;
    if (!w->records) return TDM_OK;
    r->records = fopen(w->records, "we");
    if (r->records) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_IO, "%s: %s", w->records, strerror(errno));
}

static void release(replay_t *r) {
    if (r->wire) r->wire->close(r->wire);
    free(r->job);
    free(r->spare);
    free(r->body);
    tdm_workload_free(&r->list);
    tdm_workload_free(&r->warm);
}

/* unanswered says whom the server left without an answer. */
static int unanswered(const replay_t *r) {
    const uint64_t *cnt = r->tally.outcome;
    if (!tdm_tally_unanswered(&r->tally)) return 0;
    fprintf(stderr,
            "tandemctl: replay: %llu of %llu requests had no whole answer: %llu lost with their "
            "connection, %llu given up after %d s, %llu ended by an error\n",
            (unsigned long long)tdm_tally_unanswered(&r->tally),
            (unsigned long long)r->tally.row_cnt, (unsigned long long)cnt[TDM_OUTCOME_LOST],
            (unsigned long long)cnt[TDM_OUTCOME_TIMEOUT], r->w->o.seconds,
            (unsigned long long)cnt[TDM_OUTCOME_FAILED]);
    return TDM_EXIT_DEGRADED;
}

tdm_status_t tdm_ctl_replay_fit(int argc, char **argv, tdm_error_t *err) {
    static words_t w;
    return words_read(argc, argv, &w, err);
}

int tdm_ctl_replay(int argc, char **argv) {
    static words_t w;
    replay_t *r = &self;
    tdm_error_t err = {0};
    if (words_read(argc, argv, &w, &err) != TDM_OK) return tdm_ctl_usage("replay", &err);
    r->w = &w;
    r->form.vocab = (uint32_t)w.vocab;
    r->form.is_plain = w.is_plain;
    tdm_status_t st = list_load(r, &err);
    int rc = TDM_EXIT_FAILED;
    if (st == TDM_OK) {
        st = prepare(r, &err);
        if (st == TDM_ERR_CLOSED || st == TDM_ERR_TIMEOUT) rc = TDM_EXIT_UNREACHABLE;
    }
    tdm_leave_heed();
    if (st == TDM_OK) {
        st = run(r, &err);
        cool_down(r);
        if (w.o.is_json)
            tdm_tally_json(stdout, &r->tally, &r->frame);
        else
            tdm_tally_text(stdout, &r->tally, &r->frame);
    }
    int is_lost = r->records && ferror(r->records); /* written before, and in vain */
    if (r->records && (fclose(r->records) != 0 || is_lost) && st == TDM_OK)
        st = tdm_error_set(&err, TDM_ERR_IO, "%s: %s", w.records, strerror(errno));
    if (st != TDM_OK) fprintf(stderr, "tandemctl: replay: %s\n", err.text);
    if (st == TDM_OK) rc = unanswered(r);
    release(r);
    return rc;
}
