# SPDX-License-Identifier: Apache-2.0
"""A lane of a sitting: one appliance on one GPU, window by window (sitting.py).

A window of 75 s takes 76 with its warm start and what is cancelled at its end.
What costs more is a life of an appliance: its start, the windows before the
first of each attention path, which touch memory and kernels, and the rest of a
sitting that no window fits into.  So a lane has one life, and goes on with what
is left; another promise is a live key."""
import argparse
import glob
import json
import os
import subprocess
import tarfile
import tempfile
import time
import unittest.mock

import iterations
from appliance import Appliance
from sitting import SPREAD, TTFT_MS, guess, measured, trace_of

START_S = 15  # until an appliance serves
REST_S = 4  # around a window, and for the end of the appliance
NEAR = 0.03  # of a rate: a window so near serves for it
ARCHIVE_MAX = 16 << 20  # bytes
HANG_S = 120  # over a window's own time: a bench that takes longer hangs


def narrowed(have, cnt):
    """The next number to look at, of cnt, where have says which were kept: upwards one by one, as a rate counts as
    carried up to the first that is missed; half-way where those two are far apart."""
    bad = min((i for i, k in have.items() if not k), default=None)
    good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
    if good is None:
        return max(bad - 1, 0)
    if bad is None or bad - good <= 3:
        return min(good + 1, cnt - 1)
    return (good + bad) // 2


class Bench:
    """What OUT holds of the entries, and what was known before."""

    def __init__(self, out, sitting, also=()):
        self.folders, self.entries = [out, *also], sitting["entries"]
        self.seen, self.hints = sitting["seen"], sitting["hints"]

    def numbered(self, name, rows):
        """{number of the rate: kept} of rows [rate, kept]."""
        return {i: k for i, (r, _) in enumerate(self.entries[name]["rates"]) for x, k in rows if abs(x - r) < 1e-3 * r}

    def kept(self, name, cell):
        """Of the windows that are measured."""
        rows = list(self.seen.get(name, {}).get(cell, []))
        for folder in self.folders:
            rows += [[c["rate"], c["kept"]] for c in measured(folder, name, cell)]
        return self.numbered(name, rows)

    def guess(self, name, cell):
        """The highest rate that is kept, by the simulator as it was wrong about the like, or by another engine."""
        have = self.numbered(name, self.hints.get(name, {}).get(cell, []))
        bad = min((i for i, k in have.items() if not k), default=len(self.entries[name]["rates"]))
        said = guess(self.entries[name], cell) + self.shift(name, cell)
        return max([0, min(len(self.entries[name]["rates"]) - 1, said), *(i for i, k in have.items() if k and i < bad)])

    def shift(self, name, cell):
        """By how many rates the simulator was wrong about a cell's like, as far as that is known: its path, here or
        under another promise, or fused."""
        like, trace = cell.split("/")[0] + "/quantile", self.entries[name]["trace"]
        twins = [n for n, e in self.entries.items() if e["trace"] == trace and n != name]
        for n, c in [(name, like), *((n, like) for n in twins), (name, "fused/quantile")]:
            if self.kept(n, c):
                return self.shift_of(n, c)
        return 0

    def shift_of(self, name, cell):
        have, said = self.kept(name, cell), guess(self.entries[name], cell)
        bad = min((i for i, k in have.items() if not k), default=None)
        good = max((i for i, k in have.items() if k and (bad is None or i < bad)), default=None)
        if good is None:
            return min(0, bad - 1 - said) if bad is not None else 0
        return max(0, good - said) if bad is None else min(bad - 1, max(good, said)) - said

    def choose(self, name, cell, where):
        """The number of the rate that a step comes to; None: nothing is left to measure."""
        have, rates, here = self.kept(name, cell), self.entries[name]["rates"], self.guess(name, cell)
        if isinstance(where, float):
            at = min(range(len(rates)), key=lambda i: abs(rates[i][0] - where))
            at = -1 if any(abs(rates[i][0] / where - 1) < NEAR for i in have) else at
        elif where == "guess":
            at = -1 if have else here
        elif where == "next":
            at = narrowed(have, len(rates)) if have else here
        elif where == "rest":
            at = min((i for i in range(len(rates)) if i not in have), key=lambda i: abs(i - here), default=-1)
        else:
            other = self.kept(name, where[3:])
            bad = min((i for i, k in other.items() if not k), default=len(rates))
            at = max((i for i, k in other.items() if k and i < bad), default=min(other, default=-1))
        return at if 0 <= at < len(rates) and at not in have else None


