/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/ctl/profile.h"

#include "appliance/base/clock.h"
#include "appliance/ctl/executor.h"
#include "appliance/ctl/options.h"
#include "appliance/measure/measure.h"
#include "appliance/model/model.h"
#include "appliance/profile/file.h"
#include "appliance/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Products of any number of rows come in the steps of the table's entries
   (tdm_gemm_rows of kernels/cuda). */
#define GPU_STAIR_FROM 1u

typedef struct words {
    tdm_config_t config;
    const char *out;
    const char *version;
    uint32_t budget_s;
    uint32_t power_w;
    int is_json;
} words_t;

static tdm_status_t number(const char *name, const char *value, uint32_t most, uint32_t *out,
                           tdm_error_t *err) {
    const char *end = tdm_ctl_count_read(value, most, out);
    if (end && !*end) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a whole number from 0 to %u, not \"%.40s\"",
                         name, most, value);
}

static tdm_status_t words_read(int argc, char **argv, words_t *w, tdm_error_t *err) {
    tdm_config_default(&w->config);
    w->budget_s = 300;
    for (int i = 2; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        tdm_status_t st = TDM_OK;
        if (strcmp(a, "--json") == 0) {
            w->is_json = 1;
            continue;
        }
        int is_number = strcmp(a, "--budget") == 0 || strcmp(a, "--power-w") == 0;
        if (!is_number && strcmp(a, "--out") != 0 && strcmp(a, "--config") != 0 &&
            strcmp(a, "--set") != 0)
            return tdm_ctl_no_use(a, err);
        if (!value) return tdm_error_set(err, TDM_ERR_INVAL, "%s takes a value", a);
        if (strcmp(a, "--out") == 0)
            w->out = value;
        else if (strcmp(a, "--config") == 0)
            st = tdm_config_load(&w->config, value, err);
        else if (strcmp(a, "--set") == 0)
            st = tdm_config_set(&w->config, value, err);
        else
            st = number(a, value, a[2] == 'b' ? 86400 : 100000,
                        a[2] == 'b' ? &w->budget_s : &w->power_w, err);
        if (st != TDM_OK) return st;
        i++;
    }
    if (!w->out) return tdm_error_set(err, TDM_ERR_INVAL, "--out BASE is missing");
    if (strlen(w->out) > 480) return tdm_error_set(err, TDM_ERR_INVAL, "--out is too long");
    return tdm_config_check(&w->config, err);
}

/* --- what it shows while it works -------------------------------------- */

static struct {
    int is_tty;
    uint32_t shown; /* permille */
} screen;

static void on_load(uint32_t permille) {
    if (!screen.is_tty || permille == screen.shown) return;
    screen.shown = permille;
    fprintf(stderr, "\r\033[Kreading the model: %u %%", permille / 10);
}

static void on_progress(void *ctx, double share, const char *stage, uint32_t points) {
    uint32_t permille = (uint32_t)(share * 1000.0), width = (uint32_t)(share * 30.0);
    (void)ctx;
    if (permille < screen.shown + (screen.is_tty ? 2u : 100u) && permille > 0) return;
    screen.shown = permille;
    if (!screen.is_tty) {
        fprintf(stderr, "%3u %%  %u shapes, %s\n", permille / 10, points, stage);
        return;
    }
    fprintf(stderr, "\r\033[K[");
    for (uint32_t i = 0; i < 30; i++) fputc(i < width ? '#' : '.', stderr);
    fprintf(stderr, "] %3u %%  %u shapes, %s", permille / 10, points, stage);
}

/* --- the measurement ----------------------------------------------------- */

static tdm_status_t on_run(void *ctx, tdm_plan_t *plan, tdm_result_t *result, tdm_error_t *err) {
    (void)plan;
    (void)result;
    return tdm_executor_run(ctx, err);
}

static int64_t on_now(void *ctx) {
    (void)ctx;
    return tdm_clock_now_ns();
}

