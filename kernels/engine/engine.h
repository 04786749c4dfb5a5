/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_ENGINE_H
#define TDM_KERNELS_ENGINE_ENGINE_H

/* tdm_engine is the host side that all backends share: it checks a plan,
   keeps the slots, gathers the rows, builds the attention work list,
   walks the layers once over an op table, samples, and fills the result.

     start    check, apply, gather, plan the attention   host's work
     compute  walk, sample                               the device's, or its queue's
     finish   hand the tokens out, fill the result       host's work

   With depth 2 the second plan may be started while the first computes;
   computes and finishes follow the order of the starts.  Which thread
   does which is the backend's choice: starts and finishes are one's,
   computes one's, and a compute happens after its start and before its
   finish.

   Ownership: memory is the caller's (footprint, init); ops and ctx are
   the backend's that embeds it.  A plan and its result are the engine's
   from start to finish.  Nothing is allocated after init. */

#include "kernels/engine/ops.h"
#include "kernels/engine/slots.h"
#include "kernels/include/backend.h"
#include "kernels/worklist/worklist.h"

TDM_BEGIN_DECLS

typedef struct tdm_engine tdm_engine_t;

typedef struct tdm_engine_config {
    tdm_slots_config_t slots;
    tdm_worklist_config_t worklist; /* checked: tdm_worklist_config_check; unused where ops->begin
                                       plans, but for sm_cnt */
    uint32_t layer_cnt;
    uint32_t logits_max; /* rows per `logits` op, >= 1; with ops->finish all that can be wanted */
    uint32_t depth;      /* iterations under way at once, 1..TDM_BACKEND_DEPTH_MAX */
    const tdm_engine_ops_t *ops;
    void *ctx;
} tdm_engine_config_t;

/* tdm_engine_footprint: bytes. */
uint64_t tdm_engine_footprint(const tdm_engine_config_t *config);

/* tdm_engine_init formats mem: footprint bytes, zeroed, TDM_CACHE_LINE
   aligned. */
tdm_engine_t *tdm_engine_init(void *mem, const tdm_engine_config_t *config);

/* tdm_engine_start and tdm_engine_finish are the verbs of the backend's
   door (kernels/include/backend.h). */
TDM_MUST_USE tdm_status_t tdm_engine_start(tdm_engine_t *e, const tdm_plan_t *plan,
                                           tdm_result_t *result, tdm_error_t *err);
TDM_MUST_USE tdm_status_t tdm_engine_finish(tdm_engine_t *e, tdm_error_t *err);

/* tdm_engine_compute walks and samples the oldest iteration started and
   not computed yet; a device with a queue has it queued then. */
void tdm_engine_compute(tdm_engine_t *e);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_ENGINE_H */
