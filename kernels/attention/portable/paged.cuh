// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_PAGED_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_PAGED_CUH

// Where the keys of one sequence and KV head lie.

#include "kernels/attention/portable/traits.cuh"

struct pod_paged {
    const uint32_t *table; // this sequence's row
    uint32_t head_kv;
    uint32_t nhead_kv;
    uint32_t page_lg;
    uint32_t kv_cnt; // tokens that were written; what lies behind them is never read

    // Elements from the pool's start to token tok, a multiple of 16; its
    // 15 followers lie behind it in order, for a page holds at least 16.
    // Past kv_cnt the table names no page: page 0 then, for an address
    // that will not be used.
    template <int DIM> __device__ __forceinline__ uint64_t offset(uint32_t tok) const {
        return offset_in<DIM>(page_of(tok), tok);
    }

    // Whether n tokens, from a multiple of n on, lie behind each other.
    __device__ __forceinline__ bool is_one_page(uint32_t n) const { return (1u << page_lg) >= n; }

    // Its two halves, for a caller that asks for the page ahead of time.
    __device__ __forceinline__ uint32_t page_of(uint32_t tok) const {
        return tok < kv_cnt ? __ldg(table + (tok >> page_lg)) : 0;
    }
    template <int DIM>
    __device__ __forceinline__ uint64_t offset_in(uint32_t page, uint32_t tok) const {
        uint64_t row = (static_cast<uint64_t>(page) * nhead_kv + head_kv) << page_lg;
        return (row + (tok & ((1u << page_lg) - 1))) * DIM;
    }
};

static __device__ __forceinline__ pod_paged pod_paged_of(const pod_args_t &a,
                                                         const tdm_attn_seq_t &seq,
                                                         uint32_t head_kv) {
    pod_paged p;
    p.table = a.layer.page_table + static_cast<uint64_t>(seq.slot) * a.layer.table_stride;
    p.head_kv = head_kv;
    p.nhead_kv = a.nhead_kv;
    p.page_lg = a.page_lg;
    p.kv_cnt = seq.kv_cnt;
    return p;
}

// Packed row p of a sequence: its element offset in q and out.
template <int DIM>
static __device__ __forceinline__ uint64_t pod_row_offset(const pod_args_t &a,
                                                          const tdm_attn_seq_t &seq,
                                                          uint32_t head_kv, uint32_t group,
                                                          uint32_t tok, uint32_t head) {
    uint64_t row = static_cast<uint64_t>(seq.row + tok) * a.nhead_q;
    return (row + head_kv * group + head) * DIM;
}

// p / group, by the head's magic number.
static __device__ __forceinline__ uint32_t pod_token_of(uint32_t p, uint32_t magic) {
    return magic ? __umulhi(p, magic) : p;
}

// Keys that query token tok sees; 0 before position 0.
static __device__ __forceinline__ uint32_t pod_visible(const tdm_attn_seq_t &seq, uint32_t tok) {
    int64_t n = static_cast<int64_t>(seq.kv_cnt) - seq.cnt + tok + 1;
    return n > 0 ? static_cast<uint32_t>(n) : 0;
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_PAGED_CUH
