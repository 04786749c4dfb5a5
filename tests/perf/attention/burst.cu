// SPDX-License-Identifier: Apache-2.0
#include "tests/perf/attention/burst.h"

#include <math.h>
#include <time.h>

#include <algorithm>

#include "appliance/base/rng.h"
#include "tests/perf/attention/product.h"

static __global__ void spin_kernel(uint32_t ns) {
    for (uint32_t i = 0; i < ns; i += 1000) __nanosleep(1000);
}

static __global__ void read_kernel(const uint4 *from, uint64_t cnt, uint32_t *sink) {
    uint32_t x = 0;
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < cnt; i += 4 * step) {
        uint4 v[4];
        for (int u = 0; u < 4; u++)
            v[u] = i + u * step < cnt ? __ldcs(from + i + u * step) : uint4();
        for (int u = 0; u < 4; u++) x ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
    if (x == 0x12345678u) *sink = x;
}

void sleep_us(uint32_t us) {
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&t, nullptr);
}

timing_t timing_of(float *v, uint32_t cnt) {
    timing_t t = {0, 0, 0, cnt};
    if (cnt == 0) return t;
    std::sort(v, v + cnt);
    t.us = cnt % 2 ? v[cnt / 2] : 0.5f * (v[cnt / 2 - 1] + v[cnt / 2]);
    // The k-th least and greatest bound the median but for 2 * P(X < k), X
    // binomial of cnt and a half.
    double p = pow(0.5, cnt);
    double below = 0.0;
    uint32_t k = 0;
    while (2.0 * (below + p) <= 0.05) {
        below += p;
        p *= (double)(cnt - k) / (k + 1);
        k++;
    }
    if (k == 0) k = 1;
    t.lo = v[k - 1];
    t.hi = v[cnt - k];
    return t;
}

static cudaEvent_t mark[BURST_MAX + 1];

// One burst of n calls of fn behind a spinning kernel; times to us[0, n).
template <class F>
static void burst(bench_t *b, uint32_t n, uint32_t idle_us, float *us, const F &fn) {
    if (!mark[0])
        for (uint32_t k = 0; k <= BURST_MAX; k++) OK(cudaEventCreate(&mark[k]));
    if (idle_us) sleep_us(idle_us);
    spin_kernel<<<1, 32, 0, b->stream>>>(300000);
    OK(cudaEventRecord(mark[0], b->stream));
    for (uint32_t k = 0; k < n; k++) {
        fn();
        OK(cudaEventRecord(mark[k + 1], b->stream));
    }
    OK(cudaStreamSynchronize(b->stream));
    for (uint32_t k = 0; k < n; k++) {
        float ms;
        OK(cudaEventElapsedTime(&ms, mark[k], mark[k + 1]));
        us[k] = ms * 1e3f;
    }
}

static float sample[WAY_CNT][SAMPLE_MAX];

float burst_way(bench_t *b, uint32_t i) {
    float us[BURST_MAX];
    burst(b, 1, 0, us, [&] { bench_launch(b, i); });
    uint32_t n = std::min(BURST_MAX, std::max(1u, (uint32_t)(BURST_US / std::max(us[0], 1.0f))));
    burst(b, n, IDLE_US, us, [&] { bench_launch(b, i); });
    return timing_of(us, n).us;
}

void burst_measure(bench_t *b, const uint32_t *list, uint32_t cnt, const rounds_t *r, uint64_t seed,
                   timing_t *out) {
    tdm_rng_t rng = {seed};
    uint32_t n[WAY_CNT] = {0};
    uint32_t got[WAY_CNT] = {0};
    for (uint32_t i = 0; i < cnt; i++) { // warm, and how long it takes
        burst(b, 2, 0, sample[i], [&] { bench_launch(b, list[i]); });
        float fit = BURST_US / std::max(sample[i][1], 1.0f);
        n[i] = std::min(BURST_MAX, std::max(1u, (uint32_t)fit));
    }
    for (uint32_t round = 0; round < r->most; round++) {
        uint32_t order[WAY_CNT];
        for (uint32_t i = 0; i < cnt; i++) order[i] = i;
        for (uint32_t i = cnt; i > 1; i--) std::swap(order[i - 1], order[tdm_rng_below(&rng, i)]);
        for (uint32_t k = 0; k < cnt; k++) {
            uint32_t i = order[k];
            if (got[i] + n[i] > SAMPLE_MAX) continue;
            burst(b, n[i], IDLE_US, sample[i] + got[i], [&] { bench_launch(b, list[i]); });
            got[i] += n[i];
        }
        float spread = 0.0f;
        for (uint32_t i = 0; i < cnt; i++) {
            out[list[i]] = timing_of(sample[i], got[i]);
            const timing_t *t = &out[list[i]];
            spread = std::max(spread, 0.5f * (t->hi - t->lo) / t->us);
        }
        if (round + 1 >= r->least && spread <= r->within) break;
    }
}

static float gemm_ceiling(bench_t *b) {
    const uint32_t n = 8192;
    const uint64_t sz = 2ull * n * n;
    product_t p;
    if (b->pool_sz < 2 * sz || !product_open(&p, b->stream)) return 0;
    void *c;
    OK(cudaMalloc(&c, sz));
    float us[BURST_MAX * 6];
    int error = 0;
    for (uint32_t r = 0; r < 6; r++) {
        burst(b, BURST_MAX, IDLE_US, us + r * BURST_MAX, [&] {
            error |= product_run(&p, n, n, n, b->k, static_cast<uint8_t *>(b->v) + sz, c);
        });
    }
    OK(cudaFree(c));
    timing_t t = timing_of(us + BURST_MAX, 5 * BURST_MAX);
    return error ? 0 : 2.0f * n * n * n / t.us * 1e-6f;
}

ceilings_t burst_ceilings(bench_t *b) {
    float us[10];
    uint64_t cnt = std::min<uint64_t>(b->pool_sz, 8ull << 30) / 16;
    for (uint32_t r = 0; r < 5; r++) {
        burst(b, 2, IDLE_US, us + 2 * r, [&] {
            read_kernel<<<132 * 2, 1024, 0, b->stream>>>((const uint4 *)b->k, cnt, b->table);
        });
    }
    timing_of(us, 10); // sorts; the ceiling is the best of them
    ceilings_t c = {(float)((double)cnt * 16 / us[0] * 1e-3), gemm_ceiling(b)};
    return c;
}
