/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/plan.h"

#include "kernels/plan/health.h"
#include "kernels/plan/hopper.h"

/* Fewer SMs than this are not worth a hybrid launch: prefill alone takes
   them all. */
#define SM_MIN 8u

/* Shared memory that the system takes of each CTA, and the kernel's own
   static part. */
#define SMEM_CTA_OVERHEAD 2048u

/* The kernels are built by CUDA 13 and its runtime asks for a driver of
   that major version (CUDA compatibility guide, 2.1). */
#define DRIVER_MIN 13000u

/* The best variant that is taken unasked. */
#define VARIANT_BEST TDM_POD_VARIANT_HOPPER

/* The reason that stands first in reasons.def; 0 is none. */
static uint32_t first_of(uint32_t a, uint32_t b) {
    if (!a || !b) return a | b;
    return TDM_MIN(a, b);
}

/* CTAs of an SM, by its shared memory and threads. */
static uint32_t fit_of(const tdm_gpu_t *gpu, uint32_t smem) {
    if (smem + SMEM_CTA_OVERHEAD / 2 > gpu->smem_cta) return 0;
    uint32_t fit = gpu->smem_sm / (smem + SMEM_CTA_OVERHEAD);
    return TDM_MIN(fit, gpu->thread_sm / (TDM_POD_PACK * 32));
}

uint32_t tdm_pod_tile_fit(const tdm_gpu_t *gpu, uint32_t tile, uint32_t head_dim) {
    uint32_t fit = fit_of(gpu, tdm_pod_tile_smem(tile, head_dim));
    /* The kernel is compiled to leave room for cta_sm CTAs of registers. */
    return TDM_MIN(fit, tdm_pod_tile_info(tile).cta_sm * (gpu->reg_sm / 65536u));
}

uint32_t tdm_pod_plain_fit(const tdm_gpu_t *gpu, uint32_t head_dim) {
    uint32_t fit = fit_of(gpu, tdm_pod_plain_smem(head_dim));
    return TDM_MIN(fit, (head_dim > 128 ? 2u : 4u) * (gpu->reg_sm / 65536u));
}

static int is_page_tok(uint32_t n) {
    return n == 16 || n == 32 || n == 64 || n == 128;
}

/* Query heads per KV head, or 0 where that is no whole number. */
static uint32_t group_of(const tdm_pod_shape_t *s) {
    if (s->nhead_kv == 0 || s->nhead_q == 0 || s->nhead_q > TDM_ATTN_HEAD_MAX) return 0;
    return s->nhead_q % s->nhead_kv ? 0 : s->nhead_q / s->nhead_kv;
}

/* What plain kernels ask of a shape; the others ask more. */
static uint32_t plain_shape(const tdm_pod_shape_t *s) {
    uint32_t d = s->head_dim;
    if (s->dtype >= TDM_POD_DTYPE_CNT) return TDM_FALLBACK_dtype;
    if (s->kv_dtype != s->dtype && s->kv_dtype != TDM_POD_E4M3) return TDM_FALLBACK_kv_dtype;
    if (d != 64 && d != 96 && d != 128 && d != 256) return TDM_FALLBACK_head_dim;
    if (group_of(s) == 0 || group_of(s) > TDM_ATTN_GROUP_MAX) return TDM_FALLBACK_group_size;
    if (!is_page_tok(s->page_tok)) return TDM_FALLBACK_page_size;
    return s->feature ? TDM_FALLBACK_feature : TDM_REASON_NONE;
}

static uint32_t portable_shape(const tdm_pod_shape_t *s) {
    uint32_t reason = plain_shape(s);
    if (s->kv_dtype != s->dtype) reason = first_of(reason, TDM_FALLBACK_kv_dtype);
    if (s->head_dim != 64 && s->head_dim != 128) reason = first_of(reason, TDM_FALLBACK_head_dim);
    if (group_of(s) > 16) reason = first_of(reason, TDM_FALLBACK_group_size);
    return reason;
}

