/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/base/check.h"
#include "appliance/base/size.h"
#include "appliance/model/layout_private.h"
#include "appliance/model/weights.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum dim { ONE, HIDDEN, QUERY, KEY, FFN } dim_t;

typedef struct row {
    const char *name; /* of the tensor, after "blk.<layer>." */
    const char *hf;   /* after "model.layers.<layer>." */
    tdm_item_kind_t kind;
    dim_t rows, cols;
    uint32_t field;
} row_t;

#define FIELD(f) (uint32_t) offsetof(tdm_layer_weights_t, f)
static const row_t layer_row[] = {
    {"attn_norm", "input_layernorm", TDM_ITEM_NORM, ONE, HIDDEN, FIELD(attn_norm)},
    {"attn_q", "self_attn.q_proj", TDM_ITEM_ROTARY, QUERY, HIDDEN, FIELD(wq)},
    {"attn_k", "self_attn.k_proj", TDM_ITEM_ROTARY, KEY, HIDDEN, FIELD(wk)},
    {"attn_v", "self_attn.v_proj", TDM_ITEM_MATRIX, KEY, HIDDEN, FIELD(wv)},
    {"attn_output", "self_attn.o_proj", TDM_ITEM_MATRIX, HIDDEN, QUERY, FIELD(wo)},
    {"ffn_norm", "post_attention_layernorm", TDM_ITEM_NORM, ONE, HIDDEN, FIELD(ffn_norm)},
    {"ffn_gate", "mlp.gate_proj", TDM_ITEM_MATRIX, FFN, HIDDEN, FIELD(w_gate)},
    {"ffn_up", "mlp.up_proj", TDM_ITEM_MATRIX, FFN, HIDDEN, FIELD(w_up)},
    {"ffn_down", "mlp.down_proj", TDM_ITEM_MATRIX, HIDDEN, FFN, FIELD(w_down)},
};
#undef FIELD
#define LAYER_ROW_CNT ((uint32_t)TDM_COUNT_OF(layer_row))

static uint64_t dim_of(const tdm_shape_t *s, dim_t d) {
    switch (d) {
    case HIDDEN: return s->hidden;
    case QUERY: return (uint64_t)s->nhead_q * s->head_dim;
    case KEY: return (uint64_t)s->nhead_kv * s->head_dim;
    case FFN: return s->ffn;
    case ONE: break;
    }
    return 1;
}

uint32_t tdm_item_cnt(const tdm_shape_t *shape) {
    return 2 + shape->layer_cnt * LAYER_ROW_CNT + !shape->is_tied;
}

/* matrix_of: a row of layer_row as TDM_MATRIX_*. */
static uint32_t matrix_of(uint32_t row) {
    static const uint32_t of[] = {TDM_MATRIX_CNT,  TDM_MATRIX_Q,  TDM_MATRIX_K,
                                  TDM_MATRIX_V,    TDM_MATRIX_O,  TDM_MATRIX_CNT,
                                  TDM_MATRIX_GATE, TDM_MATRIX_UP, TDM_MATRIX_DOWN};
    _Static_assert(sizeof of / sizeof *of == LAYER_ROW_CNT, "one for each row");
    return of[row];
}

void tdm_item_get(const tdm_shape_t *shape, tdm_weight_dtype_t dtype, uint32_t idx,
                  tdm_item_t *item) {
    uint32_t cnt = tdm_item_cnt(shape);
    TDM_CHECK(idx < cnt);
    memset(item, 0, sizeof *item);
    item->matrix = TDM_MATRIX_CNT;
    uint32_t layers_end = 1 + shape->layer_cnt * LAYER_ROW_CNT;
    if (idx > 0 && idx < layers_end) {
        const row_t *r = &layer_row[(idx - 1) % LAYER_ROW_CNT];
        item->layer = (idx - 1) / LAYER_ROW_CNT;
        (void)snprintf(item->name, sizeof item->name, "blk.%u.%s.weight", item->layer, r->name);
        (void)snprintf(item->hf_name, sizeof item->hf_name, "model.layers.%u.%s.weight",
                       item->layer, r->hf);
        item->kind = r->kind;
        item->rows = dim_of(shape, r->rows);
        item->cols = dim_of(shape, r->cols);
        item->field = r->field;
        item->matrix = matrix_of((idx - 1) % LAYER_ROW_CNT);
    } else {
        const char *name = "token_embd.weight", *hf = "model.embed_tokens.weight";
        item->layer = UINT32_MAX;
        item->kind = TDM_ITEM_MATRIX;
        item->rows = shape->vocab;
        item->cols = shape->hidden;
        item->field = (uint32_t)offsetof(tdm_weights_t, embed);
        if (idx == layers_end) {
            name = "output_norm.weight";
            hf = "model.norm.weight";
            item->kind = TDM_ITEM_NORM;
            item->rows = 1;
            item->field = (uint32_t)offsetof(tdm_weights_t, out_norm);
        } else if (idx > layers_end) {
            name = "output.weight";
            hf = "lm_head.weight";
            item->kind = TDM_ITEM_HEAD;
            item->field = (uint32_t)offsetof(tdm_weights_t, lm_head);
        }
        (void)snprintf(item->name, sizeof item->name, "%s", name);
        (void)snprintf(item->hf_name, sizeof item->hf_name, "%s", hf);
    }
    uint64_t elem_sz = item->kind == TDM_ITEM_NORM ? sizeof(float) : sizeof(tdm_bf16_t);
    item->sz = item->rows * item->cols * elem_sz;
    if (dtype != TDM_WEIGHT_FP8 || item->matrix == TDM_MATRIX_CNT) return;
    item->scale = tdm_size_align(item->rows * item->cols, TDM_CACHE_LINE);
    item->sz = item->scale + item->rows * sizeof(float);
}

void *tdm_item_take(const tdm_item_t *item, tdm_arena_t *arena, tdm_weights_t *w) {
    void *p = tdm_arena_take(arena, item->sz, TDM_CACHE_LINE);
    if (!p) return NULL;
    if (item->scale) {
        w->layer[item->layer].fp8[item->matrix] = (tdm_fp8_matrix_t){
            .code = (uint8_t *)p, .scale = (float *)(void *)((uint8_t *)p + item->scale)};
        return p;
    }
    char *base = item->layer == UINT32_MAX ? (char *)w : (char *)&w->layer[item->layer];
    memcpy(base + item->field, &p, sizeof p);
    return p;
}

uint64_t tdm_weights_sz(const tdm_shape_t *shape, tdm_weight_dtype_t dtype) {
    uint64_t sz = 0;
    for (uint32_t i = 0; i < tdm_item_cnt(shape); i++) {
        tdm_item_t item;
        tdm_item_get(shape, dtype, i, &item);
        sz = tdm_size_align(sz, TDM_CACHE_LINE) + item.sz;
    }
    return sz;
}

const tdm_safetensor_t *tdm_item_scale(const tdm_safetensors_t *s, const tdm_item_t *item) {
    char name[sizeof item->hf_name + 8];
    (void)snprintf(name, sizeof name, "%s_scale", item->hf_name);
    return tdm_safetensors_find(s, name);
}

const tdm_safetensor_t *tdm_layer_kv_scale(const tdm_safetensors_t *s, uint32_t layer,
                                           uint32_t is_v) {
    char name[64];
    (void)snprintf(name, sizeof name, "model.layers.%u.self_attn.%s", layer,
                   is_v ? "v_scale" : "k_scale");
    return tdm_safetensors_find(s, name);
}
