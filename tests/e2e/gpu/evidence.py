#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All that a GPU host has to show, in order of value, in sittings that may be cut.

usage: evidence.py BUNDLE OUT [--seconds S] [--parts a,b,...] [--before FILE] [--soak S]
                   [--rehearse] [--set key=value ...]
       evidence.py --self     shows, without a GPU, what cutting and going on come to

BUNDLE is a folder of deploy/bundle/make to which pack has added.  Each part is a command with a
limit of its own, in a network namespace and, where there are several GPUs, on one of them with its
share of the cores, so parts run side by side.  A part begins only if its limit still fits into
--seconds.  After each OUT/evidence.json says how it ended, with the end of what it printed, and
OUT/parts.tar.gz holds its files.  --before takes the evidence.json of an earlier sitting: what was
done with the same engine is not done again.  --rehearse: on the CPU backend, small, what needs no
GPU; for a tree's build folder as BUNDLE too."""
import argparse
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ARGS = None
HERE = os.path.dirname(os.path.abspath(__file__))
TAIL = 3000            # characters of a part's output that are kept in evidence.json
FILE_MAX = 4 << 20     # bytes of a file that goes into the archive
GRACE_S = 5


class Part:
    """A name, what it is worth its place for, its limit in seconds, its commands one after the other."""

    def __init__(self, name, limit_s, *commands):
        self.name, self.limit_s, self.commands = name, limit_s, commands


def settings(*more):
    """Of an appliance that serves Llama-3-8B's shape, or in a rehearsal what is at hand."""
    pairs = ["model.path=dummy:llama-3-8b", "exec.backend=cuda", "exec.huge_plans=0",
             "exec.kv_pages=6144", "port.no_huge=1", f"port.drivers={ARGS.bundle}/drivers",
             "api.context=4096", "sched.sequences=192", "sched.prefix_cache=0",
             "sched.prefill_tokens=1024", "tile.cpus={cpus}"]
    if ARGS.rehearse:
        pairs = ["sched.sequences=16"]
    return [x for pair in (*pairs, *more, *ARGS.set) for x in ("--set", pair)]


