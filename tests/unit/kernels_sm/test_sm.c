/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a launch runs its function exactly once per SM and returns after
   the last; nothing is lost whether SMs spin or sleep; parallel_for cuts
   the same way every time.
   Method: plain memory written by SMs and read by the caller (so the
   ThreadSanitizer build proves the edges), pools of 1 to 5 SMs, spin
   times from none to long, pauses around the spin time. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "appliance/base/clock.h"
#include "appliance/base/size.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/sm.h"

static tdm_sm_pool_t *pool_open(uint32_t sm_cnt, uint32_t spin_us) {
    tdm_sm_config_t config = {.sm_cnt = sm_cnt, .spin_us = spin_us};
    tdm_sm_pool_t *pool = NULL;
    void *mem = aligned_alloc(TDM_CACHE_LINE, tdm_sm_pool_footprint(sm_cnt));
    assert_non_null(mem);
    assert_int_equal(tdm_sm_pool_open(mem, &config, &pool, NULL), TDM_OK);
    assert_int_equal(tdm_sm_pool_cnt(pool), sm_cnt);
    return pool;
}

static void pool_close(tdm_sm_pool_t *pool) {
    tdm_sm_pool_close(pool);
    free(pool);
}

typedef struct tally {
    uint64_t cnt[8]; /* plain: each SM its own */
    uint64_t input;  /* written by the caller before each launch */
} tally_t;

static void tally_run(void *ctx, uint32_t sm) {
    tally_t *t = ctx;
    t->cnt[sm] += t->input;
}

static void each_sm_runs_once_per_launch(void **state) {
    (void)state;
    for (uint32_t sm_cnt = 1; sm_cnt <= 5; sm_cnt++) {
        tdm_sm_pool_t *pool = pool_open(sm_cnt, 50);
        tally_t t = {0};
        uint64_t want = 0;
        for (uint64_t i = 1; i <= 300; i++) {
            t.input = i;
            tdm_sm_run(pool, tally_run, &t);
            want += i;
            for (uint32_t sm = 0; sm < 8; sm++) {
                assert_int_equal(t.cnt[sm], sm < sm_cnt ? want : 0);
            }
        }
        pool_close(pool);
    }
}

static void sleep_us(long us) {
    struct timespec ts = {.tv_nsec = us * 1000};
    nanosleep(&ts, NULL);
}

static void late_run(void *ctx, uint32_t sm) {
    if (sm == 1) sleep_us(300); /* the caller goes to sleep on it */
    tally_run(ctx, sm);
}

static void no_wake_up_is_lost_around_the_spin_time(void **state) {
    (void)state;
    for (uint32_t spin_us = 0; spin_us <= 100; spin_us += 50) {
        tdm_sm_pool_t *pool = pool_open(3, spin_us);
        tally_t t = {.input = 1};
        for (int i = 0; i < 60; i++) {
            sleep_us(i * 4); /* from "still spinning" to "asleep" */
            tdm_sm_run(pool, i % 4 ? tally_run : late_run, &t);
        }
        for (uint32_t sm = 0; sm < 3; sm++) assert_int_equal(t.cnt[sm], 60);
        pool_close(pool);
    }
}

static void an_idle_pool_burns_no_time(void **state) {
    (void)state;
    tdm_sm_pool_t *pool = pool_open(3, 100);
    tally_t t = {.input = 1};
    tdm_sm_run(pool, tally_run, &t);
    sleep_us(5000);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_us(50000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used_ns =
        (after.tv_sec - before.tv_sec) * TDM_NS_PER_S + after.tv_nsec - before.tv_nsec;
    assert_true(used_ns < 10 * TDM_NS_PER_MS); /* two spinning SMs would use 100 ms */
    pool_close(pool);
}

typedef struct cover {
    uint8_t seen[1000]; /* plain: parts must not overlap */
    uint64_t begin[8];
    uint64_t end[8];
} cover_t;

static void cover_run(void *ctx, uint64_t begin, uint64_t end, uint32_t sm) {
    cover_t *c = ctx;
    c->begin[sm] = begin;
    c->end[sm] = end;
    for (uint64_t i = begin; i < end; i++) c->seen[i]++;
}

static void parallel_for_covers_each_index_once_the_same_way(void **state) {
    (void)state;
    for (uint32_t sm_cnt = 1; sm_cnt <= 5; sm_cnt++) {
        tdm_sm_pool_t *pool = pool_open(sm_cnt, 50);
        for (uint64_t cnt = 0; cnt < 1000; cnt += 1 + cnt / 5) {
            for (uint64_t grain = 1; grain <= 64; grain *= 4) {
                cover_t c = {0};
                tdm_sm_parallel_for(pool, cnt, grain, cover_run, &c);
                for (uint64_t i = 0; i < 1000; i++) assert_int_equal(c.seen[i], i < cnt);
                for (uint32_t sm = 0; sm < 8; sm++) {
                    assert_int_equal(c.begin[sm] % grain, 0);
                    assert_true(c.end[sm] % grain == 0 || c.end[sm] == cnt);
                }
                cover_t again = {0};
                tdm_sm_parallel_for(pool, cnt, grain, cover_run, &again);
                assert_memory_equal(&c, &again, sizeof c);
            }
        }
        pool_close(pool);
    }
}

static void a_pool_out_of_range_is_refused(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_sm_pool_t *pool = (tdm_sm_pool_t *)&err;
    tdm_sm_config_t config = {.sm_cnt = 0};
    assert_int_equal(tdm_sm_pool_open(NULL, &config, &pool, &err), TDM_ERR_LIMIT);
    assert_null(pool);
    config.sm_cnt = TDM_SM_MAX + 1;
    assert_int_equal(tdm_sm_pool_open(NULL, &config, &pool, &err), TDM_ERR_LIMIT);
    assert_int_equal(tdm_sm_pool_footprint(TDM_SM_MAX + 1), 0);
    tdm_sm_pool_close(NULL);
}

static void the_instruction_set_is_resolved_or_refused(void **state) {
    (void)state;
    uint32_t isa = TDM_CPU_ISA_CNT;
    tdm_error_t err = {0};
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_SCALAR, &isa, &err), TDM_OK);
    assert_int_equal(isa, TDM_CPU_ISA_SCALAR);
    uint32_t best = TDM_CPU_ISA_AUTO;
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_AUTO, &best, &err), TDM_OK);
    assert_true(best > TDM_CPU_ISA_AUTO && best < TDM_CPU_ISA_CNT);
    for (uint32_t wanted = TDM_CPU_ISA_SCALAR; wanted < TDM_CPU_ISA_CNT; wanted++) {
        tdm_status_t want = wanted <= best ? TDM_OK : TDM_ERR_UNSUPPORTED;
        assert_int_equal(tdm_cpu_isa_resolve(wanted, &isa, &err), want);
    }
    assert_int_equal(tdm_cpu_isa_resolve(TDM_CPU_ISA_CNT, &isa, &err), TDM_ERR_INVAL);
    assert_string_equal(tdm_cpu_isa_name(TDM_CPU_ISA_AVX512), "avx512");
    assert_string_equal(tdm_cpu_isa_name(99), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sm_runs_once_per_launch),
        cmocka_unit_test(no_wake_up_is_lost_around_the_spin_time),
        cmocka_unit_test(an_idle_pool_burns_no_time),
        cmocka_unit_test(parallel_for_covers_each_index_once_the_same_way),
        cmocka_unit_test(a_pool_out_of_range_is_refused),
        cmocka_unit_test(the_instruction_set_is_resolved_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
