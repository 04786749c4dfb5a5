// SPDX-License-Identifier: Apache-2.0
// The data of a world: values, pages, memory, guards.
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/numerics/attention_cuda/values.cuh"
#include "tests/numerics/attention_cuda/world.h"

void world_ok(int error, const char *call, const char *file, int line) {
    if (error == 0) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call,
            cudaGetErrorString(static_cast<cudaError_t>(error)));
    exit(1);
}

// --- values ------------------------------------------------------------

// About normal: the sum of eight bytes, centred, of variance 1.
static __device__ float draw(uint64_t seed, uint64_t i) {
    uint64_t h = value_mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull);
    int sum = 0;
    for (int b = 0; b < 8; b++) sum += static_cast<int>(h >> (8 * b) & 255);
    return (static_cast<float>(sum) - 1020.0f) * (1.0f / 209.0f);
}

// Equal scores of sqrt(dim) * q * k with k = -192: about -7.5e4.
static float sinking_q(uint32_t dim) {
    return dim == 64 ? 48.0f : dim == 96 ? 40.0f : dim == 128 ? 34.0f : 24.0f;
}
#define SINKING_K (-192.0f)

// Codes of fp8 are drawn 16 times as large as their values.
static float kv_scale_of(uint32_t is_v, uint32_t head) {
    return (is_v ? 1.25f : 1.0f) * (1.0f + 0.125f * static_cast<float>(head % 4)) / 16.0f;
}

template <typename T>
static __global__ void fill_kernel(T *to, uint64_t cnt, uint64_t seed, float constant) {
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < cnt;
         i += step) {
        to[i] = value_from<T>(constant != 0.0f ? constant : draw(seed, i));
    }
}

static __global__ void pattern_kernel(uint32_t *to, uint64_t cnt, uint32_t value) {
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x; i < cnt;
         i += step) {
        to[i] = value;
    }
}

// Writes the tokens that the sequences have.  A value depends on where it
// lies, so shared pages hold the same for both.
template <typename KV>
static __global__ void kv_kernel(world_t w, uint64_t seed, float k_const, float gain) {
    const tdm_attn_seq_t seq = w.dev_seq[blockIdx.y];
    const uint32_t dim = w.shape.head_dim;
    const uint32_t nhead = w.shape.nhead_kv;
    for (uint32_t tok = blockIdx.x; tok < seq.kv_cnt; tok += gridDim.x) {
        uint32_t page =
            w.table[static_cast<uint64_t>(seq.slot) * w.table_stride + tok / w.shape.page_tok];
        bool is_hot = w.hot && (blockIdx.y < w.prefill_cnt || seq.cnt > 1) && tok + 1 == seq.kv_cnt;
        for (uint32_t i = threadIdx.x; i < nhead * dim; i += blockDim.x) {
            uint64_t row = (static_cast<uint64_t>(page) * nhead + i / dim) * w.shape.page_tok +
                           tok % w.shape.page_tok;
            uint64_t n = row * dim + i % dim;
            float k = k_const != 0.0f ? k_const : draw(seed * 3 + 1, n) * gain;
            float v = draw(seed * 3 + 2, n) * gain;
            if (is_hot && w.hot == WORLD_HOT_NAN) k = v = NAN;
            if (is_hot && w.hot == WORLD_HOT_V && i % 7 == 3) v = i & 1 ? INFINITY : -INFINITY;
            static_cast<KV *>(w.k)[n] = value_from<KV>(k);
            static_cast<KV *>(w.v)[n] = value_from<KV>(v);
        }
    }
}

static __global__ void noise_kernel(uint32_t ns) {
    for (uint32_t i = 0; i < ns; i += 1000) __nanosleep(1000);
}

void world_noise(uint32_t cta_cnt, uint32_t us, void *stream) {
    noise_kernel<<<cta_cnt, 128, 0, static_cast<cudaStream_t>(stream)>>>(us * 1000);
    WORLD_OK(cudaGetLastError());
}

// --- memory -------------------------------------------------------------

void world_add(world_t *w, uint32_t kv_cnt, uint32_t cnt) {
    uint32_t s = w->prefill_cnt + w->decode_cnt;
    tdm_attn_seq_t q = {s, kv_cnt, cnt, w->row_cnt};
    w->seq[s] = q;
    w->row_cnt += cnt;
}

