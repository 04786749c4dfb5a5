/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_HANDLE_H
#define TDM_ABI_HANDLE_H

/* Written by whoever owns the slot table, read by everyone who talks
   about the slot.  A handle whose generation differs from its slot's is
   stale: its message is counted and dropped.  Generations start at 1, so
   a zeroed handle is never valid; they wrap after 2^32 uses of one slot. */

#include "appliance/base/attr.h"

typedef struct tdm_handle {
    uint32_t slot; /* in [0, table capacity) */
    uint32_t generation;
} tdm_handle_t;

#endif /* TDM_ABI_HANDLE_H */
