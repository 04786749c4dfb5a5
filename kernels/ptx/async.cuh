// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_ASYNC_CUH
#define TDM_KERNELS_PTX_ASYNC_CUH

// cp.async (PTX ISA 9.7.9.25): 16 bytes from global to shared memory,
// past the registers.  Copies complete in groups, in order.

#include <stdint.h>

__device__ __forceinline__ uint32_t ptx_smem_addr(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Reads nothing and writes zeros where is_valid is 0.
__device__ __forceinline__ void ptx_cp_async_16(uint32_t dst, const void *src, int is_valid) {
    int sz = is_valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(sz)
                 : "memory");
}

__device__ __forceinline__ void ptx_cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of this thread's groups are unfinished.
template <int N> __device__ __forceinline__ void ptx_cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif // TDM_KERNELS_PTX_ASYNC_CUH
