/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_KV_H
#define TDM_SCHEDULER_KV_H

/* tdm_kv owns the slots and the KV page numbers of the executor's pool.
   Contents live at the executor; this is the only ledger of who may write
   where.

     free pages --take--> table of a HELD slot --retire--> FENCED slot
         ^                                                     |
         +----- the last iteration that may read it is over ---+

   Promise.  A slot is opened for a number of pages that covers prompt and
   output_max.  They are promised, not taken: a page is taken when a
   position in it is planned, and free_cnt >= promised_cnt always holds.
   So a running sequence can always grow, none deadlocks with another, and
   no eviction exists.  The cost: what a sequence asked for and does not
   use (it stopped early) held others back meanwhile; a prediction of the
   output length may shrink the promise later, behind this header.

   Fence.  A retired slot keeps its pages until the last iteration that
   was planned with it has a result, or its executor life ended.

   Open and granted.  is_open and granted_cnt mirror what the executor
   knows: after a restart both are zero while the pages stay owned, and
   the next plans grant them again, slice by slice.

   Mirror.  mirror[page * 64 + row] keeps output token ids next to their
   page, so that a sequence can be rebuilt without its client.  Positions
   of the prompt are not stored: the request has them.

   Ownership: the caller's memory.  One caller. */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_KV_NONE UINT32_MAX

typedef enum tdm_kv_slot_state {
    TDM_KV_SLOT_FREE,
    TDM_KV_SLOT_HELD,   /* a live sequence's */
    TDM_KV_SLOT_FENCED, /* ended, an iteration may still read it */
} tdm_kv_slot_state_t;

typedef struct tdm_kv_slot {
    uint64_t last_iteration; /* the latest plan that contains it, 0: none */
    uint32_t owned_cnt;      /* pages in its table */
    uint32_t granted_cnt;    /* of them, known to the executor */
    uint32_t promised_cnt;   /* pages it may still take */
    uint32_t tail;           /* the last page of its table, where owned_cnt > 0 */
    uint8_t state;           /* tdm_kv_slot_state_t */
    uint8_t is_open;         /* the executor has it in its table, for this owner */
    uint8_t must_close;      /* the executor has it for a former owner */
    uint8_t reserved;
} tdm_kv_slot_t;

typedef struct tdm_kv {
    uint32_t page_cnt;
    uint32_t slot_cnt;
    uint32_t table_max; /* pages of one slot */
    uint32_t free_cnt;
    uint32_t promised_cnt;
    uint32_t fenced_cnt; /* pages in FENCED slots */
    uint32_t slot_free_cnt;
    uint32_t close_cnt;      /* slots with must_close */
    uint64_t released_cnt;   /* pages given back since init */
    uint64_t done_iteration; /* results of all iterations up to it are in */
    uint32_t *free;          /* [page_cnt] stack, free_cnt used */
    uint32_t *owner;         /* [page_cnt] slot, TDM_KV_NONE where free */
    uint32_t *table;         /* [slot_cnt, table_max] page numbers */
    uint32_t *slot_free;     /* [slot_cnt] stack, slot_free_cnt used */
    int32_t *mirror;         /* [page_cnt, TDM_KV_PAGE_TOKENS] token ids */
    tdm_kv_slot_t *slot;     /* [slot_cnt] */
} tdm_kv_t;

/* tdm_kv_pages gives the pages that cover tok tokens. */
static inline uint32_t tdm_kv_pages(uint32_t tok) {
    return tok / TDM_KV_PAGE_TOKENS + (tok % TDM_KV_PAGE_TOKENS != 0);
}

/* tdm_kv_init makes all pages and slots free.  The counts and the arrays
   of kv are filled in by the caller before. */
void tdm_kv_init(tdm_kv_t *kv);

/* tdm_kv_can_open: a slot is free, and page_cnt pages are neither taken
   nor promised. */
int tdm_kv_can_open(const tdm_kv_t *kv, uint32_t page_cnt);

/* tdm_kv_open takes a slot with a promise of page_cnt <= table_max pages;
   tdm_kv_can_open said yes. */
uint32_t tdm_kv_open(tdm_kv_t *kv, uint32_t page_cnt);

/* tdm_kv_cover takes pages until the slot's table covers tok tokens,
   inside its promise. */
void tdm_kv_cover(tdm_kv_t *kv, uint32_t slot, uint32_t tok);

/* tdm_kv_retire ends the slot's life; its pages return now or at the
   fence. */
void tdm_kv_retire(tdm_kv_t *kv, uint32_t slot);

/* tdm_kv_done: the result of `iteration` is in.  Fences up to it fall. */
void tdm_kv_done(tdm_kv_t *kv, uint64_t iteration);

/* tdm_kv_epoch_end: the executor is gone and with it every reader; all
   fences fall, nothing is open or granted any more. */
void tdm_kv_epoch_end(tdm_kv_t *kv, uint64_t iteration);

/* tdm_kv_page gives the page of position pos, which is covered. */
uint32_t tdm_kv_page(const tdm_kv_t *kv, uint32_t slot, uint32_t pos);

/* tdm_kv_ahead asks the memory for what remember will write for a slot
   soon. */
static inline void tdm_kv_ahead(const tdm_kv_t *kv, uint32_t slot, uint32_t pos) {
    size_t at = (size_t)kv->slot[slot].tail * TDM_KV_PAGE_TOKENS + pos % TDM_KV_PAGE_TOKENS;
    if (kv->slot[slot].owned_cnt > 0) __builtin_prefetch(&kv->mirror[at], 1);
}

/* tdm_kv_remember stores, tdm_kv_recall reads the token of a covered
   position. */
void tdm_kv_remember(tdm_kv_t *kv, uint32_t slot, uint32_t pos, int32_t token);
int32_t tdm_kv_recall(const tdm_kv_t *kv, uint32_t slot, uint32_t pos);

/* tdm_kv_check returns NULL or the sentence of the first broken
   invariant: each page is in exactly one place, and the sums are right. */
const char *tdm_kv_check(const tdm_kv_t *kv);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_KV_H */
