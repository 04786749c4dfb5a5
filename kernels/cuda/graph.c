/* SPDX-License-Identifier: Apache-2.0 */
/* What is chosen and captured before the first plan: the algorithm of every
   product, and one decode iteration for each number of rows; and with
   config.graph_max, while nothing runs, what iterations missed
   (kernels/keep/graphs.h). */
#include "appliance/base/clock.h"
#include "appliance/base/log.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/plan/plan.h"

#define TURNS         8u    /* layers whose weights take turns while products are timed */
#define OPERAND_SCALE 5e-5f /* standard deviation 0.95 */

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
    if (c->wants) tdm_cuda_head(c);
    tdm_cuda_mail(c);
}

/* record captures an iteration as c->rows, c->wants, c->plan and c->is_fresh
   describe it, runs nothing, and gives its graph and, where sz is not NULL, the
   device memory that the driver took for it; NULL after an error. */
static cudaGraphExec_t record(tdm_cuda_t *c, uint64_t *sz) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    size_t before = 0, after = 0, all = 0;
    if (sz) (void)cudaMemGetInfo(&before, &all);
    CUDA_TRY(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
             "capturing a graph");
    if (c->error) return NULL;
    run_all(c);
    /* Also after an error: a stream must not stay in capture. */
    tdm_cuda_note(c, (int)cudaStreamEndCapture(c->stream, &graph), "capturing a graph");
    CUDA_TRY(c, cudaGraphInstantiate(&exec, graph, 0), "making a graph");
    CUDA_TRY(c, cudaGraphUpload(exec, c->stream), "uploading a graph");
    if (graph) (void)cudaGraphDestroy(graph);
    if (!sz) return exec;
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "uploading a graph");
    (void)cudaMemGetInfo(&after, &all);
    *sz = before > after ? before - after : 0;
    return exec;
}

/* A launch for decodes alone reads its work from the blob, whatever its grid:
   the graph of one row's plan serves every batch up to its rows. */
static tdm_graph_key_t decode_key(const tdm_cuda_t *c) {
    return (tdm_graph_key_t){
        .rows = c->rows, .wants = c->wants, .variant = c->plan.variant, .is_fresh = c->is_fresh};
}

/* capture runs an iteration once, which loads its kernels and chooses its
   algorithms, and then captures it. */
static void capture(tdm_cuda_t *c, uint32_t rows) {
    c->rows = c->wants = rows;
    send_empty(c);
    run_all(c);
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "a first iteration");
    if (c->error) return;
    cudaGraphExec_t exec = record(c, NULL);
    tdm_graph_key_t key = decode_key(c);
    if (c->error || !tdm_graphs_put(&c->graphs, &key, exec, 0, 1))
        if (exec) (void)cudaGraphExecDestroy(exec);
}

/* --- the others, while nothing runs ---------------------------------------- */

/* key_of: all that the launches of an iteration have in their arguments.  0
   where they have more: two streams get their CTAs by the plan's shares. */
static int key_of(const tdm_cuda_t *c, tdm_graph_key_t *key) {
    const tdm_pod_plan_t *p = &c->plan;
    if (p->route == TDM_ROUTE_DECODE_ONLY && c->wants == c->rows) {
        *key = decode_key(c);
        return 1;
    }
    if (c->is_fresh || c->graphs.max <= CUDA_GRAPH_MAX) return 0;
    if (p->way == TDM_POD_WAY_STREAMS_DP || p->way == TDM_POD_WAY_STREAMS_PD) return 0;
    *key = (tdm_graph_key_t){
        .rows = c->rows,
        .wants = c->wants,
        .variant = p->variant,
        .way = p->way,
        .tile = p->tile,
        /* As tdm_pod_launch has it. */
        .grid = p->way == TDM_POD_WAY_FUSED ? p->grid : p->cta_sm * c->pod_config.gpu.sm_cnt,
        .kinds = (p->item_cnt[TDM_KIND_PREFILL] > 0) | (uint32_t)(p->item_cnt[TDM_KIND_DECODE] > 0)
                                                           << 1};
    return 1;
}

cudaGraphExec_t tdm_cuda_graph(tdm_cuda_t *c, uint32_t *use) {
    tdm_graph_key_t key;
    *use = TDM_GRAPH_NONE;
    if (!key_of(c, &key)) return NULL;
    cudaGraphExec_t exec = (cudaGraphExec_t)tdm_graphs_find(&c->graphs, &key);
    *use = exec ? TDM_GRAPH_REPLAYED : TDM_GRAPH_MISSED;
    return exec;
}

/* stand_for makes c describe an iteration of a key: a launch takes these things
   of its plan and no others. */
static void stand_for(tdm_cuda_t *c, const tdm_graph_key_t *key) {
    c->rows = key->rows;
    c->wants = key->wants;
    c->is_fresh = 0;
    c->plan = (tdm_pod_plan_t){.variant = key->variant,
                               .way = key->way,
                               .tile = key->tile,
                               .grid = key->grid,
                               .cta_sm = key->grid / c->pod_config.gpu.sm_cnt};
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) c->plan.item_cnt[k] = key->kinds >> k & 1;
}

