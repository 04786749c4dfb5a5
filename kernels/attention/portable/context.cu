// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"

#include <stdlib.h>

#include "kernels/attention/hopper/launch.h"
#include "kernels/attention/plain/instance.h"
#include "kernels/attention/portable/instance.h"
#include "kernels/device/describe.h"
#include "kernels/plan/plan.h"

// One form's instance of a shape, by (type, head_dim).
typedef struct pod_form {
    pod_instance_t *of[TDM_POD_DTYPE_CNT][2];
} pod_form_t;

static const pod_form_t fused_form = {{{pod_bf16_d64, pod_bf16_d128}, {pod_f16_d64, pod_f16_d128}}};
static const pod_form_t side_form = {
    {{side_bf16_d64, side_bf16_d128}, {side_f16_d64, side_f16_d128}}};
static const pod_form_t intra_form = {
    {{intra_bf16_d64, intra_bf16_d128}, {intra_f16_d64, intra_f16_d128}}};

const void *pod_kernel_of(const tdm_pod_t *pod, uint32_t variant, uint32_t way, uint32_t tile) {
    const tdm_pod_shape_t *s = &pod->config.shape;
    if (variant == TDM_POD_VARIANT_PLAIN) return plain_kernel_of(s);
    if (variant == TDM_POD_VARIANT_HOPPER && way == TDM_POD_WAY_FUSED) {
        return hop_kernel_of(s, 1u << TDM_KIND_PREFILL | 1u << TDM_KIND_DECODE);
    }
    if (variant != TDM_POD_VARIANT_PORTABLE) return nullptr;
    const pod_form_t *form = way == TDM_POD_WAY_HFUSE_WARP ? &side_form
                             : way == TDM_POD_WAY_INTRA    ? &intra_form
                                                           : &fused_form;
    return form->of[s->dtype][s->head_dim == 128](tile);
}

uint32_t pod_kernel_smem(const tdm_pod_t *pod, uint32_t variant, uint32_t way, uint32_t tile) {
    uint32_t dim = pod->config.shape.head_dim;
    if (variant == TDM_POD_VARIANT_PLAIN) return tdm_pod_plain_smem(dim);
    if (way == TDM_POD_WAY_INTRA) return POD_INTRA_SMEM(dim);
    return tdm_pod_tile_smem(tile, dim) * (way == TDM_POD_WAY_HFUSE_WARP ? 2 : 1);
}

// Takes cnt elements of sz bytes off the block; base may be NULL to measure.
static void *take(uint8_t *base, uint64_t *off, uint64_t cnt, uint64_t sz) {
    void *p = base ? base + *off : nullptr;
    *off = (*off + cnt * sz + 255) / 256 * 256;
    return p;
}

// The pieces in order; *zero_out is where those that begin as zeros end.
static uint64_t carve(tdm_pod_t *pod, uint8_t *base, uint64_t *zero_out) {
    const tdm_pod_config_t *c = &pod->config;
    uint64_t off = 0;
    pod->ticket =
        static_cast<tdm_ticket_t *>(take(base, &off, POD_TICKET_CNT, sizeof(tdm_ticket_t)));
    pod->drawn = static_cast<tdm_ticket_line_t *>(
        take(base, &off, POD_TICKET_CNT * static_cast<uint64_t>(c->gpu.smid_cnt),
             sizeof(tdm_ticket_line_t)));
    pod->arrived =
        static_cast<uint32_t *>(take(base, &off, tdm_pod_merge_max(c), sizeof(uint32_t)));
    pod->count = static_cast<pod_count_t *>(take(base, &off, 1, sizeof(pod_count_t)));
    *zero_out = off;
    pod->blob = static_cast<uint8_t *>(take(base, &off, tdm_pod_blob_max(c), 1));
    pod->span =
        static_cast<tdm_pod_span_t *>(take(base, &off, c->item_max, sizeof(tdm_pod_span_t)));
    pod->part = static_cast<float *>(take(base, &off, c->part_float_max, sizeof(float)));
    return off;
}

static cudaError_t allow_smem(const tdm_pod_t *pod, uint32_t variant, uint32_t way, uint32_t tile) {
    const void *kernel = pod_kernel_of(pod, variant, way, tile);
    uint32_t smem = pod_kernel_smem(pod, variant, way, tile);
    if (!kernel || smem > pod->config.gpu.smem_cta) return cudaSuccess;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(smem));
    if (e != cudaSuccess) return e;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

