#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that the results of the attention kernels come from, in one go,
on a machine with a GPU.

usage: run.py BUILD OUT [--steps named,grid,...] [--peers DIR] [--variant N]

BUILD is a build folder (it holds perf_attention, perf_attention_nolog and
perf_planner), OUT gets attention.jsonl, attention.md and ledger.jsonl.

  named     points that peers were measured on, the paper's three, its pair
  grid      3 models x 3 chunks x 4 contexts x 4 decode batches
  small     little work: 36 points of few tokens and short contexts
  ablate    ten points by every way of ways.h
  steady    eight points, serial and fused, two seconds each, with energy
  overhead  the 31 points with and without the log of spans, in turns
  planner   the planner's time on this host
  ncu       three points under Nsight Compute, where it is
  peers     peers.py on the named points, in the same call
  hopper    the Hopper kernels; its rows go to attention_hopper.jsonl, .md and
            ledger.  Parts by --hopper: points (the 31 that every peer was
            measured on; with --sweep "--sweep 3" each share and cut of them),
            grid (with little work; what seems slower than serial again), load
            (seconds of it, with energy, and between a layer's products), wide
            (many query heads of a KV head), ncu

--peers DIR: a folder of wheels (pip download flashinfer-python and what it
needs).  Folders in it are put on the path as they are: a
flashinfer_jit_cache package there saves its compiling.
"""
import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = ["named", "grid", "small", "ablate", "steady", "overhead", "planner", "ncu", "peers"]
ALL = STEPS + ["hopper"]

# What is asked of ncu: the table's name, the rollup, and metrics of which the
# first that this GPU has is taken.
METRICS = [
    ("waves", "", ["launch__waves_per_multiprocessor"]),
    ("warps_active_pct", ".avg.pct_of_peak_sustained_active", ["sm__warps_active"]),
    ("tensor_pipe_pct", ".avg.pct_of_peak_sustained_active",
     ["sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor",
      "sm__pipe_tensor_op_hmma_cycles_active"]),
    ("dram_pct", ".avg.pct_of_peak_sustained_elapsed", ["dram__throughput"]),
    ("shared_pct", ".avg.pct_of_peak_sustained_elapsed",
     ["l1tex__data_pipe_lsu_wavefronts_mem_shared", "l1tex__data_pipe_lsu_wavefronts"]),
    ("l2_hit_pct", ".pct", ["lts__t_sector_hit_rate"]),
]


def find(build, name):
    for base, _, files in os.walk(build):
        if name in files and os.access(os.path.join(base, name), os.X_OK):
            return os.path.join(base, name)
    print(f"{name} is not in {build}", flush=True)
    return None


def output(*cmd):
    try:
        return subprocess.run(cmd, capture_output=True, text=True, timeout=120, check=False).stdout
    except OSError:
        return ""


def image_hash(program, variant):
    """Of the machine code of the kernels that are measured, by function."""
    kernel = "hop_kernel" if variant == "3" else "pod_kernel"
    sass, name = {}, None
    for line in output("cuobjdump", "-sass", program).splitlines():
        got = re.match(r"\s*Function : (\S+)", line)
        if got:
            name = got.group(1)
        elif name and "/*" in line and kernel in name:
            if "nv_bfloat16" in name and "Li128E" in name:
                sass.setdefault(name, hashlib.sha256()).update(line.strip().encode())
    text = "".join(f"{n} {h.hexdigest()}\n" for n, h in sorted(sass.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if sass else "unknown"


def run_row(program, args, variant):
    smi = output("nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm,"
                 "temperature.gpu", "--format=csv,noheader").strip().split(", ")
    git = output("git", "-C", HERE, "rev-parse", "--short", "HEAD").strip()
    return {"row": "run", "date": datetime.date.today().isoformat(), "commit": args.commit or git,
            "image": image_hash(program, variant), "gpu": smi}


class Out:
    """The rows, as they come; a step that fails is a row too."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def put(self, *rows):
        for r in rows:
            self.file.write(json.dumps(r) + "\n")
        self.file.flush()

    def lines(self, path):
        with open(path, encoding="utf-8") as f:
            self.put(*(json.loads(x) for x in f))

    def program(self, step, limit, *cmd, env=None, stdout=None):
        begin = time.time()
        try:
            p = subprocess.run(cmd, timeout=limit, text=True, env=env, check=False,
                               stdout=stdout or subprocess.PIPE, stderr=subprocess.STDOUT
                               if not stdout else None)
            code, text = p.returncode, p.stdout or ""
        except subprocess.TimeoutExpired as e:
            code, text = 124, str(e.stdout or "")
        took = round(time.time() - begin, 1)
        self.put({"row": "step", "step": step, "code": code, "seconds": took})
        print(f"{step}: {code}, {took} s", *(text.splitlines()[-3:] if code else []), sep="\n  ",
              flush=True)
        return text


def measure(out, tmp, step, limit, program, *options):
    path = os.path.join(tmp, step + ".jsonl")
    out.program(step, limit, program, *options, "--out", path)
    if os.path.exists(path):
        out.lines(path)


def overhead(out, tmp, program, nolog):
    """With, without, without, with: the fused way on the 31 points."""
    for i, name in enumerate(("log", "nolog", "nolog", "log")):
        path = os.path.join(tmp, f"{name}{i}.jsonl")
        out.program(f"overhead {name} {i}", 60, program if name == "log" else nolog, "--set", "peers",
                    "--ways", "fused", "--rounds", "3:3", "--pool", "20", "--out", path)
        for r in (json.loads(x) for x in open(path, encoding="utf-8")):
            if r["row"] == "point":
                out.put({**{k: r[k] for k in ("model", "ctx", "chunk", "batch")}, "row": "overhead",
                         "program": name, "turn": i, "fused": r["ways"]["fused"]["us"]})


def number(text):
    try:
        return float(text.replace(",", ""))
    except (AttributeError, ValueError):
        return None


def ncu_metrics():
    """{full name: table's name} of what this machine's ncu knows."""
    known = set(re.findall(r"^(\w+__\w+)", output("ncu", "--query-metrics"), re.M))
    got = {}
    for name, rollup, metrics in METRICS:
        for m in metrics:
            if m in known or m.startswith("launch__"):
                got[m + rollup] = name
                break
    return got


def ncu(out, program, variant):
    """Kernel replay for each launch, range replay for what two streams or two
    launches do together."""
    if not shutil.which("ncu"):
        out.put({"row": "step", "step": "ncu", "code": -1, "seconds": 0})
        return
    metrics = ncu_metrics()
    for mode, ways in (("kernel", "prefill,decode,fused"), ("range", "streams_dp,fused")):
        names = [m for m in metrics if mode == "kernel" or not m.startswith("launch__")]
        start = ["--profile-from-start", "off"] if mode == "kernel" else []  # a range is its own
        text = out.program("ncu " + mode, 60, "ncu", "--clock-control", "none", "--csv", "--page",
                           "raw", "--replay-mode", mode, *start, "--metrics", ",".join(names), program,
                           "--variant", variant, "--set", "ncu", "--ways", ways, "--profile", "--pool", "5")
        labels = re.findall(r"^profile (\S+) (\d+) (\d+) (\d+) (\S+)", text, re.M)
        table = [x for x in text.splitlines() if x.startswith('"')]
        if len(table) < 3:
            print(text[-1500:])
            continue
        cells = [re.findall(r'"([^"]*)"', x) for x in table]
        for label, row in zip(labels, cells[2:]):  # the second line holds units
            at = dict(zip(cells[0], row))
            got = {metrics[m]: number(at.get(m)) for m in names}
            out.put({"row": "ncu", "mode": mode, "model": label[0], "ctx": int(label[1]),
                     "chunk": int(label[2]), "batch": int(label[3]), "way": label[4],
                     **{k: v for k, v in got.items() if v is not None}})


def peers(out, tmp, folder, named):
    site = os.path.join(tmp, "site")
    wheels = [os.path.join(folder, x) for x in sorted(os.listdir(folder)) if x.endswith(".whl")]
    if wheels:
        out.program("peers install", 120, sys.executable, "-m", "pip", "install", "-q", "--no-index",
                    "--no-deps", "--no-compile", "--no-cache-dir", "--target", site, *wheels)
    env = dict(os.environ, PYTHONPATH=site + ":" + os.path.abspath(folder), PYTHONUNBUFFERED="1",
               FLASHINFER_CUDA_ARCH_LIST="9.0a", FLASHINFER_DISABLE_VERSION_CHECK="1")
    if os.path.isdir(os.path.join(folder, "flashinfer_jit_cache")):
        env["FLASHINFER_DISABLE_JIT"] = "1"  # what the cache lacks is missing, not compiled here
    path = os.path.join(tmp, "peers.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        out.program("peers", 240, sys.executable, os.path.join(HERE, "peers.py"), named, env=env,
                    stdout=f)
    out.lines(path)


def again(out, tmp, base, name, cnt):
    """The planner's choice on a set of points; where it seems slower than the
    halves one after the other, measured anew with many samples."""
    path = os.path.join(tmp, name + ".jsonl")
    fast = ["--ways", "serial,fused", "--rounds", "1:2", "--within", "0.02"]
    out.program("hopper " + name, 90, *base, name, *fast, "--out", path)
    points = [r for r in (json.loads(x) for x in open(path, encoding="utf-8")) if r["row"] == "point"]
    out.put(*points)
    for i, p in enumerate(points[:cnt]):
        us = {w: p["ways"][w]["us"] for w in ("serial", "fused")}
        if us[p["choice"]["way"]] > 1.005 * us["serial"]:
            measure(out, tmp, f"hopper {name} {i}", 30, *base, name, "--points", f"{i}:{i + 1}",
                    "--ways", "serial,fused", "--rounds", "10:10")


def hopper(args, tmp, program, parts):
    """Rows and tables of their own, beside those of the other steps."""
    name = os.path.join(args.out, "attention_hopper")
    out = Out(name + ".jsonl")
    out.put(run_row(program, args, "3"))
    base = [program, "--variant", "3", "--set"]
    one = ["--rounds", "1:1", "--pool", "10"]
    if "points" in parts:
        measure(out, tmp, "hopper", 120, *base, "peers", "--rounds", "2:3", *args.sweep.split(),
                "--ways", "prefill,decode,serial,streams_pd,streams_dp,fused")
    if "grid" in parts:
        again(out, tmp, base, "grid", 144)
        again(out, tmp, base, "small", 36)
    if "load" in parts:
        # Of the steady points the four of the issue of record, and the third of ncu's.
        for i, ways, layer in ((0, "serial,streams_dp,fused", "1.2"), (2, "serial,streams_dp,fused", "1.2"),
                               (4, "serial,streams_dp,fused", "1.2"), (5, "serial,streams_dp,fused", "0"),
                               (6, "serial,fused", "0")):
            measure(out, tmp, f"hopper load {i}", 40, *base, "steady", "--points", f"{i}:{i + 1}",
                    "--ways", ways, "--steady", "1.6", "--layer", layer, *one)
        measure(out, tmp, "hopper dependent", 30, *base, "steady", "--points", "0:1", "--ways",
                "serial,fused", "--steady", "1.6", "--layer", "1.2", "--knob", "dependent=1", *one)
    if "wide" in parts:
        for variant in ("2", "3"):
            path = os.path.join(tmp, "wide.jsonl")
            out.program("hopper wide " + variant, 30, program, "--variant", variant, "--set", "wide",
                        "--ways", "prefill,decode,serial,fused", "--rounds", "2:2", "--pool", "10",
                        "--out", path)
            rows = [json.loads(x) for x in open(path, encoding="utf-8")]
            out.put(*({**r, "set": "wide" + variant} for r in rows if r["row"] == "point"))
    if "ncu" in parts:
        ncu(out, program, "3")
    with open(name + ".md", "w", encoding="utf-8") as f:
        out.program("hopper report", 60, sys.executable, os.path.join(HERE, "hopper.py"),
                    name + ".jsonl", "--ledger", name + ".ledger", stdout=f)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("out")
    ap.add_argument("--steps", default=",".join(STEPS))
    ap.add_argument("--peers")
    ap.add_argument("--commit", default="")
    ap.add_argument("--variant", default="2")
    ap.add_argument("--hopper", default="points,grid,load,wide,ncu")
    ap.add_argument("--sweep", default="")
    args = ap.parse_args()
    steps = ALL if args.steps == "all" else args.steps.split(",")
    os.makedirs(args.out, exist_ok=True)
    program = find(args.build, "perf_attention")
    nolog, planner = find(args.build, "perf_attention_nolog"), find(args.build, "perf_planner")
    if not program:
        return 2
    if "hopper" in steps:
        with tempfile.TemporaryDirectory() as tmp:
            hopper(args, tmp, program, args.hopper.split(","))
        if steps == ["hopper"]:
            return 0
    out = Out(os.path.join(args.out, "attention.jsonl"))
    out.put(run_row(program, args, args.variant))
    with tempfile.TemporaryDirectory() as tmp:
        base = [program, "--variant", args.variant, "--set"]
        if "named" in steps:
            measure(out, tmp, "named", 90, *base, "named", "--rounds", "2:3")
        if "peers" in steps and args.peers:
            peers(out, tmp, args.peers, os.path.join(tmp, "named.jsonl"))
        if "grid" in steps:
            measure(out, tmp, "grid", 120, *base, "grid", "--rounds", "1:2", "--within", "0.02")
        if "small" in steps:
            measure(out, tmp, "small", 60, *base, "small", "--rounds", "1:2", "--within", "0.02",
                    "--pool", "10")
        if "ablate" in steps:
            measure(out, tmp, "ablate", 60, *base, "ablate", "--rounds", "1:1", "--pool", "10")
        if "steady" in steps:
            measure(out, tmp, "steady", 90, *base, "steady", "--rounds", "1:1", "--ways",
                    "serial,fused", "--pool", "10", "--steady", "2")
        if "overhead" in steps and nolog:
            overhead(out, tmp, program, nolog)
        if "planner" in steps and planner:
            path = os.path.join(tmp, "planner.jsonl")
            with open(path, "w", encoding="utf-8") as f:
                out.program("planner", 60, planner, stdout=f)
            out.lines(path)
        if "ncu" in steps:
            ncu(out, program, args.variant)
    with open(os.path.join(args.out, "attention.md"), "w", encoding="utf-8") as f:
        out.program("report", 60, sys.executable, os.path.join(HERE, "report.py"),
                    os.path.join(args.out, "attention.jsonl"), "--ledger",
                    os.path.join(args.out, "ledger.jsonl"), stdout=f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
