// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_MBARRIER_CUH
#define TDM_KERNELS_PTX_MBARRIER_CUH

// mbarrier (PTX ISA 9.7.13.15), sm_90: a phase ends when the counted
// arrivals have come and the expected bytes have landed.  Phases are
// told apart by parity, so a waiter may be at most one phase behind.

#include <stdint.h>

// How long a try may sleep in hardware.  Without it a try comes back at once
// and the waiting warps' polls take issue slots from those that compute (a
// fifth of all instructions, measured on an H200).
#define PTX_MBARRIER_SLEEP_NS 20000u

// Tries before a wait counts as lost: 20 s, or less where tries come back
// early, where an honest wait is well under a millisecond.  It counts tries
// and not time: a pre-empted SM does not try.
#define PTX_MBARRIER_TRY_MAX (1u << 20)

__device__ __forceinline__ void ptx_mbarrier_init(uint32_t bar, uint32_t cnt) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(cnt) : "memory");
}

// Makes inits visible to the copy engine; by the thread that made them,
// before the barrier that lets others use them.
__device__ __forceinline__ void ptx_mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void ptx_mbarrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrives, and makes the phase wait for sz more bytes.
__device__ __forceinline__ void ptx_mbarrier_arrive_expect(uint32_t bar, uint32_t sz) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(sz)
                 : "memory");
}

// Of a build for tests: waits begin late, at random, and on one SM always.
__device__ __forceinline__ void ptx_mbarrier_late() {
#ifdef PTX_MBARRIER_LATE
    uint32_t ns;
    asm volatile("{\n.reg .u32 t, s;\n.reg .pred p;\n"
                 "mov.u32 t, %%clock;\n"
                 "mov.u32 s, %%smid;\n"
                 "mad.lo.u32 t, t, 2654435761, s;\n"
                 "shr.u32 t, t, 19;\n" // below 8192: one in eight sleeps, up to a microsecond
                 "setp.eq.u32 p, s, 5;\n"
                 "@p mov.u32 t, 700;\n"
                 "setp.gt.u32 p, t, 1024;\n"
                 "@p mov.u32 t, 0;\n"
                 "mov.u32 %0, t;\n}"
                 : "=r"(ns));
    __nanosleep(ns);
#endif
}

// Waits for the end of the phase of this parity.  A lost wait is a broken
// invariant: it traps, and the host sees a failed launch, not a hang.  One
// piece of assembly: ptxas must not see a loop between wgmma and its wait.
__device__ __forceinline__ void ptx_mbarrier_wait(uint32_t bar, uint32_t parity) {
    ptx_mbarrier_late();
    asm volatile("{\n.reg .pred p;\n.reg .u32 n;\n"
                 "mov.u32 n, 0;\n"
                 "TRY_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, %3;\n"
                 "@p bra DONE_%=;\n"
                 "add.u32 n, n, 1;\n"
                 "setp.eq.u32 p, n, %2;\n"
                 "@p trap;\n"
                 "bra TRY_%=;\n"
                 "DONE_%=:\n}" ::"r"(bar),
                 "r"(parity), "n"(PTX_MBARRIER_TRY_MAX), "r"(PTX_MBARRIER_SLEEP_NS)
                 : "memory");
}

// The same, and one more in *stall where the phase had not ended when asked.
// Where it had, this costs no instruction more.
__device__ __forceinline__ void ptx_mbarrier_wait_counted(uint32_t bar, uint32_t parity,
                                                          uint32_t *stall) {
    ptx_mbarrier_late();
    asm volatile("{\n.reg .pred p;\n.reg .u32 n;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "@p bra DONE_%=;\n"
                 "add.u32 %0, %0, 1;\n"
                 "mov.u32 n, 0;\n"
                 "TRY_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %4;\n"
                 "@p bra DONE_%=;\n"
                 "add.u32 n, n, 1;\n"
                 "setp.eq.u32 p, n, %3;\n"
                 "@p trap;\n"
                 "bra TRY_%=;\n"
                 "DONE_%=:\n}"
                 : "+r"(*stall)
                 : "r"(bar), "r"(parity), "n"(PTX_MBARRIER_TRY_MAX), "r"(PTX_MBARRIER_SLEEP_NS)
                 : "memory");
}

#endif // TDM_KERNELS_PTX_MBARRIER_CUH
