/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ATTENTION_OPS_H
#define TDM_KERNELS_CPU_ATTENTION_OPS_H

/* The arithmetic that an instruction set provides to attention, on plain
   arrays: reduce one KV range of a tile, and fold two partials.

   A tile's rows are token-major, the group's query heads inner: row r is
   token r / group, head r % group.  Scores are kept in powers of two:
   queries are scaled by log2(e) on the way in. */

#include "kernels/cpu/isa.h"
#include "kernels/include/attention.h"

/* tdm_attn_rows_t is a running softmax of a tile: o is not yet divided by
   l.  An empty row has m = -inf, l = 0, o = 0. */
typedef struct tdm_attn_rows {
    float *o; /* [row_cnt][stride] */
    float *m; /* [row_cnt] greatest score so far, log2 */
    float *l; /* [row_cnt] sum of 2^(score - m) */
} tdm_attn_rows_t;

/* tdm_attn_tile_t is the tile of the item being run, one per SM. */
typedef struct tdm_attn_tile {
    uint32_t row_cnt;
    uint32_t tok_cnt;
    uint32_t group;
    uint32_t stride;   /* head_dim rounded up to TDM_ATTN_PAD */
    uint32_t kv_first; /* keys that the first token sees */
    uint32_t kv_cnt;   /* keys that the last token sees */
    uint32_t head_kv;
    float k_scale; /* of TDM_KV_E4M3: a key is its code times this */
    float v_scale;
    const tdm_kv_layout_t *kv;
    const void *k_pool;
    const void *v_pool;
    const uint32_t *page; /* the sequence's page table */
    float *q;             /* [row_cnt][stride], scaled, padded with 0 */
    float *s;             /* [row_cnt][TDM_KV_PAGE_TOKENS] scores, then weights */
    float *k_copy;        /* [TDM_KV_PAGE_TOKENS][stride] */
    float *v_copy;        /* [TDM_KV_PAGE_TOKENS][stride] */
} tdm_attn_tile_t;

/* What an instruction set provides. */
typedef struct tdm_attn_ops {
    /* Reduces one KV range of the tile to a partial. */
    void (*range)(const tdm_attn_tile_t *t, uint32_t range, tdm_attn_rows_t out);
    /* a := a folded with b, row by row; empty + x = x, x + empty = x, bit
       for bit. */
    void (*fold)(tdm_attn_rows_t a, tdm_attn_rows_t b, uint32_t row_cnt, uint32_t stride);
} tdm_attn_ops_t;

extern const tdm_attn_ops_t tdm_attn_ops_scalar;
#if defined(__x86_64__)
extern const tdm_attn_ops_t tdm_attn_ops_avx2;
extern const tdm_attn_ops_t tdm_attn_ops_avx512;
#endif

/* tdm_attn_ops_of gives those of a resolved instruction set. */
const tdm_attn_ops_t *tdm_attn_ops_of(uint32_t isa);

#endif /* TDM_KERNELS_CPU_ATTENTION_OPS_H */
