#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a recording for recorded_exec of what a GPU host kept.

usage: record.py TANDEMCTL FLIGHT METRICS FIRST COUNT WORDS > recording.tsv

FLIGHT is the flight recorder's file, METRICS the text of scrapes one second apart, one after the
other; iterations FIRST to FIRST + COUNT are taken, and WORDS say where all came from."""
import json
import re
import subprocess
import sys

ROUTE = ["idle", "prefill_only", "decode_only", "fused", "streams", "serial"]
BOARD = [('tandem_gpu_power_watts{mode="average"}', 1000), ('tandem_gpu_power_watts{mode="instant_max"}', 1000),
         ("tandem_gpu_power_limit_watts", 1000), ("tandem_gpu_energy_joules_total", 1000),
         ('tandem_gpu_clock_hertz{domain="sm"}', 1e-6), ('tandem_gpu_clock_hertz{domain="memory"}', 1e-6), None,
         ("tandem_gpu_temperature_celsius", 1), ("tandem_gpu_sm_active_ratio", 100),
         ("tandem_gpu_sm_occupancy_ratio", 100), ("tandem_gpu_tensor_active_ratio", 100),
         ("tandem_gpu_dram_bandwidth_ratio", 100), ('tandem_gpu_memory_bytes{state="total"}', 1),
         ('tandem_gpu_memory_bytes{state="used"}', 1)]
HELD = {"power": 4, "thermal": 0x20, "hardware": 8, "sync": 0x10}  # NVML's bits


def boards(text):
    """One line a scrape; a reason holds where its time grew by half of the second."""
    before = {}
    for page in re.split(r"(?m)^(?=# HELP tandem_requests_received_total)", text)[1:]:
        v = dict(x.rsplit(" ", 1) for x in page.splitlines() if x and x[0] != "#")
        held = {why: float(v[f'tandem_gpu_throttle_seconds_total{{reason="{why}"}}']) for why in HELD}
        bits = sum(bit for why, bit in HELD.items() if before and held[why] - before[why] > 0.5)
        before = held
        words = [str(bits) if row is None else f"{float(v[row[0]]) * row[1]:{'.4f' if row[1] == 100 else '.0f'}}" for row in BOARD]
        yield "board " + " ".join(words)


def main():
    ctl, flight, metrics, first, count, words = sys.argv[1:]
    trace = json.loads(subprocess.run([ctl, "trace", "--flight", flight], capture_output=True, check=True).stdout)
    print("# SPDX-License-Identifier: Apache-2.0\n# " + words)
    print("# What the recorder called sampling was the host's wait for the whole iteration: left out, 0.")
    with open(metrics, encoding="utf-8") as f:
        print("\n".join(boards(f.read())))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for e in slices[int(first):int(first) + int(count)]:
        a = e["args"]
        print("iteration", ROUTE.index(e["name"]), round(e["dur"] * 1e3), round(a["attention_ms"] * 1e6), 0,
              *a["vcta_executed"], *(round(x * 1e6) for x in a["vcta_ms"]), round(a["colocated_ms"] * 1e6),
              a["splits"], a["merges"], *a["tile"], a["sms"], a["clock_mhz"])


if __name__ == "__main__":
    main()
