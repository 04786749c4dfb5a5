/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_EXEC_CHANNEL_H
#define TDM_EXEC_CHANNEL_H

/* tdm_channel is the memory between the scheduler tile and the executor:
   plans one way, results the other, and a head that says how the executor
   is to be built and how far it is.  It is one shared arena (hugepages
   where configured), passed to the executor process as a sealed
   descriptor; it holds offsets and plain data, never a pointer.

     scheduler tile                            executor
     write plan[k]
     push k on plans, ring exec_bell  ----->   pop k, run plan[k]
                                               write result[k]
     pop k, read result[k]            <-----   push k on results, ring
                                               sched_bell

   Slot k is the scheduler's until pushed, the executor's until it comes
   back, and the scheduler's again: a result frees its plan.  Both lanes
   are as deep as there are slots, so neither can be full.

   Ownership: tandemd creates and closes; the executor attaches.  Both
   sides see one epoch, the executor's life: the supervisor formats the
   lanes anew while nobody is attached. */

#include "appliance/abi/board.h"
#include "appliance/abi/plan.h"
#include "appliance/abi/result.h"
#include "appliance/base/arena.h"
#include "appliance/ring/doorbell.h"
#include "appliance/ring/lane.h"
#include "kernels/include/backend.h"

#define TDM_CHANNEL_DEPTH 2u

typedef enum tdm_exec_state {
    TDM_EXEC_LOADING, /* reading weights; progress moves */
    TDM_EXEC_READY,   /* takes plans */
    TDM_EXEC_FAILED,  /* gave up; error says why; a restart will not help */
} tdm_exec_state_t;

typedef enum tdm_exec_backend { TDM_EXEC_BACKEND_CPU, TDM_EXEC_BACKEND_CUDA } tdm_exec_backend_t;

/* What the executor process is told; written before it is started. */
typedef struct tdm_exec_spec {
    char model[512];    /* as appliance/model takes it */
    uint32_t backend;   /* tdm_exec_backend_t */
    uint32_t poll_mode; /* tdm_poll_mode_t */
    uint32_t is_sandboxed;
    uint32_t weight_dtype; /* tdm_weight_dtype_t */
    tdm_backend_config_t config;
} tdm_exec_spec_t;

/* The first bytes of the arena. */
typedef struct tdm_channel_head {
    uint64_t magic;
    uint32_t plan_sz;   /* sizeof(tdm_plan_t) and sizeof(tdm_result_t) of the writer: two */
    uint32_t result_sz; /* programs of different builds refuse each other */
    uint64_t plan_off[TDM_CHANNEL_DEPTH];
    uint64_t result_off[TDM_CHANNEL_DEPTH];
    uint64_t plans_off;
    uint64_t results_off;
    tdm_exec_spec_t spec;
    uint32_t epoch; /* of the executor now attached or about to be */

    /* written by the executor, read by the supervisor */
    uint32_t state TDM_ALIGNED(TDM_CACHE_LINE); /* tdm_exec_state_t */
    uint32_t progress_permille;                 /* of the weights */
    uint64_t memory_bytes;                      /* backend's own, after create */
    uint32_t sm_cnt;
    char isa[16];
    char error[240]; /* final when state is FAILED */

    tdm_board_t board; /* written by the executor's sampler; goes on over lives */

    tdm_choices_t choices; /* written by the executor, read by the next, forgotten by tandemd */

    uint32_t exec_asleep TDM_ALIGNED(TDM_CACHE_LINE);
    uint32_t sched_asleep TDM_ALIGNED(TDM_CACHE_LINE);
} tdm_channel_head_t;

/* One side's view. */
typedef struct tdm_channel {
    tdm_arena_t arena;
    tdm_channel_head_t *head;
    tdm_plan_t *plan[TDM_CHANNEL_DEPTH];
    tdm_result_t *result[TDM_CHANNEL_DEPTH];
    tdm_lane_t *plans;   /* of uint32_t, scheduler to executor */
    tdm_lane_t *results; /* of uint32_t, executor to scheduler */
    tdm_doorbell_t exec_bell;
    tdm_doorbell_t sched_bell;
} tdm_channel_t;

/* tdm_channel_open makes the arena and both bells and formats them for
   epoch 0.  kind is SHARED or SHARED_HUGE. */
TDM_MUST_USE tdm_status_t tdm_channel_open(tdm_channel_t *c, tdm_arena_kind_t kind,
                                           const tdm_exec_spec_t *spec, tdm_error_t *err);

/* tdm_channel_format empties both lanes and begins an epoch.  Neither side
   may be using the channel. */
void tdm_channel_format(tdm_channel_t *c, uint32_t epoch);

/* tdm_channel_attach is the executor's view from three descriptors; it
   refuses memory of another build.  The descriptors become the view's. */
TDM_MUST_USE tdm_status_t tdm_channel_attach(tdm_channel_t *c, int arena_fd, int exec_bell_fd,
                                             int sched_bell_fd, tdm_error_t *err);

/* tdm_channel_close undoes open or attach. */
void tdm_channel_close(tdm_channel_t *c);

#endif /* TDM_EXEC_CHANNEL_H */