def say(text):
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


def archive(out, size_max=ARCHIVE_MAX):
    """OUT.tar.gz, so that a cut loses the window that runs and no other; where it gets too large to be brought back,
    without the single iterations."""
    out = os.path.abspath(out)
    for left_out in ((), ("iterations",)):
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(out), delete=False) as f:
            with tarfile.open(fileobj=f, mode="w:gz") as tar:
                tar.add(out, os.path.basename(out), filter=lambda x, no=left_out: None if os.path.basename(x.name) in no else x)
        os.replace(f.name, out + ".tar.gz")
        if os.path.getsize(out + ".tar.gz") <= size_max:
            break


class Lane:
    """FOLDER (folder.py) on one GPU, into OUT."""

    def __init__(self, args, sitting):
        self.args, self.sitting = args, sitting
        self.bin, self.window_s = os.path.join(args.folder, "bin"), sitting["window_s"]
        self.bench = Bench(args.out, sitting, args.also)
        self.end = time.monotonic() + args.seconds
        self.seen = set()  # paths whose kernels have run
        cpus = sorted(os.sched_getaffinity(0))
        # tiles have three cores for themselves, the client has the last third
        self.tiles = cpus[1:4] if len(cpus) >= 12 else []
        self.client = cpus[2 * len(cpus) // 3:] if self.tiles else cpus
        self.server = [c for c in cpus if c not in self.tiles and c not in self.client] or cpus

    def settings(self):
        given = {k: str(v).replace("{folder}", os.path.abspath(self.args.folder)) for k, v in self.sitting["settings"].items()}
        if self.tiles:
            given = {"tile.cpus": ",".join(map(str, self.tiles)), **given}
        return {"api.warm_start": 1, "sched.ttft_ms": TTFT_MS, "sched.prefix_cache": 0, "exec.huge_plans": 0,
                "port.mbufs": 8192, "door.exchanges": 512, **given}

    def first_s(self, cell):
        """Of a window before, for memory and kernels that are touched for the first time."""
        if cell.split("/")[0] in self.seen:
            return 0
        return min(2.0 if self.seen else 5.0, self.window_s / 8)

    def window(self, a, name, cell, at):
        e = self.sitting["entries"][name]
        rate, warm = e["rates"][at]
        begin = time.monotonic()
        words = ["bench", "serve", "--out", os.path.join(self.args.out, name), "--trace",
                 trace_of(os.path.join(self.args.folder, "traces"), e["trace"]), "--door", self.sitting["door"], "--window", self.window_s, "--first",
                 self.first_s(cell), "--cells", ",".join(e["cells"]), "--rates", f"{rate}@{warm}", "--only", f"{cell}@{rate}",
                 "--gap-ms", e["gap_ms"], "--ttft-ms", TTFT_MS, "--requests", 100000, *SPREAD.get(e["trace"], []),
                 *self.sitting["words"]]
        for note in (f"profile={self.sitting['profile_sum']}", *self.args.note):
            words += ["--note", note]
        if self.sitting["door"] == "h3":
            words += ["--insecure"]
        os.sched_setaffinity(0, self.client)
        try:
            p = subprocess.run([os.path.join(self.bin, "tandemctl"), *map(str, words)], check=False, capture_output=True,
                               text=True, env={**os.environ, "TANDEM_SOCKET": a.settings["control.socket"]},
                               timeout=self.window_s + HANG_S)
        except subprocess.TimeoutExpired as e:  # this window is lost, the rest of the lane is not
            say(f"{name} {cell}@{rate}: hangs: {(e.stderr or b'')[-2000:]}")
            return False
        self.seen.add(cell.split("/")[0])
        if p.returncode == 0:
            self.count(a, name, cell, rate, time.monotonic() - begin)
        say(f"{name} {cell}@{rate} warm {warm}: {time.monotonic() - begin:.1f} s, rc {p.returncode}\n  "
                 + p.stderr.strip().replace("\n", "\n  "))
        return p.returncode == 0

    def count(self, a, name, cell, rate, seconds):
        """The window by its iterations: a line of iterations.jsonl, and all of them in a file for who wants to look."""
        try:
            rows = iterations.window_rows(self.bin, a.settings["flight.path"], seconds, self.window_s)
        except (OSError, ValueError, subprocess.TimeoutExpired) as e:  # the window itself is measured
            say(f"iterations: {e}")
            return
        iterations.file(rows, os.path.join(self.args.out, "iterations", f"{name}_{cell.replace('/', '_').replace(':', '-')}_{rate}.csv.gz"))
        with open(os.path.join(self.args.out, "iterations.jsonl"), "a", encoding="utf-8") as f:
            f.write(json.dumps({"name": name, "cell": cell, "rate": rate,
                                "kinds": iterations.summed(rows, iterations.rest_of(self.sitting["rest"]))}) + "\n")

    def promise(self, a, gap_ms):
        """The promise is a live key: what serves need not start again for it."""
        a.ctl("config", "apply", f"sched.gap_ms={gap_ms}", "--why", "bench")

    def serve(self, steps):
        """With one appliance; ends early where it no longer serves."""
        os.sched_setaffinity(0, self.server)
        begin, gap, bad = time.monotonic(), None, 0
        with Appliance(self.bin, {**self.settings(), "sched.gap_ms": self.gap_of(steps[0])}) as a:
            say(f"ready after {time.monotonic() - begin:.1f} s")
            gap = self.gap_of(steps[0])
            while steps:
                name, cell, where = steps[0]
                at = self.bench.choose(name, cell, where)
                if at is None:
                    steps.pop(0)
                    continue
                if time.monotonic() + self.window_s + self.first_s(cell) + REST_S > self.end:
                    steps.clear()
                    break
                if self.gap_of(steps[0]) != gap:
                    gap = self.gap_of(steps[0])
                    self.promise(a, gap)
                steps.pop(0)
                is_good = self.window(a, name, cell, at)
                self.keep(a)
                archive(self.args.out)
                bad = 0 if is_good else bad + 1
                if bad == 2 or a.process.poll() is not None:
                    say("serves no longer: " + a.log()[-3000:])
                    return

    def gap_of(self, step):
        return self.sitting["entries"][step[0]]["gap_ms"]

    def keep(self, a):
        """What the appliance says of itself, as of now."""
        for name, path in (("status.json", "/status"), ("metrics.txt", "/metrics")):
            try:
                with open(os.path.join(self.args.out, name), "wb") as f:
                    f.write(a.get(path)[1])
            except OSError as e:
                say(f"{path}: {e}")
        with open(os.path.join(self.args.out, "tandemd.log"), "w", encoding="utf-8") as f:
            f.write(a.log()[-200000:])

    def run(self):
        steps = list(self.sitting["lanes"][str(self.args.lanes)][self.args.lane])
        for _ in range(3):  # lives of an appliance
            self.seen.clear()
            if steps and time.monotonic() + min(START_S, 2 * self.window_s) + self.window_s + REST_S < self.end:
                self.serve(steps)
        archive(self.args.out)
        done = 0
        for path in glob.glob(os.path.join(self.args.out, "*_*.json")):
            with open(path, encoding="utf-8") as f:
                done += len(json.load(f).get("cells", []))
        say(f"{done} windows are measured")
        return 0 if done else 1


def sit(args):
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.folder, "sitting.json"), encoding="utf-8") as f:
        return Lane(args, json.load(f)).run()


