#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of this folder and, with --ledger, puts their figures
into tests/perf/results/ledger.jsonl, one line each with command, machine and
load, so that a figure is never without its circumstances.

usage: run.py BUILD_DIR [--ledger] [--requests N]      (root: namespaces, TAP)
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import ledger  # noqa: E402


def output(*args):
    r = subprocess.run(args, capture_output=True, text=True, check=False, timeout=900)
    sys.stdout.write(r.stdout)
    sys.stdout.flush()
    if r.returncode not in (0, 77):
        sys.exit(f"{args[0]}: exit {r.returncode}\n{r.stderr}")
    return r.stdout


def main():
    build = os.path.abspath(sys.argv[1])
    requests = sys.argv[sys.argv.index("--requests") + 1] if "--requests" in sys.argv else "20000"
    here = os.path.join(build, "tests", "perf", "net")
    lines = []

    def figure(name, value, unit, aim, regime, command, note):
        lines.append(ledger.line(name, value, unit, aim, regime, command,
                                 f"{note}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"))

    text = output(os.path.join(here, "perf_net_parse"))
    m = re.search(r"ipv4 64 +([\d.]+) Mpps", text)
    figure("net.parse_to_ring.mpps", float(m.group(1)), "Mpps", ">= 1",
           "wire port to exchange ring, 64-byte UDP payload, no QUIC, zero loss, thread CPU time",
           "build/release/tests/perf/net/perf_net_parse", "median of the best of 5 interleaved rounds")
    text = output(os.path.join(here, "perf_ring_plan"))
    m = re.search(r"32 decoding +p50 +([\d.]+) us +p99 +([\d.]+) us", text)
    figure("ring.enqueue_to_plan.p99_us", float(m.group(2)), "us", "<= 20",
           "request ring to the plan with its first slice, 32 sequences decoding, null executor, thread CPU time",
           "build/release/tests/perf/net/perf_ring_plan", f"best of 5 interleaved rounds; p50 {m.group(1)} us")
    text = output(os.path.join(here, "perf_net_stages"))
    m = re.search(r"link in (\d+), link out (\d+), QUIC (\d+), HTTP/3 (\d+)", text)
    for stage, value in zip(("link_in", "link_out", "quic", "http3"), m.groups()):
        figure(f"net.packet.{stage}.cycles", int(value), "cycles", "", "one request in flight, 64-byte payload",
               "build/release/tests/perf/net/perf_net_stages", "median of the best of 5 rounds, RDTSC")
    for kind in ("tap", "af_xdp"):
        text = output("unshare", "--net", os.path.join(HERE, "http3_ratio.py"), os.path.join(build, "bin"),
                      requests, "5", kind)
        m = re.search(r"ours (\d+) requests/s, gtlsserver (\d+), ratio ([\d.]+)", text)
        spent = re.search(r"processor time .* ratio ([\d.]+)", text)
        if not m or not spent:
            continue
        name = "http3.requests_vs_gtlsserver.ratio" + ("" if kind == "af_xdp" else f".{kind}")
        figure(name, float(m.group(3)), "ratio", ">= 1.0",
               f"GET /health over a DPDK {kind} port; gtlsserver over a kernel socket on veth; gtlsclient",
               f"unshare --net tests/perf/net/http3_ratio.py build/release/bin {requests} 5 {kind}",
               f"medians of 5 interleaved rounds: {m.group(1)} and {m.group(2)} requests/s; processor time "
               f"of server and client together: ratio {spent.group(1)}")
    text = output("unshare", "--net", os.path.join(HERE, "first_token.py"), build)
    for proto, prefix in (("HTTP/3", "http3"), ("HTTP/1.1", "http1")):
        m = re.search(proto + r" +p50 +([\d.]+) us +p99 +([\d.]+) us", text)
        if m:
            figure(f"{prefix}.first_token.p50_us", float(m.group(1)), "us", "",
                   "dummy:tiny, CPU backend, open connections, TAP port and loopback",
                   "unshare --net tests/perf/net/first_token.py build/release", f"p99 {m.group(2)} us")
    if "--ledger" in sys.argv:
        ledger.put(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
