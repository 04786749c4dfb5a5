/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_REPORT_PRIVATE_H
#define TDM_SCHEDULER_SIM_REPORT_PRIVATE_H

/* What report.c has of report_trust.c, which says how far a plan may be
   believed, and the reverse. */

#include "scheduler/sim/trust.h"

#include <stdio.h>

/* report_string writes a JSON string. */
void report_string(FILE *f, const char *s);

/* report_profile_error: ", beside its points off by ..", of a profile that was
   measured; trust NULL, or nobody looked: that it is not told. */
void report_profile_error(FILE *f, const tdm_trust_t *trust);

/* report_capacity_error: the most that plans erred of a capacity; 0: nobody told. */
double report_capacity_error(const tdm_trust_t *trust);

/* These write by how much plans erred, or that nobody told.  trust may be NULL. */
void report_trust_text(FILE *f, const tdm_trust_t *trust);
void report_trust_json(FILE *f, const tdm_trust_t *trust);
void report_trust_html(FILE *f, const tdm_trust_t *trust);

#endif /* TDM_SCHEDULER_SIM_REPORT_PRIVATE_H */
