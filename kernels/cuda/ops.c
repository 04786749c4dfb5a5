/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's op table (kernels/engine/ops.h). */
#include <math.h>
#include <string.h>

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "appliance/base/size.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/skinny.h"
#include "kernels/cuda/span.h"
#include "kernels/plan/health.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/stats.h"

/* A fused launch is too slow at this many times what was predicted, and a
   millisecond: profilers and other work on the device stay far below. */
#define SLOW_TIMES 16.0f
#define SLOW_NS    UINT64_C(1000000)

enum { QKV, OUT, GATE_UP, DOWN, HEAD };

tdm_gemm_shape_t tdm_cuda_product(const tdm_cuda_t *c, uint32_t k, uint32_t rows) {
    const tdm_shape_t *s = &c->shape;
    uint32_t q = s->nhead_q * s->head_dim, kv = s->nhead_kv * s->head_dim;
    switch (k) {
    case QKV: return (tdm_gemm_shape_t){rows, q + 2 * kv, s->hidden, TDM_GEMM_F32, 0, 1};
    case OUT: return (tdm_gemm_shape_t){rows, s->hidden, q, TDM_GEMM_F32, 1, 1};
    case GATE_UP: return (tdm_gemm_shape_t){rows, 2 * s->ffn, s->hidden, TDM_GEMM_BF16, 0, 0};
    case DOWN: return (tdm_gemm_shape_t){rows, s->hidden, s->ffn, TDM_GEMM_F32, 1, 1};
    default: return (tdm_gemm_shape_t){rows, s->vocab, s->hidden, TDM_GEMM_F32, 0, 0};
    }
}

static void mark(tdm_cuda_t *c, tdm_stage_t stage) {
    if (!c->error) tdm_stages_mark(&c->stages[c->box], stage, c->stream);
}

/* product queues the k-th one; what it leaves in partial sums is c->sums for
   the kernel behind it, which must add them up. */
static void product(tdm_cuda_t *c, uint32_t k, uint32_t rows, const void *x, const void *w,
                    void *y) {
    static const char *const name[CUDA_PRODUCT_CNT] = {"the qkv product", "the output product",
                                                       "the gate and up product",
                                                       "the down product", "the head's product"};
    tdm_gemm_shape_t shape = tdm_cuda_product(c, k, rows);
    CUDA_TRY(c, tdm_gemm_run(c->gemm, &shape, x, w, y, c->stream), name[k]);
    c->sums = (tdm_rows_sums_t){.part = c->part,
                                .stride = (uint64_t)rows * shape.out,
                                .cnt = tdm_gemm_part_cnt(c->gemm, &shape)};
    mark(c, TDM_STAGE_LINEAR);
}

/* matrix gives a layer's k-th one as products read it: where it is fp8 it is
   widened first, each time anew. */
static const void *matrix(tdm_cuda_t *c, uint32_t layer, uint32_t k) {
    const cuda_layer_t *l = &c->layer[layer];
    const void *of[] = {l->qkv, l->o, l->gate_up, l->down};
    if (!c->wide) return of[k];
    tdm_gemm_shape_t shape = tdm_cuda_product(c, k, 1);
    CUDA_TRY(c, tdm_rows_widen(of[k], l->scale[k], shape.out, shape.in, c->wide, c->stream),
             "widening fp8 weights");
    return c->wide;
}

/* --- the layers ----------------------------------------------------- */

static void op_embed(void *ctx, const tdm_engine_iter_t *it) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)it;
    c->sums = (tdm_rows_sums_t){.cnt = 0};
    CUDA_TRY(c,
             tdm_rows_embed(c->step, c->embed, c->shape.hidden, c->residual, &c->pages, c->start_ns,
                            c->rows, c->stream),
             "the embedding");
    mark(c, TDM_STAGE_NORM);
}

static void norm(tdm_cuda_t *c, const float *weight) {
    CUDA_TRY(c,
             tdm_norm_rows(c->residual, &c->sums, weight, c->shape.hidden, c->shape.rms_eps, c->x,
                           c->rows, c->stream),
             "a norm");
    mark(c, TDM_STAGE_NORM);
}

