/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CPU_ISA_H
#define TDM_KERNELS_CPU_ISA_H

/* The instruction set of the CPU backend, chosen once at start.  Bits of
   results may differ between instruction sets, never within one. */

#include "appliance/base/status.h"
#include "kernels/include/backend.h"

/* tdm_cpu_isa_name: "auto", "scalar", "avx2", "avx512"; never NULL. */
const char *tdm_cpu_isa_name(uint32_t isa);

/* tdm_cpu_isa_resolve turns the wanted one into the one to run: AUTO
   becomes the widest this processor has.  TDM_ERR_INVAL outside the enum,
   TDM_ERR_UNSUPPORTED where the processor lacks it. */
TDM_MUST_USE tdm_status_t tdm_cpu_isa_resolve(uint32_t wanted, uint32_t *isa_out, tdm_error_t *err);

#endif /* TDM_KERNELS_CPU_ISA_H */
