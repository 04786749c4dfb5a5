/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_SPAN_H
#define TDM_KERNELS_CUDA_SPAN_H

/* How decodes are cut for tdm_pod_launch_fresh (kernels/include/pod.h): all
   items of a batch must find a CTA at once, and the longest item decides how
   long it takes. */

#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

/* tdm_fresh_span: pages of an item for cnt decodes, the fewest at which the
   items, one for each sequence, KV head and span, are at most item_max; no
   fewer than TDM_POD_FRESH_TOK keys, where a sequence is as long.  0: such a
   batch has more sequences than that, or none. */
uint32_t tdm_fresh_span(const tdm_attn_seq_t *seq, uint32_t cnt, uint32_t nhead_kv,
                        uint32_t item_max);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_SPAN_H */
