/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/plan.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/measured.h"
#include "appliance/ctl/options.h"
#include "appliance/profile/file.h"
#include "scheduler/sim/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KV_BYTES 131072.0 /* a token: 32 layers, 8 heads of 128, K and V, two bytes */
#define LINK_US  50.0
#define FLOOR    128.0 /* tokens; fewer where --prefill-tokens are */

/* What the command line asked for. */
typedef struct words {
    const char *profile;
    const char *trace;
    const char *html;
    const char *measured; /* NULL: what lies beside the profile */
    int is_json, is_spread;
    double requests, ttft_ms, ttft_share, gap_ms, epsilon, appliances, kv_pages, noise, seed;
    double scale, cv, sequences, context, prefill_tokens, grid, starve_ms;
    double floor;             /* 0: not named */
    double kv_bytes, link_us; /* < 0: not named */
    double link_gbit[TDM_PLANNER_LINK_MAX];
    uint32_t link_cnt;
    double clock_mhz, stretch; /* 0: the profile's clock */
    double rate[TDM_PLANNER_RATE_MAX];
    uint32_t warm[TDM_PLANNER_RATE_MAX];
    double window;
    uint32_t rate_cnt;
    tdm_planner_policy_t policy[TDM_PLANNER_POLICY_MAX];
    uint32_t policy_cnt;
} words_t;

/* rates_read takes "0.5,0.7,1", of a window "0.5@20,0.7@30". */
static int rates_read(const char *text, words_t *w) {
    for (w->rate_cnt = 0; w->rate_cnt < TDM_PLANNER_RATE_MAX;) {
        double v;
        uint32_t warm;
        const char *end = tdm_ctl_rate_read(text, &v, &warm);
        if (!end) return 0;
        for (uint32_t i = 0; i < w->rate_cnt; i++)
            if (v == w->rate[i]) return 0;
        w->warm[w->rate_cnt] = warm;
        w->rate[w->rate_cnt++] = v;
        if (!*end) return 1;
        text = end + 1;
    }
    return 0;
}

/* policy_read takes one of "quantile", "mean", "margin:1.2", "static:512", "fifo:512". */
static int policy_read(const char *text, size_t sz, tdm_planner_policy_t *p) {
    *p = (tdm_planner_policy_t){.policy = TDM_POLICY_QUANTILE, .margin = 1.0};
    if (sz == 0 || sz >= sizeof p->name) return 0;
    (void)snprintf(p->name, sizeof p->name, "%.*s", (int)sz, text);
    char *colon = strchr(p->name, ':'), *end = NULL;
    double v = colon ? strtod(colon + 1, &end) : 0.0;
    if (colon && (end == colon + 1 || *end)) return 0;
    if (!colon && strcmp(p->name, "quantile") == 0) return 1;
    p->policy = TDM_POLICY_MARGIN;
    if (!colon && strcmp(p->name, "mean") == 0) return 1;
    p->margin = v;
    if (strncmp(p->name, "margin:", 7) == 0) return v >= 0.1 && v <= 10.0;
    p->policy = TDM_POLICY_STATIC;
    p->margin = 1.0;
    end = colon ? strchr(colon, 0) : NULL;
    if (!colon || tdm_ctl_count_read(colon + 1, TDM_PLAN_TOKEN_MAX, &p->token_max) != end) return 0;
    p->is_fifo = strncmp(p->name, "fifo:", 5) == 0;
    return (p->is_fifo || strncmp(p->name, "static:", 7) == 0) && p->token_max > 0;
}

static int policies_read(const char *text, words_t *w) {
    for (w->policy_cnt = 0; w->policy_cnt < TDM_PLANNER_POLICY_MAX; text++) {
        size_t sz = strcspn(text, ",");
        tdm_planner_policy_t *p = &w->policy[w->policy_cnt];
        if (!policy_read(text, sz, p)) return 0;
        for (uint32_t i = 0; i < w->policy_cnt; i++)
            if (strcmp(p->name, w->policy[i].name) == 0) return 0;
        w->policy_cnt++;
        text += sz;
        if (!*text) return 1;
    }
    return 0;
}

/* links_read takes speeds in Gbit/s, rising: "10,25,100". */
static int links_read(const char *text, words_t *w) {
    for (w->link_cnt = 0; w->link_cnt < TDM_PLANNER_LINK_MAX; text++) {
        char *end;
        double v = strtod(text, &end);
        if (end == text || !(v >= 1e-3 && v <= 1e6) || (*end && *end != ',')) return 0;
        if (w->link_cnt > 0 && v <= w->link_gbit[w->link_cnt - 1u]) return 0;
        w->link_gbit[w->link_cnt++] = v;
        text = end;
        if (!*text) return 1;
    }
    return 0;
}

