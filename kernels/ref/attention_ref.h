/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_REF_ATTENTION_REF_H
#define TDM_KERNELS_REF_ATTENTION_REF_H

/* The obvious attention, in double, over the same launch as the fast
   ones: per row and head all scores, their maximum, the weights, the
   weighted mean of V.  Slow on purpose; the fast forms are compared with
   it.  It reads the sequences of the launch's plan and no items. */

#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

/* tdm_attn_ref fills out [row_cnt][nhead_q][head_dim] and lse
   [row_cnt][nhead_q].  score is scratch for the longest kv_cnt. */
void tdm_attn_ref(const tdm_attn_launch_t *launch, const tdm_kv_layout_t *kv, uint32_t nhead_q,
                  double *score, double *out, double *lse);

TDM_END_DECLS

#endif /* TDM_KERNELS_REF_ATTENTION_REF_H */
