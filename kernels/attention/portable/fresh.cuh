// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_FRESH_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_FRESH_CUH

// Decode straight from the product of an iteration's rows: one kernel adds up
// its parts, rotates, appends to the KV pages and attends.  For batches whose
// items all find a CTA at once; where they are short, starting is most of
// the time, so nothing is drawn and nothing is asked for twice.
//
//   CTA i   item i of the plan; its four warps share the keys
//           first keys and values set out       (older than this iteration)
//           the kernel in front is done
//           q, k, v of the row: add up, rotate, round  -> shared memory
//           the warp that has the newest key puts it into its ring
//           each warp its keys; warp 0 folds the four
//           item of a merge: partials, and who comes last folds them
//
// The arithmetic of a block of 16 keys is decode.cuh's.

#include "kernels/attention/portable/decode.cuh"
#include "kernels/ptx/shared.cuh"

// What the launch passes by value besides pod_args_t.
typedef struct fresh_args {
    pod_args_t pod;
    tdm_pod_fresh_t fresh;
} fresh_args_t;

template <class TR> struct fresh_map {
    static constexpr uint32_t RING_SZ = TR::SLOT * TR::HALF_SZ; // of a warp
    static constexpr uint32_t Q_ROW = TR::DIM + 8;              // elements; against bank conflicts
    static constexpr uint32_t Q_OFF = TR::WARP * RING_SZ;
    static constexpr uint32_t NEW_OFF = Q_OFF + 16 * Q_ROW * 2; // the newest K, then V
    static constexpr uint32_t SMEM_SZ = NEW_OFF + 2 * TR::ROW_SZ;
    static constexpr uint32_t CELL = TR::DIM + 4; // floats of a row left for warp 0: O, m, l
    static_assert(16 * CELL * 4 <= RING_SZ, "a warp leaves its rows where its ring was");
};

#define FRESH_PAIR 3u // pairs of dimensions that a thread has in hand at once

// A pair of dimensions of one head of the row: d and half a head further.
// Queries of the KV head come first, then the key, then the value.
template <class TR> struct fresh_pair {
    float cosine;
    float sine;
    uint32_t j; // head: of the group, group: the key, group + 1: the value
    uint32_t d;

    // The angle, which nobody writes.
    __device__ __forceinline__ void begin(const float *turn, uint32_t group, uint32_t i) {
        j = i / (TR::DIM / 2);
        d = i % (TR::DIM / 2);
        cosine = __ldg(turn + d);
        sine = __ldg(turn + TR::DIM / 2 + d);
    }

    // Added up; all loads are on their way before the first add.
    __device__ __forceinline__ float2 sum(const tdm_pod_fresh_t &f, uint64_t at) const {
        const float *from = f.qkv + at + d;
        float x[TDM_POD_FRESH_PART_MAX], y[TDM_POD_FRESH_PART_MAX];
#pragma unroll
        for (uint32_t c = 0; c < TDM_POD_FRESH_PART_MAX; c++) {
            if (c >= f.part_cnt) break;
            x[c] = __ldcg(from + c * f.part_stride);
            y[c] = __ldcg(from + c * f.part_stride + TR::DIM / 2);
        }
        float2 v = make_float2(x[0], y[0]);
#pragma unroll
        for (uint32_t c = 1; c < TDM_POD_FRESH_PART_MAX; c++) {
            if (c >= f.part_cnt) break;
            v.x += x[c];
            v.y += y[c];
        }
        return v;
    }
};

