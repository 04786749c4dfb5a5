/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the life of the CPU backend.  It says beforehand what it takes,
   takes exactly that, refuses what it cannot be, and allocates nothing
   while it runs. */
#include "kernels/include/backend.h"

#include "appliance/abi/reasons.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HIDDEN 64
#define FFN    64
#define VOCAB  40

static tdm_weights_t weights;
static tdm_bf16_t matrix[VOCAB * HIDDEN + 128 * HIDDEN];
static float gain[HIDDEN];

static int setup(void **state) {
    (void)state;
    memset(&weights, 0, sizeof weights);
    weights.shape = (tdm_shape_t){.layer_cnt = 2,
                                  .hidden = HIDDEN,
                                  .nhead_q = 2,
                                  .nhead_kv = 1,
                                  .head_dim = 64,
                                  .ffn = FFN,
                                  .vocab = VOCAB,
                                  .context = 128,
                                  .is_tied = 1,
                                  .rms_eps = 1e-5f,
                                  .rope_theta = 10000.0f};
    for (size_t i = 0; i < TDM_COUNT_OF(matrix); i++)
        matrix[i] = (tdm_bf16_t)(i * 2654435761u >> 7 & 1 ? 0x3d00 + i % 97 : 0xbd00 + i % 89);
    for (int i = 0; i < HIDDEN; i++) gain[i] = 1.0f;
    weights.embed = weights.lm_head = matrix;
    weights.out_norm = gain;
    for (int l = 0; l < 2; l++)
        weights.layer[l] = (tdm_layer_weights_t){.attn_norm = gain,
                                                 .wq = matrix + l,
                                                 .wk = matrix + 70 + l,
                                                 .wv = matrix + 150 + l,
                                                 .wo = matrix + 310 + l,
                                                 .ffn_norm = gain,
                                                 .w_gate = matrix + 510 + l,
                                                 .w_up = matrix + 710 + l,
                                                 .w_down = matrix + 910 + l};
    return 0;
}

static tdm_backend_config_t make_config(void) {
    return (tdm_backend_config_t){.kv_page_cnt = 4,
                                  .kv_dtype = TDM_KV_BF16,
                                  .seq_max = 4,
                                  .token_max = 64,
                                  .context_max = 128,
                                  .sm_cnt = 2,
                                  .cpu_isa = TDM_CPU_ISA_AUTO};
}

static void prompt(tdm_plan_t *plan, uint32_t cnt) {
    memset(plan, 0, sizeof *plan);
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    plan->open_cnt = plan->grant_cnt = plan->slice_cnt = plan->page_cnt = 1;
    plan->open[0].prompt_cnt = cnt;
    plan->open[0].sampling.top_p = 1.0f;
    plan->open[0].sampling.repetition_penalty = 1.0f;
    plan->grant[0].page_cnt = 1;
    plan->page[0] = 3;
    plan->token_cnt = plan->slice[0].cnt = cnt;
    plan->slice[0].is_last = 1;
    for (uint32_t i = 0; i < cnt; i++) plan->token[i] = (int32_t)(i % VOCAB);
}

static void need_is_what_create_takes(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    tdm_arena_t arena;
    tdm_backend_t *b;
    uint64_t need = 0;
    assert_int_equal(tdm_backend_cpu_need(&weights, &config, &need, &err), TDM_OK);
    assert_int_equal(tdm_arena_open(&arena, TDM_ARENA_PLAIN, 2 * need, &err), TDM_OK);
    assert_non_null(tdm_arena_take(&arena, 1, 1)); /* an odd start */
    assert_int_equal(tdm_backend_cpu_create(&weights, &config, &arena, &b, &err), TDM_OK);
    assert_in_range(arena.used, need / 2, need + 1);
    tdm_backend_destroy(b);
    tdm_arena_close(&arena);
    assert_int_equal(tdm_arena_open(&arena, TDM_ARENA_PLAIN, need / 2, &err), TDM_OK);
    assert_int_equal(tdm_backend_cpu_create(&weights, &config, &arena, &b, &err), TDM_ERR_NOMEM);
    assert_null(b);
    tdm_arena_close(&arena);
}

static void need_grows_by_whole_pages(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    uint64_t a, c;
    tdm_backend_t *b;
    assert_int_equal(tdm_backend_cpu_need(&weights, &config, &a, &err), TDM_OK);
    assert_int_equal(tdm_backend_cpu_create(&weights, &config, NULL, &b, &err), TDM_OK);
    /* 2 layers, K and V, 1 head, 64 tokens, 64 elements of 2 bytes */
    assert_int_equal(b->info.kv_page_bytes, 2 * 2 * 64 * 64 * 2);
    assert_int_equal(b->info.kv_page_cnt, 4);
    tdm_backend_destroy(b);
    config.kv_page_cnt += 1000;
    assert_int_equal(tdm_backend_cpu_need(&weights, &config, &c, &err), TDM_OK);
    uint64_t page = 32768 + 64 * sizeof(int32_t); /* and the tokens that it holds */
    assert_in_range(c - a, 1000 * page, 1000 * page + 16384);
}

