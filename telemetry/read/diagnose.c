/* SPDX-License-Identifier: Apache-2.0 */
#include "telemetry/read/diagnose.h"

#include "appliance/abi/reasons.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Thresholds, those of deploy/monitoring/prometheus/alerts.rules.yml where
   there is an alert.  TURN_MAX_NS: a turn that long is seen by whoever
   waits for the tile; the longest lawful one tokenises a body of a MiB. */
#define BUSY_SHARE     0.9
#define TURN_MAX_NS    (50u * 1000000u)
#define HYBRID_MIN     8u
#define FUSED_SHARE    0.5
#define STALLED_NS     (3u * 1000000000u)
#define KV_PPM         950000u
#define LIMITED_SHARE  0.5
#define REFUSED_SHARE  0.05
#define REQUEST_MIN    5u
#define MISSED_SHARE   0.01
#define PREDICTION_PPM 1500000u
#define OBSERVED_MIN   20u
#define HELD_SHARE     0.5
#define CLOCK_SHARE    0.85 /* of the highest seen; boost clocks of one load differ by a tenth */

typedef struct list {
    const tdm_snapshot_t *before, *after;
    tdm_finding_t *out;
    uint32_t cnt;
} list_t;

const char *tdm_gravity_name(tdm_gravity_t gravity) {
    static const char *const name[TDM_GRAVITY_CNT] = {"notice", "warning", "critical"};
    return gravity < TDM_GRAVITY_CNT ? name[gravity] : "?";
}

__attribute__((format(printf, 4, 5))) static void find(list_t *l, tdm_gravity_t gravity,
                                                       const char *cause, const char *format, ...) {
    if (l->cnt == TDM_FINDING_MAX && l->out[--l->cnt].gravity >= gravity) {
        l->cnt++; /* as grave as this one: the earlier stays */
        return;
    }
    /* Behind all of its gravity: rules run from the machine upwards. */
    uint32_t at = l->cnt++;
    for (; at > 0 && l->out[at - 1].gravity < gravity; at--) l->out[at] = l->out[at - 1];
    l->out[at].gravity = gravity;
    l->out[at].cause = cause;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(l->out[at].text, sizeof l->out[at].text, format, args);
    va_end(args);
}

static uint64_t now(const list_t *l, tdm_metric_t metric, uint32_t idx) {
    return tdm_snapshot_value(l->after, metric, idx);
}

static uint64_t grown(const list_t *l, tdm_metric_t metric, uint32_t idx) {
    return now(l, metric, idx) - (l->before ? tdm_snapshot_value(l->before, metric, idx) : 0);
}

/* told_growth of what a device may not tell: 0 unless both moments have it,
   as it counts from another start than ours. */
static uint64_t told_growth(const list_t *l, tdm_metric_t metric, uint32_t idx) {
    uint64_t from, to;
    if (!l->before || !tdm_snapshot_told(l->before, metric, idx, &from) ||
        !tdm_snapshot_told(l->after, metric, idx, &to))
        return 0;
    return to > from ? to - from : 0;
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0.0;
}

/* most gives the index of a reason metric's series that grew most. */
static uint32_t most(const list_t *l, tdm_metric_t metric) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < tdm_metric_row[metric].series_cnt; i++)
        if (grown(l, metric, i) > grown(l, metric, best)) best = i;
    return best;
}

static const char *text_of(uint32_t first, uint32_t idx) {
    return tdm_reason_text((tdm_reason_t)(first + idx));
}

static double ms(uint64_t ns) {
    return (double)ns / 1e6;
}

/* mean_ms of a histogram of seconds, over all its series. */
static double mean_ms(const list_t *l, tdm_metric_t metric) {
    tdm_histogram_t h;
    tdm_histogram_between(&h, l->before, l->after, metric);
    return h.cnt ? ms(h.sum / h.cnt) : 0.0;
}

/* limit gives what ended most iterations' prefill, and its share of those
   that something ended. */
static uint32_t limit(const list_t *l, double *part) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_CAP; i++)
        all += grown(l, TDM_METRIC_sched_chunk_limited_total, i);
    uint32_t by = most(l, TDM_METRIC_sched_chunk_limited_total);
    *part = share(grown(l, TDM_METRIC_sched_chunk_limited_total, by), all);
    return by;
}

/* --- rules, from the machine upwards ------------------------------------- */