static void op_qkv(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)it;
    norm(c, c->layer[layer].attn_norm);
    product(c, QKV, c->rows, c->x, matrix(c, layer, QKV), c->qkv);
}

/* The product behind a rotation: in parts, or whole. */
static tdm_rows_sums_t qkv_sums(const tdm_cuda_t *c) {
    return c->sums.cnt ? c->sums : (tdm_rows_sums_t){.part = c->qkv, .cnt = 1};
}

static void op_rope_append(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    const float *scale = c->layer[layer].kv_scale;
    if (c->is_fresh) return; /* the attention does it */
    tdm_rows_rope_t rope = {.qkv = qkv_sums(c),
                            .turn = c->turn,
                            .q = c->q,
                            .k_pool = c->layer[layer].k_pool,
                            .v_pool = c->layer[layer].v_pool,
                            .kv_inverse = scale ? scale + 2 * c->shape.nhead_kv : NULL,
                            .nhead_q = c->shape.nhead_q,
                            .nhead_kv = c->shape.nhead_kv,
                            .head_dim = c->shape.head_dim};
    (void)it;
    CUDA_TRY(c, tdm_rows_rope_append(c->step, &rope, &c->pages, c->rows, c->stream),
             "the KV append");
    mark(c, TDM_STAGE_NORM);
}

static void op_attention(void *ctx, const tdm_engine_iter_t *it, uint32_t layer,
                         tdm_attn_stats_t *stats) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    const float *scale = c->layer[layer].kv_scale;
    tdm_pod_layer_t l = {.q = c->q,
                         .out = c->att,
                         .k_pool = c->layer[layer].k_pool,
                         .v_pool = c->layer[layer].v_pool,
                         .page_table = c->pages.table,
                         .table_stride = c->pages.table_stride,
                         .scale = 1.0f / sqrtf((float)c->shape.head_dim),
                         .k_scale = scale,
                         .v_scale = scale ? scale + c->shape.nhead_kv : NULL};
    (void)it;
    (void)stats; /* counted on the device, read once in finish */
    if (c->is_fresh) {
        tdm_rows_sums_t qkv = qkv_sums(c);
        tdm_pod_fresh_t fresh = {
            .qkv = qkv.part, .part_stride = qkv.stride, .part_cnt = qkv.cnt, .turn = c->turn};
        CUDA_TRY(c, tdm_pod_launch_fresh(c->pod, &c->plan, &l, &fresh, c->fresh_max, c->stream),
                 "attention of few rows");
    } else {
        CUDA_TRY(c, tdm_pod_launch(c->pod, &c->plan, &l, c->plan.way, 0, c->stream), "attention");
    }
    mark(c, TDM_STAGE_ATTENTION);
}

static void op_attn_out(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)it;
    product(c, OUT, c->rows, c->att, matrix(c, layer, OUT), c->residual);
}

static void op_ffn(void *ctx, const tdm_engine_iter_t *it, uint32_t layer) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)it;
    norm(c, c->layer[layer].ffn_norm);
    tdm_gemm_shape_t shape = tdm_cuda_product(c, GATE_UP, c->rows);
    const void *w = matrix(c, layer, GATE_UP);
    if (tdm_gemm_is_narrow(c->gemm, &shape)) { /* and SwiGLU with it */
        product(c, GATE_UP, c->rows, c->x, w, c->hidden);
    } else if (tdm_gemm_is_skinny(c->gemm, &shape)) {
        CUDA_TRY(c, tdm_skinny_swiglu(&shape, c->x, w, c->hidden, c->stream), "SwiGLU of few rows");
        mark(c, TDM_STAGE_LINEAR); /* with its product */
    } else {
        product(c, GATE_UP, c->rows, c->x, w, c->gate_up);
        CUDA_TRY(c, tdm_rows_swiglu(c->gate_up, c->shape.ffn, c->hidden, c->rows, c->stream),
                 "SwiGLU");
        mark(c, TDM_STAGE_NORM);
    }
    product(c, DOWN, c->rows, c->hidden, matrix(c, layer, DOWN), c->residual);
}

