// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_SPECIAL_CUH
#define TDM_KERNELS_PTX_SPECIAL_CUH

// Special registers and small instructions.

#include <stdint.h>

// The SM this CTA runs on, below %nsmid.  It may change under
// pre-emption, so nothing but placement may depend on it.
__device__ __forceinline__ uint32_t ptx_smid() {
    uint32_t v;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(v));
    return v;
}

__device__ __forceinline__ uint32_t ptx_nsmid() {
    uint32_t v;
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(v));
    return v;
}

__device__ __forceinline__ uint64_t ptx_globaltimer() {
    uint64_t v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
    return v;
}

// 2^x to 2 ulp; ex2(-inf) is 0.
__device__ __forceinline__ float ptx_ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// One word of global memory that nobody writes, where it stands: not moved
// out of a loop.
__device__ __forceinline__ uint32_t ptx_ld_global_nc_32(const void *p) {
    uint32_t v;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// One word, or four, of shared memory, by its address there.
__device__ __forceinline__ uint32_t ptx_ld_shared_32(uint32_t addr) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ uint4 ptx_ld_shared_128(uint32_t addr) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(addr)
                 : "memory");
    return v;
}

__device__ __forceinline__ void ptx_st_shared_128(uint32_t addr, const uint4 &v) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

// Barrier id among cnt threads, a multiple of 32; also orders their
// shared-memory accesses.
template <int ID, int CNT> __device__ __forceinline__ void ptx_bar_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(CNT) : "memory");
}

#endif // TDM_KERNELS_PTX_SPECIAL_CUH
