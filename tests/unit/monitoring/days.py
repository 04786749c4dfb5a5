#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plausible days, and exactly which alerts each of them fires.
usage: days.py ROOT          promtool evaluates every rule over all series of an appliance, minute by minute
       days.py --self ROOT   proves that it can fail
A day is a healthy appliance with some series replaced; at each time that it names, the firing alerts are
those listed, and no other.  Every alert has its bad day.  Exit 77: promtool is not installed."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from check import families, rules, values  # noqa: E402

HOUR = 60
SPAN = 9 * HOUR  # minutes of a day here
PROMISE = "tandem_slo_requests_total{{slo_class=\"standard\",objective=\"{}\",result=\"{}\"}}".format
GAP = "tandem_slo_gaps_total{{slo_class=\"standard\",result=\"{}\"}}".format
HYBRID = "tandem_hybrid_iterations_total{{outcome=\"{}\"}}".format
STATE = "tandem_state{{state=\"{}\"}}".format
TILE = "tandem_tile_seconds_total{{tile=\"sched\",state=\"{}\"}}".format
LIMITED = "tandem_sched_chunk_limited_total{{by=\"{}\"}}".format
WAITING = "tandem_queue_requests{slo_class=\"standard\",state=\"waiting\"}"
ENDED = "tandem_requests_total{{api=\"openai_chat\",slo_class=\"standard\",outcome=\"{}\"}}".format
REFUSED = "tandem_refusals_total{{reason=\"{}\"}}".format
FAULT = "tandem_faults_total{{reason=\"{}\"}}".format
FALLBACK = "tandem_fallbacks_total{{reason=\"{}\"}}".format
RATIO = "tandem_prediction_ratio_bucket{{le=\"{}\"}}".format
LATE = "tandem_gpu_throttle_seconds_total{{reason=\"{}\"}}".format


def flat(value, minutes=SPAN):
    return f"{value}x{minutes}"


def rise(per_minute, minutes=SPAN, begin=0):
    return f"{begin}+{per_minute}x{minutes}"


def then(*parts):
    """[(minutes, per minute)] of a counter, one after another; "reset": another life counts from 0."""
    out, at = [], 0
    for minutes, step in parts:
        if step == "reset":
            at = 0
            continue
        out.append(f"{at}+{step}x{minutes - 1}")
        at += step * minutes
    return " ".join(out)


def gauge(*parts):
    """[(minutes, value)] of a gauge."""
    return " ".join(f"{value}x{minutes - 1}" for minutes, value in parts)


# An appliance under a usual load: 100 streams a minute of which one in 500 is late.
WELL = {
    "up": flat(1), STATE("ready"): flat(1), STATE("draining"): flat(0), STATE("starting"): flat(0),
    "tandem_start_time_seconds": flat(1000),
    **{PROMISE(o, "met"): rise(499) for o in ("ttft", "tpot", "all")},
    **{PROMISE(o, "missed"): rise(1) for o in ("ttft", "tpot", "all")},
    GAP("met"): rise(49900), GAP("missed"): rise(100),
    HYBRID("fused"): rise(900), HYBRID("fallback"): rise(60), FALLBACK("not_profitable"): rise(60),
    FALLBACK("workspace"): flat(0), FALLBACK("operator"): flat(0),
    **{FAULT(r): flat(0) for r in ("executor_exit", "executor_hang", "executor_protocol", "sequence_nan", "vcta_mismatch")},
    "tandem_executor_load_stalls_total": flat(0),
    **{"tandem_net_drops_total{reason=\"%s\"}" % r: flat(0) for r in ("nic_missed", "no_mbuf", "tx_full", "udp_port")},
    "tandem_net_pool_buffers{state=\"total\"}": flat(2048), "tandem_net_link_up": flat(1), "tandem_net_tx_stuck": flat(0),
    "tandem_ring_entries{ring=\"request\"}": flat(3), "tandem_ring_capacity_entries{ring=\"request\"}": flat(4096),
    "tandem_ring_enqueue_failures_total{ring=\"request\"}": flat(0),
    "tandem_kv_usage_ratio": flat(0.6), WAITING: flat(0),
    LIMITED("no_work"): rise(900), LIMITED("kv_pages"): flat(0), LIMITED("time_limit"): rise(300),
    ENDED("stop"): rise(500), ENDED("rejected"): rise(1), REFUSED("bad_value"): rise(1),
    **{REFUSED(r): flat(0) for r in ("waiting_full", "kv_full", "starting", "executor_down", "draining", "tenant_rate",
                                     "exchange_limit", "deadline_unreachable", "auth")},
    TILE("busy"): rise(24), TILE("idle"): rise(36),
    RATIO("0.5"): rise(1), RATIO("1"): rise(500), RATIO("1.5"): rise(900), RATIO("2"): rise(900), RATIO("+Inf"): rise(900),
    "tandem_flight_slots{kind=\"iteration\"}": flat(16384), "tandem_flight_slots{kind=\"hop\"}": flat(65536),
    LATE("power"): rise(3), LATE("thermal"): flat(0), LATE("sync"): rise(60),
    "tandem_gpu_xid_errors_total": flat(0), "tandem_gpu_ecc_errors_total{kind=\"uncorrected\"}": flat(0),
    "tandem_gpu_lost": flat(0), "tandem_config_confirm_seconds": flat(0),
}

