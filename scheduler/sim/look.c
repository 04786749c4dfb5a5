/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/look.h"

#include "appliance/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tdm_status_t tdm_look_open(const tdm_planner_ask_t *ask, tdm_look_t **out, tdm_error_t *err) {
    size_t rows = ask->workload->row_cnt;
    tdm_look_t *l = *out = calloc(1, sizeof *l);
    if (!l) return tdm_error_set(err, TDM_ERR_NOMEM, "planner: no memory");
    l->ask = ask;
    l->cost = (tdm_cost_t){.table = ask->table,
                           .noise = ask->noise,
                           .slow_window_ns = 60 * TDM_NS_PER_S,
                           .host_ns = 50 * TDM_NS_PER_US};
    l->all.row = malloc(rows * sizeof *l->all.row);
    l->share.row = malloc(rows * sizeof *l->share.row);
    l->owner = malloc(rows * sizeof *l->owner);
    l->handed = malloc(rows * sizeof *l->handed);
    l->ttft = malloc(rows * sizeof *l->ttft);
    l->e2e = malloc(rows * sizeof *l->e2e);
    if (l->all.row && l->share.row && l->owner && l->handed && l->ttft && l->e2e) return TDM_OK;
    tdm_look_close(l);
    *out = NULL;
    return tdm_error_set(err, TDM_ERR_NOMEM, "planner: no memory for %zu requests", rows);
}

void tdm_look_close(tdm_look_t *l) {
    if (!l) return;
    free(l->all.row);
    free(l->share.row);
    free(l->owner);
    free(l->handed);
    free(l->ttft);
    free(l->e2e);
    free(l);
}

uint32_t tdm_look_deal(tdm_look_dealer_t *d, double at_ns, double work_ns) {
    uint32_t best = 0;
    for (uint32_t k = 1; k < d->cnt; k++)
        if (d->free_at[k] < d->free_at[best]) best = k;
    d->free_at[best] = TDM_MAX(d->free_at[best], at_ns) + work_ns;
    return best;
}

double tdm_look_fill_ns(const tdm_look_t *l, const tdm_workload_row_t *row) {
    tdm_load_t fill = {.prefill_cnt = 1024, .pair_cnt = 1024ull * (row->prompt_cnt / 2u + 512u)};
    return tdm_table_ns(l->ask->table, 0, &fill) / 1024.0 * row->prompt_cnt;
}

double tdm_look_step_ns(const tdm_look_t *l, const tdm_workload_row_t *row) {
    tdm_load_t step = {.decode_cnt = 64, .kv_cnt = 64ull * row->prompt_cnt};
    return tdm_table_ns(l->ask->table, 0, &step) / 64.0 * row->output_cnt;
}

void tdm_look_served(tdm_look_t *l, double ttft_ns, double e2e_ns, uint32_t gap_cnt,
                     uint32_t over_cnt) {
    l->ttft[l->served] = ttft_ns;
    l->e2e[l->served++] = e2e_ns;
    l->over_cnt += over_cnt;
    l->good +=
        ttft_ns <= (double)l->ask->ttft_ns && (double)over_cnt <= l->ask->epsilon * (double)gap_cnt;
}

static void see(void *ctx, const tdm_sim_request_t *r) {
    if (r->refused != TDM_REASON_NONE) return;
    tdm_look_served(ctx, (double)(r->first_ns - r->arrival_ns),
                    (double)(r->last_ns - r->arrival_ns), r->gap_cnt, r->over_cnt);
}

static void add_up(tdm_look_t *l) {
    const tdm_sim_result_t *r = &l->one;
    tdm_sim_result_t *sum = &l->sum;
    for (uint32_t i = 0; i <= TDM_SIM_BIN_CNT; i++) sum->bin[i] += r->bin[i];
    sum->gap_cnt += r->gap_cnt;
    sum->busy_ns += r->busy_ns;
    sum->attention_ns += r->attention_ns;
    sum->serial_attention_ns += r->serial_attention_ns;
    sum->both_cnt += r->both_cnt;
    sum->fused_cnt += r->fused_cnt;
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) {
        l->out->fallback[i] += r->fallback[i];
        sum->lost_ns[i] += r->lost_ns[i];
    }
}

