/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_REF_FORWARD_REF_H
#define TDM_KERNELS_REF_FORWARD_REF_H

/* The obvious forward pass: one sequence, no cache, no batch, no paging,
   every value a double and every sum from left to right.  It is what the
   backends are compared with, and shares no code with them. */

#include "appliance/abi/model.h"
#include "appliance/base/status.h"
#include "kernels/include/kv.h"

TDM_BEGIN_DECLS

/* tdm_forward_ref stores the logits of the positions [first, cnt) of one
   sequence into logits[cnt - first][vocab].  With TDM_KV_BF16 keys (after
   rotation) and values are rounded through float32 to bf16, as a KV pool
   of that type does; with TDM_KV_E4M3 they go through the codes of the
   layers' k_scale and v_scale, which must be there.  Everything else stays
   double.  Takes its working memory from malloc, and a thread for each
   processor where matrices are large, which changes no bit: for tests only. */
TDM_MUST_USE tdm_status_t tdm_forward_ref(const tdm_weights_t *weights, tdm_kv_dtype_t kv_dtype,
                                          const int32_t *token, uint32_t cnt, uint32_t first,
                                          double *logits);

TDM_END_DECLS

#endif /* TDM_KERNELS_REF_FORWARD_REF_H */