# Nobody asks, but for one now and then.
QUIET = {
    **{PROMISE(o, r): flat(0) for o in ("ttft", "tpot", "all") for r in ("met", "missed")},
    GAP("met"): flat(0), GAP("missed"): flat(0), HYBRID("fused"): flat(0), HYBRID("fallback"): flat(0),
    FALLBACK("not_profitable"): flat(0), ENDED("stop"): flat(0), ENDED("rejected"): flat(0), REFUSED("bad_value"): flat(0),
    LIMITED("no_work"): flat(0), LIMITED("time_limit"): flat(0), TILE("busy"): rise(1), TILE("idle"): rise(59),
    **{RATIO(le): flat(0) for le in ("0.5", "1", "1.5", "2", "+Inf")},
}

# Each begins after two hours of health: the minute 120.
DAYS = {
    "a usual day": ({}, {5: "", 100: "", 300: ""}),
    "a quiet night: one stream an hour, two of them late, a few small hybrids, somebody without a key": (
        {**QUIET, PROMISE("all", "met"): then((60, 0), (1, 1), (59, 0), (1, 1), (420, 0)),
         PROMISE("all", "missed"): then((150, 0), (1, 1), (200, 0), (1, 1), (180, 0)),
         PROMISE("ttft", "missed"): then((150, 0), (1, 1), (200, 0), (1, 1), (180, 0)),
         GAP("met"): then((60, 0), (1, 200), (470, 0)), GAP("missed"): then((151, 0), (1, 3), (380, 0)),
         HYBRID("fallback"): then((30, 60), (300, 0), (30, 1), (170, 0)), FALLBACK("not_profitable"): then((30, 60), (300, 0), (30, 1), (170, 0)),
         ENDED("stop"): rise(1, SPAN), ENDED("rejected"): then((200, 0), (60, 3), (270, 0)),
         REFUSED("auth"): then((200, 0), (60, 3), (270, 0)), REFUSED("exchange_limit"): then((300, 0), (1, 1), (230, 0))},
        {t: "" for t in (10, 105, 152, 155, 180, 215, 230, 302, 335, 345, 353, 360, 420, 500)}),
    "a start, and a load of a minute and a half": (
        {"up": gauge((1, 0), (SPAN, 1)), STATE("ready"): "_x2 " + gauge((2, 0), (SPAN, 1)),
         STATE("starting"): "_x2 " + gauge((2, 1), (SPAN, 0)), FALLBACK("not_profitable"): "_x2 " + rise(60),
         REFUSED("starting"): "_x2 " + then((2, 40), (SPAN, 0))},
        {t: "" for t in (1, 2, 3, 4, 5, 6, 10, 20, 40)}),
    "a restart for an update: counters from zero, a minute without, one more to load": (
        {"up": gauge((120, 1), (1, 0), (SPAN, 1)), "tandem_start_time_seconds": gauge((120, 1000), (SPAN, 8200)),
         STATE("ready"): gauge((120, 1), (2, 0), (SPAN, 1)), STATE("starting"): gauge((120, 0), (2, 1), (SPAN, 0)),
         REFUSED("starting"): gauge((120, 0)) + " " + then((2, 40), (SPAN, 0)),
         **{k: then((120, n), (0, "reset"), (300, n)) for k, n in
            ((PROMISE("all", "met"), 499), (PROMISE("all", "missed"), 1), (HYBRID("fused"), 900), (HYBRID("fallback"), 60),
             (FALLBACK("not_profitable"), 60), (ENDED("stop"), 500), (GAP("met"), 49900), (GAP("missed"), 100))}},
        {t: "" for t in (121, 122, 123, 125, 130, 140, 200)}),
    "a drain under load, forgotten": (
        {STATE("ready"): gauge((120, 1), (SPAN, 0)), STATE("draining"): gauge((120, 0), (SPAN, 1)),
         ENDED("rejected"): then((120, 1), (300, 500)), ENDED("stop"): then((120, 500), (300, 0)),
         REFUSED("draining"): then((120, 0), (300, 500))},
        {125: "", 160: "", 190: "TandemDrained"}),
    "twice the load: a third is refused, what is served keeps its promise": (
        {ENDED("rejected"): then((120, 1), (300, 250)), REFUSED("deadline_unreachable"): then((120, 0), (300, 250)),
         WAITING: gauge((120, 0), (SPAN, 40)), LIMITED("time_limit"): then((120, 300), (300, 900))},
        {118: "", 128: "", 140: "TandemRefusing"}),
    "one client over its rate, and one that asks nonsense": (
        {ENDED("rejected"): then((120, 1), (300, 900)), REFUSED("tenant_rate"): then((120, 0), (300, 600)),
         REFUSED("bad_value"): then((120, 1), (300, 300))},
        {125: "", 140: "", 200: ""}),
    "long prompts: pages are promised, most are not used, requests wait": (
        {LIMITED("kv_pages"): then((120, 0), (300, 3000)), WAITING: gauge((120, 0), (SPAN, 28)),
         "tandem_kv_usage_ratio": gauge((120, 0.6), (SPAN, 0.4))},
        {118: "", 135: "TandemKvFull"}),
    "a working cache: pages in use and nobody waits": ({"tandem_kv_usage_ratio": flat(0.99)}, {200: ""}),
    "a tenth of the gaps is late, no stream's mean": (
        {GAP("missed"): then((120, 100), (300, 8000))}, {118: "", 200: "TandemSloBurn TandemSloBurnSlow"}),
    "a third of the streams is late": (
        {**{PROMISE(o, "missed"): then((120, 1), (300, 250)) for o in ("ttft", "all")}},
        {118: "", 200: "TandemSloBurnFast TandemSloBurn TandemSloBurnSlow"}),
    "the executor dies once, streams go on": (
        {FAULT("executor_exit"): gauge((120, 0), (SPAN, 1)), GAP("missed"): then((120, 100), (1, 300), (300, 100)),
         REFUSED("executor_down"): gauge((120, 0), (SPAN, 3))},
        {118: "", 123: "TandemExecutorRestarts", 145: ""}),
    "the GPU falls off the bus": (
        {FAULT("executor_exit"): gauge((120, 0), (SPAN, 4)), "tandem_gpu_lost": gauge((120, 0), (SPAN, 1)),
         "tandem_gpu_xid_errors_total": gauge((120, 0), (SPAN, 1)), STATE("ready"): gauge((120, 1), (SPAN, 0)),
         STATE("starting"): gauge((120, 0), (SPAN, 1))},
        {118: "", 124: "TandemGpuErrors TandemExecutorRestarts TandemNotReady"}),
    "it ends again and again": (
        {"tandem_start_time_seconds": gauge((120, 1000), (3, 8200), (3, 8400), (3, 8600), (SPAN, 8800))},
        {118: "", 131: "TandemFailed", 160: ""}),
    "the machine is gone": ({"up": gauge((120, 1), (SPAN, 0))}, {118: "", 123: "TandemDown"}),
    "somebody pulls the cable: nobody asks any more": (
        {"tandem_net_link_up": gauge((120, 1), (30, 0), (SPAN, 1)), ENDED("stop"): then((120, 500), (30, 0), (300, 500))},
        {118: "", 123: "TandemPortDown", 155: ""}),
    "a storm of packets": ({"tandem_net_drops_total{reason=\"nic_missed\"}": then((120, 0), (300, 900)),
                            "tandem_net_drops_total{reason=\"udp_port\"}": rise(9000)}, {118: "", 130: "TandemDrops"}),
    "a reader that is too slow": (
        {"tandem_ring_entries{ring=\"request\"}": gauge((120, 3), (SPAN, 4000)),
         "tandem_ring_enqueue_failures_total{ring=\"request\"}": then((120, 0), (300, 5)), TILE("busy"): then((120, 24), (300, 58)),
         TILE("idle"): then((120, 36), (300, 2))},
        {118: "", 145: "TandemRingNearlyFull TandemRingFull TandemTileBusy"}),
    "another driver: shapes fall back, and the profile no longer holds": (
        {HYBRID("fused"): then((120, 900), (300, 100)), HYBRID("fallback"): then((120, 60), (300, 860)),
         FALLBACK("workspace"): then((120, 0), (300, 800)), RATIO("1"): then((120, 500), (300, 0)),
         RATIO("1.5"): then((120, 900), (300, 100))},
        {118: "", 125: "TandemNewFallback", 145: "TandemFusedFractionLow TandemPredictionOff"}),
    "logits that are none, and a kernel that left work out": (
        {FAULT("sequence_nan"): gauge((120, 0), (SPAN, 1)), FAULT("vcta_mismatch"): gauge((120, 0), (SPAN, 1))},
        {118: "", 123: "TandemNanLogits TandemVctaMismatch"}),
    "a hot aisle": ({LATE("thermal"): then((120, 0), (300, 50))}, {118: "", 140: "TandemPowerHeld"}),
    "a recorder that did not open, a configuration that nobody confirms": (
        {"tandem_flight_slots{kind=\"iteration\"}": flat(0), "tandem_flight_slots{kind=\"hop\"}": flat(0),
         "tandem_config_confirm_seconds": gauge((120, 0), (SPAN, 3600))},
        {5: "", 118: "TandemFlightOff", 155: "TandemFlightOff TandemConfigUnconfirmed"}),
}


