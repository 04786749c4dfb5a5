// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH

// The computing warpgroups of a prefill CTA: each holds 64 packed rows, all
// three walk the same blocks of keys.
//
//   one warpgroup  | S(j), O += P(j - 1) V(j - 1) issued | softmax of S(j) | ...
//
// S(j) = Q K(j)^T and O += P(j - 1) V(j - 1) are issued together; the softmax
// of block j runs beside the second and beside the other warpgroups' wgmma.
// Nobody hands the tensor cores round: three warpgroups fall out of step by
// themselves, and turns cost 1 %.  The order of arithmetic is that of the
// blocks; who waits for whom changes no bit.

#include "kernels/attention/hopper/control.cuh"
#include "kernels/attention/portable/merge.cuh"
#include "kernels/attention/portable/softmax.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/wgmma.cuh"

// One warpgroup's sums: rows 16 w + lane / 4 and 8 further, of warp w.
template <class TR> struct prefill_sums {
    float o[TR::DIM / 2];
    float m[2];
    float l[2];
};

// Rows lane / 4 (+ 8) of this warp, in the tile.
static __device__ __forceinline__ uint32_t hop_row(uint32_t wg) {
    return wg * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
}

template <class TR>
static __device__ __forceinline__ void hop_scores(float (&s)[TR::KEY / 2], uint64_t q, uint64_t k) {
#pragma unroll
    for (uint32_t x = 0; x < TR::DIM / 16; x++) {
        uint32_t in_half = x % 4 * 32;
        ptx_wgmma<typename TR::elem>::keys(s, q + ((x / 4 * TR::Q_HALF_SZ + in_half) >> 4),
                                           k + ((x / 4 * TR::KV_HALF_SZ + in_half) >> 4), x > 0);
    }
}

template <class TR>
static __device__ __forceinline__ void hop_values(float (&o)[TR::DIM / 2],
                                                  const uint32_t (&p)[TR::KEY / 4], uint64_t v,
                                                  int is_add) {
#pragma unroll
    for (uint32_t x = 0; x < TR::KEY / 16; x++) {
        ptx_wgmma<typename TR::elem>::values(o, p + 4 * x, v + (x * 2048 >> 4), x > 0 || is_add);
    }
}

// Scores of keys from limit on become -inf.
template <class TR>
static __device__ __forceinline__ void hop_mask(float (&s)[TR::KEY / 2], uint32_t tok,
                                                const uint32_t (&limit)[2]) {
    const uint32_t col = tok + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TR::KEY / 2; i++) {
        if (col + i / 4 * 8 + i % 2 >= limit[i / 2 % 2]) s[i] = -CUDART_INF_F;
    }
}

// Turns scores into weights 2^(s * scale_lg2 - m), packed as operands; *fix
// is what earlier sums must be multiplied by.
template <class TR>
static __device__ __forceinline__ void hop_softmax(float (&s)[TR::KEY / 2], float (&m)[2],
                                                   float (&l)[2], float (&fix)[2],
                                                   float scale_lg2) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = s[2 * h];
#pragma unroll
        for (int i = 0; i < TR::KEY / 8; i++) {
            top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float now = fmaxf(m[h], top * scale_lg2);
        if (now - m[h] <= HOP_RISE_MAX) now = m[h];
        float base = now == -CUDART_INF_F ? 0.0f : now;
        fix[h] = ptx_ex2(m[h] - base);
        m[h] = now;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < TR::KEY / 8; i++) {
            float x = ptx_ex2(fmaf(s[4 * i + 2 * h], scale_lg2, -base));
            float y = ptx_ex2(fmaf(s[4 * i + 2 * h + 1], scale_lg2, -base));
            s[4 * i + 2 * h] = x;
            s[4 * i + 2 * h + 1] = y;
            sum += x + y;
        }
        l[h] = fmaf(l[h], fix[h], sum);
    }
}

template <class TR>
static __device__ __forceinline__ void hop_pack(uint32_t (&p)[TR::KEY / 4],
                                                const float (&s)[TR::KEY / 2]) {
#pragma unroll
    for (int i = 0; i < TR::KEY / 4; i++) {
        p[i] = pod_pack<typename TR::elem>(s[2 * i], s[2 * i + 1]);
    }
}

