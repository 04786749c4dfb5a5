// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_FUSED_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_FUSED_CUH

// The fused kernel of sm_90a: a CTA fills an SM and is wholly prefill or
// wholly decode.
//
//   SM 0  [ prefill CTA, until no item is left ][ decode CTA ........ ]
//   SM 1  [ prefill CTA ..................... ][ decode CTA ........ ]
//   SM 2  [ decode CTA, until no item is left ........ ][ prefill CTA ]
//
// The grid holds two CTAs for each SM, of which one is resident.  The first
// takes the role that the plan's shares give its SM; it draws items of its
// kind until none is left and exits, and the hardware puts another CTA there,
// which takes what is left.  So a switch of role needs no code of its own,
// and each role has the registers that suit it.
//
// A launch of one kind has an image of its own, without the other's code.
//
// Every kind is served whatever the grid: a CTA keeps to its kind until that
// kind is drawn out, and the last CTA to begin takes a kind that no CTA has
// begun with (a grid of two at least, where there are two kinds).

#include "kernels/attention/hopper/decode.cuh"
#include "kernels/attention/hopper/fetch.cuh"
#include "kernels/attention/hopper/prefill.cuh"
#include "kernels/attention/hopper/produce.cuh"
#include "kernels/ptx/dependent.cuh"

#define HOP_BEGUN_DECODE (1u << 16)

#define HOP_PREFILL (1u << TDM_KIND_PREFILL)
#define HOP_DECODE  (1u << TDM_KIND_DECODE)

// Items of a kind that this launch deals and nobody has drawn; may be stale.
template <uint32_t KIND> static __device__ __forceinline__ uint32_t hop_left(const hop_args_t &a) {
    const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob);
    uint32_t cnt = a.pod.kind_mask >> KIND & 1 ? head->item_cnt[KIND] : 0;
    uint32_t next = TDM_TICKET_LOAD(&a.pod.ticket->next[KIND].value);
    return next < cnt ? cnt - next : 0;
}

// The role of this CTA, or TDM_TICKET_NONE where nothing is left to draw.
static __device__ __forceinline__ uint32_t hop_role(const hop_args_t &a, uint32_t sm) {
    const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob);
    if (a.pod.fixed_prefill) {
        return blockIdx.x < a.pod.fixed_prefill ? TDM_KIND_PREFILL : TDM_KIND_DECODE;
    }
    const uint32_t prefill = hop_left<TDM_KIND_PREFILL>(a);
    const uint32_t decode = hop_left<TDM_KIND_DECODE>(a);
    uint32_t role = TDM_KIND_PREFILL;
    if (TDM_TICKET_ADD(&a.pod.drawn[sm].value, 1u) == 0) {
        role = tdm_ticket_kind(sm, head->share[TDM_KIND_PREFILL], head->share[TDM_KIND_DECODE],
                               TDM_TICKET_PROPORTIONAL);
    }
    if (role == TDM_KIND_PREFILL && !prefill && decode) role = TDM_KIND_DECODE;
    if (role == TDM_KIND_DECODE && !decode && prefill) role = TDM_KIND_PREFILL;
    uint32_t before =
        TDM_TICKET_ADD(&a.begun->value, role == TDM_KIND_DECODE ? HOP_BEGUN_DECODE + 1 : 1u);
    if ((before & (HOP_BEGUN_DECODE - 1)) + 1 == gridDim.x) { // the last to begin
        uint32_t as_decode = before / HOP_BEGUN_DECODE;
        if (role == TDM_KIND_PREFILL && as_decode == 0 && decode) return TDM_KIND_DECODE;
        if (role == TDM_KIND_DECODE && as_decode + 1 == gridDim.x && prefill) {
            return TDM_KIND_PREFILL;
        }
    }
    return (role == TDM_KIND_PREFILL ? prefill : decode) ? role : TDM_TICKET_NONE;
}

// One thread of each CTA, when the CTA draws no more.
static __device__ __forceinline__ void hop_leave(const hop_args_t &a) {
    if (tdm_ticket_leave(a.pod.ticket, a.pod.drawn, a.pod.smid_cnt, gridDim.x)) {
        TDM_TICKET_STORE(&a.begun->value, 0u);
    }
}

// KINDS: those that this image can run, a bit each.
template <class TR, uint32_t KINDS>
__global__ void __launch_bounds__(HOP_THREAD, 1)
    hop_kernel(const __grid_constant__ hop_args_t a, const __grid_constant__ hop_maps_t maps) {
    extern __shared__ __align__(1024) uint8_t hop_smem[];
    hop_control_t *c = reinterpret_cast<hop_control_t *>(hop_smem);
    const uint32_t smem = ptx_smem_addr(hop_smem);
    // So that the first copies find their maps.
    if (threadIdx.x - 32 < sizeof maps / sizeof(CUtensorMap)) {
        ptx_tma_prefetch_map(reinterpret_cast<const CUtensorMap *>(&maps) + threadIdx.x - 32);
    }
    ptx_dependent_begin();
    ptx_dependency_wait(); // nothing that a kernel may write is read before
    const uint32_t row_cnt = reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob)->decode_row;
    if (threadIdx.x == 0) {
        c->role = hop_role(a, ptx_smid() % a.pod.smid_cnt);
        hop_control_begin(smem, TR::WG, hop_decode_map<TR>(smem, row_cnt).warp_cnt);
    }
    __syncthreads();
    const uint32_t role = __shfl_sync(~0u, c->role, 0);
    const uint32_t wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (role == TDM_TICKET_NONE) {
        if (threadIdx.x == 0) hop_leave(a);
        return;
    }
    if ((KINDS & HOP_DECODE) && (!(KINDS & HOP_PREFILL) || role == TDM_KIND_DECODE)) {
        const hop_decode_map<TR> map(smem, row_cnt);
        if (warp == 0) {
            decode_fetch<TR>(a, smem, c, map);
            if (threadIdx.x == 0) hop_leave(a);
        } else if (wg == 0) {
            decode_fold<TR>(a, smem, c, map, warp - 1);
        } else if (warp - 4 < map.warp_cnt) {
            decode_consume<TR>(a, maps, smem, c, map, warp - 4);
        }
        return;
    }
    if (!(KINDS & HOP_PREFILL)) return;
    if (wg == 0) {
        ptx_registers_give_back<HOP_REG_FETCH>();
        if (warp == 0) {
            prefill_produce_k<TR>(a, maps, smem, c);
            if (threadIdx.x == 0) hop_leave(a);
        } else if (warp == 1) {
            prefill_produce_v<TR>(a, maps, smem, c);
        } else {
            prefill_copy_q<TR>(a, smem, c);
        }
    } else {
        ptx_registers_take<HOP_REG_COMPUTE>();
        prefill_consume<TR>(a, smem, c, wg - 1);
    }
}

// The image for a launch of these kinds.
template <class TR> static const void *hop_image(uint32_t kinds) {
    if (kinds == HOP_PREFILL) return reinterpret_cast<const void *>(hop_kernel<TR, HOP_PREFILL>);
    if (kinds == HOP_DECODE) return reinterpret_cast<const void *>(hop_kernel<TR, HOP_DECODE>);
    return reinterpret_cast<const void *>(hop_kernel<TR, HOP_PREFILL | HOP_DECODE>);
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_FUSED_CUH
