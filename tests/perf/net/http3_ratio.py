#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests a second at our HTTP/3 door beside Debian's gtlsserver, with the
same client (gtlsclient, package ngtcp2-client), the same certificate and a
file as large as /health.  Ours answers through a DPDK port (tap, or
af_packet or af_xdp on a veth), the other through a kernel socket at the far
end of a veth pair.  Rounds take turns; the ratio is that of the medians.
Beside it, what a round costs in processor time, server and client: on a
machine that does other work too it tells more than the clock.

usage: unshare --net http3_ratio.py BIN_DIR [REQUESTS [ROUNDS [PORT]]]    (root)
"""
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))
from appliance import Appliance  # noqa: E402

VETH_HERE, VETH_THERE = "10.99.0.1", "10.99.0.2"
PORT = 4433
STREAMS = 128  # requests at once that each server takes on a connection


def responses(a):
    total = 0
    for line in a.get("/metrics")[1].decode().splitlines():
        if line.startswith("tandem_http_responses_total{") and 'door="h3"' in line and '"2xx"' in line:
            total += float(line.split()[-1])
    return total


def client(host, cnt):
    """Seconds that cnt requests take, handshake included."""
    start = time.monotonic()
    r = subprocess.run(["gtlsclient", "-q", "-n", str(cnt), "--exit-on-all-streams-close",
                        "--no-http-dump", "--timeout=20s", host, str(PORT),
                        f"https://{host}:{PORT}/health"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300, check=False)
    assert r.returncode == 0, (host, r.returncode, r.stderr[-500:])
    return time.monotonic() - start


def cpu(pid):
    """Seconds that all threads of a process have run."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{t}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def spent(pid, host, cnt, seconds, processor):
    """One round against the server pid: the clock's time and the processors'."""
    def both():
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu(pid) + r.ru_utime + r.ru_stime

    begin = both()
    seconds.append(client(host, cnt))
    processor.append(both() - begin)


class Other:
    """gtlsserver in a namespace of its own behind a veth pair."""

    def __init__(self, state_dir, body):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-perf-")
        with open(os.path.join(self.folder.name, "health"), "wb") as f:
            f.write(body)
        self.state_dir = state_dir

    def __enter__(self):
        go = os.path.join(self.folder.name, "go")
        script = (f"ip link set lo up; while [ ! -e {go} ]; do sleep 0.05; done; "
                  f"ip addr add {VETH_THERE}/24 dev far; ip link set far up; "
                  f"exec gtlsserver -q -d {self.folder.name} --max-streams-bidi={STREAMS} {VETH_THERE} {PORT} "
                  f"{self.state_dir}/key.pem {self.state_dir}/certificate.pem")
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", script],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        for cmd in (["link", "add", "near", "type", "veth", "peer", "name", "far", "netns",
                     str(self.process.pid)],
                    ["addr", "add", f"{VETH_HERE}/24", "dev", "near"], ["link", "set", "near", "up"]):
            subprocess.run(["ip", *cmd], check=True)
        with open(go, "w", encoding="ascii"):
            pass
        time.sleep(1)
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def port_settings(kind):
    """Settings of tandemd for a port kind; makes the veth pair it stands on."""
    if kind == "tap":
        return {}
    for cmd in (["link", "add", "data0", "type", "veth", "peer", "name", "data1"],
                ["addr", "add", "10.88.0.1/24", "dev", "data0"], ["link", "set", "data0", "up"],
                ["link", "set", "data1", "up"]):
        subprocess.run(["ip", *cmd], check=True)
    # a veth leaves UDP checksums to hardware that is not there
    subprocess.run(["ethtool", "-K", "data0", "tx", "off"], check=True, stdout=subprocess.DEVNULL)
    return {"port.kind": kind, "port.device": "data1", "port.mbufs": 16384,
            "port.ipv4": "10.88.0.2/24", "port.ipv6": ""}


def main():
    bin_dir = sys.argv[1]
    kind = sys.argv[4] if len(sys.argv) > 4 else "tap"
    cnt = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    if os.geteuid() != 0 or not shutil.which("gtlsserver") or not shutil.which("gtlsclient"):
        print("needs root, ngtcp2-client and ngtcp2-server", file=sys.stderr)
        return 77
    with Appliance(bin_dir, {**port_settings(kind), "quic.streams": STREAMS}) as a:
        body = a.get("/health")[1]
        with Other(a.dir.name, body) as o:
            for host in ("10.88.0.2", VETH_THERE):
                client(host, 100)
            ours, other, ours_cpu, other_cpu = [], [], [], []
            for _ in range(rounds):
                before = responses(a)
                spent(a.process.pid, "10.88.0.2", cnt, ours, ours_cpu)
                time.sleep(0.5)
                seen = responses(a) - before
                assert seen >= cnt, f"{cnt} asked, {seen:.0f} answered"
                spent(o.process.pid, VETH_THERE, cnt, other, other_cpu)
            mine, theirs = cnt / statistics.median(ours), cnt / statistics.median(other)
            print(f"{kind}: ours {mine:.0f} requests/s, gtlsserver {theirs:.0f}, ratio {mine / theirs:.3f}, "
                  f"load {os.getloadavg()[0]:.1f}")
            mine, theirs = statistics.median(ours_cpu), statistics.median(other_cpu)
            print(f"processor time of a round, server and client: ours {mine:.3f} s, gtlsserver "
                  f"{theirs:.3f} s, ratio {theirs / mine:.3f}")
            print("seconds ours", [round(s, 2) for s in ours], "gtlsserver", [round(s, 2) for s in other])
    return 0


if __name__ == "__main__":
    sys.exit(main())
