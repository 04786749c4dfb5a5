/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/status.h"

#include "telemetry/read/diagnose.h"
#include "telemetry/read/journey.h"
#include "telemetry/read/json_private.h"

/* The writer and what it writes from. */
typedef struct page {
    tdm_json_t json;
    const tdm_snapshot_t *s;
    const tdm_snapshot_t *since; /* counts are from here on; NULL: from the start */
} page_t;

/* value: of a counter its growth, of a gauge what it is. */
static uint64_t value(const page_t *p, tdm_metric_t metric, uint32_t idx) {
    int has_begin = p->since && tdm_metric_row[metric].kind != TDM_METRIC_IS_GAUGE;
    uint64_t begin = has_begin ? tdm_snapshot_value(p->since, metric, idx) : 0;
    return tdm_snapshot_value(p->s, metric, idx) - begin;
}

static uint64_t total(const page_t *p, tdm_metric_t metric) {
    return tdm_snapshot_total(p->s, metric) - (p->since ? tdm_snapshot_total(p->since, metric) : 0);
}

static void number(page_t *p, const char *key, uint64_t v) {
    tdm_json_u64(&p->json, key, v);
}

/* in_ms writes nanoseconds as milliseconds, in_s as seconds, to three
   places. */
static void in_ms(page_t *p, const char *key, uint64_t ns) {
    tdm_json_fixed(&p->json, key, ns / 1000, 3);
}

static void in_s(page_t *p, const char *key, uint64_t ns) {
    tdm_json_fixed(&p->json, key, ns / 1000000, 3);
}

static void open(page_t *p, const char *key) {
    tdm_json_open(&p->json, key, "{");
}

static void close(page_t *p) {
    tdm_json_close(&p->json, "}");
}

/* by_label writes {"value": n, ...} of a metric with one label set. */
static void by_label(page_t *p, const char *key, tdm_metric_t metric, tdm_label_set_t set,
                     int only_nonzero) {
    open(p, key);
    for (uint32_t i = 0; i < tdm_label_cnt(set); i++) {
        uint64_t v = value(p, metric, i);
        if (v || !only_nonzero) number(p, tdm_label_value(set, i), v);
    }
    close(p);
}

/* over_class adds a metric's series {slo_class, b} over the classes. */
static uint64_t over_class(const page_t *p, tdm_metric_t metric, uint32_t b) {
    uint64_t v = 0;
    for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++)
        v += value(p, metric, tdm_series2(metric, c, b));
    return v;
}

static uint64_t requests_ended(const page_t *p, uint32_t outcome) {
    tdm_metric_t m = TDM_METRIC_requests_total;
    uint64_t v = 0;
    for (uint32_t a = 0; a < TDM_LABEL_CNT_API; a++)
        for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++)
            v += value(p, m, tdm_series3(m, a, c, outcome));
    return v;
}

static void requests(page_t *p) {
    open(p, "requests");
    number(p, "waiting", over_class(p, TDM_METRIC_queue_requests, TDM_LABEL_QUEUE_waiting));
    number(p, "running", over_class(p, TDM_METRIC_queue_requests, TDM_LABEL_QUEUE_running));
    for (uint32_t o = 0; o < TDM_LABEL_CNT_OUTCOME; o++)
        number(p, tdm_label_value(TDM_SET_OUTCOME, o), requests_ended(p, o));
    close(p);
}

/* latency writes what happened since before; NULL: since start. */
static void latency(page_t *p, const char *key, const tdm_snapshot_t *before) {
    static const struct {
        const char *key;
        tdm_metric_t metric;
    } row[] = {{"ttft_ms", TDM_METRIC_ttft_seconds},
               {"itl_ms", TDM_METRIC_itl_seconds},
               {"e2e_ms", TDM_METRIC_e2e_seconds},
               {"queue_ms", TDM_METRIC_queue_seconds},
               {"iteration_ms", TDM_METRIC_iteration_seconds}};
    open(p, key);
    for (uint32_t i = 0; i < TDM_COUNT_OF(row); i++) {
        tdm_histogram_t h;
        tdm_histogram_between(&h, before, p->s, row[i].metric);
        open(p, row[i].key);
        number(p, "count", h.cnt);
        in_ms(p, "mean", h.cnt ? h.sum / h.cnt : 0);
        in_ms(p, "p50", tdm_histogram_quantile(&h, 500));
        in_ms(p, "p99", tdm_histogram_quantile(&h, 990));
        close(p);
    }
    close(p);
}

