// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/portable/context.h"
#include "kernels/plan/spans.h"

int tdm_pod_read(tdm_pod_t *pod, const tdm_pod_plan_t *plan, tdm_pod_counters_t *out) {
    pod_count_t count;
    *out = tdm_pod_counters_t();
    uint32_t line = plan->item_cnt[TDM_KIND_PREFILL] + plan->item_cnt[TDM_KIND_DECODE];
    cudaError_t e = cudaDeviceSynchronize();
    if (e == cudaSuccess) {
        e = cudaMemcpy(&count, pod->count, sizeof count, cudaMemcpyDeviceToHost);
    }
    if (e == cudaSuccess) e = cudaMemset(pod->count, 0, sizeof count);
    if (e == cudaSuccess) {
        e = cudaMemcpy(pod->host_span, pod->span, line * sizeof(tdm_pod_span_t),
                       cudaMemcpyDeviceToHost);
    }
    if (e != cudaSuccess) return e;
    for (int kind = 0; kind < TDM_KIND_CNT; kind++) out->vcta_executed[kind] = count.vcta[kind];
    out->merge_cnt = count.merge;
    tdm_pod_spans_fold(pod->host_span, line, plan->cta_sm, pod->config.gpu.sm_cnt, out);
    return 0;
}

const tdm_pod_span_t *tdm_pod_spans(const tdm_pod_t *pod) {
    return pod->host_span;
}
