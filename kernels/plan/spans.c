/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan/spans.h"

/* --- order ------------------------------------------------------------ */

/* An engine folds a log in every iteration, so it is put in order in place,
   without memory and in a time that grows with its length: spread over
   about as many buckets of equal width between the least and the greatest
   key, and each bucket again; few are inserted one by one. */

#define FEW     24u
#define BUCKETS 1024u /* at most */

static uint64_t key_of(const tdm_pod_span_t *s, int is_by_sm) {
    return is_by_sm ? s->sm : s->start_ns;
}

static void insert_all(tdm_pod_span_t *span, uint32_t cnt, int is_by_sm) {
    for (uint32_t i = 1; i < cnt; i++) {
        tdm_pod_span_t s = span[i];
        uint32_t to = i;
        for (; to > 0 && key_of(&span[to - 1], is_by_sm) > key_of(&s, is_by_sm); to--) {
            span[to] = span[to - 1];
        }
        span[to] = s;
    }
}

/* Each level divides the width of the keys by FEW at least: 14 at most. */
static void sort(tdm_pod_span_t *span, uint32_t cnt, int is_by_sm) {
    uint32_t begin[BUCKETS + 1];
    uint32_t next[BUCKETS];
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    if (cnt <= FEW) {
        insert_all(span, cnt, is_by_sm);
        return;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        least = TDM_MIN(least, key_of(&span[i], is_by_sm));
        most = TDM_MAX(most, key_of(&span[i], is_by_sm));
    }
    if (least == most) return;
    uint32_t shift = 0, buckets = BUCKETS;
    while (buckets / 2 >= cnt) buckets /= 2;
    while ((most - least) >> shift >= buckets) shift++;
    for (uint32_t b = 0; b <= buckets; b++) begin[b] = 0;
#define BUCKET_OF(s) ((uint32_t)((key_of((s), is_by_sm) - least) >> shift))
    for (uint32_t i = 0; i < cnt; i++) begin[BUCKET_OF(&span[i]) + 1]++;
    for (uint32_t b = 0; b < buckets; b++) {
        begin[b + 1] += begin[b];
        next[b] = begin[b];
    }
    for (uint32_t b = 0; b < buckets; b++) {
        while (next[b] < begin[b + 1]) { /* each swap puts one in its place */
            uint32_t of = BUCKET_OF(&span[next[b]]);
            if (of == b) {
                next[b]++;
                continue;
            }
            tdm_pod_span_t s = span[next[of]];
            span[next[of]++] = span[next[b]];
            span[next[b]] = s;
        }
    }
#undef BUCKET_OF
    if (shift == 0) return; /* a bucket is one key */
    for (uint32_t b = 0; b < buckets; b++) {
        sort(span + begin[b], begin[b + 1] - begin[b], is_by_sm);
    }
}

/* --- the fold ------------------------------------------------------------ */

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
    uint32_t kinds = 0;
    out->span_cnt = cnt;
    out->sm_used = out->switch_cnt = 0;
    out->sm_ns[TDM_KIND_PREFILL] = out->sm_ns[TDM_KIND_DECODE] = 0;
    out->colocated_ns = out->overlap_ns = out->wall_ns = 0;
    out->tail = out->clock_ghz = 0.0f;
    if (cnt == 0) return;
    for (uint32_t i = 0; i < cnt; i++) {
        uint64_t ns = span[i].end_ns - span[i].start_ns;
        kinds |= 1u << (span[i].kind & 1);
        first = TDM_MIN(first, span[i].start_ns);
        last = TDM_MAX(last, span[i].end_ns);
        out->sm_ns[span[i].kind & 1] += ns * span[i].warp_cnt;
        if (ns < 5000) continue; /* the timer's own step would show */
        clock_sum += (double)span[i].clock_cnt;
        ns_sum += (double)ns;
    }
    int is_both = kinds == (1u << TDM_KIND_PREFILL | 1u << TDM_KIND_DECODE);
    sort(span, cnt, 1);
    for (uint32_t i = 0, n; i < cnt; i += n) {
        uint64_t end = 0;
        for (n = 0; i + n < cnt && span[i + n].sm == span[i].sm; n++) {
            end = TDM_MAX(end, span[i + n].end_ns);
            if (n) out->switch_cnt += span[i + n].kind != span[i + n - 1].kind;
        }
        if (is_both) {
            sort(span + i, n, 0);
            out->colocated_ns += both_kinds_ns(span + i, n);
        }
        sm_end_sum += end - first;
        out->sm_used++;
    }
    if (is_both) {
        sort(span, cnt, 0);
        out->overlap_ns = both_kinds_ns(span, cnt);
    }
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
