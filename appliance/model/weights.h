/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_WEIGHTS_H
#define TDM_MODEL_WEIGHTS_H

/* From a checked GGUF file or checkpoint of the Llama family to the
   tdm_weights_t that the kernels walk; both give the same bits.

     metadata  -> tdm_shape_t             every key that would change the
                                          output is understood or refused
     tensors   -> float32 -> bf16         into one arena, in layer order
               -> fp8                     where asked for: a layer's matrices,
                                          from their bf16 values, one scale a
                                          row (appliance/abi/fp8.h)
     Q, K rows -> half-split order        a GGUF file holds rotary pairs
                                          side by side (2i, 2i+1); ours and
                                          a checkpoint's are
                                          (i, i + head_dim/2)

   A tensor of the file that no weight takes is refused by name, so that a
   bias or an adapter is never silently left out.  Non-finite weights are
   refused as well.  Boot time only. */

#include "appliance/abi/model.h"
#include "appliance/base/arena.h"
#include "appliance/base/status.h"
#include "appliance/model/gguf.h"
#include "appliance/model/safetensors.h"

TDM_BEGIN_DECLS

/* tdm_progress_fn is told, in bytes of the arena, how much of the model is
   ready; called at least once per layer from the loading thread. */
typedef void (*tdm_progress_fn)(void *ctx, uint64_t done_sz, uint64_t total_sz);

/* tdm_shape_check says whether a shape is one that this house can run;
   the sentence names the field. */
TDM_MUST_USE tdm_status_t tdm_shape_check(const tdm_shape_t *s, tdm_error_t *err);

/* tdm_shape_from_gguf reads and checks the shape, rotary scaling included.
   UNSUPPORTED, with its name, for an architecture other than "llama" and
   for any variant of it that is not implemented. */
TDM_MUST_USE tdm_status_t tdm_shape_from_gguf(const tdm_gguf_t *g, tdm_shape_t *shape,
                                              tdm_error_t *err);

/* tdm_weights_sz gives the bytes of arena that a checked shape takes. */
uint64_t tdm_weights_sz(const tdm_shape_t *shape, tdm_weight_dtype_t dtype);

/* tdm_weights_kv_scale_sz: what a checkpoint's scales of an fp8 KV cache take
   besides. */
uint64_t tdm_weights_kv_scale_sz(const tdm_shape_t *shape);

/* tdm_weights_load fills *w from g; the memory comes from arena, which
   must outlive it.  progress may be NULL. */
TDM_MUST_USE tdm_status_t tdm_weights_load(const tdm_gguf_t *g, const tdm_shape_t *shape,
                                           tdm_weight_dtype_t dtype, tdm_arena_t *arena,
                                           tdm_progress_fn progress, void *ctx, tdm_weights_t *w,
                                           tdm_error_t *err);

/* tdm_weights_load_checkpoint does the same for tensors that
   tdm_checkpoint_match has found right.  fp8 matrices keep codes and scales
   where dtype is fp8, and are code * scale, rounded to bf16, where not. */
TDM_MUST_USE tdm_status_t tdm_weights_load_checkpoint(const tdm_safetensors_t *s,
                                                      const tdm_shape_t *shape,
                                                      tdm_weight_dtype_t dtype, tdm_arena_t *arena,
                                                      tdm_progress_fn progress, void *ctx,
                                                      tdm_weights_t *w, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_MODEL_WEIGHTS_H */
