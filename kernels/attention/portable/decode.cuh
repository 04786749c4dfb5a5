// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_DECODE_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_DECODE_CUH

// One decode virtual CTA: one warp, the query heads of one KV head packed
// into a 16-row tile, a range of keys.
//
// The warp has a ring of SLOT halves in its part of the shared memory; a
// half is 16 tokens of K or of V, in turn:
//
//   half    K0 V0 K1 V1 K2 ...
//   step h: wait until half h has landed; ask for half h + SLOT - 1, into
//           the slot that step h - 1 has finished with; use half h
//
// No barrier and no other warp is involved; the ring runs on from item to
// item.

#include "kernels/attention/portable/log.cuh"
#include "kernels/attention/portable/merge.cuh"
#include "kernels/attention/portable/paged.cuh"
#include "kernels/attention/portable/softmax.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mma.cuh"

template <class TR> struct decode_ring {
    pod_paged paged;
    const typename TR::elem *k;
    const typename TR::elem *v;
    uint32_t smem; // this warp's slots
    uint32_t tok;  // of the half to ask for
    uint32_t next; // its number
    uint32_t half_cnt;
    uint32_t tok_begin; // of the item
    uint32_t kv_end;
    uint32_t next_slot; // its address
    uint32_t page;      // of tok: asked for one step ahead
    uint64_t offset;    // of the 16 tokens whose K was asked for last

    // Turns to an item: asks for its first SLOT - 1 halves.  All lanes are
    // done with the slots.
    __device__ __forceinline__ void begin(const pod_paged &of, const tdm_pod_item_t &it) {
        paged = of;
        tok = tok_begin = it.kv_begin;
        kv_end = it.kv_end;
        next = 0;
        half_cnt = (it.kv_end - it.kv_begin + 15) / 16 * 2;
        next_slot = smem;
        page = paged.page_of(tok);
#pragma unroll
        for (int h = 0; h < TR::SLOT - 1; h++) ask();
    }

    // Asks for the next half, if there is one; commits a group in any
    // case, so that groups and halves keep step.
    __device__ __forceinline__ void ask() {
        if (next < half_cnt) {
            constexpr int STEP = 32 / TR::CHUNK; // rows of one pass, 2 or 4
            uint32_t lane = threadIdx.x % 32;
            uint32_t chunk = lane % TR::CHUNK;
            uint32_t r0 = lane / TR::CHUNK;
            if (next % 2 == 0) offset = paged.template offset_in<TR::DIM>(page, tok);
            const auto *src = (next % 2 ? v : k) + offset + r0 * TR::DIM + chunk * 8;
#pragma unroll
            for (int i = 0; i < 16; i += STEP) {
                uint32_t r = i + r0;
                ptx_cp_async_16(next_slot + r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4),
                                src + i * TR::DIM, tok + r < paged.kv_cnt);
            }
            if (next % 2) {
                tok += 16;
                page = paged.page_of(tok);
            }
        }
        ptx_cp_async_commit();
        next++;
        next_slot = after(next_slot);
    }

    __device__ __forceinline__ uint32_t after(uint32_t slot) const {
        slot += TR::HALF_SZ;
        return slot == smem + TR::SLOT * TR::HALF_SZ ? smem : slot;
    }

    // The half of this step has landed, for all lanes; asks for another.
    __device__ __forceinline__ void turn() {
        ptx_cp_async_wait<TR::SLOT - 2>();
        __syncwarp();
        ask();
    }
};

