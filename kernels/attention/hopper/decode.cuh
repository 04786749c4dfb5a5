// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_DECODE_CUH
#define TDM_KERNELS_ATTENTION_HOPPER_DECODE_CUH

// The decode warps of a decode CTA.  An item is cut into steps of STEP keys;
// step s belongs to class s % warp_cnt, and all of a class go to one warp,
// in order.  Which warp that is depends on where the last item ended, so
// that the rings stay full from item to item; the classes are folded by
// number, so that no bit depends on it.
//
//   K and V of a step lie in the warp's own ring; as soon as its lanes are
//   done with K, K of the warp's next step is asked for, then V likewise.
//
// Keys are the rows of the MMA and packed query rows its columns, eight at
// most, so a decode of more (groups of 9 to 16, several tokens) is several
// items, neighbours in the list, that find each other's keys in L2:
//   S^T[16 keys][8 rows] = K Q^T,  O^T[16 dims][8 rows] += V^T P^T

#include "kernels/attention/hopper/control.cuh"
#include "kernels/attention/portable/merge.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/shared.cuh"

// This lane's part of a class: columns 2 t and 2 t + 1, t = lane % 4.
template <class TR> struct decode_sums {
    float o[TR::DIM / 16][4];
    float m[2];
    float l[2];
};

// One warp's ring and what it needs to ask for a step.
template <class TR> struct hop_ring {
    uint32_t at; // K, then V
    uint32_t bar_k;
    uint32_t bar_v;

    // K (which = 0) or V of step s of an item; lane 0, the part not in use.
    __device__ __forceinline__ void ask(const hop_args_t &a, const hop_maps_t &maps,
                                        const hop_slot_t &slot, uint32_t page_list, uint32_t s,
                                        uint32_t which) const {
        const uint32_t box = a.step_tok;
        const uint32_t page_mask = (1u << a.pod.page_lg) - 1;
        const uint32_t tok = slot.tok + s * TR::STEP;
        const uint32_t bar = which ? bar_v : bar_k;
        const uint32_t cnt = min((slot.kv_end - tok + box - 1) & ~(box - 1), // box: a power of two
                                 static_cast<uint32_t>(TR::STEP));
        const CUtensorMap *map = which ? &maps.v_step : &maps.k_step;
        ptx_mbarrier_arrive_expect(bar, cnt * TR::DIM * 2);
        for (uint32_t r = 0; r < cnt; r += box) {
            uint32_t page = ptx_ld_shared(
                page_list + (((tok + r) >> a.pod.page_lg) - (slot.tok >> a.pod.page_lg)) * 4);
            uint32_t row = page * a.pod.nhead_kv + slot.head_kv;
            for (uint32_t h = 0; h < TR::HALF; h += box == TR::STEP ? TR::HALF : 1) {
                ptx_tma_load_4d(at + which * HOP_STEP_SZ + h * TR::STEP_HALF_SZ + r * 128, map, bar,
                                0, (tok + r) & page_mask, h, row, a.decode_l2);
            }
        }
    }
};

// s = K Q^T.  The loads of one batch of four tiles run beside the products
// of the one before.
template <class TR>
static __device__ __forceinline__ void hop_decode_scores(float (&s)[TR::STEP / 16][4],
                                                         const uint32_t (&rQ)[TR::DIM / 16][2],
                                                         uint32_t sK) {
    constexpr int MT = TR::STEP / 16;
    constexpr int TILE = MT * TR::DIM / 16;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t at = sK + lane % 16 * 128 + (((lane / 16) ^ (lane & 7)) << 4);
    uint32_t r[2][4][4];
#pragma unroll
    for (int a = 0; a < MT; a++) {
#pragma unroll
        for (int c = 0; c < 4; c++) s[a][c] = 0.0f;
    }
#pragma unroll
    for (int b = 0; b <= TILE / 4; b++) {
#pragma unroll
        for (int i = 0; i < 4 && b < TILE / 4; i++) {
            int x = (4 * b + i) / MT, a = (4 * b + i) % MT;
            ptx_ldmatrix_x4(r[b & 1][i],
                            ((at + a * 2048) ^ (x % 4 << 5)) + x / 4 * TR::STEP_HALF_SZ);
        }
        if (b == 0) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int x = (4 * (b - 1) + i) / MT, a = (4 * (b - 1) + i) % MT;
            ptx_mma_m16n8k16<typename TR::elem>(s[a], r[(b - 1) & 1][i], rQ[x][0], rQ[x][1]);
        }
    }
}

