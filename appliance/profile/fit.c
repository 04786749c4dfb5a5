/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/fit.h"

#include <math.h>
#include <string.h>

#define N TDM_FIT_CNT

static void features(double c, double h, double b, double s, double out[N]) {
    out[TDM_FIT_CHUNK] = c;
    out[TDM_FIT_PAIR] = c * h + c * (c + 1.0) / 2.0;
    out[TDM_FIT_BATCH] = b;
    out[TDM_FIT_KV] = s;
}

double tdm_profile_fit_ns(const tdm_profile_fit_t *fit, double c, double h, double b, double s) {
    double x[N], ns = 0.0;
    features(c, h, b, s, x);
    for (uint32_t i = 0; i < N; i++) ns += fit->at[i] * x[i];
    return ns;
}

/* The normal equations. */
typedef struct normal {
    double a[N][N];
    double y[N];
} normal_t;

/* solve by elimination with the unknowns in `use`; the others are 0.  A
   pivot that is nothing leaves its unknown at 0. */
static void solve(const normal_t *n, const int *use, double *out) {
    double a[N][N + 1];
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t k = 0; k < N; k++) a[i][k] = use[i] && use[k] ? n->a[i][k] : 0.0;
        a[i][N] = use[i] ? n->y[i] : 0.0;
        out[i] = 0.0;
    }
    int is_done[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        if (!use[i] || !(a[i][i] > 1e-12 * n->a[i][i])) continue;
        is_done[i] = 1;
        for (uint32_t r = 0; r < N; r++) {
            if (r == i) continue;
            double f = a[r][i] / a[i][i];
            for (uint32_t k = 0; k <= N; k++) a[r][k] -= f * a[i][k];
        }
    }
    for (uint32_t i = 0; i < N; i++)
        if (is_done[i]) out[i] = a[i][N] / a[i][i];
}

/* bounded drops the most negative unknown until none is. */
static void bounded(const normal_t *n, double *out) {
    int use[N] = {1, 1, 1, 1};
    for (uint32_t round = 0; round < N; round++) {
        uint32_t worst = N;
        solve(n, use, out);
        for (uint32_t i = 0; i < N; i++)
            if (out[i] * sqrt(n->a[i][i]) < (worst < N ? out[worst] * sqrt(n->a[worst][worst]) : 0))
                worst = i;
        if (worst == N) return;
        use[worst] = 0;
    }
    for (uint32_t i = 0; i < N; i++) out[i] = fmax(out[i], 0.0);
}

static int is_alone(const tdm_profile_point_t *p, uint32_t kind) {
    return p->kind == kind && (p->chunk == 0) != (p->batch == 0);
}

int tdm_profile_fit_points(const tdm_profile_set_t *set, uint32_t kind, tdm_profile_fit_t *fit) {
    normal_t n;
    double most = 0.0, got[N];
    uint32_t prefills = 0, decodes = 0;
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        if (!is_alone(p, kind)) continue;
        most = fmax(most, (double)p->ns);
        prefills += p->chunk > 0;
        decodes += p->batch > 0;
    }
    if (TDM_MIN(prefills, decodes) < TDM_PROFILE_FIT_MIN || !(most > 0.0)) return 0;
    memset(&n, 0, sizeof n);
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        double x[N];
        if (!is_alone(p, kind)) continue;
        features(p->chunk, p->depth, p->batch, p->kv, x);
        double w = 1.0 / ((double)p->ns + 0.001 * most); /* of the error, relative */
        for (uint32_t r = 0; r < N; r++) {
            for (uint32_t k = 0; k < N; k++) n.a[r][k] += w * w * x[r] * x[k];
            n.y[r] += w * w * x[r] * (double)p->ns;
        }
    }
    bounded(&n, got);
    double sum = 0.0;
    for (uint32_t i = 0; i < N; i++) sum += got[i];
    if (!(sum > 0.0) || !isfinite(sum)) return 0;
    memcpy(fit->at, got, sizeof got);
    return 1;
}
