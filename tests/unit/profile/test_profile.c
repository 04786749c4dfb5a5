/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a profile is plausible when guessed, exact when saved and loaded,
   and refused when it belongs to something else. */
#include "appliance/profile/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const tdm_shape_t small = {.layer_cnt = 30,
                                  .hidden = 576,
                                  .nhead_q = 9,
                                  .nhead_kv = 3,
                                  .head_dim = 64,
                                  .ffn = 1536,
                                  .vocab = 49152};

static void a_guess_grows_with_the_model_and_shrinks_with_threads(void **state) {
    (void)state;
    tdm_profile_rates_t one = tdm_profile_cpu_rates(1), four = tdm_profile_cpu_rates(4);
    tdm_shape_t big = small;
    big.layer_cnt = 60;
    tdm_profile_t a, b, c;
    tdm_profile_guess(&small, &one, &a);
    tdm_profile_guess(&small, &four, &b);
    tdm_profile_guess(&big, &one, &c);
    for (int i = TDM_ROUTE_PREFILL_ONLY; i < TDM_ROUTE_CNT; i++) {
        assert_true(a.row[i].fixed_ns > b.row[i].fixed_ns);
        assert_true(c.row[i].token_ns > a.row[i].token_ns);
        assert_true(a.row[i].pair_ns > 0 && a.row[i].kv_ns > 0);
    }
    assert_int_equal(a.is_measured, 0);
}

static void what_is_saved_loads_back(void **state) {
    (void)state;
    char path[] = "/tmp/tdm-profile-XXXXXX";
    (void)close(mkstemp(path));
    tdm_profile_rates_t r = tdm_profile_cpu_rates(3);
    tdm_profile_t a, b = {0};
    tdm_error_t err = {0};
    tdm_profile_guess(&small, &r, &a);
    assert_int_equal(tdm_profile_save(path, "m", "cpu", &a, &err), TDM_OK);
    assert_int_equal(tdm_profile_load(path, "m", "cpu", &b, &err), TDM_OK);
    assert_memory_equal(a.row, b.row, sizeof a.row);
    assert_int_equal(b.is_measured, 1);
    assert_int_equal(tdm_profile_load(path, "other", "cpu", &b, &err), TDM_ERR_INVAL);
    assert_int_equal(tdm_profile_load(path, "m", "gpu", &b, &err), TDM_ERR_INVAL);
    (void)unlink(path);
    assert_int_equal(tdm_profile_load(path, "m", "cpu", &b, &err), TDM_ERR_CORRUPT);
    assert_int_equal(tdm_profile_save("/nonexistent/p", "m", "cpu", &a, &err), TDM_ERR_IO);
}

static void nonsense_is_refused_and_changes_nothing(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"tandem_profile\": 2}",
        "{\"tandem_profile\": 1, \"model\": \"m\", \"device\": \"d\", \"rows\": {\"x\": {}}}",
        "{\"tandem_profile\": 1, \"model\": \"m\", \"device\": \"d\", \"rows\": {\"fused\": 3}}",
        "{\"tandem_profile\": 1, \"model\": \"m\", \"device\": \"d\", \"rows\": {\"fused\": "
        "{\"fixed_ns\": -1, \"token_ns\": 0, \"pair_ns\": 0, \"kv_ns\": 0}}}",
    };
    for (size_t i = 0; i < TDM_COUNT_OF(bad); i++) {
        char path[] = "/tmp/tdm-profile-XXXXXX";
        int fd = mkstemp(path);
        assert_int_equal(write(fd, bad[i], strlen(bad[i])), (ssize_t)strlen(bad[i]));
        (void)close(fd);
        tdm_profile_t p, before;
        memset(&p, 7, sizeof p);
        before = p;
        tdm_error_t err = {0};
        assert_int_not_equal(tdm_profile_load(path, "m", "d", &p, &err), TDM_OK);
        assert_true(err.text[0] != 0);
        assert_memory_equal(&p, &before, sizeof p);
        (void)unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guess_grows_with_the_model_and_shrinks_with_threads),
        cmocka_unit_test(what_is_saved_loads_back),
        cmocka_unit_test(nonsense_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
