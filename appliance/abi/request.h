/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_REQUEST_H
#define TDM_ABI_REQUEST_H

/* Written by an api tile, read by the scheduler.

     api tile k                              scheduler tile
     fill request slot + prompt ids
     push tdm_submit_t  --- request ring --> reads the slot in place
                        <-- event lane k --- ACCEPTED | REFUSED, TOKEN..., END
     push tdm_control_t --- control lane --> CANCEL | STOP_HIT

   Ownership: the slot and its prompt ids belong to api until the submit
   is pushed, then to the scheduler until it sends REFUSED or END; that
   event gives them back.  A control word after END is stale and dropped. */

#include "appliance/abi/handle.h"
#include "appliance/abi/sampling.h"

typedef struct tdm_request {
    tdm_handle_t handle; /* in the api tile's request table */
    uint16_t api;        /* index of that tile, in [0, TDM_API_TILE_MAX) */
    uint16_t tenant;     /* in [0, TDM_TENANT_MAX) */
    uint16_t slo_class;  /* in [0, TDM_SLO_CLASS_MAX) */
    uint16_t reserved;
    int64_t arrival_ns;    /* last byte of the body at the door */
    int64_t deadline_ns;   /* first token due; TDM_TIME_NEVER where none */
    uint32_t prompt_cnt;   /* tokens, >= 1 */
    uint32_t output_max;   /* tokens, >= 1; prompt_cnt + output_max <= context */
    uint32_t held_cnt;     /* first prompt tokens whose KV is at hand: their whole pages are not
                              computed, only given; what those hold is the sender's affair */
    const int32_t *prompt; /* [prompt_cnt] ids in [0, vocab), in the api tile's slab */
    tdm_sampling_t sampling;
} tdm_request_t;

/* One element of the request ring, 16 bytes. */
typedef struct tdm_submit {
    const tdm_request_t *request;
    uint32_t generation; /* of request->handle when it was pushed */
    uint32_t reserved;
} tdm_submit_t;

typedef enum tdm_control_kind {
    TDM_CONTROL_CANCEL,   /* the client left or the door gave up */
    TDM_CONTROL_STOP_HIT, /* a stop string matched: finish as "stop", send no more */
} tdm_control_kind_t;

/* One element of a control lane, 16 bytes; at most one of each kind per
   request is ever outstanding, so a lane twice as deep as the slot table
   cannot fill. */
typedef struct tdm_control {
    tdm_handle_t handle;
    uint16_t api;
    uint16_t kind; /* tdm_control_kind_t */
    uint32_t reserved;
} tdm_control_t;

#endif /* TDM_ABI_REQUEST_H */