// The row's queries of this KV head, and its key and value, into shared
// memory; with is_newest the latter into newest_page too.
template <class TR>
static __device__ __forceinline__ void fresh_rotate(const fresh_args_t &a, uint8_t *smem,
                                                    const tdm_attn_seq_t &seq, uint32_t head_kv,
                                                    uint32_t group, const pod_paged &paged,
                                                    bool is_newest, uint32_t newest_page,
                                                    uint32_t first,
                                                    const fresh_pair<TR> (&pair)[FRESH_PAIR]) {
    using elem = typename TR::elem;
    using map = fresh_map<TR>;
    constexpr uint32_t HALF = TR::DIM / 2;
    const uint32_t pos = seq.kv_cnt - 1;
    const uint64_t width = a.pod.nhead_q + 2 * a.pod.nhead_kv;
    elem *sQ = reinterpret_cast<elem *>(smem + map::Q_OFF);
    elem *sNew = reinterpret_cast<elem *>(smem + map::NEW_OFF);
    float2 v[FRESH_PAIR];
#pragma unroll
    for (uint32_t n = 0; n < FRESH_PAIR; n++) {
        const uint32_t j = pair[n].j;
        const uint32_t head = j < group    ? head_kv * group + j
                              : j == group ? a.pod.nhead_q + head_kv
                                           : a.pod.nhead_q + a.pod.nhead_kv + head_kv;
        if (first + n * TR::THREAD < (group + 2) * HALF) {
            v[n] = pair[n].sum(a.fresh, (seq.row * width + head) * TR::DIM);
        }
    }
#pragma unroll
    for (uint32_t n = 0; n < FRESH_PAIR; n++) {
        if (first + n * TR::THREAD >= (group + 2) * HALF) break;
        const uint32_t j = pair[n].j;
        const uint32_t d = pair[n].d;
        float2 to_keep = v[n]; // a value is not rotated
        if (j <= group) {
            to_keep = make_float2(v[n].x * pair[n].cosine - v[n].y * pair[n].sine,
                                  v[n].y * pair[n].cosine + v[n].x * pair[n].sine);
        }
        const uint32_t both = pod_pack<elem>(to_keep.x, to_keep.y);
        const elem *one = reinterpret_cast<const elem *>(&both);
        elem *to = j < group ? sQ + j * map::Q_ROW : sNew + (j - group) * TR::DIM;
        to[d] = one[0];
        to[HALF + d] = one[1];
        if (j < group || !is_newest) continue;
        const void *pool = j == group ? a.pod.layer.k_pool : a.pod.layer.v_pool;
        elem *out = static_cast<elem *>(const_cast<void *>(pool)) +
                    paged.template offset_in<TR::DIM>(newest_page, pos);
        out[d] = one[0];
        out[HALF + d] = one[1];
    }
}

// The newest token's key and value into the two slots of its block, over
// the zeros that the ring asked for.
template <class TR>
static __device__ __forceinline__ void fresh_patch(uint32_t smem, uint32_t slot_k, uint32_t slot_v,
                                                   uint32_t row) {
    const uint32_t lane = threadIdx.x % 32;
    ptx_cp_async_wait<0>();
    __syncwarp();
    if (lane < 2 * TR::CHUNK) {
        const uint32_t chunk = lane % TR::CHUNK;
        const uint32_t slot = lane < TR::CHUNK ? slot_k : slot_v;
        const uint4 v = ptx_ld_shared_128(smem + fresh_map<TR>::NEW_OFF + lane * 16);
        ptx_st_shared_128(slot + row * TR::ROW_SZ + ((chunk ^ (row & 7)) << 4), v);
    }
    __syncwarp();
}

// This warp's rows, where its ring was.
template <class TR>
static __device__ __forceinline__ void fresh_leave(float *to, const decode_rows<TR> &w) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float *row = to + (lane / 4 + h * 8) * fresh_map<TR>::CELL;
        const float sum = pod_quad_sum(w.l[h]);
        if (lane % 4 == 0) *reinterpret_cast<float2 *>(row + TR::DIM) = make_float2(w.m[h], sum);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            *reinterpret_cast<float2 *>(row + n * 8 + lane % 4 * 2) =
                make_float2(w.o[n][2 * h], w.o[n][2 * h + 1]);
        }
    }
}

// Four elements of one row of the CTA's item: the warps' shares folded in
// order, then out, normalised, or to the partials.
template <class TR>
static __device__ __forceinline__ void fresh_fold(const fresh_args_t &a, const pod_blob &blob,
                                                  const tdm_attn_seq_t &seq,
                                                  const tdm_pod_item_t &it,
                                                  const tdm_pod_merge_t &g, const uint8_t *smem) {
    constexpr uint32_t QUAD = TR::DIM / 4;
    for (uint32_t i = threadIdx.x; i < it.row_cnt * QUAD; i += TR::THREAD) {
        const uint32_t r = i / QUAD;
        const uint32_t dim = i % QUAD * 4;
        const float *row = reinterpret_cast<const float *>(smem) + r * fresh_map<TR>::CELL;
        float2 ml[TR::WARP];
        float top = -CUDART_INF_F;
#pragma unroll
        for (uint32_t w = 0; w < TR::WARP; w++) {
            const float *of = row + w * (fresh_map<TR>::RING_SZ / 4);
            ml[w] = *reinterpret_cast<const float2 *>(of + TR::DIM);
            top = fmaxf(top, ml[w].x);
        }
        const float base = top == -CUDART_INF_F ? 0.0f : top;
        float l = 0.0f;
        float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (uint32_t w = 0; w < TR::WARP; w++) {
            const float *of = row + w * (fresh_map<TR>::RING_SZ / 4);
            const float4 x = *reinterpret_cast<const float4 *>(of + dim);
            const float part = ptx_ex2(ml[w].x - base);
            l = fmaf(part, ml[w].y, l);
            o.x = fmaf(part, x.x, o.x);
            o.y = fmaf(part, x.y, o.y);
            o.z = fmaf(part, x.z, o.z);
            o.w = fmaf(part, x.w, o.w);
        }
        pod_row_sink<TR> sink(
            a.pod, blob, seq, it, [&] { return g; }, r, top, l, dim == 0);
        sink.put(dim, o.x, o.y);
        sink.put(dim + 2, o.z, o.w);
    }
}