void tdm_cuda_walk(tdm_cuda_t *c) {
    op_embed(c, NULL);
    for (uint32_t layer = 0; layer < c->shape.layer_cnt; layer++) {
        op_qkv(c, NULL, layer);
        op_rope_append(c, NULL, layer);
        op_attention(c, NULL, layer, NULL);
        op_attn_out(c, NULL, layer);
        op_ffn(c, NULL, layer);
    }
}

/* --- the head and the sampler ---------------------------------------- */

static void logits(tdm_cuda_t *c) {
    CUDA_TRY(c,
             tdm_norm_wanted(c->step, c->residual, &c->sums, c->out_norm, c->shape.hidden,
                             c->shape.rms_eps, c->x, c->wants, c->stream),
             "the last norm");
    mark(c, TDM_STAGE_NORM);
    product(c, HEAD, c->wants, c->x, c->head, c->logits);
}

static void draw(tdm_cuda_t *c) {
    tdm_sample_args_t a = {.step = c->step,
                           .logits = c->logits,
                           .changed = c->changed,
                           .weight = c->weight,
                           .part = c->survey,
                           .table = c->pages.table,
                           .token = c->pages.token,
                           .drawn = c->drawn,
                           .last = c->pages.last,
                           .state = c->state,
                           .table_stride = c->pages.table_stride,
                           .vocab = c->shape.vocab};
    CUDA_TRY(c, tdm_sample_rows(&a, c->wants, c->stream), "sampling");
    mark(c, TDM_STAGE_SAMPLING);
}

void tdm_cuda_head(tdm_cuda_t *c) {
    logits(c);
    draw(c);
}

void tdm_cuda_mail(tdm_cuda_t *c) {
    tdm_pod_log_t log;
    tdm_pod_log(c->pod, &log);
    CUDA_TRY(c,
             tdm_mail_send(c->step, c->start_ns, c->drawn, &log, c->host_drawn, c->want_max,
                           c->mail, c->stream),
             "the mail");
}

static void op_logits(void *ctx, const uint32_t *row, uint32_t cnt) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)row; /* the step has them */
    (void)cnt;
    if (!c->is_replayed) logits(c);
}

/* A device that failed sends no mail: it is asked now and then. */
#define ASK_NS INT64_C(200000)

/* is_here: the mail of what was sent into a box is there, or the device
   failed. */
static int is_here(tdm_cuda_t *c, uint32_t box) {
    uint64_t seq = c->sent[box].seq;
    if (c->error || tdm_mail_is_here(&c->mail[box], seq)) return 1;
    if (tdm_clock_now_ns() < c->ask_ns) return 0;
    cudaError_t e = cudaStreamQuery(c->stream);
    if (e != cudaErrorNotReady) tdm_cuda_note(c, (int)e, "the iteration");
    /* All done, and no mail after it: it was written before that was asked. */
    if (e == cudaSuccess && !tdm_mail_is_here(&c->mail[box], seq))
        tdm_cuda_note(c, (int)cudaErrorUnknown, "the mail");
    c->ask_ns = tdm_clock_now_ns() + ASK_NS;
    return c->error || tdm_mail_is_here(&c->mail[box], seq);
}

int tdm_cuda_is_done(tdm_cuda_t *c) {
    for (uint32_t box = 0; box < c->depth; box++)
        if (c->sent[box].seq == c->read + 1) return is_here(c, box);
    return 1; /* nothing that was sent is unread */
}

/* wait ends the device's part of the oldest iteration under way. */
static void wait(tdm_cuda_t *c, uint32_t box) {
    while (!is_here(c, box)) tdm_cpu_relax();
    tdm_pod_box(c->pod, box);
    tdm_pod_logged(c->pod, &c->sent[box].plan);
    c->read = c->sent[box].seq;
    c->read_box = box;
}

static void op_sample(void *ctx, tdm_sample_in_t *in, uint32_t cnt, tdm_sample_out_t *out) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)in; /* sent with the step */
    (void)cnt;
    (void)out;
    if (!c->is_replayed) draw(c);
}

static void op_post(void *ctx, const tdm_engine_iter_t *it) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    (void)it;
    if (!c->is_replayed) tdm_cuda_mail(c);
    c->sent[c->box].queue_ns = tdm_clock_now_ns() - c->sent[c->box].queue_ns;
    c->ask_ns = tdm_clock_now_ns() + ASK_NS;
}

