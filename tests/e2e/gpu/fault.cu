/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ptx/special.cuh"
#include "tests/e2e/gpu/fault.h"

static __global__ void trap_kernel() {
    __trap();
}

static __global__ void spin_kernel(uint64_t ns) {
    uint64_t start_ns = ptx_globaltimer();
    while (ptx_globaltimer() - start_ns < ns) __nanosleep(1000);
}

int fault_trap(void) {
    trap_kernel<<<1, 1>>>();
    return cudaDeviceSynchronize() == cudaSuccess ? -1 : 0;
}

int fault_spin(uint32_t ms) {
    int device = 0, sm_cnt = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return -1;
    if (cudaDeviceGetAttribute(&sm_cnt, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return -1;
    spin_kernel<<<2 * sm_cnt, 1024>>>(UINT64_C(1000000) * ms);
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : -1;
}
