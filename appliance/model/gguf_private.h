/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_GGUF_PRIVATE_H
#define TDM_MODEL_GGUF_PRIVATE_H

/* What gguf_parse.c fills and gguf.c looks up.  Not to be included outside
   this room. */

#include "appliance/model/gguf.h"

typedef struct tdm_gguf_value {
    tdm_gguf_string_t key;
    tdm_gguf_type_t type;
    const uint8_t *bytes;   /* scalars and strings: the payload */
    uint64_t sz;            /* strings: their length */
    tdm_gguf_array_t array; /* type ARRAY */
} tdm_gguf_value_t;

/* Open addressing by name, a power of two at least twice the entries;
   a slot holds index + 1, 0 is empty. */
typedef struct tdm_gguf_index {
    uint32_t *slot;
    uint32_t mask;
} tdm_gguf_index_t;

struct tdm_gguf {
    const uint8_t *bytes;
    uint64_t sz;
    int is_mapped;
    uint32_t version;
    uint32_t key_cnt;
    uint32_t tensor_cnt;
    uint64_t alignment;
    tdm_gguf_value_t *value;
    tdm_gguf_tensor_t *tensor;
    tdm_gguf_index_t key_index;
    tdm_gguf_index_t tensor_index;
};

/* tdm_gguf_type_sz: bytes of a value of fixed size, 0 for the others. */
uint32_t tdm_gguf_type_sz(uint32_t type);

/* tdm_gguf_index_find gives the slot where name is or would be; name_of
   tells the name of an entry. */
typedef tdm_gguf_string_t (*tdm_gguf_name_fn)(const tdm_gguf_t *g, uint32_t idx);
uint32_t tdm_gguf_index_find(const tdm_gguf_t *g, const tdm_gguf_index_t *index,
                             tdm_gguf_name_fn name_of, const char *name, uint64_t sz);
tdm_gguf_string_t tdm_gguf_name_of_key(const tdm_gguf_t *g, uint32_t idx);
tdm_gguf_string_t tdm_gguf_name_of_tensor(const tdm_gguf_t *g, uint32_t idx);

/* tdm_gguf_read fills *g, whose bytes and sz are set, all else zero. */
TDM_MUST_USE tdm_status_t tdm_gguf_read(tdm_gguf_t *g, tdm_error_t *err);

#endif /* TDM_MODEL_GGUF_PRIVATE_H */
