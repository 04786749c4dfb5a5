/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_WORLD_H
#define TDM_TESTS_SIM_WORLD_H

/* The production scheduler between clients and a fake executor, in
   virtual time.  Clients know every token they must get (fake_token) and
   check each event: one answer per request, tokens in order and right,
   one end, nothing after it.  A client that has begun to stream gets a
   token from every iteration of the same executor life.  Plans stay inside
   their bounds, and their predicted time inside the limit unless forced.
   The ledger of gaps is the number of decodes that ran.  The scheduler's
   invariants are checked after every turn.  Any finding prints seed and turn and fails the test. */

#include "scheduler/check.h"
#include "tests/sim/fake_executor.h"

typedef enum world_state {
    WORLD_IDLE,     /* slot is api's */
    WORLD_ASKED,    /* submitted, no answer yet */
    WORLD_ACCEPTED, /* streaming */
} world_state_t;

/* One request slot of one api tile, and what its client has seen. */
typedef struct world_client {
    tdm_request_t request;
    int32_t *prompt; /* [prompt_cap] and what it was answered */
    uint32_t prompt_cap;
    uint32_t id;
    world_state_t state;
    uint64_t hash; /* of all tokens so far */
    uint32_t out_cnt;
    int is_cancelled;
    int is_stop_hit;
    int64_t first_ns; /* first token, 0: none */
    int64_t last_ns;
    int64_t gap_ns;          /* the greatest between two tokens */
    uint32_t skip_cnt;       /* turns it sat out for a tighter promise */
    uint64_t last_iteration; /* that made its last token, 0: none in this executor life */
} world_client_t;

/* The ending of a request, kept by id. */
typedef struct world_end {
    uint16_t kind; /* ACCEPTED..END seen last: REFUSED or END, 0 while open */
    uint16_t finish;
    uint16_t reason;
    uint32_t out_cnt;
    uint32_t retry_ms;
    uint64_t tokens_hash;
    int64_t ttft_ns;
    int64_t gap_ns;
    int64_t end_ns;
} world_end_t;

#define WORLD_REQUEST_MAX 65536u
#define WORLD_TEXT_MAX    4u
#define WORLD_EVICT_MAX   3u /* the greatest evict_max of any test */

/* The tokens of a finished conversation, for one that goes on. */
typedef struct world_text {
    int32_t *token;
    uint32_t cnt;
    uint32_t tenant;
} world_text_t;

typedef struct world {
    uint64_t seed;
    uint64_t turn;
    int64_t now_ns;
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    tdm_sched_t *sched;
    tdm_sched_cursor_t looked; /* of the check that a serving tile makes */
    void *mem;
    tdm_plan_t *plan;
    fake_executor_t x;
    int is_up;
    uint32_t epoch;
    int64_t busy_ns;        /* when the oldest iteration began */
    double slow;            /* cost factor over the profile; 1 = as predicted */
    world_client_t *client; /* [api_cnt * request_max] */
    uint32_t generation;
    uint32_t next_id;
    world_end_t *end;                  /* [WORLD_REQUEST_MAX] by id */
    uint32_t live_cnt;                 /* clients ASKED or ACCEPTED */
    world_text_t text[WORLD_TEXT_MAX]; /* of those that ended last */
    uint32_t text_next;
    uint64_t cached_cnt;           /* prompt tokens that clients were told came from the cache */
    int is_deaf[TDM_API_TILE_MAX]; /* this api tile does not read events */
    tdm_sched_record_t record;     /* of the iteration that finished last */
    uint64_t plan_cnt;
    uint64_t token_cnt;
    uint64_t iteration;       /* that finished last, */
    int64_t iteration_end_ns; /* and when */
    uint64_t gap_cnt;         /* decodes of all finished iterations */
} world_t;

/* What to ask for; zero-initialised members mean the default. */
typedef struct world_ask {
    uint32_t api;
    uint32_t prompt_cnt;
    uint32_t output_max;
    uint32_t slo_class;
    uint32_t tenant;
    uint32_t held_cnt; /* prompt tokens whose KV comes with it: a plain prompt, no prefix, blocks
                          or text */
    uint32_t min_tokens;
    uint32_t flags;
    uint64_t seed_flags; /* FAKE_SEED_* */
    uint64_t identity;   /* chooses the tokens; 0: the id */
    uint64_t prefix;     /* and those of the first prefix_cnt */
    uint32_t prefix_cnt;
    uint64_t blocks;     /* not 0: made of two runs of 64 tokens, in an order of its own */
    uint32_t follow;     /* 1 + i: the prompt begins with text i, of whatever tenant; 0: none */
    int64_t deadline_ns; /* 0: none */
} world_ask_t;

/* world_sizes and world_live give a small, quick configuration. */
tdm_sched_sizes_t world_sizes(void);
tdm_sched_live_t world_live(void);

void world_open(world_t *w, uint64_t seed, const tdm_sched_sizes_t *sizes,
                const tdm_sched_live_t *live);

/* world_close frees everything; a zeroed world is allowed. */
void world_close(world_t *w);

/* world_up and world_kill start and end an executor life. */
void world_up(world_t *w);
void world_kill(world_t *w);

/* world_submit asks and reads the answer; the id, UINT32_MAX where no
   request slot is free. */
uint32_t world_submit(world_t *w, const world_ask_t *ask);

/* world_control sends a control word for request id; a finished one makes
   a stale word. */
void world_control(world_t *w, uint32_t id, tdm_control_kind_t kind);

/* world_plan lets the scheduler fill the executor: plans pushed. */
uint32_t world_plan(world_t *w);

/* world_finish ends the oldest iteration at its time: 0 where none ran. */
int world_finish(world_t *w);

/* world_turn is plan, then finish: what a busy appliance repeats. */
int world_turn(world_t *w);

/* world_watch advances the clock and asks the watchdog; a verdict kills
   and restarts the executor. */
tdm_reason_t world_watch(world_t *w, int64_t now_ns);

/* world_read takes the events of all api tiles that are not deaf. */
void world_read(world_t *w);

/* world_run turns until nobody is left or turn_max passed; 1 where all
   ended. */
int world_run(world_t *w, uint32_t turn_max);

/* world_settled fails unless nothing is left anywhere. */
void world_settled(world_t *w);

/* world_check fails on a broken invariant. */
void world_check(world_t *w);

const tdm_sched_stats_t *world_stats(world_t *w);

#endif /* TDM_TESTS_SIM_WORLD_H */
