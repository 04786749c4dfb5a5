// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/instance.h"
#include "kernels/attention/portable/intra.cuh"

const void *intra_f16_d64(uint32_t tile) {
    using traits = intra_traits<pod_traits<__half, 64, 64, 32, 2, 4>>;
    if (tile != TDM_POD_TILE_SLIM) return nullptr;
    return reinterpret_cast<const void *>(pod_intra_kernel<traits>);
}
