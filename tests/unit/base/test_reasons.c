/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: reasons.def is a sound closed list: groups consecutive, names
   unique, labels clean, refusals with an HTTP error status. */
#include "appliance/abi/plan.h"
#include "appliance/abi/reasons.h"
#include "appliance/abi/request.h"
#include "appliance/abi/result.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void groups_are_consecutive_and_complete(void **state) {
    (void)state;
    uint32_t sum = 0;
    for (int g = 0; g < TDM_GROUP_CNT; g++) {
        tdm_reason_t first = tdm_reason_first((tdm_reason_group_t)g);
        uint32_t cnt = tdm_reason_cnt((tdm_reason_group_t)g);
        assert_true(cnt > 0);
        for (uint32_t i = 0; i < cnt; i++)
            assert_int_equal(tdm_reason_group_of((tdm_reason_t)((uint32_t)first + i)), g);
        sum += cnt;
    }
    assert_int_equal(sum, TDM_REASON_CNT - 1);
}

static void names_are_unique_clean_labels(void **state) {
    (void)state;
    for (int i = 1; i < TDM_REASON_CNT; i++) {
        const char *n = tdm_reason_name((tdm_reason_t)i);
        assert_int_equal(strspn(n, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(n));
        assert_true(strlen(tdm_reason_text((tdm_reason_t)i)) > 5);
        for (int j = 1; j < i; j++) assert_string_not_equal(n, tdm_reason_name((tdm_reason_t)j));
    }
    assert_string_equal(tdm_reason_name(TDM_REASON_NONE), "none");
    assert_string_equal(tdm_reason_name((tdm_reason_t)100000), "none");
}

static void only_refusals_have_an_http_error(void **state) {
    (void)state;
    for (int i = 1; i < TDM_REASON_CNT; i++) {
        int http = tdm_reason_http((tdm_reason_t)i);
        if (tdm_reason_group_of((tdm_reason_t)i) == TDM_GROUP_REFUSE)
            assert_in_range(http, 400, 599);
        else
            assert_int_equal(http, 0);
    }
}

/* The structs that cross processes keep their sizes: a change here is a
   change of the contract, made on purpose. */
static void ring_elements_keep_their_sizes(void **state) {
    (void)state;
    assert_int_equal(sizeof(tdm_submit_t), 16);
    assert_int_equal(sizeof(tdm_control_t), 16);
    assert_int_equal(sizeof(tdm_sampling_t) % 8, 0);
    assert_int_equal(sizeof(tdm_plan_t) % 8, 0);
    assert_int_equal(sizeof(tdm_result_t) % 8, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_consecutive_and_complete),
        cmocka_unit_test(names_are_unique_clean_labels),
        cmocka_unit_test(only_refusals_have_an_http_error),
        cmocka_unit_test(ring_elements_keep_their_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
