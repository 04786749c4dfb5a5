// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_MERGE_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_MERGE_CUH

// Where an item's rows go, and how the items of one tile are folded.
//
//   item of split s: writes partial s, fence, arrived[merge]++
//   the last to arrive: fence, folds partials 0, 1, ... in index order
//
// Nobody waits for anybody.  arrived[] wraps to 0 at the last arrival, so
// the next launch finds it as this one did.
//   M1/M1  partials are written before the count; the last one's reads
//          come after all counts.

#include "kernels/attention/portable/paged.cuh"
#include "kernels/ptx/special.cuh"

#include <math_constants.h>

// The uploaded plan, as pointers.
struct pod_blob {
    const tdm_pod_head_t *head;
    const tdm_attn_seq_t *seq;
    const tdm_pod_merge_t *merge;
    const tdm_pod_item_t *item[TDM_KIND_CNT];
};

static __device__ __forceinline__ pod_blob pod_blob_of(const uint8_t *blob) {
    pod_blob b;
    b.head = reinterpret_cast<const tdm_pod_head_t *>(blob);
    b.seq = reinterpret_cast<const tdm_attn_seq_t *>(blob + b.head->seq_off);
    b.merge = reinterpret_cast<const tdm_pod_merge_t *>(blob + b.head->merge_off);
#pragma unroll
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) {
        b.item[kind] = reinterpret_cast<const tdm_pod_item_t *>(blob + b.head->item_off[kind]);
    }
    return b;
}

// The arrays of one merge's partials.
struct pod_part {
    float *o; // [split][row][DIM]
    float *m; // [split][row]
    float *l; // [split][row]
};

template <int DIM>
static __device__ __forceinline__ pod_part pod_part_of(const pod_args_t &a,
                                                       const tdm_pod_merge_t &g) {
    uint64_t cell = static_cast<uint64_t>(g.split_cnt) * g.row_cnt;
    pod_part p;
    p.o = a.part + g.part_off;
    p.m = p.o + cell * DIM;
    p.l = p.m + cell;
    return p;
}

static __device__ __forceinline__ float pod_lse(float m, float l) {
    return l == 0.0f ? -CUDART_INF_F : (m + log2f(l)) * CUDART_LN2_F; // NaN stays NaN
}

// One row on its way out of the registers: to out, normalised, or to the
// partials.  is_first marks the lane that also writes the row's scalars.
template <class TR> struct pod_row_sink {
    typename TR::elem *out; // one of the two is NULL
    float *part;
    float inv;

    __device__ __forceinline__ pod_row_sink(const pod_args_t &a, const pod_blob &blob,
                                            const tdm_attn_seq_t &seq, const tdm_pod_item_t &it,
                                            uint32_t r, float m, float l, bool is_first)
        : pod_row_sink(
              a, blob, seq, it, [&] { return blob.merge[it.merge]; }, r, m, l, is_first) {}

    // merge_of() gives the item's merge, where it has one.
    template <class F>
    __device__ __forceinline__ pod_row_sink(const pod_args_t &a, const pod_blob &blob,
                                            const tdm_attn_seq_t &seq, const tdm_pod_item_t &it,
                                            F merge_of, uint32_t r, float m, float l,
                                            bool is_first) {
        out = nullptr;
        part = nullptr;
        inv = 1.0f;
        if (it.merge == TDM_POD_NO_MERGE) {
            uint32_t p = it.row + r;
            uint32_t tok = pod_token_of(p, blob.head->group_magic);
            uint64_t off = pod_row_offset<TR::DIM>(a, seq, it.head_kv, blob.head->group, tok,
                                                   p - tok * blob.head->group);
            out = static_cast<typename TR::elem *>(a.layer.out) + off;
            inv = l == 0.0f ? 0.0f : 1.0f / l;
            if (is_first && a.layer.lse) a.layer.lse[off / TR::DIM] = pod_lse(m, l);
        } else {
            const tdm_pod_merge_t g = merge_of();
            pod_part to = pod_part_of<TR::DIM>(a, g);
            uint64_t cell = static_cast<uint64_t>(it.split) * g.row_cnt + r;
            part = to.o + cell * TR::DIM;
            if (is_first) {
                to.m[cell] = m;
                to.l[cell] = l;
            }
        }
    }

    __device__ __forceinline__ void put(uint32_t dim, float x, float y) {
        if (out) {
            *reinterpret_cast<uint32_t *>(out + dim) =
                pod_pack<typename TR::elem>(x * inv, y * inv);
        } else {
            *reinterpret_cast<float2 *>(part + dim) = make_float2(x, y);
        }
    }
};

// Four neighbouring elements of one row, on their way through the fold.
struct merge_cell {
    float top;
    float l;
    float4 o;
};

