/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_PLAN_H
#define TDM_ABI_PLAN_H

/* Written by the scheduler, read by the executor (another process: plain
   data, no pointer).  One plan is one iteration.  It is flat,
   self-contained and a delta against the executor's slot tables, applied
   in this order:

     close[]   slots forgotten
     open[]    slots taken: empty page table, sampling set; the history is
               empty, or what the first filled_cnt / 64 pages granted hold
     grant[]   pages appended to a slot's page table, in order
     slice[]   prefill: token ids at [pos, pos+cnt) of a slot
     decode[]  one token per slot: the input is the slot's token at `pos`
               (the last one sampled, which only the executor may know yet)

   KV of position p of a slot lies in page table[p / 64] at row p % 64, and
   is written by the iteration that has position p as input.
   A page may be in several tables, to be read; a plan writes a page for
   one slot only, and none that is shared.
   A slot appears at most once in slice[] and decode[] together.  A slice
   with is_last, and every decode, samples one token: it becomes the
   slot's token at pos + cnt (decode: pos + 1).

   The executor validates every number before it uses it (a defence
   against a damaged ring, not a second policy): a contradiction ends the
   executor with TDM_FAULT_executor_protocol. */

#include "appliance/abi/limits.h"
#include "appliance/abi/sampling.h"

typedef enum tdm_route {
    TDM_ROUTE_IDLE,         /* table changes only */
    TDM_ROUTE_PREFILL_ONLY, /* no decode present */
    TDM_ROUTE_DECODE_ONLY,  /* no prefill present */
    TDM_ROUTE_FUSED,        /* both, one attention launch per layer */
    TDM_ROUTE_STREAMS,      /* both, two launches side by side */
    TDM_ROUTE_SERIAL,       /* both, one after the other */
    TDM_ROUTE_CNT
} tdm_route_t;

typedef struct tdm_plan_open {
    uint32_t slot;       /* in [0, TDM_SEQ_MAX) */
    uint32_t prompt_cnt; /* tokens that are prompt; later positions are output */
    uint32_t filled_cnt; /* tokens computed before, by slots that shared their pages: the first
                            input is this position; a multiple of 64 */
    uint32_t reserved;
    tdm_sampling_t sampling;
} tdm_plan_open_t;

typedef struct tdm_plan_grant {
    uint32_t slot;
    uint32_t page_off; /* into page[] */
    uint32_t page_cnt;
} tdm_plan_grant_t;

typedef struct tdm_plan_slice {
    uint32_t slot;
    uint32_t pos;       /* position of the first token */
    uint32_t cnt;       /* tokens, >= 1 */
    uint32_t token_off; /* into token[] */
    uint32_t is_last;   /* the prompt ends here: sample after the last row */
} tdm_plan_slice_t;

typedef struct tdm_plan_decode {
    uint32_t slot;
    uint32_t pos; /* of the input token; attention covers [0, pos] */
} tdm_plan_decode_t;

typedef struct tdm_plan {
    uint64_t iteration;   /* counts from 1 within one scheduler life */
    uint32_t epoch;       /* executor life this plan is for */
    uint32_t route;       /* tdm_route_t wanted; the executor may only downgrade */
    uint32_t variant;     /* kernel variant, 0 = the backend's choice */
    uint32_t reason;      /* fallback reason already known to the scheduler, or 0 */
    int64_t predicted_ns; /* by the profile */
    int64_t limit_ns;     /* the iteration's time limit */
    uint32_t close_cnt;
    uint32_t open_cnt;
    uint32_t grant_cnt;
    uint32_t page_cnt;
    uint32_t slice_cnt;
    uint32_t token_cnt;
    uint32_t decode_cnt;
    uint32_t reserved;

    uint32_t close[TDM_SEQ_MAX];
    tdm_plan_open_t open[TDM_SEQ_MAX];
    tdm_plan_grant_t grant[TDM_SEQ_MAX];
    uint32_t page[TDM_PLAN_PAGE_MAX]; /* KV page numbers in [0, pool) */
    tdm_plan_slice_t slice[TDM_PLAN_SLICE_MAX];
    int32_t token[TDM_PLAN_TOKEN_MAX];
    tdm_plan_decode_t decode[TDM_SEQ_MAX];
} tdm_plan_t;

#endif /* TDM_ABI_PLAN_H */
