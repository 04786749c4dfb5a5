// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/norm.h"

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/ptx/async.cuh"
#include "kernels/ptx/cluster.cuh"

// Of few rows each is the work of a cluster of CTAs, a quad or two of a thread: what
// the product in front left is then read in one round, and the next product waits for
// no more.  Of many rows a CTA has one.  Either way the squares are added up in one
// order, so the bits of a row do not depend on how many there are.
#define NORM_THREADS   512u
#define NORM_KEEP      4u   // quads that a thread of a row's only CTA keeps between the two passes
#define NORM_FEW_ROWS  32u  // as many clusters as find room at once
#define NORM_CTAS      4u   // of a row, where they are few,
#define NORM_PART      256u // their threads,
#define NORM_FEW_KEEP  2u   // and quads of a thread of these, told as a float2
#define NORM_FEW_QUADS (NORM_PART * NORM_CTAS * NORM_FEW_KEEP)

static __device__ float square(float4 v) {
    return v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
}

// What the CTAs of a row tell each other: each thread's squares, a quad each.
typedef struct norm_told {
    float2 square[NORM_CTAS][NORM_PART];
    uint64_t bar; // mbarrier: all of them are here
} norm_told_t;

// Before anything is told: who is told must be ready.
static __device__ __forceinline__ void norm_listen(norm_told_t *told) {
#if __CUDA_ARCH__ >= 900
    uint32_t bar = ptx_smem_addr(&told->bar);
    if (threadIdx.x == 0) {
        ptx_mbarrier_init(bar, 1);
        ptx_mbarrier_init_fence();
        ptx_mbarrier_arrive_expect(bar, sizeof told->square);
    }
    ptx_cluster_sync();
#endif
}

// The sum of the row's squares, of which this thread has own, in the order of one CTA
// whose thread t has quads t, t + 512, ...: each thread here is two of those.  Nobody
// ends before all that is sent to it is there.
static __device__ __forceinline__ float norm_sum(norm_told_t *told, float2 own) {
    __shared__ float part[NORM_THREADS / 32];
#if __CUDA_ARCH__ >= 900
    uint32_t bar = ptx_smem_addr(&told->bar);
    uint32_t mine = ptx_smem_addr(&told->square[blockIdx.x % NORM_CTAS][threadIdx.x]);
#pragma unroll
    for (uint32_t to = 0; to < NORM_CTAS; to++) {
        ptx_cluster_send(ptx_cluster_map(mine, to), own, ptx_cluster_map(bar, to));
    }
    ptx_cluster_wait(bar, 0);
#endif
    float2 v[NORM_CTAS];
#pragma unroll
    for (uint32_t c = 0; c < NORM_CTAS; c++) v[c] = told->square[c][threadIdx.x];
    float low = v[0].x + v[2].x + v[0].y + v[2].y;
    float high = v[1].x + v[3].x + v[1].y + v[3].y;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        low += __shfl_xor_sync(~0u, low, step);
        high += __shfl_xor_sync(~0u, high, step);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = low;
        part[(NORM_PART + threadIdx.x) / 32] = high;
    }
    __syncthreads();
    float sum = part[0];
#pragma unroll
    for (uint32_t w = 1; w < NORM_THREADS / 32; w++) sum += part[w];
    return sum;
}

static __device__ __forceinline__ uint2 normed(float4 v, float scale, float4 w) {
    return pack4(
        make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w));
}

// A row of x and the sums of it, that begin at quad `at`.  IS_KEPT: what they
// come to replaces x.
typedef struct norm_args {
    float4 *x;
    tdm_rows_sums_t sums;
    const float4 *weight;
    uint32_t hidden;
    float eps;
    uint2 *out;
} norm_args_t;

template <bool IS_KEPT>
static __device__ __forceinline__ float4 norm_read(const norm_args_t &a, float4 *x, uint64_t at,
                                                   uint32_t i) {
    float4 v = x[i];
    if (!a.sums.cnt) return v;
    v = plus(v, sum_at(a.sums, at + i));
    if (IS_KEPT) x[i] = v;
    return v;
}

