// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"

#include "kernels/attention/hopper/config.h"
#include "kernels/attention/hopper/launch.h"
#include "kernels/plan/plan.h"

#define PREFILL (1u << TDM_KIND_PREFILL)
#define DECODE  (1u << TDM_KIND_DECODE)

static uint32_t log2_of(uint32_t n) {
    uint32_t lg = 0;
    while (1u << lg < n) lg++;
    return lg;
}

pod_args_t pod_args_of(const tdm_pod_t *pod, const tdm_pod_layer_t *layer) {
    pod_args_t a = pod_args_t();
    a.layer = *layer;
    a.blob = pod->blob;
    a.part = pod->part;
    a.arrived = pod->arrived;
    a.count = pod->count;
    a.span = pod->span;
    a.smid_cnt = pod->config.gpu.smid_cnt;
    a.nhead_q = pod->config.shape.nhead_q;
    a.nhead_kv = pod->config.shape.nhead_kv;
    a.page_lg = log2_of(pod->config.shape.page_tok);
    a.scale_lg2 = layer->scale * 1.44269504f;
    return a;
}

// One kernel that deals the kinds of mask, on ticket set `set`.
static cudaError_t launch_way(const tdm_pod_t *pod, const tdm_pod_plan_t *plan, pod_args_t a,
                              uint32_t mask, uint32_t set, uint32_t way, uint32_t grid,
                              cudaStream_t stream) {
    if (!(mask & PREFILL && plan->item_cnt[TDM_KIND_PREFILL]) &&
        !(mask & DECODE && plan->item_cnt[TDM_KIND_DECODE])) {
        return cudaSuccess;
    }
    a.kind_mask = mask;
    a.ticket = pod->ticket + set;
    a.drawn = pod->drawn + set * pod->config.gpu.smid_cnt;
    if (plan->variant == TDM_POD_VARIANT_HOPPER) {
        if (!pod->hopper || way != TDM_POD_WAY_FUSED) return cudaErrorNotSupported;
        return hop_launch(pod->hopper, &a, set, grid, pod->config.is_dependent, stream);
    }
    void *arg[] = {&a};
    const void *kernel = pod_kernel_of(pod, plan->variant, way, plan->tile);
    uint32_t smem = pod_kernel_smem(pod, plan->variant, way, plan->tile);
    if (!kernel || smem > pod->config.gpu.smem_cta) return cudaErrorNotSupported;
    uint32_t thread = TDM_POD_PACK * 32 * (way == TDM_POD_WAY_HFUSE_WARP ? 2 : 1);
    return cudaLaunchKernel(kernel, dim3(grid), dim3(thread), arg, smem, stream);
}

static cudaError_t launch_one(const tdm_pod_t *pod, const tdm_pod_plan_t *plan, const pod_args_t &a,
                              uint32_t mask, uint32_t set, uint32_t grid, cudaStream_t stream) {
    return launch_way(pod, plan, a, mask, set, TDM_POD_WAY_FUSED, grid, stream);
}

// CTAs of a kind beside the other: half of them, or what the plan gives it.
static uint32_t part_of(const tdm_pod_plan_t *plan, uint32_t mask, uint32_t grid) {
    uint32_t half = grid / 2 ? grid / 2 : 1;
    uint32_t sm = plan->share[TDM_KIND_PREFILL] + plan->share[TDM_KIND_DECODE];
    if (plan->variant != TDM_POD_VARIANT_HOPPER || sm == 0) return half;
    uint32_t n = plan->share[mask & PREFILL ? TDM_KIND_PREFILL : TDM_KIND_DECODE] * grid / sm;
    return n ? n : 1;
}

// Two kernels side by side, of so many CTAs each that both find room.
static cudaError_t launch_streams(const tdm_pod_t *pod, const tdm_pod_plan_t *plan,
                                  const pod_args_t &a, uint32_t first, uint32_t grid,
                                  cudaStream_t stream) {
    uint32_t second = (PREFILL | DECODE) ^ first;
    cudaError_t e = cudaEventRecord(pod->fork, stream);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(pod->side, pod->fork, 0);
    if (e == cudaSuccess)
        e = launch_one(pod, plan, a, first, 0, part_of(plan, first, grid), stream);
    if (e == cudaSuccess) {
        e = launch_one(pod, plan, a, second, 1, part_of(plan, second, grid), pod->side);
    }
    if (e == cudaSuccess) e = cudaEventRecord(pod->join, pod->side);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(stream, pod->join, 0);
    return e;
}

