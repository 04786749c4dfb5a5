/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/engine/kvscale.h"

#include "appliance/abi/dummy.h"
#include "appliance/abi/fp8.h"

#include <math.h>
#include <string.h>

/* rows_t is a matrix [.., in] to read: of the model, or drawn. */
typedef struct rows {
    const tdm_bf16_t *w;         /* NULL: codes */
    const tdm_fp8_matrix_t *fp8; /* NULL: drawn */
    const float *gain;           /* [in]; NULL: ones */
    uint64_t begin;              /* of the generator */
    float scale;
    uint32_t in;
} rows_t;

static float element(const rows_t *m, uint64_t at) {
    float v;
    if (!m->w && m->fp8) return tdm_f32_from_fp8(m->fp8->code[at]) * m->fp8->scale[at / m->in];
    if (!m->w) return tdm_dummy_value(tdm_dummy_bits(m->begin, at / 4), at % 4, m->scale);
    uint32_t bits = (uint32_t)m->w[at] << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* length2 is |gain * row|^2, in four sums so that additions overlap. */
static double length2(const rows_t *m, uint64_t row) {
    double sum[4] = {0};
    for (uint32_t i = 0; i < m->in; i++) {
        double v = (double)element(m, row * m->in + i) * (m->gain ? (double)m->gain[i] : 1.0);
        sum[i % 4] += v * v;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* power gives the least power of two that holds sqrt(bound2) in fp8. */
static float power(double bound2) {
    int exponent = 0;
    double ratio = sqrt(bound2) / (double)TDM_FP8_MAX;
    if (!(ratio > 0.0)) return 1.0f; /* a head of zeros */
    double part = frexp(ratio, &exponent);
    if (part == 0.5) exponent--;
    exponent = TDM_MIN(TDM_MAX(exponent, -60), 60);
    return ldexpf(1.0f, exponent);
}

static void bound(const rows_t *m, const tdm_shape_t *s, int is_turned, float *scale) {
    uint32_t dim = s->head_dim;
    for (uint32_t h = 0; h < s->nhead_kv; h++) {
        double most = 0.0;
        uint64_t first = (uint64_t)h * dim;
        if (is_turned) {
            for (uint32_t i = 0; i < dim / 2; i++)
                most = fmax(most, length2(m, first + i) + length2(m, first + dim / 2 + i));
        } else {
            for (uint32_t i = 0; i < dim; i++) most = fmax(most, length2(m, first + i));
        }
        scale[h] = power(most * (double)s->hidden);
    }
}

void tdm_kv_scale(const tdm_weights_t *w, uint64_t dummy_seed, uint32_t layer, float *k_scale,
                  float *v_scale) {
    const tdm_shape_t *s = &w->shape;
    const tdm_layer_weights_t *l = &w->layer[layer];
    uint64_t n = 1 + (uint64_t)layer * TDM_DUMMY_LAYER_CNT;
    rows_t k = {.w = l->wk, .fp8 = &l->fp8[TDM_MATRIX_K], .gain = l->attn_norm, .in = s->hidden};
    rows_t v = {.w = l->wv, .fp8 = &l->fp8[TDM_MATRIX_V], .gain = l->attn_norm, .in = s->hidden};
    if (dummy_seed) {
        k = (rows_t){.begin = tdm_rng_at(dummy_seed, n + TDM_DUMMY_K), .in = s->hidden};
        v = (rows_t){.begin = tdm_rng_at(dummy_seed, n + TDM_DUMMY_V), .in = s->hidden};
        k.scale = v.scale = tdm_dummy_scale(s->hidden);
    }
    if (!dummy_seed && l->k_scale)
        memcpy(k_scale, l->k_scale, s->nhead_kv * sizeof *k_scale);
    else
        bound(&k, s, 1, k_scale);
    if (!dummy_seed && l->v_scale)
        memcpy(v_scale, l->v_scale, s->nhead_kv * sizeof *v_scale);
    else
        bound(&v, s, 0, v_scale);
}