static void every_wrong_number_is_refused(void **state) {
    (void)state;
    tdm_error_t err = {0};
    uint64_t need;
    tdm_backend_t *b = (tdm_backend_t *)matrix;
#define CONFIG(field, value)                                                                       \
    do {                                                                                           \
        tdm_backend_config_t c = make_config();                                                    \
        c.field = (value);                                                                         \
        err.text[0] = '\0';                                                                        \
        assert_int_equal(tdm_backend_cpu_need(&weights, &c, &need, &err), TDM_ERR_INVAL);          \
        assert_true(strlen(err.text) > 0);                                                         \
        assert_int_equal(tdm_backend_cpu_create(&weights, &c, NULL, &b, &err), TDM_ERR_INVAL);     \
        assert_null(b);                                                                            \
    } while (0)
#define SHAPE(field, value)                                                                        \
    do {                                                                                           \
        tdm_weights_t w = weights;                                                                 \
        tdm_backend_config_t c = make_config();                                                    \
        w.shape.field = (value);                                                                   \
        assert_int_not_equal(tdm_backend_cpu_need(&w, &c, &need, &err), TDM_OK);                   \
        assert_int_not_equal(tdm_backend_cpu_create(&w, &c, NULL, &b, &err), TDM_OK);              \
    } while (0)
    CONFIG(kv_page_cnt, 0);
    CONFIG(kv_page_cnt, UINT32_MAX);
    CONFIG(kv_dtype, TDM_KV_DTYPE_CNT);
    CONFIG(seq_max, 0);
    CONFIG(seq_max, TDM_SEQ_MAX + 1);
    CONFIG(token_max, 0);
    CONFIG(token_max, TDM_PLAN_TOKEN_MAX + 1);
    CONFIG(context_max, 0);
    CONFIG(context_max, TDM_CONTEXT_MAX + 1);
    CONFIG(sm_cnt, 0);
    CONFIG(sm_cnt, TDM_SM_MAX + 1);
    CONFIG(cpu_isa, TDM_CPU_ISA_CNT);
    CONFIG(is_ahead, 2);
    SHAPE(layer_cnt, 0);
    SHAPE(layer_cnt, TDM_LAYER_MAX + 1);
    SHAPE(hidden, 0);
    SHAPE(hidden, UINT32_MAX);
    SHAPE(ffn, 0);
    SHAPE(ffn, UINT32_MAX);
    SHAPE(vocab, 0);
    SHAPE(vocab, TDM_VOCAB_MAX + 1);
    SHAPE(nhead_q, 0);
    SHAPE(nhead_q, 3 << 20);
    SHAPE(nhead_kv, 0);
    SHAPE(nhead_kv, 3);
    SHAPE(head_dim, 0);
    SHAPE(head_dim, 63);
    SHAPE(head_dim, TDM_HEAD_DIM_MAX + 2);
    SHAPE(rms_eps, NAN);
    SHAPE(rope_theta, 0.0f);
    SHAPE(rope_kind, TDM_ROPE_LLAMA3 + 1);
    SHAPE(rope_kind, TDM_ROPE_LINEAR); /* without a factor */
    SHAPE(rope_kind, TDM_ROPE_LLAMA3);
}

static void a_pool_past_any_memory_is_refused(void **state) {
    (void)state;
    tdm_weights_t w = weights;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    uint64_t need;
    w.shape.layer_cnt = TDM_LAYER_MAX;
    w.shape.nhead_q = w.shape.nhead_kv = 128;
    w.shape.head_dim = TDM_HEAD_DIM_MAX;
    config.kv_page_cnt = UINT32_MAX - 1;
    assert_int_equal(tdm_backend_cpu_need(&w, &config, &need, &err), TDM_ERR_LIMIT);
}

/* heap_sz: bytes in use, whoever the allocator is. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_current_allocated_bytes(void);
static size_t heap_sz(void) {
    return __sanitizer_get_current_allocated_bytes();
}
#else
static size_t heap_sz(void) {
    return mallinfo2().uordblks;
}
#endif

static void a_run_allocates_nothing(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    tdm_backend_t *b;
    tdm_plan_t *plan = malloc(sizeof *plan);
    tdm_result_t *result = malloc(sizeof *result);
    assert_non_null(plan);
    assert_non_null(result);
    assert_int_equal(tdm_backend_cpu_create(&weights, &config, NULL, &b, &err), TDM_OK);
    size_t before = heap_sz();
    prompt(plan, 40);
    assert_int_equal(tdm_backend_run(b, plan, result, &err), TDM_OK);
    memset(plan, 0, sizeof *plan);
    plan->route = TDM_ROUTE_DECODE_ONLY;
    plan->decode_cnt = 1;
    for (uint32_t i = 0; i < 20; i++) {
        plan->decode[0].pos = 40 + i;
        assert_int_equal(tdm_backend_run(b, plan, result, &err), TDM_OK);
        assert_int_equal(result->sample_cnt, 1);
        assert_in_range(result->sample[0].token, 0, VOCAB - 1);
        assert_int_equal(result->vcta_planned[TDM_KIND_DECODE],
                         result->vcta_executed[TDM_KIND_DECODE]);
        assert_true(result->vcta_planned[TDM_KIND_DECODE] >= 2); /* one KV head, two layers */
    }
    assert_int_equal(heap_sz(), before);
    void *probe = malloc(100); /* the measure does move */
    assert_true(probe != NULL && heap_sz() > before);
    free(probe);
    tdm_backend_destroy(b);
    free(plan);
    free(result);
}

