/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each rule of appliance/abi/sampling.h, one by one, on rows small
   enough to see.  Where a set is meant (top_k, top_p, min_p), many seeds
   are drawn and the set of tokens seen must be exactly the set. */
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

#define VOCAB 16

static const tdm_sampling_t plain = {
    .seed = 7, .temperature = 0.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};

static tdm_sampler_t *sampler_new(uint32_t vocab) {
    void *mem = aligned_alloc(64, tdm_sampler_footprint(vocab));
    assert_non_null(mem);
    return tdm_sampler_init(mem, vocab);
}

static tdm_sample_out_t draw(tdm_sampler_t *s, const float *logits, const tdm_sampling_t *p,
                             const int32_t *history, uint32_t pos, uint32_t prompt_cnt) {
    tdm_sample_in_t in = {
        .logits = logits, .sampling = p, .history = history, .pos = pos, .prompt_cnt = prompt_cnt};
    tdm_sample_out_t out;
    tdm_sample_row(s, &in, &out);
    return out;
}

static tdm_sample_out_t draw_once(const float *logits, uint32_t vocab, const tdm_sampling_t *p) {
    tdm_sampler_t *s = sampler_new(vocab);
    int32_t history[1] = {0};
    tdm_sample_out_t out = draw(s, logits, p, history, 1, 1);
    free(s);
    return out;
}

/* seen gives the set of tokens that 4000 seeds draw, as a bit mask. */
static uint32_t seen(const float *logits, uint32_t vocab, tdm_sampling_t p) {
    tdm_sampler_t *s = sampler_new(vocab);
    int32_t history[1] = {0};
    uint32_t mask = 0;
    for (p.seed = 0; p.seed < 4000; p.seed++) {
        tdm_sample_out_t out = draw(s, logits, &p, history, 1, 1);
        assert_in_range(out.token, 0, vocab - 1);
        mask |= 1u << out.token;
    }
    free(s);
    return mask;
}

static void greedy_takes_the_lowest_id_on_a_tie(void **state) {
    (void)state;
    float logits[VOCAB] = {0};
    logits[5] = logits[9] = logits[11] = 3.0f;
    assert_int_equal(draw_once(logits, VOCAB, &plain).token, 5);
    logits[3] = -0.0f;
    float zeros[VOCAB] = {-0.0f};
    assert_int_equal(draw_once(zeros, VOCAB, &plain).token, 0);
}

static void logprob_is_of_the_raw_row(void **state) {
    (void)state;
    float logits[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    double sum = exp(1.0) + exp(2.0) + exp(3.0) + exp(4.0);
    tdm_sampling_t p = plain;
    assert_true(fabs((double)draw_once(logits, 4, &p).logprob - (4.0 - log(sum))) < 1e-6);
    p.temperature = 0.7f; /* neither temperature nor filters change it */
    p.top_k = 1;
    assert_true(fabs((double)draw_once(logits, 4, &p).logprob - (4.0 - log(sum))) < 1e-6);
}

static void bad_rows_are_nan(void **state) {
    (void)state;
    float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t at = 0; at < VOCAB; at++) {
            float logits[VOCAB] = {0};
            logits[at] = bad[i];
            tdm_sample_out_t out = draw_once(logits, VOCAB, &plain);
            assert_int_equal(out.token, -1);
            assert_int_equal(out.flags, TDM_SAMPLE_NAN);
        }
    }
    float masked[VOCAB];
    for (int i = 0; i < VOCAB; i++) masked[i] = -INFINITY;
    assert_int_equal(draw_once(masked, VOCAB, &plain).flags, TDM_SAMPLE_NAN);
    masked[6] = -1e30f; /* one finite logit is enough */
    tdm_sample_out_t out = draw_once(masked, VOCAB, &plain);
    assert_int_equal(out.token, 6);
    assert_int_equal(out.flags, 0);
    assert_true(out.logprob == 0.0f);
}

static void top_k_keeps_exactly_k(void **state) {
    (void)state;
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)((i * 7) % VOCAB) * 0.1f;
    tdm_sampling_t p = plain;
    p.temperature = 1.0f;
    p.top_k = 3;
    uint32_t want = 0;
    for (int i = 0; i < VOCAB; i++) want |= (i * 7) % VOCAB >= VOCAB - 3 ? 1u << i : 0u;
    assert_int_equal(seen(logits, VOCAB, p), want);
    float flat[VOCAB] = {0}; /* a tie at the border: lowest ids stay */
    assert_int_equal(seen(flat, VOCAB, p), 0x7);
    p.top_k = VOCAB;
    assert_int_equal(seen(flat, VOCAB, p), (1u << VOCAB) - 1);
}