/* list writes an array of objects, the members of object i by row. */
static void list(page_t *p, const char *key, uint32_t cnt, void (*row)(page_t *p, uint32_t i)) {
    tdm_json_open(&p->json, key, "[");
    for (uint32_t i = 0; i < cnt; i++) {
        open(p, NULL);
        row(p, i);
        close(p);
    }
    tdm_json_close(&p->json, "]");
}

static void ring(page_t *p, uint32_t r) {
    tdm_json_text(&p->json, "ring", tdm_label_value(TDM_SET_RING, r));
    number(p, "entries", value(p, TDM_METRIC_ring_entries, r));
    number(p, "capacity", value(p, TDM_METRIC_ring_capacity_entries, r));
    number(p, "high_watermark", value(p, TDM_METRIC_ring_high_watermark_entries, r));
    number(p, "full", value(p, TDM_METRIC_ring_enqueue_failures_total, r));
}

static void tile(page_t *p, uint32_t i) {
    tdm_metric_t m = TDM_METRIC_tile_seconds_total;
    tdm_json_text(&p->json, "tile", tdm_label_value(TDM_SET_TILE, i));
    in_s(p, "busy_s", value(p, m, tdm_series2(m, i, TDM_LABEL_TURN_busy)));
    in_s(p, "idle_s", value(p, m, tdm_series2(m, i, TDM_LABEL_TURN_idle)));
    in_ms(p, "longest_turn_ms", value(p, TDM_METRIC_tile_turn_max_seconds, i));
}

/* slo has a row per class and objective: the promise, and who kept it. */
static void slo(page_t *p, uint32_t i) {
    tdm_metric_t m = TDM_METRIC_slo_requests_total, target = TDM_METRIC_slo_target_seconds;
    uint32_t c = i / TDM_LABEL_CNT_OBJECTIVE, o = i % TDM_LABEL_CNT_OBJECTIVE;
    tdm_json_text(&p->json, "class", tdm_label_value(TDM_SET_SLO_CLASS, c));
    tdm_json_text(&p->json, "objective", tdm_label_value(TDM_SET_OBJECTIVE, o));
    if (o < TDM_LABEL_CNT_TARGET)
        in_ms(p, "promise_ms", value(p, target, tdm_series2(target, c, o)));
    else
        tdm_json_raw(&p->json, "promise_ms", "null");
    number(p, "met", value(p, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_met)));
    number(p, "missed", value(p, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_missed)));
}

static void findings(page_t *p, const tdm_snapshot_t *before, int64_t start_ns) {
    tdm_finding_t found[TDM_FINDING_MAX];
    uint32_t cnt = tdm_diagnose(before, p->s, found);
    int64_t window_ns = p->s->at_ns - (before ? before->at_ns : start_ns);
    in_s(p, "window_s", (uint64_t)TDM_MAX(window_ns, INT64_C(0)));
    tdm_json_open(&p->json, "findings", "[");
    for (uint32_t i = 0; i < cnt; i++) {
        open(p, NULL);
        tdm_json_text(&p->json, "gravity", tdm_gravity_name(found[i].gravity));
        tdm_json_text(&p->json, "cause", found[i].cause);
        tdm_json_text(&p->json, "text", found[i].text);
        close(p);
    }
    tdm_json_close(&p->json, "]");
}

