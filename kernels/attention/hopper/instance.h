// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H
#define TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H

// The kernels of this variant, for each (type, head_dim), in a file of its own
// under instances/, those of a launch that deals prefill items (kinds 1 <<
// TDM_KIND_PREFILL), decode items, or both, as cudaLaunchKernel wants them:
// arguments hop_args_t and hop_maps_t.

#include <stdint.h>

typedef const void *hop_instance_t(uint32_t kinds);

hop_instance_t hop_bf16_d64, hop_bf16_d128, hop_f16_d64, hop_f16_d128;

#endif // TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H
