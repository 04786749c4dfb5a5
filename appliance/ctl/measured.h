/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_MEASURED_H
#define TDM_CTL_MEASURED_H

/* By how much plans erred in windows that were measured, read from what
   `bench serve --planned` or `bench merge --plan` wrote (bench_file.h), or from
   a list of such files' objects, as one lies beside a kept profile.  Of each
   object these are read, and no cell is needed:

     {"appliance": {"model", "device"}, "trace", "planned": {"gap_ms"},
      "carries": [{"path", "policy", "rate", "is_open", "is_seen", "planned"}, ..],
      "errors": [..]}                                          bench_report.h

   Windows above what a way to serve carries do not count: past that point no
   plan is to be believed. */

#include "appliance/base/status.h"
#include "scheduler/sim/trust.h"

/* tdm_measured_beside gives the name of the list beside a profile:
   "h200.measured.json" beside "h200.json" or "h200.bin". */
void tdm_measured_beside(const char *profile, char *out, size_t sz);

/* tdm_measured_read adds the rows of a file to trust.  NOT_FOUND where there is
   none; CORRUPT where it tells no errors; INVAL where windows are of another
   model than the profile's, or of another device than trust's. */
TDM_MUST_USE tdm_status_t tdm_measured_read(const char *path, const char *model, tdm_trust_t *trust,
                                            tdm_error_t *err);

#endif /* TDM_CTL_MEASURED_H */