/* list_read takes a value that is a list: 1, 0 where name is no list's, -1
   with err where the value is none. */
static int list_read(const char *name, const char *value, words_t *w, tdm_error_t *err) {
    static const struct {
        const char *name;
        int (*read)(const char *text, words_t *w);
        const char *what;
    } list[] = {{"--rates", rates_read, "up to 16 RATE[@WARM], each once, above 0 and below 1e6"},
                {"--policies", policies_read,
                 "up to 8, each once, of quantile, mean, margin:0.1 to margin:10, static:1 or "
                 "fifo:1 to 8192"},
                {"--link-gbit", links_read, "up to 8 speeds from 0.001 to 1e6, rising"}};
    for (size_t i = 0; i < TDM_COUNT_OF(list); i++) {
        if (strcmp(name, list[i].name) != 0) continue;
        if (list[i].read(value, w)) return 1;
        (void)tdm_error_set(err, TDM_ERR_INVAL, "%s takes %s, not \"%.40s\"", name, list[i].what,
                            value);
        return -1;
    }
    return 0;
}

/* words_fit: what would be without effect is refused. */
static tdm_status_t words_fit(const words_t *w, tdm_error_t *err) {
    const char *what = !w->profile                              ? "--profile is missing"
                       : !w->trace                              ? "--trace is missing"
                       : w->link_cnt > 0 && w->appliances < 2.0 ? "--link-gbit is between pools, "
                                                                  "of --appliances 2 or more"
                       : w->link_cnt == 0 && w->kv_bytes >= 0.0 ? "--kv-bytes needs --link-gbit"
                       : w->link_cnt == 0 && w->link_us >= 0.0  ? "--link-us needs --link-gbit"
                       : w->floor > w->prefill_tokens ? "--floor is more than --prefill-tokens"
                       : w->requests * w->appliances > TDM_WORKLOAD_ROW_MAX
                           ? "--requests, of each of --appliances, are over 1048576"
                           : NULL;
    return what ? tdm_error_set(err, TDM_ERR_INVAL, "%s", what) : TDM_OK;
}

static tdm_status_t words_read(int argc, char **argv, words_t *w, tdm_error_t *err) {
    const struct {
        const char *name;
        const char **at;
    } text[] = {{"--profile", &w->profile},
                {"--trace", &w->trace},
                {"--html", &w->html},
                {"--measured", &w->measured}};
    const tdm_ctl_number_t number[] = {
        {"--requests", &w->requests, 2, TDM_WORKLOAD_ROW_MAX, 1},
        {"--ttft-ms", &w->ttft_ms, 1, 1e7, 0},
        {"--ttft-share", &w->ttft_share, 0.01, 1, 0},
        {"--gap-ms", &w->gap_ms, 1, 1e6, 0},
        {"--epsilon", &w->epsilon, 1e-6, 1, 0},
        {"--appliances", &w->appliances, 1, TDM_PLANNER_APPLIANCE_MAX, 1},
        {"--kv-pages", &w->kv_pages, 1, 1 << 26, 1},
        {"--noise", &w->noise, 0, 1, 0},
        {"--kv-bytes", &w->kv_bytes, 1, 1e9, 0},
        {"--link-us", &w->link_us, 0, 1e6, 0},
        {"--seed", &w->seed, 0, 1e15, 1},
        {"--scale", &w->scale, 1e-6, 1e3, 0},
        {"--cv", &w->cv, 0.05, 50, 0},
        {"--sequences", &w->sequences, 1, TDM_SEQ_MAX, 1},
        {"--context", &w->context, 2, TDM_CONTEXT_MAX, 1},
        {"--prefill-tokens", &w->prefill_tokens, 1, TDM_PLAN_TOKEN_MAX, 1},
        {"--grid", &w->grid, 1, 1024, 1},
        {"--floor", &w->floor, 1, TDM_PLAN_TOKEN_MAX, 1},
        {"--starve-ms", &w->starve_ms, 1, 1e9, 0},
        {"--clock", &w->clock_mhz, 1, 1e5, 0},
        {"--window", &w->window, 1, 86400, 0}};
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        size_t k = 0, t = 0;
        while (k < TDM_COUNT_OF(number) && strcmp(number[k].name, argv[i]) != 0) k++;
        while (t < TDM_COUNT_OF(text) && strcmp(text[t].name, argv[i]) != 0) t++;
        if (strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--spread") == 0) {
            w->is_json |= argv[i][2] == 'j';
            w->is_spread |= argv[i][2] == 's';
            continue;
        }
        int list = list_read(argv[i], value ? value : "", w, err);
        if (list < 0) return TDM_ERR_INVAL;
        if (list == 0 && k == TDM_COUNT_OF(number) && t == TDM_COUNT_OF(text))
            return tdm_ctl_no_use(argv[i], err);
        if (!value) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", argv[i]);
        if (k < TDM_COUNT_OF(number) && tdm_ctl_number_read(&number[k], value, err) != TDM_OK)
            return TDM_ERR_INVAL;
        if (t < TDM_COUNT_OF(text)) *text[t].at = value;
        i++;
    }
    return words_fit(w, err);
}

