/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_SAFETENSORS_H
#define TDM_MODEL_SAFETENSORS_H

/* tdm_safetensors_t is a read-only view of the tensors of a checkpoint in
   the safetensors format (described in the README of
   huggingface/safetensors), in one file or in shards:

     file    | header length, 8 bytes LE | header, JSON | data |
     header  {"<name>": {"dtype": "BF16", "shape": [r, c],
                         "data_offsets": [begin, end]}, ...}
     folder  model.safetensors, or model.safetensors.index.json, whose
             "weight_map" says which file has which tensor

   The files are hostile until shown otherwise.  The header is read by a
   scanner of its own, for a bounded time and without recursion; ranges
   must tile the data exactly, without gap, overlap or rest; a name comes
   once, in all shards together; the index and the shards must tell the
   same.  Refusals name file or tensor.

     TDM_ERR_CORRUPT      a file contradicts itself, the index, or is cut
     TDM_ERR_UNSUPPORTED  well formed, and a type that is not read
     TDM_ERR_LIMIT        over a bound of this header

   Ownership: the view belongs to whoever opened it; names and bytes point
   into the files and live until tdm_safetensors_close.  Opened files must
   not be truncated by others while they are mapped.
   Limits: read-only after open, so any thread may look up. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_SAFETENSORS_HEADER_MAX (UINT64_C(16) << 20) /* bytes of one header */
#define TDM_SAFETENSORS_TENSOR_MAX 16384u               /* of all shards */
#define TDM_SAFETENSORS_SHARD_MAX  1024u
#define TDM_SAFETENSORS_NAME_MAX   256u
#define TDM_SAFETENSORS_DIM_MAX    4u

/* F8_E4M3 as a dtype, which GGUF has no number for: codes of
   appliance/abi/fp8.h, whose scales are tensors of their own. */
#define TDM_SAFETENSORS_F8 UINT32_C(0x10000)

typedef struct tdm_safetensors tdm_safetensors_t;

typedef struct tdm_safetensor {
    const char *name; /* [name_sz], not terminated */
    uint32_t name_sz;
    uint32_t shard;
    uint32_t dtype; /* tdm_dtype_t: F32, F16 or BF16; or TDM_SAFETENSORS_F8 */
    uint32_t dim_cnt;
    uint64_t dim[TDM_SAFETENSORS_DIM_MAX]; /* outermost first, as in the file */
    const uint8_t *bytes;                  /* any alignment */
    uint64_t sz;
} tdm_safetensor_t;

/* tdm_safetensors_open maps the checkpoint of a folder and checks it
   whole.  NOT_FOUND or IO where the operating system refuses. */
TDM_MUST_USE tdm_status_t tdm_safetensors_open(const char *folder, tdm_safetensors_t **out,
                                               tdm_error_t *err);

/* tdm_safetensors_parse does the same over one file's bytes, which the
   caller keeps. */
TDM_MUST_USE tdm_status_t tdm_safetensors_parse(const void *bytes, uint64_t sz,
                                                tdm_safetensors_t **out, tdm_error_t *err);

/* tdm_safetensors_close unmaps; NULL is allowed. */
void tdm_safetensors_close(tdm_safetensors_t *s);

/* tdm_safetensors_find: NULL where there is none of that name;
   tdm_safetensors_at gives tensor idx in [0, tdm_safetensors_cnt), by name
   ascending. */
const tdm_safetensor_t *tdm_safetensors_find(const tdm_safetensors_t *s, const char *name);
const tdm_safetensor_t *tdm_safetensors_at(const tdm_safetensors_t *s, uint32_t idx);
uint32_t tdm_safetensors_cnt(const tdm_safetensors_t *s);

TDM_END_DECLS

#endif /* TDM_MODEL_SAFETENSORS_H */
