#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An appliance whose executor plays a recorded run of a GPU (recorded_exec.c).

usage: recorded.py BIN_DIR FACT --fake-nvml FILE [--recording FILE] [--out FOLDER]

Each function below is one fact and one CTest entry, in the network namespace that the caller made."""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from appliance import Appliance, Crowd  # noqa: E402

ARGS = None
SW_POWER_CAP = 4  # NVML's nvmlClocksThrottleReasonSwPowerCap


def played_bin(folder, recording):
    """A folder of programs in which the executor plays, beside its driver and its recording."""
    for name, source in (("tandemd", "tandemd"), ("tandemctl", "tandemctl"), ("tandem-exec", "recorded_exec")):
        shutil.copy2(os.path.join(ARGS.bin, source), os.path.join(folder, name))
    shutil.copy2(ARGS.fake_nvml, os.path.join(folder, "libfake_nvml.so"))
    play(folder, recording)
    return folder


def play(folder, recording):
    """Puts another recording on; the executor takes it up with its next iteration."""
    path = os.path.join(folder, "recording.tsv")
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(recording)
    os.rename(path + ".new", path)


def made(reasons=0, sm_mhz=1980, watts=610):
    """A recording made by hand: a board that is well, or is held back."""
    board = f"board {watts}000 {watts + 20}000 700000 1000000 {sm_mhz} 3201 {reasons} 41 87.5 42.25 33 71.125 " \
            "150000000000 90000000000\n"
    return board + "".join(f"iteration {route} 2000000 1500000 100000 {p} {d} {p}00000 {d}00000 90000 3 2 192 80 132 "
                           f"{sm_mhz}\n" for route, p, d in ((1, 40, 0), (2, 0, 64), (3, 40, 64)))


def load(a, cnt=4):
    return Crowd(a, cnt, lambda a, i, k: a.stream(f"{i} {k} " + "load " * (20 + 11 * i), 40 + 9 * i, priority=i % 3))


def a_power_cap_is_named():
    """The board is held back by its power limit: show status says so in plain words, and how soon."""
    with tempfile.TemporaryDirectory() as folder:
        with Appliance(played_bin(folder, made()), {"port.kind": "none"}) as a, load(a):
            def line():
                return next((x for x in a.ctl("show", "status", check=False).stdout.splitlines()
                             if x.startswith("warning") and "held down" in x), "")
            for _ in range(16):  # a console is open: findings are of the last 15 s
                assert not line(), line()
                time.sleep(1)
            begin = time.monotonic()
            play(folder, made(SW_POWER_CAP, 1500, 699))
            while not line():
                assert time.monotonic() < begin + 40, a.ctl("show", "status").stdout[:2000]
                time.sleep(0.2)
            took = time.monotonic() - begin
            time.sleep(4)  # half of the window was just reached: another look's window may not have it yet
            told = line()
            print(f"power cap: {took:.2f} s: {told}")
            assert "cause power" in told and "its power limit is 700 W" in told, told
            health = a.ctl("show", "health", check=False)
            assert health.returncode == 3 and "held down" in health.stdout, health

            def power():
                return json.loads(a.ctl("show", "power", "-o", "json").stdout)["power"]
            a.until(lambda: power()["average_w"] == 699, 5)
            assert power()["board_sm_clock_mhz"] == 1500, power()
            assert power()["held_by_power_s"] > 1 and power()["held_by_heat_s"] == 0, power()
            play(folder, made())
            end = time.monotonic() + 60  # a window of 15 s must pass
            while line():
                assert time.monotonic() < end, line()
                time.sleep(0.5)


def consoles_tell_a_recorded_gpu_run():
    """An H200's own iterations and seconds in metrics, explain, trace, show and the lane."""
    with open(ARGS.recording, encoding="ascii") as f:
        recording = f.read()
    with tempfile.TemporaryDirectory() as folder:
        with Appliance(played_bin(folder, recording), {"port.kind": "none", "sched.prefix_cache": 0}) as a:
            with load(a, 8):
                a.until(lambda: a.total("tandem_hybrid_iterations_total", '"fused"') > 20, 60)
                m = a.metrics()
                status = a.status()
            played = [x.split() for x in recording.splitlines() if x.startswith("iteration")]
            watts = {float(x.split()[1]) / 1000 for x in recording.splitlines() if x.startswith("board")}
            assert m["tandem_gpu_power_limit_watts"] == 700 and m["tandem_executor_sms"] == 132
            assert m['tandem_gpu_power_watts{mode="average"}'] in watts, m['tandem_gpu_power_watts{mode="average"}']
            assert m['tandem_tile_iterations_total{shape="192x80",split="split"}'] > 0
            assert 0 < m["tandem_gpu_tensor_active_ratio"] < 1 and m["tandem_executor_sm_clock_hertz"] > 1e9
            assert status["board"]["memory_total_bytes"] > 1e11 and status["power"]["energy_j"] > 20000
            flight = ["--flight", a.settings["flight.path"]]
            trace = json.loads(a.ctl("trace", *flight).stdout)["traceEvents"]
            ran = [e["args"] for e in trace if e["ph"] == "X" and e["name"] == "fused"]
            known = {(int(x[5]), int(x[6]), int(x[15])) for x in played}
            for e in ran:
                assert (*e["vcta_executed"], e["clock_mhz"]) in known and e["tile"] == [192, 80], e
            told = a.ctl("explain", *flight, "--iteration", str(ran[-1]["iteration"])).stdout
            for w in ("prefill tiles of 192 rows x 80 keys", "on 132 SMs", " MHz"):
                assert w in told, (w, told)
            print(told)
            print(a.ctl("show", "gpu").stdout + a.ctl("show", "power").stdout)


def prepare():
    """Leaves a folder of programs that play the recording, for console.py and top.py: --out."""
    with open(ARGS.recording, encoding="ascii") as f:
        os.makedirs(ARGS.out, exist_ok=True)
        played_bin(ARGS.out, f.read())


def main():
    global ARGS
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("fact")
    p.add_argument("--fake-nvml", required=True)
    p.add_argument("--recording",
                   default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "h200.tsv"))
    p.add_argument("--out", default="")
    ARGS = p.parse_args()
    globals()[ARGS.fact]()


if __name__ == "__main__":
    sys.exit(main() if os.geteuid() == 0 else 77)
