/* SPDX-License-Identifier: Apache-2.0 */
/* Weights into device memory: through two pinned buffers, so that one is
   filled while the other is on its way; or drawn where they lie. */
#include <math.h>
#include <string.h>

#include "appliance/abi/dummy.h"
#include "appliance/base/rng.h"
#include "kernels/cuda/cuda_private.h"
#include "kernels/engine/kvscale.h"

#define BUFFER_SZ (UINT64_C(32) << 20)

typedef struct mover {
    tdm_cuda_t *c;
    uint8_t *buffer[2]; /* pinned */
    cudaEvent_t gone[2];
    uint32_t turn;
    uint64_t done, total;
    tdm_backend_progress_t *progress;
    void *ctx;
} mover_t;

/* One tensor of the model. */
typedef struct tensor {
    const void *from; /* on the host; unused of a dummy */
    void *to;
    uint64_t rows, cols;
    uint32_t number; /* of appliance/abi/dummy.h */
    uint32_t is_norm;
    uint32_t is_head;
    const float *from_scale; /* of fp8 */
    float *scale;            /* on the device, [rows]; NULL: no fp8 */
} tensor_t;

static void told(mover_t *m, uint64_t sz) {
    m->done += sz;
    if (m->progress) m->progress(m->ctx, m->done, m->total);
}

static void copy(mover_t *m, void *to, const void *from, uint64_t sz) {
    for (uint64_t off = 0; off < sz && !m->c->error; off += BUFFER_SZ) {
        uint64_t piece = TDM_MIN(sz - off, BUFFER_SZ);
        uint32_t i = m->turn++ % 2;
        CUDA_TRY(m->c, cudaEventSynchronize(m->gone[i]), "the upload of weights");
        memcpy(m->buffer[i], (const uint8_t *)from + off, piece);
        CUDA_TRY(m->c,
                 cudaMemcpyAsync((uint8_t *)to + off, m->buffer[i], piece, cudaMemcpyHostToDevice,
                                 m->c->stream),
                 "the upload of weights");
        CUDA_TRY(m->c, cudaEventRecord(m->gone[i], m->c->stream), "the upload of weights");
        told(m, piece);
    }
}

static void ones(mover_t *m, const tensor_t *t) {
    float one[1024];
    for (uint32_t i = 0; i < TDM_COUNT_OF(one); i++) one[i] = 1.0f;
    for (uint64_t at = 0; at < t->cols; at += TDM_COUNT_OF(one))
        copy(m, (float *)t->to + at, one, TDM_MIN(t->cols - at, TDM_COUNT_OF(one)) * sizeof *one);
}

static void draw(mover_t *m, const tensor_t *t) {
    uint64_t begin = tdm_rng_at(m->c->config.dummy_seed, t->number);
    void *to = t->scale ? m->c->wide : t->to;
    CUDA_TRY(m->c,
             tdm_rows_draw(begin, tdm_dummy_scale(t->cols), t->rows * t->cols,
                           t->is_head ? (uint32_t)t->cols : 0, to, m->c->stream),
             "drawing a dummy's weights");
    if (t->scale)
        CUDA_TRY(
            m->c,
            tdm_rows_code(to, (uint32_t)t->rows, (uint32_t)t->cols, t->to, t->scale, m->c->stream),
            "drawing a dummy's weights");
    told(m, t->rows * t->cols * (t->scale ? 1u : 2u));
}

static void move(mover_t *m, const tensor_t *t) {
    int is_dummy = m->c->config.dummy_seed != 0;
    if (t->is_norm && is_dummy) {
        ones(m, t);
    } else if (is_dummy) {
        draw(m, t);
    } else if (t->scale) {
        copy(m, t->to, t->from, t->rows * t->cols);
        copy(m, t->scale, t->from_scale, t->rows * sizeof *t->scale);
    } else {
        copy(m, t->to, t->from, t->rows * t->cols * (t->is_norm ? 4u : 2u));
    }
}

/* part gives matrix k of a layer, whose rows begin at row `first` of the
   matrix at `to` that products read. */
static tensor_t part(const mover_t *m, const tdm_layer_weights_t *from, const tdm_bf16_t *bf16,
                     uint32_t k, uint8_t *to, float *scale, uint64_t first, uint64_t rows,
                     uint64_t cols, uint32_t number) {
    int is_fp8 = m->c->weight_dtype == TDM_WEIGHT_FP8;
    uint64_t elem_sz = tdm_weight_dtype_sz(m->c->weight_dtype);
    return (tensor_t){.from = is_fp8 ? (const void *)from->fp8[k].code : bf16,
                      .to = to + first * cols * elem_sz,
                      .rows = rows,
                      .cols = cols,
                      .number = number,
                      .from_scale = from->fp8[k].scale,
                      .scale = is_fp8 ? scale + first : NULL};
}

