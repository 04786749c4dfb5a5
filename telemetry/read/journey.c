/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/journey.h"

#include "telemetry/read/text_private.h"

#include <string.h>

static uint64_t grown(const tdm_snapshot_t *before, const tdm_snapshot_t *after,
                      tdm_metric_t metric, uint32_t idx) {
    uint64_t then = before ? tdm_snapshot_value(before, metric, idx) : 0;
    return tdm_snapshot_value(after, metric, idx) - then;
}

static uint64_t grown_total(const tdm_snapshot_t *before, const tdm_snapshot_t *after,
                            tdm_metric_t metric) {
    return tdm_snapshot_total(after, metric) - (before ? tdm_snapshot_total(before, metric) : 0);
}

static void quantiles(const tdm_snapshot_t *before, const tdm_snapshot_t *after,
                      tdm_metric_t metric, uint64_t *p50, uint64_t *p99) {
    tdm_histogram_t h;
    tdm_histogram_between(&h, before, after, metric);
    *p50 = tdm_histogram_quantile(&h, 500);
    *p99 = tdm_histogram_quantile(&h, 990);
}

void tdm_journey_between(tdm_journey_t *out, const tdm_snapshot_t *before,
                         const tdm_snapshot_t *after) {
#define GROWN(metric, idx) grown(before, after, TDM_METRIC_##metric, idx)
#define TOTAL(metric)      grown_total(before, after, TDM_METRIC_##metric)
    memset(out, 0, sizeof *out);
    out->span_ns = after->at_ns - (before ? before->at_ns : 0);
    out->packets_rx = GROWN(net_packets_total, TDM_LABEL_DIRECTION_rx);
    out->packets_tx = GROWN(net_packets_total, TDM_LABEL_DIRECTION_tx);
    out->drops = TOTAL(net_drops_total);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_DROP; i++) out->drop[i] = GROWN(net_drops_total, i);
    out->exchanges = TOTAL(exchanges_total);
    out->accepted = GROWN(admission_total, 0);
    out->refused = TOTAL(admission_total) - out->accepted;
    out->ring_full = TOTAL(ring_enqueue_failures_total);
    out->ring_high_water =
        tdm_snapshot_value(after, TDM_METRIC_ring_high_watermark_entries, TDM_LABEL_RING_request);
    out->tokens_prompt = GROWN(tokens_total, TDM_LABEL_TOKEN_prompt);
    out->tokens_output = GROWN(tokens_total, TDM_LABEL_TOKEN_output);
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++) out->path[r] = GROWN(iterations_total, r);
    out->hybrid_fused = GROWN(hybrid_iterations_total, TDM_LABEL_HYBRID_fused);
    out->hybrid_fallback = GROWN(hybrid_iterations_total, TDM_LABEL_HYBRID_fallback);
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        out->vcta_planned[k] = GROWN(vcta_planned_total, k);
        out->vcta_executed[k] = GROWN(vcta_total, k);
    }
    quantiles(before, after, TDM_METRIC_ttft_seconds, &out->ttft_p50_ns, &out->ttft_p99_ns);
    quantiles(before, after, TDM_METRIC_itl_seconds, &out->itl_p50_ns, &out->itl_p99_ns);
    out->faults = TOTAL(faults_total);
#undef GROWN
#undef TOTAL
}

static void put(tdm_text_t *t, const char *before, uint64_t v, const char *after) {
    tdm_text_str(t, before);
    tdm_text_u64(t, v);
    tdm_text_str(t, after);
}

/* put_ms writes nanoseconds as milliseconds with microsecond steps. */
static void put_ms(tdm_text_t *t, const char *before, uint64_t ns, const char *after) {
    tdm_text_str(t, before);
    tdm_text_fixed(t, ns / 1000, 3, 0);
    tdm_text_str(t, after);
}

static size_t finish(tdm_text_t *t) {
    if (t->cap) t->buf[TDM_MIN(t->sz, t->cap - 1)] = '\0';
    return t->sz;
}

