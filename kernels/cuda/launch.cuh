// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_CUDA_LAUNCH_CUH
#define TDM_KERNELS_CUDA_LAUNCH_CUH

// Launches that may begin before the kernel in front of them is done
// (programmatic dependent launch, CUDA programming guide, 6.2.5; sm_90 and
// later): a kernel that follows in the stream is let in at once, does what
// depends on nothing, and waits for its forerunner in wait_for_before().
// Every kernel launched by launch_early calls it before it reads what others
// wrote or writes anything at all; so what is done before one forerunner is
// done before all that follow.

#include <cuda_runtime.h>

static __device__ __forceinline__ void wait_for_before() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// The next kernel of the stream may come in; its wait still sees all of this one.
static __device__ __forceinline__ void let_next_in() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

static inline int can_launch_early() {
    static int known = -1; // one thread at a time calls the backend
    if (known >= 0) return known;
    int device = 0;
    int major = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
        return 0;
    }
    known = major >= 9;
    return known;
}

// `ctas` CTAs a cluster (1: none), smem bytes of shared memory a CTA.
template <typename... P, typename... A>
static cudaError_t launch_early_as(void (*kernel)(P...), uint32_t ctas, dim3 grid, uint32_t threads,
                                   uint32_t smem, cudaStream_t stream, A... args) {
    cudaLaunchAttribute attribute[2];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    attribute[1].id = cudaLaunchAttributeClusterDimension;
    attribute[1].val.clusterDim.x = ctas;
    attribute[1].val.clusterDim.y = 1;
    attribute[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = smem;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = can_launch_early() ? ctas > 1 ? 2 : 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

template <typename... P, typename... A>
static cudaError_t launch_early_smem(void (*kernel)(P...), dim3 grid, uint32_t threads,
                                     uint32_t smem, cudaStream_t stream, A... args) {
    return launch_early_as(kernel, 1, grid, threads, smem, stream, args...);
}

// A row of clusters, of 9.0 and later.
template <typename... P, typename... A>
static cudaError_t launch_early_cluster(void (*kernel)(P...), uint32_t ctas, uint32_t clusters,
                                        uint32_t threads, cudaStream_t stream, A... args) {
    return launch_early_as(kernel, ctas, dim3(ctas * clusters), threads, 0, stream, args...);
}

template <typename... P, typename... A>
static cudaError_t launch_early(void (*kernel)(P...), dim3 grid, uint32_t threads,
                                cudaStream_t stream, A... args) {
    return launch_early_smem(kernel, grid, threads, 0, stream, args...);
}

#endif // TDM_KERNELS_CUDA_LAUNCH_CUH
