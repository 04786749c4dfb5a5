// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_FETCH_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_FETCH_CUH

// The helping warpgroup of a decode CTA: warp 0 draws items and lays out what
// the decode warps need, warps 1 to 3 fold what they leave, in turn.  Neither
// work is the decode warps', whose rings would run dry over it.
//
//   slot_full:     item k is drawn, its Q and page numbers are in place
//   left:          all decode warps are done with item k
//   scratch_empty: item k is out of the scratch; item k + 1 may be left there
//   slot_empty:    item k is out of its slot; item k + SLOT may be drawn

#include "kernels/attention/hopper/control.cuh"
#include "kernels/attention/portable/merge.cuh"
#include "kernels/ptx/shared.cuh"

// Fills slot k with decode item `index`; the warp.
template <class TR>
static __device__ __forceinline__ void fetch_item(const hop_args_t &a, const pod_blob &blob,
                                                  const hop_decode_map<TR> &map, hop_slot_t *slot,
                                                  uint32_t place, uint32_t index,
                                                  uint32_t *first_warp) {
    const uint32_t lane = threadIdx.x % 32;
    const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][index];
    const tdm_attn_seq_t seq = blob.seq[it.seq];
    const uint32_t group = blob.head->group;
    const uint32_t magic = blob.head->group_magic;
    const uint32_t page_lg = a.pod.page_lg;
    for (uint32_t i = lane; i < it.row_cnt * TR::DIM / 8; i += 32) {
        const uint32_t p = it.row + i / (TR::DIM / 8);
        const uint32_t tok = pod_token_of(p, magic);
        const auto *from =
            static_cast<const typename TR::elem *>(a.pod.layer.q) +
            pod_row_offset<TR::DIM>(a.pod, seq, it.head_kv, group, tok, p - tok * group);
        ptx_st_shared_16(map.q + place * map.q_sz + i * 16,
                         __ldg(reinterpret_cast<const uint4 *>(from) + i % (TR::DIM / 8)));
    }
    const uint32_t *table =
        a.pod.layer.page_table + static_cast<uint64_t>(seq.slot) * a.pod.layer.table_stride;
    const uint32_t page = it.kv_begin >> page_lg;
    const uint32_t page_end = (it.kv_end + (1u << page_lg) - 1) >> page_lg;
    for (uint32_t i = lane; page + i < page_end; i += 32) {
        ptx_st_shared(map.page + (place * HOP_PAGE_MAX + i) * 4, __ldg(table + page + i));
    }
    const uint32_t step_cnt =
        it.kv_begin < it.kv_end ? (it.kv_end - it.kv_begin + TR::STEP - 1) / TR::STEP : 0;
    if (lane == 0) {
        slot->index = index;
        slot->step_cnt = step_cnt;
        slot->first_warp = static_cast<uint16_t>(*first_warp);
        slot->row_cnt = static_cast<uint16_t>(it.row_cnt);
        slot->tok = it.kv_begin;
        slot->kv_end = it.kv_end;
        slot->seen = min(pod_visible(seq, pod_token_of(it.row, magic)), it.kv_end);
        slot->past = static_cast<int32_t>(seq.kv_cnt - seq.cnt + 1);
        slot->row = it.row;
        slot->head_kv = it.head_kv;
        if (step_cnt == 0) { // nobody will begin it
            pod_clock now = pod_clock_now();
            slot->ns = now.ns;
            slot->cycle = now.cycle;
        }
    }
    *first_warp = (*first_warp + step_cnt) % map.warp_cnt;
}

// Warp 0.  Each merger is told of the end, so it stands in three slots.
template <class TR>
static __device__ __forceinline__ void decode_fetch(const hop_args_t &a, uint32_t smem,
                                                    hop_control_t *c,
                                                    const hop_decode_map<TR> &map) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t item_cnt = blob.head->item_cnt[TDM_KIND_DECODE];
    uint32_t first_warp = 0;
    uint32_t end_cnt = 0;
    uint32_t done = 0;
