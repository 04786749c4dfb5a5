/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the CPU backend computes the model.  Method: small random models
   of every kind the shape can name; each sampled token's logprob, and the
   choice of greedy tokens, against kernels/ref in double. */
#include "tests/numerics/model/rig.h"

#include "kernels/ref/forward_ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Logprobs are float32 sums of a few hundred products of order 1 through
   two layers: errors of some 1e-6 each.  A bf16 KV value that float32
   rounds to the other neighbour differs by 2^-8 of itself. */
#define TOLERANCE_F32  2e-5
#define TOLERANCE_BF16 2e-2
#define TOLERANCE_FP8  5e-2 /* likewise, by 2^-4 of one element of some hundred */

#define PROMPT 70 /* past one KV page */
#define OUT    8

typedef struct one_case {
    const char *name;
    tdm_shape_t shape;
    uint32_t kv_dtype;
    uint32_t cpu_isa;
    uint32_t is_fp8; /* weights */
} one_case_t;

#define SHAPE(q, kv, dim, tied, ...)                                                               \
    {                                                                                              \
        .layer_cnt = 2, .hidden = 96, .nhead_q = (q), .nhead_kv = (kv), .head_dim = (dim),         \
        .ffn = 168, .vocab = 307, .context = 256, .is_tied = (tied), .rms_eps = 1e-5f,             \
        .rope_theta = 10000.0f, __VA_ARGS__                                                        \
    }

#define LLAMA3                                                                                     \
    .rope_kind = TDM_ROPE_LLAMA3, .rope_factor = 8.0f, .rope_low_freq_factor = 1.0f,               \
    .rope_high_freq_factor = 4.0f, .rope_original_context = 64

