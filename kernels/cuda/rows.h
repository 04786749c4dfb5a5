/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_ROWS_H
#define TDM_KERNELS_CUDA_ROWS_H

/* The kernels that treat rows one by one.  The residual stream and what a
   projection of the attention yields are float32, what a matrix product
   reads is bf16, rounded once.

   All take a grid of `rows`, at least the step's row_cnt (a captured launch
   has as many as its bucket); rows past the count are made zero by the
   embedding and touch no page.  Widths are multiples of 8, pointers 16-byte
   aligned.  Calls queue on the stream and return 0 or a cudaError_t. */

#include "kernels/cuda/step.h"

TDM_BEGIN_DECLS

struct CUstream_st;

/* tdm_rows_pages_t: what the device knows of the KV pages. */
typedef struct tdm_rows_pages {
    uint32_t *table; /* [seq_max][table_stride] */
    int32_t *token;  /* [page_cnt][TDM_KV_PAGE_TOKENS] inputs by where their KV lies */
    int32_t *last;   /* [seq_max] the token last drawn for each slot; read by rows without one */
    uint32_t table_stride;
} tdm_rows_pages_t;

/* tdm_rows_scatter enters the step's new pages into the tables; page_cnt is
   the step's or more. */
int tdm_rows_scatter(const void *step, const tdm_rows_pages_t *pages, uint32_t page_cnt,
                     struct CUstream_st *stream);

/* tdm_rows_state enters the step's sampling parameters into state [seq_max];
   state_cnt is the step's, at least 1. */
int tdm_rows_state(const void *step, tdm_sampling_t *state, uint32_t state_cnt,
                   struct CUstream_st *stream);

/* tdm_rows_embed: residual[r] = embed[token of row r], and the token is
   noted by its page; the first kernel of an iteration, whose time on the
   device's clock becomes *start_ns.  embed [vocab][hidden] bf16, residual [rows][hidden]
   float32. */
int tdm_rows_embed(const void *step, const void *embed, uint32_t hidden, float *residual,
                   const tdm_rows_pages_t *pages, uint64_t *start_ns, uint32_t rows,
                   struct CUstream_st *stream);

/* tdm_rows_sums_t: a product that was left as cnt partial sums
   [cnt][stride] float32, at most TDM_ROWS_SUM_MAX; each element is
   (part 0 + part 1) + ... in that order. */
typedef struct tdm_rows_sums {
    const float *part;
    uint64_t stride; /* elements from one to the next */
    uint32_t cnt;
} tdm_rows_sums_t;

#define TDM_ROWS_SUM_MAX 8u

/* tdm_rows_rope_append: of qkv, a sum of [rows][nhead_q + 2 nhead_kv][head_dim]
   float32 the queries are rotated into q [rows][nhead_q][head_dim] bf16,
   the keys rotated and the values as they are into the pages' pools
   [page][nhead_kv][TDM_KV_PAGE_TOKENS][head_dim], bf16, or with kv_inverse
   e4m3 as appliance/abi/fp8.h says.  turn [position][head_dim]: cosines, then
   sines. */
typedef struct tdm_rows_rope {
    tdm_rows_sums_t qkv; /* cnt >= 1 */
    const float *turn;
    void *q;
    void *k_pool;
    void *v_pool;
    const float *kv_inverse; /* [K, V][nhead_kv]: what is stored is times this; NULL: bf16 */
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t head_dim;
} tdm_rows_rope_t;
int tdm_rows_rope_append(const void *step, const tdm_rows_rope_t *rope,
                         const tdm_rows_pages_t *pages, uint32_t rows, struct CUstream_st *stream);

/* tdm_rows_turn fills turn [position_cnt][head_dim] from the radians per
   position freq [head_dim / 2], double, in device memory. */
int tdm_rows_turn(const double *freq, uint32_t head_dim, uint32_t position_cnt, float *turn,
                  struct CUstream_st *stream);

/* tdm_rows_swiglu: out[r] = silu(gate) * up, of both [rows][2][ffn] bf16 (gate
   first), out [rows][ffn] bf16. */
int tdm_rows_swiglu(const void *both, uint32_t ffn, void *out, uint32_t rows,
                    struct CUstream_st *stream);

/* tdm_rows_draw fills cnt bf16 of a dummy model's tensor, cnt a multiple of
   4, with what appliance/abi/dummy.h says; rows of blank ids are zero where
   cols, their width, is not 0. */
int tdm_rows_draw(uint64_t seed, float scale, uint64_t cnt, uint32_t blank_cols, void *out,
                  struct CUstream_st *stream);

/* tdm_rows_widen: wide [rows][cols] bf16 = code * scale of the row, rounded
   once; code [rows][cols] as appliance/abi/fp8.h says.  Products begin to
   read their weights before the kernel in front of them is done, which is
   right for weights that nobody writes: so this waits for all in front, and
   the next kernel does not begin before wide is written. */
int tdm_rows_widen(const void *code, const float *scale, uint32_t rows, uint32_t cols, void *wide,
                   struct CUstream_st *stream);

/* tdm_rows_code: codes and scales of wide [rows][cols] bf16, by
   tdm_fp8_row. */
int tdm_rows_code(const void *wide, uint32_t rows, uint32_t cols, void *code, float *scale,
                  struct CUstream_st *stream);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_ROWS_H */
