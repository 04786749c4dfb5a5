/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the CPU backend: check, size, carve, start, stop. */
#include "kernels/include/backend.h"
#include "appliance/base/size.h"
#include "kernels/cpu/cpu_private.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/peek.h"
#include "kernels/cpu/rope.h"
#include "kernels/engine/check.h"
#include "kernels/engine/kvscale.h"

#include <string.h>
#include <unistd.h>

/* How long an idle SM spins before it sleeps.  Launches of one iteration
   follow each other within 50 us; with fewer cores than SMs spinning
   takes the core from the one that works. */
#define SPIN_US         200u
#define SPIN_CROWDED_US 5u

/* parts_t: the configs of what the backend is made of, checked. */
typedef struct parts {
    tdm_cpu_attn_config_t attn;
    tdm_engine_config_t engine;
    uint32_t isa;
} parts_t;

static tdm_status_t make_parts(const tdm_shape_t *s, const tdm_backend_config_t *c, parts_t *p,
                               tdm_error_t *err) {
    memset(p, 0, sizeof *p);
    tdm_status_t st = tdm_engine_check(s, c, err);
    if (st != TDM_OK) return st;
    if (c->sm_cnt == 0 || c->sm_cnt > TDM_SM_MAX)
        return tdm_error_set(err, TDM_ERR_INVAL, "sm_cnt %u, limit %d", c->sm_cnt, TDM_SM_MAX);
    st = tdm_cpu_isa_resolve(c->cpu_isa, &p->isa, err);
    if (st != TDM_OK) return st;
    tdm_kv_layout_t kv = {.page_cnt = c->kv_page_cnt,
                          .nhead_kv = s->nhead_kv,
                          .head_dim = s->head_dim,
                          .dtype = c->kv_dtype};
    p->engine = (tdm_engine_config_t){.slots = {.seq_max = c->seq_max,
                                                .token_max = c->token_max,
                                                .context_max = c->context_max,
                                                .kv_page_cnt = c->kv_page_cnt,
                                                .vocab = s->vocab,
                                                .variant_cnt = 1},
                                      .worklist = {.nhead_q = s->nhead_q,
                                                   .kv = kv,
                                                   .sm_cnt = c->sm_cnt,
                                                   .seq_max = c->seq_max,
                                                   .token_max = c->token_max,
                                                   .context_max = c->context_max},
                                      .layer_cnt = s->layer_cnt,
                                      .logits_max = CPU_LOGITS_ROWS,
                                      .depth = c->is_ahead ? 2 : 1,
                                      .ops = &tdm_cpu_ops};
    st = tdm_worklist_config_check(&p->engine.worklist, err);
    if (st != TDM_OK) return st;
    p->attn = (tdm_cpu_attn_config_t){.nhead_q = s->nhead_q,
                                      .kv = kv,
                                      .isa = p->isa,
                                      .merge_max = p->engine.worklist.merge_max,
                                      .part_float_max = p->engine.worklist.part_float_max,
                                      .sm_cnt = c->sm_cnt};
    return TDM_OK;
}

/* --- memory --------------------------------------------------------- */

/* take_floats moves the end past rows x width floats. */
static uint64_t take_floats(uint64_t *end, uint64_t rows, uint64_t width) {
    uint64_t at = *end;
    *end = tdm_size_align(at + rows * width * sizeof(float), TDM_CACHE_LINE);
    return at;
}

static uint64_t take_bytes(uint64_t *end, uint64_t sz) {
    uint64_t at = *end;
    *end = tdm_size_align(at + sz, TDM_CACHE_LINE);
    return at;
}

static uint64_t xp_stride(const tdm_shape_t *s) {
    return TDM_MAX(tdm_linear_padded(s->hidden),
                   tdm_linear_padded((uint64_t)s->nhead_q * s->head_dim));
}

static uint64_t panel_stride(const tdm_shape_t *s) {
    return tdm_linear_panel_cnt(TDM_MAX(xp_stride(s), (uint64_t)s->ffn));
}

