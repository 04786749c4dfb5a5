/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/profile/parts.h"

#include "appliance/profile/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define C TDM_PROFILE_CHUNK_CNT
#define H TDM_PROFILE_DEPTH_CNT
#define B TDM_PROFILE_BATCH_CNT
#define K TDM_PROFILE_KV_CNT

#define DOUBT       0.2f  /* of one sample's iteration: what the machine did meanwhile */
#define SEEN        0.05f /* of an iteration: a smaller part says nothing about overlap */
#define OVERLAP_MIN 3u    /* points */
#define OVERLAP_LOW (-1.0f)
#define OVERLAP_TOP 0.95f

int tdm_profile_is_of(const tdm_profile_point_t *p, uint32_t variant) {
    int is_alone = (p->chunk == 0) != (p->batch == 0);
    return p->kind == (is_alone ? TDM_PROFILE_FUSED : TDM_PROFILE_FUSED + variant);
}

uint32_t tdm_profile_index(const float *axis, uint32_t cnt, uint32_t x) {
    uint32_t i = 0;
    while (i < cnt && axis[i] != (float)x) i++;
    return i;
}

float tdm_profile_lin_ns(const tdm_profile_table_t *t, float tok) {
    uint32_t i = 0;
    while (i + 2u < TDM_PROFILE_LIN_CNT && tok >= t->lin_at[i + 1u]) i++;
    float f = (tok - t->lin_at[i]) / (t->lin_at[i + 1u] - t->lin_at[i]);
    if (t->stair_from && tok >= (float)t->stair_from && f > 0.0f && f < 1.0f) f = 1.0f;
    return t->lin_ns[i] + (t->lin_ns[i + 1u] - t->lin_ns[i]) * f;
}

/* steady takes the noise off a time: it is what it says beyond base and the
   doubt of its point in an iteration that took so long. */
static float steady(const tdm_profile_point_t *p, float base_ns, float iteration_ns,
                    uint32_t is_model) {
    if (is_model) return p->ns;
    /* three samples that agree leave less doubt than a rule of thumb */
    float doubt = p->cnt < 3 ? DOUBT : fminf(2.0f * (p->spread - 1.0f), DOUBT);
    float slack = doubt / sqrtf((float)p->cnt) * iteration_ns, off = p->ns - base_ns;
    return base_ns + copysignf(fmaxf(fabsf(off) - slack, 0.0f), off);
}

/* --- each kind alone -------------------------------------------------------------- */

/* draw fills the holes (0) of a line of ratios, geometrically between two
   that are known, flat beyond the last. */
static void draw(float *line, uint32_t cnt, uint32_t step) {
    uint32_t last = cnt;
    for (uint32_t i = 0; i < cnt; i++) {
        float to = line[i * step];
        if (!(to > 0.0f)) continue;
        for (uint32_t k = last == cnt ? 0u : last + 1u; k < i; k++) {
            float part = last == cnt ? 1.0f : (float)(k - last) / (float)(i - last);
            float from = last == cnt ? to : line[last * step];
            line[k * step] = from * powf(to / from, part);
        }
        last = i;
    }
    for (uint32_t k = last + 1u; last < cnt && k < cnt; k++) line[k * step] = line[last * step];
}

/* draw_all draws a field of rows x columns: first along its rows, then what
   is left along its columns. */
static void draw_all(float *field, uint32_t rows, uint32_t columns) {
    for (uint32_t i = 0; i < rows; i++) draw(field + i * columns, columns, 1);
    for (uint32_t i = 0; i < columns; i++) draw(field + i, rows, columns);
}

static float law_ns(const tdm_profile_fit_t *fit, float c, float h, float b, float s) {
    return (float)tdm_profile_fit_ns(fit, (double)c, (double)h, (double)b, (double)s);
}

