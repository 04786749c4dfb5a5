// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH

// The fused kernel: a shell around the two halves.
//
//   CTA on SM s:  loop
//     thread 0 draws a ticket of SM s  (kernels/ticket)
//     prefill i: the CTA runs prefill item i
//     decode i:  warp w runs decode item TDM_POD_PACK * i + w
//     none:      the last CTA to leave resets the tickets
//
// The source of the idea: POD-Attention (Kamath et al., ASPLOS 2025),
// section 4.1: neighbouring turns of one SM get different kinds, so the
// tensor-bound and the memory-bound kind meet on every SM.
//
// The ticket deals decode in packs of one item per warp, so the shares p :
// d of an SM's turns are shares of CTAs, as the paper has them.

#include "kernels/attention/portable/decode.cuh"
#include "kernels/attention/portable/prefill.cuh"

// What this launch deals.
static __device__ __forceinline__ tdm_ticket_deal_t pod_deal_of(const pod_args_t &a,
                                                                const tdm_pod_head_t *head) {
    tdm_ticket_deal_t deal;
    uint32_t pack = (head->item_cnt[TDM_KIND_DECODE] + TDM_POD_PACK - 1) / TDM_POD_PACK;
    deal.item_cnt[TDM_KIND_PREFILL] =
        a.kind_mask >> TDM_KIND_PREFILL & 1 ? head->item_cnt[TDM_KIND_PREFILL] : 0;
    deal.item_cnt[TDM_KIND_DECODE] = a.kind_mask >> TDM_KIND_DECODE & 1 ? pack : 0;
    deal.policy = head->policy;
    return deal;
}

// One turn of a CTA: its kind and index.  Thread 0 only.
static __device__ __forceinline__ uint2 pod_draw(const pod_args_t &a, const tdm_ticket_deal_t &deal,
                                                 uint32_t sm) {
    uint2 turn;
    if (a.fixed_prefill) {
        turn.x = blockIdx.x < a.fixed_prefill ? TDM_KIND_PREFILL : TDM_KIND_DECODE;
        turn.y = tdm_ticket_take(a.ticket, &deal, turn.x);
        if (turn.y == TDM_TICKET_NONE) turn.x = TDM_TICKET_NONE;
    } else {
        turn.x = tdm_ticket_draw(a.ticket, &deal, a.drawn + sm, sm, &turn.y);
    }
    return turn;
}

// The log line of one turn.
static __device__ __forceinline__ void pod_log(const pod_args_t &a, const tdm_pod_head_t *head,
                                               uint2 turn, uint32_t sm, uint32_t vcta_cnt,
                                               uint64_t start_ns, uint32_t start_clock) {
    uint32_t line = turn.x == TDM_KIND_PREFILL ? turn.y : head->item_cnt[TDM_KIND_PREFILL] + turn.y;
    tdm_pod_span_t span;
    span.start_ns = start_ns;
    span.end_ns = ptx_globaltimer();
    span.clock_cnt = static_cast<uint32_t>(clock64()) - start_clock;
    span.sm = sm;
    span.kind = turn.x;
    span.vcta_cnt = vcta_cnt;
    a.span[line] = span;
}

template <class TR>
__global__ void __launch_bounds__(TR::THREAD, TR::CTA_SM)
    pod_kernel(const __grid_constant__ pod_args_t a) {
    extern __shared__ __align__(1024) uint8_t smem_block[];
    __shared__ uint2 turn_shared;
    const uint32_t smem = ptx_smem_addr(smem_block);
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_ticket_deal_t deal = pod_deal_of(a, blob.head);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t sm = ptx_smid() % a.smid_cnt;
    uint32_t vcta[TDM_KIND_CNT] = {0, 0};
    uint32_t merge = 0;

    for (;;) {
        if (threadIdx.x == 0) turn_shared = pod_draw(a, deal, sm);
        __syncthreads();
        const uint2 turn = turn_shared;
        if (turn.x == TDM_TICKET_NONE) break;
        const uint64_t start_ns = ptx_globaltimer();
        const uint32_t start_clock = static_cast<uint32_t>(clock64());
        uint32_t vcta_cnt = 1;
        if (turn.x == TDM_KIND_PREFILL) {
            merge += prefill_run<TR>(a, blob, blob.item[TDM_KIND_PREFILL][turn.y], smem);
        } else {
            uint32_t first = turn.y * TDM_POD_PACK;
            uint32_t left = blob.head->item_cnt[TDM_KIND_DECODE] - first;
            vcta_cnt = left < TDM_POD_PACK ? left : TDM_POD_PACK;
            if (warp < vcta_cnt) {
                uint32_t folded = decode_run<TR>(a, blob, blob.item[TDM_KIND_DECODE][first + warp],
                                                 smem + warp * TR::SLOT * TR::HALF_SZ);
                if (warp) {
                    if (folded && threadIdx.x % 32 == 0) atomicAdd(&a.count->merge, 1ull);
                } else {
                    merge += folded;
                }
            }
        }
        __syncthreads(); // the item is done; smem and turn_shared are free
        if (threadIdx.x == 0) {
            vcta[turn.x] += vcta_cnt;
            pod_log(a, blob.head, turn, sm, vcta_cnt, start_ns, start_clock);
        }
    }
    if (threadIdx.x) return;
#pragma unroll
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (vcta[kind]) {
            atomicAdd(&a.count->vcta[kind], static_cast<unsigned long long>(vcta[kind]));
        }
    }
    if (merge) atomicAdd(&a.count->merge, static_cast<unsigned long long>(merge));
    tdm_ticket_leave(a.ticket, a.drawn, a.smid_cnt, gridDim.x);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH
