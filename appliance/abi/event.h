/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_EVENT_H
#define TDM_ABI_EVENT_H

/* Written by the scheduler tile, read by the api tile that sent the
   request.  Per request: exactly one of ACCEPTED or REFUSED; after
   ACCEPTED any number of TOKEN and exactly one END.  REFUSED and END give
   the request slot back.  The event lane is deep enough for every slot's
   next token and last word; where it is full the scheduler keeps the
   event and tries again next poll (counted). */

#include "appliance/abi/handle.h"

typedef enum tdm_event_kind {
    TDM_EVENT_ACCEPTED,
    TDM_EVENT_REFUSED, /* reason: a TDM_REFUSE_*; retry_after_ms a hint, 0 = none */
    TDM_EVENT_TOKEN,   /* token; index counts output tokens from 0 */
    TDM_EVENT_END,     /* finish; reason where finish is ERROR */
} tdm_event_kind_t;

typedef enum tdm_finish {
    TDM_FINISH_NONE,
    TDM_FINISH_STOP,      /* a stop id, or a stop string after STOP_HIT */
    TDM_FINISH_LENGTH,    /* output_max or the context was reached */
    TDM_FINISH_CANCELLED, /* after CANCEL */
    TDM_FINISH_ERROR,     /* reason says which */
    TDM_FINISH_CNT
} tdm_finish_t;

/* 48 bytes; one element of an event lane. */
typedef struct tdm_event {
    tdm_handle_t handle; /* the request's */
    uint16_t kind;       /* tdm_event_kind_t */
    uint16_t finish;     /* tdm_finish_t */
    uint16_t reason;     /* tdm_reason_t */
    uint16_t flags;      /* TDM_EVENT_FLAG_* */
    int32_t token;       /* id in [0, vocab) */
    uint32_t index;      /* of this token in the output; on END the output count */
    uint32_t retry_after_ms;
    uint32_t cached_cnt;  /* prompt tokens served from the prefix cache; on the first TOKEN */
    int64_t iteration_ns; /* end of the iteration that made the token; 0 otherwise */
    int64_t start_ns; /* of the first TOKEN: the plan that first worked on the request; else 0 */
} tdm_event_t;

#define TDM_EVENT_FLAG_STOP_ID 1u /* this TOKEN is a stop id: api does not print it */

#endif /* TDM_ABI_EVENT_H */
