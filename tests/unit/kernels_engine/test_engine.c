/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the walk.  Method: an op table that writes down what it is asked,
   and "logits" from which the sampled token can be told. */
#include "kernels/engine/engine.h"

#include "appliance/abi/reasons.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 3
#define VOCAB  50
#define LOGITS 2 /* rows per logits op: small, so that groups are needed */

static char diary[4096];
static tdm_engine_row_t row[64];
static uint32_t row_cnt, logits_row[LOGITS], logits_cnt;
static int32_t answer; /* the token that sample gives, counting up */
static int is_nan;
static tdm_sample_out_t queued[LOGITS]; /* by a device with a queue */
static tdm_engine_t *engine;
static tdm_plan_t *plan;
static tdm_result_t *result;

static void write_down(const char *what) {
    assert_true(strlen(diary) + strlen(what) + 2 < sizeof diary);
    strcat(diary, what);
    strcat(diary, " ");
}

static void fake_embed(void *ctx, const tdm_engine_iter_t *it) {
    assert_ptr_equal(ctx, &answer);
    row_cnt = it->row_cnt;
    assert_true(row_cnt <= TDM_COUNT_OF(row));
    memcpy(row, it->row, row_cnt * sizeof *row);
    write_down("embed");
}

#define FAKE(name)                                                                                 \
    static void fake_##name(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {              \
        char text[32];                                                                             \
        (void)ctx;                                                                                 \
        assert_int_equal(it->row_cnt, row_cnt);                                                    \
        (void)snprintf(text, sizeof text, #name "%u", layer);                                      \
        write_down(text);                                                                          \
    }
FAKE(qkv)
FAKE(rope)
FAKE(out)
FAKE(ffn)

static void fake_attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                           tdm_attn_stats_t *stats) {
    (void)ctx;
    (void)layer;
    write_down("att");
    for (int k = 0; k < TDM_KIND_CNT; k++) {
        stats->vcta_planned[k] += it->attn->item_cnt[k];
        stats->vcta_executed[k] += it->attn->item_cnt[k];
        stats->vcta_ns[k] += 10;
    }
    stats->tile_row = 96;
    stats->tile_key = 64;
    stats->colocated_ns += 1;
    stats->split_cnt += 2;
    stats->merge_cnt += 3;
    stats->kv_read_bytes += 4;
    stats->flops += 5;
    stats->wall_ns += 6;
    stats->overlap_ns += 7;
    stats->tail_ns += 8;
    stats->role_switch_cnt += 10;
    stats->ring_stall_cnt += 11;
    stats->sm_clock_khz = 9;
    stats->queue_ns = 12;
    stats->graph_bytes = 13;
    stats->upload_bytes = 15;
    stats->graph_cnt = 14;
    stats->graph = TDM_GRAPH_MISSED;
}

static void fake_logits(void *ctx, const uint32_t *rows, uint32_t cnt) {
    (void)ctx;
    assert_in_range(cnt, 1, LOGITS);
    memcpy(logits_row, rows, cnt * sizeof *rows);
    logits_cnt = cnt;
    write_down("logits");
}

static void fake_sample(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out) {
    (void)ctx;
    assert_int_equal(cnt, logits_cnt);
    for (uint32_t i = 0; i < cnt; i++) {
        /* The history ends with the row's own input. */
        assert_int_equal(in[i].pos, row[logits_row[i]].pos + 1);
        int32_t input = in[i].history[in[i].pos - 1];
        assert_int_equal(input < 0 ? 0 : input, row[logits_row[i]].token);
        tdm_sample_out_t drawn = {.token = answer++, .logprob = -0.5f};
        if (is_nan) drawn = (tdm_sample_out_t){.token = -1, .flags = TDM_SAMPLE_NAN};
        (out ? out : queued)[i] = drawn;
    }
    write_down("sample");
}

static const tdm_engine_ops_t ops = {.embed = fake_embed,
                                     .qkv = fake_qkv,
                                     .rope_append = fake_rope,
                                     .attention = fake_attention,
                                     .attn_out = fake_out,
                                     .ffn = fake_ffn,
                                     .logits = fake_logits,
                                     .sample = fake_sample};

