/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_HOPPER_H
#define TDM_KERNELS_PLAN_HOPPER_H

/* How the Hopper kernel (kernels/attention/hopper) is fed: how many SMs
   begin with decode, which prefill tiles stay whole and how the others are
   cut, how long a decode item is.  Pure arithmetic on sums of the batch.

   An SM is wholly prefill or wholly decode, and takes the other kind when
   its own runs out (in two streams it does not).  So a launch is a small game
   of slots:

     prefill SMs  [ whole tile ........... ][ piece ][ piece ][ decode ...
     decode SMs   [ item | item | item .............. ][ piece ][ piece ]

   which tdm_hopper_time plays for one cut, in batches of equal items, and
   tdm_hopper_choose for those that are worth it. */

#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

#define TDM_HOPPER_ROW       192u /* packed rows of a prefill tile */
#define TDM_HOPPER_ROW_SHORT 128u /* of one of two warpgroups; the third lets keys pass */
#define TDM_HOPPER_KEY       80u  /* keys of one step of it, as the kernel's HOP_KEY */
/* Floats of a prefill tile's partials: it is as tall whatever it holds, and
   each of its four lanes a row keeps the maximum and the sum. */
#define TDM_HOPPER_PART(head_dim) (TDM_HOPPER_ROW * ((uint64_t)(head_dim) + 8))
#define TDM_HOPPER_DECODE_ROW     8u /* packed rows of a decode item, columns of its MMA */
#define TDM_HOPPER_SMEM           231424u
/* Most keys and most pages of a decode item; the kernel keeps its page numbers
   in shared memory (HOP_PAGE_MAX). */
#define TDM_HOPPER_ITEM_TOK  4096u
#define TDM_HOPPER_ITEM_PAGE 128u

/* Most pieces of a prefill tile: the kernel counts them in ten bits
   (HOP_PART_FIELD). */
#define TDM_HOPPER_SPLIT_MAX 1023u

/* tdm_hopper_sum_t is what a cut depends on. */
typedef struct tdm_hopper_sum {
    uint32_t sm_cnt;
    uint32_t nhead_kv;
    uint32_t head_dim;
    uint32_t tile_cnt;     /* prefill tiles of one KV head */
    uint32_t block_max;    /* 64-key blocks of the longest */
    uint64_t block_cnt;    /* of all tiles of one KV head */
    uint64_t decode_bytes; /* of K and V, all KV heads */
    uint64_t decode_tok;   /* keys of all decodes */
    uint32_t decode_sm;    /* of a hybrid batch: SMs that must begin with decode; 0: free */
    uint32_t piece;        /* pieces of a cut tile, and no other number; 0: free */
    uint32_t is_apart;     /* 1: two streams, no SM takes the other kind */
} tdm_hopper_sum_t;

typedef struct tdm_hopper_cut {
    uint32_t share[TDM_KIND_CNT]; /* SMs that begin with a kind; their sum is sm_cnt */
    uint32_t whole_cnt;           /* tiles that stay whole, the first of a plan */
    uint32_t span;                /* blocks of a piece of the others */
    uint32_t decode_span;         /* blocks of a decode item */
    float us;                     /* predicted */
} tdm_hopper_cut_t;

/* tdm_hopper_time: the microseconds that a launch of this cut takes. */
float tdm_hopper_time(const tdm_hopper_sum_t *sum, const tdm_hopper_cut_t *cut);

/* tdm_hopper_choose fills *out with the cut of the least time. */
void tdm_hopper_choose(const tdm_hopper_sum_t *sum, tdm_hopper_cut_t *out);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_HOPPER_H */
