/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/look.h"

#include "appliance/base/clock.h"
#include "appliance/base/real.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAD_NS (500 * TDM_NS_PER_MS) /* from the warm start to a window's first arrival */

tdm_status_t tdm_look_open(const tdm_planner_ask_t *ask, tdm_look_t **out, tdm_error_t *err) {
    size_t rows = ask->workload->row_cnt + (ask->window_ns > 0 ? TDM_SEQ_MAX : 0u);
    tdm_look_t *l = *out = calloc(1, sizeof *l);
    if (!l) return tdm_error_set(err, TDM_ERR_NOMEM, "planner: no memory");
    l->ask = ask;
    l->cost = (tdm_cost_t){.table = ask->table,
                           .noise = ask->noise,
                           .stretch = ask->stretch,
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
    l->heard_cnt++;
    l->ttft[l->served++] = ttft_ns;
    if (e2e_ns >= 0.0) l->e2e[l->ended++] = e2e_ns;
    l->over_cnt += over_cnt;
    l->good +=
        ttft_ns <= (double)l->ask->ttft_ns && (double)over_cnt <= l->ask->epsilon * (double)gap_cnt;
}

/* see takes what a replay would: of a window's warm start the gaps; of those
   that wait at its end who is overdue, with what he has waited. */
static void see(void *ctx, const tdm_sim_request_t *r) {
    tdm_look_t *l = ctx;
    if (r->row < l->warm_cnt) l->over_cnt += r->over_cnt;
    if (r->row < l->warm_cnt || r->refused != TDM_REASON_NONE) return;
    int64_t waited_ns = LEAD_NS + l->ask->window_ns - r->arrival_ns;
    int64_t ttft_ns = r->token_cnt > 0 ? r->first_ns - r->arrival_ns : waited_ns;
    if (r->token_cnt == 0 && waited_ns <= l->ask->ttft_ns)
        l->heard_cnt++; /* and no more can be said of it */
    else
        tdm_look_served(l, (double)ttft_ns, r->is_cut ? -1.0 : (double)(r->last_ns - r->arrival_ns),
                        r->gap_cnt, r->over_cnt);
}

static void add_up(tdm_look_t *l) {
    const tdm_sim_result_t *r = &l->one;
    tdm_sim_result_t *sum = &l->sum;
    for (uint32_t i = 0; i <= TDM_SIM_BIN_CNT; i++) sum->bin[i] += r->bin[i];
    sum->gap_cnt += r->gap_cnt;
    sum->iteration_cnt += r->iteration_cnt;
    sum->gap_sum_ns += r->gap_sum_ns;
    for (uint32_t i = 0; i < 2; i++) sum->waiting[i] += r->waiting[i];
    sum->busy_ns += r->busy_ns;
    sum->attention_ns += r->attention_ns;
    sum->serial_attention_ns += r->serial_attention_ns;
    sum->both_cnt += r->both_cnt;
    sum->fused_cnt += r->fused_cnt;
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) {
        l->out->fallback[i] += r->fallback[i];
        sum->ran_ns[i] += r->ran_ns[i];
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
    if (ask->window_ns > 0) {
        one.from_ns = LEAD_NS;
        one.until_ns = LEAD_NS + ask->window_ns;
    }
    if (ask->policy_cnt > 0) {
        const tdm_planner_policy_t *p = &ask->policy[l->policy];
        one.live.policy = p->policy;
        if (p->policy == TDM_POLICY_MARGIN) one.live.margin = p->margin;
        if (p->token_max > 0) one.live.token_max = p->token_max;
        if (p->is_fifo) one.live.patience = 0.0;
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

/* at_share reads sorted values. */
static double at_share(const double *v, uint32_t cnt, double share) {
    uint32_t rank = (uint32_t)ceil(share * cnt - 1e-9);
    return cnt ? v[TDM_MAX(rank, 1u) - 1u] : 0.0;
}

/* shares gives p50, p99 and p99.9, each the least value that so many do not
   exceed: of fewer than 100 requests p99 is the worst, as in a replay. */
static void shares(double *v, uint32_t cnt, double out[3]) {
    static const double at[3] = {0.5, 0.99, 0.999};
    qsort(v, cnt, sizeof *v, tdm_ascending);
    for (uint32_t i = 0; i < 3; i++) out[i] = at_share(v, cnt, at[i]);
}

static double over(double a, double b) {
    return b > 0.0 ? a / b : 0.0;
}

static void conclude(tdm_look_t *l) {
    static const double at[3] = {0.5, 0.99, 0.999};
    const tdm_sim_result_t *r = &l->sum;
    tdm_planner_point_t *p = l->out;
    uint32_t rows = l->all.row_cnt - l->warm_cnt;
    p->requests = rows;
    p->attainment = over(l->good, rows);
    p->decodes = l->ask->window_ns > 0 ? r->gap_sum_ns / (double)l->ask->window_ns
                                       : over(p->rate * r->gap_sum_ns / 1e9, rows);
    for (uint32_t i = 0; i < 2; i++) p->waiting[i] = r->waiting[i];
    p->over_share = over((double)l->over_cnt, (double)r->gap_cnt);
    for (uint32_t i = 0; i < 3; i++) p->gap_ns[i] = tdm_sim_gap_ns(r, at[i]);
    for (uint32_t i = 0; i < TDM_PLANNER_GAP_CNT; i++)
        p->gap_at_ns[i] = tdm_sim_gap_ns(r, 0.05 * (i + 1.0));
    shares(l->ttft, l->served, p->ttft_ns);
    p->ttft_p90_ns = at_share(l->ttft, l->served, 0.9);
    shares(l->e2e, l->ended, p->e2e_ns);
    p->iterations = r->iteration_cnt;
    p->hybrid = r->both_cnt;
    p->busy_ns = r->busy_ns;
    p->attention_ns = r->attention_ns;
    p->fused_share = over((double)r->fused_cnt, (double)r->both_cnt);
    for (uint32_t i = 0; i < TDM_REASON_CNT; i++) {
        p->lost_share[i] = over(r->lost_ns[i], r->busy_ns);
        p->saved_share[i] = over(r->lost_ns[i], r->ran_ns[i]);
    }
    p->attention_share = over(r->attention_ns, r->busy_ns);
    p->serial_share =
        over(r->serial_attention_ns, r->busy_ns - r->attention_ns + r->serial_attention_ns);
    p->attention_speedup = over(r->serial_attention_ns, r->attention_ns);
}

/* window_make leaves of all what arrives within the window, behind the decodes
   that run when it begins: the same lists as a replay's. */
static tdm_status_t window_make(tdm_look_t *l, tdm_error_t *err) {
    tdm_workload_t warm = {0};
    uint32_t cnt = 0;
    while (cnt < l->all.row_cnt && l->all.row[cnt].at_ns <= l->ask->window_ns) cnt++;
    l->all.row_cnt = cnt;
    tdm_status_t st = tdm_workload_warm(&l->all, l->warm_cnt, l->ask->seed, &warm, err);
    if (st != TDM_OK) return st;
    l->warm_cnt = warm.row_cnt;
    for (uint32_t i = 0; i < cnt; i++) l->all.row[i].at_ns += LEAD_NS;
    memmove(l->all.row + warm.row_cnt, l->all.row, cnt * sizeof *l->all.row);
    memcpy(l->all.row, warm.row, warm.row_cnt * sizeof *l->all.row);
    l->all.row_cnt += warm.row_cnt;
    tdm_workload_free(&warm);
    return TDM_OK;
}

/* is_kept judges as tandemctl bench does. */
static int is_kept_at(tdm_look_t *l) {
    const tdm_planner_ask_t *ask = l->ask;
    const tdm_planner_point_t *p = l->out;
    double share = ask->ttft_share > 0.0 ? ask->ttft_share : 0.99;
    return l->heard_cnt == l->all.row_cnt - l->warm_cnt && p->over_share <= ask->epsilon &&
           at_share(l->ttft, l->served, share) <= (double)ask->ttft_ns &&
           p->waiting[1] <= TDM_MAX(p->waiting[0] + 1.0, 1.1 * p->waiting[0]);
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
    l->served = l->ended = l->heard_cnt = l->good = 0;
    l->over_cnt = 0;
    l->out = out;
    out->rate = rate;
    tdm_status_t st = TDM_OK;
    if (ask->window_ns > 0)
        st = window_make(l, err);
    else
        l->warm_cnt = 0;
    if (st == TDM_OK) st = l->prefill_cnt > 0 ? tdm_look_pools(l, err) : run_mixed(l, err);
    if (st != TDM_OK) return st;
    conclude(l);
    out->is_kept = (uint32_t)is_kept_at(l);
    *is_kept = (int)out->is_kept;
    return TDM_OK;
}
