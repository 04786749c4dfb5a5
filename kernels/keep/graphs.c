/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/keep/graphs.h"

#include <string.h>

#define ASK_MIN 2u /* misses of a key that is worth a capture */

_Static_assert(sizeof(tdm_graph_key_t) == 8 * sizeof(uint32_t), "keys are compared as bytes");

void tdm_graphs_init(tdm_graphs_t *g, uint32_t max, uint64_t sz_max) {
    memset(g, 0, sizeof *g);
    g->max = TDM_MIN(max, TDM_GRAPHS_MAX);
    g->sz_max = sz_max;
}

static int is_key(const tdm_graph_key_t *a, const tdm_graph_key_t *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static tdm_graph_t *graph_of(tdm_graphs_t *g, const tdm_graph_key_t *key) {
    for (uint32_t i = 0; i < g->cnt; i++)
        if (is_key(&g->at[i].key, key)) return &g->at[i];
    return NULL;
}

static tdm_graph_ask_t *ask_of(tdm_graphs_t *g, const tdm_graph_key_t *key) {
    for (uint32_t i = 0; i < TDM_GRAPHS_ASK; i++)
        if (g->ask[i].cnt && is_key(&g->ask[i].key, key)) return &g->ask[i];
    return NULL;
}

/* ask_place: a free place in the list of misses, or the one missed longest ago;
   a barred one goes like any other, and is tried once more when it comes back. */
static tdm_graph_ask_t *ask_place(tdm_graphs_t *g) {
    tdm_graph_ask_t *oldest = &g->ask[0];
    for (uint32_t i = 0; i < TDM_GRAPHS_ASK; i++) {
        if (g->ask[i].cnt == 0) return &g->ask[i];
        if (g->ask[i].last < oldest->last) oldest = &g->ask[i];
    }
    return oldest;
}

void *tdm_graphs_find(tdm_graphs_t *g, const tdm_graph_key_t *key) {
    tdm_graph_t *there = graph_of(g, key);
    g->find_cnt++;
    if (there) {
        there->use = g->find_cnt;
        g->hit_cnt++;
        return there->exec;
    }
    tdm_graph_ask_t *ask = ask_of(g, key);
    g->miss_cnt++;
    if (!ask) {
        ask = ask_place(g);
        *ask = (tdm_graph_ask_t){.key = *key, .first = g->find_cnt};
    }
    ask->last = g->find_cnt;
    ask->cnt++;
    return NULL;
}

/* gives_way: the graph that would go for what was first missed then, or NULL. */
static tdm_graph_t *gives_way(const tdm_graphs_t *g, uint64_t first) {
    const tdm_graph_t *oldest = NULL;
    for (uint32_t i = 0; i < g->cnt; i++) {
        const tdm_graph_t *one = &g->at[i];
        if (one->is_kept || one->use >= first) continue;
        if (!oldest || one->use < oldest->use) oldest = one;
    }
    return (tdm_graph_t *)(uintptr_t)oldest;
}

int tdm_graphs_next(const tdm_graphs_t *g, tdm_graph_key_t *key) {
    const tdm_graph_ask_t *best = NULL;
    for (uint32_t i = 0; i < TDM_GRAPHS_ASK; i++) {
        const tdm_graph_ask_t *a = &g->ask[i];
        if (a->cnt < ASK_MIN || a->is_barred) continue;
        if (g->cnt == g->max && !gives_way(g, a->first)) continue;
        if (!best || a->cnt > best->cnt || (a->cnt == best->cnt && a->last > best->last)) best = a;
    }
    if (!best) return 0;
    *key = best->key;
    return 1;
}

static int has_room(const tdm_graphs_t *g, uint64_t sz) {
    return g->cnt < g->max && sz <= g->sz_max && g->sz <= g->sz_max - sz;
}

void *tdm_graphs_place(tdm_graphs_t *g, const tdm_graph_key_t *key, uint64_t sz) {
    const tdm_graph_ask_t *ask = ask_of(g, key);
    if (has_room(g, sz) || sz > g->sz_max || !ask) return NULL;
    tdm_graph_t *out = gives_way(g, ask->first);
    if (!out) return NULL;
    void *exec = out->exec;
    g->sz -= out->sz;
    *out = g->at[--g->cnt];
    g->evict_cnt++;
    return exec;
}

int tdm_graphs_put(tdm_graphs_t *g, const tdm_graph_key_t *key, void *exec, uint64_t sz,
                   uint32_t is_kept) {
    if (graph_of(g, key) || !has_room(g, sz)) {
        tdm_graphs_bar(g, key);
        return 0;
    }
    tdm_graph_ask_t *ask = ask_of(g, key);
    if (ask) *ask = (tdm_graph_ask_t){.cnt = 0};
    g->at[g->cnt++] =
        (tdm_graph_t){.key = *key, .exec = exec, .sz = sz, .use = g->find_cnt, .is_kept = is_kept};
    g->sz += sz;
    g->put_cnt++;
    return 1;
}

void tdm_graphs_bar(tdm_graphs_t *g, const tdm_graph_key_t *key) {
    tdm_graph_ask_t *ask = ask_of(g, key);
    if (ask) ask->is_barred = 1;
}
