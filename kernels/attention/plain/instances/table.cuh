// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PLAIN_INSTANCES_TABLE_CUH
#define TDM_KERNELS_ATTENTION_PLAIN_INSTANCES_TABLE_CUH

// The head dimensions of one (type, KV type).

#include "kernels/attention/plain/instance.h"
#include "kernels/attention/plain/plain.cuh"

template <typename T, typename KV, int DIM> static const void *plain_of() {
    return reinterpret_cast<const void *>(plain_kernel<plain_traits<T, KV, DIM>>);
}

template <typename T, typename KV> static const void *plain_table(uint32_t head_dim) {
    switch (head_dim) {
    case 64: return plain_of<T, KV, 64>();
    case 96: return plain_of<T, KV, 96>();
    case 128: return plain_of<T, KV, 128>();
    case 256: return plain_of<T, KV, 256>();
    default: return nullptr;
    }
}

#endif // TDM_KERNELS_ATTENTION_PLAIN_INSTANCES_TABLE_CUH
