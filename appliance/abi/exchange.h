/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ABI_EXCHANGE_H
#define TDM_ABI_EXCHANGE_H

/* One HTTP request and its response, whatever door it came through.
   Written by a door (net tile or HTTP/1.1), read by an api tile, and the
   reply the other way.

     door                                      api tile
     fill exchange [slot], generation++
     push slot handle   ---- exchange ring --> parse, tokenise, submit
                        <--- egress lane ----- HEAD: reply_head is filled
                                               RECORD: reply pipe has records
                                               END: no record follows
     push handle|CANCEL ---- control lane ---> cancel the request, answer END
     free the slot once END came and the stream is done on its own side

   The body belongs to the door; api may read it until it sends
   BODY_DONE in an egress word's flags, which it does before it waits for
   tokens.  Header fields are NUL-terminated and cut at their bound; a cut
   field sets is_truncated and is refused as header_too_large.

   The reply pipe (appliance/ring/pipe.h) carries records; each holds
   whole bytes of the body and says how many output tokens it completes,
   so that the door observes TTFT and token gaps at hand-over. */

#include "appliance/abi/handle.h"
#include "appliance/abi/limits.h"

typedef enum tdm_method {
    TDM_METHOD_GET,
    TDM_METHOD_HEAD,
    TDM_METHOD_POST,
    TDM_METHOD_OPTIONS,
    TDM_METHOD_OTHER,
} tdm_method_t;

typedef enum tdm_door_kind {
    TDM_DOOR_H3,    /* net tile: HTTP/3 over DPDK */
    TDM_DOOR_HTTP1, /* management port */
} tdm_door_kind_t;

#define TDM_HEADER_NAME_MAX 128
#define TDM_REQUEST_ID_MAX  64
#define TDM_CODING_MAX      64 /* of content-encoding, its lines joined */

/* tdm_reply_head_t is everything of the response but its body. */
typedef struct tdm_reply_head {
    uint16_t status;         /* HTTP status */
    uint16_t content_type;   /* tdm_content_type_t */
    uint32_t retry_after_ms; /* 0: no retry-after, retry-after-ms, x-should-retry headers */
    int64_t content_sz;      /* bytes of body, -1 where it streams */
    uint16_t allow;          /* bit per tdm_method_t: Allow and CORS methods; 0: none */
    uint16_t is_stream;      /* text/event-stream: no-cache, flush each record */
    uint32_t processing_ms;  /* openai-processing-ms */
    uint32_t is_coded;       /* with 415: the body's coding was at fault: accept-encoding */
    char request_id[TDM_REQUEST_ID_MAX];
} tdm_reply_head_t;

typedef enum tdm_content_type {
    TDM_CONTENT_NONE,
    TDM_CONTENT_JSON,         /* application/json */
    TDM_CONTENT_EVENT_STREAM, /* text/event-stream; charset=utf-8 */
    TDM_CONTENT_PROMETHEUS,   /* text/plain; version=0.0.4; charset=utf-8 */
    TDM_CONTENT_OPENMETRICS,  /* application/openmetrics-text; version=1.0.0; charset=utf-8 */
    TDM_CONTENT_TEXT,         /* text/plain; charset=utf-8 */
    TDM_CONTENT_HTML,         /* text/html; charset=utf-8 */
    TDM_CONTENT_CSS,          /* text/css; charset=utf-8 */
    TDM_CONTENT_SCRIPT,       /* text/javascript; charset=utf-8 */
} tdm_content_type_t;

/* What pages of other origins may send and read, and for how many seconds a
   browser may remember it (Fetch Standard, CORS protocol): the same at every
   door.  Any header may be sent, as SDKs have names of their own; authorization
   must be told beside the asterisk. */
#define TDM_CORS_SENT "authorization, *"
#define TDM_CORS_READ                                                                              \
    "x-request-id, retry-after, retry-after-ms, x-should-retry, openai-processing-ms"
#define TDM_CORS_AGE_S "86400"

/* The server field of every door: the product, without a version (RFC 9110
   section 10.2.4 advises against fine-grained detail; GET /version has it). */
#define TDM_SERVER "tandem"

struct tdm_pipe;

typedef struct tdm_exchange {
    tdm_handle_t handle;      /* this slot in the door's table */
    uint16_t door;            /* index of the door, in [0, TDM_DOOR_MAX) */
    uint16_t door_kind;       /* tdm_door_kind_t */
    uint16_t method;          /* tdm_method_t */
    uint16_t is_trusted_peer; /* loopback by a name of ours, or the TAP demo subnet */
    uint16_t refuse;          /* TDM_REFUSE_* the door decided itself, or 0 */
    uint16_t is_truncated;
    uint16_t slo_class;      /* set by api before HEAD; the door's histograms use it */
    uint16_t is_misnamed;    /* loopback, but Host or Origin name another machine */
    int64_t promise_ttft_ns; /* of that class, set with it, for the door to judge; 0: none */
    int64_t promise_gap_ns;
    int64_t first_byte_ns; /* first byte of the request seen */
    int64_t arrival_ns;    /* last byte of the body seen */
    uint64_t body_sz;
    uint8_t *body; /* [body_sz], the door's slab; not NUL-terminated */
    char path[256];
    char query[256]; /* after '?', may be empty */
    char authorization[512];
    char content_type[TDM_HEADER_NAME_MAX];
    char content_coding[TDM_CODING_MAX]; /* content-encoding, lines joined by commas */
    char request_id[TDM_REQUEST_ID_MAX]; /* x-request-id, may be empty */

    tdm_reply_head_t head;  /* api writes before the HEAD word */
    struct tdm_pipe *reply; /* api writes records, door reads */
} tdm_exchange_t;

/* One element of an exchange ring: a new exchange.  The pointer is into
   the door's table, in this process. */
typedef struct tdm_arrival {
    tdm_exchange_t *exchange;
    uint32_t generation;
    uint32_t reserved;
} tdm_arrival_t;

/* One element of a door's control lane to an api tile: cancel.  It may
   cross the END of its exchange, so api never looks through the pointer:
   the lane says which door, slot and generation say which exchange. */
typedef struct tdm_hangup {
    tdm_exchange_t *exchange;
    uint32_t generation;
    uint32_t slot; /* exchange->handle.slot */
} tdm_hangup_t;

#define TDM_EGRESS_HEAD      1u  /* head is final; send it */
#define TDM_EGRESS_RECORD    2u  /* the pipe has new records */
#define TDM_EGRESS_END       4u  /* nothing follows; the body is complete */
#define TDM_EGRESS_ABORT     8u  /* with END: the body is cut, reset the stream */
#define TDM_EGRESS_BODY_DONE 16u /* api no longer reads the request body */
#define TDM_EGRESS_FAILED    32u /* with END: the stream ends with an error of ours */

/* One element of an egress lane, api to door.  At most one word per token
   record and three more per exchange are outstanding; a full lane makes
   api keep the flags and try again. */
typedef struct tdm_egress {
    tdm_handle_t handle; /* of the exchange */
    uint32_t flags;      /* TDM_EGRESS_* */
    uint32_t reserved;
} tdm_egress_t;

#endif /* TDM_ABI_EXCHANGE_H */
