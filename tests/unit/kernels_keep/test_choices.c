/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what one life chose the next gets whole, and never from a block that
   is another's, half written or damaged.
   Method: drawn blocks; every bit of one flipped; a writer stopped at every
   byte of its way. */
#include "kernels/keep/choices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"

static const tdm_choices_key_t our_key = {.device = {1, 2, 3},
                                          .arch = 90,
                                          .sm_cnt = 132,
                                          .driver = 13000,
                                          .runtime = 13000,
                                          .library = 130000,
                                          .program = {7, 8, 9, 10}};

static tdm_choices_t *block(void) {
    tdm_choices_t *c = calloc(1, sizeof *c);
    assert_non_null(c);
    return c;
}

static void draw(tdm_choice_t *choice, uint32_t cnt, uint64_t seed) {
    tdm_rng_t rng = {seed};
    memset(choice, 0, cnt * sizeof *choice);
    for (uint32_t i = 0; i < cnt; i++) {
        choice[i].shape[0] = i + 1; /* no two alike */
        for (uint32_t k = 1; k < 6; k++) choice[i].shape[k] = (uint32_t)tdm_rng_next(&rng);
        for (uint32_t k = 0; k < TDM_CHOICE_ALGO_WORD; k++) choice[i].algo[k] = tdm_rng_next(&rng);
        choice[i].way = (uint32_t)tdm_rng_below(&rng, 3);
        choice[i].is_timed = (uint32_t)tdm_rng_below(&rng, 2);
    }
}

static uint32_t take(const tdm_choices_t *c, const tdm_choices_key_t *key) {
    static tdm_choice_t out[TDM_CHOICES_MAX];
    const char *why = NULL;
    uint32_t cnt = tdm_choices_take(c, key, out, &why);
    assert_true((cnt == 0) == (why[0] != 0));
    return cnt;
}

static void the_next_life_gets_all_of_it(void **state) {
    (void)state;
    static tdm_choice_t in[TDM_CHOICES_MAX + 1], out[TDM_CHOICES_MAX];
    static const uint32_t cnts[] = {1, 2, 185, TDM_CHOICES_MAX, TDM_CHOICES_MAX + 1};
    const char *why;
    tdm_choices_t *c = block();
    assert_int_equal(take(c, &our_key), 0);
    for (size_t n = 0; n < TDM_COUNT_OF(cnts); n++) {
        uint32_t whole = TDM_MIN(cnts[n], TDM_CHOICES_MAX);
        draw(in, cnts[n], n);
        tdm_choices_keep(c, &our_key, in, cnts[n]);
        assert_int_equal(tdm_choices_take(c, &our_key, out, &why), whole);
        assert_memory_equal(in, out, whole * sizeof *in);
        assert_ptr_equal(tdm_choices_find(out, whole, in[whole - 1].shape), &out[whole - 1]);
        in[0].shape[7] = 1;
        assert_null(tdm_choices_find(out, whole, in[0].shape));
    }
    tdm_choices_forget(c);
    assert_int_equal(take(c, &our_key), 0);
    free(c);
}

static void another_key_gets_nothing(void **state) {
    (void)state;
    static tdm_choice_t in[4];
    tdm_choices_t *c = block();
    draw(in, 4, 1);
    tdm_choices_keep(c, &our_key, in, 4);
    assert_int_equal(take(c, &our_key), 4);
    for (size_t i = 0; i < sizeof our_key; i++) {
        tdm_choices_key_t other = our_key;
        ((uint8_t *)&other)[i] ^= 1;
        assert_int_equal(take(c, &other), 0);
    }
    free(c);
}

/* Whatever bit of what counts is not as it was written. */
static void damage_is_seen(void **state) {
    (void)state;
    static tdm_choice_t in[9];
    tdm_choices_t *c = block();
    draw(in, 9, 2);
    tdm_choices_keep(c, &our_key, in, 9);
    size_t end = offsetof(tdm_choices_t, choice) + sizeof in;
    for (size_t bit = 0; bit < 8 * end; bit++) {
        ((uint8_t *)c)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(take(c, &our_key), 0);
        ((uint8_t *)c)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(take(c, &our_key), 9);
    /* What lies behind them is nobody's. */
    c->choice[9].way = 1;
    assert_int_equal(take(c, &our_key), 9);
    free(c);
}

static void noise_is_no_choice(void **state) {
    (void)state;
    tdm_rng_t rng = {3};
    tdm_choices_t *c = block();
    static tdm_choice_t in[4];
    draw(in, 4, 1);
    for (uint32_t n = 0; n < 200; n++) {
        tdm_choices_keep(c, &our_key, in, 4);
        uint64_t magic = c->magic;
        for (size_t i = 0; i < sizeof *c; i++) ((uint8_t *)c)[i] = (uint8_t)tdm_rng_next(&rng);
        if (n % 2) c->magic = magic;
        if (n % 4 == 3) c->key = our_key;
        if (n % 8 == 7) c->cnt = tdm_rng_below(&rng, TDM_CHOICES_MAX);
        assert_int_equal(take(c, &our_key), 0);
    }
    free(c);
}

/* A life that dies while it writes leaves old bytes, new ones, and no magic
   before all is there: whatever part of the new block is in place under the
   old magic or none, nobody takes a mixture. */
static void half_a_block_is_nobodys(void **state) {
    (void)state;
    static tdm_choice_t old[6], new[6];
    tdm_choices_t *a = block(), *b = block(), *mixed = block();
    draw(old, 6, 4);
    draw(new, 6, 5);
    tdm_choices_keep(a, &our_key, old, 6);
    tdm_choices_keep(b, &our_key, new, 6);
    size_t end = offsetof(tdm_choices_t, choice) + sizeof old;
    uint32_t refused = 0;
    for (size_t at = sizeof a->magic; at < end; at++) {
        memcpy(mixed, a, sizeof *mixed);
        memcpy(mixed, b, at);
        if (memcmp(mixed, a, sizeof *mixed) == 0 || memcmp(mixed, b, sizeof *mixed) == 0) continue;
        assert_int_equal(take(mixed, &our_key), 0);
        refused++;
    }
    assert_true(refused > sizeof old / 2);
    free(a);
    free(b);
    free(mixed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_life_gets_all_of_it),
        cmocka_unit_test(another_key_gets_nothing),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(noise_is_no_choice),
        cmocka_unit_test(half_a_block_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