static void top_p_keeps_the_shortest_run(void **state) {
    (void)state;
    /* probabilities 1/2, 1/4, 1/8, 1/8 in the order 2 0 3 1 */
    float logits[4] = {logf(2.0f), logf(1.0f), logf(4.0f), logf(1.0f)};
    tdm_sampling_t p = plain;
    p.temperature = 1.0f;
    p.top_p = 0.3f;
    assert_int_equal(seen(logits, 4, p), 1u << 2);
    p.top_p = 0.6f;
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0);
    p.top_p = 0.8f; /* of the two that tie, the lower id */
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0 | 1u << 1);
    p.top_p = 0.95f;
    assert_int_equal(seen(logits, 4, p), 0xf);
    p.top_p = 0.7f; /* shares are of what top_k kept: 2/3, 1/3 */
    p.top_k = 2;
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0);
    p.top_p = 0.6f;
    assert_int_equal(seen(logits, 4, p), 1u << 2);
}

static void min_p_is_relative_to_the_best(void **state) {
    (void)state;
    float logits[4] = {logf(2.0f), logf(1.0f), logf(4.0f), logf(1.0f)};
    tdm_sampling_t p = plain;
    p.temperature = 1.0f;
    p.min_p = 0.3f;
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0);
    p.min_p = 0.2f;
    assert_int_equal(seen(logits, 4, p), 0xf);
    p.min_p = 1.0f;
    assert_int_equal(seen(logits, 4, p), 1u << 2);
    p.top_k = 3; /* the filtered path agrees */
    p.min_p = 0.3f;
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0);
    p.temperature = 2.0f; /* after temperature 1/2 becomes sqrt(1/2) */
    p.min_p = 0.6f;
    assert_int_equal(seen(logits, 4, p), 1u << 2 | 1u << 0);
}

static void any_temperature_is_sound(void **state) {
    (void)state;
    float logits[VOCAB] = {0};
    logits[4] = 90.0f;
    logits[5] = -3e38f;
    tdm_sampling_t p = plain;
    float temperatures[] = {1e-45f, 1e-38f, 1e-6f, 0.1f};
    for (size_t i = 0; i < TDM_COUNT_OF(temperatures); i++) {
        p.temperature = temperatures[i];
        assert_int_equal(draw_once(logits, VOCAB, &p).token, 4);
        p.top_p = 0.9f;
        assert_int_equal(draw_once(logits, VOCAB, &p).token, 4);
        p.top_p = 1.0f;
    }
}

static void stop_ids_are_masked_until_min_tokens(void **state) {
    (void)state;
    float logits[VOCAB] = {0};
    logits[3] = 5.0f;
    logits[8] = 4.0f;
    tdm_sampling_t p = plain;
    p.stop_cnt = 1;
    p.stop_id[0] = 3;
    p.min_tokens = 2;
    tdm_sampler_t *s = sampler_new(VOCAB);
    int32_t history[8] = {0};
    assert_int_equal(draw(s, logits, &p, history, 4, 4).token, 8); /* none out yet */
    assert_int_equal(draw(s, logits, &p, history, 5, 4).token, 8); /* one */
    tdm_sample_out_t out = draw(s, logits, &p, history, 6, 4);     /* two */
    assert_int_equal(out.token, 3);
    assert_int_equal(out.flags, TDM_SAMPLE_STOP_ID);
    p.flags = TDM_SAMPLING_IGNORE_EOS;
    assert_int_equal(draw(s, logits, &p, history, 6, 4).flags, 0);
    assert_int_equal(draw(s, logits, &p, history, 5, 4).token, 8);
    free(s);
}

static void all_stop_ids_masked_is_nan_not_a_stop(void **state) {
    (void)state;
    float logits[2] = {1.0f, 2.0f};
    tdm_sampling_t p = plain;
    p.min_tokens = 9;
    p.stop_cnt = 2;
    p.stop_id[1] = 1;
    assert_int_equal(draw_once(logits, 2, &p).flags, TDM_SAMPLE_NAN);
}

static void penalties_follow_their_formulas(void **state) {
    (void)state;
    /* prompt: 1 2; output: 2 3 3.  Each row asks whether token t with a
       penalised logit loses to token 0 with the bound. */
    int32_t history[5] = {1, 2, 2, 3, 3};
    tdm_sampling_t p = plain;
    p.repetition_penalty = 2.0f;
    p.presence_penalty = 0.5f;
    p.frequency_penalty = 0.25f;
    float raw[] = {0.0f, 4.0f, 4.0f, 4.0f};
    float want[] = {0.0f, 2.0f, 2.0f - 0.5f - 0.25f, 2.0f - 0.5f - 0.5f};
    tdm_sampler_t *s = sampler_new(VOCAB);
    for (int32_t t = 1; t <= 3; t++) {
        float logits[VOCAB];
        for (int i = 0; i < VOCAB; i++) logits[i] = -50.0f;
        logits[t] = raw[t];
        logits[0] = want[t] - 0.001f;
        assert_int_equal(draw(s, logits, &p, history, 5, 2).token, t);
        logits[0] = want[t] + 0.001f;
        assert_int_equal(draw(s, logits, &p, history, 5, 2).token, 0);
        logits[t] = -4.0f; /* a negative logit is multiplied */
        logits[0] = -8.0f - (2.0f - want[t]) + 0.001f;
        assert_int_equal(draw(s, logits, &p, history, 5, 2).token, 0);
        logits[0] = -8.0f - (2.0f - want[t]) - 0.001f;
        assert_int_equal(draw(s, logits, &p, history, 5, 2).token, t);
    }
    free(s);
}