int tdm_cuda_idle(tdm_cuda_t *c) {
    tdm_graph_key_t key;
    uint64_t sz = 0;
    void *out;
    if (c->graphs.max <= CUDA_GRAPH_MAX || c->error || !tdm_graphs_next(&c->graphs, &key)) return 0;
    if (key.grid == 0) { /* of decodes alone: what could be captured was, at start */
        tdm_graphs_bar(&c->graphs, &key);
        return 1;
    }
    stand_for(c, &key);
    cudaGraphExec_t exec = record(c, &sz);
    if (c->error) { /* it runs eagerly: what broke the device is found by the next iteration */
        tdm_log(TDM_LOG_WARN, "exec", "an iteration of %u rows cannot be captured: %s: %d",
                key.rows, c->where, c->error);
        c->error = 0;
        (void)cudaGetLastError();
        if (exec) (void)cudaGraphExecDestroy(exec);
        tdm_graphs_bar(&c->graphs, &key);
        return 1;
    }
    while ((out = tdm_graphs_place(&c->graphs, &key, sz)))
        (void)cudaGraphExecDestroy((cudaGraphExec_t)out);
    if (!tdm_graphs_put(&c->graphs, &key, exec, sz, 0)) (void)cudaGraphExecDestroy(exec);
    return 1;
}

void tdm_cuda_graphs_close(tdm_cuda_t *c) {
    for (uint32_t i = 0; i < c->graphs.cnt; i++)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)c->graphs.at[i].exec);
    c->graphs.cnt = 0;
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
        /* fp8 is widened to one place whatever the layer. */
        w[i] = c->wide && k < CUDA_PRODUCT_CNT - 1 ? c->wide : of[k];
    }
    return k == CUDA_PRODUCT_CNT - 1 || c->wide ? 1 : cnt;
}

/* draw_operands fills what products read: a product of zeros draws less power
   than one of data, and another algorithm may be its fastest. */
static void draw_operands(tdm_cuda_t *c) {
    const tdm_shape_t *s = &c->shape;
    const struct {
        void *at;
        uint64_t cols;
    } of[] = {{c->x, s->hidden}, {c->att, (uint64_t)s->nhead_q * s->head_dim}, {c->hidden, s->ffn}};
    for (size_t i = 0; i < TDM_COUNT_OF(of); i++)
        CUDA_TRY(c,
                 tdm_rows_draw(i, OPERAND_SCALE, c->row_max * of[i].cols / 4 * 4, 0, of[i].at,
                               c->stream),
                 "operands to time products with");
}

/* time_products chooses by time: cuBLASLt's first choice is a third slower than
   its best at some numbers of rows (448 of Llama-3-8B's layer took longer than
   512), and a kernel that no iteration has run yet costs its first milliseconds. */
static void time_products(tdm_cuda_t *c) {
    const void *w[TURNS];
    draw_operands(c);
    for (uint32_t rows = 1; rows <= c->row_max; rows = tdm_gemm_rows(rows + 1)) {
        const void *x[CUDA_PRODUCT_CNT] = {c->x, c->att, c->x, c->hidden, c->x};
        void *y[CUDA_PRODUCT_CNT] = {c->qkv, c->residual, c->gate_up, c->residual, c->logits};
        for (uint32_t k = 0; k < CUDA_PRODUCT_CNT; k++) {
            if (k == CUDA_PRODUCT_CNT - 1 && rows > c->want_max) continue;
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
    tdm_graphs_init(&c->graphs, CUDA_GRAPH_MAX + c->config.graph_max, UINT64_MAX);
    uint32_t last = tdm_gemm_rows(c->config.seq_max);
    for (uint32_t is_fresh = 0; is_fresh < 2; is_fresh++) {
        uint32_t most = is_fresh ? tdm_gemm_rows(c->fresh_max / c->shape.nhead_kv) : last;
        if (is_fresh && !c->fresh_max) break;
        plan_one(c, is_fresh);
        for (uint32_t rows = 1;
             rows <= TDM_MIN(most, last) && c->graphs.cnt < CUDA_GRAPH_MAX && !c->error;
             rows = tdm_gemm_rows(rows + 1))
            capture(c, rows);
    }
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "capturing graphs");
    (void)cudaMemGetInfo(&after, &all);
    if (c->error) return tdm_cuda_failed(c, err);
    c->graphs.sz = before > after ? before - after : 0;
    c->graphs.sz_max = c->graphs.sz + c->config.graph_sz;
    tdm_log(TDM_LOG_INFO, "exec",
            "%u products chosen in %.0f ms (%u as in the life before; %u skinny, %u narrow), %u "
            "graphs in %.0f ms, %.0f MiB",
            tdm_gemm_shape_cnt(c->gemm), (double)(kept_ns - start_ns) * 1e-6,
            tdm_gemm_recalled_cnt(c->gemm), tdm_gemm_skinny_cnt(c->gemm),
            tdm_gemm_narrow_cnt(c->gemm), c->graphs.cnt,
            (double)(tdm_clock_now_ns() - kept_ns) * 1e-6,
            before > after ? (double)(before - after) / 1048576.0 : 0.0);
    return TDM_OK;
}
