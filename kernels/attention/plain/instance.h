// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PLAIN_INSTANCE_H
#define TDM_KERNELS_ATTENTION_PLAIN_INSTANCE_H

// The plain kernels of this build, one function per (type, KV type).

#include "kernels/include/pod.h"

// The kernel of a head dimension, as cudaLaunchKernel wants it; NULL: none.
typedef const void *plain_instance_t(uint32_t head_dim);

plain_instance_t plain_bf16, plain_f16, plain_bf16_e4m3, plain_f16_e4m3;

// The kernel of a shape, NULL where none is.
static inline const void *plain_kernel_of(const tdm_pod_shape_t *s) {
    int is_fp8 = s->kv_dtype == TDM_POD_E4M3;
    if (s->dtype == TDM_POD_BF16)
        return is_fp8 ? plain_bf16_e4m3(s->head_dim) : plain_bf16(s->head_dim);
    return is_fp8 ? plain_f16_e4m3(s->head_dim) : plain_f16(s->head_dim);
}

#endif // TDM_KERNELS_ATTENTION_PLAIN_INSTANCE_H
