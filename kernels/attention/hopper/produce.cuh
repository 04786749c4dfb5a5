// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_PRODUCE_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_PRODUCE_CUH

// The fetching warpgroup of a prefill CTA: warp 0 draws items and asks the
// copy engine for K, warp 1 for V, warps 2 and 3 copy Q.
//
//   item_full: an item is drawn          -> V and Q warps; K and V are asked for at once
//   q_empty:   the last scores of the item before are made -> Q warps
//   q_full:    Q is in place, and what the item is         -> warpgroups, producer
//
// So the blocks of the next item are on their way before the one in hand is
// done.  The producer is at most one item ahead: it announces item t + 1
// when the Q of item t is in place.

#include "kernels/attention/hopper/control.cuh"
#include "kernels/attention/portable/merge.cuh"

// The page numbers of a walk over keys, asked for a window of 32 ahead:
// lane l holds the l-th of a window.  The walk goes up but for the step
// back from a block's K to its V, which the window before serves.
struct hop_pages {
    const uint32_t *table; // this sequence's row
    uint32_t end;          // pages that hold keys of the item
    uint32_t first;        // of the window `now`
    uint32_t past;
    uint32_t now;
    uint32_t next;

    __device__ __forceinline__ uint32_t load(uint32_t base) const {
        uint32_t i = base + threadIdx.x % 32;
        return i < end ? __ldg(table + i) : 0;
    }
    __device__ __forceinline__ void begin(const uint32_t *of, uint32_t page, uint32_t page_end) {
        table = of;
        end = page_end;
        first = page;
        past = 0;
        now = load(page);
        next = load(page + 32);
    }
    __device__ __forceinline__ uint32_t of(uint32_t page) {
        if (page >= first + 32) {
            first += 32;
            past = now;
            now = next;
            next = load(first + 32);
        }
        return __shfl_sync(~0u, page < first ? past : now, static_cast<int>((page - first) % 32));
    }
};

// Asks for keys [tok, tok + KEY) of one pool, as far as they lie before
// kv_end, rounded up to 16: a copy for each half of as many as one page
// holds, 64 at most.  tok is a multiple of 16.
template <class TR>
static __device__ __forceinline__ void produce_block(const hop_args_t &a, const CUtensorMap *map,
                                                     hop_pages &pages, uint32_t head_kv,
                                                     uint32_t tok, uint32_t kv_end, uint32_t dst,
                                                     uint32_t bar) {
    const uint32_t page_mask = (1u << a.pod.page_lg) - 1;
    const uint32_t box_mask = min(page_mask, HOP_BOX_MAX - 1u);
    const uint32_t cnt = min(static_cast<uint32_t>(TR::KEY), (kv_end - tok + 15) & ~15u);
    if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive_expect(bar, cnt * TR::DIM * 2);
    uint32_t n;
#pragma unroll 1
    for (uint32_t r = 0; r < cnt; r += n) {
        const uint32_t at = tok + r;
        n = min(cnt - r, box_mask + 1 - (at & box_mask));
        uint32_t row = pages.of(at >> a.pod.page_lg) * a.pod.nhead_kv + head_kv;
        if (threadIdx.x % 32) continue;
        for (uint32_t h = 0; h < TR::HALF; h++) {
            ptx_tma_load_4d(dst + h * TR::KV_HALF_SZ + r * 128, map + n / 16 - 1, bar, 0,
                            at & page_mask, h, row, PTX_L2_NORMAL);
        }
    }
}

