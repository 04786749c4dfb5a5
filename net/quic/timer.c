/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#include "appliance/base/clock.h"

static void put(timer_heap_t *t, uint32_t at, uint32_t idx) {
    t->heap[at] = idx;
    t->pos[idx] = at;
}

static void sift_up(timer_heap_t *t, uint32_t at) {
    uint32_t idx = t->heap[at];
    while (at > 0) {
        uint32_t parent = (at - 1u) / 2u;
        if (t->due_ns[t->heap[parent]] <= t->due_ns[idx]) break;
        put(t, at, t->heap[parent]);
        at = parent;
    }
    put(t, at, idx);
}

static void sift_down(timer_heap_t *t, uint32_t at) {
    uint32_t idx = t->heap[at];
    for (;;) {
        uint32_t child = 2u * at + 1u;
        if (child >= t->cnt) break;
        if (child + 1u < t->cnt && t->due_ns[t->heap[child + 1u]] < t->due_ns[t->heap[child]]) {
            child++;
        }
        if (t->due_ns[idx] <= t->due_ns[t->heap[child]]) break;
        put(t, at, t->heap[child]);
        at = child;
    }
    put(t, at, idx);
}

static void take_out(timer_heap_t *t, uint32_t idx) {
    uint32_t at = t->pos[idx];
    t->pos[idx] = NONE_IDX;
    uint32_t last = t->heap[--t->cnt];
    if (last == idx) return;
    put(t, at, last);
    sift_up(t, at);
    sift_down(t, t->pos[last]);
}

void timer_set(timer_heap_t *t, uint32_t idx, int64_t due_ns) {
    int is_in = t->pos[idx] != NONE_IDX;
    if (due_ns == TDM_TIME_NEVER) {
        if (is_in) take_out(t, idx);
        return;
    }
    if (is_in && t->due_ns[idx] == due_ns) return;
    t->due_ns[idx] = due_ns;
    if (!is_in) put(t, t->cnt++, idx);
    sift_up(t, t->pos[idx]);
    sift_down(t, t->pos[idx]);
}

uint32_t timer_due(const timer_heap_t *t, int64_t now_ns) {
    if (t->cnt == 0 || t->due_ns[t->heap[0]] > now_ns) return NONE_IDX;
    return t->heap[0];
}

int64_t timer_next_ns(const timer_heap_t *t) {
    return t->cnt == 0 ? TDM_TIME_NEVER : t->due_ns[t->heap[0]];
}