static void a_tiny_repetition_penalty_is_sound(void **state) {
    (void)state;
    float logits[VOCAB] = {0};
    logits[1] = 30.0f;
    int32_t history[1] = {1};
    tdm_sampling_t p = plain;
    p.repetition_penalty = 1e-38f; /* 30 / 1e-38 is over the float range */
    p.temperature = 1.0f;
    tdm_sampler_t *s = sampler_new(VOCAB);
    assert_int_equal(draw(s, logits, &p, history, 1, 1).token, 1);
    free(s);
}

static void a_row_leaves_no_trace_in_the_next(void **state) {
    (void)state;
    tdm_rng_t rng = {3};
    tdm_sampler_t *used = sampler_new(VOCAB);
    for (int round = 0; round < 500; round++) {
        float logits[VOCAB];
        int32_t history[12];
        for (int i = 0; i < VOCAB; i++) logits[i] = (float)tdm_rng_below(&rng, 1000) * 0.01f;
        for (int i = 0; i < 12; i++) history[i] = (int32_t)tdm_rng_below(&rng, VOCAB + 4) - 2;
        tdm_sampling_t p = plain;
        p.seed = tdm_rng_next(&rng);
        p.temperature = (float)tdm_rng_below(&rng, 3) * 0.5f;
        p.top_k = (int32_t)tdm_rng_below(&rng, 5);
        p.top_p = tdm_rng_below(&rng, 2) ? 1.0f : 0.7f;
        p.repetition_penalty = tdm_rng_below(&rng, 2) ? 1.0f : 1.3f;
        tdm_sampler_t *fresh = sampler_new(VOCAB);
        tdm_sample_out_t a = draw(used, logits, &p, history, 12, 5);
        tdm_sample_out_t b = draw(fresh, logits, &p, history, 12, 5);
        free(fresh);
        assert_int_equal(a.token, b.token);
        assert_memory_equal(&a.logprob, &b.logprob, sizeof a.logprob);
    }
    free(used);
}

static void ranges_are_checked(void **state) {
    (void)state;
    tdm_sampling_t p = plain;
    assert_null(tdm_sampling_check(&p, VOCAB));
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        tdm_sampling_t q = plain;                                                                  \
        q.field = (value);                                                                         \
        assert_non_null(tdm_sampling_check(&q, VOCAB));                                            \
    } while (0)
    REFUSED(temperature, -0.1f);
    REFUSED(temperature, 2.1f);
    REFUSED(temperature, NAN);
    REFUSED(top_p, 0.0f);
    REFUSED(top_p, 1.1f);
    REFUSED(top_p, NAN);
    REFUSED(min_p, -0.1f);
    REFUSED(min_p, NAN);
    REFUSED(repetition_penalty, 0.0f);
    REFUSED(repetition_penalty, INFINITY);
    REFUSED(presence_penalty, -2.1f);
    REFUSED(frequency_penalty, NAN);
    REFUSED(top_k, -1);
    REFUSED(top_k, VOCAB + 1);
    REFUSED(flags, 2);
    REFUSED(stop_cnt, TDM_STOP_ID_MAX + 1);
    p.stop_cnt = 1;
    p.stop_id[0] = VOCAB;
    assert_non_null(tdm_sampling_check(&p, VOCAB));
    p.stop_id[0] = -1;
    assert_non_null(tdm_sampling_check(&p, VOCAB));
    assert_int_equal(tdm_sampler_footprint(0), 0);
    assert_int_equal(tdm_sampler_footprint(TDM_VOCAB_MAX + 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_id_on_a_tie),
        cmocka_unit_test(logprob_is_of_the_raw_row),
        cmocka_unit_test(bad_rows_are_nan),
        cmocka_unit_test(top_k_keeps_exactly_k),
        cmocka_unit_test(top_p_keeps_the_shortest_run),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(any_temperature_is_sound),
        cmocka_unit_test(stop_ids_are_masked_until_min_tokens),
        cmocka_unit_test(all_stop_ids_masked_is_nan_not_a_stop),
        cmocka_unit_test(penalties_follow_their_formulas),
        cmocka_unit_test(a_tiny_repetition_penalty_is_sound),
        cmocka_unit_test(a_row_leaves_no_trace_in_the_next),
        cmocka_unit_test(ranges_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
