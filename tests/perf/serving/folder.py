# SPDX-License-Identifier: Apache-2.0
"""The folder of a sitting: packed here, run on a GPU host, its archives taken back.

  FOLDER/run                    one command on the host
  FOLDER/sitting.json           the plan (sitting.py)
  FOLDER/profile.json, traces/  what it was made from
  FOLDER/bin, lib, drivers      of a bundle (deploy/bundle/make)
  FOLDER/tests/                 these programs
  FOLDER/work/                  on the host: laneK/ and laneK.tar.gz

  RESULTS.md                    the page
  RESULTS/ENGINE/NAME.json      windows (appliance/ctl/bench_file.h), of the executor with this hash
  RESULTS/ENGINE/iterations.jsonl
  RESULTS/made.json             {ENGINE: {"date", "device", "commit": of each sitting, "command"}}, the earliest first
  RESULTS/sitting.json          the plan that comes next

Engines are kept apart: a window shows what it shows of one engine, and a
comparison stands between windows of one."""
import argparse
import datetime
import fcntl
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import evidence
import report
import sitting

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER_MAX = 40 << 20  # bytes of its archive
LANE_S = 4  # of a lane, for the end of its appliance, which loses nothing where it is cut
END_S = 3  # of a command, for copying archives


def write_json(path, what):
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(what, f, indent=1 if os.path.basename(path) == "made.json" else None)
    os.replace(path + ".new", path)


# --- here, before -----------------------------------------------------------------------


def libraries(folder):
    """Programs of a bundle find what it brings, here and on the host."""
    path = [os.path.join(os.path.abspath(folder), "lib"), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, path))


def settings_of(args):
    """What the appliance serves with: the profile's model, on a GPU unless said otherwise."""
    name = report.load(args.profile)["model"]
    out = {"model.path": name, "exec.backend": "cuda", "exec.kv_pages": args.kv_pages, "sched.sequences": 255,
           "sched.prefill_tokens": 2048, "sched.profile": "{folder}/profile.json", "port.no_huge": 1, "tile.poll": "busy"}
    if "@" in name:
        out["api.context"] = name.rsplit("@", 1)[1]
    if os.path.isdir(os.path.join(args.bundle, "drivers")):
        out["port.drivers"] = "{folder}/drivers"
    return {**out, **dict(x.split("=", 1) for x in args.set)}


def plan(folder, results, was, only, asked):
    """FOLDER/sitting.json, by what its head is asked to be; was: the entries that RESULTS were measured by."""
    libraries(folder)
    want = argparse.Namespace(bin=os.path.join(folder, "bin"), traces=os.path.join(folder, "traces"), results=results,
                              engine=sitting.sum_of(os.path.join(folder, "bin", "tandem-exec")), was=was, only=only,
                              profile=os.path.join(folder, "profile.json"),
                              **{k: asked[k] for k in ("kv_pages", "window_s", "words", "door", "settings")})
    write_json(os.path.join(folder, "sitting.json"), sitting.make(want))


def archived(folder):
    """FOLDER.tar.gz, without what a host made."""
    out = folder.rstrip("/") + ".tar.gz"
    with tarfile.open(out, "w:gz") as tar:
        tar.add(folder, os.path.basename(folder.rstrip("/")),
                filter=lambda x: None if os.path.basename(x.name) in ("work", "__pycache__") else x)
    size = os.path.getsize(out)
    print(f"{out}: {size / 1e6:.1f} MB; there: {os.path.basename(folder.rstrip('/'))}/run OUT --seconds N", flush=True)
    assert size <= FOLDER_MAX, f"over {FOLDER_MAX} bytes"


