/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_NARROW_H
#define TDM_KERNELS_CUDA_NARROW_H

/* Matrix products of few rows on Hopper: the weights are streamed by
   the copy engine and are the left operand of wgmma, the rows its right one.

     y^T [out][rows] = w [out][in] * x [rows][in]^T

   A CTA makes a tile of one or two blocks of weight rows over a range of `in`.
   A block has room for 128 rows; where fewer deal the rows more evenly to the
   SMs it holds fewer, and what is computed of the rest is dropped: memory sets
   the pace, and only all SMs together draw all of its rate.  A CTA's ring
   begins to fill with weights, which nobody writes, before the kernel in front
   is done: beside a norm or a rotation the memory keeps working.  It takes
   nearly all of an SM's shared memory: two of half the size, which meet there,
   are slower (tests/perf/results/engine_cuda.md, step 9).

   Where the tiles are too few for the SMs `in` is cut, and the float32
   partial sums stay apart, [split][rows][out]: the kernel that reads them
   next adds them up, split by split, so the bits are the same each time.
   The cut depends on the shape and the device alone.

   More than 128 rows are tiles of 128.  Where the cut is fixed
   (tdm_narrow_cut_fixed) a row's sums are made of the same terms in the same
   order however many rows there are: the bits of a row depend on nothing
   else. */

#include "kernels/cuda/gemm.h"

TDM_BEGIN_DECLS

#define TDM_NARROW_ROWS_MAX  128u
#define TDM_NARROW_SPLIT_MAX 8u
#define TDM_NARROW_K         64u /* columns of a stage */

/* How a product is dealt to the CTAs. */
typedef struct tdm_narrow_cut {
    uint32_t row_cnt; /* rows of a tile of x: 8, 16, 32, 64 or 128 */
    uint32_t row_tile_cnt;
    uint32_t block_cnt; /* blocks of weight rows in a tile: 1 or 2 */
    uint32_t block_row; /* weight rows of a block: a multiple of 8, 64 to 128 */
    uint32_t tile_cnt;
    uint32_t split_cnt; /* ranges of `in` */
    uint32_t grid;      /* CTAs; each makes every grid-th unit of tile, range and tile of x */
} tdm_narrow_cut_t;

/* tdm_narrow_takes: is the shape one for this kernel?  `in` a multiple of
   8; of what is added to, only where it may be split (is_split). */
int tdm_narrow_takes(const tdm_gemm_shape_t *shape);

/* tdm_narrow_cut deals a shape that is taken to sm_cnt SMs, or where few
   rows' attention comes next to three quarters of them: the cut whose CTAs
   move the fewest bytes one after the other.  bf16 results are those of gate
   and up and take both blocks. */
tdm_narrow_cut_t tdm_narrow_cut(const tdm_gemm_shape_t *shape, uint32_t sm_cnt);

/* tdm_narrow_cut_fixed: the same blocks and ranges whatever the rows, those
   for 128 rows of x. */
tdm_narrow_cut_t tdm_narrow_cut_fixed(const tdm_gemm_shape_t *shape, uint32_t sm_cnt);

/* tdm_narrow_open tells the kernels how much shared memory they may take;
   *encode_out is the driver's cuTensorMapEncodeTiled.  cudaErrorNotSupported
   on a device that is no Hopper. */
TDM_MUST_USE int tdm_narrow_open(void **encode_out, uint32_t *sm_cnt_out);

/* tdm_narrow_run queues a product.  float32: y is [split_cnt][rows][out].
   bf16: y [rows][out / 2] = silu(gate) * up, w's first half of rows gates;
   the products themselves are not rounded.  0 or a cudaError_t. */
TDM_MUST_USE int tdm_narrow_run(void *encode, const tdm_gemm_shape_t *shape,
                                const tdm_narrow_cut_t *cut, const void *x, const void *w, void *y,
                                struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_NARROW_H */
