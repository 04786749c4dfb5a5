/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_PEEK_H
#define TDM_KERNELS_CUDA_PEEK_H

/* A look inside for tests. */

#include "kernels/include/backend.h"

TDM_BEGIN_DECLS

/* tdm_cuda_logits copies the logits of the i-th sampled row of the last
   iteration of a CUDA backend into out [vocab].  0, or a cudaError_t. */
TDM_MUST_USE int tdm_cuda_logits(const tdm_backend_t *b, uint32_t i, float *out);

/* tdm_cuda_times: the device's clock at the first kernel and at the end of the
   last iteration; ns. */
void tdm_cuda_times(const tdm_backend_t *b, uint64_t *start_ns, uint64_t *end_ns);

/* tdm_cuda_products: products that a CUDA backend chose, and of them those that
   are as an earlier life had them. */
void tdm_cuda_products(const tdm_backend_t *b, uint32_t *all, uint32_t *recalled);

/* tdm_cuda_graphs: iterations that replayed a captured graph, that missed one,
   and graphs captured. */
void tdm_cuda_graphs(const tdm_backend_t *b, uint64_t *hit, uint64_t *miss, uint64_t *put);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_PEEK_H */
