/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/cell.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/leave.h"
#include "appliance/ctl/operate.h"
#include "appliance/ctl/page.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARG_MAX_   96u
#define SAMPLE_NS  (500 * TDM_NS_PER_MS) /* between two looks at power */
#define REST_NS    (120 * TDM_NS_PER_S)  /* the appliance must be at rest after so long */
#define STILL_NS   (400 * TDM_NS_PER_MS) /* and is, where no iteration ended for so long */
#define CONFIRM_S  300.0                 /* beyond the window: its rest, warm start and patience */
#define PATIENCE_S 60.0                  /* with a warm start, and beyond the window */
#define TTFT_SHARE "p90"
#define WHY        "bench, process "

int tdm_cell_read(const char *text, size_t sz, tdm_cell_t *cell) {
    char word[48];
    if (sz == 0 || sz >= sizeof word) return 0;
    (void)snprintf(word, sizeof word, "%.*s", (int)sz, text);
    char *policy = strchr(word, '/');
    if (!policy) return 0;
    *policy++ = 0;
    if (strcmp(word, "fused") != 0 && strcmp(word, "streams") != 0 && strcmp(word, "serial") != 0)
        return 0;
    memset(cell, 0, sizeof *cell);
    (void)snprintf(cell->path, sizeof cell->path, "%.15s", word);
    (void)snprintf(cell->policy, sizeof cell->policy, "%.23s", policy);
    cell->is_fifo = strncmp(policy, "fifo:", 5) == 0;
    if (!cell->is_fifo && strncmp(policy, "static:", 7) != 0)
        return strcmp(policy, "quantile") == 0 || strcmp(policy, "margin") == 0;
    const char *end = tdm_ctl_count_read(strchr(policy, ':') + 1, 8192, &cell->prefill_tokens);
    return end && *end == 0 && cell->prefill_tokens >= 64;
}

/* page_json fetches a page that is JSON. */
static json_t *page_json(const tdm_ctl_options_t *o, const char *path, tdm_error_t *err) {
    tdm_page_t page;
    if (tdm_page_get(o, path, &page, err) != TDM_OK) return NULL;
    json_t *root = page.status == 200 && page.text ? json_loads(page.text, 0, NULL) : NULL;
    if (!root)
        (void)tdm_error_set(err, TDM_ERR_CORRUPT, "%s: status %ld, no JSON", path, page.status);
    free(page.text);
    return root;
}

/* --- the configuration -------------------------------------------------------- */

/* change makes one, in the name of this bench. */
static int change(const tdm_ctl_options_t *o, uint32_t cnt, const char *const *word,
                  uint32_t confirm_s) {
    char why[48];
    tdm_ctl_options_t config = *o;
    (void)snprintf(why, sizeof why, WHY "%ld", (long)getpid());
    config.word_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++) config.word[config.word_cnt++] = word[i];
    config.confirm_s = confirm_s;
    config.why = why;
    return tdm_ctl_config(&config);
}

static tdm_status_t revision(const tdm_ctl_options_t *o, long long *number, tdm_error_t *err) {
    json_t *root = page_json(o, "/api/v1/changes", err);
    if (!root) return TDM_ERR_CLOSED;
    *number = (long long)json_integer_value(json_object_get(root, "revision"));
    json_decref(root);
    return TDM_OK;
}

/* left_by gives the process that left the newest revision unconfirmed: 0: none
   is; -1: it was no bench. */
static long left_by(const json_t *changes) {
    if (!json_is_object(json_object_get(changes, "pending"))) return 0;
    const json_t *newest = json_array_get(json_object_get(changes, "revisions"), 0);
    const char *why = json_string_value(json_object_get(newest, "why"));
    long pid = 0;
    if (why && strncmp(why, WHY, sizeof WHY - 1) == 0) pid = strtol(why + sizeof WHY - 1, NULL, 10);
    return pid > 0 ? pid : -1;
}

tdm_status_t tdm_cell_begin(const tdm_ctl_options_t *o, long long *base, tdm_error_t *err) {
    static const char *const back[] = {"rollback"};
    json_t *root = page_json(o, "/api/v1/changes", err);
    if (!root) return TDM_ERR_CLOSED;
    long pid = left_by(root);
    *base = (long long)json_integer_value(json_object_get(root, "revision"));
    json_decref(root);
    if (pid == 0) return TDM_OK;
    if (pid < 0)
        return tdm_error_set(
            err, TDM_ERR_INVAL,
            "revision %lld awaits its confirmation: confirm it or roll it back first", *base);
    if (kill((pid_t)pid, 0) == 0 || errno == EPERM)
        return tdm_error_set(err, TDM_ERR_INVAL, "another bench runs, process %ld", pid);
    if (change(o, 1, back, 0) != 0)
        return tdm_error_set(err, TDM_ERR_CLOSED, "the keys that a bench left are not back");
    return revision(o, base, err);
}

