// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/instances/table.cuh"

const void *pod_bf16_d64(uint32_t tile) {
    return pod_table<__nv_bfloat16, 64>(tile);
}
