/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the small tools of base say what their headers promise.
   Method: borders and known values. */
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/base/rng.h"
#include "appliance/base/sip.h"
#include "appliance/base/size.h"
#include "appliance/base/status.h"
#include "appliance/base/sum.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void status_names_are_distinct(void **state) {
    (void)state;
    for (int i = 0; i < TDM_STATUS_CNT; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(tdm_status_name((tdm_status_t)i),
                                    tdm_status_name((tdm_status_t)j));
    assert_string_equal(tdm_status_name((tdm_status_t)99), "unknown");
}

static void error_text_is_cut_and_printable(void **state) {
    (void)state;
    tdm_error_t err = {0};
    char big[1000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    assert_int_equal(tdm_error_set(&err, TDM_ERR_INVAL, "a\nb\x1b[31m%s", big), TDM_ERR_INVAL);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text, "a?b?[31mxxx", 11);
    assert_int_equal(tdm_error_set(NULL, TDM_ERR_IO, "nobody listens"), TDM_ERR_IO);
}

static void sizes_refuse_to_wrap(void **state) {
    (void)state;
    uint64_t out;
    assert_true(tdm_size_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &out));
    assert_false(tdm_size_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_true(tdm_size_add(UINT64_MAX - 1, 1, &out));
    assert_false(tdm_size_add(UINT64_MAX, 1, &out));
    assert_int_equal(tdm_size_align(65, 64), 128);
    assert_int_equal(tdm_ceil_div(64, 64), 1);
    assert_int_equal(tdm_ceil_div(65, 64), 2);
    assert_int_equal(tdm_ceil_div(0, 64), 0);
}

/* From the paper's appendix A: key 00 01 .. 0f, message 00 01 .. 0e; and
   from the reference implementation's vectors, the empty message. */
static void sip_gives_the_published_values(void **state) {
    (void)state;
    const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    tdm_sip_t s = tdm_sip_begin(key);
    tdm_sip_word(&s, UINT64_C(0x0706050403020100), 2);
    assert_true(tdm_sip_end(&s, UINT64_C(0x0f0e0d0c0b0a0908), 2, 4) ==
                UINT64_C(0xa129ca6149be45e5));
    s = tdm_sip_begin(key);
    assert_true(tdm_sip_end(&s, 0, 2, 4) == UINT64_C(0x726fdb47dd0e0e31));
}

/* The values that the authors of FNV give. */
static void sum_gives_the_published_values(void **state) {
    (void)state;
    char path[] = "/tmp/tdm-sum-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "foobar", 6), 6);
    assert_true(tdm_sum_bytes(TDM_SUM_FIRST, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(tdm_sum_bytes(TDM_SUM_FIRST, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(tdm_sum_file(TDM_SUM_FIRST, path) == UINT64_C(0x85944171f73967e8));
    assert_true(tdm_sum_file(TDM_SUM_FIRST, "/nonexistent") == TDM_SUM_FIRST);
    (void)close(fd);
    (void)unlink(path);
}

static void draws_depend_on_seed_and_index_alone(void **state) {
    (void)state;
    tdm_rng_t a = {1}, b = {1};
    for (int i = 0; i < 100; i++) assert_int_equal(tdm_rng_next(&a), tdm_rng_next(&b));
    assert_int_equal(tdm_rng_at(7, 1000), tdm_rng_at(7, 1000));
    assert_int_not_equal(tdm_rng_at(7, 1000), tdm_rng_at(7, 1001));
    assert_int_not_equal(tdm_rng_at(7, 1000), tdm_rng_at(8, 1000));
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = tdm_rng_unit(tdm_rng_at(42, i));
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(sum / 100000 > 0.495 && sum / 100000 < 0.505);
}

static void clock_goes_forward(void **state) {
    (void)state;
    int64_t last = tdm_clock_now_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = tdm_clock_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void lost_log_lines_are_counted(void **state) {
    (void)state;
    int keep = dup(STDERR_FILENO);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    uint64_t before = tdm_log_lost_cnt();
    (void)dup2(full, STDERR_FILENO);
    tdm_log(TDM_LOG_INFO, "test", "nobody reads this");
    tdm_log(TDM_LOG_DEBUG, "test", "below the level: not even tried");
    (void)dup2(keep, STDERR_FILENO);
    (void)close(keep);
    (void)close(full);
    assert_int_equal(tdm_log_lost_cnt(), before + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_names_are_distinct),
        cmocka_unit_test(error_text_is_cut_and_printable),
        cmocka_unit_test(sizes_refuse_to_wrap),
        cmocka_unit_test(sip_gives_the_published_values),
        cmocka_unit_test(sum_gives_the_published_values),
        cmocka_unit_test(draws_depend_on_seed_and_index_alone),
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(lost_log_lines_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