tdm_status_t tdm_cell_back(const tdm_ctl_options_t *o, long long *base, tdm_error_t *err) {
    long long now;
    char number[24];
    const char *back[] = {"rollback", number};
    tdm_status_t st = revision(o, &now, err);
    if (st != TDM_OK || now == *base) return st;
    (void)snprintf(number, sizeof number, "%lld", *base);
    if (change(o, 2, back, 0) != 0)
        return tdm_error_set(err, TDM_ERR_CLOSED, "revision %lld is not back", *base);
    return revision(o, base, err);
}

uint32_t tdm_cell_words(const tdm_cell_t *cell, char word[TDM_CELL_WORD_MAX][TDM_CELL_WORD_SZ]) {
    uint32_t cnt = 0;
    const char *policy = cell->prefill_tokens > 0 ? "static" : cell->policy;
    (void)snprintf(word[cnt++], TDM_CELL_WORD_SZ, "sched.route=%s", cell->path);
    (void)snprintf(word[cnt++], TDM_CELL_WORD_SZ, "sched.policy=%s", policy);
    if (cell->prefill_tokens > 0)
        (void)snprintf(word[cnt++], TDM_CELL_WORD_SZ, "sched.prefill_tokens=%u",
                       cell->prefill_tokens);
    if (cell->is_fifo) (void)snprintf(word[cnt++], TDM_CELL_WORD_SZ, "sched.patience=0");
    return cnt;
}

tdm_status_t tdm_cell_apply(const tdm_ctl_options_t *o, const tdm_cell_t *cell, double seconds,
                            long long *base, tdm_error_t *err) {
    char key[TDM_CELL_WORD_MAX][TDM_CELL_WORD_SZ];
    const char *word[1 + TDM_CELL_WORD_MAX] = {"apply"};
    uint32_t cnt = tdm_cell_words(cell, key);
    for (uint32_t i = 0; i < cnt; i++) word[1 + i] = key[i];
    tdm_status_t st = tdm_cell_back(o, base, err);
    if (st != TDM_OK) return st;
    if (change(o, 1 + cnt, word, (uint32_t)TDM_MIN(seconds + CONFIRM_S, 86400.0)) == 0)
        return TDM_OK;
    return tdm_error_set(err, TDM_ERR_CLOSED, "%s/%s cannot be applied", cell->path, cell->policy);
}

/* --- what the appliance says ---------------------------------------------------- */

static double at(const json_t *root, const char *a, const char *b) {
    const json_t *v = json_object_get(root, a);
    return json_number_value(b ? json_object_get(v, b) : v);
}

/* rest waits until nothing runs and nothing waits, and gives the status.  A
   request that is cut is gone before the iteration that it is in: that one is
   counted a moment later, and not in the next window. */
static json_t *rest(const tdm_ctl_options_t *o, tdm_error_t *err) {
    int64_t end_ns = tdm_clock_now_ns() + REST_NS, still_ns = 0;
    json_t *was = NULL;
    for (;;) {
        json_t *s = page_json(o, "/status", err);
        int64_t now_ns = tdm_clock_now_ns();
        const json_t *cnt = json_object_get(s, "iterations");
        int is_still = s && at(s, "requests", "running") + at(s, "requests", "waiting") == 0.0 &&
                       json_equal(cnt, json_object_get(was, "iterations"));
        if (!is_still) still_ns = now_ns;
        json_decref(was);
        was = s;
        if (!s || (is_still && now_ns - still_ns >= STILL_NS)) return s;
        if (now_ns > end_ns || tdm_leave_by()) break;
        (void)usleep(100000);
    }
    json_decref(was);
    (void)tdm_error_set(err, TDM_ERR_TIMEOUT,
                        tdm_leave_by() ? "interrupted" : "the appliance does not come to rest");
    return NULL;
}

