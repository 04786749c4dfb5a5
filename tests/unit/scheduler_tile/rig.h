/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SCHEDULER_TILE_RIG_H
#define TDM_TESTS_SCHEDULER_TILE_RIG_H

/* A scheduler tile between real lanes: the test is the api tile, the fake
   executor of tests/sim stands behind the plan lane, and time is in the
   test's hand.  Tokens are checked against the executor's oracle as they
   come.  One rig, made and freed by each test. */

#include "appliance/base/atomic.h"
#include "appliance/base/clock.h"
#include "scheduler/tile/sched_tile.h"
#include "tests/sim/fake_executor.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RIG_VOCAB    1000u
#define RIG_REQUESTS 16u
#define RIG_EVENTS   4u /* a small event lane */

typedef struct rig {
    tdm_sched_tile_t *tile;
    tdm_sched_sizes_t sizes;
    tdm_sched_live_t live;
    tdm_sched_tile_wires_t wires;
    tdm_ring_t requests, controls, events;
    tdm_life_t life;
    tdm_block_t *block;
    tdm_plan_t *plan[2];
    tdm_result_t *result[2];
    fake_executor_t x;
    int64_t now_ns;

    tdm_request_t request[RIG_REQUESTS];
    tdm_event_t last[RIG_REQUESTS];   /* of each request */
    uint32_t got_cnt[RIG_REQUESTS];   /* tokens of each */
    int is_ended[RIG_REQUESTS];       /* after which no event may come */
    uint64_t want_hash[RIG_REQUESTS]; /* the oracle's */
} rig_t;

extern rig_t rig;

/* rig_setup makes a tile of 4 sequences, 64 pages and two plans in flight
   that has no executor yet; rig_teardown frees it. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* rig_own gives memory until the teardown, on a cache line. */
void *rig_own(size_t sz);

/* rig_create makes the tile again, of what sizes, live and wires say now. */
void rig_create(void);

uint32_t rig_poll(void);

/* rig_begin_life: an executor is there, and the tile has taken it up. */
void rig_begin_life(uint32_t epoch);

/* rig_submit asks for output_max tokens after a prompt of 20, in a slot
   whose last request has ended; rig_control says a word about it. */
void rig_submit(uint32_t slot, uint32_t output_max);
void rig_control(uint32_t slot, tdm_control_kind_t kind);

/* rig_read_event takes one event from the lane: 0 where there is none. */
int rig_read_event(void);

/* rig_execute takes one plan from the lane, lets a millisecond pass and
   returns its result: 0 where there is none. */
int rig_execute(void);

/* rig_run: turns of poll, execute, and reading all events. */
void rig_run(uint32_t turns);

/* rig_metric: a word of the tile's block. */
uint64_t rig_metric(tdm_metric_t m, uint32_t idx);

#endif /* TDM_TESTS_SCHEDULER_TILE_RIG_H */
