/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_TILE_PRIVATE_H
#define TDM_API_TILE_PRIVATE_H

/* What the files of the api tile share: calls, slots and their lists.

     tile.c     memory, the turn of the loop
     call.c     an exchange: its head, records, errors, outcome, egress words
     slot.c     a slot's life, control words
     arrive.c   arrivals: route, key, small replies; hang-ups
     request.c  a body: fields, ids, a slot, the submit
     event.c    the scheduler's words
     reply.c    tokens to bytes, as far as the pipe takes them
     hop.c      what the flight recorder hears

   A call is OPEN from arrival to its END word.  A slot:

     FREE --take--> SUBMITTED --ACCEPTED--> RUNNING --END--> ENDED --> FREE
       |                `---REFUSED---------------------------------> FREE
       `----take----> NATIVE (ids to print, no scheduler) ----------> FREE

   A slot without a call (TDM_NONE: the client left) waits for the
   scheduler's last word and then goes to FREE without printing. */

#include "appliance/api/api_tile.h"
#include "appliance/api/auth.h"
#include "appliance/api/fields.h"
#include "appliance/api/frame.h"
#include "appliance/api/json.h"
#include "appliance/api/prompt.h"
#include "appliance/api/route.h"
#include "appliance/api/slab.h"
#include "appliance/api/text.h"
#include "appliance/base/rng.h"
#include "appliance/ring/pipe.h"
#include "appliance/ring/ring.h"
#include "telemetry/block/block.h"
#include "telemetry/flight/flight.h"

#define TDM_NONE UINT32_MAX

/* A chunk's text is one piece, or a short one and the end of the text. */
#define TDM_REPLY_MERGE_MAX 1024u
#define TDM_REPLY_TEXT_MAX  (TDM_REPLY_MERGE_MAX + TDM_TEXT_PIECE_MAX)
/* One record under construction: each byte of a piece escaped to six,
   ids of up to eight characters, names. */
#define TDM_SCRATCH_SZ 20480u
/* Free bytes that take any one record, wherever the pipe's end is. */
#define TDM_PIPE_ROOM (2u * (TDM_PIPE_RECORD_HEADER + TDM_SCRATCH_SZ))

typedef struct tdm_call {
    tdm_exchange_t *exchange; /* NULL: free */
    uint32_t generation;      /* of the last arrival taken */
    uint32_t hangup;          /* generation of a hang-up that came first */
    uint32_t flags;           /* TDM_EGRESS_* not yet pushed */
    uint32_t slot;            /* TDM_NONE: none */
    uint16_t door;
    uint16_t endpoint;   /* tdm_endpoint_t */
    uint16_t slo_class;  /* for the outcome */
    uint16_t is_queued;  /* in the egress queue */
    uint16_t has_head;   /* the head was filled */
    uint16_t is_counted; /* a POST whose outcome is still open */
} tdm_call_t;

typedef enum tdm_slot_state {
    TDM_SLOT_FREE,
    TDM_SLOT_SUBMITTED,
    TDM_SLOT_RUNNING,
    TDM_SLOT_ENDED,
    TDM_SLOT_NATIVE,
} tdm_slot_state_t;

typedef enum tdm_slot_stage {
    TDM_STAGE_OPEN,
    TDM_STAGE_TEXT,
    TDM_STAGE_FINISH,
    TDM_STAGE_IDS,
    TDM_STAGE_CLOSE,
    TDM_STAGE_DONE,
} tdm_slot_stage_t;

