/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_NET_QUIC_POOL_H
#define TDM_NET_QUIC_POOL_H

/* tdm_pool is a bounded allocator over one fixed region, for libraries
   that insist on malloc.  Free blocks sit in lists by size class (eight
   classes per power of two, good fit, after TLSF: Masmano et al., ECRTS
   2004); neighbours that are free are joined at once, so memory of one
   class is never lost to another.  alloc and free take constant time.

     [hdr|payload][hdr|payload....][hdr|free........][end]
      16 bytes each; payloads are 16-byte aligned

   Every allocation is charged to an account with a quota, so that one
   connection cannot eat what the others need.  A refusal is counted in
   the account and in the pool and is ordinary: the caller gets NULL.
   Closing an account gives back whatever it still holds, so that a leak
   of a library ends with its connection.

   Ownership: the region is the caller's.  One thread at a time.
   Limits: regions of 1 KiB to 32 GiB. */

#include "appliance/base/status.h"

typedef struct tdm_pool tdm_pool_t;

#define TDM_POOL_OVERHEAD 16u /* bytes per allocation */

typedef struct tdm_pool_account {
    tdm_pool_t *pool;
    uint64_t quota_sz; /* bytes, headers included */
    uint64_t used_sz;
    uint64_t high_sz;
    uint64_t fail_cnt; /* allocations that were refused */
    uint32_t first;    /* of the blocks it holds */
    uint32_t reserved;
} tdm_pool_account_t;

typedef struct tdm_pool_stat {
    uint64_t sz;      /* bytes that can be given out, headers included */
    uint64_t used_sz; /* bytes given out, headers included */
    uint64_t high_sz;
    uint64_t fail_cnt;
    uint64_t block_cnt; /* allocations alive */
    uint64_t left_cnt;  /* blocks that closed accounts still held, ever */
} tdm_pool_stat_t;

/* tdm_pool_footprint: region bytes for about payload_sz bytes of use. */
uint64_t tdm_pool_footprint(uint64_t payload_sz);

/* tdm_pool_init formats mem, 16-byte aligned. */
TDM_MUST_USE tdm_status_t tdm_pool_init(void *mem, uint64_t mem_sz, tdm_pool_t **out);

/* tdm_pool_account_init opens an empty account. */
void tdm_pool_account_init(tdm_pool_account_t *a, tdm_pool_t *pool, uint64_t quota_sz);

/* tdm_pool_account_close frees every block that the account still holds
   and counts them in left_cnt. */
void tdm_pool_account_close(tdm_pool_account_t *a);

/* tdm_pool_alloc gives sz bytes, not zeroed; NULL where the quota or the
   region is exhausted.  sz 0 gives a valid pointer to nothing. */
void *tdm_pool_alloc(tdm_pool_account_t *a, uint64_t sz);

/* tdm_pool_calloc checks the product and zeroes. */
void *tdm_pool_calloc(tdm_pool_account_t *a, uint64_t cnt, uint64_t sz);

/* tdm_pool_realloc: as in C; on failure the old block stays. */
void *tdm_pool_realloc(tdm_pool_account_t *a, void *p, uint64_t sz);

/* tdm_pool_free gives back to the account it came from; NULL is allowed. */
void tdm_pool_free(tdm_pool_account_t *a, void *p);

/* tdm_pool_stat copies the sums over all accounts. */
void tdm_pool_stat(const tdm_pool_t *pool, tdm_pool_stat_t *out);

/* tdm_pool_is_sound walks all blocks and lists: 1 where they agree.  Tests
   only; time grows with the number of blocks. */
int tdm_pool_is_sound(const tdm_pool_t *pool);

#endif /* TDM_NET_QUIC_POOL_H */
