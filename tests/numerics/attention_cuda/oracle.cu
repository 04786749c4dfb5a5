// SPDX-License-Identifier: Apache-2.0
// The naive fp64 oracle, the comparison with it, and its own check against
// the C reference.
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/attention_ref.h"
#include "kernels/ref/e4m3.h"
#include "tests/numerics/attention_cuda/values.cuh"
#include "tests/numerics/attention_cuda/world.h"

#define LANE_DIM (256 / 32) // elements of a row that a lane holds, at most

static uint64_t cell_cnt(const world_t *w) {
    return static_cast<uint64_t>(w->row_cnt) * w->shape.nhead_q;
}

static uint64_t out_cnt(const world_t *w) {
    return cell_cnt(w) * w->shape.head_dim;
}

// One warp for each (row, query head): all scores twice, first for their
// maximum, then for weights; everything in double.  Beside it ref_fa, what a
// kernel of this kind must round: a score's distance to the maximum is one
// float32 fused multiply-add, weights are rounded to q's type before they
// meet V, the result is rounded to it; all else in double.
template <typename T, typename KV> static __global__ void oracle_kernel(world_t w, uint32_t s) {
    const tdm_attn_seq_t seq = w.dev_seq[s];
    const uint32_t dim = w.shape.head_dim;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t group = w.shape.nhead_q / w.shape.nhead_kv;
    uint32_t cell = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (cell >= seq.cnt * w.shape.nhead_q) return;
    uint32_t tok = cell / w.shape.nhead_q;
    uint32_t head = cell % w.shape.nhead_q;
    uint64_t at = static_cast<uint64_t>(seq.row + tok) * w.shape.nhead_q + head;
    int64_t visible = static_cast<int64_t>(seq.kv_cnt) - seq.cnt + tok + 1;
    const double k_scale = static_cast<double>(w.kv_scale[head / group]);
    const double v_scale = static_cast<double>(w.kv_scale[w.shape.nhead_kv + head / group]);
    const T *q = static_cast<const T *>(w.q) + at * dim;
    double qr[LANE_DIM], o[LANE_DIM], fa[LANE_DIM];
    for (uint32_t i = 0; i < dim / 32; i++) {
        qr[i] = value_of(q[i * 32 + lane]);
        o[i] = fa[i] = 0.0;
    }
    double top = -INFINITY, sum = 0.0, most = 0.0, fa_sum = 0.0;
    const float lg2 = w.scale * 1.44269504f * static_cast<float>(k_scale);
    int is_hot = 0;
    float base = 0.0f; // the largest, in base-2 units, as float32 holds it
    for (int pass = 0; pass < 2; pass++) {
        if (pass && visible > 0) {
            base = static_cast<float>(top / k_scale / static_cast<double>(w.scale)) * lg2;
        }
        for (int64_t j = 0; j < visible; j++) {
            uint32_t page =
                w.table[static_cast<uint64_t>(seq.slot) * w.table_stride + j / w.shape.page_tok];
            uint64_t row =
                (static_cast<uint64_t>(page) * w.shape.nhead_kv + head / group) * w.shape.page_tok +
                j % w.shape.page_tok;
            const KV *k = static_cast<const KV *>(w.k) + row * dim;
            const KV *v = static_cast<const KV *>(w.v) + row * dim;
            double dot = 0.0;
            for (uint32_t i = 0; i < dim / 32; i++) dot += qr[i] * value_of(k[i * 32 + lane]);
            double score = warp_sum(dot);
            double x = score * k_scale * static_cast<double>(w.scale);
            if (pass == 0) {
                top = fmax(top, x);
                continue;
            }
            double weight = exp(x - top);
            float fa_weight = exp2f(fmaf(static_cast<float>(score), lg2, -base));
            double rounded = value_of(value_from<T>(fa_weight));
            sum += weight;
            fa_sum += static_cast<double>(fa_weight);
            for (uint32_t i = 0; i < dim / 32; i++) {
                double y = value_of(v[i * 32 + lane]);
                o[i] += weight * y;
                fa[i] += rounded * y;
                if (isfinite(y)) most = fmax(most, fabs(y));
                is_hot |= !isfinite(y);
            }
        }
    }
    for (int d = 16; d; d /= 2) most = fmax(most, __shfl_xor_sync(~0u, most, d));
    for (uint32_t i = 0; i < dim / 32; i++) {
        double y = visible > 0 ? o[i] / sum * v_scale : 0.0;
        float z = visible > 0 ? static_cast<float>(fa[i] / fa_sum * v_scale) : 0.0f;
        w.ref[at * dim + i * 32 + lane] = y;
        w.ref_fa[at * dim + i * 32 + lane] = static_cast<float>(value_of(value_from<T>(z)));
    }
    is_hot = __any_sync(~0u, is_hot);
    if (lane) return;
    w.ref_lse[at] = visible > 0 ? top + log(sum) : -INFINITY;
    w.ref_top[at] = is_hot ? INFINITY : most * v_scale;
}