typedef struct tdm_slot {
    tdm_request_t request; /* what the scheduler reads */
    tdm_slot_state_t state;
    tdm_slot_stage_t stage; /* of the reply */
    uint32_t call;          /* TDM_NONE: the client left */
    uint16_t endpoint;      /* tdm_endpoint_t */
    uint16_t is_ready;      /* in the ready queue */
    uint16_t is_stream;
    uint16_t include_usage;
    uint16_t continuous_usage;
    uint16_t has_ids;      /* return_token_ids */
    uint16_t model;        /* index of the served name */
    uint16_t is_pending;   /* counted in vitals */
    uint32_t control_due;  /* bit per tdm_control_kind_t: to push */
    uint32_t control_sent; /* and pushed */

    int32_t *ids; /* [prompt_cnt + output_max] of the slab */
    uint64_t id_cap;
    uint32_t out_cnt;  /* TOKEN events kept, at ids + prompt_cnt */
    uint32_t seen_cnt; /* TOKEN events, index of the next */
    uint32_t scan_cnt; /* whole replies: ids tried against the stop strings */
    uint32_t cut_cnt;  /* output ids that belong to the reply; TDM_NONE: all */
    uint32_t read_cnt; /* ids given to the detokeniser */
    uint32_t sent_cnt; /* of them, those reported to the door */
    uint32_t list_cnt; /* of them, those listed as token_ids */
    uint32_t cached_cnt;
    uint16_t has_stop_id; /* the last id kept is a stop id: not printed */
    uint16_t finish;      /* tdm_finish_t */
    uint16_t reason;      /* tdm_reason_t, of finish ERROR */
    uint16_t is_first_sent;
    uint16_t door_kind; /* tdm_door_kind_t */
    int64_t created_s;
    int64_t start_ns; /* first plan that worked on it, with the first token */
    int64_t first_ns; /* end of the iteration of its first token; 0: none yet */
    int64_t last_ns;  /* and of its newest */
    char id[40];      /* "chatcmpl-..." */
    tdm_text_t text;
} tdm_slot_t;

/* A FIFO of distinct indices below its capacity: never overflows. */
typedef struct tdm_queue {
    uint32_t *item;
    uint32_t max;
    uint32_t head;
    uint32_t cnt;
} tdm_queue_t;

struct tdm_api_tile {
    tdm_api_config_t config;
    tdm_api_wires_t wires;
    tdm_api_stats_t stats;
    int64_t now_ns; /* of this poll */
    tdm_rng_t rng;
    uint32_t call_cnt;
    uint32_t open_call_cnt;
    uint64_t prompt_sz;               /* bytes of ids in use, as told */
    uint64_t json_high;               /* most bytes of one body, as told */
    uint32_t promise_cnt;             /* of vitals, taken */
    uint32_t is_over;                 /* of vitals, taken */
    uint32_t request_open_cnt;        /* calls without an outcome */
    uint32_t call_base[TDM_DOOR_MAX]; /* first call of a door */
    tdm_call_t *call;                 /* [call_cnt] */
    tdm_slot_t *slot;                 /* [request_max] */
    tdm_queue_t free_slots;
    tdm_queue_t ready;  /* slots that may have bytes to write */
    tdm_queue_t egress; /* calls with flags to push */
    tdm_slab_t slab;
    tdm_json_t json;
    tdm_prompt_t prompt;
    int has_progress;             /* a verdict or token came this poll */
    char scratch[TDM_SCRATCH_SZ]; /* one record under construction */
    char piece[TDM_REPLY_TEXT_MAX];
};

/* --- queues ----------------------------------------------------------- */

/* tdm_queue_push appends idx, in [0, max), which is not in the queue. */
static inline void tdm_queue_push(tdm_queue_t *q, uint32_t idx) {
    TDM_CHECK(q->cnt < q->max);
    uint32_t at = q->head + q->cnt;
    q->item[at < q->max ? at : at - q->max] = idx;
    q->cnt++;
}

/* tdm_queue_pop takes the oldest; 0 where the queue is empty. */
static inline int tdm_queue_pop(tdm_queue_t *q, uint32_t *idx) {
    if (q->cnt == 0) return 0;
    *idx = q->item[q->head];
    q->head = q->head + 1 == q->max ? 0 : q->head + 1;
    q->cnt--;
    return 1;
}

/* --- calls (call.c) --------------------------------------------------- */

/* tdm_call_send notes TDM_EGRESS_* flags for the end of the poll; the word
   that has END among them ends the call. */
void tdm_call_send(tdm_api_tile_t *t, tdm_call_t *c, uint32_t flags);