static tdm_status_t lay_out(const tdm_shape_t *s, const tdm_backend_config_t *c, const parts_t *p,
                            cpu_memory_t *m, tdm_error_t *err) {
    memset(m, 0, sizeof *m);
    uint64_t attn_sz, kv_sz, row_max = (uint64_t)c->token_max + c->seq_max, end = 0;
    tdm_status_t st = tdm_cpu_attn_footprint(&p->attn, &attn_sz, err);
    if (st != TDM_OK) return st;
    uint64_t q_width = (uint64_t)s->nhead_q * s->head_dim;
    uint64_t kv_width = (uint64_t)s->nhead_kv * s->head_dim;
    m->sampler_sz = tdm_size_align(tdm_sampler_footprint(s->vocab), TDM_CACHE_LINE);
    m->backend = take_bytes(&end, sizeof(tdm_cpu_t));
    m->pool = take_bytes(&end, tdm_sm_pool_footprint(c->sm_cnt));
    m->runner = take_bytes(&end, tdm_runner_footprint());
    m->attn = take_bytes(&end, attn_sz);
    m->engine = take_bytes(&end, tdm_engine_footprint(&p->engine));
    m->residual = take_floats(&end, row_max, s->hidden);
    m->xp = take_floats(&end, TDM_MAX(row_max, (uint64_t)CPU_LOGITS_ROWS), xp_stride(s));
    m->q = take_floats(&end, row_max, q_width);
    m->k = take_floats(&end, row_max, kv_width);
    m->v = take_floats(&end, row_max, kv_width);
    m->att = take_floats(&end, row_max, q_width);
    m->hidden =
        take_floats(&end, TDM_MIN(row_max, (uint64_t)CPU_FFN_ROWS), tdm_linear_padded(s->ffn));
    m->logits = take_floats(&end, CPU_LOGITS_ROWS, s->vocab);
    m->rope = take_floats(&end, c->context_max, s->head_dim);
    m->panel = take_floats(&end, c->sm_cnt, panel_stride(s));
    m->item = take_floats(&end, c->sm_cnt, (uint64_t)2 * CPU_ITEM_ROWS * CPU_ITEM_OUTS);
    m->sampler = take_bytes(&end, c->sm_cnt * m->sampler_sz);
    if (c->kv_dtype == TDM_KV_E4M3)
        m->kv_scale = take_floats(&end, (uint64_t)4 * s->layer_cnt, s->nhead_kv);
    if (!tdm_kv_pool_sz(&p->attn.kv, &m->kv_pool_sz) ||
        !tdm_size_mul(m->kv_pool_sz, (uint64_t)2 * s->layer_cnt, &kv_sz) ||
        kv_sz > UINT64_C(1) << 46)
        return tdm_error_set(err, TDM_ERR_LIMIT, "a KV pool of %u pages", c->kv_page_cnt);
    m->kv = take_bytes(&end, kv_sz);
    m->end = end;
    return TDM_OK;
}

tdm_status_t tdm_backend_cpu_need(const tdm_weights_t *weights, const tdm_backend_config_t *config,
                                  uint64_t *bytes_out, tdm_error_t *err) {
    parts_t parts;
    cpu_memory_t m;
    tdm_status_t st = make_parts(&weights->shape, config, &parts, err);
    if (st == TDM_OK) st = lay_out(&weights->shape, config, &parts, &m, err);
    /* The arena may have to align the start. */
    if (st == TDM_OK) *bytes_out = m.end + TDM_CACHE_LINE;
    return st;
}

/* --- life ----------------------------------------------------------- */

static tdm_status_t op_start(tdm_backend_t *b, const tdm_plan_t *plan, tdm_result_t *result,
                             tdm_error_t *err) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)b;
    tdm_status_t st = tdm_engine_start(cpu->engine, plan, result, err);
    if (st == TDM_OK && cpu->runner) tdm_runner_post(cpu->runner);
    return st;
}

static int op_is_done(tdm_backend_t *b) {
    const tdm_cpu_t *cpu = (const tdm_cpu_t *)b;
    return !cpu->runner || tdm_runner_is_done(cpu->runner);
}

