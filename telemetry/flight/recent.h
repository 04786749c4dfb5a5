/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_RECENT_H
#define TDM_TELEMETRY_RECENT_H

/* The newest of the flight recorder as JSON, for consoles: the lane of
   iterations and the slowest requests.  On one line, no line break inside;
   no prompt, token or client's name, as there is none in the recorder. */

#include "telemetry/flight/flight.h"

#include <stdio.h>

/* tdm_recent_iterations writes an array of the records from number `from`
   on, at most max of the newest, and gives the number to ask from next.  A
   number that is not written yet is one of another life: all of this one
   come.

     [{"n": 17, "at_s": 1796123329.755, "ms": 8.0, "path": "fused",
       "fallback": "none", "cap": "no_work", "class": "interactive",
       "limit_ms": 12.0, "predicted_ms": 10.0, "prefill": 192, "decode": 8,
       "vcta": [120, 40], "tile": [64, 64], "splits": 12, "variant": 0, "sms": 8,
       "attention_ms": 6.0, "late": 0, "lost": 0, "revision": 0}, ...]

   at_s is its end, seconds since 1970 as tandemctl explain --at takes them;
   of a request, its first moment.  mem NULL: no recorder, an empty array,
   and 0. */
uint64_t tdm_recent_iterations(const void *mem, uint64_t from, uint32_t max, FILE *f);

/* tdm_recent_slowest writes an array of at most max requests that the
   recorder still holds, those that took longest first:

     [{"id": "0.17.3", "class": "interactive", "ending": "length",
       "at_s": 1796123329.755, "total_ms": 900.0, "prompt": 40, "output": 100,
       "phases": {"ingest": 1.0, "queue": 2.0, "prefill": 90.0,
                  "decode": 800.0}}, ...]

   A phase that has not ended is left out.  Allocates nothing: a console
   asks each second, for as long as it is open.  room is the caller's,
   tdm_recent_footprint bytes, aligned to 8; what it holds is nobody's.
   mem NULL: no recorder, an empty array, and room may be NULL. */
void tdm_recent_slowest(const void *mem, void *room, uint32_t max, FILE *f);

/* tdm_recent_footprint: bytes of that room, the same for as long as mem is
   mapped; 0 where mem is NULL. */
uint64_t tdm_recent_footprint(const void *mem);

#endif /* TDM_TELEMETRY_RECENT_H */
