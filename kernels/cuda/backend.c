/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the GPU backend: look, check, budget, take, fill, capture. */
#include "kernels/include/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/abi/reasons.h"
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "appliance/base/size.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/cuda/peek.h"
#include "kernels/cuda/probe.h"
#include "kernels/device/describe.h"
#include "kernels/engine/check.h"
#include "kernels/engine/rope.h"
#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"

tdm_status_t tdm_cuda_failed(const tdm_cuda_t *c, tdm_error_t *err) {
    if (!c->error) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_INTERNAL, "the GPU failed in %s: %d %s", c->where, c->error,
                         cudaGetErrorString((cudaError_t)c->error));
}

/* --- checks --------------------------------------------------------- */

static tdm_status_t check(const tdm_shape_t *s, const tdm_backend_config_t *config,
                          tdm_error_t *err) {
    tdm_status_t st = tdm_engine_check(s, config, err);
    if (st != TDM_OK) return st;
    if (config->kv_dtype != TDM_KV_BF16 && config->kv_dtype != TDM_KV_E4M3)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "the GPU keeps its KV cache in bf16 or fp8");
    if (s->hidden % 8 || s->ffn % 8)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "hidden %u or ffn %u is no multiple of 8, which the GPU asks",
                             s->hidden, s->ffn);
    if (config->dummy_seed && s->is_tied)
        return tdm_error_set(err, TDM_ERR_INVAL, "a dummy has a head of its own");
    return TDM_OK;
}

static tdm_status_t look(tdm_cuda_t *c, tdm_error_t *err) {
    tdm_cuda_probe_t probe;
    const char *why;
    int driver = 0, is_fp8 = c->config.kv_dtype == TDM_KV_E4M3;
    if (tdm_cuda_probe(&probe, &why) != 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "no usable CUDA device: %s", why);
    tdm_pod_config_t *p = &c->pod_config;
    *p = (tdm_pod_config_t){.shape = {.nhead_q = c->shape.nhead_q,
                                      .nhead_kv = c->shape.nhead_kv,
                                      .head_dim = c->shape.head_dim,
                                      .dtype = TDM_POD_BF16,
                                      .kv_dtype = is_fp8 ? TDM_POD_E4M3 : TDM_POD_BF16,
                                      .page_tok = TDM_KV_PAGE_TOKENS},
                            .seq_max = TDM_PLAN_SLICE_MAX + c->config.seq_max,
                            .box_cnt = c->depth};
    if (cudaDriverGetVersion(&driver) == cudaSuccess) p->state.driver = (uint32_t)driver;
    int e = tdm_gpu_describe(&p->gpu);
    if (e != 0)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED, "the CUDA device: %s",
                             cudaGetErrorString((cudaError_t)e));
    if (c->config.is_deterministic) tdm_cuda_fix_attention(c);
    tdm_pod_config_fill(p);
    uint32_t variant, reason = tdm_pod_gate(p, &variant);
    if (variant == TDM_POD_VARIANT_NONE)
        return tdm_error_set(err, TDM_ERR_UNSUPPORTED,
                             "no attention kernel for this model on %s: %s", probe.name,
                             tdm_reason_text((tdm_reason_t)reason));
    (void)snprintf(c->isa, sizeof c->isa, "sm_%u", p->gpu.arch);
    tdm_log(TDM_LOG_INFO, "exec", "%s, %s, %u SMs, driver %d", probe.name, c->isa, p->gpu.sm_cnt,
            driver);
    return TDM_OK;
}

/* --- taking ----------------------------------------------------------- */

static tdm_engine_config_t engine_config(tdm_cuda_t *c) {
    return (tdm_engine_config_t){.slots = {.seq_max = c->config.seq_max,
                                           .token_max = c->config.token_max,
                                           .context_max = c->config.context_max,
                                           .kv_page_cnt = c->config.kv_page_cnt,
                                           .vocab = c->shape.vocab,
                                           .variant_cnt = 1},
                                 .worklist = {.sm_cnt = c->pod_config.gpu.sm_cnt},
                                 .layer_cnt = c->shape.layer_cnt,
                                 .logits_max = CUDA_WANT_MAX,
                                 .depth = c->depth,
                                 .ops = &tdm_cuda_ops,
                                 .ctx = c};
}

