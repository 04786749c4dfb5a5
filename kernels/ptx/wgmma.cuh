// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_WGMMA_CUH
#define TDM_KERNELS_PTX_WGMMA_CUH

// wgmma (PTX ISA 9.7.16), sm_90a: D[64][N] += A[64][16] B[16][N] by the four
// warps of a warpgroup, fp32 sums in registers.
//
// Accumulator of warp w, lane l, g = l / 4, t = l % 4: d[4 i + c] is row
// 16 w + g + 8 (c / 2), column 8 i + 2 t + c % 2.  A from registers: as
// mma.sync's A fragment of the warp's 16 rows.
//
// Shared operands are tiles of 64-element (128-byte) rows in the 128-byte
// swizzle of the copy engine: 16-byte chunk c of row r at c ^ (r % 8).

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// Descriptor (9.7.16.5.1) of a swizzled tile at addr, a multiple of 1024
// but for steps inside of a row.  group_sz: bytes from 8 rows to the next
// 8; half_sz: bytes to the next 64 columns, where N runs along the rows.
__device__ __forceinline__ uint64_t ptx_wgmma_desc(uint32_t addr, uint32_t half_sz,
                                                   uint32_t group_sz) {
    const uint64_t swizzle_128 = 1;
    return (addr & 0x3ffff) >> 4 | static_cast<uint64_t>(half_sz >> 4) << 16 |
           static_cast<uint64_t>(group_sz >> 4) << 32 | swizzle_128 << 62;
}

__device__ __forceinline__ void ptx_wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void ptx_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most CNT groups are unfinished.
template <int CNT> __device__ __forceinline__ void ptx_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(CNT) : "memory");
}

// Keeps the compiler from moving uses of sums across a fence or a wait: it
// does not know that wgmma writes them later.
template <int CNT> __device__ __forceinline__ void ptx_wgmma_hold(float (&d)[CNT]) {
#pragma unroll
    for (int i = 0; i < CNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// The sums as operands: the names of CNT of them, and their constraints.
#define WGMMA_NAME_4  "%0, %1, %2, %3"
#define WGMMA_NAME_8  WGMMA_NAME_4 ", %4, %5, %6, %7"
#define WGMMA_NAME_16 WGMMA_NAME_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAME_32                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                         \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAME_40                                                                              \
    WGMMA_NAME_32                                                                                  \
    ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAME_64                                                                              \
    WGMMA_NAME_40                                                                                  \
    ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55"             \
    ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_SUMS(b)                                                                              \
    "+f"(d[b]), "+f"(d[b + 1]), "+f"(d[b + 2]), "+f"(d[b + 3]), "+f"(d[b + 4]), "+f"(d[b + 5]),    \
        "+f"(d[b + 6]), "+f"(d[b + 7])
#define WGMMA_SUM_8  WGMMA_SUMS(0)
#define WGMMA_SUM_4  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WGMMA_SUM_16 WGMMA_SUMS(0), WGMMA_SUMS(8)
#define WGMMA_SUM_32 WGMMA_SUMS(0), WGMMA_SUMS(8), WGMMA_SUMS(16), WGMMA_SUMS(24)
#define WGMMA_SUM_40 WGMMA_SUM_32, WGMMA_SUMS(32)
#define WGMMA_SUM_64 WGMMA_SUM_40, WGMMA_SUMS(40), WGMMA_SUMS(48), WGMMA_SUMS(56)

// keys: A and B [N][16] along B's rows, both from shared memory.
// values: A from registers, B [16][N] across B's rows.
// CNT = N / 2 sums; OP: the numbers of the operands behind them.
#define WGMMA_KEYS(CNT, N, TYPE, A, B, IS)                                                         \
    static __device__ __forceinline__ void keys(float(&d)[CNT], uint64_t a, uint64_t b,            \
                                                int is_add) {                                      \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " IS ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE                \
                     " {" WGMMA_NAME_##CNT "}, " A ", " B ", p, 1, 1, 0, 0;\n}"                    \
                     : WGMMA_SUM_##CNT                                                             \
                     : "l"(a), "l"(b), "r"(is_add));                                               \
    }
#define WGMMA_VALUES(CNT, N, TYPE, A, B, IS)                                                       \
    static __device__ __forceinline__ void values(float(&d)[CNT], const uint32_t *a, uint64_t b,   \
                                                  int is_add) {                                    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " IS ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE                \
                     " {" WGMMA_NAME_##CNT "}, {" A "}, " B ", p, 1, 1, 1;\n}"                     \
                     : WGMMA_SUM_##CNT                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_add));           \
    }
#define WGMMA_TYPE(TYPE)                                                                           \
    WGMMA_KEYS(4, "8", TYPE, "%4", "%5", "%6")                                                     \
    WGMMA_KEYS(8, "16", TYPE, "%8", "%9", "%10")                                                   \
    WGMMA_KEYS(16, "32", TYPE, "%16", "%17", "%18")                                                \
    WGMMA_KEYS(32, "64", TYPE, "%32", "%33", "%34")                                                \
    WGMMA_KEYS(40, "80", TYPE, "%40", "%41", "%42")                                                \
    WGMMA_KEYS(64, "128", TYPE, "%64", "%65", "%66")                                               \
    WGMMA_VALUES(32, "64", TYPE, "%32, %33, %34, %35", "%36", "%37")                               \
    WGMMA_VALUES(64, "128", TYPE, "%64, %65, %66, %67", "%68", "%69")

// d (+)= A B, an overload for each count of sums; is_add 0 overwrites d.
template <typename T> struct ptx_wgmma;
template <> struct ptx_wgmma<__nv_bfloat16> { WGMMA_TYPE("bf16") };
template <> struct ptx_wgmma<__half> { WGMMA_TYPE("f16") };

#endif // TDM_KERNELS_PTX_WGMMA_CUH
