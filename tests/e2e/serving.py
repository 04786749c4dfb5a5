#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sitting on a host of two GPUs (tests/perf/serving), rehearsed on the CPU backend with windows of two seconds.

usage: serving.py BIN_DIR     as root, with /dev/net/tun, or exit 77; a minute

Packed, run by two commands that one life of the appliance outlasts, taken back, planned again and told; counts alone."""
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVING = os.path.join(ROOT, "tests", "perf", "serving", "run.py")
NAMES = ["arxiv_sample_60", "arxiv_sample_30"]  # of the first lane, and of the second
OLD = "0" * 16
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*uuid*) printf 'GPU-1\\nGPU-2\\n' ;;
*) for i in 0 1; do echo "$i, NVIDIA H200, 580.1, 345 MHz, 3201 MHz, 75.00 W, 700.00 W, 4 MiB"; done ;;
esac
"""


def done(*words):
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=400, check=False)
    assert r.returncode == 0, (words, r.stdout, r.stderr)
    return r.stdout


def load(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return json.load(f)


def windows(*path):
    """Of each lane, or of each entry of an engine."""
    files = [os.path.join(*path, f"lane{k}" if path[-1] in ("one", "two") else "", n + ".json") for k, n in enumerate(NAMES)]
    return [[(c["path"], c["policy"], c["rate"]) for c in load(f)["cells"]] for f in files]


def packed(d, bin_dir):
    """A folder for a small model, which is planned as if it were a large one on a fast machine."""
    rng = random.Random(7)
    os.mkdir(f"{d}/traces")
    with open(f"{d}/traces/arxiv_sample.csv", "w", encoding="ascii") as f:
        f.write("num_prefill_tokens,num_decode_tokens\n")
        f.writelines(f"{rng.randint(400, 3600)},{rng.randint(20, 160)}\n" for _ in range(500))
    done(sys.executable, "-B", os.path.join(os.path.dirname(SERVING), "model.py"), "llama-3-8b", f"{d}/profile.json")
    settings = ["model.path=dummy:tiny", "sched.profile=", "exec.backend=cpu", "exec.sms=2", "tile.poll=adaptive", "sched.sequences=64"]
    said = done(sys.executable, "-B", SERVING, "pack", os.path.dirname(bin_dir), f"{d}/folder", f"{d}/traces", "--profile",
                f"{d}/profile.json", "--kv-pages", 1200, "--window", 2, "--only", ",".join(NAMES),
                *(x for s in settings for x in ("--set", s)))
    plan = load(d, "folder", "sitting.json")
    assert plan["is_model"] and plan["lanes"]["1"][0][0] == [NAMES[0], "fused/quantile", "next"], plan
    assert [lane[0][0] for lane in plan["lanes"]["2"]] == NAMES, plan
    assert said.count("0 windows seen") == 2 and os.path.getsize(f"{d}/folder.tar.gz") < 40 << 20, said


def ran(d, out, seconds, *words):
    """One command on the host: what it said, within its seconds."""
    begin = time.monotonic()
    said = done(f"{d}/host/folder/run", f"{d}/{out}", "--seconds", seconds, *words)
    assert time.monotonic() - begin < seconds, said
    for k in range(2):
        with tarfile.open(f"{d}/{out}/lane{k}.tar.gz") as tar:
            tar.extractall(f"{d}/{out}")
    return said


def main():
    bin_dir = os.path.realpath(sys.argv[1])
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        return 77
    with tempfile.TemporaryDirectory() as d:
        packed(d, bin_dir)
        with tarfile.open(f"{d}/folder.tar.gz") as tar:
            tar.extractall(f"{d}/host")
        with open(f"{d}/nvidia-smi", "w", encoding="ascii") as f:
            f.write(NVIDIA_SMI)
        os.chmod(f.name, 0o755)
        os.environ["PATH"] = d + ":" + os.environ["PATH"]
        said = ran(d, "one", 16, "--whole", 30)
        assert "lanes go on" in said, said
        first = windows(d, "one")
        said = ran(d, "two", 40)
        assert "lanes are through" in said, said
        second = windows(d, "two")
        cnt = sum(map(len, second))
        for a, b in zip(first, second):
            assert a and set(a) < set(b) and len(set(b)) == len(b), (first, second)
        for k in range(2):
            with open(f"{d}/two/lane{k}/log", encoding="utf-8") as f:
                log = f.read()
            assert log.count("ready after") == 1 and "rc 1" not in log, log

        finish = [sys.executable, "-B", SERVING, "finish", f"{d}/folder", f"{d}/results"]
        done(*finish, *(f"{d}/{out}/lane{k}.tar.gz" for out in ("two", "one") for k in range(2)))
        engine = load(d, "folder", "sitting.json")["engine"]
        assert list(map(sorted, windows(d, "results", engine))) == list(map(sorted, second))
        under = [c["under"] for n in NAMES for c in load(d, "results", engine, n + ".json")["cells"]]
        assert {u["engine"] for u in under} == {engine} and len({u["card"] for u in under}) == 2, under
        seen = load(d, "folder", "sitting.json")["seen"]
        assert [sum(map(len, seen[n].values())) for n in NAMES] == list(map(len, second)), (seen, second)
        with open(f"{d}/results/{engine}/iterations.jsonl", encoding="utf-8") as f:
            assert len(f.readlines()) == cnt

        # An engine before this one: its windows stand beside, and in no figure; they only say where to look first.
        made = load(d, "results", "made.json")
        with open(f"{d}/results/made.json", "w", encoding="utf-8") as f:
            json.dump({OLD: {**made[engine], "date": "2020-02-02"}, **made}, f)
        bench = load(d, "results", engine, NAMES[0] + ".json")
        bench["cells"] = [{**bench["cells"][0], "rate": 0.5, "kept": True, "missed": "", "under": {"engine": OLD}}]
        os.mkdir(f"{d}/results/{OLD}")
        with open(f"{d}/results/{OLD}/{NAMES[0]}.json", "w", encoding="utf-8") as f:
            json.dump(bench, f)
        done(*finish)
        with open(f"{d}/results.md", encoding="utf-8") as f:
            page = f.read()
        assert f"| A | {OLD} | 1 | 2020-02-02" in page and f"| B1 | {engine} |" in page and f"| B2 | {engine} |" in page, page
        assert f"Of engine B ({engine}), {len(second[0])} windows; 1 of A stand in the table alone." in page, page
        assert f"Of engine B ({engine}), {len(second[1])} windows." in page, page
        rows = [line for line in page.splitlines() if "| 0.500 |" in line]
        assert len(rows) == 1 and "| A |" in rows[0], rows
        plan = load(d, "folder", "sitting.json")
        assert sum(map(len, plan["seen"][NAMES[0]].values())) == len(second[0]), (plan["seen"], second)
        assert plan["hints"] == {NAMES[0]: {"fused/quantile": [[0.5, True]]}, NAMES[1]: {}}, plan["hints"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
