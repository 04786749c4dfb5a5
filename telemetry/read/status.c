/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/status.h"

#include "telemetry/read/diagnose.h"
#include "telemetry/read/journey.h"

#include "telemetry/read/text_private.h"

/* member opens `"key":`, with a comma unless it is an object's first. */
static void member(tdm_text_t *t, const char *key, int is_first) {
    if (!is_first) tdm_text_str(t, ",");
    tdm_text_json(t, key);
    tdm_text_str(t, ":");
}

static void number(tdm_text_t *t, const char *key, uint64_t v, int is_first) {
    member(t, key, is_first);
    tdm_text_u64(t, v);
}

/* by_label writes {"value": n, ...} of a metric with one label set. */
static void by_label(tdm_text_t *t, const tdm_snapshot_t *s, tdm_metric_t metric,
                     tdm_label_set_t set, int only_nonzero) {
    int is_first = 1;
    tdm_text_str(t, "{");
    for (uint32_t i = 0; i < tdm_label_cnt(set); i++) {
        uint64_t v = tdm_snapshot_value(s, metric, i);
        if (only_nonzero && v == 0) continue;
        number(t, tdm_label_value(set, i), v, is_first);
        is_first = 0;
    }
    tdm_text_str(t, "}");
}

/* over_class adds a metric's series {slo_class, b} over the classes. */
static uint64_t over_class(const tdm_snapshot_t *s, tdm_metric_t metric, uint32_t b) {
    uint64_t v = 0;
    for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++)
        v += tdm_snapshot_value(s, metric, tdm_series2(metric, c, b));
    return v;
}

static uint64_t requests_ended(const tdm_snapshot_t *s, uint32_t outcome) {
    uint64_t v = 0;
    for (uint32_t a = 0; a < TDM_LABEL_CNT_API; a++)
        for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++)
            v += tdm_snapshot_value(s, TDM_METRIC_requests_total,
                                    tdm_series3(TDM_METRIC_requests_total, a, c, outcome));
    return v;
}

static void requests(tdm_text_t *t, const tdm_snapshot_t *s) {
    member(t, "requests", 0);
    tdm_text_str(t, "{");
    number(t, "waiting", over_class(s, TDM_METRIC_queue_requests, TDM_LABEL_QUEUE_waiting), 1);
    number(t, "running", over_class(s, TDM_METRIC_queue_requests, TDM_LABEL_QUEUE_running), 0);
    for (uint32_t o = 0; o < TDM_LABEL_CNT_OUTCOME; o++)
        number(t, tdm_label_value(TDM_SET_OUTCOME, o), requests_ended(s, o), 0);
    tdm_text_str(t, "}");
}

static void latency(tdm_text_t *t, const tdm_snapshot_t *s) {
    static const struct {
        const char *key;
        tdm_metric_t metric;
    } row[] = {{"ttft_ms", TDM_METRIC_ttft_seconds},
               {"itl_ms", TDM_METRIC_itl_seconds},
               {"e2e_ms", TDM_METRIC_e2e_seconds},
               {"queue_ms", TDM_METRIC_queue_seconds},
               {"iteration_ms", TDM_METRIC_iteration_seconds}};
    member(t, "latency", 0);
    tdm_text_str(t, "{");
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_histogram_t h;
        tdm_histogram_between(&h, NULL, s, row[i].metric);
        member(t, row[i].key, i == 0);
        tdm_text_str(t, "{");
        number(t, "count", h.cnt, 1);
        member(t, "mean", 0);
        tdm_text_fixed(t, h.cnt ? h.sum / h.cnt / 1000 : 0, 3, 0);
        member(t, "p50", 0);
        tdm_text_fixed(t, tdm_histogram_quantile(&h, 500) / 1000, 3, 0);
        member(t, "p99", 0);
        tdm_text_fixed(t, tdm_histogram_quantile(&h, 990) / 1000, 3, 0);
        tdm_text_str(t, "}");
    }
    tdm_text_str(t, "}");
}

static void rings(tdm_text_t *t, const tdm_snapshot_t *s) {
    member(t, "rings", 0);
    tdm_text_str(t, "[");
    for (uint32_t r = 0; r < TDM_LABEL_CNT_RING; r++) {
        tdm_text_str(t, r ? ",{" : "{");
        member(t, "ring", 1);
        tdm_text_json(t, tdm_label_value(TDM_SET_RING, r));
        number(t, "entries", tdm_snapshot_value(s, TDM_METRIC_ring_entries, r), 0);
        number(t, "capacity", tdm_snapshot_value(s, TDM_METRIC_ring_capacity_entries, r), 0);
        number(t, "high_watermark",
               tdm_snapshot_value(s, TDM_METRIC_ring_high_watermark_entries, r), 0);
        number(t, "full", tdm_snapshot_value(s, TDM_METRIC_ring_enqueue_failures_total, r), 0);
        tdm_text_str(t, "}");
    }
    tdm_text_str(t, "]");
}