/* measure keeps to the budget from began_ns on. */
static tdm_status_t measure(const words_t *w, const tdm_model_t *model, int64_t began_ns,
                            tdm_profile_set_t *set, tdm_error_t *err) {
    static tdm_executor_t x;
    tdm_machine_t machine;
    tdm_sizing_t sizing;
    tdm_profile_t guess;
    const tdm_shape_t *shape = tdm_model_shape(model);
    tdm_machine_read(&machine);
    tdm_machine_ask(&w->config, &machine);
    tdm_status_t st = tdm_sizing_make(&w->config, shape, &machine, &sizing, err);
    if (st != TDM_OK) return st;
    /* one slot more than will serve: the prefill slot beside a full house */
    sizing.seq_max = TDM_MIN(sizing.seq_max + 1u, (uint32_t)TDM_SEQ_MAX);
    st = tdm_executor_open(&x, &w->config, &sizing, on_load, err);
    if (st != TDM_OK) return st;
    screen.shown = 0;
    tdm_profile_rates_t rates = sizing.backend == TDM_EXEC_BACKEND_CPU
                                    ? tdm_profile_cpu_rates(sizing.sm_cnt)
                                    : tdm_profile_gpu_rates(machine.device.sm_cnt);
    tdm_profile_guess(shape, &rates, &guess);
    tdm_measure_ask_t ask = {
        .limits = {.seq_max = sizing.seq_max,
                   .token_max = (uint32_t)w->config.sched_prefill_tokens,
                   .context_max = sizing.context_max,
                   .kv_page_cnt = sizing.kv_page_cnt,
                   .vocab = shape->vocab,
                   .is_filled = sizing.backend != TDM_EXEC_BACKEND_CPU},
        .guess = &guess,
        .budget_ns = began_ns + (int64_t)w->budget_s * TDM_NS_PER_S - tdm_clock_now_ns(),
        .stair_from = sizing.backend != TDM_EXEC_BACKEND_CPU ? GPU_STAIR_FROM : 0,
        .run = on_run,
        .now = on_now,
        .plan = x.channel.plan[0],
        .result = x.channel.result[0],
        .progress = on_progress,
        .ctx = &x,
    };
    const char *name = w->config.model_name;
    (void)snprintf(set->device, sizeof set->device, "%s", tdm_sizing_device(&sizing, &machine));
    tdm_sizing_profile_name(&w->config, &sizing, name[0] ? name : tdm_model_name(model), set->model,
                            sizeof set->model);
    tdm_executor_build(&x, w->version, set->build, sizeof set->build);
    set->power_w = w->power_w;
    st = tdm_measure_run(&ask, set, err);
    tdm_executor_close(&x);
    if (screen.is_tty) fputc('\n', stderr);
    return st;
}

static tdm_status_t write_both(const words_t *w, const tdm_profile_set_t *set, tdm_error_t *err) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s.json", w->out);
    tdm_status_t st = tdm_profile_write_json(path, set, err);
    (void)snprintf(path, sizeof path, "%s.bin", w->out);
    return st == TDM_OK ? tdm_profile_write_compact(path, set, err) : st;
}