/* load_trust takes from the profile how it errs, and from a file how plans of
   windows did on its device: the one that was named, or what lies beside it. */
static tdm_status_t load_trust(const words_t *w, const tdm_profile_set_t *set, tdm_trust_t *trust,
                               tdm_error_t *err) {
    char beside[1024];
    *trust = (tdm_trust_t){.shape_cnt = set->check.shape_cnt,
                           .p50 = (double)set->check.p50_error,
                           .p95 = (double)set->check.p95_error,
                           .worst = (double)set->check.worst_error};
    memcpy(trust->device, set->device, sizeof trust->device);
    tdm_measured_beside(w->profile, beside, sizeof beside);
    tdm_status_t st = tdm_measured_read(w->measured ? w->measured : beside, set->model, trust, err);
    return st == TDM_ERR_NOT_FOUND && !w->measured ? TDM_OK : st;
}

/* load_profile builds the table of a file, or of the example, and takes the
   noise from it where none was named. */
static tdm_status_t load_profile(words_t *w, tdm_profile_table_t *table, uint32_t *is_model,
                                 tdm_trust_t *trust, tdm_error_t *err) {
    tdm_cost_t example;
    tdm_profile_t rows;
    tdm_profile_set_t set = {0};
    tdm_cost_llama8b(&example);
    tdm_cost_rows(&example, &rows);
    tdm_status_t st = strcmp(w->profile, "example") == 0
                          ? tdm_cost_profile(&example, &set, err)
                          : tdm_profile_read(w->profile, NULL, NULL, &set, err);
    if (st == TDM_OK) st = tdm_profile_build(&set, &rows, table, err);
    *is_model = set.is_model;
    if (st == TDM_OK && w->clock_mhz > 0.0 && set.clock_khz == 0)
        st = tdm_error_set(err, TDM_ERR_INVAL, "--clock: the profile tells no clock of its own");
    if (st == TDM_OK) st = load_trust(w, &set, trust, err);
    if (w->clock_mhz > 0.0) w->stretch = set.clock_khz / 1e3 / w->clock_mhz;
    if (w->noise < 0.0) w->noise = TDM_MIN(tdm_profile_noise(&set, 0.02), 1.0);
    tdm_profile_set_free(&set);
    return st;
}

static tdm_status_t load_trace(const words_t *w, tdm_workload_t *out, tdm_error_t *err) {
    uint32_t rows = (uint32_t)(w->requests * w->appliances); /* words_fit */
    tdm_status_t st = tdm_workload_generate(w->trace, rows, (uint64_t)w->seed, out, err);
    if (st == TDM_ERR_NOT_FOUND) st = tdm_workload_read(w->trace, rows, out, err);
    if (st == TDM_OK && w->is_spread) tdm_workload_spread(out);
    if (st == TDM_OK) st = tdm_workload_scale(out, w->scale, err);
    if (st == TDM_OK && w->cv > 0.0 && tdm_workload_rate(out) > 0.0)
        return tdm_error_set(err, TDM_ERR_INVAL, "--cv is of drawn arrivals: %s has its own",
                             w->trace);
    if (st != TDM_OK) return st;
    tdm_workload_over_t over = tdm_workload_over(out, (uint32_t)w->context);
    if (over.row_cnt > 0)
        fprintf(stderr,
                "tandemctl: plan: %u of %u requests are cut to --context %.0f, by %llu prompt and "
                "%llu output tokens\n",
                over.row_cnt, out->row_cnt, w->context, (unsigned long long)over.prompt_cnt,
                (unsigned long long)over.output_cnt);
    return TDM_OK;
}

