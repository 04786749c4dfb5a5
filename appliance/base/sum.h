/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_SUM_H
#define TDM_BASE_SUM_H

/* tdm_sum is FNV-1a over 64 bits (Fowler, Noll, Vo): it tells one program
   from another and finds damage; a forger it does not stop. */

#include "appliance/base/attr.h"

#include <stddef.h>
#include <stdint.h>

TDM_BEGIN_DECLS

#define TDM_SUM_FIRST UINT64_C(14695981039346656037) /* of nothing */

/* tdm_sum_bytes goes on from sum. */
uint64_t tdm_sum_bytes(uint64_t sum, const void *bytes, size_t sz);

/* tdm_sum_file goes on from sum over what path holds; a file that cannot be
   read adds nothing.  Host code: at start, not in a tile. */
uint64_t tdm_sum_file(uint64_t sum, const char *path);

TDM_END_DECLS

#endif /* TDM_BASE_SUM_H */
