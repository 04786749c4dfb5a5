/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: "auto" and 0 come to what the machine and the model allow, and a
   GPU that is asked for and not there is a named refusal. */
#include "appliance/sizing/sizing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

static const tdm_shape_t llama = {.layer_cnt = 32,
                                  .hidden = 4096,
                                  .nhead_q = 32,
                                  .nhead_kv = 8,
                                  .head_dim = 128,
                                  .ffn = 14336,
                                  .vocab = 128256,
                                  .context = 8192};

static const tdm_machine_t with_gpu = {
    .core_cnt = 16,
    .memory_free_sz = 100 * GIB,
    .cpu = "a processor",
    .device = {.is_there = 1, .sm_cnt = 132, .free_sz = 140 * GIB, .name = "a GPU"}};
static const tdm_machine_t without = {.core_cnt = 16,
                                      .memory_free_sz = 100 * GIB,
                                      .cpu = "a processor",
                                      .device = {.why = "no driver"}};

static tdm_config_t config;

static tdm_status_t make(const char *backend, const tdm_machine_t *machine, tdm_sizing_t *out,
                         tdm_error_t *err) {
    char set[64];
    (void)snprintf(set, sizeof set, "exec.backend=%s", backend);
    tdm_config_default(&config);
    assert_int_equal(tdm_config_set(&config, set, err), TDM_OK);
    return tdm_sizing_make(&config, &llama, machine, out, err);
}

static void auto_takes_the_gpu_where_there_is_one(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_error_t err = {0};
    assert_int_equal(make("auto", &with_gpu, &s, &err), TDM_OK);
    assert_int_equal(s.backend, TDM_EXEC_BACKEND_CUDA);
    assert_int_equal(s.kv_dtype, TDM_KV_BF16);
    assert_string_equal(tdm_sizing_device(&s, &with_gpu), "a GPU");
    assert_int_equal(make("auto", &without, &s, &err), TDM_OK);
    assert_int_equal(s.backend, TDM_EXEC_BACKEND_CPU);
    assert_int_equal(s.kv_dtype, TDM_KV_F32);
    assert_string_equal(tdm_sizing_device(&s, &without), "a processor");
    assert_int_equal(make("cpu", &with_gpu, &s, &err), TDM_OK);
    assert_int_equal(s.backend, TDM_EXEC_BACKEND_CPU);
}

static void the_sandbox_is_on_unless_it_is_off(void **state) {
    (void)state;
    static const struct {
        const char *set;
        const tdm_machine_t *machine;
        uint32_t want;
    } one[] = {{"exec.sandbox=auto", &without, 1}, {"exec.sandbox=auto", &with_gpu, 1},
               {"exec.sandbox=on", &with_gpu, 1},  {"exec.sandbox=on", &without, 1},
               {"exec.sandbox=off", &without, 0},  {"exec.sandbox=off", &with_gpu, 0}};
    for (size_t i = 0; i < TDM_COUNT_OF(one); i++) {
        tdm_sizing_t s;
        tdm_exec_spec_t spec;
        tdm_error_t err = {0};
        assert_int_equal(make("auto", one[i].machine, &s, &err), TDM_OK);
        assert_int_equal(tdm_config_set(&config, one[i].set, &err), TDM_OK);
        tdm_sizing_spec(&config, &s, &spec);
        assert_int_equal(spec.is_sandboxed, one[i].want);
    }
}

static void plans_are_begun_ahead_where_that_is_faster(void **state) {
    (void)state;
    static const struct {
        const char *backend, *ahead, *depth;
        uint32_t want;
    } one[] = {{"cuda", "auto", "2", 1}, {"cuda", "auto", "1", 0}, {"cpu", "auto", "2", 0},
               {"cuda", "off", "2", 0},  {"cuda", "off", "1", 0},  {"cuda", "on", "2", 1},
               {"cpu", "on", "2", 1},    {"cpu", "off", "2", 0}};
    for (size_t i = 0; i < TDM_COUNT_OF(one); i++) {
        char set[64];
        tdm_sizing_t s;
        tdm_exec_spec_t spec;
        tdm_error_t err = {0};
        assert_int_equal(make(one[i].backend, &with_gpu, &s, &err), TDM_OK);
        (void)snprintf(set, sizeof set, "exec.ahead=%s", one[i].ahead);
        assert_int_equal(tdm_config_set(&config, set, &err), TDM_OK);
        (void)snprintf(set, sizeof set, "sched.depth=%s", one[i].depth);
        assert_int_equal(tdm_config_set(&config, set, &err), TDM_OK);
        assert_int_equal(tdm_sizing_make(&config, &llama, &with_gpu, &s, &err), TDM_OK);
        tdm_sizing_spec(&config, &s, &spec);
        assert_int_equal(spec.config.is_ahead, one[i].want);
    }
}