// Of a block that some row of the tile does not see whole: 0 times an
// infinity or NaN in V is NaN.  So where a token's V is not finite it becomes
// zero, and the token's K NaN, which masks as any other score where a row does
// not see it and makes NaN of a row that does.  What lies behind a sequence's
// end is healed with it.  All warpgroups with rows, thread_cnt in all, at the
// same block.
template <class TR>
static __device__ __forceinline__ void hop_heal(uint32_t sK, uint32_t sV, uint32_t thread_cnt) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x - 128; i < TR::KV_SZ / 16; i += thread_cnt) {
        if (pod_is_finite<typename TR::elem>(ptx_ld_shared_128(sV + i * 16))) continue;
        ptx_st_shared_128(sV + i * 16, make_uint4(0, 0, 0, 0));
        ptx_st_shared_128(sK + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u)); // NaN of either type
    }
    ptx_fence_proxy_async();
    ptx_bar_sync_of<HOP_BAR_HEAL>(thread_cnt);
}

static __device__ __forceinline__ void hop_release(uint32_t bar) {
    if (threadIdx.x % 128 == 0) ptx_mbarrier_arrive(bar);
}

// A warpgroup's rows on their way out: out and lse.
template <class TR>
static __device__ __forceinline__ void hop_rows_out(const hop_args_t &a, const pod_blob &blob,
                                                    const hop_turn_t *t, uint32_t wg,
                                                    const prefill_sums<TR> &w) {
    tdm_pod_item_t whole = t->item;
    whole.merge = TDM_POD_NO_MERGE;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = hop_row(wg) + h * 8;
        if (r >= whole.row_cnt) continue;
        pod_row_sink<TR> sink(a.pod, blob, t->seq, whole, r, w.m[h], w.l[h], threadIdx.x % 4 == 0);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            sink.put(n * 8 + threadIdx.x % 4 * 2, w.o[4 * n + 2 * h], w.o[4 * n + 2 * h + 1]);
        }
    }
}

// Where a thread keeps its partials: [split][warpgroup][PART_CELL][thread],
// the cells of a split apart by 16 bytes a thread, so that every access is
// whole lines.  (Of decode items they lie as tdm_pod_merge_t says.)
template <class TR>
static __device__ __forceinline__ float4 *hop_part(const hop_args_t &a, const tdm_pod_merge_t &g,
                                                   uint32_t split, uint32_t wg) {
    auto *part = reinterpret_cast<float4 *>(a.pod.part + g.part_off);
    return part + (split * TR::WG + wg) * TR::PART_CELL * 128 + threadIdx.x % 128;
}

template <class TR>
static __device__ __forceinline__ void hop_part_put(float4 *to, const prefill_sums<TR> &w) {
#pragma unroll
    for (int i = 0; i < TR::DIM / 8; i++) {
        to[i * 128] = make_float4(w.o[4 * i], w.o[4 * i + 1], w.o[4 * i + 2], w.o[4 * i + 3]);
    }
    to[TR::DIM / 8 * 128] = make_float4(w.m[0], w.l[0], w.m[1], w.l[1]);
}

// The weight of partial sums with maximum m beside the largest of all.
static __device__ __forceinline__ float hop_part_weight(float m, float top) {
    return ptx_ex2(m - (top == -CUDART_INF_F ? 0.0f : top));
}

// Folds all splits, in their order, into w.
template <class TR>
static __device__ __forceinline__ void hop_part_fold(const hop_args_t &a, const tdm_pod_merge_t &g,
                                                     uint32_t wg, prefill_sums<TR> &w) {
    w.m[0] = w.m[1] = -CUDART_INF_F;
    w.l[0] = w.l[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < TR::DIM / 2; i++) w.o[i] = 0.0f;
#pragma unroll 1
    for (uint32_t s = 0; s < g.split_cnt; s++) {
        float4 ml = __ldcg(hop_part<TR>(a, g, s, wg) + TR::DIM / 8 * 128);
        w.m[0] = fmaxf(w.m[0], ml.x);
        w.m[1] = fmaxf(w.m[1], ml.z);
    }
#pragma unroll 1
    for (uint32_t s = 0; s < g.split_cnt; s++) {
        const float4 *from = hop_part<TR>(a, g, s, wg);
        float4 ml = __ldcg(from + TR::DIM / 8 * 128);
        float x = hop_part_weight(ml.x, w.m[0]);
        float y = hop_part_weight(ml.z, w.m[1]);
        w.l[0] = fmaf(x, ml.y, w.l[0]);
        w.l[1] = fmaf(y, ml.w, w.l[1]);
#pragma unroll
        for (int i = 0; i < TR::DIM / 8; i++) {
            float4 o = __ldcg(from + i * 128);
            w.o[4 * i] = fmaf(x, o.x, w.o[4 * i]);
            w.o[4 * i + 1] = fmaf(x, o.y, w.o[4 * i + 1]);
            w.o[4 * i + 2] = fmaf(y, o.z, w.o[4 * i + 2]);
            w.o[4 * i + 3] = fmaf(y, o.w, w.o[4 * i + 3]);
        }
    }
}