size_t tdm_journey_text(const tdm_journey_t *j, char *buf, size_t cap) {
    tdm_text_t t = {buf, cap, 0};
    put(&t, "packets     ", j->packets_rx, " in, ");
    put(&t, "", j->packets_tx, " out, ");
    put(&t, "", j->drops, j->drops ? " dropped:\n" : " dropped\n");
    for (uint32_t i = 0; i < TDM_LABEL_CNT_DROP; i++) {
        if (!j->drop[i]) continue;
        put(&t, "            ", j->drop[i], " ");
        tdm_text_str(&t, tdm_label_value(TDM_SET_DROP, i));
        tdm_text_str(&t, ": ");
        tdm_text_str(&t, tdm_reason_text((tdm_reason_t)(TDM_LABEL_FIRST_DROP + i)));
        tdm_text_str(&t, "\n");
    }
    put(&t, "requests    ", j->exchanges, " exchanges, ");
    put(&t, "", j->accepted, " accepted, ");
    put(&t, "", j->refused, " refused by the scheduler\n");
    put(&t, "ring        at most ", j->ring_high_water, " waiting, ");
    put(&t, "full ", j->ring_full, " times\n");
    tdm_text_str(&t, "iterations  ");
    for (uint32_t r = 0, n = 0; r < TDM_ROUTE_CNT; r++) {
        if (!j->path[r] && !(r + 1 == TDM_ROUTE_CNT && n == 0)) continue;
        tdm_text_str(&t, n++ ? ", " : "");
        tdm_text_str(&t, tdm_label_value(TDM_SET_PATH, r));
        put(&t, " ", j->path[r], "");
    }
    put(&t, "; both kinds: ", j->hybrid_fused, " fused, ");
    put(&t, "", j->hybrid_fallback, " fell back\n");
    put(&t, "virtual CTA ", j->vcta_executed[TDM_KIND_PREFILL], " prefill, ");
    put(&t, "", j->vcta_executed[TDM_KIND_DECODE], " decode (planned ");
    put(&t, "", j->vcta_planned[TDM_KIND_PREFILL], " and ");
    put(&t, "", j->vcta_planned[TDM_KIND_DECODE], ")");
    if (j->vcta_executed[TDM_KIND_DECODE]) {
        uint64_t d = j->vcta_executed[TDM_KIND_DECODE], p = j->vcta_executed[TDM_KIND_PREFILL];
        tdm_text_str(&t, ", prefill per decode ");
        tdm_text_fixed(&t, p / d * 100 + p % d * 100 / d, 2, 0);
    }
    put(&t, "\ntokens      ", j->tokens_prompt, " prompt, ");
    put(&t, "", j->tokens_output, " output\n");
    put_ms(&t, "latency     first token p50 ", j->ttft_p50_ns, " ms");
    put_ms(&t, ", gap p50 ", j->itl_p50_ns, " ms");
    put_ms(&t, ", gap p99 ", j->itl_p99_ns, " ms\n");
    if (j->faults) put(&t, "faults      ", j->faults, " survived\n");
    return finish(&t);
}

size_t tdm_journey_json(const tdm_journey_t *j, char *buf, size_t cap) {
    tdm_text_t t = {buf, cap, 0};
    tdm_text_str(&t, "{\"span_s\":");
    tdm_text_fixed(&t, j->span_ns > 0 ? (uint64_t)j->span_ns / 1000000 : 0, 3, 0);
    put(&t, ",\"packets_rx\":", j->packets_rx, "");
    put(&t, ",\"packets_tx\":", j->packets_tx, "");
    put(&t, ",\"drops\":", j->drops, "");
    put(&t, ",\"exchanges\":", j->exchanges, "");
    put(&t, ",\"accepted\":", j->accepted, "");
    put(&t, ",\"refused\":", j->refused, "");
    put(&t, ",\"ring_full\":", j->ring_full, "");
    put(&t, ",\"ring_high_water\":", j->ring_high_water, "");
    put(&t, ",\"tokens_prompt\":", j->tokens_prompt, "");
    put(&t, ",\"tokens_output\":", j->tokens_output, ",\"iterations\":{");
    for (uint32_t r = 0; r < TDM_ROUTE_CNT; r++) {
        tdm_text_str(&t, r ? ",\"" : "\"");
        tdm_text_str(&t, tdm_label_value(TDM_SET_PATH, r));
        put(&t, "\":", j->path[r], "");
    }
    put(&t, "},\"hybrid_fused\":", j->hybrid_fused, "");
    put(&t, ",\"hybrid_fallback\":", j->hybrid_fallback, "");
    static const char *const kind[TDM_KIND_CNT] = {"prefill", "decode"};
    for (uint32_t k = 0; k < TDM_KIND_CNT; k++) {
        tdm_text_str(&t, ",\"vcta_planned_");
        tdm_text_str(&t, kind[k]);
        put(&t, "\":", j->vcta_planned[k], ",\"vcta_executed_");
        tdm_text_str(&t, kind[k]);
        put(&t, "\":", j->vcta_executed[k], "");
    }
    put_ms(&t, ",\"ttft_p50_ms\":", j->ttft_p50_ns, "");
    put_ms(&t, ",\"ttft_p99_ms\":", j->ttft_p99_ns, "");
    put_ms(&t, ",\"itl_p50_ms\":", j->itl_p50_ns, "");
    put_ms(&t, ",\"itl_p99_ms\":", j->itl_p99_ns, "");
    put(&t, ",\"faults\":", j->faults, "}");
    return finish(&t);
}
