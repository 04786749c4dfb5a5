/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_WORKLIST_WORKLIST_H
#define TDM_KERNELS_WORKLIST_WORKLIST_H

/* tdm_worklist turns the rows of one iteration into the items of
   kernels/include/attention.h.  Pure host C: no clock, no allocation, no
   I/O; the same input gives the same list.

     seq[] (slices, decodes) --> cut tokens into tiles   (prefill: tile_tok,
                                                          decode: 1 token)
                             --> cut KV into spans of whole ranges
                             --> counting sort, longest first, per kind
                             --> merges and their partials' offsets

   Tiles are anchored at position 0 of the sequence, so a tile never
   straddles a KV page.  Splits exist for balance only: while a kind has
   fewer than 4 items per SM, its tiles are split into spans of fewer
   ranges.  They never change bits (see attention.h).

   Bounds.  One unsplit item per (tile, KV head) always fits when
   item_max is at least tdm_worklist_item_floor; a list that would not
   fit with splits is built unsplit, and a hybrid iteration then runs
   SERIAL with TDM_FALLBACK_item_limit (item or merge bound) or
   TDM_FALLBACK_workspace (partials).

   Ownership: the caller gives memory of tdm_worklist_footprint bytes,
   128-byte aligned; the plan points into it and holds until the next
   build. */

#include "appliance/base/status.h"
#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

typedef struct tdm_worklist tdm_worklist_t;

typedef struct tdm_worklist_config {
    uint32_t nhead_q;
    tdm_kv_layout_t kv;
    uint32_t sm_cnt;                 /* SMs that will draw: the aim of the splits */
    uint32_t item_max[TDM_KIND_CNT]; /* per kind; 0: the floor plus room for splits */
    uint32_t merge_max;              /* 0: a default */
    uint64_t part_float_max;         /* floats of partials; 0: a default */
} tdm_worklist_config_t;

/* tdm_worklist_item_floor: items of a kind that every legal iteration
   needs at most when nothing is split. */
uint32_t tdm_worklist_item_floor(const tdm_worklist_config_t *config, uint32_t kind);

/* tdm_worklist_config_fill replaces zeros by defaults. */
void tdm_worklist_config_fill(tdm_worklist_config_t *config);

/* tdm_worklist_footprint: bytes for a filled config, 0 where it is out of
   range. */
uint64_t tdm_worklist_footprint(const tdm_worklist_config_t *config);

/* tdm_worklist_init formats mem.  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_worklist_init(void *mem, const tdm_worklist_config_t *config,
                                            tdm_worklist_t **list_out, tdm_error_t *err);

/* tdm_worklist_seq gives the array to fill, [TDM_ATTN_SEQ_MAX]: prefill
   sequences first, then decodes. */
tdm_attn_seq_t *tdm_worklist_seq(tdm_worklist_t *list);

/* tdm_worklist_build makes the plan for seq[0, prefill_cnt) and
   seq[prefill_cnt, prefill_cnt + decode_cnt).  route is the one wanted;
   FUSED, STREAMS and SERIAL become PREFILL_ONLY, DECODE_ONLY or IDLE where a
   kind is absent.  The sequences must be legal (the executor validated
   the plan): cnt >= 1, kv_cnt <= TDM_CONTEXT_MAX, all prefill tokens at
   most TDM_PLAN_TOKEN_MAX, decodes cnt == 1. */
const tdm_attn_plan_t *tdm_worklist_build(tdm_worklist_t *list, uint32_t prefill_cnt,
                                          uint32_t decode_cnt, uint32_t route);

TDM_END_DECLS

#endif /* TDM_KERNELS_WORKLIST_WORKLIST_H */