// The group's query rows of an item as A fragments; rows past the group
// are zero.  Held in registers, or read anew for each block where registers
// are short: they lie in L1.
template <class TR> struct decode_query {
    const typename TR::elem *q; // this lane's first two elements
    bool is_row[2];             // lane / 4, lane / 4 + 8
    uint32_t held[TR::IS_Q_HELD ? TR::DIM / 16 : 1][4];

    __device__ __forceinline__ void begin(const pod_args_t &a, uint32_t index) {
        const pod_blob blob = pod_blob_of(a.blob);
        const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][index];
        const tdm_attn_seq_t seq = blob.seq[it.seq];
        const uint32_t group = blob.head->group;
        const uint32_t row = threadIdx.x % 32 / 4;
        q = static_cast<const typename TR::elem *>(a.layer.q) +
            pod_row_offset<TR::DIM>(a, seq, it.head_kv, group, 0, row) + threadIdx.x % 4 * 2;
        is_row[0] = row < group;
        is_row[1] = row + 8 < group;
        if constexpr (TR::IS_Q_HELD) {
#pragma unroll
            for (int k = 0; k < TR::DIM / 16; k++) read(k, held[k]);
        }
    }

    __device__ __forceinline__ void read(int k, uint32_t (&r)[4]) const {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const auto *at = q + c % 2 * 8 * TR::DIM + k * 16 + c / 2 * 8;
            r[c] = is_row[c % 2] ? ptx_ld_global_nc_32(at) : 0u;
        }
    }

    __device__ __forceinline__ void get(int k, uint32_t (&r)[4]) const {
        if constexpr (TR::IS_Q_HELD) {
#pragma unroll
            for (int c = 0; c < 4; c++) r[c] = held[k][c];
        } else {
            read(k, r);
        }
    }
};

// The accumulators of one warp: rows lane / 4 and lane / 4 + 8.
template <class TR> struct decode_rows {
    float o[TR::DIM / 8][4];
    float m[2];
    float l[2];
};

template <class TR> static __device__ __forceinline__ void decode_clear(decode_rows<TR> &w) {
#pragma unroll
    for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) w.o[n][c] = 0.0f;
    }
    w.m[0] = w.m[1] = -CUDART_INF_F;
    w.l[0] = w.l[1] = 0.0f;
}

// 16 keys: K's half lies in slot_k, V's will lie in the one after.
template <class TR>
static __device__ __forceinline__ void decode_block(decode_ring<TR> &ring, uint32_t slot_k,
                                                    const decode_query<TR> &query, uint32_t tok,
                                                    uint32_t kv_end, float scale_lg2,
                                                    decode_rows<TR> &w) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t k_at =
        (lane / 16 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 8 % 2) ^ (lane & 7)) << 4);
    const uint32_t v_at =
        (lane / 8 % 2 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
    float s[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
    for (int k = 0; k < TR::DIM / 16; k++) {
        uint32_t rQ[4];
        uint32_t rK[4];
        query.get(k, rQ);
        ptx_ldmatrix_x4(rK, slot_k + (k_at ^ (k << 5)));
        ptx_mma_m16n8k16<typename TR::elem>(s[0], rQ, rK[0], rK[1]);
        ptx_mma_m16n8k16<typename TR::elem>(s[1], rQ, rK[2], rK[3]);
    }
    if (tok + 16 > kv_end) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            uint32_t col = tok + c / 4 * 8 + lane % 4 * 2 + c % 2;
            if (col >= kv_end) s[c / 4][c % 4] = -CUDART_INF_F;
        }
    }
    float fix[2];
    if (pod_softmax_step(s, w.m, w.l, fix, scale_lg2)) {
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) w.o[n][c] *= fix[c / 2];
        }
    }
    uint32_t rP[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        rP[c] = pod_pack<typename TR::elem>(s[c / 2][c % 2 * 2], s[c / 2][c % 2 * 2 + 1]);
    }
    ring.turn();
    const uint32_t slot_v = ring.after(slot_k);
#pragma unroll
    for (int n = 0; n < TR::DIM / 16; n++) {
        uint32_t rV[4];
        ptx_ldmatrix_x4_trans(rV, slot_v + (v_at ^ (n << 5)));
        ptx_mma_m16n8k16<typename TR::elem>(w.o[2 * n], rP, rV[0], rV[1]);
        ptx_mma_m16n8k16<typename TR::elem>(w.o[2 * n + 1], rP, rV[2], rV[3]);
    }
}

