#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus watches one tandemd through a storm.  usage: watched.py BIN_DIR

It scrapes with the bundle's own configuration and rules, all windows divided by 120.  What its
queries say at the end is what the clients counted themselves; the alert about executor restarts
fires after a kill and clears, and a real alertmanager tells a receiver of ours both.  Exit 77
where prometheus is not installed."""
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
from appliance import Appliance, stream_ids  # noqa: E402

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


ALERTMANAGER = "http://127.0.0.1:9098"


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
        self.process.wait(20)
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
        self.process.wait(20)
        self.dir.cleanup()

    def ask(self, path, **query):
        url = f"{URL}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=10) as r:
            return json.loads(r.read())["data"]

    def value(self, expr):
        """The one value of an instant query, None where there is none."""
        result = self.ask("query", query=expr)["result"]
        assert len(result) <= 1, (expr, result)
        return float(result[0]["value"][1]) if result else None

    def firing(self, name):
        return any(a["labels"]["alertname"] == name and a["state"] == "firing"
                   for a in self.ask("alerts")["alerts"])

    def until(self, what, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                if what():
                    return
            except OSError:
                pass
            assert time.monotonic() < end, "did not come true in time"
            time.sleep(0.2)


def main():
    if not shutil.which("prometheus") or not shutil.which("prometheus-alertmanager"):
        return 77
    with Appliance(sys.argv[1], {"port.kind": "none", "sched.route": "serial"}) as a, \
            Alertmanager() as m, Prometheus() as p:
        p.until(lambda: p.value('up{job="tandem"}') == 1)
        failures = []

        def ask(i):
            try:
                c, r = a.stream("storm " * (1 + 9 * i), 40)
                assert len(stream_ids(r)) == 40
                r.read()  # to the end of the body: who leaves before it is no whole stream
                c.close()
            except Exception as e:  # noqa: BLE001 - told below
                failures.append(repr(e))

        for _ in range(2):
            clients = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
            for t in clients:
                t.start()
            for t in clients:
                t.join()
        assert not failures, failures
        status, _, _ = a.post("/v1/completions", {"model": a.model(), "prompt": ""})
        assert status == 400
        a.until(lambda: a.total("tandem_requests_open") == 0)
        time.sleep(0.5)
        last = a.metrics()
        want = {
            'sum(tandem_requests_total{outcome="length"})': 16,
            'sum(tandem_requests_total{outcome="rejected"})': 1,
            'sum(tandem_tokens_total{kind="output"})': 640,
            'sum(tandem_slo_requests_total{objective="all"})': 16,
            "sum(tandem_ttft_seconds_count)": 16,
            "sum(tandem_itl_seconds_count) + sum(tandem_ttft_seconds_count)": 640,
            'sum(tandem_fallbacks_total{reason="operator"})':
                last['tandem_hybrid_iterations_total{outcome="fallback"}'],
            'sum(tandem_vcta_total{op="prefill"}) / sum(tandem_vcta_total{op="decode"})':
                last['tandem_vcta_total{op="prefill"}'] / last['tandem_vcta_total{op="decode"}'],
            'sum(tandem_hybrid_iterations_total{outcome="fused"})': 0,
        }
        p.until(lambda: p.value('sum(tandem_requests_total{outcome="rejected"})') == 1)
        for expr, value in want.items():
            assert p.value(expr) == value, (expr, p.value(expr), value)
        assert last['tandem_hybrid_iterations_total{outcome="fallback"}'] > 0
        # an alert fires and clears
        assert not p.firing("TandemExecutorRestarts")
        os.kill(a.executor_pid(), 9)
        p.until(lambda: p.firing("TandemExecutorRestarts"))
        p.until(lambda: any(t[:2] == ("TandemExecutorRestarts", "firing") for t in m.told))
        p.until(lambda: not p.firing("TandemExecutorRestarts"))
        p.until(lambda: any(t[:2] == ("TandemExecutorRestarts", "resolved") for t in m.told))
        assert not p.firing("TandemDown")
        print("prometheus counted what the clients did; the alert came and went")
    return 0


if __name__ == "__main__":
    sys.exit(main())
