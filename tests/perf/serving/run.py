#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The serving figures: what is simulated today, and what a sitting measures.

  run.py simulate BIN OUT TRACES [--models M,..] [--only TRACE,..]
      every cell by the production scheduler in simulated time, on the profile
      that model.py makes: OUT/MODEL_TRACE_GAP.{json,html}, OUT/table.md, and
      OUT/sitting.json, what a sitting is to measure, in order of worth
  run.py sit BIN OUT TRACES PLAN --seconds N [--door http1|h3] [--set K=V ..]
      measures what PLAN (a sitting.json) asks for and OUT does not have yet,
      with an appliance of its own for each promise; ends in time, may be cut
      at any moment, goes on when called again
  run.py merge BIN OUT SITTING..
      several OUT of one build in one

TRACES is the folder of the public traces; a name that is no file there is a
generator's.  Everything simulated says so in its file."""
import argparse
import fcntl
import glob
import json
import os
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.append(os.path.dirname(HERE))  # in a bundle
sys.path.insert(0, HERE)
import model  # noqa: E402
from appliance import Appliance  # noqa: E402

TRACES = {"arxiv_sample": "arxiv_sample.csv", "azure_code": "AzureLLMInferenceTrace_code.csv",
          "mooncake": "conversation_trace.jsonl", "arxiv_long": "arxiv_long_online.csv"}
SPREAD = {"mooncake": ["--spread"]}  # its arrivals are filed in steps of 3 s
# pages of 64 tokens in what 141 GB leave beside weights and activations
MODELS = {"llama-3-8b": 14000, "llama-2-7b": 3500, "yi-6b": 28000, "llama-3-8b,fp8-kv": 28000}
POLICIES = ["quantile", "mean", "static:512", "static:1024", "static:1536", "static:2048"]
GAPS = (60, 30)  # ms
SHARES = (0.95, 0.7, 1.05, 1.0, 0.85)  # of fused/quantile's capacity, the one that tells most first
TTFT_MS = 5000


def ctl(bin_dir, *words, timeout=1800):
    r = subprocess.run([os.path.join(bin_dir, "tandemctl"), *map(str, words)], capture_output=True, text=True,
                       timeout=timeout, check=False)
    assert r.returncode == 0, (words, r.stderr)
    return r.stdout


def trace_of(folder, name):
    path = os.path.join(folder, TRACES.get(name, name))
    return path if os.path.isfile(path) else name


# --- simulated --------------------------------------------------------------------

def plan(args, profile, pages, trace, gap, *words):
    return json.loads(ctl(args.bin, "plan", "--json", "--profile", profile, "--trace", trace_of(args.traces, trace), "--kv-pages", pages,
                          "--gap-ms", gap, "--ttft-ms", TTFT_MS, "--ttft-share", 0.9, "--requests", args.requests,
                          *SPREAD.get(trace, []), *words))


def at_knee(curve):
    return next(p for p in curve["points"] if abs(p["rate"] - curve["best"]) < 1e-3 * p["rate"])


def rows_of(found, label):
    """One line for each way to serve: capacity, gain over serial under the same policy, bound, why."""
    serial = {c["policy"]: c["best"] for c in found["curves"] if c["route"] == "serial"}
    fixed = max((v for k, v in serial.items() if k.startswith("static")), default=0)
    for c in found["curves"]:
        if c["best"] <= 0:
            yield f"| {label} | {c['route']} | {c['policy']} | 0 | - | - | - | - | - | - |"
            continue
        p = at_knee(c)
        lost = ", ".join(f"{k} {100 * v['lost_share']:.2f} %" for k, v in p["fallbacks"].items()
                         if v["lost_share"] > 0) if c["route"] == "fused" else "-"
        over = c["best"] / serial[c["policy"]] if serial[c["policy"]] > 0 else 0
        yield (f"| {label} | {c['route']} | {c['policy']} | {c['best']:.3f} | {over:.3f} | {p['bound']:.3f} | "
               f"{c['best'] / fixed if fixed else 0:.3f} | {100 * p['serial_share']:.1f} % | {p['ttft_ms']['p50']:.0f} | "
               f"{lost or 'none'} |")


def sitting_of(found, trace, gap):
    """What is worth a real run: fused, serial and streams under the promise, serial under the two chunks that
    the simulator ranks best, fused under the best."""
    best = {(c["route"], c["policy"]): c["best"] for c in found["curves"]}
    fixed = sorted({p for _, p in best if p.startswith("static")}, key=lambda p: -best["serial", p])
    cells = ["fused/quantile", "serial/quantile"] + [f"serial/{p}" for p in fixed[:1]]
    if trace == "arxiv_sample":
        cells += ["streams/quantile"] + [f"fused/{p}" for p in fixed[:1]] + [f"serial/{p}" for p in fixed[1:2]]
    knee = next(c for c in found["curves"] if (c["route"], c["policy"]) == ("fused", "quantile"))
    points, rates = sorted(knee["points"], key=lambda p: p["rate"]), []
    for share in SHARES if trace == "arxiv_sample" else SHARES[:2]:
        rate = share * knee["best"]
        near = min(points, key=lambda p: abs(p["rate"] - rate))
        running = rate * (near["e2e_ms"]["p50"] - near["ttft_ms"]["p50"]) / 1000 * 1.3  # the mean is above the median
        rates.append([round(rate, 4), max(1, min(200, round(running)))])
    return {"trace": trace, "gap_ms": gap, "cells": cells, "rates": rates}