template <typename T, typename KV> static void run_oracle(world_t *w) {
    for (uint32_t s = 0; s < w->prefill_cnt + w->decode_cnt; s++) {
        uint32_t grid = (w->seq[s].cnt * w->shape.nhead_q + 3) / 4;
        oracle_kernel<T, KV><<<grid, 128>>>(*w, s);
    }
}

void world_oracle(world_t *w) {
    WORLD_TYPED(w, run_oracle, w);
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaDeviceSynchronize());
}

// --- comparison ---------------------------------------------------------

struct error_sums {
    double dd, ff, rr;
    unsigned long long worst, lse; // bits of non-negative doubles, which order like integers
    unsigned long long bad, cnt;
};

// An element of the oracle that is not finite must be so in the output, and
// of other rows than its own none may be: a row that sees a V which is not
// finite may be NaN throughout.
//
// Two roundings to q's type, half a step each, which is eps of what is rounded
// at most: of the weights, eps of the largest |V| then, and of the result.  No
// weight is spared: a running maximum that follows late, by up to
// POD_SOFTMAX_SLACK, leaves the largest one anywhere in [1, 256], and of a
// sinking world (below -7.5e4, where float32 has steps of 2^-7) it is 1 but for
// 2^(2^-8).
template <typename T, typename KV>
static __global__ void compare_kernel(world_t w, double eps, error_sums *e) {
    uint64_t cells = static_cast<uint64_t>(w.row_cnt) * w.shape.nhead_q;
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t at = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
    double dd = 0, ff = 0, rr = 0, worst = 0, lse = 0;
    unsigned long long bad = 0, cnt = 0;
    for (uint64_t i = at; i < cells * w.shape.head_dim; i += step) {
        double x = value_of(static_cast<const T *>(w.out)[i]);
        double d = x - w.ref[i];
        bool is_hot = isinf(w.ref_top[i / w.shape.head_dim]);
        if (isfinite(x) != isfinite(w.ref[i])) bad += !is_hot || isfinite(x);
        if (is_hot) continue;
        if (!isfinite(x) || !isfinite(w.ref[i])) continue;
        double f = static_cast<double>(w.ref_fa[i]) - w.ref[i];
        cnt++;
        dd += d * d;
        ff += f * f;
        rr += w.ref[i] * w.ref[i];
        double top = w.ref_top[i / w.shape.head_dim];
        worst = fmax(worst, fabs(d) / (eps * (top + fabs(w.ref[i])) + 1e-3));
    }
    for (uint64_t i = at; i < cells; i += step) {
        double x = static_cast<double>(w.lse[i]);
        if (!isfinite(w.ref_lse[i]) || !isfinite(x)) {
            bool is_free = isnan(w.ref_lse[i]) || isinf(w.ref_top[i]);
            bad += !(isnan(x) && is_free) && x != w.ref_lse[i];
        } else {
            double room = 1e-3 + fabs(w.ref_lse[i]) / (1 << 21);
            lse = fmax(lse, fabs(x - w.ref_lse[i]) / room);
        }
    }
    dd = warp_sum(dd);
    ff = warp_sum(ff);
    rr = warp_sum(rr);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&e->dd, dd);
        atomicAdd(&e->ff, ff);
        atomicAdd(&e->rr, rr);
    }
    atomicMax(&e->worst, static_cast<unsigned long long>(__double_as_longlong(worst)));
    atomicMax(&e->lse, static_cast<unsigned long long>(__double_as_longlong(lse)));
    if (bad) atomicAdd(&e->bad, bad);
    if (cnt) atomicAdd(&e->cnt, cnt);
}

template <typename T, typename KV> static void run_compare(const world_t *w, error_sums *dev) {
    double eps = w->shape.dtype == TDM_POD_BF16 ? 1.0 / 256 : 1.0 / 2048;
    compare_kernel<T, KV><<<132, 256>>>(*w, eps, dev);
}

