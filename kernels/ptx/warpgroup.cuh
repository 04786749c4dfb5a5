// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_WARPGROUP_CUH
#define TDM_KERNELS_PTX_WARPGROUP_CUH

// What the warps of a CTA share out among themselves: registers
// (setmaxnreg, PTX ISA 9.7.19.5, sm_90a) and named barriers (9.7.13.1).

#include <stdint.h>

// All warps of a warpgroup, at a point that none of them branches around;
// CNT in 24 to 256, a multiple of 8.  Giving back frees registers for a
// warpgroup that waits in take.
template <int CNT> __device__ __forceinline__ void ptx_registers_give_back() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(CNT));
}

template <int CNT> __device__ __forceinline__ void ptx_registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CNT));
}

// Barrier `id` of CNT threads, a number known at run time only: arrive and
// wait.
template <int CNT> __device__ __forceinline__ void ptx_bar_sync_at(uint32_t id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(CNT) : "memory");
}

// Barrier ID of cnt threads, a number known at run time only.
template <int ID> __device__ __forceinline__ void ptx_bar_sync_of(uint32_t cnt) {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "r"(cnt) : "memory");
}

#endif // TDM_KERNELS_PTX_WARPGROUP_CUH
