/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/forward_ref.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/ref/e4m3.h"

static double from_bf16(tdm_bf16_t v) {
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double through_bf16(double v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t keep = bits & UINT32_C(0xffff0000), rest = bits & UINT32_C(0xffff);
    if (rest > 0x8000 || (rest == 0x8000 && (keep & 0x10000))) keep += 0x10000;
    memcpy(&f, &keep, sizeof f);
    return (double)f;
}

static double through_fp8(double v, float scale) {
    return (double)tdm_e4m3_to_float(tdm_e4m3_from_float((float)(v / (double)scale))) *
           (double)scale;
}

/* One matrix and one row, or of them outputs [begin, end). */
typedef struct product {
    const double *x;
    const tdm_bf16_t *w; /* [out][in] */
    double *y;
    uint32_t in, begin, end;
} product_t;

#define SIDE 4u /* sums that are made side by side, each from left to right */

static void *outputs(void *arg) {
    const product_t *p = arg;
    for (uint32_t o = p->begin; o < p->end; o += SIDE) {
        const tdm_bf16_t *w[SIDE];
        double sum[SIDE] = {0.0};
        uint32_t cnt = TDM_MIN(SIDE, p->end - o);
        for (uint32_t i = 0; i < SIDE; i++) w[i] = p->w + (uint64_t)(o + i % cnt) * p->in;
        for (uint32_t k = 0; k < p->in; k++)
            for (uint32_t i = 0; i < SIDE; i++) sum[i] += p->x[k] * from_bf16(w[i][k]);
        for (uint32_t i = 0; i < cnt; i++) p->y[o + i] = sum[i];
    }
    return NULL;
}

#define SPREAD_MIN ((uint64_t)1 << 22) /* weights of a matrix that threads are worth it for */
#define SPREAD_MAX 64

/* spread deals a large matrix to a thread for each processor; a sum is one
   thread's, so its bits are what one thread alone would give. */
static void spread(const product_t *all) {
    pthread_t thread[SPREAD_MAX];
    product_t part[SPREAD_MAX];
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t cnt = online < 1 ? 1 : TDM_MIN((uint32_t)online, (uint32_t)SPREAD_MAX), begun = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        part[i] = *all;
        part[i].begin = (uint32_t)((uint64_t)all->end * i / cnt);
        part[i].end = (uint32_t)((uint64_t)all->end * (i + 1) / cnt);
    }
    while (begun + 1 < cnt && pthread_create(&thread[begun], NULL, outputs, &part[begun]) == 0)
        begun++;
    for (uint32_t i = begun; i < cnt; i++) (void)outputs(&part[i]);
    for (uint32_t i = 0; i < begun; i++) (void)pthread_join(thread[i], NULL);
}

static void linear_fp8(const double *x, const tdm_fp8_matrix_t *m, uint32_t in, uint32_t out,
                       double *y) {
    for (uint32_t o = 0; o < out; o++) {
        y[o] = 0.0;
        for (uint32_t k = 0; k < in; k++)
            y[o] += x[k] * (double)tdm_e4m3_to_float(m->code[(uint64_t)o * in + k]) *
                    (double)m->scale[o];
    }
}

/* fp8 is read where w is NULL. */
static void linear(const double *x, const tdm_bf16_t *w, const tdm_fp8_matrix_t *fp8, uint32_t in,
                   uint32_t out, double *y) {
    if (!w) {
        linear_fp8(x, fp8, in, out, y);
        return;
    }
    product_t all = {.x = x, .w = w, .y = y, .in = in, .end = out};
    if ((uint64_t)in * out >= SPREAD_MIN)
        spread(&all);
    else
        (void)outputs(&all);
}

static void norm(const double *x, const float *weight, uint32_t cnt, double eps, double *y) {
    double sum = 0.0;
    for (uint32_t i = 0; i < cnt; i++) sum += x[i] * x[i];
    double scale = 1.0 / sqrt(sum / (double)cnt + eps);
    for (uint32_t i = 0; i < cnt; i++) y[i] = x[i] * scale * (double)weight[i];
}

