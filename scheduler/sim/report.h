/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_REPORT_H
#define TDM_SCHEDULER_SIM_REPORT_H

/* The planner's curves for people and programs: a table of text, JSON, and
   one HTML page that needs nothing else (its charts are inline SVG).  Names
   that came from outside are escaped. */

#include "scheduler/sim/planner.h"

#include <stdio.h>

TDM_BEGIN_DECLS

/* Each writes curve_cnt curves; ferror(f) tells whether it could. */
void tdm_report_text(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt);
void tdm_report_json(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt);
void tdm_report_html(FILE *f, const tdm_planner_ask_t *ask, const tdm_planner_curve_t *curve,
                     uint32_t curve_cnt);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_REPORT_H */
