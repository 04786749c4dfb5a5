/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: drawn jobs lose and repeat nothing, whoever comes late.  Method:
   many short jobs, drawn ones and ones for all in random turn, on more
   SMs than there are cores, so that some are always late; run under
   ThreadSanitizer too. */
#include "kernels/cpu/sm.h"

#include "appliance/base/atomic.h"
#include "appliance/base/rng.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define ITEMS 64

typedef struct job {
    uint64_t ticket;
    uint64_t cnt;
    uint32_t entered;
    uint32_t plain[ITEMS]; /* written by one SM each, read by the caller after */
    uint32_t seen[TDM_SM_MAX];
} job_t;

static void draw_items(void *ctx, uint32_t sm) {
    job_t *j = ctx;
    (void)sm;
    (void)tdm_add_relaxed(&j->entered, 1u);
    for (;;) {
        uint64_t item = tdm_add_relaxed(&j->ticket, 1);
        if (item >= j->cnt) return;
        j->plain[item]++;
    }
}

static void count_sm(void *ctx, uint32_t sm) {
    ((job_t *)ctx)->seen[sm]++;
}

static tdm_sm_pool_t *pool_new(uint32_t sm_cnt, uint32_t spin_us, void **mem) {
    tdm_error_t err = {0};
    tdm_sm_pool_t *pool;
    *mem = aligned_alloc(TDM_CACHE_LINE, tdm_sm_pool_footprint(sm_cnt));
    assert_non_null(*mem);
    tdm_sm_config_t config = {.sm_cnt = sm_cnt, .spin_us = spin_us};
    if (tdm_sm_pool_open(*mem, &config, &pool, &err) != TDM_OK) fail_msg("%s", err.text);
    return pool;
}

static void every_item_is_done_once(void **state) {
    (void)state;
    const uint32_t sm_cnts[] = {1, 2, 3, 6}, spins[] = {0, 20};
    tdm_rng_t rng = {8};
    for (size_t n = 0; n < TDM_COUNT_OF(sm_cnts) * TDM_COUNT_OF(spins); n++) {
        void *mem;
        uint32_t sm_cnt = sm_cnts[n / 2];
        tdm_sm_pool_t *pool = pool_new(sm_cnt, spins[n % 2], &mem);
        for (int round = 0; round < 600; round++) {
            job_t j = {.cnt = tdm_rng_below(&rng, ITEMS + 1)};
            if (tdm_rng_below(&rng, 4) == 0) {
                tdm_sm_run(pool, count_sm, &j);
                for (uint32_t sm = 0; sm < sm_cnt; sm++) assert_int_equal(j.seen[sm], 1);
                continue;
            }
            uint32_t came = tdm_sm_draw(pool, draw_items, &j);
            assert_in_range(came, 1, sm_cnt);
            assert_int_equal(came, tdm_load_relaxed(&j.entered));
            for (uint64_t i = 0; i < ITEMS; i++) assert_int_equal(j.plain[i], i < j.cnt);
        }
        tdm_sm_pool_close(pool);
        free(mem);
    }
}

/* The second SM is inside when the caller has nothing left to do. */
static void slow_item(void *ctx, uint32_t sm) {
    job_t *j = ctx;
    tdm_add_acq_rel(&j->seen[sm], 1u);
    if (sm == 0) {
        /* The caller's part: wait until the other one is inside. */
        while (tdm_load_acquire(&j->seen[1]) == 0) sched_yield();
        return;
    }
    struct timespec nap = {.tv_nsec = 2000000};
    (void)nanosleep(&nap, NULL);
    j->plain[0] = 7;
}

static void who_came_in_is_waited_for(void **state) {
    (void)state;
    void *mem;
    tdm_sm_pool_t *pool = pool_new(2, 20, &mem);
    for (int round = 0; round < 20; round++) {
        job_t j = {0};
        assert_int_equal(tdm_sm_draw(pool, slow_item, &j), 2);
        assert_int_equal(j.plain[0], 7);
    }
    tdm_sm_pool_close(pool);
    free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(who_came_in_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
