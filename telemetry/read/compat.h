/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_COMPAT_H
#define TDM_TELEMETRY_COMPAT_H

/* The same snapshot in the words of vLLM (its docs/design/metrics.md and
   vllm/v1/metrics/loggers.py), so that gateways, dashboards and autoscalers
   made for vLLM work unchanged; the Gateway API inference extension needs
   three of these gauges.  Every family is a sum over native series, so the
   two sets cannot disagree.

   Labels are model_name and engine="0".  Bucket bounds are the native
   ones: finer below 10 ms, where vLLM's own histogram cannot tell.
   Preemptions are places yielded to a more urgent class; what this
   appliance does not do (deferral, ends by repetition) is there with 0. */

#include "telemetry/read/render.h"

TDM_BEGIN_DECLS

/* tdm_render_compat writes the text like tdm_render_metrics; model_name is
   the served name, any bytes. */
TDM_MUST_USE tdm_status_t tdm_render_compat(const tdm_snapshot_t *s, tdm_metrics_format_t format,
                                            const char *model_name, char *buf, size_t cap,
                                            size_t *sz);

/* tdm_compat_series_cnt: sample lines of one rendering. */
uint32_t tdm_compat_series_cnt(void);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_COMPAT_H */
