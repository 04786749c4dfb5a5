/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BASE_ARENA_H
#define TDM_BASE_ARENA_H

/* tdm_arena is one region of memory, taken at start and handed out by a
   bump pointer until it is sealed.  After the seal nothing in a polling
   tile can allocate: a later tdm_arena_take is a broken invariant.

     kind         pages                    visible to
     PLAIN        4 KiB, zeroed            this process
     HUGE         hugetlb (libhugetlbfs)   this process
     SHARED       memfd, 4 KiB             whoever receives the descriptor
     SHARED_HUGE  memfd with MFD_HUGETLB   whoever receives the descriptor

   The page size really got is read back (a hugepage request can fall back
   in silence) and kept in page_sz for the metrics.
   A forked child does not inherit PLAIN and HUGE.
   Ownership: the creator closes; an attached process closes its own view.
   Offsets, never pointers, cross processes. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef enum tdm_arena_kind {
    TDM_ARENA_PLAIN,
    TDM_ARENA_HUGE,
    TDM_ARENA_SHARED,
    TDM_ARENA_SHARED_HUGE,
} tdm_arena_kind_t;

typedef struct tdm_arena {
    uint8_t *base;
    uint64_t sz;      /* bytes mapped, a multiple of page_sz */
    uint64_t used;    /* bytes handed out */
    uint64_t page_sz; /* bytes per page really got */
    tdm_arena_kind_t kind;
    int fd; /* -1 where the kind has none */
    int is_sealed;
} tdm_arena_t;

/* tdm_arena_open maps at least sz bytes, zeroed.  Where hugepages are
   short it fails with have, need and how in one line; it never falls back
   by itself. */
TDM_MUST_USE tdm_status_t tdm_arena_open(tdm_arena_t *a, tdm_arena_kind_t kind, uint64_t sz,
                                         tdm_error_t *err);

/* tdm_arena_attach maps a SHARED arena received as a descriptor; its size
   comes from the descriptor.  The descriptor stays the caller's. */
TDM_MUST_USE tdm_status_t tdm_arena_attach(tdm_arena_t *a, int fd, tdm_error_t *err);

/* tdm_arena_take hands out sz zeroed bytes aligned to align (a power of
   two, at most 4096, whatever the pages).  NULL where the arena is too small: the caller
   sized it.  Boot time only. */
void *tdm_arena_take(tdm_arena_t *a, uint64_t sz, uint64_t align);

/* tdm_arena_seal ends allocation, and fixes the size of a shared arena's
   descriptor against shrinking and growing (F_SEAL_SHRINK, F_SEAL_GROW). */
void tdm_arena_seal(tdm_arena_t *a);

/* tdm_arena_close unmaps and closes; a zeroed arena is allowed. */
void tdm_arena_close(tdm_arena_t *a);

/* tdm_hugepages_read reports the default pool: page bytes, total and free
   pages; zeros where the kernel has none. */
void tdm_hugepages_read(uint64_t *page_sz, uint64_t *total_cnt, uint64_t *free_cnt);

TDM_END_DECLS

#endif /* TDM_BASE_ARENA_H */
