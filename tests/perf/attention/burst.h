// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_BURST_H
#define TDM_TESTS_PERF_ATTENTION_BURST_H

// The burst protocol: every sample comes from at most 10 ms of work after
// 40 ms of idling, so the card runs at its full clock; launches are queued
// behind a spinning kernel and timed by events; the ways of a point take
// turns in an order drawn anew each round.

#include "tests/perf/attention/bench.h"

#define SAMPLE_MAX 64u
#define BURST_MAX  5u // launches of one burst
#define BURST_US   10000.0f
#define IDLE_US    40000u

// What the samples of one way say.  lo and hi bound the median: a
// distribution-free interval from order statistics, of at least 95 % where
// there are 6 samples or more, else from the least to the greatest.
typedef struct timing {
    float us; // the median; 0: not measured
    float lo;
    float hi;
    uint32_t cnt;
} timing_t;

typedef struct rounds {
    uint32_t least;
    uint32_t most;
    float within; // no more rounds once (hi - lo) / 2 of each way is so small a part of us
} rounds_t;

// timing_of sorts v[0, cnt).
timing_t timing_of(float *v, uint32_t cnt);

void sleep_us(uint32_t us);

// burst_measure times the ways of list[0, cnt) on the point in hand.
void burst_measure(bench_t *b, const uint32_t *list, uint32_t cnt, const rounds_t *r, uint64_t seed,
                   timing_t *out);

// burst_way: the median of one burst of way i, in us.
float burst_way(bench_t *b, uint32_t i);

// The card's ceilings by the same protocol: a reader of 8 GB, and a bf16
// product of 8192^3 through cuBLAS (0 where the machine has none).
typedef struct ceilings {
    float read_gbs;
    float gemm_tflops;
} ceilings_t;
ceilings_t burst_ceilings(bench_t *b);

#endif // TDM_TESTS_PERF_ATTENTION_BURST_H