// Counts a warpgroup's arrival; true for its last split.  One thread.  The
// warpgroups of a tile share a word, PART_FIELD bits each, so that none waits
// for the others; the last of each takes its count off again.
static __device__ __forceinline__ uint32_t hop_part_arrive(const hop_args_t &a, uint32_t merge,
                                                           uint32_t split_cnt, uint32_t wg) {
    const uint32_t at = wg * HOP_PART_FIELD;
    __threadfence(); // M1
    uint32_t before = atomicAdd(a.pod.arrived + merge, 1u << at);
    uint32_t is_last = (before >> at & ((1u << HOP_PART_FIELD) - 1)) == split_cnt - 1;
    if (is_last) atomicSub(a.pod.arrived + merge, split_cnt << at);
    __threadfence(); // M1
    return is_last;
}

// The end of an item, of one warpgroup: rows, or partials, which the last to
// arrive folds.  Returns whether this one did.  What branches here is told
// uniform: ptxas would else keep every descriptor of the loop in registers of
// each lane.
template <class TR>
static __device__ __forceinline__ uint32_t hop_prefill_end(const hop_args_t &a, const hop_turn_t *t,
                                                           hop_control_t *c, uint32_t wg,
                                                           prefill_sums<TR> &w) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
#pragma unroll
    for (int h = 0; h < 2; h++) w.l[h] = pod_quad_sum(w.l[h]);
    const uint32_t merge = __shfl_sync(~0u, t->item.merge, 0);
    uint32_t is_last = 0;
    if (merge != TDM_POD_NO_MERGE) {
        const tdm_pod_merge_t g = blob.merge[merge];
        hop_part_put<TR>(hop_part<TR>(a, g, t->item.split, wg), w);
        __threadfence(); // M1
        ptx_bar_sync_at<128>(HOP_BAR_PART + wg);
        if (threadIdx.x % 128 == 0) c->is_last[wg] = hop_part_arrive(a, merge, g.split_cnt, wg);
        ptx_bar_sync_at<128>(HOP_BAR_PART + wg);
        is_last = __shfl_sync(~0u, c->is_last[wg], 0);
        if (!is_last) return 0;
        hop_part_fold<TR>(a, g, wg, w);
    }
    hop_rows_out<TR>(a, blob, t, wg, w);
    return is_last;
}

// One warpgroup's walk over the blocks of an item.
template <class TR> struct prefill_walk {
    prefill_sums<TR> w;
    uint32_t p[TR::KEY / 4]; // weights of the block before, as operands
    hop_stage stage;         // of its values
    uint32_t tok;            // of the block to come
    uint32_t kv_end;
    uint32_t limit[2]; // keys that the two rows see
    int is_add;        // w.o holds sums
    uint32_t heal_cnt; // threads of the warpgroups with rows
    uint32_t stall;    // waits for keys or values that were not there yet
};

