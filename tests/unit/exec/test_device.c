/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what an executor says of its GPU is understood, and a program that
   says nothing, nonsense or does not exist is a reason and no GPU.
   Method: lines; this program as the one that is asked. */
#include "appliance/exec/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void an_answer_is_taken_apart(void **state) {
    (void)state;
    tdm_device_t d;
    tdm_device_read("cuda sm_90 132 149559443456 NVIDIA H200\n", &d);
    assert_int_equal(d.is_there, 1);
    assert_int_equal(d.sm_cnt, 132);
    assert_true(d.free_sz == UINT64_C(149559443456));
    assert_string_equal(d.arch, "sm_90");
    assert_string_equal(d.name, "NVIDIA H200");
    tdm_device_read("none no CUDA-capable device is detected\n", &d);
    assert_int_equal(d.is_there, 0);
    assert_string_equal(d.why, "no CUDA-capable device is detected");
}

static void nonsense_is_no_device(void **state) {
    (void)state;
    static const char *const line[] = {
        "", "cuda", "cuda sm_90 132 5", "cuda x 0 1 y", "rocm gfx 1 2 z", "\n"};
    tdm_device_t d;
    for (size_t i = 0; i < TDM_COUNT_OF(line); i++) {
        tdm_device_read(line[i], &d);
        assert_int_equal(d.is_there, 0);
        assert_true(strlen(d.why) > 0);
    }
    char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    memcpy(longest, "none ", 5);
    tdm_device_read(longest, &d);
    assert_int_equal(strlen(d.why), sizeof d.why - 1);
}

static void a_program_is_asked(void **state) {
    (void)state;
    tdm_device_t d;
    tdm_device_ask("/proc/self/exe", &d); /* main below answers */
    assert_int_equal(d.is_there, 1);
    assert_int_equal(d.sm_cnt, 7);
    tdm_device_ask("/nonexistent/tandem-exec", &d);
    assert_int_equal(d.is_there, 0);
    assert_true(strlen(d.why) > 0);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--device") == 0)
        return printf("cuda sm_80 7 1000 Of a test\n") < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_taken_apart),
        cmocka_unit_test(nonsense_is_no_device),
        cmocka_unit_test(a_program_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
