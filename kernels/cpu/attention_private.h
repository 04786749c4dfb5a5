/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ATTENTION_PRIVATE_H
#define TDM_KERNELS_CPU_ATTENTION_PRIVATE_H

/* The inside of kernels/cpu/attention.h.

     attention.c               memory, routes, tickets, counters
     attention_item.c          one item: queries in, ranges, merge, rows out
     attention_ops.h           the arithmetic's interface
     attention_simd_private.h  the arithmetic, once, over a vector type
     attention_<isa>.c         the vector type of an instruction set */

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_ops.h"
#include "kernels/ticket/ticket.h"

/* One SM's scratch and counters; written by that SM alone in a launch. */
typedef struct TDM_ALIGNED(TDM_CACHE_LINE) tdm_attn_sm {
    tdm_attn_tile_t tile;
    tdm_attn_rows_t acc;  /* the fold so far */
    tdm_attn_rows_t part; /* the range at hand */
    uint64_t item_cnt[TDM_KIND_CNT];
    uint64_t item_ns[TDM_KIND_CNT];
    uint64_t colocated_ns;
    uint64_t merge_cnt;
} tdm_attn_sm_t;

/* tdm_attn_active_t is how long any item of one kind has been running in
   this launch, readable at any instant without a lock: the low bits of
   word count the items running now, the rest is a time v, and the kind's
   active time at t is v while none runs and v + t while some do.  Times
   are ns since the launch began. */
typedef struct TDM_ALIGNED(TDM_CACHE_LINE) tdm_attn_active {
    uint64_t word;
} tdm_attn_active_t;

struct tdm_cpu_attn {
    tdm_cpu_attn_config_t config;
    const tdm_attn_ops_t *ops;
    uint32_t group;
    uint32_t stride;
    tdm_attn_sm_t *sm;        /* [sm_cnt] */
    float *part;              /* [part_float_max] */
    uint32_t *arrived;        /* [merge_max], 0 between launches */
    tdm_ticket_line_t *drawn; /* [sm_cnt] */
    tdm_ticket_t ticket;
    tdm_attn_active_t active[TDM_KIND_CNT];
    /* Of the launch at hand. */
    const tdm_attn_launch_t *launch;
    tdm_ticket_deal_t deal;
    int64_t start_ns;
    uint32_t decode_sm; /* STREAMS: the first SM of the decode group */
};

/* tdm_attn_item_run runs one item on an SM. */
void tdm_attn_item_run(tdm_cpu_attn_t *attn, tdm_attn_sm_t *sm, const tdm_attn_item_t *item);

#endif /* TDM_KERNELS_CPU_ATTENTION_PRIVATE_H */