static void move_layer(mover_t *m, uint32_t i, const tdm_layer_weights_t *f) {
    const tdm_shape_t *s = &m->c->shape;
    const cuda_layer_t *to = &m->c->layer[i];
    uint64_t hidden = s->hidden, ffn = s->ffn;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint32_t n = 1 + i * TDM_DUMMY_LAYER_CNT;
    float *const *scale = to->scale; /* of qkv, o, gate_up, down */
    const tensor_t all[] = {
        {.from = f->attn_norm,
         .to = to->attn_norm,
         .rows = 1,
         .cols = hidden,
         .number = n + TDM_DUMMY_ATTN_NORM,
         .is_norm = 1},
        part(m, f, f->wq, TDM_MATRIX_Q, to->qkv, scale[0], 0, q, hidden, n + TDM_DUMMY_Q),
        part(m, f, f->wk, TDM_MATRIX_K, to->qkv, scale[0], q, kv, hidden, n + TDM_DUMMY_K),
        part(m, f, f->wv, TDM_MATRIX_V, to->qkv, scale[0], q + kv, kv, hidden, n + TDM_DUMMY_V),
        part(m, f, f->wo, TDM_MATRIX_O, to->o, scale[1], 0, hidden, q, n + TDM_DUMMY_O),
        {.from = f->ffn_norm,
         .to = to->ffn_norm,
         .rows = 1,
         .cols = hidden,
         .number = n + TDM_DUMMY_FFN_NORM,
         .is_norm = 1},
        part(m, f, f->w_gate, TDM_MATRIX_GATE, to->gate_up, scale[2], 0, ffn, hidden,
             n + TDM_DUMMY_GATE),
        part(m, f, f->w_up, TDM_MATRIX_UP, to->gate_up, scale[2], ffn, ffn, hidden,
             n + TDM_DUMMY_UP),
        part(m, f, f->w_down, TDM_MATRIX_DOWN, to->down, scale[3], 0, hidden, ffn,
             n + TDM_DUMMY_DOWN),
    };
    for (uint32_t k = 0; k < TDM_COUNT_OF(all); k++) move(m, &all[k]);
}

static void move_all(mover_t *m, const tdm_weights_t *w) {
    const tdm_shape_t *s = &m->c->shape;
    uint32_t n = 1 + s->layer_cnt * TDM_DUMMY_LAYER_CNT;
    const tensor_t embed = {
        .from = w->embed, .to = m->c->embed, .rows = s->vocab, .cols = s->hidden};
    const tensor_t norm = {.from = w->out_norm,
                           .to = m->c->out_norm,
                           .rows = 1,
                           .cols = s->hidden,
                           .number = n,
                           .is_norm = 1};
    const tensor_t head = {.from = w->lm_head,
                           .to = m->c->head,
                           .rows = s->vocab,
                           .cols = s->hidden,
                           .number = n + 1,
                           .is_head = 1};
    move(m, &embed);
    for (uint32_t i = 0; i < s->layer_cnt; i++) move_layer(m, i, &w->layer[i]);
    move(m, &norm);
    if (!s->is_tied) move(m, &head);
}

/* fill_kv_scale: the scales of fp8 pages and their inverses, rounded once. */
static void fill_kv_scale(tdm_cuda_t *c, const tdm_weights_t *w) {
    float scale[4 * TDM_ATTN_HEAD_MAX];
    uint32_t n = c->shape.nhead_kv;
    for (uint32_t layer = 0; layer < c->shape.layer_cnt && !c->error; layer++) {
        tdm_kv_scale(w, c->config.dummy_seed, layer, scale, scale + n);
        for (uint32_t i = 0; i < 2 * n; i++) scale[2 * n + i] = 1.0f / scale[i];
        CUDA_TRY(c,
                 cudaMemcpy(c->layer[layer].kv_scale, scale, 4ull * n * sizeof *scale,
                            cudaMemcpyHostToDevice),
                 "the scales of fp8 pages");
    }
}

tdm_status_t tdm_cuda_weights(tdm_cuda_t *c, const tdm_weights_t *w,
                              tdm_backend_progress_t *progress, void *ctx, tdm_error_t *err) {
    mover_t m = {.c = c, .total = c->budget.weights, .progress = progress, .ctx = ctx};
    for (uint32_t i = 0; i < 2; i++) {
        CUDA_TRY(c, cudaMallocHost((void **)&m.buffer[i], BUFFER_SZ), "pinned memory");
        CUDA_TRY(c, cudaEventCreateWithFlags(&m.gone[i], cudaEventDisableTiming), "an event");
    }
    if (!c->error) move_all(&m, w);
    if (c->config.kv_dtype == TDM_KV_E4M3) fill_kv_scale(c, w);
    CUDA_TRY(c, cudaStreamSynchronize(c->stream), "the upload of weights");
    for (uint32_t i = 0; i < 2; i++) {
        if (m.gone[i]) (void)cudaEventDestroy(m.gone[i]);
        (void)cudaFreeHost(m.buffer[i]);
    }
    return tdm_cuda_failed(c, err);
}
