/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CTL_BENCH_FILE_H
#define TDM_CTL_BENCH_FILE_H

/* The file of a bench, which several sittings fill:

     {"appliance": {facts of /status, "build" among them},
      "trace", "trace_sum", "window_s", "epsilon", "words": [replay's],
      "order": ["PATH/POLICY", ...], "cells": [cell.h, ...],
      "planned": {tandemctl plan --json} or null,
      "made": {what bench merge was told by --note}, or not there
      "carries", "errors": bench_report.h}

   A window is in it as soon as it is over, so that a sitting which is cut
   loses the window that ran and no other.  Windows of different models,
   traces, lengths or promises are never in one file; those of another build
   only of cells that a merge was told to keep.  What a window ran under it
   says itself: "under": {"build", and what bench serve was given by --note}.

   A cell that nobody measured may be simulated: it says by which profile
   ("simulated": {"profile", "is_model"}), and gives way to a measured one. */

#include "appliance/base/status.h"

#include <jansson.h>

/* tdm_bench_load reads a bench, which the caller lets go of by json_decref.
   NOT_FOUND where there is no such file, IO where it cannot be read, CORRUPT
   where it holds none; *all is NULL then. */
TDM_MUST_USE tdm_status_t tdm_bench_load(const char *path, json_t **all, tdm_error_t *err);

/* tdm_bench_is_like says whether the windows of two benches may stand in one
   file; where not, err names what differs. */
TDM_MUST_USE tdm_status_t tdm_bench_is_like(const json_t *a, const json_t *b, tdm_error_t *err);

/* tdm_bench_under says in each measured window of a bench that does not say so
   which build it ran under. */
void tdm_bench_under(json_t *all);

/* tdm_bench_is_rate: windows whose rates differ by less than a thousandth are
   of one rate. */
int tdm_bench_is_rate(double a, double b);

/* tdm_bench_has says whether a window is measured. */
int tdm_bench_has(const json_t *all, const char *path, const char *policy, double rate);

/* tdm_bench_add takes a window, in the place of a simulated one; it holds
   cell from here on. */
void tdm_bench_add(json_t *all, json_t *cell);

/* tdm_bench_merge adds the windows of another bench that are not measured
   here, and gives how many came in; where it is of another build, those of the
   cells in keep, "PATH/POLICY,...", alone, and with keep NULL none: an error. */
TDM_MUST_USE tdm_status_t tdm_bench_merge(json_t *into, json_t *from, const char *keep,
                                          uint32_t *came, tdm_error_t *err);

/* tdm_bench_simulate adds a cell for every point of a plan that is of one
   appliance and not there; a point without its figures adds none. */
void tdm_bench_simulate(json_t *all, const json_t *plan);

/* tdm_bench_save concludes, and writes BASE.json and BASE.html, each through a
   file beside it. */
TDM_MUST_USE tdm_status_t tdm_bench_save(const char *base, json_t *all, tdm_error_t *err);

#endif /* TDM_CTL_BENCH_FILE_H */
