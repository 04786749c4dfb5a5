/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_MODEL_SAFETENSORS_PRIVATE_H
#define TDM_MODEL_SAFETENSORS_PRIVATE_H

/* What safetensors_parse.c fills and safetensors.c opens and looks up. */

#include "appliance/model/safetensors.h"

typedef struct tdm_shard {
    char name[TDM_SAFETENSORS_NAME_MAX]; /* of the file in its folder */
    const uint8_t *bytes;
    uint64_t sz;
    int is_mapped;
} tdm_shard_t;

struct tdm_safetensors {
    tdm_shard_t *shard; /* [shard_cnt] */
    uint32_t shard_cnt;
    uint32_t cnt;
    uint32_t room;
    tdm_safetensor_t *tensor; /* [cnt], by name once all shards are in */
};

/* tdm_safetensors_read appends the tensors of one shard, whose bytes and
   sz are set. */
TDM_MUST_USE tdm_status_t tdm_safetensors_read(tdm_safetensors_t *s, uint32_t shard,
                                               tdm_error_t *err);

#endif /* TDM_MODEL_SAFETENSORS_PRIVATE_H */
