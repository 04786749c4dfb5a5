/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_HOPPER_H
#define TDM_KERNELS_PLAN_HOPPER_H

/* How the Hopper kernel (kernels/attention/hopper) is fed: how many SMs
   begin with decode, which prefill tiles stay whole and how the others are
   cut, how long a decode item is.  Pure arithmetic on sums of the batch.

   An SM is wholly prefill or wholly decode, and takes the other kind when
   its own runs out.  So a launch is a small game of slots:

     prefill SMs  [ whole tile ........... ][ piece ][ piece ][ decode ...
     decode SMs   [ item | item | item .............. ][ piece ][ piece ]

   which tdm_hopper_time plays for one cut, in batches of equal items, and
   tdm_hopper_cut for all that are worth it. */

#include "kernels/include/attention.h"

TDM_BEGIN_DECLS

#define TDM_HOPPER_ROW   192u /* packed rows of a prefill tile */
#define TDM_HOPPER_GROUP 8u   /* most query heads of a KV head */
#define TDM_HOPPER_SMEM  231424u
/* Most keys of a decode item; the kernel keeps its page numbers in shared
   memory (HOP_ITEM_TOK_MAX). */
#define TDM_HOPPER_ITEM_TOK 2048u

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
