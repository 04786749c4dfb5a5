/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_PLAN_DEVICE_H
#define TDM_KERNELS_PLAN_DEVICE_H

/* Descriptions of devices that the planner is tested with, from the
   vendor's CUDA programming guide (technical specifications per compute
   capability) and data sheets.  On a machine with a GPU kernels/device
   asks the driver instead. */

#include "kernels/include/pod.h"

TDM_BEGIN_DECLS

/* tdm_gpu_known returns the description called name, or NULL:
   a100, a100-1g, l40s, h100 (132 SMs), h100-pcie (114), h200, h20, h100-1g,
   h100-3g, b200, rtx5090. */
const tdm_gpu_t *tdm_gpu_known(const char *name);

/* tdm_gpu_known_at walks the list: NULL past its end. */
const tdm_gpu_t *tdm_gpu_known_at(uint32_t idx, const char **name_out);

/* tdm_gpu_rates fills hbm_gbs and mma_tflops where they are 0, from the
   architecture and the number of SMs. */
void tdm_gpu_rates(tdm_gpu_t *gpu);

TDM_END_DECLS

#endif /* TDM_KERNELS_PLAN_DEVICE_H */
