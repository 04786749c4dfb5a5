// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PLAIN_PLAIN_CUH
#define TDM_KERNELS_ATTENTION_PLAIN_PLAIN_CUH

// The plain kernel: what the fused ones do not take, right and simple.
// Prefill and decode are launches of their own, over the same plans, work
// items, partials, counters and log.
//
//   fp8 (e4m3) K and V   a code becomes an element of q's type on its way
//                        into shared memory (exactly: both bf16 and fp16
//                        hold every e4m3); K's scale goes into the scores',
//                        V's into the sums
//   head_dim             64, 96, 128, 256
//   group                any: rows are packed, and a decode of more than
//                        ROW heads has several tiles
//   contexts             tokens of 32 bits, elements of 64
//
// One CTA, four warps of 16 packed rows, one stage of KEY keys.  CTAs take
// items i, i + grid, ...: no tickets.  A tile that reaches past what a row
// sees goes key by key (careful.cuh).

#include <cuda_fp8.h>

#include "kernels/attention/plain/careful.cuh"
#include "kernels/attention/portable/log.cuh"
#include "kernels/attention/portable/merge.cuh"
#include "kernels/attention/portable/paged.cuh"
#include "kernels/attention/portable/softmax.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/mma.cuh"

template <typename T, typename KV, int DIM_> struct plain_traits {
    using elem = T;
    using kv_elem = KV; // T, or uint8_t for e4m3 codes
    static constexpr int DIM = DIM_;
    static constexpr int PAD = DIM == 96 ? 128 : DIM; // the swizzle takes chunks by eights
    static constexpr int ROW = TDM_POD_PLAIN_ROW;
    static constexpr int KEY = TDM_POD_PLAIN_KEY;
    static constexpr int WARP = 4;
    static constexpr int THREAD = WARP * 32;
    static constexpr int CTA_SM = DIM > 128 ? 2 : 4; // as tdm_pod_plain_fit has it
    static constexpr int CHUNK = DIM / 8;
    static constexpr int ROW_SZ = PAD * 2;
    static constexpr int Q_SZ = ROW * ROW_SZ;
    static constexpr int KV_SZ = KEY * ROW_SZ;
    static constexpr bool IS_FP8 = sizeof(KV) == 1;
    static_assert(ROW == 16 * WARP && KEY % 16 == 0 && DIM % 32 == 0, "the tile");
};

// Two e4m3 codes as two elements.
template <typename T> static __device__ __forceinline__ uint32_t plain_widen(uint16_t code) {
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(code, __NV_E4M3);
    float2 f = __half22float2(*reinterpret_cast<__half2 *>(&h));
    return pod_pack<T>(f.x, f.y);
}

// Eight elements of a pool, from element offset off.
template <class TR>
static __device__ __forceinline__ uint4 plain_read(const void *pool, uint64_t off) {
    if constexpr (TR::IS_FP8) {
        uint2 c = __ldg(reinterpret_cast<const uint2 *>(static_cast<const uint8_t *>(pool) + off));
        using T = typename TR::elem;
        return make_uint4(plain_widen<T>(static_cast<uint16_t>(c.x)),
                          plain_widen<T>(static_cast<uint16_t>(c.x >> 16)),
                          plain_widen<T>(static_cast<uint16_t>(c.y)),
                          plain_widen<T>(static_cast<uint16_t>(c.y >> 16)));
    } else {
        return __ldg(
            reinterpret_cast<const uint4 *>(static_cast<const typename TR::elem *>(pool) + off));
    }
}

// Copies the tile's packed rows; rows past row_cnt become zeros.
template <class TR>
static __device__ __forceinline__ void plain_load_q(const pod_args_t &a, const tdm_pod_head_t *head,
                                                    const tdm_attn_seq_t &seq,
                                                    const tdm_pod_item_t &it, uint32_t sQ) {
    const auto *q = static_cast<const typename TR::elem *>(a.layer.q);
    for (uint32_t i = threadIdx.x; i < TR::ROW * TR::CHUNK; i += TR::THREAD) {
        uint32_t r = i / TR::CHUNK;
        uint32_t chunk = i % TR::CHUNK;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < it.row_cnt) {
            uint32_t p = it.row + r;
            uint32_t tok = pod_token_of(p, head->group_magic);
            uint64_t off = pod_row_offset<TR::DIM>(a, seq, it.head_kv, head->group, tok,
                                                   p - tok * head->group);
            v = __ldg(reinterpret_cast<const uint4 *>(q + off + chunk * 8));
        }
        ptx_st_shared_128(sQ + r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4), v);
    }
}

