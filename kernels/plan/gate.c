/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/plan.h"

/* Fewer SMs than this are not worth a hybrid launch: prefill alone takes
   them all. */
#define SM_MIN 8u

/* Shared memory that the system takes of each CTA, and the kernel's own
   static part. */
#define SMEM_CTA_OVERHEAD 2048u

uint32_t tdm_pod_tile_fit(const tdm_gpu_t *gpu, uint32_t tile, uint32_t head_dim) {
    tdm_pod_tile_info_t info = tdm_pod_tile_info(tile);
    uint32_t smem = tdm_pod_tile_smem(tile, head_dim);
    if (smem + SMEM_CTA_OVERHEAD / 2 > gpu->smem_cta) return 0;
    uint32_t fit = gpu->smem_sm / (smem + SMEM_CTA_OVERHEAD);
    uint32_t thread = TDM_POD_PACK * 32;
    fit = TDM_MIN(fit, gpu->thread_sm / thread);
    /* The kernel is compiled to leave room for cta_sm CTAs of registers. */
    fit = TDM_MIN(fit, info.cta_sm * (gpu->reg_sm / 65536u));
    return fit;
}

static int is_page_tok(uint32_t n) {
    return n == 16 || n == 32 || n == 64 || n == 128;
}

static uint32_t shape_gate(const tdm_pod_shape_t *s) {
    if (s->dtype >= TDM_POD_DTYPE_CNT) return TDM_FALLBACK_dtype;
    if (s->kv_dtype != s->dtype) return TDM_FALLBACK_kv_dtype;
    if (s->head_dim != 64 && s->head_dim != 128) return TDM_FALLBACK_head_dim;
    if (s->nhead_kv == 0 || s->nhead_q == 0 || s->nhead_q % s->nhead_kv ||
        s->nhead_q / s->nhead_kv > 16 || s->nhead_q > TDM_ATTN_HEAD_MAX) {
        return TDM_FALLBACK_group_size;
    }
    if (!is_page_tok(s->page_tok)) return TDM_FALLBACK_page_size;
    if (s->feature) return TDM_FALLBACK_feature;
    return TDM_REASON_NONE;
}

uint32_t tdm_pod_gate(const tdm_pod_config_t *c, int *is_runnable_out) {
    uint32_t reason = c->gpu.arch < 80 ? (uint32_t)TDM_FALLBACK_arch : TDM_REASON_NONE;
    if (!reason) reason = shape_gate(&c->shape);
    if (!reason) {
        uint32_t fit = 0;
        for (uint32_t t = 0; t < TDM_POD_TILE_CNT; t++) {
            if (c->tile != TDM_POD_TILE_AUTO && c->tile != t) continue;
            fit = TDM_MAX(fit, tdm_pod_tile_fit(&c->gpu, t, c->shape.head_dim));
        }
        if (fit == 0) reason = TDM_FALLBACK_smem_limit;
    }
    *is_runnable_out = reason == TDM_REASON_NONE;
    /* These two forbid fusing only, and come first in the order. */
    if (c->is_off) return TDM_FALLBACK_operator;
    if (reason == TDM_FALLBACK_arch) return reason;
    if (c->gpu.sm_cnt < SM_MIN) return TDM_FALLBACK_sm_partition;
    return reason;
}

static int is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

uint32_t tdm_pod_layer_gate(const tdm_pod_layer_t *l) {
    int is_fine = is_aligned(l->q) && is_aligned(l->out) && is_aligned(l->k_pool) &&
                  is_aligned(l->v_pool) && (uintptr_t)l->lse % 4 == 0;
    return is_fine ? (uint32_t)TDM_REASON_NONE : (uint32_t)TDM_FALLBACK_alignment;
}
