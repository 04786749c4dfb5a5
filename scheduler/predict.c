/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/predict.h"

/* LEARN weighs the newest iteration.  Higher follows a power cap sooner
   but lets one interrupted iteration shrink the next prefills.
   SURPRISE bounds how far one iteration may lie from what is believed:
   together they move a correction by at most an eighth per iteration, so
   a lone spike cannot keep a route from being tried again, and a machine
   that is three times slower is followed within some 25 iterations.
   The first WARM of a route are averaged whole, to find the scale of a
   guessed profile.  All three are guesses, to be replaced by the quantile
   tracker. */
#define LEARN          0.125
#define SURPRISE       2.0
#define WARM           8u
#define CORRECTION_MAX 1024.0
#define TIME_MAX       0x1p61

static double clamp(double x, double low, double high) {
    if (!(x > low)) return low;
    return x < high ? x : high;
}

void tdm_predict_init(tdm_predict_t *p) {
    *p = (tdm_predict_t){.correction = 1.0};
}

tdm_route_t tdm_predict_route(const tdm_load_t *load, tdm_route_t both) {
    if (load->prefill_cnt == 0) return load->decode_cnt ? TDM_ROUTE_DECODE_ONLY : TDM_ROUTE_IDLE;
    return load->decode_cnt ? both : TDM_ROUTE_PREFILL_ONLY;
}

static double profile_time(const tdm_profile_t *profile, tdm_route_t both, const tdm_load_t *load) {
    tdm_route_t route = tdm_predict_route(load, both);
    if (route == TDM_ROUTE_IDLE) return 0.0;
    const tdm_profile_row_t *row = &profile->row[route];
    double tok = (double)load->prefill_cnt + (double)load->decode_cnt;
    return row->fixed_ns + row->token_ns * tok + row->pair_ns * (double)load->pair_cnt +
           row->kv_ns * (double)load->kv_cnt;
}

int64_t tdm_predict_profile_ns(const tdm_profile_t *profile, tdm_route_t both,
                               const tdm_load_t *load) {
    return (int64_t)clamp(profile_time(profile, both, load), 0.0, TIME_MAX);
}

int64_t tdm_predict_ns(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                       const tdm_load_t *load) {
    tdm_route_t route = tdm_predict_route(load, both);
    double correction = p->route_seen_cnt[route] ? p->route_correction[route] : p->correction;
    return (int64_t)clamp(profile_time(profile, both, load) * correction, 0.0, TIME_MAX);
}

/* fits: would load plus cnt tokens after pos stay within limit_ns? */
static int fits(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                const tdm_load_t *load, uint32_t pos, uint32_t cnt, int64_t limit_ns) {
    tdm_load_t more = *load;
    more.prefill_cnt += cnt;
    more.pair_cnt += tdm_predict_pairs(pos, cnt);
    return tdm_predict_ns(p, profile, both, &more) <= limit_ns;
}

uint32_t tdm_predict_fit(const tdm_predict_t *p, const tdm_profile_t *profile, tdm_route_t both,
                         const tdm_load_t *load, uint32_t pos, uint32_t cnt_max, int64_t limit_ns) {
    if (fits(p, profile, both, load, pos, cnt_max, limit_ns)) return cnt_max;
    uint32_t good = 0, bad = cnt_max;
    while (bad - good > 1) {
        uint32_t mid = good + (bad - good) / 2;
        if (fits(p, profile, both, load, pos, mid, limit_ns))
            good = mid;
        else
            bad = mid;
    }
    return good;
}

/* track moves a correction towards ratio. */
static void track(double *correction, uint64_t *seen_cnt, double ratio) {
    double weight = LEARN;
    if (*seen_cnt < WARM)
        weight = 1.0 / (double)(*seen_cnt + 1u);
    else
        ratio = clamp(ratio, *correction / SURPRISE, *correction * SURPRISE);
    *correction += weight * (ratio - *correction);
    (*seen_cnt)++;
}

void tdm_predict_learn(tdm_predict_t *p, tdm_route_t route, int64_t profile_ns, int64_t actual_ns) {
    if (profile_ns <= 0 || actual_ns <= 0) return;
    double ratio =
        clamp((double)actual_ns / (double)profile_ns, 1.0 / CORRECTION_MAX, CORRECTION_MAX);
    track(&p->correction, &p->seen_cnt, ratio);
    track(&p->route_correction[route], &p->route_seen_cnt[route], ratio);
}
