// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_PREFILL_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_PREFILL_CUH

// One prefill virtual CTA: four warps, each ROW / 4 packed query rows,
// walk the keys of the item in tiles of KEY.
//
//   two stages                         one stage
//   wait K V of tile j, barrier        wait K of tile j, barrier
//   ask for K V of tile j + 1          ask for V of tile j
//   S = Q K^T, softmax, O += P V       S = Q K^T
//                                      wait V, barrier, ask for K of tile j + 1
//                                      softmax, O += P V
//
// With two stages one barrier a tile does: it stands after the wait, so
// that all copies are visible, and before the next copies, which overwrite
// what every warp has finished reading.

#include "kernels/attention/portable/merge.cuh"
#include "kernels/attention/portable/paged.cuh"
#include "kernels/attention/portable/softmax.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mma.cuh"

#define POD_PREFILL_BAR 1

template <class TR> static __device__ __forceinline__ void prefill_barrier() {
    ptx_bar_sync<POD_PREFILL_BAR, TR::THREAD>();
}

// Copies the tile's packed rows; rows past row_cnt become zeros.
template <class TR>
static __device__ __forceinline__ void prefill_load_q(const pod_args_t &a,
                                                      const tdm_pod_head_t *head,
                                                      const tdm_attn_seq_t &seq,
                                                      const tdm_pod_item_t &it, uint32_t sQ) {
    const auto *q = static_cast<const typename TR::elem *>(a.layer.q);
    uint32_t chunk = threadIdx.x % TR::CHUNK;
#pragma unroll 4
    for (int r = threadIdx.x / TR::CHUNK; r < TR::ROW; r += TR::THREAD / TR::CHUNK) {
        uint32_t p = it.row + r;
        uint32_t tok = pod_token_of(p, head->group_magic);
        int is_row = r < static_cast<int>(it.row_cnt);
        uint64_t off = is_row ? pod_row_offset<TR::DIM>(a, seq, it.head_kv, head->group, tok,
                                                        p - tok * head->group)
                              : 0;
        ptx_cp_async_16(sQ + r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4), q + off + chunk * 8,
                        is_row);
    }
}

// Copies keys [tok, tok + KEY) of one pool; those past kv_cnt become
// zeros, so that a weight of 0 never meets a NaN.
template <class TR>
static __device__ __forceinline__ void prefill_load_kv(const pod_paged &paged, const void *pool,
                                                       uint32_t tok, uint32_t dst) {
    constexpr int STEP = TR::THREAD / TR::CHUNK; // rows of one pass, 8 or 16
    uint32_t chunk = threadIdx.x % TR::CHUNK;
    uint32_t r0 = threadIdx.x / TR::CHUNK;
    const auto *base = static_cast<const typename TR::elem *>(pool) + r0 * TR::DIM + chunk * 8;
#pragma unroll
    for (int g = 0; g < TR::KEY / 16; g++) {
        const auto *src = base + paged.offset<TR::DIM>(tok + g * 16);
#pragma unroll
        for (int i = 0; i < 16; i += STEP) {
            uint32_t r = g * 16 + i + r0;
            ptx_cp_async_16(dst + r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4), src + i * TR::DIM,
                            tok + r < paged.kv_cnt);
        }
    }
}

// The accumulators of one warp.
template <class TR> struct prefill_rows {
    float o[TR::MT][TR::DIM / 8][4];
    float m[TR::MT][2];
    float l[TR::MT][2];
    uint32_t limit[TR::MT][2]; // keys each row sees
    uint32_t limit_min;        // of the warp's first row: below it nothing is masked
};

template <class TR>
static __device__ __forceinline__ void prefill_begin(prefill_rows<TR> &w,
                                                     const tdm_pod_head_t *head,
                                                     const tdm_attn_seq_t &seq,
                                                     const tdm_pod_item_t &it) {
    uint32_t first = it.row + threadIdx.x / 32 * (16 * TR::MT);
    w.limit_min = pod_visible(seq, pod_token_of(first, head->group_magic));
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t p = first + i * 16 + h * 8 + threadIdx.x % 32 / 4;
            w.limit[i][h] = pod_visible(seq, pod_token_of(p, head->group_magic));
            w.m[i][h] = -CUDART_INF_F;
            w.l[i][h] = 0.0f;
        }
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) w.o[i][n][c] = 0.0f;
        }
    }
}

