/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_GGUF_H
#define TDM_MODEL_GGUF_H

/* tdm_gguf_t is a read-only view of a GGUF file (versions 2 and 3, little
   endian; the format is described in ggml's docs/gguf.md).

     file   | magic version counts | key-value pairs | tensor infos | pad | data |
                                     ^ by name          ^ by name           ^ views

   The file is hostile until shown otherwise: every count, length, type,
   product, offset and name is checked here once, so that a view handed out
   below always lies inside the file.  Refusals name the key or tensor.

     TDM_ERR_CORRUPT      the file contradicts itself or is cut short
     TDM_ERR_UNSUPPORTED  well formed, and not implemented (type, version)
     TDM_ERR_LIMIT        over a bound of this header

   Ownership: the view belongs to whoever opened it; strings, arrays and
   tensors point into the file and live until tdm_gguf_close.  An opened
   file must not be truncated by others while it is mapped.
   Limits: everything is read-only after open, so any thread may look up. */

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_GGUF_KEY_MAX     4096       /* key-value pairs */
#define TDM_GGUF_TENSOR_MAX  16384      /* tensors */
#define TDM_GGUF_NAME_MAX    256        /* bytes of a key or tensor name */
#define TDM_GGUF_STRING_MAX  (1u << 24) /* bytes of one string value */
#define TDM_GGUF_ELEMENT_MAX (1u << 22) /* elements of one array value */
#define TDM_GGUF_DIM_MAX     4

/* Types of metadata values, as numbered in the file. */
typedef enum tdm_gguf_type {
    TDM_GGUF_U8,
    TDM_GGUF_I8,
    TDM_GGUF_U16,
    TDM_GGUF_I16,
    TDM_GGUF_U32,
    TDM_GGUF_I32,
    TDM_GGUF_F32,
    TDM_GGUF_BOOL,
    TDM_GGUF_STRING,
    TDM_GGUF_ARRAY,
    TDM_GGUF_U64,
    TDM_GGUF_I64,
    TDM_GGUF_F64,
    TDM_GGUF_TYPE_CNT
} tdm_gguf_type_t;

typedef struct tdm_gguf tdm_gguf_t;

/* Bytes inside the file, not terminated. */
typedef struct tdm_gguf_string {
    const char *bytes;
    uint64_t sz;
} tdm_gguf_string_t;

/* An array value.  Elements of fixed size are packed and unaligned;
   strings are walked with tdm_gguf_array_string. */
typedef struct tdm_gguf_array {
    tdm_gguf_type_t type; /* of the elements; never ARRAY */
    uint64_t cnt;
    const uint8_t *bytes;
    uint64_t sz;
} tdm_gguf_array_t;

typedef struct tdm_gguf_tensor {
    tdm_gguf_string_t name;
    uint32_t dtype; /* tdm_dtype_t of dequant.h, one that this house reads */
    uint32_t dim_cnt;
    uint64_t dim[TDM_GGUF_DIM_MAX]; /* innermost first; 1 beyond dim_cnt */
    const uint8_t *bytes;           /* aligned as the file says, at least 8 */
    uint64_t sz;
} tdm_gguf_tensor_t;

/* tdm_gguf_open maps the file read-only and checks it whole.  NOT_FOUND
   or IO where the operating system refuses. */
TDM_MUST_USE tdm_status_t tdm_gguf_open(const char *path, tdm_gguf_t **out, tdm_error_t *err);

/* tdm_gguf_parse does the same over bytes that the caller keeps. */
TDM_MUST_USE tdm_status_t tdm_gguf_parse(const void *bytes, uint64_t sz, tdm_gguf_t **out,
                                         tdm_error_t *err);

/* tdm_gguf_close unmaps; NULL is allowed. */
void tdm_gguf_close(tdm_gguf_t *g);

/* tdm_gguf_has: is there a value of that name, of whatever type? */
int tdm_gguf_has(const tdm_gguf_t *g, const char *key);

/* Typed lookups: NOT_FOUND where the key is absent, CORRUPT where the value
   has another type.  u32 takes any integer type whose value fits. */
TDM_MUST_USE tdm_status_t tdm_gguf_u32(const tdm_gguf_t *g, const char *key, uint32_t *out,
                                       tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_gguf_f32(const tdm_gguf_t *g, const char *key, float *out,
                                       tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_gguf_bool(const tdm_gguf_t *g, const char *key, int *out,
                                        tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_gguf_string(const tdm_gguf_t *g, const char *key,
                                          tdm_gguf_string_t *out, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_gguf_array(const tdm_gguf_t *g, const char *key, tdm_gguf_type_t type,
                                         tdm_gguf_array_t *out, tdm_error_t *err);

/* tdm_gguf_array_string gives the string at *cursor and moves it on; 0 at
   the end.  *cursor starts at 0. */
int tdm_gguf_array_string(const tdm_gguf_array_t *a, uint64_t *cursor, tdm_gguf_string_t *out);

/* tdm_gguf_array_u32 and _f32 read element idx < cnt of an array of I32 or
   U32, and of F32. */
uint32_t tdm_gguf_array_u32(const tdm_gguf_array_t *a, uint64_t idx);
float tdm_gguf_array_f32(const tdm_gguf_array_t *a, uint64_t idx);

/* tdm_gguf_key gives key idx in [0, tdm_gguf_key_cnt), in file order. */
uint32_t tdm_gguf_key_cnt(const tdm_gguf_t *g);
tdm_gguf_string_t tdm_gguf_key(const tdm_gguf_t *g, uint32_t idx);

/* tdm_gguf_tensor finds a tensor by name, NULL where there is none;
   tdm_gguf_tensor_at gives tensor idx in [0, tdm_gguf_tensor_cnt). */
const tdm_gguf_tensor_t *tdm_gguf_tensor(const tdm_gguf_t *g, const char *name);
const tdm_gguf_tensor_t *tdm_gguf_tensor_at(const tdm_gguf_t *g, uint32_t idx);
uint32_t tdm_gguf_tensor_cnt(const tdm_gguf_t *g);

/* tdm_gguf_equals compares a string of the file with a C string. */
int tdm_gguf_equals(tdm_gguf_string_t s, const char *text);

TDM_END_DECLS

#endif /* TDM_MODEL_GGUF_H */
