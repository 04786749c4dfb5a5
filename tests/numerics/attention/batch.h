/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_NUMERICS_ATTENTION_BATCH_H
#define TDM_TESTS_NUMERICS_ATTENTION_BATCH_H

/* A batch is one iteration's attention input, made from seeds, and run
   through work list and CPU backend.

   Every value is a function of (stream, position, head, element) alone,
   so two batches that hold the same stream, whatever else they hold and
   however it was cut, have the same queries and KV for it.

   Traps: KV pages are shuffled; every token that no sequence wrote, and
   whole unused pages, are NaN; page table entries past a sequence's end
   name no page; outputs start as NaN; 4 KiB guard bands lie around pools
   and outputs and are checked after each run. */

#include "kernels/cpu/attention.h"
#include "kernels/worklist/worklist.h"

typedef struct batch_shape {
    uint32_t nhead_q;
    uint32_t nhead_kv;
    uint32_t head_dim;
    uint32_t dtype;
    float q_scale; /* standard deviation of queries; keys and values have 1 */
    float k_bias;  /* added to every element of K, B04 */
} batch_shape_t;

typedef struct batch_seq {
    uint64_t stream;
    uint32_t kv_cnt;
    uint32_t cnt;
} batch_seq_t;

typedef struct batch {
    batch_shape_t shape;
    tdm_kv_layout_t kv;
    uint32_t prefill_cnt;
    uint32_t decode_cnt;
    uint32_t row_cnt;
    uint32_t table_stride;
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    batch_seq_t from[TDM_ATTN_SEQ_MAX];
    uint32_t *table;
    float scale[2][TDM_ATTN_HEAD_MAX]; /* of K, of V, by KV head; used where fp8 */
    float *q;
    float *out; /* [row_cnt][nhead_q][head_dim] */
    float *lse; /* [row_cnt][nhead_q] */
    void *k;
    void *v;
    uint8_t *block[4]; /* what was allocated around k, v, out, lse */
    uint64_t block_sz[4];
} batch_t;

/* batch_open builds a batch of prefill_cnt, then decode_cnt sequences.
   page_seed shuffles the pages. */
void batch_open(batch_t *b, const batch_shape_t *shape, const batch_seq_t *seq,
                uint32_t prefill_cnt, uint32_t decode_cnt, uint64_t page_seed);
void batch_close(batch_t *b);

typedef struct batch_how {
    tdm_sm_pool_t *pool;
    uint32_t isa;
    uint32_t route;
    uint32_t plan_sm_cnt;    /* the work list's sm_cnt: how finely to split; 0: the pool's */
    uint64_t part_float_max; /* 0: the default */
    uint32_t again_cnt;      /* launches more, by the same context */
} batch_how_t;

/* batch_launch is the launch of this batch but for its plan. */
tdm_attn_launch_t batch_launch(const batch_t *b);

/* batch_run runs it into out and lse; stats and the plan's copy are
   stored where not NULL.  Aborts on a touched guard band or an output
   that was not written. */
void batch_run(batch_t *b, const batch_how_t *how, tdm_attn_stats_t *stats,
               tdm_attn_plan_t *plan_out);

/* batch_pool opens a pool of sm_cnt SMs (malloc inside); batch_pool_free
   ends it. */
tdm_sm_pool_t *batch_pool(uint32_t sm_cnt);
void batch_pool_free(tdm_sm_pool_t *pool);

/* batch_row: the floats of one row of out. */
static inline const float *batch_row(const batch_t *b, uint32_t seq, uint32_t tok) {
    uint64_t width = (uint64_t)b->shape.nhead_q * b->shape.head_dim;
    return b->out + (b->seq[seq].row + tok) * width;
}

#endif /* TDM_TESTS_NUMERICS_ATTENTION_BATCH_H */