static void ahead_asks_for_two_plans_in_flight(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_error_t err = {0};
    assert_int_equal(make("cuda", &with_gpu, &s, &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.ahead=on", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "sched.depth=1", &err), TDM_OK);
    assert_int_equal(tdm_sizing_make(&config, &llama, &with_gpu, &s, &err), TDM_ERR_INVAL);
    assert_non_null(strstr(err.text, "sched.depth"));
}

static void graphs_beyond_decode_are_asked_for(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_exec_spec_t spec;
    tdm_error_t err = {0};
    assert_int_equal(make("cpu", &without, &s, &err), TDM_OK);
    tdm_sizing_spec(&config, &s, &spec);
    assert_int_equal(spec.config.graph_max, 0);
    assert_int_equal(spec.config.graph_sz, 0);
    assert_int_equal(spec.config.is_resident, 0);
    assert_int_equal(tdm_config_set(&config, "exec.resident=1", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.graphs=all", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.graph_max=77", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.graph_mib=100", &err), TDM_OK);
    tdm_sizing_spec(&config, &s, &spec);
    assert_int_equal(spec.config.is_resident, 1);
    assert_int_equal(spec.config.graph_max, 77);
    assert_int_equal(spec.config.graph_sz, UINT64_C(100) << 20);
}

/* Times of other pages, weights or sums are no times of these. */
static void a_profile_is_of_what_was_measured(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_error_t err = {0};
    char name[96], cut[8];
    assert_int_equal(make("cuda", &with_gpu, &s, &err), TDM_OK);
    tdm_sizing_profile_name(&config, &s, "m", name, sizeof name);
    assert_string_equal(name, "m");
    assert_int_equal(tdm_config_set(&config, "exec.kv_dtype=fp8", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.deterministic=1", &err), TDM_OK);
    assert_int_equal(tdm_sizing_make(&config, &llama, &with_gpu, &s, &err), TDM_OK);
    tdm_sizing_profile_name(&config, &s, "m", name, sizeof name);
    assert_string_equal(name, "m, fp8 pages, deterministic");
    tdm_sizing_profile_name(&config, &s, "m", cut, sizeof cut);
    assert_string_equal(cut, "m, fp8 ");
    assert_int_equal(make("cpu", &with_gpu, &s, &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.weight_dtype=fp8", &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.deterministic=1", &err), TDM_OK);
    tdm_sizing_profile_name(&config, &s, "m", name, sizeof name);
    assert_string_equal(name, "m, fp8 weights"); /* the CPU's bits are the same anyhow */
}

static void a_gpu_that_is_missing_is_named(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_error_t err = {0};
    assert_int_equal(make("cuda", &without, &s, &err), TDM_ERR_UNSUPPORTED);
    assert_string_equal(err.text, "exec.backend=cuda: no driver");
}

static void a_gpus_pool_is_what_the_weights_leave(void **state) {
    (void)state;
    tdm_sizing_t s;
    tdm_error_t err = {0};
    assert_int_equal(make("cuda", &with_gpu, &s, &err), TDM_OK);
    assert_true(s.kv_page_bytes == 2 * 64 * 32 * 8 * 128 * 2); /* K and V, bf16 */
    uint64_t pool = s.kv_page_cnt * s.kv_page_bytes;
    assert_true(s.kv_page_cnt == 64 * 128 || pool > 100 * GIB); /* all slots full, or all room */
    assert_true(pool < 140 * GIB - 16 * GIB);
    tdm_machine_t small = with_gpu;
    small.device.free_sz = 18 * GIB; /* the weights are 15 */
    assert_int_equal(make("cuda", &small, &s, &err), TDM_ERR_LIMIT);
}

static void fp8_pages_hold_twice_the_tokens(void **state) {
    (void)state;
    tdm_sizing_t wide, half;
    tdm_error_t err = {0};
    tdm_machine_t full = with_gpu;
    full.device.free_sz = 40 * GIB; /* the pool is what limits */
    assert_int_equal(make("cuda", &full, &wide, &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.kv_dtype=fp8", &err), TDM_OK);
    assert_int_equal(tdm_sizing_make(&config, &llama, &full, &half, &err), TDM_OK);
    assert_int_equal(half.kv_dtype, TDM_KV_E4M3);
    assert_true(2 * half.kv_page_bytes == wide.kv_page_bytes);
    assert_in_range(half.kv_page_cnt, 2 * wide.kv_page_cnt, 2 * wide.kv_page_cnt + 1);
}

/* 16 processors of which the kernel keeps four away (isolcpus=12-15): a tile
   that is put there takes nothing of the twelve. */
static void tiles_on_isolated_cores_take_no_sm_thread(void **state) {
    (void)state;
    static const struct {
        const char *cpus;
        uint32_t core_cnt, want;
    } one[] = {{"tile.cpus=", 12, 12},      {"tile.cpus=", 16, 12},
               {"tile.cpus=12-14", 12, 11}, {"tile.cpus=12-15", 12, 11},
               {"tile.cpus=15", 12, 11},    {"tile.cpus=12,0", 12, 10},
               {"tile.cpus=0-2", 12, 12},   {"tile.cpus=0-2", 16, 12},
               {"tile.cpus=12-14", 4, 4}}; /* a control group: four processors' time for all */
    for (size_t i = 0; i < TDM_COUNT_OF(one); i++) {
        tdm_sizing_t s;
        tdm_error_t err = {0};
        tdm_machine_t machine = without;
        machine.core_cnt = one[i].core_cnt;
        CPU_ZERO(&machine.affinity);
        for (uint32_t k = 0; k < TDM_MAX(one[i].core_cnt, 12u); k++) CPU_SET(k, &machine.affinity);
        assert_int_equal(make("cpu", &machine, &s, &err), TDM_OK);
        assert_int_equal(tdm_config_set(&config, one[i].cpus, &err), TDM_OK);
        assert_int_equal(tdm_sizing_make(&config, &llama, &machine, &s, &err), TDM_OK);
        assert_int_equal(s.sm_cnt, one[i].want);
    }
    tdm_sizing_t s;
    tdm_error_t err = {0};
    assert_int_equal(tdm_config_set(&config, "tile.cpus=4-2", &err), TDM_OK);
    assert_int_equal(tdm_sizing_make(&config, &llama, &without, &s, &err), TDM_ERR_INVAL);
}

static void fp8_weights_leave_room_for_pages(void **state) {
    (void)state;
    tdm_sizing_t wide, half;
    tdm_exec_spec_t spec;
    tdm_error_t err = {0};
    tdm_machine_t full = with_gpu;
    full.device.free_sz = 40 * GIB;
    assert_int_equal(make("cuda", &full, &wide, &err), TDM_OK);
    assert_int_equal(tdm_config_set(&config, "exec.weight_dtype=fp8", &err), TDM_OK);
    assert_int_equal(tdm_sizing_make(&config, &llama, &full, &half, &err), TDM_OK);
    tdm_sizing_spec(&config, &half, &spec);
    assert_int_equal(spec.weight_dtype, TDM_WEIGHT_FP8);
    /* 32 layers of 218 million weights, a byte less each */
    uint64_t more = (half.kv_page_cnt - wide.kv_page_cnt) * wide.kv_page_bytes;
    assert_in_range(more, 6 * GIB, 7 * GIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_the_gpu_where_there_is_one),
        cmocka_unit_test(the_sandbox_is_on_unless_it_is_off),
        cmocka_unit_test(plans_are_begun_ahead_where_that_is_faster),
        cmocka_unit_test(ahead_asks_for_two_plans_in_flight),
        cmocka_unit_test(graphs_beyond_decode_are_asked_for),
        cmocka_unit_test(a_profile_is_of_what_was_measured),
        cmocka_unit_test(a_gpu_that_is_missing_is_named),
        cmocka_unit_test(a_gpus_pool_is_what_the_weights_leave),
        cmocka_unit_test(fp8_pages_hold_twice_the_tokens),
        cmocka_unit_test(tiles_on_isolated_cores_take_no_sm_thread),
        cmocka_unit_test(fp8_weights_leave_room_for_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