// Copies keys [tok, tok + KEY) of K and V; those past kv_cnt become zeros.
template <class TR>
static __device__ __forceinline__ void plain_load_kv(const pod_args_t &a, const pod_paged &paged,
                                                     uint32_t tok, uint32_t sK, uint32_t sV) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < TR::KEY * TR::CHUNK; i += TR::THREAD) {
        uint32_t r = i / TR::CHUNK;
        uint32_t chunk = i % TR::CHUNK;
        uint32_t at = r * TR::ROW_SZ + ((chunk ^ (r & 7)) << 4);
        uint4 k = make_uint4(0, 0, 0, 0);
        uint4 v = k;
        if (tok + r < paged.kv_cnt) {
            uint64_t off = paged.offset<TR::DIM>(tok + r) + chunk * 8;
            k = plain_read<TR>(a.layer.k_pool, off);
            v = plain_read<TR>(a.layer.v_pool, off);
        }
        ptx_st_shared_128(sK + at, k);
        ptx_st_shared_128(sV + at, v);
    }
}

// The warp's 16 rows: lane / 4 and lane / 4 + 8.
template <class TR> struct plain_rows {
    float o[1][TR::DIM / 8][4];
    float m[2];
    float l[2];
    uint32_t limit[2]; // keys that they see
};

template <class TR>
static __device__ __forceinline__ void plain_scores(float (&s)[1][TR::KEY / 8][4], uint32_t sQ,
                                                    uint32_t sK) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t aQ =
        sQ + (threadIdx.x / 32 * 16 + lane % 16) * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
    const uint32_t aK =
        sK + (lane / 16 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 8 % 2) ^ (lane & 7)) << 4);
#pragma unroll
    for (int n = 0; n < TR::KEY / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) s[0][n][c] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < TR::DIM / 16; k++) {
        uint32_t rQ[4];
        ptx_ldmatrix_x4(rQ, aQ ^ (k << 5));
#pragma unroll
        for (int n = 0; n < TR::KEY / 16; n++) {
            uint32_t rK[4];
            ptx_ldmatrix_x4(rK, (aK ^ (k << 5)) + n * 16 * TR::ROW_SZ);
            ptx_mma_m16n8k16<typename TR::elem>(s[0][2 * n], rQ, rK[0], rK[1]);
            ptx_mma_m16n8k16<typename TR::elem>(s[0][2 * n + 1], rQ, rK[2], rK[3]);
        }
    }
}

template <class TR>
static __device__ __forceinline__ void plain_values(plain_rows<TR> &w,
                                                    const float (&s)[1][TR::KEY / 8][4],
                                                    uint32_t sV) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t aV =
        sV + (lane / 8 % 2 * 8 + lane % 8) * TR::ROW_SZ + (((lane / 16) ^ (lane & 7)) << 4);
#pragma unroll
    for (int k = 0; k < TR::KEY / 16; k++) {
        uint32_t rP[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float *pair = &s[0][2 * k + c / 2][c % 2 * 2];
            rP[c] = pod_pack<typename TR::elem>(pair[0], pair[1]);
        }
#pragma unroll
        for (int n = 0; n < TR::DIM / 16; n++) {
            uint32_t rV[4];
            ptx_ldmatrix_x4_trans(rV, (aV ^ (n << 5)) + k * 16 * TR::ROW_SZ);
            ptx_mma_m16n8k16<typename TR::elem>(w.o[0][2 * n], rP, rV[0], rV[1]);
            ptx_mma_m16n8k16<typename TR::elem>(w.o[0][2 * n + 1], rP, rV[2], rV[3]);
        }
    }
}

// One tile of keys that lies in shared memory.
template <class TR>
static __device__ __forceinline__ void plain_tile(plain_rows<TR> &w, uint32_t sQ, uint32_t sK,
                                                  uint32_t sV, uint32_t tok, uint32_t kv_cnt,
                                                  float scale_lg2) {
    const uint32_t col = tok + threadIdx.x % 4 * 2;
    float s[1][TR::KEY / 8][4];
    plain_scores<TR>(s, sQ, sK);
    uint32_t seen[1][2];
    int is_hidden = 0; // a key that was written, and that some row does not see
#pragma unroll
    for (int h = 0; h < 2; h++) {
        seen[0][h] = w.limit[h] > tok ? w.limit[h] - tok : 0;
        is_hidden |= w.limit[h] < min(tok + TR::KEY, kv_cnt);
#pragma unroll
        for (int n = 0; n < TR::KEY / 8; n++) {
            if (col + n * 8 >= w.limit[h]) s[0][n][2 * h] = -CUDART_INF_F;
            if (col + n * 8 + 1 >= w.limit[h]) s[0][n][2 * h + 1] = -CUDART_INF_F;
        }
    }
    float fix[2];
    if (pod_softmax_step(s[0], w.m, w.l, fix, scale_lg2)) {
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) w.o[0][n][c] *= fix[c / 2];
        }
    }
    if (__any_sync(~0u, is_hidden)) {
        pod_values_careful<typename TR::elem, 1, TR::KEY, TR::DIM, TR::ROW_SZ>(s, seen, sV, w.o);
    } else {
        plain_values<TR>(w, s, sV);
    }
}

