// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_MMA_CUH
#define TDM_KERNELS_PTX_MMA_CUH

// ldmatrix (PTX ISA 9.7.15.5.15) and mma.sync m16n8k16 (9.7.15.5.8).
//
// Fragments, lane l, g = l / 4, t = l % 4:
//   A 16x16  a0 (g, 2t) a1 (g + 8, 2t) a2 (g, 2t + 8) a3 (g + 8, 2t + 8), two columns each
//   B 16x8   b0 (2t, g) b1 (2t + 8, g), two rows each
//   C 16x8   c0 c1 (g, 2t) c2 c3 (g + 8, 2t)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ void ptx_ldmatrix_x4(uint32_t (&r)[4], uint32_t addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

__device__ __forceinline__ void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

// The 8 x 8 matrix of 16-bit elements that the warp holds, two columns of row
// lane / 4 each, transposed (PTX ISA 9.7.15.5.17).
__device__ __forceinline__ uint32_t ptx_movmatrix_trans(uint32_t v) {
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}

// c += a * b.  Pure register work: no memory clobber, free to be moved.
template <typename T>
__device__ __forceinline__ void ptx_mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1);

template <>
__device__ __forceinline__ void ptx_mma_m16n8k16<__nv_bfloat16>(float (&c)[4],
                                                                const uint32_t (&a)[4], uint32_t b0,
                                                                uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void ptx_mma_m16n8k16<__half>(float (&c)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif // TDM_KERNELS_PTX_MMA_CUH
