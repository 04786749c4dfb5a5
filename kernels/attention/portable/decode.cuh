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
// No barrier and no other warp is involved.

#include "kernels/attention/portable/merge.cuh"
#include "kernels/attention/portable/paged.cuh"
#include "kernels/attention/portable/softmax.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mma.cuh"

template <class TR> struct decode_ring {
    const pod_paged *paged;
    const typename TR::elem *k;
    const typename TR::elem *v;
    uint32_t smem;     // this warp's slots
    uint32_t kv_begin; // of the item
    uint32_t half_cnt;
    uint32_t next;      // half to ask for
    uint32_t next_slot; // its address
    uint64_t offset;    // of the 16 tokens whose K was asked for last

    // Asks for the next half, if there is one; commits a group in any
    // case, so that groups and halves keep step.
    __device__ __forceinline__ void ask() {
        if (next < half_cnt) {
            constexpr int STEP = 32 / TR::CHUNK; // rows of one pass, 2 or 4
            uint32_t lane = threadIdx.x % 32;
            uint32_t chunk = lane % TR::CHUNK;
            uint32_t r0 = lane / TR::CHUNK;
            uint32_t tok = kv_begin + next / 2 * 16;
            if (next % 2 == 0) offset = paged->template offset<TR::DIM>(tok);
            const auto *src = (next % 2 ? v : k) + offset + r0 * TR::DIM + chunk * 8;
#pragma unroll
            for (int i = 0; i < 16; i += STEP) {
                uint32_t r = i + r0;
                ptx_cp_async_16(next_slot + r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4),
                                src + i * TR::DIM, tok + r < paged->kv_cnt);
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

// The group's query rows as A fragments; rows past it are zero.
template <class TR>
static __device__ __forceinline__ void decode_load_q(const pod_args_t &a, uint32_t group,
                                                     const tdm_attn_seq_t &seq,
                                                     const tdm_pod_item_t &it,
                                                     uint32_t (&rQ)[TR::DIM / 16][4]) {
    uint32_t lane = threadIdx.x % 32;
    const auto *q = static_cast<const typename TR::elem *>(a.layer.q) +
                    pod_row_offset<TR::DIM>(a, seq, it.head_kv, group, 0, 0);
#pragma unroll
    for (int k = 0; k < TR::DIM / 16; k++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t r = lane / 4 + c % 2 * 8;
            uint32_t dim = k * 16 + c / 2 * 8 + lane % 4 * 2;
            rQ[k][c] = r < group ? *reinterpret_cast<const uint32_t *>(q + r * TR::DIM + dim) : 0u;
        }
    }
}

// Runs the item; one warp, smem being its TR::SLOT halves.  Returns the
// merges folded.
template <class TR>
static __device__ __forceinline__ uint32_t decode_run(const pod_args_t &a, const pod_blob &blob,
                                                      const tdm_pod_item_t &it, uint32_t smem) {
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const pod_paged paged = pod_paged_of(a, seq, it.head_kv);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t block_cnt = (it.kv_end - it.kv_begin + 15) / 16;

    decode_ring<TR> ring;
    ring.paged = &paged;
    ring.k = static_cast<const typename TR::elem *>(a.layer.k_pool);
    ring.v = static_cast<const typename TR::elem *>(a.layer.v_pool);
    ring.smem = smem;
    ring.kv_begin = it.kv_begin;
    ring.half_cnt = 2 * block_cnt;
    ring.next = 0;
    ring.next_slot = smem;
    ring.offset = 0;
    __syncwarp(); // the slots are free: all lanes are done with the item before
#pragma unroll
    for (int h = 0; h < TR::SLOT - 1; h++) ring.ask();

    uint32_t rQ[TR::DIM / 16][4];
    decode_load_q<TR>(a, blob.head->group, seq, it, rQ);
    float o[TR::DIM / 8][4];
#pragma unroll
    for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) o[n][c] = 0.0f;
    }
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F};
    float l[2] = {0.0f, 0.0f};
    const uint32_t k_at =
        (lane / 16 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 8 % 2) ^ (lane & 7)) << 4);
    const uint32_t v_at =
        (lane / 8 % 2 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
    uint32_t slot = smem;

    for (uint32_t b = 0; b < block_cnt; b++) {
        // K: scores of 16 keys, in two chains of accumulators.
        ring.turn();
        float s[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int k = 0; k < TR::DIM / 16; k++) {
            uint32_t rK[4];
            ptx_ldmatrix_x4(rK, slot + (k_at ^ (k << 5)));
            ptx_mma_m16n8k16<typename TR::elem>(s[0], rQ[k], rK[0], rK[1]);
            ptx_mma_m16n8k16<typename TR::elem>(s[1], rQ[k], rK[2], rK[3]);
        }
        slot = ring.after(slot);
        uint32_t tok = it.kv_begin + b * 16;
        if (tok + 16 > it.kv_end) {
#pragma unroll
            for (int c = 0; c < 8; c++) {
                uint32_t col = tok + c / 4 * 8 + lane % 4 * 2 + c % 2;
                if (col >= it.kv_end) s[c / 4][c % 4] = -CUDART_INF_F;
            }
        }
        float fix[2];
        if (pod_softmax_step(s, m, l, fix, a.scale_lg2)) {
#pragma unroll
            for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
                for (int c = 0; c < 4; c++) o[n][c] *= fix[c / 2];
            }
        }
        // V.
        uint32_t rP[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            rP[c] = pod_pack<typename TR::elem>(s[c / 2][c % 2 * 2], s[c / 2][c % 2 * 2 + 1]);
        }
        ring.turn();
#pragma unroll
        for (int n = 0; n < TR::DIM / 16; n++) {
            uint32_t rV[4];
            ptx_ldmatrix_x4_trans(rV, slot + (v_at ^ (n << 5)));
            ptx_mma_m16n8k16<typename TR::elem>(o[2 * n], rP, rV[0], rV[1]);
            ptx_mma_m16n8k16<typename TR::elem>(o[2 * n + 1], rP, rV[2], rV[3]);
        }
        slot = ring.after(slot);
    }
    ptx_cp_async_wait<0>();
    __syncwarp();

#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = pod_quad_sum(l[h]);
        uint32_t r = lane / 4 + h * 8;
        if (r >= it.row_cnt) continue;
        pod_row_sink<TR> sink(a, blob, seq, it, r, m[h], sum, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            sink.put(n * 8 + lane % 4 * 2, o[n][2 * h], o[n][2 * h + 1]);
        }
    }
    __syncwarp();
    if (it.merge == TDM_POD_NO_MERGE) return 0;
    return merge_arrive_warp<TR>(a, blob, seq, it);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_DECODE_CUH
