/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ATTENTION_H
#define TDM_KERNELS_CPU_ATTENTION_H

/* tdm_cpu_attn is attention on SM threads: each SM draws tickets
   (kernels/ticket) and runs prefill and decode items of a
   tdm_attn_plan_t in float32 over float32, bf16 or fp8 KV pages.

   Routes, all with the same bits:
     FUSED         every SM draws both kinds, in proportion to what is left
     SERIAL        all prefill items, a barrier, all decode items
     STREAMS       SMs in two groups, one per kind
     PREFILL_ONLY  DECODE_ONLY

   Ownership: memory is the caller's; a launch allocates nothing.  One
   launch at a time. */

#include "kernels/cpu/sm.h"
#include "kernels/include/attention.h"

typedef struct tdm_cpu_attn tdm_cpu_attn_t;

typedef struct tdm_cpu_attn_config {
    uint32_t nhead_q;
    tdm_kv_layout_t kv;
    uint32_t isa;            /* tdm_cpu_isa_t, as tdm_cpu_isa_resolve gave it */
    uint32_t merge_max;      /* >= plan->merge_cnt: the work list's limit */
    uint64_t part_float_max; /* >= plan->part_float_cnt: the work list's limit */
    uint32_t sm_cnt;         /* of pool; footprint does not look at pool */
    tdm_sm_pool_t *pool;     /* borrowed */
} tdm_cpu_attn_config_t;

/* tdm_cpu_attn_footprint stores the bytes for this config: scratch per
   SM and the partials' workspace.  It checks the shape: UNSUPPORTED names
   what the kernels lack. */
TDM_MUST_USE tdm_status_t tdm_cpu_attn_footprint(const tdm_cpu_attn_config_t *config,
                                                 uint64_t *bytes_out, tdm_error_t *err);

/* tdm_cpu_attn_init formats mem, footprint bytes, zeroed, TDM_CACHE_LINE
   aligned. */
TDM_MUST_USE tdm_status_t tdm_cpu_attn_init(void *mem, const tdm_cpu_attn_config_t *config,
                                            tdm_cpu_attn_t **attn_out, tdm_error_t *err);

/* tdm_cpu_attn_run computes one layer and adds what it did to stats.  A
   plan over the limits of init is a broken invariant. */
void tdm_cpu_attn_run(tdm_cpu_attn_t *attn, const tdm_attn_launch_t *launch,
                      tdm_attn_stats_t *stats);

#endif /* TDM_KERNELS_CPU_ATTENTION_H */
