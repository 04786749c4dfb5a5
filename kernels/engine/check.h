/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_ENGINE_CHECK_H
#define TDM_KERNELS_ENGINE_CHECK_H

/* What every backend asks of a model and of its configuration before it
   sizes anything. */

#include "appliance/abi/model.h"
#include "kernels/include/backend.h"

TDM_BEGIN_DECLS

/* tdm_engine_check: INVAL or UNSUPPORTED with the first number that is out
   of range; after OK every product of widths fits 63 bits.  What only one
   backend has (sm_cnt, cpu_isa, KV types) is that backend's to check. */
TDM_MUST_USE tdm_status_t tdm_engine_check(const tdm_shape_t *shape,
                                           const tdm_backend_config_t *config, tdm_error_t *err);

TDM_END_DECLS

#endif /* TDM_KERNELS_ENGINE_CHECK_H */
