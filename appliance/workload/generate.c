/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/clock.h"
#include "appliance/base/rng.h"
#include "appliance/workload/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX ((double)(1u << 20))

/* A log-normal fit of prompt and output lengths; rho correlates their
   logarithms.  arxiv_sample, azure_*: fitted to the public files;
   arxiv_long, mooncake: from their published median and 90th percentile. */
typedef struct fit {
    const char *name;
    double prompt_mu, prompt_sigma;
    double output_mu, output_sigma;
    double rho;
    double prompt_min, prompt_max;
} fit_t;

static const fit_t fits[] = {
    {"arxiv_sample", 9.08, 0.51, 5.87, 0.61, 0.57, 4097, 31805},
    {"arxiv_long", 10.23, 0.25, 5.76, 0.50, 0.3, 8192, 65536},
    {"azure_code", 7.00, 1.36, 2.79, 0.85, 0.0, 1, 8000},
    {"azure_conv", 6.63, 0.99, 5.02, 0.86, 0.0, 1, 14050},
    {"mooncake", 8.84, 1.07, 5.86, 0.42, 0.0, 1, 123000},
};

static double unit(tdm_rng_t *r) {
    return 1.0 - tdm_rng_unit(tdm_rng_next(r));
}

static double normal(tdm_rng_t *r) {
    double u = unit(r), v = unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* gamma_draw has mean shape and variance shape (Marsaglia and Tsang, 2000;
   below 1 by their boost). */
static double gamma_draw(tdm_rng_t *r, double shape) {
    double boost = 1.0;
    if (shape < 1.0) {
        boost = pow(unit(r), 1.0 / shape);
        shape += 1.0;
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (int i = 0; i < 1000; i++) {
        double x = normal(r), v = 1.0 + c * x;
        if (v <= 0.0) continue;
        v = v * v * v;
        if (log(unit(r)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v * boost;
    }
    return d * boost;
}

static double between(double x, double low, double high) {
    return x < low ? low : x < high ? x : high;
}

tdm_status_t tdm_workload_generate(const char *name, uint32_t row_cnt, uint64_t seed,
                                   tdm_workload_t *w, tdm_error_t *err) {
    size_t k = 0;
    while (k < TDM_COUNT_OF(fits) && strcmp(fits[k].name, name) != 0) k++;
    if (k == TDM_COUNT_OF(fits))
        return tdm_error_set(err, TDM_ERR_NOT_FOUND, "workload: no fit is called %s", name);
    const fit_t *f = &fits[k];
    tdm_rng_t r = {.state = seed};
    row_cnt = TDM_MIN(row_cnt, TDM_WORKLOAD_ROW_MAX);
    *w = (tdm_workload_t){.row = calloc((size_t)row_cnt + 1u, sizeof *w->row), .row_cnt = row_cnt};
    if (!w->row) return tdm_error_set(err, TDM_ERR_NOMEM, "workload: no memory");
    for (uint32_t i = 0; i < row_cnt; i++) {
        double a = normal(&r), b = f->rho * a + sqrt(1.0 - f->rho * f->rho) * normal(&r);
        double prompt =
            between(exp(f->prompt_mu + f->prompt_sigma * a), f->prompt_min, f->prompt_max);
        double output = between(exp(f->output_mu + f->output_sigma * b), 1.0, 4096.0);
        w->row[i] =
            (tdm_workload_row_t){.prompt_cnt = (uint32_t)prompt, .output_cnt = (uint32_t)output};
    }
    return TDM_OK;
}

/* row_at gives the row that output token `at` of all belongs to, and how far
   into the row it is. */
static const tdm_workload_row_t *row_at(const tdm_workload_t *w, uint64_t at, uint32_t *into) {
    const tdm_workload_row_t *row = w->row;
    while (at >= row->output_cnt) at -= (row++)->output_cnt;
    *into = (uint32_t)at;
    return row;
}

tdm_status_t tdm_workload_warm(const tdm_workload_t *w, uint32_t cnt, uint64_t seed,
                               tdm_workload_t *out, tdm_error_t *err) {
    tdm_rng_t r = {.state = tdm_rng_mix(seed) ^ UINT64_C(0x3a93)};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->row_cnt; i++) sum += w->row[i].output_cnt;
    *out = (tdm_workload_t){.row = calloc(cnt + 1u, sizeof *out->row), .has_arrivals = 1};
    if (!out->row) return tdm_error_set(err, TDM_ERR_NOMEM, "workload: no memory for %u rows", cnt);
    for (; sum > 0 && out->row_cnt < cnt; out->row_cnt++) {
        uint32_t into;
        const tdm_workload_row_t *row = row_at(w, tdm_rng_next(&r) % sum, &into);
        uint32_t prompt = row->prompt_cnt + into;
        out->row[out->row_cnt] = (tdm_workload_row_t){
            .prompt_cnt = prompt, .output_cnt = row->output_cnt - into, .held_cnt = prompt};
    }
    return TDM_OK;
}

void tdm_workload_rotate(tdm_workload_t *w, uint64_t seed) {
    tdm_rng_t r = {.state = seed};
    if (w->row_cnt == 0) return;
    uint32_t by = tdm_rng_below(&r, w->row_cnt);
    tdm_workload_row_t *copy = malloc(w->row_cnt * sizeof *copy);
    if (!copy) return;
    memcpy(copy, w->row, w->row_cnt * sizeof *copy);
    for (uint32_t i = 0; i < w->row_cnt; i++) {
        int64_t at_ns = w->row[i].at_ns;
        w->row[i] = copy[(i + by) % w->row_cnt];
        w->row[i].at_ns = at_ns;
    }
    free(copy);
}

static uint32_t scaled(uint32_t cnt, double factor) {
    return (uint32_t)fmax(cnt * factor + 0.5, 1.0);
}

tdm_status_t tdm_workload_scale(tdm_workload_t *w, double factor, tdm_error_t *err) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < w->row_cnt; i++)
        most = TDM_MAX(most, TDM_MAX(w->row[i].prompt_cnt, w->row[i].output_cnt));
    if (!(most * factor <= LENGTH_MAX))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "scaled by %.9g the longest of %u tokens is over %.0f", factor, most,
                             LENGTH_MAX);
    for (uint32_t i = 0; i < w->row_cnt; i++) {
        w->row[i].prompt_cnt = scaled(w->row[i].prompt_cnt, factor);
        w->row[i].output_cnt = scaled(w->row[i].output_cnt, factor);
    }
    return TDM_OK;
}

