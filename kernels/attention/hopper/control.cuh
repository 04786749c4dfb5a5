// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_CONTROL_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_CONTROL_CUH

// The first kilobyte of a CTA's shared memory: barriers and what travels
// with them; and what a launch passes by value.

#include <stddef.h>

#include "kernels/attention/hopper/traits.cuh"
#include "kernels/attention/portable/log.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/warpgroup.cuh"

// Tensor maps over the pools as [page * nhead_kv][HALF][page_tok][64].
typedef struct hop_maps {
    CUtensorMap k_block[HOP_BOX_MAX / 16]; // 16, 32, ... prefill keys, one half
    CUtensorMap v_block[HOP_BOX_MAX / 16];
    CUtensorMap k_step; // a step of one decode warp, or as much as a page holds
    CUtensorMap v_step;
} hop_maps_t;

// What pod_args_t does not say.
typedef struct hop_args {
    pod_args_t pod;
    tdm_ticket_line_t *begun; // CTAs that have begun; and << 16 those that began as decode
    uint32_t step_tok;        // keys of a box of k_step: STEP, or a page
    uint64_t decode_l2;       // hint for what decode reads
} hop_args_t;

// One decode item on its way through a CTA.
typedef struct hop_slot {
    uint32_t index; // of the item, or TDM_TICKET_NONE: no more
    uint32_t step_cnt;
    uint16_t first_warp; // the warp of step 0; step s is done by warp first_warp + s
    uint16_t row_cnt;    // packed rows
    uint32_t tok;        // kv_begin
    uint32_t kv_end;
    uint32_t seen; // keys that its first row sees, kv_end at most; of one token kv_end
    int32_t past;  // position of the sequence's first query token, plus one; may be negative
    uint32_t row;  // first packed row
    uint32_t head_kv;
    uint32_t cycle; // clock when the first step began
    uint64_t ns;
} hop_slot_t;

// One prefill item on its way through a CTA, as the Q warps found it: nobody
// behind them waits for global memory to learn what to do.
typedef struct hop_turn {
    uint32_t index; // of the item, or TDM_TICKET_NONE: no more
    uint32_t reserved[3];
    tdm_pod_item_t item;
    tdm_attn_seq_t seq;
    pod_clock begin; // when its Q was asked for
} hop_turn_t;

typedef struct hop_control {
    // prefill                                  arrives             waits
    uint64_t item_full;              // producer            Q warps
    uint64_t q_full;                 // Q warps             warpgroups
    uint64_t q_empty;                // warpgroups          producer
    uint64_t k_full[HOP_STAGE_MAX];  // copy engine         warpgroups
    uint64_t k_empty[HOP_STAGE_MAX]; // warpgroups          producer
    uint64_t v_full[HOP_STAGE_MAX];
    uint64_t v_empty[HOP_STAGE_MAX];
    // decode
    uint64_t slot_full[HOP_SLOT];  // fetcher             warps, mergers
    uint64_t slot_empty[HOP_SLOT]; // merger              fetcher
    uint64_t left[HOP_SLOT];       // warps: item is done merger
    uint64_t scratch_empty;        // merger              warps
    uint64_t ring_k[HOP_WARP_MAX]; // copy engine         its warp
    uint64_t ring_v[HOP_WARP_MAX];

    uint32_t role;       // TDM_KIND_*, or TDM_TICKET_NONE
    uint32_t is_last[3]; // prefill: this warpgroup folds
    hop_turn_t turn[HOP_TURN];
    hop_slot_t slot[HOP_SLOT];
} hop_control_t;

static_assert(sizeof(hop_control_t) <= HOP_CONTROL_SZ, "the control block grew");

// Address of a member in shared memory, for the instructions that want one.
#define HOP_AT(smem, member) ((smem) + static_cast<uint32_t>(offsetof(hop_control_t, member)))

// Named barriers; 0 is __syncthreads.
enum {
    HOP_BAR_HEAL = 1, // the three warpgroups, when a block is healed
    HOP_BAR_PART = 2, // .. 4: a warpgroup, when its partials are written
};

// All barriers but role: one thread, before the CTA's first barrier.
static __device__ __forceinline__ void hop_control_begin(uint32_t smem, uint32_t wg_cnt,
                                                         uint32_t decode_warp_cnt) {
    ptx_mbarrier_init(HOP_AT(smem, item_full), 1);
    ptx_mbarrier_init(HOP_AT(smem, q_full), 3); // V warp, Q warps
    ptx_mbarrier_init(HOP_AT(smem, q_empty), wg_cnt);
    for (uint32_t i = 0; i < HOP_STAGE_MAX; i++) {
        ptx_mbarrier_init(HOP_AT(smem, k_full) + 8 * i, 1);
        ptx_mbarrier_init(HOP_AT(smem, v_full) + 8 * i, 1);
        ptx_mbarrier_init(HOP_AT(smem, k_empty) + 8 * i, wg_cnt);
        ptx_mbarrier_init(HOP_AT(smem, v_empty) + 8 * i, wg_cnt);
    }
    for (uint32_t i = 0; i < HOP_SLOT; i++) {
        ptx_mbarrier_init(HOP_AT(smem, slot_full) + 8 * i, 1);
        ptx_mbarrier_init(HOP_AT(smem, slot_empty) + 8 * i, 1);
        ptx_mbarrier_init(HOP_AT(smem, left) + 8 * i, decode_warp_cnt);
    }
    ptx_mbarrier_init(HOP_AT(smem, scratch_empty), 1);
    for (uint32_t i = 0; i < HOP_WARP_MAX; i++) {
        ptx_mbarrier_init(HOP_AT(smem, ring_k) + 8 * i, 1);
        ptx_mbarrier_init(HOP_AT(smem, ring_v) + 8 * i, 1);
    }
    ptx_mbarrier_init_fence();
}

// Counts round the stages of a ring: stage, and the parity of its phase.
struct hop_stage {
    uint32_t at;
    uint32_t parity;
    template <int CNT> __device__ __forceinline__ void step() {
        if (++at == CNT) {
            at = 0;
            parity ^= 1;
        }
    }
};

#endif // TDM_KERNELS_ATTENTION_HOPPER_CONTROL_CUH