static void tiles(tdm_text_t *t, const tdm_snapshot_t *s) {
    tdm_metric_t m = TDM_METRIC_tile_seconds_total;
    member(t, "tiles", 0);
    tdm_text_str(t, "[");
    for (uint32_t i = 0; i < TDM_LABEL_CNT_TILE; i++) {
        uint64_t busy = tdm_snapshot_value(s, m, tdm_series2(m, i, TDM_LABEL_TURN_busy));
        uint64_t idle = tdm_snapshot_value(s, m, tdm_series2(m, i, TDM_LABEL_TURN_idle));
        tdm_text_str(t, i ? ",{" : "{");
        member(t, "tile", 1);
        tdm_text_json(t, tdm_label_value(TDM_SET_TILE, i));
        member(t, "busy_s", 0);
        tdm_text_fixed(t, busy / 1000000, 3, 0);
        member(t, "idle_s", 0);
        tdm_text_fixed(t, idle / 1000000, 3, 0);
        member(t, "longest_turn_ms", 0);
        tdm_text_fixed(t, tdm_snapshot_value(s, TDM_METRIC_tile_turn_max_seconds, i) / 1000, 3, 0);
        tdm_text_str(t, "}");
    }
    tdm_text_str(t, "]");
}

/* slo has a row per class and objective: the promise, and who kept it. */
static void slo(tdm_text_t *t, const tdm_snapshot_t *s) {
    tdm_metric_t m = TDM_METRIC_slo_requests_total;
    member(t, "slo", 0);
    tdm_text_str(t, "[");
    for (uint32_t i = 0; i < TDM_LABEL_CNT_SLO_CLASS * TDM_LABEL_CNT_OBJECTIVE; i++) {
        uint32_t c = i / TDM_LABEL_CNT_OBJECTIVE, o = i % TDM_LABEL_CNT_OBJECTIVE;
        tdm_text_str(t, i ? ",{" : "{");
        member(t, "class", 1);
        tdm_text_json(t, tdm_label_value(TDM_SET_SLO_CLASS, c));
        member(t, "objective", 0);
        tdm_text_json(t, tdm_label_value(TDM_SET_OBJECTIVE, o));
        member(t, "promise_ms", 0);
        if (o < TDM_LABEL_CNT_TARGET) {
            uint32_t target = tdm_series2(TDM_METRIC_slo_target_seconds, c, o);
            tdm_text_fixed(t, tdm_snapshot_value(s, TDM_METRIC_slo_target_seconds, target) / 1000,
                           3, 0);
        } else {
            tdm_text_str(t, "null");
        }
        number(t, "met", tdm_snapshot_value(s, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_met)), 0);
        number(t, "missed", tdm_snapshot_value(s, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_missed)),
               0);
        tdm_text_str(t, "}");
    }
    tdm_text_str(t, "]");
}

static void findings(tdm_text_t *t, const tdm_snapshot_t *before, const tdm_snapshot_t *s,
                     int64_t start_ns) {
    tdm_finding_t found[TDM_FINDING_MAX];
    uint32_t cnt = tdm_diagnose(before, s, found);
    int64_t window_ns = s->at_ns - (before ? before->at_ns : start_ns);
    member(t, "window_s", 0);
    tdm_text_fixed(t, window_ns > 0 ? (uint64_t)window_ns / 1000000 : 0, 3, 0);
    member(t, "findings", 0);
    tdm_text_str(t, "[");
    for (uint32_t i = 0; i < cnt; i++) {
        tdm_text_str(t, i ? ",{" : "{");
        member(t, "gravity", 1);
        tdm_text_json(t, tdm_gravity_name(found[i].gravity));
        member(t, "cause", 0);
        tdm_text_json(t, found[i].cause);
        member(t, "text", 0);
        tdm_text_json(t, found[i].text);
        tdm_text_str(t, "}");
    }
    tdm_text_str(t, "]");
}

static void flight(tdm_text_t *t, const tdm_snapshot_t *s) {
    member(t, "flight", 0);
    tdm_text_str(t, "{");
    member(t, "records", 1);
    by_label(t, s, TDM_METRIC_flight_records_total, TDM_SET_FLIGHT, 0);
    member(t, "slots", 0);
    by_label(t, s, TDM_METRIC_flight_slots, TDM_SET_FLIGHT, 0);
    tdm_text_str(t, "}");
}