#pragma unroll 1
    for (uint32_t k = 0; end_cnt < HOP_MERGER; k++) {
        const uint32_t place = k % HOP_SLOT;
        ptx_mbarrier_wait(HOP_AT(smem, slot_empty) + place * 8, (k / HOP_SLOT & 1) ^ 1);
        uint32_t index = TDM_TICKET_NONE;
        if (end_cnt == 0) {
            if (lane == 0) index = TDM_TICKET_ADD(&a.pod.ticket->next[TDM_KIND_DECODE].value, 1u);
            index = __shfl_sync(~0u, index, 0);
        }
        if (index < item_cnt) {
            fetch_item<TR>(a, blob, map, c->slot + place, place, index, &first_warp);
            done++;
        } else {
            if (lane == 0) c->slot[place].index = TDM_TICKET_NONE;
            end_cnt++;
        }
        __syncwarp();
        if (lane == 0) ptx_mbarrier_arrive(HOP_AT(smem, slot_full) + place * 8);
    }
    if (lane == 0 && done) {
        atomicAdd(&a.pod.count->vcta[TDM_KIND_DECODE], static_cast<unsigned long long>(done));
    }
}

// Folds the classes of one row in the scratch and writes it; a lane holds
// DIM / 32 neighbours.
template <class TR>
static __device__ __forceinline__ void fold_row(const hop_args_t &a, const pod_blob &blob,
                                                const tdm_attn_seq_t &seq, const tdm_pod_item_t &it,
                                                const hop_decode_map<TR> &map, uint32_t class_cnt,
                                                uint32_t head) {
    constexpr int PAIR = TR::DIM / 64; // pairs of dims of a lane
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t cell = map.scratch + head * TR::CELL * 4;
    const uint32_t stride = map.cell_sz;
    float top = -CUDART_INF_F;
    for (uint32_t i = 0; i < class_cnt; i++) {
        top = fmaxf(top, ptx_ld_shared_f2(cell + i * stride + TR::DIM * 4).x);
    }
    const float base = top == -CUDART_INF_F ? 0.0f : top;
    float l = 0.0f;
    float2 o[PAIR];
#pragma unroll
    for (int p = 0; p < PAIR; p++) o[p] = make_float2(0.0f, 0.0f);
#pragma unroll 2
    for (uint32_t i = 0; i < class_cnt; i++) {
        const float2 ml = ptx_ld_shared_f2(cell + i * stride + TR::DIM * 4);
        const float w = ptx_ex2(ml.x - base);
        l = fmaf(w, ml.y, l);
#pragma unroll
        for (int p = 0; p < PAIR; p++) {
            float2 x = ptx_ld_shared_f2(cell + i * stride + (p * 64 + lane * 2) * 4);
            o[p].x = fmaf(w, x.x, o[p].x);
            o[p].y = fmaf(w, x.y, o[p].y);
        }
    }
    pod_row_sink<TR> sink(a.pod, blob, seq, it, head, top, l, lane == 0);
#pragma unroll
    for (int p = 0; p < PAIR; p++) sink.put(p * 64 + lane * 2, o[p].x, o[p].y);
}

// Folds the partials of a merge, in their order, into rows; the warp.  A few
// heads and splits at a time, for the loads' latency: of the last item of a
// launch the device waits for it.
template <class TR>
static __device__ __forceinline__ void fold_parts(const hop_args_t &a, const pod_blob &blob,
                                                  const tdm_attn_seq_t &seq,
                                                  const tdm_pod_item_t &it) {
    constexpr int PAIR = TR::DIM / 64;
    constexpr int HEAD = 2;
    constexpr int SPLIT = 4;
    const uint32_t lane = threadIdx.x % 32;
    const tdm_pod_merge_t g = blob.merge[it.merge];
    const pod_part from = pod_part_of<TR::DIM>(a.pod, g);
    tdm_pod_item_t whole = it;
    whole.merge = TDM_POD_NO_MERGE;
#pragma unroll 1
    for (uint32_t head = 0; head < g.row_cnt; head += HEAD) {
        float top[HEAD], l[HEAD];
        float2 o[HEAD][PAIR];
#pragma unroll
        for (int h = 0; h < HEAD; h++) {
            const uint32_t row = min(head + h, g.row_cnt - 1);
            top[h] = -CUDART_INF_F;
            for (uint32_t s = lane; s < g.split_cnt; s += 32) {
                top[h] = fmaxf(top[h], __ldcg(from.m + s * g.row_cnt + row));
            }
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], d));
            }
            l[h] = 0.0f;
#pragma unroll
            for (int p = 0; p < PAIR; p++) o[h][p] = make_float2(0.0f, 0.0f);
        }
