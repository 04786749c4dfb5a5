// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H
#define TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H

// The kernels of this variant, one for each (type, head_dim), each in a file
// of its own under instances/, as cudaLaunchKernel wants them: arguments
// hop_args_t and hop_maps_t.

typedef const void *hop_instance_t(void);

hop_instance_t hop_bf16_d64, hop_bf16_d128, hop_f16_d64, hop_f16_d128;

#endif // TDM_KERNELS_ATTENTION_HOPPER_INSTANCE_H