static void state(list_t *l) {
    if (now(l, TDM_METRIC_state, TDM_LABEL_STATE_failed))
        find(l, TDM_GRAVITY_CRITICAL, "executor", "the executor is gone for good: see its log");
    else if (now(l, TDM_METRIC_state, TDM_LABEL_STATE_starting))
        find(l, TDM_GRAVITY_WARNING, "state", "not serving yet: the executor loads or restarts");
    else if (now(l, TDM_METRIC_state, TDM_LABEL_STATE_draining))
        find(l, TDM_GRAVITY_NOTICE, "state", "draining: nothing new is accepted");
}

/* stalled: until the watchdog of iterations ends the executor, nothing else
   tells that it hangs. */
static void stalled(list_t *l) {
    uint64_t ns = now(l, TDM_METRIC_stalled_seconds, 0);
    if (ns > STALLED_NS)
        find(l, TDM_GRAVITY_CRITICAL, "stalled",
             "nothing has moved for %.0f s, and requests are pending: the executor hangs, or the "
             "scheduler does",
             (double)ns / 1e9);
}

/* port: where there is one, it has buffers. */
static void port(list_t *l) {
    if (now(l, TDM_METRIC_net_pool_buffers, TDM_LABEL_POOL_total) == 0) return;
    if (!now(l, TDM_METRIC_net_link_up, 0))
        find(l, TDM_GRAVITY_CRITICAL, "port",
             "the data port has no carrier: no HTTP/3 client reaches it; see cable and switch");
    else if (now(l, TDM_METRIC_net_tx_stuck, 0))
        find(l, TDM_GRAVITY_CRITICAL, "port",
             "the data port takes no frame: HTTP/3 answers wait; its driver or device hangs");
}

static void faults(list_t *l) {
    for (uint32_t i = 0; i < TDM_LABEL_CNT_FAULT; i++) {
        uint64_t n = grown(l, TDM_METRIC_faults_total, i);
        if (n)
            find(l, TDM_GRAVITY_WARNING, "fault", "%" PRIu64 " times %s: %s", n,
                 tdm_label_value(TDM_SET_FAULT, i), text_of(TDM_LABEL_FIRST_FAULT, i));
    }
}

static void tiles(list_t *l) {
    for (uint32_t t = 0; t < TDM_LABEL_CNT_TILE; t++) {
        const char *name = tdm_label_value(TDM_SET_TILE, t);
        tdm_metric_t m = TDM_METRIC_tile_seconds_total;
        uint64_t busy = grown(l, m, tdm_series2(m, t, TDM_LABEL_TURN_busy));
        uint64_t idle = grown(l, m, tdm_series2(m, t, TDM_LABEL_TURN_idle));
        uint64_t turn_ns = now(l, TDM_METRIC_tile_turn_max_seconds, t);
        if (share(busy, busy + idle) > BUSY_SHARE)
            find(l, TDM_GRAVITY_WARNING, "tile",
                 "tile %s has no rest: busy %.0f %% of the time, it is the bottleneck", name,
                 100.0 * share(busy, busy + idle));
        else if (turn_ns > TURN_MAX_NS)
            find(l, TDM_GRAVITY_WARNING, "tile",
                 "tile %s is slow: one turn took %.0f ms, all that it serves waited so long", name,
                 (double)turn_ns / 1e6);
    }
}

static void rings(list_t *l) {
    for (uint32_t r = 0; r < TDM_LABEL_CNT_RING; r++) {
        uint64_t n = grown(l, TDM_METRIC_ring_enqueue_failures_total, r);
        if (n)
            find(l, TDM_GRAVITY_WARNING, "ring",
                 "ring %s was full %" PRIu64 " times (it holds %" PRIu64
                 "): it is too small, or its reader too slow",
                 tdm_label_value(TDM_SET_RING, r), n, now(l, TDM_METRIC_ring_capacity_entries, r));
    }
}

/* drops: those that are the appliance's own want, not somebody's nonsense. */
static void drops(list_t *l) {
    static const tdm_reason_t want[] = {TDM_DROP_nic_missed, TDM_DROP_nic_error, TDM_DROP_no_mbuf,
                                        TDM_DROP_tx_full, TDM_DROP_quic_memory};
    for (uint32_t i = 0; i < TDM_COUNT_OF(want); i++) {
        uint64_t n = grown(l, TDM_METRIC_net_drops_total, tdm_label_reason(want[i]));
        if (n)
            find(l, TDM_GRAVITY_WARNING, "drop", "%" PRIu64 " packets lost, %s: %s", n,
                 tdm_reason_name(want[i]), tdm_reason_text(want[i]));
    }
}

