// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_CLUSTER_CUH
#define TDM_KERNELS_PTX_CLUSTER_CUH

// Clusters of CTAs that write each other's shared memory (PTX ISA 5.1.4,
// 9.7.9.22 mapa, 9.7.9.12 st.async, 9.7.13.4 barrier.cluster), sm_90.

#include <stdint.h>

#include "kernels/ptx/mbarrier.cuh"

// All threads of the cluster meet; what each wrote to shared memory is seen by
// the others.  It waits for the writes to global memory too: some hundreds of
// nanoseconds where there are any.
__device__ __forceinline__ void ptx_cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// The address in CTA `rank`'s shared memory of what is at addr in one's own.
__device__ __forceinline__ uint32_t ptx_cluster_map(uint32_t addr, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(addr), "r"(rank));
    return there;
}

// Sends 8 bytes to a mapped address, aligned to them; the mbarrier at the mapped
// address bar, in the same CTA, counts them when they are there.
__device__ __forceinline__ void ptx_cluster_send(uint32_t there, float2 v, uint32_t bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], "
                 "{%1, %2}, [%3];" ::"r"(there),
                 "f"(v.x), "f"(v.y), "r"(bar)
                 : "memory");
}

// ptx_mbarrier_wait for what other CTAs of the cluster sent.
__device__ __forceinline__ void ptx_cluster_wait(uint32_t bar, uint32_t parity) {
    ptx_mbarrier_late();
    asm volatile("{\n.reg .pred p;\n.reg .u32 n;\n"
                 "mov.u32 n, 0;\n"
                 "TRY_%=:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, %3;\n"
                 "@p bra DONE_%=;\n"
                 "add.u32 n, n, 1;\n"
                 "setp.eq.u32 p, n, %2;\n"
                 "@p trap;\n"
                 "bra TRY_%=;\n"
                 "DONE_%=:\n}" ::"r"(bar),
                 "r"(parity), "n"(PTX_MBARRIER_TRY_MAX), "r"(PTX_MBARRIER_SLEEP_NS)
                 : "memory");
}

#endif // TDM_KERNELS_PTX_CLUSTER_CUH