static void net(tdm_text_t *t, const tdm_snapshot_t *s) {
    member(t, "net", 0);
    tdm_text_str(t, "{");
    member(t, "packets", 1);
    by_label(t, s, TDM_METRIC_net_packets_total, TDM_SET_DIRECTION, 0);
    member(t, "bytes", 0);
    by_label(t, s, TDM_METRIC_net_bytes_total, TDM_SET_DIRECTION, 0);
    member(t, "drops", 0);
    by_label(t, s, TDM_METRIC_net_drops_total, TDM_SET_DROP, 1);
    member(t, "handshakes", 0);
    by_label(t, s, TDM_METRIC_net_handshakes_total, TDM_SET_HANDSHAKE, 0);
    member(t, "connections", 0);
    by_label(t, s, TDM_METRIC_connections, TDM_SET_DOOR, 0);
    tdm_text_str(t, "}");
}

static const char *state_name(const tdm_snapshot_t *s) {
    for (uint32_t i = 0; i < TDM_LABEL_CNT_STATE; i++)
        if (tdm_snapshot_value(s, TDM_METRIC_state, i)) return tdm_label_value(TDM_SET_STATE, i);
    return "unknown";
}

static void attention(tdm_text_t *t, const tdm_snapshot_t *s) {
    member(t, "iterations", 0);
    by_label(t, s, TDM_METRIC_iterations_total, TDM_SET_PATH, 0);
    member(t, "hybrid", 0);
    by_label(t, s, TDM_METRIC_hybrid_iterations_total, TDM_SET_HYBRID, 0);
    member(t, "vcta", 0);
    tdm_text_str(t, "{");
    member(t, "planned", 1);
    by_label(t, s, TDM_METRIC_vcta_planned_total, TDM_SET_OP, 0);
    member(t, "executed", 0);
    by_label(t, s, TDM_METRIC_vcta_total, TDM_SET_OP, 0);
    tdm_text_str(t, "}");
    member(t, "chunk_limited", 0);
    by_label(t, s, TDM_METRIC_sched_chunk_limited_total, TDM_SET_CAP, 1);
    member(t, "fallbacks", 0);
    by_label(t, s, TDM_METRIC_fallbacks_total, TDM_SET_FALLBACK, 1);
    member(t, "kv", 0);
    by_label(t, s, TDM_METRIC_kv_pages, TDM_SET_KV, 0);
}

tdm_status_t tdm_status_json(const tdm_snapshot_t *before, const tdm_snapshot_t *s,
                             int64_t start_ns, const tdm_fact_t *fact, uint32_t fact_cnt, char *buf,
                             size_t cap, size_t *sz) {
    tdm_text_t t = {buf, cap, 0};
    tdm_text_str(&t, "{\"tandem\":{");
    for (uint32_t i = 0; i < fact_cnt; i++) {
        member(&t, fact[i].key, i == 0);
        tdm_text_json(&t, fact[i].value);
    }
    tdm_text_str(&t, "}");
    member(&t, "state", 0);
    tdm_text_json(&t, state_name(s));
    member(&t, "uptime_s", 0);
    tdm_text_fixed(&t, s->at_ns > start_ns ? (uint64_t)(s->at_ns - start_ns) / 1000000 : 0, 3, 0);
    findings(&t, before, s, start_ns);
    requests(&t, s);
    slo(&t, s);
    member(&t, "tokens", 0);
    by_label(&t, s, TDM_METRIC_tokens_total, TDM_SET_TOKEN, 0);
    latency(&t, s);
    attention(&t, s);
    rings(&t, s);
    tiles(&t, s);
    net(&t, s);
    member(&t, "refusals", 0);
    by_label(&t, s, TDM_METRIC_refusals_total, TDM_SET_REFUSE, 1);
    member(&t, "faults", 0);
    by_label(&t, s, TDM_METRIC_faults_total, TDM_SET_FAULT, 1);
    flight(&t, s);
    tdm_journey_t j;
    char journey[2048];
    tdm_journey_between(&j, NULL, s);
    j.span_ns = s->at_ns - start_ns;
    (void)tdm_journey_json(&j, journey, sizeof journey);
    member(&t, "journey", 0);
    tdm_text_str(&t, journey);
    tdm_text_str(&t, "}\n");
    *sz = t.sz;
    if (t.sz >= cap) return TDM_ERR_LIMIT;
    buf[t.sz] = '\0';
    return TDM_OK;
}