def a_bench_that_hangs_loses_its_window_alone():
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "bin"))
        with open(os.path.join(folder, "bin", "tandemctl"), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nexec sleep 9\n")
        os.chmod(f.name, 0o755)
        sitting = {"window_s": 0.1, "entries": {"e_60": {"trace": "e", "gap_ms": 60, "rates": [[1.0, 1]], "cells": ["fused/quantile"]}},
                   "seen": {}, "hints": {}, "door": "h3", "words": [], "profile_sum": "0"}
        one = Lane(argparse.Namespace(folder=folder, out=folder, also=[], seconds=9, note=[]), sitting)
        appliance = argparse.Namespace(settings={"control.socket": "/nonexistent"})
        with unittest.mock.patch.dict(globals(), HANG_S=0.1):
            assert not one.window(appliance, "e_60", "fused/quantile", 0)


def self_test():
    """Wherever the capacity is and whatever the plan said, its neighbours are found, each rate looked at once."""
    cnt = 16
    for knee in range(cnt + 1):  # so many rates are kept
        for said in range(cnt):
            have = {said: said < knee}
            for _ in range(cnt):
                at = narrowed(have, cnt)
                if at in have:
                    break
                have[at] = at < knee
            good, bad = max((i for i in have if have[i]), default=-1), min((i for i in have if not have[i]), default=cnt)
            assert (good, bad) == (knee - 1, knee), (knee, said, have)
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as before:
        entry = {"trace": "e", "rates": [[1.0 + i, 1] for i in range(8)],
                 "steps": {"fused/quantile": [True] * 5 + [False] * 3, "serial/quantile": [True] * 4 + [False] * 4,
                           "serial/static:512": [True] * 8, "streams/quantile": [True] * 2 + [False] * 6}}
        sitting = {"entries": {"e_60": entry}, "seen": {"e_60": {"serial/static:512": [[2.0, True], [2.5, False]]}},
                   "hints": {"e_60": {"streams/quantile": [[5.0, True], [6.0, False], [7.0, True]]}}}
        bench = Bench(out, sitting, [before])

        def seen(folder, *cells):
            with open(os.path.join(folder, "e_60.json"), "w", encoding="utf-8") as f:
                json.dump({"cells": [{"path": p, "policy": "quantile", "rate": 1.0 + i, "kept": k, **more}
                                     for p, i, k, more in cells]}, f)
        assert bench.choose("e_60", "fused/quantile", "guess") == 4
        assert bench.choose("e_60", "streams/quantile", "next") == 4  # where another engine kept it
        assert bench.choose("e_60", "serial/static:512", 2.04) is None  # served by the window at 2.0
        assert bench.choose("e_60", "serial/static:512", "next") == 2  # by what was seen, not by what is simulated
        assert bench.choose("e_60", "serial/static:512", "guess") is None and bench.choose("e_60", "serial/static:512", 2.0) is None
        seen(out, ("fused", 4, False, {}), ("fused", 2, True, {}), ("fused", 3, True, {"simulated": {}}))
        assert bench.choose("e_60", "fused/quantile", 5.0) is None
        assert bench.choose("e_60", "fused/quantile", "next") == 3
        assert bench.choose("e_60", "serial/quantile", "guess") == 2  # as fused carries one less than was said
        assert bench.choose("e_60", "serial/quantile", "as fused/quantile") == 2
        assert bench.choose("e_60", "serial/quantile", "as streams/quantile") is None
        seen(before, ("fused", 3, True, {}))  # by another lane, earlier
        assert bench.choose("e_60", "fused/quantile", "next") is None
        sitting["entries"]["e_30"] = entry
        seen(before, ("fused", 3, True, {}), ("serial", 5, True, {}))
        assert bench.choose("e_30", "serial/quantile", "guess") == 5  # its own path's, under the other promise
        assert bench.choose("e_30", "serial/static:512", "guess") == 7 and bench.choose("e_30", "fused/quantile", "guess") == 3
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "lane0")
        os.makedirs(os.path.join(out, "iterations"))
        for name, size in (("e_60.json", 100), ("iterations/e.csv.gz", 1 << 16)):
            with open(os.path.join(out, name), "wb") as f:
                f.write(os.urandom(size))
        for size_max, cnt in ((1 << 20, 4), (1 << 12, 2)):
            archive(out, size_max)
            with tarfile.open(out + ".tar.gz") as tar:
                assert len(tar.getnames()) == cnt and os.path.getsize(out + ".tar.gz") <= size_max, tar.getnames()
    a_bench_that_hangs_loses_its_window_alone()
    print("lane: capacities are narrowed down")
    return 0
