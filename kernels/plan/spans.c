/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/spans.h"

#include <stdlib.h>

static int by_sm_then_start(const void *a, const void *b) {
    const tdm_pod_span_t *x = a;
    const tdm_pod_span_t *y = b;
    if (x->sm != y->sm) return x->sm < y->sm ? -1 : 1;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return 0;
}

static int by_start(const void *a, const void *b) {
    const tdm_pod_span_t *x = a;
    const tdm_pod_span_t *y = b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return 0;
}

/* Time that is covered by spans of both kinds.  The spans stand by start,
   so each kind's cover is one interval that grows or begins anew; `both`
   grows by what the two have in common. */
static uint64_t both_kinds_ns(const tdm_pod_span_t *span, uint32_t cnt) {
    uint64_t begin[TDM_KIND_CNT] = {0, 0};
    uint64_t end[TDM_KIND_CNT] = {0, 0};
    uint64_t seen = 0; /* everything before is counted */
    uint64_t both = 0;
    for (uint32_t i = 0; i < cnt; i++) {
        uint32_t kind = span[i].kind & 1;
        if (span[i].start_ns > end[kind]) begin[kind] = span[i].start_ns;
        end[kind] = TDM_MAX(end[kind], span[i].end_ns);
        if (!end[0] || !end[1]) continue;
        uint64_t from = TDM_MAX(TDM_MAX(begin[0], begin[1]), seen);
        uint64_t to = TDM_MIN(end[0], end[1]);
        if (to <= from) continue;
        both += to - from;
        seen = to;
    }
    return both;
}

void tdm_pod_spans_fold(tdm_pod_span_t *span, uint32_t cnt, uint32_t cta_sm, uint32_t sm_cnt,
                        tdm_pod_counters_t *out) {
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    uint64_t sm_end_sum = 0;
    double clock_sum = 0;
    double ns_sum = 0;
    out->span_cnt = cnt;
    out->sm_used = out->switch_cnt = 0;
    out->sm_ns[TDM_KIND_PREFILL] = out->sm_ns[TDM_KIND_DECODE] = 0;
    out->colocated_ns = out->overlap_ns = out->wall_ns = 0;
    out->tail = out->clock_ghz = 0.0f;
    if (cnt == 0) return;
    for (uint32_t i = 0; i < cnt; i++) {
        uint64_t ns = span[i].end_ns - span[i].start_ns;
        first = TDM_MIN(first, span[i].start_ns);
        last = TDM_MAX(last, span[i].end_ns);
        out->sm_ns[span[i].kind & 1] += ns * span[i].warp_cnt;
        if (ns < 5000) continue; /* the timer's own step would show */
        clock_sum += (double)span[i].clock_cnt;
        ns_sum += (double)ns;
    }
    qsort(span, cnt, sizeof *span, by_sm_then_start);
    for (uint32_t i = 0, n; i < cnt; i += n) {
        uint64_t end = 0;
        for (n = 0; i + n < cnt && span[i + n].sm == span[i].sm; n++) {
            end = TDM_MAX(end, span[i + n].end_ns);
            if (n) out->switch_cnt += span[i + n].kind != span[i + n - 1].kind;
        }
        out->colocated_ns += both_kinds_ns(span + i, n);
        sm_end_sum += end - first;
        out->sm_used++;
    }
    qsort(span, cnt, sizeof *span, by_start);
    out->overlap_ns = both_kinds_ns(span, cnt);
    out->wall_ns = last - first;
    uint32_t warp_sm = TDM_POD_PACK * (cta_sm ? cta_sm : 1);
    out->sm_ns[TDM_KIND_PREFILL] /= warp_sm;
    out->sm_ns[TDM_KIND_DECODE] /= warp_sm;
    uint64_t sm = TDM_MIN(out->sm_used, sm_cnt);
    if (out->wall_ns && sm) {
        out->tail = 1.0f - (float)((double)sm_end_sum / (double)sm / (double)out->wall_ns);
    }
    if (ns_sum > 0) out->clock_ghz = (float)(clock_sum / ns_sum);
}
