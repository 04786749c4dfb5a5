// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_INSTANCES_TABLE_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_INSTANCES_TABLE_CUH

// The tiles of one (type, head_dim); the figures of tdm_pod_tile_info.

#include "kernels/attention/portable/fused.cuh"
#include "kernels/attention/portable/instance.h"

template <typename T, int DIM> static const void *pod_table(uint32_t tile) {
    switch (tile) {
    case TDM_POD_TILE_WIDE2:
        return reinterpret_cast<const void *>(pod_kernel<pod_traits<T, DIM, 128, 64, 2, 2>>);
    case TDM_POD_TILE_WIDE1:
        return reinterpret_cast<const void *>(pod_kernel<pod_traits<T, DIM, 128, 64, 1, 2>>);
    case TDM_POD_TILE_SLIM:
        return reinterpret_cast<const void *>(pod_kernel<pod_traits<T, DIM, 64, 32, 2, 4>>);
    default: return nullptr;
    }
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_INSTANCES_TABLE_CUH
