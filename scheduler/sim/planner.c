/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/planner.h"

#include "appliance/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_FIRST 0.05 /* requests a second and appliance; doubled until it is too much */
#define DOUBLINGS  16u
#define BISECTIONS 7u

/* loads, over the highest rate that is kept */
static const double loads[TDM_PLANNER_LOADS] = {0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.2};

/* One look at a rate: what all appliances together showed. */
typedef struct look {
    const tdm_planner_ask_t *ask;
    tdm_cost_t cost;
    uint32_t route;
    uint32_t appliances;
    tdm_workload_t all;   /* at the rate */
    tdm_workload_t share; /* of one appliance */
    double *ttft, *e2e;
    uint32_t served, good, asked;
    uint64_t over_cnt;
    double busy, attention, both, fused;
    tdm_sim_result_t one, sum;
    tdm_planner_point_t *out;
} look_t;

static void see(void *ctx, const tdm_sim_request_t *r) {
    look_t *l = ctx;
    if (r->refused != TDM_REASON_NONE) return;
    double ttft = (double)(r->first_ns - r->arrival_ns);
    l->ttft[l->served] = ttft;
    l->e2e[l->served++] = (double)(r->last_ns - r->arrival_ns);
    l->over_cnt += r->over_cnt;
    l->good += ttft <= (double)l->ask->ttft_ns &&
               (double)r->over_cnt <= l->ask->epsilon * (double)r->gap_cnt;
}

/* work_ns predicts what a request costs an appliance that is full: its
   prompt in slices of 1,024, its output in a batch of 64. */
static double work_ns(const tdm_planner_ask_t *ask, const tdm_workload_row_t *row) {
    tdm_load_t fill = {.prefill_cnt = 1024, .pair_cnt = 1024ull * (row->prompt_cnt / 2u + 512u)};
    tdm_load_t step = {.decode_cnt = 64, .kv_cnt = 64ull * row->prompt_cnt};
    return tdm_table_ns(ask->table, 0, &fill) / 1024.0 * row->prompt_cnt +
           tdm_table_ns(ask->table, 0, &step) / 64.0 * row->output_cnt;
}

/* balance gives each row of `all` an appliance and puts those of `mine`
   into share. */
static void balance(look_t *l, uint32_t mine) {
    double free_at[TDM_PLANNER_APPLIANCE_MAX] = {0};
    l->share.row_cnt = 0;
    for (uint32_t i = 0; i < l->all.row_cnt; i++) {
        const tdm_workload_row_t *row = &l->all.row[i];
        uint32_t best = 0;
        for (uint32_t k = 1; k < l->appliances; k++)
            if (free_at[k] < free_at[best]) best = k;
        free_at[best] = TDM_MAX(free_at[best], (double)row->at_ns) + work_ns(l->ask, row);
        if (best == mine) l->share.row[l->share.row_cnt++] = *row;
    }
}

static void add_up(look_t *l) {
    const tdm_sim_result_t *r = &l->one;
    for (uint32_t i = 0; i <= TDM_SIM_BIN_CNT; i++) l->sum.bin[i] += r->bin[i];
    l->sum.gap_cnt += r->gap_cnt;
    double n = (double)r->iteration_cnt;
    l->busy += n;
    l->attention += n * r->attention_share;
    l->fused += n * r->fused_share;
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) l->out->fallback[i] += r->fallback[i];
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* shares gives p50, p99 and p99.9, each the least value that so many do not
   exceed: of fewer than 100 requests p99 is the worst, as in a replay. */
static void shares(double *v, uint32_t cnt, double out[3]) {
    static const double at[3] = {0.5, 0.99, 0.999};
    qsort(v, cnt, sizeof *v, ascending);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t rank = (uint32_t)ceil(at[i] * cnt - 1e-9);
        out[i] = cnt ? v[TDM_MAX(rank, 1u) - 1u] : 0.0;
    }
}

static void conclude(look_t *l) {
    static const double at[3] = {0.5, 0.99, 0.999};
    tdm_planner_point_t *p = l->out;
    p->attainment = (double)l->good / (double)l->all.row_cnt;
    p->over_share = l->sum.gap_cnt ? (double)l->over_cnt / (double)l->sum.gap_cnt : 0.0;
    for (uint32_t i = 0; i < 3; i++) p->gap_ns[i] = tdm_sim_gap_ns(&l->sum, at[i]);
    shares(l->ttft, l->served, p->ttft_ns);
    shares(l->e2e, l->served, p->e2e_ns);
    p->fused_share = l->busy > 0.0 ? l->fused / l->busy : 0.0;
    p->attention_share = l->busy > 0.0 ? l->attention / l->busy : 0.0;
}

/* look_at runs all appliances at a rate; is_kept says whether the promise
   held. */
