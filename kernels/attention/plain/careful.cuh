// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PLAIN_CAREFUL_CUH
#define TDM_KERNELS_ATTENTION_PLAIN_CAREFUL_CUH

// O += P V without the tensor cores, key by key, into the rows that see the
// key and no others.  For the few tiles in which a row's weight is 0 because
// the row does not see the key: there V may be anything.

#include "kernels/attention/portable/traits.cuh"
#include "kernels/ptx/special.cuh"

// s: weights as the C fragments of mma m16n8k16, o likewise; seen[i][h]: how
// many of the tile's keys row i * 16 + h * 8 + lane / 4 of the warp sees; sV:
// the tile, rows of ROW_SZ bytes, swizzled.
template <typename T, int MT, int KEY, int DIM, int ROW_SZ>
static __device__ __forceinline__ void pod_values_careful(const float (&s)[MT][KEY / 8][4],
                                                          const uint32_t (&seen)[MT][2],
                                                          uint32_t sV, float (&o)[MT][DIM / 8][4]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEY / 8; n++) {
#pragma unroll 1
        for (uint32_t q = 0; q < 4; q++) { // the lane of a quad that holds the weights
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const uint32_t key = n * 8 + q * 2 + e;
                const uint32_t at = sV + key * ROW_SZ + lane % 4 * 4;
                float p[MT][2];
#pragma unroll
                for (int i = 0; i < MT; i++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        p[i][h] = __shfl_sync(~0u, s[i][n][2 * h + e], (lane & ~3u) + q);
                    }
                }
#pragma unroll
                for (int c = 0; c < DIM / 8; c++) {
                    const float2 v = pod_unpack<T>(ptx_ld_shared_32(at + ((c ^ (key & 7)) << 4)));
#pragma unroll
                    for (int i = 0; i < MT; i++) {
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            if (key >= seen[i][h]) continue;
                            o[i][c][2 * h] = fmaf(p[i][h], v.x, o[i][c][2 * h]);
                            o[i][c][2 * h + 1] = fmaf(p[i][h], v.y, o[i][c][2 * h + 1]);
                        }
                    }
                }
            }
        }
    }
}

#endif // TDM_KERNELS_ATTENTION_PLAIN_CAREFUL_CUH
