/* SPDX-License-Identifier: Apache-2.0 */
/* Samples become points: the linear part by the rows alone, attention as
   what is left of an iteration; and the table is judged at other shapes. */
#include "appliance/measure/measure_private.h"

#include "appliance/base/real.h"

#include <math.h>
#include <stdlib.h>

#define LEAST 0.1 /* of what the executor timed as attention: a remainder is no less */

double tdm_measure_median(double *v, uint32_t cnt) {
    if (cnt == 0) return 0.0;
    qsort(v, cnt, sizeof *v, tdm_ascending);
    return cnt % 2u ? v[cnt / 2u] : (v[cnt / 2u - 1u] + v[cnt / 2u]) / 2.0;
}

static double spread_of(raw_t *r) {
    double mid = tdm_measure_median(r->total, r->cnt);
    return mid > 0.0 ? fmax(1.0, r->total[r->cnt - 1u] / mid) : 1.0;
}

static tdm_profile_point_t *next(tdm_profile_set_t *set) {
    tdm_profile_point_t *p = &set->point[set->point_cnt++];
    *p = (tdm_profile_point_t){.spread = 1.0f};
    return p;
}

static int is_lin(const tdm_grid_shape_t *s) {
    return s->batch == 0 && s->depth == 0;
}

static void put_lin(measure_t *m, tdm_profile_set_t *set) {
    for (uint32_t i = 0; i < m->raw_cnt; i++) {
        raw_t *r = &m->raw[i];
        if (!is_lin(&r->shape) || r->cnt == 0) continue;
        double rest[TDM_MEASURE_ROUND_MAX];
        for (uint32_t k = 0; k < r->cnt; k++) rest[k] = r->total[k] - r->attention[k];
        tdm_profile_point_t *p = next(set);
        p->kind = TDM_PROFILE_LIN;
        p->chunk = r->shape.chunk;
        p->cnt = r->cnt;
        p->ns = (float)fmax(tdm_measure_median(rest, r->cnt) - set->fixed_ns, 0.0);
        p->spread = (float)spread_of(r);
    }
}

/* slope gives the guess of what grows with depth and KV. */
static double slope(const measure_t *m, const tdm_grid_shape_t *s, double depth, double kv) {
    const tdm_profile_row_t *row = &m->ask->guess->row[TDM_ROUTE_FUSED];
    double c = s->chunk;
    return row->pair_ns * (c * depth + c * (c + 1.0) / 2.0) + row->kv_ns * kv;
}

/* carry brings a time from where it was taken to the entry it stands for. */
static double carry(const measure_t *m, const raw_t *r, double ns) {
    double depth = r->depth_sum / r->cnt, kv = r->kv_sum / r->cnt;
    double at = slope(m, &r->shape, depth, kv);
    double want = slope(m, &r->shape, r->shape.chunk ? r->shape.depth : depth,
                        r->shape.kv ? r->shape.kv : kv);
    if (!(at > 0.0)) return ns;
    return ns * fmin(fmax(want / at, 0.5), 2.0);
}

static int is_on_axis(const measure_t *m, uint32_t chunk) {
    for (uint32_t i = 0; i < TDM_PROFILE_CHUNK_CNT; i++)
        if (m->table.chunk_at[i] == (float)chunk) return 1;
    return 0;
}

uint32_t tdm_measure_point_cnt(const measure_t *m, const tdm_grid_shape_t *shape) {
    return (uint32_t)is_lin(shape) + (uint32_t)is_on_axis(m, shape->chunk);
}

static void put_attention(measure_t *m, tdm_profile_set_t *set) {
    for (uint32_t i = 0; i < m->raw_cnt; i++) {
        raw_t *r = &m->raw[i];
        if (r->cnt == 0 || !is_on_axis(m, r->shape.chunk)) continue;
        tdm_load_t load = {.prefill_cnt = r->shape.chunk, .decode_cnt = r->shape.batch};
        double rest = tdm_measure_median(r->total, r->cnt) - tdm_table_ns(&m->table, 0, &load) +
                      tdm_table_attention_ns(&m->table, 0, &load);
        rest = fmax(rest, LEAST * tdm_measure_median(r->attention, r->cnt));
        tdm_profile_point_t *p = next(set);
        p->kind = TDM_PROFILE_FUSED + r->shape.variant;
        p->chunk = r->shape.chunk;
        p->depth = r->shape.depth;
        p->batch = r->shape.batch;
        p->kv = r->shape.kv;
        p->cnt = r->cnt;
        p->ns = (float)carry(m, r, fmax(rest, 0.0));
        p->spread = (float)spread_of(r);
    }
}

static double error_of(const tdm_profile_miss_t *miss) {
    return fabs(miss->told_ns / miss->ns - 1.0);
}

static int worst_first(const void *a, const void *b) {
    double x = error_of(&((const check_t *)a)->is), y = error_of(&((const check_t *)b)->is);
    return (x < y) - (x > y);
}

/* verdict tells how far the shapes of a way are off; of all with WAY_CNT. */
static tdm_profile_check_t verdict(const measure_t *m, uint32_t way) {
    double error[CHECK_MAX];
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < m->check_cnt; i++)
        if (way == TDM_PROFILE_WAY_CNT || m->check[i].way == way)
            error[cnt++] = error_of(&m->check[i].is);
    tdm_profile_check_t out = {.shape_cnt = cnt,
                               .p50_error = (float)tdm_measure_median(error, cnt)};
    if (cnt == 0) return out;
    out.p95_error = (float)error[(uint32_t)ceil(0.95 * cnt - 1e-9) - 1u];
    out.worst_error = (float)error[cnt - 1u];
    return out;
}

static void judge(measure_t *m, tdm_profile_set_t *set) {
    for (uint32_t i = 0; i < m->check_cnt; i++) {
        check_t *c = &m->check[i];
        c->is.told_ns = tdm_table_ns(&m->table, c->is.variant, &c->load);
    }
    set->check = verdict(m, TDM_PROFILE_WAY_CNT);
    for (uint32_t w = 0; w < TDM_PROFILE_WAY_CNT; w++) set->way[w] = verdict(m, w);
    qsort(m->check, m->check_cnt, sizeof *m->check, worst_first);
    set->miss_cnt = TDM_MIN(m->check_cnt, TDM_PROFILE_MISS_MAX);
    for (uint32_t i = 0; i < set->miss_cnt; i++) set->miss[i] = m->check[i].is;
}

tdm_status_t tdm_measure_points(measure_t *m, tdm_profile_set_t *set, tdm_error_t *err) {
    set->point = calloc((size_t)m->raw_cnt * 2u, sizeof *set->point);
    if (!set->point) return tdm_error_set(err, TDM_ERR_NOMEM, "measure: no memory");
    put_lin(m, set);
    tdm_status_t st = tdm_profile_build(set, m->ask->guess, &m->table, err);
    if (st == TDM_OK) put_attention(m, set);
    if (st == TDM_OK) st = tdm_profile_build(set, m->ask->guess, &m->table, err);
    if (st == TDM_OK) judge(m, set);
    set->clock_khz = (uint32_t)tdm_measure_median(m->clock_khz, TDM_MIN(m->clock_cnt, CLOCK_MAX));
    if (st != TDM_OK) tdm_profile_set_free(set);
    return st;
}
