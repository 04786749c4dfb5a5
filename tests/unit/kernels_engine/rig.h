/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_KERNELS_ENGINE_RIG_H
#define TDM_TESTS_KERNELS_ENGINE_RIG_H

/* An engine over a device that writes down what it is asked, whose "logits"
   are such that the sampled token can be told; and plans by hand.  One rig,
   opened and closed by each test. */

#include "kernels/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RIG_LAYERS 3u
#define RIG_LOGITS 2u /* rows per logits op: small, so that groups are needed */

typedef struct rig {
    tdm_engine_t *engine;
    tdm_plan_t *plan; /* the next to run */
    tdm_result_t *result;

    char diary[4096];         /* the ops asked for, in order, a blank after each */
    tdm_engine_row_t row[64]; /* of the iteration that the device saw last */
    uint32_t row_cnt;
    uint32_t logits_row[RIG_LOGITS];
    uint32_t logits_cnt;
    int32_t answer;                      /* the token that sample gives next: 10, and counting up */
    int is_nan;                          /* sample finds no finite logits */
    tdm_sample_out_t queued[RIG_LOGITS]; /* drawn by a device that answers later */
} rig_t;

extern rig_t rig;

/* rig_ops: the device; it plans nothing and answers at once. */
extern const tdm_engine_ops_t rig_ops;

/* rig_config: 6 slots, 10 KV pages, RIG_LAYERS layers, 2 SMs, one iteration
   under way. */
tdm_engine_config_t rig_config(const tdm_engine_ops_t *ops);

/* rig_open makes the engine, an empty plan and a result full of nonsense. */
void rig_open(const tdm_engine_config_t *config);

/* rig_close as cmocka wants a teardown. */
int rig_close(void **state);

/* rig_write_down adds a word to the diary; rig_note_rows keeps the rows. */
void rig_write_down(const char *what);
void rig_note_rows(const tdm_engine_iter_t *it);

/* rig_run_one starts, computes and finishes the plan.  rig_run expects that
   it goes well and makes the next plan, empty. */
tdm_status_t rig_run_one(tdm_error_t *err);
void rig_run(void);

/* rig_add_open opens a slot for a prompt of cnt tokens and grants it a page;
   the tokens of a slice are slot * 10, slot * 10 + 1, ... */
void rig_add_open(tdm_plan_t *plan, uint32_t slot, uint32_t page, uint32_t cnt);
void rig_add_slice(tdm_plan_t *plan, uint32_t slot, uint32_t pos, uint32_t cnt, uint32_t is_last);
void rig_add_decode(tdm_plan_t *plan, uint32_t slot, uint32_t pos);

#endif /* TDM_TESTS_KERNELS_ENGINE_RIG_H */
