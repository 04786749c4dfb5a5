// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_CUDA_ROWS_CUH
#define TDM_KERNELS_CUDA_ROWS_CUH

// What the kernels of single rows share: where a step's rows lie, words of
// bf16, and sums that a product left in parts.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/rows.h"

static __device__ __forceinline__ const tdm_step_head_t *head_of(const void *step) {
    return static_cast<const tdm_step_head_t *>(step);
}

static __device__ __forceinline__ const tdm_step_row_t *row_of(const void *step, uint32_t r) {
    const uint8_t *base = static_cast<const uint8_t *>(step);
    return reinterpret_cast<const tdm_step_row_t *>(base + head_of(step)->row_off) + r;
}

// Four bf16 as two words.
static __device__ __forceinline__ uint2 pack4(float4 v) {
    __nv_bfloat162 lo = __floats2bfloat162_rn(v.x, v.y);
    __nv_bfloat162 hi = __floats2bfloat162_rn(v.z, v.w);
    return make_uint2(*reinterpret_cast<uint32_t *>(&lo), *reinterpret_cast<uint32_t *>(&hi));
}

static __device__ __forceinline__ float lower(uint32_t two) {
    return __uint_as_float(two << 16);
}

static __device__ __forceinline__ float upper(uint32_t two) {
    return __uint_as_float(two & 0xffff0000u);
}

static __device__ __forceinline__ float4 plus(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Quad `at` of a sum of parts; all loads are on their way before the first add.
static __device__ __forceinline__ float4 sum_at(const tdm_rows_sums_t &s, uint64_t at) {
    const float4 *part = reinterpret_cast<const float4 *>(s.part) + at;
    float4 v[TDM_ROWS_SUM_MAX];
#pragma unroll
    for (uint32_t c = 0; c < TDM_ROWS_SUM_MAX; c++) {
        if (c < s.cnt) v[c] = part[c * (s.stride / 4)];
    }
    float4 sum = v[0];
#pragma unroll
    for (uint32_t c = 1; c < TDM_ROWS_SUM_MAX; c++) {
        if (c < s.cnt) sum = plus(sum, v[c]);
    }
    return sum;
}

#endif // TDM_KERNELS_CUDA_ROWS_CUH
