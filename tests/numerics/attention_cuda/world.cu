// SPDX-License-Identifier: Apache-2.0
#include "tests/numerics/attention_cuda/world.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/attention_ref.h"

void world_ok(int error, const char *call, const char *file, int line) {
    if (error == 0) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call,
            cudaGetErrorString(static_cast<cudaError_t>(error)));
    exit(1);
}

// --- values ------------------------------------------------------------

static __host__ __device__ uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// About normal: the sum of eight bytes, centred, of variance 1.
static __device__ float draw(uint64_t seed, uint64_t i) {
    uint64_t h = mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull);
    int sum = 0;
    for (int b = 0; b < 8; b++) sum += static_cast<int>(h >> (8 * b) & 255);
    return (static_cast<float>(sum) - 1020.0f) * (1.0f / 209.0f);
}

template <typename T> static __device__ T from_float(float v);
template <> __device__ __nv_bfloat16 from_float(float v) {
    return __float2bfloat16(v);
}
template <> __device__ __half from_float(float v) {
    return __float2half(v);
}
template <typename T> static __device__ double to_double(T v) {
    return static_cast<double>(static_cast<float>(v));
}

template <typename T> static __global__ void fill_kernel(T *to, uint64_t cnt, uint64_t seed) {
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < cnt;
         i += step) {
        to[i] = from_float<T>(draw(seed, i));
    }
}

static __global__ void pattern_kernel(uint16_t *to, uint64_t cnt, uint16_t value) {
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < cnt;
         i += step) {
        to[i] = value;
    }
}

// One CTA for each (sequence, 16 tokens): writes the tokens the sequence
// has.
template <typename T> static __global__ void kv_kernel(world_t w, uint64_t seed) {
    const tdm_attn_seq_t seq = w.dev_seq[blockIdx.y];
    const uint32_t dim = w.shape.head_dim;
    const uint32_t nhead = w.shape.nhead_kv;
    for (uint32_t tok = blockIdx.x; tok < seq.kv_cnt; tok += gridDim.x) {
        uint32_t page = w.table[seq.slot * w.table_stride + tok / w.shape.page_tok];
        for (uint32_t i = threadIdx.x; i < nhead * dim; i += blockDim.x) {
            uint64_t row = (static_cast<uint64_t>(page) * nhead + i / dim) * w.shape.page_tok +
                           tok % w.shape.page_tok;
            uint64_t n = (static_cast<uint64_t>(seq.slot) << 40) +
                         static_cast<uint64_t>(tok) * nhead * dim + i;
            static_cast<T *>(w.k)[row * dim + i % dim] = from_float<T>(draw(seed * 3 + 1, n));
            static_cast<T *>(w.v)[row * dim + i % dim] = from_float<T>(draw(seed * 3 + 2, n));
        }
    }
}

// --- oracle -------------------------------------------------------------

