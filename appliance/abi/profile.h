/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_PROFILE_H
#define TDM_ABI_PROFILE_H

/* Written by appliance/profile, read by scheduler/predict: how long an
   iteration takes on this machine.  One row per route:

     t = fixed + token * N + pair * P + kv * S      nanoseconds

   N tokens of the iteration (prefill and decode), P prefill pairs
   (query, key) summed over slices, S KV tokens read by decodes.  The
   linear form is the first one; a table measured over (chunk, depth,
   batch, KV) replaces it behind tdm_predict without a change here but
   new rows. */

#include "appliance/abi/plan.h"

typedef struct tdm_profile_row {
    double fixed_ns;
    double token_ns;
    double pair_ns;
    double kv_ns;
} tdm_profile_row_t;

typedef struct tdm_profile {
    tdm_profile_row_t row[TDM_ROUTE_CNT];
    uint32_t is_measured; /* 0: built-in guess, and said so at start */
    uint32_t reserved;
} tdm_profile_t;

#endif /* TDM_ABI_PROFILE_H */
