// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_SOFTMAX_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_SOFTMAX_CUH

// The running softmax of the two rows that a lane shares with its quad in
// a 16-row tile: rows lane / 4 and lane / 4 + 8.
//
// m is what the row's weights are taken against, in base-2 logarithm units,
// l this lane's share of the sum.  m follows the row's maximum, but only when
// that has grown by more than POD_SOFTMAX_SLACK: sums are multiplied less
// often, and a weight is 2^POD_SOFTMAX_SLACK at most, which half precision
// holds with the same relative error.  A row that has seen nothing has
// m = -inf, l = 0.

#include <math_constants.h>

#include "kernels/ptx/special.cuh"

#define POD_SOFTMAX_SLACK 8.0f

// Turns the scores s into weights 2^(s * scale_lg2 - m), and stores in
// fix[] what earlier sums must be multiplied by.  Returns whether any row
// of the warp moved its m; where none did, fix is 1 and multiplying would
// change no bit.
template <int NT>
static __device__ __forceinline__ int pod_softmax_step(float (&s)[NT][4], float (&m)[2],
                                                       float (&l)[2], float (&fix)[2],
                                                       float scale_lg2) {
    int is_moved = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = s[0][2 * h];
#pragma unroll
        for (int n = 0; n < NT; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float now = top * scale_lg2;
        if (!(now > m[h] + POD_SOFTMAX_SLACK)) now = m[h];
        is_moved |= now != m[h];
        float base = now == -CUDART_INF_F ? 0.0f : now;
        fix[h] = ptx_ex2(m[h] - base);
        m[h] = now;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            s[n][2 * h] = ptx_ex2(fmaf(s[n][2 * h], scale_lg2, -base));
            s[n][2 * h + 1] = ptx_ex2(fmaf(s[n][2 * h + 1], scale_lg2, -base));
            sum += s[n][2 * h] + s[n][2 * h + 1];
        }
        l[h] = fmaf(l[h], fix[h], sum);
    }
    return __any_sync(~0u, is_moved);
}

// The whole row's sum.
static __device__ __forceinline__ float pod_quad_sum(float l) {
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    return l;
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_SOFTMAX_CUH
