// SPDX-License-Identifier: Apache-2.0
// The bf16 kernels of head dimension 128 without the log of spans and its
// clocks: perf_attention_nolog is perf_attention with these, and the
// difference is what the log costs.
#define TDM_KERNELS_ATTENTION_PORTABLE_LOG_CUH

#include "kernels/attention/portable/args.cuh"

struct pod_clock {
    uint64_t ns;
    uint32_t cycle;
};

static __device__ __forceinline__ pod_clock pod_clock_now() {
    pod_clock c = {0, 0};
    return c;
}

static __device__ __forceinline__ void pod_log(const pod_args_t &, uint32_t, uint32_t, uint32_t,
                                               uint32_t, const pod_clock &) {}

#include "kernels/attention/portable/instances/bf16_d128.cu"
