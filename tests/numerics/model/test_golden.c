/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the real model says what transformers says.  Method: the prompts
   of tests/numerics/golden/smollm2_tokens.json, greedy, 64 tokens; equal
   up to the end, or up to a step where the two best logits of the oracle
   are closer than 1e-3 (bf16 pages, which the oracle has not: 0.05).  Run alone and whole, then all
   together under random chunking.  Skips where the model file is not there. */
#include "tests/numerics/model/rig.h"

#include "appliance/model/model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL   TDM_MODEL_DIR "/smollm2.gguf"
#define GOLDEN  TDM_SOURCE_DIR "/tests/numerics/golden/smollm2_tokens.json"
#define SKIPPED 77

#define STREAMS_MAX 16
#define TIE         1e-3
#define TIE_BF16    5e-2

typedef struct golden {
    json_t *root;
    uint32_t cnt;
    rig_stream_t *stream;
    tdm_model_t *model;
} golden_t;

static golden_t golden;

static const json_t *prompt_at(uint32_t i) {
    return json_array_get(json_object_get(golden.root, "prompts"), i);
}

static int open_golden(void **state) {
    (void)state;
    tdm_error_t err = {0};
    json_error_t where;
    golden.root = json_load_file(GOLDEN, 0, &where);
    assert_non_null(golden.root);
    golden.cnt = (uint32_t)json_array_size(json_object_get(golden.root, "prompts"));
    assert_in_range(golden.cnt, 5, STREAMS_MAX);
    golden.stream = calloc(golden.cnt, sizeof *golden.stream);
    assert_non_null(golden.stream);
    if (tdm_model_open(MODEL, NULL, &golden.model, &err) != TDM_OK) fail_msg("%s", err.text);
    return 0;
}

static int close_golden(void **state) {
    (void)state;
    tdm_model_close(golden.model);
    free(golden.stream);
    json_decref(golden.root);
    return 0;
}

static void make_streams(void) {
    memset(golden.stream, 0, golden.cnt * sizeof *golden.stream);
    for (uint32_t i = 0; i < golden.cnt; i++) {
        rig_stream_t *s = &golden.stream[i];
        const json_t *ids = json_object_get(prompt_at(i), "prompt");
        s->prompt_cnt = (uint32_t)json_array_size(ids);
        s->out_max = (uint32_t)json_array_size(json_object_get(prompt_at(i), "tokens"));
        assert_in_range(s->prompt_cnt + s->out_max, 2, RIG_TOKEN_MAX);
        for (uint32_t t = 0; t < s->prompt_cnt; t++)
            s->token[t] = (int32_t)json_integer_value(json_array_get(ids, t));
        s->sampling = (tdm_sampling_t){.top_p = 1.0f, .repetition_penalty = 1.0f};
    }
}

/* equal_tokens gives how many tokens agree before a tie, and fails where
   they differ without one. */
static uint32_t equal_tokens(uint32_t i, double tie) {
    const rig_stream_t *s = &golden.stream[i];
    const json_t *want = json_object_get(prompt_at(i), "tokens");
    const json_t *margin = json_object_get(prompt_at(i), "margin");
    for (uint32_t t = 0; t < s->out_max; t++) {
        int32_t expected = (int32_t)json_integer_value(json_array_get(want, t));
        double gap = json_number_value(json_array_get(margin, t));
        if (s->token[s->prompt_cnt + t] == expected) continue;
        if (gap >= tie)
            fail_msg("prompt %u step %u: token %d, transformers %d by %.4f", i, t,
                     s->token[s->prompt_cnt + t], expected, gap);
        return t;
    }
    return s->out_max;
}

static tdm_backend_config_t make_config(uint32_t sm_cnt, uint32_t kv_dtype) {
    return (tdm_backend_config_t){.kv_page_cnt = 32,
                                  .kv_dtype = kv_dtype,
                                  .seq_max = 8,
                                  .token_max = 256,
                                  .context_max = 512,
                                  .sm_cnt = sm_cnt,
                                  .cpu_isa = TDM_CPU_ISA_AUTO};
}

static void run(uint32_t stream_cnt, uint32_t sm_cnt, uint32_t kv_dtype, tdm_rng_t *rng) {
    tdm_backend_config_t config = make_config(sm_cnt, kv_dtype);
    tdm_backend_t *b = rig_backend(tdm_model_weights(golden.model), &config);
    make_streams();
    rig_drive(b, &config, golden.stream, stream_cnt, rng, NULL);
    tdm_backend_destroy(b);
    uint32_t equal = 0, all = 0;
    for (uint32_t i = 0; i < stream_cnt; i++) {
        equal += equal_tokens(i, kv_dtype == TDM_KV_BF16 ? TIE_BF16 : TIE);
        all += golden.stream[i].out_max;
    }
    printf("  %u of %u tokens compared and equal\n", equal, all);
    assert_true(equal * 10 >= all * 7); /* ties may not eat the test */
}

static void greedy_tokens_are_those_of_transformers(void **state) {
    (void)state;
    run(golden.cnt, 2, TDM_KV_F32, NULL);
}

static void and_under_random_batching(void **state) {
    (void)state;
    tdm_rng_t rng = {77};
    run(golden.cnt, 3, TDM_KV_F32, &rng);
}

static void and_over_bf16_pages(void **state) {
    (void)state;
    run(2, 2, TDM_KV_BF16, NULL);
}

int main(void) {
    if (access(MODEL, R_OK) != 0) {
        printf("skipped: no model at %s\n", MODEL);
        return SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_those_of_transformers),
        cmocka_unit_test(and_under_random_batching),
        cmocka_unit_test(and_over_bf16_pages),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
