/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_engine/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rig_t rig;

void rig_write_down(const char *what) {
    assert_true(strlen(rig.diary) + strlen(what) + 2 < sizeof rig.diary);
    strcat(rig.diary, what);
    strcat(rig.diary, " ");
}

void rig_note_rows(const tdm_engine_iter_t *it) {
    rig.row_cnt = it->row_cnt;
    assert_true(rig.row_cnt <= TDM_COUNT_OF(rig.row));
    memcpy(rig.row, it->row, rig.row_cnt * sizeof *rig.row);
}

/* --- the device ------------------------------------------------------ */

static void embed(void *ctx, const tdm_engine_iter_t *it) {
    assert_ptr_equal(ctx, &rig);
    rig_note_rows(it);
    rig_write_down("embed");
}

#define LAYER_OP(name)                                                                             \
    static void name(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {                     \
        char text[32];                                                                             \
        (void)ctx;                                                                                 \
        assert_int_equal(it->row_cnt, rig.row_cnt);                                                \
        (void)snprintf(text, sizeof text, #name "%u", layer);                                      \
        rig_write_down(text);                                                                      \
    }
LAYER_OP(qkv)
LAYER_OP(rope)
LAYER_OP(out)
LAYER_OP(ffn)

static void attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                      tdm_attn_stats_t *stats) {
    (void)ctx;
    (void)layer;
    rig_write_down("att");
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

static void logits(void *ctx, const uint32_t *rows, uint32_t cnt) {
    (void)ctx;
    assert_in_range(cnt, 1, RIG_LOGITS);
    memcpy(rig.logits_row, rows, cnt * sizeof *rows);
    rig.logits_cnt = cnt;
    rig_write_down("logits");
}

static void sample(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out_or_null) {
    (void)ctx;
    assert_int_equal(cnt, rig.logits_cnt);
    for (uint32_t i = 0; i < cnt; i++) {
        /* The history ends with the row's own input. */
        const tdm_engine_row_t *row = &rig.row[rig.logits_row[i]];
        assert_int_equal(in[i].pos, row->pos + 1);
        int32_t input = in[i].history[in[i].pos - 1];
        assert_int_equal(input < 0 ? 0 : input, row->token);
        tdm_sample_out_t drawn = {.token = rig.answer++, .logprob = -0.5f};
        if (rig.is_nan) drawn = (tdm_sample_out_t){.token = -1, .flags = TDM_SAMPLE_NAN};
        (out_or_null ? out_or_null : rig.queued)[i] = drawn;
    }
    rig_write_down("sample");
}

const tdm_engine_ops_t rig_ops = {.embed = embed,
                                  .qkv = qkv,
                                  .rope_append = rope,
                                  .attention = attention,
                                  .attn_out = out,
                                  .ffn = ffn,
                                  .logits = logits,
                                  .sample = sample};

/* --- life ------------------------------------------------------------ */

tdm_engine_config_t rig_config(const tdm_engine_ops_t *ops) {
    return (tdm_engine_config_t){
        .slots = {.seq_max = 6,
                  .token_max = 100,
                  .context_max = 128,
                  .kv_page_cnt = 10,
                  .vocab = 50,
                  .variant_cnt = 1},
        .worklist = {.nhead_q = 4,
                     .kv = {.page_cnt = 10, .nhead_kv = 2, .head_dim = 64, .dtype = TDM_KV_F32},
                     .sm_cnt = 2,
                     .seq_max = 6,
                     .token_max = 100,
                     .context_max = 128},
        .layer_cnt = RIG_LAYERS,
        .logits_max = RIG_LOGITS,
        .depth = 1,
        .ops = ops,
        .ctx = &rig};
}

void rig_open(const tdm_engine_config_t *config) {
    memset(&rig, 0, sizeof rig);
    uint64_t sz = tdm_engine_footprint(config);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    rig.plan = calloc(1, sizeof *rig.plan);
    rig.result = malloc(sizeof *rig.result);
    assert_true(mem && rig.plan && rig.result);
    memset(mem, 0, sz);
    memset(rig.result, 0x55, sizeof *rig.result);
    rig.engine = tdm_engine_init(mem, config);
    rig.answer = 10;
}

int rig_close(void **state) {
    (void)state;
    free(rig.engine);
    free(rig.plan);
    free(rig.result);
    return 0;
}

/* --- plans ----------------------------------------------------------- */

tdm_status_t rig_run_one(tdm_error_t *err) {
    rig.diary[0] = '\0';
    tdm_status_t st = tdm_engine_start(rig.engine, rig.plan, rig.result, err);
    if (st != TDM_OK) return st;
    tdm_engine_compute(rig.engine);
    return tdm_engine_finish(rig.engine, err);
}

void rig_run(void) {
    tdm_error_t err = {0};
    if (rig_run_one(&err) != TDM_OK) fail_msg("%s", err.text);
    uint64_t iteration = rig.plan->iteration;
    memset(rig.plan, 0, sizeof *rig.plan);
    rig.plan->iteration = iteration + 1;
}

void rig_add_open(tdm_plan_t *plan, uint32_t slot, uint32_t page, uint32_t cnt) {
    plan->open[plan->open_cnt++] = (tdm_plan_open_t){
        .slot = slot, .prompt_cnt = cnt, .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f}};
    plan->grant[plan->grant_cnt++] =
        (tdm_plan_grant_t){.slot = slot, .page_off = plan->page_cnt, .page_cnt = 1};
    plan->page[plan->page_cnt++] = page;
}

void rig_add_slice(tdm_plan_t *plan, uint32_t slot, uint32_t pos, uint32_t cnt, uint32_t is_last) {
    plan->slice[plan->slice_cnt++] = (tdm_plan_slice_t){
        .slot = slot, .pos = pos, .cnt = cnt, .token_off = plan->token_cnt, .is_last = is_last};
    for (uint32_t i = 0; i < cnt; i++) plan->token[plan->token_cnt++] = (int32_t)(slot * 10 + i);
}

void rig_add_decode(tdm_plan_t *plan, uint32_t slot, uint32_t pos) {
    plan->decode[plan->decode_cnt++] = (tdm_plan_decode_t){.slot = slot, .pos = pos};
}