static int setup(void **state) {
    (void)state;
    tdm_error_t err = {0};
    tdm_engine_config_t config = {
        .slots = {.seq_max = 6,
                  .token_max = 100,
                  .context_max = 128,
                  .kv_page_cnt = 10,
                  .vocab = VOCAB,
                  .variant_cnt = 1},
        .worklist = {.nhead_q = 4,
                     .kv = {.page_cnt = 10, .nhead_kv = 2, .head_dim = 64, .dtype = TDM_KV_F32},
                     .sm_cnt = 2,
                     .seq_max = 6,
                     .token_max = 100,
                     .context_max = 128},
        .layer_cnt = LAYERS,
        .logits_max = LOGITS,
        .depth = 1,
        .ops = &ops,
        .ctx = &answer};
    if (tdm_worklist_config_check(&config.worklist, &err) != TDM_OK) fail_msg("%s", err.text);
    uint64_t sz = tdm_engine_footprint(&config);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    plan = calloc(1, sizeof *plan);
    result = malloc(sizeof *result);
    assert_non_null(mem);
    assert_non_null(plan);
    assert_non_null(result);
    memset(mem, 0, sz);
    memset(result, 0x55, sizeof *result);
    engine = tdm_engine_init(mem, &config);
    diary[0] = '\0';
    answer = 10;
    is_nan = 0;
    return 0;
}

/* --- a device with a planner of its own ------------------------------ */

static uint32_t replay, fail, applied_cnt;

static void own_apply(void *ctx, const tdm_plan_t *p) {
    (void)ctx;
    applied_cnt += 1 + p->page_cnt;
    write_down("apply");
}

static void own_begin(void *ctx, tdm_engine_iter_t *it) {
    assert_ptr_equal(ctx, &answer);
    assert_null(it->attn);
    assert_int_equal(it->plan->iteration, plan->iteration);
    for (uint32_t i = 0; i < it->wanted_cnt; i++) { /* known before anything runs */
        assert_int_equal(it->in[i].pos, it->row[it->wanted[i]].pos + 1);
        assert_non_null(it->in[i].sampling);
    }
    assert_int_equal(it->seq[0].slot, it->row[0].slot);
    row_cnt = it->row_cnt;
    memcpy(row, it->row, row_cnt * sizeof *row);
    it->route = TDM_ROUTE_SERIAL;
    it->reason = TDM_FALLBACK_kernel_error;
    it->is_replayed = replay;
    write_down("begin");
}

static void own_attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                          tdm_attn_stats_t *stats) {
    (void)ctx;
    (void)it;
    (void)layer;
    (void)stats;
    write_down("att");
}

static void own_post(void *ctx, const tdm_engine_iter_t *it) {
    (void)ctx;
    (void)it;
    write_down("post");
}

static tdm_status_t own_finish(void *ctx, const tdm_engine_iter_t *it, tdm_sample_out_t *out,
                               tdm_attn_stats_t *stats, tdm_error_t *err) {
    (void)ctx;
    write_down("finish");
    memcpy(out, queued, it->wanted_cnt * sizeof *out);
    stats->kv_read_bytes = 44;
    return fail ? tdm_error_set(err, TDM_ERR_INTERNAL, "broken for the test") : TDM_OK;
}

static const tdm_engine_ops_t own_ops = {.apply = own_apply,
                                         .begin = own_begin,
                                         .embed = fake_embed,
                                         .qkv = fake_qkv,
                                         .rope_append = fake_rope,
                                         .attention = own_attention,
                                         .attn_out = fake_out,
                                         .ffn = fake_ffn,
                                         .logits = fake_logits,
                                         .sample = fake_sample,
                                         .post = own_post,
                                         .finish = own_finish};

static int setup_own(void **state) {
    (void)state;
    tdm_engine_config_t config = {.slots = {.seq_max = 6,
                                            .token_max = 100,
                                            .context_max = 128,
                                            .kv_page_cnt = 10,
                                            .vocab = VOCAB,
                                            .variant_cnt = 1},
                                  .worklist = {.sm_cnt = 132},
                                  .layer_cnt = 1,
                                  .logits_max = LOGITS,
                                  .depth = 1,
                                  .ops = &own_ops,
                                  .ctx = &answer};
    uint64_t sz = tdm_engine_footprint(&config);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    plan = calloc(1, sizeof *plan);
    result = calloc(1, sizeof *result);
    assert_true(mem && plan && result);
    memset(mem, 0, sz);
    engine = tdm_engine_init(mem, &config);
    answer = 10;
    is_nan = 0;
    replay = fail = applied_cnt = 0;
    return 0;
}

