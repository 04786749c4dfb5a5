/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_STATS_H
#define TDM_KERNELS_PLAN_STATS_H

/* From what the device counted to the words that every backend reports
   (tdm_attn_stats_t, then tdm_result_t, then telemetry/block/metrics.def):

     plan      -> vcta_planned  split_cnt  kv_read_bytes  flops  tile_row  tile_key
     counters  -> vcta_executed  merge_cnt (partials folded)  ring_stall_cnt
     log       -> vcta_ns  colocated_ns  overlap_ns  tail_ns  wall_ns  sm_clock_khz
                  role_switch_cnt

   An engine launches one plan once for each layer and reads once.  Counts
   are of all launches; the log is of the last one, so times are that
   launch's, taken launch_cnt times. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

/* tdm_pod_stats_add adds what launch_cnt launches of a plan did, as
   tdm_pod_read gave it.  Returns 1 where the counters are the plan's
   exactly, 0 where they are not: a fault of the kernel
   (TDM_POD_EVENT_WRONG_RESULT, kernels/plan/health.h). */
TDM_MUST_USE int tdm_pod_stats_add(const tdm_pod_plan_t *plan, const tdm_pod_counters_t *counters,
                                   uint32_t launch_cnt, tdm_attn_stats_t *stats);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_STATS_H */
