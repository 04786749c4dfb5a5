// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_ARGS_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_ARGS_CUH

// What a launch passes by value.  Counts of work are not here but in the
// uploaded blob, so a captured launch serves every later plan.

#include "kernels/include/pod.h"
#include "kernels/ticket/ticket.h"

typedef struct pod_count {
    unsigned long long vcta[TDM_KIND_CNT]; // executed
    unsigned long long merge;              // folded
    unsigned long long ring_stall;         // HOPPER: see tdm_pod_counters_t
} pod_count_t;

typedef struct pod_args {
    tdm_pod_layer_t layer;
    const uint8_t *blob; // tdm_pod_head_t and what follows it
    float *part;
    uint32_t *arrived;        // [merge_max], zero between launches
    tdm_ticket_t *ticket;     // one of two: STREAMS runs two launches at once
    tdm_ticket_line_t *drawn; // [smid_cnt] of this ticket
    pod_count_t *count;
    tdm_pod_span_t *span; // [prefill items, then decode items]
    uint32_t smid_cnt;
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t page_lg;       // log2 of page_tok
    uint32_t kind_mask;     // bit 1 << kind: which kinds this launch deals
    uint32_t fixed_prefill; // HFUSE: CTAs below it are prefill, the rest decode; 0: ticket
    float scale_lg2;        // scale * log2(e)
} pod_args_t;

#endif // TDM_KERNELS_ATTENTION_PORTABLE_ARGS_CUH
