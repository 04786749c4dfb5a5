/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_TICKET_TICKET_H
#define TDM_KERNELS_TICKET_TICKET_H

/* The ticket decides, at run time, what an SM does next.  It is the
   SM-aware scheduling of POD-Attention (Kamath et al., ASPLOS 2025,
   section 4.1: a CTA learns its SM at run time and picks its operation by
   a counter of that SM), as one header for the CPU's SM threads and for
   CUDA:

     draw(sm):
       t    := sm.drawn++                    this SM's own turn number
       kind := prefill or decode, so that    shares p : d, the items left
               turns follow p : d              (PROPORTIONAL) or 1 : 1 (EVEN)
       i    := next[kind]++                  the global counter of the kind
       if i is past the end: the same with the other kind
       both past the end: nothing is left, the SM leaves

   Why an SM's own counter: neighbouring turns of one SM get different
   kinds, so prefill (tensor-bound) and decode (memory-bound) meet on the
   same SM.  One global counter would leave to chance who meets whom.
   Turns start at the SM's number, so that SMs do not all begin alike.

   Exactly once: fetch-and-add hands out each index of a kind once; a draw
   that answers NONE has found both counters past their ends, so every
   item is somebody's.  Never a deadlock: no draw waits for anything.
   Overdraw: a counter passes its end by at most the number of concurrent
   drawers, so 32 bits hold item counts up to 2^31.

   Reset without memset: every drawer leaves once, and the last to leave
   zeroes the counters for the next launch (a caller that waits for its
   drawers anyway, as the CPU's does, resets them itself).  Launches must
   be ordered by the caller (barrier, stream order); launches that may
   overlap take one tdm_ticket_t each.

   Ownership: zeroed memory of the caller; every counter that two SMs
   touch has a TDM_CACHE_LINE of its own.

   Order of memory: draws are relaxed, because items are immutable during
   a launch and published by the launch itself.
     T1/T1  leave is acquire and release: the last one's zeroing comes
            after every draw of the others. */

#include "appliance/abi/result.h"
#include "appliance/base/attr.h"

/* The atomic layer: the header is compiled for host C, CUDA's host pass
   and CUDA's device pass. */
#if defined(__CUDACC__)
#define TDM_TICKET_FN static __host__ __device__ __forceinline__
#else
#include "appliance/base/atomic.h"
#define TDM_TICKET_FN static inline
#endif
#if defined(__CUDA_ARCH__)
#define TDM_TICKET_ADD(p, v)        atomicAdd((p), (v))
#define TDM_TICKET_ADD_FENCED(p, v) (__threadfence(), atomicAdd((p), (v)))
#define TDM_TICKET_LOAD(p)          __ldcg((p))
#define TDM_TICKET_STORE(p, v)      __stcg((p), (v))
#define TDM_TICKET_ACQUIRE()        __threadfence()
#else
#define TDM_TICKET_ADD(p, v)        __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define TDM_TICKET_ADD_FENCED(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define TDM_TICKET_LOAD(p)          __atomic_load_n((p), __ATOMIC_RELAXED)
#define TDM_TICKET_STORE(p, v)      __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define TDM_TICKET_ACQUIRE()        ((void)0)
#endif

#define TDM_TICKET_NONE UINT32_MAX

typedef enum tdm_ticket_policy {
    TDM_TICKET_PROPORTIONAL, /* kinds in the ratio of the items left */
    TDM_TICKET_EVEN,         /* one each, as long as both last */
    TDM_TICKET_STICKY,       /* a drawer keeps to its kind: tdm_ticket_role */
} tdm_ticket_policy_t;

/* tdm_ticket_line_t is one counter on a cache line of its own. */
typedef struct TDM_ALIGNED(TDM_CACHE_LINE) tdm_ticket_line {
    uint32_t value;
} tdm_ticket_line_t;

/* tdm_ticket_t is the state of one launch at a time; all zero between
   launches.  `sm` counters follow it as an array of the caller's,
   [sm_cnt]. */
typedef struct tdm_ticket {
    tdm_ticket_line_t next[TDM_KIND_CNT]; /* item index to hand out next */
    tdm_ticket_line_t gone;               /* drawers that have left */
} tdm_ticket_t;

/* tdm_ticket_deal_t says what a launch hands out; constant during it. */
typedef struct tdm_ticket_deal {
    uint32_t item_cnt[TDM_KIND_CNT]; /* each below 2^31 */
    uint32_t policy;                 /* tdm_ticket_policy_t */
} tdm_ticket_deal_t;

/* tdm_ticket_take hands out the next item of one kind, or
   TDM_TICKET_NONE.  The load first keeps a finished kind's counter from
   growing with every later draw. */
