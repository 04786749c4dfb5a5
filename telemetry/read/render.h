/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_RENDER_H
#define TDM_TELEMETRY_RENDER_H

/* A snapshot as the text that scrapers read, in either format:

     PROMETHEUS   text 0.0.4: TYPE and HELP name the sample itself
     OPENMETRICS  1.0.0: TYPE, HELP and UNIT name the family (a counter
                  without _total), build_info is of type info, and the
                  last line is "# EOF"

   Every series of metrics.def is there from the first scrape on, with 0.
   Bucket bounds are canonical floats ("1.0") in both formats, so that a
   scraper that changes format keeps its series.  Values are exact. */

#include "telemetry/read/snapshot.h"

#include "appliance/base/status.h"

TDM_BEGIN_DECLS

typedef enum tdm_metrics_format {
    TDM_METRICS_PROMETHEUS,
    TDM_METRICS_OPENMETRICS,
} tdm_metrics_format_t;

/* One label of build_info, in the words of boot: version, commit,
   backend, isa, model, poll.  Keys match [a-z_][a-z0-9_]*. */
typedef struct tdm_fact {
    const char *key;
    const char *value;
} tdm_fact_t;

/* A buffer that holds either rendering with room to spare. */
#define TDM_METRICS_TEXT_MAX (512 * 1024)

/* tdm_render_metrics writes the text into buf[cap] and its size into *sz;
   TDM_ERR_LIMIT where cap is too small, and *sz is the size it needs.  The
   text is not NUL-terminated. */
TDM_MUST_USE tdm_status_t tdm_render_metrics(const tdm_snapshot_t *s, tdm_metrics_format_t format,
                                             const tdm_fact_t *fact, uint32_t fact_cnt, char *buf,
                                             size_t cap, size_t *sz);

/* tdm_metrics_series_cnt: sample lines of one rendering. */
uint32_t tdm_metrics_series_cnt(void);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_RENDER_H */
