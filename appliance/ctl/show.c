/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/show.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/page.h"
#include "appliance/ctl/table.h"
#include "appliance/ctl/yaml.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* print_findings says what is wrong; the gravest are first.  Returns how
   many are worse than a notice. */
static int print_findings(const json_t *root) {
    const json_t *list = json_object_get(root, "findings");
    int worse = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        const char *gravity = json_string_value(json_object_get(f, "gravity"));
        const char *text = json_string_value(json_object_get(f, "text"));
        printf("%-10s%s\n", gravity ? gravity : "?", text ? text : "?");
        worse += gravity && strcmp(gravity, "notice") != 0;
    }
    if (json_array_size(list) == 0) {
        const char *state = json_string_value(json_object_get(root, "state"));
        printf("%s, nothing is wrong\n", state ? state : "?");
    }
    return worse;
}

/* What a word shows: a page, or some members of /status; and the metrics
   that say the same, by the beginnings of their names. */
typedef struct view {
    const char *word;
    const char *path;
    const char *member[4]; /* none: the whole page */
    const char *metric[6]; /* none: no metric says it */
} view_t;

static const view_t view[] = {
    {"status", "/status", {NULL}, {"tandem_"}},
    {"health", "/status", {"state", "findings", "faults"}, {"tandem_state", "tandem_faults_total"}},
    {"slo",
     "/status",
     {"slo", "latency"},
     {"tandem_slo_", "tandem_ttft_", "tandem_itl_", "tandem_e2e_", "tandem_goodput_"}},
    {"scheduler",
     "/status",
     {"requests", "iterations", "chunk_limited"},
     {"tandem_sched_", "tandem_iterations_total", "tandem_queue_", "tandem_admission_total"}},
    {"attention",
     "/status",
     {"hybrid", "vcta", "cta_tiles", "fallbacks"},
     {"tandem_hybrid_", "tandem_vcta_", "tandem_tile_iterations_", "tandem_fallbacks_",
      "tandem_attention_", "tandem_colocated_"}},
    {"fallbacks",
     "/status",
     {"hybrid", "fallbacks"},
     {"tandem_hybrid_iterations_total", "tandem_fallbacks_total"}},
    {"drops", "/status", {"net"}, {"tandem_net_"}},
    {"rings", "/status", {"rings"}, {"tandem_ring_"}},
    {"tiles", "/status", {"tiles"}, {"tandem_tile_seconds_", "tandem_tile_turn_"}},
    {"kv", "/status", {"kv"}, {"tandem_kv_", "tandem_prefix_"}},
    {"requests",
     "/status",
     {"requests", "tokens", "latency", "refusals"},
     {"tandem_request", "tandem_queue_", "tandem_tokens_", "tandem_refusals_", "tandem_ttft_",
      "tandem_e2e_"}},
    {"flight", "/status", {"flight"}, {"tandem_flight_"}},
    {"gpu", "/status", {"tandem", "gpu", "board", "time"}, {"tandem_executor_", "tandem_gpu_"}},
    {"power", "/status", {"power"}, {"tandem_executor_sm_clock_", "tandem_gpu_"}},
    {"slowest", "/api/v1/requests", {"requests"}, {NULL}},
    {"changes", "/api/v1/changes", {NULL}, {"tandem_config_", "tandem_control_"}},
    {"audit", "/api/v1/audit", {"entries"}, {NULL}},
    {"journey", "/journey", {NULL}, {NULL}}, /* the page is text */
    {"metrics", "/metrics", {NULL}, {"tandem_", "process_"}},
    {"config", "/config", {NULL}, {NULL}},
    {"models", "/v1/models", {NULL}, {NULL}},
    {"version", "/version", {NULL}, {"tandem_build_info"}},
};

