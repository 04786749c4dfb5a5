/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_PREFIX_H
#define TDM_SCHEDULER_PREFIX_H

/* tdm_prefix is the index of full KV pages whose contents may serve
   another prompt of the same tenant: pages are shared read-only by count,
   nothing is ever copied.

     table of slot a   [p7]--[p3]--[p9]--[p4, being filled]
     table of slot b   [p7]--[p3]--[p5, being filled]
     index             p7 (root) <- p3 <- p9      p9's parent is p3

   What a page holds depends on every token before it, so an entry is named
   by its tenant, its parent entry and its own 64 tokens.  Serials name
   entries; none is ever used twice, so a child of an entry that is gone
   matches nothing.  A lookup hashes those three with the tenant's key
   (appliance/base/sip.h) and then compares all of them: equal hashes alone
   are no hit.  By induction from the root the whole prefix is compared.

   idle pages are in no table.  They count as free for everybody's promise:
   taking a page when none is free takes the idle one whose use is longest
   ago (tdm_prefix_evict).  A release lists a table from its end to its
   start, so an entry goes before its parent.

   Ownership: the caller's memory.  One caller, scheduler/kv. */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_PREFIX_NONE UINT32_MAX
#define TDM_PREFIX_ROOT UINT64_C(0) /* the parent serial of a first page */

typedef struct tdm_prefix_page {
    uint64_t serial; /* 0: not in the index */
    uint64_t parent; /* serial of the page before it, TDM_PREFIX_ROOT */
    uint64_t hash;
    uint32_t ref; /* tables that hold it */
    uint32_t tenant;
    uint32_t next;  /* in its bucket */
    uint32_t older; /* among the idle */
    uint32_t newer;
    uint32_t is_idle;
} tdm_prefix_page_t;

typedef struct tdm_prefix {
    uint32_t page_cnt;
    uint32_t bucket_cnt; /* a power of two; 0: there is no cache */
    uint64_t key[TDM_TENANT_MAX][2];
    uint64_t serial;     /* the last one given */
    uint32_t listed_cnt; /* pages in the index */
    uint32_t idle_cnt;   /* of them, in no table */
    uint32_t oldest;     /* of the idle */
    uint32_t newest;
    uint64_t evicted_cnt;    /* idle pages taken for something else */
    uint64_t flushed_cnt;    /* pages forgotten as their contents were lost or doubtful */
    uint32_t *bucket;        /* [bucket_cnt] first page */
    tdm_prefix_page_t *page; /* [page_cnt] */
    int32_t *token;          /* [page_cnt, TDM_KV_PAGE_TOKENS] of listed pages */
} tdm_prefix_t;

/* tdm_prefix_buckets gives the bucket_cnt for a pool. */
uint32_t tdm_prefix_buckets(uint32_t page_cnt);

/* tdm_prefix_init empties the index; counts and arrays are filled in
   before.  key: 128 secret bits, from which each tenant gets its own. */
void tdm_prefix_init(tdm_prefix_t *x, const uint64_t key[2]);

/* tdm_prefix_find gives the page of tenant that follows parent and holds
   these tokens, TDM_PREFIX_NONE where there is none. */
uint32_t tdm_prefix_find(const tdm_prefix_t *x, uint32_t tenant, uint64_t parent,
                         const int32_t token[TDM_KV_PAGE_TOKENS]);

/* tdm_prefix_insert lists a page that is not listed, held by one table;
   find said that nothing like it is there. */
void tdm_prefix_insert(tdm_prefix_t *x, uint32_t page, uint32_t tenant, uint64_t parent,
                       const int32_t token[TDM_KV_PAGE_TOKENS]);

/* tdm_prefix_hold counts one more table for a page. */
void tdm_prefix_hold(tdm_prefix_t *x, uint32_t page);

/* tdm_prefix_drop counts one less; 1 where the page is free now, as it was
   forgotten before. */
int tdm_prefix_drop(tdm_prefix_t *x, uint32_t page);

/* tdm_prefix_forget takes a page out of the index, as its contents are
   lost or doubtful; 1 where it is free now, as no table holds it. */
int tdm_prefix_forget(tdm_prefix_t *x, uint32_t page);

/* tdm_prefix_evict forgets the idle page whose use is longest ago and
   gives it; idle_cnt > 0. */
uint32_t tdm_prefix_evict(tdm_prefix_t *x);

/* tdm_prefix_page_check looks at one page and what it is linked with: NULL
   or the sentence of an invariant that does not hold there. */
const char *tdm_prefix_page_check(const tdm_prefix_t *x, uint32_t page);

/* tdm_prefix_check returns NULL or the sentence of the first broken
   invariant. */
const char *tdm_prefix_check(const tdm_prefix_t *x);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_PREFIX_H */