static tdm_status_t make_engine(tdm_cuda_t *c, tdm_error_t *err) {
    tdm_engine_config_t config = engine_config(c);
    uint64_t sz = tdm_size_align(tdm_engine_footprint(&config), TDM_CACHE_LINE);
    void *mem = aligned_alloc(TDM_CACHE_LINE, sz);
    if (!mem)
        return tdm_error_set(err, TDM_ERR_NOMEM, "the slot tables: %llu bytes",
                             (unsigned long long)sz);
    memset(mem, 0, sz);
    c->engine = tdm_engine_init(mem, &config);
    return TDM_OK;
}

/* fix makes bits independent of the batch: products of one way, and every
   row a decode of its own. */
static tdm_status_t fix(tdm_cuda_t *c, tdm_error_t *err) {
    c->row_seq = (tdm_attn_seq_t *)calloc(c->row_max, sizeof *c->row_seq);
    if (!c->row_seq) return tdm_error_set(err, TDM_ERR_NOMEM, "rows of the deterministic mode");
    return tdm_gemm_fix(c->gemm, err);
}

static tdm_status_t take(tdm_cuda_t *c, tdm_error_t *err) {
    const char *why = "";
    CUDA_TRY(c, cudaMalloc((void **)&c->memory, c->budget.own), "taking memory");
    CUDA_TRY(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
    CUDA_TRY(c, cudaMallocHost((void **)&c->host_step, c->depth * tdm_cuda_step_sz(c)),
             "pinned memory");
    CUDA_TRY(c, cudaMallocHost((void **)&c->host_drawn, c->depth * c->want_max * sizeof *c->drawn),
             "pinned memory");
    CUDA_TRY(c, cudaMallocHost((void **)&c->mail, c->depth * sizeof *c->mail), "pinned memory");
    if (!c->error) memset(c->mail, 0, c->depth * sizeof *c->mail);
    for (uint32_t i = 0; i < c->depth; i++) tdm_stages_open(&c->stages[i], c->shape.layer_cnt);
    tdm_cuda_carve(c);
    tdm_tables_init(&c->tables, c->pages.table_stride);
    /* Tables are zero, and so are keys that a warm start holds uncomputed:
       not what another process left there. */
    CUDA_TRY(c, cudaMemsetAsync(c->memory, 0, c->budget.own, c->stream), "clearing memory");
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "clearing memory");
    if (tdm_pod_create(&c->pod_config, &c->pod, &why) != 0)
        return tdm_error_set(err, TDM_ERR_NOMEM, "attention on the GPU: %s", why);
    /* The kernel of few decodes appends and reads bf16. */
    int is_fresh = !c->config.is_deterministic && c->config.kv_dtype == TDM_KV_BF16;
    c->fresh_max = is_fresh ? tdm_pod_fresh_max(c->pod) : 0;
    tdm_status_t st = tdm_gemm_open(c->workspace, c->part, &c->gemm, err);
    if (st == TDM_OK && c->config.is_deterministic) st = fix(c, err);
    if (st == TDM_OK) st = tdm_cuda_recall(c, err);
    return st == TDM_OK ? make_engine(c, err) : st;
}

static void fill_turn(tdm_cuda_t *c) {
    double freq[TDM_HEAD_DIM_MAX / 2];
    uint32_t half = c->shape.head_dim / 2;
    for (uint32_t i = 0; i < half; i++) freq[i] = tdm_rope_frequency(&c->shape, i);
    /* qkv is scratch until the first iteration */
    CUDA_TRY(c, cudaMemcpy(c->qkv, freq, half * sizeof *freq, cudaMemcpyHostToDevice),
             "rotary positions");
    CUDA_TRY(c,
             tdm_rows_turn((const double *)(const void *)c->qkv, c->shape.head_dim,
                           c->config.context_max, c->turn, c->stream),
             "rotary positions");
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "rotary positions");
}

