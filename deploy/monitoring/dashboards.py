#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes grafana/*.json.  usage: dashboards.py [--print]

A panel is a row of the tables below: title, unit, [(legend, expression)].  The data source is a
variable, so the files load into any Grafana (9 or later)."""
import json
import os
import sys

SEL = 'job=~"$job",instance=~"$instance"'


def q(p, metric, by="le"):
    return (f"histogram_quantile({p}, sum by ({by}) "
            f"(rate({metric}_bucket{{{SEL}}}[$__rate_interval])))")


def rate(metric, by="", more=""):
    by = f" by ({by})" if by else ""
    return f"sum{by} (rate({metric}{{{SEL}{',' if more else ''}{more}}}[$__rate_interval]))"


def gauge(metric, by="", more="", how="sum"):
    by = f" by ({by})" if by else ""
    return f"{how}{by} ({metric}{{{SEL}{',' if more else ''}{more}}})"


def rule(name, more=""):
    return f'{name}{{job=~"$job"{"," if more else ""}{more}}}'


BY_CLASS = "slo_class, le"
BOARDS = {
    "tandem-overview": ("Tandem: overview", [
        ("Promises kept, all of a stream", "percentunit", [("{{slo_class}}",
            rate("tandem_slo_requests_total", "slo_class", 'objective="all",result="met"') + " / " +
            rate("tandem_slo_requests_total", "slo_class", 'objective="all"'))]),
        ("Error budget burn, 1 h (1 is sustainable)", "none", [("{{slo_class}} {{objective}}",
            rule("tandem:slo_errors:ratio_rate1h") + " / 0.01")]),
        ("Time to first token", "s", [
            ("p50 {{slo_class}}", q(0.5, "tandem_ttft_seconds", BY_CLASS)),
            ("p99 {{slo_class}}", q(0.99, "tandem_ttft_seconds", BY_CLASS)),
            ("promised {{slo_class}}", gauge("tandem_slo_target_seconds", "slo_class",
                                             'objective="ttft"', "max"))]),
        ("Gap between tokens", "s", [
            ("p50 {{slo_class}}", q(0.5, "tandem_itl_seconds", BY_CLASS)),
            ("p99 {{slo_class}}", q(0.99, "tandem_itl_seconds", BY_CLASS)),
            ("promised {{slo_class}}", gauge("tandem_slo_target_seconds", "slo_class",
                                             'objective="tpot"', "max"))]),
        ("Tokens", "short", [("{{kind}}", rate("tandem_tokens_total", "kind")),
                             ("good", rate("tandem_goodput_tokens_total"))]),
        ("Requests by outcome", "reqps", [("{{outcome}}", rate("tandem_requests_total",
                                                               "outcome"))]),
        ("Queue", "short", [("{{state}}", gauge("tandem_queue_requests", "state")),
                            ("waiting tokens", gauge("tandem_queue_tokens"))]),
        ("KV pages in use", "percentunit", [("", gauge("tandem_kv_usage_ratio", how="max"))]),
        ("Refusals by reason", "reqps", [("{{reason}}", rate("tandem_refusals_total", "reason")
                                          + " > 0")]),
        ("Where a request's time goes, mean", "s", [
            (name, rate(f"tandem_{m}_seconds_sum") + " / " + rate(f"tandem_{m}_seconds_count"))
            for name, m in (("queue", "queue"), ("prefill", "prefill"), ("decode", "decode"))]),
        ("Faults", "short", [("{{reason}}", f"sum by (reason) (increase(tandem_faults_total{{{SEL}}}"
                              "[$__rate_interval])) > 0")]),
        ("State and lives of the executor", "none", [
            ("{{state}}", gauge("tandem_state", "state", how="max")),
            ("lives", gauge("tandem_executor_epoch", how="max"))]),
    ]),
    "tandem-attention": ("Tandem: attention and iterations", [
        ("Fused fraction of hybrid iterations", "percentunit",
         [("{{instance}}", rule("tandem:fused:ratio_rate5m"))]),
        ("Fallbacks by reason", "short", [("{{reason}}",
                                          "sum by (reason) (" +
                                          rule("tandem:fallbacks:rate5m") + ") > 0")]),
        ("Iterations by path", "short", [("{{path}}", rate("tandem_iterations_total", "path"))]),
        ("Iteration time", "s", [
            ("p50 {{path}}", q(0.5, "tandem_iteration_seconds", "path, le")),
            ("p99 {{path}}", q(0.99, "tandem_iteration_seconds", "path, le"))]),
        ("Virtual CTAs, prefill per decode", "none",
         [("{{instance}}", rule("tandem:vcta_prefill_per_decode:ratio_rate5m"))]),
        ("Virtual CTAs executed, and planned but not", "short", [
            ("{{op}}", rate("tandem_vcta_total", "op")),
            ("{{op}} not executed", rate("tandem_vcta_planned_total", "op") + " - " +
             rate("tandem_vcta_total", "op"))]),
        ("Decode share of virtual CTAs", "percentunit", [
            ("p50", q(0.5, "tandem_vcta_decode_share")), ("p90", q(0.9, "tandem_vcta_decode_share"))]),
        ("Share of iteration time", "percentunit", [
            ("attention", rule("tandem:attention_share:ratio_rate5m")),
            ("sampling", rate("tandem_sampling_seconds_total") + " / " +
             rate("tandem_iteration_seconds_sum"))]),
        ("Device time by stage", "percentunit", [("{{stage}}", rate("tandem_stage_seconds_total", "stage") +
                                                  " / ignoring(stage) group_left " +
                                                  rate("tandem_stage_seconds_total"))]),
        ("SM time with both kinds", "percentunit", [("", rate("tandem_colocated_seconds_total") +
                                                     " / " + rate("tandem_vcta_seconds_total"))]),
        ("Attention throughput", "Bps", [("KV read", rate("tandem_attention_read_bytes_total") +
                                          " / " + rate("tandem_attention_seconds_total"))]),
        ("What ended prefill", "short", [("{{by}}", rate("tandem_sched_chunk_limited_total", "by"))]),
        ("Measured over predicted time", "none", [
            ("p50", q(0.5, "tandem_prediction_ratio")), ("p99", q(0.99, "tandem_prediction_ratio"))]),
        ("Prefill tokens and decodes of an iteration", "short", [
            ("prefill p50", q(0.5, "tandem_sched_chunk_tokens")),
            ("decodes p50", q(0.5, "tandem_sched_decode_batch"))]),
        ("Time to plan", "s", [("p99", q(0.99, "tandem_sched_decision_seconds"))]),
        ("Prefill tiles, rows x keys", "short", [("{{shape}} {{split}}",
                                                  rate("tandem_tile_iterations_total", "shape, split"))]),
        ("The board's load", "percentunit", [
            (name, gauge(f"tandem_gpu_{m}_ratio", how="max"))
            for name, m in (("SM active", "sm_active"), ("occupancy", "sm_occupancy"),
                            ("tensor cores", "tensor_active"), ("DRAM bandwidth", "dram_bandwidth"))]),
        ("Power", "watt", [("{{mode}}", gauge("tandem_gpu_power_watts", "mode", how="max")),
                           ("limit", gauge("tandem_gpu_power_limit_watts", how="max"))]),
        ("Joules per output token", "joule", [("", rate("tandem_gpu_energy_joules_total") + " / " +
                                               rate("tandem_tokens_total", more='kind="output"'))]),
        ("Clocks held back", "percentunit", [("{{reason}}",
                                              rate("tandem_gpu_throttle_seconds_total", "reason"))]),
        ("Clocks", "hertz", [("{{domain}}", gauge("tandem_gpu_clock_hertz", "domain", how="max")),
                             ("SM, in attention", gauge("tandem_executor_sm_clock_hertz", how="max"))]),
    ]),
    "tandem-dataplane": ("Tandem: packets, rings and tiles", [
        ("Packets", "pps", [("{{direction}}", rate("tandem_net_packets_total", "direction"))]),
        ("Bytes", "Bps", [("{{direction}}", rate("tandem_net_bytes_total", "direction"))]),
        ("What became of received frames", "pps", [("{{fate}}", rate("tandem_net_received_total",
                                                                     "fate"))]),
        ("Drops by reason", "pps", [("{{reason}}", rate("tandem_net_drops_total", "reason")
                                     + " > 0")]),
        ("Rings, fill", "percentunit", [("{{ring}}", rule("tandem:ring_fill:ratio"))]),
        ("Rings, full", "short", [("{{ring}}", rate("tandem_ring_enqueue_failures_total", "ring")
                                   + " > 0")]),
        ("Tiles, busy", "percentunit", [("{{tile}}", rule("tandem:tile_busy:ratio_rate5m"))]),
        ("Tiles, longest turn", "s", [("{{tile}}", gauge("tandem_tile_turn_max_seconds", "tile",
                                                         how="max"))]),
        ("Connections", "short", [("{{door}}", gauge("tandem_connections", "door"))]),
        ("Handshakes", "short", [("{{result}}", rate("tandem_net_handshakes_total", "result"))]),
        ("First byte to the request ring", "s", [("p99 {{api}}", q(0.99, "tandem_ingest_seconds",
                                                                   "api, le"))]),
        ("Clients that left", "short", [("{{door}}", rate("tandem_disconnects_total", "door"))]),
        ("Process", "short", [("cores", rate("process_cpu_seconds_total")),
                              ("open files", gauge("process_open_fds"))]),
        ("Flight recorder", "short", [("{{kind}}", rate("tandem_flight_records_total", "kind"))]),
    ]),
}


def variable(name, query):
    return {"name": name, "type": "query", "datasource": {"type": "prometheus",
                                                          "uid": "${datasource}"},
            "query": {"query": query, "refId": name}, "definition": query, "refresh": 2,
            "includeAll": True, "multi": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}}


def board(uid, title, panels):
    out = []
    for i, (name, unit, lines) in enumerate(panels):
        out.append({
            "id": i + 1, "title": name, "type": "timeseries",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": 12 * (i % 2), "y": 8 * (i // 2), "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                        "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(65 + k), "expr": expr, "legendFormat": legend or name,
                         "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                        for k, (legend, expr) in enumerate(lines)]})
    return {"id": None, "uid": uid, "title": title, "tags": ["tandem"], "timezone": "browser",
            "schemaVersion": 37, "version": 1, "refresh": "10s", "editable": True,
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("job", "label_values(tandem_build_info, job)"),
                variable("instance", 'label_values(tandem_build_info{job=~"$job"}, instance)')]},
            "panels": out}


def main():
    made = {uid + ".json": board(uid, title, panels) for uid, (title, panels) in BOARDS.items()}
    if "--print" in sys.argv:
        print(json.dumps(made))
        return
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grafana")
    for name, content in made.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
