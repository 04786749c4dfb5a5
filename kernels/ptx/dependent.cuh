// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_PTX_DEPENDENT_CUH
#define TDM_KERNELS_PTX_DEPENDENT_CUH

// Programmatic dependent launch (griddepcontrol, PTX ISA 9.7.13.13), sm_90:
// a kernel launched with that attribute may begin before the one before it on
// the stream has ended.  Without the attribute both do nothing.

// Waits until all that the kernel before wrote is there.
__device__ __forceinline__ void ptx_dependency_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may begin once every CTA of this one has said so or ended.
__device__ __forceinline__ void ptx_dependent_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

#endif // TDM_KERNELS_PTX_DEPENDENT_CUH
