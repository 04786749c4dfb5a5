/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/sample/select.h"

static inline void swap(uint64_t *a, uint64_t *b) {
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

static void sift(uint64_t *c, uint32_t root, uint32_t cnt) {
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= cnt) return;
        if (child + 1 < cnt && c[child] < c[child + 1]) child++;
        if (c[root] >= c[child]) return;
        swap(&c[root], &c[child]);
        root = child;
    }
}

/* Heap sort: in place, and no input makes it slow. */
void tdm_candidate_sort(uint64_t *c, uint32_t cnt) {
    for (uint32_t i = cnt / 2; i-- > 0;) sift(c, i, cnt);
    for (uint32_t end = cnt; end > 1; end--) {
        swap(&c[0], &c[end - 1]);
        sift(c, 0, end - 1);
    }
}

static uint64_t median_of_three(uint64_t a, uint64_t b, uint64_t c) {
    if (a > b) swap(&a, &b);
    if (b > c) b = c;
    return a > b ? a : b;
}

void tdm_candidate_front(uint64_t *c, uint32_t cnt, uint32_t k) {
    uint32_t lo = 0, hi = cnt; /* the k-th border lies in [lo, hi] */
    /* Each pass of a random order leaves about half; after 64 bad pivots
       the rest is sorted instead. */
    for (int pass = 0; hi - lo > 32 && pass < 64; pass++) {
        uint64_t pivot = median_of_three(c[lo], c[lo + (hi - lo) / 2], c[hi - 1]);
        uint32_t store = lo;
        for (uint32_t i = lo; i < hi; i++) {
            uint64_t v = c[i];
            c[i] = c[store];
            c[store] = v;
            store += v < pivot;
        }
        /* [lo, store) < pivot <= [store, hi), and the pivot is in there. */
        if (k <= store) {
            hi = store;
        } else {
            lo = store;
            uint32_t at = lo;
            while (c[at] != pivot) at++;
            swap(&c[at], &c[lo]);
            lo++;
        }
        if (k <= lo || k >= hi) return;
    }
    tdm_candidate_sort(c + lo, hi - lo);
}