// Writes the warp's rows: out and lse, or the partials of it.split.
template <class TR>
static __device__ __forceinline__ void plain_end(const pod_args_t &a, const pod_blob &blob,
                                                 const tdm_attn_seq_t &seq,
                                                 const tdm_pod_item_t &it, float v_scale,
                                                 plain_rows<TR> &w) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = pod_quad_sum(w.l[h]);
        uint32_t r = threadIdx.x / 32 * 16 + h * 8 + lane / 4;
        if (r >= it.row_cnt) continue;
        pod_row_sink<TR> sink(a, blob, seq, it, r, w.m[h], l, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            sink.put(n * 8 + lane % 4 * 2, w.o[0][n][2 * h] * v_scale,
                     w.o[0][n][2 * h + 1] * v_scale);
        }
    }
}

// Runs item `index` of a kind; all threads of the CTA.
template <class TR>
static __device__ __forceinline__ void plain_run(const pod_args_t &a, uint32_t kind, uint32_t index,
                                                 uint32_t sm, uint32_t smem) {
    const pod_clock clock = pod_clock_now();
    const pod_blob blob = pod_blob_of(a.blob);
    const tdm_pod_item_t it = blob.item[kind][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const pod_paged paged = pod_paged_of(a, seq, it.head_kv);
    const uint32_t sQ = smem;
    const uint32_t sK = sQ + TR::Q_SZ;
    const uint32_t sV = sK + TR::KV_SZ;
    float scale_lg2 = a.scale_lg2;
    float v_scale = 1.0f;
    if constexpr (TR::IS_FP8) {
        scale_lg2 *= a.layer.k_scale[it.head_kv];
        v_scale = a.layer.v_scale[it.head_kv];
    }
    plain_rows<TR> w;
#pragma unroll
    for (int n = 0; n < TR::DIM / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) w.o[0][n][c] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t p = it.row + threadIdx.x / 32 * 16 + h * 8 + threadIdx.x % 32 / 4;
        w.limit[h] = pod_visible(seq, pod_token_of(p, blob.head->group_magic));
        w.m[h] = -CUDART_INF_F;
        w.l[h] = 0.0f;
    }
    plain_load_q<TR>(a, blob.head, seq, it, sQ);
    const bool is_mine = threadIdx.x / 32 * 16 < it.row_cnt; // the warp has rows
    for (uint32_t tok = it.kv_begin; tok < it.kv_end; tok += TR::KEY) {
        __syncthreads(); // the tile before has been read
        plain_load_kv<TR>(a, paged, tok, sK, sV);
        __syncthreads();
        if (is_mine) plain_tile<TR>(w, sQ, sK, sV, tok, seq.kv_cnt, scale_lg2);
    }
    plain_end<TR>(a, blob, seq, it, v_scale, w);
    uint32_t merge = it.merge == TDM_POD_NO_MERGE ? 0 : merge_arrive_cta<TR>(a, blob, seq, it);
    if (threadIdx.x) return;
    atomicAdd(&a.count->vcta[kind], 1ull);
    if (merge) atomicAdd(&a.count->merge, 1ull);
    uint32_t before = kind == TDM_KIND_DECODE ? blob.head->item_cnt[TDM_KIND_PREFILL] : 0;
    pod_log(a, before + index, kind, sm, TR::WARP, clock);
}

template <class TR>
__global__ void __launch_bounds__(TR::THREAD, TR::CTA_SM)
    plain_kernel(const __grid_constant__ pod_args_t a) {
    extern __shared__ __align__(1024) uint8_t smem_block[];
    const uint32_t smem = ptx_smem_addr(smem_block);
    const uint32_t sm = ptx_smid() % a.smid_cnt;
    const auto *head = reinterpret_cast<const tdm_pod_head_t *>(a.blob);
    for (uint32_t kind = 0; kind < TDM_KIND_CNT; kind++) {
        if (!(a.kind_mask >> kind & 1)) continue;
        for (uint32_t i = blockIdx.x; i < head->item_cnt[kind]; i += gridDim.x) {
            plain_run<TR>(a, kind, i, sm, smem);
            __syncthreads(); // smem is free
        }
    }
}

#endif // TDM_KERNELS_ATTENTION_PLAIN_PLAIN_CUH