tdm_status_t tdm_look_run(tdm_look_t *l, uint32_t k,
                          void (*seen)(void *ctx, const tdm_sim_request_t *r), tdm_error_t *err) {
    const tdm_planner_ask_t *ask = l->ask;
    if (l->share.row_cnt == 0) return TDM_OK;
    tdm_sim_ask_t one = {.workload = &l->share,
                         .cost = &l->cost,
                         .table = ask->table,
                         .sizes = ask->sizes,
                         .live = ask->live,
                         .seed = ask->seed + k,
                         .gap_ns = ask->gap_ns,
                         .ttft_ns = ask->ttft_ns,
                         .seen = seen,
                         .ctx = l};
    one.live.route = l->route;
    if (ask->policy_cnt > 0) {
        const tdm_planner_policy_t *p = &ask->policy[l->policy];
        one.live.policy = p->policy;
        if (p->policy == TDM_POLICY_MARGIN) one.live.margin = p->margin;
        if (p->token_max > 0) one.live.token_max = p->token_max;
        one.live.floor_cnt = TDM_MIN(one.live.floor_cnt, one.live.token_max);
    }
    tdm_status_t st = tdm_sim_run(&one, &l->one, err);
    if (st == TDM_OK) add_up(l);
    return st;
}

static tdm_status_t run_mixed(tdm_look_t *l, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    for (uint32_t k = 0; k < l->appliances && st == TDM_OK; k++) {
        tdm_look_dealer_t d = {.cnt = l->appliances};
        l->share.row_cnt = 0;
        for (uint32_t i = 0; i < l->all.row_cnt; i++) {
            const tdm_workload_row_t *row = &l->all.row[i];
            double work_ns = tdm_look_fill_ns(l, row) + tdm_look_step_ns(l, row);
            if (tdm_look_deal(&d, (double)row->at_ns, work_ns) == k)
                l->share.row[l->share.row_cnt++] = *row;
        }
        st = tdm_look_run(l, k, see, err);
    }
    return st;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* at_share reads sorted values. */
static double at_share(const double *v, uint32_t cnt, double share) {
    uint32_t rank = (uint32_t)ceil(share * cnt - 1e-9);
    return cnt ? v[TDM_MAX(rank, 1u) - 1u] : 0.0;
}

/* shares gives p50, p99 and p99.9, each the least value that so many do not
   exceed: of fewer than 100 requests p99 is the worst, as in a replay. */
static void shares(double *v, uint32_t cnt, double out[3]) {
    static const double at[3] = {0.5, 0.99, 0.999};
    qsort(v, cnt, sizeof *v, ascending);
    for (uint32_t i = 0; i < 3; i++) out[i] = at_share(v, cnt, at[i]);
}

static double over(double a, double b) {
    return b > 0.0 ? a / b : 0.0;
}

static void conclude(tdm_look_t *l) {
    static const double at[3] = {0.5, 0.99, 0.999};
    const tdm_sim_result_t *r = &l->sum;
    tdm_planner_point_t *p = l->out;
    p->attainment = (double)l->good / (double)l->all.row_cnt;
    p->over_share = over((double)l->over_cnt, (double)r->gap_cnt);
    for (uint32_t i = 0; i < 3; i++) p->gap_ns[i] = tdm_sim_gap_ns(r, at[i]);
    shares(l->ttft, l->served, p->ttft_ns);
    p->ttft_p90_ns = at_share(l->ttft, l->served, 0.9);
    shares(l->e2e, l->served, p->e2e_ns);
    p->fused_share = over((double)r->fused_cnt, (double)r->both_cnt);
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++)
        p->lost_share[i] = over(r->lost_ns[i], r->busy_ns);
    p->attention_share = over(r->attention_ns, r->busy_ns);
    p->serial_share =
        over(r->serial_attention_ns, r->busy_ns - r->attention_ns + r->serial_attention_ns);
    p->attention_speedup = over(r->serial_attention_ns, r->attention_ns);
}

tdm_status_t tdm_look_at(tdm_look_t *l, double rate, tdm_planner_point_t *out, int *is_kept,
                         tdm_error_t *err) {
    const tdm_planner_ask_t *ask = l->ask;
    l->all.row_cnt =
        (uint32_t)((uint64_t)ask->workload->row_cnt * l->appliances / ask->appliance_max);
    memcpy(l->all.row, ask->workload->row, l->all.row_cnt * sizeof *l->all.row);
    l->all.has_arrivals = ask->workload->has_arrivals;
    tdm_workload_pace(&l->all, rate, ask->cv > 0.0 ? ask->cv : 1.0, ask->seed);
    memset(out, 0, sizeof *out);
    memset(&l->sum, 0, sizeof l->sum);
    l->served = l->good = 0;
    l->over_cnt = 0;
    l->out = out;
    out->rate = rate;
    tdm_status_t st = l->prefill_cnt > 0 ? tdm_look_pools(l, err) : run_mixed(l, err);
    if (st != TDM_OK) return st;
    conclude(l);
    double share = ask->ttft_share > 0.0 ? ask->ttft_share : 0.99;
    *is_kept = l->served == l->all.row_cnt && out->over_share <= ask->epsilon &&
               at_share(l->ttft, l->served, share) <= (double)ask->ttft_ns;
    return TDM_OK;
}
