// SPDX-License-Identifier: Apache-2.0
#ifndef TDM_KERNELS_ATTENTION_PORTABLE_CONTEXT_H
#define TDM_KERNELS_ATTENTION_PORTABLE_CONTEXT_H

// The insides of tdm_pod_t: one block of device memory, carved once.
//
//   ticket[2] | drawn[2][smid_cnt] | arrived[merge_max] | count   zeroed at create
//   blob | span[item_max] | part

#include <cuda_runtime.h>

#include "kernels/attention/portable/args.cuh"

#define POD_TICKET_CNT 2 // STREAMS runs two launches side by side

struct tdm_pod {
    tdm_pod_config_t config;
    uint8_t *device;
    tdm_ticket_t *ticket;
    tdm_ticket_line_t *drawn;
    uint32_t *arrived;
    pod_count_t *count;
    uint8_t *blob;
    tdm_pod_span_t *span;
    float *part;
    uint32_t box;              // whose host memory is meant
    uint8_t *host_blob;        // pinned [box_cnt][a blob's most, in 256s]
    tdm_pod_span_t *host_span; // pinned [box_cnt][item_max]
    pod_count_t *host_count;   // pinned [box_cnt]
    uint32_t host_span_cnt;    // lines of the log that the last collect asked for
    struct hop *hopper;        // NULL where that variant does not run
    cudaStream_t side;
    cudaEvent_t fork;
    cudaEvent_t join;
};

// The kernel of this context's shape for a variant, a way and a tile; NULL:
// none is built.
const void *pod_kernel_of(const tdm_pod_t *pod, uint32_t variant, uint32_t way, uint32_t tile);

// Bytes of shared memory of one CTA of it.
uint32_t pod_kernel_smem(const tdm_pod_t *pod, uint32_t variant, uint32_t way, uint32_t tile);

// What every launch of a layer passes.
pod_args_t pod_args_of(const tdm_pod_t *pod, const tdm_pod_layer_t *layer);

#endif // TDM_KERNELS_ATTENTION_PORTABLE_CONTEXT_H
