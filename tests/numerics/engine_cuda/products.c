/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a product is what its shape says: which operand is turned, what is
   added to, what type comes out.  Method: entries drawn at random against
   sums in double. */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/narrow.h"
#include "kernels/cuda/skinny.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/abi/limits.h"
#include "tests/numerics/engine_cuda/bench.h"

/* How a product is run. */
enum how { KEPT, TIMED, SKINNY, NARROW };

static void *narrow_encode;
static uint32_t narrow_sm_cnt;

/* run: y gets it all, as of SKINNY and NARROW (which adds nothing). */
static int run(tdm_gemm_t *g, int how, const tdm_gemm_shape_t *s, const void *x, const void *w,
               void *y) {
    tdm_narrow_cut_t cut;
    if (how == SKINNY) return tdm_skinny_run(s, x, w, y, NULL);
    if (how == NARROW) {
        cut = tdm_narrow_cut(s, narrow_sm_cnt);
        return tdm_narrow_run(narrow_encode, s, &cut, x, w, y, NULL);
    }
    int is_timed = how == TIMED;
    if (is_timed) {
        void *spare = bench_put(NULL, (uint64_t)s->rows * s->out * 4);
        int e = tdm_gemm_time(g, s, x, &w, 1, spare, NULL);
        bench_free(spare);
        if (e) return e;
    }
    return tdm_gemm_run(g, s, x, w, y, NULL);
}

static void try_shape(tdm_gemm_t *g, int how, const tdm_gemm_shape_t *s, tdm_rng_t *rng) {
    uint64_t x_cnt = (uint64_t)s->rows * s->in, w_cnt = (uint64_t)s->out * s->in;
    uint64_t y_cnt = (uint64_t)s->rows * s->out;
    uint64_t y_sz = y_cnt * (s->y_type == TDM_GEMM_F32 ? 4 : 2);
    uint16_t *x = bench_alloc(x_cnt * 2), *w = bench_alloc(w_cnt * 2);
    float *before = bench_alloc(y_cnt * 4);
    void *y = bench_alloc(y_sz);
    for (uint64_t i = 0; i < x_cnt; i++) x[i] = bench_bf16(bench_draw(rng));
    for (uint64_t i = 0; i < w_cnt; i++) w[i] = bench_bf16(bench_draw(rng));
    for (uint64_t i = 0; i < y_cnt; i++) before[i] = bench_draw(rng);
    void *d_x = bench_put(x, x_cnt * 2), *d_w = bench_put(w, w_cnt * 2);
    void *d_y = bench_put(s->is_add ? before : NULL, y_sz);
    bench_ok(run(g, how, s, d_x, d_w, d_y) == 0, "a product of %u x %u x %u", s->rows, s->out,
             s->in);
    bench_get(y, d_y, y_sz);
    for (uint32_t n = 0; n < 500; n++) {
        uint32_t r = tdm_rng_below(rng, s->rows), o = tdm_rng_below(rng, s->out);
        uint64_t at = (uint64_t)r * s->out + o;
        double sum = s->is_add ? (double)before[at] : 0.0, size = 1.0;
        for (uint32_t k = 0; k < s->in; k++) {
            double term = (double)bench_f32(x[(uint64_t)r * s->in + k]) *
                          (double)bench_f32(w[(uint64_t)o * s->in + k]);
            sum += term;
            size += term * term;
        }
        double got = s->y_type == TDM_GEMM_F32 ? (double)((float *)y)[at]
                                               : (double)bench_f32(((uint16_t *)y)[at]);
        /* tensor cores cut what does not fit as they add, which does not average
           out: 3e-5 of the terms' root sum of squares was seen at 14,336 */
        double room = s->y_type == TDM_GEMM_F32 ? 6e-5 * sqrt(size) : ldexp(fabs(sum), -8) + 1e-5;
        bench_ok(fabs(got - sum) <= room, "%u x %u x %u at %u %u: %.9g, reference %.9g", s->rows,
                 s->out, s->in, r, o, got, sum);
    }
    bench_free(d_x);
    bench_free(d_w);
    bench_free(d_y);
    free(x);
    free(w);
    free(before);
    free(y);
}