/* --- the step -------------------------------------------------------- */

/* write_step fills the pinned block of the current box and gives its bytes. */
static uint64_t write_step(tdm_cuda_t *c, const tdm_engine_iter_t *it, uint8_t *host) {
    uint32_t want_cnt = it ? it->wanted_cnt : 0, row_cnt = it ? it->row_cnt : 0;
    uint32_t page_sz = c->tables.entry_cnt * (uint32_t)sizeof *c->tables.entry;
    tdm_step_head_t *h = (tdm_step_head_t *)(void *)host;
    *h = (tdm_step_head_t){.want_cnt = want_cnt,
                           .row_cnt = row_cnt,
                           .page_cnt = c->tables.entry_cnt,
                           .seq = c->seq,
                           .box = c->box,
                           .want_sz = c->state ? TDM_STEP_WANT_SHORT : sizeof(tdm_step_want_t),
                           .state_cnt = it && c->state ? c->tables.stale_cnt : 0};
    h->want_off = sizeof *h;
    h->row_off = h->want_off + want_cnt * h->want_sz;
    h->page_off = h->row_off + row_cnt * (uint32_t)sizeof(tdm_step_row_t);
    h->state_off = (uint32_t)tdm_size_align(h->page_off + page_sz, 16);
    for (uint32_t i = 0; i < want_cnt; i++) {
        const tdm_step_want_t want = {.row = it->wanted[i],
                                      .slot = it->row[it->wanted[i]].slot,
                                      .pos = it->in[i].pos,
                                      .prompt_cnt = it->in[i].prompt_cnt,
                                      .sampling = *it->in[i].sampling};
        memcpy(host + h->want_off + (uint64_t)i * h->want_sz, &want, h->want_sz);
    }
    tdm_step_row_t *row = (tdm_step_row_t *)(void *)(host + h->row_off);
    for (uint32_t i = 0; i < row_cnt; i++)
        row[i] = (tdm_step_row_t){
            .token = it->row[i].token, .slot = it->row[i].slot, .pos = it->row[i].pos};
    memcpy(host + h->page_off, c->tables.entry, page_sz);
    tdm_step_state_t *state = (tdm_step_state_t *)(void *)(host + h->state_off);
    for (uint32_t i = 0; i < h->state_cnt; i++) {
        uint32_t slot = c->tables.stale[i];
        state[i] = (tdm_step_state_t){.slot = slot, .sampling = c->sampling[slot]};
    }
    return h->state_cnt ? h->state_off + h->state_cnt * sizeof *state : h->page_off + page_sz;
}

/* send copies the step and brings the page tables up to date. */
static void send(tdm_cuda_t *c, const tdm_engine_iter_t *it) {
    if (it) c->seq++;
    uint8_t *host = c->host_step + c->box * tdm_cuda_step_sz(c);
    uint64_t sz = write_step(c, it, host);
    CUDA_TRY(c, cudaMemcpyAsync(c->step, host, sz, cudaMemcpyHostToDevice, c->stream),
             "sending the step");
    if (c->tables.entry_cnt)
        CUDA_TRY(c, tdm_rows_scatter(c->step, &c->pages, c->tables.entry_cnt, c->stream),
                 "the page tables");
    if (it && c->state && c->tables.stale_cnt)
        CUDA_TRY(c, tdm_rows_state(c->step, c->state, c->tables.stale_cnt, c->stream),
                 "the slots' parameters");
    tdm_tables_sent(&c->tables, it != NULL);
    c->step_sz = sz;
}

/* send_entries: many idle plans, or a hostile one, fill the list of new table
   entries; they go out at once, when nothing else is on the stream. */
static void send_entries(void *ctx) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "the page tables");
    send(c, NULL);
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "the page tables");
}

static void op_apply(void *ctx, const tdm_plan_t *plan) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    for (uint32_t i = 0; i < plan->open_cnt; i++)
        c->sampling[plan->open[i].slot] = plan->open[i].sampling;
    tdm_tables_apply(&c->tables, plan, send_entries, c);
}

