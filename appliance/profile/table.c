/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/table.h"

#include "appliance/base/real.h"
#include "appliance/profile/parts.h"
#include "appliance/profile/surface.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define C TDM_PROFILE_CHUNK_CNT
#define H TDM_PROFILE_DEPTH_CNT
#define B TDM_PROFILE_BATCH_CNT
#define K TDM_PROFILE_KV_CNT

#define RATIO_MAX 1e6f /* of a point to the guess: that may be off by anything */

#define ROUNDING 0.999999f /* of a sum of two floats, twice */

#define CELL_CNT (K * B * H * C) /* entries of one variant */

/* The four axes of one variant, outermost first, as strides over its flat
   array. */
static const uint32_t axis_cnt[4] = {K, B, H, C};
static const uint32_t axis_step[4] = {B * H * C, H *C, C, 1};

/* Chunks below 64 matter to small machines, a step of 256 up to 2048 to
   large ones. */
static const float chunk_at[C] = {0, 16, 64, 128, 256, 384, 512, 768, 1024, 1280, 1536, 2048, 4096};
static const float batch_at[B] = {0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256};

void tdm_profile_axes(tdm_profile_table_t *t) {
    static const float few[6] = {0, 1, 2, 4, 8, 12};
    static const float many[8] = {2176, 2304, 2560, 3072, 4096, 5120, 6144, 8448};
    float *lin = t->lin_at;
    memset(t, 0, sizeof *t);
    t->split_max = 1;
    memcpy(lin, few, sizeof few);
    lin += TDM_COUNT_OF(few);
    for (uint32_t n = 16; n <= 64; n += 8) *lin++ = (float)n;
    for (uint32_t n = 80; n <= 256; n += 16) *lin++ = (float)n;
    for (uint32_t n = 320; n <= 2048; n += 64) *lin++ = (float)n;
    memcpy(lin, many, sizeof many);
    memcpy(t->chunk_at, chunk_at, sizeof chunk_at);
    memcpy(t->batch_at, batch_at, sizeof batch_at);
    for (uint32_t i = 1; i < H; i++) t->depth_at[i] = (float)(512u << i);
    for (uint32_t i = 1; i < K; i++) t->kv_at[i] = (float)(1024u << i);
}

static double row_ns(const tdm_profile_row_t *row, const tdm_profile_row_t *base, double c,
                     double h, double b, double s) {
    double pairs = c * h + c * (c + 1.0) / 2.0;
    double extra = row->fixed_ns - base->fixed_ns + (row->token_ns - base->token_ns) * (c + b);
    return fmax(extra, 0.0) + row->pair_ns * (c > 0.0 ? pairs : 0.0) + row->kv_ns * s;
}

/* make_monotone lets the running maximum of attention go along each axis in
   turn. */
static void make_monotone(float *cell) {
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t i = 0; i < CELL_CNT; i++)
            if (i / axis_step[a] % axis_cnt[a] > 0)
                cell[i] = fmaxf(cell[i], cell[i - axis_step[a]]);
}

/* lin_of gives what the tokens of entry i cost apart from attention. */
static float lin_of(const tdm_profile_table_t *t, uint32_t i) {
    return tdm_profile_lin_ns(t, t->chunk_at[i % C] + t->batch_at[i / (C * H) % B]);
}

/* straighten makes entries ascend along each axis of some: halfway between
   the running maximum from below and the running minimum from above, which
   both do.  What ascends already stays as it is. */
static void straighten(float *v, float *up, float *down, uint32_t cnt, const uint32_t *step,
                       const uint32_t *axis, uint32_t axes) {
    memcpy(up, v, cnt * sizeof *v);
    memcpy(down, v, cnt * sizeof *v);
    for (uint32_t a = 0; a < axes; a++) {
        for (uint32_t i = 0; i < cnt; i++)
            if (i / step[a] % axis[a] > 0) up[i] = fmaxf(up[i], up[i - step[a]]);
        for (uint32_t i = cnt; i-- > 0;)
            if (i / step[a] % axis[a] + 1u < axis[a]) down[i] = fminf(down[i], down[i + step[a]]);
    }
    for (uint32_t i = 0; i < cnt; i++) v[i] = up[i] + (down[i] - up[i]) / 2.0f;
}

