/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_KEEP_TABLES_H
#define TDM_KERNELS_KEEP_TABLES_H

/* tdm_tables is what a GPU backend has still to tell its device of the slots:
   new entries of the page tables, and slots whose sampling parameters are not
   there yet.  Both lie on the device from iteration to iteration and change by
   deltas alone, never as a whole.

     plan  ---> tdm_tables_apply ---> entries [entry_cnt], stale [stale_cnt]
     step with both, in order     ---> tdm_tables_sent

   Opening a slot empties its table here and nothing there: entries behind a
   slot's pages are never read.  Everything is in the struct and bounded; where
   the list of entries is full, apply has them sent.  One thread. */

#include "appliance/abi/plan.h"

TDM_BEGIN_DECLS

/* One new entry of a page table. */
typedef struct tdm_table_entry {
    uint32_t at; /* slot * stride + index */
    uint32_t page;
} tdm_table_entry_t;

typedef struct tdm_tables {
    uint32_t stride; /* entries of a slot's table */
    uint32_t entry_cnt;
    uint32_t stale_cnt;
    uint32_t page_cnt[TDM_SEQ_MAX]; /* of each slot */
    uint32_t stale[TDM_SEQ_MAX];    /* slots, in the order they were opened */
    uint8_t is_stale[TDM_SEQ_MAX];
    tdm_table_entry_t entry[TDM_PLAN_PAGE_MAX];
} tdm_tables_t;

/* tdm_tables_init: nothing is to be told. */
void tdm_tables_init(tdm_tables_t *t, uint32_t stride);

/* tdm_tables_apply notes what a checked plan changes.  send(ctx) is called where
   the entries are full: it brings them to the device and calls
   tdm_tables_sent. */
void tdm_tables_apply(tdm_tables_t *t, const tdm_plan_t *plan, void (*send)(void *ctx), void *ctx);

/* tdm_tables_sent: the entries were told, and with is_state the stale slots. */
void tdm_tables_sent(tdm_tables_t *t, int is_state);

TDM_END_DECLS

#endif /* TDM_KERNELS_KEEP_TABLES_H */
