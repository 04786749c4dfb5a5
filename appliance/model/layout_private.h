/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_LAYOUT_PRIVATE_H
#define TDM_MODEL_LAYOUT_PRIVATE_H

/* The one list of a Llama model's tensors: name in a GGUF file and in a
   checkpoint of Hugging Face, rows and columns, place in tdm_weights_t.
   The readers, the checks and the dummies walk it; nothing else knows how many tensors a layer has.
   Order: embedding, layer 0, layer 1, ..., output norm, head (untied). */

#include "appliance/abi/model.h"
#include "appliance/base/arena.h"
#include "appliance/model/safetensors.h"

typedef enum tdm_item_kind {
    TDM_ITEM_MATRIX,
    TDM_ITEM_ROTARY, /* a matrix whose rows are rotary pairs */
    TDM_ITEM_NORM,   /* one float32 row */
    TDM_ITEM_HEAD,   /* the untied output head */
} tdm_item_kind_t;

typedef struct tdm_item {
    char name[48];
    char hf_name[64];
    tdm_item_kind_t kind;
    uint64_t rows; /* 1 for a norm */
    uint64_t cols;
    uint64_t sz;     /* bytes in the arena */
    uint64_t scale;  /* offset of an fp8 matrix's scales there; 0: no fp8 */
    uint32_t matrix; /* TDM_MATRIX_*, of a layer's; else TDM_MATRIX_CNT */
    uint32_t layer;  /* UINT32_MAX outside the layers */
    uint32_t field;  /* byte offset in tdm_weights_t or tdm_layer_weights_t */
} tdm_item_t;

/* tdm_item_cnt and tdm_item_get enumerate the tensors of a shape, with the
   bytes that they take as dtype. */
uint32_t tdm_item_cnt(const tdm_shape_t *shape);
void tdm_item_get(const tdm_shape_t *shape, tdm_weight_dtype_t dtype, uint32_t idx,
                  tdm_item_t *item);

/* tdm_item_take takes the item's memory and points w at it; NULL where
   the arena is full. */
void *tdm_item_take(const tdm_item_t *item, tdm_arena_t *arena, tdm_weights_t *w);

/* tdm_item_scale gives the scales that belong to an fp8 tensor of a
   checkpoint, tdm_layer_kv_scale those of a layer's fp8 KV cache; NULL: the
   checkpoint has none. */
const tdm_safetensor_t *tdm_item_scale(const tdm_safetensors_t *s, const tdm_item_t *item);
const tdm_safetensor_t *tdm_layer_kv_scale(const tdm_safetensors_t *s, uint32_t layer,
                                           uint32_t is_v);

#endif /* TDM_MODEL_LAYOUT_PRIVATE_H */