/* note puts the ratio of an alone point to the law into its field. */
static void note(const tdm_profile_table_t *t, const tdm_profile_point_t *p,
                 const tdm_profile_fit_t *fit, uint32_t is_model, tdm_profile_parts_t *parts) {
    float law = law_ns(fit, (float)p->chunk, (float)p->depth, (float)p->batch, (float)p->kv);
    float lin = tdm_profile_lin_ns(t, (float)(p->chunk + p->batch));
    float ns = steady(p, law, lin + law, is_model);
    float ratio = law > 0.0f && ns > 0.0f ? ns / law : 0.0f;
    if (p->chunk > 0)
        parts->prefill[tdm_profile_index(t->depth_at, H, p->depth)]
                      [tdm_profile_index(t->chunk_at, C, p->chunk)] = ratio;
    else
        parts->decode[tdm_profile_index(t->kv_at, K, p->kv)]
                     [tdm_profile_index(t->batch_at, B, p->batch)] = ratio;
}

static void find_alone(const tdm_profile_set_t *set, const tdm_profile_table_t *t,
                       const tdm_profile_fit_t *fit, tdm_profile_parts_t *parts) {
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        if (p->kind == TDM_PROFILE_FUSED && (p->chunk == 0) != (p->batch == 0))
            note(t, p, fit, set->is_model, parts);
    }
    draw_all(&parts->prefill[0][0], H, C);
    draw_all(&parts->decode[0][0], K, B);
    for (uint32_t h = 0; h < H; h++)
        for (uint32_t c = 0; c < C; c++)
            parts->prefill[h][c] *=
                law_ns(fit, t->chunk_at[c], c > 0 ? t->depth_at[h] : 0.0f, 0.0f, 0.0f);
    for (uint32_t k = 0; k < K; k++)
        for (uint32_t b = 0; b < B; b++)
            parts->decode[k][b] *= law_ns(fit, 0.0f, 0.0f, t->batch_at[b], t->kv_at[k]);
}

/* --- both ---------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* find_overlap uses share, room for all points. */
static void find_overlap(const tdm_profile_set_t *set, const tdm_profile_table_t *t, uint32_t v,
                         float *share, tdm_profile_parts_t *parts) {
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < set->point_cnt; i++) {
        const tdm_profile_point_t *p = &set->point[i];
        if (p->kind != TDM_PROFILE_FUSED + v || p->chunk == 0 || p->batch == 0) continue;
        float prefill = parts->prefill[tdm_profile_index(t->depth_at, H, p->depth)]
                                      [tdm_profile_index(t->chunk_at, C, p->chunk)];
        float decode = parts->decode[tdm_profile_index(t->kv_at, K, p->kv)]
                                    [tdm_profile_index(t->batch_at, B, p->batch)];
        float both = prefill + decode, less = fminf(prefill, decode);
        float all = tdm_profile_lin_ns(t, (float)(p->chunk + p->batch)) + both;
        if (less > SEEN * all) share[cnt++] = (both - p->ns) / less;
    }
    parts->overlap[v] = parts->overlap[0];
    if (cnt < OVERLAP_MIN) return;
    qsort(share, cnt, sizeof *share, ascending);
    parts->overlap[v] = fminf(fmaxf(share[cnt / 2u], OVERLAP_LOW), OVERLAP_TOP);
}

int tdm_profile_parts_find(const tdm_profile_set_t *set, const tdm_profile_table_t *t,
                           tdm_profile_parts_t *parts) {
    tdm_profile_fit_t fit;
    float *share = malloc((set->point_cnt + 1u) * sizeof *share);
    memset(parts, 0, sizeof *parts);
    int ok = share && tdm_profile_fit_points(set, TDM_PROFILE_FUSED, &fit);
    if (ok) find_alone(set, t, &fit, parts);
    for (uint32_t v = 0; ok && v < TDM_PROFILE_VARIANT_CNT; v++)
        find_overlap(set, t, v, share, parts);
    free(share);
    return ok;
}

void tdm_profile_parts_put(const tdm_profile_parts_t *parts, uint32_t v, tdm_profile_table_t *t) {
    for (uint32_t k = 0; k < K; k++)
        for (uint32_t b = 0; b < B; b++)
            for (uint32_t h = 0; h < H; h++)
                for (uint32_t c = 0; c < C; c++) {
                    float prefill = parts->prefill[h][c], decode = parts->decode[k][b];
                    t->att_ns[v][k][b][h][c] =
                        prefill + decode - parts->overlap[v] * fminf(prefill, decode);
                }
}
