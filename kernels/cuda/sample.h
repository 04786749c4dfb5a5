/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_SAMPLE_H
#define TDM_KERNELS_CUDA_SAMPLE_H

/* The sampler of kernels/sample on the device: many CTAs survey a row of
   logits and one turns it into one token, by the same steps, the same exponential and the
   same draw.  Both count weights in whole units of 2^-40 (the highest weighs
   1), so no order of adding shows, a row depends on its own arguments alone,
   and the same logits give the same token on both.

     logits --max, sum--> logprob's parts, greedy
            --copy, mask, penalties--> changed
            --(x - max) / temperature--> changed, weight
            --top_k, top_p--> the last candidate that stays (value, id)
            --min_p, u--> the token

   The last candidate of the k highest, of a share of all weight, and the
   drawn one are found alike: by value, two bits a pass, then by id. */

#include "kernels/cuda/step.h"

TDM_BEGIN_DECLS

struct CUstream_st;

#define TDM_SAMPLE_PART 16u /* CTAs that survey a row, at most */

/* What one of them found in its stretch. */
typedef struct tdm_sample_part {
    unsigned long long first; /* the highest value, then the lowest id, as one number */
    unsigned long long total; /* weights, in units, relative to the row's highest */
    uint32_t is_bad;          /* a NaN or +inf */
    uint32_t reserved;
} tdm_sample_part_t;

typedef struct tdm_sample_args {
    const void *step;
    const float *logits;     /* [wants][vocab], left as they are */
    float *changed;          /* [wants][vocab] scratch */
    float *weight;           /* [wants][vocab] scratch */
    tdm_sample_part_t *part; /* [wants][TDM_SAMPLE_PART] scratch */
    const uint32_t *table;
    const int32_t *token; /* [page][TDM_KV_PAGE_TOKENS], as in rows.h */
    tdm_step_drawn_t *drawn;
    int32_t *last;               /* [slot] as in rows.h; NULL: not kept */
    const tdm_sampling_t *state; /* [slot] as in rows.h; NULL: each want has its own */
    uint32_t table_stride;
    uint32_t vocab;
    uint32_t part_cnt; /* tdm_sample_rows fills it in */
} tdm_sample_args_t;

/* tdm_sample_rows queues the sampling of the step's wanted rows, at most
   `wants`.  0 or a cudaError_t. */
int tdm_sample_rows(const tdm_sample_args_t *args, uint32_t wants, struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_SAMPLE_H */