/* since gives what an object of counts has grown by; objects in it too. */
static json_t *since(const json_t *after, const json_t *before) {
    json_t *out = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)after, key, v) {
        const json_t *was = json_object_get(before, key);
        if (json_is_object(v))
            (void)json_object_set_new(out, key, since(v, was));
        else if (json_is_number(v))
            (void)json_object_set_new(out, key,
                                      json_real(json_number_value(v) - json_number_value(was)));
    }
    return out;
}

/* What the board drew while a window ran. */
typedef struct power {
    double sum_w, max_w, clock_sum, joule_first, joule_last;
    double held_first_s, held_last_s; /* that the power limit held clocks down */
    int64_t first_ns, last_ns;
    uint32_t cnt, clock_cnt;
} power_t;

static void power_look(const tdm_ctl_options_t *o, power_t *p) {
    tdm_error_t err = {0};
    json_t *s = page_json(o, "/status", &err);
    const json_t *w = json_object_get(json_object_get(s, "power"), "average_w");
    const json_t *clock = json_object_get(json_object_get(s, "power"), "sm_clock_mhz");
    if (json_is_number(w)) {
        p->sum_w += json_number_value(w);
        p->max_w = TDM_MAX(p->max_w, at(json_object_get(s, "power"), "instant_max_w", NULL));
        p->joule_last = at(json_object_get(s, "power"), "energy_j", NULL);
        p->held_last_s = at(json_object_get(s, "power"), "held_by_power_s", NULL);
        p->last_ns = tdm_clock_now_ns();
        if (p->cnt++ == 0) {
            p->joule_first = p->joule_last;
            p->held_first_s = p->held_last_s;
            p->first_ns = p->last_ns;
        }
    }
    if (json_is_number(clock) && json_number_value(clock) > 0.0) {
        p->clock_sum += json_number_value(clock);
        p->clock_cnt++;
    }
    json_decref(s);
}

/* put_told: what the board did not tell is no 0. */
static void put_told(json_t *out, const char *key, int is_told, double v) {
    (void)json_object_set_new(out, key, is_told ? json_real(v) : json_null());
}

static json_t *power_json(const power_t *p, double tokens) {
    if (p->cnt == 0) return json_null();
    double s = (double)(p->last_ns - p->first_ns) / 1e9;
    json_t *out = json_pack("{s:f}", "mean_w", p->sum_w / p->cnt);
    put_told(out, "held_share", s > 0.0, (p->held_last_s - p->held_first_s) / s);
    put_told(out, "max_w", p->max_w > 0.0, p->max_w);
    put_told(out, "sm_clock_mhz", p->clock_cnt > 0, p->clock_sum / p->clock_cnt);
    put_told(out, "j_per_token", tokens > 0.0 && p->joule_last > p->joule_first,
             (p->joule_last - p->joule_first) / tokens);
    return out;
}

/* --- the window ------------------------------------------------------------------ */

/* become makes a child the replay, and the replay one that ends with its
   parent, whatever ends that: a load that nobody measures is on nobody's
   account.  SIGTERM, as it lets go of what it has open.  A parent that ended
   before the kernel was told to tell is seen by its pid. */
static void become(char **argv, int out, pid_t parent) {
    (void)signal(SIGTERM, SIG_DFL); /* heeded or ignored by the parent */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent &&
        dup2(out, STDOUT_FILENO) >= 0)
        (void)execv("/proc/self/exe", argv);
    _exit(TDM_EXIT_FAILED);
}

/* start runs this program as a replay whose summary goes to out. */
static tdm_status_t start(const tdm_cell_window_t *w, int out, pid_t *pid, tdm_error_t *err) {
    char rate[32], window[32], seed[32], warm[32], patience[32];
    char *argv[ARG_MAX_ + 1];
    uint32_t n = 0;
    static const char *const fixed[] = {"tandemctl", "replay", "--json", "--quiet", "--cut"};
    for (uint32_t i = 0; i < TDM_COUNT_OF(fixed); i++) argv[n++] = (char *)(uintptr_t)fixed[i];
    (void)snprintf(rate, sizeof rate, "%.9g", w->rate);
    (void)snprintf(window, sizeof window, "%.9g", w->seconds);
    argv[n++] = (char *)(uintptr_t) "--rate";
    argv[n++] = rate;
    (void)snprintf(seed, sizeof seed, "%u", w->text_seed);
    argv[n++] = (char *)(uintptr_t) "--text-seed";
    argv[n++] = seed;
    argv[n++] = (char *)(uintptr_t) "--duration";
    argv[n++] = window;
    /* who streams since the window began is still served at its end */
    (void)snprintf(patience, sizeof patience, "%.0f", w->seconds + PATIENCE_S);
    argv[n++] = (char *)(uintptr_t) "--seconds";
    argv[n++] = patience;
    (void)snprintf(warm, sizeof warm, "%u", w->warm);
    if (w->warm > 0) argv[n++] = (char *)(uintptr_t) "--warm";
    if (w->warm > 0) argv[n++] = warm;
    if (w->word_cnt > ARG_MAX_ - n) return tdm_error_set(err, TDM_ERR_INVAL, "too many words");
    for (uint32_t i = 0; i < w->word_cnt; i++) argv[n++] = w->word[i];
    argv[n] = NULL;
    pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0) become(argv, out, parent);
    return *pid > 0 ? TDM_OK : tdm_error_set(err, TDM_ERR_IO, "replay: %s", strerror(errno));
}

