/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/surface.h"

#include "appliance/base/real.h"
#include "appliance/profile/parts.h"

#include <math.h>
#include <stdlib.h>

#define C TDM_PROFILE_CHUNK_CNT
#define H TDM_PROFILE_DEPTH_CNT
#define B TDM_PROFILE_BATCH_CNT
#define K TDM_PROFILE_KV_CNT

#define AXES     4u
#define AXIS_MAX 13u /* entries of the longest of the four */

#define FLOOR 0.005 /* standard error of a point at least: what a day is off another */
#define FEW   0.1   /* of one with fewer than three samples */
#define LEAST 0.03  /* standard deviation of y at least */

/* An axis is log2(1 + x / unit) long; octaves is where covariance has fallen
   to 1 / e.  Of those tried these tell left-out points of an H200's profile
   best; half or twice of any changes little. */
typedef struct axis {
    double unit, octaves;
} axis_t;

static const axis_t axis_of[AXES] = {{32, 2}, {1024, 6}, {1, 6}, {8192, 6}};

/* A point's covariance with each entry of each axis; that with a shape of
   the table is their product. */
typedef struct near {
    double at[AXES][AXIS_MAX];
    uint32_t entry[AXES]; /* where the point lies */
} near_t;

typedef struct surface {
    uint32_t cnt;
    near_t *near;  /* [cnt] */
    double *y;     /* [cnt], then the weights */
    double *error; /* [cnt] standard errors */
    double *k;     /* [cnt][cnt] covariance, then its Cholesky factor */
} surface_t;

static double iteration_ns(const tdm_profile_table_t *t, uint32_t c, uint32_t b, float attention) {
    float lin = tdm_profile_lin_ns(t, t->chunk_at[c] + t->batch_at[b]);
    return t->fixed_ns + (double)lin + (double)attention;
}

static void near_of(const tdm_profile_table_t *t, near_t *n) {
    const float *at[AXES] = {t->chunk_at, t->depth_at, t->batch_at, t->kv_at};
    static const uint32_t cnt[AXES] = {C, H, B, K};
    for (uint32_t a = 0; a < AXES; a++) {
        double here = log2(1.0 + (double)at[a][n->entry[a]] / axis_of[a].unit);
        for (uint32_t i = 0; i < cnt[a]; i++)
            n->at[a][i] = exp(-fabs(log2(1.0 + (double)at[a][i] / axis_of[a].unit) - here) /
                              axis_of[a].octaves);
    }
}

/* error_of gives a point's standard error: the median of n normal samples is
   off by 1.25 / sqrt(n) of their deviation, and the largest of nine to
   fifteen is expected 1.5 to 1.7 of it above. */
static double error_of(const tdm_profile_point_t *p) {
    double off = 0.75 * ((double)p->spread - 1.0) / sqrt((double)p->cnt);
    return p->cnt < 3 ? FEW : FLOOR + off;
}

/* deviation_of gives the standard deviation of y, from its median size, on
   which a few disturbed points have no hold.  k lends the room. */
static double deviation_of(const surface_t *s) {
    for (uint32_t i = 0; i < s->cnt; i++) s->k[i] = fabs(s->y[i]);
    qsort(s->k, s->cnt, sizeof *s->k, tdm_ascending);
    return fmax(1.4826 * s->k[s->cnt / 2u], LEAST);
}

/* gather notes the points. */
static void gather(const tdm_profile_set_t *set, uint32_t variant, const tdm_profile_table_t *t,
                   surface_t *s) {
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        if (!tdm_profile_is_of(p, variant)) continue;
        near_t *n = &s->near[s->cnt];
        n->entry[0] = tdm_profile_index(t->chunk_at, C, p->chunk);
        n->entry[1] = tdm_profile_index(t->depth_at, H, p->depth);
        n->entry[2] = tdm_profile_index(t->batch_at, B, p->batch);
        n->entry[3] = tdm_profile_index(t->kv_at, K, p->kv);
        near_of(t, n);
        uint32_t c = n->entry[0], b = n->entry[2];
        double told = iteration_ns(t, c, b, t->att_ns[variant][n->entry[3]][b][n->entry[1]][c]);
        s->y[s->cnt] = told > 0.0 ? iteration_ns(t, c, b, p->ns) / told - 1.0 : 0.0;
        s->error[s->cnt] = error_of(p);
        s->cnt++;
    }
}

static double covariance(const near_t *n, const uint32_t *entry) {
    return n->at[0][entry[0]] * n->at[1][entry[1]] * n->at[2][entry[2]] * n->at[3][entry[3]];
}

/* solve turns y into the weights of the points, by Cholesky's factor of
   covariance with the errors on its diagonal, which is positive. */
static void solve(surface_t *s, double deviation) {
    uint32_t n = s->cnt;
    double *k = s->k, variance = deviation * deviation;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j <= i; j++) {
            double sum = variance * covariance(&s->near[j], s->near[i].entry);
            if (i == j) sum += s->error[i] * s->error[i];
            for (uint32_t l = 0; l < j; l++) sum -= k[i * n + l] * k[j * n + l];
            k[i * n + j] = i == j ? sqrt(sum) : sum / k[j * n + j];
        }
        for (uint32_t l = 0; l < i; l++) s->y[i] -= k[i * n + l] * s->y[l];
        s->y[i] /= k[i * n + i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t l = i + 1; l < n; l++) s->y[i] -= k[l * n + i] * s->y[l];
        s->y[i] /= k[i * n + i];
    }
    for (uint32_t i = 0; i < n; i++) s->y[i] *= variance;
}

static void put(const surface_t *s, uint32_t variant, tdm_profile_table_t *t) {
    for (uint32_t k = 0; k < K; k++)
        for (uint32_t b = 0; b < B; b++)
            for (uint32_t h = 0; h < H; h++) {
                double y[C] = {0.0};
                for (uint32_t i = 0; i < s->cnt; i++) {
                    const near_t *n = &s->near[i];
                    double part = s->y[i] * n->at[1][h] * n->at[2][b] * n->at[3][k];
                    for (uint32_t c = 0; c < C; c++) y[c] += part * n->at[0][c];
                }
                for (uint32_t c = 0; c < C; c++) {
                    float *at = &t->att_ns[variant][k][b][h][c];
                    if (c == 0 && b == 0) continue;
                    *at = fmaxf(*at + (float)(y[c] * iteration_ns(t, c, b, *at)), 0.0f);
                }
            }
}

int tdm_profile_surface_put(const tdm_profile_set_t *set, uint32_t variant,
                            tdm_profile_table_t *t) {
    surface_t s = {0};
    size_t cnt = 0;
    for (uint32_t i = 0; i < set->point_cnt; i++)
        cnt += (size_t)tdm_profile_is_of(&set->point[i], variant);
    if (cnt == 0 || cnt > TDM_PROFILE_SURFACE_MAX) return 0;
    s.near = malloc(cnt * sizeof *s.near);
    s.y = malloc(2u * cnt * sizeof *s.y);
    s.k = malloc(cnt * cnt * sizeof *s.k);
    int ok = s.near && s.y && s.k;
    if (ok) {
        s.error = s.y + cnt;
        gather(set, variant, t, &s);
        solve(&s, deviation_of(&s));
        put(&s, variant, t);
    }
    free(s.near);
    free(s.y);
    free(s.k);
    return ok;
}
