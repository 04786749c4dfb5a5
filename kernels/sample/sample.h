/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_SAMPLE_SAMPLE_H
#define TDM_KERNELS_SAMPLE_SAMPLE_H

/* tdm_sample_row turns one row of logits into one token, in the order of
   appliance/abi/sampling.h:

     logits -> stop ids masked while fewer than min_tokens are out
            -> repetition, presence, frequency penalties
            -> greedy: the highest, lowest id on a tie
             | / temperature -> top_k -> top_p -> min_p -> one draw

   top_k keeps the k highest (lowest ids first on a tie).  top_p keeps the
   shortest run of them, highest first, whose share of what top_k kept
   reaches top_p.  min_p keeps tokens at least min_p times as likely as
   the most likely one.  The draw walks the kept tokens, highest first
   (with no filter: by id), until their share passes u, where u in [0, 1)
   comes from tdm_rng_at(seed, position of the new token).

   A row depends on its own arguments alone.  Exponentials are an own
   polynomial in float32 (relative error below 2e-7); weights are drawn by in
   whole units of 2^-40 of the highest, so the token is the same on every
   x86-64 and arm64 processor and on the GPU (kernels/cuda/sample.h).

   Ownership: scratch is the caller's, one per thread.  No allocation. */

#include "appliance/abi/result.h"
#include "appliance/abi/sampling.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef struct tdm_sampler tdm_sampler_t;

typedef struct tdm_sample_in {
    const float *logits; /* [vocab] */
    const tdm_sampling_t *sampling;
    const int32_t *history; /* [pos] prompt and output so far; entries outside
                               [0, vocab) are passed over */
    uint32_t pos;           /* of the new token */
    uint32_t prompt_cnt;    /* history entries that are prompt */
} tdm_sample_in_t;

typedef struct tdm_sample_out {
    int32_t token;  /* -1 with TDM_SAMPLE_NAN */
    uint32_t flags; /* TDM_SAMPLE_* */
    float logprob;  /* of the token under softmax of the logits as given */
} tdm_sample_out_t;

/* tdm_sampler_footprint: bytes for a vocabulary in [1, TDM_VOCAB_MAX];
   else 0. */
uint64_t tdm_sampler_footprint(uint32_t vocab);

/* tdm_sampler_init formats mem, footprint bytes, 64-byte aligned. */
tdm_sampler_t *tdm_sampler_init(void *mem, uint32_t vocab);

/* tdm_sample_row: a NaN or +inf anywhere in the logits, or no finite one
   left, gives TDM_SAMPLE_NAN. */
void tdm_sample_row(tdm_sampler_t *s, const tdm_sample_in_t *in, tdm_sample_out_t *out);

/* tdm_sampling_check says what is out of range, or NULL.  vocab bounds
   top_k and the stop ids. */
const char *tdm_sampling_check(const tdm_sampling_t *p, uint32_t vocab);

TDM_END_DECLS

#endif /* TDM_KERNELS_SAMPLE_SAMPLE_H */
