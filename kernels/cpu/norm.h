/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_NORM_H
#define TDM_KERNELS_CPU_NORM_H

/* The element-wise parts of a layer, for one row each.  Plain C without
   fused multiply-adds: the same bits everywhere. */

#include "appliance/abi/model.h"

/* tdm_cpu_norm stores x[cnt] * weight / rms(x), packed for
   kernels/cpu/linear.h.  The mean square is summed in double. */
void tdm_cpu_norm(const float *x, const float *weight, uint32_t cnt, float eps, float *packed);

/* tdm_cpu_swiglu stores silu(gate) * up of elements [first, first + cnt)
   of a row at their packed places; packed is the row's start. */
void tdm_cpu_swiglu(const float *gate, const float *up, uint32_t first, uint32_t cnt,
                    float *packed);

/* tdm_cpu_widen stores bf16 as float32. */
void tdm_cpu_widen(const tdm_bf16_t *src, uint32_t cnt, float *dst);

/* tdm_cpu_narrow rounds float32 to bf16, nearest even. */
void tdm_cpu_narrow(const float *src, uint32_t cnt, tdm_bf16_t *dst);

#endif /* TDM_KERNELS_CPU_NORM_H */
