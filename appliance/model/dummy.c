/* SPDX-License-Identifier: Apache-2.0 */
#include "appliance/model/dummy.h"

#include "appliance/abi/fp8.h"
#include "appliance/base/check.h"
#include "appliance/base/rng.h"
#include "appliance/model/dequant.h"
#include "appliance/model/layout_private.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    tdm_shape_t shape;
} known[] = {
    {"llama-3-8b",
     {.layer_cnt = 32,
      .hidden = 4096,
      .nhead_q = 32,
      .nhead_kv = 8,
      .head_dim = 128,
      .ffn = 14336,
      .vocab = 128256,
      .context = 8192,
      .rms_eps = 1e-5f,
      .rope_theta = 500000,
      .rope_factor = 1}},
    {"llama-2-7b",
     {.layer_cnt = 32,
      .hidden = 4096,
      .nhead_q = 32,
      .nhead_kv = 32,
      .head_dim = 128,
      .ffn = 11008,
      .vocab = 32000,
      .context = 4096,
      .rms_eps = 1e-5f,
      .rope_theta = 10000,
      .rope_factor = 1}},
    {"yi-6b",
     {.layer_cnt = 32,
      .hidden = 4096,
      .nhead_q = 32,
      .nhead_kv = 4,
      .head_dim = 128,
      .ffn = 11008,
      .vocab = 64000,
      .context = 4096,
      .rms_eps = 1e-5f,
      .rope_theta = 5000000,
      .rope_factor = 1}},
    {"tiny",
     {.layer_cnt = 2,
      .hidden = 128,
      .nhead_q = 4,
      .nhead_kv = 2,
      .head_dim = 64,
      .ffn = 256,
      .vocab = 512,
      .context = 4096,
      .rms_eps = 1e-5f,
      .rope_theta = 10000,
      .rope_factor = 1}},
};

/* context_of reads what stands behind the @; 0: it is no context. */
static uint32_t context_of(const char *s) {
    uint32_t n = 0, digits = 0;
    for (; s[digits] >= '0' && s[digits] <= '9' && digits < 7; digits++)
        n = n * 10 + (uint32_t)(s[digits] - '0');
    return s[digits] == 0 && n <= TDM_CONTEXT_MAX ? n : 0;
}

tdm_status_t tdm_dummy_shape(const char *name, tdm_shape_t *shape, tdm_error_t *err) {
    size_t len = strcspn(name, "@");
    for (uint32_t i = 0; i < TDM_COUNT_OF(known); i++) {
        if (strlen(known[i].name) != len || memcmp(known[i].name, name, len) != 0) continue;
        *shape = known[i].shape;
        if (name[len] == 0) return TDM_OK;
        shape->context = context_of(name + len + 1);
        if (shape->context) return TDM_OK;
        return tdm_error_set(err, TDM_ERR_INVAL,
                             "model: '%.40s': a context is a number from 1 to %u", name,
                             TDM_CONTEXT_MAX);
    }
    return tdm_error_set(err, TDM_ERR_NOT_FOUND,
                         "model: no dummy '%.40s'; there are %s, %s, %s and %s", name,
                         known[0].name, known[1].name, known[2].name, known[3].name);
}

uint32_t tdm_dummy_syllable(uint32_t id, char out[4]) {
    static const char onset[] = "bcdfghjklmnprstvwz";
    static const char nucleus[][3] = {"a",  "e",  "i",  "o",  "u",  "ai", "ea",
                                      "ie", "oa", "ou", "ay", "ee", "oo", "y"};
    uint32_t k = (id - TDM_DUMMY_SYLLABLE) % (uint32_t)((sizeof onset - 1) * TDM_COUNT_OF(nucleus));
    const char *n = nucleus[k % TDM_COUNT_OF(nucleus)];
    out[0] = onset[k / TDM_COUNT_OF(nucleus)];
    out[1] = n[0];
    out[2] = n[1];
    out[3] = 0;
    return n[1] ? 3 : 2;
}

/* draw_row draws row r of a matrix: uniform weights of standard deviation
   1/sqrt(cols), so that activations keep their size from layer to layer:
   int16 draws times a scale, four to a step of the generator.  cols is a
   multiple of four. */
static void draw_row(uint64_t begin, uint64_t r, uint64_t cols, tdm_bf16_t *dst) {
    float scale = tdm_dummy_scale(cols);
    TDM_CHECK(cols % 4 == 0);
    for (uint64_t i = 0; i < cols; i += 4) {
        uint64_t bits = tdm_dummy_bits(begin, (r * cols + i) / 4);
        for (uint32_t k = 0; k < 4; k++)
            dst[i + k] = tdm_bf16_from_f32(tdm_dummy_value(bits, k, scale));
    }
}

#define COLS_MAX 32768 /* of a known shape's matrix */

static void fill_matrix(uint64_t begin, const tdm_item_t *item, uint8_t *dst) {
    static tdm_bf16_t drawn[COLS_MAX];
    static float row[COLS_MAX];
    float *scale = (float *)(void *)(dst + item->scale);
    TDM_CHECK(item->cols <= COLS_MAX);
    for (uint64_t r = 0; r < item->rows; r++) {
        if (!item->scale) {
            draw_row(begin, r, item->cols, (tdm_bf16_t *)(void *)dst + r * item->cols);
            continue;
        }
        draw_row(begin, r, item->cols, drawn);
        for (uint64_t i = 0; i < item->cols; i++) row[i] = tdm_f32_from_bf16(drawn[i]);
        scale[r] = tdm_fp8_row(row, item->cols, dst + r * item->cols);
    }
}

tdm_status_t tdm_dummy_fill(const tdm_shape_t *shape, uint64_t seed, tdm_weight_dtype_t dtype,
                            tdm_arena_t *arena, tdm_progress_fn progress, void *ctx,
                            tdm_weights_t *w, tdm_error_t *err) {
    memset(w, 0, sizeof *w);
    w->shape = *shape;
    w->dtype = dtype;
    uint64_t done_sz = 0, total_sz = tdm_weights_sz(shape, dtype);
    for (uint32_t i = 0; i < tdm_item_cnt(shape); i++) {
        tdm_item_t item;
        tdm_item_get(shape, dtype, i, &item);
        void *dst = tdm_item_take(&item, arena, w);
        if (!dst)
            return tdm_error_set(err, TDM_ERR_NOMEM, "model: the arena ends at tensor %s",
                                 item.name);
        if (item.kind == TDM_ITEM_NORM)
            for (uint64_t k = 0; k < item.cols; k++) ((float *)dst)[k] = 1.0f;
        else
            fill_matrix(tdm_rng_at(seed, i), &item, dst);
        if (item.kind == TDM_ITEM_HEAD)
            for (uint64_t id = 0; id < item.rows; id++)
                if (!tdm_dummy_prints(id))
                    memset((tdm_bf16_t *)dst + id * item.cols, 0, item.cols * sizeof(tdm_bf16_t));
        done_sz = TDM_MIN(done_sz + item.sz, total_sz);
        if (progress) progress(ctx, done_sz, total_sz);
    }
    if (shape->is_tied) w->lm_head = w->embed;
    if (progress) progress(ctx, total_sz, total_sz);
    return TDM_OK;
}
