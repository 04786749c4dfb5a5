/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_RESULT_H
#define TDM_ABI_RESULT_H

/* Written by the executor, read by the scheduler: what one plan did.
   Plain data, no pointer.  Virtual CTAs are work items drawn by ticket,
   summed over the layers of the iteration; kind 0 is prefill, 1 decode. */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

enum { TDM_KIND_PREFILL = 0, TDM_KIND_DECODE = 1, TDM_KIND_CNT = 2 };

/* Where the device time of an iteration goes. */
typedef enum tdm_stage {
    TDM_STAGE_ATTENTION, /* and what one kernel with it does */
    TDM_STAGE_LINEAR,    /* products, the head's too */
    TDM_STAGE_NORM,      /* norms, rotary positions and KV append, SwiGLU, embedding */
    TDM_STAGE_SAMPLING,
    TDM_STAGE_COPY, /* of the step and the attention plan to the device */
    TDM_STAGE_CNT
} tdm_stage_t;

/* Was a captured graph there for the iteration? */
typedef enum tdm_graph_use {
    TDM_GRAPH_NONE, /* not looked for */
    TDM_GRAPH_REPLAYED,
    TDM_GRAPH_MISSED, /* none fitted: its launches were queued one by one */
    TDM_GRAPH_USE_CNT
} tdm_graph_use_t;

#define TDM_SAMPLE_NAN     1u /* no finite logit: token is -1, the sequence must end */
#define TDM_SAMPLE_STOP_ID 2u /* token is one of the sequence's stop ids (ignore_eos unset) */

typedef struct tdm_result_sample {
    uint32_t slot;
    uint32_t pos; /* position of the new token */
    int32_t token;
    uint32_t flags; /* TDM_SAMPLE_* */
    float logprob;  /* natural log of the token's probability before temperature */
    uint32_t reserved;
} tdm_result_sample_t;

typedef struct tdm_result {
    uint64_t iteration; /* of the plan */
    uint32_t epoch;     /* of the plan */
    uint32_t route;     /* tdm_route_t that ran */
    uint32_t reason;    /* TDM_FALLBACK_* where a hybrid iteration was not fused, else 0 */
    uint32_t fault;     /* TDM_FAULT_* where the plan was refused whole, else 0 */
    int64_t start_ns;   /* CLOCK_MONOTONIC around the whole iteration */
    int64_t end_ns;
    int64_t attention_ns; /* of it in attention, wall time */
    int64_t sample_ns;    /* of it in sampling; 0: not told, as by a device with a queue */
    uint64_t idle_ns;     /* the device's own time from the end of the iteration before to the
                             first work of this; 0: none before */
    uint64_t vcta_planned[TDM_KIND_CNT];
    uint64_t vcta_executed[TDM_KIND_CNT];
    uint64_t vcta_ns[TDM_KIND_CNT]; /* SM-time inside items, by kind */
    uint64_t colocated_ns;          /* SM-time while both kinds ran on some SM */
    uint64_t split_cnt;             /* items beyond one per (tile, KV head); a decode is one tile */
    uint64_t merge_cnt;             /* partial results merged */
    uint64_t kv_read_bytes;         /* model-derived */
    uint64_t attention_flops;       /* model-derived */
    uint64_t overlap_ns;            /* GPU: wall time with both kinds running anywhere */
    uint64_t tail_ns;               /* GPU: SM-time that SMs had nothing left to draw */
    uint64_t role_switch_cnt;       /* GPU: times that an SM turned to the other kind */
    uint64_t ring_stall_cnt;        /* GPU: times that an SM's warps waited for keys or values */
    uint32_t sm_clock_khz;          /* GPU: measured inside attention; 0: not measured */
    uint16_t tile_row;              /* of a full prefill tile, tokens x group; 0: no prefill */
    uint16_t tile_key;              /* keys of one step of it */
    uint32_t sm_cnt;
    uint32_t slot_cnt;                /* virtual CTAs that one attention launch has room for */
    uint32_t launch_cnt;              /* attention launches, one a layer */
    uint64_t stage_ns[TDM_STAGE_CNT]; /* GPU: device time, of few iterations; else all 0 */
    int64_t queue_ns;                 /* GPU: the host's time to queue its launches */
    uint64_t upload_bytes;            /* GPU: sent to it for this iteration */
    uint64_t graph_bytes;             /* GPU: device memory of all captured graphs */
    uint32_t graph_cnt;               /* GPU: and their number */
    uint32_t graph;                   /* tdm_graph_use_t */
    uint32_t reserved;
    uint32_t sample_cnt;

    tdm_result_sample_t sample[TDM_SEQ_MAX]; /* in plan order: slices, then decodes */
} tdm_result_t;

#endif /* TDM_ABI_RESULT_H */
