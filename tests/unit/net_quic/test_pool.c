/* SPDX-License-Identifier: Apache-2.0 */
/* The pool against a mirror of what was given out: contents intact, blocks
   apart, books in balance, after any order of calls. */
#include "appliance/base/rng.h"
#include "net/quic/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REGION_SZ (1u << 20)
#define LIVE_MAX  256u

typedef struct live {
    uint8_t *p;
    uint64_t sz;
    uint8_t fill;
} live_t;

static uint8_t *region;
static tdm_pool_t *pool;

static void open_pool(void) {
    region = aligned_alloc(64, REGION_SZ);
    assert_non_null(region);
    assert_int_equal(tdm_pool_init(region, REGION_SZ, &pool), TDM_OK);
}

static void check_empty(void) {
    tdm_pool_stat_t s;
    tdm_pool_stat(pool, &s);
    assert_int_equal(s.used_sz, 0);
    assert_int_equal(s.block_cnt, 0);
    assert_true(tdm_pool_is_sound(pool));
    /* All neighbours were joined: the whole region is one block again. */
    tdm_pool_account_t a;
    tdm_pool_account_init(&a, pool, UINT64_MAX / 2);
    void *all = tdm_pool_alloc(&a, s.sz - TDM_POOL_OVERHEAD);
    assert_non_null(all);
    tdm_pool_free(&a, all);
    free(region);
}

static int is_filled(const live_t *l) {
    for (uint64_t i = 0; i < l->sz; i++) {
        if (l->p[i] != l->fill) return 0;
    }
    return 1;
}

static uint64_t some_size(tdm_rng_t *r) {
    uint32_t lg = tdm_rng_below(r, 14);
    return tdm_rng_below(r, 1u << lg) + (lg > 2 ? 1u : 0u);
}

static void random_calls_keep_blocks_apart(void **state) {
    (void)state;
    static live_t live[LIVE_MAX];
    const uint64_t seed = 42;
    tdm_rng_t r = {seed};
    tdm_pool_account_t a;
    open_pool();
    memset(live, 0, sizeof live);
    tdm_pool_account_init(&a, pool, UINT64_MAX / 2);
    for (uint32_t i = 0; i < 40000; i++) {
        live_t *l = &live[tdm_rng_below(&r, LIVE_MAX)];
        if (l->p != NULL && !is_filled(l)) fail_msg("seed %llu call %u", 42ull, i);
        uint64_t sz = some_size(&r);
        if (l->p == NULL) {
            l->p = tdm_pool_alloc(&a, sz);
            if (l->p == NULL) continue;
        } else if (tdm_rng_below(&r, 4) == 0) {
            uint8_t *p = tdm_pool_realloc(&a, l->p, sz);
            if (p == NULL) continue;
            for (uint64_t k = 0; k < TDM_MIN(sz, l->sz); k++) assert_int_equal(p[k], l->fill);
            l->p = p;
        } else {
            tdm_pool_free(&a, l->p);
            l->p = NULL;
            continue;
        }
        assert_int_equal((uintptr_t)l->p % 16u, 0);
        l->sz = sz;
        l->fill = (uint8_t)i;
        memset(l->p, l->fill, sz);
        if (i % 512 == 0) assert_true(tdm_pool_is_sound(pool));
    }
    assert_true(a.fail_cnt == 0 || a.high_sz > REGION_SZ / 2);
    for (uint32_t i = 0; i < LIVE_MAX; i++) tdm_pool_free(&a, live[i].p);
    assert_int_equal(a.used_sz, 0);
    check_empty();
}

static void quota_stops_one_and_not_the_other(void **state) {
    (void)state;
    tdm_pool_account_t greedy;
    tdm_pool_account_t modest;
    open_pool();
    tdm_pool_account_init(&greedy, pool, 64u << 10);
    tdm_pool_account_init(&modest, pool, 64u << 10);
    while (tdm_pool_alloc(&greedy, 1000) != NULL) {
    }
    assert_true(greedy.used_sz <= 64u << 10);
    assert_int_equal(greedy.fail_cnt, 1);
    void *p = tdm_pool_alloc(&modest, 1000);
    assert_non_null(p);
    tdm_pool_free(&modest, p);
    tdm_pool_account_close(&greedy);
    tdm_pool_stat_t s;
    tdm_pool_stat(pool, &s);
    assert_int_equal(s.left_cnt, (64u << 10) / 1024u);
    assert_int_equal(s.fail_cnt, 1);
    check_empty();
}

static void exhaustion_is_null_and_passes(void **state) {
    (void)state;
    tdm_pool_account_t a;
    void *p[2048];
    uint32_t cnt = 0;
    open_pool();
    tdm_pool_account_init(&a, pool, UINT64_MAX / 2);
    while (cnt < 2048 && (p[cnt] = tdm_pool_alloc(&a, 2000)) != NULL) cnt++;
    assert_in_range(cnt, 400, 530);
    assert_null(tdm_pool_calloc(&a, UINT64_MAX / 2, 16));
    assert_null(tdm_pool_alloc(&a, UINT64_MAX));
    for (uint32_t i = 0; i < cnt; i += 2) tdm_pool_free(&a, p[i]);
    assert_null(tdm_pool_alloc(&a, 6000)); /* holes of one block only */
    for (uint32_t i = 1; i < cnt; i += 2) tdm_pool_free(&a, p[i]);
    check_empty();
}

static void calloc_is_zero(void **state) {
    (void)state;
    tdm_pool_account_t a;
    open_pool();
    memset(region + REGION_SZ / 2, 0xff, REGION_SZ / 4);
    tdm_pool_account_init(&a, pool, UINT64_MAX / 2);
    void *p = tdm_pool_alloc(&a, 3000);
    memset(p, 0xff, 3000);
    tdm_pool_free(&a, p);
    uint8_t *z = tdm_pool_calloc(&a, 30, 100);
    for (uint32_t i = 0; i < 3000; i++) assert_int_equal(z[i], 0);
    tdm_pool_free(&a, z);
    check_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_keep_blocks_apart),
        cmocka_unit_test(quota_stops_one_and_not_the_other),
        cmocka_unit_test(exhaustion_is_null_and_passes),
        cmocka_unit_test(calloc_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
