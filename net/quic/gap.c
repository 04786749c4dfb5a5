/* SPDX-License-Identifier: Apache-2.0 */
#include "net/quic/quic_private.h"

#define WINDOW 64u

/* whole gives the number nearest to the expected one that ends in these
   bits: RFC 9000, A.3. */
static uint64_t whole(uint64_t expected, uint64_t low, uint32_t bits) {
    uint64_t span = UINT64_C(1) << bits;
    uint64_t n = (expected & ~(span - 1u)) | low;
    if (n + span / 2u <= expected) return n + span;
    return n > expected + span / 2u && n >= span ? n - span : n;
}

uint32_t gap_note(gap_t *g, uint64_t pn_low, uint32_t pn_bits) {
    uint64_t pn = whole(g->next, pn_low, pn_bits);
    if (pn < g->next) {
        uint64_t age = g->next - 1u - pn;
        if (age < WINDOW) g->seen |= UINT64_C(1) << age;
        return 0;
    }
    uint64_t step = pn - g->next + 1u;
    /* Numbers before the first one count as seen: a window that was never
       full loses nothing. */
    if (g->next == 0) {
        g->seen = UINT64_MAX;
        g->next = pn + 1u;
        return 0;
    }
    g->next = pn + 1u;
    if (step >= WINDOW) {
        uint64_t lost =
            (uint64_t)(WINDOW - (uint32_t)__builtin_popcountll(g->seen)) + step - WINDOW;
        g->seen = 1;
        return (uint32_t)TDM_MIN(lost, (uint64_t)UINT32_MAX);
    }
    uint64_t out = g->seen >> (WINDOW - step);
    uint32_t lost = (uint32_t)step - (uint32_t)__builtin_popcountll(out);
    g->seen = g->seen << step | 1u;
    return lost;
}
