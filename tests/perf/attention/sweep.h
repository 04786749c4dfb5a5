// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_SWEEP_H
#define TDM_TESTS_PERF_ATTENTION_SWEEP_H

// The fused way of the Hopper variant by every share of SMs and every number
// of pieces that the planner might take: what its choice is held against.
// One burst each; which of two neighbours is better is often the burst's.

#include "tests/perf/attention/burst.h"

#define SWEEP_MAX 96u

typedef struct sweep_cut {
    uint32_t decode_sm; // SMs that begin with decode
    uint32_t piece;     // of a cut prefill tile; 1: whole
    float us;           // the burst's median
} sweep_cut_t;

typedef struct sweep {
    sweep_cut_t cut[SWEEP_MAX];
    uint32_t cnt;
} sweep_t;

// sweep_run measures the point in hand with up to piece_max pieces, and leaves way FUSED planned as
// it found it; no cuts where it is not a plan of that variant.
void sweep_run(bench_t *b, const point_t *p, uint32_t piece_max, sweep_t *out);

#endif // TDM_TESTS_PERF_ATTENTION_SWEEP_H