/* --- two under way --------------------------------------------------- */

static tdm_plan_t plans[2];
static tdm_result_t results[2];
static int32_t seen[8]; /* tokens of the rows as the device got them */

static void seen_embed(void *ctx, const tdm_engine_iter_t *it) {
    fake_embed(ctx, it);
    for (uint32_t i = 0; i < it->row_cnt; i++) seen[i] = it->row[i].token;
}

static int setup_two(void **state, const tdm_engine_ops_t *with) {
    static tdm_engine_ops_t two_ops;
    if (with == &ops ? setup(state) : setup_own(state)) return -1;
    free(engine);
    two_ops = *with;
    two_ops.embed = seen_embed;
    tdm_engine_config_t config = {
        .slots = {.seq_max = 6,
                  .token_max = 100,
                  .context_max = 128,
                  .kv_page_cnt = 10,
                  .vocab = VOCAB,
                  .variant_cnt = 1},
        .worklist = {.nhead_q = 4,
                     .kv = {.page_cnt = 10, .nhead_kv = 2, .head_dim = 64, .dtype = TDM_KV_F32},
                     .sm_cnt = 2,
                     .seq_max = 6,
                     .token_max = 100,
                     .context_max = 128},
        .layer_cnt = 1,
        .logits_max = LOGITS,
        .depth = 2,
        .ops = &two_ops,
        .ctx = &answer};
    tdm_error_t err = {0};
    if (tdm_worklist_config_check(&config.worklist, &err) != TDM_OK) return -1;
    uint64_t sz = tdm_engine_footprint(&config);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    if (!mem) return -1;
    memset(mem, 0, sz);
    engine = tdm_engine_init(mem, &config);
    memset(plans, 0, sizeof plans);
    memset(seen, 0, sizeof seen);
    return 0;
}

static int setup_two_host(void **state) {
    return setup_two(state, &ops);
}

static int setup_two_queue(void **state) {
    return setup_two(state, &own_ops);
}

static int teardown(void **state) {
    (void)state;
    free(engine);
    free(plan);
    free(result);
    return 0;
}

static tdm_status_t run_one(tdm_error_t *err) {
    diary[0] = '\0';
    tdm_status_t st = tdm_engine_start(engine, plan, result, err);
    if (st != TDM_OK) return st;
    tdm_engine_compute(engine);
    return tdm_engine_finish(engine, err);
}

static void run(void) {
    tdm_error_t err = {0};
    if (run_one(&err) != TDM_OK) fail_msg("%s", err.text);
    uint64_t iteration = plan->iteration;
    memset(plan, 0, sizeof *plan);
    plan->iteration = iteration + 1;
}

static void add_open(uint32_t slot, uint32_t page, uint32_t cnt) {
    plan->open[plan->open_cnt++] = (tdm_plan_open_t){
        .slot = slot, .prompt_cnt = cnt, .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f}};
    plan->grant[plan->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = plan->page_cnt, .page_cnt = 1};
    plan->page[plan->page_cnt++] = page;
}

static void add_slice(uint32_t slot, uint32_t pos, uint32_t cnt, uint32_t is_last) {
    plan->slice[plan->slice_cnt++] = (tdm_plan_slice_t){
        .slot = slot, .pos = pos, .cnt = cnt, .token_off = plan->token_cnt, .is_last = is_last};
    for (uint32_t i = 0; i < cnt; i++) plan->token[plan->token_cnt++] = (int32_t)(slot * 10 + i);
}

static void add_decode(uint32_t slot, uint32_t pos) {
    plan->decode[plan->decode_cnt++] = (tdm_plan_decode_t){.slot = slot, .pos = pos};
}

static void layers_are_walked_in_order(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 2);
    add_slice(0, 0, 2, 1);
    run();
    assert_string_equal(diary, "embed qkv0 rope0 att out0 ffn0 qkv1 rope1 att out1 ffn1 "
                               "qkv2 rope2 att out2 ffn2 logits sample ");
}

