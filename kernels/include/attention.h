/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_INCLUDE_ATTENTION_H
#define TDM_KERNELS_INCLUDE_ATTENTION_H

/* The attention door: what a backend is given to compute causal
   grouped-query attention of one layer over a paged KV cache, for all
   rows of one iteration at once.  Plain data, one form for the CPU and
   for CUDA.

     rows of the iteration            tdm_attn_plan_t (once per iteration,
     seq[] : slices, then decodes     kernels/worklist)
         |                              item[prefill][]   item[decode][]
         |  tiles of query tokens             \             /
         v                                     ticket (kernels/ticket)
     (sequence, KV head, tile, ranges)             |
                                             SM: item -> out rows
                                                     or partials -> merge

   One iteration's plan serves all its layers; a tdm_attn_launch_t names
   the tensors of one layer.

   Reproducible bits.  A KV range is TDM_ATTN_RANGE_TOKENS tokens, counted
   from position 0.  Every row reduces each range on its own, block by
   block of TDM_KV_PAGE_TOKENS tokens in order, to a partial (m, l, O);
   the partials are folded in index order, left to right.  An item may
   hold one range or many and a tile one token or many: the arithmetic of
   a row is the same, so its bits depend on its own query, its own KV and
   its position alone; not on other rows, on how a prompt was cut into
   slices, on prefill or decode, on the route or on the number of SMs.
   (Two instruction sets or two backends may differ.)

   Ownership: the caller owns every array; a launch keeps no pointer.
   Limits: TDM_KV_PAGE_TOKENS per page; head_dim even, at most
   TDM_HEAD_DIM_MAX; group (query heads per KV head) at most
   TDM_ATTN_GROUP_MAX. */

#include "appliance/abi/limits.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/reasons.h"
#include "appliance/abi/result.h"
#include "appliance/base/size.h"
#include "kernels/include/kv.h"

TDM_BEGIN_DECLS

/* Tokens of one KV range, 8 pages.  Fixed for ever for one image: it is
   part of the definition of the bits.  Smaller gives more parallel work
   at short contexts and more merging (one fold of head_dim floats per
   row and range: 0.2 % of the work of 512 keys); larger leaves SMs idle
   when few sequences decode. */
#define TDM_ATTN_RANGE_TOKENS 512
#define TDM_ATTN_RANGE_MAX    (TDM_CONTEXT_MAX / TDM_ATTN_RANGE_TOKENS)

#define TDM_ATTN_HEAD_MAX  256 /* query heads */
#define TDM_ATTN_GROUP_MAX 128 /* query heads per KV head */
#define TDM_ATTN_PAD       16  /* floats: row stride of partials and scratch */
#define TDM_ATTN_TILE_ROWS 64  /* rows (tokens x group) a prefill tile aims at */

#define TDM_ATTN_SEQ_MAX (TDM_PLAN_SLICE_MAX + TDM_SEQ_MAX)

/* --- KV pools ------------------------------------------------------- */

/* tdm_kv_layout_t is the shape of one layer's K pool, and of its V pool:
   [page_cnt][nhead_kv][TDM_KV_PAGE_TOKENS][head_dim] elements. */
typedef struct tdm_kv_layout {
    uint32_t page_cnt;
    uint32_t nhead_kv;
    uint32_t head_dim;
    uint32_t dtype; /* tdm_kv_dtype_t */
} tdm_kv_layout_t;

/* tdm_kv_elem_sz: bytes of one element. */
static inline uint64_t tdm_kv_elem_sz(const tdm_kv_layout_t *l) {
    return tdm_kv_dtype_sz(l->dtype);
}

/* tdm_kv_offset gives the element offset of row `token` (in [0,
   TDM_KV_PAGE_TOKENS)) of a KV head in a page.  64-bit throughout: pools
   past 2^32 elements are ordinary. */
