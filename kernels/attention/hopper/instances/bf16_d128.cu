// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/hopper/fused.cuh"
#include "kernels/attention/hopper/instance.h"

const void *hop_bf16_d128(void) {
    return reinterpret_cast<const void *>(hop_kernel<hop_traits<__nv_bfloat16, 128, HOP_KEY>>);
}
