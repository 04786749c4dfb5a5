/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_EXPLAIN_H
#define TDM_TELEMETRY_EXPLAIN_H

/* One iteration in words: what ran, whose promise limited it, what ended
   its prefill, why it was not fused, and how the prediction came out.
   Pure: a record in, text out. */

#include "telemetry/flight/flight.h"

TDM_BEGIN_DECLS

/* tdm_explain writes at most a dozen lines into buf[cap], always
   NUL-terminated, and returns the length it wanted.  wall_offset_ns is the
   header's.  A number outside its list (a damaged file) is printed as a
   number. */
size_t tdm_explain(const tdm_flight_iteration_t *r, int64_t wall_offset_ns, char *buf, size_t cap);

/* tdm_explain_find looks for the iteration that ran at at_ns
   (CLOCK_MONOTONIC), or the one that ended last before it; with 0 the
   newest.  0 where none is there. */
int tdm_explain_find(const void *mem, int64_t at_ns, tdm_flight_iteration_t *out);

/* tdm_explain_number looks for an iteration by its number. */
int tdm_explain_number(const void *mem, uint64_t iteration, tdm_flight_iteration_t *out);

/* tdm_explain_slowest looks for the one that took longest of those still
   there; with a fallback (TDM_FALLBACK_*), of those that fell back so. */
int tdm_explain_slowest(const void *mem, uint32_t fallback, tdm_flight_iteration_t *out);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_EXPLAIN_H */
