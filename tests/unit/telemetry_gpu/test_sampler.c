/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the driver tells reaches the board in the right unit; what it
   does not tell, for whatever cause, is nowhere claimed.
   Method: fake libraries (fake_nvml.c): whole, old, strange, absent; calls
   that fail one at a time; time is an argument, but for the thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "appliance/base/check.h"
#include "fake_nvml.h"
#include "telemetry/gpu/sampler.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#define BUS   "0000:1b:00.0"
#define T0    (100 * TDM_NS_PER_S)
#define WHOLE FAKE_DIR "/libfake_nvml.so"
#define OLD   FAKE_DIR "/libfake_nvml_old.so"

static tdm_board_t board;
static tdm_sampler_t sampler;
static fake_nvml_t *fake;
static void *held; /* keeps the library, and with it its answers, in memory */
static int64_t now_ns;

static void load(const char *library) {
    held = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(held);
    fake = dlsym(held, "fake_nvml");
    assert_non_null(fake);
    *fake = (fake_nvml_t)FAKE_NVML_WELL;
}

static int setup(void **state) {
    (void)state;
    memset(&board, 0, sizeof board);
    now_ns = T0;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tdm_sampler_close(&sampler);
    if (held) {
        assert_int_equal(fake->open_cnt, 0);
        assert_int_equal(fake->object_cnt, 0);
        (void)dlclose(held);
    }
    held = NULL;
    return 0;
}

static void open_sampler(const char *library) {
    tdm_error_t err = {0};
    load(library);
    assert_int_equal(tdm_sampler_open(&sampler, &board, library, BUS, now_ns, &err), TDM_OK);
}

/* pass lets time go by in looks. */
static void pass(int64_t ns) {
    for (int64_t end_ns = now_ns + ns; now_ns < end_ns;) {
        now_ns += TDM_SAMPLER_LOOK_NS;
        tdm_sampler_look(&sampler, now_ns);
    }
}

static void expect(tdm_board_word_t w, uint64_t want) {
    uint64_t have = 0;
    if (!tdm_board_get(&board, w, now_ns, &have)) fail_msg("word %d is not told", (int)w);
    if (have != want)
        fail_msg("word %d: %llu, not %llu", (int)w, (unsigned long long)have,
                 (unsigned long long)want);
}

static int is_told(tdm_board_word_t w) {
    uint64_t value;
    return tdm_board_get(&board, w, now_ns, &value);
}

static void a_whole_driver_tells_all(void **state) {
    (void)state;
    open_sampler(WHOLE);
    pass(4 * TDM_NS_PER_S);
    expect(TDM_BOARD_POWER_MW, 650000);
    expect(TDM_BOARD_POWER_MAX_MW, 650000);
    expect(TDM_BOARD_POWER_AVERAGE_MW, 610000);
    expect(TDM_BOARD_POWER_LIMIT_MW, 700000);
    expect(TDM_BOARD_ENERGY_MJ, 12345678);
    expect(TDM_BOARD_SM_CLOCK_MHZ, 1980);
    expect(TDM_BOARD_MEMORY_CLOCK_MHZ, 3201);
    expect(TDM_BOARD_THROTTLE, 0);
    expect(TDM_BOARD_THROTTLE_POWER_NS, 0);
    expect(TDM_BOARD_TEMPERATURE_C, 41);
    expect(TDM_BOARD_MEMORY_TOTAL_SZ, 100);
    expect(TDM_BOARD_MEMORY_USED_SZ, 30);
    expect(TDM_BOARD_MEMORY_FREE_SZ, 70);
    expect(TDM_BOARD_SM_ACTIVE_PPM, 875000);
    expect(TDM_BOARD_OCCUPANCY_PPM, 422500);
    expect(TDM_BOARD_TENSOR_PPM, 330000);
    expect(TDM_BOARD_DRAM_PPM, 711250);
    expect(TDM_BOARD_ECC_CORRECTED, 5);
    expect(TDM_BOARD_ECC_UNCORRECTED, 0);
    expect(TDM_BOARD_XID_CNT, 0);
    expect(TDM_BOARD_LOST, 0);
    assert_false(is_told(TDM_BOARD_XID_LAST)); /* there was none */
}

