/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_MODEL_H
#define TDM_MODEL_MODEL_H

/* The one door to a model, whatever it is made from:

     spec "path/to/file.gguf"    a GGUF file of the Llama family
          "path/to/folder"       a checkpoint of Hugging Face (checkpoint.h)
          "dummy:<name>"         seeded weights of a known shape (dummy.h)

   tandemd needs shape and tokenizer, the executor process needs weights:
   each opens the model by itself, tandemd with TDM_MODEL_SHAPE_ONLY, which
   maps and checks the file and dequantises nothing.
   Ownership: whoever opens closes; everything handed out lives until then
   and is read-only, so any thread may read it. */

#include "appliance/abi/model.h"
#include "appliance/base/arena.h"
#include "appliance/base/status.h"
#include "appliance/model/gguf.h"
#include "appliance/model/weights.h"

TDM_BEGIN_DECLS

#define TDM_MODEL_SHAPE_ONLY 1u /* no weights */

#define TDM_MODEL_NAME_MAX 64 /* bytes of a name, its zero included */

typedef struct tdm_model tdm_model_t;

/* Zero-initialised: bf16 weights on plain pages, no progress. */
typedef struct tdm_model_options {
    uint32_t flags;              /* TDM_MODEL_* */
    tdm_weight_dtype_t dtype;    /* of a layer's matrices */
    tdm_arena_kind_t arena_kind; /* pages that carry the weights */
    tdm_progress_fn progress;    /* NULL: silent */
    void *progress_ctx;
} tdm_model_options_t;

/* tdm_model_open opens spec; options may be NULL.  Every failure has one
   sentence that names spec, key or tensor. */
TDM_MUST_USE tdm_status_t tdm_model_open(const char *spec, const tdm_model_options_t *options,
                                         tdm_model_t **out, tdm_error_t *err);

/* tdm_model_close frees; NULL is allowed. */
void tdm_model_close(tdm_model_t *m);

/* tdm_model_is_dummy: does spec name a dummy? */
int tdm_model_is_dummy(const char *spec);

/* tdm_model_name: the file's or folder's name without the way there and ".gguf", unprintable
   bytes replaced, or the spec of a dummy; never NULL. */
const char *tdm_model_name(const tdm_model_t *m);

const tdm_shape_t *tdm_model_shape(const tdm_model_t *m);

/* tdm_model_weights: NULL with TDM_MODEL_SHAPE_ONLY. */
const tdm_weights_t *tdm_model_weights(const tdm_model_t *m);

/* tdm_model_arena: the weights' memory, for its page size and bytes; NULL
   with TDM_MODEL_SHAPE_ONLY. */
const tdm_arena_t *tdm_model_arena(const tdm_model_t *m);

/* tdm_model_gguf: the file; NULL for a dummy or a folder. */
const tdm_gguf_t *tdm_model_gguf(const tdm_model_t *m);

/* tdm_model_folder: the checkpoint's folder; NULL where the model is none.
   Its tokenizer.json belongs to appliance/tokenizer. */
const char *tdm_model_folder(const tdm_model_t *m);

/* tdm_model_eos gives the ids that end a sequence, at most
   TDM_STOP_ID_MAX / 2, the file's own end-of-sequence first. */
uint32_t tdm_model_eos(const tdm_model_t *m, const int32_t **ids);

TDM_END_DECLS

#endif /* TDM_MODEL_MODEL_H */
