#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus watches one tandemd through a storm.  usage: watched.py BIN_DIR

It scrapes with the bundle's own configuration and rules, all windows divided by 120.  The storm has
a fused half and one that an operator made serial, and a class whose promise nobody can keep.  What
queries say at the end is what the clients counted themselves, exactly: tokens, streams, gaps, the
burn of the budget; and for iterations what the flight recorder has, record by record: fused
fraction, fallbacks by reason, virtual-CTA ratio.  The fast burn alert and the one about executor
restarts fire and clear, and a real alertmanager tells a receiver of ours.  Exit 77 where
prometheus is not installed."""
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUNDLE = os.path.join(ROOT, "deploy/monitoring/prometheus")
SCALE = 120
URL = "http://127.0.0.1:9099"


def faster(text):
    """Every duration of a rule or configuration file, divided by SCALE, in milliseconds."""
    unit = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    def one(m):
        return f"{m[1]}{max(1, int(m[2]) * unit[m[3]] // SCALE)}ms"
    text = re.sub(r"(\[)(\d+)([smhd])(?=\])", one, text)
    text = re.sub(r"(offset )(\d+)([smhd])\b", one, text)
    return re.sub(r"(for: |interval: )(\d+)([smhd])\b", one, text)


class Alertmanager:
    """Debian's, with one receiver: what it was told is in self.told, (alert, status) each."""

    def __enter__(self):
        told = self.told = []

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                told.extend((a["labels"]["alertname"], a["status"], a["annotations"].get("runbook", ""))
                            for a in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass
        self.server = http.server.HTTPServer(("127.0.0.1", 9097), Receiver)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-alerts-")
        path = os.path.join(self.dir.name, "alertmanager.yml")
        with open(path, "w", encoding="utf-8") as f:
            f.write("route: {receiver: hook, group_by: [alertname], group_wait: 100ms, "
                    "group_interval: 500ms, repeat_interval: 1h}\n"
                    "receivers:\n- name: hook\n  webhook_configs:\n"
                    "  - {url: 'http://127.0.0.1:9097/', send_resolved: true}\n")
        with open(os.path.join(self.dir.name, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus-alertmanager", "--config.file", path, "--cluster.listen-address=",
                 "--storage.path", os.path.join(self.dir.name, "data"),
                 "--web.listen-address", "127.0.0.1:9098"], stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.server.shutdown()
        self.dir.cleanup()


class Prometheus:
    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="tandem-watch-")
        for name in ("scrape.yml", "recording.rules.yml", "alerts.rules.yml"):
            with open(os.path.join(BUNDLE, name), encoding="utf-8") as f:
                text = faster(f.read())
            if name == "scrape.yml":
                text += ("alerting:\n  alertmanagers:\n  - static_configs:\n"
                         "    - targets: ['127.0.0.1:9098']\n")
            with open(os.path.join(self.dir.name, name), "w", encoding="utf-8") as f:
                f.write(text)
        with open(os.path.join(self.dir.name, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", "--config.file", os.path.join(self.dir.name, "scrape.yml"),
                 "--storage.tsdb.path", os.path.join(self.dir.name, "data"),
                 "--web.listen-address", "127.0.0.1:9099"], stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.dir.cleanup()

    def ask(self, path, **query):
        url = f"{URL}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=PATIENCE) as r:
            return json.loads(r.read())["data"]

    def value(self, expr):
        """The one value of an instant query, None where there is none."""
        result = self.ask("query", query=expr)["result"]
        assert len(result) <= 1, (expr, result)
        return float(result[0]["value"][1]) if result else None

    def firing(self, name):
        return any(a["labels"]["alertname"] == name and a["state"] == "firing"
                   for a in self.ask("alerts")["alerts"])

    def until(self, what, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while True:
            try:
                if what():
                    return
            except OSError:
                pass
            assert time.monotonic() < end, "did not come true in time"
            time.sleep(0.2)


class Client(threading.Thread):
    """Streams and what it saw of them: tokens, and gaps between records."""

    def __init__(self, a, i, priority):
        super().__init__()
        self.a, self.i, self.priority = a, i, priority
        self.tokens = self.gaps = self.late = 0
        self.failure = None

    def run(self):
        try:
            c, r = self.a.stream(f"{self.i} " + "storm " * (1 + 9 * self.i), 40, priority=self.priority)
            records = 0
            for raw in r:  # to the end of the body: who leaves before it is no whole stream
                if raw.startswith(b"data: {"):
                    ids = [t for x in json.loads(raw[6:])["choices"] for t in x.get("token_ids") or []]
                    self.tokens += len(ids)
                    records += bool(ids)
            self.gaps = records - 1
            c.close()
        except Exception as e:  # noqa: BLE001 - told below
            self.failure = repr(e)


def storm(a, first):
    """Sixteen streams, half of class standard; what they counted together."""
    clients = [Client(a, i, 1 if i % 2 else 0) for i in range(first, first + 16)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    assert not any(c.failure for c in clients), [c.failure for c in clients]
    return clients


def recorded(a):
    """Iterations of the flight recorder: the other account of what ran."""
    text = a.ctl("trace", "--flight", a.settings["flight.path"]).stdout
    return [{"ran": e["name"], **e["args"]} for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]


def main():
    if not shutil.which("prometheus") or not shutil.which("prometheus-alertmanager"):
        return 77
    # class standard promises its first token within a millisecond: each of its streams misses that
    with Appliance(sys.argv[1], {"port.kind": "none", "sched.prefill_tokens": 64, "class1.ttft_ms": 1,
                                 "sched.prefix_cache": 0}) as a, \
            Alertmanager() as m, Prometheus() as p:
        p.until(lambda: p.value('up{job="tandem"}') == 1)
        clients = storm(a, 0)
        a.ctl("config", "apply", "sched.route=serial")
        clients += storm(a, 16)
        status, _, _ = a.post("/v1/completions", {"model": a.model(), "prompt": ""})
        assert status == 400
        a.until(lambda: a.total("tandem_requests_open") == 0)
        p.until(lambda: p.firing("TandemSloBurnFast"))
        time.sleep(0.5)
        ran = recorded(a)
        hybrid = [e for e in ran if e["prefill_tokens"] and e["decodes"]]
        fused = [e for e in hybrid if e["ran"] == "fused"]
        fell = [e["fallback"] for e in hybrid if e["ran"] != "fused"]
        vcta = [sum(e["vcta_executed"][k] for e in ran) for k in (0, 1)]
        assert fused and fell and set(fell) == {"operator"}, (len(fused), set(fell))
        tokens, gaps = sum(c.tokens for c in clients), sum(c.gaps for c in clients)
        assert tokens == 32 * 40
        want = {
            'sum(tandem_requests_total{outcome="length"})': 32,
            'sum(tandem_requests_total{outcome="rejected"})': 1,
            'sum(tandem_tokens_total{kind="output"})': tokens,
            "sum(tandem_ttft_seconds_count)": 32,
            "sum(tandem_itl_seconds_count)": gaps,
            "sum(tandem_slo_gaps_total)": gaps,
            'sum(tandem_slo_requests_total{objective="all"})': 32,
            'sum(tandem_slo_requests_total{objective="ttft",slo_class="standard",result="missed"})': 16,
            'sum(tandem_slo_requests_total{objective="ttft",slo_class="standard",result="missed"})'
            ' / sum(tandem_slo_requests_total{objective="ttft",slo_class="standard"}) / 0.01': 100,
            'sum(tandem_hybrid_iterations_total{outcome="fused"}) / sum(tandem_hybrid_iterations_total)':
                len(fused) / len(hybrid),
            "sum(tandem_fallbacks_total)": len(fell),
            'sum(tandem_fallbacks_total{reason="operator"})': fell.count("operator"),
            'sum(tandem_vcta_total{op="prefill"}) / sum(tandem_vcta_total{op="decode"})': vcta[0] / vcta[1],
            "sum(tandem_vcta_planned_total) - sum(tandem_vcta_total)": 0,
            'sum(tandem_tile_iterations_total)': sum(e["prefill_tokens"] > 0 for e in ran),
            'sum(tandem_iterations_total)': len(ran),
        }
        p.until(lambda: p.value('sum(tandem_requests_total{outcome="rejected"})') == 1)
        for expr, value in want.items():
            assert p.value(expr) == value, (expr, p.value(expr), value)
            print(f"{value:10.6g} = {expr}")
        # the burn is told and ends with its streams
        p.until(lambda: any(t[:2] == ("TandemSloBurnFast", "firing") for t in m.told))
        p.until(lambda: not p.firing("TandemSloBurnFast"))
        # an alert about the machine fires and clears
        assert not p.firing("TandemExecutorRestarts")
        os.kill(a.executor_pid(), 9)
        p.until(lambda: p.firing("TandemExecutorRestarts"))
        p.until(lambda: any(t[:2] == ("TandemExecutorRestarts", "firing") for t in m.told))
        p.until(lambda: not p.firing("TandemExecutorRestarts"))
        for name in ("TandemExecutorRestarts", "TandemSloBurnFast"):
            p.until(lambda: any(t[:2] == (name, "resolved") for t in m.told))
        assert not p.firing("TandemDown")
        print("prometheus counted what the clients did; the alerts came and went")
    return 0


if __name__ == "__main__":
    sys.exit(main())
