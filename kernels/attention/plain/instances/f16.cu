// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/plain/instances/table.cuh"

const void *plain_f16(uint32_t head_dim) {
    return plain_table<__half, __half>(head_dim);
}
