/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the GPU door opens a device, runs compiled code on it, and is
   plain about what is missing, with a driver and without one. */
#include "kernels/cuda/probe.h"
#include "kernels/include/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_device_runs_a_kernel_of_this_build(void **state) {
    (void)state;
    tdm_cuda_probe_t probe;
    const char *why;
    if (tdm_cuda_probe(&probe, &why) != 0) {
        printf("  no device: %s\n", why);
        skip();
    }
    assert_true(probe.is_kernel_run);
    assert_true(probe.arch >= 80);
    assert_true(probe.sm_cnt > 0);
}

static void create_names_what_it_lacks(void **state) {
    (void)state;
    tdm_weights_t weights = {0};
    tdm_backend_config_t config = {0};
    tdm_backend_t *b = (tdm_backend_t *)&weights;
    tdm_error_t err = {0};
    assert_int_equal(tdm_backend_cuda_create(&weights, &config, &b, &err), TDM_ERR_UNSUPPORTED);
    assert_null(b);
    assert_true(strstr(err.text, "no GPU kernels") || strstr(err.text, "no usable CUDA device"));
    printf("  %s\n", err.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_runs_a_kernel_of_this_build),
        cmocka_unit_test(create_names_what_it_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
