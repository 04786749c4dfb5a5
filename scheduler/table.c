/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/table.h"

/* A place on an axis: between entries i and i + 1, at fraction f; f > 1
   past the end. */
typedef struct place {
    uint32_t i;
    double f;
} place_t;

/* A load in the coordinates of the table. */
typedef struct shape {
    double chunk, depth, batch, kv;
} shape_t;

static place_t locate(const float *axis, uint32_t cnt, double x) {
    uint32_t i = 0;
    for (uint32_t last = cnt - 1u; last - i > 1u;) {
        uint32_t mid = (i + last) / 2u;
        if (x >= (double)axis[mid])
            i = mid;
        else
            last = mid;
    }
    double low = (double)axis[i], high = (double)axis[i + 1u];
    return (place_t){.i = i, .f = (x - low) / (high - low)};
}

static shape_t shape_of(const tdm_profile_table_t *t, const tdm_load_t *load) {
    double c = load->prefill_cnt, kv = (double)load->kv_cnt;
    double alone = (double)t->split_max * (double)load->kv_max;
    double depth = c > 0.0 ? (double)load->pair_cnt / c - (c + 1.0) / 2.0 : 0.0;
    return (shape_t){.chunk = c,
                     .depth = depth > 0.0 ? depth : 0.0,
                     .batch = load->decode_cnt,
                     .kv = alone > kv ? alone : kv};
}

static double mix(double a, double b, double f) {
    return a + (b - a) * f;
}

/* plane interpolates c and h with b and S at entries. */
static double plane(const float (*at)[TDM_PROFILE_CHUNK_CNT], place_t h, place_t c) {
    const float *low = at[h.i] + c.i, *high = at[h.i + 1u] + c.i;
    return mix(mix((double)low[0], (double)low[1], c.f), mix((double)high[0], (double)high[1], c.f),
               h.f);
}

static double attention_ns(const tdm_profile_table_t *t, uint32_t variant, const shape_t *s) {
    place_t c = locate(t->chunk_at, TDM_PROFILE_CHUNK_CNT, s->chunk);
    place_t h = locate(t->depth_at, TDM_PROFILE_DEPTH_CNT, s->depth);
    place_t b = locate(t->batch_at, TDM_PROFILE_BATCH_CNT, s->batch);
    place_t k = locate(t->kv_at, TDM_PROFILE_KV_CNT, s->kv);
    double edge[2];
    for (uint32_t i = 0; i < 2; i++)
        edge[i] = mix(plane(t->att_ns[variant][k.i + i][b.i], h, c),
                      plane(t->att_ns[variant][k.i + i][b.i + 1u], h, c), b.f);
    return mix(edge[0], edge[1], k.f);
}

static double linear_ns(const tdm_profile_table_t *t, double tok) {
    place_t n = locate(t->lin_at, TDM_PROFILE_LIN_CNT, tok);
    int is_stair = t->stair_from && tok >= (double)t->stair_from;
    double f = is_stair && n.f > 0.0 && n.f < 1.0 ? 1.0 : n.f;
    return mix((double)t->lin_ns[n.i], (double)t->lin_ns[n.i + 1u], f);
}

double tdm_table_ns(const tdm_profile_table_t *t, uint32_t variant, const tdm_load_t *load) {
    shape_t s = shape_of(t, load);
    return t->fixed_ns + linear_ns(t, s.chunk + s.batch) + attention_ns(t, variant, &s);
}

double tdm_table_attention_ns(const tdm_profile_table_t *t, uint32_t variant,
                              const tdm_load_t *load) {
    shape_t s = shape_of(t, load);
    return attention_ns(t, variant, &s);
}

double tdm_table_row_ns(const tdm_profile_table_t *t) {
    double least = (double)t->lin_ns[1] / (double)t->lin_at[1];
    for (uint32_t i = 2; i < TDM_PROFILE_LIN_CNT; i++)
        least = TDM_MIN(least, (double)t->lin_ns[i] / (double)t->lin_at[i]);
    return least;
}

int tdm_table_is_outside(const tdm_profile_table_t *t, uint32_t variant, const tdm_load_t *load) {
    const tdm_profile_box_t *box = &t->box[variant];
    shape_t s = shape_of(t, load);
    return s.chunk > (double)box->chunk || s.depth > TDM_TABLE_BEYOND * (double)box->depth ||
           s.batch > (double)box->batch || s.kv > TDM_TABLE_BEYOND * (double)box->kv;
}
