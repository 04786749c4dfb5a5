// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_ROWS_H
#define TDM_TESTS_PERF_ATTENTION_ROWS_H

// What is measured leaves as one JSON object a line, for report.py:
//   {"row": "machine" | "resources" | "point" | "steady" | ...}

#include <stdio.h>

#include "tests/perf/attention/burst.h"
#include "tests/perf/attention/steady.h"
#include "tests/perf/attention/sweep.h"

void row_machine(FILE *f, const bench_t *b, const ceilings_t *c);

// Registers, shared memory and occupancy of the kernel of way i.
void row_resources(FILE *f, const bench_t *b, uint32_t i);

// The ways of list[0, cnt) on one point.  Reads the counters of each way,
// and of one more fused launch; returns 0 where counters differ from a
// plan.
int row_point(FILE *f, bench_t *b, const point_t *p, const char *set, const uint32_t *list,
              uint32_t cnt, const timing_t *t);

void row_sweep(FILE *f, const point_t *p, const sweep_t *s);

// what: "steady", or "layer" of what layer.h runs.
void row_steady(FILE *f, const point_t *p, const char *what, const char *way, uint32_t dependent,
                const steady_t *s);

#endif // TDM_TESTS_PERF_ATTENTION_ROWS_H
