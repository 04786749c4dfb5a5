/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's op table (kernels/engine/ops.h). */
#include "appliance/abi/fp8.h"
#include "kernels/cpu/cpu_private.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/rope.h"

#include <math.h>
#include <string.h>

/* each_row runs fn over rows, in the caller where they are few. */
static void each_row(tdm_cpu_t *cpu, uint32_t row_cnt, tdm_sm_range_fn_t *fn, void *ctx) {
    tdm_sm_parallel_for(cpu->pool, row_cnt, CPU_ALONE_ROWS, fn, ctx);
}

typedef struct row_work {
    tdm_cpu_t *cpu;
    const tdm_engine_iter_t *it;
    uint32_t layer;
    uint32_t first;       /* of the residual rows */
    const float *weight;  /* of the norm */
    const uint32_t *pick; /* rows of the residual, or NULL: first, first + 1, .. */
} row_work_t;

static void embed_rows(void *ctx, uint64_t begin, uint64_t end, uint32_t sm) {
    const row_work_t *w = (const row_work_t *)ctx;
    uint32_t hidden = w->cpu->weights->shape.hidden;
    (void)sm;
    for (uint64_t r = begin; r < end; r++)
        tdm_cpu_widen(w->cpu->weights->embed + (uint64_t)w->it->row[r].token * hidden, hidden,
                      w->cpu->residual + r * hidden);
}

static void op_embed(void *ctx, const tdm_engine_iter_t *it) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    row_work_t w = {.cpu = cpu, .it = it};
    each_row(cpu, it->row_cnt, embed_rows, &w);
}

static void norm_rows(void *ctx, uint64_t begin, uint64_t end, uint32_t sm) {
    const row_work_t *w = (const row_work_t *)ctx;
    const tdm_shape_t *s = &w->cpu->weights->shape;
    (void)sm;
    for (uint64_t r = begin; r < end; r++) {
        uint64_t from = w->pick ? w->pick[r] : w->first + r;
        tdm_cpu_norm(w->cpu->residual + from * s->hidden, w->weight, s->hidden, s->rms_eps,
                     w->cpu->xp + r * w->cpu->xp_stride);
    }
}

static void norm(tdm_cpu_t *cpu, uint32_t first, uint32_t row_cnt, const uint32_t *pick,
                 const float *weight) {
    row_work_t w = {.cpu = cpu, .first = first, .pick = pick, .weight = weight};
    each_row(cpu, row_cnt, norm_rows, &w);
}

static void op_qkv(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    const tdm_shape_t *s = &cpu->weights->shape;
    const tdm_layer_weights_t *l = &cpu->weights->layer[layer];
    uint32_t q_out = s->nhead_q * s->head_dim, kv_out = s->nhead_kv * s->head_dim;
    norm(cpu, 0, it->row_cnt, NULL, l->attn_norm);
    cpu_project_t p = {.kind = CPU_STORE,
                       .row_cnt = it->row_cnt,
                       .xp = cpu->xp,
                       .xp_stride = cpu->xp_stride,
                       .in = s->hidden,
                       .part_cnt = 3,
                       .part = {{l->wq, q_out, cpu->q, q_out, &l->fp8[TDM_MATRIX_Q]},
                                {l->wk, kv_out, cpu->k, kv_out, &l->fp8[TDM_MATRIX_K]},
                                {l->wv, kv_out, cpu->v, kv_out, &l->fp8[TDM_MATRIX_V]}}};
    tdm_cpu_project(cpu, &p);
}

static uint8_t *kv_pool(const tdm_cpu_t *cpu, uint32_t layer, uint32_t is_v) {
    return cpu->kv + ((uint64_t)layer * 2 + is_v) * cpu->kv_pool_sz;
}

/* kv_scale gives [nhead_kv] scales of a pool, their inverses behind them;
   NULL unless fp8. */
