/* SPDX-License-Identifier: Apache-2.0 */
/* What device memory is for, before any is taken. */
#include "appliance/base/log.h"
#include "appliance/base/size.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/cuda/narrow.h"

#define ALIGN  UINT64_C(256)
#define SZ_MAX (UINT64_C(1) << 46)

/* Kernels' code, graphs and the driver's own needs grow after the budget
   is made: about 300 MiB seen, twice that set aside. */
#define CODE_SZ (UINT64_C(600) << 20)

/* A row of this many elements of so many bytes; base NULL: only measures. */
static void *take(uint8_t *base, uint64_t *end, uint64_t rows, uint64_t width, uint64_t elem_sz) {
    void *p = base ? base + *end : NULL;
    *end += tdm_size_align(rows * width * elem_sz, ALIGN);
    return p;
}

/* take_matrix: with its scales where it is fp8. */
static uint8_t *take_matrix(tdm_cuda_t *c, uint8_t *base, uint64_t *end, uint64_t rows,
                            uint64_t cols, float **scale, uint64_t *most) {
    *most = TDM_MAX(*most, rows * cols);
    if (c->weight_dtype == TDM_WEIGHT_FP8) *scale = take(base, end, 1, rows, 4);
    return take(base, end, rows, cols, tdm_weight_dtype_sz(c->weight_dtype));
}

static void take_weights(tdm_cuda_t *c, uint8_t *base, uint64_t *end) {
    const tdm_shape_t *s = &c->shape;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t most = 0;
    c->embed = take(base, end, s->vocab, s->hidden, 2);
    for (uint32_t i = 0; i < s->layer_cnt; i++) {
        cuda_layer_t *l = &c->layer[i];
        l->attn_norm = take(base, end, 1, s->hidden, 4);
        l->qkv = take_matrix(c, base, end, q + 2 * kv, s->hidden, &l->scale[0], &most);
        l->o = take_matrix(c, base, end, s->hidden, q, &l->scale[1], &most);
        l->ffn_norm = take(base, end, 1, s->hidden, 4);
        l->gate_up =
            take_matrix(c, base, end, 2 * (uint64_t)s->ffn, s->hidden, &l->scale[2], &most);
        l->down = take_matrix(c, base, end, s->hidden, s->ffn, &l->scale[3], &most);
    }
    if (c->weight_dtype == TDM_WEIGHT_FP8) c->wide = take(base, end, 1, most, 2);
    c->out_norm = take(base, end, 1, s->hidden, 4);
    c->head = s->is_tied ? c->embed : take(base, end, s->vocab, s->hidden, 2);
}

static void take_kv(tdm_cuda_t *c, uint8_t *base, uint64_t *end) {
    const tdm_shape_t *s = &c->shape;
    uint64_t rows = (uint64_t)c->config.kv_page_cnt * s->nhead_kv * TDM_KV_PAGE_TOKENS;
    uint64_t elem_sz = tdm_kv_dtype_sz(c->config.kv_dtype);
    for (uint32_t i = 0; i < s->layer_cnt; i++) {
        c->layer[i].k_pool = take(base, end, rows, s->head_dim, elem_sz);
        c->layer[i].v_pool = take(base, end, rows, s->head_dim, elem_sz);
        if (c->config.kv_dtype == TDM_KV_E4M3)
            c->layer[i].kv_scale = take(base, end, 4, s->nhead_kv, 4);
    }
    c->pages.token = take(base, end, c->config.kv_page_cnt, TDM_KV_PAGE_TOKENS, 4);
}

static void take_activations(tdm_cuda_t *c, uint8_t *base, uint64_t *end) {
    const tdm_shape_t *s = &c->shape;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t rows = c->row_max;
    c->pages.table_stride = (uint32_t)tdm_ceil_div(c->config.context_max, TDM_KV_PAGE_TOKENS);
    c->pages.table = take(base, end, c->config.seq_max, c->pages.table_stride, 4);
    c->step = take(base, end, 1, tdm_cuda_step_sz(c), 1);
    c->residual = take(base, end, rows, s->hidden, 4);
    c->x = take(base, end, TDM_MAX(rows, (uint64_t)c->want_max), s->hidden, 2);
    c->qkv = take(base, end, rows, q + 2 * kv, 4);
    uint64_t part_rows = c->config.is_deterministic ? rows : TDM_NARROW_ROWS_MAX;
    c->part = take(base, end, (uint64_t)TDM_NARROW_SPLIT_MAX * part_rows,
                   TDM_MAX(q + 2 * kv, (uint64_t)s->hidden), 4);
    c->q = take(base, end, rows, q, 2);
    c->att = take(base, end, rows, q, 2);
    c->gate_up = take(base, end, rows, 2 * (uint64_t)s->ffn, 2);
    c->hidden = take(base, end, rows, s->ffn, 2);
    c->turn = take(base, end, c->config.context_max, s->head_dim, 4);
}