def pack(args):
    folder = args.folder.rstrip("/")
    assert not os.path.exists(folder) or os.path.exists(os.path.join(folder, "sitting.json")), f"{folder} is another's"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("bin", "traces", "tests/serving"):
        os.makedirs(os.path.join(folder, name))
    for name in ("tandemd", "tandem-exec", "tandemctl"):
        shutil.copy2(os.path.join(args.bundle, "bin", name), os.path.join(folder, "bin", name))
    for name in filter(lambda x: os.path.exists(os.path.join(args.bundle, x)), ("lib", "drivers")):
        shutil.copytree(os.path.join(args.bundle, name), os.path.join(folder, name), symlinks=True)
    with open(os.path.join(folder, "commit"), "w", encoding="ascii") as f:
        f.write(evidence.read(os.path.join(args.bundle, "commit"), "unknown"))
    shutil.copy2(args.profile, os.path.join(folder, "profile.json"))
    for trace in {x.rsplit("_", 1)[0] for x in args.only.split(",")}:
        shutil.copy2(os.path.join(args.traces, sitting.TRACES[trace]), os.path.join(folder, "traces"))
    for path in glob.glob(os.path.join(HERE, "*.py")):
        shutil.copy2(path, os.path.join(folder, "tests", "serving"))
    for module in ("appliance", "evidence"):
        shutil.copy2(sys.modules[module].__file__, os.path.join(folder, "tests"))
    with open(os.path.join(folder, "run"), "w", encoding="ascii") as f:
        f.write('#!/bin/sh\nexec python3 -u "$(dirname "$0")/tests/serving/run.py" run "$(dirname "$0")" "$@"\n')
    os.chmod(f.name, 0o755)
    path = os.path.join(args.results, "sitting.json") if args.results else ""
    was = report.load(path)["entries"] if os.path.exists(path) else {}
    plan(folder, args.results, was, args.only.split(","),
         {"kv_pages": args.kv_pages, "window_s": args.window, "words": args.word, "door": args.door, "settings": settings_of(args)})
    archived(folder)
    return 0


# --- on the host ------------------------------------------------------------------------


def cards():
    """[(number, what it is, which it is)] of the GPUs."""
    numbers, described = evidence.gpus()
    try:
        r = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True,
                           timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    fields = [[x.strip() for x in line.split(",")] for line in described]
    return [(k, f"{f[1]}, {f[2]}, {float(f[6].split()[0]):.0f} W", hashlib.sha256(uuid.encode()).hexdigest()[:4])
            for k, f, uuid in zip(numbers, fields, r.stdout.split())]


def lane(args, cnt, k, card, end):
    """One lane to its end, with its GPU, its share of the cores and a network of its own."""
    work, cores = os.path.join(args.folder, "work"), sorted(os.sched_getaffinity(0))
    out, share = os.path.join(work, f"lane{k}"), len(cores) // cnt
    engine = report.load(os.path.join(args.folder, "sitting.json"))["engine"]
    number, device, which = card or (None, "no GPU", "none")
    write_json(os.path.join(out, "host.json"), {"engine": engine, "device": device, "date": datetime.date.today().isoformat(),
                                                "commit": evidence.read(os.path.join(args.folder, "commit"), "unknown")[:7]})
    words = ["--seconds", end - time.monotonic() - LANE_S, "--lanes", cnt, "--lane", k, "--note", f"engine={engine}",
             "--note", f"card={which}"]
    for other in glob.glob(os.path.join(work, "lane?")):
        words += ["--also", other] if other != out else []
    env = dict(os.environ) if number is None else {**os.environ, "CUDA_VISIBLE_DEVICES": str(number)}
    with open(os.path.join(out, "log"), "ab") as log:
        evidence.run_command([sys.executable, "-u", os.path.join(HERE, "run.py"), "sit", args.folder, out, *map(str, words)],
                             env, set(cores[k * share:(k + 1) * share]), log, end)


