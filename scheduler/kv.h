/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_KV_H
#define TDM_SCHEDULER_KV_H

/* tdm_kv owns the slots and the KV page numbers of the executor's pool.
   Contents live at the executor; this is the only ledger of who may write
   where.

     free --take--> own page of a HELD slot --retire--> FENCED slot --+
      ^                      | full and computed                      |
      |                      v                                        |
      +--evict-- idle <-- shared page, by count  <--- the last -------+
      |                      (scheduler/prefix.h)     iteration that
      +----------------------------------------------- may read it is over

   Promise.  A slot is opened for a number of pages that covers prompt and
   output_max.  They are promised, not taken: a page is taken when a
   position in it is planned, and free plus idle pages always cover all
   promises.  So a running sequence can always grow and none deadlocks with
   another.  The cost: what a sequence asked for and does not use (it
   stopped early) held others back meanwhile; a prediction of the output
   length may shrink the promise later, behind this header.

   Own and shared.  Only its slot writes an own page.  A page that is full
   and computed may be listed in the index; from then on nobody writes it,
   any table of the same tenant may hold it, and it outlives its slot as an
   idle page until somebody needs the room.  A match takes listed pages
   into a fresh slot's table instead of promised ones.

   Fence.  A retired slot keeps its pages until the last iteration that
   was planned with it has a result, or its executor life ended.

   Open and granted.  is_open and granted_cnt mirror what the executor
   knows.  With an executor life all contents end, and the index with them.

   Ownership: the caller's memory.  One caller. */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"
#include "scheduler/prefix.h"

TDM_BEGIN_DECLS

#define TDM_KV_NONE   UINT32_MAX
#define TDM_KV_SHARED (UINT32_MAX - 1u) /* owner of a page that was listed */

typedef enum tdm_kv_slot_state {
    TDM_KV_SLOT_FREE,
    TDM_KV_SLOT_HELD,   /* a live sequence's */
    TDM_KV_SLOT_FENCED, /* ended, an iteration may still read it */
} tdm_kv_slot_state_t;

typedef struct tdm_kv_slot {
    uint64_t last_iteration; /* the latest plan that contains it, 0: none */
    uint32_t owned_cnt;      /* pages in its table */
    uint32_t shared_cnt;     /* of them, shared */
    uint32_t granted_cnt;    /* of them, known to the executor */
    uint32_t promised_cnt;   /* pages it may still take */
    uint32_t filled_cnt;     /* pages that were computed before it was opened */
    uint8_t state;           /* tdm_kv_slot_state_t */
    uint8_t is_open;         /* the executor has it in its table, for this owner */
    uint8_t must_close;      /* the executor has it for a former owner */
    uint8_t is_foreign;      /* its first pages were filled elsewhere: none is listed */
} tdm_kv_slot_t;

/* How far the pages of a slot's table are named in the index: by its own
   page or by one that holds the same. */
typedef struct tdm_kv_chain {
    uint64_t serial; /* of the last of them, TDM_PREFIX_ROOT: none */
    uint32_t cnt;
    uint32_t reserved;
} tdm_kv_chain_t;

typedef struct tdm_kv {
    uint32_t page_cnt;
    uint32_t slot_cnt;
    uint32_t table_max; /* pages of one slot */
    uint32_t free_cnt;
    uint32_t promised_cnt;
    uint32_t fenced_cnt; /* own pages in FENCED slots */
    uint32_t cached_cnt; /* shared pages, the idle ones included */
    uint32_t slot_free_cnt;
    uint32_t close_cnt;      /* slots with must_close */
    uint64_t released_cnt;   /* pages given back since init */
    uint64_t done_iteration; /* results of all iterations up to it are in */
    uint32_t *free;          /* [page_cnt] stack, free_cnt used */
    uint32_t *owner;         /* [page_cnt] slot, TDM_KV_SHARED, TDM_KV_NONE where free */
    uint32_t *table;         /* [slot_cnt, table_max] page numbers */
    uint32_t *slot_free;     /* [slot_cnt] stack, slot_free_cnt used */
    tdm_kv_slot_t *slot;     /* [slot_cnt] */
    tdm_kv_chain_t *chain;   /* [slot_cnt] */
    tdm_prefix_t prefix;
} tdm_kv_t;

