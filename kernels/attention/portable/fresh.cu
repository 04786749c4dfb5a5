// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/fresh.cuh"

#include "kernels/attention/portable/context.h"
#include "kernels/plan/plan.h"

// The wide tile's ring: six halves of 16 keys for each warp, two CTAs an SM.
template <int DIM> using fresh_traits = pod_traits<__nv_bfloat16, DIM, 128, 64, 2, 2>;

typedef struct fresh_form {
    const void *kernel;
    uint32_t smem;
} fresh_form_t;

template <int DIM> static fresh_form_t form_of() {
    return {reinterpret_cast<const void *>(fresh_kernel<fresh_traits<DIM>>),
            fresh_map<fresh_traits<DIM>>::SMEM_SZ};
}

static fresh_form_t form(const tdm_pod_t *pod) {
    return pod->config.shape.head_dim == 64 ? form_of<64>() : form_of<128>();
}

uint32_t tdm_pod_fresh_max(const tdm_pod_t *pod) {
    const tdm_pod_config_t *c = &pod->config;
    if (tdm_pod_variant_gate(c, TDM_POD_VARIANT_PORTABLE) != TDM_REASON_NONE) return 0;
    if (c->shape.dtype != TDM_POD_BF16) return 0;
    fresh_form_t f = form(pod);
    int cta_sm = 0;
    if (cudaFuncSetAttribute(f.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(f.smem)) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&cta_sm, f.kernel, TDM_POD_PACK * 32,
                                                      f.smem) != cudaSuccess) {
        (void)cudaGetLastError(); // it is not for this device
        return 0;
    }
    return static_cast<uint32_t>(cta_sm) * c->gpu.sm_cnt;
}

int tdm_pod_launch_fresh(tdm_pod_t *pod, const tdm_pod_plan_t *plan, const tdm_pod_layer_t *layer,
                         const tdm_pod_fresh_t *fresh, uint32_t grid, struct CUstream_st *stream) {
    if (tdm_pod_layer_gate(layer) != TDM_REASON_NONE) return cudaErrorMisalignedAddress;
    if (!(layer->scale > 0.0f) || plan->item_cnt[TDM_KIND_PREFILL]) return cudaErrorInvalidValue;
    if (plan->item_cnt[TDM_KIND_DECODE] > grid || fresh->part_cnt == 0)
        return cudaErrorInvalidValue;
    fresh_form_t f = form(pod);
    fresh_args_t a = {pod_args_of(pod, layer), *fresh};
    void *arg[] = {&a};
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = dim3(grid);
    config.blockDim = dim3(TDM_POD_PACK * 32);
    config.dynamicSmemBytes = f.smem;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = pod->config.gpu.arch >= 90 ? 1 : 0;
    return cudaLaunchKernelExC(&config, f.kernel, arg);
}