static void flight(page_t *p) {
    open(p, "flight");
    by_label(p, "records", TDM_METRIC_flight_records_total, TDM_SET_FLIGHT, 0);
    by_label(p, "slots", TDM_METRIC_flight_slots, TDM_SET_FLIGHT, 0);
    close(p);
}

static void net(page_t *p) {
    open(p, "net");
    by_label(p, "packets", TDM_METRIC_net_packets_total, TDM_SET_DIRECTION, 0);
    by_label(p, "bytes", TDM_METRIC_net_bytes_total, TDM_SET_DIRECTION, 0);
    by_label(p, "drops", TDM_METRIC_net_drops_total, TDM_SET_DROP, 1);
    by_label(p, "buffers", TDM_METRIC_net_pool_buffers, TDM_SET_POOL, 0);
    by_label(p, "handshakes", TDM_METRIC_net_handshakes_total, TDM_SET_HANDSHAKE, 0);
    by_label(p, "connections", TDM_METRIC_connections, TDM_SET_DOOR, 0);
    close(p);
}

static const char *state_name(const page_t *p) {
    for (uint32_t i = 0; i < TDM_LABEL_CNT_STATE; i++)
        if (value(p, TDM_METRIC_state, i)) return tdm_label_value(TDM_SET_STATE, i);
    return "unknown";
}

static void attention(page_t *p) {
    by_label(p, "iterations", TDM_METRIC_iterations_total, TDM_SET_PATH, 0);
    by_label(p, "hybrid", TDM_METRIC_hybrid_iterations_total, TDM_SET_HYBRID, 0);
    open(p, "vcta");
    by_label(p, "planned", TDM_METRIC_vcta_planned_total, TDM_SET_OP, 0);
    by_label(p, "executed", TDM_METRIC_vcta_total, TDM_SET_OP, 0);
    close(p);
    open(p, "cta_tiles");
    for (uint32_t i = 0; i < TDM_LABEL_CNT_SHAPE; i++) {
        tdm_metric_t m = TDM_METRIC_tile_iterations_total;
        uint64_t whole = value(p, m, tdm_series2(m, i, TDM_LABEL_SPLIT_whole));
        uint64_t split = value(p, m, tdm_series2(m, i, TDM_LABEL_SPLIT_split));
        if (whole + split == 0) continue;
        open(p, tdm_label_value(TDM_SET_SHAPE, i));
        number(p, "whole", whole);
        number(p, "split", split);
        close(p);
    }
    close(p);
    by_label(p, "chunk_limited", TDM_METRIC_sched_chunk_limited_total, TDM_SET_CAP, 1);
    by_label(p, "fallbacks", TDM_METRIC_fallbacks_total, TDM_SET_FALLBACK, 1);
    open(p, "kv"); /* total is the sum of the others */
    for (uint32_t i = 0; i < TDM_LABEL_CNT_KV; i++)
        number(p, tdm_label_value(TDM_SET_KV, i), value(p, TDM_METRIC_kv_pages, i));
    number(p, "cached", value(p, TDM_METRIC_kv_cached_pages, 0));
    close(p);
}

/* A device that does not tell its clock or its energy has null there: a 0
   would be a claim. */
static void or_null(page_t *p, const char *key, uint64_t v, uint32_t digits) {
    if (v)
        tdm_json_fixed(&p->json, key, v, digits);
    else
        tdm_json_raw(&p->json, key, "null");
}

/* stages: shares of the device's time, of the iterations that were timed by
   stage; null where none was. */
static void stages(page_t *p) {
    static const char *const key[TDM_LABEL_CNT_STAGE] = {
        "device_attention_share", "device_linear_share", "device_norm_share",
        "device_sampling_share", "device_copy_share"};
    uint64_t all_ns = total(p, TDM_METRIC_stage_seconds_total);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_STAGE; i++) {
        double ns = (double)value(p, TDM_METRIC_stage_seconds_total, i);
        if (all_ns)
            tdm_json_fixed(&p->json, key[i], (uint64_t)(ns / (double)all_ns * 1e3), 3);
        else
            tdm_json_raw(&p->json, key[i], "null");
    }
}