/* part gives the members of a view as an object of its own. */
static json_t *part(const view_t *v, const json_t *root) {
    json_t *out = json_object();
    for (size_t i = 0; i < TDM_COUNT_OF(v->member) && v->member[i]; i++) {
        json_t *member = json_object_get(root, v->member[i]);
        if (member) (void)json_object_set(out, v->member[i], member);
    }
    return out;
}

/* print_view prints a page that is a JSON object; the exit status. */
static int print_view(const tdm_ctl_options_t *o, const view_t *v, const json_t *root) {
    int is_status = strcmp(v->word, "status") == 0, is_health = strcmp(v->word, "health") == 0;
    json_t *shown = v->member[0] ? part(v, root) : json_incref((json_t *)(uintptr_t)root);
    int worse = 0;
    if (o->form != TDM_FORM_TABLE) {
        if (o->form == TDM_FORM_YAML) {
            tdm_yaml_print(shown, stdout);
        } else {
            char *text = json_dumps(shown, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
            printf("%s\n", text ? text : "{}");
            free(text);
        }
        const json_t *list = json_object_get(root, "findings");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *g = json_object_get(json_array_get(list, i), "gravity");
            worse += strcmp(json_string_value(g) ? json_string_value(g) : "", "notice") != 0;
        }
    } else {
        if (is_status || is_health) worse = print_findings(root);
        if (o->since_s)
            printf("%-26s%.0f s\n", "counted over the last",
                   json_number_value(json_object_get(root, "since_s")));
        const char *key;
        json_t *member;
        json_object_foreach(shown, key, member) {
            if (!is_health && strcmp(key, "findings") != 0) tdm_table_print(key, member);
        }
    }
    json_decref(shown);
    return is_health && worse ? TDM_EXIT_DEGRADED : 0;
}

static int print_page(const tdm_ctl_options_t *o, const view_t *v, const tdm_page_t *p) {
    int is_whole = o->is_json && !v->member[0]; /* as the server said it */
    json_t *root = is_whole ? NULL : json_loads(p->text, 0, NULL);
    int rc = 0;
    if (json_is_object(root))
        rc = print_view(o, v, root);
    else
        fputs(p->text, stdout);
    json_decref(root);
    return rc;
}

static const view_t *view_of(const char *word) {
    for (size_t i = 0; i < TDM_COUNT_OF(view); i++)
        if (strcmp(word, view[i].word) == 0) return &view[i];
    return NULL;
}

const char *tdm_show_word(size_t i) {
    return i < TDM_COUNT_OF(view) ? view[i].word : NULL;
}

/* print_metrics prints the lines of Prometheus' text format whose metric's
   name begins as the view's do. */
static int print_metrics(const view_t *v, char *text) {
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        int is_comment = strncmp(line, "# HELP ", 7) == 0 || strncmp(line, "# TYPE ", 7) == 0;
        const char *name = line + (is_comment ? 7 : 0);
        for (size_t i = 0; i < TDM_COUNT_OF(v->metric) && v->metric[i]; i++) {
            if (strncmp(name, v->metric[i], strlen(v->metric[i])) != 0) continue;
            printf("%s\n", line);
            break;
        }
    }
    return 0;
}

static int show_once(const tdm_ctl_options_t *o, const view_t *v) {
    tdm_page_t page;
    tdm_error_t err = {0};
    char path[64];
    if (o->form == TDM_FORM_PROM)
        (void)snprintf(path, sizeof path, "/metrics?set=native");
    else if (o->since_s)
        (void)snprintf(path, sizeof path, "%s?since=%u", v->path, o->since_s);
    else if (o->slowest)
        (void)snprintf(path, sizeof path, "%s?slowest=%u", v->path, o->slowest);
    else
        (void)snprintf(path, sizeof path, "%s", v->path);
    if (tdm_page_get(o, path, &page, &err) != TDM_OK) {
        fprintf(stderr, "tandemctl: %s\n", err.text);
        return TDM_EXIT_UNREACHABLE;
    }
    int rc = page.status == 200 ? 0 : TDM_EXIT_FAILED;
    if (page.text && rc == 0)
        rc = o->form == TDM_FORM_PROM ? print_metrics(v, page.text) : print_page(o, v, &page);
    if (page.status != 200) tdm_page_say(&page);
    free(page.text);
    (void)fflush(stdout);
    return rc;
}