static __device__ double warp_sum(double v) {
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

template <typename T>
static __device__ double score_of(const world_t &w, const T *q, uint64_t row, double *qr) {
    (void)q;
    const uint32_t dim = w.shape.head_dim;
    double dot = 0.0;
    for (uint32_t i = 0; i < dim / 32; i++) {
        dot +=
            qr[i] * to_double(static_cast<const T *>(w.k)[row * dim + i * 32 + threadIdx.x % 32]);
    }
    return warp_sum(dot) * static_cast<double>(w.scale);
}

// One warp for each (row, query head): all scores twice, first for their
// maximum, then for weights; everything in double.
template <typename T> static __global__ void oracle_kernel(world_t w, uint32_t s) {
    const tdm_attn_seq_t seq = w.dev_seq[s];
    const uint32_t dim = w.shape.head_dim;
    const uint32_t group = w.shape.nhead_q / w.shape.nhead_kv;
    uint32_t cell = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (cell >= seq.cnt * w.shape.nhead_q) return;
    uint32_t tok = cell / w.shape.nhead_q;
    uint32_t head = cell % w.shape.nhead_q;
    uint64_t out = static_cast<uint64_t>(seq.row + tok) * w.shape.nhead_q + head;
    int64_t visible = static_cast<int64_t>(seq.kv_cnt) - seq.cnt + tok + 1;
    const T *q = static_cast<const T *>(w.q) + out * dim;
    double qr[4], o[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < dim / 32; i++) qr[i] = to_double(q[i * 32 + threadIdx.x % 32]);
    double top = -INFINITY, sum = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t j = 0; j < visible; j++) {
            uint32_t page = w.table[seq.slot * w.table_stride + j / w.shape.page_tok];
            uint64_t row =
                (static_cast<uint64_t>(page) * w.shape.nhead_kv + head / group) * w.shape.page_tok +
                j % w.shape.page_tok;
            double x = score_of<T>(w, q, row, qr);
            if (pass == 0) {
                top = fmax(top, x);
                continue;
            }
            double weight = exp(x - top);
            sum += weight;
            for (uint32_t i = 0; i < dim / 32; i++) {
                o[i] +=
                    weight *
                    to_double(static_cast<const T *>(w.v)[row * dim + i * 32 + threadIdx.x % 32]);
            }
        }
    }
    for (uint32_t i = 0; i < dim / 32; i++) {
        w.ref[out * dim + i * 32 + threadIdx.x % 32] = visible > 0 ? o[i] / sum : 0.0;
    }
    if (threadIdx.x % 32 == 0) w.ref_lse[out] = visible > 0 ? top + log(sum) : -INFINITY;
}

struct error_sums {
    double dd, rr;
    unsigned long long worst, lse; // bits of non-negative doubles, which order like integers
    unsigned long long bad;
};

template <typename T> static __global__ void compare_kernel(world_t w, double eps, error_sums *e) {
    uint64_t cell_cnt = static_cast<uint64_t>(w.row_cnt) * w.shape.nhead_q;
    double dd = 0, rr = 0, worst = 0, lse = 0;
    unsigned long long bad = 0;
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
         i < cell_cnt * w.shape.head_dim; i += step) {
        double x = to_double(static_cast<const T *>(w.out)[i]);
        double d = x - w.ref[i];
        if (!isfinite(x)) {
            bad++;
            continue;
        }
        dd += d * d;
        rr += w.ref[i] * w.ref[i];
        worst = fmax(worst, fabs(d) / (eps * 5.0 + 1e-3)); // values are within 5 of 0
    }
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < cell_cnt;
         i += step) {
        double x = static_cast<double>(w.lse[i]);
        if (isinf(w.ref_lse[i]) ? x != w.ref_lse[i] : !isfinite(x)) {
            bad++;
        } else if (isfinite(x)) {
            lse = fmax(lse, fabs(x - w.ref_lse[i]));
        }
    }
    dd = warp_sum(dd);
    rr = warp_sum(rr);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&e->dd, dd);
        atomicAdd(&e->rr, rr);
    }
    atomicMax(&e->worst, static_cast<unsigned long long>(__double_as_longlong(worst)));
    atomicMax(&e->lse, static_cast<unsigned long long>(__double_as_longlong(lse)));
    if (bad) atomicAdd(&e->bad, bad);
}

static __global__ void hash_kernel(const uint16_t *out, uint64_t cnt, const uint32_t *lse,
                                   uint64_t lse_cnt, unsigned long long *sum) {
    uint64_t h = 0;
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t at = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
    for (uint64_t i = at; i < cnt; i += step) h += mix((i << 17) ^ out[i]);
    for (uint64_t i = at; i < lse_cnt; i += step) h += mix(~(i << 33) ^ lse[i]);
    for (int d = 16; d; d /= 2) h += __shfl_xor_sync(~0u, h, d);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(h));
}

static __global__ void noise_kernel(uint32_t ns) {
    for (uint32_t i = 0; i < ns; i += 1000) __nanosleep(1000);
}

// --- memory -------------------------------------------------------------

static uint64_t out_cnt(const world_t *w) {
    return static_cast<uint64_t>(w->row_cnt) * w->shape.nhead_q * w->shape.head_dim;
}

uint64_t world_cost(const world_t *w) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < w->prefill_cnt + w->decode_cnt; s++) {
        sum += static_cast<uint64_t>(w->seq[s].cnt) * w->seq[s].kv_cnt;
    }
    return sum * w->shape.nhead_q;
}