/* tdm_call_head fills the reply head common to all answers: HTTP status,
   content type (TDM_CONTENT_*), content_sz in bytes (-1: streams).  Once a
   call; what else a head has (allow, retry_after_ms) is set after it. */
void tdm_call_head(tdm_api_tile_t *t, tdm_call_t *c, uint16_t status, uint16_t content_type,
                   int64_t content_sz);

/* tdm_call_body answers with a whole small body and ends the call. */
void tdm_call_body(tdm_api_tile_t *t, tdm_call_t *c, uint16_t status, const tdm_writer_t *w);

/* tdm_call_refuse answers with an error, before any head, counts it and
   its outcome, and ends the call.  tdm_refusal_count is its counter alone. */
void tdm_call_refuse(tdm_api_tile_t *t, tdm_call_t *c, tdm_refusal_t *r);
void tdm_refusal_count(tdm_api_tile_t *t, tdm_reason_t reason);

/* tdm_call_received counts a POST as open; tdm_call_outcome counts how it
   ended (TDM_LABEL_OUTCOME_*), once, and nothing of other calls. */
void tdm_call_received(tdm_api_tile_t *t, tdm_call_t *c);
void tdm_call_outcome(tdm_api_tile_t *t, tdm_call_t *c, uint32_t outcome);

/* tdm_call_write writes the writer's text as one record of token_cnt
   tokens; the caller has seen room. */
void tdm_call_write(tdm_api_tile_t *t, tdm_call_t *c, const tdm_writer_t *w, uint32_t token_cnt);

/* tdm_call_has_room says whether any one record fits the pipe now. */
int tdm_call_has_room(const tdm_call_t *c);

/* tdm_label_of_api gives the value of the api label. */
uint32_t tdm_label_of_api(tdm_endpoint_t endpoint);

/* --- slots (slot.c) --------------------------------------------------- */

/* tdm_slot_take gives an empty slot in state FREE, which the caller moves
   on, or NULL where all are in use.  tdm_slot_free gives ids and slot back;
   handles of before are stale from then on. */
tdm_slot_t *tdm_slot_take(tdm_api_tile_t *t);
void tdm_slot_free(tdm_api_tile_t *t, tdm_slot_t *s);

/* tdm_slot_ready has the slot visited by tdm_poll_ready. */
void tdm_slot_ready(tdm_api_tile_t *t, tdm_slot_t *s);

/* tdm_slot_control asks for a control word, once per kind and slot;
   tdm_slot_push_controls pushes what is due: 0 where the lane is full. */
void tdm_slot_control(tdm_api_tile_t *t, tdm_slot_t *s, tdm_control_kind_t kind);
int tdm_slot_push_controls(tdm_api_tile_t *t, tdm_slot_t *s);

/* tdm_slot_hop (hop.c) records a hop of the slot's request; e is the scheduler's
   word that tells of it, or NULL. */
void tdm_slot_hop(tdm_api_tile_t *t, const tdm_slot_t *s, tdm_flight_hop_kind_t kind, int64_t at_ns,
                  const tdm_event_t *e);

/* --- the parts of a poll ---------------------------------------------- */

/* Each gives how many things it did, 0 where nothing moved.  Arrivals and
   events keep to the config's batches, ready to a number of visits.
   Egress pushes one word per call with news; a call whose door's lane is
   full keeps its flags and its place for the next poll. */
uint32_t tdm_poll_events(tdm_api_tile_t *t);
uint32_t tdm_poll_hangups(tdm_api_tile_t *t);
uint32_t tdm_poll_arrivals(tdm_api_tile_t *t);
uint32_t tdm_poll_ready(tdm_api_tile_t *t);
uint32_t tdm_poll_egress(tdm_api_tile_t *t);

/* tdm_request_start handles the body of a POST endpoint: a slot and its
   submit, ids to print, or a refusal.  tenant: as tdm_auth_check has it. */
void tdm_request_start(tdm_api_tile_t *t, tdm_call_t *c, int tenant);

#endif /* TDM_API_TILE_PRIVATE_H */