// CTAs of prefill under a fixed split: its share of the predicted time, or
// what the plan gives it.
static uint32_t fixed_split(const tdm_pod_plan_t *plan, uint32_t grid) {
    if (plan->variant == TDM_POD_VARIANT_HOPPER) {
        uint32_t most = part_of(plan, PREFILL, grid);
        return most < grid ? most : grid - 1;
    }
    float p = plan->pred_us[TDM_KIND_PREFILL];
    float share = p / (p + plan->pred_us[TDM_KIND_DECODE]);
    uint32_t n = static_cast<uint32_t>(share * static_cast<float>(grid) + 0.5f);
    return n < 1 ? 1 : n >= grid ? grid - 1 : n;
}

int tdm_pod_launch(tdm_pod_t *pod, const tdm_pod_plan_t *plan, const tdm_pod_layer_t *layer,
                   uint32_t way, uint32_t grid, struct CUstream_st *stream) {
    if (tdm_pod_layer_gate(layer) != TDM_REASON_NONE) return cudaErrorMisalignedAddress;
    if (!(layer->scale > 0.0f) || plan->grid == 0) return cudaErrorInvalidValue;
    int is_apart =
        way == TDM_POD_WAY_SERIAL || way == TDM_POD_WAY_PREFILL || way == TDM_POD_WAY_DECODE;
    if (plan->variant == TDM_POD_VARIANT_PLAIN && !is_apart) return cudaErrorNotSupported;
    int is_fp8 = pod->config.shape.kv_dtype == TDM_POD_E4M3;
    if (is_fp8 && (!layer->k_scale || !layer->v_scale)) return cudaErrorInvalidValue;
    pod_args_t a = pod_args_of(pod, layer);
    uint32_t given = grid;
    // Only where roles change is there more to launch than is resident.
    if (grid == 0) grid = plan->cta_sm * pod->config.gpu.sm_cnt;
    if (given == 0 && way == TDM_POD_WAY_FUSED) grid = plan->grid;
    cudaError_t e = cudaSuccess;
    switch (way) {
    case TDM_POD_WAY_SERIAL:
        e = launch_one(pod, plan, a, PREFILL, 0, grid, stream);
        return e == cudaSuccess ? launch_one(pod, plan, a, DECODE, 0, grid, stream) : e;
    case TDM_POD_WAY_PREFILL: return launch_one(pod, plan, a, PREFILL, 0, grid, stream);
    case TDM_POD_WAY_DECODE: return launch_one(pod, plan, a, DECODE, 0, grid, stream);
    case TDM_POD_WAY_STREAMS_PD: return launch_streams(pod, plan, a, PREFILL, grid, stream);
    case TDM_POD_WAY_STREAMS_DP: return launch_streams(pod, plan, a, DECODE, grid, stream);
    case TDM_POD_WAY_FUSED: return launch_one(pod, plan, a, PREFILL | DECODE, 0, grid, stream);
    case TDM_POD_WAY_HFUSE:
        if (grid < 2 || !plan->item_cnt[TDM_KIND_PREFILL] || !plan->item_cnt[TDM_KIND_DECODE]) {
            return launch_one(pod, plan, a, PREFILL | DECODE, 0, grid, stream);
        }
        a.fixed_prefill = fixed_split(plan, grid);
        return launch_one(pod, plan, a, PREFILL | DECODE, 0, grid, stream);
    case TDM_POD_WAY_HFUSE_WARP:
        grid = given ? given : pod->config.gpu.sm_cnt;
        return launch_way(pod, plan, a, PREFILL | DECODE, 0, way, grid, stream);
    case TDM_POD_WAY_INTRA:
        grid = given ? given : 2 * pod->config.gpu.sm_cnt;
        return launch_way(pod, plan, a, PREFILL | DECODE, 0, way, grid, stream);
    default: return cudaErrorInvalidValue;
    }
}

int tdm_pod_occupancy(const tdm_pod_t *pod, const tdm_pod_plan_t *plan, uint32_t *reg_out,
                      uint32_t *cta_sm_out, uint32_t *local_out) {
    const void *kernel = pod_kernel_of(pod, plan->variant, TDM_POD_WAY_FUSED, plan->tile);
    cudaFuncAttributes attr;
    int cta_sm = 0;
    int thread = plan->variant == TDM_POD_VARIANT_HOPPER ? HOP_THREAD : TDM_POD_PACK * 32;
    cudaError_t e = cudaFuncGetAttributes(&attr, kernel);
    if (e == cudaSuccess) {
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&cta_sm, kernel, thread, plan->smem_sz);
    }
    if (e != cudaSuccess) return e;
    *reg_out = static_cast<uint32_t>(attr.numRegs);
    *local_out = static_cast<uint32_t>(attr.localSizeBytes);
    *cta_sm_out = static_cast<uint32_t>(cta_sm);
    return 0;
}