// o += V^T P^T.
template <class TR>
static __device__ __forceinline__ void hop_decode_values(float (&o)[TR::DIM / 16][4],
                                                         const uint32_t (&rP)[TR::STEP / 16][2],
                                                         uint32_t sV) {
    constexpr int DT = TR::DIM / 16;
    constexpr int TILE = TR::STEP / 16 * DT;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t at =
        sV + (lane % 8 + lane / 16 * 8) * 128 + (((lane / 8 % 2) ^ (lane & 7)) << 4);
    uint32_t r[2][4][4];
#pragma unroll
    for (int b = 0; b <= TILE / 4; b++) {
#pragma unroll
        for (int i = 0; i < 4 && b < TILE / 4; i++) {
            int a = (4 * b + i) / DT, x = (4 * b + i) % DT;
            ptx_ldmatrix_x4_trans(r[b & 1][i],
                                  ((at + a * 2048) ^ (x % 4 << 5)) + x / 4 * TR::STEP_HALF_SZ);
        }
        if (b == 0) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int a = (4 * (b - 1) + i) / DT, x = (4 * (b - 1) + i) % DT;
            ptx_mma_m16n8k16<typename TR::elem>(o[x], r[(b - 1) & 1][i], rP[a][0], rP[a][1]);
        }
    }
}

// Scores to weights, as operands; earlier sums are brought to the new
// maximum.  left: keys of the step, of which every column sees `seen`, and
// this lane's columns do not see the last lack[].
template <class TR>
static __device__ __forceinline__ void hop_decode_softmax(
    decode_sums<TR> &w, float (&s)[TR::STEP / 16][4], uint32_t (&rP)[TR::STEP / 16][2],
    int32_t left, int32_t seen, const int32_t (&lack)[2], float scale_lg2) {
    constexpr int MT = TR::STEP / 16;
    const uint32_t lane = threadIdx.x % 32;
    if (seen < TR::STEP) {
        const int32_t key = static_cast<int32_t>(lane / 4);
#pragma unroll
        for (int a = 0; a < MT; a++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (a * 16 + key + c / 2 * 8 >= left - lack[c % 2]) s[a][c] = -CUDART_INF_F;
            }
        }
    }
    float top[2] = {s[0][0], s[0][1]};
#pragma unroll
    for (int a = 0; a < MT; a++) {
#pragma unroll
        for (int h = 0; h < 2; h++) top[h] = fmaxf(top[h], fmaxf(s[a][h], s[a][2 + h]));
    }
    int is_moved = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int d = 4; d < 32; d *= 2) top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], d));
        top[h] = fmaxf(w.m[h], top[h] * scale_lg2);
        is_moved |= top[h] != w.m[h];
    }
    if (__any_sync(~0u, is_moved)) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float base = top[h] == -CUDART_INF_F ? 0.0f : top[h];
            float fix = ptx_ex2(w.m[h] - base);
            w.m[h] = top[h];
            w.l[h] *= fix;
#pragma unroll
            for (int x = 0; x < TR::DIM / 16; x++) {
                w.o[x][h] *= fix;
                w.o[x][2 + h] *= fix;
            }
        }
    }
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; h++) base[h] = w.m[h] == -CUDART_INF_F ? 0.0f : w.m[h];
#pragma unroll
    for (int a = 0; a < MT; a++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[a][c] = ptx_ex2(fmaf(s[a][c], scale_lg2, -base[c % 2]));
            w.l[c % 2] += s[a][c];
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            rP[a][c] =
                ptx_movmatrix_trans(pod_pack<typename TR::elem>(s[a][2 * c], s[a][2 * c + 1]));
        }
    }
}

// Values of keys from `left` of the step on become zeros: behind a
// sequence's end may lie NaN.
template <class TR>
static __device__ __forceinline__ void hop_decode_clear(uint32_t sV, uint32_t left) {
    for (uint32_t i = left * 8 + threadIdx.x % 32; i < TR::STEP * 8; i += 32) {
#pragma unroll
        for (uint32_t h = 0; h < TR::HALF; h++) {
            ptx_st_shared_16(sV + h * TR::STEP_HALF_SZ + i * 16, make_uint4(0, 0, 0, 0));
        }
    }
    ptx_fence_proxy_async(); // the copy engine writes here next
    __syncwarp();
}