static void lin_monotone(tdm_profile_table_t *t) {
    static const uint32_t one = 1, cnt = TDM_PROFILE_LIN_CNT;
    float up[TDM_PROFILE_LIN_CNT], down[TDM_PROFILE_LIN_CNT];
    straighten(t->lin_ns, up, down, cnt, &one, &cnt, 1);
}

/* Room of att_monotone. */
typedef struct straight {
    float ns[CELL_CNT], up[CELL_CNT], down[CELL_CNT];
} straight_t;

/* att_monotone makes whole iterations ascend, not attention: what stands
   for attention may fall where products take a step. */
static void att_monotone(tdm_profile_table_t *t, uint32_t v, straight_t *s) {
    float *cell = &t->att_ns[v][0][0][0][0];
    for (uint32_t i = 0; i < CELL_CNT; i++) s->ns[i] = lin_of(t, i) + cell[i];
    straighten(s->ns, s->up, s->down, CELL_CNT, axis_step, axis_cnt, 4);
    for (uint32_t i = 0; i < CELL_CNT; i++)
        if (s->up[i] != s->down[i]) cell[i] = fmaxf(s->ns[i] - lin_of(t, i), 0.0f);
}

void tdm_profile_from_rows(const tdm_profile_t *rows, tdm_profile_table_t *t) {
    const tdm_profile_row_t *base = &rows->row[TDM_ROUTE_FUSED];
    tdm_profile_axes(t);
    t->fixed_ns = base->fixed_ns;
    for (uint32_t i = 0; i < TDM_PROFILE_LIN_CNT; i++)
        t->lin_ns[i] = (float)(base->token_ns * (double)t->lin_at[i]);
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++)
        for (uint32_t i = 0; i < CELL_CNT; i++) {
            uint32_t c = i % C, h = i / C % H, b = i / (C * H) % B, k = i / (C * H * B);
            uint32_t route = TDM_ROUTE_FUSED + v;
            if (c == 0) route = TDM_ROUTE_DECODE_ONLY;
            if (b == 0) route = TDM_ROUTE_PREFILL_ONLY;
            t->att_ns[v][k][b][h][c] =
                c == 0 && b == 0 ? 0.0f
                                 : (float)row_ns(&rows->row[route], base, (double)t->chunk_at[c],
                                                 (double)t->depth_at[h], (double)t->batch_at[b],
                                                 (double)t->kv_at[k]);
        }
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) make_monotone(&t->att_ns[v][0][0][0][0]);
    lin_monotone(t);
}

/* spread_ratio gives every entry of a grid the ratio of the nearest one
   that has one (> 0), breadth first.  queue has room for cnt. */
static void spread_ratio(float *ratio, uint32_t *queue, uint32_t cnt, const uint32_t *step,
                         const uint32_t *axis, uint32_t axes) {
    uint32_t head = 0, tail = 0;
    for (uint32_t i = 0; i < cnt; i++)
        if (ratio[i] > 0.0f) queue[tail++] = i;
    while (head < tail) {
        uint32_t i = queue[head++];
        for (uint32_t a = 0; a < axes; a++) {
            uint32_t at = i / step[a] % axis[a];
            if (at > 0 && !(ratio[i - step[a]] > 0.0f)) {
                ratio[i - step[a]] = ratio[i];
                queue[tail++] = i - step[a];
            }
            if (at + 1u < axis[a] && !(ratio[i + step[a]] > 0.0f)) {
                ratio[i + step[a]] = ratio[i];
                queue[tail++] = i + step[a];
            }
        }
    }
}

