// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H
#define TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H

// The kernels of this build, one function per (type, head_dim), each in a
// file of its own under instances/, so that they build in parallel.

#include "kernels/include/pod.h"

// The kernel of a tile, as cudaLaunchKernel wants it; NULL: none.
typedef const void *pod_instance_t(uint32_t tile);

pod_instance_t pod_bf16_d64, pod_bf16_d128, pod_f16_d64, pod_f16_d128;

#endif // TDM_KERNELS_ATTENTION_PORTABLE_INSTANCE_H