static void take_sampling(tdm_cuda_t *c, uint8_t *base, uint64_t *end) {
    c->logits = take(base, end, c->want_max, c->shape.vocab, 4);
    c->changed = take(base, end, c->want_max, c->shape.vocab, 4);
    c->weight = take(base, end, c->want_max, c->shape.vocab, 4);
    c->survey = take(base, end, c->want_max, TDM_SAMPLE_PART, sizeof(tdm_sample_part_t));
    c->start_ns = take(base, end, 1, sizeof *c->start_ns, 1);
    c->drawn = take(base, end, c->want_max, sizeof(tdm_step_drawn_t), 1);
    c->pages.last = take(base, end, c->config.seq_max, sizeof *c->pages.last, 1);
    c->state =
        c->config.is_resident ? take(base, end, c->config.seq_max, sizeof *c->state, 1) : NULL;
}

/* carve walks all pieces once; with base NULL the budget comes of it. */
static void carve(tdm_cuda_t *c, uint8_t *base, cuda_budget_t *b) {
    uint64_t end = 0, begin;
    take_weights(c, base, &end);
    b->weights = begin = end;
    take_kv(c, base, &end);
    b->kv = end - begin;
    begin = end;
    take_activations(c, base, &end);
    b->activations = end - begin;
    begin = end;
    take_sampling(c, base, &end);
    b->sampling = end - begin;
    c->workspace = take(base, &end, 1, TDM_GEMM_WORKSPACE, 1);
    b->gemm = TDM_GEMM_WORKSPACE;
    b->own = end;
}

uint64_t tdm_cuda_step_sz(const tdm_cuda_t *c) {
    uint64_t sz = sizeof(tdm_step_head_t) + (uint64_t)c->want_max * sizeof(tdm_step_want_t) +
                  (uint64_t)c->row_max * sizeof(tdm_step_row_t) +
                  CUDA_PAGE_MAX * sizeof(tdm_step_page_t);
    if (c->config.is_resident) sz += 16 + (uint64_t)c->config.seq_max * sizeof(tdm_step_state_t);
    return tdm_size_align(sz, 256);
}

tdm_status_t tdm_cuda_budget(tdm_cuda_t *c, tdm_error_t *err) {
    tdm_kv_layout_t kv = {.page_cnt = c->config.kv_page_cnt,
                          .nhead_kv = c->shape.nhead_kv,
                          .head_dim = c->shape.head_dim,
                          .dtype = c->config.kv_dtype};
    uint64_t pool, all;
    if (!tdm_kv_pool_sz(&kv, &pool) || !tdm_size_mul(pool, 2 * c->shape.layer_cnt, &all) ||
        all > SZ_MAX)
        return tdm_error_set(err, TDM_ERR_LIMIT, "a KV pool of %u pages", kv.page_cnt);
    carve(c, NULL, &c->budget);
    c->budget.plan = tdm_pod_need(&c->pod_config);
    c->budget.code = CODE_SZ;
    c->budget.graphs = c->config.graph_sz;
    c->budget.total = c->budget.own + c->budget.plan + c->budget.code + c->budget.graphs;
    return TDM_OK;
}

static double mib(uint64_t sz) {
    return (double)sz / 1048576.0;
}

tdm_status_t tdm_cuda_budget_check(const tdm_cuda_t *c, tdm_error_t *err) {
    const cuda_budget_t *b = &c->budget;
    size_t free_sz = 0, all_sz = 0;
    cudaError_t e = cudaMemGetInfo(&free_sz, &all_sz);
    if (e != cudaSuccess)
        return tdm_error_set(err, TDM_ERR_INTERNAL, "GPU memory: %s", cudaGetErrorString(e));
    tdm_log(TDM_LOG_INFO, "exec",
            "GPU memory in MiB: weights %.0f, KV %.0f (%u pages), activations %.0f, sampling %.0f, "
            "products %.0f, attention plan %.0f, code and graphs %.0f: %.0f of %.0f free",
            mib(b->weights), mib(b->kv), c->config.kv_page_cnt, mib(b->activations),
            mib(b->sampling), mib(b->gemm), mib(b->plan), mib(b->code + b->graphs), mib(b->total),
            mib(free_sz));
    if (b->total <= free_sz) return TDM_OK;
    uint64_t rest = b->total - b->kv, page_sz = b->kv / c->config.kv_page_cnt;
    return tdm_error_set(err, TDM_ERR_NOMEM,
                         "GPU memory: %.0f MiB needed (weights %.0f, KV %.0f), %.0f free; "
                         "exec.kv_pages may be %llu here",
                         mib(b->total), mib(b->weights), mib(b->kv), mib(free_sz),
                         (unsigned long long)(rest < free_sz ? (free_sz - rest) / page_sz : 0));
}

void tdm_cuda_carve(tdm_cuda_t *c) {
    cuda_budget_t same;
    carve(c, c->memory, &same);
}