/* Scratch of one build. */
typedef struct scratch {
    float ratio[TDM_PROFILE_VARIANT_CNT][CELL_CNT];  /* 0: nobody measured it */
    float att_ns[TDM_PROFILE_VARIANT_CNT][CELL_CNT]; /* what was measured; -1: nobody did */
    float lin_ns[TDM_PROFILE_LIN_CNT];
    uint32_t has_lin[TDM_PROFILE_LIN_CNT];
    tdm_profile_parts_t parts;
    straight_t straight;
    uint32_t queue[CELL_CNT];
} scratch_t;

static float ratio_of(float ns, float guess) {
    return guess > 0.0f && ns > 0.0f ? ns / guess : 1.0f;
}

static int point_put(const tdm_profile_point_t *p, tdm_profile_table_t *t, scratch_t *s) {
    if (p->kind >= TDM_PROFILE_KIND_CNT || !isfinite(p->ns) || p->ns < 0.0f || p->cnt == 0 ||
        !isfinite(p->spread) || p->spread < 1.0f)
        return 0;
    if (p->kind == TDM_PROFILE_LIN) {
        uint32_t i = tdm_profile_index(t->lin_at, TDM_PROFILE_LIN_CNT, p->chunk);
        if (i == TDM_PROFILE_LIN_CNT) return 0;
        s->lin_ns[i] = p->ns;
        s->has_lin[i] = 1;
        return 1;
    }
    uint32_t c = tdm_profile_index(t->chunk_at, C, p->chunk),
             h = tdm_profile_index(t->depth_at, H, p->depth);
    uint32_t b = tdm_profile_index(t->batch_at, B, p->batch),
             k = tdm_profile_index(t->kv_at, K, p->kv);
    if (c == C || h == H || b == B || k == K) return 0;
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) {
        if (!tdm_profile_is_of(p, v)) continue;
        tdm_profile_box_t *box = &t->box[v];
        uint32_t cell = ((k * B + b) * H + h) * C + c;
        s->ratio[v][cell] = 1.0f;
        s->att_ns[v][cell] = p->ns;
        box->chunk = fmaxf(box->chunk, (float)p->chunk);
        box->depth = fmaxf(box->depth, (float)p->depth);
        box->batch = fmaxf(box->batch, (float)p->batch);
        box->kv = fmaxf(box->kv, (float)p->kv);
    }
    return 1;
}

/* fill_lin draws straight lines between the points; before the first and
   after the last the guess is scaled. */
static void fill_lin(tdm_profile_table_t *t, const scratch_t *s) {
    uint32_t last = TDM_PROFILE_LIN_CNT;
    float ratio = 1.0f;
    for (uint32_t i = 0; i < TDM_PROFILE_LIN_CNT; i++) {
        if (!s->has_lin[i]) continue;
        ratio = ratio_of(s->lin_ns[i], t->lin_ns[i]);
        for (uint32_t k = 0; last == TDM_PROFILE_LIN_CNT && k < i; k++) t->lin_ns[k] *= ratio;
        for (uint32_t k = last + 1u; last < i && k < i; k++)
            t->lin_ns[k] = s->lin_ns[last] + (s->lin_ns[i] - s->lin_ns[last]) *
                                                 (t->lin_at[k] - t->lin_at[last]) /
                                                 (t->lin_at[i] - t->lin_at[last]);
        last = i;
    }
    if (last == TDM_PROFILE_LIN_CNT) return;
    for (uint32_t k = last + 1u; k < TDM_PROFILE_LIN_CNT; k++) t->lin_ns[k] *= ratio;
    for (uint32_t k = 0; k <= last; k++)
        if (s->has_lin[k]) t->lin_ns[k] = s->lin_ns[k];
    lin_monotone(t);
}

/* lift gives what is no point the guess times the nearest ratio. */
static void lift(float *cell, scratch_t *s, uint32_t v) {
    float *ratio = s->ratio[v];
    for (uint32_t i = 0; i < CELL_CNT; i++)
        if (ratio[i] > 0.0f)
            ratio[i] =
                fminf(fmaxf(ratio_of(s->att_ns[v][i], cell[i]), 1.0f / RATIO_MAX), RATIO_MAX);
    spread_ratio(ratio, s->queue, CELL_CNT, axis_step, axis_cnt, 4);
    for (uint32_t i = 0; i < CELL_CNT; i++)
        if (ratio[i] > 0.0f) cell[i] *= ratio[i];
}

