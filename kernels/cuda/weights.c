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
    CUDA_TRY(m->c,
             tdm_rows_draw(begin, tdm_dummy_scale(t->cols), t->rows * t->cols,
                           t->is_head ? (uint32_t)t->cols : 0, t->to, m->c->stream),
             "drawing a dummy's weights");
    told(m, t->rows * t->cols * 2);
}

static void move(mover_t *m, const tensor_t *t) {
    int is_dummy = m->c->config.dummy_seed != 0;
    if (t->is_norm && is_dummy) {
        ones(m, t);
    } else if (is_dummy) {
        draw(m, t);
    } else {
        copy(m, t->to, t->from, t->rows * t->cols * (t->is_norm ? 4u : 2u));
    }
}

static void move_layer(mover_t *m, uint32_t i, const tdm_layer_weights_t *from) {
    const tdm_shape_t *s = &m->c->shape;
    const cuda_layer_t *to = &m->c->layer[i];
    uint64_t hidden = s->hidden, ffn = s->ffn;
    uint64_t q = (uint64_t)s->nhead_q * s->head_dim, kv = (uint64_t)s->nhead_kv * s->head_dim;
    uint32_t n = 1 + i * TDM_DUMMY_LAYER_CNT;
    const tensor_t all[] = {
        {from->attn_norm, to->attn_norm, 1, hidden, n + TDM_DUMMY_ATTN_NORM, 1, 0},
        {from->wq, to->qkv, q, hidden, n + TDM_DUMMY_Q, 0, 0},
        {from->wk, to->qkv + q * hidden * 2, kv, hidden, n + TDM_DUMMY_K, 0, 0},
        {from->wv, to->qkv + (q + kv) * hidden * 2, kv, hidden, n + TDM_DUMMY_V, 0, 0},
        {from->wo, to->o, hidden, q, n + TDM_DUMMY_O, 0, 0},
        {from->ffn_norm, to->ffn_norm, 1, hidden, n + TDM_DUMMY_FFN_NORM, 1, 0},
        {from->w_gate, to->gate_up, ffn, hidden, n + TDM_DUMMY_GATE, 0, 0},
        {from->w_up, to->gate_up + ffn * hidden * 2, ffn, hidden, n + TDM_DUMMY_UP, 0, 0},
        {from->w_down, to->down, hidden, ffn, n + TDM_DUMMY_DOWN, 0, 0},
    };
    for (uint32_t k = 0; k < TDM_COUNT_OF(all); k++) move(m, &all[k]);
}

static void move_all(mover_t *m, const tdm_weights_t *w) {
    const tdm_shape_t *s = &m->c->shape;
    uint32_t n = 1 + s->layer_cnt * TDM_DUMMY_LAYER_CNT;
    const tensor_t embed = {w->embed, m->c->embed, s->vocab, s->hidden, 0, 0, 0};
    const tensor_t norm = {w->out_norm, m->c->out_norm, 1, s->hidden, n, 1, 0};
    const tensor_t head = {w->lm_head, m->c->head, s->vocab, s->hidden, n + 1, 0, 1};
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
