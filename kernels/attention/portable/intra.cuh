// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_INTRA_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_INTRA_CUH

// Intra-thread fusion, for comparison, in a simple form: every warp does a
// prefill step (one tile of KEY keys, with its CTA) and a decode step
// (INTRA_BLOCK blocks of 16 keys, on its own) in turn.
//
//   CTA     P step    P step    P step   ...      one prefill item
//   warp 0    D step    D step  | D step          its own decode items
//   warp 1    D step    D step    D step
//
// Simple in that a warp's ring drains at the end of a decode item, the
// ratio of the steps is fixed, and registers bound it to 64-row tiles.  The
// items are those of a plan of TDM_POD_TILE_SLIM, the steps those of the
// other kernels, so the bits are those of that plan fused.
//
// cp.async groups are counted over both kinds.  A decode step commits
// 2 * INTRA_BLOCK groups, empty ones too, so at most so many are younger
// than the prefill tile that was asked for before it; a ring's half is
// followed by at least SLOT - 2 groups.

#include "kernels/attention/portable/fused.cuh"

#define INTRA_BLOCK 2

template <class BASE> struct intra_traits : BASE {
    static constexpr int SLOT = 4;
    static constexpr bool IS_Q_HELD = false;
    static constexpr int RING_SZ = BASE::WARP * SLOT * BASE::HALF_SZ;
    static constexpr int INTRA_SMEM_SZ = BASE::SMEM_SZ + RING_SZ;
    static_assert(BASE::STAGE == 2 && BASE::MT == 1, "the slim tile");
};

// --- decode, one warp ---------------------------------------------------

template <class TR> struct intra_decode {
    decode_ring<TR> ring;
    decode_rows<TR> rows;
    decode_query<TR> query;
    pod_clock clock;
    uint32_t index; // item_cnt or more: no item is left
    uint32_t slot;
    uint32_t tok;
    uint32_t left; // blocks
};

template <class TR>
static __device__ __forceinline__ void intra_decode_draw(const pod_args_t &a, uint32_t item_cnt,
                                                         intra_decode<TR> &d) {
    uint32_t index = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        index = TDM_TICKET_ADD(&a.ticket->next[TDM_KIND_DECODE].value, 1u);
    }
    d.index = __shfl_sync(~0u, index, 0);
    if (d.index >= item_cnt) return;
    d.clock = pod_clock_now();
    decode_begin<TR>(a, d.index, d.ring);
    d.query.begin(a, d.index);
    decode_clear(d.rows);
    d.slot = d.ring.smem;
    d.tok = d.ring.tok_begin;
    d.left = d.ring.half_cnt / 2;
}

// One step; adds the items and merges that it ends.
template <class TR>
static __device__ __forceinline__ void intra_decode_step(const pod_args_t &a, uint32_t item_cnt,
                                                         uint32_t sm, intra_decode<TR> &d,
                                                         uint32_t *done, uint32_t *merge) {
#pragma unroll 1
    for (int i = 0; i < INTRA_BLOCK; i++) {
        if (d.index < item_cnt && d.left) {
            d.ring.turn();
            decode_block<TR>(d.ring, d.slot, d.query, d.tok, d.ring.kv_end, a.scale_lg2, d.rows);
            d.slot = d.ring.after(d.ring.after(d.slot));
            d.tok += 16;
            d.left--;
        } else {
            ptx_cp_async_commit();
            ptx_cp_async_commit();
        }
    }
    if (d.index >= item_cnt || d.left) return;
    *merge += decode_leave<TR>(a, d.index, sm, d.clock, d.rows);
    *done += 1;
    intra_decode_draw<TR>(a, item_cnt, d);
}

// --- prefill, the CTA ---------------------------------------------------

template <class TR> struct intra_prefill {
    prefill_rows<TR> rows;
    pod_paged paged;
    uint32_t index; // TDM_TICKET_NONE: no item is left
    uint32_t tok;
    uint32_t kv_end;
    uint32_t stage;
    bool is_begun; // its first tile has been asked for
};

template <class TR>
static __device__ __forceinline__ void intra_prefill_draw(const pod_args_t &a,
                                                          const tdm_ticket_deal_t &deal,
                                                          intra_prefill<TR> &p, pod_turn *turn) {
    __syncthreads(); // smem and `turn` are free
    if (threadIdx.x == 0) {
        turn->clock = pod_clock_now();
        turn->index = tdm_ticket_take(a.ticket, &deal, TDM_KIND_PREFILL);
    }
    __syncthreads();
    p.index = turn->index;
    p.is_begun = false;
}