static uint64_t cell_cnt(const world_t *w) {
    return static_cast<uint64_t>(w->row_cnt) * w->shape.nhead_q;
}

static uint64_t out_cnt(const world_t *w) {
    return cell_cnt(w) * w->shape.head_dim;
}

static uint64_t kv_elem_sz(const world_t *w) {
    return w->shape.kv_dtype == TDM_POD_E4M3 ? 1 : 2;
}

static uint64_t kv_cnt(const world_t *w) {
    return static_cast<uint64_t>(w->page_cnt) * w->shape.nhead_kv * w->shape.page_tok *
           w->shape.head_dim;
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

// Page numbers in the order they are dealt: shuffled, or, of a large pool,
// those at its ends and around 2^31 and 2^32 elements and bytes first.
static void make_deck(const world_t *w, uint32_t *deck) {
    for (uint32_t i = 0; i < w->page_cnt; i++) deck[i] = i;
    for (uint32_t i = w->page_cnt; i > 1; i--) {
        uint32_t j = static_cast<uint32_t>(value_mix(w->seed * 977 + i) % i);
        uint32_t t = deck[i - 1];
        deck[i - 1] = deck[j];
        deck[j] = t;
    }
    if (!w->page_min) return;
    uint64_t page_elem = kv_cnt(w) / w->page_cnt;
    uint32_t next = 0;
    for (uint32_t lg = 30; lg <= 32; lg++) {
        uint64_t border = (1ull << lg) / page_elem;
        for (uint64_t p = border ? border - 1 : 0; p <= border + 1; p++) {
            if (p < w->page_cnt) deck[next++] = static_cast<uint32_t>(p);
        }
    }
    deck[next++] = 0;
    deck[next++] = w->page_cnt - 1;
}

static void deal_pages(world_t *w) {
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    uint32_t used = 0, stride = 1;
    for (uint32_t s = 0; s < seq_cnt; s++) {
        uint32_t n = (w->seq[s].kv_cnt + w->shape.page_tok - 1) / w->shape.page_tok;
        used += n;
        stride = n + 1 > stride ? n + 1 : stride;
    }
    w->page_cnt = used + used / 4 + 1;
    if (w->page_cnt < w->page_min) w->page_cnt = w->page_min;
    w->table_stride = stride;
    auto *deck = static_cast<uint32_t *>(malloc(w->page_cnt * sizeof(uint32_t)));
    uint64_t row = stride;
    w->host_table = static_cast<uint32_t *>(malloc(seq_cnt * row * 4 + 4));
    make_deck(w, deck);
    for (uint32_t s = 0, next = 0; s < seq_cnt; s++) {
        uint32_t n = (w->seq[s].kv_cnt + w->shape.page_tok - 1) / w->shape.page_tok;
        uint32_t *to = w->host_table + w->seq[s].slot * row;
        uint32_t common = 0;
        if (w->is_shared && s % 2) {
            common = w->seq[s - 1].kv_cnt / w->shape.page_tok / 2; // whole pages of both
            common = common < n ? common : n;
        }
        for (uint32_t i = 0; i < stride; i++) {
            to[i] = i < common ? to[i - row] : i < n ? deck[next++] : 0x7fffffffu;
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
    uint64_t kv = kv_cnt(w) * kv_elem_sz(w);
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    w->out = take(w, &off, out_cnt(w) * 2);
    w->lse = reinterpret_cast<float *>(take(w, &off, cell_cnt(w) * 4));
    w->q = take(w, &off, out_cnt(w) * 2);
    w->k = take(w, &off, kv);
    w->v = take(w, &off, kv);
    w->kv_scale = reinterpret_cast<float *>(take(w, &off, 2ull * w->shape.nhead_kv * 4));
    w->table = reinterpret_cast<uint32_t *>(
        take(w, &off, static_cast<uint64_t>(seq_cnt) * w->table_stride * 4));
    w->ref = reinterpret_cast<double *>(take(w, &off, out_cnt(w) * 8));
    w->ref_lse = reinterpret_cast<double *>(take(w, &off, cell_cnt(w) * 8));
    w->ref_top = reinterpret_cast<double *>(take(w, &off, cell_cnt(w) * 8));
    w->ref_fa = reinterpret_cast<float *>(take(w, &off, out_cnt(w) * 4));
    w->dev_seq = reinterpret_cast<tdm_attn_seq_t *>(take(w, &off, sizeof w->seq));
    return off;
}

template <typename T, typename KV> static void fill(world_t *w) {
    int is_sinking = w->style == WORLD_SINKING;
    float gain = sizeof(KV) == 1 ? 16.0f : 1.0f;
    fill_kernel<T><<<256, 256>>>(static_cast<T *>(w->q), out_cnt(w), w->seed * 3,
                                 is_sinking ? sinking_q(w->shape.head_dim) : 0.0f);
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    if (seq_cnt) {
        kv_kernel<KV><<<dim3(64, seq_cnt), 128>>>(*w, w->seed, is_sinking ? SINKING_K : 0.0f, gain);
    }
}

template <typename T, typename KV> static void requery(world_t *w, uint64_t seed, void *stream) {
    fill_kernel<T><<<256, 256, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<T *>(w->q),
                                                                       out_cnt(w), seed, 0.0f);
}

void world_requery(world_t *w, uint64_t seed, void *stream) {
    WORLD_TYPED(w, requery, w, seed, stream);
    WORLD_OK(cudaGetLastError());
}

static void fill_scales(world_t *w) {
    float scale[2 * TDM_ATTN_HEAD_MAX];
    for (uint32_t i = 0; i < 2 * w->shape.nhead_kv; i++) {
        uint32_t is_v = i / w->shape.nhead_kv;
        scale[i] = kv_elem_sz(w) == 1 ? kv_scale_of(is_v, i % w->shape.nhead_kv) : 1.0f;
        if (w->style == WORLD_SINKING && !is_v) scale[i] = 1.0f;
    }
    WORLD_OK(cudaMemcpy(w->kv_scale, scale, 2ull * w->shape.nhead_kv * 4, cudaMemcpyHostToDevice));
}

void world_open(world_t *w, uint64_t seed, uint32_t fill_idx) {
    static const uint32_t poison[3][4] = {{0x7fc07fc0, 0x7f807f80, 0xff80ff80, 0x7f7f7f7f},  // bf16
                                          {0x7e007e00, 0x7c007c00, 0xfc00fc00, 0x7bff7bff},  // f16
                                          {0x7f7f7f7f, 0xffffffff, 0xfefefefe, 0x7e7e7e7e}}; // e4m3
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
    uint64_t word = kv_cnt(w) * kv_elem_sz(w) / 4;
    uint32_t bad = poison[w->shape.kv_dtype][w->fill];
    pattern_kernel<<<1024, 256>>>(static_cast<uint32_t *>(w->k), word, bad);
    pattern_kernel<<<1024, 256>>>(static_cast<uint32_t *>(w->v), word, bad);
    fill_scales(w);
    WORLD_TYPED(w, fill, w);
    WORLD_OK(cudaGetLastError());
    world_spoil(w);
    WORLD_OK(cudaDeviceSynchronize()); // callers go on in streams that do not wait for this one
}

void world_close(world_t *w) {
    WORLD_OK(cudaFree(w->block));
    free(w->host_table);
    w->block = nullptr;
}

tdm_pod_layer_t world_layer(const world_t *w) {
    tdm_pod_layer_t l = tdm_pod_layer_t();
    l.q = w->q;
    l.out = w->out;
    l.lse = w->lse;
    l.k_pool = w->k;
    l.v_pool = w->v;
    l.page_table = w->table;
    l.table_stride = w->table_stride;
    l.scale = w->scale;
    if (w->shape.kv_dtype == TDM_POD_E4M3) {
        l.k_scale = w->kv_scale;
        l.v_scale = w->kv_scale + w->shape.nhead_kv;
    }
    return l;
}

// --- guards -------------------------------------------------------------

void world_spoil(world_t *w) {
    uint8_t *end = reinterpret_cast<uint8_t *>(w->q) - WORLD_GUARD;
    WORLD_OK(cudaMemset(w->block, 0xa5, static_cast<size_t>(end - w->block)));
    WORLD_OK(cudaMemset(w->out, 0xff, out_cnt(w) * 2));
    WORLD_OK(cudaMemset(w->lse, 0xff, cell_cnt(w) * 4));
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
           band_ok(lse - WORLD_GUARD) && band_ok(lse + cell_cnt(w) * 4);
}