/* name_of leaves the folders of a path out: a report tells no places. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tdm_planner_ask_t ask_of(const words_t *w, const tdm_workload_t *workload,
                                const tdm_profile_table_t *table, uint32_t is_model,
                                const tdm_trust_t *trust) {
    tdm_planner_ask_t a = {.workload = workload,
                           .table = table,
                           .profile_name = name_of(w->profile),
                           .trace_name = name_of(w->trace),
                           .is_model = is_model,
                           .trust = trust,
                           .noise = w->noise,
                           .stretch = w->stretch,
                           .epsilon = w->epsilon,
                           .gap_ns = (int64_t)(w->gap_ms * 1e6),
                           .ttft_ns = (int64_t)(w->ttft_ms * 1e6),
                           .ttft_share = w->ttft_share,
                           .appliance_max = (uint32_t)w->appliances,
                           .seed = (uint64_t)w->seed};
    a.rate_cnt = w->rate_cnt;
    memcpy(a.rate, w->rate, sizeof a.rate);
    memcpy(a.warm, w->warm, sizeof a.warm);
    a.window_ns = (int64_t)(w->window * 1e9);
    a.policy_cnt = w->policy_cnt;
    memcpy(a.policy, w->policy, sizeof a.policy);
    a.link = (tdm_planner_link_t){.token_bytes = w->kv_bytes >= 0.0 ? w->kv_bytes : KV_BYTES,
                                  .cnt = w->link_cnt,
                                  .latency_ns =
                                      (int64_t)((w->link_us >= 0.0 ? w->link_us : LINK_US) * 1e3)};
    for (uint32_t i = 0; i < w->link_cnt; i++) a.link.bytes_per_s[i] = w->link_gbit[i] * 1e9 / 8.0;
    a.cv = w->cv > 0.0 ? w->cv : 1.0;
    a.sizes = (tdm_sched_sizes_t){.seq_max = (uint32_t)w->sequences,
                                  .waiting_max = 65536,
                                  .page_cnt = (uint32_t)w->kv_pages,
                                  .context_max = (uint32_t)w->context,
                                  .vocab = 1000};
    tdm_sched_live_default(&a.live);
    a.live.token_max = (uint32_t)w->prefill_tokens;
    a.live.grid_tok = (uint32_t)w->grid;
    a.live.floor_cnt = (uint32_t)(w->floor > 0.0 ? w->floor : TDM_MIN(FLOOR, w->prefill_tokens));
    a.live.starve_ns = (int64_t)(w->starve_ms * 1e6);
    a.live.waiting_tokens_max = UINT64_MAX / 2;
    for (uint32_t k = 0; k < TDM_SLO_CLASS_MAX; k++) {
        tdm_sched_class_t *c = &a.live.class_of[k];
        c->ttft_ns = a.ttft_ns;
        c->gap_ns = a.gap_ns;
        c->epsilon = w->epsilon;
        c->burst_ns = 0;
    }
    return a;
}

static int write_out(const words_t *w, const tdm_planner_ask_t *ask,
                     const tdm_planner_curve_t *curve, uint32_t cnt) {
    if (w->is_json)
        tdm_report_json(stdout, ask, curve, cnt);
    else
        tdm_report_text(stdout, ask, curve, cnt);
    if (!w->html) return 0;
    FILE *f = fopen(w->html, "w");
    if (f) tdm_report_html(f, ask, curve, cnt);
    int ok = f && !ferror(f);
    if (f) ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "tandemctl: %s: %s\n", w->html, strerror(errno));
    return ok ? 0 : 1;
}

int tdm_ctl_plan(int argc, char **argv) {
    words_t w = {.requests = 500,
                 .ttft_ms = 10000,
                 .ttft_share = 0.99,
                 .gap_ms = 100,
                 .epsilon = 0.01,
                 .appliances = 1,
                 .kv_pages = 14000,
                 .noise = -1, /* the profile's */
                 .seed = 1,
                 .kv_bytes = -1,
                 .link_us = -1,
                 .scale = 1,
                 .sequences = TDM_SEQ_MAX,
                 .context = TDM_CONTEXT_MAX,
                 .prefill_tokens = 2048,
                 .grid = 128,
                 .starve_ms = 10000};
    tdm_error_t err = {0};
    if (words_read(argc, argv, &w, &err) != TDM_OK) return tdm_ctl_usage("plan", &err);
    uint32_t is_model = 0;
    tdm_trust_t trust = {0};
    tdm_profile_table_t *table = malloc(sizeof *table);
    tdm_planner_curve_t *curve = NULL;
    tdm_workload_t workload = {0};
    tdm_status_t st = table ? load_profile(&w, table, &is_model, &trust, &err)
                            : tdm_error_set(&err, TDM_ERR_NOMEM, "no memory");
    if (st == TDM_OK) st = load_trace(&w, &workload, &err);
    tdm_planner_ask_t ask = ask_of(&w, &workload, table, is_model, &trust);
    uint32_t cnt = tdm_planner_curve_cnt(&ask);
    if (st == TDM_OK) curve = calloc(cnt, sizeof *curve);
    if (st == TDM_OK && !curve) st = tdm_error_set(&err, TDM_ERR_NOMEM, "no memory");
    if (st == TDM_OK) st = tdm_planner_run(&ask, curve, &err);
    int rc = 1;
    if (st == TDM_OK)
        rc = write_out(&w, &ask, curve, cnt);
    else
        fprintf(stderr, "tandemctl: plan: %s\n", err.text);
    tdm_workload_free(&workload);
    free(curve);
    free(table);
    return rc;
}