static const one_case_t cases[] = {
    {"group 1, untied", SHAPE(2, 2, 64, 0, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, 0, 0},
    {"group 2, tied", SHAPE(4, 2, 64, 1, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, 0, 0},
    {"group 3, one KV head", SHAPE(3, 1, 64, 1, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, 0, 0},
    {"group 4, linear", SHAPE(4, 1, 64, 0, .rope_kind = TDM_ROPE_LINEAR, .rope_factor = 4.0f),
     TDM_KV_F32, 0, 0},
    {"group 8, llama3, dim 128", SHAPE(8, 1, 128, 0, LLAMA3), TDM_KV_F32, 0, 0},
    {"group 2, llama3, tied", SHAPE(4, 2, 64, 1, LLAMA3), TDM_KV_F32, 0, 0},
    {"scalar", SHAPE(3, 1, 64, 1, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, TDM_CPU_ISA_SCALAR, 0},
    {"avx2", SHAPE(3, 1, 64, 1, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, TDM_CPU_ISA_AVX2, 0},
    {"bf16 pages", SHAPE(4, 2, 64, 0, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_BF16, 0, 0},
    {"bf16 pages, dim 128", SHAPE(4, 4, 128, 1, LLAMA3), TDM_KV_BF16, 0, 0},
    {"fp8 pages", SHAPE(4, 2, 64, 0, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_E4M3, 0, 0},
    {"fp8 pages, scalar", SHAPE(4, 2, 64, 0, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_E4M3,
     TDM_CPU_ISA_SCALAR, 0},
    {"fp8 pages, dim 128", SHAPE(4, 4, 128, 1, LLAMA3), TDM_KV_E4M3, 0, 0},
    {"fp8 weights", SHAPE(4, 2, 64, 0, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32, 0, 1},
    {"fp8 weights, avx2", SHAPE(3, 1, 64, 1, .rope_kind = TDM_ROPE_PLAIN), TDM_KV_F32,
     TDM_CPU_ISA_AVX2, 1},
    {"fp8 weights and pages", SHAPE(8, 1, 128, 0, LLAMA3), TDM_KV_E4M3, 0, 1},
};

/* check compares position `pos` (a sampled token) with the logits of the
   position before. */
static double check(const one_case_t *c, const rig_stream_t *s, uint32_t pos, const double *logits,
                    double tolerance) {
    uint32_t vocab = c->shape.vocab;
    double top = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < vocab; i++) top = fmax(top, logits[i]);
    for (uint32_t i = 0; i < vocab; i++) sum += exp(logits[i] - top);
    double want = logits[s->token[pos]] - top - log(sum);
    double off = fabs((double)s->logprob[pos] - want);
    if (!(off <= tolerance))
        fail_msg("%s: position %u token %d: logprob %.9g, reference %.9g", c->name, pos,
                 s->token[pos], (double)s->logprob[pos], want);
    if (top - logits[s->token[pos]] > tolerance)
        fail_msg("%s: position %u: token %d is %.3g below the best", c->name, pos, s->token[pos],
                 top - logits[s->token[pos]]);
    return off;
}

static double tolerance(uint32_t kv_dtype) {
    static const double of[TDM_KV_DTYPE_CNT] = {TOLERANCE_F32, TOLERANCE_BF16, TOLERANCE_FP8};
    return of[kv_dtype];
}

/* Scales as a checkpoint may have them: no powers of two, other for each
   head, and so small that some values saturate. */
static void give_scales(tdm_weights_t *w) {
    static const float scale[2][4] = {{0.0061f, 0.0123f, 0.0049f, 0.031f},
                                      {0.0053f, 0.0171f, 0.0211f, 0.0033f}};
    for (uint32_t l = 0; l < w->shape.layer_cnt; l++) {
        w->layer[l].k_scale = scale[l % 2];
        w->layer[l].v_scale = scale[1 - l % 2];
    }
}

static double run_case(const one_case_t *c, uint64_t seed) {
    tdm_rng_t rng = {seed};
    tdm_weights_t *w = rig_weights_make(&c->shape, seed);
    if (c->kv_dtype == TDM_KV_E4M3) give_scales(w);
    if (c->is_fp8) rig_weights_fp8(w);
    tdm_backend_config_t config = {.kv_page_cnt = 4,
                                   .kv_dtype = c->kv_dtype,
                                   .seq_max = 2,
                                   .token_max = 48,
                                   .context_max = 128,
                                   .sm_cnt = 2,
                                   .cpu_isa = c->cpu_isa};
    tdm_backend_t *b = rig_backend(w, &config);
    rig_stream_t s;
    rig_stream_make(&s, PROMPT, OUT, c->shape.vocab, 1, &rng);
    rig_drive(b, &config, &s, 1, NULL, NULL);
    double *logits = malloc((size_t)OUT * c->shape.vocab * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(tdm_forward_ref(w, (tdm_kv_dtype_t)c->kv_dtype, s.token, PROMPT + OUT - 1,
                                     PROMPT - 1, logits),
                     TDM_OK);
    double worst = 0.0;
    for (uint32_t i = 0; i < OUT; i++)
        worst = fmax(worst, check(c, &s, PROMPT + i, logits + (size_t)i * c->shape.vocab,
                                  tolerance(c->kv_dtype)));
    free(logits);
    tdm_backend_destroy(b);
    rig_weights_free(w);
    return worst;
}

static void logprobs_and_choices_follow_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < TDM_COUNT_OF(cases); i++) {
#if !defined(__x86_64__)
        if (cases[i].cpu_isa == TDM_CPU_ISA_AVX2) continue;
#endif
        double worst = run_case(&cases[i], 100 + i);
        printf("  %-26s largest logprob error %.2e\n", cases[i].name, worst);
    }
}

/* The reference itself: what a hand computation can tell. */
static void reference_of_a_zero_model_is_uniform(void **state) {
    (void)state;
    tdm_shape_t shape = SHAPE(2, 1, 64, 1, .rope_kind = TDM_ROPE_PLAIN);
    tdm_weights_t *w = rig_weights_make(&shape, 1);
    tdm_bf16_t *embed = calloc((size_t)shape.vocab * shape.hidden, sizeof *embed);
    double *logits = malloc(shape.vocab * sizeof *logits);
    assert_non_null(embed);
    assert_non_null(logits);
    const tdm_bf16_t *kept = w->embed;
    w->embed = w->lm_head = embed;
    int32_t token[2] = {1, 2};
    assert_int_equal(tdm_forward_ref(w, TDM_KV_F32, token, 2, 1, logits), TDM_OK);
    for (uint32_t i = 0; i < shape.vocab; i++) assert_true(logits[i] == 0.0);
    w->embed = w->lm_head = kept;
    free(embed);
    free(logits);
    rig_weights_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_of_a_zero_model_is_uniform),
        cmocka_unit_test(logprobs_and_choices_follow_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