def parts():
    """In order of value."""
    b, tests = ARGS.bundle, HERE
    num = f"{b}/num/numerics_engine_cuda"
    fixed = () if ARGS.rehearse else ("exec.deterministic=1",)
    quick = ["--quick"] if ARGS.rehearse else []
    soak_s = ARGS.soak or (5 if ARGS.rehearse else 360)
    py = [sys.executable, "-u"]
    served = [*py, f"{tests}/served.py", f"{b}/bin", "{out}", *quick]
    faults = [*py, f"{tests}/faults.py", f"{b}/bin", "faults_lose_no_token"]
    if not ARGS.rehearse:
        faults += ["--kills", "20", "--traps", "5", "--hangs", "1", "--apart", "0.9", "--streams",
                   "16", "--tokens", "250", "--prompt", "200", "--checked", "12"]
    watched = [*py, f"{tests}/watched.py" if os.path.exists(f"{tests}/watched.py") else
               os.path.join(tests, "../../perf/telemetry/watched.py"), f"{b}/bin"]
    streams = "4" if ARGS.rehearse else "32"
    own = [
        Part("served", 90 if ARGS.rehearse else 200,
             [*served, "--parts", "start,batch" if ARGS.rehearse else "start,batch,hybrid,trace",
              *settings()]),
        Part("faults", 120 if ARGS.rehearse else 240, [*faults, *settings("port.kind=none", *fixed)]),
        # Half a minute of pairs a kind, then twelve lives of 4 s that start and end in 6 s.
        Part("watched", 60 if ARGS.rehearse else 280,
             [*watched, "4" if ARGS.rehearse else "60", "--streams", streams, "--json",
              "{out}/spans.json", *settings("port.kind=none")],
             [*watched, "--lives", "2" if ARGS.rehearse else "6", "--seconds",
              "1" if ARGS.rehearse else "4", "--streams", streams, "--json", "{out}/lives.json",
              *settings("port.kind=none")]),
        Part("sandbox", 60, [*py, f"{tests}/sandbox.py", f"{b}/bin", *settings("port.kind=none", *fixed)]),
        Part("soak", soak_s + (90 if ARGS.rehearse else 130),
             [*served, "--parts", "soak", "--seconds", str(soak_s), *settings(*fixed)]),
    ]
    if ARGS.rehearse:
        return own
    return [
        Part("numerics", 240, ["sh", f"{b}/num/run_on_gpu", f"{b}/num", "{out}"]),
        Part("attention", 320, ["sh", f"{b}/num/attention/run_on_gpu", f"{b}/num/attention", "{out}", "10"]),
        Part("points", 280, [*py, f"{tests}/attention/run.py", f"{b}/num/attention", "{out}", "--steps", "hopper",
                             "--hopper", "points,grid", "--commit", read(f"{b}/commit", "unknown")]),
        # 10,000 launches in a row beside noise, with the GPU to themselves.
        Part("launches", 150, [f"{b}/num/attention/numerics_attention_cuda", "repeat", "2500", "2", "hopper"]),
        Part("speed", 120, [num, "speed", "llama-3-8b"]),
        *own[:2],
        # 16 cores need about a minute for the reference.
        Part("deep", 240, [num, "llama-ref", "{scratch}/deep", "32", "128256"],
             [num, "llama", "{scratch}/deep"]),
        *own[2:],
        # What is off by default until this has shown it, beside `served`.
        Part("served_all", 200, [*served, "--parts", "start,batch,hybrid,trace",
                                 *settings("exec.graphs=all", "exec.resident=1")]),
        # One call, one card: what each setting is worth.
        Part("speed_ways", 240, [num, "speed", "llama-3-8b", "shipped", "ahead=off", "graphs=all",
                                 "graphs=all,resident=1"]),
        # KV pages for what weights and work leave of 139 GiB.
        *(Part(f"profile_{name}", 290, [
            f"{b}/bin/tandemctl", "profile", "--out", "{out}/" + name, "--budget", "240",
            "--power-w", power_w(),
            "--set", f"model.path=dummy:{name}@131072", "--set", "exec.backend=cuda", "--set", f"exec.kv_pages={pages}",
            "--set", "exec.huge_plans=0", "--set", "api.context=131072", "--set", "sched.sequences=255",
            "--set", "sched.prefill_tokens=2048"])
          for name, pages in (("llama-3-8b", 13000), ("llama-2-7b", 3200), ("yi-6b", 26000))),
        Part("speed_fixed", 150, [num, "speed", "llama-3-8b", "deterministic=1"]),
        Part("layer", 150, [*py, f"{tests}/layer.py", num]),
    ]


# --- one part ----------------------------------------------------------------


def enter_namespace():
    """A network of its own, its loopback up; in the child, before it becomes the command."""
    os.setsid()
    if ctypes.CDLL(None).unshare(0x40000000):  # CLONE_NEWNET
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sH14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(s, 0x8914, request)             # SIOCSIFFLAGS


def run_command(command, env, cpus, log, end):
    """rc, or None where it was cut."""
    def prepare():
        enter_namespace()
        os.sched_setaffinity(0, cpus)
    p = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, preexec_fn=prepare)
    try:
        return p.wait(max(1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGTERM)
        try:
            p.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        return None
    finally:
        try:
            os.killpg(p.pid, signal.SIGKILL)  # what it left behind
        except ProcessLookupError:
            pass
        p.wait()


def run_part(part, gpu, cpus):
    out = os.path.join(ARGS.out, part.name)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(
        x for x in (f"{ARGS.bundle}/lib", os.environ.get("LD_LIBRARY_PATH")) if x)}
    if gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    order = sorted(cpus)
    tiles = f"{order[1]}-{order[3]}" if len(order) >= 8 else ""
    begin = time.monotonic()
    end, rc = begin + part.limit_s, 0
    with tempfile.TemporaryDirectory() as scratch, \
            open(os.path.join(out, "output"), "wb") as log:
        for command in part.commands:
            words = [w.replace("{out}", out).replace("{scratch}", scratch).replace("{cpus}", tiles)
                     for w in command]
            rc = run_command(words, env, cpus, log, end)
            if rc != 0:
                break
    with open(os.path.join(out, "output"), encoding="utf-8", errors="replace") as f:
        tail = f.read()[-TAIL:]
    return {"rc": rc, "is_cut": rc is None, "took_s": round(time.monotonic() - begin, 1),
            "limit_s": part.limit_s, "gpu": gpu, "at": stamp(), "engine": engine(), "tail": tail}


