// SPDX-License-Identifier: Apache-2.0
#include "tests/numerics/engine_cuda/ceiling.h"

#include <cuda_runtime.h>

static __global__ void read_kernel(const uint4 *p, uint64_t cnt, uint32_t *out) {
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 3 * stride < cnt; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) v[k] = __ldcs(p + i + k * stride);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (sum == 0x7a4de3) *out = sum; // so that the reads are needed
}

int ceiling_read(const void *p, uint64_t sz, uint32_t *out, struct CUstream_st *stream) {
    int sm_cnt = 0;
    cudaError_t e = cudaDeviceGetAttribute(&sm_cnt, cudaDevAttrMultiProcessorCount, 0);
    if (e != cudaSuccess) return e;
    read_kernel<<<static_cast<uint32_t>(sm_cnt) * 8, 256, 0, stream>>>(
        static_cast<const uint4 *>(p), sz / 16, out);
    return cudaGetLastError();
}
