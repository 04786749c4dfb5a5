/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_DEVICE_DESCRIBE_H
#define TDM_KERNELS_DEVICE_DESCRIBE_H

/* What the driver says of the current CUDA device, in the planner's
   words. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

/* tdm_gpu_describe fills *gpu, %nsmid included (one tiny kernel asks for
   it).  0, or a cudaError_t. */
TDM_MUST_USE int tdm_gpu_describe(tdm_gpu_t *gpu);

TDM_END_DECLS

#endif /* TDM_KERNELS_DEVICE_DESCRIBE_H */