uint64_t world_bytes(const world_t *w) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < w->prefill_cnt + w->decode_cnt; s++) sum += w->seq[s].kv_cnt;
    return sum * w->shape.nhead_kv * w->shape.head_dim * 4;
}

// Every sequence its pages, from a shuffled deck with a quarter to spare.
static void deal_pages(world_t *w) {
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    uint32_t used = 0, stride = 1;
    for (uint32_t s = 0; s < seq_cnt; s++) {
        uint32_t n = (w->seq[s].kv_cnt + w->shape.page_tok - 1) / w->shape.page_tok;
        used += n;
        stride = n + 1 > stride ? n + 1 : stride;
    }
    w->page_cnt = used + used / 4 + 1;
    w->table_stride = stride;
    auto *deck = static_cast<uint32_t *>(malloc(w->page_cnt * sizeof(uint32_t)));
    w->host_table = static_cast<uint32_t *>(malloc(static_cast<uint64_t>(seq_cnt) * stride * 4));
    for (uint32_t i = 0; i < w->page_cnt; i++) deck[i] = i;
    for (uint32_t i = w->page_cnt; i > 1; i--) {
        uint32_t j = static_cast<uint32_t>(mix(w->seed * 977 + i) % i);
        uint32_t t = deck[i - 1];
        deck[i - 1] = deck[j];
        deck[j] = t;
    }
    for (uint32_t s = 0, next = 0; s < seq_cnt; s++) {
        uint32_t n = (w->seq[s].kv_cnt + w->shape.page_tok - 1) / w->shape.page_tok;
        for (uint32_t i = 0; i < stride; i++) {
            w->host_table[w->seq[s].slot * stride + i] = i < n ? deck[next++] : 0x7fffffffu;
        }
    }
    free(deck);
}

static uint8_t *take(world_t *w, uint64_t *off, uint64_t sz) {
    uint8_t *p = w->block ? w->block + *off + WORLD_GUARD : nullptr;
    *off = (*off + sz + 2 * WORLD_GUARD + 255) / 256 * 256;
    return p;
}

static uint64_t carve(world_t *w) {
    uint64_t off = 0;
    uint64_t kv = static_cast<uint64_t>(w->page_cnt) * w->shape.nhead_kv * w->shape.page_tok *
                  w->shape.head_dim * 2;
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    w->out = take(w, &off, out_cnt(w) * 2);
    w->lse = reinterpret_cast<float *>(take(w, &off, out_cnt(w) / w->shape.head_dim * 4));
    w->q = take(w, &off, out_cnt(w) * 2);
    w->k = take(w, &off, kv);
    w->v = take(w, &off, kv);
    w->table = reinterpret_cast<uint32_t *>(
        take(w, &off, static_cast<uint64_t>(seq_cnt) * w->table_stride * 4));
    w->ref = reinterpret_cast<double *>(take(w, &off, out_cnt(w) * 8));
    w->ref_lse = reinterpret_cast<double *>(take(w, &off, out_cnt(w) / w->shape.head_dim * 8));
    w->dev_seq = reinterpret_cast<tdm_attn_seq_t *>(take(w, &off, sizeof w->seq));
    return off;
}

template <typename T> static void fill(world_t *w) {
    fill_kernel<T><<<256, 256>>>(static_cast<T *>(w->q), out_cnt(w), w->seed * 3);
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    if (seq_cnt) kv_kernel<T><<<dim3(64, seq_cnt), 128>>>(*w, w->seed);
}