/* The wavelength form of the Llama 3.1 rule. */
static double frequency(const tdm_shape_t *s, uint32_t pair) {
    double freq = 1.0 / pow((double)s->rope_theta, (double)(2 * pair) / (double)s->head_dim);
    if (s->rope_kind == TDM_ROPE_PLAIN) return freq;
    if (s->rope_kind == TDM_ROPE_LINEAR) return freq / (double)s->rope_factor;
    double wavelength = 2.0 * M_PI / freq;
    double longest = (double)s->rope_original_context / (double)s->rope_low_freq_factor;
    double shortest = (double)s->rope_original_context / (double)s->rope_high_freq_factor;
    if (wavelength < shortest) return freq;
    if (wavelength > longest) return freq / (double)s->rope_factor;
    double smooth =
        ((double)s->rope_original_context / wavelength - (double)s->rope_low_freq_factor) /
        ((double)s->rope_high_freq_factor - (double)s->rope_low_freq_factor);
    return (1.0 - smooth) * freq / (double)s->rope_factor + smooth * freq;
}

static void rotate(const tdm_shape_t *s, double *x, uint32_t head_cnt, uint32_t pos) {
    uint32_t half = s->head_dim / 2;
    for (uint32_t h = 0; h < head_cnt; h++) {
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)pos * frequency(s, i);
            double a = x[h * s->head_dim + i], b = x[h * s->head_dim + half + i];
            x[h * s->head_dim + i] = a * cos(angle) - b * sin(angle);
            x[h * s->head_dim + half + i] = a * sin(angle) + b * cos(angle);
        }
    }
}

/* attend computes one row: two passes over positions [0, pos]. */
static void attend(const tdm_shape_t *s, const double *q, const double *k, const double *v,
                   uint32_t pos, double *score, double *out) {
    uint32_t dim = s->head_dim, width = s->nhead_kv * dim;
    for (uint32_t h = 0; h < s->nhead_q; h++) {
        uint32_t hk = h / (s->nhead_q / s->nhead_kv);
        double top = -INFINITY, sum = 0.0;
        for (uint32_t t = 0; t <= pos; t++) {
            double dot = 0.0;
            for (uint32_t i = 0; i < dim; i++)
                dot += q[h * dim + i] * k[(uint64_t)t * width + hk * dim + i];
            score[t] = dot / sqrt((double)dim);
            if (score[t] > top) top = score[t];
        }
        for (uint32_t t = 0; t <= pos; t++) sum += score[t] = exp(score[t] - top);
        for (uint32_t i = 0; i < dim; i++) {
            double acc = 0.0;
            for (uint32_t t = 0; t <= pos; t++)
                acc += score[t] * v[(uint64_t)t * width + hk * dim + i];
            out[h * dim + i] = acc / sum;
        }
    }
}

typedef struct work {
    double *x;     /* [cnt][hidden] */
    double *k, *v; /* [cnt][nhead_kv * head_dim] of one layer */
    double *normed, *q, *att, *gate, *up, *add, *score;
    double *mem;
} work_t;

static int work_open(work_t *w, const tdm_shape_t *s, uint32_t cnt) {
    uint64_t q_width = (uint64_t)s->nhead_q * s->head_dim;
    uint64_t kv_width = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t total = (uint64_t)cnt * (s->hidden + 2 * kv_width + 1) + 2 * (uint64_t)s->hidden +
                     2 * q_width + 2 * (uint64_t)s->ffn;
    w->mem = calloc(total, sizeof *w->mem);
    if (!w->mem) return 0;
    double *p = w->mem;
    w->x = p;
    w->k = p += (uint64_t)cnt * s->hidden;
    w->v = p += (uint64_t)cnt * kv_width;
    w->score = p += (uint64_t)cnt * kv_width;
    w->normed = p += cnt;
    w->add = p += s->hidden;
    w->q = p += s->hidden;
    w->att = p += q_width;
    w->gate = p += q_width;
    w->up = p + s->ffn;
    return 1;
}