def test_file(root, name, day, interval="1m"):
    replaced, firing = day
    unknown = set(replaced) - set(WELL)
    assert not unknown, (name, unknown)
    out = ["rule_files:"] + [f"  - {root}/deploy/monitoring/prometheus/{kind}.rules.yml" for kind in ("recording", "alerts")]
    out += ["evaluation_interval: 1m", "tests:", f"  - interval: {interval}", "    input_series:"]
    for series, told in {**WELL, **replaced}.items():
        base, labels = re.match(r"(\w+)(?:\{(.*)\})?$", series).groups()
        labels = ",".join(["job=\"tandem\",instance=\"a\""] + ([labels] if labels else []))
        out += [f"      - series: '{base}{{{labels}}}'", f"        values: '{told}'"]
    out.append("    promql_expr_test:")
    for minute, alerts in firing.items():
        out += ["      - expr: 'group by (alertname) (ALERTS{alertstate=\"firing\"})'", f"        eval_time: {minute}m"]
        out += ["        exp_samples:"] if alerts else []
        for a in sorted(alerts.split()):
            out += [f"          - labels: '{{alertname=\"{a}\"}}'", "            value: 1"]
    return "\n".join(out) + "\n"


def evaluate(root, name, day):
    """What promtool finds wrong; empty: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "day.yml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(test_file(root, name, day))
        r = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        return f"{name}:\n{r.stdout}{r.stderr}" if r.returncode else ""


def unknown_series(root):
    """Series of an appliance that it does not export."""
    known, label_values, out = families(root), values(root), []
    for series in WELL:
        base = re.match(r"\w+", series)[0]
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
        if base == "up":
            continue
        if base not in known or set(labels) != known[base] and "_bucket" not in base:
            out.append(f"{series}: no such series")
        out += [f"{series}: {k} is never {v}" for k, v in labels.items() if k != "le" and v not in label_values[k]]
    return out


def main(root):
    found = unknown_series(root)
    bad = set(" ".join(a for _, day in DAYS.values() for a in day.values()).split())
    found += [f"{name}: no bad day fires it" for _, name, _ in rules(root, "alerts.rules.yml") if name not in bad]
    found += filter(None, (evaluate(root, name, day) for name, day in DAYS.items()))
    print("\n".join(found) or f"{len(DAYS)} days, {len(bad)} alerts")
    return 1 if found else 0


def self_test(root):
    silent = ({"up": gauge((120, 1), (SPAN, 0))}, {123: ""})
    wrong = ({}, {200: "TandemDown"})
    assert evaluate(root, "an alert that nobody expects", silent) and evaluate(root, "one that does not come", wrong)
    print("the days can fail")
    return 0


if __name__ == "__main__":
    if not shutil.which("promtool"):
        sys.exit(77)
    root = os.path.abspath(sys.argv[-1])
    sys.exit(self_test(root) if sys.argv[1] == "--self" else main(root))
