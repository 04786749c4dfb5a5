// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_CUDA_BLOCK_CUH
#define TDM_KERNELS_CUDA_BLOCK_CUH

// Sums and maxima over the threads of a CTA, in an order that is fixed by
// thread number alone.  Every thread gets the result.  All threads call;
// blockDim.x is a multiple of 32, at most 1024.

#include <cuda_runtime.h>
#include <stdint.h>

struct block_add {
    template <typename T> __device__ T operator()(T a, T b) const { return a + b; }
};

struct block_higher {
    template <typename T> __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};

template <typename T, typename F> static __device__ T block_fold(T v, F fold) {
    __shared__ T part[32];
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    for (int step = 16; step > 0; step /= 2) v = fold(v, __shfl_xor_sync(~0u, v, step));
    __syncthreads(); // a fold before this one may still be read
    if (lane == 0) part[warp] = v;
    __syncthreads();
    T all = part[0];
    for (uint32_t w = 1; w < blockDim.x / 32; w++) all = fold(all, part[w]);
    return all;
}

template <typename T> static __device__ T block_sum(T v) {
    return block_fold(v, block_add());
}

template <typename T> static __device__ T block_max(T v) {
    return block_fold(v, block_higher());
}

#endif // TDM_KERNELS_CUDA_BLOCK_CUH
