/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/cap.h"

#include "appliance/base/real.h"

#include <math.h>

/* ETA: a lone excess costs 1 %, one that follows another twice as much, up
   to STREAK_MAX doublings: a spike is cheap, and a slow-down of a third
   is covered within some six iterations.
   GAMMA: the outer loop's memory is some 1 / (GAMMA * alpha) iterations; a
   burst of broken gaps takes alpha to its floor within a dozen.
   ALPHA_MAX is far over epsilon because cutting to a grid keeps most
   iterations well inside their budget.
   QUANTILE_FIRST stands until the first surprises have been seen.
   All from tests/sim/sched_bench over five traces (tests/perf/results). */
#define ETA            0.01
#define STREAK_MAX     3u
#define GAMMA          0.001
#define ALPHA_MIN      0.002
#define ALPHA_MAX      0.1
#define QUANTILE_FIRST 1.1
#define QUANTILE_MAX   4.0
#define WEIGHT_MAX     4.0
#define HOST_STEP_NS   20000.0
#define CLIMB          64u
#define CLIMB_TOK      16u
#define DRIFT_HIGH     1.5
#define DRIFT_LOW      0.8
#define DRIFT_STEP     1.0
#define DRIFT_ALARM    8.0
#define DRIFT_MAX      16.0

void tdm_cap_init(tdm_cap_t *cap) {
    *cap = (tdm_cap_t){.quantile = QUANTILE_FIRST, .alpha = 0.02};
}

/* weigh gives the iteration's decodes over the usual number. */
static double weigh(tdm_cap_t *cap, uint32_t decode_cnt) {
    double b = decode_cnt;
    cap->decode_avg = cap->decode_avg > 0.0 ? 0.99 * cap->decode_avg + 0.01 * b : b;
    return tdm_clamp(b / cap->decode_avg, 0.0, WEIGHT_MAX);
}

static void learn_host(tdm_cap_t *cap, double host_ns) {
    double step = fmax(HOST_STEP_NS, cap->host_ns * 0.04);
    cap->host_ns += host_ns > cap->host_ns ? 0.99 * step : -0.01 * step;
    cap->host_ns = fmax(cap->host_ns, 0.0);
}

static void learn_drift(tdm_cap_t *cap, double ratio) {
    double up = cap->drift_up + fmin(log(ratio) - log(DRIFT_HIGH), DRIFT_STEP);
    double down = cap->drift_down + fmin(log(DRIFT_LOW) - log(ratio), DRIFT_STEP);
    cap->drift_up = tdm_clamp(up, 0.0, DRIFT_MAX);
    cap->drift_down = tdm_clamp(down, 0.0, DRIFT_MAX);
    if (cap->drift_up > DRIFT_ALARM || cap->drift_down > DRIFT_ALARM) cap->is_drifting = 1;
    if (cap->drift_up <= 0.0 && cap->drift_down <= 0.0) cap->is_drifting = 0;
}

void tdm_cap_learn(tdm_cap_t *cap, const tdm_cap_sample_t *x, uint32_t grid_tok) {
    if (!(x->actual_ns > 0.0)) return;
    if (x->profile_ns > 0.0) learn_drift(cap, x->actual_ns / x->profile_ns);
    if (x->decode_cnt == 0 || !(x->predicted_ns > 0.0)) return;
    double weight = weigh(cap, x->decode_cnt);
    if (x->host_ns >= 0.0) learn_host(cap, x->host_ns);
    if (x->prefill_cnt > 0) {
        int is_over = x->actual_ns > x->predicted_ns * cap->quantile;
        double eta = ETA * weight * (is_over ? (double)(1u << cap->streak) : 1.0);
        double step = eta * (is_over ? 1.0 - cap->alpha : -cap->alpha);
        cap->streak = is_over ? TDM_MIN(cap->streak + 1u, STREAK_MAX) : 0u;
        cap->quantile = tdm_clamp(cap->quantile * exp(step), 1.0, QUANTILE_MAX);
    }
    double share = (double)x->over_cnt / (double)x->decode_cnt;
    cap->alpha = tdm_clamp(cap->alpha + GAMMA * weight * (TDM_CAP_AIM * x->epsilon - share),
                           ALPHA_MIN, ALPHA_MAX);
    if (x->over_cnt > 0) {
        cap->climb_cnt = CLIMB;
        cap->climb_tok = x->decode_cnt + x->prefill_cnt;
    } else if (cap->climb_cnt > 0) {
        cap->climb_cnt--;
        cap->climb_tok += TDM_MAX(grid_tok, CLIMB_TOK);
    }
}

int64_t tdm_cap_budget_ns(const tdm_cap_t *cap, int64_t limit_ns) {
    return (int64_t)((double)limit_ns / cap->quantile);
}

uint32_t tdm_cap_token_max(const tdm_cap_t *cap) {
    uint32_t most = cap->climb_cnt > 0 ? cap->climb_tok : UINT32_MAX;
    return cap->is_drifting ? TDM_MIN(most, TDM_CAP_DRIFT_TOK) : most;
}
