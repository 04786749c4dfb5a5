// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"
#include "kernels/plan/spans.h"

static tdm_pod_span_t *host_span(const tdm_pod_t *pod) {
    return pod->host_span + static_cast<uint64_t>(pod->box) * pod->config.item_max;
}

// Queues the copies behind a plan's launches, and clears the counters.
static cudaError_t collect(tdm_pod_t *pod, const tdm_pod_plan_t *plan, cudaStream_t stream) {
    tdm_pod_logged(pod, plan);
    cudaError_t e = cudaMemcpyAsync(pod->host_count + pod->box, pod->count, sizeof(pod_count_t),
                                    cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess) e = cudaMemsetAsync(pod->count, 0, sizeof(pod_count_t), stream);
    if (e == cudaSuccess && pod->host_span_cnt) {
        e = cudaMemcpyAsync(host_span(pod), pod->span, pod->host_span_cnt * sizeof(tdm_pod_span_t),
                            cudaMemcpyDeviceToHost, stream);
    }
    return e;
}

void tdm_pod_log(const tdm_pod_t *pod, tdm_pod_log_t *out) {
    static_assert(sizeof(pod_count_t) % sizeof(unsigned long long) == 0, "all are counters");
    out->blob = pod->blob;
    out->span = pod->span;
    out->host_span = pod->host_span;
    out->count = reinterpret_cast<unsigned long long *>(pod->count);
    out->host_count = reinterpret_cast<unsigned long long *>(pod->host_count);
    out->count_cnt = sizeof(pod_count_t) / sizeof(unsigned long long);
    out->span_max = pod->config.item_max;
}

void tdm_pod_logged(tdm_pod_t *pod, const tdm_pod_plan_t *plan) {
    pod->host_span_cnt = plan->item_cnt[TDM_KIND_PREFILL] + plan->item_cnt[TDM_KIND_DECODE];
}

void tdm_pod_counted(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out) {
    const pod_count_t *count = pod->host_count + pod->box;
    *out = tdm_pod_counters_t();
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) out->vcta_executed[kind] = count->vcta[kind];
    out->merge_cnt = count->merge;
    out->ring_stall_cnt = count->ring_stall;
    tdm_pod_spans_fold(host_span(pod), pod->host_span_cnt, plan->cta_sm, pod->config.gpu.sm_cnt,
                       out);
}

int tdm_pod_read(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out) {
    cudaError_t e = cudaDeviceSynchronize();
    if (e == cudaSuccess) e = collect(pod, plan, nullptr);
    if (e == cudaSuccess) e = cudaStreamSynchronize(nullptr);
    if (e != cudaSuccess) return e;
    tdm_pod_counted(pod, plan, out);
    return 0;
}

const tdm_pod_span_t *tdm_pod_spans(const tdm_pod_t *pod) {
    return host_span(pod);
}
