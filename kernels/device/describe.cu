// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/describe.h"

#include <cuda_runtime.h>

#include "kernels/plan/device.h"
#include "kernels/ptx/special.cuh"

static __global__ void nsmid_kernel(uint32_t *out) {
    *out = ptx_nsmid();
}

static cudaError_t ask_nsmid(uint32_t *out) {
    uint32_t *word = nullptr;
    cudaError_t e = cudaMalloc(&word, sizeof *word);
    if (e != cudaSuccess) return e;
    nsmid_kernel<<<1, 1>>>(word);
    e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaMemcpy(out, word, sizeof *out, cudaMemcpyDeviceToHost);
    (void)cudaFree(word);
    return e;
}

// What a reader reaches of the memory's rate: 0.91 of two transfers a
// clock (measured on an H200: 4,470 of 4,917 GB/s).
static float read_rate(int device) {
    int khz = 0;
    int bits = 0;
    if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device) != cudaSuccess) return 0;
    if (cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) {
        return 0;
    }
    return 0.91f * 2.0f * static_cast<float>(khz) * static_cast<float>(bits) / 8.0f * 1e-6f;
}

int tdm_gpu_describe(tdm_gpu_t *gpu) {
    cudaDeviceProp prop;
    int device = 0;
    *gpu = tdm_gpu_t();
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&prop, device);
    if (e != cudaSuccess) return e;
    gpu->arch = static_cast<uint32_t>(prop.major * 10 + prop.minor);
    gpu->sm_cnt = static_cast<uint32_t>(prop.multiProcessorCount);
    gpu->smem_sm = static_cast<uint32_t>(prop.sharedMemPerMultiprocessor);
    gpu->smem_cta = static_cast<uint32_t>(prop.sharedMemPerBlockOptin);
    gpu->reg_sm = static_cast<uint32_t>(prop.regsPerMultiprocessor);
    gpu->thread_sm = static_cast<uint32_t>(prop.maxThreadsPerMultiProcessor);
    gpu->hbm_gbs = read_rate(device);
    tdm_gpu_rates(gpu);
    return ask_nsmid(&gpu->smid_cnt);
}
