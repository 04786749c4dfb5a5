/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/probe.h"

#include <cuda_runtime.h>
#include <stdio.h>

/* A word that only the device can have written. */
static const unsigned mark = 0x7a4de3u;

static __global__ void mark_kernel(unsigned *word) {
    *word = mark;
}

static cudaError_t run_one(int *is_run) {
    unsigned *word = NULL;
    unsigned seen = 0;
    cudaError_t e = cudaMalloc(&word, sizeof *word);
    if (e != cudaSuccess) return e;
    mark_kernel<<<1, 1>>>(word);
    e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaMemcpy(&seen, word, sizeof seen, cudaMemcpyDeviceToHost);
    *is_run = e == cudaSuccess && seen == mark;
    (void)cudaFree(word);
    return e;
}

int tdm_cuda_probe(tdm_cuda_probe_t *probe, const char **why) {
    cudaDeviceProp prop;
    int device = 0;
    *probe = tdm_cuda_probe_t();
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&prop, device);
    if (e == cudaSuccess) {
        (void)snprintf(probe->name, sizeof probe->name, "%.63s", prop.name);
        probe->arch = prop.major * 10 + prop.minor;
        probe->sm_cnt = prop.multiProcessorCount;
        e = run_one(&probe->is_kernel_run);
    }
    size_t free_sz = 0;
    size_t all_sz = 0;
    if (e == cudaSuccess) e = cudaMemGetInfo(&free_sz, &all_sz);
    probe->free_sz = free_sz;
    *why = cudaGetErrorString(e);
    return (int)e;
}

int tdm_cuda_bus(char *bus, int bus_sz) {
    int device = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetPCIBusId(bus, bus_sz, device);
    return (int)e;
}