static inline uint64_t tdm_kv_offset(const tdm_kv_layout_t *l, uint32_t page, uint32_t head_kv,
                                     uint32_t token) {
    return (((uint64_t)page * l->nhead_kv + head_kv) * TDM_KV_PAGE_TOKENS + token) * l->head_dim;
}

/* tdm_kv_pool_sz stores the bytes of one layer's K pool (V takes as many)
   and returns 1; 0 where 64 bits do not hold them. */
TDM_MUST_USE static inline int tdm_kv_pool_sz(const tdm_kv_layout_t *l, uint64_t *sz_out) {
    uint64_t sz;
    if (!tdm_size_mul(l->page_cnt, l->nhead_kv, &sz)) return 0;
    if (!tdm_size_mul(sz, TDM_KV_PAGE_TOKENS, &sz)) return 0;
    if (!tdm_size_mul(sz, l->head_dim, &sz)) return 0;
    return tdm_size_mul(sz, tdm_kv_elem_sz(l), sz_out);
}

/* --- the plan of one iteration -------------------------------------- */

/* tdm_attn_seq_t is one sequence's query rows.  Its i-th token sits in
   row `row + i` of q and out and attends to positions
   [0, kv_cnt - cnt + i]; a token whose last position would be negative is
   an empty row: output 0, lse -inf.  A slice {pos, cnt} has kv_cnt =
   pos + cnt; a decode at pos has cnt = 1, kv_cnt = pos + 1. */
typedef struct tdm_attn_seq {
    uint32_t slot;   /* row of the page tables */
    uint32_t kv_cnt; /* tokens of KV, this iteration's included */
    uint32_t cnt;    /* query tokens, >= 1 */
    uint32_t row;    /* of the first one in q and out */
} tdm_attn_seq_t;

#define TDM_ATTN_NO_MERGE UINT32_MAX

/* tdm_attn_item_t is one virtual CTA's work: query tokens [tok, tok +
   tok_cnt) of seq[seq], all query heads of one KV head, KV ranges
   [range, range + range_cnt).  With merge == TDM_ATTN_NO_MERGE it holds
   all ranges of its tile and writes the output rows itself; otherwise it
   writes one partial per range and the last item of its merge to finish
   folds them. */
typedef struct tdm_attn_item {
    uint32_t seq;
    uint32_t tok;
    uint32_t tok_cnt;
    uint32_t head_kv;
    uint32_t range;
    uint32_t range_cnt; /* 0 only where every row of the tile is empty */
    uint32_t merge;     /* into merge[], or TDM_ATTN_NO_MERGE */
    uint32_t cost;      /* KV blocks spanned: the order is longest first */
} tdm_attn_item_t;

/* tdm_attn_merge_t is the tile that several items share.  Its partials
   lie in the workspace at part_off floats, rows being token-major, the
   group's query heads inner:
     O [range_cnt][row_cnt][stride], then m [range_cnt][row_cnt], then l,
   stride being head_dim rounded up to TDM_ATTN_PAD. */
typedef struct tdm_attn_merge {
    uint64_t part_off;
    uint32_t item_cnt;  /* items that arrive */
    uint32_t range_cnt; /* partials, over all items */
} tdm_attn_merge_t;

/* tdm_attn_part_floats: what the partials of one tile take. */
static inline uint64_t tdm_attn_part_floats(uint32_t row_cnt, uint32_t head_dim,
                                            uint32_t range_cnt) {
    uint64_t stride = tdm_size_align(head_dim, TDM_ATTN_PAD);
    return tdm_size_align(range_cnt * row_cnt * (stride + 2), TDM_CACHE_LINE / sizeof(float));
}

/* tdm_attn_plan_t is what tdm_worklist_build (kernels/worklist) makes.
   The arrays are the work list's; kinds are TDM_KIND_*: seq[] below
   prefill_seq_cnt is prefill, the rest decode. */
