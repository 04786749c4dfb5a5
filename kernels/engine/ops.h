/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_OPS_H
#define TDM_KERNELS_ENGINE_OPS_H

/* The op table: what a device must know to be walked by the engine.
   Activations live with the device and are named by what they are:

     residual [row][hidden]     the stream that every layer adds to
     q k v    [row][head][dim]  of the current layer
     att      [row][head][dim]  attention's output
     logits   [i][vocab]        of the rows named in the last `logits`

     start    apply ; begin
     compute  embed ; layers x ( qkv ; rope_append ; attention ; attn_out ; ffn ) ;
              groups of sampled rows x ( logits ; sample ) ; post
     finish   finish

   Rows are all prefill rows in slice order, then the decodes.  Every op
   is complete, for a following op of the same ctx, when it returns; a
   device with a queue, which is one that has `finish`, may return early
   as long as it keeps that order.  A device that fails keeps its error
   and makes the following ops do nothing; `finish` tells it.

   At depth 2 the next iteration may be started before one is finished, and
   the row of a decode then has no token yet: the device itself puts in
   what it drew for the slot before. */

#include "appliance/base/status.h"
#include "kernels/include/attention.h"
#include "kernels/sample/sample.h"

TDM_BEGIN_DECLS

#define TDM_ROW_DRAWN (-1) /* the token is what the iteration before draws for the slot */

typedef struct tdm_engine_row {
    int32_t token; /* in [0, vocab); at depth 2, of a device with a queue, also TDM_ROW_DRAWN,
                      which runs as 0 where no token could be drawn */
    uint32_t slot;
    uint32_t pos;
} tdm_engine_row_t;

/* One iteration, constant while its layers are walked. */
typedef struct tdm_engine_iter {
    uint32_t turn; /* in [0, depth): which of those under way, for what a device keeps twice */
    const tdm_plan_t *plan; /* as it came, checked and applied */
    uint32_t row_cnt;
    const tdm_engine_row_t *row; /* [row_cnt] */
    const tdm_attn_seq_t *seq;   /* [slice_cnt + decode_cnt of the plan] */
    uint32_t wanted_cnt;
    const uint32_t *wanted;      /* [wanted_cnt] rows that sample, plan order */
    const tdm_sample_in_t *in;   /* [wanted_cnt] what is asked of them, without logits */
    const tdm_attn_plan_t *attn; /* of the engine's work list; NULL where `begin` plans */
    const uint32_t *page_table;  /* [slot][table_stride] */
    uint32_t table_stride;
    uint32_t route;       /* tdm_route_t that runs */
    uint32_t reason;      /* TDM_FALLBACK_* of a downgrade, or 0 */
    uint32_t is_replayed; /* `begin` has started all up to `logits`: the walk is left out */
} tdm_engine_iter_t;

typedef struct tdm_engine_ops {
    /* Hears every plan, idle ones too, after the slots took it up; NULL: not
       needed.  For a device that keeps page tables of its own. */
    void (*apply)(void *ctx, const tdm_plan_t *plan);
    /* For a device with a planner of its own; NULL: the engine's work list
       plans.  Plans the attention of it->seq for the route that the plan
       wants, sends what the iteration needs, and fills it->route,
       it->reason and it->is_replayed. */
    void (*begin)(void *ctx, tdm_engine_iter_t *it);
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
       fill in; NULL out: `finish` will ask for them */
    void (*sample)(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out);
    /* All of the iteration is queued; NULL with `finish`. */
    void (*post)(void *ctx, const tdm_engine_iter_t *it);
    /* The end of the oldest iteration under way, NULL for a device without a
       queue: waits, writes the wanted rows' tokens to out [wanted_cnt], adds
       to stats what its attention did, and answers TDM_ERR_INTERNAL where
       any op since `begin` failed. */
    tdm_status_t (*finish)(void *ctx, const tdm_engine_iter_t *it, tdm_sample_out_t *out,
                           tdm_attn_stats_t *stats, tdm_error_t *err);
} tdm_engine_ops_t;

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_OPS_H */
