/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_STEP_H
#define TDM_KERNELS_CUDA_STEP_H

/* What one iteration is to the device: one block of plain data, written by
   the host into pinned memory and copied in one piece.

     tdm_step_head_t | want [want_cnt] | row [row_cnt] | page [page_cnt] | state [state_cnt]

   Where the device keeps the sampling parameters of each slot (exec.resident) a
   want is its first 16 bytes, and `state` has those of slots that were opened
   since the last step; else a want has its own and there is no `state`.

   Counts are read by the kernels from the block, never from a launch's
   arguments, so that a captured launch serves every later iteration with
   as many rows or fewer. */

#include "appliance/abi/sampling.h"
#include "kernels/keep/tables.h"

TDM_BEGIN_DECLS

/* One input row. */
typedef struct tdm_step_row {
    int32_t token; /* in [0, vocab), or -1: the one last drawn for the slot, 0 where that is none */
    uint32_t slot;
    uint32_t pos;
    uint32_t reserved;
} tdm_step_row_t;

/* One row that samples. */
typedef struct tdm_step_want {
    uint32_t row;
    uint32_t slot;
    uint32_t pos;            /* of the new token */
    uint32_t prompt_cnt;     /* positions below it are prompt */
    tdm_sampling_t sampling; /* where want_sz has room for it */
} tdm_step_want_t;

#define TDM_STEP_WANT_SHORT 16u /* bytes of one without */

/* What a slot samples with from now on. */
typedef struct tdm_step_state {
    uint32_t slot;
    uint32_t reserved[3];
    tdm_sampling_t sampling;
} tdm_step_state_t;

typedef tdm_table_entry_t tdm_step_page_t;

typedef struct tdm_step_head {
    uint32_t want_cnt;
    uint32_t row_cnt;
    uint32_t page_cnt;
    uint32_t want_off; /* bytes from the head, multiples of 16 */
    uint32_t row_off;
    uint32_t page_off;
    uint64_t seq;     /* the iteration's number, which its mail brings back (mail.h) */
    uint32_t box;     /* whose mail it is */
    uint32_t want_sz; /* bytes of a want */
    uint32_t state_cnt;
    uint32_t state_off;
} tdm_step_head_t;

/* What a sampled row comes back as. */
typedef struct tdm_step_drawn {
    int32_t token;
    uint32_t flags; /* TDM_SAMPLE_* */
    float logprob;
    uint32_t reserved;
} tdm_step_drawn_t;

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_STEP_H */