# --- the sitting ----------------------------------------------------------------


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read(path, default):
    if not os.path.exists(path):
        return default
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def engine():
    """What a row stays valid for: the hash of the executor."""
    path = f"{ARGS.bundle}/bin/tandem-exec"
    if not os.path.exists(path):
        return "none"
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def power_w():
    """The power cap of the first GPU, in watts; the others of a host are alike."""
    described = gpus()[1]
    return str(round(float(described[0].split(",")[6].split()[0]))) if described else "0"


def gpus():
    """Numbers of the GPUs, and how nvidia-smi describes them."""
    fields = "index,name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,memory.used"
    try:
        r = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                           capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return [], []
    lines = r.stdout.strip().splitlines()
    return [int(x.split(",")[0]) for x in lines], lines


class Sitting:
    """Parts that are left, and what became of the others."""

    def __init__(self, queue, before):
        self.lock, self.queue = threading.Lock(), []
        self.end = time.monotonic() + ARGS.seconds
        found, described = gpus()
        self.found = [] if ARGS.rehearse else found
        self.state = {"commit": read(f"{ARGS.bundle}/commit", "unknown"), "engine": engine(),
                      "began": stamp(), "cores": len(os.sched_getaffinity(0)),
                      "kernel": os.uname().release, "gpus_before": described, "parts": {}}
        for part in queue:
            old = before.get(part.name)
            if old and old["rc"] == 0 and old["engine"] == self.state["engine"]:
                self.state["parts"][part.name] = old
            else:
                self.queue.append(part)

    def take(self):
        """The most valuable part that still fits, or None."""
        with self.lock:
            left = self.end - time.monotonic() - GRACE_S
            for part in self.queue:
                if part.limit_s <= left:
                    self.queue.remove(part)
                    return part
        return None

    def told(self, part, row):
        with self.lock:
            self.state["parts"][part.name] = row
            self.write()
        end = "cut" if row["is_cut"] else f"rc {row['rc']}"
        print(f"{part.name}: {end} after {row['took_s']} s of {part.limit_s}", flush=True)
        print("  " + row["tail"][-600:].replace("\n", "\n  "), flush=True)

    def write(self):
        self.state["left"] = [p.name for p in self.queue]
        self.state["gpus_after"] = gpus()[1]
        path = os.path.join(ARGS.out, "evidence.json")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.state, f, indent=1)
        os.replace(path + ".new", path)
        with tarfile.open(os.path.join(ARGS.out, "parts.tar.gz"), "w:gz", compresslevel=3) as tar:
            for name in self.state["parts"]:
                for folder, _, files in os.walk(os.path.join(ARGS.out, name)):
                    for f in files:
                        full = os.path.join(folder, f)
                        if os.path.isfile(full) and os.path.getsize(full) <= FILE_MAX:
                            tar.add(full, os.path.relpath(full, ARGS.out))

    def work(self, gpu, cpus):
        while (part := self.take()) is not None:
            self.told(part, run_part(part, gpu, cpus))

    def run(self):
        """One worker a GPU, each with its share of the cores."""
        print(f"commit {self.state['commit']}, engine {self.state['engine']}, {self.state['began']}, "
              f"{self.state['cores']} cores, {self.state['kernel']}", flush=True)
        for line in self.state["gpus_before"]:
            print("GPU " + line, flush=True)
        cores, cnt = sorted(os.sched_getaffinity(0)), max(1, len(self.found))
        share = len(cores) // cnt
        self.write()
        workers = [threading.Thread(target=self.work, args=(
            self.found[i] if self.found else None, set(cores[i * share:(i + 1) * share])))
            for i in range(cnt)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.write()
        print("left: " + (" ".join(p.name for p in self.queue) or "nothing"), flush=True)
        rows = self.state["parts"].values()
        return 1 if self.queue or any(row["rc"] != 0 for row in rows) else 0


# --- shown without a GPU ------------------------------------------------------------


def sitting(queue, seconds, before=None, found=()):
    ARGS.seconds = seconds
    s = Sitting(queue, before or {})
    s.found = list(found)
    return s.run(), s.state


def self_test():
    global ARGS
    sh = ["sh", "-c"]
    with tempfile.TemporaryDirectory() as folder:
        ARGS = argparse.Namespace(bundle=os.path.join(folder, "bundle"), rehearse=False,
                                  out=os.path.join(folder, "out"), seconds=0)
        os.makedirs(ARGS.bundle + "/bin")
        os.makedirs(ARGS.out)
        mark = os.path.join(folder, "mark")
        queue = [Part("good", 5, [*sh, "echo figure; echo more >{out}/file"]),
                 Part("bad", 5, [*sh, "echo why; exit 3"], [*sh, f"touch {mark}"]),
                 Part("slow", 2, [*sh, "echo begun; sleep 60"]),
                 Part("orphan", 5, [*sh, f"(sleep 2; touch {mark}) & true"]),
                 Part("long", 1000, [*sh, "true"])]
        rc, first = sitting(queue, 60)
        row = first["parts"]
        assert rc == 1 and first["left"] == ["long"], first
        assert row["good"]["rc"] == 0 and row["good"]["tail"] == "figure\n", row
        assert row["bad"]["rc"] == 3 and row["bad"]["tail"] == "why\n", row
        assert row["slow"]["is_cut"] and row["slow"]["tail"] == "begun\n", row
        assert row["slow"]["took_s"] < 10, row
        time.sleep(2.5)
        assert not os.path.exists(mark), "a command after a failed one, or an orphan, ran on"
        with open(ARGS.out + "/evidence.json", encoding="utf-8") as f:
            kept = json.load(f)["parts"]
        with tarfile.open(ARGS.out + "/parts.tar.gz") as tar:
            assert {"good/file", "good/output", "slow/output"} <= set(tar.getnames())
        # The next sitting does what is left, and again what failed or was cut.
        rc, then = sitting(queue, 2000, kept)
        assert then["parts"]["good"] == kept["good"] and then["parts"]["long"]["rc"] == 0, then
        assert then["parts"]["slow"]["is_cut"] and then["left"] == [], then
        # Another engine has shown nothing yet.
        with open(ARGS.bundle + "/bin/tandem-exec", "wb") as f:
            f.write(b"another")
        rc, other = sitting(queue[:1], 60, kept)
        assert rc == 0 and other["parts"]["good"]["engine"] != kept["good"]["engine"]
        # Two GPUs: side by side, each alone with its GPU, namespace and cores.
        tell = "echo $CUDA_VISIBLE_DEVICES; readlink /proc/self/ns/net; sleep 2"
        begin = time.monotonic()
        rc, two = sitting([Part(n, 20, [*sh, tell]) for n in ("a", "b")], 60, found=(0, 1))
        said = [two["parts"][n]["tail"].split() for n in ("a", "b")]
        assert rc == 0 and {x[0] for x in said} == {"0", "1"}, said
        assert time.monotonic() - begin < 3.9, "one after the other"
        if os.geteuid() == 0:
            assert said[0][1] != said[1][1] != os.readlink("/proc/self/ns/net"), said
    print("evidence: cut, went on, side by side")


def main():
    global ARGS
    if sys.argv[1:] == ["--self"]:
        return self_test()
    p = argparse.ArgumentParser()
    p.add_argument("bundle")
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=580)
    p.add_argument("--parts", default="")
    p.add_argument("--before", default="")
    p.add_argument("--soak", type=int, default=0)
    p.add_argument("--rehearse", action="store_true")
    p.add_argument("--set", action="append", default=[])
    ARGS = p.parse_args()
    ARGS.bundle, ARGS.out = os.path.abspath(ARGS.bundle), os.path.abspath(ARGS.out)
    os.makedirs(ARGS.out, exist_ok=True)
    queue = parts()
    if ARGS.parts:
        by_name = {part.name: part for part in queue}
        queue = [by_name[name] for name in ARGS.parts.split(",")]
    before = json.loads(read(ARGS.before, "{}")).get("parts", {}) if ARGS.before else {}
    return Sitting(queue, before).run()


if __name__ == "__main__":
    sys.exit(main())