TDM_TICKET_FN uint32_t tdm_ticket_take(tdm_ticket_t *tk, const tdm_ticket_deal_t *deal,
                                       uint32_t kind) {
    uint32_t cnt = deal->item_cnt[kind];
    if (TDM_TICKET_LOAD(&tk->next[kind].value) >= cnt) return TDM_TICKET_NONE;
    uint32_t i = TDM_TICKET_ADD(&tk->next[kind].value, 1u);
    return i < cnt ? i : TDM_TICKET_NONE;
}

/* tdm_ticket_left: items of a kind not handed out yet; may be stale. */
TDM_TICKET_FN uint32_t tdm_ticket_left(tdm_ticket_t *tk, const tdm_ticket_deal_t *deal,
                                       uint32_t kind) {
    uint32_t next = TDM_TICKET_LOAD(&tk->next[kind].value);
    return next < deal->item_cnt[kind] ? deal->item_cnt[kind] - next : 0;
}

/* tdm_ticket_kind picks the kind of turn t for p prefill and d decode
   items left.  Of any p + d consecutive turns exactly p are prefill, as
   evenly spread as whole numbers allow (Bresenham's line). */
TDM_TICKET_FN uint32_t tdm_ticket_kind(uint32_t t, uint32_t p, uint32_t d, uint32_t policy) {
    if (policy == TDM_TICKET_EVEN) return t % 2 ? TDM_KIND_DECODE : TDM_KIND_PREFILL;
    uint64_t sum = (uint64_t)p + d;
    if (sum == 0) return TDM_KIND_DECODE;
    return (uint64_t)t % sum * p % sum < p ? TDM_KIND_PREFILL : TDM_KIND_DECODE;
}

/* tdm_ticket_role gives the n-th drawer to begin on an SM the kind it
   takes from first, by shares p : d (1 : 1 alternates).  It then calls
   tdm_ticket_take, and when its kind is done takes from the other.  Turns
   of equal count would not do where items differ in length: the kind of
   the short ones would leave the SM between them. */
TDM_TICKET_FN uint32_t tdm_ticket_role(tdm_ticket_line_t *drawn, uint32_t sm, uint32_t p,
                                       uint32_t d) {
    uint32_t t = TDM_TICKET_ADD(&drawn->value, 1u) + sm;
    return tdm_ticket_kind(t, p, d, TDM_TICKET_PROPORTIONAL);
}

/* tdm_ticket_draw draws for the SM numbered sm, whose counter is *drawn.
   Returns TDM_KIND_* and stores the item's index, or returns
   TDM_TICKET_NONE: nothing of either kind is left.  Called by any number
   of drawers at once, several per SM too. */
TDM_TICKET_FN uint32_t tdm_ticket_draw(tdm_ticket_t *tk, const tdm_ticket_deal_t *deal,
                                       tdm_ticket_line_t *drawn, uint32_t sm, uint32_t *index_out) {
    uint32_t t = TDM_TICKET_ADD(&drawn->value, 1u) + sm;
    uint32_t kind = tdm_ticket_kind(t, tdm_ticket_left(tk, deal, TDM_KIND_PREFILL),
                                    tdm_ticket_left(tk, deal, TDM_KIND_DECODE), deal->policy);
    *index_out = tdm_ticket_take(tk, deal, kind);
    if (*index_out != TDM_TICKET_NONE) return kind;
    kind = kind == TDM_KIND_PREFILL ? TDM_KIND_DECODE : TDM_KIND_PREFILL;
    *index_out = tdm_ticket_take(tk, deal, kind);
    return *index_out != TDM_TICKET_NONE ? kind : TDM_TICKET_NONE;
}

/* tdm_ticket_reset zeroes all counters, drawn[0, sm_cnt) included, once
   nobody draws: for a caller that has a barrier of its own. */
TDM_TICKET_FN void tdm_ticket_reset(tdm_ticket_t *tk, tdm_ticket_line_t *drawn, uint32_t sm_cnt) {
    for (uint32_t i = 0; i < sm_cnt; i++) TDM_TICKET_STORE(&drawn[i].value, 0u);
    TDM_TICKET_STORE(&tk->next[TDM_KIND_PREFILL].value, 0u);
    TDM_TICKET_STORE(&tk->next[TDM_KIND_DECODE].value, 0u);
    TDM_TICKET_STORE(&tk->gone.value, 0u);
}

/* tdm_ticket_leave is each drawer's last call of a launch that has no
   barrier.  The last of drawer_cnt resets the counters and gets 1. */
TDM_TICKET_FN int tdm_ticket_leave(tdm_ticket_t *tk, tdm_ticket_line_t *drawn, uint32_t sm_cnt,
                                   uint32_t drawer_cnt) {
    uint32_t before = TDM_TICKET_ADD_FENCED(&tk->gone.value, 1u); /* T1 */
    if (before + 1 != drawer_cnt) return 0;
    TDM_TICKET_ACQUIRE();
    tdm_ticket_reset(tk, drawn, sm_cnt);
    return 1;
}

#endif /* TDM_KERNELS_TICKET_TICKET_H */