def simulate(args):
    os.makedirs(args.out, exist_ok=True)
    table = ["| model, trace, gap | path | policy | requests/s | over serial | its bound | over serial's best static | "
             "attention of serial | TTFT p50 ms | lost to fallbacks |", "|---|---|---|--:|--:|--:|--:|--:|--:|---|"]
    sitting = []
    for name in args.models.split(","):
        name = name.replace("+", ",")
        profile = os.path.join(args.out, f"h200_model_{name.replace(',', '_')}.json")
        with open(profile, "w", encoding="utf-8") as f:
            json.dump(model.profile(*(name.split(",")[0], ",fp8" in name)), f)
        for trace in args.only.split(","):
            for gap in GAPS:
                found = plan(args, profile, MODELS[name], trace, gap, "--policies", args.policies)
                base = os.path.join(args.out, f"{name.replace(',', '_')}_{trace}_{gap}")
                table += rows_of(found, f"{name}, {trace}, {gap} ms")
                knee = next(c["best"] for c in found["curves"] if (c["route"], c["policy"]) == ("fused", "quantile"))
                if name == "llama-3-8b" and knee > 0:
                    sitting.append(sitting_of(found, trace, gap))
                if knee > 0:
                    rates = ",".join(f"{x * knee:.4f}" for x in sorted((0.5, *SHARES, 1.2)))
                    drawn = plan(args, profile, MODELS[name], trace, gap, "--policies", args.policies, "--rates",
                                 rates)
                    with open(base + ".plan", "w", encoding="utf-8") as f:
                        json.dump(drawn, f)
                    ctl(args.bin, "bench", "merge", "--out", base, "--plan", base + ".plan")
                with open(os.path.join(args.out, "table.md"), "w", encoding="utf-8") as f:
                    f.write("\n".join(table) + "\n")
                print(table[-len(found["curves"])], flush=True)
    order = sorted(sitting, key=lambda s: (list(TRACES).index(s["trace"]), -s["gap_ms"]))
    with open(os.path.join(args.out, "sitting.json"), "w", encoding="utf-8") as f:
        json.dump(order, f, indent=1)
    return 0


# --- measured ---------------------------------------------------------------------

def loopback_up():
    """In a network namespace of its own, on a host without ip(8): SIOCSIFFLAGS, IFF_UP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1))


def sit(args):
    os.makedirs(args.out, exist_ok=True)
    loopback_up()
    end = time.monotonic() + args.seconds
    with open(args.plan, encoding="utf-8") as f:
        entries = json.load(f)
    left = 0
    for e in entries:
        base = os.path.join(args.out, f"{e['trace']}_{e['gap_ms']}")
        have = 0
        if os.path.exists(base + ".json"):
            with open(base + ".json", encoding="utf-8") as f:
                have = sum("simulated" not in c for c in json.load(f)["cells"])
        want = len(e["cells"]) * len(e["rates"])
        room = end - time.monotonic() - args.start
        if have == want:
            continue
        if room < 1.2 * args.window:
            left += want - have
            continue
        settings = {"api.warm_start": 1, "sched.gap_ms": e["gap_ms"], "sched.ttft_ms": TTFT_MS, "exec.huge_plans": 0,
                    **dict(x.split("=", 1) for x in args.set)}
        with Appliance(args.bin, settings) as a:
            words = ["bench", "serve", "--out", base, "--trace", trace_of(args.traces, e["trace"]), "--door", args.door,
                     "--window", args.window, "--cells", ",".join(e["cells"]),
                     "--rates", ",".join(f"{r}@{n}" for r, n in e["rates"]), "--gap-ms", e["gap_ms"],
                     "--ttft-ms", TTFT_MS, "--requests", 100000, "--seconds", int(room), *SPREAD.get(e["trace"], []), *args.word]
            if args.door == "h3":
                words += ["--insecure"]
            p = subprocess.run([os.path.join(args.bin, "tandemctl"), *map(str, words)], check=False,
                               env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]}, timeout=room + 300)
            if p.returncode != 0:
                return 1
        with open(base + ".json", encoding="utf-8") as f:
            left += want - len(json.load(f)["cells"])
    print(f"{left} windows are left")
    return 0


def merge(args):
    os.makedirs(args.out, exist_ok=True)
    names = sorted({os.path.basename(f) for d in args.sitting for f in glob.glob(os.path.join(d, "*.json"))})
    for name in names:
        files = [f for f in (os.path.join(d, name) for d in args.sitting) if os.path.exists(f)]
        print(ctl(args.bin, "bench", "merge", "--out", os.path.join(args.out, name[:-5]), *files), end="")
    return 0


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="what", required=True)
    s = sub.add_parser("simulate")
    s.add_argument("bin")
    s.add_argument("out")
    s.add_argument("traces")
    s.add_argument("--models", default=",".join(m.replace(",", "+") for m in MODELS))
    s.add_argument("--only", default=",".join(TRACES))
    s.add_argument("--requests", type=int, default=1000)
    s.add_argument("--policies", default=",".join(POLICIES))
    s = sub.add_parser("sit")
    for word in ("bin", "out", "traces", "plan"):
        s.add_argument(word)
    s.add_argument("--seconds", type=float, required=True)
    s.add_argument("--window", type=int, default=75)
    s.add_argument("--start", type=float, default=15, help="seconds that an appliance takes to start and end")
    s.add_argument("--door", choices=["http1", "h3"], default="http1")
    s.add_argument("--set", action="append", default=[])
    s.add_argument("--word", action="append", default=[], help="one more word for tandemctl bench serve")
    s = sub.add_parser("merge")
    s.add_argument("bin")
    s.add_argument("out")
    s.add_argument("sitting", nargs="+")
    args = p.parse_args()
    return {"simulate": simulate, "sit": sit, "merge": merge}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
