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

/* find_best leaves the highest rate that is kept in best, 0 for none. */
static tdm_status_t find_best(tdm_look_t *l, double *best, tdm_error_t *err) {
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
    for (uint32_t i = 0; i < BISECTIONS && low > 0.0 && st == TDM_OK; i++) {
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
static tdm_status_t find_pools(tdm_look_t *l, double *best, tdm_error_t *err) {
    uint32_t at = TDM_MIN(l->prefill_cnt, l->appliances - 1u);
    double rate;
    l->prefill_cnt = at;
    tdm_status_t st = find_best(l, best, err);
    for (int step = 1; step >= -1 && st == TDM_OK; step -= 2)
        for (uint32_t p = at; st == TDM_OK;) {
            p = step > 0 ? p + 1u : p - 1u;
            if (p == 0 || p == l->appliances) break;
            l->prefill_cnt = p;
            st = find_best(l, &rate, err);
            if (st != TDM_OK || rate < *best || rate == 0.0) break;
            *best = rate;
            at = p;
        }
    l->prefill_cnt = at;
    return st;
}

static tdm_status_t draw_curve(tdm_look_t *l, tdm_planner_curve_t *c, tdm_error_t *err) {
    const tdm_planner_ask_t *ask = l->ask;
    int is_kept, is_pools = l->prefill_cnt > 0;
    double best = 0.0;
    tdm_status_t st = TDM_OK;
    if (is_pools)
        st = find_pools(l, &best, err);
    else if (ask->rate_cnt == 0)
        st = find_best(l, &best, err);
    *c = (tdm_planner_curve_t){.route = l->route,
                               .policy = l->policy,
                               .appliances = l->appliances,
                               .prefill_cnt = l->prefill_cnt,
                               .best = best};
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
    uint32_t pools = ask->link.bytes_per_s > 0.0 ? ask->appliance_max - 1u : 0u;
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
    if (st != TDM_OK || l->ask->link.bytes_per_s <= 0.0 || l->appliances < 2) return st;
    l->policy = 0;
    l->route = TDM_ROUTE_FUSED;
    l->prefill_cnt = l->pools_at;
    st = draw_curve(l, (*curve)++, err);
    l->pools_at = l->prefill_cnt;
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
    tdm_look_t *l;
    tdm_status_t st = tdm_look_open(ask, &l, err);
    if (st != TDM_OK) return st;
    l->pools_at = 1;
    for (l->appliances = 1; l->appliances <= ask->appliance_max && st == TDM_OK; l->appliances++)
        st = draw_all(l, &curve, err);
    tdm_look_close(l);
    return st;
}
