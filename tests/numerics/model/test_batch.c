/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: company changes nothing.  Method: 32 streams of mixed lengths and
   sampling run alone, then together under random chunking, batch
   composition, slots, pages, routes and 1, 2 or 3 SMs; tokens and logprob
   bits must be the same.  And a stream that begins anew from its own tokens
   goes on as it would have. */
#include "tests/numerics/model/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAMS 32

static const tdm_shape_t shape = {.layer_cnt = 2,
                                  .hidden = 72, /* not a multiple of 64 */
                                  .nhead_q = 6,
                                  .nhead_kv = 2,
                                  .head_dim = 64,
                                  .ffn = 100,
                                  .vocab = 301,
                                  .context = 1024,
                                  .is_tied = 1,
                                  .rms_eps = 1e-5f,
                                  .rope_theta = 10000.0f,
                                  .rope_kind = TDM_ROPE_PLAIN};

static tdm_backend_config_t make_config(uint32_t sm_cnt, uint32_t kv_dtype, uint32_t isa) {
    return (tdm_backend_config_t){.kv_page_cnt = 40,
                                  .kv_dtype = kv_dtype,
                                  .seq_max = 12,
                                  .token_max = 160,
                                  .context_max = 704,
                                  .sm_cnt = sm_cnt,
                                  .cpu_isa = isa};
}

static void make_streams(rig_stream_t *s, uint64_t seed) {
    tdm_rng_t rng = {seed};
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint32_t prompt = 1 + tdm_rng_below(&rng, i == 0 ? 600 : 70);
        rig_stream_make(&s[i], prompt, 1 + tdm_rng_below(&rng, 24), shape.vocab, i % 3 == 0, &rng);
    }
}

static void forget(rig_stream_t *s) {
    for (uint32_t i = s->prompt_cnt; i < RIG_TOKEN_MAX; i++) s->token[i] = 0;
    memset(s->logprob, 0, sizeof s->logprob);
    s->out_cnt = 0;
}

static void compare(const rig_stream_t *alone, const rig_stream_t *together, uint64_t seed) {
    for (uint32_t i = 0; i < STREAMS; i++) {
        const rig_stream_t *a = &alone[i], *b = &together[i];
        assert_int_equal(a->out_cnt, b->out_cnt);
        for (uint32_t p = a->prompt_cnt; p < a->prompt_cnt + a->out_cnt; p++)
            if (a->token[p] != b->token[p] ||
                memcmp(&a->logprob[p], &b->logprob[p], sizeof a->logprob[p]) != 0)
                fail_msg("seed %llu: stream %u position %u: token %d (%.9g) alone, %d (%.9g)",
                         (unsigned long long)seed, i, p, a->token[p], (double)a->logprob[p],
                         b->token[p], (double)b->logprob[p]);
    }
}

static void run_alone(const tdm_weights_t *w, rig_stream_t *s, uint32_t kv_dtype, uint32_t isa) {
    tdm_backend_config_t config = make_config(1, kv_dtype, isa);
    tdm_backend_t *b = rig_backend(w, &config);
    for (uint32_t i = 0; i < STREAMS; i++) {
        rig_drive(b, &config, &s[i], 1, NULL, NULL);
        /* The driver leaves its last slot closed, so the next one starts
           on used pages. */
    }
    tdm_backend_destroy(b);
}

static void compare_all(uint32_t weight_dtype, uint32_t kv_dtype, uint32_t isa, uint32_t is_ahead,
                        uint32_t sm_from, uint32_t sm_to, uint64_t seed) {
    tdm_weights_t *w = rig_weights_make(&shape, seed);
    if (weight_dtype == TDM_WEIGHT_FP8) rig_weights_fp8(w);
    rig_stream_t *alone = malloc(STREAMS * sizeof *alone);
    rig_stream_t *together = malloc(STREAMS * sizeof *together);
    assert_non_null(alone);
    assert_non_null(together);
    make_streams(alone, seed);
    run_alone(w, alone, kv_dtype, isa);
    rig_total_t total = {0};
    for (uint32_t sm_cnt = sm_from; sm_cnt <= sm_to; sm_cnt++) {
        tdm_rng_t rng = {seed * 10 + sm_cnt};
        tdm_backend_config_t config = make_config(sm_cnt, kv_dtype, isa);
        config.is_ahead = is_ahead;
        tdm_backend_t *b = rig_backend(w, &config);
        make_streams(together, seed);
        for (uint32_t i = 0; i < STREAMS; i++) forget(&together[i]);
        rig_drive(b, &config, together, STREAMS, &rng, &total);
        compare(alone, together, rng.state);
        tdm_backend_destroy(b);
    }
    for (uint32_t route = TDM_ROUTE_PREFILL_ONLY; route < TDM_ROUTE_CNT; route++)
        assert_true(total.route_cnt[route] > 0);
    for (int k = 0; k < TDM_KIND_CNT; k++) {
        assert_true(total.vcta_planned[k] > 0);
        assert_int_equal(total.vcta_planned[k], total.vcta_executed[k]);
    }
    assert_true(is_ahead ? total.past_cnt > 0 : total.past_cnt == 0);
    free(alone);
    free(together);
    rig_weights_free(w);
}