// Writes the rows; returns the merges folded.
template <class TR>
static __device__ __forceinline__ uint32_t decode_end(const pod_args_t &a, const pod_blob &blob,
                                                      const tdm_attn_seq_t &seq,
                                                      const tdm_pod_item_t &it,
                                                      const decode_rows<TR> &w) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = pod_quad_sum(w.l[h]);
        uint32_t r = lane / 4 + h * 8;
        if (r >= it.row_cnt) continue;
        pod_row_sink<TR> sink(a, blob, seq, it, r, w.m[h], sum, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            sink.put(n * 8 + lane % 4 * 2, w.o[n][2 * h], w.o[n][2 * h + 1]);
        }
    }
    __syncwarp();
    return it.merge == TDM_POD_NO_MERGE ? 0 : merge_arrive_warp<TR>(a, blob, seq, it);
}

// Turns the ring to item `index`.
template <class TR>
static __device__ __forceinline__ void decode_begin(const pod_args_t &a, uint32_t index,
                                                    decode_ring<TR> &ring) {
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    ring.begin(pod_paged_of(a, seq, it.head_kv), it);
}

// Writes the rows of item `index` and logs it; returns the merges folded.
template <class TR>
static __device__ __forceinline__ uint32_t decode_leave(const pod_args_t &a, uint32_t index,
                                                        uint32_t sm, const pod_clock &clock,
                                                        const decode_rows<TR> &w) {
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    uint32_t merge = decode_end<TR>(a, blob, seq, it, w);
    if (threadIdx.x % 32 == 0) {
        pod_log(a, blob.head->item_cnt[TDM_KIND_PREFILL] + index, TDM_KIND_DECODE, sm, 1, clock);
    }
    return merge;
}

// One warp: runs decode item `index`, and where is_drawing then draws
// others until none is left.  The next ticket is drawn a few blocks before
// an item's end, and the next item's keys are asked for before the item's
// rows are written.  Returns the items run; adds to *merge.
template <class TR>
static __device__ __forceinline__ uint32_t decode_warp(const pod_args_t &a, uint32_t index,
                                                       bool is_drawing, uint32_t sm, uint32_t smem,
                                                       uint32_t *merge) {
    constexpr uint32_t AHEAD = 4; // blocks
    const uint32_t item_cnt =
        reinterpret_cast<const tdm_pod_head_t *>(a.blob)->item_cnt[TDM_KIND_DECODE];
    const float scale_lg2 = a.scale_lg2;
    uint32_t done = 0;
    decode_ring<TR> ring;
    ring.k = static_cast<const typename TR::elem *>(a.layer.k_pool);
    ring.v = static_cast<const typename TR::elem *>(a.layer.v_pool);
    ring.smem = smem;
    if (index < item_cnt) decode_begin<TR>(a, index, ring);
    while (index < item_cnt) {
        const pod_clock clock = pod_clock_now();
        decode_query<TR> query;
        query.begin(a, index);
        decode_rows<TR> w;
        decode_clear(w);
        uint32_t next = TDM_TICKET_NONE;
        uint32_t slot = smem;
        uint32_t left = ring.half_cnt / 2;
        uint32_t tok = ring.tok_begin;
        bool is_owed = is_drawing;
        do {
            if (left) {
                ring.turn();
                decode_block<TR>(ring, slot, query, tok, ring.kv_end, scale_lg2, w);
                slot = ring.after(ring.after(slot));
                tok += 16;
                left--;
            }
            if (is_owed && left <= AHEAD) {
                if (threadIdx.x % 32 == 0) {
                    next = TDM_TICKET_ADD(&a.ticket->next[TDM_KIND_DECODE].value, 1u);
                }
                is_owed = false;
            }
        } while (left);
        next = __shfl_sync(~0u, next, 0);
        __syncwarp(); // all lanes have read the last half: its slot may be written
        if (next < item_cnt) decode_begin<TR>(a, next, ring);
        *merge += decode_leave<TR>(a, index, sm, clock, w);
        index = next;
        done++;
    }
    ptx_cp_async_wait<0>();
    __syncwarp();
    return done;
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_DECODE_CUH
