/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/numerics/engine_cuda/bench.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 4096

static uint64_t checked, wrong;

void bench_ok(int cond, const char *fmt, ...) {
    va_list args;
    checked++;
    if (cond || wrong++ > 20) return;
    va_start(args, fmt);
    printf("  WRONG: ");
    (void)vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

int bench_end(const char *part) {
    int is_bad = wrong > 0 || checked == 0;
    printf("%s: %llu checks, %llu wrong\n", part, (unsigned long long)checked,
           (unsigned long long)wrong);
    checked = wrong = 0;
    (void)fflush(stdout);
    return is_bad;
}

void bench_cuda(int error, const char *what) {
    if (error == 0) return;
    printf("%s: error %d, %s\n", what, error, cudaGetErrorString((cudaError_t)error));
    exit(2);
}

void *bench_alloc(size_t sz) {
    void *p = calloc(1, sz ? sz : 1);
    if (!p) exit(2);
    return p;
}

void *bench_put(const void *from, size_t sz) {
    uint8_t *p = NULL;
    size_t room = (sz + 15) / 16 * 16;
    bench_cuda((int)cudaMalloc((void **)&p, room + GUARD), "cudaMalloc");
    bench_cuda((int)cudaMemset(p, 0xff, room), "cudaMemset");
    bench_cuda((int)cudaMemset(p + room, 0xa5, GUARD), "cudaMemset");
    if (from) bench_cuda((int)cudaMemcpy(p, from, sz, cudaMemcpyHostToDevice), "cudaMemcpy");
    return p;
}

void bench_get(void *to, const void *device, size_t sz) {
    uint8_t guard[GUARD];
    size_t room = (sz + 15) / 16 * 16;
    bench_cuda((int)cudaDeviceSynchronize(), "the kernel");
    bench_cuda((int)cudaMemcpy(to, device, sz, cudaMemcpyDeviceToHost), "cudaMemcpy");
    bench_cuda(
        (int)cudaMemcpy(guard, (const uint8_t *)device + room, GUARD, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    int is_whole = 1;
    for (size_t i = 0; i < GUARD; i++) is_whole &= guard[i] == 0xa5;
    bench_ok(is_whole, "written past the end of %zu bytes", sz);
}

void bench_free(void *device) {
    bench_cuda((int)cudaFree(device), "cudaFree");
}

uint16_t bench_bf16(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (isnan(v)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float bench_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return v;
}

float bench_draw(tdm_rng_t *rng) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++) sum += tdm_rng_unit(tdm_rng_next(rng));
    return (float)sum;
}

tdm_backend_t *bench_backend(const tdm_weights_t *w, const tdm_backend_config_t *config) {
    tdm_backend_t *b = NULL;
    tdm_error_t err = {0};
    if (tdm_backend_cuda_create(w, config, NULL, NULL, NULL, &b, &err) == TDM_OK) return b;
    printf("%s\n", err.text);
    exit(2);
}

tdm_shape_t bench_shape(const uint32_t head[3]) {
    return (tdm_shape_t){.layer_cnt = 2,
                         .hidden = 96,
                         .nhead_q = head[0],
                         .nhead_kv = head[1],
                         .head_dim = head[2],
                         .ffn = 168,
                         .vocab = 307,
                         .context = 512,
                         .rms_eps = 1e-5f,
                         .rope_kind = TDM_ROPE_PLAIN,
                         .rope_theta = 10000.0f};
}