/* time_share: where the time of iterations went. */
static void time_share(page_t *p) {
    uint64_t attention_ns = total(p, TDM_METRIC_attention_seconds_total);
    uint64_t sampling_ns = value(p, TDM_METRIC_sampling_seconds_total, 0);
    tdm_histogram_t h;
    tdm_histogram_between(&h, p->since, p->s, TDM_METRIC_iteration_seconds);
    open(p, "time");
    in_s(p, "iterations_s", h.sum);
    in_s(p, "attention_s", attention_ns);
    in_s(p, "sampling_s", sampling_ns);
    in_s(p, "other_s", h.sum - TDM_MIN(h.sum, attention_ns + sampling_ns));
    in_s(p, "colocated_s", value(p, TDM_METRIC_colocated_seconds_total, 0));
    stages(p);
    close(p);
}

/* told writes a metric that a device may not tell, in units of 10^digits
   stored ones; null where it does not. */
static void told(page_t *p, const char *key, tdm_metric_t metric, uint32_t idx, uint32_t digits) {
    uint64_t v, begin = 0;
    int is_counter = tdm_metric_row[metric].kind == TDM_METRIC_IS_COUNTER;
    if (is_counter && p->since) (void)tdm_snapshot_told(p->since, metric, idx, &begin);
    if (tdm_snapshot_told(p->s, metric, idx, &v))
        tdm_json_fixed(&p->json, key, v - TDM_MIN(begin, v), digits);
    else
        tdm_json_raw(&p->json, key, "null");
}

/* board: what the driver tells of the GPU apart from iterations. */
static void board(page_t *p) {
    tdm_metric_t m = TDM_METRIC_gpu_memory_bytes, ecc = TDM_METRIC_gpu_ecc_errors_total;
    open(p, "board");
    told(p, "sm_active", TDM_METRIC_gpu_sm_active_ratio, 0, 6);
    told(p, "occupancy", TDM_METRIC_gpu_sm_occupancy_ratio, 0, 6);
    told(p, "tensor", TDM_METRIC_gpu_tensor_active_ratio, 0, 6);
    told(p, "dram", TDM_METRIC_gpu_dram_bandwidth_ratio, 0, 6);
    told(p, "temperature_c", TDM_METRIC_gpu_temperature_celsius, 0, 0);
    told(p, "memory_total_bytes", m, TDM_LABEL_DEVICE_MEMORY_total, 0);
    told(p, "memory_used_bytes", m, TDM_LABEL_DEVICE_MEMORY_used, 0);
    told(p, "ecc_corrected", ecc, TDM_LABEL_ECC_corrected, 0);
    told(p, "ecc_uncorrected", ecc, TDM_LABEL_ECC_uncorrected, 0);
    told(p, "xid_errors", TDM_METRIC_gpu_xid_errors_total, 0, 0);
    told(p, "xid_last", TDM_METRIC_gpu_xid_last, 0, 0);
    told(p, "lost", TDM_METRIC_gpu_lost, 0, 0);
    close(p);
}

static void power(page_t *p) {
    tdm_metric_t watts = TDM_METRIC_gpu_power_watts, held = TDM_METRIC_gpu_throttle_seconds_total;
    open(p, "power");
    or_null(p, "sm_clock_mhz", value(p, TDM_METRIC_executor_sm_clock_hertz, 0), 6);
    or_null(p, "sm_clock_max_mhz", value(p, TDM_METRIC_executor_sm_clock_max_hertz, 0), 6);
    told(p, "board_sm_clock_mhz", TDM_METRIC_gpu_clock_hertz, TDM_LABEL_CLOCK_sm, 6);
    told(p, "board_memory_clock_mhz", TDM_METRIC_gpu_clock_hertz, TDM_LABEL_CLOCK_memory, 6);
    told(p, "instant_max_w", watts, TDM_LABEL_POWER_instant_max, 3);
    told(p, "average_w", watts, TDM_LABEL_POWER_average, 3);
    told(p, "limit_w", TDM_METRIC_gpu_power_limit_watts, 0, 3);
    told(p, "energy_j", TDM_METRIC_gpu_energy_joules_total, 0, 3);
    for (uint32_t i = 0; i < TDM_LABEL_CNT_THROTTLE; i++) {
        static const char *const key[TDM_LABEL_CNT_THROTTLE] = {
            "held_by_power_s", "held_by_heat_s", "held_by_hardware_s", "held_by_sync_s"};
        told(p, key[i], held, i, 9);
    }
    close(p);
}

