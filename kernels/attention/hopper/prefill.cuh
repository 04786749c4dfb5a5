// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH

// The computing warpgroups of a prefill CTA: each holds 64 packed rows, all
// three walk the same blocks of keys.
//
//   time    ---------------------------------------------------->
//   wg 0    S1 O0 | softmax 1 ...... | S2 O1 | softmax 2 ......
//   wg 1          | S1 O0 | softmax 1 ...... | S2 O1 | ...
//   wg 2                  | S1 O0 | softmax 1 ...... | S2 O1 |
//
// S(j) = Q K(j)^T and O += P(j - 1) V(j - 1) are issued together; the softmax
// of block j runs beside the second and beside the other warpgroups' wgmma.
// HOP_BAR_TURN hands the tensor cores round, so that softmaxes do not all
// fall together.  The order of arithmetic is that of the blocks; who waits
// for whom changes no bit.

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
// end is healed with it.  All three warpgroups, at the same block.
template <class TR> static __device__ __forceinline__ void hop_heal(uint32_t sK, uint32_t sV) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x - 128; i < TR::KV_SZ / 16; i += 128 * TR::WG) {
        if (pod_is_finite<typename TR::elem>(ptx_ld_shared_128(sV + i * 16))) continue;
        ptx_st_shared_128(sV + i * 16, make_uint4(0, 0, 0, 0));
        ptx_st_shared_128(sK + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u)); // NaN of either type
    }
    ptx_fence_proxy_async();
    ptx_bar_sync<HOP_BAR_MERGE, 128 * TR::WG>();
}

static __device__ __forceinline__ void hop_release(uint32_t bar) {
    if (threadIdx.x % 128 == 0) ptx_mbarrier_arrive(bar);
}

// Writes the rows: out and lse, or partials, which the last CTA to arrive
// folds.  Returns whether this one did.
template <class TR>
static __device__ __forceinline__ uint32_t hop_prefill_end(const hop_args_t &a, const hop_turn_t *t,
                                                           hop_control_t *c, uint32_t wg,
                                                           prefill_sums<TR> &w) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
    const tdm_pod_item_t &it = t->item;
    const tdm_attn_seq_t &seq = t->seq;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = pod_quad_sum(w.l[h]);
        uint32_t r = hop_row(wg) + h * 8;
        if (r >= it.row_cnt) continue;
        pod_row_sink<TR> sink(a.pod, blob, seq, it, r, w.m[h], l, threadIdx.x % 4 == 0);
#pragma unroll
        for (int n = 0; n < TR::DIM / 8; n++) {
            sink.put(n * 8 + threadIdx.x % 4 * 2, w.o[4 * n + 2 * h], w.o[4 * n + 2 * h + 1]);
        }
    }
    if (it.merge == TDM_POD_NO_MERGE) return 0;
    __threadfence(); // M1
    ptx_bar_sync<HOP_BAR_MERGE, 128 * TR::WG>();
    if (threadIdx.x == 128) c->is_last = merge_arrive(a.pod, blob, it.merge);
    ptx_bar_sync<HOP_BAR_MERGE, 128 * TR::WG>();
    uint32_t is_mine = c->is_last;
    if (is_mine) {
        merge_fold<TR>(a.pod, blob, seq, it, threadIdx.x - 128, 128 * TR::WG);
    }
    ptx_bar_sync<HOP_BAR_MERGE, 128 * TR::WG>(); // is_last may be written anew
    return is_mine;
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
    ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity);
    ptx_mbarrier_wait(HOP_AT(smem, k_full) + 8 * ahead.at, ahead.parity);
    if (IS_CAREFUL) {
        ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * ahead.at, ahead.parity);
        hop_heal<TR>(sK, smem + TR::V_OFF + ahead.at * TR::KV_SZ);
    }
    ptx_bar_sync_at<256>(HOP_BAR_TURN + wg);
    ptx_wgmma_hold(s);
    ptx_wgmma_hold(k.w.o);
    ptx_wgmma_fence();
    hop_scores<TR>(s, q, ptx_wgmma_desc(sK, 16, 1024));
    ptx_wgmma_commit();
    hop_values<TR>(k.w.o, k.p, ptx_wgmma_desc(sV, TR::KV_HALF_SZ, 1024), k.is_add);
    ptx_wgmma_commit();
    k.is_add = 1;
    ptx_bar_arrive_at<256>(wg + 1 == TR::WG ? HOP_BAR_TURN : HOP_BAR_TURN + 1 + wg);
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
#pragma unroll
    for (int i = 0; i < TR::DIM / 2; i++) k.w.o[i] *= fix[i / 2 % 2];
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
    ptx_mbarrier_wait(HOP_AT(smem, k_full) + 8 * k.stage.at, k.stage.parity);
    if (k.tok + TR::KEY > seen) {
        ptx_mbarrier_wait(HOP_AT(smem, v_full) + 8 * k.stage.at, k.stage.parity);
        hop_heal<TR>(sK, smem + TR::V_OFF + k.stage.at * TR::KV_SZ);
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

// Warpgroup wg in [0, 3) of the three.
template <class TR>
static __device__ __forceinline__ void prefill_consume(const hop_args_t &a, uint32_t smem,
                                                       hop_control_t *c, uint32_t wg) {
    const uint64_t q = ptx_wgmma_desc(smem + TR::Q_OFF + wg * 64 * 128, 16, 1024);
    const uint32_t magic =
        reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob)->group_magic; // of the group
    prefill_walk<TR> k;
    k.stage = {0, 0};
    uint32_t done = 0;
    uint32_t merge = 0;
    if (wg == 0) ptx_bar_arrive_at<256>(HOP_BAR_TURN); // the first turn is wg 0's
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
        if (k.tok >= k.kv_end) {
            hop_release(HOP_AT(smem, q_empty)); // no row sees a key
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
    if (threadIdx.x == 128) {
        atomicAdd(&a.pod.count->vcta[TDM_KIND_PREFILL], static_cast<unsigned long long>(done));
        if (merge) atomicAdd(&a.pod.count->merge, static_cast<unsigned long long>(merge));
    }
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_PREFILL_CUH
