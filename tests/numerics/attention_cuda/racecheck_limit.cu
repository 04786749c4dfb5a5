// SPDX-License-Identifier: Apache-2.0
// Goal: what racecheck cannot follow, shown on as little as possible.
// Method: racecheck_limit bar | each | one.  One warp writes 32 words of shared
// memory, another reads them when told: by a barrier of the CTA (bar); by an
// mbarrier at which each lane of the writer arrives (each); or at which one lane
// arrives for its warp behind a __syncwarp (one), as in the hand-overs of the
// Hopper kernels.  All are ordered: __syncwarp orders the lanes' writes before the
// arrival, which releases, and a wait that succeeds acquires (PTX ISA 8,
// causality order).  Every sum is right.  What compute-sanitizer --tool racecheck
// reports of each says which of these it knows.  Exit 1 where a sum is wrong, 77
// without a device.
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mbarrier.cuh"

enum { BY_BAR, BY_EACH, BY_ONE };

template <int BY> static __global__ void hand_over(uint32_t *out) {
    __shared__ uint64_t bar;
    __shared__ uint32_t word[32];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t at = ptx_smem_addr(&bar);
    if (threadIdx.x == 0) {
        ptx_mbarrier_init(at, BY == BY_ONE ? 1 : 32);
        ptx_mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 32) word[lane] = lane;
    if (BY == BY_BAR) {
        __syncthreads();
    } else if (threadIdx.x < 32) {
        __syncwarp();
        if (BY == BY_EACH || lane == 0) ptx_mbarrier_arrive(at);
    } else {
        ptx_mbarrier_wait(at, 0);
    }
    if (threadIdx.x >= 32) atomicAdd(out, word[31 - lane]);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "one";
    int device_cnt = 0;
    uint32_t *out, sum = 0;
    if (cudaGetDeviceCount(&device_cnt) != cudaSuccess || device_cnt == 0) {
        printf("no CUDA device\n");
        return 77;
    }
    if (cudaMalloc(&out, 4) || cudaMemset(out, 0, 4)) return 1;
    if (strcmp(mode, "bar") == 0) {
        hand_over<BY_BAR><<<1, 64>>>(out);
    } else if (strcmp(mode, "each") == 0) {
        hand_over<BY_EACH><<<1, 64>>>(out);
    } else {
        hand_over<BY_ONE><<<1, 64>>>(out);
    }
    if (cudaMemcpy(&sum, out, 4, cudaMemcpyDeviceToHost)) return 1;
    printf("%s: sum %u, 496 expected\n", mode, sum);
    return sum != 496;
}