/* fill: what the points say of each kind alone and of both (parts.h), and how
   far they lie off that (surface.h), takes the place of the guess. */
static void fill(tdm_profile_table_t *t, scratch_t *s, const tdm_profile_set_t *set) {
    fill_lin(t, s);
    int has_parts = tdm_profile_parts_find(set, t, &s->parts);
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) {
        float *cell = &t->att_ns[v][0][0][0][0];
        if (has_parts) tdm_profile_parts_put(&s->parts, v, t);
        if (!has_parts) lift(cell, s, v);
        if (!has_parts || set->is_model || !tdm_profile_surface_put(set, v, t))
            for (uint32_t i = 0; i < CELL_CNT; i++)
                if (s->att_ns[v][i] >= 0.0f) cell[i] = s->att_ns[v][i];
        att_monotone(t, v, &s->straight);
    }
}

tdm_status_t tdm_profile_build(const tdm_profile_set_t *set, const tdm_profile_t *rows,
                               tdm_profile_table_t *table, tdm_error_t *err) {
    scratch_t *s = calloc(1, sizeof *s);
    if (!s) return tdm_error_set(err, TDM_ERR_NOMEM, "profile: no memory");
    tdm_profile_from_rows(rows, table);
    table->fixed_ns = set->fixed_ns;
    table->split_max = set->split_max ? set->split_max : 1u;
    table->stair_from = set->stair_from;
    table->clock_khz = set->clock_khz;
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++)
        for (uint32_t c = 0; c < CELL_CNT; c++) s->att_ns[v][c] = -1.0f;
    uint32_t i = 0;
    while (i < set->point_cnt && point_put(&set->point[i], table, s)) i++;
    if (i == set->point_cnt) fill(table, s, set);
    free(s);
    if (i == set->point_cnt) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INVAL, "profile: point %u lies on no entry of the table", i);
}

int tdm_profile_is_monotone(const tdm_profile_table_t *t) {
    for (uint32_t i = 1; i < TDM_PROFILE_LIN_CNT; i++)
        if (t->lin_ns[i] < t->lin_ns[i - 1]) return 0;
    for (uint32_t v = 0; v < TDM_PROFILE_VARIANT_CNT; v++) {
        const float *cell = &t->att_ns[v][0][0][0][0];
        for (uint32_t a = 0; a < 4; a++)
            for (uint32_t i = 0; i < CELL_CNT; i++) {
                if (i / axis_step[a] % axis_cnt[a] == 0) continue;
                float ns = lin_of(t, i) + cell[i], before = lin_of(t, i - axis_step[a]);
                if (ns < (before + cell[i - axis_step[a]]) * ROUNDING) return 0;
            }
    }
    return 1;
}

/* normal_quantile for p in [0.5, 1): Abramowitz and Stegun 26.2.23, within
   4.5e-4. */
static double normal_quantile(double p) {
    double t = sqrt(-2.0 * log(1.0 - p));
    double up = 2.515517 + t * (0.802853 + t * 0.010328);
    double down = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    return t - up / down;
}

double tdm_profile_noise(const tdm_profile_set_t *set, double fallback) {
    double *sigma = malloc((set->point_cnt + 1u) * sizeof *sigma);
    uint32_t n = 0;
    for (uint32_t i = 0; sigma && i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        if (p->cnt < 3) continue;
        double cnt = p->cnt;
        sigma[n++] = log(p->spread) / normal_quantile((cnt - 0.375) / (cnt + 0.25));
    }
    if (n > 0) qsort(sigma, n, sizeof *sigma, tdm_ascending);
    double noise = n > 0 ? sigma[n / 2] : fallback;
    free(sigma);
    return noise;
}

void tdm_profile_set_free(tdm_profile_set_t *set) {
    free(set->point);
    set->point = NULL;
    set->point_cnt = 0;
}
