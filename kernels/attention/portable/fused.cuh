// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH

// The fused kernel: a shell around the two halves.
//
// Sticky (the default):
//   CTA n to begin on SM s takes the role that the plan's shares give the
//   n-th: 1 : 1 makes every second one decode, so that both kinds meet on
//   every SM from the first to the last moment.
//     prefill  thread 0 draws an item, the CTA runs it, and again
//     decode   each warp draws its own items
//   When its kind runs out it takes the other role: nobody idles while
//   anything is left.
// Proportional and even (as the paper deals):
//   before each turn thread 0 draws a ticket of its SM (kernels/ticket):
//     prefill i: the CTA runs prefill item i
//     decode i:  warp w runs decode item TDM_POD_PACK * i + w
//
// The source of the idea: POD-Attention (Kamath et al., ASPLOS 2025),
// section 4.1: a CTA learns at run time where it is and decides there what
// it does.  The last CTA to leave resets the tickets.

#include "kernels/attention/portable/decode.cuh"
#include "kernels/attention/portable/prefill.cuh"

// What this launch deals: decode in items where each warp draws its own,
// else in packs of one for each warp.
static __device__ __forceinline__ tdm_ticket_deal_t pod_deal_of(const pod_args_t &a,
                                                                const tdm_pod_head_t *head) {
    tdm_ticket_deal_t deal;
    uint32_t decode = head->item_cnt[TDM_KIND_DECODE];
    if (head->policy != TDM_TICKET_STICKY) decode = (decode + TDM_POD_PACK - 1) / TDM_POD_PACK;
    deal.item_cnt[TDM_KIND_PREFILL] =
        a.kind_mask >> TDM_KIND_PREFILL & 1 ? head->item_cnt[TDM_KIND_PREFILL] : 0;
    deal.item_cnt[TDM_KIND_DECODE] = a.kind_mask >> TDM_KIND_DECODE & 1 ? decode : 0;
    deal.policy = head->policy;
    return deal;
}

static __device__ __forceinline__ void pod_add(unsigned long long *to, uint32_t n) {
    if (n) atomicAdd(to, static_cast<unsigned long long>(n));
}

// What thread 0 decides for the CTA, and keeps from turn to turn.
struct pod_turn {
    uint32_t kind; // TDM_KIND_*, or TDM_TICKET_NONE: leave
    uint32_t index;
    uint32_t role;   // sticky: the kind to take from
    uint32_t left;   // sticky: kinds not found empty yet
    pod_clock clock; // its beginning
};

static __device__ __forceinline__ void pod_turn_begin(const pod_args_t &a,
                                                      const tdm_pod_head_t *head, uint32_t sm,
                                                      pod_turn *t) {
    t->role = tdm_ticket_role(a.drawn + sm, sm, head->share[TDM_KIND_PREFILL],
                              head->share[TDM_KIND_DECODE]);
    t->left = TDM_KIND_CNT;
    if (a.fixed_prefill) {
        t->role = blockIdx.x < a.fixed_prefill ? TDM_KIND_PREFILL : TDM_KIND_DECODE;
        t->left = 1;
    }
}

// Sticky: an item of the role, or the change to the other role.  Decode is
// taken once, for its warps draw until nothing is left.
static __device__ __forceinline__ void pod_turn_stick(const pod_args_t &a,
                                                      const tdm_ticket_deal_t &deal, pod_turn *t) {
    t->kind = TDM_TICKET_NONE;
    while (t->left && t->kind == TDM_TICKET_NONE) {
        if (t->role == TDM_KIND_PREFILL) {
            t->index = tdm_ticket_take(a.ticket, &deal, TDM_KIND_PREFILL);
            if (t->index != TDM_TICKET_NONE) {
                t->kind = TDM_KIND_PREFILL;
                return;
            }
        } else if (deal.item_cnt[TDM_KIND_DECODE]) {
            t->kind = TDM_KIND_DECODE;
            t->index = TDM_TICKET_NONE;
        }
        t->role ^= 1;
        t->left--;
    }
}

// All warps draw and run; or, of a pack, each runs its one item.  A call of
// its own: inlined beside prefill, the two would spill each other.
template <class TR>
static __device__ __noinline__ void pod_decode(const pod_args_t &a, uint32_t pack, uint32_t sm,
                                               uint32_t smem) {
    const bool is_drawing = pack == TDM_TICKET_NONE;
    const uint32_t warp = threadIdx.x / 32 % TR::WARP;
    uint32_t index = pack * TDM_POD_PACK + warp;
    if (is_drawing) {
        // To measure with: fewer virtual CTAs in a CTA than it has room for.
        const uint32_t most = reinterpret_cast<const tdm_pod_head_t *>(a.blob)->decode_warp;
        if (most && warp >= most) return;
        if (threadIdx.x % 32 == 0) {
            index = TDM_TICKET_ADD(&a.ticket->next[TDM_KIND_DECODE].value, 1u);
        }
        index = __shfl_sync(~0u, index, 0);
    }
    uint32_t merge = 0;
    uint32_t done =
        decode_warp<TR>(a, index, is_drawing, sm, smem + warp * TR::SLOT * TR::HALF_SZ, &merge);
    if (threadIdx.x % 32) return;
    pod_add(&a.count->vcta[TDM_KIND_DECODE], done);
    pod_add(&a.count->merge, merge);
}

template <class TR>
__global__ void __launch_bounds__(TR::THREAD, TR::CTA_SM)
    pod_kernel(const __grid_constant__ pod_args_t a) {
    extern __shared__ __align__(1024) uint8_t smem_block[];
    __shared__ pod_turn turn;
    const uint32_t smem = ptx_smem_addr(smem_block);
    const uint32_t sm = ptx_smid() % a.smid_cnt;
    if (threadIdx.x == 0) {
        pod_turn_begin(a, reinterpret_cast<const tdm_pod_head_t *>(a.blob), sm, &turn);
    }
    for (;;) {
        if (threadIdx.x == 0) {
            turn.clock = pod_clock_now();
            const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.blob);
            const tdm_ticket_deal_t deal = pod_deal_of(a, head);
            if (deal.policy == TDM_TICKET_STICKY) {
                pod_turn_stick(a, deal, &turn);
            } else {
                turn.kind = tdm_ticket_draw(a.ticket, &deal, a.drawn + sm, sm, &turn.index);
            }
        }
        __syncthreads();
        const uint32_t kind = turn.kind;
        const uint32_t index = turn.index;
        if (kind == TDM_TICKET_NONE) break;
        if (kind == TDM_KIND_PREFILL) {
            prefill_run<TR>(a, index, sm, smem, &turn.clock);
        } else {
            pod_decode<TR>(a, index, sm, smem);
        }
        __syncthreads(); // the turn is done; smem and `turn` are free
    }
    if (threadIdx.x == 0) tdm_ticket_leave(a.ticket, a.drawn, a.smid_cnt, gridDim.x);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_FUSED_CUH
