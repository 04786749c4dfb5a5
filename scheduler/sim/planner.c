/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/planner.h"

#include "scheduler/sim/look.h"

#define RATE_FIRST 0.05 /* requests a second and appliance; doubled until it is too much */
#define DOUBLINGS  16u
#define BISECTIONS 7u

/* loads, over the highest rate that is kept */
static const double loads[TDM_PLANNER_LOADS] = {0.5, 0.7, 0.85, 0.95, 1.0, 1.05, 1.2};

double tdm_planner_bound(const tdm_planner_point_t *p) {
    double a = p->serial_share, s = p->attention_speedup;
    return s > 0.0 ? 1.0 / (1.0 - a + a / s) : 1.0;
}

/* find_best leaves the highest rate that is kept in best, 0 for none; is_open
   where none was missed. */
static tdm_status_t find_best(tdm_look_t *l, double *best, uint32_t *is_open, tdm_error_t *err) {
    tdm_planner_point_t point;
    double low = 0.0, high = RATE_FIRST * l->appliances;
    int is_kept = 1;
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; i < DOUBLINGS && is_kept && st == TDM_OK; i++) {
        st = tdm_look_at(l, high, &point, &is_kept, err);
        if (!is_kept) break;
        low = high;
        high *= 2.0;
    }
    *is_open = (uint32_t)is_kept;
    for (uint32_t i = 0; i < BISECTIONS && low > 0.0 && !*is_open && st == TDM_OK; i++) {
        double mid = (low + high) / 2.0;
        st = tdm_look_at(l, mid, &point, &is_kept, err);
        if (is_kept)
            low = mid;
        else
            high = mid;
    }
    *best = low;
    return st;
}

/* find_pools chooses how many of the appliances do prefill.  More of them
   carry more until decode is the narrower pool, and less from there on, so
   it climbs from where one appliance fewer had its best. */
static tdm_status_t find_pools(tdm_look_t *l, double *best, uint32_t *is_open, tdm_error_t *err) {
    uint32_t open, at = TDM_MIN(l->prefill_cnt, l->appliances - 1u);
    double rate;
    l->prefill_cnt = at;
    tdm_status_t st = find_best(l, best, is_open, err);
    for (int step = 1; step >= -1 && st == TDM_OK; step -= 2)
        for (uint32_t p = at; st == TDM_OK;) {
            p = step > 0 ? p + 1u : p - 1u;
            if (p == 0 || p == l->appliances) break;
            l->prefill_cnt = p;
            st = find_best(l, &rate, &open, err);
            if (st != TDM_OK || rate < *best || rate == 0.0) break;
            *best = rate;
            *is_open = open;
            at = p;
        }
    l->prefill_cnt = at;
    return st;
}

/* wire_of: each prefill appliance sends one prompt after the other. */
static double wire_of(const tdm_look_t *l) {
    const tdm_planner_link_t *link = &l->ask->link;
    const tdm_workload_t *of = l->ask->workload;
    double tokens = 0.0;
    for (uint32_t i = 0; i < of->row_cnt; i++)
        if (of->row[i].output_cnt > 1) tokens += of->row[i].prompt_cnt;
    double bytes = tokens / of->row_cnt * link->token_bytes;
    return bytes > 0.0 ? l->prefill_cnt * link->bytes_per_s[l->link] / bytes : 0.0;
}

static tdm_status_t draw_curve(tdm_look_t *l, tdm_planner_curve_t *c, tdm_error_t *err) {
    const tdm_planner_ask_t *ask = l->ask;
    int is_kept, is_pools = l->prefill_cnt > 0;
    double best = 0.0;
    uint32_t is_open = 0;
    tdm_status_t st = TDM_OK;
    if (is_pools)
        st = find_pools(l, &best, &is_open, err);
    else if (ask->rate_cnt == 0)
        st = find_best(l, &best, &is_open, err);
    double rows = (double)ask->workload->row_cnt * l->appliances / ask->appliance_max;
    *c = (tdm_planner_curve_t){.link = is_pools ? l->link : 0u,
                               .wire = is_pools ? wire_of(l) : 0.0,
                               .route = l->route,
                               .policy = l->policy,
                               .appliances = l->appliances,
                               .prefill_cnt = l->prefill_cnt,
                               .best = best,
                               .is_open = is_open,
                               .hidden = best * (double)ask->ttft_ns / 1e9 / rows};
    uint32_t cnt = ask->rate_cnt > 0 ? ask->rate_cnt : TDM_PLANNER_LOADS;
    double base = best > 0.0 ? best : RATE_FIRST * l->appliances;
    for (uint32_t i = 0; i < cnt && st == TDM_OK; i++) {
        double rate = ask->rate_cnt > 0 ? ask->rate[i] : base * loads[i];
        l->warm_cnt = ask->warm[i];
        st = tdm_look_at(l, rate, &c->point[c->point_cnt++], &is_kept, err);
    }
    return st;
}

static uint32_t policy_cnt(const tdm_planner_ask_t *ask) {
    return TDM_MAX(ask->policy_cnt, 1u);
}

uint32_t tdm_planner_curve_cnt(const tdm_planner_ask_t *ask) {
    uint32_t pools = ask->link.cnt * (ask->appliance_max - 1u);
    return ask->appliance_max * policy_cnt(ask) * TDM_PLANNER_ROUTES + pools;
}

/* draw_all draws what so many appliances can do; it leaves curve behind the
   last. */
static tdm_status_t draw_all(tdm_look_t *l, tdm_planner_curve_t **curve, tdm_error_t *err) {
    tdm_status_t st = TDM_OK;
    l->prefill_cnt = 0;
    for (l->policy = 0; l->policy < policy_cnt(l->ask) && st == TDM_OK; l->policy++)
        for (uint32_t r = 0; r < TDM_PLANNER_ROUTES && st == TDM_OK; r++) {
            l->route = TDM_ROUTE_FUSED + r;
            st = draw_curve(l, (*curve)++, err);
        }
    l->policy = 0;
    l->route = TDM_ROUTE_FUSED;
    for (l->link = 0; l->link < l->ask->link.cnt && l->appliances > 1 && st == TDM_OK; l->link++) {
        l->prefill_cnt = l->pools_at[l->link];
        st = draw_curve(l, (*curve)++, err);
        l->pools_at[l->link] = l->prefill_cnt;
    }
    return st;
}

tdm_status_t tdm_planner_run(const tdm_planner_ask_t *ask, tdm_planner_curve_t *curve,
                             tdm_error_t *err) {
    if (ask->appliance_max == 0 || ask->appliance_max > TDM_PLANNER_APPLIANCE_MAX ||
        ask->workload->row_cnt < ask->appliance_max || ask->rate_cnt > TDM_PLANNER_RATE_MAX ||
        ask->policy_cnt > TDM_PLANNER_POLICY_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "planner: 1 to %u appliances and a workload",
                             TDM_PLANNER_APPLIANCE_MAX);
    if (ask->window_ns > 0 && (ask->appliance_max > 1 || ask->rate_cnt == 0))
        return tdm_error_set(err, TDM_ERR_INVAL, "planner: a window is of one appliance, at rates");
    if (ask->link.cnt > TDM_PLANNER_LINK_MAX || (ask->link.cnt > 0 && ask->appliance_max < 2))
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "planner: pools are of 2 appliances or more, over %u links at most",
                             TDM_PLANNER_LINK_MAX);
    tdm_look_t *l;
    tdm_status_t st = tdm_look_open(ask, &l, err);
    if (st != TDM_OK) return st;
    for (uint32_t i = 0; i < TDM_PLANNER_LINK_MAX; i++) l->pools_at[i] = 1;
    for (l->appliances = 1; l->appliances <= ask->appliance_max && st == TDM_OK; l->appliances++)
        st = draw_all(l, &curve, err);
    tdm_look_close(l);
    return st;
}