static const float *kv_scale(const tdm_cpu_t *cpu, uint32_t layer, uint32_t is_v) {
    uint64_t at = ((uint64_t)layer * 2 + is_v) * 2 * cpu->kv_layout.nhead_kv;
    return cpu->kv_scale ? cpu->kv_scale + at : NULL;
}

/* append stores one row's heads at its position of a layer's K or V pool. */
static void append(const tdm_cpu_t *cpu, uint32_t layer, uint32_t is_v, const float *x,
                   uint32_t page, uint32_t token) {
    const tdm_kv_layout_t *l = &cpu->kv_layout;
    uint8_t *pool = kv_pool(cpu, layer, is_v);
    const float *scale = kv_scale(cpu, layer, is_v);
    for (uint32_t h = 0; h < l->nhead_kv; h++, x += l->head_dim) {
        void *to = pool + tdm_kv_offset(l, page, h, token) * tdm_kv_elem_sz(l);
        if (l->dtype == TDM_KV_BF16) {
            tdm_cpu_narrow(x, l->head_dim, (tdm_bf16_t *)to);
        } else if (l->dtype == TDM_KV_E4M3) {
            float inverse = scale[l->nhead_kv + h];
            for (uint32_t d = 0; d < l->head_dim; d++)
                ((uint8_t *)to)[d] = tdm_fp8_from_f32(x[d] * inverse);
        } else {
            memcpy(to, x, l->head_dim * sizeof *x);
        }
    }
}

static void rope_append_rows(void *ctx, uint64_t begin, uint64_t end, uint32_t sm) {
    const row_work_t *w = (const row_work_t *)ctx;
    const tdm_cpu_t *cpu = w->cpu;
    const tdm_shape_t *s = &cpu->weights->shape;
    (void)sm;
    for (uint64_t r = begin; r < end; r++) {
        const tdm_engine_row_t *row = &w->it->row[r];
        const float *turn = cpu->rope + (uint64_t)row->pos * s->head_dim;
        float *k = cpu->k + r * s->nhead_kv * s->head_dim;
        float *v = cpu->v + r * s->nhead_kv * s->head_dim;
        tdm_rope_turn(cpu->q + r * s->nhead_q * s->head_dim, s->nhead_q, s->head_dim, turn);
        tdm_rope_turn(k, s->nhead_kv, s->head_dim, turn);
        uint32_t page = w->it->page_table[(uint64_t)row->slot * w->it->table_stride +
                                          row->pos / TDM_KV_PAGE_TOKENS];
        append(cpu, w->layer, 0, k, page, row->pos % TDM_KV_PAGE_TOKENS);
        append(cpu, w->layer, 1, v, page, row->pos % TDM_KV_PAGE_TOKENS);
    }
}

static void op_rope_append(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    row_work_t w = {.cpu = cpu, .it = it, .layer = layer};
    each_row(cpu, it->row_cnt, rope_append_rows, &w);
}

static void op_attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                         tdm_attn_stats_t *stats) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    tdm_attn_launch_t launch = {.plan = it->attn,
                                .q = cpu->q,
                                .out = cpu->att,
                                .k_pool = kv_pool(cpu, layer, 0),
                                .v_pool = kv_pool(cpu, layer, 1),
                                .page_table = it->page_table,
                                .table_stride = it->table_stride,
                                .scale = 1.0f / sqrtf((float)cpu->weights->shape.head_dim),
                                .k_scale = kv_scale(cpu, layer, 0),
                                .v_scale = kv_scale(cpu, layer, 1)};
    tdm_cpu_attn_run(cpu->attn, &launch, stats);
}

static void pack_rows(void *ctx, uint64_t begin, uint64_t end, uint32_t sm) {
    const tdm_cpu_t *cpu = ((const row_work_t *)ctx)->cpu;
    uint32_t width = cpu->weights->shape.nhead_q * cpu->weights->shape.head_dim;
    (void)sm;
    for (uint64_t r = begin; r < end; r++)
        tdm_linear_pack(cpu->att + r * width, width, cpu->xp + r * cpu->xp_stride);
}