void world_open(world_t *w, uint64_t seed, uint32_t fill_idx) {
    static const uint16_t poison[2][4] = {{0x7fc0, 0x7f80, 0xff80, 0x7f7f},
                                          {0x7e00, 0x7c00, 0xfc00, 0x7bff}};
    w->seed = seed;
    w->fill = fill_idx % 4;
    w->scale = 1.0f / sqrtf(static_cast<float>(w->shape.head_dim));
    deal_pages(w);
    w->block = nullptr;
    w->block_sz = carve(w);
    WORLD_OK(cudaMalloc(&w->block, w->block_sz));
    carve(w);
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    WORLD_OK(cudaMemcpy(w->dev_seq, w->seq, sizeof w->seq, cudaMemcpyHostToDevice));
    WORLD_OK(cudaMemcpy(w->table, w->host_table,
                        static_cast<uint64_t>(seq_cnt) * w->table_stride * 4,
                        cudaMemcpyHostToDevice));
    uint64_t kv = static_cast<uint64_t>(w->page_cnt) * w->shape.nhead_kv * w->shape.page_tok *
                  w->shape.head_dim;
    pattern_kernel<<<256, 256>>>(static_cast<uint16_t *>(w->k), kv,
                                 poison[w->shape.dtype][w->fill]);
    pattern_kernel<<<256, 256>>>(static_cast<uint16_t *>(w->v), kv,
                                 poison[w->shape.dtype][w->fill]);
    if (w->shape.dtype == TDM_POD_BF16) {
        fill<__nv_bfloat16>(w);
    } else {
        fill<__half>(w);
    }
    WORLD_OK(cudaGetLastError());
    world_spoil(w);
}

void world_close(world_t *w) {
    WORLD_OK(cudaFree(w->block));
    free(w->host_table);
    w->block = nullptr;
}

tdm_pod_layer_t world_layer(const world_t *w) {
    tdm_pod_layer_t l = {w->q, w->out, w->lse, w->k, w->v, w->table, w->table_stride, w->scale};
    return l;
}

// --- checks -------------------------------------------------------------

void world_spoil(world_t *w) {
    uint8_t *end = reinterpret_cast<uint8_t *>(w->q) - WORLD_GUARD;
    WORLD_OK(cudaMemset(w->block, 0xa5, static_cast<size_t>(end - w->block)));
    WORLD_OK(cudaMemset(w->out, 0xff, out_cnt(w) * 2));
    WORLD_OK(cudaMemset(w->lse, 0xff, out_cnt(w) / w->shape.head_dim * 4));
}

static int band_ok(const uint8_t *from) {
    uint8_t band[WORLD_GUARD];
    WORLD_OK(cudaMemcpy(band, from, sizeof band, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < sizeof band; i++) {
        if (band[i] != 0xa5) return 0;
    }
    return 1;
}

int world_guards_ok(const world_t *w) {
    auto *out = static_cast<const uint8_t *>(w->out);
    auto *lse = reinterpret_cast<const uint8_t *>(w->lse);
    return band_ok(out - WORLD_GUARD) && band_ok(out + out_cnt(w) * 2) &&
           band_ok(lse - WORLD_GUARD) && band_ok(lse + out_cnt(w) / w->shape.head_dim * 4);
}

uint64_t world_hash(const world_t *w, void *stream) {
    static unsigned long long *sum;
    unsigned long long h = 0;
    auto s = static_cast<cudaStream_t>(stream);
    if (!sum) WORLD_OK(cudaMalloc(&sum, sizeof *sum));
    WORLD_OK(cudaMemsetAsync(sum, 0, sizeof *sum, s));
    hash_kernel<<<132, 256, 0, s>>>(static_cast<const uint16_t *>(w->out), out_cnt(w),
                                    reinterpret_cast<const uint32_t *>(w->lse),
                                    out_cnt(w) / w->shape.head_dim, sum);
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaMemcpyAsync(&h, sum, sizeof h, cudaMemcpyDeviceToHost, s));
    WORLD_OK(cudaStreamSynchronize(s));
    return h;
}

void world_oracle(world_t *w) {
    for (uint32_t s = 0; s < w->prefill_cnt + w->decode_cnt; s++) {
        uint32_t grid = (w->seq[s].cnt * w->shape.nhead_q + 3) / 4;
        if (w->shape.dtype == TDM_POD_BF16) {
            oracle_kernel<__nv_bfloat16><<<grid, 128>>>(*w, s);
        } else {
            oracle_kernel<__half><<<grid, 128>>>(*w, s);
        }
    }
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaDeviceSynchronize());
}

