/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the table gives each key its own graph or none, keeps to its bounds,
   loses no handle, captures what comes again and never thrashes.
   Method: a model of the device owns every handle; drawn sequences of finds,
   idle moments, captures that fail and graphs of any size; then workloads whose
   outcome is known. */
#include "kernels/keep/graphs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"

/* One captured graph of the model. */
typedef struct made {
    tdm_graph_key_t key;
    uint64_t sz;
    int is_alive;
} made_t;

#define MADE_MAX 200000

typedef struct device {
    tdm_graphs_t g;
    made_t *made; /* [MADE_MAX] */
    uint32_t made_cnt, alive_cnt;
    uint64_t alive_sz;
    tdm_rng_t rng;
    uint64_t sz_min, sz_span; /* of a capture, drawn */
    uint32_t fail_percent;    /* of captures */
    uint32_t lie_percent;     /* that turn out larger than all the memory there is */
} device_t;

static void device_open(device_t *d, uint32_t max, uint64_t sz_max, uint64_t seed) {
    memset(d, 0, sizeof *d);
    d->made = calloc(MADE_MAX, sizeof *d->made);
    assert_non_null(d->made);
    d->rng.state = seed;
    d->sz_min = d->sz_span = 1;
    tdm_graphs_init(&d->g, max, sz_max);
}

static tdm_graph_key_t key_of(uint32_t n) {
    return (tdm_graph_key_t){.rows = 8 * (n % 40 + 1),
                             .wants = n / 40 % 24,
                             .variant = 3,
                             .way = n / 960 % 3,
                             .grid = 264};
}

static made_t *make(device_t *d, const tdm_graph_key_t *key) {
    assert_true(d->made_cnt < MADE_MAX);
    made_t *m = &d->made[d->made_cnt++];
    *m = (made_t){
        .key = *key, .sz = d->sz_min + tdm_rng_below(&d->rng, (uint32_t)d->sz_span), .is_alive = 1};
    if (tdm_rng_below(&d->rng, 100) < d->lie_percent) m->sz = d->g.sz_max + 1;
    d->alive_cnt++;
    d->alive_sz += m->sz;
    return m;
}

static void destroy(device_t *d, made_t *m) {
    assert_true(m->is_alive); /* once */
    m->is_alive = 0;
    d->alive_cnt--;
    d->alive_sz -= m->sz;
}

/* What whoever owns the device does in an idle moment; 0: nothing was asked. */
static int idle(device_t *d) {
    tdm_graph_key_t key;
    made_t *out;
    if (!tdm_graphs_next(&d->g, &key)) return 0;
    if (tdm_rng_below(&d->rng, 100) < d->fail_percent) {
        tdm_graphs_bar(&d->g, &key);
        return 1;
    }
    made_t *m = make(d, &key);
    while ((out = tdm_graphs_place(&d->g, &key, m->sz))) destroy(d, out);
    if (!tdm_graphs_put(&d->g, &key, m, m->sz, 0)) destroy(d, m);
    return 1;
}

static int find(device_t *d, uint32_t n) {
    tdm_graph_key_t key = key_of(n);
    made_t *m = tdm_graphs_find(&d->g, &key);
    if (!m) return 0;
    assert_true(m->is_alive);
    assert_memory_equal(&m->key, &key, sizeof key);
    return 1;
}

/* The table and the model agree, and the bounds hold. */
static void check(const device_t *d) {
    const tdm_graphs_t *g = &d->g;
    uint64_t sz = 0;
    assert_true(g->cnt <= g->max && g->sz <= g->sz_max);
    assert_int_equal(g->cnt, d->alive_cnt);
    assert_int_equal(g->sz, d->alive_sz);
    for (uint32_t i = 0; i < g->cnt; i++) {
        const made_t *m = g->at[i].exec;
        assert_true(m->is_alive && m->sz == g->at[i].sz);
        assert_memory_equal(&m->key, &g->at[i].key, sizeof m->key);
        sz += m->sz;
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(&g->at[k].key, &g->at[i].key, sizeof m->key);
    }
    assert_int_equal(sz, g->sz);
    assert_int_equal(g->find_cnt, g->hit_cnt + g->miss_cnt);
    assert_int_equal(g->put_cnt, g->cnt + g->evict_cnt);
}

static void any_sequence_keeps_the_accounts(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        device_t d;
        tdm_rng_t rng = {seed};
        device_open(&d, 1 + tdm_rng_below(&rng, 60), 1 + tdm_rng_below(&rng, 4000), seed);
        d.sz_span = 1 + tdm_rng_below(&rng, 200);
        d.fail_percent = tdm_rng_below(&rng, 30);
        d.lie_percent = tdm_rng_below(&rng, 10);
        uint32_t spread = 1 + tdm_rng_below(&rng, 2000), shift = 0;
        for (uint32_t n = 0; n < 20000; n++) {
            if (n % 2000 == 0) shift = tdm_rng_below(&rng, 2880); /* another load */
            (void)find(&d, (shift + tdm_rng_below(&rng, tdm_rng_below(&rng, spread) + 1)) % 2880);
            if (tdm_rng_below(&rng, 4) == 0) (void)idle(&d);
            if (n % 97 == 0) check(&d);
        }
        for (uint32_t n = 0; idle(&d); n++) assert_true(n < TDM_GRAPHS_ASK); /* it ends */
        check(&d);
        free(d.made);
    }
}