/* plan_fresh plans a batch for tdm_pod_launch_fresh, where it is one. */
static void plan_fresh(tdm_cuda_t *c, const tdm_engine_iter_t *it) {
    uint32_t variant = c->pod_config.variant;
    c->is_fresh = 0;
    if (it->plan->slice_cnt) return;
    uint32_t span = tdm_fresh_span(it->seq, it->plan->decode_cnt, c->shape.nhead_kv, c->fresh_max);
    if (!span) return;
    c->pod_config.decode_split_tok = span * TDM_KV_PAGE_TOKENS;
    c->pod_config.variant = TDM_POD_VARIANT_PORTABLE;
    tdm_pod_plan_build(&c->pod_config, it->seq, 0, it->plan->decode_cnt, TDM_ROUTE_DECODE_ONLY,
                       tdm_pod_blob(c->pod), &c->plan);
    c->pod_config.decode_split_tok = 0;
    c->pod_config.variant = variant;
    c->is_fresh = c->plan.variant == TDM_POD_VARIANT_PORTABLE &&
                  c->plan.item_cnt[TDM_KIND_DECODE] <= c->fresh_max;
}

/* Keys of an item in deterministic mode: positions [0, 512), [512, 1024), ...
   are one each, whatever the row and the batch. */
#define FIXED_TOK 512u

void tdm_cuda_fix_attention(tdm_cuda_t *c) {
    tdm_pod_config_t *p = &c->pod_config;
    uint64_t splits = tdm_ceil_div(c->config.context_max, FIXED_TOK);
    uint64_t items = (uint64_t)c->row_max * c->shape.nhead_kv * splits;
    uint64_t group = c->shape.nhead_q / c->shape.nhead_kv;
    p->variant = TDM_POD_VARIANT_PORTABLE;
    p->decode_split_tok = FIXED_TOK;
    p->seq_max = c->row_max;
    p->item_max = (uint32_t)TDM_MIN(items + 2, UINT32_MAX / 64);
    p->part_float_max = splits > 1 ? items * (group * (c->shape.head_dim + 2) + 8) : 1024;
}

/* plan_rows plans every row as a decode: the bits of a row's attention come
   of its position and its keys alone, in whatever slice or batch it runs. */
static void plan_rows(tdm_cuda_t *c, tdm_engine_iter_t *it) {
    uint64_t items = 0;
    for (uint32_t r = 0; r < it->row_cnt; r++) {
        c->row_seq[r] = (tdm_attn_seq_t){
            .slot = it->row[r].slot, .kv_cnt = it->row[r].pos + 1, .cnt = 1, .row = r};
        items += tdm_ceil_div(it->row[r].pos + 1, FIXED_TOK) * c->shape.nhead_kv;
    }
    tdm_pod_plan_build(&c->pod_config, c->row_seq, 0, it->row_cnt, TDM_ROUTE_DECODE_ONLY,
                       tdm_pod_blob(c->pod), &c->plan);
    if (c->plan.route != TDM_ROUTE_DECODE_ONLY || c->plan.item_cnt[TDM_KIND_DECODE] != items)
        tdm_cuda_note(c, cudaErrorNotSupported, "planning attention: no room for the fixed cut");
    it->route = it->plan->route;
}

static void plan_attention(tdm_cuda_t *c, tdm_engine_iter_t *it) {
    const tdm_plan_t *p = it->plan;
    tdm_pod_health_tick(&c->pod_config.state, p->iteration);
    if (c->config.is_deterministic) {
        plan_rows(c, it);
        return;
    }
    plan_fresh(c, it);
    uint32_t route = p->route == TDM_ROUTE_FUSED ? (uint32_t)TDM_POD_ROUTE_AUTO : p->route;
    if (!c->is_fresh)
        tdm_pod_plan_build(&c->pod_config, it->seq, p->slice_cnt, p->decode_cnt, route,
                           tdm_pod_blob(c->pod), &c->plan);
    it->route = c->plan.route;
    it->reason = c->plan.reason;
    if (c->plan.route == TDM_ROUTE_IDLE)
        tdm_cuda_note(c, cudaErrorNotSupported, "planning attention: no kernel takes the batch");
}

