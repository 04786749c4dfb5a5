/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no place is taken twice, a handle of an earlier life is never live,
   and what is kept stays free.
   Method: random takes and gives against a plain list; seeded. */
#include "appliance/ring/slots.h"

#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CNT 13u

static void random_lives_agree_with_a_plain_list(void **state) {
    (void)state;
    tdm_slot_place_t place[CNT];
    tdm_slots_t s;
    tdm_handle_t held[CNT], past[CNT] = {0};
    uint32_t held_cnt = 0;
    tdm_rng_t rng = {.state = 11};
    tdm_slots_clear(&s, place, CNT);
    for (uint32_t n = 0; n < 100000; n++) {
        uint32_t keep = tdm_rng_below(&rng, 3);
        if (tdm_rng_below(&rng, 2) == 0) {
            tdm_handle_t h;
            int is_taken = tdm_slots_take(&s, keep, &h);
            assert_int_equal(is_taken, CNT - held_cnt > keep);
            if (!is_taken) continue;
            assert_true(h.generation == past[h.slot].generation + 1);
            for (uint32_t i = 0; i < held_cnt; i++) assert_int_not_equal(held[i].slot, h.slot);
            held[held_cnt++] = h;
        } else if (held_cnt > 0) {
            uint32_t i = tdm_rng_below(&rng, held_cnt);
            past[held[i].slot] = held[i];
            tdm_slots_give(&s, held[i].slot);
            held[i] = held[--held_cnt];
        }
        assert_int_equal(tdm_slots_used_cnt(&s), held_cnt);
        for (uint32_t i = 0; i < held_cnt; i++) assert_true(tdm_slots_is_live(&s, held[i]));
        for (uint32_t i = 0; i < CNT; i++) assert_false(tdm_slots_is_live(&s, past[i]));
    }
}

static void generations_wrap_past_zero(void **state) {
    (void)state;
    tdm_slot_place_t place[1];
    tdm_slots_t s;
    tdm_handle_t h;
    tdm_slots_clear(&s, place, 1);
    assert_false(tdm_slots_is_live(&s, (tdm_handle_t){0})); /* a zeroed handle means nobody */
    place[0].generation = UINT32_MAX - 1u;
    assert_int_equal(tdm_slots_take(&s, 0, &h), 1);
    assert_true(h.generation == UINT32_MAX);
    tdm_slots_give(&s, 0);
    assert_int_equal(tdm_slots_take(&s, 0, &h), 1);
    assert_int_equal(h.generation, 1);
    assert_false(tdm_slots_is_live(&s, (tdm_handle_t){0, UINT32_MAX}));
    assert_false(tdm_slots_is_live(&s, (tdm_handle_t){1, 1}));
    assert_int_equal(tdm_slots_take(&s, 0, &h), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives_agree_with_a_plain_list),
        cmocka_unit_test(generations_wrap_past_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
