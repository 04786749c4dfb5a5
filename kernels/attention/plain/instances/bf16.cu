// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/plain/instances/table.cuh"

const void *plain_bf16(uint32_t head_dim) {
    return plain_table<__nv_bfloat16, __nv_bfloat16>(head_dim);
}
