// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"
#include "kernels/plan/spans.h"

int tdm_pod_collect(tdm_pod_t *pod, const tdm_pod_plan_t *plan, int is_log,
                    struct CUstream_st *stream) {
    uint32_t line = plan->item_cnt[TDM_KIND_PREFILL] + plan->item_cnt[TDM_KIND_DECODE];
    pod->host_span_cnt = is_log ? line : 0;
    cudaError_t e = cudaMemcpyAsync(pod->host_count, pod->count, sizeof(pod_count_t),
                                    cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess) e = cudaMemsetAsync(pod->count, 0, sizeof(pod_count_t), stream);
    if (e == cudaSuccess && pod->host_span_cnt) {
        e = cudaMemcpyAsync(pod->host_span, pod->span, line * sizeof(tdm_pod_span_t),
                            cudaMemcpyDeviceToHost, stream);
    }
    return e;
}

void tdm_pod_counted(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out) {
    const pod_count_t *count = pod->host_count;
    *out = tdm_pod_counters_t();
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) out->vcta_executed[kind] = count->vcta[kind];
    out->merge_cnt = count->merge;
    tdm_pod_spans_fold(pod->host_span, pod->host_span_cnt, plan->cta_sm, pod->config.gpu.sm_cnt,
                       out);
}

int tdm_pod_read(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out) {
    cudaError_t e = cudaDeviceSynchronize();
    if (e == cudaSuccess) e = static_cast<cudaError_t>(tdm_pod_collect(pod, plan, 1, nullptr));
    if (e == cudaSuccess) e = cudaStreamSynchronize(nullptr);
    if (e != cudaSuccess) return e;
    tdm_pod_counted(pod, plan, out);
    return 0;
}

const tdm_pod_span_t *tdm_pod_spans(const tdm_pod_t *pod) {
    return pod->host_span;
}
