/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_PAGE_H
#define TDM_TELEMETRY_PAGE_H

/* The answer to GET /metrics, whole: format and coding negotiated, text
   rendered, compressed where that was asked for. */

#include "telemetry/read/accept.h"

TDM_BEGIN_DECLS

typedef struct tdm_metrics_page {
    tdm_metrics_format_t format;
    int is_gzip; /* send Content-Encoding: gzip */
    const char *data;
    size_t sz;
} tdm_metrics_page_t;

/* tdm_metrics_page renders into buf[cap]; where gzip is welcome and
   gz[gz_cap] takes the compressed text, page->data points there instead.
   gz may be NULL.  Not for a polling tile: zlib allocates.
   TDM_ERR_LIMIT where buf is too small. */
TDM_MUST_USE tdm_status_t tdm_metrics_page(const tdm_snapshot_t *s, const tdm_fact_t *fact,
                                           uint32_t fact_cnt, const char *accept,
                                           const char *accept_encoding, char *buf, size_t cap,
                                           char *gz, size_t gz_cap, tdm_metrics_page_t *page);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_PAGE_H */