static void only_last_rows_sample(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 4);
    add_slice(0, 0, 2, 0);
    run();
    assert_null(strstr(diary, "logits"));
    assert_int_equal(result->sample_cnt, 0);
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_slice(0, 2, 2, 1);
    run();
    assert_int_equal(logits_cnt, 1);
    assert_int_equal(logits_row[0], 1);
    assert_int_equal(result->sample_cnt, 1);
    assert_int_equal(result->sample[0].pos, 4);
}

static void rows_are_slices_then_decodes(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    for (uint32_t s = 0; s < 3; s++) {
        add_open(s, s, 1);
        add_slice(s, 0, 1, 1);
    }
    run(); /* samples 10, 11, 12, in two groups */
    assert_int_equal(result->sample_cnt, 3);
    plan->route = TDM_ROUTE_FUSED;
    plan->reason = 0;
    add_open(4, 7, 3);
    add_slice(4, 0, 3, 1);
    add_decode(2, 1);
    add_decode(0, 1);
    run();
    const tdm_engine_row_t want[] = {{40, 4, 0}, {41, 4, 1}, {42, 4, 2}, {12, 2, 1}, {10, 0, 1}};
    assert_int_equal(row_cnt, 5);
    assert_memory_equal(row, want, sizeof want);
    /* Plan order: the slice's sample, then the decodes'. */
    const uint32_t slot[] = {4, 2, 0}, pos[] = {3, 2, 2};
    assert_int_equal(result->sample_cnt, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(result->sample[i].slot, slot[i]);
        assert_int_equal(result->sample[i].pos, pos[i]);
        assert_int_equal(result->sample[i].token, 13 + (int32_t)i);
        assert_true(result->sample[i].logprob == -0.5f);
        assert_int_equal(result->sample[i].flags, 0);
    }
}

static void the_result_carries_all_counters(void **state) {
    (void)state;
    plan->iteration = 77;
    plan->epoch = 5;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 2);
    add_slice(0, 0, 2, 1);
    run();
    assert_int_equal(result->iteration, 77);
    assert_int_equal(result->epoch, 5);
    assert_int_equal(result->route, TDM_ROUTE_PREFILL_ONLY);
    assert_int_equal(result->reason, 0);
    assert_int_equal(result->fault, 0);
    assert_true(result->start_ns > 0 && result->end_ns >= result->start_ns);
    assert_int_equal(result->attention_ns, 6 * LAYERS);
    assert_true(result->sample_ns >= 0);
    assert_int_equal(result->vcta_planned[TDM_KIND_PREFILL], 2 * LAYERS); /* KV heads */
    assert_int_equal(result->vcta_executed[TDM_KIND_PREFILL], 2 * LAYERS);
    assert_int_equal(result->vcta_planned[TDM_KIND_DECODE], 0);
    assert_int_equal(result->vcta_ns[0], 10 * LAYERS);
    assert_int_equal(result->colocated_ns, LAYERS);
    assert_int_equal(result->tile_row, 96);
    assert_int_equal(result->tile_key, 64);
    assert_int_equal(result->split_cnt, 2 * LAYERS);
    assert_int_equal(result->merge_cnt, 3 * LAYERS);
    assert_int_equal(result->kv_read_bytes, 4 * LAYERS);
    assert_int_equal(result->attention_flops, 5 * LAYERS);
    assert_int_equal(result->overlap_ns, 7 * LAYERS);
    assert_int_equal(result->tail_ns, 8 * LAYERS);
    assert_int_equal(result->role_switch_cnt, 10 * LAYERS);
    assert_int_equal(result->ring_stall_cnt, 11 * LAYERS);
    assert_int_equal(result->sm_clock_khz, 9);
    assert_int_equal(result->queue_ns, 12);
    assert_int_equal(result->graph_bytes, 13);
    assert_int_equal(result->upload_bytes, 15);
    assert_int_equal(result->graph_cnt, 14);
    assert_int_equal(result->graph, TDM_GRAPH_MISSED);
    assert_int_equal(result->sm_cnt, 2);
}