static void what_comes_again_is_captured(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 48, 1000, 1);
    for (uint32_t n = 0; n < 48; n++) assert_false(find(&d, n));
    assert_false(idle(&d)); /* once is not again */
    for (uint32_t n = 0; n < 48; n++) assert_false(find(&d, n));
    while (idle(&d)) {
    }
    assert_int_equal(d.g.put_cnt, 48);
    assert_int_equal(d.made_cnt, 48); /* each once */
    for (uint32_t round = 0; round < 100; round++)
        for (uint32_t n = 0; n < 48; n++) assert_true(find(&d, n));
    assert_int_equal(d.g.miss_cnt, 96);
    check(&d);
    free(d.made);
}

/* More keys in turn than there are places: as many hit as have one. */
static void keys_in_turn_do_not_push_each_other_out(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 20, 1000, 1);
    for (uint32_t round = 0; round < 500; round++)
        for (uint32_t n = 0; n < 60; n++) {
            (void)find(&d, n);
            (void)idle(&d);
        }
    assert_true(d.g.put_cnt <= 60); /* not one a round */
    assert_true(d.g.hit_cnt >= 490 * 20);
    check(&d);
    free(d.made);
}

/* Another load takes the places of one that is gone. */
static void what_is_no_longer_used_gives_way(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 20, 1000, 1);
    for (uint32_t load = 0; load < 5; load++) {
        for (uint32_t round = 0; round < 10; round++)
            for (uint32_t n = 0; n < 20; n++) {
                (void)find(&d, 100 * load + n);
                (void)idle(&d);
            }
        for (uint32_t n = 0; n < 20; n++) assert_true(find(&d, 100 * load + n));
    }
    assert_int_equal(d.g.evict_cnt, 4 * 20);
    check(&d);
    free(d.made);
}

/* The longest unused goes, and what is in use stays beside a stream of others. */
static void what_is_in_use_stays(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 10, 1000, 1);
    for (uint32_t n = 0; n < 5000; n++) {
        uint32_t other = 20 + n / 20;
        int is_new = n < 100;
        for (uint32_t hot = 0; hot < 9; hot++) assert_true(find(&d, hot) || is_new);
        (void)find(&d, other);
        (void)idle(&d);
    }
    assert_true(d.g.evict_cnt >= 240); /* one place went round */
    check(&d);
    free(d.made);
}

static void the_longest_unused_goes_first(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 3, 1000, 1);
    for (uint32_t i = 0; i < 6; i++) (void)find(&d, i % 3);
    while (idle(&d)) {
    }
    static const uint32_t order[] = {1, 2, 0, 1, 0, 2, 2, 1}; /* then 0 is oldest */
    for (size_t i = 0; i < TDM_COUNT_OF(order); i++) assert_true(find(&d, order[i]));
    for (uint32_t i = 0; i < 2; i++) assert_false(find(&d, 9));
    assert_true(idle(&d));
    assert_true(find(&d, 1) && find(&d, 2) && find(&d, 9));
    assert_false(find(&d, 0));
    free(d.made);
}

/* A key that is missed now and then is captured, however many others are
   missed once. */
static void a_crowd_of_others_hides_nothing(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 10, 1000, 1);
    for (uint32_t n = 0; n < 60; n++) (void)find(&d, 500 + n);
    for (uint32_t n = 0; n < 10; n++) {
        (void)find(&d, 7);
        for (uint32_t k = 0; k < 20; k++) (void)find(&d, 1000 + 20 * n + k);
    }
    while (idle(&d)) {
    }
    assert_int_equal(d.g.cnt, 1);
    assert_true(find(&d, 7));
    tdm_graph_key_t key = key_of(7);
    assert_false(tdm_graphs_put(&d.g, &key, d.made, 1, 0)); /* it has one */
    check(&d);
    free(d.made);
}

static void kept_ones_stay_and_memory_is_a_bound(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 100, 100, 1);
    for (uint32_t n = 0; n < 4; n++) {
        tdm_graph_key_t key = key_of(n);
        made_t *m = make(&d, &key);
        d.alive_sz += 20 - m->sz;
        m->sz = 20;
        assert_true(tdm_graphs_put(&d.g, &key, m, m->sz, 1));
    }
    d.sz_min = 7; /* two more find room, whoever asks */
    for (uint32_t round = 0; round < 50; round++)
        for (uint32_t n = 10; n < 40; n++) {
            (void)find(&d, n);
            (void)find(&d, n);
            (void)idle(&d);
        }
    for (uint32_t n = 0; n < 4; n++) assert_true(find(&d, n));
    assert_int_equal(d.g.cnt, 6);
    assert_int_equal(d.g.sz, 94);
    check(&d);
    free(d.made);
}

static void a_key_that_cannot_be_captured_is_left_alone(void **state) {
    (void)state;
    device_t d;
    device_open(&d, 10, 1000, 1);
    d.fail_percent = 100;
    for (uint32_t n = 0; n < 1000; n++) {
        (void)find(&d, 5);
        (void)idle(&d);
    }
    assert_false(idle(&d));
    assert_int_equal(d.g.cnt, 0);
    assert_int_equal(d.g.miss_cnt, 1000);
    free(d.made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_sequence_keeps_the_accounts),
        cmocka_unit_test(what_comes_again_is_captured),
        cmocka_unit_test(keys_in_turn_do_not_push_each_other_out),
        cmocka_unit_test(what_is_no_longer_used_gives_way),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(the_longest_unused_goes_first),
        cmocka_unit_test(a_crowd_of_others_hides_nothing),
        cmocka_unit_test(kept_ones_stay_and_memory_is_a_bound),
        cmocka_unit_test(a_key_that_cannot_be_captured_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
