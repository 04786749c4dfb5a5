/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SEQ_H
#define TDM_SCHEDULER_SEQ_H

/* tdm_seq is one accepted request on its way.  A refused request never
   becomes a sequence.

                +-- executor died, or gave its place up --+
                v                                         |
     FREE -> WAITING -> PREFILL -------------> DECODE ----+
      ^         |          |                     |
      |         +----------+---------------------+
      |                    v
      +---- DONE | CANCELLED | FAILED       (one END event each)

   Whoever goes back to WAITING keeps its order, and so its place before
   all that came later, and the tokens it has sent (scheduler/tape.h).

   Positions count tokens of the sequence from 0, prompt first:

     0 ........ prompt_cnt ........ fill_cnt ....... last
     prompt     outputs sent before  outputs still to come
                it last went back

   pos is the next input position to plan; below fill_cnt its token is
   known and it is prefill, from fill_cnt on it is decode.  last =
   prompt_cnt + output_max - 1 is the position of the last token that may
   be sampled; it is never an input.

   Ownership: the table is the scheduler's; a sequence is named by its
   index and its order, which is never used twice. */

#include "appliance/abi/request.h"
#include "appliance/base/check.h"

TDM_BEGIN_DECLS

#define TDM_SEQ_NONE UINT32_MAX

typedef enum tdm_seq_state {
    TDM_SEQ_FREE,
    TDM_SEQ_WAITING,   /* accepted; no slot, no pages */
    TDM_SEQ_PREFILL,   /* has a slot; its next token is not computed yet */
    TDM_SEQ_DECODE,    /* has a slot; at least one token since the last restart */
    TDM_SEQ_DONE,      /* stop or length */
    TDM_SEQ_CANCELLED, /* by the client */
    TDM_SEQ_FAILED,    /* with a reason */
    TDM_SEQ_STATE_CNT
} tdm_seq_state_t;

/* Three lines of 64 bytes: what every iteration reads of a running
   sequence; what its start and its first token need; what only trouble
   needs. */
typedef struct tdm_seq {
    uint64_t order TDM_ALIGNED(64); /* of acceptance, from 1 */
    uint32_t prompt_cnt;
    uint32_t output_max;
    uint32_t fill_cnt; /* tokens known when it last left WAITING */
    uint32_t pos;
    uint32_t out_cnt; /* tokens sent */
    uint32_t slot;    /* TDM_SEQ_NONE while WAITING */
    uint32_t row;     /* of its output tokens, TDM_TAPE_NONE: none */
    uint32_t prev;    /* neighbours in its queue, or in the free list */
    uint32_t next;
    tdm_handle_t handle;
    uint16_t api;
    uint16_t slo_class;
    uint16_t tenant;
    uint16_t queue;      /* scheduler/order.h, TDM_QUEUE_NONE where in none */
    uint8_t state;       /* tdm_seq_state_t */
    uint8_t is_skipped;  /* skip_ns is set: few are, and the line of it is far */
    uint16_t is_rebuilt; /* computed again after a restart, tokens were sent */

    const tdm_request_t *request TDM_ALIGNED(64); /* api's, readable until END is popped */
    int64_t accepted_ns;
    int64_t deadline_ns;  /* of the first token: the request's or its class's */
    int64_t served_ns;    /* when a token of it was last planned, else accepted_ns */
    int64_t first_ns;     /* end of the iteration that made its first token, 0: none yet */
    uint32_t wait_us;     /* it was WAITING for so long, at most UINT32_MAX */
    uint32_t cached_cnt;  /* prompt tokens it was spared when it first started */
    uint32_t held_cnt;    /* prompt tokens that come computed, a whole number of pages */
    uint32_t is_returned; /* it had a slot before */
    uint32_t evict_cnt;   /* times it gave its place up to a more urgent one */

    int64_t death_ns TDM_ALIGNED(64); /* when the first counted death happened */
    int64_t skip_ns;                  /* end of its last token's iteration while it is left out of
                                         plans, 0: it is in all */
    uint32_t death_cnt;               /* executor lives it ended in */
    uint32_t death_epoch;             /* counted for this epoch already */
    uint32_t fed_cnt;                 /* positions planned before it last went back */
    uint32_t skip_cnt;                /* turns it sat out for a tighter promise */
} tdm_seq_t;

/* tdm_seq_may says whether the table above has the arrow from -> to. */
int tdm_seq_may(tdm_seq_state_t from, tdm_seq_state_t to);

/* tdm_seq_move changes the state; an arrow that is not there is a broken
   invariant. */
void tdm_seq_move(tdm_seq_t *q, tdm_seq_state_t to);

/* tdm_seq_state_name: "free", "waiting", ...; never NULL. */
const char *tdm_seq_state_name(tdm_seq_state_t state);

/* tdm_seq_last gives the position of the last token it may sample. */
static inline uint32_t tdm_seq_last(const tdm_seq_t *q) {
    return q->prompt_cnt + q->output_max - 1u;
}

/* tdm_seq_fill_left gives the known tokens not yet planned. */
static inline uint32_t tdm_seq_fill_left(const tdm_seq_t *q) {
    return q->pos < q->fill_cnt ? q->fill_cnt - q->pos : 0u;
}

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SEQ_H */