tdm_workload_over_t tdm_workload_over(const tdm_workload_t *w, uint32_t context) {
    tdm_workload_over_t over = {0};
    for (uint32_t i = 0; i < w->row_cnt; i++) {
        tdm_workload_row_t row = w->row[i];
        tdm_workload_row_fit(&row, context);
        uint32_t prompt = w->row[i].prompt_cnt - row.prompt_cnt,
                 output = w->row[i].output_cnt - row.output_cnt;
        over.row_cnt += prompt + output > 0;
        over.prompt_cnt += prompt;
        over.output_cnt += output;
    }
    return over;
}

void tdm_workload_spread(tdm_workload_t *w) {
    int64_t step_ns = 0; /* the last moment's rows get as much as the one before */
    for (uint32_t i = 0, end; i < w->row_cnt; i = end) {
        int64_t at_ns = w->row[i].at_ns;
        for (end = i + 1u; end < w->row_cnt && w->row[end].at_ns == at_ns;) end++;
        if (end < w->row_cnt) step_ns = w->row[end].at_ns - at_ns;
        for (uint32_t k = i; k < end; k++) w->row[k].at_ns += step_ns * (k - i) / (end - i);
    }
}

double tdm_workload_rate(const tdm_workload_t *w) {
    if (w->row_cnt < 2 || w->row[w->row_cnt - 1u].at_ns <= 0) return 0.0;
    return (double)(w->row_cnt - 1u) * 1e9 / (double)w->row[w->row_cnt - 1u].at_ns;
}

void tdm_workload_pace(tdm_workload_t *w, double rate, double cv, uint64_t seed) {
    tdm_rng_t r = {.state = seed ^ UINT64_C(0x9ace)};
    if (w->row_cnt < 2 || !(rate > 0.0)) return;
    if (w->has_arrivals && w->row[w->row_cnt - 1].at_ns > 0) {
        double want = (double)(w->row_cnt - 1u) / rate * (double)TDM_NS_PER_S;
        double stretch = want / (double)w->row[w->row_cnt - 1].at_ns;
        for (uint32_t i = 0; i < w->row_cnt; i++)
            w->row[i].at_ns = (int64_t)((double)w->row[i].at_ns * stretch);
        return;
    }
    double shape = 1.0 / (cv * cv), at = 0.0;
    for (uint32_t i = 0; i < w->row_cnt; i++) {
        w->row[i].at_ns = (int64_t)(at * (double)TDM_NS_PER_S);
        at += gamma_draw(&r, shape) / shape / rate;
    }
}