template <class TR>
static __device__ __forceinline__ void intra_prefill_begin(const pod_args_t &a, uint32_t smem,
                                                           intra_prefill<TR> &p) {
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[TDM_KIND_PREFILL][p.index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    p.paged = pod_paged_of(a, seq, it.head_kv);
    p.tok = it.kv_begin;
    p.kv_end = it.kv_end;
    p.stage = 0;
    p.is_begun = true;
    prefill_begin(p.rows, blob.head, seq, it);
    if (p.tok < p.kv_end) {
        prefill_load_q<TR>(a, blob.head, seq, it, smem);
        prefill_load_kv<TR, PREFILL_K | PREFILL_V>(a, p.paged, p.tok, p.paged.page_of(p.tok),
                                                   smem + TR::Q_SZ,
                                                   smem + TR::Q_SZ + TR::STAGE * TR::KV_SZ);
    }
    ptx_cp_async_commit();
}

// One step: begins an item, or walks a tile, and at the end leaves it and
// draws another.
template <class TR>
static __device__ __forceinline__ void intra_prefill_step(const pod_args_t &a,
                                                          const tdm_ticket_deal_t &deal,
                                                          uint32_t sm, uint32_t smem,
                                                          intra_prefill<TR> &p, pod_turn *turn) {
    const uint32_t sK = smem + TR::Q_SZ;
    const uint32_t sV = sK + TR::STAGE * TR::KV_SZ;
    if (!p.is_begun) {
        intra_prefill_begin<TR>(a, smem, p);
        return;
    }
    if (p.tok < p.kv_end) {
        ptx_cp_async_wait<2 * INTRA_BLOCK>();
        prefill_barrier<TR>();
        const uint32_t other = p.stage ^ TR::KV_SZ;
        if (p.tok + TR::KEY < p.kv_end) {
            const uint32_t tok = p.tok + TR::KEY;
            prefill_load_kv<TR, PREFILL_K | PREFILL_V>(a, p.paged, tok, p.paged.page_of(tok),
                                                       sK + other, sV + other);
        }
        ptx_cp_async_commit();
        if (p.tok + TR::KEY > p.rows.limit_min) {
            prefill_heal<TR>(sK + p.stage, sV + p.stage);
        }
        float s[TR::MT][TR::KEY / 8][4];
        prefill_scores<TR>(s, smem, sK + p.stage);
        if (p.tok + TR::KEY > p.rows.limit_min) prefill_mask<TR>(s, a, p.index, p.tok);
        prefill_softmax<TR>(p.rows, s, a.scale_lg2);
        prefill_values<TR>(p.rows, s, sV + p.stage);
        p.stage = other;
        p.tok += TR::KEY;
        if (p.tok < p.kv_end) return;
    }
    prefill_leave<TR>(a, p.index, sm, &turn->clock, p.rows);
    intra_prefill_draw<TR>(a, deal, p, turn);
}

// --- the kernel ---------------------------------------------------------

template <class TR>
__global__ void __launch_bounds__(TR::THREAD, 2)
    pod_intra_kernel(const __grid_constant__ pod_args_t a) {
    extern __shared__ __align__(1024) uint8_t smem_block[];
    __shared__ pod_turn turn;
    const uint32_t smem = ptx_smem_addr(smem_block);
    const uint32_t sm = ptx_smid() % a.smid_cnt;
    const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.blob);
    tdm_ticket_deal_t deal;
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) deal.item_cnt[kind] = head->item_cnt[kind];
    deal.policy = TDM_TICKET_STICKY;
    const uint32_t item_cnt = deal.item_cnt[TDM_KIND_DECODE];
    uint32_t done = 0;
    uint32_t merge = 0;
    intra_prefill<TR> p;
    intra_decode<TR> d;
    d.left = 0;
    d.ring.k = static_cast<const typename TR::elem *>(a.layer.k_pool);
    d.ring.v = static_cast<const typename TR::elem *>(a.layer.v_pool);
    d.ring.smem = smem + TR::SMEM_SZ + threadIdx.x / 32 * TR::SLOT * TR::HALF_SZ;
    intra_prefill_draw<TR>(a, deal, p, &turn);
    intra_decode_draw<TR>(a, item_cnt, d);
    while (p.index != TDM_TICKET_NONE || d.index < item_cnt) {
        if (p.index != TDM_TICKET_NONE) intra_prefill_step<TR>(a, deal, sm, smem, p, &turn);
        intra_decode_step<TR>(a, item_cnt, sm, d, &done, &merge);
    }
    ptx_cp_async_wait<0>();
    if (threadIdx.x % 32 == 0) {
        pod_add(&a.count->vcta[TDM_KIND_DECODE], done);
        pod_add(&a.count->merge, merge);
    }
    __syncthreads();
    if (threadIdx.x == 0) tdm_ticket_leave(a.ticket, a.drawn, a.smid_cnt, gridDim.x);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_INTRA_CUH
