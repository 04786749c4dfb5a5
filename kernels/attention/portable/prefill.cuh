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
//
// In a tile that reaches past what a row sees, the row's weights are 0, and
// 0 times an infinity or NaN in V is NaN.  So the CTA looks at V of such
// tiles (few) first: where a token's V is not finite, it becomes zero, and
// the token's K NaN, which masks as any other score where a row does not see
// it and makes NaN of a row that does.

#include "kernels/attention/portable/log.cuh"
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

// Which of a tile's parts to copy.
enum { PREFILL_K = 1, PREFILL_V = 2 };

// Copies keys [tok, tok + KEY) of the parts; those past kv_cnt become
// zeros, so that a weight of 0 never meets a NaN.  page is tok's: the caller
// has asked for it ahead of time, for its latency would show.
template <class TR, int PART>
static __device__ __forceinline__ void prefill_load_kv(const pod_args_t &a, const pod_paged &paged,
                                                       uint32_t tok, uint32_t page, uint32_t sK,
                                                       uint32_t sV) {
    constexpr int STEP = TR::THREAD / TR::CHUNK; // rows of one pass, 8 or 16
    const auto *k = static_cast<const typename TR::elem *>(a.layer.k_pool);
    const auto *v = static_cast<const typename TR::elem *>(a.layer.v_pool);
    uint32_t chunk = threadIdx.x % TR::CHUNK;
    uint32_t r0 = threadIdx.x / TR::CHUNK;
    uint32_t at = r0 * TR::ROW_SZ + ((chunk ^ (r0 & 7)) << 4); // r0 & 7 is that of all its rows
    auto copy = [&](int r, uint64_t off) {
        int is_written = tok + r + r0 < paged.kv_cnt;
        if (PART & PREFILL_K) ptx_cp_async_16(sK + at + r * TR::ROW_SZ, k + off, is_written);
        if (PART & PREFILL_V) ptx_cp_async_16(sV + at + r * TR::ROW_SZ, v + off, is_written);
    };
    if (paged.is_one_page(TR::KEY)) {
        uint64_t off = paged.offset_in<TR::DIM>(page, tok) + r0 * TR::DIM + chunk * 8;
#pragma unroll
        for (int r = 0; r < TR::KEY; r += STEP) copy(r, off + r * TR::DIM);
        return;
    }
#pragma unroll
    for (int g = 0; g < TR::KEY; g += 16) {
        uint64_t off = paged.offset<TR::DIM>(tok + g) + r0 * TR::DIM + chunk * 8;
#pragma unroll
        for (int i = 0; i < 16; i += STEP) copy(g + i, off + i * TR::DIM);
    }
}

// The accumulators of one warp.
template <class TR> struct prefill_rows {
    float o[TR::MT][TR::DIM / 8][4];
    float m[TR::MT][2];
    float l[TR::MT][2];
    uint32_t limit_min; // keys that the tile's first row sees: below, nothing is masked
};

// The warp's first packed row.
template <class TR> static __device__ __forceinline__ uint32_t prefill_first_row() {
    return threadIdx.x / 32 * (16 * TR::MT);
}