static void an_old_driver_tells_what_it_has(void **state) {
    (void)state;
    open_sampler(OLD);
    fake->reasons = TDM_NVML_REASON_SW_POWER;
    pass(3 * TDM_NS_PER_S);
    expect(TDM_BOARD_POWER_AVERAGE_MW, 610000);
    expect(TDM_BOARD_THROTTLE, TDM_THROTTLE_POWER);
    expect(TDM_BOARD_SM_CLOCK_MHZ, 1980);
    static const tdm_board_word_t none[] = {TDM_BOARD_POWER_MW,        TDM_BOARD_POWER_MAX_MW,
                                            TDM_BOARD_ENERGY_MJ,       TDM_BOARD_SM_ACTIVE_PPM,
                                            TDM_BOARD_DRAM_PPM,        TDM_BOARD_ECC_CORRECTED,
                                            TDM_BOARD_ECC_UNCORRECTED, TDM_BOARD_XID_CNT};
    for (size_t i = 0; i < TDM_COUNT_OF(none); i++) assert_false(is_told(none[i]));
}

static void no_driver_is_no_claim(void **state) {
    (void)state;
    static const char *const library[] = {FAKE_DIR "/no_such_library.so",
                                          FAKE_DIR "/libfake_nvml_strange.so"};
    for (size_t i = 0; i < TDM_COUNT_OF(library); i++) {
        tdm_error_t err = {0};
        assert_int_equal(tdm_sampler_open(&sampler, &board, library[i], BUS, now_ns, &err),
                         TDM_ERR_UNSUPPORTED);
        assert_true(err.text[0]);
        assert_int_equal(tdm_sampler_start(&sampler, &err), TDM_OK);
        tdm_sampler_look(&sampler, now_ns);
        tdm_sampler_stop(&sampler);
        for (int w = 0; w < TDM_BOARD_CNT; w++) assert_false(is_told((tdm_board_word_t)w));
    }
}

static void another_gpu_is_not_looked_at(void **state) {
    (void)state;
    tdm_error_t err = {0};
    load(WHOLE);
    assert_int_equal(tdm_sampler_open(&sampler, &board, WHOLE, "0000:9a:00.0", now_ns, &err),
                     TDM_ERR_UNSUPPORTED);
    assert_false(tdm_sampler_is_lost(&sampler));
}

/* A call that fails takes its own words away and no other. */
static void a_failing_call_costs_only_its_words(void **state) {
    (void)state;
    static const struct {
        int call;
        tdm_board_word_t word;
    } row[] = {
        {FAKE_LIMIT, TDM_BOARD_POWER_LIMIT_MW},      {FAKE_ENERGY, TDM_BOARD_ENERGY_MJ},
        {FAKE_CLOCK, TDM_BOARD_SM_CLOCK_MHZ},        {FAKE_REASONS, TDM_BOARD_THROTTLE},
        {FAKE_TEMPERATURE, TDM_BOARD_TEMPERATURE_C}, {FAKE_MEMORY, TDM_BOARD_MEMORY_USED_SZ},
        {FAKE_ECC, TDM_BOARD_ECC_UNCORRECTED},       {FAKE_GPM_TAKE, TDM_BOARD_OCCUPANCY_PPM},
        {FAKE_GPM_ASK, TDM_BOARD_TENSOR_PPM},        {FAKE_FIELDS, TDM_BOARD_POWER_MW}};
    open_sampler(WHOLE);
    for (size_t i = 0; i < TDM_COUNT_OF(row); i++) {
        fake->rc[row[i].call] = 3; /* NOT_SUPPORTED */
        pass(3 * TDM_NS_PER_S);
        for (size_t k = 0; k < TDM_COUNT_OF(row); k++) {
            int is_gpm = row[k].call == FAKE_GPM_TAKE || row[k].call == FAKE_GPM_ASK;
            int is_same =
                k == i || (is_gpm && (row[i].call == FAKE_GPM_TAKE || row[i].call == FAKE_GPM_ASK));
            if (is_told(row[k].word) == is_same)
                fail_msg("call %d failed: word %d", row[i].call, (int)row[k].word);
        }
        fake->rc[row[i].call] = 0;
        pass(3 * TDM_NS_PER_S); /* and all is told again */
        for (size_t k = 0; k < TDM_COUNT_OF(row); k++) assert_true(is_told(row[k].word));
    }
}