/* The second plan is started before the first is asked for: its token is
   that of a backend which does one after the other. */
static void two_may_be_under_way(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    tdm_plan_t *plan = calloc(2, sizeof *plan);
    tdm_result_t *result = calloc(2, sizeof *result);
    int32_t token[2];
    assert_non_null(plan);
    assert_non_null(result);
    for (uint32_t is_ahead = 0; is_ahead < 2; is_ahead++) {
        tdm_backend_t *b;
        config.is_ahead = is_ahead;
        assert_int_equal(tdm_backend_cpu_create(&weights, &config, NULL, &b, &err), TDM_OK);
        assert_int_equal(tdm_backend_info(b)->depth, 1 + is_ahead);
        prompt(&plan[0], 40);
        memset(&plan[1], 0, offsetof(tdm_plan_t, close));
        plan[1].route = TDM_ROUTE_DECODE_ONLY;
        plan[1].decode_cnt = 1;
        plan[1].decode[0] = (tdm_plan_decode_t){.slot = plan[0].slice[0].slot, .pos = 40};
        assert_int_equal(tdm_backend_start(b, &plan[0], &result[0], &err), TDM_OK);
        if (!is_ahead) assert_int_equal(tdm_backend_finish(b, &err), TDM_OK);
        assert_int_equal(tdm_backend_start(b, &plan[1], &result[1], &err), TDM_OK);
        if (is_ahead) assert_int_equal(tdm_backend_finish(b, &err), TDM_OK);
        assert_int_equal(tdm_backend_finish(b, &err), TDM_OK);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(result[i].sample_cnt, 1);
            assert_int_equal(result[i].sample[0].pos, 40 + i);
            if (is_ahead) assert_int_equal(result[i].sample[0].token, token[i]);
            token[i] = result[i].sample[0].token;
        }
        assert_true(result[1].start_ns >= result[0].end_ns);
        assert_true(result[1].end_ns >= result[1].start_ns);
        tdm_backend_destroy(b);
    }
    free(plan);
    free(result);
}

/* Whoever leaves a backend alone with what is under way loses it, no more. */
static void work_under_way_may_be_left_behind(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    tdm_plan_t *plan = calloc(2, sizeof *plan);
    tdm_result_t *result = calloc(2, sizeof *result);
    assert_non_null(plan);
    assert_non_null(result);
    config.is_ahead = 1;
    for (uint32_t cnt = 0; cnt <= 2; cnt++) {
        tdm_backend_t *b;
        assert_int_equal(tdm_backend_cpu_create(&weights, &config, NULL, &b, &err), TDM_OK);
        for (uint32_t i = 0; i < cnt; i++) {
            prompt(&plan[i], 40);
            plan[i].open[0].slot = plan[i].grant[0].slot = plan[i].slice[0].slot = i;
            plan[i].page[0] = i;
            assert_int_equal(tdm_backend_start(b, &plan[i], &result[i], &err), TDM_OK);
        }
        tdm_backend_destroy(b);
    }
    free(plan);
    free(result);
}

static void a_bad_plan_leaves_the_backend_as_it_was(void **state) {
    (void)state;
    tdm_backend_config_t config = make_config();
    tdm_error_t err = {0};
    tdm_backend_t *b;
    tdm_plan_t *plan = malloc(sizeof *plan);
    tdm_result_t *result = malloc(sizeof *result);
    assert_non_null(plan);
    assert_non_null(result);
    assert_int_equal(tdm_backend_cpu_create(&weights, &config, NULL, &b, &err), TDM_OK);
    prompt(plan, 10);
    plan->page[0] = config.kv_page_cnt;
    assert_int_equal(tdm_backend_run(b, plan, result, &err), TDM_ERR_CORRUPT);
    assert_int_equal(result->fault, TDM_FAULT_executor_protocol);
    assert_int_equal(result->sample_cnt, 0);
    prompt(plan, 10);
    assert_int_equal(tdm_backend_run(b, plan, result, &err), TDM_OK);
    assert_int_equal(result->fault, 0);
    assert_int_equal(result->sample_cnt, 1);
    tdm_backend_destroy(b);
    tdm_backend_destroy(NULL);
    free(plan);
    free(result);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(need_is_what_create_takes),
        cmocka_unit_test(need_grows_by_whole_pages),
        cmocka_unit_test(every_wrong_number_is_refused),
        cmocka_unit_test(a_pool_past_any_memory_is_refused),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(a_bad_plan_leaves_the_backend_as_it_was),
        cmocka_unit_test(two_may_be_under_way),
        cmocka_unit_test(work_under_way_may_be_left_behind),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
