/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_MODEL_H
#define TDM_ABI_MODEL_H

/* Written by appliance/model, read by kernels and by whoever asks a
   model's shape.  Llama family: RMSNorm, rotary positions, grouped-query
   attention, SwiGLU.

   Weights are bf16 (raw uint16_t bits), row-major [out, in], contiguous; of
   a model in fp8 those of a layer's matrices are e4m3 codes of the same
   layout (fp8.h), a weight being code * scale of its row, while embedding
   and head stay bf16.
   Norm weights are float32 holding bf16-rounded values.  Rotary pairs are
   (i, i + head_dim/2), the half-split order of Hugging Face; a reader of
   another order permutes rows at load.  All pointers live as long as the
   tdm_weights_t's owner (appliance/model). */

#include "appliance/abi/limits.h"
#include "appliance/base/attr.h"

typedef uint16_t tdm_bf16_t;

typedef enum tdm_weight_dtype {
    TDM_WEIGHT_BF16,
    TDM_WEIGHT_FP8,
    TDM_WEIGHT_DTYPE_CNT
} tdm_weight_dtype_t;

/* tdm_weight_dtype_sz: bytes of one weight, without its part of a scale. */
static inline uint64_t tdm_weight_dtype_sz(uint32_t dtype) {
    return dtype == TDM_WEIGHT_FP8 ? 1u : sizeof(tdm_bf16_t);
}

/* The matrices of a layer. */
enum {
    TDM_MATRIX_Q,
    TDM_MATRIX_K,
    TDM_MATRIX_V,
    TDM_MATRIX_O,
    TDM_MATRIX_GATE,
    TDM_MATRIX_UP,
    TDM_MATRIX_DOWN,
    TDM_MATRIX_CNT
};

typedef struct tdm_fp8_matrix {
    const uint8_t *code; /* [out, in] */
    const float *scale;  /* [out], positive */
} tdm_fp8_matrix_t;

typedef enum tdm_rope_kind {
    TDM_ROPE_PLAIN,
    TDM_ROPE_LINEAR, /* positions divided by factor */
    TDM_ROPE_LLAMA3, /* frequency-dependent scaling of Llama 3.1 */
} tdm_rope_kind_t;

typedef struct tdm_shape {
    uint32_t layer_cnt;
    uint32_t hidden;  /* width of the residual stream */
    uint32_t nhead_q; /* multiple of nhead_kv */
    uint32_t nhead_kv;
    uint32_t head_dim; /* even; nhead_q * head_dim may differ from hidden */
    uint32_t ffn;      /* width of the SwiGLU */
    uint32_t vocab;    /* rows of the embedding */
    uint32_t context;  /* tokens the model was trained for */
    uint32_t is_tied;  /* lm_head is the embedding */
    float rms_eps;
    float rope_theta;
    uint32_t rope_kind; /* tdm_rope_kind_t */
    float rope_factor;
    float rope_low_freq_factor;     /* LLAMA3 only */
    float rope_high_freq_factor;    /* LLAMA3 only */
    uint32_t rope_original_context; /* LLAMA3 only */
} tdm_shape_t;

typedef struct tdm_layer_weights {
    const float *attn_norm;   /* [hidden] */
    const tdm_bf16_t *wq;     /* [nhead_q * head_dim, hidden] */
    const tdm_bf16_t *wk;     /* [nhead_kv * head_dim, hidden] */
    const tdm_bf16_t *wv;     /* [nhead_kv * head_dim, hidden] */
    const tdm_bf16_t *wo;     /* [hidden, nhead_q * head_dim] */
    const float *ffn_norm;    /* [hidden] */
    const tdm_bf16_t *w_gate; /* [ffn, hidden] */
    const tdm_bf16_t *w_up;   /* [ffn, hidden] */
    const tdm_bf16_t *w_down; /* [hidden, ffn] */
    const float *k_scale;     /* [nhead_kv] of an fp8 KV cache; NULL: the checkpoint has none */
    const float *v_scale;     /* [nhead_kv] likewise */
    /* of TDM_WEIGHT_FP8, where wq to w_down are NULL; shapes as theirs */
    tdm_fp8_matrix_t fp8[TDM_MATRIX_CNT];
} tdm_layer_weights_t;

typedef struct tdm_weights {
    tdm_shape_t shape;
    uint32_t dtype;                           /* tdm_weight_dtype_t */
    const tdm_bf16_t *embed;                  /* [vocab, hidden] */
    const float *out_norm;                    /* [hidden] */
    const tdm_bf16_t *lm_head;                /* [vocab, hidden]; == embed where tied */
    tdm_layer_weights_t layer[TDM_LAYER_MAX]; /* [layer_cnt] used */
} tdm_weights_t;

#endif /* TDM_ABI_MODEL_H */