typedef struct tdm_attn_plan {
    uint32_t route;  /* tdm_route_t to run: the wanted one or a downgrade */
    uint32_t reason; /* TDM_FALLBACK_* where it is a downgrade, else 0 */
    uint32_t seq_cnt;
    uint32_t prefill_seq_cnt;
    uint32_t row_cnt; /* rows of q and out */
    uint32_t group;   /* query heads per KV head */
    uint32_t item_cnt[TDM_KIND_CNT];
    uint32_t merge_cnt;
    uint32_t tile_tok;       /* tokens of a full prefill tile */
    uint64_t part_float_cnt; /* floats of workspace the partials take */
    /* Model-derived figures of one layer. */
    uint64_t split_cnt;     /* items beyond one per (tile, KV head); a decode is one tile */
    uint64_t part_cnt;      /* partials folded by merges: tiles x ranges */
    uint64_t kv_read_bytes; /* distinct K and V bytes the rows attend to */
    uint64_t flops;         /* 4 * head_dim per (row, visible key) */

    const tdm_attn_seq_t *seq;                 /* [seq_cnt] */
    const tdm_attn_item_t *item[TDM_KIND_CNT]; /* [item_cnt[kind]], longest first */
    const tdm_attn_merge_t *merge;             /* [merge_cnt] */
} tdm_attn_plan_t;

/* --- one layer ------------------------------------------------------ */

/* tdm_attn_launch_t names one layer's tensors.  On the CPU activations
   are float32.  K and V of every attended position must have been
   written; nothing else of the pools is read. */
typedef struct tdm_attn_launch {
    const tdm_attn_plan_t *plan;
    const void *q;              /* [row_cnt][nhead_q][head_dim], rotated */
    void *out;                  /* [row_cnt][nhead_q][head_dim] */
    float *lse;                 /* [row_cnt][nhead_q] natural log, or NULL */
    const void *k_pool;         /* this layer's, tdm_kv_layout_t */
    const void *v_pool;         /* this layer's */
    const uint32_t *page_table; /* [slot][table_stride] page numbers in [0, page_cnt) */
    uint32_t table_stride;
    float scale;          /* of the scores, 1 / sqrt(head_dim) as a rule */
    const float *k_scale; /* [nhead_kv], TDM_KV_E4M3: what a code is multiplied by; else NULL */
    const float *v_scale; /* [nhead_kv] likewise */
} tdm_attn_launch_t;

/* tdm_attn_stats_t is what launches did; a launch adds to it, so one
   zeroed struct serves an iteration.  Fields as in tdm_result_t. */
typedef struct tdm_attn_stats {
    uint64_t vcta_planned[TDM_KIND_CNT];
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t vcta_ns[TDM_KIND_CNT];
    uint64_t colocated_ns;
    uint64_t split_cnt;
    uint64_t merge_cnt; /* partials folded */
    uint64_t kv_read_bytes;
    uint64_t flops;
    uint64_t wall_ns;
    uint32_t tile_row; /* of a full prefill tile, tokens x group; 0: no prefill */
    uint32_t tile_key; /* keys of one step of it */
    /* What a GPU's log says besides; 0 of the CPU. */
    uint64_t overlap_ns;              /* wall time with both kinds running anywhere */
    uint64_t tail_ns;                 /* SM-time between an SM's last item and the launch's end */
    uint64_t role_switch_cnt;         /* times that an SM turned to the other kind */
    uint64_t ring_stall_cnt;          /* times that keys or values were waited for */
    uint32_t sm_clock_khz;            /* of the last launch: cycles over time inside items */
    uint32_t slot_cnt;                /* CTAs of a launch */
    uint64_t stage_ns[TDM_STAGE_CNT]; /* of an iteration that was timed */
    uint64_t idle_ns;                 /* of the device before it (appliance/abi/result.h) */
    int64_t queue_ns;                 /* the host's time to queue the iteration */
    uint64_t upload_bytes;
    uint64_t graph_bytes;
    uint32_t graph_cnt;
    uint32_t graph; /* tdm_graph_use_t */
} tdm_attn_stats_t;

TDM_END_DECLS

#endif /* TDM_KERNELS_INCLUDE_ATTENTION_H */
