// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_STEADY_H
#define TDM_TESTS_PERF_ATTENTION_STEADY_H

// Seconds of continuous load: what a launch takes in time and energy once
// the card's power is the limit.

#include "tests/perf/attention/bench.h"

typedef struct steady {
    double us;        // of one launch
    double joule;     // of one launch, by the card's energy counter (good to about 5 %)
    double watt_mean; // by the same counter
    double watt_most; // highest instantaneous reading, one after every 8 launches
    double seconds;   // measured
    double clock_ghz; // of the last launch, by the kernels' own clocks
} steady_t;

// What is run over and over, of way i.
typedef void steady_fn(bench_t *b, uint32_t i);

// steady_run loads the card with fn of way i for 0.3 s, then measures for
// `seconds`.  0 where the machine has no NVML.
int steady_run(bench_t *b, steady_fn *fn, uint32_t i, double seconds, steady_t *out);

#endif // TDM_TESTS_PERF_ATTENTION_STEADY_H