/* What the device alone says against every kernel. */
static uint32_t device_gate(const tdm_pod_config_t *c) {
    if (c->gpu.arch < 80) return TDM_FALLBACK_arch;
    int is_old = c->state.driver && c->state.driver < DRIVER_MIN;
    return is_old ? (uint32_t)TDM_FALLBACK_driver : (uint32_t)TDM_REASON_NONE;
}

static uint32_t portable_gate(const tdm_pod_config_t *c) {
    uint32_t reason = portable_shape(&c->shape);
    uint32_t fit = 0;
    for (uint32_t t = 0; t < TDM_POD_TILE_CNT; t++) {
        if (c->tile != TDM_POD_TILE_AUTO && c->tile != t) continue;
        fit = TDM_MAX(fit, tdm_pod_tile_fit(&c->gpu, t, c->shape.head_dim));
    }
    return fit ? reason : first_of(reason, TDM_FALLBACK_smem_limit);
}

static uint32_t plain_gate(const tdm_pod_config_t *c) {
    uint32_t reason = plain_shape(&c->shape);
    if (tdm_pod_plain_fit(&c->gpu, c->shape.head_dim)) return reason;
    return first_of(reason, TDM_FALLBACK_smem_limit);
}

/* wgmma is of compute capability 9.0 alone; a CTA takes a whole SM. */
static uint32_t hopper_gate(const tdm_pod_config_t *c) {
    uint32_t reason = c->gpu.arch == 90 ? TDM_REASON_NONE : (uint32_t)TDM_FALLBACK_arch;
    reason = first_of(reason, portable_shape(&c->shape));
    int is_room = fit_of(&c->gpu, TDM_HOPPER_SMEM) && c->gpu.reg_sm >= 65536u;
    return is_room ? reason : first_of(reason, TDM_FALLBACK_smem_limit);
}

uint32_t tdm_pod_variant_gate(const tdm_pod_config_t *c, uint32_t variant) {
    uint32_t reason;
    if (c->variant && variant > c->variant) return TDM_FALLBACK_operator;
    switch (variant) {
    case TDM_POD_VARIANT_PLAIN: reason = plain_gate(c); break;
    case TDM_POD_VARIANT_PORTABLE: reason = portable_gate(c); break;
    case TDM_POD_VARIANT_HOPPER: reason = hopper_gate(c); break;
    default: return TDM_FALLBACK_arch;
    }
    reason = first_of(device_gate(c), reason);
    return first_of(reason, tdm_pod_health_bar(&c->state, variant));
}

/* What forbids fusing whatever the variant. */
static uint32_t hybrid_gate(const tdm_pod_config_t *c) {
    if (c->is_off) return TDM_FALLBACK_operator;
    if (c->gpu.sm_cnt < SM_MIN) return TDM_FALLBACK_sm_partition;
    return c->state.is_graph_missing ? TDM_FALLBACK_graph_miss : TDM_REASON_NONE;
}

uint32_t tdm_pod_gate(const tdm_pod_config_t *c, uint32_t *variant_out) {
    uint32_t reason = TDM_REASON_NONE;
    uint32_t variant = TDM_MAX(c->variant, (uint32_t)VARIANT_BEST);
    for (; variant > TDM_POD_VARIANT_NONE; variant--) {
        uint32_t bar = tdm_pod_variant_gate(c, variant);
        if (bar == TDM_REASON_NONE) break;
        /* Why the last one that fuses does not: the portable one's word. */
        if (variant >= TDM_POD_VARIANT_PORTABLE) reason = bar;
    }
    *variant_out = variant;
    if (variant >= TDM_POD_VARIANT_PORTABLE) reason = tdm_pod_health_slow(&c->state, variant);
    return first_of(hybrid_gate(c), reason);
}

static int is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}

uint32_t tdm_pod_layer_gate(const tdm_pod_layer_t *l) {
    int is_fine = is_aligned(l->q) && is_aligned(l->out) && is_aligned(l->k_pool) &&
                  is_aligned(l->v_pool) && (uintptr_t)l->lse % 4 == 0 &&
                  (uintptr_t)l->k_scale % 4 == 0 && (uintptr_t)l->v_scale % 4 == 0;
    return is_fine ? (uint32_t)TDM_REASON_NONE : (uint32_t)TDM_FALLBACK_alignment;
}