// Scores of the block at tok, values of the one before it.  IS_CAREFUL:
// rows may not see all of it.  Two copies of the code, for a branch between
// an issue and its wait makes ptxas wait for all there, and the softmax would
// run beside nothing.
template <class TR, bool IS_CAREFUL>
static __device__ __forceinline__ void prefill_step(const hop_args_t &a, uint32_t smem, uint64_t q,
                                                    uint32_t wg, prefill_walk<TR> &k) {
    float s[TR::KEY / 2];
    float fix[2];
    hop_stage ahead = k.stage;
    ahead.template step<TR::STAGE>();
    const uint32_t sK = smem + TR::K_OFF + ahead.at * TR::KV_SZ;
    const uint32_t sV = smem + TR::V_OFF + k.stage.at * TR::KV_SZ;
    // V of the block before was asked for ahead of this K.  No wait may stand
    // between fence and wgmma: ptxas would serialise them (C7520).
    ptx_mbarrier_wait_counted(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity, &k.stall);
    ptx_mbarrier_wait_counted(HOP_AT(smem, k_full) + 8 * ahead.at, ahead.parity, &k.stall);
    if (IS_CAREFUL) {
        ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * ahead.at, ahead.parity);
        hop_heal<TR>(sK, smem + TR::V_OFF + ahead.at * TR::KV_SZ, k.heal_cnt);
    }
    ptx_wgmma_hold(s);
    ptx_wgmma_hold(k.w.o);
    ptx_wgmma_fence();
    hop_scores<TR>(s, q, ptx_wgmma_desc(sK, 16, 1024));
    ptx_wgmma_commit();
    hop_values<TR>(k.w.o, k.p, ptx_wgmma_desc(sV, TR::KV_HALF_SZ, 1024), k.is_add);
    ptx_wgmma_commit();
    k.is_add = 1;
    ptx_wgmma_wait<1>();
    ptx_wgmma_hold(s);
    hop_release(HOP_AT(smem, k_empty) + 8 * ahead.at);
    if (k.tok + TR::KEY >= k.kv_end) hop_release(HOP_AT(smem, q_empty));
    if (IS_CAREFUL) hop_mask<TR>(s, k.tok, k.limit);
    hop_softmax<TR>(s, k.w.m, k.w.l, fix, a.pod.scale_lg2);
    ptx_wgmma_hold(s); // the softmax stays above the wait
    ptx_wgmma_wait<0>();
    ptx_wgmma_hold(k.w.o);
    hop_release(HOP_AT(smem, v_empty) + 8 * k.stage.at);
    hop_pack<TR>(k.p, s);
    if (__any_sync(~0u, fix[0] != 1.0f || fix[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < TR::DIM / 2; i++) k.w.o[i] *= fix[i / 2 % 2];
    }
    k.stage = ahead;
    k.tok += TR::KEY;
}

// The first block's scores.
template <class TR>
static __device__ __forceinline__ void prefill_first(const hop_args_t &a, uint32_t smem, uint64_t q,
                                                     uint32_t seen, prefill_walk<TR> &k) {
    float s[TR::KEY / 2];
    float fix[2];
    const uint32_t sK = smem + TR::K_OFF + k.stage.at * TR::KV_SZ;
    ptx_mbarrier_wait_counted(HOP_AT(smem, k_full) + 8 * k.stage.at, k.stage.parity, &k.stall);
    if (k.tok + TR::KEY > seen) {
        ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity);
        hop_heal<TR>(sK, smem + TR::V_OFF + k.stage.at * TR::KV_SZ, k.heal_cnt);
    }
    ptx_wgmma_fence();
    hop_scores<TR>(s, q, ptx_wgmma_desc(sK, 16, 1024));
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    ptx_wgmma_hold(s);
    hop_release(HOP_AT(smem, k_empty) + 8 * k.stage.at);
    if (k.tok + TR::KEY >= k.kv_end) hop_release(HOP_AT(smem, q_empty));
    if (k.tok + TR::KEY > seen) hop_mask<TR>(s, k.tok, k.limit);
    hop_softmax<TR>(s, k.w.m, k.w.l, fix, a.pod.scale_lg2);
    hop_pack<TR>(k.p, s);
    k.tok += TR::KEY;
}

// The last block's values.
template <class TR>
static __device__ __forceinline__ void prefill_last(uint32_t smem, prefill_walk<TR> &k) {
    ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity);
    ptx_wgmma_hold(k.w.o);
    ptx_wgmma_fence();
    hop_values<TR>(k.w.o, k.p,
                   ptx_wgmma_desc(smem + TR::V_OFF + k.stage.at * TR::KV_SZ, TR::KV_HALF_SZ, 1024),
                   k.is_add);
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    ptx_wgmma_hold(k.w.o);
    hop_release(HOP_AT(smem, v_empty) + 8 * k.stage.at);
    k.stage.template step<TR::STAGE>();
}

