/* SPDX-License-Identifier: Apache-2.0 */
/* What is chosen and captured before the first plan: the algorithm of every
   product, and one decode iteration for each number of rows. */
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/plan/plan.h"

#define TURNS 8u /* layers whose weights take turns while products are timed */

/* An iteration of nothing: no rows, no page, nobody samples. */
static void send_empty(tdm_cuda_t *c) {
    *(tdm_step_head_t *)(void *)c->host_step = (tdm_step_head_t){.want_cnt = 0};
    CUDA_TRY(c,
             cudaMemcpyAsync(c->step, c->host_step, sizeof(tdm_step_head_t), cudaMemcpyHostToDevice,
                             c->stream),
             "an empty step");
    CUDA_TRY(c, tdm_pod_upload(c->pod, &c->plan, c->stream), "an empty plan");
}

/* plan_one: attention of one row over page 0, which stands for any decode
   plan: launches read their work from the blob.  Nothing lies in the page
   yet that a first run could spoil. */
static void plan_one(tdm_cuda_t *c, uint32_t is_fresh) {
    const tdm_attn_seq_t one = {.slot = 0, .kv_cnt = 1, .cnt = 1, .row = 0};
    uint32_t variant = c->pod_config.variant;
    if (is_fresh) c->pod_config.variant = TDM_POD_VARIANT_PORTABLE;
    tdm_pod_plan_build(&c->pod_config, &one, 0, 1, TDM_ROUTE_DECODE_ONLY, tdm_pod_blob(c->pod),
                       &c->plan);
    c->pod_config.variant = variant;
    c->is_fresh = is_fresh;
}

static void run_all(tdm_cuda_t *c) {
    tdm_cuda_walk(c);
    tdm_cuda_head(c);
    tdm_cuda_mail(c);
}

/* capture runs an iteration once, which loads its kernels and chooses its
   algorithms, and then captures it. */
static void capture(tdm_cuda_t *c, uint32_t rows) {
    cudaGraph_t graph = NULL;
    cuda_graph_t *g = &c->graph[c->graph_cnt];
    c->rows = c->wants = rows;
    send_empty(c);
    run_all(c);
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "a first iteration");
    CUDA_TRY(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
             "capturing a graph");
    if (c->error) return;
    run_all(c);
    /* Also after an error: a stream must not stay in capture. */
    tdm_cuda_note(c, (int)cudaStreamEndCapture(c->stream, &graph), "capturing a graph");
    CUDA_TRY(c, cudaGraphInstantiate(&g->exec, graph, 0), "making a graph");
    CUDA_TRY(c, cudaGraphUpload(g->exec, c->stream), "uploading a graph");
    if (graph) (void)cudaGraphDestroy(graph);
    g->rows = rows;
    g->variant = c->plan.variant;
    g->is_fresh = c->is_fresh;
    if (!c->error) c->graph_cnt++;
}

static void keep_products(tdm_cuda_t *c) {
    for (uint32_t rows = 1; rows <= c->row_max; rows = tdm_gemm_rows(rows + 1)) {
        for (uint32_t k = 0; k < CUDA_PRODUCT_CNT; k++) {
            if (k == CUDA_PRODUCT_CNT - 1 && rows > c->want_max) continue;
            tdm_gemm_shape_t shape = tdm_cuda_product(c, k, rows);
            CUDA_TRY(c, tdm_gemm_keep(c->gemm, &shape), "choosing a product's algorithm");
        }
    }
}

/* The weights of the k-th product, of as many layers as take turns. */
static uint32_t weights_of(const tdm_cuda_t *c, uint32_t k, const void **w) {
    uint32_t cnt = TDM_MIN(c->shape.layer_cnt, TURNS);
    for (uint32_t i = 0; i < cnt; i++) {
        const cuda_layer_t *l = &c->layer[i];
        const void *of[CUDA_PRODUCT_CNT] = {l->qkv, l->o, l->gate_up, l->down, c->head};
        w[i] = of[k];
    }
    return k == CUDA_PRODUCT_CNT - 1 ? 1 : cnt;
}

/* time_products lets the shapes of decode iterations, which only stream the
   weights, be chosen by time.  Operands are what the buffers hold. */
static void time_products(tdm_cuda_t *c) {
    const void *w[TURNS];
    uint32_t last = tdm_gemm_rows(c->config.seq_max);
    for (uint32_t rows = 1; rows <= last; rows = tdm_gemm_rows(rows + 1)) {
        const void *x[CUDA_PRODUCT_CNT] = {c->x, c->att, c->x, c->hidden, c->x};
        void *y[CUDA_PRODUCT_CNT] = {c->qkv, c->residual, c->gate_up, c->residual, c->logits};
        for (uint32_t k = 0; k < CUDA_PRODUCT_CNT; k++) {
            tdm_gemm_shape_t shape = tdm_cuda_product(c, k, rows);
            uint32_t cnt = weights_of(c, k, w);
            CUDA_TRY(c, tdm_gemm_time(c->gemm, &shape, x[k], w, cnt, y[k], c->stream),
                     "timing a product");
        }
    }
}

tdm_status_t tdm_cuda_capture(tdm_cuda_t *c, tdm_error_t *err) {
    size_t before = 0, after = 0, all = 0;
    int64_t start_ns = tdm_clock_now_ns();
    keep_products(c);
    time_products(c);
    if (!c->error) tdm_cuda_remember(c);
    int64_t kept_ns = tdm_clock_now_ns();
    (void)cudaMemGetInfo(&before, &all);
    uint32_t last = tdm_gemm_rows(c->config.seq_max);
    for (uint32_t is_fresh = 0; is_fresh < 2; is_fresh++) {
        uint32_t most = is_fresh ? tdm_gemm_rows(c->fresh_max / c->shape.nhead_kv) : last;
        if (is_fresh && !c->fresh_max) break;
        plan_one(c, is_fresh);
        for (uint32_t rows = 1;
             rows <= TDM_MIN(most, last) && c->graph_cnt < CUDA_GRAPH_MAX && !c->error;
             rows = tdm_gemm_rows(rows + 1))
            capture(c, rows);
    }
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "capturing graphs");
    (void)cudaMemGetInfo(&after, &all);
    if (c->error) return tdm_cuda_failed(c, err);
    tdm_log(TDM_LOG_INFO, "exec",
            "%u products chosen in %.0f ms (%u as in the life before; %u skinny, %u narrow), %u "
            "graphs in %.0f ms, %.0f MiB",
            tdm_gemm_shape_cnt(c->gemm), (double)(kept_ns - start_ns) * 1e-6,
            tdm_gemm_recalled_cnt(c->gemm), tdm_gemm_skinny_cnt(c->gemm),
            tdm_gemm_narrow_cnt(c->gemm), c->graph_cnt,
            (double)(tdm_clock_now_ns() - kept_ns) * 1e-6,
            before > after ? (double)(before - after) / 1048576.0 : 0.0);
    return TDM_OK;
}
