// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/hopper/fused.cuh"
#include "kernels/attention/hopper/instance.h"

const void *hop_bf16_d128(uint32_t kinds) {
    return hop_image<hop_traits<__nv_bfloat16, 128, HOP_KEY>>(kinds);
}
