// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/skinny.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.cuh"

#define WARPS 8u // of a CTA
#define OUTS  2u // weight rows of a warp at a time
#define STEPS 4u // 16-byte pieces of each that are on their way at once

static __device__ float lower(uint32_t two) {
    return __uint_as_float(two << 16);
}

static __device__ float upper(uint32_t two) {
    return __uint_as_float(two & 0xffff0000u);
}

static __device__ float dot8(uint4 a, uint4 b, float sum) {
    sum = fmaf(lower(a.x), lower(b.x), sum);
    sum = fmaf(upper(a.x), upper(b.x), sum);
    sum = fmaf(lower(a.y), lower(b.y), sum);
    sum = fmaf(upper(a.y), upper(b.y), sum);
    sum = fmaf(lower(a.z), lower(b.z), sum);
    sum = fmaf(upper(a.z), upper(b.z), sum);
    sum = fmaf(lower(a.w), lower(b.w), sum);
    return fmaf(upper(a.w), upper(b.w), sum);
}

// Weights pass once: they need not stay in L1.
static __device__ uint4 stream_in(const uint4 *p) {
    return __ldcs(p);
}

static __device__ __forceinline__ void fetch(uint4 (&piece)[STEPS][OUTS], const uint4 *const *row,
                                             uint32_t i) {
#pragma unroll
    for (uint32_t s = 0; s < STEPS; s++) {
#pragma unroll
        for (uint32_t k = 0; k < OUTS; k++) piece[s][k] = stream_in(row[k] + i + 32 * s);
    }
}

// What becomes of the sums.
enum finish { STORE_BF16, STORE_F32, ADD_F32, SWIGLU };

static __device__ void store(int finish, void *y, uint64_t at, float v) {
    if (finish == STORE_BF16) {
        static_cast<__nv_bfloat16 *>(y)[at] = __float2bfloat16_rn(v);
    } else if (finish == ADD_F32) {
        static_cast<float *>(y)[at] += v;
    } else {
        static_cast<float *>(y)[at] = v;
    }
}

// out counts weight rows; of SWIGLU the upper half belongs to the lower, one
// by one, and a warp takes a pair.
template <uint32_t ROWS, int FINISH>
static __global__ void __launch_bounds__(WARPS * 32)
    skinny_kernel(const uint4 *x, const uint4 *w, uint32_t out, uint32_t octs, void *y) {
    constexpr int is_pair = FINISH == SWIGLU;
    uint32_t lane = threadIdx.x % 32;
    uint32_t o = (blockIdx.x * WARPS + threadIdx.x / 32) * (is_pair ? 1 : OUTS);
    uint32_t step = is_pair ? out / 2 : 1; // from a warp's first weight row to its second
    out = is_pair ? out / 2 : out;
    if (o >= out) return; // its forerunner is done when this grid is: others wait
    const uint4 *row[OUTS];
    float sum[OUTS][ROWS];
#pragma unroll
    for (uint32_t k = 0; k < OUTS; k++) {
        // A last warp without a second output makes its first one twice.
        row[k] = w + static_cast<uint64_t>(is_pair || o + k < out ? o + k * step : o) * octs;
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) sum[k][r] = 0.0f;
    }
    // The first pieces of the weights, which nobody writes, are on their way
    // before the kernel in front is done.
    uint4 piece[STEPS][OUTS];
    uint32_t i = lane;
    int is_long = i + 32 * (STEPS - 1) < octs;
    if (is_long) fetch(piece, row, i);
    let_next_in();
    wait_for_before();
    while (is_long) {
        // The next pieces set out before these are worked on.
        uint4 next[STEPS][OUTS];
        uint32_t j = i + 32 * STEPS;
        is_long = j + 32 * (STEPS - 1) < octs;
        if (is_long) fetch(next, row, j);
#pragma unroll
        for (uint32_t s = 0; s < STEPS; s++) {
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++) {
                uint4 v = x[static_cast<uint64_t>(r) * octs + i + 32 * s];
#pragma unroll
                for (uint32_t k = 0; k < OUTS; k++) sum[k][r] = dot8(piece[s][k], v, sum[k][r]);
            }
#pragma unroll
            for (uint32_t k = 0; k < OUTS; k++) piece[s][k] = next[s][k];
        }
        i = j;
    }
    for (; i < octs; i += 32) {
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            uint4 v = x[static_cast<uint64_t>(r) * octs + i];
#pragma unroll
            for (uint32_t k = 0; k < OUTS; k++) sum[k][r] = dot8(row[k][i], v, sum[k][r]);
        }
    }
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        float v[OUTS];
#pragma unroll
        for (uint32_t k = 0; k < OUTS; k++) {
            v[k] = sum[k][r];
            for (int far = 16; far > 0; far /= 2) v[k] += __shfl_xor_sync(~0u, v[k], far);
        }
        uint64_t at = static_cast<uint64_t>(r) * out + o;
        if (lane != 0) continue;
        if (is_pair) {
            store(STORE_BF16, y, at, v[0] / (1.0f + __expf(-v[0])) * v[1]);
        } else {
#pragma unroll
            for (uint32_t k = 0; k < OUTS; k++) {
                if (o + k < out) store(FINISH, y, at + k, v[k]);
            }
        }
    }
}

int tdm_skinny_takes(const tdm_gemm_shape_t *s) {
    return s->rows <= TDM_SKINNY_ROWS_MAX && s->rows != 3 && s->in % 8 == 0;
}

// One number of rows and one finish.
typedef void skinny_t(const uint4 *x, const uint4 *w, uint32_t out, uint32_t octs, void *y);

template <uint32_t ROWS> static skinny_t *kernel_of(int finish) {
    static skinny_t *const all[] = {skinny_kernel<ROWS, STORE_BF16>, skinny_kernel<ROWS, STORE_F32>,
                                    skinny_kernel<ROWS, ADD_F32>, skinny_kernel<ROWS, SWIGLU>};
    return all[finish];
}

static cudaError_t launch(const tdm_gemm_shape_t *s, int finish, const void *x, const void *w,
                          void *y, cudaStream_t stream) {
    if (!tdm_skinny_takes(s)) return cudaErrorInvalidValue;
    skinny_t *kernel = s->rows == 1   ? kernel_of<1>(finish)
                       : s->rows == 2 ? kernel_of<2>(finish)
                                      : kernel_of<4>(finish);
    uint32_t grid = (s->out + WARPS * OUTS - 1) / (WARPS * OUTS); // a pair is two, too
    return launch_early(kernel, grid, WARPS * 32, stream, static_cast<const uint4 *>(x),
                        static_cast<const uint4 *>(w), s->out, s->in / 8, y);
}

int tdm_skinny_run(const tdm_gemm_shape_t *s, const void *x, const void *w, void *y,
                   struct CUstream_st *stream) {
    int finish = s->y_type == TDM_GEMM_BF16 ? STORE_BF16 : s->is_add ? ADD_F32 : STORE_F32;
    return launch(s, finish, x, w, y, stream);
}

int tdm_skinny_swiglu(const tdm_gemm_shape_t *s, const void *x, const void *w, void *y,
                      struct CUstream_st *stream) {
    return launch(s, SWIGLU, x, w, y, stream);
}