static void op_listen(tdm_backend_t *b, tdm_backend_bell_t *bell, void *ctx) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)b;
    if (cpu->runner) tdm_runner_listen(cpu->runner, bell, ctx);
}

static tdm_status_t op_finish(tdm_backend_t *b, tdm_error_t *err) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)b;
    if (cpu->runner)
        tdm_runner_await(cpu->runner);
    else
        tdm_engine_compute(cpu->engine);
    return tdm_engine_finish(cpu->engine, err);
}

static void run(void *ctx) {
    tdm_engine_compute(((tdm_cpu_t *)ctx)->engine);
}

static void op_destroy(tdm_backend_t *b) {
    tdm_cpu_t *cpu = (tdm_cpu_t *)b;
    tdm_runner_close(cpu->runner);
    tdm_sm_pool_close(cpu->pool);
    tdm_arena_t own = cpu->own_arena; /* the struct lies inside */
    if (own.base) tdm_arena_close(&own);
}

static const tdm_backend_ops_t door = {.start = op_start,
                                       .is_done = op_is_done,
                                       .listen = op_listen,
                                       .finish = op_finish,
                                       .destroy = op_destroy};

static tdm_backend_info_t describe(const tdm_weights_t *w, const tdm_backend_config_t *c,
                                   const parts_t *p, const cpu_memory_t *m) {
    const tdm_shape_t *s = &w->shape;
    uint64_t q_width = (uint64_t)s->nhead_q * s->head_dim;
    uint64_t kv_width = (uint64_t)s->nhead_kv * s->head_dim;
    uint64_t layer = (2 * q_width + 2 * kv_width + 3 * (uint64_t)s->ffn) * s->hidden;
    uint64_t head = (uint64_t)s->vocab * s->hidden;
    return (tdm_backend_info_t){.name = "cpu",
                                .isa = tdm_cpu_isa_name(p->isa),
                                .sm_cnt = c->sm_cnt,
                                .depth = c->is_ahead ? 2 : 1,
                                .has_bell = c->is_ahead,
                                .variant_cnt = 1,
                                .kv_page_cnt = c->kv_page_cnt,
                                .kv_dtype = c->kv_dtype,
                                .kv_page_bytes = m->kv_pool_sz / c->kv_page_cnt * 2 * s->layer_cnt,
                                .memory_bytes = m->end,
                                .row_flops = 2 * layer * s->layer_cnt,
                                .logits_flops = 2 * head,
                                .weight_bytes =
                                    layer * s->layer_cnt * tdm_weight_dtype_sz(w->dtype) +
                                    head * sizeof(tdm_bf16_t)};
}

static void carve(tdm_cpu_t *cpu, uint8_t *base, const cpu_memory_t *m) {
    const tdm_shape_t *s = &cpu->weights->shape;
    cpu->residual = (float *)(void *)(base + m->residual);
    cpu->xp = (float *)(void *)(base + m->xp);
    cpu->q = (float *)(void *)(base + m->q);
    cpu->k = (float *)(void *)(base + m->k);
    cpu->v = (float *)(void *)(base + m->v);
    cpu->att = (float *)(void *)(base + m->att);
    cpu->hidden = (float *)(void *)(base + m->hidden);
    cpu->logits = (float *)(void *)(base + m->logits);
    cpu->rope = (float *)(void *)(base + m->rope);
    cpu->panel = (float *)(void *)(base + m->panel);
    cpu->item = (float *)(void *)(base + m->item);
    cpu->sampler = base + m->sampler;
    cpu->kv = base + m->kv;
    cpu->xp_stride = xp_stride(s);
    cpu->hidden_stride = tdm_linear_padded(s->ffn);
    cpu->panel_stride = panel_stride(s);
    cpu->sampler_sz = m->sampler_sz;
    cpu->kv_pool_sz = m->kv_pool_sz;
}