// The whole row by one CTA.
template <bool IS_KEPT>
static __device__ __forceinline__ void norm_row(const norm_args_t &a, uint64_t at, uint2 *out) {
    float4 *x = a.x + at;
    uint32_t quads = a.hidden / 4;
    float4 keep[NORM_KEEP];
    float sum = 0.0f;
#pragma unroll
    for (uint32_t k = 0; k < NORM_KEEP; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        keep[k] = i < quads ? norm_read<IS_KEPT>(a, x, at, i) : float4();
        sum += square(keep[k]);
    }
    for (uint32_t i = threadIdx.x + NORM_KEEP * blockDim.x; i < quads; i += blockDim.x) {
        sum += square(norm_read<IS_KEPT>(a, x, at, i));
    }
    float4 w[NORM_KEEP];
#pragma unroll
    for (uint32_t k = 0; k < NORM_KEEP; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        w[k] = i < quads ? a.weight[i] : float4();
    }
    sum = block_sum(sum);
    float scale = rsqrtf(sum / static_cast<float>(a.hidden) + a.eps);
#pragma unroll
    for (uint32_t k = 0; k < NORM_KEEP; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        if (i < quads) out[i] = normed(keep[k], scale, w[k]);
    }
    for (uint32_t i = threadIdx.x + NORM_KEEP * blockDim.x; i < quads; i += blockDim.x) {
        float4 v = x[i];
        if (!IS_KEPT && a.sums.cnt) v = plus(v, sum_at(a.sums, at + i));
        out[i] = normed(v, scale, a.weight[i]);
    }
}

// This CTA's quads of the weights, which nobody writes, on their way.
static __device__ __forceinline__ void norm_few_weights(const norm_args_t &a,
                                                        float4 (&w)[NORM_FEW_KEEP]) {
#pragma unroll
    for (uint32_t k = 0; k < NORM_FEW_KEEP; k++) {
        uint32_t i = threadIdx.x + (blockIdx.x % NORM_CTAS + k * NORM_CTAS) * NORM_PART;
        w[k] = i < a.hidden / 4 ? a.weight[i] : float4();
    }
}

// The row by a cluster.
template <bool IS_KEPT>
static __device__ __forceinline__ void norm_few_row(const norm_args_t &a, norm_told_t *told,
                                                    uint64_t at, uint2 *out,
                                                    const float4 (&w)[NORM_FEW_KEEP]) {
    uint32_t quads = a.hidden / 4;
    uint32_t first = threadIdx.x + blockIdx.x % NORM_CTAS * NORM_PART;
    float4 keep[NORM_FEW_KEEP];
#pragma unroll
    for (uint32_t k = 0; k < NORM_FEW_KEEP; k++) {
        uint32_t i = first + k * NORM_CTAS * NORM_PART;
        keep[k] = i < quads ? norm_read<IS_KEPT>(a, a.x + at, at, i) : float4();
    }
    float sum = norm_sum(told, make_float2(square(keep[0]), square(keep[1])));
    float scale = rsqrtf(sum / static_cast<float>(a.hidden) + a.eps);
#pragma unroll
    for (uint32_t k = 0; k < NORM_FEW_KEEP; k++) {
        uint32_t i = first + k * NORM_CTAS * NORM_PART;
        if (i < quads) out[i] = normed(keep[k], scale, w[k]);
    }
}

static __global__ void norm_kernel(const norm_args_t a) {
    uint64_t at = static_cast<uint64_t>(blockIdx.x) * (a.hidden / 4);
    let_next_in();
    wait_for_before();
    norm_row<true>(a, at, a.out + at);
}

static __global__ void __launch_bounds__(NORM_PART) norm_few_kernel(const norm_args_t a) {
    uint64_t at = static_cast<uint64_t>(blockIdx.x / NORM_CTAS) * (a.hidden / 4);
    float4 w[NORM_FEW_KEEP];
    __shared__ norm_told_t told;
    let_next_in();
    norm_few_weights(a, w);
    norm_listen(&told);
    wait_for_before();
    norm_few_row<true>(a, &told, at, a.out + at, w);
}

