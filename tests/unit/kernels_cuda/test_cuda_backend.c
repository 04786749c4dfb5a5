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

static const tdm_shape_t shape = {.layer_cnt = 1,
                                  .hidden = 128,
                                  .nhead_q = 2,
                                  .nhead_kv = 1,
                                  .head_dim = 64,
                                  .ffn = 256,
                                  .vocab = 512,
                                  .context = 256,
                                  .rms_eps = 1e-5f,
                                  .rope_theta = 10000.0f};
static const tdm_backend_config_t config = {.kv_page_cnt = 4,
                                            .kv_dtype = TDM_KV_BF16,
                                            .seq_max = 2,
                                            .token_max = 64,
                                            .context_max = 128,
                                            .dummy_seed = 1};

static tdm_status_t create(const tdm_shape_t *s, const tdm_backend_config_t *c, tdm_error_t *err) {
    static tdm_weights_t weights;
    tdm_backend_t *b = (tdm_backend_t *)(void *)&weights;
    weights.shape = *s;
    tdm_status_t st = tdm_backend_cuda_create(&weights, c, NULL, NULL, NULL, &b, err);
    assert_true((st == TDM_OK) == (b != NULL));
    tdm_backend_destroy(b);
    printf("  %s\n", err->text);
    return st;
}

static void create_names_the_device_it_lacks(void **state) {
    (void)state;
    tdm_cuda_probe_t probe;
    const char *why;
    tdm_error_t err = {0};
    tdm_status_t st = create(&shape, &config, &err);
    if (tdm_cuda_probe(&probe, &why) == 0) {
        assert_int_equal(st, TDM_OK);
        return;
    }
    assert_int_equal(st, TDM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no usable CUDA device"));
}

/* With a device or without: what no device takes is refused first. */
static void create_names_what_a_gpu_does_not_take(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_backend_config_t c = config;
    tdm_shape_t s = shape;
    c.kv_dtype = TDM_KV_F32;
    assert_int_equal(create(&s, &c, &err), TDM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "bf16"));
    s.hidden = 132;
    assert_int_equal(create(&s, &config, &err), TDM_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "multiple of 8"));
    s.hidden = 128;
    s.is_tied = 1;
    assert_int_equal(create(&s, &config, &err), TDM_ERR_INVAL);
    s.is_tied = 0;
    s.nhead_kv = 0;
    assert_int_equal(create(&s, &config, &err), TDM_ERR_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_runs_a_kernel_of_this_build),
        cmocka_unit_test(create_names_the_device_it_lacks),
        cmocka_unit_test(create_names_what_a_gpu_does_not_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
