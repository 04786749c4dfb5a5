// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_SHARED_CUH
#define TDM_KERNELS_PTX_SHARED_CUH

// Loads and stores by a 32-bit shared-memory address (ptx_smem_addr),
// aligned to their size.

#include <stdint.h>

__device__ __forceinline__ uint32_t ptx_ld_shared(uint32_t addr) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ float2 ptx_ld_shared_f2(uint32_t addr) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ void ptx_st_shared(uint32_t addr, uint32_t v) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr), "r"(v) : "memory");
}

__device__ __forceinline__ void ptx_st_shared_f(uint32_t addr, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(addr), "f"(v) : "memory");
}

__device__ __forceinline__ void ptx_st_shared_16(uint32_t addr, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

#endif // TDM_KERNELS_PTX_SHARED_CUH