world_error_t world_compare(const world_t *w) {
    static error_sums *dev;
    error_sums e;
    if (!dev) WORLD_OK(cudaMalloc(&dev, sizeof *dev));
    WORLD_OK(cudaMemset(dev, 0, sizeof *dev));
    WORLD_TYPED(w, run_compare, w, dev);
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaMemcpy(&e, dev, sizeof e, cudaMemcpyDeviceToHost));
    world_error_t r;
    memcpy(&r.worst, &e.worst, sizeof r.worst);
    memcpy(&r.lse, &e.lse, sizeof r.lse);
    r.rel_l2 = e.rr > 0 ? sqrt(e.dd / e.rr) : sqrt(e.dd);
    r.fa_l2 = e.rr > 0 ? sqrt(e.ff / e.rr) : sqrt(e.ff);
    r.bad = e.bad;
    r.cnt = e.cnt;
    return r;
}

static __global__ void hash_kernel(const uint16_t *out, uint64_t cnt, const uint32_t *lse,
                                   uint64_t lse_cnt, unsigned long long *sum) {
    uint64_t h = 0;
    uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t at = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
    for (uint64_t i = at; i < cnt; i += step) h += value_mix((i << 17) ^ out[i]);
    for (uint64_t i = at; i < lse_cnt; i += step) h += value_mix(~(i << 33) ^ lse[i]);
    for (int d = 16; d; d /= 2) h += __shfl_xor_sync(~0u, h, d);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(h));
}

uint64_t world_hash(const world_t *w, void *stream) {
    static unsigned long long *sum;
    unsigned long long h = 0;
    auto s = static_cast<cudaStream_t>(stream);
    if (!sum) WORLD_OK(cudaMalloc(&sum, sizeof *sum));
    WORLD_OK(cudaMemsetAsync(sum, 0, sizeof *sum, s));
    hash_kernel<<<132, 256, 0, s>>>(static_cast<const uint16_t *>(w->out), out_cnt(w),
                                    reinterpret_cast<const uint32_t *>(w->lse), cell_cnt(w), sum);
    WORLD_OK(cudaGetLastError());
    WORLD_OK(cudaMemcpyAsync(&h, sum, sizeof h, cudaMemcpyDeviceToHost, s));
    WORLD_OK(cudaStreamSynchronize(s));
    return h;
}

// --- the oracle against the C reference ---------------------------------

static float float_of(uint32_t dtype, uint16_t bits) {
    if (dtype == TDM_POD_F16) return __half2float(__half(__half_raw{bits}));
    uint32_t word = static_cast<uint32_t>(bits) << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}

static void *fetch(const void *from, uint64_t sz) {
    void *to = malloc(sz + 1);
    WORLD_OK(cudaMemcpy(to, from, sz, cudaMemcpyDeviceToHost));
    return to;
}

// A pool's values in float32, one page of 64 tokens after another for every
// sequence in turn; table[] of it is filled too.
static float *plain_pool(const world_t *w, const void *raw, uint32_t *table, uint32_t stride) {
    const tdm_pod_shape_t *m = &w->shape;
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    uint64_t page_sz = static_cast<uint64_t>(m->nhead_kv) * 64 * m->head_dim;
    auto *to =
        static_cast<float *>(calloc(seq_cnt * static_cast<uint64_t>(stride) * page_sz + 1, 4));
    for (uint32_t s = 0; s < seq_cnt; s++) {
        for (uint32_t i = 0; i < stride; i++) table[s * stride + i] = s * stride + i;
        for (uint32_t tok = 0; tok < w->seq[s].kv_cnt; tok++) {
            uint64_t page = w->host_table[static_cast<uint64_t>(w->seq[s].slot) * w->table_stride +
                                          tok / m->page_tok];
            for (uint32_t h = 0; h < m->nhead_kv; h++) {
                uint64_t from =
                    ((page * m->nhead_kv + h) * m->page_tok + tok % m->page_tok) * m->head_dim;
                uint64_t at = (s * stride + tok / 64) * page_sz +
                              (static_cast<uint64_t>(h) * 64 + tok % 64) * m->head_dim;
                for (uint32_t d = 0; d < m->head_dim; d++) {
                    to[at + d] =
                        m->kv_dtype == TDM_POD_E4M3
                            ? tdm_e4m3_to_float(static_cast<const uint8_t *>(raw)[from + d])
                            : float_of(m->dtype, static_cast<const uint16_t *>(raw)[from + d]);
                }
            }
        }
    }
    return to;
}

