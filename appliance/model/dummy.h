/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_DUMMY_H
#define TDM_MODEL_DUMMY_H

/* Models without a file: the shape of a known model, weights drawn from a
   seed.  They take the memory and the time of the real one and say
   nothing sensible; tests and latency figures need no more.

     llama-3-8b   32 layers, hidden 4096, 32/8 heads of 128, vocab 128256
     llama-2-7b   32 layers, hidden 4096, 32/32 heads of 128, vocab 32000
     yi-6b        32 layers, hidden 4096, 32/4 heads of 128, vocab 64000
     tiny          2 layers, hidden 128, 4/2 heads of 64, vocab 512

   All read text as bytes (see tokenizer.h): ids 0..255 are bytes, the next
   four are special, every further id is a syllable.  The output head is
   untied and zero for ids that do not print, so greedy text is printable,
   varied, and never ends by itself. */

#include "appliance/abi/dummy.h"
#include "appliance/abi/model.h"
#include "appliance/base/arena.h"
#include "appliance/base/status.h"
#include "appliance/model/weights.h"

TDM_BEGIN_DECLS

#define TDM_DUMMY_BOS   256 /* begin of text */
#define TDM_DUMMY_EOS   257 /* end of text */
#define TDM_DUMMY_START 258 /* <|im_start|> */
#define TDM_DUMMY_END   259 /* <|im_end|> */

/* tdm_dummy_shape: a name, and after an @ the context if another is wanted, 1
   to TDM_CONTEXT_MAX tokens ("llama-3-8b@131072"): random weights know no
   length, and long traces want one.  NOT_FOUND, listing the names, for an
   unknown one; INVAL for a context that is none. */
TDM_MUST_USE tdm_status_t tdm_dummy_shape(const char *name, tdm_shape_t *shape, tdm_error_t *err);

/* tdm_dummy_fill draws *w for shape; the same seed gives the same bits on
   every machine.  Arena and progress as in tdm_weights_load. */
TDM_MUST_USE tdm_status_t tdm_dummy_fill(const tdm_shape_t *shape, uint64_t seed,
                                         tdm_weight_dtype_t dtype, tdm_arena_t *arena,
                                         tdm_progress_fn progress, void *ctx, tdm_weights_t *w,
                                         tdm_error_t *err);

/* tdm_dummy_syllable writes the text of an id >= TDM_DUMMY_SYLLABLE, two
   to three letters, and gives its length. */
uint32_t tdm_dummy_syllable(uint32_t id, char out[4]);

TDM_END_DECLS

#endif /* TDM_MODEL_DUMMY_H */
