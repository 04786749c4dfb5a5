/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_NORM_H
#define TDM_KERNELS_CUDA_NORM_H

/* RMSNorm of rows, which adds up what the product in front left in parts.
   Every layer waits twice for it, so of few rows each is the work of four
   CTAs.  The bits of a row do not depend on how many there are.  Widths,
   pointers, grids and errors are as rows.h says. */

#include "kernels/cuda/rows.h"

TDM_BEGIN_DECLS

/* tdm_norm_rows: residual[r] += sums[r], where there are any, and
   out[r] = RMSNorm(residual[r]) * weight, bf16. */
int tdm_norm_rows(float *residual, const tdm_rows_sums_t *sums, const float *weight,
                  uint32_t hidden, float eps, void *out, uint32_t rows, struct CUstream_st *stream);

/* tdm_norm_wanted: the same of the rows that the step wants sampled,
   packed: out[i] is of want[i]'s row, zero past want_cnt; the residual stays
   as it is. */
int tdm_norm_wanted(const void *step, const float *residual, const tdm_rows_sums_t *sums,
                    const float *weight, uint32_t hidden, float eps, void *out, uint32_t wants,
                    struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_NORM_H */