static void try_swiglu(int how, uint32_t rows, uint32_t ffn, uint32_t in, tdm_rng_t *rng) {
    const tdm_gemm_shape_t s = {rows, 2 * ffn, in, TDM_GEMM_BF16, 0, 0};
    uint16_t *x = bench_alloc((uint64_t)rows * in * 2),
             *w = bench_alloc((uint64_t)2 * ffn * in * 2);
    uint16_t *y = bench_alloc((uint64_t)rows * ffn * 2);
    float scale = 1.0f / sqrtf((float)in);
    for (uint64_t i = 0; i < (uint64_t)rows * in; i++) x[i] = bench_bf16(bench_draw(rng));
    for (uint64_t i = 0; i < (uint64_t)2 * ffn * in; i++)
        w[i] = bench_bf16(bench_draw(rng) * scale);
    void *d_x = bench_put(x, (uint64_t)rows * in * 2),
         *d_w = bench_put(w, (uint64_t)2 * ffn * in * 2);
    void *d_y = bench_put(NULL, (uint64_t)rows * ffn * 2);
    bench_cuda(how == SKINNY ? tdm_skinny_swiglu(&s, d_x, d_w, d_y, NULL)
                             : run(NULL, NARROW, &s, d_x, d_w, d_y),
               "swiglu of few rows");
    bench_get(y, d_y, (uint64_t)rows * ffn * 2);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t o = 0; o < ffn; o++) {
            double sum[2] = {0.0, 0.0};
            for (uint32_t k = 0; k < in; k++)
                for (uint32_t h = 0; h < 2; h++)
                    sum[h] += (double)bench_f32(x[(uint64_t)r * in + k]) *
                              (double)bench_f32(w[((uint64_t)h * ffn + o) * in + k]);
            double want = sum[0] / (1.0 + exp(-sum[0])) * sum[1];
            double got = (double)bench_f32(y[(uint64_t)r * ffn + o]);
            bench_ok(fabs(got - want) <= ldexp(fabs(want), -8) + 1e-5,
                     "swiglu of %u x %u x %u at %u %u: %.9g, reference %.9g", rows, ffn, in, r, o,
                     got, want);
        }
    bench_free(d_x);
    bench_free(d_w);
    bench_free(d_y);
    free(x);
    free(w);
    free(y);
}

/* The parts of a narrow product, added up, twice: the same bits. */
static void try_parts(const tdm_gemm_shape_t *s, tdm_rng_t *rng) {
    tdm_narrow_cut_t cut = tdm_narrow_cut(s, narrow_sm_cnt);
    uint64_t x_cnt = (uint64_t)s->rows * s->in, w_cnt = (uint64_t)s->out * s->in;
    uint64_t y_cnt = (uint64_t)s->rows * s->out, y_sz = y_cnt * cut.split_cnt * 4;
    uint16_t *x = bench_alloc(x_cnt * 2), *w = bench_alloc(w_cnt * 2);
    float *y = bench_alloc(y_sz), *again = bench_alloc(y_sz);
    for (uint64_t i = 0; i < x_cnt; i++) x[i] = bench_bf16(bench_draw(rng));
    for (uint64_t i = 0; i < w_cnt; i++) w[i] = bench_bf16(bench_draw(rng));
    void *d_x = bench_put(x, x_cnt * 2), *d_w = bench_put(w, w_cnt * 2);
    void *d_y = bench_put(NULL, y_sz), *d_again = bench_put(NULL, y_sz);
    bench_cuda(tdm_narrow_run(narrow_encode, s, &cut, d_x, d_w, d_y, NULL), "a narrow product");
    bench_cuda(tdm_narrow_run(narrow_encode, s, &cut, d_x, d_w, d_again, NULL), "and again");
    bench_get(y, d_y, y_sz);
    bench_get(again, d_again, y_sz);
    bench_ok(memcmp(y, again, y_sz) == 0, "%u x %u x %u: other bits", s->rows, s->out, s->in);
    for (uint32_t n = 0; n < 700; n++) {
        uint32_t r = n % s->rows, o = tdm_rng_below(rng, s->out);
        uint64_t at = (uint64_t)r * s->out + o;
        double sum = 0.0, size = 1.0, got = 0.0;
        for (uint32_t k = 0; k < s->in; k++) {
            double term = (double)bench_f32(x[(uint64_t)r * s->in + k]) *
                          (double)bench_f32(w[(uint64_t)o * s->in + k]);
            sum += term;
            size += term * term;
        }
        for (uint32_t c = 0; c < cut.split_cnt; c++) got += (double)y[c * y_cnt + at];
        bench_ok(fabs(got - sum) <= 6e-5 * sqrt(size),
                 "%u x %u x %u in %u parts at %u %u: %.9g, reference %.9g", s->rows, s->out, s->in,
                 cut.split_cnt, r, o, got, sum);
    }
    bench_free(d_x);
    bench_free(d_w);
    bench_free(d_y);
    bench_free(d_again);
    free(x);
    free(w);
    free(y);
    free(again);
}

