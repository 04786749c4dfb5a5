/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the draws follow the distribution, and the fast selection agrees
   with an obvious one.  Method: chi-square with fixed seeds; random rows
   against a reference that sorts everything and works in double. */
#include "kernels/sample/exp.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/select.h"

#include "appliance/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tdm_sampler_t *sampler_new(uint32_t vocab) {
    void *mem = aligned_alloc(64, tdm_sampler_footprint(vocab));
    assert_non_null(mem);
    return tdm_sampler_init(mem, vocab);
}

/* --- exp and selection ---------------------------------------------- */

static void exp_is_exact_to_two_units(void **state) {
    (void)state;
    double worst = 0.0;
    for (double x = -86.9; x < 20.0; x += 0.000317) {
        double want = exp((double)(float)x);
        worst = fmax(worst, fabs((double)tdm_exp_f32((float)x) / want - 1.0));
    }
    assert_true(worst < 2e-7);
    assert_true(tdm_exp_f32(0.0f) == 1.0f);
    assert_true(tdm_exp_f32(-INFINITY) == 0.0f);
    assert_true(tdm_exp_f32(-88.0f) == 0.0f);
    assert_true(tdm_exp_f32(1000.0f) > 1e38f);
}

static void candidates_order_by_logit_then_id(void **state) {
    (void)state;
    const float rising[] = {-INFINITY, -3e38f, -1.0f, -1e-40f, 0.0f, 1e-40f, 1.0f, 3e38f};
    for (uint32_t i = 0; i < TDM_COUNT_OF(rising); i++) {
        assert_true(tdm_candidate_logit(tdm_candidate_make(rising[i], 5)) == rising[i]);
        assert_int_equal(tdm_candidate_id(tdm_candidate_make(rising[i], 5)), 5);
        assert_true(tdm_candidate_make(rising[i], 1) < tdm_candidate_make(rising[i], 2));
        if (i > 0)
            assert_true(tdm_candidate_make(rising[i], 9) < tdm_candidate_make(rising[i - 1], 0));
    }
    assert_int_equal(tdm_candidate_make(-0.0f, 1), tdm_candidate_make(0.0f, 1));
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void selection_agrees_with_a_full_sort(void **state) {
    (void)state;
    tdm_rng_t rng = {41};
    for (int round = 0; round < 2000; round++) {
        uint32_t cnt = 1 + tdm_rng_below(&rng, 400), k = tdm_rng_below(&rng, cnt + 1);
        uint32_t span = 1u << tdm_rng_below(&rng, 20); /* few distinct logits or many */
        uint64_t a[400], b[400];
        for (uint32_t i = 0; i < cnt; i++) {
            uint32_t v = round % 4 == 0 ? i : round % 4 == 1 ? cnt - i : tdm_rng_below(&rng, span);
            a[i] = b[i] = tdm_candidate_make((float)v, i);
        }
        qsort(b, cnt, sizeof b[0], ascending);
        tdm_candidate_front(a, cnt, k);
        tdm_candidate_sort(a, k);
        assert_memory_equal(a, b, k * sizeof a[0]);
        tdm_candidate_sort(a, cnt);
        assert_memory_equal(a, b, cnt * sizeof a[0]);
    }
}

/* --- an obvious reference ------------------------------------------- */

typedef struct ref_token {
    double logit, prob;
    uint32_t id;
} ref_token_t;

static int likelier(const void *a, const void *b) {
    const ref_token_t *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void normalise(ref_token_t *t, uint32_t cnt) {
    double sum = 0.0;
    for (uint32_t i = 0; i < cnt; i++) sum += t[i].prob;
    for (uint32_t i = 0; i < cnt; i++) t[i].prob /= sum;
}

/* reference fills prob[vocab] with the law a draw must follow. */
static void reference(const float *logits, uint32_t vocab, const tdm_sampling_t *p, double *prob) {
    ref_token_t *t = malloc(vocab * sizeof *t);
    assert_non_null(t);
    uint32_t cnt = vocab;
    for (uint32_t i = 0; i < vocab; i++)
        t[i] = (ref_token_t){.logit = (double)logits[i] / (double)p->temperature, .id = i};
    qsort(t, cnt, sizeof *t, likelier);
    for (uint32_t i = 0; i < cnt; i++) t[i].prob = exp(t[i].logit - t[0].logit);
    if (p->top_k > 0) cnt = TDM_MIN(cnt, (uint32_t)p->top_k);
    normalise(t, cnt);
    double walked = 0.0;
    for (uint32_t i = 0; i < cnt; i++) {
        walked += t[i].prob;
        if (walked >= (double)p->top_p) cnt = i + 1;
    }
    uint32_t kept = 0;
    while (kept < cnt && t[kept].prob >= (double)p->min_p * t[0].prob) kept++;
    normalise(t, kept);
    memset(prob, 0, vocab * sizeof *prob);
    for (uint32_t i = 0; i < kept; i++) prob[t[i].id] = t[i].prob;
    free(t);
}

#define DRAWS 20000

/* chi_square draws DRAWS tokens and returns the statistic over the cells
   with an expectation of 5 or more, minus its mean, in deviations. */
static double chi_square(const float *logits, uint32_t vocab, tdm_sampling_t p, uint64_t seed) {
    tdm_sampler_t *s = sampler_new(vocab);
    double *prob = malloc(vocab * sizeof *prob);
    uint32_t *hit = calloc(vocab, sizeof *hit);
    int32_t history[1] = {0};
    assert_non_null(prob);
    assert_non_null(hit);
    reference(logits, vocab, &p, prob);
    for (uint32_t i = 0; i < DRAWS; i++) {
        p.seed = seed + i;
        tdm_sample_in_t in = {
            .logits = logits, .sampling = &p, .history = history, .pos = 1, .prompt_cnt = 1};
        tdm_sample_out_t out;
        tdm_sample_row(s, &in, &out);
        assert_in_range(out.token, 0, vocab - 1);
        if (prob[out.token] == 0.0) fail_msg("token %d is outside the set", out.token);
        hit[out.token]++;
    }
    double stat = 0.0, cells = 0.0, rest = DRAWS, rest_hits = DRAWS;
    for (uint32_t i = 0; i < vocab; i++) {
        double want = prob[i] * DRAWS;
        if (want < 5.0) continue;
        stat += (hit[i] - want) * (hit[i] - want) / want;
        cells += 1.0;
        rest -= want;
        rest_hits -= hit[i];
    }
    if (rest >= 5.0) {
        stat += (rest_hits - rest) * (rest_hits - rest) / rest;
        cells += 1.0;
    }
    free(s);
    free(prob);
    free(hit);
    double freedom = fmax(cells - 1.0, 1.0);
    return (stat - freedom) / sqrt(2.0 * freedom);
}

static void draws_follow_the_law(void **state) {
    (void)state;
    tdm_rng_t rng = {99};
    const tdm_sampling_t laws[] = {
        {.temperature = 1.0f, .top_p = 1.0f},
        {.temperature = 0.6f, .top_p = 1.0f},
        {.temperature = 2.0f, .top_p = 1.0f, .min_p = 0.1f},
        {.temperature = 1.0f, .top_p = 0.9f},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = 7},
        {.temperature = 0.8f, .top_p = 0.95f, .top_k = 20, .min_p = 0.05f},
    };
    for (size_t i = 0; i < TDM_COUNT_OF(laws); i++) {
        float logits[40];
        for (uint32_t t = 0; t < 40; t++)
            logits[t] = (float)(tdm_rng_unit(tdm_rng_next(&rng)) * 6.0 - 3.0);
        tdm_sampling_t p = laws[i];
        p.repetition_penalty = 1.0f;
        double off = chi_square(logits, 40, p, 1000000 * (i + 1));
        if (!(off < 4.0)) fail_msg("law %zu: chi-square %.1f deviations over its mean", i, off);
    }
}

/* One seed, many positions: the stream of one request. */
static void positions_of_one_seed_are_independent(void **state) {
    (void)state;
    float logits[2] = {0.0f, 0.0f};
    tdm_sampling_t p = {.seed = 5, .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
    tdm_sampler_t *s = sampler_new(2);
    int32_t *history = calloc(DRAWS, sizeof *history);
    assert_non_null(history);
    uint32_t pair[4] = {0}, last = 0;
    for (uint32_t pos = 1; pos < DRAWS; pos++) {
        tdm_sample_in_t in = {
            .logits = logits, .sampling = &p, .history = history, .pos = pos, .prompt_cnt = 1};
        tdm_sample_out_t out;
        tdm_sample_row(s, &in, &out);
        pair[last * 2 + (uint32_t)out.token]++;
        last = (uint32_t)out.token;
    }
    for (int i = 0; i < 4; i++) assert_in_range(pair[i], DRAWS / 4 - 350, DRAWS / 4 + 350);
    free(history);
    free(s);
}

static void a_large_flat_row_keeps_the_exact_nucleus(void **state) {
    (void)state;
    /* 40,000 equal tokens, top_p 1/2: the lower ids, exactly half.  The
       selection has to grow through all its sizes. */
    enum { N = 40000 };
    float *logits = calloc(N, sizeof *logits);
    tdm_sampler_t *s = sampler_new(N);
    assert_non_null(logits);
    tdm_sampling_t p = {.temperature = 1.0f, .top_p = 0.5f, .repetition_penalty = 1.0f};
    int32_t history[1] = {0}, highest = 0;
    for (p.seed = 0; p.seed < 60; p.seed++) {
        tdm_sample_in_t in = {
            .logits = logits, .sampling = &p, .history = history, .pos = 1, .prompt_cnt = 1};
        tdm_sample_out_t out;
        tdm_sample_row(s, &in, &out);
        assert_in_range(out.token, 0, N / 2 - 1);
        highest = TDM_MAX(highest, out.token);
        assert_true(fabs((double)out.logprob + log((double)N)) < 1e-5);
    }
    assert_true(highest > N / 2 * 9 / 10);
    free(logits);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_exact_to_two_units),
        cmocka_unit_test(candidates_order_by_logit_then_id),
        cmocka_unit_test(selection_agrees_with_a_full_sort),
        cmocka_unit_test(draws_follow_the_law),
        cmocka_unit_test(positions_of_one_seed_are_independent),
        cmocka_unit_test(a_large_flat_row_keeps_the_exact_nucleus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
