/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_SIM_CHART_H
#define TDM_SCHEDULER_SIM_CHART_H

/* tdm_chart draws lines over load for a page that stands alone: inline SVG
   with labelled axes, no script, nothing fetched.  Colours are classes of the
   page's own style, so that they follow a dark one and paper.

     tdm_chart_head       the page's beginning, with the style
     tdm_chart_open       axes, ticks, the target
       tdm_chart_line ..    one for each way to serve
       tdm_chart_dot ..
     tdm_chart_close
     tdm_chart_tail

   Values are finite; what is over the top lies on it.  Host code. */

#include "appliance/base/attr.h"

#include <stdint.h>
#include <stdio.h>

TDM_BEGIN_DECLS

/* Whose a line is: a colour. */
typedef enum tdm_chart_ink {
    TDM_CHART_FUSED,
    TDM_CHART_STREAMS,
    TDM_CHART_SERIAL,
    TDM_CHART_POOLS,
    TDM_CHART_INK_CNT
} tdm_chart_ink_t;

typedef struct tdm_chart {
    const char *title; /* with the unit */
    double low, high;  /* of load, requests a second: low < high */
    double top;        /* > 0 */
    double target;     /* drawn across; 0: none */
} tdm_chart_t;

/* tdm_chart_span gives axes that hold rates from least to most: round ends,
   from 0 on unless that would leave most of it empty. */
void tdm_chart_span(tdm_chart_t *c, double least, double most);

/* tdm_chart_head begins a page; title has no markup. */
void tdm_chart_head(FILE *f, const char *title);
void tdm_chart_tail(FILE *f);

void tdm_chart_open(FILE *f, const tdm_chart_t *c);

/* tdm_chart_line draws cnt points; NaN breaks it.  Seen: thick and whole;
   simulated: thin and dotted. */
void tdm_chart_line(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, int is_seen,
                    const double *x, const double *y, uint32_t cnt);

/* tdm_chart_dot marks a point, filled where it was seen, hollow where not;
   name is what a pointer over it says. */
void tdm_chart_dot(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, int is_seen, double x,
                   double y, const char *name);

/* tdm_chart_error ties what was told of a point to what was seen of it, and
   writes told over seen in percent. */
void tdm_chart_error(FILE *f, const tdm_chart_t *c, tdm_chart_ink_t ink, double x, double told,
                     double seen);
void tdm_chart_close(FILE *f);

/* tdm_chart_key explains a line, outside of charts. */
void tdm_chart_key(FILE *f, tdm_chart_ink_t ink, int is_seen, const char *name);

/* tdm_chart_text writes what came from outside, with markup escaped. */
void tdm_chart_text(FILE *f, const char *s);

/* tdm_chart_lost says what a fallback costs: "NAME 12 (3.00 % of iterations; 9.0 %
   of time x 8.0 % of it that fusing saves = 0.720 % of capacity)".  share: of
   iterations; lost: of all time, < 0: nobody told; saved: of the time of these
   iterations, which differ from the mean one, < 0: nobody told. */
void tdm_chart_lost(FILE *f, const char *name, double cnt, double share, double lost, double saved);

TDM_END_DECLS

#endif /* TDM_SCHEDULER_SIM_CHART_H */