/* self_test tries every variant that the planner might take. */
static void self_test(tdm_cuda_t *c) {
    static const char *const name[TDM_POD_VARIANT_CNT] = {"none", "plain", "portable", "hopper"};
    for (uint32_t v = TDM_POD_VARIANT_PLAIN; v < TDM_POD_VARIANT_CNT; v++) {
        float worst = 0.0f;
        if (tdm_pod_variant_gate(&c->pod_config, v) != TDM_REASON_NONE) continue;
        CUDA_TRY(c, tdm_pod_self_test(c->pod, v, &c->pod_config.state, 0, &worst),
                 "attention's self-test");
        uint32_t bar = tdm_pod_health_bar(&c->pod_config.state, v);
        tdm_log(TDM_LOG_INFO, "exec", "attention %s: self-test %s, error %.2f of what is allowed",
                name[v], bar ? "failed" : "passed", (double)worst);
    }
}

/* self_test_fresh leaves the kernel of few decodes out where it computes
   anything else: the ordinary launch takes its batches. */
static void self_test_fresh(tdm_cuda_t *c) {
    int is_right = 0;
    float worst = 0.0f;
    uint32_t bar = tdm_pod_health_bar(&c->pod_config.state, TDM_POD_VARIANT_PORTABLE);
    if (bar != TDM_REASON_NONE) c->fresh_max = 0; /* a piece of it */
    if (c->fresh_max == 0) return;
    CUDA_TRY(c, tdm_pod_self_test_fresh(c->pod, c->fresh_max, &is_right, &worst),
             "the self-test of attention of few rows");
    tdm_log(is_right ? TDM_LOG_INFO : TDM_LOG_WARN, "exec",
            "attention of few rows: self-test %s, error %.2f of what is allowed",
            is_right ? "passed" : "failed, not used", (double)worst);
    if (!is_right) c->fresh_max = 0;
}

/* --- the door -------------------------------------------------------- */

static tdm_status_t op_start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                             tdm_error_t *err) {
    tdm_cuda_t *c = (tdm_cuda_t *)b;
    tdm_status_t st = tdm_engine_start(c->engine, plan, result, err);
    if (st == TDM_OK) tdm_engine_compute(c->engine); /* queues it */
    return st;
}

static int op_is_done(tdm_backend_t *b) {
    return tdm_cuda_is_done((tdm_cuda_t *)b);
}

static tdm_status_t op_finish(tdm_backend_t *b, tdm_error_t *err) {
    return tdm_engine_finish(((tdm_cuda_t *)b)->engine, err);
}

static int op_idle(tdm_backend_t *b) {
    return tdm_cuda_idle((tdm_cuda_t *)b);
}

static void op_destroy(tdm_backend_t *b) {
    tdm_cuda_t *c = (tdm_cuda_t *)b;
    if (c->stream) (void)cudaStreamSynchronize(c->stream);
    tdm_cuda_graphs_close(c);
    tdm_gemm_close(c->gemm);
    tdm_pod_destroy(c->pod);
    for (uint32_t i = 0; i < c->depth; i++) tdm_stages_close(&c->stages[i]);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    (void)cudaFreeHost(c->mail);
    (void)cudaFreeHost(c->host_drawn);
    (void)cudaFreeHost(c->host_step);
    (void)cudaFree(c->memory);
    free(c->row_seq);
    free(c->engine);
    free(c);
}

static const tdm_backend_ops_t door = {.start = op_start,
                                       .is_done = op_is_done,
                                       .finish = op_finish,
                                       .idle = op_idle,
                                       .destroy = op_destroy};

static tdm_backend_info_t describe(const tdm_cuda_t *c) {
    const tdm_shape_t *s = &c->shape;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t layer = (2 * q + 2 * kv + 3 * (uint64_t)s->ffn) * s->hidden;
    uint64_t head = (uint64_t)s->vocab * s->hidden;
    return (tdm_backend_info_t){.name = "cuda",
                                .isa = c->isa,
                                .sm_cnt = c->pod_config.gpu.sm_cnt,
                                .depth = c->depth,
                                .variant_cnt = 1,
                                .kv_page_cnt = c->config.kv_page_cnt,
                                .kv_dtype = c->config.kv_dtype,
                                .kv_page_bytes = c->budget.kv / c->config.kv_page_cnt,
                                .memory_bytes = c->budget.own + c->budget.plan,
                                .row_flops = 2 * layer * s->layer_cnt,
                                .logits_flops = 2 * head,
                                .weight_bytes =
                                    layer * s->layer_cnt * tdm_weight_dtype_sz(c->weight_dtype) +
                                    head * sizeof(tdm_bf16_t)};
}

