#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The USDT probes of tandemd (appliance/base/probe.h), as tracers find and hear them.  usage: probes.py BIN_DIR FACT

Each function below is one fact and one CTest entry, in the network namespace that the caller made."""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from appliance import PATIENCE, Appliance, run_fact  # noqa: E402

BIN = ""


def probes_are_where_the_notes_say():
    """USDT: readelf finds the five probes with their arguments in tandemd."""
    if not shutil.which("readelf") or not os.path.exists("/usr/include/x86_64-linux-gnu/sys/sdt.h"):
        sys.exit(77)
    notes = subprocess.run(["readelf", "--notes", "--wide", os.path.join(BIN, "tandemd")], check=True,
                           capture_output=True, text=True).stdout
    found = re.findall(r"Provider: tandem\s+Name: (\w+)\s+Location: 0x(\w+),.*\s+Arguments: (.*)", notes)
    count = {}
    for name, location, arguments in found:
        assert int(location, 16) > 0
        count[name] = len(arguments.split())
    assert count == {"req_admit": 3, "iter_begin": 3, "iter_end": 3, "fallback": 3, "drop": 2}, count


class Perf:
    """perf with the five probes set in tandemd; what it saw is told by stop()."""

    NAMES = ("req_admit", "iter_begin", "iter_end", "fallback", "drop")

    def __init__(self, program, folder):
        self.program, self.folder, self.recorder = program, folder, None

    def perf(self, *args):
        return subprocess.run(["perf", "--buildid-dir", self.folder, *args], capture_output=True,
                              text=True, check=False, timeout=PATIENCE)

    def __enter__(self):
        tracing = "/sys/kernel/tracing"
        self.is_mounted = not os.path.exists(tracing + "/uprobe_events")
        if self.is_mounted and subprocess.run(["mount", "-t", "tracefs", "none", tracing],
                                              capture_output=True, check=False).returncode:
            print("skipped: this kernel has no tracefs")
            sys.exit(77)
        self.perf("buildid-cache", "--add", self.program)
        self.perf("probe", "-d", "sdt_tandem:*")  # of a run that was killed
        for name in self.NAMES:
            done = self.perf("probe", "-q", "--add", "sdt_tandem:" + name)
            if done.returncode:
                self.__exit__()
                print("skipped: perf sets no user probes here:", done.stderr.strip())
                sys.exit(77)
        return self

    def __exit__(self, *_):
        if self.recorder and self.recorder.poll() is None:
            self.recorder.kill()
            self.recorder.wait()
        self.perf("probe", "-d", "sdt_tandem:*")
        if self.is_mounted:
            subprocess.run(["umount", "/sys/kernel/tracing"], check=True)

    def start(self, pid):
        to, back = (os.path.join(self.folder, n) for n in ("to", "back"))
        os.mkfifo(to)
        os.mkfifo(back)
        self.recorder = subprocess.Popen(
            ["perf", "--buildid-dir", self.folder, "record", "-q", "-e", "sdt_tandem:*", "-p", str(pid),
             "-D", "-1", "--control", f"fifo:{to},{back}", "-o", self.folder + "/data"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(to, "w", encoding="ascii") as f, open(back, encoding="ascii") as acks:
            f.write("enable\n")
            f.flush()
            assert "ack" in acks.readline()

    def stop(self):
        """{name: [arguments, ...]}"""
        self.recorder.send_signal(2)
        self.recorder.wait(PATIENCE)
        text = self.perf("script", "-i", self.folder + "/data", "-F", "event,trace").stdout
        seen = {name: [] for name in self.NAMES}
        for line in text.splitlines():
            event, rest = line.strip().split(" ", 1)
            seen[event.strip(":").split(":")[1]].append(
                [int(w.split("=")[1], 0) for w in rest.split() if w.startswith("arg")])
        return seen


def probes_tell_a_tracer_what_the_counters_say():
    """perf on the five USDT probes through a small storm: as many events as /metrics counts, with
    the same paths, reasons and nanoseconds."""
    if not shutil.which("perf") or not os.path.exists("/usr/include/x86_64-linux-gnu/sys/sdt.h"):
        print("skipped: linux-perf or systemtap-sdt-dev is not installed")
        sys.exit(77)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../appliance/abi/reasons.def"),
              encoding="utf-8") as f:
        reasons = ["none"] + re.findall(r"^TDM_(?:DROP|REFUSE|CAP|FALLBACK|FAULT)\((\w+),", f.read(), re.M)
    with tempfile.TemporaryDirectory() as folder, \
            Perf(os.path.realpath(os.path.join(BIN, "tandemd")), folder) as perf, \
            Appliance(BIN, {"sched.route": "serial"}) as a:
        perf.start(a.process.pid)
        threads = [threading.Thread(target=a.complete, args=(f"{i} " + "storm " * 60, 20)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(5):
            s.sendto(b"no QUIC packet at all", ("10.88.0.2", 4433))
        a.until(lambda: a.total("tandem_net_drops_total", "quic_") == 5)
        time.sleep(0.5)
        m = a.metrics()
        seen = perf.stop()
    fell = m['tandem_hybrid_iterations_total{outcome="fallback"}']
    ran = sum(v for k, v in m.items() if k.startswith("tandem_iterations_total"))
    assert fell > 0 and len(seen["fallback"]) == fell, (fell, len(seen["fallback"]))
    assert {reasons[e[1]] for e in seen["fallback"]} == {"operator"}
    assert len(seen["iter_end"]) == ran and len(seen["iter_begin"]) >= ran, (ran, seen["iter_end"][:3])
    paths = ["idle", "prefill_only", "decode_only", "fused", "streams", "serial"]
    for i, path in enumerate(paths):
        assert sum(e[1] == i for e in seen["iter_end"]) == m[f'tandem_iterations_total{{path="{path}"}}'], path
    took = sum(v for k, v in m.items() if k.startswith("tandem_iteration_seconds_sum"))
    assert abs(sum(e[2] for e in seen["iter_end"]) / 1e9 - took) < 1e-6, took
    assert len(seen["req_admit"]) == 6 and {e[2] for e in seen["req_admit"]} == {0}, seen["req_admit"]
    for k, v in m.items():  # of the link's own reasons some came before perf did
        if k.startswith('tandem_net_drops_total{reason="quic_'):
            reason = reasons.index(k.split('"')[1])
            assert sum(e[1] for e in seen["drop"] if e[0] == reason) == v, (k, v, seen["drop"])
    print("perf saw", {name: len(list_) for name, list_ in seen.items()})


if __name__ == "__main__":
    sys.exit(run_fact(globals()))
