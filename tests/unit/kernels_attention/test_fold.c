/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the fold of partials is right for empty ones, bit for bit, and
   close to the exact sum for the others.
   Method: the fold alone, on every instruction set this machine has: 1..8
   partials with every subset empty, 9..32 with random subsets. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "appliance/base/rng.h"
#include "kernels/cpu/attention_ops.h"

#define DIM   32
#define PARTS 32

typedef struct part {
    float o[DIM];
    float m;
    float l;
} part_t;

static tdm_attn_rows_t rows_of(part_t *p) {
    return (tdm_attn_rows_t){.o = p->o, .m = &p->m, .l = &p->l};
}

static part_t empty_part(void) {
    part_t p;
    memset(&p, 0, sizeof p);
    p.m = -INFINITY;
    return p;
}

static part_t random_part(tdm_rng_t *rng) {
    part_t p;
    for (int d = 0; d < DIM; d++) p.o[d] = (float)(tdm_rng_unit(tdm_rng_next(rng)) * 20 - 10);
    p.o[0] = -0.0f; /* a sign that adding 0 would lose */
    p.m = (float)(tdm_rng_unit(tdm_rng_next(rng)) * 60 - 30);
    p.l = (float)(1 + tdm_rng_unit(tdm_rng_next(rng)) * 500);
    return p;
}

static part_t fold_all(const tdm_attn_ops_t *ops, const part_t *part, uint32_t cnt) {
    part_t acc = part[0];
    for (uint32_t i = 1; i < cnt; i++) {
        part_t p = part[i];
        ops->fold(rows_of(&acc), rows_of(&p), 1, DIM);
    }
    return acc;
}

/* The exact fold of the parts that are not empty; checks out and lse. */
static void check_exact(const part_t *part, uint32_t cnt, const part_t *got) {
    double top = -INFINITY;
    for (uint32_t i = 0; i < cnt; i++) top = fmax(top, (double)part[i].m);
    double l = 0;
    double o[DIM] = {0};
    for (uint32_t i = 0; i < cnt; i++) {
        double w = exp2((double)part[i].m - top);
        l += (double)part[i].l * w;
        for (int d = 0; d < DIM; d++) o[d] += (double)part[i].o[d] * w;
    }
    assert_true(fabs(log2((double)got->l) + (double)got->m - log2(l) - top) < 1e-5);
    for (int d = 0; d < DIM; d++) {
        assert_true(fabs((double)(got->o[d] / got->l) - o[d] / l) < 1e-5);
    }
}

static void check_subset(const tdm_attn_ops_t *ops, tdm_rng_t *rng, uint32_t cnt, uint32_t mask) {
    part_t part[PARTS] = {0};
    part_t dense[PARTS] = {0};
    uint32_t dense_cnt = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        int is_empty = !(mask >> i & 1);
        part[i] = is_empty ? empty_part() : random_part(rng);
        if (!is_empty) dense[dense_cnt++] = part[i];
    }
    part_t got = fold_all(ops, part, cnt);
    part_t want = dense_cnt ? fold_all(ops, dense, dense_cnt) : empty_part();
    assert_memory_equal(&got, &want, sizeof got);
    if (dense_cnt == 1) assert_memory_equal(&got, &dense[0], sizeof got);
    if (dense_cnt) check_exact(part, cnt, &got);
}

static void for_each_isa(void (*fn)(const tdm_attn_ops_t *ops)) {
    for (uint32_t wanted = TDM_CPU_ISA_SCALAR; wanted < TDM_CPU_ISA_CNT; wanted++) {
        uint32_t isa;
        if (tdm_cpu_isa_resolve(wanted, &isa, NULL) == TDM_OK) fn(tdm_attn_ops_of(isa));
    }
}

static void every_subset(const tdm_attn_ops_t *ops) {
    tdm_rng_t rng = {2};
    for (uint32_t cnt = 1; cnt <= 8; cnt++) {
        for (uint32_t mask = 0; mask < 1u << cnt; mask++) check_subset(ops, &rng, cnt, mask);
    }
    for (uint32_t cnt = 9; cnt <= PARTS; cnt++) {
        for (int i = 0; i < 20; i++) {
            check_subset(ops, &rng, cnt, (uint32_t)(tdm_rng_next(&rng) >> 32));
        }
    }
}

static void empty_partials_leave_the_others_bit_for_bit(void **state) {
    (void)state;
    for_each_isa(every_subset);
}

static void nan_in(const tdm_attn_ops_t *ops) {
    tdm_rng_t rng = {3};
    part_t a = random_part(&rng);
    part_t b = random_part(&rng);
    b.l = NAN;
    ops->fold(rows_of(&a), rows_of(&b), 1, DIM);
    assert_true(isnan(a.l));
    a = random_part(&rng);
    a.l = NAN;
    a.m = -INFINITY; /* a row of NaN scores is not an empty one */
    b = random_part(&rng);
    ops->fold(rows_of(&a), rows_of(&b), 1, DIM);
    assert_true(isnan(a.l));
}

static void a_nan_partial_stays_nan(void **state) {
    (void)state;
    for_each_isa(nan_in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_partials_leave_the_others_bit_for_bit),
        cmocka_unit_test(a_nan_partial_stays_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