template <class TR>
static __device__ __forceinline__ void prefill_begin(prefill_rows<TR> &w,
                                                     const tdm_pod_head_t *head,
                                                     const tdm_attn_seq_t &seq,
                                                     const tdm_pod_item_t &it) {
    w.limit_min = pod_visible(seq, pod_token_of(it.row, head->group_magic));
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
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

// Of a tile that some row does not see whole: tokens whose V is not finite
// get V 0 and K NaN.  With one stage V is waited for.  All threads of the
// CTA, which have seen the tile land.
template <class TR> static __device__ __forceinline__ void prefill_heal(uint32_t sK, uint32_t sV) {
    if constexpr (TR::STAGE == 1) {
        ptx_cp_async_wait<0>();
        prefill_barrier<TR>();
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < TR::KEY * TR::CHUNK; i += TR::THREAD) {
        const uint4 v = ptx_ld_shared_128(sV + i * 16); // the order within a row is as it is
        if (!pod_is_finite<typename TR::elem>(v)) {
            ptx_st_shared_128(sV + i * 16, make_uint4(0, 0, 0, 0));
            ptx_st_shared_128(sK + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u)); // NaN of either type
        }
    }
    prefill_barrier<TR>();
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

// Scores of keys that a row does not see become -inf.  Few tiles need it,
// so what it needs is worked out here and not carried.
template <class TR>
static __device__ __forceinline__ void prefill_mask(float (&s)[TR::MT][TR::KEY / 8][4],
                                                    const pod_args_t &a, uint32_t index,
                                                    uint32_t tok) {
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[TDM_KIND_PREFILL][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t col = tok + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TR::MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t p = it.row + prefill_first_row<TR>() + i * 16 + h * 8 + lane / 4;
            uint32_t limit = pod_visible(seq, pod_token_of(p, blob.head->group_magic));
#pragma unroll
            for (int n = 0; n < TR::KEY / 8; n++) {
                if (col + n * 8 >= limit) s[i][n][2 * h] = -CUDART_INF_F;
                if (col + n * 8 + 1 >= limit) s[i][n][2 * h + 1] = -CUDART_INF_F;
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

// Writes what came of the item, counts it and logs it.  The item is read
// anew: holding it through the loop would cost registers.
template <class TR>
static __device__ __forceinline__ void prefill_leave(const pod_args_t &a, uint32_t index,
                                                     uint32_t sm, const pod_clock *clock,
                                                     prefill_rows<TR> &w) {
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[TDM_KIND_PREFILL][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    prefill_end<TR>(a, blob, seq, it, w);
    uint32_t merge = it.merge == TDM_POD_NO_MERGE ? 0 : merge_arrive_cta<TR>(a, blob, seq, it);
    if (threadIdx.x) return;
    atomicAdd(&a.count->vcta[TDM_KIND_PREFILL], 1ull);
    if (merge) atomicAdd(&a.count->merge, 1ull);
    pod_log(a, index, TDM_KIND_PREFILL, sm, TR::WARP, *clock);
}

// Runs prefill item `index`; all threads of the CTA, smem being
// TR::SMEM_SZ bytes that nobody else uses.  *clock is when thread 0 began.
template <class TR>
static __device__ __forceinline__ void prefill_run(const pod_args_t &a, uint32_t index, uint32_t sm,
                                                   uint32_t smem, const pod_clock *clock) {
    const uint32_t sQ = smem;
    const uint32_t sK = sQ + TR::Q_SZ;
    const uint32_t sV = sK + TR::STAGE * TR::KV_SZ;
    prefill_rows<TR> w;
    pod_paged paged;
    uint32_t tok;
    uint32_t kv_end;
    {
        const pod_blob blob = pod_blob_of(a.blob);
        const tdm_pod_item_t it = blob.item[TDM_KIND_PREFILL][index];
        const tdm_attn_seq_t seq = blob.seq[it.seq];
        paged = pod_paged_of(a, seq, it.head_kv);
        tok = it.kv_begin;
        kv_end = it.kv_end;
        prefill_begin(w, blob.head, seq, it);
        if (tok < kv_end) {
            constexpr int FIRST = TR::STAGE > 1 ? PREFILL_K | PREFILL_V : PREFILL_K;
            prefill_load_q<TR>(a, blob.head, seq, it, sQ);
            prefill_load_kv<TR, FIRST>(a, paged, tok, paged.page_of(tok), sK, sV);
        }
    }
    ptx_cp_async_commit();

    uint32_t stage = 0;
    uint32_t page = TR::STAGE > 1 ? paged.page_of(tok + TR::KEY) : 0; // asked for a tile ahead
    for (; tok < kv_end; tok += TR::KEY) {
        const bool is_more = tok + TR::KEY < kv_end;
        ptx_cp_async_wait<0>();
        prefill_barrier<TR>();
        if constexpr (TR::STAGE > 1) {
            uint32_t other = stage ^ TR::KV_SZ;
            if (is_more) {
                prefill_load_kv<TR, PREFILL_K | PREFILL_V>(a, paged, tok + TR::KEY, page,
                                                           sK + other, sV + other);
                page = paged.page_of(tok + 2 * TR::KEY);
            }
        } else {
            prefill_load_kv<TR, PREFILL_V>(a, paged, tok, paged.page_of(tok), sK, sV);
        }
        ptx_cp_async_commit();

        if (tok + TR::KEY > w.limit_min) prefill_heal<TR>(sK + stage, sV + stage);
        float s[TR::MT][TR::KEY / 8][4];
        prefill_scores<TR>(s, sQ, sK + stage);
        if constexpr (TR::STAGE == 1) {
            ptx_cp_async_wait<0>();
            prefill_barrier<TR>();
            if (is_more) {
                prefill_load_kv<TR, PREFILL_K>(a, paged, tok + TR::KEY,
                                               paged.page_of(tok + TR::KEY), sK, sV);
            }
            ptx_cp_async_commit();
        }
        if (tok + TR::KEY > w.limit_min) prefill_mask<TR>(s, a, index, tok);
        prefill_softmax<TR>(w, s, a.scale_lg2);
        prefill_values<TR>(w, s, sV + stage);
        if (TR::STAGE > 1) stage ^= TR::KV_SZ;
    }
    prefill_leave<TR>(a, index, sm, clock, w);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_PREFILL_CUH
