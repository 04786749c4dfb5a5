/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_ENGINE_H
#define TDM_KERNELS_ENGINE_ENGINE_H

/* tdm_engine is the host side that all backends share: it checks a plan,
   keeps the slots, gathers the rows, builds the attention work list,
   walks the layers once over an op table, samples, and fills the result.

   Ownership: memory is the caller's (footprint, init); ops and ctx are
   the backend's that embeds it.  Nothing is allocated after init. */

#include "kernels/engine/ops.h"
#include "kernels/engine/slots.h"
#include "kernels/worklist/worklist.h"

TDM_BEGIN_DECLS

typedef struct tdm_engine tdm_engine_t;

typedef struct tdm_engine_config {
    tdm_slots_config_t slots;
    tdm_worklist_config_t worklist; /* checked: tdm_worklist_config_check; unused where ops->begin
                                       plans, but for sm_cnt */
    uint32_t layer_cnt;
    uint32_t logits_max; /* rows per `logits` op, >= 1 */
    const tdm_engine_ops_t *ops;
    void *ctx;
} tdm_engine_config_t;

/* tdm_engine_footprint: bytes. */
uint64_t tdm_engine_footprint(const tdm_engine_config_t *config);

/* tdm_engine_init formats mem: footprint bytes, zeroed, TDM_CACHE_LINE
   aligned. */
tdm_engine_t *tdm_engine_init(void *mem, const tdm_engine_config_t *config);

/* tdm_engine_run is tdm_backend_run (kernels/include/backend.h). */
TDM_MUST_USE tdm_status_t tdm_engine_run(tdm_engine_t *e, const tdm_plan_t *plan,
                                         tdm_result_t *result, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_ENGINE_H */
