/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_KEEP_GRAPHS_H
#define TDM_KERNELS_KEEP_GRAPHS_H

/* tdm_graphs is the table of captured iterations: which there are, which are
   missed, which give way.  It makes and destroys none: whoever owns the device
   does, and tells.

     iteration   tdm_graphs_find   the graph of its key, or NULL: a miss, which
                                   runs eagerly and is asked for
     idle        tdm_graphs_next   the key most asked for that may have a place
                 (capture)
                 tdm_graphs_place  what must be destroyed first, one at a time
                 tdm_graphs_put    or tdm_graphs_bar: it cannot be captured

   A key is asked for from its second miss on.  Where the table is full, by
   number or by device memory, a graph gives way only to a key that was first
   missed after the graph's last replay, the longest unused first: keys that
   take turns, more than the table holds, do not push each other out.  What
   was put with is_kept never gives way.

   Everything is bounded and in the struct; no clock: finds are the time.  One
   thread at a time. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

#define TDM_GRAPHS_MAX 512u
#define TDM_GRAPHS_ASK 64u /* keys that are missed and not captured, at once */

/* What a captured iteration is for: everything that its launches have in their
   arguments.  No gaps: compared as bytes. */
typedef struct tdm_graph_key {
    uint32_t rows;     /* of the walk, a tdm_gemm_rows number */
    uint32_t wants;    /* of the head and the sampler, likewise; 0: nobody samples */
    uint32_t variant;  /* tdm_pod_variant_t of the attention */
    uint32_t is_fresh; /* tdm_pod_launch_fresh */
    uint32_t way;      /* tdm_pod_way_t; with tile and grid 0 where any launch serves */
    uint32_t tile;
    uint32_t grid;
    uint32_t kinds; /* bit k: there are items of kind k */
} tdm_graph_key_t;

typedef struct tdm_graph {
    tdm_graph_key_t key;
    void *exec;   /* its owner's */
    uint64_t sz;  /* device memory, bytes */
    uint64_t use; /* find that it was last replayed at */
    uint32_t is_kept;
} tdm_graph_t;

typedef struct tdm_graph_ask {
    tdm_graph_key_t key;
    uint64_t first, last; /* finds that missed it */
    uint64_t cnt;         /* of them; 0: free */
    uint32_t is_barred;
} tdm_graph_ask_t;

typedef struct tdm_graphs {
    uint32_t max;    /* graphs at once, at most TDM_GRAPHS_MAX */
    uint64_t sz_max; /* bytes of all, kept ones too */
    uint32_t cnt;
    uint64_t sz; /* whoever owns the device may add what kept ones took in all */
    uint64_t find_cnt;
    uint64_t hit_cnt, miss_cnt;
    uint64_t put_cnt;   /* captured */
    uint64_t evict_cnt; /* given way */
    tdm_graph_t at[TDM_GRAPHS_MAX];
    tdm_graph_ask_t ask[TDM_GRAPHS_ASK];
} tdm_graphs_t;

/* tdm_graphs_init: an empty table; max and sz_max as above. */
void tdm_graphs_init(tdm_graphs_t *g, uint32_t max, uint64_t sz_max);

/* tdm_graphs_find gives the graph of a key, or NULL, which is a miss. */
void *tdm_graphs_find(tdm_graphs_t *g, const tdm_graph_key_t *key);

/* tdm_graphs_next: 1, and the key to capture, or 0: nothing is asked for that
   may have a place. */
int tdm_graphs_next(const tdm_graphs_t *g, tdm_graph_key_t *key);

/* tdm_graphs_place makes room for a graph of sz bytes of a key: it takes one
   that gives way out of the table and returns it, to be destroyed; NULL: there
   is room now, or there will not be.  A key that nobody asked for lets none
   give way. */
void *tdm_graphs_place(tdm_graphs_t *g, const tdm_graph_key_t *key, uint64_t sz);

/* tdm_graphs_put enters a captured graph: 1, or 0 where there is no room, and
   the graph stays the caller's; the key is barred then. */
int tdm_graphs_put(tdm_graphs_t *g, const tdm_graph_key_t *key, void *exec, uint64_t sz,
                   uint32_t is_kept);

/* tdm_graphs_bar: the key is never asked for again, as long as its place in the
   list of misses lasts. */
void tdm_graphs_bar(tdm_graphs_t *g, const tdm_graph_key_t *key);

TDM_END_DECLS

#endif /* TDM_KERNELS_KEEP_GRAPHS_H */