def lanes(args):
    """All lanes side by side, in a process of their own (run)."""
    found, end = cards(), time.monotonic() + args.seconds - 2
    libraries(args.folder)
    cnt = max([n for n in (1, 2, 4) if n <= len(found)], default=1)
    for k in range(cnt):
        os.makedirs(os.path.join(args.folder, "work", f"lane{k}"), exist_ok=True)
    threads = [threading.Thread(target=lane, args=(args, cnt, k, found[k] if found else None, end)) for k in range(cnt)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return 0


def held(f):
    """Do lanes run, each of which holds this file?"""
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def run(args):
    """Starts the lanes, or joins those that run; ends within --seconds, with the archives as they are then."""
    begin = time.monotonic()
    args.folder = os.path.abspath(args.folder)
    work = os.path.join(args.folder, "work")
    os.makedirs(work, exist_ok=True)
    os.makedirs(args.out, exist_ok=True)
    said = {}
    with open(os.path.join(work, "lock"), "w", encoding="ascii") as f:
        for path in glob.glob(os.path.join(work, "lane?", "log")):
            said[path] = os.path.getsize(path)
        if not held(f):
            whole = args.whole or args.seconds - END_S
            with open(os.path.join(work, "output"), "ab") as log:
                subprocess.Popen([sys.executable, "-u", os.path.join(HERE, "run.py"), "lanes", args.folder, "--seconds", str(whole)],
                                 start_new_session=True, pass_fds=[f.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    with open(os.path.join(work, "lock"), "r", encoding="ascii") as f:
        while (goes_on := held(f)) and time.monotonic() < begin + args.seconds - END_S:
            time.sleep(0.2)
    for path in sorted(glob.glob(os.path.join(work, "lane?", "log"))):
        with open(path, encoding="utf-8", errors="replace") as f:
            f.seek(said.get(path, 0))
            print(os.path.dirname(path) + ":\n" + f.read()[-6000:], flush=True)
    found = glob.glob(os.path.join(work, "lane?.tar.gz"))
    for path in found:
        shutil.copy2(path, args.out)
    print(f"{len(found)} archives; lanes " + ("go on: call again" if goes_on else "are through"), flush=True)
    return 0 if found else 1


# --- here, after ------------------------------------------------------------------------


def unpacked(path, into):
    """The folder of a lane's archive, which is files and folders alone."""
    with tarfile.open(path) as tar:
        for x in tar.getmembers():
            parts = x.name.split("/")
            assert (x.isfile() or x.isdir()) and ".." not in parts and parts[0], (path, x.name)
            tar.extract(x, into)
    return os.path.join(into, parts[0])


def file_windows(args, lane_dir, engine_dir):
    """A lane's windows beside what its engine measured before."""
    os.makedirs(engine_dir, exist_ok=True)
    for path in sorted(glob.glob(os.path.join(lane_dir, "*_*.json"))):
        name = os.path.basename(path)
        kept, base = os.path.join(engine_dir, name), os.path.join(lane_dir, "merged")
        bench = report.load(path)
        cells = ",".join(sorted({f"{c['path']}/{c['policy']}" for c in bench["cells"]}))
        there = [kept] if os.path.exists(kept) else []  # of one engine, whatever else of the build differs
        sys.stdout.write(sitting.ctl(os.path.join(args.folder, "bin"), "bench", "merge", "--out", base, "--keep", cells, *there, path))
        shutil.move(base + ".json", kept)
    kept, path = (os.path.join(x, "iterations.jsonl") for x in (engine_dir, lane_dir))
    if os.path.exists(path):
        there = evidence.read(kept, "").splitlines()
        with open(kept, "w", encoding="utf-8") as f:
            f.writelines(x + "\n" for x in dict.fromkeys([*there, *evidence.read(path, "").splitlines()]))


def finish(args):
    """Archives into RESULTS, the next plan, the page, the ledger."""
    libraries(args.folder)
    os.makedirs(args.results, exist_ok=True)
    made_path = os.path.join(args.results, "made.json")
    made = report.load(made_path) if os.path.exists(made_path) else {}
    for path in args.archive:
        with tempfile.TemporaryDirectory() as scratch:
            lane_dir = unpacked(path, scratch)
            host = report.load(os.path.join(lane_dir, "host.json"))
            file_windows(args, lane_dir, os.path.join(args.results, host["engine"]))
            before = made.get(host["engine"], {}).get("commit", "").split(", ")
            made[host["engine"]] = {**{k: host[k] for k in ("date", "device")},
                                    "commit": ", ".join(dict.fromkeys([*filter(None, before), host["commit"]])),
                                    "command": "tests/perf/serving/run.py pack, run and finish"}
            write_json(made_path, made)
    was = report.load(os.path.join(args.folder, "sitting.json"))
    plan(args.folder, args.results, was["entries"], list(was["entries"]), was)
    shutil.copy2(os.path.join(args.folder, "sitting.json"), args.results)
    archived(args.folder)
    return report.write(args)