/* fits says what of the options does not fit the view; NULL: all does. */
static const char *fits(const tdm_ctl_options_t *o, const view_t *v) {
    int is_tree = o->form == TDM_FORM_JSON || o->form == TDM_FORM_YAML;
    if (o->form == TDM_FORM_PROM && !v->metric[0]) return "no metric says this";
    if (is_tree && strcmp(v->word, "metrics") == 0)
        return "metrics are text; show status says them as JSON or YAML";
    if (o->form == TDM_FORM_PROM && o->since_s)
        return "metrics count since start: rate() and increase() are Prometheus' part";
    return NULL;
}

int tdm_show(const tdm_ctl_options_t *o) {
    const view_t *v = o->word_cnt == 1 ? view_of(o->word[0]) : NULL;
    if (!v) {
        fprintf(stderr, "tandemctl: show");
        for (size_t i = 0; i < TDM_COUNT_OF(view); i++)
            fprintf(stderr, "%s%s", i ? "|" : " ", view[i].word);
        fprintf(stderr, "\n");
        return TDM_EXIT_USAGE;
    }
    tdm_ctl_uses_t uses = UINT32_MAX;
    int is_slowest = strcmp(v->word, "requests") == 0 || strcmp(v->word, "slowest") == 0;
    if (!is_slowest) uses &= ~TDM_CTL_USE(SLOWEST);
    if (strcmp(v->path, "/status") != 0 || (is_slowest && o->slowest)) uses &= ~TDM_CTL_USE(SINCE);
    char name[32];
    (void)snprintf(name, sizeof name, "show %s", v->word);
    if (tdm_ctl_options_fit(o, name, uses)) return TDM_EXIT_HELP;
    static const view_t journey = {"journey", "/status", {"journey"}, {NULL}};
    int is_tree = o->form == TDM_FORM_JSON || o->form == TDM_FORM_YAML;
    if (o->slowest && strcmp(v->word, "requests") == 0) v = view_of("slowest");
    if (is_tree && strcmp(v->word, "journey") == 0) v = &journey;
    const char *wrong = fits(o, v);
    if (wrong) {
        fprintf(stderr, "tandemctl: show %s: %s\n", v->word, wrong);
        return TDM_EXIT_USAGE;
    }
    tdm_ctl_options_t ask = *o;
    ask.is_patient = o->given[TDM_CTL_SECONDS] != NULL;
    for (;;) {
        if (o->watch_s && isatty(STDOUT_FILENO)) printf("\033[H\033[2J");
        int rc = show_once(&ask, v);
        if (!o->watch_s || ferror(stdout)) return rc;
        (void)sleep(o->watch_s);
    }
}

int tdm_wait_ready(const tdm_ctl_options_t *o) {
    int64_t give_up = tdm_clock_now_ns() + (int64_t)o->seconds * TDM_NS_PER_S;
    tdm_error_t err = {0};
    long status = 0;
    while (tdm_clock_now_ns() < give_up) {
        tdm_page_t page;
        if (o->pid && kill((pid_t)o->pid, 0) != 0) {
            fprintf(stderr, "tandemctl: process %lld is gone\n", (long long)o->pid);
            return TDM_EXIT_FAILED;
        }
        tdm_status_t st = tdm_page_get(o, "/ready", &page, &err);
        status = st == TDM_OK ? page.status : 0;
        free(page.text);
        if (status == 200) return 0;
        (void)usleep(100000);
    }
    fprintf(stderr, "tandemctl: not ready after %u s: %s\n", o->seconds,
            status ? "the server answers, but not 200" : err.text);
    return status ? TDM_EXIT_FAILED : TDM_EXIT_UNREACHABLE;
}
