// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/layer.h"

#include "tests/perf/attention/product.h"

#define LAYER_CNT 6u
#define ROW_MAX   2304u // chunk + batch, at most

// [out][in] of the four products.
static const uint32_t shape[4][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};

static product_t product;
static void *weight[LAYER_CNT][4];
static void *x, *y;
static uint32_t turn;

int layer_open(bench_t *b) {
    if (x) return 1;
    if (!product_open(&product, b->stream)) return 0;
    for (uint32_t l = 0; l < LAYER_CNT; l++) {
        for (uint32_t i = 0; i < 4; i++) {
            weight[l][i] = bench_random(2ull * shape[i][0] * shape[i][1], 100 + 4 * l + i);
        }
    }
    x = bench_random(2ull * ROW_MAX * 14336, 90);
    OK(cudaMalloc(&y, 2ull * ROW_MAX * 28672));
    OK(cudaDeviceSynchronize());
    return 1;
}

static void run(bench_t *b, uint32_t i, int is_attention) {
    const uint32_t rows = b->seq[0].cnt + b->seq_cnt - 1;
    if (rows > ROW_MAX) bench_ok(cudaErrorInvalidValue, "rows of a layer", __FILE__, __LINE__);
    for (uint32_t k = 0; k < 4; k++) {
        if (product_run(&product, rows, shape[k][0], shape[k][1], x, weight[turn % LAYER_CNT][k],
                        y)) {
            bench_ok(cudaErrorUnknown, "cublasGemmEx", __FILE__, __LINE__);
        }
        if (k == 0 && is_attention) bench_launch(b, i);
    }
    turn++;
}

void layer_run(bench_t *b, uint32_t i) {
    run(b, i, 1);
}

void layer_products_run(bench_t *b, uint32_t i) {
    run(b, i, 0);
}
