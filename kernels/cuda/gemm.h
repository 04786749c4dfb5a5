/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_GEMM_H
#define TDM_KERNELS_CUDA_GEMM_H

/* tdm_gemm is the matrix products of one backend:

     y [rows][out] = x [rows][in] * w [out][in]^T     (+ y where is_add)

   x and w bf16, sums float32, y bf16 or float32.  The algorithm of a shape
   is chosen once and kept: cuBLASLt's own first choice, or where the shape is
   timed the narrow kernel (narrow.h) if the device has it, else the fastest of
   cuBLASLt's first few and the skinny kernel (skinny.h).  It gets a workspace that lives as long as
   the backend, so captured launches stay valid.  The number of shapes is bounded: callers round
   `rows` up to tdm_gemm_rows.

   One thread at a time; one stream at a time, for the workspace is one. */

#include "appliance/base/status.h"
#include "kernels/include/choices.h"

struct CUstream_st;

typedef struct tdm_gemm tdm_gemm_t;

#define TDM_GEMM_WORKSPACE (UINT64_C(32) << 20) /* bytes; what cuBLAS advises for sm_90 */
#define TDM_GEMM_SHAPE_MAX 1024u

typedef enum tdm_gemm_type { TDM_GEMM_BF16, TDM_GEMM_F32 } tdm_gemm_type_t;

typedef struct tdm_gemm_shape {
    uint32_t rows;
    uint32_t out;
    uint32_t in;
    uint32_t y_type;   /* tdm_gemm_type_t */
    uint32_t is_add;   /* y is added to: float32 only */
    uint32_t is_split; /* may be left as partial sums (tdm_gemm_part_cnt) */
} tdm_gemm_shape_t;

/* tdm_gemm_rows rounds up to a number of rows that products are run with:
   1, 2, 4, 8, then steps that grow from 8 to 128; at most a quarter more
   than asked, or 7. */
uint32_t tdm_gemm_rows(uint32_t rows);

/* tdm_gemm_open: workspace is TDM_GEMM_WORKSPACE bytes of device memory,
   part room for TDM_NARROW_SPLIT_MAX results of up to TDM_NARROW_ROWS_MAX
   rows (narrow.h) of the widest shape that may be split, or NULL
   (nothing is); both the caller's.  UNSUPPORTED where cuBLASLt is missing. */
TDM_MUST_USE tdm_status_t tdm_gemm_open(void *workspace, float *part, tdm_gemm_t **out,
                                        tdm_error_t *err);

/* tdm_gemm_fix, before any shape is kept: all products by the narrow kernel
   under its fixed cut, so that a row's bits depend on the row and the weights
   alone.  part has room for all rows then.  UNSUPPORTED where that kernel does
   not run. */
TDM_MUST_USE tdm_status_t tdm_gemm_fix(tdm_gemm_t *g, tdm_error_t *err);
void tdm_gemm_close(tdm_gemm_t *g);

/* tdm_gemm_library: cuBLASLt's version, as it tells it. */
uint64_t tdm_gemm_library(const tdm_gemm_t *g);

/* tdm_gemm_recall, before any shape is kept, gives the choices of an earlier
   life (kernels/keep/choices.h), copied.  A shape among them is made as it was
   then, and not timed again, if its kernel or cuBLASLt still takes it. */
TDM_MUST_USE tdm_status_t tdm_gemm_recall(tdm_gemm_t *g, const tdm_choice_t *choice, uint32_t cnt,
                                          tdm_error_t *err);

/* tdm_gemm_choices writes what was chosen to out [TDM_CHOICES_MAX] and gives
   their number.  Products of tdm_gemm_fix are none: there is no choice. */
uint32_t tdm_gemm_choices(const tdm_gemm_t *g, tdm_choice_t *out);

/* tdm_gemm_keep chooses a shape's algorithm ahead of its first run; 0, or the
   cublasStatus_t.  A shape that was not kept is by its first run. */
TDM_MUST_USE int tdm_gemm_keep(tdm_gemm_t *g, const tdm_gemm_shape_t *shape);

/* tdm_gemm_time chooses among several by time, with real operands: w are w_cnt
   weights of one shape in turn, so that the second-level cache does not hold
   them; y is overwritten.  A choice of an earlier life is run once, for its
   kernel to be there.  Waits for the stream.  0, or what failed. */
TDM_MUST_USE int tdm_gemm_time(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, const void *x,
                               const void *const *w, uint32_t w_cnt, void *y,
                               struct CUstream_st *stream);

/* tdm_gemm_run queues one product; 0, or the cublasStatus_t or cudaError_t.
   Of a shape with a tdm_gemm_part_cnt y is not touched: the partial sums
   [part_cnt][rows][out] lie at `part` until the next such product. */
TDM_MUST_USE int tdm_gemm_run(tdm_gemm_t *g, const tdm_gemm_shape_t *shape, const void *x,
                              const void *w, void *y, struct CUstream_st *stream);

/* tdm_gemm_is_skinny: was the skinny kernel the fastest for this shape? */
int tdm_gemm_is_skinny(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape);

/* tdm_gemm_is_narrow: was the narrow one? */
int tdm_gemm_is_narrow(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape);

/* tdm_gemm_part_cnt: how many partial sums a run leaves; 0: none, y has it
   all. */
uint32_t tdm_gemm_part_cnt(const tdm_gemm_t *g, const tdm_gemm_shape_t *shape);

/* tdm_gemm_shape_cnt: shapes seen so far; tdm_gemm_recalled_cnt: of them
   those that were made as before. */
uint32_t tdm_gemm_shape_cnt(const tdm_gemm_t *g);
uint32_t tdm_gemm_recalled_cnt(const tdm_gemm_t *g);

/* tdm_gemm_skinny_cnt: of them those that the skinny kernel won;
   tdm_gemm_narrow_cnt: the narrow one. */
uint32_t tdm_gemm_skinny_cnt(const tdm_gemm_t *g);
uint32_t tdm_gemm_narrow_cnt(const tdm_gemm_t *g);

#endif /* TDM_KERNELS_CUDA_GEMM_H */
