/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_BENCH_REPORT_H
#define TDM_CTL_BENCH_REPORT_H

/* What the windows of a bench come to. */

#include <jansson.h>
#include <stdio.h>

/* tdm_bench_conclude adds "carries" to the JSON of a bench: a row for each
   cell,

     {"path", "policy", "rate",      highest below which all are kept; 0: none.  A simulated
                                     miss below what was measured and kept does not count
      "is_open",                     none was missed, or what was measured and kept is missed
                                     by the simulator alone: it may carry more
      "missed_at",                   lowest that is not kept; null: none is
     "is_seen",                     the windows that both rest on were measured
     "over_serial",                 its rate over serial's under one policy; null where
                                     either is open
     "over_serial_span",            [low, high]: between what that lies, as each is known
                                     between a rate that was kept and one that was missed
      "attention_share",             a: serial's, at the highest rate that both keep and of
                                     which both windows were measured, else both simulated
      "attention_speedup",           s: serial's seconds over its own, there
      "bound",                       1 / (1 - a + a / s)

   these null where there is nothing to compare: a simulated cell stands
   beside simulated ones alone;

     "static",                      the fixed chunk under which serial carries most
     "over_static",                 its rate over that one's, and
     "over_static_span",            null where either is open, or one is simulated

      "measured", "simulated",       how many of its cells are
      "planned"}                     the rate that the plan carries, of those here; 0: none

   and "errors", a row for each measured cell that was planned, with the plan
   over what was seen:

     {"path", "policy", "rate", "gap_p50", "gap_p99", "ttft_p50", "ttft_p90"} */
void tdm_bench_conclude(json_t *all);

/* tdm_bench_say writes these as text. */
void tdm_bench_say(FILE *f, const json_t *all);

/* tdm_bench_report writes the page: conditions, capacities, charts, windows;
   inline SVG, nothing fetched, all that came from outside escaped.  What
   nobody told or measured is "-" there, never 0. */
void tdm_bench_report(FILE *f, const json_t *all);

#endif /* TDM_CTL_BENCH_REPORT_H */