double world_check_reference(const world_t *w) {
    const tdm_pod_shape_t *m = &w->shape;
    uint64_t n = out_cnt(w);
    uint64_t cell = cell_cnt(w);
    uint32_t seq_cnt = w->prefill_cnt + w->decode_cnt;
    int is_fp8 = m->kv_dtype == TDM_POD_E4M3;
    uint64_t kv = static_cast<uint64_t>(w->page_cnt) * m->nhead_kv * m->page_tok * m->head_dim;
    int is_raw = m->page_tok == 64 && (is_fp8 || m->kv_dtype == TDM_POD_BF16);
    auto *raw = static_cast<uint16_t *>(fetch(w->q, n * 2));
    void *k = fetch(w->k, kv * (is_fp8 ? 1 : 2));
    void *v = fetch(w->v, kv * (is_fp8 ? 1 : 2));
    auto *scale = static_cast<float *>(fetch(w->kv_scale, 2ull * m->nhead_kv * 4));
    auto *ref = static_cast<double *>(fetch(w->ref, n * 8));
    auto *ref_lse = static_cast<double *>(fetch(w->ref_lse, cell * 8));
    auto *q = static_cast<float *>(malloc(n * 4 + 1));
    for (uint64_t i = 0; i < n; i++) q[i] = float_of(m->dtype, raw[i]);
    uint32_t longest = 1;
    for (uint32_t s = 0; s < seq_cnt; s++) {
        longest = w->seq[s].kv_cnt > longest ? w->seq[s].kv_cnt : longest;
    }
    auto *score = static_cast<double *>(malloc(8ull * longest));
    auto *out = static_cast<double *>(malloc(n * 8 + 1));
    auto *lse = static_cast<double *>(malloc(cell * 8 + 1));
    uint32_t stride = (longest + 63) / 64;
    auto *table = static_cast<uint32_t *>(malloc(4ull * seq_cnt * stride + 4));
    tdm_attn_seq_t seq[TDM_ATTN_SEQ_MAX];
    memcpy(seq, w->seq, sizeof seq);
    tdm_attn_plan_t plan = tdm_attn_plan_t();
    plan.seq = seq;
    plan.seq_cnt = seq_cnt;
    tdm_attn_launch_t l = tdm_attn_launch_t();
    l.plan = &plan;
    l.q = q;
    l.scale = w->scale;
    l.k_scale = scale;
    l.v_scale = scale + m->nhead_kv;
    uint32_t kind = is_fp8 ? TDM_KV_E4M3 : TDM_KV_BF16;
    tdm_kv_layout_t layout = {w->page_cnt, m->nhead_kv, m->head_dim, kind};
    float *wide[2] = {nullptr, nullptr};
    l.k_pool = k;
    l.v_pool = v;
    l.page_table = w->host_table;
    l.table_stride = w->table_stride;
    if (!is_raw) {
        l.k_pool = wide[0] = plain_pool(w, k, table, stride);
        l.v_pool = wide[1] = plain_pool(w, v, table, stride);
        l.page_table = table;
        l.table_stride = stride;
        layout.page_cnt = seq_cnt * stride;
        layout.dtype = TDM_KV_F32;
        for (uint32_t s = 0; s < seq_cnt; s++) seq[s].slot = s;
        if (is_fp8) { // the reference scales codes only: scale the values here
            uint64_t head = 64ull * m->head_dim;
            uint64_t all = static_cast<uint64_t>(seq_cnt) * stride * m->nhead_kv * head;
            for (uint64_t i = 0; i < all; i++) {
                wide[0][i] *= scale[i / head % m->nhead_kv];
                wide[1][i] *= scale[m->nhead_kv + i / head % m->nhead_kv];
            }
        }
    }
    tdm_attn_ref(&l, &layout, m->nhead_q, score, out, lse);
    double worst = 0;
    for (uint64_t i = 0; i < n; i++) worst = fmax(worst, fabs(out[i] - ref[i]));
    for (uint64_t i = 0; i < cell; i++) {
        if (isinf(lse[i]) && lse[i] == ref_lse[i]) continue;
        worst = fmax(worst, fabs(lse[i] - ref_lse[i]));
        if (isnan(lse[i]) || isnan(ref_lse[i])) worst = INFINITY;
    }
    void *all[] = {raw, k, v, scale, ref, ref_lse, q, score, out, lse, table, wide[0], wide[1]};
    for (void *p : all) free(p);
    return worst;
}