#pragma unroll 1
        for (uint32_t s0 = 0; s0 < g.split_cnt; s0 += SPLIT) {
#pragma unroll
            for (int i = 0; i < SPLIT; i++) {
#pragma unroll
                for (int h = 0; h < HEAD; h++) {
                    // Loads without a branch; what is past the last counts as nothing.
                    const bool is = s0 + i < g.split_cnt;
                    const uint32_t at =
                        min(s0 + i, g.split_cnt - 1) * g.row_cnt + min(head + h, g.row_cnt - 1);
                    const float base = top[h] == -CUDART_INF_F ? 0.0f : top[h];
                    const float w = is ? ptx_ex2(__ldcg(from.m + at) - base) : 0.0f;
                    l[h] = fmaf(w, is ? __ldcg(from.l + at) : 0.0f, l[h]);
#pragma unroll
                    for (int p = 0; p < PAIR; p++) {
                        const float2 x = __ldcg(reinterpret_cast<const float2 *>(
                            from.o + static_cast<uint64_t>(at) * TR::DIM + p * 64 + lane * 2));
                        o[h][p].x = fmaf(w, is ? x.x : 0.0f, o[h][p].x);
                        o[h][p].y = fmaf(w, is ? x.y : 0.0f, o[h][p].y);
                    }
                }
            }
        }
#pragma unroll
        for (int h = 0; h < HEAD; h++) {
            if (head + h >= g.row_cnt) continue;
            pod_row_sink<TR> sink(a.pod, blob, seq, whole, head + h, top[h], l[h], lane == 0);
#pragma unroll
            for (int p = 0; p < PAIR; p++) sink.put(p * 64 + lane * 2, o[h][p].x, o[h][p].y);
        }
    }
}

// The warp's partials are written; returns 1 where it folded them all.
template <class TR>
static __device__ __forceinline__ uint32_t fold_arrive(const hop_args_t &a, const pod_blob &blob,
                                                       const tdm_attn_seq_t &seq,
                                                       const tdm_pod_item_t &it) {
    uint32_t is_mine = 0;
    __threadfence(); // M1
    __syncwarp();
    if (threadIdx.x % 32 == 0) is_mine = merge_arrive(a.pod, blob, it.merge);
    is_mine = __shfl_sync(~0u, is_mine, 0);
    if (is_mine) fold_parts<TR>(a, blob, seq, it);
    return is_mine;
}

// Merger `own` in [0, HOP_MERGER) of the warps 1 to 3.
template <class TR>
static __device__ __forceinline__ void decode_fold(const hop_args_t &a, uint32_t smem,
                                                   const hop_control_t *c,
                                                   const hop_decode_map<TR> &map, uint32_t own) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
    const uint32_t lane = threadIdx.x % 32;
    uint32_t merge = 0;
#pragma unroll 1
    for (uint32_t k = own;; k += HOP_MERGER) {
        const uint32_t place = k % HOP_SLOT;
        const uint32_t parity = k / HOP_SLOT & 1;
        ptx_mbarrier_wait(HOP_AT(smem, slot_full) + place * 8, parity);
        const hop_slot_t *slot = c->slot + place;
        const uint32_t index = slot->index;
        if (index == TDM_TICKET_NONE) break;
        const tdm_pod_item_t it = blob.item[TDM_KIND_DECODE][index];
        const tdm_attn_seq_t seq = blob.seq[it.seq];
        const uint32_t class_cnt = min(slot->step_cnt, map.warp_cnt);
        ptx_mbarrier_wait(HOP_AT(smem, left) + place * 8, parity);
        pod_clock begin;
        begin.ns = slot->ns;
        begin.cycle = slot->cycle;
#pragma unroll 1
        for (uint32_t head = 0; head < it.row_cnt; head++) {
            fold_row<TR>(a, blob, seq, it, map, class_cnt, head);
        }
        __syncwarp();
        if (lane == 0) {
            ptx_mbarrier_arrive(HOP_AT(smem, scratch_empty));
            ptx_mbarrier_arrive(HOP_AT(smem, slot_empty) + place * 8);
        }
        if (it.merge != TDM_POD_NO_MERGE) merge += fold_arrive<TR>(a, blob, seq, it);
        if (lane == 0) {
            pod_log(a.pod, blob.head->item_cnt[TDM_KIND_PREFILL] + index, TDM_KIND_DECODE,
                    ptx_smid(), TDM_POD_PACK, begin);
        }
    }
    if (lane == 0 && merge) {
        atomicAdd(&a.pod.count->merge, static_cast<unsigned long long>(merge));
    }
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_FETCH_CUH