/* account tells what was measured, and how far it goes. */
static void account(const words_t *w, const tdm_profile_set_t *set, double took_s) {
    static const char *const name[] = {"lin", "fused", "streams", "serial"};
    static const char *const way[] = {"fused", "streams", "serial", "decodes", "prefill"};
    uint32_t cnt[TDM_PROFILE_KIND_CNT] = {0}, most[4] = {0}, samples = 0;
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        cnt[p->kind]++;
        samples += p->cnt;
        if (p->kind == TDM_PROFILE_LIN) continue;
        most[0] = TDM_MAX(most[0], p->chunk);
        most[1] = TDM_MAX(most[1], p->depth);
        most[2] = TDM_MAX(most[2], p->batch);
        most[3] = TDM_MAX(most[3], p->kv);
    }
    if (w->is_json) {
        printf("{\"points\": %u, \"samples\": %u, \"seconds\": %.1f, \"chunk_max\": %u, "
               "\"depth_max\": %u, \"batch_max\": %u, \"kv_max\": %u, \"check_shapes\": %u, "
               "\"check_p50_error\": %.4f, \"check_p95_error\": %.4f, \"check_worst_error\": %.4f",
               set->point_cnt, samples, took_s, most[0], most[1], most[2], most[3],
               set->check.shape_cnt, (double)set->check.p50_error, (double)set->check.p95_error,
               (double)set->check.worst_error);
        for (uint32_t i = 0; i < TDM_PROFILE_WAY_CNT; i++)
            printf(", \"check_%s\": [%u, %.4f, %.4f, %.4f]", way[i], set->way[i].shape_cnt,
                   (double)set->way[i].p50_error, (double)set->way[i].p95_error,
                   (double)set->way[i].worst_error);
        printf("}\n");
        return;
    }
    printf("%s, model %s, build %s\n%u points, %u samples, %.0f s:", set->device, set->model,
           set->build, set->point_cnt, samples, took_s);
    for (uint32_t i = 0; i < TDM_PROFILE_KIND_CNT; i++) printf(" %s %u", name[i], cnt[i]);
    printf("\nmeasured up to %u prefill tokens at depth %u beside %u decodes over %u tokens; "
           "beyond, it is extrapolated\n",
           most[0], most[1], most[2], most[3]);
    printf("%u shapes beside the points: error p50 %.1f %%, p95 %.1f %%, worst %.1f %%\n",
           set->check.shape_cnt, 100.0 * (double)set->check.p50_error,
           100.0 * (double)set->check.p95_error, 100.0 * (double)set->check.worst_error);
    for (uint32_t i = 0; i < TDM_PROFILE_WAY_CNT; i++)
        printf("  %-8s %3u shapes, p50 %4.1f %%, p95 %4.1f %%, worst %4.1f %%\n", way[i],
               set->way[i].shape_cnt, 100.0 * (double)set->way[i].p50_error,
               100.0 * (double)set->way[i].p95_error, 100.0 * (double)set->way[i].worst_error);
    for (uint32_t i = 0; i < set->miss_cnt; i++) {
        const tdm_profile_miss_t *x = &set->miss[i];
        printf("  %s, %u prefill tokens at %u beside %u decodes over %u: %.2f ms, told %.2f\n",
               name[TDM_PROFILE_FUSED + x->variant], x->chunk, x->depth, x->batch, x->kv,
               x->ns * 1e-6, x->told_ns * 1e-6);
    }
}

int tdm_ctl_profile(int argc, char **argv, const char *version) {
    static words_t w;
    tdm_error_t err = {0};
    tdm_model_t *model = NULL;
    tdm_profile_set_t set = {0};
    if (words_read(argc, argv, &w, &err) != TDM_OK) return tdm_ctl_usage("profile", &err);
    w.version = version;
    screen.is_tty = isatty(STDERR_FILENO);
    int64_t began_ns = tdm_clock_now_ns();
    tdm_model_options_t options = {.flags = TDM_MODEL_SHAPE_ONLY};
    tdm_status_t st = tdm_model_open(w.config.model_path, &options, &model, &err);
    if (st == TDM_OK) st = measure(&w, model, began_ns, &set, &err);
    if (st == TDM_OK) st = write_both(&w, &set, &err);
    if (st == TDM_OK)
        account(&w, &set, (double)(tdm_clock_now_ns() - began_ns) / 1e9);
    else
        fprintf(stderr, "tandemctl: profile: %s\n", err.text);
    tdm_profile_set_free(&set);
    tdm_model_close(model);
    return st == TDM_OK ? 0 : 1;
}