// s = Q K^T of one tile.
template <class TR>
static __device__ __forceinline__ void prefill_scores(float (&s)[TR::MT][TR::KEY / 8][4],
                                                      uint32_t sQ, uint32_t sK) {
    uint32_t lane = threadIdx.x % 32;
    uint32_t q_row = threadIdx.x / 32 * (16 * TR::MT) + lane % 16;
    uint32_t aQ = sQ + q_row * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
    uint32_t k_row = lane / 16 * 8 + lane % 8;
    uint32_t aK = sK + k_row * TR::ROW_SZ + (((lane / 8 % 2) ^ (lane & 7)) << 4);
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int n = 0; n < TR::KEY / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) s[i][n][c] = 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < TR::DIM / 16; k++) {
        uint32_t rQ[TR::MT][4];
#pragma unroll
        for (int i = 0; i < TR::MT; i++) {
            ptx_ldmatrix_x4(rQ[i], (aQ ^ (k << 5)) + i * 16 * TR::ROW_SZ);
        }
#pragma unroll
        for (int n = 0; n < TR::KEY / 16; n++) {
            uint32_t rK[4];
            ptx_ldmatrix_x4(rK, (aK ^ (k << 5)) + n * 16 * TR::ROW_SZ);
#pragma unroll
            for (int i = 0; i < TR::MT; i++) {
                ptx_mma_m16n8k16<typename TR::elem>(s[i][2 * n], rQ[i], rK[0], rK[1]);
                ptx_mma_m16n8k16<typename TR::elem>(s[i][2 * n + 1], rQ[i], rK[2], rK[3]);
            }
        }
    }
}

// Scores of keys that a row does not see become -inf.
template <class TR>
static __device__ __forceinline__ void prefill_mask(float (&s)[TR::MT][TR::KEY / 8][4],
                                                    const prefill_rows<TR> &w, uint32_t tok) {
    uint32_t col = tok + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int n = 0; n < TR::KEY / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (col + n * 8 + c % 2 >= w.limit[i][c / 2]) s[i][n][c] = -CUDART_INF_F;
            }
        }
    }
}

// Weights, and O += P V.
template <class TR>
static __device__ __forceinline__ void prefill_values(prefill_rows<TR> &w,
                                                      float (&s)[TR::MT][TR::KEY / 8][4],
                                                      uint32_t sV) {
    uint32_t lane = threadIdx.x % 32;
    uint32_t v_row = lane / 8 % 2 * 8 + lane % 8;
    uint32_t aV = sV + v_row * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
#pragma unroll
    for (int k = 0; k < TR::KEY / 16; k++) {
        uint32_t rP[TR::MT][4];
#pragma unroll
        for (int i = 0; i < TR::MT; i++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float *pair = &s[i][2 * k + c / 2][c % 2 * 2];
                rP[i][c] = pod_pack<typename TR::elem>(pair[0], pair[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < TR::DIM / 16; n++) {
            uint32_t rV[4];
            ptx_ldmatrix_x4_trans(rV, (aV ^ (n << 5)) + k * 16 * TR::ROW_SZ);
#pragma unroll
            for (int i = 0; i < TR::MT; i++) {
                ptx_mma_m16n8k16<typename TR::elem>(w.o[i][2 * n], rP[i], rV[0], rV[1]);
                ptx_mma_m16n8k16<typename TR::elem>(w.o[i][2 * n + 1], rP[i], rV[2], rV[3]);
            }
        }
    }
}

template <class TR>
static __device__ __forceinline__ void prefill_softmax(prefill_rows<TR> &w,
                                                       float (&s)[TR::MT][TR::KEY / 8][4],
                                                       float scale_lg2) {
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
        float fix[2];
        if (!pod_softmax_step(s[i], w.m[i], w.l[i], fix, scale_lg2)) continue;
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) w.o[i][n][c] *= fix[c / 2];
        }
    }
}

