// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H
#define TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H

// The kernels of this build, one function per (type, head_dim), each in a
// file of its own under instances/, so that they build in parallel.  The
// forms for comparison, and the tile that each is built for:
//   side   TDM_POD_WAY_HFUSE_WARP, TDM_POD_TILE_WIDE2
//   intra  TDM_POD_WAY_INTRA, TDM_POD_TILE_SLIM

#include "kernels/include/pod.h"

// The kernel of a tile, as cudaLaunchKernel wants it; NULL: none.
typedef const void *pod_instance_t(uint32_t tile);

// Shared memory of one CTA of the intra form: the slim tile's, and a ring of
// four halves of 16 keys for each warp (intra_traits::INTRA_SMEM_SZ).
#define POD_INTRA_SMEM(head_dim)                                                                   \
    (tdm_pod_tile_smem(TDM_POD_TILE_SLIM, head_dim) + 4u * 4u * 16u * 2u * (head_dim))

pod_instance_t pod_bf16_d64, pod_bf16_d128, pod_f16_d64, pod_f16_d128;
pod_instance_t side_bf16_d64, side_bf16_d128, side_f16_d64, side_f16_d128;
pod_instance_t intra_bf16_d64, intra_bf16_d128, intra_f16_d64, intra_f16_d128;

#endif // TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H
