/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_NARROW_H
#define TDM_KERNELS_CUDA_NARROW_H

/* Matrix products of few rows on Hopper: the weights are streamed by
   the copy engine and are the left operand of wgmma, the rows its right one.

     y^T [out][rows] = w [out][in] * x [rows][in]^T

   A CTA makes a tile of 128 or 256 weight rows over a range of `in`.  Its
   ring begins to fill with weights, which nobody writes, before the kernel
   in front is done: beside a norm or a rotation the memory keeps working.
   A ring of nearly all shared memory has no other product beside it: its
   CTAs come in as those of the product before leave.  With rings of half an
   SM two products meet, or one and a decode of few rows, and the second's
   weights set out while the first still computes.  Rows of more than
   TDM_NARROW_MEET_ROWS have no room for that.

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
#define TDM_NARROW_STAGE_MAX 12u
#define TDM_NARROW_K         64u /* columns of a stage */
#define TDM_NARROW_MEET_ROWS 32u

/* Shared memory of a CTA's ring, bytes. */
#define TDM_NARROW_RING_ALONE (192u << 10)
#define TDM_NARROW_RING_MEET  (108u << 10) /* two, the CTA's own 1 KiB each, and a norm */

/* How a product is dealt to the CTAs. */
typedef struct tdm_narrow_cut {
    uint32_t row_cnt; /* rows of a tile of x: 8, 16, 32, 64 or 128 */
    uint32_t row_tile_cnt;
    uint32_t block_cnt; /* blocks of 128 weight rows in a tile: 1 or 2 */
    uint32_t tile_cnt;
    uint32_t split_cnt; /* ranges of `in` */
    uint32_t grid;      /* CTAs; each makes every grid-th unit of tile, range and tile of x */
    uint32_t stage_cnt; /* of the ring, in [2, TDM_NARROW_STAGE_MAX]; no result depends on it */
} tdm_narrow_cut_t;

/* tdm_narrow_takes: is the shape one for this kernel?  `in` a multiple of
   8; of what is added to, only where it may be split (is_split). */
int tdm_narrow_takes(const tdm_gemm_shape_t *shape);

/* tdm_narrow_cut deals a shape that is taken to sm_cnt SMs: the cut whose
   CTAs move the fewest bytes one after the other.  bf16 results are those
   of gate and up and take both blocks.  ring_sz is TDM_NARROW_RING_ALONE or less. */
tdm_narrow_cut_t tdm_narrow_cut(const tdm_gemm_shape_t *shape, uint32_t sm_cnt, uint32_t ring_sz);

/* tdm_narrow_cut_fixed: the same blocks and ranges whatever the rows, those
   of 128. */
tdm_narrow_cut_t tdm_narrow_cut_fixed(const tdm_gemm_shape_t *shape, uint32_t sm_cnt,
                                      uint32_t ring_sz);

/* tdm_narrow_stage_sz: bytes of one stage of a cut's ring. */
uint32_t tdm_narrow_stage_sz(const tdm_narrow_cut_t *cut);

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
