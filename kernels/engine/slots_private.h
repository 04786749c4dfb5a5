/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_SLOTS_PRIVATE_H
#define TDM_KERNELS_ENGINE_SLOTS_PRIVATE_H

#include "kernels/engine/slots.h"

/* The little of a slot that a check has to play forward. */
typedef struct slot_shadow {
    uint32_t is_open;
    uint32_t prompt_cnt;
    uint32_t page_cnt;
    uint32_t next_pos;
    uint32_t due_cnt;
    uint32_t is_used; /* a slice or decode of this plan has it */
} slot_shadow_t;

struct tdm_slots {
    tdm_slots_config_t config;
    uint32_t stride;       /* pages of one slot's table */
    uint32_t check_cnt;    /* checks so far: the stamp of `writer` */
    tdm_slot_t *slot;      /* [seq_max] */
    slot_shadow_t *shadow; /* [seq_max] */
    uint32_t *page;        /* [seq_max][stride] */
    int32_t *history;      /* [seq_max][context_max + 1] */
    int32_t *page_token;   /* [kv_page_cnt][TDM_KV_PAGE_TOKENS] inputs by where their KV lies */
    uint32_t *stamp;       /* [kv_page_cnt] the check that last saw the page written */
};

#endif /* TDM_KERNELS_ENGINE_SLOTS_PRIVATE_H */
