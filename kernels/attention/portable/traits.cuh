// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_TRAITS_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_TRAITS_CUH

// What follows from (type, head_dim, tile).
//
// Shared memory of a CTA in the prefill role:
//   Q [ROW][DIM] | K [STAGE][KEY][DIM] | V [STAGE][KEY][DIM]
// and in the decode role a quarter for each warp, a ring of 16-token
// halves, K and V in turn:
//   ring [SLOT][16][DIM]
// Rows are swizzled: 16-byte chunk c of row r lies at c ^ (r % 8), so that
// the eight rows of an ldmatrix fall into eight different bank groups.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/attention/portable/args.cuh"

#include <type_traits>

template <typename T, int DIM_, int ROW_, int KEY_, int STAGE_, int CTA_SM_> struct pod_traits {
    using elem = T;
    static constexpr int DIM = DIM_;
    static constexpr int ROW = ROW_;
    static constexpr int KEY = KEY_;
    static constexpr int STAGE = STAGE_;
    static constexpr int CTA_SM = CTA_SM_;
    static constexpr bool IS_Q_HELD = CTA_SM <= 2; // decode keeps Q in registers

    static constexpr int WARP = 4;
    static constexpr int THREAD = WARP * 32;
    static constexpr int MT = ROW / (16 * WARP); // 16-row tiles of one warp
    static constexpr int CHUNK = DIM / 8;        // 16-byte chunks of a row
    static constexpr int ROW_SZ = DIM * 2;
    static constexpr int Q_SZ = ROW * ROW_SZ;
    static constexpr int KV_SZ = KEY * ROW_SZ;
    static constexpr int SMEM_SZ = Q_SZ + 2 * STAGE * KV_SZ;
    static constexpr int HALF_SZ = 16 * ROW_SZ;
    static constexpr int SLOT = SMEM_SZ / WARP / HALF_SZ;

    static_assert(MT * 16 * WARP == ROW, "a tile's rows are shared by the warps in sixteens");
    static_assert(KEY % 16 == 0 && KEY <= 64, "ranges begin at multiples of 64");
    static_assert(SLOT >= 3, "the decode ring holds one half in use and two in flight");
};

// Two floats, rounded to nearest even, lower half first.
template <typename T> __device__ __forceinline__ uint32_t pod_pack(float lo, float hi);
template <> __device__ __forceinline__ uint32_t pod_pack<__nv_bfloat16>(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}
template <> __device__ __forceinline__ uint32_t pod_pack<__half>(float lo, float hi) {
    __half2 v = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

// Whether eight elements are finite: an exponent of all ones, plus one in
// its last place, carries into the sign's.
template <typename T> __device__ __forceinline__ bool pod_is_finite(const uint4 &v) {
    constexpr bool IS_HALF = std::is_same<T, __half>::value;
    constexpr uint32_t MASK = IS_HALF ? 0x7c007c00u : 0x7f807f80u;
    constexpr uint32_t ONE = IS_HALF ? 0x04000400u : 0x00800080u;
    uint32_t carry =
        ((v.x & MASK) + ONE) | ((v.y & MASK) + ONE) | ((v.z & MASK) + ONE) | ((v.w & MASK) + ONE);
    return (carry & 0x80008000u) == 0;
}

// Two elements as floats, lower half first.
template <typename T> __device__ __forceinline__ float2 pod_unpack(uint32_t v);
template <> __device__ __forceinline__ float2 pod_unpack<__nv_bfloat16>(uint32_t v) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&v));
}
template <> __device__ __forceinline__ float2 pod_unpack<__half>(uint32_t v) {
    return __half22float2(*reinterpret_cast<__half2 *>(&v));
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_TRAITS_CUH
