/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TELEMETRY_ACCEPT_H
#define TDM_TELEMETRY_ACCEPT_H

/* What a scraper may ask for in Accept and Accept-Encoding (RFC 9110
   section 12.5).  Among the formats we speak the highest q wins, the
   earlier one on a tie; where none is named, or the header is nonsense,
   the answer is text 0.0.4: a scraper always gets metrics.

   Both headers come from outside: any bytes up to the door's bound. */

#include "telemetry/read/render.h"

TDM_BEGIN_DECLS

/* tdm_accept_metrics picks the format; NULL counts as an absent header.
     application/openmetrics-text;version=1.0.0 (or none; 0.0.1 is
                                       another format, which we do not speak)
     text/plain;version=0.0.4 (or none), text/plain, text/(any), (any) */
tdm_metrics_format_t tdm_accept_metrics(const char *accept);

/* The sets of families; ?set= of the query chooses. */
enum {
    TDM_METRICS_NATIVE = 1, /* telemetry/block/metrics.def */
    TDM_METRICS_COMPAT = 2, /* telemetry/read/compat.h */
    TDM_METRICS_ALL = TDM_METRICS_NATIVE | TDM_METRICS_COMPAT,
};

/* tdm_accept_set reads set=native|compat|all of a query string (the text
   after '?', any bytes); without it all, and 0 for another value.  Other
   parameters are ignored; of two, the first counts. */
uint32_t tdm_accept_set(const char *query);

/* tdm_accept_gzip says whether gzip is welcome: named (or "*") with q > 0. */
int tdm_accept_gzip(const char *accept_encoding);

TDM_END_DECLS

#endif /* TDM_TELEMETRY_ACCEPT_H */
