/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_API_API_TILE_H
#define TDM_API_API_TILE_H

/* The api tile turns exchanges into requests and tokens into replies.

     doors                      api tile                        scheduler
     arrivals  ---------------> route, key, JSON, types,
                                tokenise, take a slot
                                push submit  -----------------> requests
                                hold the HTTP status  <-------- events: verdict
     egress    <--------------- HEAD                            events: TOKEN, END
               <--------------- detokenise, stop strings, SSE
     hangups   ---------------> CANCEL       -----------------> controls

   One call per exchange, direct-mapped on (door, slot of the door), so a
   hang-up finds its call by index, even one that overtakes its arrival.
   One slot per request, from a table of its own; a slot outlives its call
   when the client leaves first, until the scheduler's END.

   A reply's pipe holds at least TDM_API_PIPE_MIN bytes: one chunk must
   always fit an empty pipe.

   Ownership: the tile lives in the caller's memory and never allocates
   after init; jansson allocates from a region inside it.  Rings, doors,
   tokenizer, keys and vitals belong to boot and outlive the tile.
   Limits: every table below has its size in tdm_api_config_t; ids of a
   request (prompt and output) are reserved when it is taken, so that a
   slow reader never holds up another stream: its ids wait, the formatter
   stops.  One poll handles at most arrival_batch exchanges and
   event_batch events.  A poll never blocks; its longest single piece of
   work is the tokenising of one body of body_max bytes. */

#include "appliance/abi/event.h"
#include "appliance/abi/exchange.h"
#include "appliance/abi/reasons.h"
#include "appliance/abi/request.h"
#include "appliance/base/status.h"

TDM_BEGIN_DECLS

#define TDM_API_PIPE_MIN       65536u /* least capacity of tdm_exchange_t.reply */
#define TDM_API_MODEL_NAME_SZ  128    /* bytes of a served name, NUL included */
#define TDM_API_MODEL_NAME_MAX 8      /* served names, aliases included */

struct tdm_ring;
struct tdm_tokenizer;
struct tdm_encode_scratch;
struct tdm_auth;
struct tdm_block;

typedef struct tdm_api_tile tdm_api_tile_t;

/* --- what the appliance says of itself ------------------------------- */

/* tdm_vitals_t is one word set shared by boot and all api tiles.
   Readiness: refusal is 0, nothing is pending or something moved within
   stall_max_ns, and the data port is not stuck.  Relaxed atomics, each
   word by itself, but for pair V1: the time of a verdict is there before
   it counts as pending. */
typedef struct tdm_vitals {
    uint32_t refusal;       /* 0 serving, else TDM_REFUSE_starting, _draining or _executor_down;
                               boot and the supervisor write */
    uint32_t pending_cnt;   /* requests between verdict and END; api tiles write */
    int64_t progress_ns;    /* newest verdict or token of any request, or end of an iteration;
                               api tiles and boot write */
    uint32_t is_port_stuck; /* the data port takes no frames; boot writes */
    uint32_t is_over;       /* what still runs ends now, its client told so (draining); boot writes,
                               once */
} tdm_vitals_t;

/* --- configuration ---------------------------------------------------- */

typedef struct tdm_api_class {
    int64_t ttft_ns; /* first token due this long after arrival; 0: no deadline */
    int64_t tpot_ns; /* target between tokens; 0: none */
} tdm_api_class_t;

/* Whose priority, slo_ttft_ms and slo_tpot_ms choose a class; of others
   they are ignored and counted. */
typedef enum tdm_api_slo_from {
    TDM_API_SLO_TRUSTED, /* peers on this machine or behind its TAP */
    TDM_API_SLO_ALL,
    TDM_API_SLO_NONE,
} tdm_api_slo_from_t;

typedef struct tdm_api_config {
    uint16_t api_idx;          /* this tile, in [0, TDM_API_TILE_MAX) */
    uint16_t class_cnt;        /* classes of service, in [1, TDM_SLO_CLASS_MAX] */
    uint16_t class_default;    /* class of a request that names none */
    uint16_t model_name_cnt;   /* in [1, TDM_API_MODEL_NAME_MAX] */
    uint32_t request_max;      /* request slots, in [1, 65536] */
    uint32_t context_max;      /* tokens, prompt and output, in [2, TDM_CONTEXT_MAX] */
    uint32_t output_default;   /* output tokens where a request names none; 0: the rest */
    uint64_t id_slab_sz;       /* bytes of token ids of all slots; >= 4 * context_max */
    uint64_t body_max;         /* bytes of a body that is parsed */
    uint64_t json_sz;          /* bytes jansson may use for one body */
    uint32_t json_depth_max;   /* nesting, in [4, 256] */
    uint32_t json_key_max;     /* keys of one object */
    uint32_t arrival_batch;    /* exchanges taken per poll */
    uint32_t event_batch;      /* events taken per poll */
    uint32_t retry_after_ms;   /* of a 429 or 503 without a better hint */
    int64_t stall_max_ns;      /* no progress for this long with work pending: not ready */
    int64_t wall_offset_ns;    /* civil time minus monotonic time, for `created` of answers */
    int64_t loaded_s;          /* civil time that the models were loaded: `created` of theirs */
    uint64_t seed;             /* of request ids and of sampling seeds nobody chose */
    const char *version;       /* GET /version */
    const char *chat_template; /* "auto", or a name of tokenizer/chat.h's closed set */
    const char *model_name[TDM_API_MODEL_NAME_MAX]; /* [0] is listed first */
    tdm_api_class_t slo[TDM_SLO_CLASS_MAX];
    tdm_api_class_t promise[TDM_SLO_CLASS_MAX]; /* what telemetry judges by; 0: no promise;
                                                   wires.promises stand above it */
    uint32_t slo_from;                          /* tdm_api_slo_from_t */
    uint32_t may_hold; /* 1: held_tokens is obeyed: prompts are believed to be computed, which is
                          for measurements alone */
    const int32_t *end_id; /* [end_cnt] the model's end tokens, tdm_model_eos */
    uint32_t end_cnt;      /* at most TDM_STOP_ID_MAX / 2; 0: found by the names models give them */
    uint32_t reserved;
} tdm_api_config_t;

