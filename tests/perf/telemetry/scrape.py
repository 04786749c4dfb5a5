#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scrapes cost at full configuration.
usage: unshare --net -- scrape.py BUILD_DIR [--count N] [--ledger]

One tandemd with a DPDK port, HTTP/3, four api tiles, four classes and a board that tells everything
(tests/e2e/gpu/recorded_exec.c), four streams under way.  COUNT scrapes of each set over HTTP/1.1
keep-alive, ten milliseconds apart: series, bytes, wall time; CPU time of tandemd when nobody else
asks, less what it uses unasked; and perf_render, the same page without HTTP, every series moved."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../e2e"), os.path.join(HERE, "../../e2e/gpu")]
import ledger  # noqa: E402
import recorded  # noqa: E402
from appliance import Appliance  # noqa: E402


def p(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--count", type=int, default=600)
    a.add_argument("--ledger", action="store_true")
    args = a.parse_args()
    recorded.ARGS = argparse.Namespace(bin=args.build + "/bin", fake_nvml=subprocess.run(
        ["find", args.build, "-name", "libfake_nvml.so"], capture_output=True, text=True,
        check=True).stdout.split()[0])
    out = {}
    with tempfile.TemporaryDirectory() as folder, \
            Appliance(recorded.played_bin(folder, recorded.made()), {"tile.api": 4}) as a:
        def cpu():
            return a.total("process_cpu_seconds_total")

        def scrapes(name, pause):
            c, took, sizes, text = a.connect(10), [], [], b""
            for _ in range(args.count):
                begin = time.monotonic()
                c.request("GET", "/metrics?set=" + name)
                text = c.getresponse().read()
                took.append(time.monotonic() - begin)
                sizes.append(len(text))
                time.sleep(pause)
            series = sum(1 for x in text.decode().splitlines() if x and x[0] != "#")
            return took, max(sizes), series
        time.sleep(2)  # the board tells once a second
        before = cpu()
        time.sleep(2)
        idle = (cpu() - before) / 2
        for name in ("native", "all"):
            before, start = cpu(), time.monotonic()
            scrapes(name, 0)
            used = cpu() - before - idle * (time.monotonic() - start)
            print(f"{name}: {used / args.count * 1e3:.3f} ms CPU")
            out["cpu_ms"] = used / args.count * 1e3
        with recorded.load(a):
            for name in ("native", "all"):
                took, size, series = scrapes(name, 0.01)
                print(f"{name}: {series} series, {size} bytes; under load p50 {1e3 * p(took, 0.5):.2f} "
                      f"p99 {1e3 * p(took, 0.99):.2f} max {1e3 * max(took):.2f} ms")
        out.update(series=series, bytes=size, p99_ms=1e3 * p(took, 0.99))
    text = subprocess.run([args.build + "/bin/perf_render"], capture_output=True, text=True, check=True).stdout
    print(text, end="")
    out["render_p99_ms"] = float(re.search(r"text\s+p50\s+\S+ us\s+p99\s+(\S+) us", text)[1]) / 1e3
    if args.ledger:
        regime = ("four api tiles, HTTP/3 and TAP port, four classes, a board that tells all, four streams; both "
                  "sets, no gzip; quiet machine")
        command = "unshare --net -- tests/perf/telemetry/scrape.py BUILD --ledger"
        ledger.put([
            ledger.line("telemetry.series", out["series"], "1", "<= 3000", regime, command, "lines of one scrape"),
            ledger.line("telemetry.scrape.bytes", out["bytes"], "B", "<= 524288", regime, command, ""),
            ledger.line("telemetry.scrape.cpu_ms", round(out["cpu_ms"], 3), "ms", "< 5", regime, command,
                        "CPU time of the process per scrape, HTTP included, no streams"),
            ledger.line("telemetry.scrape.p99_ms", round(out["p99_ms"], 2), "ms", "< 5", regime, command,
                        f"wall time over HTTP/1.1 keep-alive as a client on the same two cores sees it, p99 of "
                        f"{args.count}"),
            ledger.line("telemetry.render.p99_ms", round(out["render_p99_ms"], 3), "ms", "< 5",
                        "16 blocks, every series moved", command, "snapshot and text of both sets, no HTTP; p99 of "
                        "2000")])


if __name__ == "__main__":
    main()
