/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no warp of a prefill CTA (kernels/attention/hopper) loses a wait, however
   late any of them is, also where a warpgroup has no rows in a tile and lets keys
   pass.
   Method: a model of the hand-over, not of the arithmetic: barriers that tell
   phases apart by parity, as mbarrier does; the producer, the copy engine, the Q
   warps and twelve computing warps as programs that are interleaved at random,
   one of them seldom.  A wait is lost where nobody can go on.  The form of the
   pass that the late build on the GPU trapped in (each warp on its own) must lose
   one here too, or the model is too tame. */
#include "appliance/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define WG        3u
#define WARP      4u /* of a warpgroup */
#define STAGE_MAX 4u
#define ITEM_CNT  6u
#define STEP_MAX  200000u

typedef enum form {
    EACH_WARP,  /* of a warpgroup without rows waits for itself; the first lets go */
    FIRST_WARP, /* waits and lets go; the others wait for it at the end */
} form_t;

/* mbarrier: a phase ends with the last of `all` arrivals. */
typedef struct bar {
    uint32_t phase; /* ended so far */
    uint32_t all;
    uint32_t come;
} bar_t;

static void arrive(bar_t *b) {
    if (++b->come < b->all) return;
    b->come = 0;
    b->phase++;
}

/* Whether a wait for the end of the phase of this parity goes through. */
static int is_over(const bar_t *b, uint32_t parity) {
    return (b->phase & 1) != parity;
}

typedef struct item {
    uint32_t block_cnt;
    uint32_t wg_cnt; /* warpgroups with rows, the first ones */
} item_t;

/* Where a program stands: the item, the block of it and of all before it, and
   what of the block is done. */
typedef struct place {
    uint32_t item;
    uint32_t block;
    uint32_t total;
    uint32_t part;
} place_t;

typedef struct model {
    form_t form;
    uint32_t stage_cnt;
    item_t item[ITEM_CNT];
    bar_t full[STAGE_MAX];  /* copy engine -> warps */
    bar_t empty[STAGE_MAX]; /* warpgroups -> producer */
    bar_t q_full;           /* Q warps -> warps, producer */
    bar_t q_empty;          /* warpgroups -> Q warps */
    uint32_t asked[STAGE_MAX];
    uint32_t drawn; /* items that the producer has announced */
    place_t producer;
    place_t q;
    place_t warp[WG][WARP];
} model_t;

static uint32_t parity_of(const model_t *m, uint32_t total) {
    return total / m->stage_cnt & 1;
}

/* Each returns 1 where its program has gone one step on. */

static int step_producer(model_t *m) {
    place_t *p = &m->producer;
    if (p->item == ITEM_CNT) return 0;
    if (p->part == 0) {
        if (p->item && !is_over(&m->q_full, (p->item - 1) & 1)) return 0;
        m->drawn++;
        p->part = 1;
        return 1;
    }
    if (p->block == m->item[p->item].block_cnt) {
        *p = (place_t){.item = p->item + 1, .total = p->total};
        return 1;
    }
    uint32_t s = p->total % m->stage_cnt;
    if (!is_over(&m->empty[s], parity_of(m, p->total) ^ 1)) return 0;
    m->asked[s]++;
    p->block++;
    p->total++;
    return 1;
}

static int step_copy(model_t *m, uint32_t s) {
    if (m->asked[s] == 0) return 0;
    m->asked[s]--;
    arrive(&m->full[s]);
    return 1;
}

static int step_q(model_t *m) {
    place_t *p = &m->q;
    if (p->item == ITEM_CNT || p->item >= m->drawn) return 0;
    if (!is_over(&m->q_empty, (p->item & 1) ^ 1)) return 0;
    arrive(&m->q_full);
    p->item++;
    return 1;
}

/* Whether all warps of the warpgroup are as far as this place. */
static int is_together(const model_t *m, uint32_t wg, const place_t *at) {
    for (uint32_t w = 0; w < WARP; w++) {
        const place_t *p = &m->warp[wg][w];
        if (p->item != at->item) return p->item > at->item;
        if (p->total < at->total || (p->total == at->total && p->part < at->part)) return 0;
    }
    return 1;
}

/* Parts of a block: 0 waits for its keys, 1 has them (wgmma goes on when all
   four warps have), 2 lets them go. */