world_error_t world_compare(const world_t *w) {
    static error_sums *dev;
    error_sums e;
    if (!dev) WORLD_OK(cudaMalloc(&dev, sizeof *dev));
    WORLD_OK(cudaMemset(dev, 0, sizeof *dev));
    if (w->shape.dtype == TDM_POD_BF16) {
        compare_kernel<__nv_bfloat16><<<132, 256>>>(*w, 1.0 / 256, dev);
    } else {
        compare_kernel<__half><<<132, 256>>>(*w, 1.0 / 2048, dev);
    }
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaMemcpy(&e, dev, sizeof e, cudaMemcpyDeviceToHost));
    world_error_t r;
    memcpy(&r.worst, &e.worst, sizeof r.worst);
    memcpy(&r.lse, &e.lse, sizeof r.lse);
    r.rel_l2 = e.rr > 0 ? sqrt(e.dd / e.rr) : sqrt(e.dd);
    r.bad = e.bad;
    return r;
}

double world_check_reference(const world_t *w) {
    uint64_t n = out_cnt(w);
    uint64_t cell = n / w->shape.head_dim;
    uint64_t kv = static_cast<uint64_t>(w->page_cnt) * w->shape.nhead_kv * 64 * w->shape.head_dim;
    auto *raw = static_cast<uint16_t *>(malloc(n * 2));
    auto *q = static_cast<float *>(malloc(n * 4));
    auto *k = static_cast<uint16_t *>(malloc(kv * 2));
    auto *v = static_cast<uint16_t *>(malloc(kv * 2));
    auto *score = static_cast<double *>(malloc(sizeof(double) * TDM_CONTEXT_MAX));
    auto *out = static_cast<double *>(malloc(n * 8));
    auto *lse = static_cast<double *>(malloc(cell * 8));
    auto *ref = static_cast<double *>(malloc(n * 8));
    auto *ref_lse = static_cast<double *>(malloc(cell * 8));
    WORLD_OK(cudaMemcpy(raw, w->q, n * 2, cudaMemcpyDeviceToHost));
    WORLD_OK(cudaMemcpy(k, w->k, kv * 2, cudaMemcpyDeviceToHost));
    WORLD_OK(cudaMemcpy(v, w->v, kv * 2, cudaMemcpyDeviceToHost));
    WORLD_OK(cudaMemcpy(ref, w->ref, n * 8, cudaMemcpyDeviceToHost));
    WORLD_OK(cudaMemcpy(ref_lse, w->ref_lse, cell * 8, cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = static_cast<uint32_t>(raw[i]) << 16;
        memcpy(&q[i], &bits, 4);
    }
    tdm_attn_plan_t plan = tdm_attn_plan_t();
    plan.seq = w->seq;
    plan.seq_cnt = w->prefill_cnt + w->decode_cnt;
    tdm_attn_launch_t l = tdm_attn_launch_t();
    l.plan = &plan;
    l.q = q;
    l.k_pool = k;
    l.v_pool = v;
    l.page_table = w->host_table;
    l.table_stride = w->table_stride;
    l.scale = w->scale;
    tdm_kv_layout_t layout = {w->page_cnt, w->shape.nhead_kv, w->shape.head_dim, TDM_KV_BF16};
    tdm_attn_ref(&l, &layout, w->shape.nhead_q, score, out, lse);
    double worst = 0;
    for (uint64_t i = 0; i < n; i++) worst = fmax(worst, fabs(out[i] - ref[i]));
    for (uint64_t i = 0; i < cell; i++) {
        if (isinf(lse[i]) && lse[i] == ref_lse[i]) continue;
        worst = fmax(worst, fabs(lse[i] - ref_lse[i]));
        if (isnan(lse[i]) || isnan(ref_lse[i])) worst = INFINITY;
    }
    void *all[] = {raw, q, k, v, score, out, lse, ref, ref_lse};
    for (void *p : all) free(p);
    return worst;
}

void world_noise(uint32_t cta_cnt, uint32_t us, void *stream) {
    noise_kernel<<<cta_cnt, 128, 0, static_cast<cudaStream_t>(stream)>>>(us * 1000);
    WORLD_OK(cudaGetLastError());
}
