// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_NUMERICS_ATTENTION_CUDA_VALUES_CUH
#define TDM_TESTS_NUMERICS_ATTENTION_CUDA_VALUES_CUH

// Element types of the worlds, to double and back.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tests/numerics/attention_cuda/world.h"

static __host__ __device__ inline uint64_t value_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

template <typename T> static __device__ T value_from(float v);
template <> __device__ __nv_bfloat16 value_from(float v) {
    return __float2bfloat16(v);
}
template <> __device__ __half value_from(float v) {
    return __float2half(v);
}
template <> __device__ uint8_t value_from(float v) {
    return static_cast<uint8_t>(__nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3));
}

static __device__ inline double value_of(__nv_bfloat16 v) {
    return static_cast<double>(static_cast<float>(v));
}
static __device__ inline double value_of(__half v) {
    return static_cast<double>(static_cast<float>(v));
}
static __device__ inline double value_of(uint8_t code) {
    return static_cast<double>(__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))));
}

static __device__ inline double warp_sum(double v) {
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

// Calls fn<T, KV>(args) for a world's types.
#define WORLD_TYPED(w, fn, ...)                                                                    \
    do {                                                                                           \
        int is_fp8 = (w)->shape.kv_dtype == TDM_POD_E4M3;                                          \
        if ((w)->shape.dtype == TDM_POD_BF16) {                                                    \
            if (is_fp8)                                                                            \
                fn<__nv_bfloat16, uint8_t>(__VA_ARGS__);                                           \
            else                                                                                   \
                fn<__nv_bfloat16, __nv_bfloat16>(__VA_ARGS__);                                     \
        } else {                                                                                   \
            if (is_fp8)                                                                            \
                fn<__half, uint8_t>(__VA_ARGS__);                                                  \
            else                                                                                   \
                fn<__half, __half>(__VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

#endif // TDM_TESTS_NUMERICS_ATTENTION_CUDA_VALUES_CUH