static void layer_run(const tdm_shape_t *s, const tdm_layer_weights_t *l, tdm_kv_dtype_t kv_dtype,
                      uint32_t cnt, work_t *w) {
    uint32_t q_width = s->nhead_q * s->head_dim, kv_width = s->nhead_kv * s->head_dim;
    for (uint32_t t = 0; t < cnt; t++) {
        double *k = w->k + (uint64_t)t * kv_width, *v = w->v + (uint64_t)t * kv_width;
        norm(w->x + (uint64_t)t * s->hidden, l->attn_norm, s->hidden, (double)s->rms_eps,
             w->normed);
        linear(w->normed, l->wk, &l->fp8[TDM_MATRIX_K], s->hidden, kv_width, k);
        linear(w->normed, l->wv, &l->fp8[TDM_MATRIX_V], s->hidden, kv_width, v);
        rotate(s, k, s->nhead_kv, t);
        for (uint32_t i = 0; kv_dtype == TDM_KV_BF16 && i < kv_width; i++) {
            k[i] = through_bf16(k[i]);
            v[i] = through_bf16(v[i]);
        }
        for (uint32_t i = 0; kv_dtype == TDM_KV_E4M3 && i < kv_width; i++) {
            k[i] = through_fp8(k[i], l->k_scale[i / s->head_dim]);
            v[i] = through_fp8(v[i], l->v_scale[i / s->head_dim]);
        }
    }
    for (uint32_t t = 0; t < cnt; t++) {
        double *x = w->x + (uint64_t)t * s->hidden;
        norm(x, l->attn_norm, s->hidden, (double)s->rms_eps, w->normed);
        linear(w->normed, l->wq, &l->fp8[TDM_MATRIX_Q], s->hidden, q_width, w->q);
        rotate(s, w->q, s->nhead_q, t);
        attend(s, w->q, w->k, w->v, t, w->score, w->att);
        linear(w->att, l->wo, &l->fp8[TDM_MATRIX_O], q_width, s->hidden, w->add);
        for (uint32_t i = 0; i < s->hidden; i++) x[i] += w->add[i];
        norm(x, l->ffn_norm, s->hidden, (double)s->rms_eps, w->normed);
        linear(w->normed, l->w_gate, &l->fp8[TDM_MATRIX_GATE], s->hidden, s->ffn, w->gate);
        linear(w->normed, l->w_up, &l->fp8[TDM_MATRIX_UP], s->hidden, s->ffn, w->up);
        for (uint32_t i = 0; i < s->ffn; i++) w->gate[i] *= w->up[i] / (1.0 + exp(-w->gate[i]));
        linear(w->gate, l->w_down, &l->fp8[TDM_MATRIX_DOWN], s->ffn, s->hidden, w->add);
        for (uint32_t i = 0; i < s->hidden; i++) x[i] += w->add[i];
    }
}

tdm_status_t tdm_forward_ref(const tdm_weights_t *weights, tdm_kv_dtype_t kv_dtype,
                             const int32_t *token, uint32_t cnt, uint32_t first, double *logits) {
    const tdm_shape_t *s = &weights->shape;
    work_t w;
    if (!work_open(&w, s, cnt)) return TDM_ERR_NOMEM;
    for (uint32_t t = 0; t < cnt; t++)
        for (uint32_t i = 0; i < s->hidden; i++)
            w.x[(uint64_t)t * s->hidden + i] =
                from_bf16(weights->embed[(uint64_t)token[t] * s->hidden + i]);
    for (uint32_t l = 0; l < s->layer_cnt; l++) layer_run(s, &weights->layer[l], kv_dtype, cnt, &w);
    for (uint32_t t = first; t < cnt; t++) {
        norm(w.x + (uint64_t)t * s->hidden, weights->out_norm, s->hidden, (double)s->rms_eps,
             w.normed);
        linear(w.normed, weights->lm_head, NULL, s->hidden, s->vocab,
               logits + (uint64_t)(t - first) * s->vocab);
    }
    free(w.mem);
    return TDM_OK;
}