static int step_block(model_t *m, uint32_t wg, uint32_t w, int has_rows) {
    place_t *p = &m->warp[wg][w];
    uint32_t s = p->total % m->stage_cnt;
    int is_waiting = has_rows || m->form == EACH_WARP || w == 0;
    if (p->part == 1) {
        if (is_waiting && !is_over(&m->full[s], parity_of(m, p->total))) return 0;
        p->part = 2;
        return 1;
    }
    if (has_rows && !is_together(m, wg, p)) return 0;
    if (w == 0) arrive(&m->empty[s]);
    if (w == 0 && has_rows && p->block + 1 == m->item[p->item].block_cnt) arrive(&m->q_empty);
    p->block++;
    p->total++;
    p->part = 1;
    return 1;
}

static int step_warp(model_t *m, uint32_t wg, uint32_t w) {
    place_t *p = &m->warp[wg][w];
    if (p->item == ITEM_CNT) return 0;
    const item_t *it = &m->item[p->item];
    int has_rows = wg < it->wg_cnt;
    if (p->part == 0) {
        if (!is_over(&m->q_full, p->item & 1)) return 0;
        p->part = 1;
        return 1;
    }
    if (p->block < it->block_cnt) return step_block(m, wg, w, has_rows);
    if (!has_rows) {
        if (p->part == 1) {
            p->part = 3; /* at the barrier of the warpgroup */
            return 1;
        }
        if (m->form == FIRST_WARP && !is_together(m, wg, p)) return 0;
        if (w == 0) arrive(&m->q_empty);
    }
    *p = (place_t){.item = p->item + 1, .total = p->total};
    return 1;
}

#define ACTOR_CNT (2u + STAGE_MAX + WG * WARP)

static int step(model_t *m, uint32_t actor) {
    if (actor == 0) return step_producer(m);
    if (actor == 1) return step_q(m);
    if (actor < 2 + STAGE_MAX) return actor - 2 < m->stage_cnt && step_copy(m, actor - 2);
    uint32_t i = actor - 2 - STAGE_MAX;
    return step_warp(m, i / WARP, i % WARP);
}

static int is_done(const model_t *m) {
    for (uint32_t i = 0; i < WG * WARP; i++) {
        if (m->warp[i / WARP][i % WARP].item != ITEM_CNT) return 0;
    }
    return 1;
}

/* Plays one interleaving; 1 where all end, 0 where a wait is lost. */
static int play(form_t form, uint32_t stage_cnt, uint32_t wg_least, uint64_t seed) {
    tdm_rng_t rng = {.state = seed};
    model_t m = {.form = form, .stage_cnt = stage_cnt};
    for (uint32_t i = 0; i < ITEM_CNT; i++) {
        m.item[i].block_cnt = 1 + tdm_rng_below(&rng, 16);
        m.item[i].wg_cnt = wg_least + tdm_rng_below(&rng, WG - wg_least + 1);
    }
    for (uint32_t s = 0; s < stage_cnt; s++) {
        m.full[s].all = 1;
        m.empty[s].all = WG;
    }
    m.q_full.all = 1;
    m.q_empty.all = WG;
    uint32_t late = tdm_rng_below(&rng, ACTOR_CNT);
    uint32_t idle = 0;
    for (uint32_t n = 0; n < STEP_MAX && !is_done(&m); n++) {
        uint32_t actor = tdm_rng_below(&rng, ACTOR_CNT);
        if (actor == late && tdm_rng_below(&rng, 16)) continue;
        if (step(&m, actor)) {
            idle = 0;
        } else if (++idle > 16 * ACTOR_CNT) { /* perhaps nobody can */
            int is_going = 0;
            for (uint32_t a = 0; a < ACTOR_CNT && !is_going; a++) is_going = step(&m, a);
            if (!is_going) return is_done(&m);
            idle = 0;
        }
    }
    return is_done(&m);
}

static uint32_t lost(form_t form, uint32_t wg_least, uint32_t seeds) {
    uint32_t cnt = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        for (uint32_t stage = 2; stage <= STAGE_MAX; stage++) {
            cnt += !play(form, stage, wg_least, seed);
        }
    }
    return cnt;
}

static void warpgroups_with_rows_lose_no_wait(void **state) {
    (void)state;
    assert_int_equal(lost(FIRST_WARP, WG, 300), 0);
}

static void the_first_warp_lets_keys_pass_for_all(void **state) {
    (void)state;
    assert_int_equal(lost(FIRST_WARP, 1, 1500), 0);
}

static void the_model_finds_the_form_that_trapped(void **state) {
    (void)state;
    assert_true(lost(EACH_WARP, 1, 300) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warpgroups_with_rows_lose_no_wait),
        cmocka_unit_test(the_first_warp_lets_keys_pass_for_all),
        cmocka_unit_test(the_model_finds_the_form_that_trapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