// The walk of a warpgroup without rows: its first warp lets every block go.  The
// others wait at its end: nothing else here keeps a warp's steps to those of the
// one that arrives for all, and one that is late by two phases would see the
// parity that it left.
template <class TR>
static __device__ __forceinline__ void prefill_pass(uint32_t smem, uint32_t wg,
                                                    prefill_walk<TR> &k) {
    const bool is_first = __shfl_sync(~0u, threadIdx.x % 128 < 32, 0);
#pragma unroll 1
    for (; k.tok < k.kv_end; k.tok += TR::KEY) {
        if (is_first) {
            ptx_mbarrier_wait(HOP_AT(smem, k_full) + 8 * k.stage.at, k.stage.parity);
            ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity);
            __syncwarp();
            hop_release(HOP_AT(smem, k_empty) + 8 * k.stage.at);
            hop_release(HOP_AT(smem, v_empty) + 8 * k.stage.at);
        }
        k.stage.template step<TR::STAGE>();
    }
    ptx_bar_sync_at<128>(HOP_BAR_PART + wg);
    hop_release(HOP_AT(smem, q_empty));
}

// Warpgroup wg in [0, 3) of the three.
template <class TR>
static __device__ __forceinline__ void prefill_consume(const hop_args_t &a, uint32_t smem,
                                                       hop_control_t *c, uint32_t wg) {
    const uint64_t q = ptx_wgmma_desc(smem + TR::Q_OFF + wg * 64 * 128, 16, 1024);
    const uint32_t magic =
        reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob)->group_magic; // of the group
    // Not of 64, where the branch takes three descriptors of the loop from
    // their uniform registers.
    constexpr bool CAN_PASS = TR::DIM == 128;
    prefill_walk<TR> k;
    k.stage = {0, 0};
    k.stall = 0;
    uint32_t done = 0;
    uint32_t merge = 0;
#pragma unroll 1
    for (uint32_t turn = 0;; turn++) {
        ptx_mbarrier_wait(HOP_AT(smem, q_full), turn & 1);
        const hop_turn_t *t = c->turn + turn % HOP_TURN;
        if (__shfl_sync(~0u, t->index, 0) == TDM_TICKET_NONE) break;
        k.tok = __shfl_sync(~0u, t->item.kv_begin, 0); // ptxas shall know them uniform
        k.kv_end = __shfl_sync(~0u, t->item.kv_end, 0);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t p = t->item.row + hop_row(wg) + h * 8;
            k.limit[h] = min(pod_visible(t->seq, pod_token_of(p, magic)), k.kv_end);
        }
        // What the tile's first row sees: blocks that end before it all rows
        // see whole.
        uint32_t seen = pod_visible(t->seq, pod_token_of(t->item.row, magic));
        seen = __shfl_sync(~0u, min(seen, k.kv_end), 0);
#pragma unroll
        for (int i = 0; i < TR::DIM / 2; i++) k.w.o[i] = 0.0f;
        k.w.m[0] = k.w.m[1] = -CUDART_INF_F;
        k.w.l[0] = k.w.l[1] = 0.0f;
        k.is_add = 0;
        const uint32_t row_cnt = CAN_PASS ? __shfl_sync(~0u, t->item.row_cnt, 0) : TR::ROW;
        k.heal_cnt = (row_cnt + 63) / 64 * 128;
        if (k.tok >= k.kv_end) {
            // No row sees a key.  Where nobody computes, a warp may still
            // wait for this item: two such in a row and it would see the
            // parity that it left.
            ptx_bar_sync_at<128>(HOP_BAR_PART + wg);
            hop_release(HOP_AT(smem, q_empty));
        } else if (CAN_PASS && wg * 128 >= k.heal_cnt) {
            prefill_pass<TR>(smem, wg, k);
            continue;
        } else {
            prefill_first<TR>(a, smem, q, seen, k);
#pragma unroll 1
            while (k.tok + TR::KEY <= seen) prefill_step<TR, false>(a, smem, q, wg, k);
#pragma unroll 1
            while (k.tok < k.kv_end) prefill_step<TR, true>(a, smem, q, wg, k);
            prefill_last<TR>(smem, k);
        }
        merge += hop_prefill_end<TR>(a, t, c, wg, k.w);
        done++;
        if (threadIdx.x == 128) {
            pod_log(a.pod, t->index, TDM_KIND_PREFILL, ptx_smid(), TDM_POD_PACK, t->begin);
        }
    }
    if (threadIdx.x % 128 == 0 && k.stall) {
        atomicAdd(&a.pod.count->ring_stall, static_cast<unsigned long long>(k.stall));
    }
    if (threadIdx.x == 128) {
        atomicAdd(&a.pod.count->vcta[TDM_KIND_PREFILL], static_cast<unsigned long long>(done));
        if (merge) atomicAdd(&a.pod.count->merge, static_cast<unsigned long long>(merge));
    }
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH
