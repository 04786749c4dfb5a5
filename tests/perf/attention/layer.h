// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_TESTS_PERF_ATTENTION_LAYER_H
#define TDM_TESTS_PERF_ATTENTION_LAYER_H

// Attention where it stands: between the products of a Llama-3-8B layer (q, k
// and v; output; gate and up; down), chunk + batch rows, the weights of six
// layers in turn, so that no product finds its weights in the L2 cache.

#include "tests/perf/attention/bench.h"

// layer_open takes 2.6 GB of weights; 0 where the machine has no cuBLAS.
int layer_open(bench_t *b);

// layer_run queues one layer whose attention is way i; layer_products_run the
// same without attention.
void layer_run(bench_t *b, uint32_t i);
void layer_products_run(bench_t *b, uint32_t i);

#endif // TDM_TESTS_PERF_ATTENTION_LAYER_H
