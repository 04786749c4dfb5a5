/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/weights.h"

#include "appliance/abi/fp8.h"
#include "appliance/base/check.h"
#include "appliance/base/size.h"
#include "appliance/model/dequant.h"
#include "appliance/model/layout_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* half_split_row tells where row r of a rotary matrix goes: the file keeps
   the two rows of a pair side by side, the kernels half a head apart. */
static uint64_t half_split_row(uint64_t r, uint32_t head_dim) {
    uint64_t in_head = r % head_dim;
    return r - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
}

/* round_row rounds one row; 0 where a weight is or becomes non-finite. */
static int round_row(const float *src, uint64_t cnt, tdm_bf16_t *dst) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < cnt; i++) {
        dst[i] = tdm_bf16_from_f32(src[i]);
        bad |= (dst[i] & 0x7f80u) == 0x7f80u;
    }
    return bad == 0;
}

static int round_norm(const float *src, uint64_t cnt, float *dst) {
    int is_finite = 1;
    for (uint64_t i = 0; i < cnt; i++) {
        tdm_bf16_t v = tdm_bf16_from_f32(src[i]);
        dst[i] = tdm_f32_from_bf16(v);
        is_finite &= (v & 0x7f80u) != 0x7f80u;
    }
    return is_finite;
}

/* code_row rounds one row to bf16 in place and makes codes of it. */
static int code_row(float *row, const tdm_item_t *item, uint64_t to, uint8_t *dst) {
    float *scale = (float *)(void *)(dst + item->scale);
    if (!round_norm(row, item->cols, row)) return 0;
    scale[to] = tdm_fp8_row(row, item->cols, dst + to * item->cols);
    return 1;
}

/* source is one tensor of either kind of file, its shape already checked. */
typedef struct source {
    uint32_t dtype;
    const uint8_t *bytes;
    uint64_t sz;
    int is_paired;                 /* rotary rows lie side by side */
    const tdm_safetensor_t *scale; /* of TDM_SAFETENSORS_F8 */
} source_t;

typedef source_t find_fn(const void *file, const tdm_item_t *item);

static source_t find_gguf(const void *file, const tdm_item_t *item) {
    const tdm_gguf_tensor_t *t = tdm_gguf_tensor(file, item->name);
    TDM_CHECK(t && t->dim[0] == item->cols && t->dim[1] == item->rows);
    return (source_t){.dtype = t->dtype, .bytes = t->bytes, .sz = t->sz, .is_paired = 1};
}

static source_t find_safetensor(const void *file, const tdm_item_t *item) {
    const tdm_safetensor_t *t = tdm_safetensors_find(file, item->hf_name);
    TDM_CHECK(t && t->dim[t->dim_cnt - 1] == item->cols && t->sz % item->rows == 0);
    const tdm_safetensor_t *scale =
        t->dtype == TDM_SAFETENSORS_F8 ? tdm_item_scale(file, item) : NULL;
    return (source_t){.dtype = t->dtype, .bytes = t->bytes, .sz = t->sz, .scale = scale};
}

/* number gives the i-th of a tensor of one number or many; 0 where it is not
   positive and finite. */
static float number(const tdm_safetensor_t *t, uint64_t i) {
    uint32_t elem_cnt, elem_sz;
    float v;
    TDM_CHECK(tdm_dtype_block(t->dtype, &elem_cnt, &elem_sz));
    tdm_dequant_f32(t->dtype, t->bytes + (t->sz > elem_sz ? i * elem_sz : 0), 1, &v);
    return v > 0 && isfinite(v) ? v : 0;
}

/* load_codes takes a matrix that is fp8 in the file: as it is, or as bf16. */
static tdm_status_t load_codes(const source_t *t, const tdm_item_t *item, float *row, void *dst,
                               tdm_error_t *err) {
    uint32_t bad = 0;
    for (uint64_t r = 0; r < item->rows; r++) {
        const uint8_t *code = t->bytes + r * item->cols;
        float scale = number(t->scale, r);
        if (scale == 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: tensor %s_scale has a number that is not positive",
                                 item->hf_name);
        for (uint64_t i = 0; i < item->cols; i++) {
            bad |= (code[i] & 0x7fu) == 0x7fu;
            row[i] = tdm_f32_from_fp8(code[i]) * scale;
        }
        if (item->scale) {
            memcpy((uint8_t *)dst + r * item->cols, code, item->cols);
            ((float *)(void *)((uint8_t *)dst + item->scale))[r] = scale;
        } else {
            bad |= !round_row(row, item->cols, (tdm_bf16_t *)dst + r * item->cols);
        }
    }
    if (!bad) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor %s has a weight that is not finite",
                         item->hf_name);
}

