/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_WORKLIST_WORKLIST_H
#define TDM_KERNELS_WORKLIST_WORKLIST_H

/* tdm_worklist turns the rows of one iteration into the items of
   kernels/include/attention.h.  Pure host C: no clock, no allocation, no
   I/O; the same input gives the same list.

     seq[]: slices, then decodes
       -> tiles: tile_tok query tokens, a decode is one
       -> spans of whole KV ranges, one item per (tile, KV head, span)
       -> counting sort per kind, longest first
       -> merges, and where their partials lie

   Tiles are anchored at position 0 of the sequence and tile_tok divides
   TDM_KV_PAGE_TOKENS, so all rows of a tile end in the same KV page.

   Spans are for balance only.  No item is longer than 1 / (4 * sm_cnt) of
   its kind's ranges; a tile longer than that is split, into at most
   4 * sm_cnt more items for the whole kind.  With one SM nothing is
   split.  No choice made here changes a bit of the output (attention.h
   says why).

   Bounds.  With every tile whole, a legal iteration has at most
   tdm_worklist_item_floor items of a kind, so it always fits.  Where the
   split list would pass a bound it is built whole instead, and a hybrid
   iteration then runs SERIAL under TDM_FALLBACK_workspace.

   Ownership: the caller gives memory; the plan points into it and holds
   until the next build. */

#include "appliance/base/status.h"
#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

typedef struct tdm_worklist tdm_worklist_t;

/* Zero in a bound means: as many as never make a build fall back
   (partials: at most TDM_WORKLIST_PART_FLOATS). */
typedef struct tdm_worklist_config {
    uint32_t nhead_q;
    tdm_kv_layout_t kv;
    uint32_t sm_cnt;                 /* SMs that will draw, >= 1 */
    uint32_t seq_max;                /* decodes of one iteration, 1..TDM_SEQ_MAX */
    uint32_t token_max;              /* prefill tokens of one, 1..TDM_PLAN_TOKEN_MAX */
    uint32_t context_max;            /* tokens of one sequence, 1..TDM_CONTEXT_MAX */
    uint32_t item_max[TDM_KIND_CNT]; /* at least the floor of the kind */
    uint32_t merge_max;
    uint64_t part_float_max; /* floats of partials */
} tdm_worklist_config_t;

/* 16 Mi floats, 64 MiB: the default's cap on partials.  Past it a few
   very long sequences on many SMs run whole instead of split. */
#define TDM_WORKLIST_PART_FLOATS (UINT64_C(16) << 20)

/* tdm_worklist_config_check validates config and fills its zero bounds.
   UNSUPPORTED names a shape that no kernel takes. */
TDM_MUST_USE tdm_status_t tdm_worklist_config_check(tdm_worklist_config_t *config,
                                                    tdm_error_t *err);

/* tdm_worklist_item_floor: the most items of a kind that an iteration
   needs when nothing is split. */
uint32_t tdm_worklist_item_floor(const tdm_worklist_config_t *config, uint32_t kind);

/* tdm_worklist_tile_tok: query tokens of a full prefill tile, a power of
   two in [1, TDM_KV_PAGE_TOKENS]: about TDM_ATTN_TILE_ROWS rows. */
uint32_t tdm_worklist_tile_tok(uint32_t group);

/* tdm_worklist_footprint: bytes for a checked config. */
uint64_t tdm_worklist_footprint(const tdm_worklist_config_t *config);

/* tdm_worklist_init formats mem, footprint bytes, TDM_CACHE_LINE aligned,
   for a checked config. */
tdm_worklist_t *tdm_worklist_init(void *mem, const tdm_worklist_config_t *config);

/* tdm_worklist_seq gives the array to fill before a build,
   [TDM_PLAN_SLICE_MAX + seq_max]: prefill sequences first, then decodes. */
tdm_attn_seq_t *tdm_worklist_seq(tdm_worklist_t *list);

/* tdm_worklist_build makes the plan for seq[0, prefill_cnt) and seq[prefill_cnt,
   prefill_cnt + decode_cnt).  route is the wanted tdm_route_t; where a
   kind is absent it becomes PREFILL_ONLY, DECODE_ONLY or IDLE, and a
   hybrid iteration that asks for one of those runs SERIAL.

   The sequences must be legal, which the executor validated: cnt >= 1
   (decodes: 1), kv_cnt <= context_max, prefill tokens together at most
   token_max, at most TDM_PLAN_SLICE_MAX slices and seq_max decodes. */
const tdm_attn_plan_t *tdm_worklist_build(tdm_worklist_t *list, uint32_t prefill_cnt,
                                          uint32_t decode_cnt, uint32_t route);

TDM_END_DECLS

#endif /* TDM_KERNELS_WORKLIST_WORKLIST_H */
