/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_FAKE_EXECUTOR_H
#define TDM_TESTS_SIM_FAKE_EXECUTOR_H

/* An executor without a model, in virtual time.  It keeps the slot tables
   that plan.h describes and doubts every plan as the real one would:
   positions contiguous, pages inside the pool, never in two tables, never
   granted while an unfinished iteration may read them, inputs known.  A
   page of which a slot says that it is filled was filled in this executor
   life with the same tokens after the same tokens of the same tenant, by a
   sequence that was not seen to yield NaN, and nobody writes a page that
   two tables hold.

   Its "model": the next token is a hash of every token before it and of
   the sampling seed, so one wrong, lost or foreign token anywhere changes
   all that follow.  fake_token gives the same to the tests' clients. */

#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"

#define FAKE_DEPTH        2u
#define FAKE_DELIVERY_CNT 1024u

/* Properties of a request hidden in its sampling seed. */
#define FAKE_SEED_NAN       (UINT64_C(1) << 62) /* its third token has no finite logit */
#define FAKE_SEED_STOP      (UINT64_C(1) << 61) /* about every eighth token is a stop id */
#define FAKE_SEED_HELD      (UINT64_C(1) << 60) /* pages it opens on may come from elsewhere */
#define FAKE_SEED_TENANT_LG 56                  /* four bits: whose request it is */
#define FAKE_SEED_MASK      ((UINT64_C(1) << FAKE_SEED_TENANT_LG) - 1u)

typedef struct fake_slot {
    uint64_t seed;
    uint32_t is_open;
    uint32_t prompt_cnt;
    uint32_t page_cnt;
    uint32_t filled_cnt; /* tokens that were computed before it was opened */
    uint32_t pos;        /* tokens whose KV is written */
    uint32_t known_cnt;  /* tokens known: pos, or one more after a sample */
    uint32_t min_tokens;
    uint32_t flags;
    uint32_t *page; /* [table_max] */
    uint64_t *hash; /* [context + 1] over the first n tokens */
    int32_t *token; /* [context] */
} fake_slot_t;

typedef struct fake_flight {
    uint64_t iteration;
    int64_t cost_ns;
    uint32_t decode_cnt;
    uint32_t nan_cnt;
    uint32_t nan_slot[TDM_SEQ_MAX]; /* slots with a sample that is not finite */
    uint64_t nan_seed[TDM_SEQ_MAX]; /* and whose they were */
    tdm_result_t result;
} fake_flight_t;

typedef struct fake_executor {
    uint32_t page_cnt;
    uint32_t context;
    uint32_t table_max;
    uint32_t vocab;
    uint32_t epoch;
    uint32_t flight_cnt;
    uint64_t done_iteration;
    uint32_t sm_clock_khz; /* that results tell; 0: none */
    uint64_t last_iteration;
    int is_fresh; /* no plan taken in this life: any later iteration may come first */
    fake_slot_t slot[TDM_SEQ_MAX];
    uint32_t *page_ref;      /* [page_cnt] tables that have it */
    uint32_t *page_fill;     /* [page_cnt] rows written in this life */
    uint64_t *page_tag;      /* [page_cnt] contents: hash of all tokens up to its last row */
    int32_t *page_token;     /* [page_cnt, TDM_KV_PAGE_TOKENS] */
    uint8_t *page_bad;       /* [page_cnt] a sequence that holds it yielded NaN, or it came from
                                elsewhere */
    uint64_t *page_last_use; /* [page_cnt] iteration */
    uint64_t delivered[FAKE_DELIVERY_CNT]; /* seeds whose pages came, by their low bits: they come
                                              once, whatever happens to them */
    fake_flight_t flight[FAKE_DEPTH];
    char wrong[200]; /* why the last plan was refused */
} fake_executor_t;

/* fake_prompt gives token i of the plain prompt of an identity: what those
   pages hold that come from elsewhere. */
int32_t fake_prompt(uint64_t identity, uint32_t i, uint32_t vocab);

/* fake_token: token and flags that follow `hash` at output index `index`. */
int32_t fake_token(uint64_t hash, uint64_t seed, uint32_t vocab, uint32_t index,
                   uint32_t min_tokens, uint32_t flags, uint32_t *sample_flags);
uint64_t fake_hash(uint64_t hash, int32_t token);

/* fake_root is the hash of no token yet, one for each tenant. */
uint64_t fake_root(uint64_t seed);

void fake_open(fake_executor_t *x, uint32_t page_cnt, uint32_t context, uint32_t vocab);
void fake_close(fake_executor_t *x);

/* fake_restart forgets all and starts the life `epoch`. */
void fake_restart(fake_executor_t *x, uint32_t epoch);

/* fake_take checks and carries out a plan; its result waits in flight.
   1, or 0 with x->wrong set. */
int fake_take(fake_executor_t *x, const tdm_plan_t *plan, int64_t cost_ns);

/* fake_finish hands out the oldest result with its times filled in; the
   pointer is valid until the next call. */
const tdm_result_t *fake_finish(fake_executor_t *x, int64_t start_ns, int64_t end_ns);

#endif /* TDM_TESTS_SIM_FAKE_EXECUTOR_H */