static void try_narrow(tdm_rng_t *rng) {
    const tdm_gemm_shape_t split[] = {
        {1, 4096, 4096, TDM_GEMM_F32, 1, 1},    {8, 6144, 4096, TDM_GEMM_F32, 0, 1},
        {24, 4096, 14336, TDM_GEMM_F32, 1, 1},  {64, 576, 1536, TDM_GEMM_F32, 1, 1},
        {128, 4096, 14336, TDM_GEMM_F32, 1, 1}, {128, 6144, 4096, TDM_GEMM_F32, 0, 1},
        {112, 307, 200, TDM_GEMM_F32, 0, 1},    {3, 1, 8, TDM_GEMM_F32, 0, 1}};
    const tdm_gemm_shape_t whole[] = {{8, 49152, 576, TDM_GEMM_F32, 0, 0},
                                      {128, 128256, 512, TDM_GEMM_F32, 0, 0},
                                      {40, 50001, 136, TDM_GEMM_F32, 0, 0},
                                      {1, 8, 8, TDM_GEMM_F32, 0, 0}};
    if (tdm_narrow_open(&narrow_encode, &narrow_sm_cnt) != 0) {
        printf("  no narrow products on this device\n");
        return;
    }
    for (size_t i = 0; i < TDM_COUNT_OF(split); i++) try_parts(&split[i], rng);
    for (size_t i = 0; i < TDM_COUNT_OF(whole); i++) try_shape(NULL, NARROW, &whole[i], rng);
    try_swiglu(NARROW, 1, 8, 8, rng);
    try_swiglu(NARROW, 8, 171, 1032, rng);
    try_swiglu(NARROW, 24, 1536, 576, rng);
    try_swiglu(NARROW, 128, 333, 256, rng);
    try_swiglu(NARROW, 64, 17000, 64, rng);
}

static void rows_are_few_and_enough(void) {
    uint32_t cnt = 0, last = 0;
    for (uint32_t r = 1; r <= TDM_PLAN_TOKEN_MAX + TDM_SEQ_MAX; r++) {
        uint32_t n = tdm_gemm_rows(r);
        bench_ok(n >= r && n >= last && tdm_gemm_rows(n) == n && n - r <= TDM_MAX(r / 4, 7u),
                 "rows %u -> %u", r, n);
        cnt += n != last;
        last = n;
    }
    bench_ok(5 * cnt <= TDM_GEMM_SHAPE_MAX, "%u numbers of rows", cnt);
}

int part_products(void) {
    const tdm_gemm_shape_t shape[] = {
        {1, 8, 8, TDM_GEMM_F32, 0, 0},         {1, 576, 1536, TDM_GEMM_F32, 1, 0},
        {2, 4096, 4096, TDM_GEMM_F32, 1, 0},   {8, 3072, 576, TDM_GEMM_BF16, 0, 0},
        {24, 960, 576, TDM_GEMM_F32, 0, 0},    {128, 6144, 4096, TDM_GEMM_F32, 0, 0},
        {144, 49152, 576, TDM_GEMM_F32, 0, 0}, {1024, 4096, 14336, TDM_GEMM_F32, 1, 0},
        {3, 307, 96, TDM_GEMM_F32, 0, 0},      {5, 336, 96, TDM_GEMM_BF16, 0, 0}};
    const tdm_gemm_shape_t few[] = {
        {1, 8, 8, TDM_GEMM_F32, 0, 0},        {1, 15, 256, TDM_GEMM_F32, 1, 0},
        {1, 4096, 14336, TDM_GEMM_F32, 1, 0}, {2, 307, 96, TDM_GEMM_BF16, 0, 0},
        {2, 6144, 4096, TDM_GEMM_F32, 0, 0},  {4, 1, 1032, TDM_GEMM_F32, 1, 0},
        {4, 3072, 576, TDM_GEMM_BF16, 0, 0}};
    void *workspace = bench_put(NULL, TDM_GEMM_WORKSPACE);
    tdm_gemm_t *g = NULL;
    tdm_error_t err = {0};
    tdm_rng_t rng = {3};
    rows_are_few_and_enough();
    if (tdm_gemm_open(workspace, NULL, &g, &err) != TDM_OK) {
        printf("%s\n", err.text);
        return 2;
    }
    for (size_t i = 0; i < TDM_COUNT_OF(shape); i++) try_shape(g, KEPT, &shape[i], &rng);
    for (size_t i = 0; i < TDM_COUNT_OF(shape); i++) try_shape(g, TIMED, &shape[i], &rng);
    for (size_t i = 0; i < TDM_COUNT_OF(few); i++) {
        bench_ok(tdm_skinny_takes(&few[i]), "skinny: %u rows", few[i].rows);
        try_shape(NULL, SKINNY, &few[i], &rng);
    }
    try_swiglu(SKINNY, 1, 8, 8, &rng);
    try_swiglu(SKINNY, 1, 171, 1032, &rng);
    try_swiglu(SKINNY, 2, 1536, 576, &rng);
    try_swiglu(SKINNY, 4, 333, 256, &rng);
    try_narrow(&rng);
    bench_ok(!tdm_skinny_takes(&shape[3]), "8 rows are not few");
    bench_ok(tdm_gemm_shape_cnt(g) == TDM_COUNT_OF(shape), "%u shapes", tdm_gemm_shape_cnt(g));
    tdm_gemm_close(g);
    bench_free(workspace);
    return bench_end("products");
}
