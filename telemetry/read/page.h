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

/* What a scraper asked, and the facts that it is told. */
typedef struct tdm_metrics_ask {
    const char *query;  /* after '?', may be empty; NULL: none */
    const char *accept; /* NULL: absent, as the next */
    const char *accept_encoding;
    const tdm_fact_t *fact; /* [fact_cnt] labels of build_info */
    uint32_t fact_cnt;
    const char *model_name; /* served name, of the compat set */
} tdm_metrics_ask_t;

/* tdm_metrics_page renders into buf[cap]; where gzip is welcome and
   gz[gz_cap] takes the compressed text, page->data points there instead.
   gz may be NULL.  Not for a polling tile: zlib allocates.
   TDM_ERR_LIMIT where buf is too small, TDM_ERR_INVAL for a set that is
   none. */
TDM_MUST_USE tdm_status_t tdm_metrics_page(const tdm_snapshot_t *s, const tdm_metrics_ask_t *ask,
                                           char *buf, size_t cap, char *gz, size_t gz_cap,
                                           tdm_metrics_page_t *page);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_PAGE_H */
