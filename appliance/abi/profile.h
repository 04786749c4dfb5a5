/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_PROFILE_H
#define TDM_ABI_PROFILE_H

/* Written by appliance/profile, read by scheduler/predict: how long an
   iteration takes on this machine.  Two forms.

   Rows, the guess: one per route,

     t = fixed + token * N + pair * P + kv * S      nanoseconds

   N tokens of the iteration (prefill and decode), P prefill pairs
   (query, key) summed over slices, S KV tokens read by decodes.

   Table, the measurement: what every token costs apart from attention,
   and attention by shape and kernel variant,

     t = fixed + lin[N] + att[variant][S][b][h][c]

   c prefill tokens at effective depth h (P = c * h + c * (c + 1) / 2), b
   decodes over S KV tokens.  Attention is interpolated in all four; lin
   takes the upper neighbour where kernels work in whole tiles.  lin and
   lin + att never fall from an entry to the next along an axis; att alone
   may, where lin takes a step.  The scheduler reads a handful of cache
   lines of it: for one plan b and S are fixed, so c and h are innermost. */

#include "appliance/abi/plan.h"

typedef struct tdm_profile_row {
    double fixed_ns;
    double token_ns;
    double pair_ns;
    double kv_ns;
} tdm_profile_row_t;

#define TDM_PROFILE_VARIANT_CNT 3 /* variant v is the route TDM_ROUTE_FUSED + v */
#define TDM_PROFILE_LIN_CNT     61
#define TDM_PROFILE_CHUNK_CNT   13
#define TDM_PROFILE_DEPTH_CNT   9
#define TDM_PROFILE_BATCH_CNT   13
#define TDM_PROFILE_KV_CNT      13

/* The part of a variant's table that was measured: a shape with a larger
   coordinate is extrapolated. */
typedef struct tdm_profile_box {
    float chunk;
    float depth;
    float batch;
    float kv;
} tdm_profile_box_t;

typedef struct tdm_profile_table {
    double fixed_ns;
    uint32_t stair_from; /* from so many tokens on lin takes the upper neighbour; 0: never */
    double clock_khz;    /* SM clock while it was measured; 0: not told */
    uint32_t split_max;  /* CTAs that share one sequence's decode; 1 where none */
    float lin_at[TDM_PROFILE_LIN_CNT];
    float lin_ns[TDM_PROFILE_LIN_CNT];
    float chunk_at[TDM_PROFILE_CHUNK_CNT]; /* axes ascend from 0 */
    float depth_at[TDM_PROFILE_DEPTH_CNT];
    float batch_at[TDM_PROFILE_BATCH_CNT];
    float kv_at[TDM_PROFILE_KV_CNT];
    tdm_profile_box_t box[TDM_PROFILE_VARIANT_CNT];
    float att_ns[TDM_PROFILE_VARIANT_CNT][TDM_PROFILE_KV_CNT][TDM_PROFILE_BATCH_CNT]
                [TDM_PROFILE_DEPTH_CNT][TDM_PROFILE_CHUNK_CNT];
} tdm_profile_table_t;

typedef struct tdm_profile {
    tdm_profile_row_t row[TDM_ROUTE_CNT]; /* used where table is NULL */
    const tdm_profile_table_t *table;     /* the giver's; it outlives every user of the profile */
    uint32_t is_measured;                 /* 0: built-in guess, and said so at start */
    uint32_t reserved;
} tdm_profile_t;

#endif /* TDM_ABI_PROFILE_H */