#define FRESH_BATCH 8u // partials of an element in hand at once

// The partials of a merge, folded in order by the whole CTA.
template <class TR>
static __device__ __forceinline__ void fresh_merge(const fresh_args_t &a, const pod_blob &blob,
                                                   const tdm_attn_seq_t &seq,
                                                   const tdm_pod_item_t &it,
                                                   const tdm_pod_merge_t &g) {
    constexpr uint32_t QUAD = TR::DIM / 4;
    const pod_part from = pod_part_of<TR::DIM>(a.pod, g);
    tdm_pod_item_t whole = it;
    whole.merge = TDM_POD_NO_MERGE;
    for (uint32_t i = threadIdx.x; i < g.row_cnt * QUAD; i += TR::THREAD) {
        merge_cell c = {-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
        for (uint32_t begin = 0; begin < g.split_cnt; begin += FRESH_BATCH) {
            float m[FRESH_BATCH], l[FRESH_BATCH];
            float4 x[FRESH_BATCH];
#pragma unroll
            for (uint32_t b = 0; b < FRESH_BATCH; b++) {
                const uint32_t s = min(begin + b, g.split_cnt - 1);
                const uint32_t at = s * g.row_cnt + i / QUAD;
                m[b] = __ldcg(from.m + at);
                l[b] = __ldcg(from.l + at);
                x[b] = __ldcg(reinterpret_cast<const float4 *>(
                    from.o + static_cast<uint64_t>(at) * TR::DIM + i % QUAD * 4));
            }
#pragma unroll
            for (uint32_t b = 0; b < FRESH_BATCH; b++) {
                if (begin + b >= g.split_cnt) break;
                const float top = fmaxf(c.top, m[b]);
                const float base = top == -CUDART_INF_F ? 0.0f : top;
                const float fix = ptx_ex2(c.top - base);
                const float w = ptx_ex2(m[b] - base);
                c.top = top;
                c.l = fmaf(w, l[b], c.l * fix);
                c.o.x = fmaf(w, x[b].x, c.o.x * fix);
                c.o.y = fmaf(w, x[b].y, c.o.y * fix);
                c.o.z = fmaf(w, x[b].z, c.o.z * fix);
                c.o.w = fmaf(w, x[b].w, c.o.w * fix);
            }
        }
        const uint32_t dim = i % QUAD * 4;
        pod_row_sink<TR> sink(a.pod, blob, seq, whole, i / QUAD, c.top, c.l, dim == 0);
        sink.put(dim, c.o.x, c.o.y);
        sink.put(dim + 2, c.o.z, c.o.w);
    }
}

template <class TR>
__global__ void __launch_bounds__(TR::THREAD, TR::CTA_SM)
    fresh_kernel(const __grid_constant__ fresh_args_t a) {
    using map = fresh_map<TR>;
    extern __shared__ __align__(1024) uint8_t fresh_smem[];
    __shared__ uint32_t is_last;
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion(); // who comes next waits for all of this
#endif
    const pod_blob blob = pod_blob_of(a.pod.blob);
    if (blockIdx.x >= blob.head->item_cnt[TDM_KIND_DECODE]) return;
    const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][blockIdx.x];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t smem = ptx_smem_addr(fresh_smem);
    const bool is_newest = it.kv_end == seq.kv_cnt;
    // This warp's keys: of the item's blocks of 16 its quarter.
    const uint32_t blocks = (it.kv_end - it.kv_begin + 15) / 16;
    tdm_pod_item_t mine = it;
    mine.kv_begin = it.kv_begin + blocks * warp / TR::WARP * 16;
    mine.kv_end = min(it.kv_end, it.kv_begin + blocks * (warp + 1) / TR::WARP * 16);
    pod_paged paged = pod_paged_of(a.pod, seq, it.head_kv);
    paged.kv_cnt = seq.kv_cnt - 1; // the newest is nowhere yet
    decode_ring<TR> ring;
    ring.k = static_cast<const typename TR::elem *>(a.pod.layer.k_pool);
    ring.v = static_cast<const typename TR::elem *>(a.pod.layer.v_pool);
    ring.smem = smem + warp * map::RING_SZ;
    if (mine.kv_begin < mine.kv_end) ring.begin(paged, mine);
    // What is asked for later, while nothing waits for it.
    const tdm_pod_merge_t g =
        it.merge == TDM_POD_NO_MERGE ? tdm_pod_merge_t() : blob.merge[it.merge];
    const uint32_t pos = seq.kv_cnt - 1;
    const uint32_t newest_page = is_newest ? __ldg(paged.table + (pos >> paged.page_lg)) : 0;
    const uint32_t group = blob.head->group;
    const float *turn = a.fresh.turn + static_cast<uint64_t>(pos) * TR::DIM;
    // Rows past the group are zero.
    for (uint32_t i = group * map::Q_ROW / 2 + threadIdx.x; i < 16 * map::Q_ROW / 2;
         i += TR::THREAD) {
        reinterpret_cast<uint32_t *>(fresh_smem + map::Q_OFF)[i] = 0u;
    }
    fresh_pair<TR> pair[FRESH_PAIR];
#pragma unroll
    for (uint32_t n = 0; n < FRESH_PAIR; n++) {
        pair[n].begin(turn, group,
                      min(threadIdx.x + n * TR::THREAD, (group + 2) * TR::DIM / 2 - 1));
    }
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    const pod_clock clock = pod_clock_now();
    for (uint32_t i = threadIdx.x; i < (group + 2) * TR::DIM / 2; i += FRESH_PAIR * TR::THREAD) {
        if (i != threadIdx.x) { // more heads than one round takes
#pragma unroll
            for (uint32_t n = 0; n < FRESH_PAIR; n++) {
                pair[n].begin(turn, group, min(i + n * TR::THREAD, (group + 2) * TR::DIM / 2 - 1));
            }
        }
        fresh_rotate<TR>(a, fresh_smem, seq, it.head_kv, group, paged, is_newest, newest_page, i,
                         pair);
    }
    __syncthreads();
    decode_rows<TR> w;
    decode_clear(w);
    if (mine.kv_begin < mine.kv_end) {
        decode_query<TR> query;
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t q = smem + map::Q_OFF + (lane / 4 * map::Q_ROW + lane % 4 * 2) * 2;
#pragma unroll
        for (int k = 0; k < TR::DIM / 16; k++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                query.held[k][c] =
                    ptx_ld_shared(q + (c % 2 * 8 * map::Q_ROW + k * 16 + c / 2 * 8) * 2);
            }
        }
        uint32_t slot = ring.smem;
        for (uint32_t tok = mine.kv_begin; tok < mine.kv_end; tok += 16) {
            if (is_newest && tok + 16 >= it.kv_end) {
                fresh_patch<TR>(smem, slot, ring.after(slot), pos - tok);
            }
            ring.turn();
            decode_block<TR>(ring, slot, query, tok, mine.kv_end, a.pod.scale_lg2, w);
            slot = ring.after(ring.after(slot));
        }
        ptx_cp_async_wait<0>();
        __syncwarp();
    }
    fresh_leave<TR>(reinterpret_cast<float *>(fresh_smem + warp * map::RING_SZ), w);
    __syncthreads();
    fresh_fold<TR>(a, blob, seq, it, g, fresh_smem);
    uint32_t merge = 0;
    if (it.merge != TDM_POD_NO_MERGE) {
        __syncthreads(); // what the CTA wrote is thread 0's to publish, M1
        if (threadIdx.x == 0) is_last = merge_arrive(a.pod, it.merge, g.split_cnt);
        __syncthreads();
        merge = is_last;
        if (merge) fresh_merge<TR>(a, blob, seq, it, g);
    }
    if (threadIdx.x) return;
    atomicAdd(&a.pod.count->vcta[TDM_KIND_DECODE], 1ull);
    if (merge) atomicAdd(&a.pod.count->merge, 1ull);
    pod_log(a.pod, blob.head->item_cnt[TDM_KIND_PREFILL] + blockIdx.x, TDM_KIND_DECODE,
            ptx_smid() % a.pod.smid_cnt, TDM_POD_PACK, clock);
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_FRESH_CUH
