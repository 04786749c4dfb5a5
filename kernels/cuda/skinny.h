/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_SKINNY_H
#define TDM_KERNELS_CUDA_SKINNY_H

/* Matrix products of few rows, which only stream the weights: a warp makes a
   few outputs of all rows, lanes over the columns, 16 bytes of each weight
   row a lane and step.  Sums are float32, folded over the lanes in one
   order: the bits of a row depend on its own x and w alone, not on how many
   rows there are. */

#include "kernels/cuda/gemm.h"

TDM_BEGIN_DECLS

#define TDM_SKINNY_ROWS_MAX 4u

/* tdm_skinny_takes: is this shape one for the skinny kernel?  in and out are
   multiples of 8, rows at most TDM_SKINNY_ROWS_MAX. */
int tdm_skinny_takes(const tdm_gemm_shape_t *shape);

/* tdm_skinny_run queues the product; 0 or a cudaError_t. */
int tdm_skinny_run(const tdm_gemm_shape_t *shape, const void *x, const void *w, void *y,
                   struct CUstream_st *stream);

/* tdm_skinny_swiglu: y [rows][out / 2] bf16 = silu(gate) * up, of the shape's
   product with w [out][in], whose first half of rows are gates; the products
   themselves are not rounded. */
int tdm_skinny_swiglu(const tdm_gemm_shape_t *shape, const void *x, const void *w, void *y,
                      struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_SKINNY_H */
