/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_SLAB_H
#define TDM_API_SLAB_H

/* tdm_slab lends contiguous runs of token ids.  A run is reserved whole
   when a request is taken (prompt and every token it may produce) and
   given back whole when the scheduler is done with it, so nothing runs
   short in between.

   One bit per chunk of TDM_SLAB_CHUNK ids; next fit, starting after the
   last run.  A take looks at each chunk at most twice: 16,384 chunks, a
   few tens of microseconds, for the default 64 MiB.  No room for a run is
   an ordinary event: the request is refused as prompt_memory. */

#include "appliance/base/attr.h"

#define TDM_SLAB_CHUNK                                                                             \
    1024u /* ids; larger wastes on short requests, smaller lengthens the walk                      \
           */

typedef struct tdm_slab {
    int32_t *ids;
    uint64_t *used; /* bit per chunk */
    uint32_t chunk_cnt;
    uint32_t used_cnt;
    uint32_t next; /* chunk at which the next search starts */
} tdm_slab_t;

/* tdm_slab_init takes chunk_cnt * TDM_SLAB_CHUNK ids and
   (chunk_cnt + 63) / 64 zeroed words. */
void tdm_slab_init(tdm_slab_t *s, int32_t *ids, uint64_t *used, uint32_t chunk_cnt);

/* tdm_slab_take lends id_cnt > 0 ids, NULL where no run is free. */
int32_t *tdm_slab_take(tdm_slab_t *s, uint64_t id_cnt);

/* tdm_slab_give takes back what tdm_slab_take lent for the same id_cnt. */
void tdm_slab_give(tdm_slab_t *s, const int32_t *ids, uint64_t id_cnt);

#endif /* TDM_API_SLAB_H */