static void fallbacks(list_t *l) {
    uint64_t fused = grown(l, TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fused);
    uint64_t fell = grown(l, TDM_METRIC_hybrid_iterations_total, TDM_LABEL_HYBRID_fallback);
    if (fused + fell < HYBRID_MIN || share(fused, fused + fell) >= FUSED_SHARE) return;
    uint32_t why = most(l, TDM_METRIC_fallbacks_total);
    find(l, TDM_GRAVITY_WARNING, "fallback",
         "%" PRIu64 " of %" PRIu64 " hybrid iterations were not fused, most for %s: %s", fell,
         fused + fell, tdm_label_value(TDM_SET_FALLBACK, why),
         text_of(TDM_LABEL_FIRST_FALLBACK, why));
}

static void predictions(list_t *l) {
    tdm_histogram_t h;
    tdm_histogram_between(&h, l->before, l->after, TDM_METRIC_prediction_ratio);
    uint64_t median = tdm_histogram_quantile(&h, 500);
    if (h.cnt >= OBSERVED_MIN && median > PREDICTION_PPM)
        find(l, TDM_GRAVITY_NOTICE, "profile",
             "iterations take %.1f times their prediction: measure the profile anew",
             (double)median / 1e6);
}

/* board: errors of the GPU that its driver reported. */
static void board(list_t *l) {
    uint64_t xids = told_growth(l, TDM_METRIC_gpu_xid_errors_total, 0);
    uint64_t ecc = told_growth(l, TDM_METRIC_gpu_ecc_errors_total, TDM_LABEL_ECC_uncorrected);
    if (now(l, TDM_METRIC_gpu_lost, 0))
        find(l, TDM_GRAVITY_CRITICAL, "gpu",
             "the driver says that the GPU is gone or wants a reset: no executor can start on it");
    if (ecc)
        find(l, TDM_GRAVITY_CRITICAL, "ecc",
             "%" PRIu64 " uncorrected memory errors of the GPU: see the driver's log", ecc);
    if (xids)
        find(l, TDM_GRAVITY_WARNING, "xid",
             "%" PRIu64 " errors of the GPU, the last one Xid %" PRIu64, xids,
             now(l, TDM_METRIC_gpu_xid_last, 0));
}

/* power: a device that is held back; the driver says why, else its clock
   alone tells. */
static void power(list_t *l) {
    tdm_metric_t held = TDM_METRIC_gpu_throttle_seconds_total;
    int64_t window_ns = l->before ? l->after->at_ns - l->before->at_ns : 0;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_THROTTLE; i++) {
        uint64_t ns = told_growth(l, held, i),
                 w = now(l, TDM_METRIC_gpu_power_limit_watts, 0) / 1000;
        if (window_ns <= 0 || (double)ns < HELD_SHARE * (double)window_ns) continue;
        find(l, TDM_GRAVITY_WARNING, "power",
             "the GPU's clocks were held down for %.0f %% of the time, cause %s; its power limit "
             "is %" PRIu64 " W",
             100.0 * (double)ns / (double)window_ns, tdm_label_value(TDM_SET_THROTTLE, i), w);
        return;
    }
    double hz = (double)now(l, TDM_METRIC_executor_sm_clock_hertz, 0);
    double max_hz = (double)now(l, TDM_METRIC_executor_sm_clock_max_hertz, 0);
    if (max_hz <= 0 || hz >= CLOCK_SHARE * max_hz) return;
    find(l, TDM_GRAVITY_WARNING, "power",
         "the GPU's SMs run at %.0f MHz, %.0f MHz before: a power or thermal cap holds them back",
         hz / 1e6, max_hz / 1e6);
}

static void recorder(list_t *l) {
    if (now(l, TDM_METRIC_flight_slots, TDM_LABEL_FLIGHT_iteration) == 0)
        find(l, TDM_GRAVITY_NOTICE, "flight",
             "no flight recorder: nothing will explain an iteration afterwards; flight.path or "
             "the log says why");
}

static void unconfirmed(list_t *l) {
    uint64_t ns = now(l, TDM_METRIC_config_confirm_seconds, 0);
    if (ns)
        find(l, TDM_GRAVITY_NOTICE, "config",
             "revision %" PRIu64 " awaits its confirmation and goes back in %.0f s",
             now(l, TDM_METRIC_config_revision, 0), (double)ns / 1e9);
}

static uint64_t over_classes(const list_t *l, tdm_metric_t m, uint32_t b) {
    uint64_t n = 0;
    for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++) n += now(l, m, tdm_series2(m, c, b));
    return n;
}

/* waits: who runs has pages promised that are not used yet, so that requests
   wait for pages long before all are in use. */