static tdm_status_t load_item(const source_t *t, const tdm_item_t *item, const tdm_shape_t *shape,
                              float *row, void *dst, tdm_error_t *err) {
    uint64_t row_sz = t->sz / item->rows;
    int is_moved = item->kind == TDM_ITEM_ROTARY && t->is_paired;
    int is_finite = 1;
    if (t->dtype == TDM_SAFETENSORS_F8) return load_codes(t, item, row, dst, err);
    for (uint64_t r = 0; is_finite && r < item->rows; r++) {
        tdm_dequant_f32(t->dtype, t->bytes + r * row_sz, item->cols, row);
        if (item->kind == TDM_ITEM_NORM) {
            is_finite = round_norm(row, item->cols, dst);
            continue;
        }
        uint64_t to = is_moved ? half_split_row(r, shape->head_dim) : r;
        is_finite = item->scale ? code_row(row, item, to, dst)
                                : round_row(row, item->cols, (tdm_bf16_t *)dst + to * item->cols);
    }
    if (is_finite) return TDM_OK;
    return tdm_error_set(err, TDM_ERR_CORRUPT, "model: tensor %s has a weight that is not finite",
                         t->is_paired ? item->name : item->hf_name);
}

static tdm_status_t load_all(find_fn *find, const void *file, const tdm_shape_t *shape,
                             tdm_weight_dtype_t dtype, tdm_arena_t *arena, tdm_progress_fn progress,
                             void *ctx, tdm_weights_t *w, tdm_error_t *err) {
    memset(w, 0, sizeof *w);
    w->shape = *shape;
    w->dtype = dtype;
    uint32_t cols_max = TDM_MAX(shape->hidden, shape->ffn);
    cols_max = TDM_MAX(cols_max, shape->nhead_q * shape->head_dim);
    float *row = malloc((uint64_t)cols_max * sizeof *row);
    if (!row) return tdm_error_set(err, TDM_ERR_NOMEM, "model: no memory for a row");

    uint64_t done_sz = 0, total_sz = tdm_weights_sz(shape, dtype);
    tdm_status_t st = TDM_OK;
    for (uint32_t i = 0; st == TDM_OK && i < tdm_item_cnt(shape); i++) {
        tdm_item_t item;
        tdm_item_get(shape, dtype, i, &item);
        source_t t = find(file, &item);
        void *dst = tdm_item_take(&item, arena, w);
        if (!dst) {
            st = tdm_error_set(err, TDM_ERR_NOMEM, "model: the arena ends at tensor %s", item.name);
            break;
        }
        st = load_item(&t, &item, shape, row, dst, err);
        done_sz = TDM_MIN(done_sz + item.sz, total_sz);
        if (progress) progress(ctx, done_sz, total_sz);
    }
    free(row);
    if (shape->is_tied) w->lm_head = w->embed;
    if (st == TDM_OK && progress) progress(ctx, total_sz, total_sz);
    return st;
}

tdm_status_t tdm_weights_load(const tdm_gguf_t *g, const tdm_shape_t *shape,
                              tdm_weight_dtype_t dtype, tdm_arena_t *arena,
                              tdm_progress_fn progress, void *ctx, tdm_weights_t *w,
                              tdm_error_t *err) {
    return load_all(find_gguf, g, shape, dtype, arena, progress, ctx, w, err);
}

/* load_kv_scale takes one layer's scales of K or V, where there are any. */
static tdm_status_t load_kv_scale(const tdm_safetensors_t *s, uint32_t layer, uint32_t is_v,
                                  tdm_arena_t *arena, tdm_weights_t *w, tdm_error_t *err) {
    const tdm_safetensor_t *t = tdm_layer_kv_scale(s, layer, is_v);
    uint32_t cnt = w->shape.nhead_kv;
    if (!t) return TDM_OK;
    float *scale = tdm_arena_take(arena, cnt * sizeof *scale, TDM_CACHE_LINE);
    if (!scale)
        return tdm_error_set(err, TDM_ERR_NOMEM, "model: the arena ends at a KV cache's scales");
    for (uint32_t h = 0; h < cnt; h++) {
        scale[h] = number(t, h);
        if (scale[h] == 0)
            return tdm_error_set(err, TDM_ERR_CORRUPT,
                                 "model: tensor %.*s has a number that is not positive",
                                 (int)TDM_MIN(t->name_sz, 80u), t->name);
    }
    if (is_v)
        w->layer[layer].v_scale = scale;
    else
        w->layer[layer].k_scale = scale;
    return TDM_OK;
}

uint64_t tdm_weights_kv_scale_sz(const tdm_shape_t *shape) {
    uint64_t one = tdm_size_align(shape->nhead_kv * sizeof(float), TDM_CACHE_LINE);
    return 2 * shape->layer_cnt * one + TDM_CACHE_LINE;
}

tdm_status_t tdm_weights_load_checkpoint(const tdm_safetensors_t *s, const tdm_shape_t *shape,
                                         tdm_weight_dtype_t dtype, tdm_arena_t *arena,
                                         tdm_progress_fn progress, void *ctx, tdm_weights_t *w,
                                         tdm_error_t *err) {
    tdm_status_t st = load_all(find_safetensor, s, shape, dtype, arena, progress, ctx, w, err);
    for (uint32_t i = 0; st == TDM_OK && i < 2 * shape->layer_cnt; i++)
        st = load_kv_scale(s, i / 2, i % 2, arena, w, err);
    return st;
}
