// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/instance.h"
#include "kernels/attention/portable/side.cuh"

const void *side_bf16_d64(uint32_t tile) {
    using traits = pod_traits<__nv_bfloat16, 64, 128, 64, 2, 2>;
    if (tile != TDM_POD_TILE_WIDE2) return nullptr;
    return reinterpret_cast<const void *>(pod_side_kernel<traits>);
}
