// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_HOPPER_LAUNCH_H
#define TDM_KERNELS_ATTENTION_HOPPER_LAUNCH_H

// The host side of the Hopper kernel: tensor maps, and one launch.
//
// A tensor map holds a pool's address and the shape of a copy; making one
// costs about a microsecond, so those of the last HOP_LAYER_MAX pairs of pools
// are kept.

#include <cuda_runtime.h>

#include "kernels/attention/portable/args.cuh"

#define HOP_LAYER_MAX 128u

typedef struct hop hop_t;

// hop_open makes what launches of a shape need, on the current device.
// cudaErrorNotSupported: the shape has no instance, or the driver makes no
// tensor maps.
cudaError_t hop_open(const tdm_pod_shape_t *shape, hop_t **out);
void hop_close(hop_t *h);

// hop_launch runs the kinds of a->kind_mask on ticket set `set` of two.
// grid: CTAs, of which one fits an SM; two at least where both kinds have
// items, which it sees to.  is_dependent: it may begin before the kernel
// before it on the stream has ended, and waits for that itself.
cudaError_t hop_launch(hop_t *h, const pod_args_t *a, uint32_t set, uint32_t grid, int is_dependent,
                       cudaStream_t stream);

// hop_kernel_of: the kernel for a launch of these kinds (1 << TDM_KIND_*), for
// questions about it; NULL: none is built.
const void *hop_kernel_of(const tdm_pod_shape_t *shape, uint32_t kinds);

#endif // TDM_KERNELS_ATTENTION_HOPPER_LAUNCH_H
