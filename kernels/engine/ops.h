/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_OPS_H
#define TDM_KERNELS_ENGINE_OPS_H

/* The op table: what a device must know to be walked by the engine.
   Activations live with the device and are named by what they are:

     residual [row][hidden]     the stream that every layer adds to
     q k v    [row][head][dim]  of the current layer
     att      [row][head][dim]  attention's output
     logits   [i][vocab]        of the rows named in the last `logits`

     embed ; layers x ( qkv ; rope_append ; attention ; attn_out ; ffn ) ;
     groups of sampled rows x ( logits ; sample )

   Rows are all prefill rows in slice order, then the decodes.  Every op
   is complete, for a following op of the same ctx, when it returns; a
   device with a queue may return early as long as it keeps that order,
   except `sample`, which returns with the host's numbers. */

#include "kernels/include/attention.h"
#include "kernels/sample/sample.h"

TDM_BEGIN_DECLS

typedef struct tdm_engine_row {
    int32_t token; /* in [0, vocab) */
    uint32_t slot;
    uint32_t pos;
} tdm_engine_row_t;

/* One iteration, constant while its layers are walked. */
typedef struct tdm_engine_iter {
    uint32_t row_cnt;
    const tdm_engine_row_t *row; /* [row_cnt] */
    const tdm_attn_plan_t *attn;
    const uint32_t *page_table; /* [slot][table_stride] */
    uint32_t table_stride;
} tdm_engine_iter_t;

typedef struct tdm_engine_ops {
    /* residual[r] = the embedding of row r's token */
    void (*embed)(void *ctx, const tdm_engine_iter_t *it);
    /* q, k, v = projections of the normed residual */
    void (*qkv)(void *ctx, const tdm_engine_iter_t *it, uint32_t layer);
    /* q and k rotated by position; k and v stored in the KV pages */
    void (*rope_append)(void *ctx, const tdm_engine_iter_t *it, uint32_t layer);
    /* att; what was done is added to stats */
    void (*attention)(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                      tdm_attn_stats_t *stats);
    /* residual += output projection of att */
    void (*attn_out)(void *ctx, const tdm_engine_iter_t *it, uint32_t layer);
    /* residual += SwiGLU of the normed residual */
    void (*ffn)(void *ctx, const tdm_engine_iter_t *it, uint32_t layer);
    /* logits of cnt rows, at most logits_max of the engine's config */
    void (*logits)(void *ctx, const uint32_t *row, uint32_t cnt);
    /* one token per row of the last `logits`; in[i].logits is the op's to
       fill in */
    void (*sample)(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out);
} tdm_engine_ops_t;

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_OPS_H */
