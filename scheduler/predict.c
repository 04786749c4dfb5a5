/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/predict.h"

#include "appliance/base/real.h"

/* LEARN weighs the newest iteration.  Higher follows a power cap sooner
   but lets one interrupted iteration shrink the next prefills.
   SURPRISE bounds how far one iteration may lie from what is believed:
   together they move a correction by at most an eighth per iteration, so
   a lone spike cannot keep a route from being tried again, and a machine
   that is three times slower is followed within some 25 iterations.
   CELL_LEARN, CELL_TRUST: a cell's factor is the average of some 50
   iterations, so that noise is not taken for a property of the cell, and
   half believed after 16.
   KEEP: another route must save so much, or plans flap between two. */
#define LEARN          0.125
#define SURPRISE       2.0
#define CORRECTION_MAX 1024.0
#define TIME_MAX       0x1p61
#define KEEP           0.97
#define CELL_LEARN     0.04
#define CELL_TRUST     16.0

void tdm_predict_init(tdm_predict_t *p) {
    *p = (tdm_predict_t){.all = {.correction = 1.0}};
    for (uint32_t i = 0; i < TDM_PREDICT_CELLS; i++)
        for (uint32_t k = 0; k < TDM_PREDICT_CELLS; k++) p->cell[i][k] = 1.0f;
}

tdm_route_t tdm_predict_route(const tdm_load_t *load, tdm_route_t both) {
    if (load->prefill_cnt == 0) return load->decode_cnt ? TDM_ROUTE_DECODE_ONLY : TDM_ROUTE_IDLE;
    return load->decode_cnt ? both : TDM_ROUTE_PREFILL_ONLY;
}

/* kind_of gives the correction that a route uses. */
static uint32_t kind_of(const tdm_profile_t *profile, tdm_route_t route) {
    return profile->is_measured && route > TDM_ROUTE_FUSED ? TDM_ROUTE_FUSED : route;
}

static uint32_t variant_of(tdm_route_t route) {
    return route < TDM_ROUTE_FUSED ? 0u : (uint32_t)route - TDM_ROUTE_FUSED;
}

int tdm_predict_is_outside(const tdm_profile_t *profile, tdm_route_t route,
                           const tdm_load_t *load) {
    return profile->table && tdm_table_is_outside(profile->table, variant_of(route), load);
}

/* route_time is the profile's time of a load on a route that fits it. */
static double route_time(const tdm_profile_t *profile, tdm_route_t route, const tdm_load_t *load) {
    if (route == TDM_ROUTE_IDLE) return 0.0;
    if (profile->table) {
        double ns = tdm_table_ns(profile->table, variant_of(route), load);
        return tdm_predict_is_outside(profile, route, load) ? ns * TDM_PREDICT_OUTSIDE : ns;
    }
    const tdm_profile_row_t *row = &profile->row[route];
    double tok = (double)load->prefill_cnt + (double)load->decode_cnt;
    return row->fixed_ns + row->token_ns * tok + row->pair_ns * (double)load->pair_cnt +
           row->kv_ns * (double)load->kv_cnt;
}

tdm_route_t tdm_predict_choose(const tdm_profile_t *profile, const tdm_load_t *load) {
    tdm_route_t best = TDM_ROUTE_FUSED;
    double best_ns = route_time(profile, TDM_ROUTE_FUSED, load) * KEEP;
    for (uint32_t r = TDM_ROUTE_STREAMS; r < TDM_ROUTE_CNT; r++) {
        double ns = route_time(profile, (tdm_route_t)r, load);
        if (ns >= best_ns) continue;
        best = (tdm_route_t)r;
        best_ns = ns;
    }
    return best;
}

/* octave gives x's power of two above low, in [0, TDM_PREDICT_CELLS). */
static uint32_t octave(uint64_t x, uint32_t low) {
    uint32_t lg = 63u - (uint32_t)__builtin_clzll(x | 1u);
    return lg <= low ? 0u : TDM_MIN(lg - low, TDM_PREDICT_CELLS - 1u);
}

#define PAIR_LG 12u /* cells reach from 2^12 to 2^28 pairs */
#define KV_LG   10u /* and from 2^10 to 2^26 KV tokens */

static double cell_factor(const tdm_predict_t *p, const tdm_load_t *load) {
    uint32_t i = octave(load->pair_cnt, PAIR_LG), k = octave(load->kv_cnt, KV_LG);
    double n = p->cell_cnt[i][k], trust = n / (n + CELL_TRUST);
    return 1.0 + trust * ((double)p->cell[i][k] - 1.0);
}

/* cell_learn moves the cell's factor towards ratio. */
static void cell_learn(tdm_predict_t *p, const tdm_load_t *load, double ratio) {
    uint32_t i = octave(load->pair_cnt, PAIR_LG), k = octave(load->kv_cnt, KV_LG);
    double now = (double)p->cell[i][k];
    double next = now + CELL_LEARN * (tdm_clamp(ratio, 0.8, 1.25) - now);
    p->cell[i][k] = (float)next;
    if (p->cell_cnt[i][k] < UINT32_MAX) p->cell_cnt[i][k]++;
}

int64_t tdm_predict_profile_ns(const tdm_profile_t *profile, tdm_route_t both,
                               const tdm_load_t *load) {
    return (int64_t)tdm_clamp(route_time(profile, tdm_predict_route(load, both), load), 0.0,
                              TIME_MAX);
}

int64_t tdm_predict_ns(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                       const tdm_load_t *load) {
    tdm_route_t route = tdm_predict_route(load, both);
    uint32_t kind = kind_of(profile, route);
    const tdm_track_t *track = p->route[kind].seen_cnt ? &p->route[kind] : &p->all;
    double factor = route >= TDM_ROUTE_FUSED ? cell_factor(p, load) : 1.0;
    return (int64_t)tdm_clamp(route_time(profile, route, load) * track->correction * factor, 0.0,
                              TIME_MAX);
}

/* warm_up takes one of the first: the correction is their median, of an even
   number the lower. */
static void warm_up(tdm_track_t *t, double ratio) {
    uint32_t n = (uint32_t)t->seen_cnt;
    for (; n > 0 && (double)t->first[n - 1] > ratio; n--) t->first[n] = t->first[n - 1];
    t->first[n] = (float)ratio;
    t->correction = (double)t->first[t->seen_cnt / 2];
}

static void track_learn(tdm_track_t *t, double ratio) {
    if (t->seen_cnt < TDM_PREDICT_WARM) {
        warm_up(t, ratio);
    } else {
        double near = tdm_clamp(ratio, t->correction / SURPRISE, t->correction * SURPRISE);
        t->correction += LEARN * (near - t->correction);
    }
    t->seen_cnt++;
}

void tdm_predict_learn(tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t route,
                       const tdm_load_t *load, int64_t profile_ns, int64_t actual_ns) {
    if (profile_ns <= 0 || actual_ns <= 0) return;
    double ratio =
        tdm_clamp((double)actual_ns / (double)profile_ns, 1.0 / CORRECTION_MAX, CORRECTION_MAX);
    tdm_track_t *track = &p->route[kind_of(profile, route)];
    if (load && route >= TDM_ROUTE_FUSED) {
        double factor = cell_factor(p, load);
        if (track->seen_cnt >= TDM_PREDICT_WARM) cell_learn(p, load, ratio / track->correction);
        ratio /= factor;
    }
    track_learn(&p->all, ratio);
    track_learn(track, ratio);
}
