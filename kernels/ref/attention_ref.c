/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/attention_ref.h"

#include <math.h>
#include <string.h>

#include "kernels/ref/e4m3.h"

/* Element off of a pool as a double; scale is of an e4m3 pool's head. */
static double element(const tdm_kv_layout_t *kv, const void *pool, uint64_t off, double scale) {
    if (kv->dtype == TDM_KV_E4M3) {
        return (double)tdm_e4m3_to_float(((const uint8_t *)pool)[off]) * scale;
    }
    if (kv->dtype == TDM_KV_F32) return (double)((const float *)pool)[off];
    uint32_t bits = (uint32_t)((const uint16_t *)pool)[off] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* One query head of one token that sees n positions. */
static void head_ref(const tdm_attn_launch_t *l, const tdm_kv_layout_t *kv, const uint32_t *page,
                     uint32_t head_kv, uint64_t n, const float *q, double *score, double *out,
                     double *lse) {
    const uint32_t dim = kv->head_dim;
    const double k_scale = l->k_scale ? (double)l->k_scale[head_kv] : 1.0;
    const double v_scale = l->v_scale ? (double)l->v_scale[head_kv] : 1.0;
    double top = -INFINITY;
    for (uint64_t j = 0; j < n; j++) {
        uint64_t off = tdm_kv_offset(kv, page[j / TDM_KV_PAGE_TOKENS], head_kv,
                                     (uint32_t)(j % TDM_KV_PAGE_TOKENS));
        double dot = 0.0;
        for (uint32_t d = 0; d < dim; d++) {
            dot += (double)q[d] * element(kv, l->k_pool, off + d, k_scale);
        }
        score[j] = dot * (double)l->scale;
        if (score[j] > top) top = score[j];
    }
    double sum = 0.0;
    for (uint32_t d = 0; d < dim; d++) out[d] = 0.0;
    for (uint64_t j = 0; j < n; j++) {
        uint64_t off = tdm_kv_offset(kv, page[j / TDM_KV_PAGE_TOKENS], head_kv,
                                     (uint32_t)(j % TDM_KV_PAGE_TOKENS));
        double weight = exp(score[j] - top);
        sum += weight;
        for (uint32_t d = 0; d < dim; d++) {
            out[d] += weight * element(kv, l->v_pool, off + d, v_scale);
        }
    }
    for (uint32_t d = 0; d < dim && n > 0; d++) out[d] /= sum;
    *lse = n > 0 ? top + log(sum) : -INFINITY;
}

void tdm_attn_ref(const tdm_attn_launch_t *l, const tdm_kv_layout_t *kv, uint32_t nhead_q,
                  double *score, double *out, double *lse) {
    const uint32_t group = nhead_q / kv->nhead_kv;
    for (uint32_t s = 0; s < l->plan->seq_cnt; s++) {
        const tdm_attn_seq_t *seq = &l->plan->seq[s];
        const uint32_t *page = l->page_table + (uint64_t)seq->slot * l->table_stride;
        for (uint32_t i = 0; i < seq->cnt; i++) {
            int64_t n = (int64_t)seq->kv_cnt - seq->cnt + i + 1;
            for (uint32_t h = 0; h < nhead_q; h++) {
                uint64_t cell = (uint64_t)(seq->row + i) * nhead_q + h;
                head_ref(l, kv, page, h / group, n > 0 ? (uint64_t)n : 0,
                         (const float *)l->q + cell * kv->head_dim, score,
                         out + cell * kv->head_dim, &lse[cell]);
            }
        }
    }
}