static void waits(list_t *l) {
    uint64_t waiting = over_classes(l, TDM_METRIC_queue_requests, TDM_LABEL_QUEUE_waiting);
    uint64_t ppm = now(l, TDM_METRIC_kv_usage_ratio, 0);
    double part;
    uint32_t by = limit(l, &part);
    if (!waiting) return;
    if (ppm > KV_PPM)
        find(l, TDM_GRAVITY_WARNING, "kv",
             "KV pages are used up (%.0f %%) and %" PRIu64 " requests wait for some",
             (double)ppm / 1e4, waiting);
    else if (part > LIMITED_SHARE && by == tdm_label_reason(TDM_CAP_kv_pages))
        find(l, TDM_GRAVITY_WARNING, "kv",
             "KV pages are promised to what runs (%.0f %% in use) and %" PRIu64
             " requests wait for some",
             (double)ppm / 1e4, waiting);
    else if (part > LIMITED_SHARE && by == tdm_label_reason(TDM_CAP_slots))
        find(l, TDM_GRAVITY_WARNING, "slots",
             "all sequence slots are in use (sched.sequences) and %" PRIu64
             " requests wait for one",
             waiting);
}

/* turned_away: connections, whose clients hear no reason. */
static void turned_away(list_t *l) {
    uint64_t h3 =
        grown(l, TDM_METRIC_net_drops_total, tdm_label_reason(TDM_DROP_quic_connection_limit));
    uint64_t http1 = grown(l, TDM_METRIC_connections_refused_total, TDM_LABEL_DOOR_http1);
    if (h3)
        find(l, TDM_GRAVITY_WARNING, "connections",
             "%" PRIu64 " times an HTTP/3 connection was turned away: quic.connections are open",
             h3);
    if (http1)
        find(l, TDM_GRAVITY_WARNING, "connections",
             "%" PRIu64 " HTTP/1.1 connections were turned away: over http.connections in all or "
             "http.address_connections of one address",
             http1);
}

/* Whose fault a refusal is: a want of something here, what the client
   asked or how often, or what an operator did, who drains.  A client that left, and an
   answer that broke, are nobody's. */
typedef enum fault { FAULT_NONE, FAULT_OURS, FAULT_CLIENT, FAULT_DRAIN } fault_t;

static fault_t fault_of(uint32_t idx) {
    int http = tdm_reason_http((tdm_reason_t)(TDM_LABEL_FIRST_REFUSE + idx));
    if (TDM_LABEL_FIRST_REFUSE + idx == TDM_REFUSE_draining) return FAULT_DRAIN;
    if (TDM_LABEL_FIRST_REFUSE + idx == TDM_REFUSE_tenant_rate) return FAULT_CLIENT;
    if (http == 429 || http == 503) return FAULT_OURS;
    return http >= 400 && http < 499 ? FAULT_CLIENT : FAULT_NONE;
}

/* refused finds refusals of one kind, of all requests. */
static void refused(list_t *l, fault_t fault, uint64_t all, uint64_t n) {
    uint64_t worst_cnt = 0;
    uint32_t why = 0;
    for (uint32_t i = 0; i < TDM_LABEL_CNT_REFUSE; i++) {
        uint64_t cnt = fault_of(i) == fault ? grown(l, TDM_METRIC_refusals_total, i) : 0;
        if (cnt <= worst_cnt) continue;
        worst_cnt = cnt;
        why = i;
    }
    all = TDM_MAX(all, n);
    if (!worst_cnt || share(n, all) <= REFUSED_SHARE) return;
    int is_ours = fault == FAULT_OURS;
    find(l, is_ours ? TDM_GRAVITY_CRITICAL : TDM_GRAVITY_NOTICE, "refusal",
         "%" PRIu64 " of %" PRIu64 " requests were refused%s, most for %s: %s", n, all,
         fault == FAULT_CLIENT ? " for what they asked" : "", tdm_label_value(TDM_SET_REFUSE, why),
         text_of(TDM_LABEL_FIRST_REFUSE, why));
}

/* refusals: what a client asked wrongly it alone can mend; the appliance is
   well.  A door's refusals are among no api tile's requests. */
static void refusals(list_t *l) {
    uint64_t all = 0, rejected = 0, ours = 0, drained = 0;
    tdm_metric_t m = TDM_METRIC_requests_total;
    for (uint32_t i = 0; i < tdm_metric_row[m].series_cnt; i++) {
        uint64_t n = grown(l, m, i);
        all += n;
        if (i % TDM_LABEL_CNT_OUTCOME == TDM_LABEL_OUTCOME_rejected) rejected += n;
    }
    for (uint32_t i = 0; i < TDM_LABEL_CNT_REFUSE; i++) {
        if (fault_of(i) == FAULT_OURS) ours += grown(l, TDM_METRIC_refusals_total, i);
        if (fault_of(i) == FAULT_DRAIN) drained += grown(l, TDM_METRIC_refusals_total, i);
    }
    if (TDM_MAX(all, ours + drained) < REQUEST_MIN) return;
    refused(l, FAULT_OURS, all, ours);
    refused(l, FAULT_DRAIN, all, drained);
    refused(l, FAULT_CLIENT, all, rejected - TDM_MIN(rejected, ours + drained));
}

