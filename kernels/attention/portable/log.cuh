// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_LOG_CUH
#define TDM_KERNELS_ATTENTION_PORTABLE_LOG_CUH

// One line of the log for each virtual CTA: 32 bytes written, two clocks
// read.

#include "kernels/attention/portable/args.cuh"
#include "kernels/ptx/special.cuh"

struct pod_clock {
    uint64_t ns;
    uint32_t cycle;
};

static __device__ __forceinline__ pod_clock pod_clock_now() {
    pod_clock c;
    c.ns = ptx_globaltimer();
    c.cycle = static_cast<uint32_t>(clock64());
    return c;
}

// One thread of the virtual CTA; line is its item's index, decode behind
// prefill.
static __device__ __forceinline__ void pod_log(const pod_args_t &a, uint32_t line, uint32_t kind,
                                               uint32_t sm, uint32_t warp_cnt,
                                               const pod_clock &start) {
    tdm_pod_span_t span;
    pod_clock end = pod_clock_now();
    span.start_ns = start.ns;
    span.end_ns = end.ns;
    span.clock_cnt = end.cycle - start.cycle;
    span.sm = sm;
    span.kind = kind;
    span.warp_cnt = warp_cnt;
    a.span[line] = span;
}

#endif // TDM_KERNELS_ATTENTION_PORTABLE_LOG_CUH
