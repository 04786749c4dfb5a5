// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/plain/instances/table.cuh"

const void *plain_bf16_e4m3(uint32_t head_dim) {
    return plain_table<__nv_bfloat16, uint8_t>(head_dim);
}