/* tdm_kv_pages gives the pages that cover tok tokens. */
static inline uint32_t tdm_kv_pages(uint32_t tok) {
    return tok / TDM_KV_PAGE_TOKENS + (tok % TDM_KV_PAGE_TOKENS != 0);
}

/* tdm_kv_spare gives the pages that nobody holds and nobody was promised. */
static inline uint32_t tdm_kv_spare(const tdm_kv_t *kv) {
    return kv->free_cnt + kv->prefix.idle_cnt - kv->promised_cnt;
}

/* tdm_kv_init makes all pages and slots free.  The counts and the arrays
   of kv and its prefix are filled in by the caller before.  key: of the
   index. */
void tdm_kv_init(tdm_kv_t *kv, const uint64_t key[2]);

/* tdm_kv_can_open: a slot is free, and page_cnt pages are neither held
   nor promised. */
int tdm_kv_can_open(const tdm_kv_t *kv, uint32_t page_cnt);

/* tdm_kv_open takes a slot with a promise of page_cnt <= table_max pages;
   tdm_kv_can_open said yes. */
uint32_t tdm_kv_open(tdm_kv_t *kv, uint32_t page_cnt);

/* tdm_kv_match looks for the page that continues the table of a fresh slot
   with these tokens; a hit becomes part of the table, in place of a
   promised page.  1, or 0 where there is none. */
int tdm_kv_match(tdm_kv_t *kv, uint32_t slot, uint32_t tenant,
                 const int32_t token[TDM_KV_PAGE_TOKENS]);

/* tdm_kv_hold gives a fresh slot page_cnt pages of its promise, as filled
   elsewhere.  Nobody here can say what they hold, so neither they nor what
   follows them is ever listed. */
void tdm_kv_hold(tdm_kv_t *kv, uint32_t slot, uint32_t page_cnt);

/* tdm_kv_list offers page chain.cnt of the table to others: it is full,
   computed, and holds these tokens. */
void tdm_kv_list(tdm_kv_t *kv, uint32_t slot, uint32_t tenant,
                 const int32_t token[TDM_KV_PAGE_TOKENS]);

/* tdm_kv_doubt takes the slot's pages out of the index: what was computed
   there is not to be used again. */
void tdm_kv_doubt(tdm_kv_t *kv, uint32_t slot);

/* tdm_kv_cover takes pages until the slot's table covers tok tokens,
   inside its promise. */
void tdm_kv_cover(tdm_kv_t *kv, uint32_t slot, uint32_t tok);

/* tdm_kv_retire ends the slot's life; its pages return now or at the
   fence. */
void tdm_kv_retire(tdm_kv_t *kv, uint32_t slot);

/* tdm_kv_done: the result of `iteration` is in.  Fences up to it fall. */
void tdm_kv_done(tdm_kv_t *kv, uint64_t iteration);

/* tdm_kv_epoch_end: the executor is gone, with it every reader and all
   contents; all fences fall, nothing is open, granted or cached any more.
   Slots in use keep their pages; their owners have to leave them, as
   shared ones may not be computed by several. */
void tdm_kv_epoch_end(tdm_kv_t *kv, uint64_t iteration);

/* tdm_kv_page gives entry idx of the slot's table. */
uint32_t tdm_kv_page(const tdm_kv_t *kv, uint32_t slot, uint32_t idx);

/* Where the next look goes on: a page, and an entry of a slot's table. */
typedef struct tdm_kv_cursor {
    uint32_t page;
    uint32_t slot;
    uint32_t entry;
} tdm_kv_cursor_t;

/* tdm_kv_check_some is a part of tdm_kv_check whose time does not depend on
   the pool: the sums of all slots, and cnt pages and table entries from at
   on, which it moves; each is held against what names it. */
const char *tdm_kv_check_some(const tdm_kv_t *kv, tdm_kv_cursor_t *at, uint32_t cnt);

/* tdm_kv_check returns NULL or the sentence of the first broken
   invariant: each page is in exactly one place or shared by as many tables
   as it counts, and the sums are right. */
const char *tdm_kv_check(const tdm_kv_t *kv);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_KV_H */
