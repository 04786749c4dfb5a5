/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_SPANS_H
#define TDM_KERNELS_PLAN_SPANS_H

/* From the log of a launch to what it means. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

/* tdm_pod_spans_fold fills all of *out but the sums that the device
   counted (vcta_executed, merge_cnt).  It sorts span[0, cnt).  cta_sm: CTAs
   that share an SM; sm_cnt: SMs of the device. */
void tdm_pod_spans_fold(tdm_pod_span_t *span, uint32_t cnt, uint32_t cta_sm, uint32_t sm_cnt,
                        tdm_pod_counters_t *out);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_SPANS_H */
