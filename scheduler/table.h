/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_TABLE_H
#define TDM_SCHEDULER_TABLE_H

/* tdm_table reads a measured latency table (appliance/abi/profile.h):
   one number for one shape.  Between two entries attention is
   interpolated along all four axes, which is exact in c * h and errs
   upwards in c * c; past the last entry it goes on with the last slope.

   Several slices count as one of the same tokens and pairs.  A decode
   batch with one very long sequence counts as if all its KV were shared
   by the CTAs that can split it: its length does not hide in the sum.

   Pure; no state; reads up to some 40 cache lines for one plan. */

#include "appliance/abi/profile.h"

TDM_BEGIN_DECLS

/* tdm_load_t is what an iteration would do. */
typedef struct tdm_load {
    uint32_t prefill_cnt; /* tokens of all slices */
    uint32_t decode_cnt;
    uint64_t pair_cnt; /* (query, key) pairs of the slices */
    uint64_t kv_cnt;   /* KV tokens read by the decodes */
    uint64_t kv_max;   /* of them, by the longest */
} tdm_load_t;

/* tdm_table_ns gives the time of load by variant, in
   [0, TDM_PROFILE_VARIANT_CNT). */
double tdm_table_ns(const tdm_profile_table_t *table, uint32_t variant, const tdm_load_t *load);

/* tdm_table_attention_ns gives the part of it that is attention. */
double tdm_table_attention_ns(const tdm_profile_table_t *table, uint32_t variant,
                              const tdm_load_t *load);

/* tdm_table_row_ns gives the least time that a row takes in the linear part,
   whatever the number of rows. */
double tdm_table_row_ns(const tdm_profile_table_t *table);

/* tdm_table_is_outside says whether load lies outside what is known of the
   variant: its box, and TDM_TABLE_BEYOND times as far along depth and KV.  There attention
   goes on as it went, by the bytes and pairs of each token more, and as many decodes as
   a pool holds have more KV than those of a measurement, which come in powers of two. */
#define TDM_TABLE_BEYOND 2.0
int tdm_table_is_outside(const tdm_profile_table_t *table, uint32_t variant,
                         const tdm_load_t *load);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_TABLE_H */