static void op_begin(void *ctx, tdm_engine_iter_t *it) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    c->is_replayed = 0;
    c->box = it->turn;
    tdm_pod_box(c->pod, c->box);
    c->rows = tdm_gemm_rows(it->row_cnt);
    c->wants = it->wanted_cnt ? tdm_gemm_rows(it->wanted_cnt) : 0;
    plan_attention(c, it);
    if (c->error) return;
    tdm_stages_begin(&c->stages[c->box], it->plan->iteration, c->stream);
    send(c, it);
    c->sent[c->box] = (cuda_sent_t){.seq = c->seq, .plan = c->plan, .is_fresh = c->is_fresh};
    CUDA_TRY(c, tdm_pod_upload(c->pod, &c->plan, c->stream), "sending the attention plan");
    mark(c, TDM_STAGE_COPY);
    cuda_sent_t *sent = &c->sent[c->box];
    sent->upload_sz = c->step_sz + c->plan.blob_sz;
    sent->queue_ns = tdm_clock_now_ns();
    if (c->stages[c->box].is_on) return;
    cudaGraphExec_t graph = tdm_cuda_graph(c, &sent->graph);
    if (!graph) return;
    CUDA_TRY(c, cudaGraphLaunch(graph, c->stream), "replaying an iteration");
    c->is_replayed = it->is_replayed = 1;
}

/* judge turns what the device counted into the house's words. */
static void judge(tdm_cuda_t *c, const tdm_engine_iter_t *it, tdm_attn_stats_t *stats) {
    const tdm_pod_plan_t *plan = &c->sent[it->turn].plan;
    tdm_pod_counters_t count;
    tdm_pod_counted(c->pod, plan, &count);
    int is_exact = tdm_pod_stats_add(plan, &count, c->shape.layer_cnt, stats);
    float slow_ns = plan->fused_us * SLOW_TIMES * 1e3f;
    uint64_t limit_ns = slow_ns > 0.0f ? (uint64_t)slow_ns + SLOW_NS : 0;
    (void)tdm_pod_health_judge(&c->pod_config.state, plan, 0, is_exact, count.wall_ns, limit_ns,
                               it->plan->iteration);
}

static tdm_status_t op_finish(void *ctx, const tdm_engine_iter_t *it, tdm_sample_out_t *out,
                              tdm_attn_stats_t *stats, tdm_error_t *err) {
    tdm_cuda_t *c = (tdm_cuda_t *)ctx;
    wait(c, it->turn);
    if (c->error) return tdm_cuda_failed(c, err);
    const tdm_step_drawn_t *drawn = c->host_drawn + (uint64_t)it->turn * c->want_max;
    for (uint32_t i = 0; i < it->wanted_cnt; i++) {
        const tdm_step_drawn_t *d = &drawn[i];
        out[i] = (tdm_sample_out_t){.token = d->token, .flags = d->flags, .logprob = d->logprob};
    }
    tdm_stages_read(&c->stages[it->turn], stats->stage_ns);
    if (c->end_ns) stats->idle_ns = c->mail[it->turn].start_ns - c->end_ns;
    c->end_ns = c->mail[it->turn].end_ns;
    judge(c, it, stats);
    if (c->sent[it->turn].is_fresh) stats->slot_cnt = c->fresh_max;
    stats->graph = c->sent[it->turn].graph;
    stats->queue_ns = c->sent[it->turn].queue_ns;
    stats->upload_bytes = c->sent[it->turn].upload_sz;
    stats->graph_cnt = c->graphs.cnt;
    stats->graph_bytes = c->graphs.sz;
    return TDM_OK;
}

const tdm_engine_ops_t tdm_cuda_ops = {.apply = op_apply,
                                       .begin = op_begin,
                                       .embed = op_embed,
                                       .qkv = op_qkv,
                                       .rope_append = op_rope_append,
                                       .attention = op_attention,
                                       .attn_out = op_attn_out,
                                       .ffn = op_ffn,
                                       .logits = op_logits,
                                       .sample = op_sample,
                                       .post = op_post,
                                       .finish = op_finish};