// Folds the partials of it.merge into out; `lane` of `lane_cnt` threads.
// Each lane has BATCH cells in hand at once, for the loads' latency.
template <class TR>
static __device__ __forceinline__ void merge_fold(const pod_args_t &a, const pod_blob &blob,
                                                  const tdm_attn_seq_t &seq,
                                                  const tdm_pod_item_t &it, uint32_t lane,
                                                  uint32_t lane_cnt) {
    constexpr uint32_t QUAD = TR::DIM / 4;        // lanes of one row
    constexpr int BATCH = TR::CTA_SM > 2 ? 4 : 6; // as registers allow
    const tdm_pod_merge_t g = blob.merge[it.merge];
    const pod_part from = pod_part_of<TR::DIM>(a, g);
    const uint32_t cell_cnt = g.row_cnt * QUAD;
    tdm_pod_item_t whole = it;
    whole.merge = TDM_POD_NO_MERGE;
    for (uint32_t begin = lane; begin < cell_cnt; begin += BATCH * lane_cnt) {
        merge_cell c[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            c[b] = {-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
        }
        for (uint32_t s = 0; s < g.split_cnt; s++) {
            float m[BATCH], l[BATCH];
            float4 x[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                uint32_t i = min(begin + b * lane_cnt, cell_cnt - 1);
                uint32_t at = s * g.row_cnt + i / QUAD;
                m[b] = __ldcg(from.m + at);
                l[b] = __ldcg(from.l + at);
                x[b] = __ldcg(reinterpret_cast<const float4 *>(
                    from.o + static_cast<uint64_t>(at) * TR::DIM + i % QUAD * 4));
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                float top = fmaxf(c[b].top, m[b]);
                float base = top == -CUDART_INF_F ? 0.0f : top;
                float fix = ptx_ex2(c[b].top - base);
                float w = ptx_ex2(m[b] - base);
                c[b].top = top;
                c[b].l = fmaf(w, l[b], c[b].l * fix);
                c[b].o.x = fmaf(w, x[b].x, c[b].o.x * fix);
                c[b].o.y = fmaf(w, x[b].y, c[b].o.y * fix);
                c[b].o.z = fmaf(w, x[b].z, c[b].o.z * fix);
                c[b].o.w = fmaf(w, x[b].w, c[b].o.w * fix);
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            uint32_t i = begin + b * lane_cnt;
            if (i >= cell_cnt) break;
            uint32_t dim = i % QUAD * 4;
            pod_row_sink<TR> sink(a, blob, seq, whole, i / QUAD, c[b].top, c[b].l, dim == 0);
            sink.put(dim, c[b].o.x, c[b].o.y);
            sink.put(dim + 2, c[b].o.z, c[b].o.w);
        }
    }
}

// Counts one arrival of split_cnt; true for the last of the merge.  One thread.
static __device__ __forceinline__ uint32_t merge_arrive(const pod_args_t &a, uint32_t merge,
                                                        uint32_t split_cnt) {
    uint32_t last = split_cnt - 1;
    __threadfence(); // M1
    uint32_t is_last = atomicInc(a.arrived + merge, last) == last;
    __threadfence(); // M1
    return is_last;
}

static __device__ __forceinline__ uint32_t merge_arrive(const pod_args_t &a, const pod_blob &blob,
                                                        uint32_t merge) {
    return merge_arrive(a, merge, blob.merge[merge].split_cnt);
}

// The whole CTA has written its partials.  Returns 1 where it folded.
template <class TR>
static __device__ __forceinline__ uint32_t merge_arrive_cta(const pod_args_t &a,
                                                            const pod_blob &blob,
                                                            const tdm_attn_seq_t &seq,
                                                            const tdm_pod_item_t &it) {
    __shared__ uint32_t is_last;
    __threadfence(); // M1
    ptx_bar_sync<1, TR::THREAD>();
    if (threadIdx.x % TR::THREAD == 0) is_last = merge_arrive(a, blob, it.merge);
    ptx_bar_sync<1, TR::THREAD>();
    uint32_t is_mine = is_last;
    if (is_mine) merge_fold<TR>(a, blob, seq, it, threadIdx.x, TR::THREAD);
    return is_mine;
}

// The same of one warp.
template <class TR>
static __device__ __forceinline__ uint32_t merge_arrive_warp(const pod_args_t &a,
                                                             const pod_blob &blob,
                                                             const tdm_attn_seq_t &seq,
                                                             const tdm_pod_item_t &it) {
    uint32_t is_mine = 0;
    __threadfence(); // M1
    __syncwarp();
    if (threadIdx.x % 32 == 0) is_mine = merge_arrive(a, blob, it.merge);
    is_mine = __shfl_sync(~0u, is_mine, 0);
    if (is_mine) merge_fold<TR>(a, blob, seq, it, threadIdx.x % 32, 32);
    return is_mine;
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_MERGE_CUH