/* tdm_api_config_default fills every number with its default; the caller
   sets api_idx, model_name, version, chat_template, wall_offset_ns,
   loaded_s and seed. */
void tdm_api_config_default(tdm_api_config_t *config);

/* --- wiring ----------------------------------------------------------- */

typedef struct tdm_api_door {
    struct tdm_ring *egress; /* to this door, of tdm_egress_t; this tile's lane is api_idx */
    uint32_t slot_cnt;       /* exchange slots of the door */
    uint32_t reserved;
} tdm_api_door_t;

/* What the classes promise, where that may change while the tile runs:
   boot writes the words and then counts (pair V2). */
typedef struct tdm_api_promises {
    int64_t ttft_ns[TDM_SLO_CLASS_MAX];
    int64_t tpot_ns[TDM_SLO_CLASS_MAX];
    uint32_t cnt; /* times they were written */
    uint32_t reserved;
} tdm_api_promises_t;

typedef struct tdm_api_wires {
    struct tdm_ring *arrivals; /* of tdm_arrival_t, one lane per door; this tile's doorbell */
    struct tdm_ring *hangups;  /* of tdm_hangup_t, lane d from door d */
    struct tdm_ring *events;   /* of tdm_event_t, one lane from the scheduler */
    struct tdm_ring *requests; /* to the scheduler, of tdm_submit_t; lane api_idx */
    struct tdm_ring *controls; /* to the scheduler, of tdm_control_t; lane api_idx */
    tdm_api_door_t door[TDM_DOOR_MAX]; /* by tdm_exchange_t.door */
    uint32_t door_cnt;
    uint32_t reserved;
    const struct tdm_tokenizer *tokenizer;
    struct tdm_encode_scratch *scratch; /* this tile's own, for texts of body_max bytes */
    const struct tdm_auth *auth;        /* NULL or empty: open for trusted peers only */
    const tdm_api_promises_t *promises; /* NULL: config.promise stands */
    tdm_vitals_t *vitals;               /* shared by all api tiles */
    struct tdm_block *block;            /* this tile's own */
    struct tdm_flight_ring *flight;     /* of hops, this tile's own; NULL: none */
} tdm_api_wires_t;

/* --- counts ----------------------------------------------------------- */

/* Requests, refusals, tokens and ignored fields are counted in the tile's
   telemetry block (telemetry/block/metrics.def).  Every POST to
   /v1/completions, /v1/chat/completions, /tokenize or /detokenize ends in
   exactly one outcome of requests_total.

   tdm_api_stats_t holds what only the console and tests ask for; the tile
   writes, others read with relaxed loads. */
typedef struct tdm_api_stats {
    uint64_t exchange_cnt;     /* arrivals taken */
    uint64_t exchange_end_cnt; /* END words sent; equal to the above once drained */
    uint64_t submit_cnt;       /* requests pushed to the scheduler */
    uint64_t accept_cnt;       /* ACCEPTED verdicts */
    uint64_t hangup_cnt;       /* hang-ups that found their call open */
    uint64_t stale_cnt;        /* events, hang-ups and arrivals of an old generation */
    uint64_t pipe_full_cnt;    /* times a reply had to wait for its reader */
    uint64_t egress_full_cnt;  /* times an egress lane took no word */
    uint64_t slot_cnt;         /* request slots in use, now */
} tdm_api_stats_t;

/* --- life cycle ------------------------------------------------------- */

/* tdm_api_tile_footprint gives the bytes tdm_api_tile_init needs, 0 where
   config or wires are out of range. */
uint64_t tdm_api_tile_footprint(const tdm_api_config_t *config, const tdm_api_wires_t *wires);

/* tdm_api_tile_init formats mem (zeroed, footprint bytes, aligned to
   TDM_CACHE_LINE).  It copies config and wires, not what they point at,
   and points jansson's allocator at this room (process-wide; JSON outside
   an api tile still uses malloc).  Boot time only. */
TDM_MUST_USE tdm_status_t tdm_api_tile_init(void *mem, const tdm_api_config_t *config,
                                            const tdm_api_wires_t *wires, tdm_api_tile_t **out,
                                            tdm_error_t *err);

/* tdm_api_tile_poll does one bounded turn and says how much it did, 0 for
   nothing.  The tile's thread only; now_ns never goes back. */
uint32_t tdm_api_tile_poll(tdm_api_tile_t *t, int64_t now_ns);

/* tdm_api_tile_next_ns: when to poll even without a doorbell, because a
   full pipe or lane has no bell of its own; TDM_TIME_NEVER if never. */
int64_t tdm_api_tile_next_ns(const tdm_api_tile_t *t, int64_t now_ns);

/* tdm_api_tile_stats: the tile's counts, readable from any thread with
   relaxed loads. */
const tdm_api_stats_t *tdm_api_tile_stats(const tdm_api_tile_t *t);

/* tdm_api_tile_open_cnt: calls and slots not yet ended; 0 means drained.
   The tile's thread only. */
uint32_t tdm_api_tile_open_cnt(const tdm_api_tile_t *t);

TDM_END_DECLS

#endif /* TDM_API_API_TILE_H */