// Of a step that some column does not see whole: a token whose V is not
// finite gets V zero and K NaN (prefill's hop_heal has the reason).
template <class TR>
static __device__ __forceinline__ void hop_decode_heal(uint32_t sK, uint32_t sV) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < HOP_STEP_SZ / 16; i += 32) {
        if (pod_is_finite<typename TR::elem>(ptx_ld_shared_128(sV + i * 16))) continue;
        ptx_st_shared_128(sV + i * 16, make_uint4(0, 0, 0, 0));
        ptx_st_shared_128(sK + i * 16, make_uint4(~0u, ~0u, ~0u, ~0u)); // NaN of either type
    }
    ptx_fence_proxy_async(); // the copy engine writes here next
    __syncwarp();
}

// Query rows as B operands; those past the last repeat it.
template <class TR>
static __device__ __forceinline__ void hop_decode_q(uint32_t (&rQ)[TR::DIM / 16][2], uint32_t sQ,
                                                    uint32_t row_cnt) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t at = sQ + min(lane / 4, row_cnt - 1) * TR::DIM * 2 + lane % 4 * 4;
#pragma unroll
    for (int x = 0; x < TR::DIM / 16; x++) {
        rQ[x][0] = ptx_ld_shared(at + x * 32);
        rQ[x][1] = ptx_ld_shared(at + x * 32 + 16);
    }
}

// Keys of an item that this lane's columns do not see: those behind their
// tokens.
static __device__ __forceinline__ void hop_decode_lack(int32_t (&lack)[2], const hop_slot_t &slot,
                                                       uint32_t magic) {
    const int32_t end = static_cast<int32_t>(slot.kv_end);
    const uint32_t last = slot.row_cnt - 1u;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t p = slot.row + min(threadIdx.x % 4 * 2 + h, last);
        int32_t see = slot.past + static_cast<int32_t>(pod_token_of(p, magic));
        lack[h] = end - min(max(see, 0), end);
    }
}

// Leaves a class in the scratch: [row][O, m, l].
template <class TR>
static __device__ __forceinline__ void hop_decode_leave(decode_sums<TR> &w, uint32_t cell,
                                                        uint32_t row_cnt) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int d = 4; d < 32; d *= 2) w.l[h] += __shfl_xor_sync(~0u, w.l[h], d);
        uint32_t head = lane % 4 * 2 + h;
        if (head >= row_cnt) continue;
        uint32_t at = cell + (head * TR::CELL + lane / 4) * 4;
#pragma unroll
        for (int x = 0; x < TR::DIM / 16; x++) {
            ptx_st_shared_f(at + x * 64, w.o[x][h]);
            ptx_st_shared_f(at + x * 64 + 32, w.o[x][2 + h]);
        }
        if (lane < 4) {
            ptx_st_shared_f(cell + (head * TR::CELL + TR::DIM) * 4, w.m[h]);
            ptx_st_shared_f(cell + (head * TR::CELL + TR::DIM + 1) * 4, w.l[h]);
        }
    }
}