static void op_attn_out(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    const tdm_shape_t *s = &cpu->weights->shape;
    const tdm_layer_weights_t *l = &cpu->weights->layer[layer];
    row_work_t w = {.cpu = cpu};
    each_row(cpu, it->row_cnt, pack_rows, &w);
    cpu_project_t p = {
        .kind = CPU_ADD,
        .row_cnt = it->row_cnt,
        .xp = cpu->xp,
        .xp_stride = cpu->xp_stride,
        .in = s->nhead_q * s->head_dim,
        .part = {{l->wo, s->hidden, cpu->residual, s->hidden, &l->fp8[TDM_MATRIX_O]}}};
    tdm_cpu_project(cpu, &p);
}

static void op_ffn(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    const tdm_shape_t *s = &cpu->weights->shape;
    const tdm_layer_weights_t *l = &cpu->weights->layer[layer];
    for (uint32_t first = 0; first < it->row_cnt; first += CPU_FFN_ROWS) {
        uint32_t row_cnt = TDM_MIN(it->row_cnt - first, CPU_FFN_ROWS);
        norm(cpu, first, row_cnt, NULL, l->ffn_norm);
        cpu_project_t gate_up = {
            .kind = CPU_SWIGLU,
            .row_cnt = row_cnt,
            .xp = cpu->xp,
            .xp_stride = cpu->xp_stride,
            .in = s->hidden,
            .part = {{l->w_gate, s->ffn, cpu->hidden, cpu->hidden_stride, &l->fp8[TDM_MATRIX_GATE]},
                     {l->w_up, s->ffn, NULL, 0, &l->fp8[TDM_MATRIX_UP]}}};
        tdm_cpu_project(cpu, &gate_up);
        cpu_project_t down = {
            .kind = CPU_ADD,
            .row_cnt = row_cnt,
            .xp = cpu->hidden,
            .xp_stride = cpu->hidden_stride,
            .in = s->ffn,
            .part = {{l->w_down, s->hidden, cpu->residual + (uint64_t)first * s->hidden, s->hidden,
                      &l->fp8[TDM_MATRIX_DOWN]}}};
        tdm_cpu_project(cpu, &down);
    }
}

static void op_logits(void *ctx, const uint32_t *row, uint32_t cnt) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    const tdm_shape_t *s = &cpu->weights->shape;
    norm(cpu, 0, cnt, row, cpu->weights->out_norm);
    cpu_project_t p = {.kind = CPU_STORE,
                       .row_cnt = cnt,
                       .xp = cpu->xp,
                       .xp_stride = cpu->xp_stride,
                       .in = s->hidden,
                       .part_cnt = 1,
                       .part = {{cpu->weights->lm_head, s->vocab, cpu->logits, s->vocab, NULL}}};
    tdm_cpu_project(cpu, &p);
}

typedef struct sample_work {
    tdm_cpu_t *cpu;
    tdm_sample_in_t *in;
    tdm_sample_out_t *out;
} sample_work_t;

static void sample_item(void *ctx, uint64_t item, uint32_t sm) {
    const sample_work_t *w = (const sample_work_t *)ctx;
    w->in[item].logits = w->cpu->logits + item * w->cpu->weights->shape.vocab;
    tdm_sampler_t *s = (tdm_sampler_t *)(void *)(w->cpu->sampler + sm * w->cpu->sampler_sz);
    tdm_sample_row(s, &w->in[item], &w->out[item]);
}

static void op_sample(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)ctx;
    sample_work_t w = {.cpu = cpu, .in = in, .out = out};
    tdm_cpu_draw(cpu, cnt, sample_item, &w);
}

const tdm_engine_ops_t tdm_cpu_ops = {.embed = op_embed,
                                      .qkv = op_qkv,
                                      .rope_append = op_rope_append,
                                      .attention = op_attention,
                                      .attn_out = op_attn_out,
                                      .ffn = op_ffn,
                                      .logits = op_logits,
                                      .sample = op_sample};
