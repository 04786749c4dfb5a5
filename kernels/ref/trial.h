/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_REF_TRIAL_H
#define TDM_KERNELS_REF_TRIAL_H

/* tdm_trial is a small attention batch that shows at start whether a kernel
   computes what it should: every value is one that all element types hold
   exactly, the answer is tdm_attn_ref's, and a judge says how far off a result
   is, in parts of what is allowed.  Host memory alone: who has a device copies
   it there and the result back.

   Whole:  two slices (one from position 0) and three decodes, K and V in their
           pages, q rotated.
   Fresh:  four decodes as a product leaves them (tdm_pod_launch_fresh): q, k
           and v of the newest token in TDM_TRIAL_PART parts that must be added
           up, q and k not rotated yet, and NaN where that token's K and V
           belong.  Rotations are by quarter turns, so they round nothing. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

#define TDM_TRIAL_KV_MAX 200u /* tokens of the longest sequence */
#define TDM_TRIAL_PART   3u

typedef struct tdm_trial {
    const tdm_pod_shape_t *shape;
    const tdm_attn_seq_t *seq; /* slices, then decodes; slot = number */
    uint32_t prefill_cnt;
    uint32_t decode_cnt;
    uint32_t row_cnt;
    uint32_t table_stride;
    uint64_t q_cnt;  /* elements of q and out */
    uint64_t kv_sz;  /* bytes of a pool */
    uint16_t *q;     /* [row][nhead_q][head_dim] of dtype; of a fresh one NaN: nobody reads it */
    uint16_t *out;   /* likewise, the result's place */
    float *lse;      /* [row][nhead_q], the result's place */
    uint8_t *kv[2];  /* K and V pool: [page][nhead_kv][page_tok][head_dim] of kv_dtype */
    uint32_t *table; /* [seq][table_stride] */
    float *scale;    /* [2][nhead_kv] of K, then V; 1 unless E4M3 */

    /* of a fresh one, else NULL and 0 */
    float *qkv;           /* [part][row][nhead_q + 2 nhead_kv][head_dim] */
    float *turn;          /* [position][head_dim]: cosines, then sines */
    uint64_t part_stride; /* floats from one part to the next */
    uint64_t turn_cnt;    /* floats */
    uint8_t *kv_want[2];  /* the pools with the newest tokens in */

    /* what the reference reads and says */
    uint64_t ref_cnt;
    float *ref_q, *ref_kv[2];
    double *want, *want_lse;
} tdm_trial_t;

/* tdm_trial_open takes memory; 0 where there is none.  shape outlives it; a
   fresh one is of TDM_POD_BF16 alone.  tdm_trial_close gives it back, also
   after a 0. */
TDM_MUST_USE int tdm_trial_open(tdm_trial_t *t, const tdm_pod_shape_t *shape, int is_fresh);
void tdm_trial_close(tdm_trial_t *t);

/* tdm_trial_judge gives the largest error of out and lse in parts of what is
   allowed: an output may be off by the type's step of the largest |V| and
   1e-3, an lse by 1e-3.  Of a fresh trial the pools must be kv_want to the
   bit, but for the sign of a zero: anything else is an infinite error. */
float tdm_trial_judge(tdm_trial_t *t, float scale);

TDM_END_DECLS

#endif /* TDM_KERNELS_REF_TRIAL_H */