// All blocks of one item of one pool; the warp.  Near the end, and where
// ticket is not NULL, lane 0 draws the item after it into *next.
template <class TR>
static __device__ __forceinline__ void produce_item(const hop_args_t &a, const CUtensorMap *map,
                                                    const tdm_pod_item_t *it, uint32_t slot,
                                                    uint32_t ring, uint32_t full, uint32_t empty,
                                                    hop_stage &stage, uint32_t *ticket,
                                                    uint32_t *next) {
    const uint32_t head_kv = __ldg(&it->head_kv);
    const uint32_t kv_end = __ldg(&it->kv_end);
    const uint32_t page_lg = a.pod.page_lg;
    uint32_t tok = __ldg(&it->kv_begin);
    bool is_owed = ticket; // the draw of the item after this one
    hop_pages pages;
    pages.begin(a.pod.layer.page_table + static_cast<uint64_t>(slot) * a.pod.layer.table_stride,
                tok >> page_lg, (kv_end + (1u << page_lg) - 1) >> page_lg);
#pragma unroll 1
    do {
        if (tok < kv_end) {
            ptx_mbarrier_wait(empty + 8 * stage.at, stage.parity);
            produce_block<TR>(a, map, pages, head_kv, tok, kv_end, ring + stage.at * TR::KV_SZ,
                              full + 8 * stage.at);
            stage.template step<TR::STAGE>();
            tok += TR::KEY;
        }
        if (is_owed && tok + 4 * TR::KEY >= kv_end) {
            if (threadIdx.x == 0) *next = TDM_TICKET_ADD(ticket, 1u);
            is_owed = false;
        }
    } while (tok < kv_end);
}

// Warp 0: draws items, and asks for their K.
template <class TR>
static __device__ __forceinline__ void prefill_produce_k(const hop_args_t &a,
                                                         const hop_maps_t &maps, uint32_t smem,
                                                         hop_control_t *c) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
    const uint32_t item_cnt = blob.head->item_cnt[TDM_KIND_PREFILL];
    uint32_t *ticket = &a.pod.ticket->next[TDM_KIND_PREFILL].value;
    hop_stage stage = {0, 1};
    uint32_t index = 0;
    if (threadIdx.x == 0) index = TDM_TICKET_ADD(ticket, 1u);
    index = __shfl_sync(~0u, index, 0);
#pragma unroll 1
    for (uint32_t turn = 0;; turn++) {
        if (turn) ptx_mbarrier_wait(HOP_AT(smem, q_full), (turn - 1) & 1);
        if (index >= item_cnt) index = TDM_TICKET_NONE;
        if (threadIdx.x == 0) {
            c->turn[turn % HOP_TURN].index = index;
            ptx_mbarrier_arrive(HOP_AT(smem, item_full));
        }
        __syncwarp();
        if (index == TDM_TICKET_NONE) break;
        const tdm_pod_item_t *it = blob.item[TDM_KIND_PREFILL] + index;
        uint32_t next = 0;
        produce_item<TR>(a, maps.k_block, it, __ldg(&blob.seq[__ldg(&it->seq)].slot),
                         smem + TR::K_OFF, HOP_AT(smem, k_full), HOP_AT(smem, k_empty), stage,
                         ticket, &next);
        index = __shfl_sync(~0u, next, 0);
    }
}

// Warp 1: asks for V.  A warp of its own, for one thread's copies come one
// after the other, too slowly for both.
template <class TR>
static __device__ __forceinline__ void prefill_produce_v(const hop_args_t &a,
                                                         const hop_maps_t &maps, uint32_t smem,
                                                         const hop_control_t *c) {
    const pod_blob blob = pod_blob_of(a.pod.blob);
    hop_stage stage = {0, 1};
#pragma unroll 1
    for (uint32_t turn = 0;; turn++) {
        ptx_mbarrier_wait(HOP_AT(smem, item_full), turn & 1);
        const uint32_t index = c->turn[turn % HOP_TURN].index;
        __syncwarp();
        if (threadIdx.x == 32) ptx_mbarrier_arrive(HOP_AT(smem, q_full)); // it has seen the item
        if (index == TDM_TICKET_NONE) break;
        const tdm_pod_item_t *it = blob.item[TDM_KIND_PREFILL] + index;
        produce_item<TR>(a, maps.v_block, it, __ldg(&blob.seq[__ldg(&it->seq)].slot),
                         smem + TR::V_OFF, HOP_AT(smem, v_full), HOP_AT(smem, v_empty), stage,
                         nullptr, nullptr);
    }
}

