// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"

#include <stdlib.h>

#include "kernels/attention/portable/instance.h"
#include "kernels/device/describe.h"
#include "kernels/plan/plan.h"

const void *pod_kernel_of(const tdm_pod_t *pod, uint32_t tile) {
    const tdm_pod_shape_t *s = &pod->config.shape;
    if (s->dtype == TDM_POD_BF16)
        return s->head_dim == 64 ? pod_bf16_d64(tile) : pod_bf16_d128(tile);
    return s->head_dim == 64 ? pod_f16_d64(tile) : pod_f16_d128(tile);
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

static cudaError_t allow_smem(const tdm_pod_t *pod) {
    cudaError_t e = cudaSuccess;
    for (uint32_t tile = 0; tile < TDM_POD_TILE_CNT && e == cudaSuccess; tile++) {
        uint32_t dim = pod->config.shape.head_dim;
        if (tdm_pod_tile_fit(&pod->config.gpu, tile, dim) == 0) continue;
        const void *kernel = pod_kernel_of(pod, tile);
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(tdm_pod_tile_smem(tile, dim)));
        if (e != cudaSuccess) break;
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    }
    return e;
}

static cudaError_t take_memory(tdm_pod_t *pod) {
    const tdm_pod_config_t *c = &pod->config;
    uint64_t zero;
    uint64_t sz = carve(pod, nullptr, &zero);
    cudaError_t e = cudaMalloc(&pod->device, sz);
    if (e != cudaSuccess) return e;
    carve(pod, pod->device, &zero);
    e = cudaMemset(pod->device, 0, zero);
    if (e == cudaSuccess) e = cudaMallocHost(&pod->host_blob, tdm_pod_blob_max(c));
    if (e == cudaSuccess) {
        e = cudaMallocHost(&pod->host_span, c->item_max * sizeof(tdm_pod_span_t));
    }
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&pod->side, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&pod->fork, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&pod->join, cudaEventDisableTiming);
    return e;
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
    if (variant < TDM_POD_VARIANT_PORTABLE) {
        *why = "no kernel takes this shape on this device";
        return cudaErrorNotSupported;
    }
    auto *pod = static_cast<tdm_pod_t *>(calloc(1, sizeof(tdm_pod_t)));
    if (!pod) return cudaErrorMemoryAllocation;
    pod->config = *config;
    e = take_memory(pod);
    if (e == cudaSuccess) e = allow_smem(pod);
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
    if (pod->join) (void)cudaEventDestroy(pod->join);
    if (pod->fork) (void)cudaEventDestroy(pod->fork);
    if (pod->side) (void)cudaStreamDestroy(pod->side);
    (void)cudaFreeHost(pod->host_span);
    (void)cudaFreeHost(pod->host_blob);
    (void)cudaFree(pod->device);
    free(pod);
}

void *tdm_pod_blob(tdm_pod_t *pod) {
    return pod->host_blob;
}

int tdm_pod_upload(tdm_pod_t *pod, const tdm_pod_plan_t *plan, struct CUstream_st *stream) {
    if (plan->blob_sz > tdm_pod_blob_max(&pod->config)) return cudaErrorInvalidValue;
    return cudaMemcpyAsync(pod->blob, pod->host_blob, plan->blob_sz, cudaMemcpyHostToDevice,
                           stream);
}
