// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_SIDE_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_SIDE_CUH

// Horizontal fusion within a CTA, for comparison: warps 0 to 3 are prefill,
// warps 4 to 7 decode, for good.  The halves share an SM as in the fused
// kernel, but a CTA holds what both need until the longer one is done, and
// no warp takes the other kind.
//
// The items are those of the plan and run as elsewhere, so the bits are the
// same.  Shared memory: the tile's, twice.

#include "kernels/attention/portable/fused.cuh"

// Draws and runs prefill items; threads [0, THREAD).
template <class TR>
static __device__ __forceinline__ void side_prefill(const pod_args_t &a,
                                                    const tdm_ticket_deal_t &deal, uint32_t sm,
                                                    uint32_t smem, pod_turn *turn) {
    for (;;) {
        if (threadIdx.x == 0) {
            turn->clock = pod_clock_now();
            turn->index = tdm_ticket_take(a.ticket, &deal, TDM_KIND_PREFILL);
        }
        prefill_barrier<TR>();
        const uint32_t index = turn->index;
        if (index == TDM_TICKET_NONE) return;
        prefill_run<TR>(a, index, sm, smem, &turn->clock);
        prefill_barrier<TR>(); // smem and `turn` are free
    }
}

template <class TR>
__global__ void __launch_bounds__(2 * TR::THREAD, 1)
    pod_side_kernel(const __grid_constant__ pod_args_t a) {
    extern __shared__ __align__(1024) uint8_t smem_block[];
    __shared__ pod_turn turn;
    const uint32_t smem = ptx_smem_addr(smem_block);
    const uint32_t sm = ptx_smid() % a.smid_cnt;
    const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.blob);
    tdm_ticket_deal_t deal;
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) deal.item_cnt[kind] = head->item_cnt[kind];
    deal.policy = TDM_TICKET_STICKY;
    if (threadIdx.x < TR::THREAD) {
        side_prefill<TR>(a, deal, sm, smem, &turn);
    } else {
        pod_decode<TR>(a, TDM_TICKET_NONE, sm, smem + TR::SMEM_SZ);
    }
    __syncthreads();
    if (threadIdx.x == 0) tdm_ticket_leave(a.ticket, a.drawn, a.smid_cnt, gridDim.x);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_SIDE_CUH