static tdm_status_t start(tdm_cuda_t *c, const tdm_weights_t *weights,
                          tdm_backend_progress_t *progress, void *ctx, tdm_error_t *err) {
    int64_t start_ns = tdm_clock_now_ns();
    tdm_status_t st = look(c, err);
    if (st == TDM_OK) st = tdm_cuda_budget(c, err);
    if (st == TDM_OK) st = tdm_cuda_budget_check(c, err);
    if (st == TDM_OK) st = take(c, err);
    if (st != TDM_OK) return st;
    int64_t taken_ns = tdm_clock_now_ns();
    self_test(c);
    self_test_fresh(c);
    fill_turn(c);
    int64_t tested_ns = tdm_clock_now_ns();
    st = tdm_cuda_weights(c, weights, progress, ctx, err);
    int64_t filled_ns = tdm_clock_now_ns();
    if (st == TDM_OK) st = tdm_cuda_capture(c, err);
    tdm_log(TDM_LOG_INFO, "exec",
            "device and memory %.2f s, tests %.2f s, weights %.2f s, graphs %.2f s",
            (double)(taken_ns - start_ns) * 1e-9, (double)(tested_ns - taken_ns) * 1e-9,
            (double)(filled_ns - tested_ns) * 1e-9,
            (double)(tdm_clock_now_ns() - filled_ns) * 1e-9);
    return st;
}

tdm_status_t tdm_backend_cuda_create(const tdm_weights_t *weights,
                                     const tdm_backend_config_t *config, tdm_choices_t *choices,
                                     tdm_backend_progress_t *progress, void *ctx,
                                     tdm_backend_t **out, tdm_error_t *err) {
    *out = NULL;
    tdm_status_t st = check(&weights->shape, config, err);
    if (st != TDM_OK) return st;
    tdm_cuda_t *c = (tdm_cuda_t *)calloc(1, sizeof *c);
    if (!c) return tdm_error_set(err, TDM_ERR_NOMEM, "the GPU backend");
    c->config = *config;
    c->shape = weights->shape;
    c->weight_dtype = weights->dtype;
    c->depth = config->is_ahead ? 2 : 1;
    c->row_max = tdm_gemm_rows(config->token_max + config->seq_max);
    c->want_max = tdm_gemm_rows(TDM_PLAN_SLICE_MAX + config->seq_max);
    c->base.ops = &door;
    c->choices = choices;
    st = start(c, weights, progress, ctx, err);
    if (st != TDM_OK) {
        op_destroy(&c->base);
        return st;
    }
    c->choices = NULL;
    c->base.info = describe(c);
    *out = &c->base;
    return TDM_OK;
}

int tdm_cuda_logits(const tdm_backend_t *b, uint32_t i, float *out) {
    const tdm_cuda_t *c = (const tdm_cuda_t *)b;
    uint64_t vocab = c->shape.vocab;
    return (int)cudaMemcpy(out, c->logits + i * vocab, vocab * sizeof *out, cudaMemcpyDeviceToHost);
}

void tdm_cuda_times(const tdm_backend_t *b, uint64_t *start_ns, uint64_t *end_ns) {
    const tdm_cuda_t *c = (const tdm_cuda_t *)b;
    *start_ns = c->mail[c->read_box].start_ns;
    *end_ns = c->mail[c->read_box].end_ns;
}

void tdm_cuda_products(const tdm_backend_t *b, uint32_t *all, uint32_t *recalled) {
    const tdm_cuda_t *c = (const tdm_cuda_t *)b;
    *all = tdm_gemm_shape_cnt(c->gemm);
    *recalled = tdm_gemm_recalled_cnt(c->gemm);
}

void tdm_cuda_graphs(const tdm_backend_t *b, uint64_t *hit, uint64_t *miss, uint64_t *put) {
    const tdm_cuda_t *c = (const tdm_cuda_t *)b;
    *hit = c->graphs.hit_cnt;
    *miss = c->graphs.miss_cnt;
    *put = c->graphs.put_cnt;
}