/* fill_kv_scale: the scales and their inverses, rounded once. */
static void fill_kv_scale(tdm_cpu_t *cpu, float *at) {
    const tdm_shape_t *s = &cpu->weights->shape;
    uint32_t n = s->nhead_kv;
    cpu->kv_scale = at;
    for (uint32_t layer = 0; layer < s->layer_cnt; layer++, at += 4 * n) {
        tdm_kv_scale(cpu->weights, 0, layer, at, at + 2 * n);
        for (uint32_t h = 0; h < n; h++) {
            at[n + h] = 1.0f / at[h];
            at[3 * n + h] = 1.0f / at[2 * n + h];
        }
    }
}

static uint32_t spin_us(uint32_t sm_cnt) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 && sm_cnt > (uint64_t)cores ? SPIN_CROWDED_US : SPIN_US;
}

/* start fills the struct that lies at the beginning of base. */
static tdm_status_t start(tdm_cpu_t *cpu, uint8_t *base, const cpu_memory_t *m, parts_t *parts,
                          tdm_error_t *err) {
    const tdm_shape_t *s = &cpu->weights->shape;
    const tdm_backend_config_t *c = &cpu->config;
    carve(cpu, base, m);
    cpu->base.ops = &door;
    cpu->base.info = describe(cpu->weights, c, parts, m);
    cpu->linear = tdm_linear_for(parts->isa);
    cpu->kv_layout = parts->attn.kv;
    tdm_rope_table(s, c->context_max, cpu->rope);
    if (c->kv_dtype == TDM_KV_E4M3) fill_kv_scale(cpu, (float *)(void *)(base + m->kv_scale));
    for (uint32_t i = 0; i < c->sm_cnt; i++)
        (void)tdm_sampler_init(cpu->sampler + i * m->sampler_sz, s->vocab);
    parts->engine.ctx = cpu;
    cpu->engine = tdm_engine_init(base + m->engine, &parts->engine);
    tdm_sm_config_t sm = {.sm_cnt = c->sm_cnt, .spin_us = spin_us(c->sm_cnt)};
    tdm_status_t st = tdm_sm_pool_open(base + m->pool, &sm, &cpu->pool, err);
    if (st != TDM_OK) return st;
    parts->attn.pool = cpu->pool;
    st = tdm_cpu_attn_init(base + m->attn, &parts->attn, &cpu->attn, err);
    if (st == TDM_OK && c->is_ahead)
        st = tdm_runner_open(base + m->runner, run, cpu, sm.spin_us, &cpu->runner, err);
    if (st != TDM_OK) tdm_sm_pool_close(cpu->pool);
    return st;
}

tdm_status_t tdm_backend_cpu_create(const tdm_weights_t *weights,
                                    const tdm_backend_config_t *config, tdm_arena_t *arena,
                                    tdm_backend_t **out, tdm_error_t *err) {
    parts_t parts;
    cpu_memory_t m;
    tdm_arena_t own = {.fd = -1};
    *out = NULL;
    tdm_status_t st = make_parts(&weights->shape, config, &parts, err);
    if (st == TDM_OK) st = lay_out(&weights->shape, config, &parts, &m, err);
    if (st != TDM_OK) return st;
    if (!arena) {
        st = tdm_arena_open(&own, TDM_ARENA_PLAIN, m.end, err);
        if (st != TDM_OK) return st;
    }
    uint8_t *base = (uint8_t *)tdm_arena_take(arena ? arena : &own, m.end, TDM_CACHE_LINE);
    if (!base)
        return tdm_error_set(err, TDM_ERR_NOMEM, "the CPU backend needs %llu bytes of its arena",
                             (unsigned long long)m.end);
    tdm_cpu_t *cpu = (tdm_cpu_t *)(void *)base;
    cpu->config = *config;
    cpu->weights = weights;
    cpu->own_arena = own;
    st = start(cpu, base, &m, &parts, err);
    if (st != TDM_OK) {
        tdm_arena_close(&own);
        return st;
    }
    *out = &cpu->base;
    return TDM_OK;
}

const float *tdm_cpu_logits(const tdm_backend_t *b, uint32_t i) {
    const tdm_cpu_t *cpu = (const tdm_cpu_t *)(const void *)b;
    return cpu->logits + (uint64_t)i * cpu->weights->shape.vocab;
}
