/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_TAPE_H
#define TDM_SCHEDULER_TAPE_H

/* tdm_tape keeps the output token ids of sequences, so that one can be
   computed again without its client, after an executor death or after it
   gave its pages up.  The prompt's ids are the request's.

   A sequence takes a row when it first gets a slot and keeps it until it
   ends or, having sent nothing, goes back to WAITING.  Twice as many rows
   as slots: all running ones, and as many that wait to be computed again.

   Ownership: the caller's memory.  One caller. */

#include "appliance/base/check.h"

#define TDM_TAPE_NONE UINT32_MAX

typedef struct tdm_tape {
    uint32_t row_cnt;
    uint32_t row_sz; /* tokens of a row, the context */
    uint32_t free_cnt;
    uint32_t reserved;
    uint32_t *free; /* [row_cnt] stack, free_cnt used */
    int32_t *token; /* [row_cnt, row_sz] */
} tdm_tape_t;

/* tdm_tape_rows gives the rows for seq_max slots. */
static inline uint32_t tdm_tape_rows(uint32_t seq_max) {
    return 2u * seq_max;
}

static inline void tdm_tape_init(tdm_tape_t *t) {
    t->free_cnt = t->row_cnt;
    for (uint32_t i = 0; i < t->row_cnt; i++) t->free[i] = t->row_cnt - 1u - i;
}

static inline uint32_t tdm_tape_take(tdm_tape_t *t) {
    TDM_CHECK(t->free_cnt > 0);
    return t->free[--t->free_cnt];
}

static inline void tdm_tape_give(tdm_tape_t *t, uint32_t row) {
    TDM_CHECK(row < t->row_cnt && t->free_cnt < t->row_cnt);
    t->free[t->free_cnt++] = row;
}

/* tdm_tape_at gives the place of output token idx. */
static inline int32_t *tdm_tape_at(const tdm_tape_t *t, uint32_t row, uint32_t idx) {
    TDM_CHECK(row < t->row_cnt && idx < t->row_sz);
    return &t->token[(size_t)row * t->row_sz + idx];
}

#endif /* TDM_SCHEDULER_TAPE_H */
