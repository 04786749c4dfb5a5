/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_KERNELS_CUDA_PROBE_H
#define TDM_KERNELS_CUDA_PROBE_H

/* What the current CUDA device is. */

#include "appliance/base/attr.h"

TDM_BEGIN_DECLS

typedef struct tdm_cuda_probe {
    char name[64];
    int arch; /* 90 for compute capability 9.0 */
    int sm_cnt;
    int is_kernel_run; /* a kernel of this build ran on it */
    uint64_t free_sz;  /* bytes of its memory that nobody has, after that */
} tdm_cuda_probe_t;

/* tdm_cuda_probe asks the runtime for the current device and runs one
   kernel on it.  0, or a cudaError_t whose text is *why. */
int tdm_cuda_probe(tdm_cuda_probe_t *probe, const char **why);

/* tdm_cuda_bus writes the PCI address of the current device, as
   "0000:1b:00.0".  0, or a cudaError_t. */
int tdm_cuda_bus(char *bus, int bus_sz);

TDM_END_DECLS

#endif /* TDM_KERNELS_CUDA_PROBE_H */