static void gpu(page_t *p) {
    tdm_metric_t bytes = TDM_METRIC_arena_bytes, m = TDM_METRIC_vcta_seconds_total;
    open(p, "gpu");
    number(p, "life", value(p, TDM_METRIC_executor_epoch, 0));
    number(p, "sms", value(p, TDM_METRIC_executor_sms, 0));
    number(p, "memory_bytes", value(p, bytes, TDM_LABEL_ARENA_executor));
    in_s(p, "sm_prefill_s", value(p, m, TDM_LABEL_OP_prefill));
    in_s(p, "sm_decode_s", value(p, m, TDM_LABEL_OP_decode));
    close(p);
    board(p);
    power(p);
}

tdm_status_t tdm_status_json(const tdm_status_span_t *span, int64_t start_ns,
                             const tdm_fact_t *fact, uint32_t fact_cnt, char *buf, size_t cap,
                             size_t *sz) {
    const tdm_snapshot_t *s = span->now, *before = span->window, *since = span->since;
    page_t page = {.json.text = {buf, cap, 0}, .s = s, .since = since}, *p = &page;
    int64_t begin_ns = since ? since->at_ns : start_ns;
    open(p, NULL);
    open(p, "tandem");
    for (uint32_t i = 0; i < fact_cnt; i++) tdm_json_text(&p->json, fact[i].key, fact[i].value);
    close(p);
    tdm_json_text(&p->json, "state", state_name(p));
    in_s(p, "uptime_s", (uint64_t)TDM_MAX(s->at_ns - start_ns, INT64_C(0)));
    in_s(p, "since_s", (uint64_t)TDM_MAX(s->at_ns - begin_ns, INT64_C(0)));
    number(p, "revision", value(p, TDM_METRIC_config_revision, 0));
    in_s(p, "confirm_s", value(p, TDM_METRIC_config_confirm_seconds, 0));
    findings(p, before, start_ns);
    requests(p);
    list(p, "slo", TDM_LABEL_CNT_SLO_CLASS * TDM_LABEL_CNT_OBJECTIVE, slo);
    by_label(p, "tokens", TDM_METRIC_tokens_total, TDM_SET_TOKEN, 0);
    latency(p, "latency", since);
    latency(p, "recent", before);
    attention(p);
    time_share(p);
    list(p, "rings", TDM_LABEL_CNT_RING, ring);
    list(p, "tiles", TDM_LABEL_CNT_TILE, tile);
    net(p);
    gpu(p);
    by_label(p, "refusals", TDM_METRIC_refusals_total, TDM_SET_REFUSE, 1);
    by_label(p, "faults", TDM_METRIC_faults_total, TDM_SET_FAULT, 1);
    flight(p);
    tdm_journey_t j;
    char journey[2048];
    tdm_journey_between(&j, since, s);
    j.span_ns = s->at_ns - begin_ns;
    (void)tdm_journey_json(&j, journey, sizeof journey);
    tdm_json_raw(&p->json, "journey", journey);
    close(p);
    tdm_text_str(&p->json.text, "\n");
    *sz = p->json.text.sz;
    if (*sz >= cap) return TDM_ERR_LIMIT;
    buf[*sz] = '\0';
    return TDM_OK;
}
