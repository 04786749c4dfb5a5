/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/tokenizer/tokenizer_private.h"

/* Byte-pair merging: of all neighbours that may merge, the pair of least
   rank does, the leftmost of equals, until none may.  Short words look at
   every pair each time; from SHORT_MAX symbols on a heap keeps the time
   at n log n, since the length of a word is the user's choice. */

/* Symbols up to which looking at all is faster than the heap: ordinary
   words have at most a dozen; at 32 both took the same time (a dev machine,
   words of a Zipf text).  Too low costs ordinary words, too high lets a
   hostile text cost its square. */
#define SHORT_MAX 32u

#define END UINT32_MAX

static uint32_t merge_short(const tdm_pairs_t *p, tdm_symbol_t *symbol, uint32_t cnt) {
    uint32_t rank[SHORT_MAX];
    int32_t id[SHORT_MAX];
    for (uint32_t i = 0; i + 1 < cnt; i++) {
        const tdm_pair_t *pair = tdm_pairs_find(p, symbol[i].id, symbol[i + 1].id);
        rank[i] = pair ? pair->rank : UINT32_MAX;
        id[i] = pair ? pair->id : -1;
    }
    while (cnt > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < cnt; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        symbol[best].id = id[best];
        symbol[best].sz += symbol[best + 1].sz;
        cnt--;
        for (uint32_t i = best + 1; i < cnt; i++) symbol[i] = symbol[i + 1];
        for (uint32_t i = best + 1; i + 1 < cnt; i++) {
            rank[i] = rank[i + 1];
            id[i] = id[i + 1];
        }
        for (uint32_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < cnt; i++) {
            const tdm_pair_t *pair = tdm_pairs_find(p, symbol[i].id, symbol[i + 1].id);
            rank[i] = pair ? pair->rank : UINT32_MAX;
            id[i] = pair ? pair->id : -1;
        }
    }
    return cnt;
}

static int is_before(const tdm_candidate_t *a, const tdm_candidate_t *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void heap_push(tdm_candidate_t *heap, uint32_t *cnt, tdm_candidate_t c) {
    uint32_t i = (*cnt)++;
    while (i > 0 && is_before(&c, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

static tdm_candidate_t heap_pop(tdm_candidate_t *heap, uint32_t *cnt) {
    tdm_candidate_t top = heap[0];
    tdm_candidate_t last = heap[--(*cnt)];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= *cnt) break;
        if (child + 1 < *cnt && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* offer enters the pair that begins at symbol `left`, if it may merge. */
static void offer(const tdm_pairs_t *p, const tdm_symbol_t *symbol, uint32_t left,
                  tdm_candidate_t *heap, uint32_t *cnt) {
    if (left == END || symbol[left].next == END) return;
    int32_t right_id = symbol[symbol[left].next].id;
    const tdm_pair_t *pair = tdm_pairs_find(p, symbol[left].id, right_id);
    if (!pair) return;
    heap_push(
        heap, cnt,
        (tdm_candidate_t){
            .rank = pair->rank, .left = left, .left_id = symbol[left].id, .right_id = right_id});
}

/* The heap holds at most cnt - 1 first candidates, and each of the at most
   cnt - 1 merges takes one out and enters two. */
static uint32_t merge_long(const tdm_pairs_t *p, tdm_symbol_t *symbol, uint32_t cnt,
                           tdm_candidate_t *heap) {
    uint32_t heap_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        symbol[i].prev = i == 0 ? END : i - 1;
        symbol[i].next = i + 1 == cnt ? END : i + 1;
    }
    for (uint32_t i = 0; i + 1 < cnt; i++) offer(p, symbol, i, heap, &heap_cnt);
    while (heap_cnt > 0) {
        tdm_candidate_t c = heap_pop(heap, &heap_cnt);
        tdm_symbol_t *left = &symbol[c.left];
        if (left->sz == 0 || left->id != c.left_id || left->next == END) continue;
        tdm_symbol_t *right = &symbol[left->next];
        if (right->id != c.right_id) continue;
        left->id = tdm_pairs_find(p, c.left_id, c.right_id)->id;
        left->sz += right->sz;
        right->sz = 0; /* dead */
        left->next = right->next;
        if (left->next != END) symbol[left->next].prev = c.left;
        offer(p, symbol, left->prev, heap, &heap_cnt);
        offer(p, symbol, c.left, heap, &heap_cnt);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i != END; i = symbol[i].next) symbol[n++] = symbol[i];
    return n;
}

uint32_t tdm_merge(const tdm_pairs_t *p, tdm_symbol_t *symbol, uint32_t cnt,
                   tdm_candidate_t *heap) {
    if (cnt < 2) return cnt;
    return cnt <= SHORT_MAX ? merge_short(p, symbol, cnt) : merge_long(p, symbol, cnt, heap);
}