// The quad at which the i-th wanted row begins, ~0: there is none.
static __device__ __forceinline__ uint64_t wanted_at(const void *step, uint32_t i, uint32_t quads) {
    const tdm_step_head_t *h = head_of(step);
    if (i >= h->want_cnt) return ~UINT64_C(0);
    const tdm_step_want_t *want = reinterpret_cast<const tdm_step_want_t *>(
        static_cast<const uint8_t *>(step) + h->want_off + static_cast<uint64_t>(i) * h->want_sz);
    return static_cast<uint64_t>(want->row) * quads;
}

static __global__ void norm_wanted_kernel(const void *step, const norm_args_t a) {
    uint32_t quads = a.hidden / 4;
    uint2 *out = a.out + static_cast<uint64_t>(blockIdx.x) * quads;
    let_next_in();
    wait_for_before();
    uint64_t at = wanted_at(step, blockIdx.x, quads);
    if (at == ~UINT64_C(0)) {
        for (uint32_t k = threadIdx.x; k < quads; k += blockDim.x) out[k] = uint2();
        return;
    }
    norm_row<false>(a, at, out);
}

static __global__ void __launch_bounds__(NORM_PART)
    norm_wanted_few_kernel(const void *step, const norm_args_t a) {
    uint32_t quads = a.hidden / 4;
    uint32_t row = blockIdx.x / NORM_CTAS;
    uint2 *out = a.out + static_cast<uint64_t>(row) * quads;
    float4 w[NORM_FEW_KEEP];
    __shared__ norm_told_t told;
    let_next_in();
    norm_few_weights(a, w);
    norm_listen(&told);
    wait_for_before();
    uint64_t at = wanted_at(step, row, quads);
    if (at == ~UINT64_C(0)) {
        uint32_t i = threadIdx.x + blockIdx.x % NORM_CTAS * NORM_PART;
        for (; i < quads; i += NORM_CTAS * NORM_PART) out[i] = uint2();
        return;
    }
    norm_few_row<false>(a, &told, at, out, w);
}

// --- the C side ------------------------------------------------------------

static uint32_t norm_threads(uint32_t hidden) {
    uint32_t threads = (hidden / 4 + 31) / 32 * 32;
    return threads < NORM_THREADS ? threads : NORM_THREADS;
}

// A cluster a row: only where there is work for all of its CTAs.
static int norm_is_few(uint32_t rows, uint32_t hidden) {
    uint32_t quads = hidden / 4;
    return rows <= NORM_FEW_ROWS && quads > (NORM_CTAS - 1) * NORM_PART &&
           quads <= NORM_FEW_QUADS && can_launch_early();
}

int tdm_norm_rows(float *residual, const tdm_rows_sums_t *sums, const float *weight,
                  uint32_t hidden, float eps, void *out, uint32_t rows,
                  struct CUstream_st *stream) {
    const norm_args_t a = {reinterpret_cast<float4 *>(residual),
                           *sums,
                           reinterpret_cast<const float4 *>(weight),
                           hidden,
                           eps,
                           static_cast<uint2 *>(out)};
    if (norm_is_few(rows, hidden)) {
        return launch_early_cluster(norm_few_kernel, NORM_CTAS, rows, NORM_PART, stream, a);
    }
    return launch_early(norm_kernel, rows, norm_threads(hidden), stream, a);
}

int tdm_norm_wanted(const void *step, const float *residual, const tdm_rows_sums_t *sums,
                    const float *weight, uint32_t hidden, float eps, void *out, uint32_t wants,
                    struct CUstream_st *stream) {
    const norm_args_t a = {const_cast<float4 *>(reinterpret_cast<const float4 *>(residual)),
                           *sums,
                           reinterpret_cast<const float4 *>(weight),
                           hidden,
                           eps,
                           static_cast<uint2 *>(out)};
    if (norm_is_few(wants, hidden)) {
        return launch_early_cluster(norm_wanted_few_kernel, NORM_CTAS, wants, NORM_PART, stream,
                                    step, a);
    }
    return launch_early(norm_wanted_kernel, wants, norm_threads(hidden), stream, step, a);
}
