// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_TMA_CUH
#define TDM_KERNELS_PTX_TMA_CUH

// The bulk tensor copy engine (PTX ISA 9.7.9.27.1), sm_90: one thread asks
// for a box of a tensor map; an mbarrier counts its bytes in.

#include <cuda.h>
#include <stdint.h>

// L2 hints, as createpolicy would make them for the whole access.
#define PTX_L2_NORMAL      UINT64_C(0x1000000000000000)
#define PTX_L2_EVICT_FIRST UINT64_C(0x12f0000000000000)
#define PTX_L2_EVICT_LAST  UINT64_C(0x14f0000000000000)

__device__ __forceinline__ void ptx_tma_prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at (c0, c1), innermost first, to dst.
__device__ __forceinline__ void ptx_tma_load_2d(uint32_t dst, const CUtensorMap *map, uint32_t bar,
                                                uint32_t c0, uint32_t c1, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "l"(policy)
                 : "memory");
}

// The box at (c0, c1, c2, c3), innermost first, to dst.
__device__ __forceinline__ void ptx_tma_load_4d(uint32_t dst, const CUtensorMap *map, uint32_t bar,
                                                uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                                uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
                 : "memory");
}

// Orders this thread's ordinary accesses to shared memory with those that
// the copy engine and wgmma make behind the next barrier.
__device__ __forceinline__ void ptx_fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif // TDM_KERNELS_PTX_TMA_CUH