// Writes the rows: out and lse, or the partials of it.split.
template <class TR>
static __device__ __forceinline__ void prefill_end(const pod_args_t &a, const pod_blob &blob,
                                                   const tdm_attn_seq_t &seq,
                                                   const tdm_pod_item_t &it, prefill_rows<TR> &w) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float l = pod_quad_sum(w.l[i][h]);
            uint32_t r = threadIdx.x / 32 * (16 * TR::MT) + i * 16 + h * 8 + lane / 4;
            if (r >= it.row_cnt) continue;
            pod_row_sink<TR> sink(a, blob, seq, it, r, w.m[i][h], l, lane % 4 == 0);
#pragma unroll
            for (int n = 0; n < TR::DIM / 8; n++) {
                sink.put(n * 8 + lane % 4 * 2, w.o[i][n][2 * h], w.o[i][n][2 * h + 1]);
            }
        }
    }
}

// Runs the item; all threads of the CTA, smem being TR::SMEM_SZ bytes that
// nobody else uses.  Returns the merges folded.
template <class TR>
static __device__ __forceinline__ uint32_t prefill_run(const pod_args_t &a, const pod_blob &blob,
                                                       const tdm_pod_item_t &it, uint32_t smem) {
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const pod_paged paged = pod_paged_of(a, seq, it.head_kv);
    const uint32_t sQ = smem;
    const uint32_t sK = sQ + TR::Q_SZ;
    const uint32_t sV = sK + TR::STAGE * TR::KV_SZ;
    const uint32_t tile_cnt = (it.kv_end - it.kv_begin + TR::KEY - 1) / TR::KEY;

    prefill_rows<TR> w;
    prefill_begin(w, blob.head, seq, it);
    if (tile_cnt) {
        prefill_load_q<TR>(a, blob.head, seq, it, sQ);
        prefill_load_kv<TR>(paged, a.layer.k_pool, it.kv_begin, sK);
        if (TR::STAGE > 1) prefill_load_kv<TR>(paged, a.layer.v_pool, it.kv_begin, sV);
    }
    ptx_cp_async_commit();

    for (uint32_t j = 0; j < tile_cnt; j++) {
        const uint32_t tok = it.kv_begin + j * TR::KEY;
        const uint32_t stage = TR::STAGE > 1 ? j % TR::STAGE * TR::KV_SZ : 0;
        const bool is_more = j + 1 < tile_cnt;
        ptx_cp_async_wait<0>();
        prefill_barrier<TR>();
        if constexpr (TR::STAGE > 1) {
            if (is_more) {
                uint32_t next = (j + 1) % TR::STAGE * TR::KV_SZ;
                prefill_load_kv<TR>(paged, a.layer.k_pool, tok + TR::KEY, sK + next);
                prefill_load_kv<TR>(paged, a.layer.v_pool, tok + TR::KEY, sV + next);
            }
        } else {
            prefill_load_kv<TR>(paged, a.layer.v_pool, tok, sV);
        }
        ptx_cp_async_commit();

        float s[TR::MT][TR::KEY / 8][4];
        prefill_scores<TR>(s, sQ, sK + stage);
        if constexpr (TR::STAGE == 1) {
            ptx_cp_async_wait<0>();
            prefill_barrier<TR>();
            if (is_more) prefill_load_kv<TR>(paged, a.layer.k_pool, tok + TR::KEY, sK);
            ptx_cp_async_commit();
        }
        if (tok + TR::KEY > w.limit_min) prefill_mask<TR>(s, w, tok);
        prefill_softmax<TR>(w, s, a.scale_lg2);
        prefill_values<TR>(w, s, sV + stage);
    }
    prefill_end<TR>(a, blob, seq, it, w);
    if (it.merge == TDM_POD_NO_MERGE) return 0;
    return merge_arrive_cta<TR>(a, blob, seq, it);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_PREFILL_CUH