static void streams_over_float_pages_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_BF16, TDM_KV_F32, TDM_CPU_ISA_AUTO, 0, 3, 3, 11);
}

static void streams_over_bf16_pages_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_BF16, TDM_KV_BF16, TDM_CPU_ISA_AUTO, 0, 1, 3, 12);
}

static void streams_over_fp8_pages_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_BF16, TDM_KV_E4M3, TDM_CPU_ISA_AUTO, 0, 3, 3, 14);
}

static void streams_of_fp8_weights_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_FP8, TDM_KV_F32, TDM_CPU_ISA_AUTO, 0, 2, 2, 16);
    compare_all(TDM_WEIGHT_FP8, TDM_KV_E4M3, TDM_CPU_ISA_AUTO, 1, 3, 3, 17);
}

/* go_on runs a greedy stream whole, then has another backend begin anew from
   its prompt and the first `sent` tokens: what a preempted sequence, or one
   whose executor died, goes through. */
static void go_on(const tdm_weights_t *w, uint32_t kv_dtype, uint32_t prompt, uint32_t sent) {
    enum { OUT = 30 };
    tdm_rng_t rng = {kv_dtype * 100 + prompt};
    rig_stream_t first, second;
    tdm_backend_config_t config = make_config(2, kv_dtype, TDM_CPU_ISA_AUTO);
    rig_stream_make(&first, prompt, OUT, shape.vocab, 1, &rng);
    tdm_backend_t *b = rig_backend(w, &config);
    rig_drive(b, &config, &first, 1, NULL, NULL);
    tdm_backend_destroy(b);
    rig_stream_make(&second, prompt + sent, OUT - sent, shape.vocab, 1, &rng);
    memcpy(second.token, first.token, (prompt + sent) * sizeof *first.token);
    b = rig_backend(w, &config);
    rig_drive(b, &config, &second, 1, &rng, NULL);
    tdm_backend_destroy(b);
    assert_memory_equal(second.token, first.token, (prompt + OUT) * sizeof *first.token);
    assert_memory_equal(second.logprob + prompt + sent, first.logprob + prompt + sent,
                        (OUT - sent) * sizeof *first.logprob);
}

static void a_second_life_goes_on_where_the_first_ended(void **state) {
    (void)state;
    tdm_weights_t *w = rig_weights_make(&shape, 15);
    for (uint32_t kv_dtype = 0; kv_dtype < TDM_KV_DTYPE_CNT; kv_dtype++)
        for (uint32_t sent = 1; sent < 30; sent += 9) go_on(w, kv_dtype, 40 + sent * 3, sent);
    rig_weights_free(w);
}

#if defined(__x86_64__)
static void streams_on_avx2_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_BF16, TDM_KV_BF16, TDM_CPU_ISA_AVX2, 0, 2, 2, 13);
}
#endif

/* The tokens that decodes run on are not known when they are planned. */
static void streams_planned_ahead_are_what_they_are_alone(void **state) {
    (void)state;
    compare_all(TDM_WEIGHT_BF16, TDM_KV_F32, TDM_CPU_ISA_AUTO, 1, 1, 3, 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_over_float_pages_are_what_they_are_alone),
        cmocka_unit_test(streams_over_bf16_pages_are_what_they_are_alone),
        cmocka_unit_test(streams_over_fp8_pages_are_what_they_are_alone),
        cmocka_unit_test(streams_of_fp8_weights_are_what_they_are_alone),
        cmocka_unit_test(a_second_life_goes_on_where_the_first_ended),
        cmocka_unit_test(streams_planned_ahead_are_what_they_are_alone),
#if defined(__x86_64__)
        cmocka_unit_test(streams_on_avx2_are_what_they_are_alone),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
