/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: decodes are cut as finely as their CTAs allow and no finer than is of
   use, and a batch that has no room is told apart.  Method: drawn batches
   against the next finer cut, counted the plain way. */
#include "kernels/cuda/span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"

#define SEQS 300u

static uint64_t items_of(const tdm_attn_seq_t *seq, uint32_t cnt, uint32_t heads, uint32_t span) {
    uint64_t items = 0;
    for (uint32_t i = 0; i < cnt; i++)
        for (uint32_t at = 0; at < seq[i].kv_cnt; at += span * 64) items += heads;
    return items;
}

static void the_finest_that_fits(void **state) {
    (void)state;
    tdm_rng_t rng = {4};
    uint32_t fitted = 0, refused = 0;
    for (uint32_t n = 0; n < 3000; n++) {
        tdm_attn_seq_t seq[SEQS];
        uint32_t cnt = 1 + tdm_rng_below(&rng, n % 2 ? 40 : SEQS), heads = 1u << (n % 4);
        uint32_t room = 8 + tdm_rng_below(&rng, 500), most = 0;
        for (uint32_t i = 0; i < cnt; i++) {
            uint32_t kv = 1 + tdm_rng_below(&rng, i % 5 ? 3000 : 60000);
            seq[i] = (tdm_attn_seq_t){.slot = i, .kv_cnt = kv, .cnt = 1, .row = i};
            most = TDM_MAX(most, (kv + 63) / 64);
        }
        uint32_t span = tdm_fresh_span(seq, cnt, heads, room);
        if (!span) {
            assert_true((uint64_t)cnt * heads > room); /* one item each is too many */
            refused++;
            continue;
        }
        fitted++;
        assert_true(span <= most);
        assert_true(items_of(seq, cnt, heads, span) <= room);
        if (span > 3) assert_true(items_of(seq, cnt, heads, span - 1) > room);
        if (most >= 3) assert_true(span >= 3); /* 192 keys */
    }
    assert_true(fitted > 500 && refused > 500);
}

static void edges(void **state) {
    (void)state;
    tdm_attn_seq_t one = {.kv_cnt = 1, .cnt = 1};
    assert_int_equal(tdm_fresh_span(&one, 0, 8, 264), 0); /* nobody decodes */
    assert_int_equal(tdm_fresh_span(&one, 1, 8, 0), 0);   /* a device that cannot */
    assert_int_equal(tdm_fresh_span(&one, 1, 8, 7), 0);   /* fewer CTAs than heads */
    assert_int_equal(tdm_fresh_span(&one, 1, 8, 264), 1);
    one.kv_cnt = 1084; /* 17 pages: six items a head, not seventeen */
    assert_int_equal(tdm_fresh_span(&one, 1, 8, 264), 3);
    one.kv_cnt = 131072; /* 2,048 pages for 33 CTAs a head */
    assert_int_equal(tdm_fresh_span(&one, 1, 8, 264), 63);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_finest_that_fits),
                                       cmocka_unit_test(edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