// Warp `warp` of the map's warp_cnt, until the slots say that no more comes.
template <class TR>
static __device__ __forceinline__ void decode_consume(const hop_args_t &a, const hop_maps_t &maps,
                                                      uint32_t smem, hop_control_t *c,
                                                      const hop_decode_map<TR> &map,
                                                      uint32_t warp) {
    const uint32_t lane = threadIdx.x % 32;
    const float scale_lg2 = a.pod.scale_lg2;
    hop_ring<TR> ring;
    ring.at = map.ring + warp * TR::RING_SZ;
    ring.bar_k = HOP_AT(smem, ring_k) + 8 * warp;
    ring.bar_v = HOP_AT(smem, ring_v) + 8 * warp;
    uint32_t parity = 0;
    uint32_t stall = 0;
    bool is_asked = false; // the first step of this item was asked for in the last one
#pragma unroll 1
    for (uint32_t k = 0;; k++) {
        ptx_mbarrier_wait(HOP_AT(smem, slot_full) + k % HOP_SLOT * 8, k / HOP_SLOT & 1);
        hop_slot_t *slot = c->slot + k % HOP_SLOT;
        if (slot->index == TDM_TICKET_NONE) break;
        const uint32_t step_cnt = slot->step_cnt;
        const uint32_t first = slot->first_warp;
        const uint32_t own = warp >= first ? warp - first : warp + map.warp_cnt - first;
        const uint32_t page_list = map.page + k % HOP_SLOT * HOP_PAGE_MAX * 4;
        decode_sums<TR> w;
        if (own < step_cnt) {
            if (!is_asked && lane == 0) {
                ring.ask(a, maps, *slot, page_list, own, 0);
                ring.ask(a, maps, *slot, page_list, own, 1);
            }
            if (own == 0 && lane == 0) {
                pod_clock now = pod_clock_now();
                slot->ns = now.ns;
                slot->cycle = now.cycle;
            }
            uint32_t rQ[TR::DIM / 16][2];
            hop_decode_q<TR>(rQ, map.q + k % HOP_SLOT * map.q_sz, slot->row_cnt);
            int32_t lack[2];
            hop_decode_lack(lack, *slot,
                            reinterpret_cast<const tdm_pod_head_t *>(a.pod.blob)->group_magic);
#pragma unroll
            for (int x = 0; x < TR::DIM / 16; x++) {
#pragma unroll
                for (int i = 0; i < 4; i++) w.o[x][i] = 0.0f;
            }
            w.m[0] = w.m[1] = -CUDART_INF_F;
            w.l[0] = w.l[1] = 0.0f;
            // The slot, list and step to ask for next.
            const hop_slot_t *to = slot;
            uint32_t to_list = page_list;
            uint32_t to_step = own;
#pragma unroll 1
            for (uint32_t s = own; s < step_cnt; s += map.warp_cnt) {
                const uint32_t left = slot->kv_end - slot->tok - s * TR::STEP;
                const int32_t seen = static_cast<int32_t>(slot->seen - slot->tok - s * TR::STEP);
                is_asked = true;
                to_step = s + map.warp_cnt;
                if (to_step >= step_cnt) { // the next item, if this warp has a part in it
                    const uint32_t n = (k + 1) % HOP_SLOT;
                    ptx_mbarrier_wait(HOP_AT(smem, slot_full) + n * 8, (k + 1) / HOP_SLOT & 1);
                    to = c->slot + n;
                    to_list = map.page + n * HOP_PAGE_MAX * 4;
                    uint32_t at = to->first_warp;
                    to_step = warp >= at ? warp - at : warp + map.warp_cnt - at;
                    is_asked = to->index != TDM_TICKET_NONE && to_step < to->step_cnt;
                }
                float t[TR::STEP / 16][4];
                uint32_t rP[TR::STEP / 16][2];
                ptx_mbarrier_wait_counted(ring.bar_k, parity, &stall);
                if (seen < TR::STEP && slot->seen < slot->kv_end) {
                    ptx_mbarrier_wait(ring.bar_v, parity);
                    hop_decode_heal<TR>(ring.at, ring.at + HOP_STEP_SZ);
                }
                hop_decode_scores<TR>(t, rQ, ring.at);
                __syncwarp();
                if (is_asked && lane == 0) ring.ask(a, maps, *to, to_list, to_step, 0);
                hop_decode_softmax<TR>(w, t, rP, static_cast<int32_t>(left), seen, lack, scale_lg2);
                ptx_mbarrier_wait_counted(ring.bar_v, parity, &stall);
                if (left < TR::STEP) hop_decode_clear<TR>(ring.at + HOP_STEP_SZ, left);
                hop_decode_values<TR>(w.o, rP, ring.at + HOP_STEP_SZ);
                __syncwarp();
                if (is_asked && lane == 0) ring.ask(a, maps, *to, to_list, to_step, 1);
                parity ^= 1;
            }
        } else {
            is_asked = false;
        }
        // The scratch is free when the item before has been folded; every
        // warp waits for each item in turn, so that it stays within a phase.
        if (k) ptx_mbarrier_wait(HOP_AT(smem, scratch_empty), (k - 1) & 1);
        if (own < step_cnt) {
            hop_decode_leave<TR>(w, map.scratch + own * map.cell_sz, slot->row_cnt);
        }
        __syncwarp();
        if (lane == 0) ptx_mbarrier_arrive(HOP_AT(smem, left) + k % HOP_SLOT * 8);
    }
    if (lane == 0 && stall) {
        atomicAdd(&a.pod.count->ring_stall, static_cast<unsigned long long>(stall));
    }
}

#endif // TDM_KERNELS_ATTENTION_HOPPER_DECODE_CUH
