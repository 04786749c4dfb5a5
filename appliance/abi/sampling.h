/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_SAMPLING_H
#define TDM_ABI_SAMPLING_H

/* Written by api, carried by request and plan, read by kernels/sample.
   How one sequence turns a row of logits into a token.  Order of
   application: min_tokens masks the stop ids; repetition, presence and
   frequency penalties; temperature; top_k; top_p; min_p; one draw. */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

#define TDM_SAMPLING_IGNORE_EOS 1u /* stop ids (own and the model's) do not end the sequence */

typedef struct tdm_sampling {
    uint64_t seed;                    /* draw i uses tdm_rng_at(seed, position of the new token) */
    float temperature;                /* [0, 2]; 0 = greedy: highest logit, lowest id on a tie */
    float top_p;                      /* (0, 1]; 1 = off */
    float min_p;                      /* [0, 1]; 0 = off; relative to the most likely token */
    float repetition_penalty;         /* (0, 2]; 1 = off; over prompt and output */
    float presence_penalty;           /* [-2, 2]; 0 = off; over output */
    float frequency_penalty;          /* [-2, 2]; 0 = off; over output */
    int32_t top_k;                    /* [1, vocab]; 0 = off */
    uint32_t min_tokens;              /* output tokens before a stop id may be drawn */
    uint32_t flags;                   /* TDM_SAMPLING_* */
    uint32_t stop_cnt;                /* entries of stop_id, at most TDM_STOP_ID_MAX */
    int32_t stop_id[TDM_STOP_ID_MAX]; /* request's and model's end tokens */
} tdm_sampling_t;

#endif /* TDM_ABI_SAMPLING_H */
