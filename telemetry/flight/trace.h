/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_TRACE_H
#define TDM_TELEMETRY_TRACE_H

/* The flight recorder as files that others open:

     CHROME  the trace event format (chrome://tracing, ui.perfetto.dev):
             iterations as slices with all they know, virtual CTAs and
             queue as counters, requests as asynchronous slices of their
             phases; times in microseconds of CLOCK_MONOTONIC
     OTLP    one TracesData message in OTLP's JSON (opentelemetry-proto,
             trace.proto): a span per request with a child per phase, a
             span per iteration; times in nanoseconds since 1970

   A reader may run while the writer goes on; what is overwritten meanwhile
   is left out. */

#include "telemetry/flight/flight.h"

#include <stdio.h>

TDM_BEGIN_DECLS

typedef struct tdm_trace_span {
    int64_t from_ns; /* CLOCK_MONOTONIC; what ended before is left out */
    int64_t to_ns;   /* and what began after */
} tdm_trace_span_t;

/* tdm_trace_chrome and tdm_trace_otlp write the whole file.  TDM_ERR_IO:
   f does not take it; TDM_ERR_NOMEM. */
TDM_MUST_USE tdm_status_t tdm_trace_chrome(const void *mem, const tdm_trace_span_t *span, FILE *f);
TDM_MUST_USE tdm_status_t tdm_trace_otlp(const void *mem, const tdm_trace_span_t *span, FILE *f);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_TRACE_H */