static void the_plans_reason_is_kept_on_a_slower_route(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 0, 1);
    add_slice(0, 0, 1, 1);
    run();
    plan->route = TDM_ROUTE_SERIAL;
    plan->reason = TDM_FALLBACK_not_profitable;
    add_open(1, 1, 1);
    add_slice(1, 0, 1, 1);
    add_decode(0, 1);
    run();
    assert_int_equal(result->route, TDM_ROUTE_SERIAL);
    assert_int_equal(result->reason, TDM_FALLBACK_not_profitable);
    plan->route = TDM_ROUTE_DECODE_ONLY; /* no hybrid iteration: no reason */
    plan->reason = TDM_FALLBACK_not_profitable;
    add_decode(0, 2);
    run();
    assert_int_equal(result->reason, 0);
}

static void an_idle_plan_touches_no_layer(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_IDLE;
    add_open(0, 3, 2);
    run();
    assert_string_equal(diary, "");
    assert_int_equal(result->route, TDM_ROUTE_IDLE);
    assert_int_equal(result->sample_cnt, 0);
    plan->route = TDM_ROUTE_PREFILL_ONLY; /* the slot was opened */
    add_slice(0, 0, 2, 1);
    run();
}

static void a_contradiction_is_a_protocol_fault(void **state) {
    (void)state;
    tdm_error_t err = {0};
    plan->iteration = 9;
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_decode(0, 0);
    assert_int_equal(run_one(&err), TDM_ERR_CORRUPT);
    assert_string_equal(diary, "");
    assert_int_equal(result->fault, TDM_FAULT_executor_protocol);
    assert_int_equal(result->iteration, 9);
    assert_int_equal(result->sample_cnt, 0);
    assert_true(result->end_ns >= result->start_ns && result->start_ns > 0);
    assert_true(strlen(err.text) > 0);
}

static void a_nan_poisons_its_own_slot_only(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 0, 1);
    add_slice(0, 0, 1, 1);
    is_nan = 1;
    run();
    assert_int_equal(result->sample[0].token, -1);
    assert_int_equal(result->sample[0].flags, TDM_SAMPLE_NAN);
    is_nan = 0;
    plan->route = TDM_ROUTE_FUSED; /* built before the NaN was known */
    add_open(1, 1, 1);
    add_slice(1, 0, 1, 1);
    add_decode(0, 1);
    run();
    assert_int_equal(result->sample_cnt, 2);
    assert_int_equal(result->sample[0].flags, 0);
    assert_in_range(result->sample[0].token, 10, 12);
    assert_int_equal(result->sample[1].token, -1);
    assert_int_equal(result->sample[1].flags, TDM_SAMPLE_NAN);
    assert_true(result->sample[1].logprob == 0.0f);
}

static void a_device_may_plan_for_itself(void **state) {
    (void)state;
    plan->route = TDM_ROUTE_IDLE;
    add_open(0, 3, 2);
    run();
    assert_string_equal(diary, "apply "); /* idle plans are heard too */
    assert_int_equal(applied_cnt, 2);
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_slice(0, 0, 2, 1);
    run();
    assert_string_equal(diary,
                        "apply begin embed qkv0 rope0 att out0 ffn0 logits sample post finish ");
    /* Such a device is waited for in `sample`: its wait is no time of sampling. */
    assert_int_equal(result->sample_ns, 0);
    assert_int_equal(result->route, TDM_ROUTE_SERIAL);
    assert_int_equal(result->reason, TDM_FALLBACK_kernel_error);
    assert_int_equal(result->kv_read_bytes, 44);
    assert_int_equal(result->sm_cnt, 132);
}

static void a_replay_leaves_the_walk_out(void **state) {
    (void)state;
    replay = 1;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 2);
    add_slice(0, 0, 2, 1);
    run();
    assert_string_equal(diary, "apply begin logits sample post finish ");
    assert_int_equal(result->sample_cnt, 1);
}

static void a_failed_device_has_no_result(void **state) {
    (void)state;
    tdm_error_t err = {0};
    fail = 1;
    plan->iteration = 5;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 2);
    add_slice(0, 0, 2, 1);
    assert_int_equal(run_one(&err), TDM_ERR_INTERNAL);
    assert_int_equal(result->sample_cnt, 0);
    assert_int_equal(result->iteration, 5);
    assert_string_equal(err.text, "broken for the test");
}