// For every kernel that a plan of this context may ask for.
static cudaError_t allow_all_smem(const tdm_pod_t *pod) {
    static const uint32_t way[] = {TDM_POD_WAY_FUSED, TDM_POD_WAY_HFUSE_WARP, TDM_POD_WAY_INTRA};
    cudaError_t e = cudaSuccess;
    for (uint32_t v = TDM_POD_VARIANT_PLAIN; v <= TDM_POD_VARIANT_PORTABLE; v++) {
        if (tdm_pod_variant_gate(&pod->config, v) != TDM_REASON_NONE) continue;
        for (uint32_t w = 0; w < TDM_COUNT_OF(way); w++) {
            for (uint32_t tile = 0; tile < TDM_POD_TILE_CNT && e == cudaSuccess; tile++) {
                e = allow_smem(pod, v, way[w], tile);
            }
        }
    }
    return e;
}

static uint64_t blob_stride(const tdm_pod_t *pod) {
    return (tdm_pod_blob_max(&pod->config) + 255) / 256 * 256;
}

static cudaError_t take_memory(tdm_pod_t *pod) {
    const tdm_pod_config_t *c = &pod->config;
    uint64_t zero;
    uint64_t sz = carve(pod, nullptr, &zero);
    cudaError_t e = cudaMalloc(&pod->device, sz);
    if (e != cudaSuccess) return e;
    carve(pod, pod->device, &zero);
    e = cudaMemset(pod->device, 0, zero);
    if (e == cudaSuccess) e = cudaMallocHost(&pod->host_blob, c->box_cnt * blob_stride(pod));
    if (e == cudaSuccess) {
        uint64_t span_cnt = static_cast<uint64_t>(c->box_cnt) * c->item_max;
        e = cudaMallocHost(&pod->host_span, span_cnt * sizeof(tdm_pod_span_t));
    }
    if (e == cudaSuccess) e = cudaMallocHost(&pod->host_count, c->box_cnt * sizeof(pod_count_t));
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&pod->side, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&pod->fork, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&pod->join, cudaEventDisableTiming);
    return e;
}

uint64_t tdm_pod_need(const tdm_pod_config_t *config) {
    tdm_pod_t pod = tdm_pod_t();
    uint64_t zero;
    pod.config = *config;
    tdm_pod_config_fill(&pod.config);
    return carve(&pod, nullptr, &zero);
}

int tdm_pod_create(tdm_pod_config_t *config, tdm_pod_t **out, const char **why) {
    *out = nullptr;
    cudaError_t e = cudaSuccess;
    if (config->gpu.sm_cnt == 0) e = static_cast<cudaError_t>(tdm_gpu_describe(&config->gpu));
    *why = cudaGetErrorString(e);
    if (e != cudaSuccess) return e;
    tdm_pod_config_fill(config);
    uint32_t variant;
    (void)tdm_pod_gate(config, &variant);
    if (variant == TDM_POD_VARIANT_NONE) {
        *why = "no kernel takes this shape on this device";
        return cudaErrorNotSupported;
    }
    auto *pod = static_cast<tdm_pod_t *>(calloc(1, sizeof(tdm_pod_t)));
    if (!pod) return cudaErrorMemoryAllocation;
    pod->config = *config;
    e = take_memory(pod);
    if (e == cudaSuccess) e = allow_all_smem(pod);
    if (e == cudaSuccess && !tdm_pod_variant_gate(config, TDM_POD_VARIANT_HOPPER)) {
        e = hop_open(&config->shape, &pod->hopper);
    }
    *why = cudaGetErrorString(e);
    if (e != cudaSuccess) {
        tdm_pod_destroy(pod);
        return e;
    }
    *out = pod;
    return 0;
}

void tdm_pod_destroy(tdm_pod_t *pod) {
    if (!pod) return;
    hop_close(pod->hopper);
    if (pod->join) (void)cudaEventDestroy(pod->join);
    if (pod->fork) (void)cudaEventDestroy(pod->fork);
    if (pod->side) (void)cudaStreamDestroy(pod->side);
    (void)cudaFreeHost(pod->host_count);
    (void)cudaFreeHost(pod->host_span);
    (void)cudaFreeHost(pod->host_blob);
    (void)cudaFree(pod->device);
    free(pod);
}

void tdm_pod_box(tdm_pod_t *pod, uint32_t box) {
    pod->box = box;
}

void *tdm_pod_blob(tdm_pod_t *pod) {
    return pod->host_blob + pod->box * blob_stride(pod);
}

int tdm_pod_upload(tdm_pod_t *pod, const tdm_pod_plan_t *plan, struct CUstream_st *stream) {
    if (plan->blob_sz > tdm_pod_blob_max(&pod->config)) return cudaErrorInvalidValue;
    return cudaMemcpyAsync(pod->blob, tdm_pod_blob(pod), plan->blob_sz, cudaMemcpyHostToDevice,
                           stream);
}
