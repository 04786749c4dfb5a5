/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_PEEK_H
#define TDM_KERNELS_CPU_PEEK_H

/* A look inside for tests. */

#include "kernels/include/backend.h"

TDM_BEGIN_DECLS

/* tdm_cpu_logits gives the logits [vocab] of the i-th sampled row of the
   last iteration of a CPU backend that sampled at most 32 rows; good until
   the next. */
const float *tdm_cpu_logits(const tdm_backend_t *b, uint32_t i);

TDM_END_DECLS

#endif /* TDM_KERNELS_CPU_PEEK_H */