/* broken finds streams that missed one promise, and where their time went. */
static void broken(list_t *l, uint32_t cls, uint32_t objective, uint64_t missed, uint64_t all) {
    const char *name = tdm_label_value(TDM_SET_SLO_CLASS, cls);
    double promised_ms = ms(now(l, TDM_METRIC_slo_target_seconds,
                                tdm_series2(TDM_METRIC_slo_target_seconds, cls, objective)));
    double part;
    uint32_t by = limit(l, &part);
    if (objective == TDM_LABEL_OBJECTIVE_ttft)
        find(l, TDM_GRAVITY_CRITICAL, "slo",
             "%" PRIu64 " of %" PRIu64 " streams of class %s missed the promised ttft of %.0f ms: "
             "%.0f ms of queue and %.0f ms of prefill on average, most held by %s",
             missed, all, name, promised_ms, mean_ms(l, TDM_METRIC_queue_seconds),
             mean_ms(l, TDM_METRIC_prefill_seconds), tdm_label_value(TDM_SET_CAP, by));
    else
        find(l, TDM_GRAVITY_CRITICAL, "slo",
             "%" PRIu64 " of %" PRIu64 " streams of class %s missed the promised tpot of %.0f ms: "
             "an iteration takes %.1f ms on average",
             missed, all, name, promised_ms, mean_ms(l, TDM_METRIC_iteration_seconds));
}

/* gaps: a stream's mean may keep what one gap in fifty breaks. */
static void gaps(list_t *l, uint32_t cls) {
    tdm_metric_t m = TDM_METRIC_slo_gaps_total;
    uint64_t met = grown(l, m, tdm_series2(m, cls, TDM_LABEL_RESULT_met));
    uint64_t missed = grown(l, m, tdm_series2(m, cls, TDM_LABEL_RESULT_missed));
    if (missed < REQUEST_MIN || share(missed, met + missed) <= MISSED_SHARE) return;
    tdm_histogram_t h;
    tdm_histogram_between(&h, l->before, l->after, TDM_METRIC_iteration_seconds);
    find(l, TDM_GRAVITY_CRITICAL, "slo",
         "%" PRIu64 " of %" PRIu64
         " gaps between tokens of class %s were over the promised %.0f ms: "
         "one iteration in a hundred takes %.1f ms or more",
         missed, met + missed, tdm_label_value(TDM_SET_SLO_CLASS, cls),
         ms(now(l, TDM_METRIC_slo_target_seconds,
                tdm_series2(TDM_METRIC_slo_target_seconds, cls, TDM_LABEL_OBJECTIVE_tpot))),
         ms(tdm_histogram_quantile(&h, 990)));
}

static void promises(list_t *l) {
    tdm_metric_t m = TDM_METRIC_slo_requests_total;
    for (uint32_t c = 0; c < TDM_LABEL_CNT_SLO_CLASS; c++) {
        uint32_t said = 0;
        for (uint32_t o = 0; o < TDM_LABEL_OBJECTIVE_all; o++) {
            uint64_t met = grown(l, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_met));
            uint64_t missed = grown(l, m, tdm_series3(m, c, o, TDM_LABEL_RESULT_missed));
            if (met + missed < REQUEST_MIN || share(missed, met + missed) <= MISSED_SHARE) continue;
            broken(l, c, o, missed, met + missed);
            said |= 1u << o;
        }
        if (!(said & 1u << TDM_LABEL_OBJECTIVE_tpot)) gaps(l, c);
    }
}

uint32_t tdm_diagnose(const tdm_snapshot_t *before, const tdm_snapshot_t *after,
                      tdm_finding_t *out) {
    list_t l = {.before = before, .after = after, .out = out};
    state(&l);
    stalled(&l);
    port(&l);
    faults(&l);
    tiles(&l);
    rings(&l);
    drops(&l);
    turned_away(&l);
    fallbacks(&l);
    board(&l);
    power(&l);
    predictions(&l);
    waits(&l);
    refusals(&l);
    promises(&l);
    unconfirmed(&l);
    recorder(&l);
    return l.cnt;
}