/* replay runs one to its end, with looks at power on the way. */
static json_t *replay(const tdm_ctl_options_t *o, const tdm_cell_window_t *w, power_t *power,
                      tdm_error_t *err) {
    FILE *out = tmpfile();
    pid_t pid = 0;
    int status = 0;
    json_t *said = NULL;
    if (!out) {
        (void)tdm_error_set(err, TDM_ERR_IO, "no temporary file");
        return NULL;
    }
    if (start(w, fileno(out), &pid, err) == TDM_OK) {
        int is_told = 0;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (tdm_leave_by() && !is_told) is_told = kill(pid, SIGTERM) == 0;
            power_look(o, power);
            (void)usleep(SAMPLE_NS / TDM_NS_PER_US);
        }
        rewind(out);
        /* one whose requests had no answer is told too: missed() names it */
        int rc = WIFEXITED(status) ? WEXITSTATUS(status) : TDM_EXIT_FAILED;
        if (rc == 0 || rc == TDM_EXIT_DEGRADED) said = json_loadf(out, 0, NULL);
        if (!said)
            (void)tdm_error_set(err, TDM_ERR_CLOSED,
                                tdm_leave_by() ? "interrupted" : "a replay did not end well");
    }
    (void)fclose(out);
    return said;
}

/* missed names the first part of the promise that a window broke, "" where
   it was kept. */
static const char *missed(const json_t *said, double epsilon) {
    double first = at(said, "waiting_first", NULL), last = at(said, "waiting_last", NULL);
    static const char *const bad[] = {"refused", "failed", "lost", "timeout", "unsent"};
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++)
        if (at(said, bad[i], NULL) > 0.0) return bad[i];
    if (at(said, "share_over", NULL) > epsilon) return "gaps";
    if (at(said, "ttft_ms", TTFT_SHARE) > at(said, "ttft_target_ms", NULL)) return "ttft";
    return last > TDM_MAX(first + 1.0, 1.1 * first) ? "queue" : "";
}

json_t *tdm_cell_run(const tdm_ctl_options_t *o, const tdm_cell_t *cell, const tdm_cell_window_t *w,
                     tdm_error_t *err) {
    static const char *const part[] = {"iterations", "hybrid", "fallbacks", "vcta"};
    power_t power = {0};
    json_t *before = rest(o, err), *out = NULL;
    json_t *said = before ? replay(o, w, &power, err) : NULL;
    json_t *after = said ? page_json(o, "/status", err) : NULL;
    if (after) {
        double attention = at(after, "time", "attention_s") - at(before, "time", "attention_s");
        double all = at(after, "time", "iterations_s") - at(before, "time", "iterations_s");
        const char *why = missed(said, w->epsilon);
        out = json_pack("{s:s, s:s, s:f, s:b, s:s, s:O, s:f, s:f, s:f, s:o}", "path", cell->path,
                        "policy", cell->policy, "rate", w->rate, "kept", why[0] == 0, "missed", why,
                        "replay", said, "attention_s", attention, "iterations_s", all,
                        "attention_share", all > 0.0 ? attention / all : 0.0, "power",
                        power_json(&power, at(said, "tokens", NULL)));
        for (size_t i = 0; i < TDM_COUNT_OF(part); i++)
            (void)json_object_set_new(
                out, part[i],
                since(json_object_get(after, part[i]), json_object_get(before, part[i])));
    }
    json_decref(before);
    json_decref(said);
    json_decref(after);
    return out;
}