static void a_field_may_fail_alone(void **state) {
    (void)state;
    open_sampler(WHOLE);
    fake->field_rc = 3;
    pass(3 * TDM_NS_PER_S);
    assert_false(is_told(TDM_BOARD_POWER_MW));
    expect(TDM_BOARD_POWER_AVERAGE_MW, 610000); /* the plain call steps in */
}

static void an_absurd_gpm_value_is_not_told(void **state) {
    (void)state;
    open_sampler(WHOLE);
    fake->gpm[2] = 1e30;
    pass(3 * TDM_NS_PER_S);
    assert_false(is_told(TDM_BOARD_TENSOR_PPM));
    expect(TDM_BOARD_SM_ACTIVE_PPM, 875000);
}

static void a_board_without_gpm_has_the_rest(void **state) {
    (void)state;
    tdm_error_t err = {0};
    load(WHOLE);
    fake->gpm_is_unsupported = 1;
    assert_int_equal(tdm_sampler_open(&sampler, &board, WHOLE, BUS, now_ns, &err), TDM_OK);
    pass(3 * TDM_NS_PER_S);
    assert_false(is_told(TDM_BOARD_SM_ACTIVE_PPM));
    expect(TDM_BOARD_POWER_MW, 650000);
}

static void a_peak_is_seen_for_a_second(void **state) {
    (void)state;
    open_sampler(WHOLE);
    pass(2 * TDM_NS_PER_S);
    fake->instant_mw = 698000;
    pass(TDM_SAMPLER_LOOK_NS);
    fake->instant_mw = 120000;
    pass(TDM_NS_PER_S);
    expect(TDM_BOARD_POWER_MAX_MW, 698000);
    expect(TDM_BOARD_POWER_MW, 120000);
    pass(2 * TDM_NS_PER_S);
    expect(TDM_BOARD_POWER_MAX_MW, 120000);
}

static void throttled_time_is_counted_by_cause(void **state) {
    (void)state;
    open_sampler(WHOLE);
    pass(TDM_NS_PER_S);
    fake->reasons = TDM_NVML_REASON_SW_POWER | 1 /* idle is no throttle */;
    pass(2 * TDM_NS_PER_S);
    fake->reasons = TDM_NVML_REASON_HW_SLOWDOWN | TDM_NVML_REASON_HW_THERMAL;
    pass(TDM_NS_PER_S);
    fake->reasons = TDM_NVML_REASON_HW_BRAKE | TDM_NVML_REASON_SYNC_BOOST;
    pass(3 * TDM_NS_PER_S);
    expect(TDM_BOARD_THROTTLE, TDM_THROTTLE_HARDWARE | TDM_THROTTLE_SYNC);
    fake->reasons = 0;
    pass(TDM_NS_PER_S);
    expect(TDM_BOARD_THROTTLE_POWER_NS, 2 * TDM_NS_PER_S);
    expect(TDM_BOARD_THROTTLE_THERMAL_NS, TDM_NS_PER_S);
    expect(TDM_BOARD_THROTTLE_HARDWARE_NS, 3 * TDM_NS_PER_S);
    expect(TDM_BOARD_THROTTLE_SYNC_NS, 3 * TDM_NS_PER_S);
}