/* start_two begins a prompt in slot 0 and a decode of the token that it
   will yield. */
static void start_two(void) {
    tdm_error_t err = {0};
    tdm_plan_t *kept = plan;
    plan = &plans[0];
    plan->iteration = 1;
    plan->route = TDM_ROUTE_PREFILL_ONLY;
    add_open(0, 3, 2);
    add_slice(0, 0, 2, 1);
    assert_int_equal(tdm_engine_start(engine, plan, &results[0], &err), TDM_OK);
    plan = &plans[1];
    plan->iteration = 2;
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_decode(0, 2);
    assert_int_equal(tdm_engine_start(engine, plan, &results[1], &err), TDM_OK);
    plan = kept;
}

static void a_decode_runs_on_a_token_that_was_not_drawn_when_it_began(void **state) {
    (void)state;
    tdm_error_t err = {0};
    start_two();
    tdm_engine_compute(engine); /* draws 10 */
    tdm_engine_compute(engine);
    assert_int_equal(seen[0], 10);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(tdm_engine_finish(engine, &err), TDM_OK);
        assert_int_equal(results[i].iteration, i + 1);
        assert_int_equal(results[i].sample_cnt, 1);
        assert_int_equal(results[i].sample[0].pos, 2 + i);
        assert_int_equal(results[i].sample[0].token, 10 + (int32_t)i);
    }
    assert_true(results[1].start_ns >= results[0].end_ns);
    assert_true(results[0].idle_ns == 0 && results[1].idle_ns > 0);
}

static void a_nan_is_one_for_what_runs_on_it(void **state) {
    (void)state;
    tdm_error_t err = {0};
    start_two();
    is_nan = 1;
    tdm_engine_compute(engine);
    is_nan = 0;
    tdm_engine_compute(engine);
    assert_int_equal(seen[0], 0); /* any token that there is */
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(tdm_engine_finish(engine, &err), TDM_OK);
        assert_int_equal(results[i].sample[0].token, -1);
        assert_int_equal(results[i].sample[0].flags, TDM_SAMPLE_NAN);
    }
}

/* A device with a queue puts the token in itself, while it is not known. */
static void a_queue_is_told_which_rows_have_no_token(void **state) {
    (void)state;
    row_cnt = 0;
    tdm_error_t err = {0};
    tdm_plan_t *kept = plan;
    start_two();
    assert_int_equal(row[0].token, TDM_ROW_DRAWN);
    assert_int_equal(row[0].pos, 2);
    tdm_engine_compute(engine);
    queued[0].token = 17;
    assert_int_equal(tdm_engine_finish(engine, &err), TDM_OK);
    assert_int_equal(results[0].sample[0].token, 17);
    queued[0].token = 18;
    assert_int_equal(tdm_engine_finish(engine, &err), TDM_OK);
    plan = &plans[0];
    memset(plan, 0, sizeof *plan);
    plan->route = TDM_ROUTE_DECODE_ONLY;
    add_decode(0, 3);
    assert_int_equal(tdm_engine_start(engine, plan, &results[0], &err), TDM_OK);
    assert_int_equal(row[0].token, 18);
    plan = kept;
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TWO(f, how) cmocka_unit_test_setup_teardown(f, how, teardown)
        TWO(a_decode_runs_on_a_token_that_was_not_drawn_when_it_began, setup_two_host),
        TWO(a_nan_is_one_for_what_runs_on_it, setup_two_host),
        TWO(a_queue_is_told_which_rows_have_no_token, setup_two_queue),
#define OWN(f) cmocka_unit_test_setup_teardown(f, setup_own, teardown)
        OWN(a_device_may_plan_for_itself),
        OWN(a_replay_leaves_the_walk_out),
        OWN(a_failed_device_has_no_result),
#define FACT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        FACT(layers_are_walked_in_order),
        FACT(only_last_rows_sample),
        FACT(rows_are_slices_then_decodes),
        FACT(the_result_carries_all_counters),
        FACT(the_plans_reason_is_kept_on_a_slower_route),
        FACT(an_idle_plan_touches_no_layer),
        FACT(a_contradiction_is_a_protocol_fault),
        FACT(a_nan_poisons_its_own_slot_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
