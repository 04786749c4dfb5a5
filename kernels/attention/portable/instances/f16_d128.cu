// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/instances/table.cuh"

const void *pod_f16_d128(uint32_t tile) {
    return pod_table<__half, 128>(tile);
}