static void xids_are_counted_over_lives(void **state) {
    (void)state;
    open_sampler(WHOLE);
    fake->xid[0] = 13;
    fake->xid[1] = 43;
    fake->xid_cnt = 2;
    pass(2 * TDM_NS_PER_S);
    expect(TDM_BOARD_XID_CNT, 2);
    expect(TDM_BOARD_XID_LAST, 43);
    tdm_error_t err = {0};
    tdm_sampler_close(&sampler); /* the executor ends, the next one looks */
    assert_int_equal(tdm_sampler_open(&sampler, &board, WHOLE, BUS, now_ns, &err), TDM_OK);
    fake->xid[2] = 48;
    fake->xid_cnt = 3;
    pass(2 * TDM_NS_PER_S);
    expect(TDM_BOARD_XID_CNT, 3);
    expect(TDM_BOARD_XID_LAST, 48);
}

static void a_lost_gpu_is_said_so(void **state) {
    (void)state;
    static const int rc[] = {TDM_NVML_ERROR_GPU_IS_LOST, TDM_NVML_ERROR_RESET_REQUIRED};
    for (size_t i = 0; i < TDM_COUNT_OF(rc); i++) {
        tdm_error_t err = {0};
        open_sampler(WHOLE);
        assert_false(tdm_sampler_is_lost(&sampler));
        fake->rc[FAKE_CLOCK] = rc[i];
        pass(TDM_NS_PER_S);
        assert_true(tdm_sampler_is_lost(&sampler));
        expect(TDM_BOARD_LOST, 1);
        tdm_sampler_close(&sampler);
        fake->rc[FAKE_BY_BUS] = rc[i];
        assert_int_equal(tdm_sampler_open(&sampler, &board, WHOLE, BUS, now_ns, &err),
                         TDM_ERR_UNSUPPORTED);
        assert_true(tdm_sampler_is_lost(&sampler));
        (void)dlclose(held);
        held = NULL;
    }
}

static void old_words_are_not_believed(void **state) {
    (void)state;
    open_sampler(WHOLE);
    pass(2 * TDM_NS_PER_S);
    now_ns += TDM_BOARD_STALE_NS;
    expect(TDM_BOARD_POWER_MW, 650000);
    now_ns += 1;
    assert_false(is_told(TDM_BOARD_POWER_MW));
}

static void the_thread_looks_and_stops_with_a_last_look(void **state) {
    (void)state;
    tdm_error_t err = {0};
    now_ns = tdm_clock_now_ns();
    open_sampler(WHOLE);
    assert_int_equal(tdm_sampler_start(&sampler, &err), TDM_OK);
    for (int i = 0; i < 6000 && tdm_load_relaxed(&board.look_ns) == (uint64_t)now_ns; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_true(tdm_load_relaxed(&board.look_ns) > (uint64_t)now_ns);
    fake->xid[0] = 43; /* what killed the executor */
    fake->xid_cnt = 1;
    tdm_sampler_stop(&sampler);
    now_ns = tdm_clock_now_ns();
    expect(TDM_BOARD_XID_LAST, 43);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_whole_driver_tells_all, setup, teardown),
        cmocka_unit_test_setup_teardown(an_old_driver_tells_what_it_has, setup, teardown),
        cmocka_unit_test_setup_teardown(no_driver_is_no_claim, setup, teardown),
        cmocka_unit_test_setup_teardown(another_gpu_is_not_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failing_call_costs_only_its_words, setup, teardown),
        cmocka_unit_test_setup_teardown(a_field_may_fail_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(an_absurd_gpm_value_is_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_board_without_gpm_has_the_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(a_peak_is_seen_for_a_second, setup, teardown),
        cmocka_unit_test_setup_teardown(throttled_time_is_counted_by_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(xids_are_counted_over_lives, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_gpu_is_said_so, setup, teardown),
        cmocka_unit_test_setup_teardown(old_words_are_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(the_thread_looks_and_stops_with_a_last_look, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