static tdm_status_t look_at(look_t *l, double rate, tdm_planner_point_t *out, int *is_kept,
                            tdm_error_t *err) {
    const tdm_planner_ask_t *ask = l->ask;
    memcpy(l->all.row, ask->workload->row, l->all.row_cnt * sizeof *l->all.row);
    l->all.has_arrivals = ask->workload->has_arrivals;
    tdm_workload_pace(&l->all, rate, ask->cv > 0.0 ? ask->cv : 1.0, ask->seed);
    memset(out, 0, sizeof *out);
    memset(&l->sum, 0, sizeof l->sum);
    l->served = l->good = 0;
    l->over_cnt = 0;
    l->busy = l->attention = l->fused = 0.0;
    l->out = out;
    out->rate = rate;
    for (uint32_t i = 0; i < l->appliances; i++) {
        balance(l, i);
        if (l->share.row_cnt == 0) continue;
        tdm_sim_ask_t one = {.workload = &l->share,
                             .cost = &l->cost,
                             .table = ask->table,
                             .sizes = ask->sizes,
                             .live = ask->live,
                             .seed = ask->seed + i,
                             .gap_ns = ask->gap_ns,
                             .ttft_ns = ask->ttft_ns,
                             .seen = see,
                             .ctx = l};
        one.live.route = l->route;
        tdm_status_t st = tdm_sim_run(&one, &l->one, err);
        if (st != TDM_OK) return st;
        add_up(l);
    }
    conclude(l);
    *is_kept = l->served == l->all.row_cnt && out->over_share <= ask->epsilon &&
               out->ttft_ns[1] <= (double)ask->ttft_ns;
    return TDM_OK;
}

/* find_best leaves the highest rate that is kept in best, 0 for none. */
static tdm_status_t find_best(look_t *l, double *best, tdm_error_t *err) {
    tdm_planner_point_t point;
    double low = 0.0, high = RATE_FIRST * l->appliances;
    int is_kept = 1;
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; i < DOUBLINGS && is_kept && st == TDM_OK; i++) {
        st = look_at(l, high, &point, &is_kept, err);
        if (!is_kept) break;
        low = high;
        high *= 2.0;
    }
    for (uint32_t i = 0; i < BISECTIONS && low > 0.0 && st == TDM_OK; i++) {
        double mid = (low + high) / 2.0;
        st = look_at(l, mid, &point, &is_kept, err);
        if (is_kept)
            low = mid;
        else
            high = mid;
    }
    *best = low;
    return st;
}

static tdm_status_t draw_curve(look_t *l, tdm_planner_curve_t *c, tdm_error_t *err) {
    int is_kept;
    *c = (tdm_planner_curve_t){.route = l->route, .appliances = l->appliances};
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; i < l->ask->rate_cnt && st == TDM_OK; i++)
        st = look_at(l, l->ask->rate[i], &c->point[c->point_cnt++], &is_kept, err);
    if (l->ask->rate_cnt > 0) return st;
    st = find_best(l, &c->best, err);
    double base = c->best > 0.0 ? c->best : RATE_FIRST * l->appliances;
    for (uint32_t i = 0; i < TDM_PLANNER_LOADS && st == TDM_OK; i++)
        st = look_at(l, base * loads[i], &c->point[c->point_cnt++], &is_kept, err);
    return st;
}

tdm_status_t tdm_planner_run(const tdm_planner_ask_t *ask, tdm_planner_curve_t *curve,
                             tdm_error_t *err) {
    size_t rows = ask->workload->row_cnt;
    if (ask->appliance_max == 0 || ask->appliance_max > TDM_PLANNER_APPLIANCE_MAX ||
        rows < ask->appliance_max || ask->rate_cnt > TDM_PLANNER_LOADS)
        return tdm_error_set(err, TDM_ERR_INVAL, "planner: 1 to %u appliances and a workload",
                             TDM_PLANNER_APPLIANCE_MAX);
    look_t *l = calloc(1, sizeof *l);
    tdm_status_t st = TDM_OK;
    if (l) {
        l->ask = ask;
        l->cost = (tdm_cost_t){.table = ask->table,
                               .noise = ask->noise,
                               .slow_window_ns = 60 * TDM_NS_PER_S,
                               .host_ns = 50 * TDM_NS_PER_US};
        l->all.row = malloc(rows * sizeof *l->all.row);
        l->share.row = malloc(rows * sizeof *l->share.row);
        l->ttft = malloc(rows * sizeof *l->ttft);
        l->e2e = malloc(rows * sizeof *l->e2e);
    }
    if (!l || !l->all.row || !l->share.row || !l->ttft || !l->e2e)
        st = tdm_error_set(err, TDM_ERR_NOMEM, "planner: no memory");
    for (uint32_t n = 1; n <= ask->appliance_max && st == TDM_OK; n++)
        for (uint32_t r = 0; r < TDM_PLANNER_ROUTES && st == TDM_OK; r++) {
            l->appliances = n;
            l->all.row_cnt = (uint32_t)(rows * n / ask->appliance_max);
            l->route = TDM_ROUTE_FUSED + r;
            st = draw_curve(l, curve++, err);
        }
    if (l) {
        free(l->all.row);
        free(l->share.row);
        free(l->ttft);
        free(l->e2e);
    }
    free(l);
    return st;
}
