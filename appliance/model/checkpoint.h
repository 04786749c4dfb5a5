/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_CHECKPOINT_H
#define TDM_MODEL_CHECKPOINT_H

/* A folder as Hugging Face's transformers writes it:

     config.json             the shape; every key that would change the
                             output is understood or refused by name
     generation_config.json  optional: more end tokens
     *.safetensors           the weights (safetensors.h)
     tokenizer.json, tokenizer_config.json, chat_template.jinja
                             read by appliance/tokenizer

   Weights are F32, F16 or BF16; of a layer's matrices also F8_E4M3 as the
   compressed-tensors library writes them (quantization_config with
   quant_method "compressed-tensors", format "float-quantized", weights of 8
   bits, type "float", strategy "channel" or "tensor"): beside X.weight lies
   X.weight_scale, one for each row or one for all, and a weight is code *
   scale.  How activations would be quantised is not looked at: ours are not.
   model.layers.N.self_attn.k_scale and v_scale, one number or one a KV head,
   are the scales of an fp8 KV cache.

   Only model_type "llama".  The rotary pairs of such a checkpoint are
   (i, i + head_dim/2) already, as ours are.  Boot time only. */

#include "appliance/abi/model.h"
#include "appliance/base/status.h"
#include "appliance/model/safetensors.h"

TDM_BEGIN_DECLS

#define TDM_CHECKPOINT_JSON_MAX (UINT64_C(1) << 20) /* bytes of a config file */
#define TDM_CHECKPOINT_EOS_MAX  (TDM_STOP_ID_MAX / 2)

/* What config.json and generation_config.json say. */
typedef struct tdm_checkpoint {
    tdm_shape_t shape;
    uint32_t eos_cnt;
    int32_t eos[TDM_CHECKPOINT_EOS_MAX]; /* those of config.json first */
} tdm_checkpoint_t;

/* tdm_checkpoint_read reads both files of a folder and checks the shape. */
TDM_MUST_USE tdm_status_t tdm_checkpoint_read(const char *folder, tdm_checkpoint_t *out,
                                              tdm_error_t *err);

/* tdm_checkpoint_parse does so for the text of a config.json. */
TDM_MUST_USE tdm_status_t tdm_checkpoint_parse(const char *text, uint64_t sz, tdm_checkpoint_t *out,
                                               tdm_error_t *err);

/* tdm_checkpoint_match compares every tensor with what the shape needs,
   both ways: one that no weight takes is refused by name. */
TDM_MUST_USE tdm_status_t tdm_checkpoint_match(const tdm_safetensors_t *s, const tdm_shape_t *shape,
                                               tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_MODEL_CHECKPOINT_H */
