/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_FLIGHT_H
#define TDM_CTL_FLIGHT_H

/* Reading the flight recorder (telemetry/flight), also of an appliance that
   is not there any more:

     trace    [--format chrome|otlp] [--seconds N]          to stdout
     explain  [--at T | --iteration N | --slowest | --fallback NAME]
     both     [--flight FILE]

   T is "HH:MM:SS" or "HH:MM:SS.mmm" of today (UTC), of yesterday where that
   is still to come; "2026-12-01T11:08:49.755Z", as tables tell times; seconds
   since 1970; or "-N" for N seconds ago.  Without
   any of them explain takes the newest iteration.  The file of an earlier
   life is FILE.last. */

#include "appliance/base/status.h"

/* tdm_ctl_trace and tdm_ctl_explain return the exit status of tandemctl:
   1 where nothing fits or the file cannot be read, 2 usage.  version is
   the reader's: another build's file is refused. */
int tdm_ctl_trace(int argc, char **argv, const char *version);
int tdm_ctl_explain(int argc, char **argv, const char *version);

/* tdm_ctl_when reads T into nanoseconds since 1970; now_ns likewise.
   TDM_ERR_INVAL for anything else. */
TDM_MUST_USE tdm_status_t tdm_ctl_when(const char *text, int64_t now_ns, int64_t *out);

#endif /* TDM_CTL_FLIGHT_H */
