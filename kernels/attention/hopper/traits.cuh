// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_TRAITS_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_TRAITS_CUH

// What follows from (type, head_dim, keys of a block): the shared memory of
// a CTA in either role, and its barriers.  One CTA fills an SM.
//
//   prefill  control | Q [HALF][ROW][64] | K [STAGE][HALF][KEY][64] | V likewise
//   decode   control | ring [warp][K, V][HALF][STEP][64] | scratch | Q | pages
//
// Rows of 64 elements lie in the 128-byte swizzle of the copy engine.

#include "kernels/attention/hopper/config.h"
#include "kernels/attention/portable/traits.cuh"

template <typename T, int DIM_, int KEY_> struct hop_traits {
    using elem = T;
    static constexpr int DIM = DIM_;
    static constexpr int KEY = KEY_;
    static constexpr int HALF = DIM / 64;
    static constexpr int CTA_SM = 1;

    // Prefill: three warpgroups of 64 rows each behind one that fetches.
    static constexpr int WG = 3;
    static constexpr int ROW = HOP_ROW;
    static constexpr int Q_SZ = ROW * DIM * 2;
    static constexpr int Q_HALF_SZ = ROW * 128;
    static constexpr int KV_SZ = KEY * DIM * 2;
    static constexpr int KV_HALF_SZ = KEY * 128;
    static constexpr int STAGE_FIT = (HOP_SMEM_SZ - HOP_CONTROL_SZ - Q_SZ) / (2 * KV_SZ);
    static constexpr int STAGE = STAGE_FIT < HOP_STAGE_MAX ? STAGE_FIT : HOP_STAGE_MAX;
    static constexpr int Q_OFF = HOP_CONTROL_SZ;
    static constexpr int K_OFF = Q_OFF + Q_SZ;
    static constexpr int V_OFF = K_OFF + STAGE * KV_SZ;
    static constexpr int PART_CELL = DIM / 8 + 1; // float4 of a thread's partials: O; m and l

    // Decode: twelve warps, each with a ring of one step of keys and one of
    // values.
    static constexpr int STEP = HOP_STEP_SZ / (DIM * 2); // keys
    static constexpr int STEP_HALF_SZ = STEP * 128;
    static constexpr int RING_SZ = 2 * HOP_STEP_SZ;
    static constexpr int CELL =
        DIM + 4; // floats of a scratch row: O, m, l, and against bank conflicts

    static_assert(KEY % 16 == 0 && KV_HALF_SZ % 1024 == 0, "blocks begin at swizzle atoms");
    static_assert(STAGE >= 2, "a block in use and one in flight");
    static_assert(V_OFF + STAGE * KV_SZ <= HOP_SMEM_SZ, "shared memory");
    static_assert(STEP % 16 == 0, "steps are tiles of 16 keys");
};

// Where the decode role's parts lie, for items of so many packed rows: as
// many warps as their scratch leaves room for.
template <class TR> struct hop_decode_map {
    uint32_t warp_cnt;
    uint32_t ring;    // [warp_cnt]
    uint32_t scratch; // float [warp_cnt][row_cnt][CELL]
    uint32_t q;       // [SLOT][row_cnt][DIM]
    uint32_t page;    // uint32_t [SLOT][HOP_PAGE_MAX]
    uint32_t q_sz;    // bytes of a slot
    uint32_t cell_sz; // bytes of a warp's scratch

    __device__ __forceinline__ hop_decode_map(uint32_t smem, uint32_t row_cnt) {
        q_sz = row_cnt * TR::DIM * 2;
        cell_sz = row_cnt * TR::CELL * 4;
        uint32_t room = HOP_SMEM_SZ - HOP_CONTROL_SZ - HOP_SLOT * (q_sz + HOP_PAGE_MAX * 4);
        uint32_t each = TR::RING_SZ + cell_sz;
        warp_cnt = min(room / each, HOP_WARP_MAX);
        ring = smem + HOP_CONTROL_SZ;
        scratch = ring + warp_cnt * TR::RING_SZ;
        q = scratch + warp_cnt * cell_sz;
        page = q + HOP_SLOT * q_sz;
    }
};

#endif // TDM_KERNELS_ATTENTION_HOPPER_TRAITS_CUH
