/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_STATUS_H
#define TDM_TELEMETRY_STATUS_H

/* The appliance in one JSON document, for `tandemctl show status`: the
   same snapshot a scraper reads, grouped as an operator asks.

     {"tandem": {facts}, "state": "ready", "uptime_s": 12.3, "since_s": 12.3,
      "revision": 0, "confirm_s": 0, "window_s": 10.0, "findings": [{gravity, cause, text}],
      "requests": {...}, "slo": [...], "tokens": {...}, "latency": {...}, "recent": {...},
      "iterations": {...}, "vcta": {...}, "cta_tiles": {...}, "kv": {...}, "time": {...},
      "rings": [...], "tiles": [...], "net": {...}, "gpu": {...},
      "power": {...}, "refusals": {...}, "fallbacks": {...},
      "faults": {...}, "flight": {...}, "journey": {...}}

   Findings (telemetry/read/diagnose.h) are of the last window_s seconds,
   recent is the latency of that window.  Counts and latency are of the last
   since_s seconds, from the start where nobody asks otherwise.  Objects
   keyed by reason hold only reasons that happened.  Times are milliseconds,
   quantiles estimated from the histograms; null: the device does not
   tell. */

#include "telemetry/read/render.h"

TDM_BEGIN_DECLS

/* What a document is made from. */
typedef struct tdm_status_span {
    const tdm_snapshot_t *now;
    const tdm_snapshot_t *window; /* where the window of findings begins; NULL: at the start */
    const tdm_snapshot_t *since;  /* where counts begin; NULL: at the start */
} tdm_status_span_t;

/* tdm_status_json writes the document into buf[cap], NUL-terminated, and
   its length into *sz; TDM_ERR_LIMIT where cap is too small.  start_ns is
   the appliance's start on the clock of the snapshots. */
TDM_MUST_USE tdm_status_t tdm_status_json(const tdm_status_span_t *span, int64_t start_ns,
                                          const tdm_fact_t *fact, uint32_t fact_cnt, char *buf,
                                          size_t cap, size_t *sz);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_STATUS_H */