// Warps 2 and 3: the packed rows of each item, those past row_cnt as zeros.
// The item's clock starts here: a clock read among the wgmma code of the
// warpgroups makes ptxas serialise it (C7520).
template <class TR>
static __device__ __forceinline__ void prefill_copy_q(const hop_args_t &a, uint32_t smem,
                                                      hop_control_t *c) {
    constexpr uint32_t CHUNK = TR::DIM / 8; // 16-byte chunks of a row
    constexpr uint32_t STEP = 64 / CHUNK;   // rows of one pass
    const pod_blob blob = pod_blob_of(a.pod.blob);
    const uint32_t group = blob.head->group;
    const uint32_t magic = blob.head->group_magic;
    const uint32_t chunk = (threadIdx.x - 64) % CHUNK;
    const uint32_t r0 = (threadIdx.x - 64) / CHUNK;
    const uint32_t sQ = smem + TR::Q_OFF + chunk / 8 * TR::Q_HALF_SZ;
#pragma unroll 1
    for (uint32_t turn = 0;; turn++) {
        ptx_mbarrier_wait(HOP_AT(smem, item_full), turn & 1);
        hop_turn_t *t = c->turn + turn % HOP_TURN;
        const uint32_t index = t->index;
        // The end waits too: q_full must not be two phases ahead of a warpgroup.
        if (index == TDM_TICKET_NONE) {
            ptx_mbarrier_wait(HOP_AT(smem, q_empty), (turn & 1) ^ 1);
        } else {
            const tdm_pod_item_t *it = blob.item[TDM_KIND_PREFILL] + index;
            const uint32_t seq = __ldg(&it->seq);
            const uint32_t row = __ldg(&it->row);
            const uint32_t row_cnt = __ldg(&it->row_cnt);
            const uint32_t head = __ldg(&it->head_kv) * group;
            const uint32_t first = __ldg(&blob.seq[seq].row);
            if (threadIdx.x - 64 < sizeof(tdm_pod_item_t) / 4) { // lanes 0 to 7 of warp 2
                reinterpret_cast<uint32_t *>(&t->item)[threadIdx.x - 64] =
                    __ldg(reinterpret_cast<const uint32_t *>(it) + threadIdx.x - 64);
            }
            if (threadIdx.x - 72 < sizeof(tdm_attn_seq_t) / 4) { // the next four
                reinterpret_cast<uint32_t *>(&t->seq)[threadIdx.x - 72] =
                    __ldg(reinterpret_cast<const uint32_t *>(blob.seq + seq) + threadIdx.x - 72);
            }
            if (threadIdx.x == 64) t->begin = pod_clock_now();
            ptx_mbarrier_wait(HOP_AT(smem, q_empty), (turn & 1) ^ 1);
            // Of all the warps these two keep the others waiting: few
            // instructions a row.  A plan's rows of q are below 4 GiB.
            const auto *q = static_cast<const uint8_t *>(a.pod.layer.q) + chunk * 16 +
                            (static_cast<uint64_t>(first) * a.pod.nhead_q + head) * TR::DIM * 2;
            const uint32_t other = a.pod.nhead_q - group; // heads of a token that are not ours
#pragma unroll 8
            for (uint32_t r = r0; r < TR::ROW; r += STEP) {
                uint32_t p = row + r;
                uint32_t at = (pod_token_of(p, magic) * other + p) * TR::DIM * 2;
                int is_row = r < row_cnt;
                ptx_cp_async_16(sQ + r * 128 + ((chunk ^ (r & 7)) % 8 << 4), q + (is_row ? at : 0),
                                is_row);
            }
            ptx_cp_async_commit();
            ptx_cp_async_wait<0>();
            ptx_fence_proxy_async();
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx_mbarrier_arrive(HOP_AT(smem, q_full));
        if (index == TDM_TICKET_NONE) break;
    }
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_PRODUCE_CUH
